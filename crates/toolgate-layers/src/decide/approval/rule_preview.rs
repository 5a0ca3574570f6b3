//! Tries a standing rule on past approval requests, before it is stored.

use toolgate_core::{
    ApprovalFilter, ApprovalId, ApprovalRow, ApprovalState, Call, SessionId, Timestamp, ToolName,
};

use crate::{
    RuleBook, RuleError, StandingRule,
    decide::approval::rule_match::{CompiledRule, RuleMatch, RuleSubject},
};

/// Maximum number of past approvals a rule is tried on.
const MOST_TRIED: usize = 10_000;
const PAGE: usize = 500;

/// A past call that a rule would have decided.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchedCall {
    /// The approval it needed.
    pub approval_id: ApprovalId,
    /// The tool's name.
    pub tool: ToolName,
    /// The session of the call.
    pub session: SessionId,
    /// Time of the approval request.
    pub asked_at: Timestamp,
    /// State of the approval.
    pub state: ApprovalState,
}

impl MatchedCall {
    fn from_row(row: &ApprovalRow) -> Self {
        Self {
            approval_id: row.request.approval_id,
            tool: row.request.tool.clone(),
            session: row.session,
            asked_at: row.asked_at,
            state: row.state,
        }
    }
}

impl RuleBook {
    /// Returns the past calls that needed approval and that this rule would have decided, newest
    /// last.
    ///
    /// Meant to be shown before a rule is stored. Redacted arguments cannot match a pattern.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule is invalid or if the store fails.
    pub async fn preview(&self, rule: &StandingRule) -> Result<Vec<MatchedCall>, RuleError> {
        let ready = CompiledRule::new(rule.clone(), &self.root)?;
        let mut matched = Vec::new();
        let mut after = None;
        let mut tried = 0;
        while tried < MOST_TRIED {
            let filter = ApprovalFilter {
                pending: false,
                after,
                limit: PAGE,
                ..ApprovalFilter::default()
            };
            let page = self.store.approvals(filter).await?;
            // A request with withheld arguments has nothing to match.
            let shown = page.iter().filter(|row| !row.request.withheld);
            let fits = |row: &&ApprovalRow| {
                let call = Call::detached(row.request.tool.as_str(), row.request.arguments.clone());
                let subject = RuleSubject::new(&call, row.session, None, &self.root);
                ready.match_call(&subject, rule.created_at) == RuleMatch::Yes
            };
            matched.extend(shown.filter(fits).map(MatchedCall::from_row));
            tried += page.len();
            after = page.last().map(|row| row.request.approval_id);
            if page.len() < PAGE {
                break;
            }
        }
        Ok(matched)
    }
}
