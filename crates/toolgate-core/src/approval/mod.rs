//! Approval requests, decisions, and the match between the two.

pub(crate) mod callbacks;
pub(crate) mod identity;
pub(crate) mod keys;
pub(crate) mod rule_signature;
pub(crate) mod rules;
pub(crate) mod seal;
pub(crate) mod shown;
pub(crate) mod token;

use std::future::Future;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ApprovalId, ApproverIdentity, Arguments, Call, Digest, LayerName, Principal, SideEffect,
    Timestamp, ToolName,
};

/// The approval request for one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The approval's id; the same call always has the same one.
    pub approval_id: ApprovalId,
    /// The number of earlier approval requests for the call. A decision counts for one generation
    /// only.
    pub generation: u32,
    /// The layer that asks. Set by the runtime, so that no layer uses another one's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<LayerName>,
    /// The tool's name; empty in a request stored before this field existed.
    #[serde(default = "unnamed")]
    pub tool: ToolName,
    /// The arguments, exactly as they will run.
    pub arguments: Arguments,
    /// True if the arguments are absent because they are too large to show or redaction failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// The digest of those arguments; it stays when the arguments are redacted for display.
    pub arguments_digest: Digest,
    /// The fingerprint of the tool, if it is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// The reason approval is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason that the model gave for the call, if it was asked for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated_reason: Option<String>,
    /// The strongest possible effect of the call.
    pub risk: SideEffect,
    /// Additional content to show, such as a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Value>,
    /// The time the request expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The principal on whose behalf the call is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<Principal>,
    /// The version of the policy that requires approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// The files that the shown content was made from, as they were then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileState>,
    /// The paths in the arguments that lead through a link, and where they lead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PathLink>,
    /// The number of approvals needed, if one is not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<Quorum>,
    /// The changes since an earlier approval that make another one necessary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ApprovalChange>,
    /// The digests of the requirements that an approval would meet
    /// ([`ApprovalRequirement::digest`](crate::ApprovalRequirement::digest)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Digest>,
    /// True if the call is asked about each time: no standing rule answers the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each_time: bool,
    /// The directory that the call works in. The stored request has it; events do not show it. It is
    /// absent in requests of earlier versions, and where the program has no workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub workspace: Option<String>,
    /// True if only a signed answer counts. The stored request has it; events do not show it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    pub signed: bool,
    /// The digest of the redacted copy in the event, which lists show. Only the stored request has
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub event_digest: Option<Digest>,
    /// The token that shows that the stored request was not changed. Only the stored request has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub seal: Option<String>,
}

/// A path that leads through a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathLink {
    /// The path as the call has it.
    pub path: String,
    /// The place it leads to.
    pub target: String,
}

/// The reason that the model gave for a call: an extension that a layer puts on the call before it
/// removes the parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedReason(pub std::sync::Arc<str>);

/// A file as it was when approval was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileState {
    /// The file's path.
    pub path: String,
    /// The digest of its content; `None` if there was no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// The number of approvals a call needs. One denial is enough to deny it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quorum {
    /// The number of different people who have to approve.
    pub needed: u32,
    /// The principals who may decide; an empty list means everyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<Principal>,
}

/// A change since the approval. The call does not run; approval is requested again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum ApprovalChange {
    /// The call's arguments changed.
    Arguments,
    /// The tool's fingerprint changed.
    Tool,
    /// The policy's version changed.
    Policy,
    /// A layer requires approval for a reason that the approver was not shown.
    Requirement,
    /// A file differs from what was shown.
    File {
        /// The file's path.
        path: String,
    },
    /// The approval has no token, or one that was not signed with our keys.
    Forged,
    /// The approval was signed with a key that is no longer in the key ring.
    KeyGone,
    /// The token was already used for another run of the call.
    Replayed,
    /// The approvers are too few now: a name that is only claimed does not count.
    Approvers,
    /// The call would run in another directory than the one that was shown.
    Workspace,
    /// The earlier approval request has no seal that can be checked, so it was not shown.
    Unsealed,
}

