//! Standing rules: stored, listed, tried on past approval requests, and revoked.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    ApprovalFilter, ApprovalId, ApprovalState, Call, Json, Principal, RecordKey, SessionId,
    StoreError, StoreHandle, Timestamp, ToolName,
};

use crate::{
    InvalidRule, RuleEffect, StandingRule,
    decide::approval::rule::{CompiledRule, RuleSubject},
};

/// The standing rules of a store. Clones share the cache.
///
/// In the approval layer, a rule that allows replaces the approval request, and a rule that denies
/// denies the call: deny beats allow. A rule that another process revokes stops to apply within a
/// second. If the rules cannot be loaded, approval is requested.
///
/// ```
/// # futures::executor::block_on(async {
/// use serde_json::json;
/// use toolgate_core::{MemoryStore, StoreHandle, Timestamp};
/// use toolgate_layers::RuleBook;
///
/// let book = RuleBook::new(StoreHandle::new(MemoryStore::new()));
/// let rule = serde_json::from_value(json!({
///     "id": "status", "effect": "allow", "tool": "run_shell", "owner": "ann", "created_at": Timestamp::EPOCH,
///     "scope": { "scope": "project", "project": "shop" },
///     "arguments": { "/command": { "equals": "git status" } },
/// }))?;
/// assert!(book.preview(&rule).await?.is_empty());
/// book.add(rule).await?;
/// assert_eq!(book.list().await?.len(), 1);
/// book.revoke("status", "ann", Timestamp::EPOCH).await?;
/// assert!(book.list().await?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct RuleBook {
    store: StoreHandle,
    project: Option<Arc<str>>,
    read: Arc<Mutex<Option<CachedRules>>>,
}

/// The rules as they were last loaded.
#[derive(Clone)]
struct CachedRules {
    at: Timestamp,
    rules: Arc<[CompiledRule]>,
}

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

/// The result of looking up the standing rules for a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RuleLookup {
    /// No rule matches.
    NoMatch,
    /// This rule allows or denies the call.
    Matched(Box<StandingRule>),
    /// The rules could not be loaded.
    Unreadable,
}

/// An error when storing, listing or revoking a rule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The rule is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRule),
    /// The id is in use or was used by a revoked rule.
    #[error("the rule id {0} is or was in use; choose another id")]
    DuplicateId(String),
    /// There is no such rule.
    #[error("there is no rule {0}")]
    Unknown(String),
    /// There are more rules than the limit.
    #[error("there are too many rules; revoke some")]
    TooMany,
    /// The store could not answer.
    #[error("the store could not answer: {0}")]
    Store(#[from] StoreError),
}

impl RuleBook {
    /// Lifetime of the cache.
    const FRESH: Duration = Duration::from_secs(1);
    /// Maximum number of rules, including revoked ones.
    const MOST_RULES: usize = 10_000;
    /// Maximum number of past approvals a rule is tried on.
    const MOST_TRIED: usize = 10_000;
    const PAGE: usize = 500;

    /// Creates a rule book on this store.
    pub fn new(store: StoreHandle) -> Self {
        Self {
            store,
            project: None,
            read: Arc::default(),
        }
    }

    /// Sets the project that the calls belong to. Without one, no rule of a project applies.
    pub fn in_project(self, project: &str) -> Self {
        Self {
            project: Some(project.into()),
            ..self
        }
    }

