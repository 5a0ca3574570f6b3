//! Standing rules: kept in the store, listed, tried out on what was asked before, and taken back.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    ApprovalFilter, ApprovalId, ApprovalState, Call, Json, Principal, Record, RecordKey, SessionId,
    StoreError, StoreHandle, Timestamp, ToolName,
};

use crate::{
    AllowRule, BadRule, RuleEffect,
    allow_rule::{ReadyRule, RuledCall},
};

/// The standing rules of a store. Cloning shares what was read.
///
/// Given to the approval layer, a rule that allows answers its question, and one that denies refuses the call: deny
/// beats allow. A rule that somebody else takes back stops to count within a second. If the rules cannot be read,
/// somebody is asked.
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
    read: Arc<Mutex<Option<Read>>>,
}

/// The rules as they were read.
#[derive(Clone)]
struct Read {
    at: Timestamp,
    rules: Arc<[ReadyRule]>,
}

/// A call of the past that a rule would have answered.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchedCall {
    /// Which approval it was.
    pub approval_id: ApprovalId,
    /// Which tool.
    pub tool: ToolName,
    /// In which session.
    pub session: SessionId,
    /// When it was asked about.
    pub asked_at: Timestamp,
    /// What became of it.
    pub state: ApprovalState,
}

/// What the standing rules say about a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ruling {
    /// Nothing.
    Silent,
    /// It runs without a question, or does not run.
    Ruled(Box<AllowRule>),
    /// The rules could not be read.
    Unreadable,
}

