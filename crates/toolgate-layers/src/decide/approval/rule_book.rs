//! Standing rules: signed, stored, listed and revoked.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    Call, Json, Keyring, Principal, RecordKey, RulePublicKey, StoreError, StoreHandle, Timestamp,
};

use crate::{
    InvalidRule, PathBase, RuleEffect, RuleSigner, StandingRule,
    decide::{
        approval::{
            rule_match::{CompiledRule, RuleMatch, RuleSubject},
            rule_signer::RuleSignatures,
        },
        policy::matching::paths::PathRoot,
    },
};

/// The standing rules of a store. Clones share the cache.
///
/// In the approval layer, a rule that allows replaces the approval request, and a rule that denies
/// denies the call: deny beats allow. A rule that another process revokes stops to apply within a
/// second. If the rules cannot be loaded, or one of them cannot be read, approval is requested for
/// every call that no rule denies: the unreadable one may deny it.
///
/// Rules are signed. One that allows counts only if it is signed with a key of the keyring or with
/// one that [`trusting`](Self::trusting) names: a process that can write to the store cannot allow
/// calls. One that denies counts in any case.
///
/// ```
/// # futures::executor::block_on(async {
/// use serde_json::json;
/// use toolgate_core::{KeyKind, Keyring, MemoryStore, SecretKey, StoreHandle, Timestamp};
/// use toolgate_layers::RuleBook;
///
/// let keys = Keyring::new(SecretKey::new("k1".parse()?, KeyKind::HmacSha256, [7; 32]));
/// let book = RuleBook::new(StoreHandle::new(MemoryStore::new()), keys);
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
    pub(super) store: StoreHandle,
    keys: Keyring,
    /// Public keys of others whose rules count.
    trusted: Arc<[RulePublicKey]>,
    project: Option<Arc<str>>,
    pub(super) root: Arc<PathRoot>,
    read: Arc<Mutex<Option<CachedRules>>>,
}

/// A rule of the store, and whose signature it has.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRule {
    /// The rule.
    pub rule: StandingRule,
    /// The key that has signed it.
    pub signer: RuleSigner,
}

impl StoredRule {
    /// Checks whether the rule has an effect: one that allows needs a signature that counts.
    pub fn is_effective(&self) -> bool {
        self.rule.effect == RuleEffect::Deny || self.signer.counts()
    }
}

/// A record of the store that should be a rule and cannot be read. It may deny calls, so approval is
/// requested until it is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRule {
    /// The id under which it is stored.
    pub id: String,
    /// The reason it cannot be read.
    pub problem: String,
}

/// The rules as they were last loaded.
#[derive(Clone)]
struct CachedRules {
    at: Timestamp,
    /// Those that have an effect.
    rules: Arc<[CompiledRule]>,
    /// True if a stored rule could not be read.
    has_unreadable: bool,
}

impl CachedRules {
    fn is_fresh(&self, now: Timestamp) -> bool {
        // After the clock was set back, the cache counts as expired.
        now >= self.at && now < self.at.plus(RuleBook::FRESH)
    }
}

/// The records of the store that are not revoked.
#[derive(Default)]
struct LoadedRules {
    rules: Vec<StandingRule>,
    unreadable: Vec<UnreadableRule>,
}

