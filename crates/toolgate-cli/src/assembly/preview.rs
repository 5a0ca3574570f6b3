//! The gate for inspection: over a store in memory, without keys, so that nothing is persisted or
//! signed.

use toolgate::{
    Config, Registry, Stack,
    store::{MemoryStore, StoreHandle},
};

use crate::{
    CliError, CommandContext, GateArgs,
    assembly::{gate::shared_resources, rules, tools},
    env::settings::RunSection,
};

/// The layers and tools of a configuration, over a store in memory.
#[derive(Debug)]
pub(crate) struct GatePreview {
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    pub(crate) stack: Stack,
}

impl GatePreview {
    /// Builds the preview of the configuration in effect.
    pub(crate) fn open(cx: &CommandContext, args: &GateArgs) -> Result<Self, CliError> {
        Self::from_config(cx, cx.load_config()?, args)
    }

    /// Builds the preview of a configuration.
    pub(crate) fn from_config(
        cx: &CommandContext,
        config: Config,
        args: &GateArgs,
    ) -> Result<Self, CliError> {
        let run: RunSection = config.section()?;
        let config = rules::apply_gate_args(config, args.approve.unwrap_or(run.approve), args)?;
        let store = StoreHandle::new(MemoryStore::new());
        let registry = tools::build_registry(&cx.paths.workspace, &store, &config)?;
        // No keys among the parts: loading them would create them.
        let stack = config.build(
            registry.clone(),
            &shared_resources(cx, &store, &cx.current_user()),
        )?;
        Ok(Self {
            config,
            registry,
            stack,
        })
    }
}
