//! The rules: what has to be the same as in a run that was never killed, and what must never change once it was seen.

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::{BudgetRule, CallId, Registry, Status, ToolName};

use super::{
    Effect, Seen, SeenCall, Talk,
    accounts::compare_accounts,
    seen::{APPROVED, ASKED, STARTED},
};

/// How often a tool may have its effect when its process is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// Once at most. If nobody can tell whether it happened, the outcome is `outcome_unknown`.
    Never,
    /// As often as it takes; the outcome is always known.
    Harmless,
    /// Exactly once: the tool can be asked whether it happened, so the outcome is always known.
    Reconciled,
}

/// What is known about the tools of a scenario. A tool that is not known never repeats.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    repeats: BTreeMap<ToolName, Repeats>,
    asks_again: bool,
    limits: Vec<BudgetRule>,
    refuses: bool,
}

impl Facts {
    /// What the annotations of the registered tools say.
    pub fn of(registry: &Registry) -> Self {
        let fact = |annotations: &toolgate_core::Annotations| match annotations {
            annotations if annotations.reconcile => Repeats::Reconciled,
            annotations if annotations.may_repeat() => Repeats::Harmless,
            _ => Repeats::Never,
        };
        let entries = registry.entries();
        let fact = |entry: &std::sync::Arc<toolgate_core::ToolEntry>| {
            (entry.spec.name.clone(), fact(&entry.spec.annotations))
        };
        Self {
            repeats: entries.iter().map(fact).collect(),
            asks_again: false,
            limits: Vec::new(),
            refuses: false,
        }
    }

    /// Lets somebody be asked once more about a call: while the store cannot say whether an approval counts, asking
    /// again is the safe thing to do.
    pub fn asking_again(mut self) -> Self {
        self.asks_again = true;
        self
    }

    /// Counts a tool among those whose outcome is always known, as that of an agent is.
    pub fn always_knowing(mut self, tool: &str) -> Self {
        self.repeats.insert(tool.into(), Repeats::Reconciled);
        self
    }

    /// Lets no more be spent than these budgets allow.
    pub fn within(mut self, limits: impl IntoIterator<Item = BudgetRule>) -> Self {
        self.limits.extend(limits);
        self
    }

    /// Lets calls be refused, and replies be booked at their highest price: while accounts cannot be asked, nothing is
    /// spent, and what cannot be booked stays set aside.
    pub fn refusing_what_cannot_be_paid(mut self) -> Self {
        self.refuses = true;
        self
    }

    /// Whether this call was refused for want of money, and may be.
    fn allow_refusal_of(&self, call: &SeenCall) -> bool {
        self.refuses && call.status() == Some(Status::BudgetExceeded)
    }

    /// How often this tool may have its effect.
    pub fn repeats(&self, tool: &ToolName) -> Repeats {
        self.repeats.get(tool).copied().unwrap_or(Repeats::Never)
    }
}

/// Everything in which `after` is not what a run without mishaps came to.
pub fn compare(calm: &Seen, after: &Seen, facts: &Facts) -> Vec<String> {
    let mut wrong = after.broken.clone();
    wrong.extend(compare_session(calm, after, facts));
    wrong.extend(
        after
            .sessions()
            .into_iter()
            .flat_map(|seen| compare_accounts(seen, &facts.limits, facts.refuses)),
    );
    let calls = after.sessions().into_iter().flat_map(|seen| &seen.calls);
    let known: BTreeSet<String> = calls.map(|call| call.id.to_string()).collect();
    let strangers = after
        .effects
        .iter()
        .filter(|effect| !known.contains(&effect.key));
    wrong
        .extend(strangers.map(|effect| format!("an effect of {} belongs to no call", effect.tool)));
    wrong
}

