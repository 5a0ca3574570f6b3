//! Asks for approval before a call runs.

pub(crate) mod answer;
pub(crate) mod approvers;
pub(crate) mod options;
pub(crate) mod preview;
mod preview_edits;
mod preview_links;
pub(crate) mod rule;
pub(crate) mod rule_book;
pub(crate) mod rule_draft;
pub(crate) mod rule_match;
pub(crate) mod rule_policy;
pub(crate) mod rule_preview;
pub(crate) mod rule_signer;
pub(crate) mod verify;

use std::{fmt, future::Future, time::Duration};

use futures::future::BoxFuture;
use toolgate_core::{
    ApprovalAnswer, ApprovalChange, ApprovalRequest, Band, Call, DecisionCallbacks, Keyring, Layer,
    LayerCapabilities, MadeDecision, Next, Outcome, Quorum, RecordKey, Refusal, SideEffect,
    Timestamp, Verdict, run_contained, run_contained_sync,
};

use crate::{
    ApprovalOptions, AskWhen, BadOption, CallPreview, Configurable, HumanDuration, PathBase,
    Preview, Resources, RuleBook, RuleEffect, SharedPreview, StandingRule,
    config::tool_globs::ToolGlobs,
    decide::{
        approval::{
            answer::{
                FirstOccurrence, find_answer, note_decision, note_expiry, note_rule,
                parse_recorded_at, record_first,
            },
            rule_book::RuleLookup,
            verify::{ApprovalVerifier, VerifiedApproval, changes_since_answer},
        },
        policy::judgements::PolicyJudgements,
    },
};

/// Suspends calls that need approval until an approver has decided.
///
/// The approval request carries exactly the arguments that will run. When the call comes back with
/// an answer to this request, it runs, is denied, or has expired. An answer about other arguments
/// or another version of the tool does not count, nor does one to a request that did not name every
/// reason for which approval is required now: approval is requested again. The model reads
/// nothing while the call is pending, and "Tool execution denied" with the reason if it is denied.
/// Placed innermost among the layers that decide, it asks only about calls that every rule above
/// allows.
///
/// It is the layer that asks for all others: a call for which a layer above requires approval
/// ([`Call::require_approval`]) runs once this layer has it, or a standing rule allows the call. A
/// standing rule does not allow what has to be decided each time
/// ([`Call::require_approval_each_time`]).
/// Under several approval layers, one with conditions of its own leaves such a call to another one
/// further in.
///
/// If the function that decides whether to ask panics, approval is requested.
///
/// With a keyring, an approval counts only if it was signed for exactly this: the call, its
/// arguments, the tool, the policy and everything that was shown. If one of them has changed, if a
/// file has changed since its diff was shown, or if the token was forged or used before, the call
/// does not run. Approval is requested again, and the request lists what changed.
///
/// The deadline is checked when the call first comes back with an approval. What was approved in
/// time stays approved, however long the call then takes, and a call that has already run outside
/// does not expire.
///
/// ```
/// # use {toolgate_core::{SideEffect, Stack}, toolgate_layers::Approval, toolgate_testkit::{call, echo}};
/// # futures::executor::block_on(async {
/// let large = |call: &toolgate_core::Call| {
///     let amount = call.arguments.get("amount")?.as_f64()?;
///     (amount > 100.0).then(|| "more than 100".to_owned())
/// };
/// let asking = Approval::when(large)
///     .on_denied(|made| async move { println!("{} was denied by {}", made.tool, made.decision.by) });
/// let stack = Stack::over(echo()).layer(asking).build()?;
/// assert!(stack.run(call("refund")).await.is_ok());
/// # Ok::<(), toolgate_core::StackError>(())
/// # }).unwrap();
/// ```
pub struct Approval {
    tools: Option<ToolGlobs>,
    ask_from: Option<SideEffect>,
    when: Option<AskWhen>,
    /// True if its conditions are its own. Otherwise they give way to a policy over all calls.
    selects: bool,
    expires_after: Option<Duration>,
    reason: Option<String>,
    quorum: Option<Quorum>,
    boundary: ApprovalVerifier,
    policy_version: Option<String>,
    rules: Option<RuleBook>,
    on_request: Option<OnRequest>,
    on_decision: Option<DecisionCallbacks>,
}

