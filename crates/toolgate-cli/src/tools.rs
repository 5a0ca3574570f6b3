//! The tools that agents of the command line have.

use std::path::Path;

use toolgate::{Registry, StoreHandle, layers::ReadOutput};

use crate::{CliError, settings::ToolsSection};

/// Registers the built-in tools, rooted in `workspace`.
pub(crate) fn register(
    registry: &Registry,
    _workspace: &Path,
    _store: &StoreHandle,
    _section: &ToolsSection,
) -> Result<(), CliError> {
    registry.register(ReadOutput::default())?;
    Ok(())
}