impl ApprovalChange {
    /// Returns the text that people read.
    pub fn text(&self) -> String {
        let text = match self {
            Self::Arguments => "the arguments differ from those that were approved",
            Self::Tool => "the tool has changed since it was approved",
            Self::Policy => "the policy has changed since it was approved",
            Self::Requirement => {
                "approval is needed for a reason that was not shown when it was approved"
            }
            Self::File { path } => return format!("{path} has changed since it was approved"),
            Self::Forged => "the approval was not signed by this installation",
            Self::KeyGone => "the key that signed the approval no longer exists",
            Self::Replayed => "the approval was already used",
            Self::Approvers => {
                "the approvers of before do not count: their names were only claimed"
            }
            Self::Workspace => "the call would run in another directory than the approved one",
            Self::Unsealed => {
                "the earlier approval request was stored without a seal that can be checked"
            }
        };
        text.to_owned()
    }

    /// Returns the code for it in logs and on the wire.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Arguments => "arguments_changed",
            Self::Tool => "tool_changed",
            Self::Policy => "policy_changed",
            Self::Requirement => "requirement_added",
            Self::File { .. } => "file_changed",
            Self::Forged => "forged",
            Self::KeyGone => "key_gone",
            Self::Replayed => "replayed",
            Self::Approvers => "approvers_missing",
            Self::Workspace => "workspace_changed",
            Self::Unsealed => "request_unsealed",
        }
    }
}

impl ApprovalRequest {
    /// Creates a request for `call` as it is now.
    pub fn for_call(call: &Call) -> Self {
        Self {
            approval_id: ApprovalId::for_call(call.id),
            generation: call.generation,
            asked_by: None,
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            withheld: false,
            arguments_digest: call.arguments.digest(),
            fingerprint: call.shown_tool().map(|shown| shown.entry.fingerprint),
            reason: None,
            stated_reason: call
                .extension::<StatedReason>()
                .map(|stated| stated.0.to_string()),
            risk: call.annotations().strongest_effect(),
            shown: None,
            expires_at: None,
            requester: call.turn().principal.clone(),
            policy_version: None,
            files: Vec::new(),
            links: Vec::new(),
            quorum: None,
            changed: Vec::new(),
            requirements: Vec::new(),
            each_time: false,
            workspace: None,
            signed: false,
            event_digest: None,
            seal: None,
        }
    }

    /// Names the requirements on `call` that an approval of this request would meet.
    pub fn naming_requirements(mut self, call: &Call) -> Self {
        self.requirements = call
            .unmet_requirements()
            .map(crate::ApprovalRequirement::digest)
            .collect();
        self.each_time = call.unmet_requirements().any(|required| required.each_time);
        self
    }

    /// Sets the reason approval is needed.
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Sets additional content to show, such as a diff.
    pub fn with_preview(mut self, shown: Value) -> Self {
        self.shown = Some(shown);
        self
    }

    /// Sets the time the request expires.
    pub fn expiring_at(mut self, expires_at: Timestamp) -> Self {
        self.expires_at = Some(expires_at);
        self
    }
}

fn unnamed() -> ToolName {
    ToolName::from("")
}

/// A reference to one approval request: its id, its generation and the digest of the arguments.
///
/// Approval can be requested more than once for a call. A decision that names another request than
/// the pending one is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRequestRef {
    /// The approval's id.
    pub approval_id: ApprovalId,
    /// The generation of the call.
    pub generation: u32,
    /// The digest of the arguments in the request.
    pub arguments_digest: Digest,
}

impl From<&ApprovalRequest> for ApprovalRequestRef {
    fn from(request: &ApprovalRequest) -> Self {
        let ApprovalRequest {
            approval_id,
            generation,
            arguments_digest,
            ..
        } = *request;
        Self {
            approval_id,
            generation,
            arguments_digest,
        }
    }
}

/// The decision on an approval request, and the approver.
///
/// The serialized form is for the store. A client must not send it, because it could then say how
/// its own identity was established; the approval service parses what clients send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// Approve, approve with edits, or deny.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The approver, and how it is known who that is.
    #[serde(flatten)]
    pub by: ApproverIdentity,
    /// True if the approver has acknowledged that the request was not shown in full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// The reason of an approval, if one is given. That of a denial is part of the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_reason: Option<String>,
}

