//! Allows, asks about or denies calls by rules that an operator writes.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use moka::{policy::EvictionPolicy, sync::Cache};
use toolgate_core::{
    Answer, ApprovalRequest, Band, Call, CallError, CallId, Changed, Digest, ErrorCategory,
    Keyring, Layer, LayerTraits, Next, Outcome, SessionId, Status, ToolName, Verdict,
    contained_sync,
};

use crate::{
    BadOption, Configurable, Effect, Judgement, Parts, PolicyOptions, Workspace,
    asks::{Marked, Marks, PolicyAsks},
    boundary::{Boundary, Held, outdated},
    consent::{First, answer, decided},
    facts::{Facts, Needs},
    judge::RuleSet,
    paths::Root,
};

/// Judges every call by its rules: deny beats ask beats allow, in whatever order they are written.
///
/// A denied call settles `policy_blocked` and the model reads which rule was against it and why. A call that is asked
/// about waits for a decision. Policies combine by strictness: under two of them a call gets the stricter answer, be
/// they nested or made one with [`Policy::combine`]. If the rules cannot be applied, the call does not run.
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
    needs: Needs,
    root: Arc<Root>,
    seen: Option<Seen>,
    asks: Asks,
    boundary: Boundary,
    version: Digest,
    version_text: Arc<str>,
}

/// Who asks when a rule says so.
#[derive(Debug, Clone)]
enum Asks {
    Here,
    /// A layer further in, which judges the call again or finds it among the marks.
    Below(Option<Marks>),
}

/// What becomes of a call by the rules.
enum Decided {
    Allowed,
    /// Somebody has to be asked, for this reason.
    Asked(Arc<str>),
    Refused(Outcome),
}

impl Policy {
    /// Makes a policy whose relative paths start at the current directory.
    pub fn new(options: PolicyOptions) -> Result<Self, BadOption> {
        Ok(Self::of(
            vec![Arc::new(RuleSet::new(options)?)],
            Root::new(Path::new(".")),
        ))
    }

    /// Says where relative paths start.
    pub fn in_workspace(self, workspace: &Workspace) -> Self {
        Self {
            root: Arc::new(Root::new(workspace.root())),
            ..self
        }
    }

    /// Leaves the asking to a layer further in, which finds out by [`Policy::requires_approval`] what to ask about.
    pub fn asked_below(self) -> Self {
        Self {
            asks: Asks::Below(None),
            ..self
        }
    }

    /// Takes only approvals that were signed with one of these keys. What was approved under another version of the
    /// rules is asked about again.
    pub fn keyring(self, keyring: Keyring) -> Self {
        Self {
            boundary: Boundary {
                keyring: Some(keyring),
                ..self.boundary
            },
            ..self
        }
    }

    /// A policy whose answer is always the stricter one of both. It takes the workspace of this one. It asks by itself
    /// unless both leave that to a layer further in.
    pub fn combine(&self, other: &Self) -> Self {
        let sets = self.sets.iter().chain(other.sets.iter()).cloned().collect();
        let mut both = Self::of(sets, Root::clone(&self.root));
        // A layer further in that knows of one of them only would let through what the other wants asked about.
        both.asks = if self.asks.is_same_below(&other.asks) {
            self.asks.clone()
        } else {
            Asks::Here
        };
        both.boundary.keyring = self
            .boundary
            .keyring
            .clone()
            .or_else(|| other.boundary.keyring.clone());
        both
    }

    /// What the policy says about a call.
    pub fn judge(&self, call: &Call) -> Judgement {
        let earlier = self.seen.as_ref().map_or(0, |seen| seen.earlier(call));
        let facts = Facts::of(call, &self.root, self.needs, earlier);
        let answers = self.sets.iter().map(|rules| rules.judge(&facts));
        answers
            .reduce(Judgement::or_stricter)
            .expect("a policy has at least one set of rules")
    }

    /// Why somebody has to agree before the call runs, if so. What is denied or cannot be judged is not free to run
    /// either.
    pub fn requires_approval(&self, call: &Call) -> Option<String> {
        match contained_sync(|| self.judge(call)) {
            Ok(Judgement {
                effect: Effect::Allow,
                ..
            }) => None,
            Ok(Judgement {
                effect: Effect::Ask | Effect::Deny,
                reason,
                ..
            }) => Some(reason.to_string()),
            Err(_) => Some(NOT_APPLIED.to_owned()),
        }
    }

