//! Built-in tools: files below a root, search, patches, a sandboxed shell, fetching.

mod blocking;
mod changes;
mod changing;
mod commit;
mod edit_file;
mod expected;
mod files;
mod find_files;
mod list_dir;
mod near_miss;
mod place;
mod read_file;
mod replace;
mod report;
mod search_text;
mod sniff;
mod suggest;
mod text;
mod toolbox;
mod walk;
mod workspace;
mod write_file;

pub use changes::{ChangeSet, ChangedFile, FileVersion};
pub use edit_file::EditFile;
pub use find_files::FindFiles;
pub use list_dir::ListDir;
pub use read_file::ReadFile;
pub use search_text::SearchText;
pub use toolbox::{ToolboxOptions, register_all};
pub use workspace::{FileLimits, Workspace, WorkspaceError};
pub use write_file::WriteFile;

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
