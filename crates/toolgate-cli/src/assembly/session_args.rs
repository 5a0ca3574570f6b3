//! The options that `run` and `chat` share: model, limits and gate, and the session they describe.

use clap::Args;
use serde::{Deserialize, Serialize};
use toolgate::{
    Gate, Session,
    budget::{BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit},
    gate::{ModelOptions, RunStrategy},
    model::{RetryPolicy, TaskComplexity},
    session::{Gated, OnFailure, SessionBuilder},
    value::{HumanDuration, SessionId},
};

use crate::{
    CliError, GateArgs,
    assembly::stored_options::{ADDRESS_VARIABLE, MODEL_VARIABLE},
};

/// The model and the limits of a session.
///
/// They are stored with the session, so that it is resumed without options; see
/// `assembly/stored_options.rs`.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionArgs {
    /// The model, as provider:name (openai, anthropic, …)
    #[arg(
        long,
        short,
        value_name = "MODEL",
        env = MODEL_VARIABLE,
        hide_env_values = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's address; its key goes there
    #[arg(
        long,
        value_name = "URL",
        env = ADDRESS_VARIABLE,
        hide_env_values = true
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Limit the iterations (model requests) of a run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// Limit the US dollars that this run may spend on models
    #[arg(long, value_name = "USD", value_parser = parse_usd)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Limit the time that a run may take, such as 5m
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<HumanDuration>,
    /// Cancel the other calls of a turn when one fails, and end the run
    #[arg(long)]
    pub stop_on_failure: bool,
    /// Do not ask the model again after a temporary failure
    #[arg(long)]
    pub no_retry: bool,
    /// The complexity of the work, for the routing among models
    #[arg(long, value_name = "WEIGHT", value_parser = parse_weight)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<TaskComplexity>,
    /// How the model works on files and the standard input; an option of `run`.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RunStrategy>,
    /// Drive the resumed session even if another process does; asks first
    #[arg(long)]
    #[serde(skip)]
    pub take_over: bool,
    /// Confirm --take-over without a terminal
    #[arg(long, requires = "take_over")]
    #[serde(skip)]
    pub yes: bool,
    /// The options of the gate.
    #[command(flatten)]
    #[serde(flatten)]
    pub gate: GateArgs,
}

impl SessionArgs {
    /// Returns the builder of a session with these options: a new session, or the one that is
    /// named.
    pub fn session_builder(
        &self,
        gate: &Gate,
        session: Option<SessionId>,
    ) -> Result<SessionBuilder<Gated>, CliError> {
        let options = ModelOptions {
            retry: self.no_retry.then(RetryPolicy::never),
            base_url: self.base_url.clone(),
        };
        let mut builder = session_with_model(gate, self.model.as_deref(), options)?;
        if let Some(limit) = self.deadline {
            builder = builder.deadline(limit.get());
        }
        if self.stop_on_failure {
            builder = builder.on_failure(OnFailure::Abort);
        }
        if let Some(weight) = self.weight {
            builder = builder.weight(weight);
        }
        if let Some(session) = session {
            builder = builder.session(session);
        }
        if let Some(rounds) = self.max_iterations {
            builder = builder.max_iterations(rounds);
        }
        if let Some(limit) = self.budget {
            let run = BudgetRule::new(
                "--budget",
                BudgetScope::Run,
                BudgetPeriod::Total,
                BudgetUnit::Usd,
                limit,
            );
            builder = builder.budget(run);
        }
        Ok(builder)
    }

    /// Opens the session.
    ///
    /// # Errors
    ///
    /// Fails if the model or the session cannot be opened.
    pub async fn open_session(
        &self,
        gate: &Gate,
        session: Option<SessionId>,
    ) -> Result<Session, CliError> {
        Ok(self.session_builder(gate, session)?.build().await?)
    }
}

/// Returns the builder of a session with the model that is named, or the one of the configuration.
pub(crate) fn session_with_model(
    gate: &Gate,
    named: Option<&str>,
    options: ModelOptions,
) -> Result<SessionBuilder<Gated>, CliError> {
    let name = named.or(gate.default_model()).ok_or_else(|| {
        CliError::usage("no model is named").with_hint(
            "add --model provider:name, or put `model = \"provider:name\"` under [run] in toolgate.toml; \
             `toolgate demo` needs none",
        )
    })?;
    Ok(gate.session_builder_with(name, options)?)
}

fn parse_weight(word: &str) -> Result<TaskComplexity, String> {
    match word {
        "light" => Ok(TaskComplexity::Light),
        "medium" => Ok(TaskComplexity::Medium),
        "heavy" => Ok(TaskComplexity::Heavy),
        _ => Err("expected light, medium or heavy".to_owned()),
    }
}

/// Parses an amount of US dollars into billionths of a dollar.
fn parse_usd(text: &str) -> Result<u64, String> {
    let amount: f64 = text
        .trim_start_matches('$')
        .parse()
        .map_err(|_| "expected an amount such as 0.50".to_owned())?;
    if !amount.is_finite() || !(0.0..1e9).contains(&amount) {
        return Err("expected an amount of at least 0 and less than a billion".to_owned());
    }
    Ok((amount * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_parsed_to_the_billionth_and_nonsense_is_rejected() {
        assert_eq!(
            (parse_usd("0.50"), parse_usd("$2"), parse_usd("0")),
            (Ok(500_000_000), Ok(2_000_000_000), Ok(0))
        );
        for wrong in ["", "ten", "-1", "NaN", "inf", "1e12"] {
            assert!(parse_usd(wrong).is_err(), "{wrong}");
        }
    }
}
