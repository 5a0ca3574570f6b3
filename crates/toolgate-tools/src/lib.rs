//! Built-in tools: files below a root, search, patches, a sandboxed shell, fetching.
//!
//! Every tool is one file and one type. The file tools work below the root of a [`Workspace`] and cannot leave it,
//! whatever links are swapped in while they work. A change happens in one step and as a whole, over several files too;
//! with a store the workspace keeps what was there before, so that a call can be taken back and a crash leaves no doubt.
//!
//! ```
//! use toolgate_core::{Arguments, Call, Registry, Stack};
//! use toolgate_tools::{ToolboxOptions, Workspace, register_all};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! let registry = Registry::new();
//! register_all(&registry, &Workspace::open(path)?, &ToolboxOptions::default())?;
//! let stack = Stack::over(registry).build()?;
//! let call = Call::detached("write_file", Arguments::parse(r#"{"path":"a.txt","content":"hello\n"}"#)?);
//! assert!(stack.run(call).await.is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The three types to know are [`Workspace`], [`ToolboxOptions`] (which tools there are) and [`ChangeSet`] (what a call
//! has changed). Who may call what, asking people, time limits and long results are left to the layers.

mod apply_patch;
mod blocking;
mod changes;
mod changing;
mod commit;
mod edit_file;
mod expected;
mod files;
mod find_files;
mod hunks;
mod list_dir;
mod near_miss;
mod patch;
mod place;
mod read_file;
mod replace;
mod report;
mod search_text;
mod sniff;
mod suggest;
mod text;
mod toolbox;
mod undo_changes;
mod walk;
mod workspace;
mod write_file;

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

pub use apply_patch::ApplyPatch;
pub use changes::{ChangeSet, ChangedFile, FileVersion};
pub use edit_file::EditFile;
pub use find_files::FindFiles;
pub use list_dir::ListDir;
pub use read_file::ReadFile;
pub use search_text::SearchText;
pub use toolbox::{ToolboxOptions, register_all};
pub use undo_changes::UndoChanges;
pub use workspace::{FileLimits, Workspace, WorkspaceError};
pub use write_file::WriteFile;

#[cfg(feature = "http")]
pub use fetch_options::{FetchOptions, FetchSetupError};
#[cfg(feature = "http")]
pub use fetch_url::FetchUrl;
#[cfg(unix)]
pub use run_shell::RunShell;
#[cfg(unix)]
pub use sandbox::{
    Enforced, Kernel, Missing, Namespaces, Network, Sandbox, SandboxError, SandboxMode,
};
#[cfg(unix)]
pub use shell_options::ShellOptions;