type OnRequest = Box<dyn Fn(Call, ApprovalRequest) -> BoxFuture<'static, ()> + Send + Sync>;

impl Approval {
    /// Creates a layer that asks about the calls for which a layer above requires approval, and
    /// about no others.
    pub fn when_required() -> Self {
        Self {
            tools: None,
            ask_from: None,
            when: None,
            selects: false,
            expires_after: None,
            reason: None,
            quorum: None,
            boundary: ApprovalVerifier::default(),
            policy_version: None,
            rules: None,
            on_request: None,
            on_decision: None,
        }
    }

    /// Creates a layer that also asks about the calls for which `why` returns a reason.
    pub fn when(why: impl Fn(&Call) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            when: Some(AskWhen::new(why)),
            selects: true,
            ..Self::when_required()
        }
    }

    /// Creates a layer that also asks about calls whose effects reach at least as far as `effect`.
    pub fn from_effect(effect: SideEffect) -> Self {
        Self {
            ask_from: Some(effect),
            selects: true,
            ..Self::when_required()
        }
    }

    /// Creates a layer from its configuration.
    pub fn new(options: ApprovalOptions) -> Result<Self, BadOption> {
        let quorum = options.required_quorum()?;
        let ApprovalOptions {
            tools,
            mut ask_from,
            expires_after,
            reason,
            ..
        } = options;
        if expires_after.is_some_and(|span| span.get().is_zero()) {
            return Err(BadOption::new("expires_after", "must be longer than zero"));
        }
        if reason
            .as_ref()
            .is_some_and(|reason| reason.trim().is_empty())
        {
            return Err(BadOption::new(
                "reason",
                "is empty; omit it or give a reason",
            ));
        }
        // Without any condition the layer must not ask about nothing: it asks about every call that
        // may write.
        if tools.is_none() && ask_from.is_none() {
            ask_from = Some(SideEffect::WorkspaceWrite);
        }
        let tools = tools
            .as_deref()
            .map(|tools| ToolGlobs::parse("tools", tools))
            .transpose()?;
        Ok(Self {
            tools,
            ask_from,
            selects: true,
            expires_after: expires_after.map(HumanDuration::get),
            reason,
            quorum,
            ..Self::when_required()
        })
    }

    /// Also asks about the calls for which `why` returns a reason.
    pub fn or_when(mut self, why: AskWhen) -> Self {
        self.when = Some(match self.when.take() {
            Some(when) => when.or(why),
            None => why,
        });
        self
    }

    /// Lets an approval request expire after `span`.
    pub fn expires_after(mut self, span: Duration) -> Self {
        self.expires_after = Some(span);
        self
    }

    /// Accepts only approvals that were signed with one of these keys, each for a single run.
    pub fn keyring(mut self, keyring: Keyring) -> Self {
        self.boundary.keyring = Some(keyring);
        self
    }

    /// Requires this quorum of approvals. Under a quorum, the requester of a call cannot approve
    /// it.
    pub fn quorum(mut self, quorum: Quorum) -> Self {
        self.quorum = Some(quorum);
        self
    }

    /// Sets the policy version under which the layer asks. An approval given under another version
    /// is requested again.
    pub fn policy_version(mut self, version: impl Into<String>) -> Self {
        self.policy_version = Some(version.into());
        self
    }

    /// Shows what a call would change. If a file no longer is as it was shown when the call is
    /// about to run, approval is requested again.
    pub fn with_preview(mut self, preview: impl Preview) -> Self {
        self.boundary.preview = Some(SharedPreview::new(preview));
        self
    }

    /// Names the directory that calls work in. It is shown and signed with the request; an approval
    /// that was given for another directory is requested again.
    pub fn in_workspace(mut self, workspace: PathBase) -> Self {
        self.boundary.path_base = Some(workspace);
        self
    }

    /// Checks the standing rules before asking for approval.
    pub fn with_rules(mut self, rules: RuleBook) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Runs `f` once for each approval request. A panic in `f` is contained and changes nothing;
    /// the same holds for the other callbacks.
    pub fn on_request<F, Fut>(mut self, f: F) -> Self
    where
        F: Fn(Call, ApprovalRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.on_request = Some(Box::new(move |call, request| Box::pin(f(call, request))));
        self
    }

    /// Runs `f` once for each approval, when it is made: the service that accepts the decision calls
    /// it, if it belongs to a gate or a dispatcher with this layer. If another process accepted it,
    /// `f` runs when the call is resumed.
    pub fn on_approved<F, Fut>(mut self, f: F) -> Self
    where
        F: Fn(MadeDecision) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.on_decision = Some(self.on_decision.unwrap_or_default().on_approved(f));
        self
    }

    /// Runs `f` once for each denial, like [`Approval::on_approved`].
    pub fn on_denied<F, Fut>(mut self, f: F) -> Self
    where
        F: Fn(MadeDecision) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.on_decision = Some(self.on_decision.unwrap_or_default().on_denied(f));
        self
    }

    /// Checks whether this layer meets the requirements that layers above have put on the call.
    fn meets_requirements(&self, call: &Call, next: &Next) -> bool {
        // Otherwise one requirement would lead to a request by every approval layer.
        !self.selects || !next.asks_below(call)
    }

    /// Returns the reason why this layer has to ask about the call, if it has to.
    fn approval_reason(&self, call: &Call, next: &Next) -> Option<String> {
        let required: Vec<&str> = call
            .unmet_requirements()
            .map(|required| &*required.reason)
            .collect();
        if !required.is_empty() && self.meets_requirements(call, next) {
            return Some(required.join("; "));
        }
        self.own_reason(call)
    }

    /// Returns the reason that the conditions of this layer give for asking about the call.
    fn own_reason(&self, call: &Call) -> Option<String> {
        if let Some(when) = &self.when {
            // Fail closed: a condition that panics counts as one that asks.
            let unclear =
                |_| Some("whether this call needs approval could not be determined".to_owned());
            if let Some(reason) =
                run_contained_sync(|| when.reason_for(call)).unwrap_or_else(unclear)
            {
                return Some(reason);
            }
        }
        let effect = call.annotations().strongest_effect();
        let named = self
            .tools
            .as_ref()
            .is_some_and(|tools| tools.matches(&call.tool));
        let ruled = !self.selects && PolicyJudgements::cover_all_calls(call);
        let reaches = !ruled && self.ask_from.is_some_and(|from| effect >= from);
        (named || reaches).then(|| {
            self.reason
                .clone()
                .unwrap_or_else(|| default_reason(call, effect))
        })
    }

    async fn request_approval(
        &self,
        call: Call,
        next: Next,
        why: String,
        changed: Vec<ApprovalChange>,
    ) -> Outcome {
        if call.generation >= MAX_REQUESTS_PER_CALL {
            next.note_reason("the limit of approval requests is reached");
            let text = format!(
                "the call was not run: approval was requested {} times, and what needs approval keeps changing",
                call.generation
            );
            return Outcome::refused(Refusal::Blocked, text);
        }
        let mut request = self.build_request(&call, &next, why, changed);
        let mut first = FirstOccurrence::now_unrecorded(&call);
        let now = first.at;
        if !call.is_rehearsal() && (self.expires_after.is_some() || self.on_request.is_some()) {
            // If the first request cannot be recorded, approval is still requested, and requested
            // anew when the call comes back.
            first = record_first(&next, &call, &request_record_key(call.generation))
                .await
                .unwrap_or(first);
        }
        // The deadline counts from the first request, so a replay does not prolong it.
        if let Some(span) = self.expires_after.filter(|_| !has_run(&call)) {
            let until = first.at.plus(span);
            if now >= until {
                return settle_expired(&next, now);
            }
            request = request.expiring_at(until);
        }
        if let Some(on_request) = self.on_request.as_ref().filter(|_| first.is_new) {
            let told = async { on_request(call.clone(), request.clone()).await };
            let _ = run_contained(told).await;
        }
        next.note_reason(match request.changed.as_slice() {
            [] => "needs approval".to_owned(),
            changed => format!("needs approval again: {}", join_codes(changed)),
        });
        Outcome::await_decision(request)
    }

    /// Builds the approval request, without its deadline.
    fn build_request(
        &self,
        call: &Call,
        next: &Next,
        why: String,
        changed: Vec<ApprovalChange>,
    ) -> ApprovalRequest {
        let mut request = ApprovalRequest::for_call(call).with_reason(why);
        if self.meets_requirements(call, next) {
            request = request.naming_requirements(call);
        }
        request.policy_version = self.effective_policy_version(call);
        request.quorum = self.quorum.clone();
        request.changed = changed;
        request.signed = self.boundary.keyring.is_some();
        request.workspace = self.boundary.workspace();
        let preview = self.boundary.preview.as_ref();
        // A preview that panics shows nothing; approval is requested all the same.
        let shown =
            preview.and_then(|preview| run_contained_sync(|| preview.preview(call)).ok().flatten());
        if let Some(CallPreview { shown, files }) = shown {
            request.shown = Some(shown);
            request.files = files;
        }
        request.links = preview
            .map(|preview| preview.find_links(&call.arguments))
            .unwrap_or_default();
        request
    }

    fn effective_policy_version(&self, call: &Call) -> Option<String> {
        self.policy_version
            .clone()
            .or_else(|| PolicyJudgements::combined_version(call))
    }

    /// Checks whether the answer to the request of this generation was given or first `met` too
    /// late. Returns `None` if the time of the request is not known.
    async fn has_expired(
        &self,
        call: &Call,
        next: &Next,
        generation: u32,
        met: Timestamp,
    ) -> Option<bool> {
        // A rehearsal does not record its approval requests.
        let Some(span) = self
            .expires_after
            .filter(|_| !call.is_rehearsal() && !has_run(call))
        else {
            return Some(false);
        };
        let key = format!("{}/{}", next.layer_name(), request_record_key(generation));
        let kept = call
            .env()
            .store()
            .load_json(&RecordKey::Layer(call.id, key.into()))
            .await;
        Some(met >= parse_recorded_at(&kept.ok()??)?.plus(span))
    }

    /// Checks whether the call is back because the last request of this layer expired without an
    /// answer.
    async fn has_expired_unanswered(&self, call: &Call, next: &Next) -> bool {
        let Some(last) = call
            .generation
            .checked_sub(1)
            .filter(|_| self.expires_after.is_some())
        else {
            return false;
        };
        if call.is_rehearsal()
            || call
                .resume_state()
                .answers
                .iter()
                .any(|answer| answer.generation == last)
        {
            return false;
        }
        self.has_expired(call, next, last, call.env().clock().now())
            .await
            == Some(true)
    }

    async fn settle_denied(
        &self,
        call: Call,
        next: Next,
        answer: ApprovalAnswer,
        reason: Option<&str>,
    ) -> Outcome {
        let first = FirstOccurrence::record_answer(&next, &call, &answer).await;
        // A denial is not verified: a forged one can only stop the call.
        self.notify_once(&first, &call, &answer).await;
        next.note_reason(format!("denied by {}", answer.decision.by));
        note_decision(Outcome::denied(reason), answer, first.at)
    }

    async fn apply_approval(&self, call: Call, next: Next, answer: ApprovalAnswer) -> Outcome {
        let policy = self.effective_policy_version(&call);
        match self
            .boundary
            .verify(&call, &answer, policy.as_deref())
            .await
        {
            VerifiedApproval::Valid => {}
            VerifiedApproval::Stale(changed) => {
                return self.request_again(call, next, changed).await;
            }
            VerifiedApproval::Unknown => {
                return self
                    .request_approval(call, next, UNVERIFIED_APPROVAL.to_owned(), Vec::new())
                    .await;
            }
        }
        // A layer may require approval since: the approver did not see its reason. What has run
        // already is not asked about again.
        if self.meets_requirements(&call, &next)
            && !answer.covers_requirements(&call)
            && !has_run(&call)
        {
            let changed = vec![ApprovalChange::Requirement];
            return self.request_again(call, next, changed).await;
        }
        let first = FirstOccurrence::record_answer(&next, &call, &answer).await;
        // A replay must judge the same moment again, not the current time: otherwise an approval
        // given in time would expire while the call waits for something else.
        let given = answer.decided_at.unwrap_or(first.at);
        match self
            .has_expired(&call, &next, answer.generation, given)
            .await
        {
            Some(false) => {}
            Some(true) => return settle_expired(&next, given),
            None => {
                let why = "the time of the earlier approval request is unknown".to_owned();
                return self.request_approval(call, next, why, Vec::new()).await;
            }
        }
        self.notify_once(&first, &call, &answer).await;
        next.note_reason(format!("approved by {}", answer.decision.by));
        note_decision(self.run_approved(call, next).await, answer, first.at)
    }

    /// Calls the callback for a decision, unless it was called before.
    async fn notify_once(&self, first: &FirstOccurrence, call: &Call, answer: &ApprovalAnswer) {
        if let Some(callbacks) = self.on_decision.as_ref().filter(|_| first.is_new) {
            callbacks.notify(MadeDecision::for_call(call, answer)).await;
        }
    }

    /// Runs a call that an approver or a standing rule has approved.
    async fn run_approved(&self, call: Call, next: Next) -> Outcome {
        if self.meets_requirements(&call, &next) {
            next.run_approved(call).await
        } else {
            next.run(call).await
        }
    }
}