    /// [`Policy::requires_approval`] as a function of its own, for a layer that asks.
    pub fn requirement(&self) -> impl Fn(&Call) -> Option<String> + Clone + Send + Sync + 'static {
        let policy = self.clone();
        move |call| policy.requires_approval(call)
    }

    /// The digest of what the rules say; it changes when they do.
    pub fn version(&self) -> Digest {
        self.version
    }

    fn of(sets: Vec<Arc<RuleSet>>, root: Root) -> Self {
        let needs = sets
            .iter()
            .map(|rules| rules.needs())
            .fold(Needs::default(), |a, b| Needs {
                paths: a.paths || b.paths,
                commands: a.commands || b.commands,
                urls: a.urls || b.urls,
            });
        let seen = sets
            .iter()
            .filter_map(|rules| rules.most_repeats())
            .max()
            .map(Seen::new);
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
        let (asks, boundary) = (Asks::Here, Boundary::default());
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

    /// What the rules make of the call, and says so.
    fn decide(&self, call: &Call, next: &Next) -> Decided {
        let judgement = match contained_sync(|| self.judge(call)) {
            Ok(judgement) => judgement,
            Err(report) => {
                next.because(NOT_APPLIED);
                let error =
                    CallError::new(ErrorCategory::Refused, NOT_APPLIED).with_operator(report);
                return Decided::Refused(Outcome::error(Status::Blocked, error));
            }
        };
        let Judgement { effect, reason, .. } = judgement;
        next.because(reason.clone());
        match effect {
            Effect::Deny => Decided::Refused(Outcome::refused(Status::Blocked, reason.to_string())),
            Effect::Allow => Decided::Allowed,
            Effect::Ask => Decided::Asked(reason),
        }
    }

    /// Lets somebody decide about a call: here, or a layer further in.
    async fn ask_about(&self, reason: Arc<str>, call: Call, next: Next) -> Outcome {
        if self.asks.is_below() {
            let _mark = self.asks.mark(&call, reason);
            return next.run(call).await;
        }
        match answer(&call, &next) {
            None => self.ask(&call, &reason, outdated(&call, &next)),
            Some(answer) => match self.hold(&call, &answer).await {
                Held::Firm => answered(answer, &reason, call, next).await,
                Held::Broken(changed) => self.ask(&call, &reason, changed),
                Held::Unclear => self.ask(&call, &reason, Vec::new()),
            },
        }
    }

    fn ask(&self, call: &Call, reason: &str, changed: Vec<Changed>) -> Outcome {
        let mut request = ApprovalRequest::about(call).because(reason);
        (request.policy_version, request.changed) = (Some(self.version_text.to_string()), changed);
        Outcome::ask(request)
    }

    /// Whether an answer counts. One that denies always does.
    async fn hold(&self, call: &Call, answer: &Answer) -> Held {
        match answer.decision.verdict {
            Verdict::Deny { .. } => Held::Firm,
            Verdict::Approve | Verdict::ApproveWithEdits { .. } => {
                self.boundary
                    .hold(call, answer, Some(&self.version_text))
                    .await
            }
        }
    }
}

/// Does what somebody decided about a call that this policy asked about.
async fn answered(answer: Answer, why: &str, call: Call, next: Next) -> Outcome {
    let met = First::met(&next, &call, &answer).await.at;
    let outcome = match &answer.decision.verdict {
        Verdict::Approve | Verdict::ApproveWithEdits { .. } => {
            next.because(format!("{why}; approved by {}", answer.decision.by));
            next.run(call).await
        }
        Verdict::Deny { reason } => {
            next.because(format!("{why}; denied by {}", answer.decision.by));
            Outcome::denied(reason.as_deref())
        }
    };
    decided(outcome, answer, met)
}

impl Asks {
    fn is_below(&self) -> bool {
        matches!(self, Self::Below(_))
    }

