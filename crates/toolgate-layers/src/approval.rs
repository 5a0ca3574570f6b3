//! Asks somebody before a call runs.

use std::{fmt, time::Duration};

use toolgate_core::{
    Answer, ApprovalRequest, Band, Call, Changed, Decision, Keyring, Layer, LayerTraits, Next,
    Outcome, Quorum, Record, RecordKey, SideEffect, Status, Timestamp, Verdict, contained_sync,
};

use crate::{
    AllowRule, ApprovalOptions, AskWhen, BadOption, Configurable, Parts, Preview, Previewed,
    RuleBook, RuleEffect, SharedPreview, Span,
    asks::{PolicyAsks, PolicyVersions},
    boundary::{Boundary, Held, outdated},
    consent::{First, answer, decided, moment, remember, ruled, undecided},
    rule_book::Ruling,
    tool_globs::ToolGlobs,
};

/// Suspends calls that need approval until somebody has decided.
///
/// The question goes out with exactly the arguments that will run. When the call comes back with an answer to this
/// question, it runs, is denied, or has expired; an answer about other arguments or another version of the tool is no
/// answer, and somebody is asked again. The model reads nothing while the call waits, and "Tool execution denied" with
/// the reason if it is refused. Standing innermost among the layers that decide, it asks only about calls that every
/// rule above allows.
///
/// If the function that says whether to ask panics, somebody is asked.
///
/// With a keyring, an approval counts only if it was signed for exactly this: the call, its arguments, the tool, the
/// policy and everything that was shown. If one of them is not as it was, if a file has changed since its diff was shown,
/// or if the token was made up or used before, the call does not run; somebody is asked again and told what is different.
///
/// Whether an approval came in time is settled when the call first comes back with it. What was approved in time stays
/// approved, however long the call then takes, and what has already run outside does not expire.
///
/// ```
/// # use {toolgate_core::{SideEffect, Stack}, toolgate_layers::Approval, toolgate_testkit::{call, echo}};
/// # futures::executor::block_on(async {
/// let large = |call: &toolgate_core::Call| {
///     let amount = call.arguments.get("amount")?.as_f64()?;
///     (amount > 100.0).then(|| "more than 100".to_owned())
/// };
/// let asking = Approval::when(large).on_denied(|call, _| println!("{} was denied", call.tool));
/// let stack = Stack::over(echo()).layer(asking).build()?;
/// assert!(stack.run(call("refund")).await.is_ok());
/// # Ok::<(), toolgate_core::StackError>(())
/// # }).unwrap();
/// ```
pub struct Approval {
    tools: Option<ToolGlobs>,
    ask_from: Option<SideEffect>,
    when: Option<AskWhen>,
    expires_after: Option<Duration>,
    reason: Option<String>,
    quorum: Option<Quorum>,
    boundary: Boundary,
    policy: PolicyVersions,
    policy_version: Option<String>,
    rules: Option<RuleBook>,
    on_request: Option<OnRequest>,
    on_approved: Option<OnDecision>,
    on_denied: Option<OnDecision>,
}

type OnRequest = Box<dyn Fn(&Call, &ApprovalRequest) + Send + Sync>;
type OnDecision = Box<dyn Fn(&Call, &Decision) + Send + Sync>;

