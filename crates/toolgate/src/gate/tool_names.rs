//! Names of tools in the configuration that no tool of the gate has.

use toolgate_core::ToolChoice;
use toolgate_layers::{KnownTools, UnknownTool};

use crate::{
    Result,
    gate::{Gate, HooksSection},
};

impl Gate {
    /// Returns the names of the tools and agents that calls can name.
    pub fn known_tools(&self) -> KnownTools {
        let tools = self.registry.entries().into_iter();
        let tools = tools.map(|entry| entry.spec.name.clone());
        KnownTools::new(tools.chain(self.agent_names()))
    }

    /// Returns the names in rules, hooks and options of the configuration that no tool has. A rule
    /// that denies calls of a misspelt tool is no protection.
    ///
    /// Call it after the last tool was added.
    ///
    /// # Errors
    ///
    /// Fails if the configuration cannot be read.
    pub fn unknown_tools(&self) -> Result<Vec<UnknownTool>> {
        let known = self.known_tools();
        let config = &self.assembly.config;
        let mut unknown = known.check_layers(config)?;
        let hooks = HooksSection::of(config)?;
        for (list, hooks) in [("pre", &hooks.pre), ("post", &hooks.post)] {
            for (at, hook) in hooks.iter().enumerate() {
                let place = format!("hooks.{list}, entry {}", at + 1);
                unknown.extend(known.check(&place, &hook.tool, true));
            }
        }
        if let ToolChoice::Named(name) = &self.assembly.run.tool_choice {
            unknown.extend(known.check("run.tool_choice", name.as_str(), false));
        }
        for agent in &self.assembly.agents.0 {
            let place = format!("agent {:?}, tools", agent.name);
            let names = agent.tools.iter().flatten();
            unknown.extend(names.filter_map(|name| known.check(&place, name, false)));
        }
        Ok(unknown)
    }
}