impl Approval {
    /// Decides a call by the standing rules and by the answers it came back with.
    async fn decide_call(&self, call: Call, next: Next) -> Outcome {
        let ruling = match &self.rules {
            Some(rules) => rules.find_rule(&call).await,
            None => RuleLookup::NoMatch,
        };
        let answer = find_answer(&call, &next);
        if self.has_expired_unanswered(&call, &next).await {
            return settle_expired(&next, call.env().clock().now());
        }
        match (&answer, ruling) {
            // Deny beats allow, also an earlier approval. A call that has already run is not
            // reported as denied.
            (_, RuleLookup::Matched(rule))
                if rule.effect == RuleEffect::Deny && !has_run(&call) =>
            {
                return self.apply_rule(call, next, *rule).await;
            }
            // One person's rule does not stand for the approvals of several.
            (None, RuleLookup::Matched(rule))
                if self.quorum.is_none()
                    && !asks_each_time(&call)
                    && self.approval_reason(&call, &next).is_some() =>
            {
                return self.apply_rule(call, next, *rule).await;
            }
            // Fail closed: among the rules that cannot be loaded may be one that denies.
            (None, RuleLookup::Unreadable) => {
                return self.handle_unanswered(call, next, true).await;
            }
            (_, RuleLookup::NoMatch | RuleLookup::Matched(_) | RuleLookup::Unreadable) => {}
        }
        let Some(answer) = answer else {
            return self.handle_unanswered(call, next, false).await;
        };
        match answer.decision.verdict.clone() {
            Verdict::Deny { reason } => {
                self.settle_denied(call, next, answer, reason.as_deref())
                    .await
            }
            Verdict::Approve | Verdict::ApproveWithEdits { .. } => {
                self.apply_approval(call, next, answer).await
            }
        }
    }