impl Approval {
    /// Asks about the calls for which `why` gives a reason, and about no others.
    pub fn when(why: impl Fn(&Call) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            when: Some(AskWhen::new(why)),
            ..Self::never()
        }
    }

    /// Asks about calls whose effects reach at least as far as `effect`.
    pub fn from_effect(effect: SideEffect) -> Self {
        Self {
            ask_from: Some(effect),
            ..Self::never()
        }
    }

    /// Asks as `options` say.
    pub fn new(options: ApprovalOptions) -> Result<Self, BadOption> {
        let quorum = options.agreement()?;
        let ApprovalOptions {
            tools,
            mut ask_from,
            expires_after,
            reason,
            ..
        } = options;
        if expires_after.is_some_and(|span| span.get().is_zero()) {
            return Err(BadOption::new(
                "expires_after",
                "has to be longer than nothing",
            ));
        }
        if reason
            .as_ref()
            .is_some_and(|reason| reason.trim().is_empty())
        {
            return Err(BadOption::new(
                "reason",
                "is empty; leave it out or say something",
            ));
        }
        if tools.is_none() && ask_from.is_none() {
            ask_from = Some(SideEffect::WorkspaceWrite);
        }
        let tools = tools
            .as_deref()
            .map(|tools| ToolGlobs::read("tools", tools))
            .transpose()?;
        Ok(Self {
            tools,
            ask_from,
            expires_after: expires_after.map(Span::get),
            reason,
            quorum,
            ..Self::never()
        })
    }

    fn never() -> Self {
        Self {
            tools: None,
            ask_from: None,
            when: None,
            expires_after: None,
            reason: None,
            quorum: None,
            boundary: Boundary::default(),
            policy: PolicyVersions::default(),
            policy_version: None,
            rules: None,
            on_request: None,
            on_approved: None,
            on_denied: None,
        }
    }

    /// Also asks about the calls for which `why` gives a reason.
    pub fn or_when(mut self, why: AskWhen) -> Self {
        self.when = Some(match self.when.take() {
            Some(when) => when.or(why),
            None => why,
        });
        self
    }

    /// Lets a question stand for `span` only.
    pub fn expires_after(mut self, span: Duration) -> Self {
        self.expires_after = Some(span);
        self
    }

    /// Takes only approvals that were signed with one of these keys, and each of them for one run.
    pub fn keyring(mut self, keyring: Keyring) -> Self {
        self.boundary.keyring = Some(keyring);
        self
    }

    /// Lets a call run when this many have agreed. Under a quorum nobody approves what they asked for themselves.
    pub fn quorum(mut self, quorum: Quorum) -> Self {
        self.quorum = Some(quorum);
        self
    }

    /// Says under which version of the policy it asks. What was approved under another one is asked about again.
    pub fn policy_version(mut self, version: impl Into<String>) -> Self {
        self.policy_version = Some(version.into());
        self
    }

    /// Shows what a call would change. If a file is not as it was shown when the call is to run, somebody is asked again.
    pub fn previewing(mut self, preview: impl Preview) -> Self {
        self.boundary.preview = Some(SharedPreview::new(preview));
        self
    }

    /// Lets standing rules answer before somebody is asked.
    pub fn with_rules(mut self, rules: RuleBook) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Runs `f` once for each question that goes out. If it panics, nothing changes; the same holds for the others.
    pub fn on_request(
        mut self,
        f: impl Fn(&Call, &ApprovalRequest) + Send + Sync + 'static,
    ) -> Self {
        self.on_request = Some(Box::new(f));
        self
    }

    /// Runs `f` once for each call that is approved.
    pub fn on_approved(mut self, f: impl Fn(&Call, &Decision) + Send + Sync + 'static) -> Self {
        self.on_approved = Some(Box::new(f));
        self
    }

    /// Runs `f` once for each call that is denied.
    pub fn on_denied(mut self, f: impl Fn(&Call, &Decision) + Send + Sync + 'static) -> Self {
        self.on_denied = Some(Box::new(f));
        self
    }

    /// Why somebody has to be asked about this call, if so.
    fn why(&self, call: &Call) -> Option<String> {
        if let Some(when) = &self.when {
            let unclear =
                |_| Some("whether this call needs approval could not be decided".to_owned());
            if let Some(reason) = contained_sync(|| when.why(call)).unwrap_or_else(unclear) {
                return Some(reason);
            }
        }
        let effect = call.annotations().effect();
        let named = self
            .tools
            .as_ref()
            .is_some_and(|tools| tools.matches(&call.tool));
        let reaches = self.ask_from.is_some_and(|from| effect >= from);
        (named || reaches).then(|| {
            self.reason
                .clone()
                .unwrap_or_else(|| plain_reason(call, effect))
        })
    }

    async fn ask(&self, call: Call, next: Next, why: String, changed: Vec<Changed>) -> Outcome {
        let mut request = self.request(&call, why, changed);
        let mut first = First::unsure(&call);
        let now = first.at;
        if !call.is_rehearsal() && (self.expires_after.is_some() || self.on_request.is_some()) {
            // If this is not kept, the question goes out all the same, and again when the call comes back.
            first = remember(&next, &call, &asked(call.generation))
                .await
                .unwrap_or(first);
        }
        if let Some(span) = self.expires_after.filter(|_| !has_run(&call)) {
            let until = first.at.plus(span);
            if now >= until {
                return expired(&next, now);
            }
            request = request.until(until);
        }
        if let Some(on_request) = self.on_request.as_ref().filter(|_| first.is_new) {
            let _ = contained_sync(|| on_request(&call, &request));
        }
        next.because(match request.changed.as_slice() {
            [] => "needs approval".to_owned(),
            changed => format!("needs approval again: {}", words(changed)),
        });
        Outcome::ask(request)
    }

    /// The question as it is put, without its end.
    fn request(&self, call: &Call, why: String, changed: Vec<Changed>) -> ApprovalRequest {
        let mut request = ApprovalRequest::about(call).because(why);
        (request.policy_version, request.quorum, request.changed) =
            (self.version(), self.quorum.clone(), changed);
        let preview = self.boundary.preview.as_ref();
        // A preview that panics shows nothing; the question is put all the same.
        let shown =
            preview.and_then(|preview| contained_sync(|| preview.preview(call)).ok().flatten());
        if let Some(Previewed { shown, files }) = shown {
            (request.shown, request.files) = (Some(shown), files);
        }
        request
    }

    fn version(&self) -> Option<String> {
        self.policy_version.clone().or_else(|| self.policy.text())
    }

    /// Whether the answer to the question of this generation was given or first `met` too late; nothing if it is not known when
    /// it was asked.
    async fn has_lapsed(
        &self,
        call: &Call,
        next: &Next,
        generation: u32,
        met: Timestamp,
    ) -> Option<bool> {
        // A rehearsal keeps no questions.
        let Some(span) = self
            .expires_after
            .filter(|_| !call.is_rehearsal() && !has_run(call))
        else {
            return Some(false);
        };
        let key = format!("{}/{}", next.layer_name(), asked(generation));
        let kept = call
            .env()
            .store()
            .record(&RecordKey::Layer(call.id, key.into()))
            .await;
        let Ok(Some(Record::Json(kept))) = kept else {
            return None;
        };
        Some(met >= moment(&kept)?.plus(span))
    }

    /// Whether the call is back because nobody has answered the last question of this layer in time.
    async fn nobody_answered(&self, call: &Call, next: &Next) -> bool {
        let Some(last) = call
            .generation
            .checked_sub(1)
            .filter(|_| self.expires_after.is_some())
        else {
            return false;
        };
        if call.is_rehearsal()
            || call
                .resumed()
                .answers
                .iter()
                .any(|answer| answer.generation == last)
        {
            return false;
        }
        self.has_lapsed(call, next, last, call.env().clock().now())
            .await
            == Some(true)
    }

    async fn deny(&self, call: Call, next: Next, answer: Answer, reason: Option<&str>) -> Outcome {
        let first = First::met(&next, &call, &answer).await;
        tell(self.on_denied.as_ref(), &first, &call, &answer);
        next.because(format!("denied by {}", answer.decision.by));
        decided(Outcome::denied(reason), answer, first.at)
    }

    async fn approve(&self, call: Call, next: Next, answer: Answer) -> Outcome {
        match self
            .boundary
            .hold(&call, &answer, self.version().as_deref())
            .await
        {
            Held::Firm => {}
            Held::Broken(changed) => return self.ask_again(call, next, changed).await,
            Held::Unclear => return self.ask(call, next, UNCHECKED.to_owned(), Vec::new()).await,
        }
        let first = First::met(&next, &call, &answer).await;
        let given = answer.decided_at.unwrap_or(first.at);
        match self
            .has_lapsed(&call, &next, answer.generation, given)
            .await
        {
            Some(false) => {}
            Some(true) => return expired(&next, given),
            None => {
                let why = "it is not known when this was asked before".to_owned();
                return self.ask(call, next, why, Vec::new()).await;
            }
        }
        tell(self.on_approved.as_ref(), &first, &call, &answer);
        next.because(format!("approved by {}", answer.decision.by));
        decided(next.run(call).await, answer, first.at)
    }
}

