//! What the user may decide about an approval request, and the words for it on every screen.

use toolgate::{
    Decision,
    approval::{ApprovalRequest, ApprovalService, ApproverIdentity, Vote, admit_decision},
    session::{DeliverError, RejectCode},
    value::{ApprovalId, Timestamp},
};

use crate::{CliError, env::style::escape_controls};

/// What an approver may decide about one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entitlement {
    rejected: Option<RejectCode>,
    /// True if the approver may deny the request.
    pub(crate) can_deny: bool,
}

impl Entitlement {
    /// Returns what `me` may decide about a request.
    pub(crate) fn of(request: &ApprovalRequest, me: &ApproverIdentity) -> Self {
        // Only who decides is asked here; whether the request has expired is checked with the
        // decision.
        let early = Timestamp::EPOCH;
        let denial = Decision::deny(me.clone(), None);
        Self {
            rejected: request.check_approver(me, early).err(),
            can_deny: admit_decision(request, &[], &denial, early).is_ok(),
        }
    }

    /// Checks whether the approver may approve the request.
    pub(crate) fn can_approve(self) -> bool {
        self.rejected.is_none()
    }

    /// Returns the reason why the approver cannot approve, if so.
    pub(crate) fn notice(self) -> Option<String> {
        let code = self.rejected?;
        let why = describe_code(code).map_or_else(|| code.to_string(), str::to_owned);
        Some(format!("you cannot approve this: {why}"))
    }
}

/// Describes the state of a request after a vote that was counted: who has approved so far, and how
/// many approvals are missing.
pub(crate) async fn describe_counted(
    service: &ApprovalService,
    id: ApprovalId,
    missing: u32,
) -> String {
    let missing = describe_missing(missing);
    // The vote counts whether or not the others can be named.
    match service.find_approval(id).await {
        Ok(Some(approval)) if !approval.votes.is_empty() => {
            let names = voter_names(&approval.votes);
            format!("approved so far by {names}; {missing}")
        }
        Ok(_) | Err(_) => missing,
    }
}

/// Returns the names of all voters.
pub(crate) fn voter_names(votes: &[Vote]) -> String {
    join_names(votes.iter().map(|vote| &vote.by))
}

/// Returns the names of approvers in one line.
pub(crate) fn join_names<'a>(approvers: impl Iterator<Item = &'a ApproverIdentity>) -> String {
    let names: Vec<&str> = approvers.map(ApproverIdentity::as_str).collect();
    escape_controls(&names.join(", "))
}

fn describe_missing(missing: u32) -> String {
    if missing == 1 {
        "1 more approval is needed, from another account".to_owned()
    } else {
        format!("{missing} more approvals are needed, each from another account")
    }
}

/// Describes a rejected decision, with its code as it is in the log.
pub(crate) fn describe_rejection(error: &DeliverError) -> String {
    let Some(code) = error.code() else {
        return CliError::from_error(error).to_string();
    };
    let said = describe_code(code).map_or_else(|| code.to_string(), str::to_owned);
    let word = serde_json::to_value(code).ok();
    let word = word.and_then(|word| word.as_str().map(|word| format!(" ({word})")));
    format!("{said}{}", word.unwrap_or_default())
}

fn describe_code(code: RejectCode) -> Option<&'static str> {
    Some(match code {
        RejectCode::Duplicate => "it was decided already, or your account has voted",
        RejectCode::AlreadyDenied => "it was denied already",
        RejectCode::SelfApproval => {
            "your account requested this call, and another account has to approve it"
        }
        RejectCode::NotEntitled => "your account is not among those that may decide on it",
        RejectCode::UnverifiedApprover => {
            "the system cannot confirm which account you use, so your approval would not count"
        }
        _ => return None,
    })
}
