//! The rules: what must be the same as in a run that was never killed, and what must never change
//! once it was seen.

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::{BudgetRule, CallId, Registry, Status, ToolName};

use super::{
    CallSnapshot, ConversationSnapshot, LoggedEffect, SessionSnapshot,
    accounts::compare_accounts,
    snapshot::{APPROVAL_REQUESTED, APPROVED, STARTED},
};

/// The number of times that a tool may have its effect when its process is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatRule {
    /// At most once. If it is not known whether it happened, the outcome is `outcome_unknown`.
    Never,
    /// Any number of times; the outcome is always known.
    Harmless,
    /// Exactly once: the tool can tell whether it happened, so the outcome is always known.
    Reconciled,
}

/// The known properties of a scenario's tools. A tool that is not listed never repeats.
#[derive(Debug, Clone, Default)]
pub struct ScenarioFacts {
    repeats: BTreeMap<ToolName, RepeatRule>,
    /// The tools that only read. They may run while the request for their call is written.
    reads: BTreeSet<String>,
    asks_again: bool,
    limits: Vec<BudgetRule>,
    refuses: bool,
}

impl ScenarioFacts {
    /// Reads the properties from the annotations of the registered tools.
    pub fn from_registry(registry: &Registry) -> Self {
        let fact = |annotations: &toolgate_core::Annotations| match annotations {
            annotations if annotations.reconcile => RepeatRule::Reconciled,
            annotations if annotations.may_repeat() => RepeatRule::Harmless,
            _ => RepeatRule::Never,
        };
        let entries = registry.entries();
        let fact = |entry: &std::sync::Arc<toolgate_core::ToolEntry>| {
            (entry.spec.name.clone(), fact(&entry.spec.annotations))
        };
        let reads = entries
            .iter()
            .filter(|entry| !entry.spec.annotations.may_write())
            .map(|entry| entry.spec.name.to_string())
            .collect();
        Self {
            repeats: entries.iter().map(fact).collect(),
            reads,
            asks_again: false,
            limits: Vec::new(),
            refuses: false,
        }
    }

    /// Allows a second approval request for a call: while the store cannot say whether an approval
    /// counts, asking again is safe.
    pub fn allow_second_request(mut self) -> Self {
        self.asks_again = true;
        self
    }

    /// Counts a tool among those whose outcome is always known, such as an agent.
    pub fn with_known_outcome(mut self, tool: &str) -> Self {
        self.repeats.insert(tool.into(), RepeatRule::Reconciled);
        self
    }

    /// Requires that no more is spent than these budgets allow.
    pub fn within_budgets(mut self, limits: impl IntoIterator<Item = BudgetRule>) -> Self {
        self.limits.extend(limits);
        self
    }

    /// Allows calls to be rejected and replies to be charged at their highest price: while the
    /// accounts cannot be reached nothing is spent, and what cannot be charged stays reserved.
    pub fn allow_budget_rejections(mut self) -> Self {
        self.refuses = true;
        self
    }

    /// Checks whether this call was rejected for its budget, and may be.
    fn allows_rejection_of(&self, call: &CallSnapshot) -> bool {
        self.refuses && call.status() == Some(Status::BudgetExceeded)
    }

    /// Returns how often this tool may have its effect.
    pub fn repeat_rule(&self, tool: &ToolName) -> RepeatRule {
        self.repeats.get(tool).copied().unwrap_or(RepeatRule::Never)
    }
}

/// Returns every difference between `after` and a run without mishaps.
pub fn compare_runs(
    calm: &SessionSnapshot,
    after: &SessionSnapshot,
    facts: &ScenarioFacts,
) -> Vec<String> {
    let mut wrong = after.broken.clone();
    wrong.extend(compare_session(calm, after, facts));
    wrong.extend(
        after
            .all_sessions()
            .into_iter()
            .flat_map(|seen| compare_accounts(seen, &facts.limits, facts.refuses)),
    );
    let calls = after
        .all_sessions()
        .into_iter()
        .flat_map(|seen| &seen.calls);
    let known: BTreeSet<String> = calls.map(|call| call.id.to_string()).collect();
    // A tool that ran without a call in the log ran outside the gate, unless it only reads and its
    // process was lost while the request was written.
    let strangers = after
        .effects
        .iter()
        .filter(|effect| !known.contains(&effect.key) && !facts.reads.contains(&effect.tool));
    wrong
        .extend(strangers.map(|effect| format!("an effect of {} belongs to no call", effect.tool)));
    wrong
}

