//! The typed record of one settled call: who asked, what was decided, what came of it. Digests, never contents.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::{
    AgentId, Band, CallId, Consent, Digest, ErrorCategory, ExecutorTag, Hints, Kind, LayerName,
    LayerStatus, Principal, Provenance, SessionId, Status, Timestamp, ToolName, TurnId,
};

use crate::Commitment;

/// One settled call.
///
/// The names that tools and layers use for what they note follow the conventions of the agent protocols:
///
/// | Convention | In [`NoteFields`](toolgate_core::NoteFields) | Here | Known elsewhere as |
/// |---|---|---|---|
/// | `summary` | `summary` | `summary` | ACP `title`, OpenAI `summary_text` |
/// | `description` | `description` | `description` | OTel `gen_ai.tool.description` |
/// | `kind` | `kind` | `kind` | ACP `ToolCall.kind` |
/// | `hints` | `hints` | `hints` | MCP tool annotations |
/// | `consent` | `consent` | `consent` | kept off the call by ACP and MCP |
/// | `scope` | `scope` | `scope` | the stage the call ran in |
/// | `layers` | `layers`, written by the runtime | `layers` | one entry per layer entered |
/// | `metadata` | `metadata` | `audit`, without `policy_version` | A2A `metadata` |
///
/// Digests are taken of the redacted copies, in which a commitment stands in place of each redacted value (see
/// [`CommitmentKey`](crate::CommitmentKey)): two calls that differ only in a secret have different digests, and nobody
/// can guess it. What a redacting layer further in took out of a result before it came here leaves no trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Receipt {
    /// Which version of this record it is.
    pub schema_version: u32,
    /// Which receipt: the invocation's id. A call that is settled again after the loss of its process has the same.
    pub receipt_id: CallId,
    /// Where the record is kept, if another sink wrote it down before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_uri: Option<String>,
    /// Which session.
    pub session_id: SessionId,
    /// Which turn.
    pub turn_id: TurnId,
    /// Which invocation.
    pub invocation_id: CallId,
    /// The provider's id, a label.
    pub call_id: String,
    /// How often the call had been suspended before.
    #[serde(default)]
    pub generation: u32,
    /// Which round of the loop.
    pub iteration: u32,
    /// The position in the model's message.
    pub emit_order: u32,
    /// Which tool.
    pub tool_name: ToolName,
    /// The fingerprint of the tool, if the model was shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// Who ran it; nobody, if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorTag>,
    /// How it ended.
    pub status: Status,
    /// What kind of failure it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<ErrorCategory>,
    /// How often the executor was started.
    pub attempts: u32,
    /// Whether the result was remembered from an earlier call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// When the call came in, for the last time if it was suspended.
    pub started_at: Timestamp,
    /// When it left.
    pub ended_at: Timestamp,
    /// The digest of the arguments as the model wrote them, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_digest: Option<Digest>,
    /// The size of what was digested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_bytes: Option<u64>,
    /// The digest of the arguments that the tool was given, redacted, if they are not the ones the model wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_args_digest: Option<Digest>,
    /// The digest of the raw result, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<Digest>,
    /// The size of what was digested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// What stands in for redacted values where something was digested; at most 64 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commitments: Vec<Commitment>,
    /// Whether something is left out because it could not be redacted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redaction_failed: bool,
    /// One line for people; the model's reason, if it had to give one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// A longer reason in free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Why the call was refused, in the words the model was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What kind of work it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// What the tool is known to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<Hints>,
    /// What each layer did, in order of entering.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerDecision>,
    /// Who changed which places of the arguments or the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Provenance>,
    /// Who agreed or refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<Consent>,
    /// The approval under which it ran or did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ReceiptApproval>,
    /// The narrowed surface under which the call ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Value>,
    /// The version of the policy that judged it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// Which model asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// Which provider served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
    /// Which agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// What the agent is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<Arc<str>>,
    /// What the call has cost, if that is known: what was booked, or else the tool's price if it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// What else was noted. A note that is too large for a receipt is `{"truncated": true, "bytes": …}`, and
    /// `notes_left_out` says how many there was no room for at all.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub audit: Map<String, Value>,
}

/// What one layer did with a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LayerDecision {
    /// The layer.
    pub name: LayerName,
    /// The band it stands in.
    pub band: Band,
    /// How the call left it.
    pub status: LayerStatus,
    /// Whether it answered without running what is below it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// Whether it changed the arguments or the outcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    /// Which attempt, counted from 1.
    pub attempt: u32,
    /// How long the call was inside, in microseconds.
    pub duration_us: u64,
    /// Why, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong with the layer itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An approval, as a receipt has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ReceiptApproval {
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// Who else approved, if it took more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Principal>,
    /// When the decision was taken in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The digest of the token that bound the decision. The token itself is in no receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Digest>,
    /// The standing rule that approved in place of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Receipt {
    /// The version that is written now. One who reads receipts of an earlier version finds less in them; since 2, what
    /// was redacted is part of the digests, as commitments.
    pub const SCHEMA_VERSION: u32 = 2;

    /// Whether somebody had a say in the call under this name.
    pub(crate) fn is_approved_by(&self, approver: &Principal) -> bool {
        let named = |approval: &ReceiptApproval| {
            approval.by.as_ref() == Some(approver) || approval.with.contains(approver)
        };
        self.approval.as_ref().is_some_and(named)
            || self
                .consent
                .as_ref()
                .is_some_and(|consent| consent.decided_by == *approver)
    }
}
