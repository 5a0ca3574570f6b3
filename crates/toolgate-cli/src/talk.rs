//! What `run` and `chat` share: which model, how far it may go, and the session that comes of it.

use clap::Args;
use toolgate::{
    BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, ModelName, Session, SessionBuilder,
    SessionId,
};

use crate::{CliError, Gate, GateArgs};

/// Which model, and how far it may go.
#[derive(Debug, Clone, Default, Args)]
pub struct TalkArgs {
    /// The model, as provider:name (openai, anthropic, google, ollama, script:FILE, …)
    #[arg(
        long,
        short,
        value_name = "MODEL",
        env = "TOOLGATE_MODEL",
        hide_env_values = true
    )]
    pub model: Option<String>,
    /// How many rounds of calls there may be
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: Option<u32>,
    /// How many US dollars this run may spend on models
    #[arg(long, value_name = "USD", value_parser = usd)]
    pub budget: Option<u64>,
    /// What the gate lets through.
    #[command(flatten)]
    pub gate: GateArgs,
}

impl TalkArgs {
    /// The model that was named.
    pub fn model_name(&self) -> Result<Option<ModelName>, CliError> {
        self.model.as_deref().map(crate::model::read).transpose()
    }

    /// A session as these options say: a new one, or the one that is named.
    pub fn session(
        &self,
        gate: &Gate,
        session: Option<SessionId>,
    ) -> Result<SessionBuilder, CliError> {
        let model = gate.model(self.model_name()?.as_ref())?;
        let mut builder = gate.session(model, session)?;
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
            builder = builder.budgets(Budgets::new(
                gate.config.budgets().rules().iter().cloned().chain([run]),
            ));
        }
        Ok(builder)
    }

    /// The session, opened.
    pub async fn open(&self, gate: &Gate, session: Option<SessionId>) -> Result<Session, CliError> {
        Ok(self.session(gate, session)?.build().await?)
    }
}

/// Reads an amount of US dollars, as billionths of one.
fn usd(text: &str) -> Result<u64, String> {
    let amount: f64 = text
        .trim_start_matches('$')
        .parse()
        .map_err(|_| "an amount such as 0.50".to_owned())?;
    if !amount.is_finite() || !(0.0..1e9).contains(&amount) {
        return Err("an amount of at least 0 and less than a billion".to_owned());
    }
    Ok((amount * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_to_the_billionth_and_nonsense_is_refused() {
        assert_eq!(
            (usd("0.50"), usd("$2"), usd("0")),
            (Ok(500_000_000), Ok(2_000_000_000), Ok(0))
        );
        for wrong in ["", "ten", "-1", "NaN", "inf", "1e12"] {
            assert!(usd(wrong).is_err(), "{wrong}");
        }
    }
}