impl Approval {
    /// Weighs what rules and people have said about a call.
    async fn consider(&self, call: Call, next: Next) -> Outcome {
        let ruling = match &self.rules {
            Some(rules) => rules.rule(&call).await,
            None => Ruling::Silent,
        };
        let answer = answer(&call, &next);
        if self.nobody_answered(&call, &next).await {
            return expired(&next, call.env().clock().now());
        }
        match (&answer, ruling) {
            // Deny beats allow, also what somebody has approved before.
            (_, Ruling::Ruled(rule)) if rule.effect == RuleEffect::Deny && !has_run(&call) => {
                return self.ruled(call, next, *rule).await;
            }
            (None, Ruling::Ruled(rule)) if self.why(&call).is_some() => {
                return self.ruled(call, next, *rule).await;
            }
            (None, Ruling::Unreadable) => return self.unanswered(call, next, true).await,
            (_, Ruling::Silent | Ruling::Ruled(_) | Ruling::Unreadable) => {}
        }
        let Some(answer) = answer else {
            return self.unanswered(call, next, false).await;
        };
        match answer.decision.verdict.clone() {
            Verdict::Deny { reason } => self.deny(call, next, answer, reason.as_deref()).await,
            Verdict::Approve | Verdict::ApproveWithEdits { .. } => {
                self.approve(call, next, answer).await
            }
        }
    }

