//! Allows calls, requires approval for them, or denies them, by rules that an operator writes.

mod argument_roles;
mod features;
pub(crate) mod judge;
pub(crate) mod matching;
pub(crate) mod rules;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use moka::{policy::EvictionPolicy, sync::Cache};
use toolgate_core::{
    ApprovalAnswer, ApprovalChange, ApprovalRequest, Band, Call, CallError, CallId, Digest,
    ErrorCategory, Keyring, Layer, LayerCapabilities, Next, Outcome, SessionId, Status, ToolName,
    Verdict, note_keys, run_contained_sync,
};

use crate::{
    BadOption, Configurable, Judgement, PathBase, PolicyEffect, PolicyOptions, Resources,
    decide::{
        approval::{
            answer::{FirstOccurrence, find_answer, note_decision},
            requirements::{ApprovalMarkGuard, ApprovalMarks, PolicyRequirements},
            verify::{ApprovalVerifier, VerifiedApproval, changes_since_answer},
        },
        policy::{
            features::{CallFeatures, FeatureNeeds},
            judge::RuleSet,
            matching::paths::PathRoot,
        },
    },
};

/// A layer that judges every call by its rules: deny beats ask beats allow, whatever their order.
///
/// A denied call settles `policy_blocked`, and the model reads which rule blocked it and why. A
/// call that needs approval is pending until there is a decision. Policies combine by strictness:
/// under two of them, nested or merged with [`Policy::combine`], a call gets the stricter answer.
/// If the rules cannot be applied, the call does not run.
///
/// ```
/// # use {toolgate_core::Status, toolgate_layers::{Policy, PolicyOptions}, toolgate_testkit::{call_with, echo_under}};
/// # use serde_json::json;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let options: PolicyOptions = toml::from_str(r#"
///     [[rules]]
///     name = "everyday"
///     effect = "allow"
///     command = ["git status", "cargo test"]
/// "#).unwrap();
/// let stack = echo_under(Policy::new(options).unwrap());
/// let run = |text: &str| stack.run(call_with("run_shell", json!({ "command": text })));
/// assert!(run("git status --short && cargo test").await.is_ok());
/// assert!(run("git status; git push").await.suspension().is_some());
/// assert_eq!(run("cat .env").await.status(), Some(Status::Blocked));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    sets: Arc<[Arc<RuleSet>]>,
    needs: FeatureNeeds,
    root: Arc<PathRoot>,
    seen: Option<RepeatCounter>,
    asks: ApprovalSite,
    boundary: ApprovalVerifier,
    version: Digest,
    version_text: Arc<str>,
}

/// The layer that requests approval when a rule requires it.
#[derive(Debug, Clone)]
enum ApprovalSite {
    Here,
    /// A layer further in, which judges the call again or finds it among the marks.
    Below(Option<ApprovalMarks>),
}

