//! Built-in tools: files below a root, search, patches, a sandboxed shell, fetching.

#[cfg(feature = "http")]
mod fetch_addresses;
#[cfg(feature = "http")]
mod fetch_options;
#[cfg(feature = "http")]
mod fetch_text;
#[cfg(feature = "http")]
mod fetch_url;
#[cfg(unix)]
mod run_shell;
#[cfg(unix)]
mod sandbox;
#[cfg(unix)]
mod shell_options;
#[cfg(unix)]
mod shell_output;
#[cfg(unix)]
mod shell_pipes;

#[cfg(feature = "http")]
pub use fetch_options::{FetchOptions, FetchSetupError};
#[cfg(feature = "http")]
pub use fetch_url::FetchUrl;
#[cfg(unix)]
pub use run_shell::RunShell;
#[cfg(unix)]
pub use sandbox::{Enforced, Kernel, Missing, Namespaces, Network, Sandbox, SandboxError, SandboxMode};
#[cfg(unix)]
pub use shell_options::ShellOptions;
