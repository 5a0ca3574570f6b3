//! What happens to calls that need an approval: a mode of the gate.

use std::{fmt, str::FromStr, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{ApprovalRequest, Approver, Decision, DynApprover, Principal, SideEffect};
use toolgate_layers::{Config, FixedApprover, PolicyEffect, PolicyFallback, PolicyRule, RuleBook};

use crate::{Result, gate::local_account};

/// The handling of calls that need an approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApproveMode {
    /// Ask for approval of every call that no rule allows, also of those that only read
    Ask,
    /// Allow calls that only read, ask for approval of the others
    #[default]
    AutoRead,
    /// Also allow changes of files in the workspace, except of those that act later
    AutoEdit,
    /// Never ask: deny calls that need an approval
    Never,
    /// Approve every call that no rule denies
    Yes,
}

impl ApproveMode {
    /// All modes, for documentation.
    pub const ALL: [Self; 5] = [
        Self::Ask,
        Self::AutoRead,
        Self::AutoEdit,
        Self::Never,
        Self::Yes,
    ];

    /// Returns what the mode does, in one line.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Ask => {
                "Ask for approval of every call that no rule allows, also of those that only read"
            }
            Self::AutoRead => "Allow calls that only read, ask for approval of the others",
            Self::AutoEdit => {
                "Also allow changes of files in the workspace, except of those that act later"
            }
            Self::Never => "Never ask: deny calls that need an approval",
            Self::Yes => "Approve every call that no rule denies",
        }
    }

    /// Returns the word for the mode, as in `approve = "auto-read"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::AutoRead => "auto-read",
            Self::AutoEdit => "auto-edit",
            Self::Never => "never",
            Self::Yes => "yes",
        }
    }
}

impl fmt::Display for ApproveMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ApproveMode {
    type Err = UnknownApproveMode;

    fn from_str(word: &str) -> std::result::Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|mode| mode.as_str() == word);
        found.ok_or_else(|| UnknownApproveMode(word.to_owned()))
    }
}

/// The error for a word that names no [`ApproveMode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a mode; modes are ask, auto-read, auto-edit, never and yes")]
pub struct UnknownApproveMode(String);

/// Applies the mode to the configuration. It only adds rules: those of the file stay, and deny
/// still beats ask, which beats allow.
pub(super) fn apply_mode(config: Config, mode: ApproveMode) -> Result<Config> {
    Ok(match mode {
        ApproveMode::Ask => config.policy_default(PolicyFallback::Ask)?,
        ApproveMode::AutoEdit => config.add_policy_rules([PolicyRule {
            name: Some("approve = auto-edit".to_owned()),
            side_effect: Some(SideEffect::WorkspaceWrite),
            ..PolicyRule::new(PolicyEffect::Allow)
        }])?,
        ApproveMode::AutoRead | ApproveMode::Never | ApproveMode::Yes => config,
    })
}

/// Returns the approver that makes the decision the mode stands for, in the name of `user` or else
/// of the account that runs the process.
pub(super) fn standing_approver(
    mode: ApproveMode,
    user: Option<&Principal>,
    rules: Option<RuleBook>,
) -> Option<SharedApprover> {
    let user = user.map_or_else(|| local_account().name, Principal::clone);
    // The name in the record carries the mode: no person has looked at the call itself. It is
    // only claimed, so a mode never counts towards a quorum.
    let decision = match mode {
        ApproveMode::Yes => {
            let decision = Decision::approve(format!("{user} (approve = yes)").as_str());
            return Some(SharedApprover::new(YesApprover { decision, rules }));
        }
        ApproveMode::Never => {
            let by = format!("{user} (approve = never)");
            let reason = "approvals are switched off for this run";
            Decision::deny(by.as_str(), Some(reason))
        }
        ApproveMode::Ask | ApproveMode::AutoRead | ApproveMode::AutoEdit => return None,
    };
    Some(SharedApprover::new(FixedApprover::new(decision)))
}

/// Approves every call, as long as it is known what the standing rules deny.
struct YesApprover {
    decision: Decision,
    rules: Option<RuleBook>,
}

impl Approver for YesApprover {
    async fn decide(&self, _: ApprovalRequest) -> Option<Decision> {
        if let Some(rules) = &self.rules {
            // A rule that cannot be read may deny the call. The request stays pending, for a person.
            let unreadable = rules.list_unreadable().await;
            unreadable.ok().filter(Vec::is_empty)?;
        }
        Some(self.decision.clone())
    }
}

/// The approver of a gate, shared by its sessions.
#[derive(Clone)]
pub(super) struct SharedApprover(Arc<dyn DynApprover>);

impl SharedApprover {
    pub(super) fn new(approver: impl Approver) -> Self {
        Self(Arc::new(approver))
    }
}

impl fmt::Debug for SharedApprover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedApprover")
    }
}

impl Approver for SharedApprover {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        self.0.decide(request).await
    }
}