    /// Requests approval for a call without a valid answer, or runs it if it needs none.
    async fn handle_unanswered(&self, call: Call, next: Next, unreadable: bool) -> Outcome {
        let unreadable = || unreadable.then(|| "the standing rules could not be read".to_owned());
        let why = match self.approval_reason(&call, &next).or_else(unreadable) {
            Some(why) => why,
            None if call.resume_state().answers.is_empty() => return next.run(call).await,
            // Edits by an approver may have moved the call out of this layer's conditions. They
            // count only if they were signed.
            None if Box::pin(self.boundary.has_only_signed_edits(&call)).await => {
                return next.run(call).await;
            }
            None => UNVERIFIED_APPROVAL.to_owned(),
        };
        let changed = changes_since_answer(&call, &next);
        Box::pin(self.request_approval(call, next, why, changed)).await
    }

    /// Requests approval again because something has changed, unless the call no longer needs it.
    async fn request_again(&self, call: Call, next: Next, changed: Vec<ApprovalChange>) -> Outcome {
        let suspect = |changed: &ApprovalChange| {
            matches!(
                changed,
                ApprovalChange::Forged
                    | ApprovalChange::KeyGone
                    | ApprovalChange::Replayed
                    | ApprovalChange::Approvers
                    | ApprovalChange::Arguments
            )
        };
        // Arguments from an answer of doubtful origin are not run without approval, whatever the
        // rules say.
        let why = self.approval_reason(&call, &next).or_else(|| {
            changed
                .iter()
                .any(suspect)
                .then(|| UNVERIFIED_APPROVAL.to_owned())
        });
        match why {
            Some(why) => self.request_approval(call, next, why, changed).await,
            None => next.run(call).await,
        }
    }