fn compare_session(
    calm: &SessionSnapshot,
    after: &SessionSnapshot,
    facts: &ScenarioFacts,
) -> Vec<String> {
    let mut wrong = ConversationSnapshot::compare_messages(&calm.talk, &after.talk);
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
        wrong.extend(compare_call(
            before,
            calm.effects_of(before.id),
            call,
            after.effects_of(call.id),
            facts,
        ));
        wrong.extend(compare_agent_session(
            calm.inner.get(&before.id),
            after.inner.get(&call.id),
            call,
            facts,
        ));
        // A scenario without the receipts layer has none at all.
        if calm.receipts.values().any(|count| *count > 0)
            && after.receipts.get(&call.id) != Some(&1)
        {
            let count = after.receipts.get(&call.id).copied().unwrap_or(0);
            wrong.push(format!("{label} has {count} receipts"));
        }
        for (kind, count) in after.notices_of(call.id) {
            // A second approval request calls the callbacks again.
            let again = if facts.asks_again {
                call.approval_request_count()
                    .saturating_sub(before.approval_request_count()) as u32
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

/// Compares the session of an agent with that of the same agent without mishaps.
fn compare_agent_session(
    calm: Option<&SessionSnapshot>,
    after: Option<&SessionSnapshot>,
    call: &CallSnapshot,
    facts: &ScenarioFacts,
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
        (Some(_), None) if facts.allows_rejection_of(call) => Vec::new(),
        (Some(_), None) => vec![format!("no agent worked on {label}")],
        (None, Some(_)) => vec![format!(
            "an agent worked on {label}, which is not an agent's call"
        )],
    }
}

/// Returns everything that was seen before and is missing or different now.
pub fn find_losses(before: &SessionSnapshot, after: &SessionSnapshot) -> Vec<String> {
    let mut wrong = Vec::new();
    if !after.log.starts_with(&before.log) {
        wrong.push("the log does not begin with its earlier events".to_owned());
    }
    if !after.effects.starts_with(&before.effects) {
        wrong.push("the effects do not begin with the earlier effects".to_owned());
    }
    wrong.extend(ConversationSnapshot::find_losses(&before.talk, &after.talk));
    for (call, inner) in &before.inner {
        match after.inner.get(call) {
            Some(now) => wrong.extend(
                find_losses(inner, now)
                    .into_iter()
                    .map(|wrong| format!("in the session of {call}: {wrong}")),
            ),
            None => wrong.push(format!("the session of {call} is gone")),
        }
    }
    let calls: BTreeMap<CallId, &CallSnapshot> =
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

fn compare_turns(calm: &SessionSnapshot, after: &SessionSnapshot, wrong: &mut Vec<String>) {
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
    calm: &CallSnapshot,
    calm_effects: Vec<&str>,
    call: &CallSnapshot,
    effects: Vec<&str>,
    facts: &ScenarioFacts,
) -> Vec<String> {
    let label = call.label();
    let repeats = facts.repeat_rule(&call.tool);
    let mut wrong = Vec::new();
    if facts.allows_rejection_of(call) && effects.is_empty() {
        return wrong;
    }
    let said = |call: &CallSnapshot| {
        call.outcome
            .as_ref()
            .map(|settled| settled.model_text().into_owned())
    };
    let was_unknown = calm.status() == Some(Status::OutcomeUnknown);
    let unknown = call.status() == Some(Status::OutcomeUnknown) && !was_unknown;
    if unknown && (repeats != RepeatRule::Never || !calm.life.contains(&STARTED)) {
        wrong.push(format!(
            "the outcome of {label} is unknown although it could be known"
        ));
    }
    if !unknown && (calm.status(), said(calm)) != (call.status(), said(call)) {
        let was = (calm.status(), said(calm));
        let is = (call.status(), said(call));
        wrong.push(format!("{label} settled as {is:?} instead of {was:?}"));
    }
    let as_it_was = match repeats {
        // The process may have been lost before the effect or after it, but it happened at most
        // once.
        RepeatRule::Never if unknown => calm_effects.starts_with(&effects),
        RepeatRule::Never | RepeatRule::Reconciled => effects == calm_effects,
        RepeatRule::Harmless => {
            effects.len() >= calm_effects.len()
                && BTreeSet::from_iter(&effects) == BTreeSet::from_iter(&calm_effects)
        }
    };
    if !as_it_was {
        wrong.push(format!(
            "{label} had the effects {effects:?} instead of {calm_effects:?}"
        ));
    }
    if call.approval_request_count() > calm.approval_request_count() && !facts.asks_again {
        wrong.push(format!(
            "{label} had {} approval requests instead of {}",
            call.approval_request_count(),
            calm.approval_request_count()
        ));
    }
    let was = collapse_repeats(&calm.life, facts);
    let mut is = collapse_repeats(&call.life, facts);
    if unknown {
        // The last event is the interruption, which the calm run does not have.
        is.pop();
    }
    if was != is && !(unknown && was.starts_with(&is)) {
        wrong.push(format!("{label} had the events {is:?} instead of {was:?}"));
    }
    wrong
}

/// Returns the events of a call as if each start had been the only one, and each approval where a
/// second request is allowed.
fn collapse_repeats(life: &[&'static str], facts: &ScenarioFacts) -> Vec<&'static str> {
    let mut once: Vec<&'static str> = Vec::with_capacity(life.len());
    for word in life {
        once.push(word);
        if once.ends_with(&[STARTED, STARTED]) {
            once.pop();
        }
        if facts.asks_again
            && once.ends_with(&[APPROVAL_REQUESTED, APPROVED, APPROVAL_REQUESTED, APPROVED])
        {
            once.truncate(once.len() - 2);
        }
    }
    once
}

impl SessionSnapshot {
    /// Returns the effects of a call, in order.
    pub fn effects_of(&self, call: CallId) -> Vec<&str> {
        let key = call.to_string();
        self.effects
            .iter()
            .filter(|effect| effect.key == key)
            .map(|effect| effect.what.as_str())
            .collect()
    }

    /// Returns how often each callback was called for a call.
    pub fn notices_of(&self, call: CallId) -> BTreeMap<String, u32> {
        let key = call.to_string();
        let mut counts = BTreeMap::new();
        let of_call = |notice: &&LoggedEffect| notice.key == key;
        self.notices
            .iter()
            .filter(of_call)
            .for_each(|notice| *counts.entry(notice.tool.clone()).or_default() += 1);
        counts
    }
}

#[cfg(test)]
mod tests;
