//! The gate as it would be, for looking at it: nothing is opened, kept or signed, and nothing can run for real.

use toolgate::{Config, MemoryStore, Registry, Stack, StoreHandle};

use crate::{
    CliError, Cx, GateArgs,
    gate::parts,
    rules,
    settings::{RunSection, ToolsSection},
    tools,
};

/// Layers and tools as the configuration and the command line say, over a store in memory.
#[derive(Debug)]
pub(crate) struct Preview {
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    pub(crate) stack: Stack,
}

impl Preview {
    /// What the configuration that counts here comes to.
    pub(crate) fn open(cx: &Cx, args: &GateArgs) -> Result<Self, CliError> {
        Self::of(cx, cx.config()?, args)
    }

    /// What a configuration comes to.
    pub(crate) fn of(cx: &Cx, config: Config, args: &GateArgs) -> Result<Self, CliError> {
        let run: RunSection = config.section()?;
        let config = rules::overlay(config, args.approve.unwrap_or(run.approve), args)?;
        let (store, registry) = (StoreHandle::new(MemoryStore::new()), Registry::new());
        tools::register(
            &registry,
            &cx.paths.workspace,
            &store,
            &config.section::<ToolsSection>()?,
        )?;
        let stack = config.build(registry.clone(), &parts(cx, &store, &cx.me()))?;
        Ok(Self {
            config,
            registry,
            stack,
        })
    }
}
