//! The events of a run: user messages, model requests and replies, and how the run ends.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BudgetAlert, FinishReason, Json, MemoryId, ModelErrorKind, RoutedModel, Usage};

/// An event of a run: the part of the log that is about the model and not about tools.
///
/// Each belongs to the turn that the model request is for. Texts are redacted and truncated like
/// everywhere in the log; the full messages are stored as records beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionEvent {
    /// The user sent a message to the model.
    UserMessage {
        /// The number of the message in the session.
        message: u64,
        /// The text, redacted; of a long one its beginning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The length of the whole redacted text in bytes, if `text` is only its beginning. The
        /// record of the message has all of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_bytes: Option<u64>,
        /// True if it arrived during a run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        steering: bool,
    },
    /// A model was chosen.
    ModelRouted(RoutedModel),
    /// A request is sent to the model that the turn names.
    InferenceStarted {
        /// The number of the request for this turn, counted from 1.
        attempt: u32,
        /// The number of messages it reads.
        messages: u64,
        /// The number of tools it is shown.
        tools: u32,
    },
    /// A model has replied.
    InferenceFinished {
        /// The number of the message in the session.
        message: u64,
        /// The text, redacted; of a long one its beginning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The length of the whole redacted text in bytes, if `text` is only its beginning. The
        /// record of the message has all of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_bytes: Option<u64>,
        /// The number of calls it asks for.
        calls: u32,
        /// The reason it stopped.
        finish: FinishReason,
        /// The tokens it used, if the provider reported them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// The cost.
        cost: Cost,
    },
    /// A model request failed.
    InferenceFailed {
        /// The kind of failure.
        code: ModelErrorKind,
        /// The error message.
        error: String,
        /// The delay before the retry in milliseconds, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    },
    /// The oldest messages are no longer sent to the model.
    HistoryCompacted {
        /// The number of messages left out so far.
        skipped: u64,
        /// The number of messages still sent.
        kept: u64,
    },
    /// A skill was loaded.
    SkillLoaded {
        /// The skill's name.
        skill: String,
        /// True if the iteration that loaded it does not count.
        refunded: bool,
    },
    /// Memories were put into the instructions of the run, as quoted data.
    MemoryRecalled {
        /// The ids of the memories, most relevant first.
        memories: Vec<MemoryId>,
        /// The tokens that they were counted with.
        tokens: u64,
    },
    /// A budget has reached an alert threshold.
    BudgetAlert(BudgetAlert),
    /// A recursive agent over a large context has made a step.
    RecursiveIteration {
        /// The number of the step, counted from 1. On the wire it is `step`, because every event
        /// already has an `iteration`, the turn's.
        #[serde(rename = "step")]
        iteration: u32,
        /// The maximum number of steps.
        max: u32,
        /// True if the answer is ready.
        ready: bool,
        /// The tokens used so far.
        tokens: u64,
        /// A one-line summary of the step.
        summary: String,
        /// The coordinator's scratchpad.
        scratchpad: String,
        /// The used part of the budget that is closest to its limit, in percent.
        budget: u8,
    },
    /// Another program says that its model asked for this call. It was imported as history: no gate
    /// of ours decided on it, and there is no receipt for it.
    ImportedCall {
        /// The number of the message in the session.
        message: u64,
        /// The label of the call in that program.
        label: String,
        /// The tool's name in that program.
        tool: String,
        /// The arguments, redacted; absent if redaction failed or they are too large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Json>,
    },
    /// Another program says that this was the result of a call.
    ImportedResult {
        /// The number of the message in the session.
        message: u64,
        /// The label of the call in that program.
        label: String,
        /// The tool's name in that program.
        tool: String,
        /// The text for the model, redacted; of a long one its beginning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The length of the whole redacted text in bytes, if `text` is only its beginning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_bytes: Option<u64>,
        /// True if that program says that the call did not succeed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// The run has ended or is suspended.
    RunEnded {
        /// The reason.
        end: RunEnd,
        /// The error message, if it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// The number of iterations.
        iterations: u32,
        /// The tokens used by all of them.
        usage: Usage,
        /// The cost.
        cost: Cost,
    },
}

/// The reason a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// The model finished its answer.
    Completed,
    /// Calls wait for a decision or an external result.
    Suspended,
    /// The iteration limit was reached. The model was asked once more, without tools; its answer is
    /// incomplete.
    MaxIterations,
    /// The next step would cost more than is left.
    BudgetExceeded,
    /// A loop was detected.
    LoopGuard,
    /// A deadline was reached. What was running is cancelled; what waits for a decision still
    /// does.
    Deadline,
    /// The run was cancelled.
    Cancelled,
    /// A model request failed, or another error occurred.
    Failed,
}

impl RunEnd {
    /// Every way in which a run ends.
    pub const ALL: [Self; 8] = [
        Self::Completed,
        Self::Suspended,
        Self::MaxIterations,
        Self::BudgetExceeded,
        Self::LoopGuard,
        Self::Deadline,
        Self::Cancelled,
        Self::Failed,
    ];

    /// Returns the text that people read.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Completed => "done",
            Self::Suspended => "suspended",
            Self::MaxIterations => "iteration limit reached",
            Self::BudgetExceeded => "budget exceeded",
            Self::LoopGuard => "loop detected",
            Self::Deadline => "deadline reached",
            Self::Cancelled => "interrupted",
            Self::Failed => "failed",
        }
    }

    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Suspended => "suspended",
            Self::MaxIterations => "max_iterations",
            Self::BudgetExceeded => "budget_exceeded",
            Self::LoopGuard => "loop_guard",
            Self::Deadline => "deadline",
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

/// A cost, if it is known. Unknown is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// The price or the usage is unknown.
    #[default]
    Unknown,
    /// Billionths of a US dollar.
    NanoUsd(u64),
}

impl Cost {
    /// Returns the sum, which is unknown if either part is.
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

impl SessionEvent {
    /// Returns the wire name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::UserMessage { .. } => "user_message",
            Self::ModelRouted(_) => "model_routed",
            Self::InferenceStarted { .. } => "inference_started",
            Self::InferenceFinished { .. } => "inference_finished",
            Self::InferenceFailed { .. } => "inference_failed",
            Self::HistoryCompacted { .. } => "history_compacted",
            Self::SkillLoaded { .. } => "skill_loaded",
            Self::MemoryRecalled { .. } => "memory_recalled",
            Self::BudgetAlert(_) => "budget_alert",
            Self::RecursiveIteration { .. } => "recursive_iteration",
            Self::ImportedCall { .. } => "imported_call",
            Self::ImportedResult { .. } => "imported_result",
            Self::RunEnded { .. } => "run_ended",
        }
    }

    /// The wire names of all variants.
    // A test compares this list with `name`.
    pub(crate) const NAMES: [&'static str; 13] = [
        "user_message",
        "model_routed",
        "inference_started",
        "inference_finished",
        "inference_failed",
        "history_compacted",
        "skill_loaded",
        "memory_recalled",
        "budget_alert",
        "recursive_iteration",
        "imported_call",
        "imported_result",
        "run_ended",
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cost_stays_unknown_and_is_never_zero() {
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