fn compare_session(calm: &Seen, after: &Seen, facts: &Facts) -> Vec<String> {
    let mut wrong = Talk::compare(&calm.talk, &after.talk);
    compare_turns(calm, after, &mut wrong);
    if calm.calls.len() != after.calls.len() {
        wrong.push(format!(
            "{} calls were made instead of {}",
            after.calls.len(),
            calm.calls.len()
        ));
    }
    for (before, call) in calm.calls.iter().zip(&after.calls) {
        let label = call.label();
        if (before.turn, before.emit_order, &before.tool)
            != (call.turn, call.emit_order, &call.tool)
        {
            wrong.push(format!("{label} stands where {} should be", before.label()));
            continue;
        }
        let expected = (calm.effects_of(before.id), before);
        wrong.extend(compare_call(
            expected,
            (after.effects_of(call.id), call),
            facts,
        ));
        wrong.extend(compare_inner(
            calm.inner.get(&before.id),
            after.inner.get(&call.id),
            call,
            facts,
        ));
        if calm.receipts.values().any(|count| *count > 0)
            && after.receipts.get(&call.id) != Some(&1)
        {
            let count = after.receipts.get(&call.id).copied().unwrap_or(0);
            wrong.push(format!("{label} has {count} receipts"));
        }
        for (kind, count) in after.notices_of(call.id) {
            let again = if facts.asks_again {
                call.asked().saturating_sub(before.asked()) as u32
            } else {
                0
            };
            if count > calm.notices_of(before.id).get(&kind).copied().unwrap_or(0) + again {
                wrong.push(format!("{kind} was called {count} times for {label}"));
            }
        }
    }
    wrong.extend(
        after
            .pending
            .iter()
            .map(|call| format!("the approval of {call} is still pending at the end")),
    );
    wrong
}

/// The session of an agent, against that of the same agent without mishaps.
fn compare_inner(
    calm: Option<&Seen>,
    after: Option<&Seen>,
    call: &SeenCall,
    facts: &Facts,
) -> Vec<String> {
    let label = call.label();
    match (calm, after) {
        (None, None) => Vec::new(),
        (Some(calm), Some(after)) => {
            let wrong = compare_session(calm, after, facts);
            wrong
                .into_iter()
                .map(|wrong| format!("in the session of {label}: {wrong}"))
                .collect()
        }
        (Some(_), None) if facts.allow_refusal_of(call) => Vec::new(),
        (Some(_), None) => vec![format!("no agent worked on {label}")],
        (None, Some(_)) => vec![format!("an agent worked on {label}, which is not one's")],
    }
}

/// Everything that was seen before and is not there any more, or is not the same.
pub fn kept(before: &Seen, after: &Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    if !after.log.starts_with(&before.log) {
        wrong.push("the log does not begin with what it was before".to_owned());
    }
    if !after.effects.starts_with(&before.effects) {
        wrong.push("the effects do not begin with what they were before".to_owned());
    }
    wrong.extend(Talk::kept(&before.talk, &after.talk));
    for (call, inner) in &before.inner {
        match after.inner.get(call) {
            Some(now) => wrong.extend(
                kept(inner, now)
                    .into_iter()
                    .map(|wrong| format!("in the session of {call}: {wrong}")),
            ),
            None => wrong.push(format!("the session of {call} is gone")),
        }
    }
    let calls: BTreeMap<CallId, &SeenCall> =
        after.calls.iter().map(|call| (call.id, call)).collect();
    for call in &before.calls {
        let label = call.label();
        let Some(now) = calls.get(&call.id) else {
            wrong.push(format!("{label} is gone"));
            continue;
        };
        if call.outcome.is_some() && call.outcome != now.outcome {
            wrong.push(format!("the outcome of {label} was changed or lost"));
        }
        let waits = after.pending.contains(&call.id) || after.answered.contains(&call.id);
        if before.pending.contains(&call.id) && !waits && call.life == now.life {
            wrong.push(format!("the approval of {label} was lost"));
        }
        if before.answered.contains(&call.id)
            && after.pending.contains(&call.id)
            && call.life == now.life
        {
            wrong.push(format!("the decision on {label} was lost"));
        }
        if before.receipts.get(&call.id) > after.receipts.get(&call.id) {
            wrong.push(format!("a receipt of {label} was lost"));
        }
    }
    for turn in before.turns.iter().filter(|turn| turn.successor.is_some()) {
        if after
            .turns
            .iter()
            .any(|now| now.turn == turn.turn && now.successor != turn.successor)
        {
            wrong.push(format!(
                "turn {} is continued by another turn now",
                turn.turn
            ));
        }
    }
    wrong
}

