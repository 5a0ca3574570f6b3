//! Options of the approval layer, from configuration files and from programs.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Call, Principal, Quorum, SideEffect};

use crate::{BadOption, HumanDuration};

/// A function that returns the reason why a call needs approval, if it does. A program can pass it
/// to configured layers as a resource.
#[derive(Clone)]
pub struct AskWhen(Arc<AskReasonFn>);

type AskReasonFn = dyn Fn(&Call) -> Option<String> + Send + Sync;

impl AskWhen {
    /// Creates a condition from `why`, which returns a reason for each call that needs approval.
    pub fn new(why: impl Fn(&Call) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(why))
    }

    /// Combines two conditions: a call needs approval if either returns a reason.
    pub fn or(self, other: Self) -> Self {
        Self::new(move |call| (self.0)(call).or_else(|| (other.0)(call)))
    }

    pub(crate) fn reason_for(&self, call: &Call) -> Option<String> {
        (self.0)(call)
    }
}

/// Calls that need approval. If neither `tools` nor `ask_from` is given, these are the calls that
/// may write, unless a rule replaces that default: one of the program's own, or a policy over all
/// calls. Calls for which a policy requires approval always need it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalOptions {
    /// Names and globs of tools that need approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Calls whose effects reach at least this far need approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_from: Option<SideEffect>,
    /// Lifetime of an approval request. A call without a decision by then does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<HumanDuration>,
    /// The reason that approvers read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of different people who have to approve. The requester of the call is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    /// People who may decide. By default there is no restriction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Vec<String>>,
}

impl ApprovalOptions {
    /// Returns the required quorum, if one is configured.
    pub(crate) fn required_quorum(&self) -> Result<Option<Quorum>, BadOption> {
        if self.quorum.is_none() && self.approvers.is_none() {
            return Ok(None);
        }
        let among: Vec<Principal> = self
            .approvers
            .iter()
            .flatten()
            .map(|name| name.as_str().into())
            .collect();
        if among.iter().any(|name| name.as_str().trim().is_empty())
            || self.approvers.as_ref().is_some_and(Vec::is_empty)
        {
            return Err(BadOption::new(
                "approvers",
                "is empty; name at least one approver or omit it",
            ));
        }
        let needed = self.quorum.unwrap_or(1);
        if needed == 0 {
            return Err(BadOption::new("quorum", "must be at least 1"));
        }
        // Such a quorum could never be reached.
        if !among.is_empty() && needed as usize > among.len() {
            return Err(BadOption::new(
                "quorum",
                "is larger than the number of approvers",
            ));
        }
        Ok(Some(Quorum { needed, among }))
    }
}

impl fmt::Debug for AskWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskWhen")
    }
}
