//! Registers the built-in tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{RegisterError, Registry};

use crate::{
    ApplyPatch, EditFile, FindFiles, ListDir, ReadFile, SearchText, UndoChanges, Workspace,
    WriteFile,
};

/// The selection of built-in tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolboxOptions {
    /// True if the model may undo changes. It needs a workspace that stores them.
    pub undo: bool,
}

/// Registers the built-in tools that work in `workspace`.
///
/// ```
/// use toolgate_core::Registry;
/// use toolgate_tools::{ToolboxOptions, Workspace, register_all};
///
/// # let dir = tempfile::tempdir()?;
/// let registry = Registry::new();
/// register_all(&registry, &Workspace::open(dir.path())?, &ToolboxOptions::default())?;
/// assert!(registry.get("edit_file").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn register_all(
    registry: &Registry,
    workspace: &Workspace,
    options: &ToolboxOptions,
) -> Result<(), RegisterError> {
    registry.register(ReadFile::new(workspace.clone()))?;
    registry.register(WriteFile::new(workspace.clone()))?;
    registry.register(EditFile::new(workspace.clone()))?;
    registry.register(ApplyPatch::new(workspace.clone()))?;
    registry.register(ListDir::new(workspace.clone()))?;
    registry.register(FindFiles::new(workspace.clone()))?;
    registry.register(SearchText::new(workspace.clone()))?;
    if options.undo && workspace.store().is_some() {
        registry.register(UndoChanges::new(workspace.clone()))?;
    }
    Ok(())
}