/// The result of looking up the standing rules for a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RuleLookup {
    /// No rule matches.
    NoMatch,
    /// This rule allows or denies the call.
    Matched(Box<StandingRule>),
    /// The rules could not be loaded, or one of them cannot be read and may deny the call.
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
    /// The signature could not be stored, because another record is in its place.
    #[error("the rule {0} cannot be signed: its signature in the store was damaged; add it again")]
    DamagedSignature(String),
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

    /// Creates a rule book on this store, whose rules are signed with these keys. Relative paths
    /// start at the current directory.
    pub fn new(store: StoreHandle, keys: Keyring) -> Self {
        Self {
            store,
            keys,
            trusted: Arc::default(),
            project: None,
            root: Arc::new(PathRoot::new(Path::new("."))),
            read: Arc::default(),
        }
    }

    /// Lets rules count that are signed with these keys of others. The list must come from the user
    /// or the operator: not from a project, and not from the store.
    pub fn trusting(self, keys: impl IntoIterator<Item = RulePublicKey>) -> Self {
        Self {
            trusted: keys.into_iter().collect(),
            read: Arc::default(),
            ..self
        }
    }

    /// Sets the directory where relative paths start.
    pub fn in_workspace(self, workspace: &PathBase) -> Self {
        Self {
            root: Arc::new(PathRoot::new(workspace.root())),
            read: Arc::default(),
            ..self
        }
    }

    /// Sets the project that the calls belong to. Without one, no rule of a project applies.
    pub fn in_project(self, project: &str) -> Self {
        Self {
            project: Some(project.into()),
            ..self
        }
    }

    /// Signs and stores a rule and returns it. When this returns, the rule applies. A rule that is
    /// there already, equal but for the time it was made, is signed and returned as it is stored:
    /// confirming twice changes nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule is invalid or too broad, if its id is in use for another rule or
    /// was used by one that is revoked, or if the store fails.
    pub async fn add(&self, rule: StandingRule) -> Result<StandingRule, RuleError> {
        let ready = CompiledRule::new(rule, &self.root)?;
        let value = serde_json::to_value(&ready.rule)
            .ok()
            .and_then(|value| Json::new(value).ok());
        let value = value.ok_or_else(nested_too_deeply)?;
        // Signed first: a signature without its rule has no effect.
        self.sign(&ready.rule).await?;
        let key = RecordKey::Other(format!("{RULE_PREFIX}{}", ready.rule.id).into());
        let earlier = self.store.put_json_once(key, value).await?;
        self.clear_cache();
        if earlier.is_none() {
            return Ok(ready.rule);
        }
        // The first writer wins, and a revoked id stays taken.
        let stands = |known: &StoredRule| known.rule.decides_like(&ready.rule);
        match self.list().await?.into_iter().find(stands) {
            Some(known) => {
                self.sign(&known.rule).await?;
                Ok(known.rule)
            }
            None => Err(RuleError::DuplicateId(ready.rule.id)),
        }
    }

    /// Signs a rule exactly as it is given. If it is in the store like this, it counts from now on:
    /// for rules that were stored without a signature, after a person has read them.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule cannot be signed or if the store fails.
    pub async fn sign(&self, rule: &StandingRule) -> Result<(), RuleError> {
        let digest = rule.digest().ok_or_else(nested_too_deeply)?;
        let stored = RuleSignatures::store(&self.store, &self.keys, digest).await?;
        self.clear_cache();
        if stored {
            Ok(())
        } else {
            Err(RuleError::DamagedSignature(rule.id.clone()))
        }
    }

    /// Returns the rules that are not revoked, by id, including expired ones and those that have no
    /// effect without a signature. Those that cannot be read are left to
    /// [`list_unreadable`](Self::list_unreadable).
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many, or if the store fails.
    pub async fn list(&self) -> Result<Vec<StoredRule>, RuleError> {
        let rules = self.load_rules().await?.rules;
        self.find_signers(rules).await
    }

    /// Returns the stored records that should be rules and cannot be read, by id.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many, or if the store fails.
    pub async fn list_unreadable(&self) -> Result<Vec<UnreadableRule>, RuleError> {
        Ok(self.load_rules().await?.unreadable)
    }

    async fn find_signers(&self, rules: Vec<StandingRule>) -> Result<Vec<StoredRule>, RuleError> {
        let signatures = RuleSignatures::load(&self.store, Self::MOST_RULES).await?;
        let signatures = signatures.ok_or(RuleError::TooMany)?;
        let own: Vec<RulePublicKey> = self.keys.rule_keys().collect();
        let signed = rules.into_iter().map(|rule| {
            let signer = signatures.find_signer(&rule, &own, &self.trusted);
            StoredRule { rule, signer }
        });
        Ok(signed.collect())
    }

    /// Revokes a rule, also one that cannot be read. When this returns, the rule no longer applies.
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
        let loaded = self.load_rules().await?;
        let is_known = loaded.rules.iter().any(|rule| rule.id == id)
            || loaded.unreadable.iter().any(|rule| rule.id == id);
        if !is_known {
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

    /// Returns the rule that decides a call, if one does.
    pub(crate) async fn find_rule(&self, call: &Call) -> RuleLookup {
        let now = call.env().clock().now();
        let Ok(cached) = self.cached_rules(now).await else {
            return RuleLookup::Unreadable;
        };
        let rules = cached.rules;
        // A call without a project must not match the rules of every project: `None` would.
        let project = Some(self.project.as_deref().unwrap_or_default());
        let subject = RuleSubject::new(call, call.turn().session, project, &self.root);
        let find = |effect, result| {
            rules.iter().find(|ready| {
                ready.rule.effect == effect && ready.match_call(&subject, now) == result
            })
        };
        let found = |ready: &CompiledRule| RuleLookup::Matched(Box::new(ready.rule.clone()));
        if let Some(denied) = find(RuleEffect::Deny, RuleMatch::Yes) {
            return found(denied);
        }
        if cached.has_unreadable {
            return RuleLookup::Unreadable;
        }
        // A person has to say whether a rule denies this, so no rule allows it either.
        if find(RuleEffect::Deny, RuleMatch::Unclear).is_some() {
            return RuleLookup::NoMatch;
        }
        find(RuleEffect::Allow, RuleMatch::Yes).map_or(RuleLookup::NoMatch, found)
    }

    /// Checks whether there are no rules, as far as the cache knows; [`find_rule`](Self::find_rule)
    /// trusts it for as long.
    pub(crate) fn is_known_empty(&self, now: Timestamp) -> bool {
        let cached = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().is_some_and(|cached| {
            cached.is_fresh(now) && cached.rules.is_empty() && !cached.has_unreadable
        })
    }

    async fn cached_rules(&self, now: Timestamp) -> Result<CachedRules, RuleError> {
        let known = self
            .read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(read) = known.filter(|read| read.is_fresh(now)) {
            return Ok(read);
        }
        let loaded = self.load_rules().await?;
        let stored = self.find_signers(loaded.rules).await?.into_iter();
        let effective = stored.filter(StoredRule::is_effective);
        let compiled = effective.map(|stored| CompiledRule::new(stored.rule, &self.root));
        let cached = CachedRules {
            at: now,
            rules: compiled.collect::<Result<_, _>>()?,
            has_unreadable: !loaded.unreadable.is_empty(),
        };
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(cached.clone());
        Ok(cached)
    }

    fn clear_cache(&self) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Loads the rules that are not revoked, signed or not.
    async fn load_rules(&self) -> Result<LoadedRules, RuleError> {
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
        let mut loaded = LoadedRules::default();
        for (key, record) in kept {
            let id = key.strip_prefix(RULE_PREFIX).unwrap_or(&key);
            if gone.contains(id) {
                continue;
            }
            match self.parse_rule(id, &record) {
                Ok(rule) => loaded.rules.push(rule),
                Err(problem) => loaded.unreadable.push(UnreadableRule {
                    id: id.to_owned(),
                    problem,
                }),
            }
        }
        Ok(loaded)
    }

    /// Parses the record with this id. One that this version does not understand is not read in part:
    /// it may be one that denies.
    fn parse_rule(&self, id: &str, record: &Json) -> Result<StandingRule, String> {
        let rule: StandingRule =
            serde_json::from_value(record.as_value().clone()).map_err(|error| error.to_string())?;
        if rule.id != id {
            return Err(format!("it has the id {:?}", rule.id));
        }
        CompiledRule::new(rule.clone(), &self.root).map_err(|error| error.to_string())?;
        Ok(rule)
    }
}

fn nested_too_deeply() -> InvalidRule {
    InvalidRule::Part {
        part: "a value",
        problem: "is nested too deeply".into(),
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
