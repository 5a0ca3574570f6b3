//! Agents to delegate to, and skills, as the configuration names them.

use std::sync::Arc;

use toolgate::{Agent, Model, Registry, SessionBuilder, Skills};

use crate::{
    CliError,
    settings::{AgentSection, RunSection},
};

/// An agent of the configuration; without a model of its own it has that of the run.
pub(crate) fn agent(
    section: &AgentSection,
    model: &Arc<dyn Model>,
    registry: &Registry,
) -> Result<Agent, CliError> {
    let model = match &section.model {
        Some(name) => crate::model::open(Some(&crate::model::read(name)?), &RunSection::default())?,
        None => model.clone(),
    };
    let agent = Agent::new(
        section.name.as_str(),
        section.description.clone(),
        model,
        registry.clone(),
    );
    let AgentSection {
        instructions,
        tools,
        max_iterations,
        ..
    } = section.clone();
    Ok(agent.session(move |mut builder| {
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

/// The skills that the configuration names, announced to the model.
pub(crate) fn with_skills(
    builder: SessionBuilder,
    section: &RunSection,
    registry: &Registry,
) -> Result<SessionBuilder, CliError> {
    if section.skills.is_empty() {
        return Ok(builder);
    }
    let found = Skills::discover(&section.skills);
    if let Some(problem) = found.problems.first() {
        return Err(CliError::of(problem)
            .hint("mend the skill, or take its directory out of `skills` under [run]"));
    }
    found.skills.install(registry)?;
    Ok(builder.strategy(found.skills))
}
