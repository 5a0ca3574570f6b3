//! Allows calls, requires approval for them, or denies them, by rules that an operator writes.

mod access;
pub(crate) mod argument_roles;
pub(crate) mod arguments;
pub(crate) mod features;
pub(crate) mod judge;
pub(crate) mod judgements;
pub(crate) mod matching;
pub(crate) mod rules;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use moka::{policy::EvictionPolicy, sync::Cache};
use toolgate_core::{
    Band, Call, CallError, CallId, Digest, ErrorCategory, Layer, LayerCapabilities, Next, Outcome,
    Refusal, SessionId, ToolName, run_contained_sync,
};

use crate::{
    BadOption, Configurable, Judgement, PathBase, PolicyEffect, PolicyOptions, Resources,
    decide::policy::{
        access::PolicyRules,
        features::FeatureNeeds,
        judge::RuleSet,
        judgements::{PolicyJudgements, combine_versions},
        matching::paths::PathRoot,
    },
};

/// A layer that judges every call by its rules: deny beats ask beats allow, whatever their order.
///
/// A denied call settles `policy_blocked`, and the model reads which rule blocked it and why. For a
/// call that needs approval, the approval layer below asks ([`Approval`](crate::Approval)); without
/// one, the call is blocked. Policies combine by strictness: under two of them, nested or merged
/// with [`Policy::combine`], a call gets the stricter answer. If the rules cannot be applied, the
/// call does not run.
///
/// What a tool finds while it runs is judged too: each entry of a directory walk as if it were read
/// with `read_file`, and each redirect as a call of its own. The tool leaves out what is denied or
/// needs approval ([`AccessJudge`](toolgate_core::AccessJudge)).
///
/// ```
/// # use {toolgate_core::{Stack, Status}, toolgate_layers::{Approval, Policy, PolicyOptions}, toolgate_testkit::{call_with, echo}};
/// # use serde_json::json;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let options: PolicyOptions = toml::from_str(r#"
///     [[rules]]
///     name = "everyday"
///     effect = "allow"
///     command = ["git status", "cargo test"]
/// "#).unwrap();
/// let policy = Policy::new(options).unwrap();
/// let stack = Stack::over(echo()).layer(policy).layer(Approval::when_required()).build().unwrap();
/// let run = |text: &str| stack.run(call_with("run_shell", json!({ "command": text })));
/// assert!(run("git status --short && cargo test").await.is_ok());
/// assert!(run("git status; git push").await.suspension().is_some());
/// assert_eq!(run("cat .env").await.status(), Some(Status::Blocked));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    /// Also the judge of what the calls access.
    rules: Arc<PolicyRules>,
    seen: Option<RepeatCounter>,
    version: Arc<str>,
}

impl Policy {
    /// Creates a policy whose relative paths start at the current directory.
    pub fn new(options: PolicyOptions) -> Result<Self, BadOption> {
        Ok(Self::from_rule_sets(
            vec![Arc::new(RuleSet::new(options)?)],
            PathRoot::new(Path::new(".")),
        ))
    }

    /// Sets the directory where relative paths start.
    pub fn in_workspace(self, workspace: &PathBase) -> Self {
        Self {
            rules: Arc::new(PolicyRules {
                root: Arc::new(PathRoot::new(workspace.root())),
                ..PolicyRules::clone(&self.rules)
            }),
            ..self
        }
    }

    /// Combines two policies into one whose answer is always the stricter of both. It has the
    /// workspace of this one.
    pub fn combine(&self, other: &Self) -> Self {
        let sets = self.rules.sets.iter().chain(other.rules.sets.iter());
        Self::from_rule_sets(sets.cloned().collect(), PathRoot::clone(&self.rules.root))
    }

    /// Judges a call by the rules.
    pub fn judge(&self, call: &Call) -> Judgement {
        let earlier = self
            .seen
            .as_ref()
            .map_or(0, |seen| seen.count_earlier(call));
        self.rules.judge(call, earlier)
    }

    /// Returns the digest of the rules as text. It changes when they do.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn from_rule_sets(sets: Vec<Arc<RuleSet>>, root: PathRoot) -> Self {
        let needs =
            sets.iter()
                .map(|rules| rules.feature_needs())
                .fold(FeatureNeeds::default(), |a, b| FeatureNeeds {
                    paths: a.paths || b.paths,
                    commands: a.commands || b.commands,
                    urls: a.urls || b.urls,
                });
        let seen = sets
            .iter()
            .filter_map(|rules| rules.most_repeats())
            .max()
            .map(RepeatCounter::new);
        let versions: Vec<String> = sets
            .iter()
            .map(|rules| rules.version().to_string())
            .collect();
        let version = combine_versions(&versions).unwrap_or_default().into();
        let root = Arc::new(root);
        let sets = sets.into();
        Self {
            rules: Arc::new(PolicyRules { sets, needs, root }),
            seen,
            version,
        }
    }

    /// Judges the call, notes the reason, and returns the call for the layers below or the refusal.
    fn decide_call(&self, call: Call, next: &Next) -> Result<Call, Outcome> {
        let Judgement {
            effect,
            reason,
            each_time,
            ..
        } = match run_contained_sync(|| self.judge(&call)) {
            Ok(judgement) => judgement,
            Err(report) => {
                // Fail closed: a panic while judging blocks the call, and the operator gets the
                // report.
                next.note_reason(NOT_APPLIED);
                let error = CallError::new(ErrorCategory::Refused, NOT_APPLIED)
                    .with_operator_detail(report);
                return Err(Outcome::error(Refusal::Blocked, error));
            }
        };
        next.note_reason(reason.clone());
        let judged = |call| {
            PolicyJudgements::note_version(call, next, &self.version)
                .with_access_judge(self.rules.clone())
        };
        match effect {
            PolicyEffect::Deny => Err(Outcome::refused(Refusal::Blocked, reason.to_string())),
            PolicyEffect::Allow => Ok(judged(call)),
            PolicyEffect::Ask if each_time => {
                let version = Some(self.version.clone());
                Ok(judged(call).require_approval_each_time(reason, version))
            }
            PolicyEffect::Ask => {
                Ok(judged(call).require_approval(reason, Some(self.version.clone())))
            }
        }
    }
}

