//! Ask, answer, and match the answer to the question.

use std::future::Future;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ApprovalId, Arguments, Call, Digest, LayerName, Principal, SideEffect, Timestamp, ToolName,
};

/// The question put to a person about one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// Which approval; the same call always has the same one.
    pub approval_id: ApprovalId,
    /// How often the call has been asked about before. An answer counts for one generation only.
    pub generation: u32,
    /// Which layer asks. Filled in by the runtime, so that no layer takes another one's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<LayerName>,
    /// Which tool. A question that was kept before this was said names none.
    #[serde(default = "unnamed")]
    pub tool: ToolName,
    /// Exactly what will run.
    pub arguments: Arguments,
    /// Whether the arguments are left out here because they are too large to show or could not be redacted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// The digest of those arguments; it stays when the arguments are redacted for display.
    pub arguments_digest: Digest,
    /// The fingerprint of the tool, if it is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// Why somebody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The strongest effect to reckon with.
    pub risk: SideEffect,
    /// What else is shown, such as a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Value>,
    /// When the question lapses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// On whose behalf the call is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<Principal>,
    /// The version of the policy under which it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<String>,
    /// The files that what is shown was made from, as they were then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileState>,
    /// How many have to agree, if one is not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<Quorum>,
    /// Why it is asked again although somebody has approved: what is not as it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
}

/// A file as it was when a question about it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileState {
    /// Where it is.
    pub path: String,
    /// The digest of its content; nothing if there was no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// How many have to agree before a call runs. One who denies is enough for it not to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quorum {
    /// How many different people have to approve.
    pub needed: u32,
    /// Who may decide; anybody, if nobody is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub among: Vec<Principal>,
}

/// What is not as it was when somebody approved. The call is not made; somebody is asked again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Changed {
    /// The call has other arguments now.
    Arguments,
    /// The tool has another fingerprint now.
    Tool,
    /// The policy is another one now.
    Policy,
    /// A file is not as it was shown.
    File {
        /// Which one.
        path: String,
    },
    /// The approval carries no token, or one that was not signed by us.
    Forged,
    /// The approval was signed with a key that does not count any more.
    KeyGone,
    /// The token was used for another run of the call.
    Replayed,
}

impl Changed {
    /// The word for it, in codes and logs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Arguments => "arguments_changed",
            Self::Tool => "tool_changed",
            Self::Policy => "policy_changed",
            Self::File { .. } => "file_changed",
            Self::Forged => "forged",
            Self::KeyGone => "key_gone",
            Self::Replayed => "replayed",
        }
    }
}

impl ApprovalRequest {
    /// Asks about `call` as it is now.
    pub fn about(call: &Call) -> Self {
        Self {
            approval_id: ApprovalId::of(call.id),
            generation: call.generation,
            asked_by: None,
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            withheld: false,
            arguments_digest: call.arguments.digest(),
            fingerprint: call.shown().map(|shown| shown.entry.fingerprint),
            reason: None,
            risk: call.annotations().effect(),
            shown: None,
            expires_at: None,
            requester: call.turn().principal.clone(),
            policy_version: None,
            files: Vec::new(),
            quorum: None,
            changed: Vec::new(),
        }
    }

    /// Says why somebody is asked.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Shows something along with the question.
    pub fn showing(mut self, shown: Value) -> Self {
        self.shown = Some(shown);
        self
    }

    /// Says when the question lapses.
    pub fn until(mut self, expires_at: Timestamp) -> Self {
        self.expires_at = Some(expires_at);
        self
    }
}

fn unnamed() -> ToolName {
    ToolName::from("")
}

/// Which question a decision answers: about which call, asked for the how-manieth time, about which arguments.
///
/// A call can be asked about more than once. A decision that names another question than the one that is open is
/// not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// Which approval.
    pub approval_id: ApprovalId,
    /// Which generation of the call.
    pub generation: u32,
    /// The digest of the arguments that were asked about.
    pub arguments_digest: Digest,
}

impl From<&ApprovalRequest> for Question {
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

/// The answer to an approval request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// Yes, yes but otherwise, or no.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Who decided.
    pub by: Principal,
}

