//! Built-in tools: files below a root, search, patches, a sandboxed shell, fetching.
//!
//! Every tool is one file and one type. The file tools work below the root of a [`Workspace`] and
//! cannot leave it, even if links are swapped in while they run. A change is all or nothing, also
//! over several files. With a store the workspace also stores the old contents, so that a call can
//! be undone and a crash leaves no unknown outcome.
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
//! The three types to know are [`Workspace`], [`ToolboxOptions`] (selects the tools) and
//! [`ChangeSet`] (the files a call changed). Permissions, approval, time limits and the truncation
//! of long results are left to the layers.

#[cfg(feature = "http")]
mod fetch;
mod files;
#[cfg(unix)]
mod shell;
mod toolbox;
mod workspace;

pub use files::apply_patch::ApplyPatch;
pub use files::edit_file::EditFile;
pub use files::find_files::FindFiles;
pub use files::list_dir::ListDir;
pub use files::read_file::ReadFile;
pub use files::search_text::SearchText;
pub use files::undo_changes::UndoChanges;
pub use files::write_file::WriteFile;
pub use toolbox::{ToolboxOptions, register_all};
pub use workspace::changes::{ChangeSet, ChangedFile, FileVersion};
pub use workspace::{FileLimits, Workspace, WorkspaceError};

#[cfg(feature = "http")]
pub use fetch::FetchUrl;
#[cfg(feature = "http")]
pub use fetch::options::{FetchOptions, FetchSetupError};
#[cfg(unix)]
pub use shell::RunShell;
#[cfg(unix)]
pub use shell::options::ShellOptions;
#[cfg(unix)]
pub use shell::sandbox::{
    KernelFeatures, MissingFeature, NamespaceSupport, NetworkAccess, Sandbox, SandboxEnforcement,
    SandboxError, SandboxMode,
};

/// A door for the fuzz targets in `fuzz/`; not for other use.
#[doc(hidden)]
pub mod __fuzz {
    use toolgate_core::patch::Patch;

    use crate::files::apply_hunks::apply_hunks;

    /// Applies the diff of one file to its text.
    pub fn apply_diff(text: &str, patch: &str) -> Result<String, String> {
        let files = Patch::parse(patch).and_then(Patch::into_unified);
        let files = files.map_err(|error| error.to_string())?;
        let hunks: Vec<_> = files.into_iter().flat_map(|file| file.hunks).collect();
        apply_hunks(text, &hunks).map(|patched| patched.text)
    }
}
