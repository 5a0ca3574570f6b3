//! Built-in tools: files below a root, search, patches, a sandboxed shell, fetching.

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

#[cfg(unix)]
pub use run_shell::RunShell;
#[cfg(unix)]
pub use sandbox::{Enforced, Kernel, Missing, Namespaces, Network, Sandbox, SandboxError, SandboxMode};
#[cfg(unix)]
pub use shell_options::ShellOptions;