/// The three possible decisions. Any other word is an error and never an approval.
///
/// ```
/// use toolgate_core::Verdict;
/// assert!(serde_json::from_str::<Verdict>(r#"{"decision":"approve"}"#).is_ok());
/// for other in ["Approve", "yes", "approved", "", "approve "] {
///     let text = format!(r#"{{"decision":"{other}"}}"#);
///     assert!(serde_json::from_str::<Verdict>(&text).is_err());
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Verdict {
    /// Run the call as it is.
    Approve,
    /// Run the call with these arguments instead.
    ApproveWithEdits {
        /// The arguments to run with; they are checked like any others.
        arguments: Arguments,
    },
    /// Do not run the call.
    Deny {
        /// The reason, as a text for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

impl Verdict {
    /// Returns the word under which the decision is recorded: `approved` or `denied`.
    pub const fn decided_word(&self) -> &'static str {
        match self {
            Self::Approve | Self::ApproveWithEdits { .. } => "approved",
            Self::Deny { .. } => "denied",
        }
    }
}

impl Decision {
    /// Creates a decision to run the call as it is.
    pub fn approve(by: impl Into<ApproverIdentity>) -> Self {
        Self {
            verdict: Verdict::Approve,
            by: by.into(),
            unseen: false,
            approval_reason: None,
        }
    }

    /// Creates a decision to run the call with other arguments.
    pub fn approve_with_edits(by: impl Into<ApproverIdentity>, arguments: Arguments) -> Self {
        Self {
            verdict: Verdict::ApproveWithEdits { arguments },
            by: by.into(),
            unseen: false,
            approval_reason: None,
        }
    }

    /// Creates a decision not to run the call.
    pub fn deny(by: impl Into<ApproverIdentity>, reason: Option<&str>) -> Self {
        Self {
            verdict: Verdict::Deny {
                reason: reason.map(str::to_owned),
            },
            by: by.into(),
            unseen: false,
            approval_reason: None,
        }
    }

    /// Adds the reason of an approval, for the record. It is not sent to the model.
    pub fn with_approval_reason(mut self, reason: impl Into<String>) -> Self {
        self.approval_reason = Some(reason.into());
        self
    }

    /// Records that the approver has acknowledged that the request was not shown in full.
    pub fn unseen(mut self) -> Self {
        self.unseen = true;
        self
    }
}

/// A decision together with the request it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalAnswer {
    /// The layer that asked.
    pub asked_by: LayerName,
    /// The generation of the call.
    pub generation: u32,
    /// The digest of the arguments in the request.
    pub arguments_digest: Digest,
    /// The fingerprint of the tool in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// The decision.
    pub decision: Decision,
    /// The time the decision was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// The signed token that binds the decision to the request and to the approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The other approvers, if a quorum was needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<ApproverIdentity>,
    /// The digests of the requirements that the request named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Digest>,
}

impl ApprovalAnswer {
    /// Creates the answer to a request.
    pub fn for_request(request: &ApprovalRequest, decision: Decision) -> Self {
        Self {
            asked_by: request
                .asked_by
                .clone()
                .unwrap_or_else(|| LayerName::from("executor")),
            generation: request.generation,
            arguments_digest: request.arguments_digest,
            fingerprint: request.fingerprint,
            decision,
            decided_at: None,
            token: None,
            with: Vec::new(),
            requirements: request.requirements.clone(),
        }
    }

    /// Checks whether the request named every requirement on the call that is not met.
    pub fn covers_requirements(&self, call: &Call) -> bool {
        call.unmet_requirements()
            .all(|required| self.requirements.contains(&required.digest()))
    }

    /// Returns the approvers, the one who decided last first.
    pub fn approvers(&self) -> impl Iterator<Item = &ApproverIdentity> {
        [&self.decision.by].into_iter().chain(&self.with)
    }

    /// Returns the approvers with how each was established; nothing if all names are only claimed.
    pub fn established_identities(&self) -> Vec<ApproverIdentity> {
        let is_bare = |by: &ApproverIdentity| *by == ApproverIdentity::from(&by.name);
        if self.approvers().all(is_bare) {
            Vec::new()
        } else {
            self.approvers().cloned().collect()
        }
    }

    /// Checks whether the decision denies the call.
    pub fn is_denial(&self) -> bool {
        matches!(self.decision.verdict, Verdict::Deny { .. })
    }

