//! Agents to delegate to and skills, from the configuration.

use std::sync::Arc;

use toolgate::{
    Agent, Model, Registry,
    session::{SessionBuilder, Skills},
};

use crate::{
    CliError,
    env::settings::{AgentSection, RunSection},
};

/// Builds an agent of the configuration; without a model of its own it uses that of the run.
pub(crate) fn build_agent(
    section: &AgentSection,
    model: &Arc<dyn Model>,
    registry: &Registry,
) -> Result<Agent, CliError> {
    let model = match &section.model {
        // The section is only read if no name is given, so an empty one will do.
        Some(name) => crate::assembly::model::open_model(
            Some(&crate::assembly::model::parse_model_name(name)?),
            &RunSection::default(),
        )?,
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

/// Installs the skills of the configuration and announces them to the model.
pub(crate) fn install_skills(
    builder: SessionBuilder,
    section: &RunSection,
    registry: &Registry,
) -> Result<SessionBuilder, CliError> {
    if section.skills.is_empty() {
        return Ok(builder);
    }
    let found = Skills::discover(&section.skills);
    // A skill that fails to load is an error, not a warning: the model would silently lack it.
    if let Some(problem) = found.problems.first() {
        return Err(CliError::from_error(problem)
            .with_hint("fix the skill, or remove its directory from `skills` under [run]"));
    }
    found.skills.install(registry)?;
    Ok(builder.strategy(found.skills))
}