    /// Applies a standing rule: runs the call or denies it.
    async fn apply_rule(&self, call: Call, next: Next, rule: StandingRule) -> Outcome {
        let at = call.env().clock().now();
        next.note_reason(format!(
            "{} by rule {} of {}",
            effect_word(rule.effect),
            rule.id,
            rule.owner
        ));
        let outcome = match rule.effect {
            RuleEffect::Allow => self.run_approved(call, next).await,
            RuleEffect::Deny => {
                Outcome::denied(rule.reason.as_deref().or(Some("a standing rule denies it")))
            }
        };
        note_rule(outcome, rule, at)
    }
}

/// The most approval requests for one call. A condition that changes on every pass must not ask
/// without end.
const MAX_REQUESTS_PER_CALL: u32 = 16;

const UNVERIFIED_APPROVAL: &str = "the approval of this call could not be verified";

fn effect_word(effect: RuleEffect) -> &'static str {
    match effect {
        RuleEffect::Allow => "allowed",
        RuleEffect::Deny => "denied",
    }
}

fn join_codes(changed: &[ApprovalChange]) -> String {
    changed
        .iter()
        .map(ApprovalChange::code)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns true if the call has run outside at least once. To settle it as not run would then be
/// wrong.
fn has_run(call: &Call) -> bool {
    !call.resume_state().results.is_empty()
}

/// Returns true if a layer requires an approver's decision about this very call.
fn asks_each_time(call: &Call) -> bool {
    call.unmet_requirements().any(|required| required.each_time)
}

fn request_record_key(generation: u32) -> String {
    format!("asked-{generation}")
}

fn default_reason(call: &Call, effect: SideEffect) -> String {
    let can = match effect {
        SideEffect::None | SideEffect::ReadOnly => "needs approval before it runs",
        SideEffect::WorkspaceWrite => "can change files",
        SideEffect::ProcessExec => "can run programs",
        SideEffect::Network => "can reach the network",
    };
    format!("{} {can}", call.tool)
}

fn settle_expired(next: &Next, at: Timestamp) -> Outcome {
    next.note_reason("the approval request expired");
    note_expiry(
        Outcome::refused(
            Refusal::Expired,
            "the call was not run: no decision was made in time",
        ),
        at,
    )
}

impl Layer for Approval {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // On its first pass a call cannot have an answer yet. The rest is boxed so that such calls
        // do not carry the larger future.
        if self.rules.is_none() && call.generation == 0 && call.resume_state().answers.is_empty() {
            return self.handle_unanswered(call, next, false).await;
        }
        Box::pin(self.decide_call(call, next)).await
    }

    fn waits_for_outcome(&self, call: &Call) -> bool {
        // A call that comes back with an external result only is asked about as the first time.
        let is_unanswered = call.generation == 0 && call.resume_state().answers.is_empty();
        // A standing rule may deny a call that needs no approval.
        let rules_are_empty = |rules: &RuleBook| rules.is_known_empty(call.env().clock().now());
        // A condition of the program may remember what it was asked: it is asked once, in `handle`.
        is_unanswered
            && self.when.is_none()
            && call.unmet_requirements().next().is_none()
            && self.rules.as_ref().is_none_or(rules_are_empty)
            && self.own_reason(call).is_none()
    }

    fn wants_outcome(&self, _: &Call, _: &Outcome) -> bool {
        false
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).answering().asking()
    }

    fn approval_keys(&self) -> Option<&Keyring> {
        self.boundary.keyring.as_ref()
    }

    fn decision_callbacks(&self) -> Option<&DecisionCallbacks> {
        self.on_decision.as_ref()
    }
}

impl Configurable for Approval {
    const NAME: &'static str = "approval";
    const SUMMARY: &'static str = "Asks for approval before a call runs.";
    type Options = ApprovalOptions;

    fn configure(options: ApprovalOptions, parts: &Resources) -> Result<Self, BadOption> {
        let chosen = options.tools.is_some() || options.ask_from.is_some();
        let mut layer = Self::new(options)?;
        let program = parts.get::<AskWhen>();
        layer.selects = chosen;
        layer.ask_from = layer.ask_from.filter(|_| chosen || program.is_none());
        layer.boundary = ApprovalVerifier {
            keyring: parts.get(),
            preview: parts.get(),
            path_base: parts.get(),
        };
        layer.rules = parts.get();
        Ok(program.into_iter().fold(layer, Self::or_when))
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Approval");
        out.field("tools", &self.tools)
            .field("ask_from", &self.ask_from)
            .field("when", &self.when);
        out.field("expires_after", &self.expires_after)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