    /// Stores a rule and returns it. When this returns, the rule applies. A rule that is there
    /// already, equal but for the time it was made, is returned as it is stored: confirming twice
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule is invalid or too broad, if its id is in use for another rule or
    /// was used by one that is revoked, or if the store fails.
    pub async fn add(&self, rule: StandingRule) -> Result<StandingRule, RuleError> {
        let ready = CompiledRule::new(rule)?;
        let value = serde_json::to_value(&ready.rule)
            .ok()
            .and_then(|value| Json::new(value).ok());
        let value = value.ok_or_else(|| InvalidRule::Part {
            part: "a value",
            problem: "is nested too deeply".into(),
        })?;
        let key = RecordKey::Other(format!("{RULE_PREFIX}{}", ready.rule.id).into());
        let earlier = self.store.put_json_once(key, value).await?;
        self.clear_cache();
        if earlier.is_none() {
            return Ok(ready.rule);
        }
        // The first writer wins, and a revoked id stays taken.
        let stands = |known: &CompiledRule| known.rule.decides_like(&ready.rule);
        let rules = self.load_rules().await?;
        match rules.into_iter().find(stands) {
            Some(known) => Ok(known.rule),
            None => Err(RuleError::DuplicateId(ready.rule.id)),
        }
    }

    /// Returns the rules that are not revoked, by id, including expired ones.
    ///
    /// # Errors
    ///
    /// Returns an error if a stored rule cannot be parsed, if there are too many, or if the store
    /// fails.
    pub async fn list(&self) -> Result<Vec<StandingRule>, RuleError> {
        Ok(self
            .load_rules()
            .await?
            .into_iter()
            .map(|ready| ready.rule)
            .collect())
    }

    /// Revokes a rule. When this returns, the rule no longer applies.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such rule, if the rules cannot be loaded, or if the store
    /// fails.
    pub async fn revoke(
        &self,
        id: &str,
        by: impl Into<Principal>,
        at: Timestamp,
    ) -> Result<(), RuleError> {
        if !self
            .load_rules()
            .await?
            .iter()
            .any(|ready| ready.rule.id == id)
        {
            return Err(RuleError::Unknown(id.to_owned()));
        }
        // A revocation is a record of its own: the rule stays stored, and its id cannot be used
        // again.
        let gone = Json::new(json!({ "by": by.into(), "at": at })).unwrap_or_else(|_| Json::null());
        self.store
            .put_json_once(
                RecordKey::Other(format!("{REVOKED_PREFIX}{id}").into()),
                gone,
            )
            .await?;
        self.clear_cache();
        Ok(())
    }

    /// Returns the past calls that needed approval and that this rule would have decided, newest
    /// last.
    ///
    /// Meant to be shown before a rule is stored. Redacted arguments cannot match a pattern.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule is invalid or if the store fails.
    pub async fn preview(&self, rule: &StandingRule) -> Result<Vec<MatchedCall>, RuleError> {
        let ready = CompiledRule::new(rule.clone())?;
        let mut matched = Vec::new();
        let mut after = None;
        let mut tried = 0;
        while tried < Self::MOST_TRIED {
            let filter = ApprovalFilter {
                pending: false,
                after,
                limit: Self::PAGE,
                ..ApprovalFilter::default()
            };
            let page = self.store.approvals(filter).await?;
            // A request with withheld arguments has nothing to match.
            for row in page.iter().filter(|row| !row.request.withheld) {
                let tool = &row.request.tool;
                let arguments = &row.request.arguments;
                let call = RuleSubject {
                    tool,
                    arguments,
                    session: row.session,
                    project: None,
                };
                if ready.matches_call(call, rule.created_at) {
                    let approval_id = row.request.approval_id;
                    let tool = tool.clone();
                    let session = row.session;
                    let asked_at = row.asked_at;
                    let state = row.state;
                    matched.push(MatchedCall {
                        approval_id,
                        tool,
                        session,
                        asked_at,
                        state,
                    });
                }
            }
            tried += page.len();
            after = page.last().map(|row| row.request.approval_id);
            if page.len() < Self::PAGE {
                break;
            }
        }
        Ok(matched)
    }

