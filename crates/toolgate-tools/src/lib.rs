//! Built-in tools: files below a root, search, patches, a sandboxed shell, fetching.

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
pub use sandbox::{Enforced, Kernel, Missing, Namespaces, Network, Sandbox, SandboxError, SandboxMode};
#[cfg(unix)]
pub use shell_options::ShellOptions;
