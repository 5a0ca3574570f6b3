//! Agents to delegate to and skills, from the configuration.

use std::path::Path;

use toolgate_core::Registry;
use toolgate_runtime::{Agent, Skills};

use crate::{
    Error, Result,
    gate::{
        AgentSection, RunSection,
        models::{ModelSetup, PreparedModel},
    },
};

/// Builds an agent of the configuration; without a model of its own it uses that of the run.
pub(super) fn build_agent(
    section: &AgentSection,
    setup: &ModelSetup<'_>,
    of_run: &PreparedModel,
    registry: &Registry,
) -> Result<Agent> {
    let own = match &section.model {
        Some(name) => Some(setup.prepare_model(name.as_str().into())?),
        None => None,
    };
    let PreparedModel { model, may_use } = own.as_ref().unwrap_or(of_run);
    let may_use = may_use.clone();
    let agent = Agent::new(
        section.name.as_str(),
        section.description.clone(),
        model.clone(),
        registry.clone(),
    );
    let AgentSection {
        instructions,
        tools,
        max_iterations,
        ..
    } = section.clone();
    Ok(agent.session(move |builder| {
        let mut builder = builder.may_use(may_use.iter().cloned());
        if let Some(instructions) = &instructions {
            builder = builder.instructions(instructions.as_str());
        }
        if let Some(tools) = &tools {
            builder = builder.allow(tools.iter().map(String::as_str));
        }
        if let Some(rounds) = max_iterations {
            builder = builder.max_iterations(rounds);
        }
        builder
    }))
}

/// Loads the skills of the configuration and registers their tools.
pub(super) fn install_skills(
    section: &RunSection,
    workspace: Option<&Path>,
    registry: &Registry,
) -> Result<Option<Skills>> {
    if section.skills.is_empty() {
        return Ok(None);
    }
    let directories = section.skills.iter();
    let found = Skills::discover(directories.map(|directory| match workspace {
        Some(workspace) => workspace.join(directory),
        None => directory.clone(),
    }));
    // A skill that fails to load is an error, not a warning: the model would silently lack it.
    if let Some(problem) = found.problems.into_iter().next() {
        return Err(Error::from_source(problem)
            .with_hint("fix the skill, or remove its directory from `skills` under [run]"));
    }
    found.skills.install(registry)?;
    Ok(Some(found.skills))
}