    /// Returns the rule that decides a call, if one does.
    pub(crate) async fn find_rule(&self, call: &Call) -> RuleLookup {
        let now = call.env().clock().now();
        let Ok(rules) = self.cached_rules(now).await else {
            return RuleLookup::Unreadable;
        };
        let tool = &call.tool;
        let arguments = &call.arguments;
        let session = call.turn().session;
        // A call without a project must not match the rules of every project: `None` would.
        let project = Some(self.project.as_deref().unwrap_or_default());
        let ruled = RuleSubject {
            tool,
            arguments,
            session,
            project,
        };
        let fitting = |effect| {
            rules
                .iter()
                .find(|ready| ready.rule.effect == effect && ready.matches_call(ruled, now))
        };
        match fitting(RuleEffect::Deny).or_else(|| fitting(RuleEffect::Allow)) {
            Some(ready) => RuleLookup::Matched(Box::new(ready.rule.clone())),
            None => RuleLookup::NoMatch,
        }
    }

    async fn cached_rules(&self, now: Timestamp) -> Result<Arc<[CompiledRule]>, RuleError> {
        let known = self
            .read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // After the clock was set back, the cache counts as expired.
        if let Some(read) = known.filter(|read| now >= read.at && now < read.at.plus(Self::FRESH)) {
            return Ok(read.rules);
        }
        let rules: Arc<[CompiledRule]> = self.load_rules().await?.into();
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(CachedRules {
            at: now,
            rules: rules.clone(),
        });
        Ok(rules)
    }

    fn clear_cache(&self) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn load_rules(&self) -> Result<Vec<CompiledRule>, RuleError> {
        let kept = self
            .store
            .list_json(RULE_PREFIX, None, Self::MOST_RULES + 1)
            .await?;
        let gone = self
            .store
            .list_json(REVOKED_PREFIX, None, Self::MOST_RULES + 1)
            .await?;
        if kept.len().max(gone.len()) > Self::MOST_RULES {
            return Err(RuleError::TooMany);
        }
        let gone: BTreeSet<&str> = gone
            .iter()
            .filter_map(|(key, _)| key.strip_prefix(REVOKED_PREFIX))
            .collect();
        let is_gone = |key: &str| {
            key.strip_prefix(RULE_PREFIX)
                .is_some_and(|id| gone.contains(id))
        };
        let mut rules = Vec::new();
        for (key, record) in kept.into_iter().filter(|(key, _)| !is_gone(key)) {
            // Fail closed: a rule that cannot be parsed may be one that denies.
            let rule = serde_json::from_value(record.as_value().clone());
            let rule: StandingRule = rule.map_err(|error| StoreError::Damaged {
                what: key.to_string(),
                source: error.into(),
            })?;
            rules.push(CompiledRule::new(rule)?);
        }
        Ok(rules)
    }
}

const RULE_PREFIX: &str = "rule/";
const REVOKED_PREFIX: &str = "rule-revoked/";

impl fmt::Debug for RuleBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleBook")
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::MemoryStore;

    fn rule(reason: &str, created_at: Timestamp) -> StandingRule {
        serde_json::from_value(json!({
            "id": "status", "effect": "allow", "tool": "run_shell", "owner": "ann",
            "created_at": created_at, "reason": reason,
            "scope": { "scope": "project", "project": "shop" },
            "arguments": { "/command": { "equals": "git status" } },
        }))
        .expect("a rule")
    }

    #[tokio::test]
    async fn an_equal_rule_is_stored_once_and_returned_and_a_revoked_one_stays_revoked() {
        let book = RuleBook::new(StoreHandle::new(MemoryStore::new()));
        let first = rule("daily", Timestamp::EPOCH);
        let later = rule("daily", Timestamp::EPOCH.plus(Duration::from_secs(9)));
        assert_eq!(book.add(first.clone()).await.expect("stored"), first);
        assert_eq!(book.add(later.clone()).await.expect("the same"), first);
        assert_eq!(book.list().await.expect("listed").len(), 1);
        let other = book.add(rule("weekly", Timestamp::EPOCH)).await;
        assert!(matches!(other, Err(RuleError::DuplicateId(_))));
        book.revoke("status", "ann", Timestamp::EPOCH)
            .await
            .expect("revoked");
        let again = book.add(later).await;
        assert!(matches!(again, Err(RuleError::DuplicateId(_))));
    }
}
