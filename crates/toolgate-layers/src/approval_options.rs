//! What the approval layer is told in configuration files and by programs.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Call, Principal, Quorum, SideEffect};

use crate::{BadOption, Span};

/// Says why somebody has to be asked about a call, if so. A program can give it to configured layers as a part.
#[derive(Clone)]
pub struct AskWhen(Arc<Why>);

type Why = dyn Fn(&Call) -> Option<String> + Send + Sync;

impl AskWhen {
    /// Asks about the calls for which `why` gives a reason.
    pub fn new(why: impl Fn(&Call) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(why))
    }

    /// Asks if either gives a reason.
    pub fn or(self, other: Self) -> Self {
        Self::new(move |call| (self.0)(call).or_else(|| (other.0)(call)))
    }

    pub(crate) fn why(&self, call: &Call) -> Option<String> {
        (self.0)(call)
    }
}

/// Which calls are asked about. If neither `tools` nor `ask_from` is given, these are the calls that may write, unless
/// a rule stands in for that: one of the program's own, or a policy over all calls that leaves its asking to this layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalOptions {
    /// Names and globs of tools that are asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Calls whose effects reach at least this far are asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_from: Option<SideEffect>,
    /// How long a question stands. A call that nobody has decided on by then is not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Span>,
    /// What people are told about why they are asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many different people have to approve; whoever asked for the call is none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    /// Who may decide. If it is not said, anybody may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Vec<String>>,
}

impl ApprovalOptions {
    /// How many have to agree, if it is said.
    pub(crate) fn agreement(&self) -> Result<Option<Quorum>, BadOption> {
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
                "names nobody; name at least one or leave it out",
            ));
        }
        let needed = self.quorum.unwrap_or(1);
        if needed == 0 {
            return Err(BadOption::new("quorum", "has to be at least 1"));
        }
        if !among.is_empty() && needed as usize > among.len() {
            return Err(BadOption::new("quorum", "is more than there are approvers"));
        }
        Ok(Some(Quorum { needed, among }))
    }
}

impl fmt::Debug for AskWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskWhen")
    }
}