    /// Nobody has given an answer that counts: asks, unless that is not called for.
    async fn unanswered(&self, call: Call, next: Next, unreadable: bool) -> Outcome {
        let unreadable = || unreadable.then(|| "the standing rules could not be read".to_owned());
        let why = match self.why(&call).or_else(unreadable) {
            Some(why) => why,
            None if call.resumed().answers.is_empty() => return next.run(call).await,
            None if Box::pin(self.boundary.vouches_for_edits(&call)).await => {
                return next.run(call).await;
            }
            None => UNCHECKED.to_owned(),
        };
        let changed = outdated(&call, &next);
        Box::pin(self.ask(call, next, why, changed)).await
    }

    /// Asks again because something is not as it was, unless nobody has to be asked any more.
    async fn ask_again(&self, call: Call, next: Next, changed: Vec<Changed>) -> Outcome {
        let suspect = |changed: &Changed| {
            matches!(
                changed,
                Changed::Forged | Changed::KeyGone | Changed::Replayed | Changed::Arguments
            )
        };
        // What an answer of doubtful origin has made of the call is not run without a look, whatever the rules say.
        let why = self
            .why(&call)
            .or_else(|| changed.iter().any(suspect).then(|| UNCHECKED.to_owned()));
        match why {
            Some(why) => self.ask(call, next, why, changed).await,
            None => next.run(call).await,
        }
    }

    /// Does what a standing rule says.
    async fn ruled(&self, call: Call, next: Next, rule: AllowRule) -> Outcome {
        let at = call.env().clock().now();
        next.because(format!(
            "{} by rule {} of {}",
            effect_word(rule.effect),
            rule.id,
            rule.owner
        ));
        let outcome = match rule.effect {
            RuleEffect::Allow => next.run(call).await,
            RuleEffect::Deny => Outcome::denied(
                rule.reason
                    .as_deref()
                    .or(Some("a standing rule is against it")),
            ),
        };
        ruled(outcome, rule, at)
    }
}

const UNCHECKED: &str = "the approval that it came with could not be confirmed";

fn effect_word(effect: RuleEffect) -> &'static str {
    match effect {
        RuleEffect::Allow => "allowed",
        RuleEffect::Deny => "denied",
    }
}

fn words(changed: &[Changed]) -> String {
    changed
        .iter()
        .map(Changed::code)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Tells whoever wants to know about a decision, once.
fn tell(who: Option<&OnDecision>, first: &First, call: &Call, answer: &Answer) {
    if let Some(who) = who.filter(|_| first.is_new) {
        let _ = contained_sync(|| who(call, &answer.decision));
    }
}

/// Whether the call has run outside, at least once. Saying now that it was not run would be untrue.
fn has_run(call: &Call) -> bool {
    !call.resumed().results.is_empty()
}

fn asked(generation: u32) -> String {
    format!("asked-{generation}")
}

fn plain_reason(call: &Call, effect: SideEffect) -> String {
    let can = match effect {
        SideEffect::None | SideEffect::ReadOnly => "is to be approved before it runs",
        SideEffect::WorkspaceWrite => "can change files",
        SideEffect::ProcessExec => "can run programs",
        SideEffect::Network => "can reach the network",
    };
    format!("{} {can}", call.tool)
}

fn expired(next: &Next, at: Timestamp) -> Outcome {
    next.because("nobody decided in time");
    undecided(
        Outcome::refused(
            Status::Expired,
            "the call was not run: nobody decided on it in time",
        ),
        at,
    )
}

impl Layer for Approval {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // The first time a call comes by, nobody can have answered. The rest is boxed, so that such calls have no room
        // for it.
        if self.rules.is_none() && call.generation == 0 && call.resumed().answers.is_empty() {
            return self.unanswered(call, next, false).await;
        }
        Box::pin(self.consider(call, next)).await
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).answering().asking()
    }
}

impl Configurable for Approval {
    const NAME: &'static str = "approval";
    const SUMMARY: &'static str = "Asks somebody before a call runs.";
    type Options = ApprovalOptions;

    fn configure(options: ApprovalOptions, parts: &Parts) -> Result<Self, BadOption> {
        let chosen = options.tools.is_some() || options.ask_from.is_some();
        let mut layer = Self::new(options)?;
        let program = parts.get::<AskWhen>();
        let policy = parts.get::<PolicyAsks>().and_then(|asks| asks.rule());
        // A policy that sees only some calls says nothing about the others.
        let ruled = program.is_some() || policy.as_ref().is_some_and(|rule| rule.sees_all);
        layer.ask_from = layer.ask_from.filter(|_| chosen || !ruled);
        layer.boundary = Boundary {
            keyring: parts.get(),
            preview: parts.get(),
        };
        layer.rules = parts.get();
        layer.policy = policy
            .as_ref()
            .map(|rule| rule.versions.clone())
            .unwrap_or_default();
        let rules = policy.map(|rule| rule.when).into_iter().chain(program);
        Ok(rules.fold(layer, Self::or_when))
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
#[path = "approval_tests.rs"]
mod tests;
