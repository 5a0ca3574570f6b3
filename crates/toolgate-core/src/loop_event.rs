//! What happens between turns: what people say, what models are asked and reply, how a run ends.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Finish, ModelErrorKind, Routed, Usage};

/// What happens to a run: the part of the log that is about the model and not about tools.
///
/// Each is part of the turn that the model is asked for. Words are redacted and bounded like everywhere in the log; the
/// whole messages are records beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LoopEvent {
    /// Somebody said something to the model.
    UserMessage {
        /// The number of the message in the session.
        message: u64,
        /// What was said, as far as it may be shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Whether it came while a run was under way.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steering: bool,
    },
    /// A model was chosen.
    ModelRouted(Routed),
    /// A model is asked: the one that the turn names.
    InferenceStarted {
        /// How often it was asked for this turn, counted from 1.
        attempt: u32,
        /// How many messages it reads.
        messages: u64,
        /// How many tools it is shown.
        tools: u32,
    },
    /// A model has replied.
    InferenceFinished {
        /// The number of the message in the session.
        message: u64,
        /// What was said, as far as it may be shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// How many calls it asks for.
        calls: u32,
        /// Why it stopped.
        finish: Finish,
        /// What it used, if the provider told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// What that cost.
        cost: Cost,
    },
    /// A model has not replied.
    InferenceFailed {
        /// What kind of failure it is.
        code: ModelErrorKind,
        /// What went wrong.
        error: String,
        /// After how many milliseconds it is asked again, if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    },
    /// The oldest messages are left out from now on.
    HistoryCompacted {
        /// How many are left out in all.
        skipped: u64,
        /// How many are kept.
        kept: u64,
    },
    /// A skill was loaded.
    SkillLoaded {
        /// Which one.
        skill: String,
        /// Whether the round was not counted for it.
        refunded: bool,
    },
    /// So much of a budget is used up.
    BudgetAlert {
        /// Which budget, as people call it.
        budget: String,
        /// The period it is for.
        period: String,
        /// The threshold that was reached, in percent.
        percent: u8,
        /// How much is used, in the unit of the budget.
        spent: String,
        /// How much there is.
        limit: String,
    },
    /// A coordinator over a large context has made a step.
    RecursiveIteration {
        /// Which step, counted from 1. On the wire it is the `step`: every event has an `iteration`, the turn's.
        #[serde(rename = "step")]
        iteration: u32,
        /// How many there may be.
        max: u32,
        /// Whether the answer is there.
        ready: bool,
        /// The tokens used so far.
        tokens: u64,
        /// What was done, in a line.
        summary: String,
        /// What the coordinator keeps in mind.
        scratchpad: String,
        /// How much of its budgets is used, in percent of the one that is nearest its end.
        budget: u8,
    },
    /// The run is over, for now or for good.
    RunEnded {
        /// Why.
        end: RunEnd,
        /// What went wrong, if something did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// How many rounds were made.
        iterations: u32,
        /// What all of them used.
        usage: Usage,
        /// What that cost.
        cost: Cost,
    },
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// The model said what it had to say.
    Completed,
    /// Calls wait for a decision or for a result from outside.
    Suspended,
    /// The rounds are used up. The model was asked once more, without tools; its answer is not complete.
    MaxIterations,
    /// The next step would cost more than is left.
    BudgetExceeded,
    /// The model went round in circles.
    LoopGuard,
    /// Somebody stopped it.
    Cancelled,
    /// A model did not reply, or something else went wrong.
    Failed,
}

impl RunEnd {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Suspended => "suspended",
            Self::MaxIterations => "max_iterations",
            Self::BudgetExceeded => "budget_exceeded",
            Self::LoopGuard => "loop_guard",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What something cost, if that is known. Not knowing is not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Nobody knows the price, or what was used.
    #[default]
    Unknown,
    /// Billionths of a US dollar.
    NanoUsd(u64),
}

impl Cost {
    /// Both together; with something unknown, the sum is unknown.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        match (self, more) {
            (Self::NanoUsd(a), Self::NanoUsd(b)) => Self::NanoUsd(a.saturating_add(b)),
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::NanoUsd(nano) => write!(
                f,
                "${}.{:06}",
                nano / 1_000_000_000,
                nano % 1_000_000_000 / 1000
            ),
        }
    }
}

impl LoopEvent {
    /// The word on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::UserMessage { .. } => "user_message",
            Self::ModelRouted(_) => "model_routed",
            Self::InferenceStarted { .. } => "inference_started",
            Self::InferenceFinished { .. } => "inference_finished",
            Self::InferenceFailed { .. } => "inference_failed",
            Self::HistoryCompacted { .. } => "history_compacted",
            Self::SkillLoaded { .. } => "skill_loaded",
            Self::BudgetAlert { .. } => "budget_alert",
            Self::RecursiveIteration { .. } => "recursive_iteration",
            Self::RunEnded { .. } => "run_ended",
        }
    }

    /// Every word on the wire.
    pub(crate) const NAMES: [&'static str; 10] = [
        "user_message",
        "model_routed",
        "inference_started",
        "inference_finished",
        "inference_failed",
        "history_compacted",
        "skill_loaded",
        "budget_alert",
        "recursive_iteration",
        "run_ended",
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cost_stays_unknown_and_is_never_nothing() {
        assert_eq!(Cost::NanoUsd(1).plus(Cost::NanoUsd(2)), Cost::NanoUsd(3));
        assert_eq!(Cost::NanoUsd(1).plus(Cost::Unknown), Cost::Unknown);
        assert_eq!(
            (
                Cost::Unknown.to_string(),
                Cost::NanoUsd(1_500_000_000).to_string()
            ),
            ("unknown".into(), "$1.500000".into())
        );
    }
}
