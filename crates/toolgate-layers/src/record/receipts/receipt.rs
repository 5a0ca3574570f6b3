//! The typed record of one settled call: caller, decisions, outcome. Digests, never contents.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::{
    AgentId, ApproverIdentity, Band, CallId, ConsentNote, Digest, ErrorCategory, ExecutorTag,
    Labels, LayerName, LayerStatus, Principal, Provenance, SessionId, Status, Timestamp, ToolHints,
    ToolKind, ToolName, TurnId,
};

use crate::Commitment;

/// The record of one settled call.
///
/// The names of notes by tools and layers follow the conventions of the agent protocols:
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
/// Digests are computed over redacted copies, in which a commitment replaces each redacted value
/// (see [`CommitmentKey`](crate::CommitmentKey)): two calls that differ only in a secret have
/// different digests, and the secret cannot be guessed from them. What a redacting layer further in
/// removed from a result before it arrived here leaves no trace.
// Fields are in the order of canonical JSON, so that a receipt is written in one pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Receipt {
    /// The agent's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The agent's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<Arc<str>>,
    /// The approval decision about the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ReceiptApproval>,
    /// The size of the digested arguments in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_bytes: Option<u64>,
    /// The digest of the arguments as the model wrote them, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_digest: Option<Digest>,
    /// The number of times the executor was started.
    pub attempts: u32,
    /// All other notes. A note that is too large for a receipt is
    /// `{"truncated": true, "bytes": …}`, and `notes_left_out` counts those that did not fit at
    /// all.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub audit: Map<String, Value>,
    /// True if the result was cached from an earlier call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The provider's id of the call; a label only.
    pub call_id: Arc<str>,
    /// The changes of arguments and result, by layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Provenance>,
    /// The commitments that replace redacted values in the digests; at most 64 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commitments: Vec<Commitment>,
    /// The consent or denial of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<ConsentNote>,
    /// The cost of the call, if known: the charged amount, or else the tool's price if it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// A longer reason in free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The position in the model's message; absent in JSON for the first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub emit_order: u32,
    /// The time the call left the stack.
    pub ended_at: Timestamp,
    /// The category of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_category: Option<ErrorCategory>,
    /// The digest of the arguments that the tool received, redacted, if they differ from those of
    /// the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_args_digest: Option<Digest>,
    /// The executor that ran the call; absent if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorTag>,
    /// The fingerprint of the tool, if the model saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// The number of times the call was suspended before; absent in JSON if it never was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u32,
    /// The known effects of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<ToolHints>,
    /// The invocation.
    pub invocation_id: CallId,
    /// The iteration of the run.
    pub iteration: u32,
    /// The kind of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    /// The labels of the session and the run.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The decision of each layer, in order of entering.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerDecision>,
    /// The model that requested the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The version of the policy that judged the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<Arc<str>>,
    /// The principal on whose behalf the call ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
    /// The provider of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// The reason the call was blocked or denied: the reason of the approver or rule for a denial,
    /// otherwise the text that the model read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The location of this copy. In the copy of a sink without locations of its own, that of the
    /// record which was written before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_uri: Option<String>,
    /// True if something is omitted because it could not be redacted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redaction_failed: bool,
    /// The size of the digested result in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// The digest of the raw result, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<Digest>,
    /// The version of the receipt format.
    pub schema_version: u32,
    /// The scope that the call ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Value>,
    /// The session.
    pub session_id: SessionId,
    /// The time the call entered the stack, the last time if it was suspended.
    pub started_at: Timestamp,
    /// The status of the outcome.
    pub status: Status,
    /// One line for people; the model's reason, if it had to give one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The tool's name.
    pub tool_name: ToolName,
    /// The turn.
    pub turn_id: TurnId,
}

/// The decision of one layer about a call.
// Fields are in the order of canonical JSON, so that a receipt is written in one pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LayerDecision {
    /// True if it answered without running the layers below.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// The number of the attempt, from 1; absent in JSON for the first.
    #[serde(default = "first_attempt", skip_serializing_if = "is_first_attempt")]
    pub attempt: u32,
    /// The layer's band.
    pub band: Band,
    /// True if it changed the arguments or the outcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    /// The time the call spent in the layer and below, in microseconds.
    pub duration_us: u64,
    /// The failure of the layer itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The layer's name.
    pub name: LayerName,
    /// The layer's own reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// The state in which the call left the layer; absent in JSON for `ok`.
    #[serde(default = "ok_status", skip_serializing_if = "is_ok_status")]
    pub status: LayerStatus,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn first_attempt() -> u32 {
    1
}

fn is_first_attempt(attempt: &u32) -> bool {
    *attempt == first_attempt()
}

fn ok_status() -> LayerStatus {
    LayerStatus::Settled(Status::Ok)
}

fn is_ok_status(status: &LayerStatus) -> bool {
    *status == ok_status()
}

/// The approval in a receipt.
// Fields are in the order of canonical JSON, so that a receipt is written in one pass.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct ReceiptApproval {
    /// The time the decision was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The approver who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// The approvers with how each was established, the one who decided first. Empty if all names
    /// are only claimed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<ApproverIdentity>,
    /// The standing rule that approved instead of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The digest of the token that bound the decision. The token itself is never in a receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Digest>,
    /// True if the approver has acknowledged that the request was not shown in full.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// The other approvers, if more than one was needed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Principal>,
}

impl Receipt {
    /// The current version. Since version 2, commitments to redacted values are part of the digests;
    /// version 3 leaves out what follows from the rest: the receipt's id, and numbers and states of
    /// layers that are as usual.
    pub const SCHEMA_VERSION: u32 = 3;

    /// Returns the receipt's id, which is the invocation's id. A call that settles again after the
    /// loss of its process has the same id.
    pub fn receipt_id(&self) -> CallId {
        self.invocation_id
    }

    /// Checks whether this approver took part in the decision.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_receipt_of_an_earlier_version_says_what_a_new_one_leaves_out() {
        let id = "00000000-0000-0000-0000-000000000001";
        let written = json!({
            "attempts": 1,
            "call_id": "c",
            "ended_at": "2026-11-19T00:00:01.000000Z",
            "invocation_id": id,
            "iteration": 0,
            "layers": [{ "band": "decide", "duration_us": 3, "name": "policy" }],
            "schema_version": 3,
            "session_id": id,
            "started_at": "2026-11-19T00:00:00.000000Z",
            "status": "ok",
            "tool_name": "t",
            "turn_id": id,
        });
        let mut earlier = written.clone();
        earlier["emit_order"] = 0.into();
        earlier["generation"] = 0.into();
        earlier["receipt_id"] = id.into();
        earlier["layers"][0]["attempt"] = 1.into();
        earlier["layers"][0]["status"] = "ok".into();
        let read = |value| serde_json::from_value::<Receipt>(value).expect("a receipt");
        let receipt = read(earlier);
        assert_eq!(receipt, read(written.clone()));
        assert_eq!(receipt.receipt_id().to_string(), id);
        assert_eq!(receipt.layers[0].attempt, 1);
        assert_eq!(receipt.layers[0].status, LayerStatus::Settled(Status::Ok));
        assert_eq!(serde_json::to_value(&receipt).expect("writes"), written);
    }

    #[test]
    fn what_is_not_as_usual_is_written() {
        let unusual = json!({
            "attempt": 2, "band": "bound", "duration_us": 3, "name": "timeout", "status": "timeout",
        });
        let layer: LayerDecision = serde_json::from_value(unusual.clone()).expect("a layer");
        assert_eq!(serde_json::to_value(&layer).expect("writes"), unusual);
    }
}