fn compare_turns(calm: &Seen, after: &Seen, wrong: &mut Vec<String>) {
    if calm.turns.len() != after.turns.len() {
        wrong.push(format!(
            "there are {} turns instead of {}",
            after.turns.len(),
            calm.turns.len()
        ));
    }
    let next = after
        .turns
        .iter()
        .skip(1)
        .map(|turn| Some(turn.turn))
        .chain([None]);
    for (at, (turn, next)) in after.turns.iter().zip(next).enumerate() {
        if !turn.settled {
            wrong.push(format!("turn {} is not settled", at + 1));
        }
        if turn.successor != next {
            wrong.push(format!(
                "turn {} is not continued by the turn after it",
                at + 1
            ));
        }
    }
}

fn compare_call(
    (calm_effects, calm): (Vec<&str>, &SeenCall),
    (effects, call): (Vec<&str>, &SeenCall),
    facts: &Facts,
) -> Vec<String> {
    let (label, repeats) = (call.label(), facts.repeats(&call.tool));
    let mut wrong = Vec::new();
    if facts.allow_refusal_of(call) && effects.is_empty() {
        return wrong;
    }
    let said = |call: &SeenCall| {
        call.outcome
            .as_ref()
            .map(|settled| settled.model_text().into_owned())
    };
    let was_unknown = calm.status() == Some(Status::OutcomeUnknown);
    let unknown = call.status() == Some(Status::OutcomeUnknown) && !was_unknown;
    if unknown && (repeats != Repeats::Never || !calm.life.contains(&STARTED)) {
        wrong.push(format!(
            "the outcome of {label} is unknown although it could be known"
        ));
    }
    if !unknown && (calm.status(), said(calm)) != (call.status(), said(call)) {
        let (was, is) = ((calm.status(), said(calm)), (call.status(), said(call)));
        wrong.push(format!("{label} settled as {is:?} instead of {was:?}"));
    }
    let as_it_was = match repeats {
        Repeats::Never if unknown => calm_effects.starts_with(&effects),
        Repeats::Never | Repeats::Reconciled => effects == calm_effects,
        Repeats::Harmless => {
            effects.len() >= calm_effects.len()
                && BTreeSet::from_iter(&effects) == BTreeSet::from_iter(&calm_effects)
        }
    };
    if !as_it_was {
        wrong.push(format!(
            "{label} had the effects {effects:?} instead of {calm_effects:?}"
        ));
    }
    if call.asked() > calm.asked() && !facts.asks_again {
        wrong.push(format!(
            "{label} was asked about {} times instead of {}",
            call.asked(),
            calm.asked()
        ));
    }
    let (was, mut is) = (
        without_repeats(&calm.life, facts),
        without_repeats(&call.life, facts),
    );
    if unknown {
        is.pop();
    }
    if was != is && !(unknown && was.starts_with(&is)) {
        wrong.push(format!("{label} went {is:?} instead of {was:?}"));
    }
    wrong
}

/// The life of a call as if each start had been the only one, and each approval where it may be asked again.
fn without_repeats(life: &[&'static str], facts: &Facts) -> Vec<&'static str> {
    let mut once: Vec<&'static str> = Vec::with_capacity(life.len());
    for word in life {
        once.push(word);
        if once.ends_with(&[STARTED, STARTED]) {
            once.pop();
        }
        if facts.asks_again && once.ends_with(&[ASKED, APPROVED, ASKED, APPROVED]) {
            once.truncate(once.len() - 2);
        }
    }
    once
}

impl Seen {
    /// What a call did, in order.
    pub fn effects_of(&self, call: CallId) -> Vec<&str> {
        let key = call.to_string();
        self.effects
            .iter()
            .filter(|effect| effect.key == key)
            .map(|effect| effect.what.as_str())
            .collect()
    }

    /// How often each callback was called for a call.
    pub fn notices_of(&self, call: CallId) -> BTreeMap<String, u32> {
        let key = call.to_string();
        let mut counts = BTreeMap::new();
        let of_call = |notice: &&Effect| notice.key == key;
        self.notices
            .iter()
            .filter(of_call)
            .for_each(|notice| *counts.entry(notice.tool.clone()).or_default() += 1);
        counts
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