/// The result of judging a call by the rules.
enum PolicyDecision {
    Allowed,
    /// The call needs approval, for this reason.
    Asked(Arc<str>),
    Blocked(Outcome),
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
            root: Arc::new(PathRoot::new(workspace.root())),
            ..self
        }
    }

    /// Leaves the approval requests to a layer further in, which uses
    /// [`Policy::requires_approval`].
    pub fn asked_below(self) -> Self {
        Self {
            asks: ApprovalSite::Below(None),
            ..self
        }
    }

    /// Accepts only approvals that were signed with one of these keys. An approval given under
    /// another version of the rules is requested again.
    pub fn keyring(self, keyring: Keyring) -> Self {
        Self {
            boundary: ApprovalVerifier {
                keyring: Some(keyring),
                ..self.boundary
            },
            ..self
        }
    }

    /// Combines two policies into one whose answer is always the stricter of both. It has the
    /// workspace of this one. It requests approval by itself unless both leave that to a layer
    /// further in.
    pub fn combine(&self, other: &Self) -> Self {
        let sets = self.sets.iter().chain(other.sets.iter()).cloned().collect();
        let mut both = Self::from_rule_sets(sets, PathRoot::clone(&self.root));
        // A layer further in that knows only one of them would let through calls that the other
        // requires approval for.
        both.asks = if self.asks.is_same_below(&other.asks) {
            self.asks.clone()
        } else {
            ApprovalSite::Here
        };
        both.boundary.keyring = self
            .boundary
            .keyring
            .clone()
            .or_else(|| other.boundary.keyring.clone());
        both
    }

    /// Judges a call by the rules.
    pub fn judge(&self, call: &Call) -> Judgement {
        let earlier = self
            .seen
            .as_ref()
            .map_or(0, |seen| seen.count_earlier(call));
        let facts = CallFeatures::extract_from(call, &self.root, self.needs, earlier);
        let answers = self.sets.iter().map(|rules| rules.judge(&facts));
        answers
            .reduce(Judgement::or_stricter)
            .expect("a policy has at least one set of rules")
    }

    /// Returns the reason why the call needs approval, if it does. Calls that are denied or cannot
    /// be judged need it too.
    pub fn requires_approval(&self, call: &Call) -> Option<String> {
        match run_contained_sync(|| self.judge(call)) {
            Ok(Judgement {
                effect: PolicyEffect::Allow,
                ..
            }) => None,
            Ok(Judgement {
                effect: PolicyEffect::Ask | PolicyEffect::Deny,
                reason,
                ..
            }) => Some(reason.to_string()),
            Err(_) => Some(NOT_APPLIED.to_owned()),
        }
    }

    /// Returns [`Policy::requires_approval`] as a function of its own, for a layer that asks.
    pub fn requirement(&self) -> impl Fn(&Call) -> Option<String> + Clone + Send + Sync + 'static {
        let policy = self.clone();
        move |call| policy.requires_approval(call)
    }

    /// Returns the digest of the rules. It changes when they do.
    pub fn version(&self) -> Digest {
        self.version
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
        let versions: Vec<Digest> = sets.iter().map(|rules| rules.version()).collect();
        let version = match versions.as_slice() {
            [one] => *one,
            many => Digest::of_bytes(
                many.iter()
                    .map(Digest::to_string)
                    .collect::<Vec<_>>()
                    .join("\n")
                    .as_bytes(),
            ),
        };
        let version_text = version.to_string().into();
        let asks = ApprovalSite::Here;
        let boundary = ApprovalVerifier::default();
        Self {
            sets: sets.into(),
            needs,
            root: Arc::new(root),
            seen,
            asks,
            boundary,
            version,
            version_text,
        }
    }

    /// Judges the call and notes the reason.
    fn decide_call(&self, call: &Call, next: &Next) -> PolicyDecision {
        let judgement = match run_contained_sync(|| self.judge(call)) {
            Ok(judgement) => judgement,
            Err(report) => {
                // Fail closed: a panic while judging blocks the call, and the operator gets the
                // report.
                next.note_reason(NOT_APPLIED);
                let error = CallError::new(ErrorCategory::Refused, NOT_APPLIED)
                    .with_operator_detail(report);
                return PolicyDecision::Blocked(Outcome::error(Status::Blocked, error));
            }
        };
        let Judgement { effect, reason, .. } = judgement;
        next.note_reason(reason.clone());
        match effect {
            PolicyEffect::Deny => {
                PolicyDecision::Blocked(Outcome::refused(Status::Blocked, reason.to_string()))
            }
            PolicyEffect::Allow => PolicyDecision::Allowed,
            PolicyEffect::Ask => PolicyDecision::Asked(reason),
        }
    }

    /// Requests approval for a call: here, or by a layer further in.
    async fn ask_about(&self, reason: Arc<str>, call: Call, next: Next) -> Outcome {
        if self.asks.is_below() {
            // The mark lives until the inner layers have returned; the asking layer looks it up by
            // call id.
            let _mark = self.asks.mark_call(&call, reason);
            return next.run(call).await;
        }
        match find_answer(&call, &next) {
            None => self.request_approval(&call, &reason, changes_since_answer(&call, &next)),
            Some(answer) => match self.verify_answer(&call, &answer).await {
                VerifiedApproval::Valid => apply_answer(answer, &reason, call, next).await,
                VerifiedApproval::Stale(changed) => self.request_approval(&call, &reason, changed),
                VerifiedApproval::Unknown => self.request_approval(&call, &reason, Vec::new()),
            },
        }
    }

    fn request_approval(&self, call: &Call, reason: &str, changed: Vec<ApprovalChange>) -> Outcome {
        let mut request = ApprovalRequest::for_call(call).with_reason(reason);
        request.policy_version = Some(self.version_text.to_string());
        request.changed = changed;
        Outcome::await_decision(request)
    }

    /// Verifies an answer. A denial always counts.
    async fn verify_answer(&self, call: &Call, answer: &ApprovalAnswer) -> VerifiedApproval {
        match answer.decision.verdict {
            Verdict::Deny { .. } => VerifiedApproval::Valid,
            Verdict::Approve | Verdict::ApproveWithEdits { .. } => {
                self.boundary
                    .verify(call, answer, Some(&self.version_text))
                    .await
            }
        }
    }
}