const NOT_APPLIED: &str = "the policy could not be applied";

impl Layer for Policy {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let outcome = match self.decide_call(call, &next) {
            Ok(call) => next.run(call).await,
            Err(refusal) => refusal,
        };
        // Noted on every outcome, so that receipts name the version of the rules that applied.
        outcome.with_notes(|notes| notes.policy_version = Some(self.version.clone()))
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        let capabilities = LayerCapabilities::for_kind(Self::NAME).answering();
        if self.rules.sets.iter().any(|rules| rules.may_ask()) {
            capabilities.requiring_approval()
        } else {
            capabilities
        }
    }
}

impl Configurable for Policy {
    const NAME: &'static str = "policy";
    const SUMMARY: &'static str = "Allows calls, requires approval or denies them, by rules over tools, paths, commands and hosts.";
    type Options = PolicyOptions;

    fn configure(options: PolicyOptions, parts: &Resources) -> Result<Self, BadOption> {
        let policy = Self::new(options)?;
        Ok(match parts.get::<PathBase>() {
            Some(workspace) => policy.in_workspace(&workspace),
            None => policy,
        })
    }
}

type CallIds = Arc<Mutex<Vec<CallId>>>;

/// Earlier calls per session, to count repeats. Bounded, and lost with the process.
#[derive(Debug, Clone)]
struct RepeatCounter {
    calls: Cache<(SessionId, ToolName, Digest), CallIds>,
    /// The highest number of repeats that a rule compares with.
    most: usize,
}

impl RepeatCounter {
    const MOST_CALLS: u64 = 10_000;

    fn new(most_repeats: u32) -> Self {
        let calls = Cache::builder()
            .max_capacity(Self::MOST_CALLS)
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self {
            calls,
            most: most_repeats as usize,
        }
    }

    /// Returns how many times the same call was made before this one, and counts this call.
    fn count_earlier(&self, call: &Call) -> usize {
        let key = (
            call.turn().session,
            call.tool.clone(),
            call.arguments.digest(),
        );
        // A call that comes back is found by its id and counts once. A rehearsal does not count.
        if call.is_rehearsal() {
            let ids = self.calls.get(&key);
            return ids.map_or(0, |ids| {
                position_or_len(&ids.lock().unwrap_or_else(PoisonError::into_inner), call.id)
            });
        }
        let ids = self.calls.get_with(key, Arc::default);
        let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = position_or_len(&ids, call.id);
        if earlier == ids.len() && ids.len() <= self.most {
            ids.push(call.id);
        }
        earlier
    }
}

fn position_or_len(ids: &[CallId], id: CallId) -> usize {
    ids.iter()
        .position(|known| *known == id)
        .unwrap_or(ids.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Status;
    use toolgate_testkit::{FakeExecutor, call};

    #[tokio::test]
    async fn a_policy_that_panics_while_judging_blocks_the_call() {
        let broken = Policy::from_rule_sets(Vec::new(), PathRoot::new(Path::new(".")));
        let executor = FakeExecutor::new();
        let stack = toolgate_core::Stack::over(executor.clone())
            .layer(broken)
            .build()
            .expect("valid order");
        let outcome = stack.run(call("x")).await;
        assert_eq!(outcome.status(), Some(Status::Blocked));
        assert_eq!(
            outcome.settled().expect("settled").model_text(),
            NOT_APPLIED
        );
        assert!(executor.seen().is_empty());
    }

    #[test]
    fn the_repeat_counter_is_bounded_per_call() {
        let seen = RepeatCounter::new(2);
        for id in 0..100 {
            let id = CallId::from_source(&toolgate_testkit::CountingIds::after(id));
            seen.count_earlier(&Call::new(toolgate_core::CallSeed {
                id,
                ..toolgate_testkit::seed("x", serde_json::json!({}))
            }));
        }
        let kept: Vec<usize> = seen
            .calls
            .iter()
            .map(|(_, ids)| ids.lock().expect("not poisoned").len())
            .collect();
        assert_eq!(kept, [3]);
    }
}