    fn is_same_below(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(None), Self::Below(None)) => true,
            (Self::Below(Some(marks)), Self::Below(Some(others))) => marks.are_those_of(others),
            (Self::Here | Self::Below(_), Self::Here | Self::Below(_)) => false,
        }
    }

    /// Tells the layer further in that this call has to be asked about.
    fn mark(&self, call: &Call, reason: Arc<str>) -> Option<Marked<'_>> {
        match self {
            Self::Here | Self::Below(None) => None,
            Self::Below(Some(marks)) => Some(marks.mark(call.id, reason)),
        }
    }
}

const NOT_APPLIED: &str = "the policy could not be applied";

impl Layer for Policy {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let outcome = match self.decide(&call, &next) {
            Decided::Allowed => next.run(call).await,
            // Boxed, so that calls that nobody has to be asked about have no room for it.
            Decided::Asked(reason) => Box::pin(self.ask_about(reason, call, next)).await,
            Decided::Refused(refusal) => refusal,
        };
        outcome.noting(|notes| {
            notes
                .metadata
                .insert("policy_version".into(), (*self.version_text).into());
        })
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn traits(&self) -> LayerTraits {
        match self.asks {
            Asks::Here => LayerTraits::of(Self::NAME).answering().asking(),
            Asks::Below(_) => LayerTraits::of(Self::NAME).answering(),
        }
    }
}

impl Configurable for Policy {
    const NAME: &'static str = "policy";
    const SUMMARY: &'static str =
        "Allows, asks about or denies calls by rules over tools, paths, commands and hosts.";
    type Options = PolicyOptions;

    fn configure(options: PolicyOptions, parts: &Parts) -> Result<Self, BadOption> {
        let mut policy = Self::new(options)?;
        if let Some(workspace) = parts.get::<Workspace>() {
            policy = policy.in_workspace(&workspace);
        }
        if let Some(keyring) = parts.get::<Keyring>() {
            policy = policy.keyring(keyring);
        }
        let marks = parts
            .get::<PolicyAsks>()
            .and_then(|asks| asks.marks(policy.version));
        Ok(match marks {
            Some(marks) => Self {
                asks: Asks::Below(Some(marks)),
                ..policy
            },
            None => policy,
        })
    }
}

type Ids = Arc<Mutex<Vec<CallId>>>;

/// Which calls were made before, per session; bounded, and forgotten with the process.
#[derive(Debug, Clone)]
struct Seen {
    calls: Cache<(SessionId, ToolName, Digest), Ids>,
    /// Nobody asks for more than this.
    most: usize,
}

impl Seen {
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

    /// How many times the same call was made before this one. The call itself counts from now on: once, however often
    /// it comes back, and not if it is only rehearsed.
    fn earlier(&self, call: &Call) -> usize {
        let key = (
            call.turn().session,
            call.tool.clone(),
            call.arguments.digest(),
        );
        if call.is_rehearsal() {
            let ids = self.calls.get(&key);
            return ids.map_or(0, |ids| {
                position(&ids.lock().unwrap_or_else(PoisonError::into_inner), call.id)
            });
        }
        let ids = self.calls.get_with(key, Arc::default);
        let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = position(&ids, call.id);
        if earlier == ids.len() && ids.len() <= self.most {
            ids.push(call.id);
        }
        earlier
    }
}

fn position(ids: &[CallId], id: CallId) -> usize {
    ids.iter()
        .position(|known| *known == id)
        .unwrap_or(ids.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_testkit::{Scripted, call};

    #[tokio::test]
    async fn a_policy_that_panics_while_judging_blocks_the_call() {
        let broken = Policy::of(Vec::new(), Root::new(Path::new(".")));
        let executor = Scripted::new();
        let stack = toolgate_core::Stack::over(executor.clone())
            .layer(broken.clone())
            .build()
            .expect("in order");
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
    fn what_was_seen_is_bounded_per_call() {
        let seen = Seen::new(2);
        for id in 0..100 {
            let id = CallId::from_source(&toolgate_testkit::CountingIds::after(id));
            seen.earlier(&Call::new(toolgate_core::CallSeed {
                id,
                ..toolgate_testkit::seed("x", serde_json::json!({}))
            }));
        }
        let kept: Vec<usize> = seen
            .calls
            .iter()
            .map(|(_, ids)| ids.lock().expect("whole").len())
            .collect();
        assert_eq!(kept, [3]);
    }
}
