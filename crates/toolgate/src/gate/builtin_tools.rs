//! The built-in tools, rooted in the workspace of the gate.

use std::{collections::BTreeSet, path::Path};

use globset::Glob;
use toolgate_core::{Registry, StoreHandle};
use toolgate_layers::{Config, KnownTools};
use toolgate_tools::{RunShell, ToolboxOptions, Workspace, register_all};

use crate::{Error, Result, gate::ToolsSection};

/// Registers the built-in tools that the configuration names, in a registry that has no others yet.
pub(super) fn register_builtin_tools(
    registry: &Registry,
    workspace: &Path,
    store: &StoreHandle,
    config: &Config,
) -> Result<()> {
    let section = ToolsSection::of(config)?;
    let files = Workspace::open(workspace).map_err(Error::from_source)?;
    let files = files
        .with_undo_store(store.clone())
        .with_limits(section.files);
    let mut options = ToolboxOptions::default();
    options.undo = section.undo;
    register_all(registry, &files, &options)?;
    let shell = RunShell::new(workspace, section.shell.clone()).map_err(Error::from_source)?;
    registry.register(shell)?;
    #[cfg(feature = "http")]
    {
        let fetch = toolgate_tools::FetchUrl::new(section.fetch.clone())
            .map_err(|error| Error::configuration(error.to_string()))?;
        registry.register(fetch)?;
    }
    remove_unnamed_tools(registry, section.only.as_deref())
}

/// Removes the tools that the configuration does not name.
fn remove_unnamed_tools(registry: &Registry, wanted: Option<&[String]>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let mut kept = BTreeSet::new();
    for pattern in wanted {
        let glob = Glob::new(pattern)
            .map_err(|error| Error::configuration(format!("tools.only: {error}")))?
            .compile_matcher();
        let before = kept.len();
        let names = registry
            .entries()
            .into_iter()
            .map(|entry| entry.spec.name.clone());
        kept.extend(names.filter(|name| glob.is_match(name.as_str())));
        // A misspelt name would silently leave the agent without the tool.
        if kept.len() == before {
            let names = registry.entries().into_iter();
            let known = KnownTools::new(names.map(|entry| entry.spec.name.clone()));
            if let Some(unknown) = known.check("tools.only", pattern, false) {
                return Err(Error::configuration(unknown.to_string())
                    .with_hint("`toolgate tools list` lists them"));
            }
        }
    }
    let others = registry
        .entries()
        .into_iter()
        .filter(|entry| !kept.contains(&entry.spec.name));
    others.for_each(|entry| drop(registry.remove(entry.spec.name.as_str())));
    Ok(())
}