/// Applies a decision about a call that this policy requested approval for.
async fn apply_answer(answer: ApprovalAnswer, why: &str, call: Call, next: Next) -> Outcome {
    let met = FirstOccurrence::record_answer(&next, &call, &answer)
        .await
        .at;
    let outcome = match &answer.decision.verdict {
        Verdict::Approve | Verdict::ApproveWithEdits { .. } => {
            next.note_reason(format!("{why}; approved by {}", answer.decision.by));
            next.run(call).await
        }
        Verdict::Deny { reason } => {
            next.note_reason(format!("{why}; denied by {}", answer.decision.by));
            Outcome::denied(reason.as_deref())
        }
    };
    note_decision(outcome, answer, met)
}

impl ApprovalSite {
    fn is_below(&self) -> bool {
        matches!(self, Self::Below(_))
    }

    fn is_same_below(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(None), Self::Below(None)) => true,
            (Self::Below(Some(marks)), Self::Below(Some(others))) => marks.is_shared_with(others),
            (Self::Here | Self::Below(_), Self::Here | Self::Below(_)) => false,
        }
    }

    /// Marks the call as requiring approval, for the layer further in.
    fn mark_call(&self, call: &Call, reason: Arc<str>) -> Option<ApprovalMarkGuard<'_>> {
        match self {
            Self::Here | Self::Below(None) => None,
            Self::Below(Some(marks)) => Some(marks.mark_call(call.id, reason)),
        }
    }
}

const NOT_APPLIED: &str = "the policy could not be applied";

impl Layer for Policy {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let outcome = match self.decide_call(&call, &next) {
            PolicyDecision::Allowed => next.run(call).await,
            // Boxed, so that calls that need no approval do not carry the larger future.
            PolicyDecision::Asked(reason) => Box::pin(self.ask_about(reason, call, next)).await,
            PolicyDecision::Blocked(refusal) => refusal,
        };
        // Noted on every outcome, so that receipts name the version of the rules that applied.
        outcome.with_notes(|notes| notes.insert(note_keys::POLICY_VERSION, &*self.version_text))
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        match self.asks {
            ApprovalSite::Here => LayerCapabilities::for_kind(Self::NAME).answering().asking(),
            ApprovalSite::Below(_) => LayerCapabilities::for_kind(Self::NAME).answering(),
        }
    }
}

impl Configurable for Policy {
    const NAME: &'static str = "policy";
    const SUMMARY: &'static str = "Allows calls, requires approval or denies them, by rules over tools, paths, commands and hosts.";
    type Options = PolicyOptions;

    fn configure(options: PolicyOptions, parts: &Resources) -> Result<Self, BadOption> {
        let mut policy = Self::new(options)?;
        if let Some(workspace) = parts.get::<PathBase>() {
            policy = policy.in_workspace(&workspace);
        }
        if let Some(keyring) = parts.get::<Keyring>() {
            policy = policy.keyring(keyring);
        }
        let marks = parts
            .get::<PolicyRequirements>()
            .and_then(|asks| asks.register_policy(policy.version));
        Ok(match marks {
            Some(marks) => Self {
                asks: ApprovalSite::Below(Some(marks)),
                ..policy
            },
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
    use toolgate_testkit::{FakeExecutor, call};

    #[tokio::test]
    async fn a_policy_that_panics_while_judging_blocks_the_call() {
        let broken = Policy::from_rule_sets(Vec::new(), PathRoot::new(Path::new(".")));
        let executor = FakeExecutor::new();
        let stack = toolgate_core::Stack::over(executor.clone())
            .layer(broken.clone())
            .build()
            .expect("valid order");
        let outcome = stack.run(call("x")).await;
        assert_eq!(outcome.status(), Some(Status::Blocked));
        assert_eq!(
            outcome.settled().expect("settled").model_text(),
            NOT_APPLIED
        );
        assert!(executor.seen().is_empty());
        assert_eq!(
            broken.requires_approval(&call("x")).as_deref(),
            Some(NOT_APPLIED)
        );
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