/// Why a rule could not be kept, listed or taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The rule is not good.
    #[error(transparent)]
    Bad(#[from] BadRule),
    /// There is or was a rule of that name.
    #[error("there is or was a rule {0}; give the new one another id")]
    Taken(String),
    /// There is no such rule.
    #[error("there is no rule {0}")]
    Unknown(String),
    /// There are more rules than are looked at.
    #[error("there are too many rules; take some back")]
    TooMany,
    /// The store could not answer.
    #[error("the store could not answer")]
    Store(#[from] StoreError),
}

impl RuleBook {
    /// How long what was read counts.
    const FRESH: Duration = Duration::from_secs(1);
    /// The most rules, with those that were taken back.
    const MOST_RULES: usize = 10_000;
    /// How many approvals of the past a rule is tried out on.
    const MOST_TRIED: usize = 10_000;
    const PAGE: usize = 500;

    /// The rules of this store.
    pub fn new(store: StoreHandle) -> Self {
        Self {
            store,
            project: None,
            read: Arc::default(),
        }
    }

    /// Says which project the calls belong to. Without one, no rule of a project holds.
    pub fn in_project(self, project: &str) -> Self {
        Self {
            project: Some(project.into()),
            ..self
        }
    }

    /// Keeps a rule. When this returns, it holds.
    pub async fn add(&self, rule: AllowRule) -> Result<(), RuleError> {
        let ready = ReadyRule::new(rule)?;
        let value = serde_json::to_value(&ready.rule)
            .ok()
            .and_then(|value| Json::new(value).ok());
        let value = value.ok_or_else(|| BadRule::Part {
            part: "a value",
            problem: "is nested too deeply".into(),
        })?;
        let key = RecordKey::Other(format!("{KEPT}{}", ready.rule.id).into());
        if self.store.once(key, Record::Json(value)).await?.is_some() {
            return Err(RuleError::Taken(ready.rule.id));
        }
        self.forget();
        Ok(())
    }

    /// The rules that were not taken back, by name, also those that have ended.
    pub async fn list(&self) -> Result<Vec<AllowRule>, RuleError> {
        Ok(self
            .load()
            .await?
            .into_iter()
            .map(|ready| ready.rule)
            .collect())
    }

    /// Takes a rule back. When this returns, it does not hold any more.
    pub async fn revoke(
        &self,
        id: &str,
        by: impl Into<Principal>,
        at: Timestamp,
    ) -> Result<(), RuleError> {
        if !self.load().await?.iter().any(|ready| ready.rule.id == id) {
            return Err(RuleError::Unknown(id.to_owned()));
        }
        let gone = Json::new(json!({ "by": by.into(), "at": at })).unwrap_or_else(|_| Json::null());
        self.store
            .once(
                RecordKey::Other(format!("{REVOKED}{id}").into()),
                Record::Json(gone),
            )
            .await?;
        self.forget();
        Ok(())
    }

    /// The calls that were asked about in the past and that this rule would have answered, newest last.
    ///
    /// To be shown before a rule is kept. What was redacted in a question cannot fit a pattern.
    pub async fn preview(&self, rule: &AllowRule) -> Result<Vec<MatchedCall>, RuleError> {
        let ready = ReadyRule::new(rule.clone())?;
        let (mut matched, mut after, mut tried) = (Vec::new(), None, 0);
        while tried < Self::MOST_TRIED {
            let filter = ApprovalFilter {
                pending: false,
                after,
                limit: Self::PAGE,
                ..ApprovalFilter::default()
            };
            let page = self.store.approvals(filter).await?;
            for row in page.iter().filter(|row| !row.request.withheld) {
                let (tool, arguments) = (&row.request.tool, &row.request.arguments);
                let call = RuledCall {
                    tool,
                    arguments,
                    session: row.session,
                    project: None,
                };
                if ready.fits(call, rule.created_at) {
                    let (approval_id, tool) = (row.request.approval_id, tool.clone());
                    let (session, asked_at, state) = (row.session, row.asked_at, row.state);
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

    /// What the rules say about a call.
    pub(crate) async fn rule(&self, call: &Call) -> Ruling {
        let now = call.env().clock().now();
        let Ok(rules) = self.fresh(now).await else {
            return Ruling::Unreadable;
        };
        let (tool, arguments, session) = (&call.tool, &call.arguments, call.turn().session);
        // No project is not the same as any project.
        let project = Some(self.project.as_deref().unwrap_or_default());
        let ruled = RuledCall {
            tool,
            arguments,
            session,
            project,
        };
        let fitting = |effect| {
            rules
                .iter()
                .find(|ready| ready.rule.effect == effect && ready.fits(ruled, now))
        };
        match fitting(RuleEffect::Deny).or_else(|| fitting(RuleEffect::Allow)) {
            Some(ready) => Ruling::Ruled(Box::new(ready.rule.clone())),
            None => Ruling::Silent,
        }
    }

    async fn fresh(&self, now: Timestamp) -> Result<Arc<[ReadyRule]>, RuleError> {
        let known = self
            .read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // A clock that was turned back makes nothing fresh.
        if let Some(read) = known.filter(|read| now >= read.at && now < read.at.plus(Self::FRESH)) {
            return Ok(read.rules);
        }
        let rules: Arc<[ReadyRule]> = self.load().await?.into();
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(Read {
            at: now,
            rules: rules.clone(),
        });
        Ok(rules)
    }

    fn forget(&self) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn load(&self) -> Result<Vec<ReadyRule>, RuleError> {
        let kept = self.store.list(KEPT, None, Self::MOST_RULES + 1).await?;
        let gone = self.store.list(REVOKED, None, Self::MOST_RULES + 1).await?;
        if kept.len().max(gone.len()) > Self::MOST_RULES {
            return Err(RuleError::TooMany);
        }
        let gone: BTreeSet<&str> = gone
            .iter()
            .filter_map(|(key, _)| key.strip_prefix(REVOKED))
            .collect();
        let is_gone = |key: &str| key.strip_prefix(KEPT).is_some_and(|id| gone.contains(id));
        let mut rules = Vec::new();
        for (key, record) in kept.into_iter().filter(|(key, _)| !is_gone(key)) {
            let rule = match &record {
                Record::Json(json) => serde_json::from_value::<AllowRule>(json.as_value().clone()),
                _ => serde_json::from_value(serde_json::Value::Null),
            };
            // A rule that cannot be read may be one that denies.
            let damaged = |source| StoreError::Damaged {
                what: key.to_string(),
                source,
            };
            let rule = rule.map_err(|error| damaged(error.into()))?;
            rules.push(ReadyRule::new(rule)?);
        }
        Ok(rules)
    }
}

const KEPT: &str = "rule/";
const REVOKED: &str = "rule-revoked/";

impl fmt::Debug for RuleBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleBook")
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}
