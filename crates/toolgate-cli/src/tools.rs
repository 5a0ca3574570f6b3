//! The tools that agents of the command line have.

use std::{collections::BTreeSet, path::Path};

use globset::Glob;
use toolgate::{Registry, StoreHandle, layers::ReadOutput};
use toolgate_tools::{FetchUrl, RunShell, ToolboxOptions, Workspace, register_all};

use crate::{CliError, settings::ToolsSection};

/// Registers the built-in tools that the configuration wants, rooted in `workspace`.
pub(crate) fn register(
    registry: &Registry,
    workspace: &Path,
    store: &StoreHandle,
    section: &ToolsSection,
) -> Result<(), CliError> {
    let files = Workspace::open(workspace).map_err(|error| CliError::of(&error))?;
    let files = files.keeping(store.clone()).with_limits(section.files);
    let mut options = ToolboxOptions::default();
    options.undo = section.undo;
    register_all(registry, &files, &options)?;
    let shell =
        RunShell::new(workspace, section.shell.clone()).map_err(|error| CliError::of(&error))?;
    registry.register(shell)?;
    registry.register(
        FetchUrl::new(section.fetch.clone()).map_err(|error| CliError::usage(error.to_string()))?,
    )?;
    registry.register(ReadOutput::default())?;
    only(registry, section.only.as_deref())
}

/// Takes away what the configuration does not name.
fn only(registry: &Registry, wanted: Option<&[String]>) -> Result<(), CliError> {
    let Some(wanted) = wanted else { return Ok(()) };
    let mut kept = BTreeSet::new();
    for pattern in wanted {
        let glob = Glob::new(pattern)
            .map_err(|error| CliError::usage(format!("tools.only: {error}")))?
            .compile_matcher();
        let before = kept.len();
        let names = registry
            .entries()
            .into_iter()
            .map(|entry| entry.spec.name.clone());
        kept.extend(names.filter(|name| glob.is_match(name.as_str())));
        if kept.len() == before {
            return Err(CliError::usage(format!(
                "tools.only names {pattern}, and there is no such tool"
            ))
            .hint("`toolgate tools list` lists them"));
        }
    }
    let others = registry
        .entries()
        .into_iter()
        .filter(|entry| !kept.contains(&entry.spec.name));
    others.for_each(|entry| drop(registry.remove(entry.spec.name.as_str())));
    Ok(())
}
