//! The built-in tools of a session.

use std::{collections::BTreeSet, path::Path};

use globset::Glob;
use toolgate::{Config, Registry, layers::ReadOutput, store::StoreHandle};
use toolgate_tools::{FetchUrl, RunShell, ToolboxOptions, Workspace, register_all};

use crate::{CliError, env::settings::ToolsSection};

/// Returns the built-in tools that the configuration names, rooted in `workspace`.
pub(crate) fn build_registry(
    workspace: &Path,
    store: &StoreHandle,
    config: &Config,
) -> Result<Registry, CliError> {
    let section: ToolsSection = config.section()?;
    let registry = Registry::new();
    let files = Workspace::open(workspace).map_err(|error| CliError::from_error(&error))?;
    let files = files
        .with_undo_store(store.clone())
        .with_limits(section.files);
    let mut options = ToolboxOptions::default();
    options.undo = section.undo;
    register_all(&registry, &files, &options)?;
    let shell = RunShell::new(workspace, section.shell.clone())
        .map_err(|error| CliError::from_error(&error))?;
    registry.register(shell)?;
    registry.register(
        FetchUrl::new(section.fetch.clone()).map_err(|error| CliError::usage(error.to_string()))?,
    )?;
    registry.register(ReadOutput::default())?;
    remove_unnamed_tools(&registry, section.only.as_deref())?;
    Ok(registry)
}

/// Removes the tools that the configuration does not name.
fn remove_unnamed_tools(registry: &Registry, wanted: Option<&[String]>) -> Result<(), CliError> {
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
        // A misspelt name would silently leave the agent without the tool.
        if kept.len() == before {
            return Err(CliError::usage(format!(
                "tools.only names {pattern}, and there is no such tool"
            ))
            .with_hint("`toolgate tools list` lists them"));
        }
    }
    let others = registry
        .entries()
        .into_iter()
        .filter(|entry| !kept.contains(&entry.spec.name));
    others.for_each(|entry| drop(registry.remove(entry.spec.name.as_str())));
    Ok(())
}