    /// Checks whether this answer covers arguments with this digest.
    ///
    /// An approval with edits covers the edited arguments. Layers above the point where edits are
    /// applied still see the arguments of the request, so there it covers those.
    pub fn covers_arguments(&self, arguments: Digest, edits: EditStage) -> bool {
        match (&self.decision.verdict, edits) {
            (Verdict::ApproveWithEdits { arguments: edited }, EditStage::Applied) => {
                edited.digest() == arguments
            }
            // Plain approvals and denials cover the arguments of the request, as does an edit above
            // the point where it is applied.
            _ => self.arguments_digest == arguments,
        }
    }
}

/// The position of a layer relative to the point where edited arguments are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditStage {
    /// Below it: the call has the edited arguments.
    Applied,
    /// Above it: the call has the model's arguments.
    NotApplied,
}

/// A person or program that decides on approval requests.
///
/// Returning `None` leaves the call suspended: the decision comes later, perhaps from another
/// process. An approver that panics has not decided either.
pub trait Approver: Send + Sync + 'static {
    /// Decides on the request, or leaves it pending.
    fn decide(&self, request: ApprovalRequest) -> impl Future<Output = Option<Decision>> + Send;
}

/// The object-safe form of [`Approver`] that runtimes store.
pub trait DynApprover: Send + Sync {
    /// Decides on the request, or leaves it pending.
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, Option<Decision>>;
}

impl<A: Approver> DynApprover for A {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'_, Option<Decision>> {
        Box::pin(Approver::decide(self, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_words_are_decisions() {
        let read = |text: &str| serde_json::from_str::<Decision>(text);
        assert!(read(r#"{"decision":"approve","by":"ann"}"#).is_ok());
        assert!(read(r#"{"decision":"deny","by":"ann"}"#).is_ok());
        for bad in [
            r#"{"decision":"APPROVE","by":"ann"}"#,
            r#"{"decision":"allow","by":"ann"}"#,
            r#"{"decision":null,"by":"ann"}"#,
            r#"{"decision":true,"by":"ann"}"#,
            r#"{"by":"ann"}"#,
            r#"{"decision":"approve"}"#,
            r#"{"decision":"approve_with_edits","by":"ann"}"#,
            r#"{"decision":"approve_with_edits","arguments":[],"by":"ann"}"#,
            "null",
            "\"approve\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_names_its_tool_and_one_stored_without_a_name_still_parses() {
        let request = ApprovalRequest::for_call(&Call::detached("pay", Arguments::empty()));
        assert_eq!(request.tool.as_str(), "pay");
        let mut kept = serde_json::to_value(&request).expect("writes");
        assert_eq!(
            serde_json::from_value::<ApprovalRequest>(kept.clone()).expect("reads"),
            request
        );
        kept.as_object_mut().expect("an object").remove("tool");
        let old: ApprovalRequest = serde_json::from_value(kept).expect("reads");
        assert_eq!(
            old,
            ApprovalRequest {
                tool: unnamed(),
                ..request
            }
        );
    }

    #[test]
    fn an_answer_covers_the_arguments_of_its_request_and_no_others() {
        let call = Call::detached("t", Arguments::parse(r#"{"n":1}"#).expect("object"));
        let request = ApprovalRequest::for_call(&call);
        let other = Arguments::parse(r#"{"n":2}"#).expect("object");
        let plain = ApprovalAnswer::for_request(&request, Decision::approve("ann"));
        let asked = call.arguments.digest();
        let third = Digest::of_bytes(b"third");
        for edits in [EditStage::Applied, EditStage::NotApplied] {
            assert!(
                plain.covers_arguments(asked, edits)
                    && !plain.covers_arguments(other.digest(), edits)
            );
        }
        let edited = ApprovalAnswer::for_request(
            &request,
            Decision::approve_with_edits("ann", other.clone()),
        );
        assert!(
            edited.covers_arguments(other.digest(), EditStage::Applied)
                && !edited.covers_arguments(asked, EditStage::Applied)
        );
        assert!(
            edited.covers_arguments(asked, EditStage::NotApplied)
                && !edited.covers_arguments(third, EditStage::Applied)
        );
    }
}