/// The three possible answers. Any other word is not an answer and never an approval.
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
    /// Run it as it is.
    Approve,
    /// Run it with these arguments instead.
    ApproveWithEdits {
        /// The arguments to run with; they are checked like any others.
        arguments: Arguments,
    },
    /// Do not run it.
    Deny {
        /// Why, in words for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

impl Decision {
    /// Run it as it is.
    pub fn approve(by: impl Into<Principal>) -> Self {
        Self {
            verdict: Verdict::Approve,
            by: by.into(),
        }
    }

    /// Run it with other arguments.
    pub fn approve_with_edits(by: impl Into<Principal>, arguments: Arguments) -> Self {
        Self {
            verdict: Verdict::ApproveWithEdits { arguments },
            by: by.into(),
        }
    }

    /// Do not run it.
    pub fn deny(by: impl Into<Principal>, reason: Option<&str>) -> Self {
        Self {
            verdict: Verdict::Deny {
                reason: reason.map(str::to_owned),
            },
            by: by.into(),
        }
    }
}

/// A decision together with the question it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// Which layer asked.
    pub asked_by: LayerName,
    /// For which generation of the call.
    pub generation: u32,
    /// The digest of the arguments that were asked about.
    pub arguments_digest: Digest,
    /// The fingerprint of the tool that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// What was decided.
    pub decision: Decision,
    /// When it was taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// The signed token that binds the decision to the question and to whoever made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Who else approved, if it took more than one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Principal>,
}

impl Answer {
    /// Puts a decision beside the request it answers.
    pub fn to(request: &ApprovalRequest, decision: Decision) -> Self {
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
        }
    }

    /// Whether the call must not run.
    pub fn is_denial(&self) -> bool {
        matches!(self.decision.verdict, Verdict::Deny { .. })
    }

    /// Whether this answer is about arguments with this digest.
    ///
    /// An approval with edits is about the edited arguments, except above the place where those are put in: there
    /// the call still has the ones that were asked about.
    pub fn covers(&self, arguments: Digest, edits: Edits) -> bool {
        match (&self.decision.verdict, edits) {
            (Verdict::ApproveWithEdits { arguments: edited }, Edits::PutIn) => {
                edited.digest() == arguments
            }
            _ => self.arguments_digest == arguments,
        }
    }
}

/// Whether a layer stands above or below the place where edited arguments are put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edits {
    /// Below: the call has the edited arguments.
    PutIn,
    /// Above: it has those of the model.
    NotYet,
}

/// Somebody who can be asked.
///
/// Returning `None` leaves the call suspended: it is answered later, perhaps by another process. An
/// approver that panics has not answered either.
pub trait Approver: Send + Sync + 'static {
    /// Answers the question, or leaves it open.
    fn decide(&self, request: ApprovalRequest) -> impl Future<Output = Option<Decision>> + Send;
}

/// [`Approver`] as a runtime keeps it.
pub trait DynApprover: Send + Sync {
    /// Answers the question, or leaves it open.
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
    fn a_question_names_its_tool_and_one_that_was_kept_without_a_name_still_reads() {
        let request = ApprovalRequest::about(&Call::detached("pay", Arguments::empty()));
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
    fn an_answer_covers_the_arguments_that_were_asked_about_and_no_others() {
        let call = Call::detached("t", Arguments::parse(r#"{"n":1}"#).expect("object"));
        let request = ApprovalRequest::about(&call);
        let other = Arguments::parse(r#"{"n":2}"#).expect("object");
        let plain = Answer::to(&request, Decision::approve("ann"));
        let (asked, third) = (call.arguments.digest(), Digest::of_bytes(b"third"));
        for edits in [Edits::PutIn, Edits::NotYet] {
            assert!(plain.covers(asked, edits) && !plain.covers(other.digest(), edits));
        }
        let edited = Answer::to(&request, Decision::approve_with_edits("ann", other.clone()));
        assert!(edited.covers(other.digest(), Edits::PutIn) && !edited.covers(asked, Edits::PutIn));
        assert!(edited.covers(asked, Edits::NotYet) && !edited.covers(third, Edits::PutIn));
    }
}
