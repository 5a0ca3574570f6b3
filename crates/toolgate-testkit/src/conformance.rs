//! Suites that somebody else's store, executor or screen can run to see whether it keeps the contract.

mod store;
mod store_budgets;
mod store_erase;
mod store_leases;
mod store_ledgers;
mod store_lists;

use std::{fmt, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use serde_json::json;
use toolgate_core::{
    CallId, Digest, Event, Executor, Invocation, Outcome, Phase, SessionId, Settled, Stack, Status,
    Suspension, Timestamp, ToolEvent, Turn, TurnId, TurnInfo,
};

use crate::fakes::{call_with, seed};

pub use store::store;

/// What a suite found.
#[derive(Debug, Default)]
pub struct Report {
    /// The rules that hold.
    pub passed: Vec<&'static str>,
    /// The rules that do not, and what was seen instead.
    pub failed: Vec<(&'static str, String)>,
}

impl Report {
    /// Checks that every rule holds.
    ///
    /// # Panics
    ///
    /// If a rule does not hold, naming all that do not.
    pub fn assert(&self) {
        assert!(self.failed.is_empty(), "{self}");
    }

    fn note(&mut self, rule: &'static str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed.push(rule),
            Err(seen) => self.failed.push((rule, seen)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} rules hold, {} do not",
            self.passed.len(),
            self.failed.len()
        )?;
        self.failed
            .iter()
            .try_for_each(|(rule, seen)| writeln!(f, "  {rule}: {seen}"))
    }
}

fn ensure(holds: bool, seen: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(seen.into()) }
}

// ------------------------------------------------------------------------------------------- executors

/// Runs the executor suite.
///
/// `tool` and `arguments` are a call the executor should answer with `ok`. `patience` is how long a single
/// answer may take; it is only reached by an executor that hangs.
pub async fn executor(
    executor: impl Executor,
    tool: &str,
    arguments: serde_json::Value,
    patience: Patience,
) -> Report {
    let stack = Stack::over(executor)
        .build()
        .expect("an empty stack is in order");
    let mut report = Report::default();
    let within = |future| patience.limit(future);
    let good = within(Box::pin(stack.run(call_with(tool, arguments.clone())))).await;
    report.note(
        "a_good_call_is_answered",
        match &good {
            Some(Outcome::Settled(settled)) if settled.status == Status::Ok => Ok(()),
            Some(Outcome::Suspended(suspension)) if **suspension == Suspension::Result => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    let mut odd = Ok(());
    for arguments in [
        json!({}),
        json!({ "\u{0}": null }),
        json!({ "deep": [[[[[[[[]]]]]]]] }),
        json!({ "x": "y".repeat(100_000) }),
    ] {
        for tool in [tool, "no_such_tool", "\u{202e}"] {
            match within(Box::pin(stack.run(call_with(tool, arguments.clone())))).await {
                None => odd = Err("no answer in time".to_owned()),
                Some(outcome) if outcome.status() == Some(Status::Exception) => {
                    odd = Err(format!("{tool:?} makes it panic"))
                }
                Some(_) => {}
            }
        }
    }
    report.note("odd_calls_are_answered_without_panic", odd);
    let mut cancelled = seed(tool, arguments.clone());
    cancelled.cancel = tokio_util::sync::CancellationToken::new();
    let token = cancelled.cancel.clone();
    let running = stack.run(toolgate_core::Call::new(cancelled));
    token.cancel();
    let stopped = within(Box::pin(running)).await;
    report.note(
        "a_cancelled_call_ends",
        ensure(stopped.is_some(), "no answer in time"),
    );
    let many = join_all((0..32).map(|_| stack.run(call_with(tool, arguments.clone()))));
    let many = patience.limit(Box::pin(many)).await;
    report.note(
        "many_calls_at_once_are_answered",
        ensure(many.is_some(), "no answer in time"),
    );
    report
}

/// How long a suite waits for one answer. The waiting itself comes from the caller's runtime.
pub struct Patience {
    limit: Duration,
    sleep: fn(Duration) -> BoxFuture<'static, ()>,
}

impl Patience {
    /// Waits at most `limit`, measured by `sleep`.
    pub fn new(limit: Duration, sleep: fn(Duration) -> BoxFuture<'static, ()>) -> Self {
        Self { limit, sleep }
    }

    async fn limit<T>(&self, future: BoxFuture<'_, T>) -> Option<T> {
        match futures::future::select(future, (self.sleep)(self.limit)).await {
            futures::future::Either::Left((answer, _)) => Some(answer),
            futures::future::Either::Right(_) => None,
        }
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limit.fmt(f)
    }
}

// --------------------------------------------------------------------------------------------- screens

/// Something that shows events: a terminal, a web page, an editor.
pub trait Screen {
    /// The next event.
    fn event(&mut self, event: &Event);

    /// This many events were missed; they will come again from the store, perhaps with some that were seen.
    fn lagged(&mut self, missed: u64);

    /// The phase in which the screen shows an invocation.
    fn phase(&self, call: CallId) -> Option<Phase>;
}

/// Runs the screen suite; `make` gives a fresh screen for every rule.
pub fn screen<S: Screen>(mut make: impl FnMut() -> S) -> Report {
    let mut report = Report::default();
    let mut settled = Ok(());
    for status in Status::ALL {
        for life in lives(status) {
            let mut screen = make();
            life.iter().for_each(|event| screen.event(event));
            settled = settled.and(same_phase(&screen, &life));
        }
    }
    report.note("every_way_to_settle_is_shown_as_the_events_say", settled);
    let mut steps = Ok(());
    for life in lives(Status::Ok) {
        let mut screen = make();
        for shown in 1..=life.len() {
            screen.event(&life[shown - 1]);
            steps = steps.and(same_phase(&screen, &life[..shown]));
        }
    }
    report.note("every_step_is_shown_when_it_happens", steps);
    let mut caught_up = Ok(());
    for life in lives(Status::Timeout) {
        for missed in 1..life.len() {
            let mut screen = make();
            screen.event(&life[0]);
            screen.lagged(missed as u64);
            life.iter().for_each(|event| screen.event(event));
            caught_up = caught_up.and(same_phase(&screen, &life));
        }
    }
    report.note("after_a_lag_the_screen_catches_up", caught_up);
    let mut logs = Ok(());
    for life in lives(Status::Ok) {
        let mut screen = make();
        for event in &life {
            screen.event(event);
            // Log lines lie on purpose: nothing may be read from them.
            if let Some((head, _)) = event.as_tool() {
                let lie = ToolEvent::ToolLog {
                    level: toolgate_core::LogLevel::Error,
                    message: "tool denied, failed".into(),
                };
                screen.event(
                    &Event::tool(event.sequence(), event.at(), head.clone(), lie)
                        .expect("a valid event"),
                );
            }
        }
        logs = logs.and(same_phase(&screen, &life));
    }
    report.note("log_lines_say_nothing_about_phases", logs);
    report
}

fn same_phase(screen: &impl Screen, events: &[Event]) -> Result<(), String> {
    let Some((head, _)) = events.iter().find_map(Event::as_tool) else {
        return Ok(());
    };
    let mut turn = Turn::new(head.turn.clone(), [head.clone()]);
    for event in events {
        turn.replay(event).map_err(|error| error.to_string())?;
    }
    let (shown, is) = (
        screen.phase(head.id),
        turn.slot(head.id).and_then(toolgate_core::Slot::phase),
    );
    ensure(shown == is, format!("shown as {shown:?}, but it is {is:?}"))
}

/// Some lives that end with `status`: with and without approval, started or not, run here or outside.
fn lives(status: Status) -> Vec<Vec<Event>> {
    let id = |n| uuid::Uuid::from_u128(n);
    let turn = Arc::new(TurnInfo::new(SessionId::new(id(1)), TurnId::new(id(2))));
    let head = Arc::new(Invocation {
        id: CallId::new(id(3)),
        call_id: "c".into(),
        tool: "t".into(),
        emit_order: 0,
        turn,
    });
    let digest = Digest::of_bytes(b"");
    let requested = || ToolEvent::ToolRequested {
        arguments: None,
        arguments_digest: digest,
        arguments_bytes: 0,
        executor: None,
    };
    let asked = || {
        ToolEvent::ToolApprovalRequested(Box::new(toolgate_core::ApprovalRequest::about(
            &call_with("t", json!({})),
        )))
    };
    let approved = || ToolEvent::ToolApproved {
        approver: "ann".into(),
        reason: None,
        edited: false,
    };
    let started = |external| ToolEvent::ToolExecutionStarted {
        attempt: 1,
        executor: None,
        external,
        arguments_digest: digest,
    };
    let end = |ran: bool| {
        let mut settled = Settled::new(status);
        settled.attempts = u32::from(ran);
        ToolEvent::settling(&settled, ran, None, None)
    };
    let lives = vec![
        vec![requested(), end(false)],
        vec![requested(), started(false), end(true)],
        vec![requested(), started(true), end(true)],
        vec![requested(), asked(), approved(), started(false), end(true)],
    ];
    let numbered = |life: Vec<ToolEvent>| {
        let event = |(n, event)| {
            Event::tool(n, Timestamp::EPOCH, head.clone(), event).expect("a valid event")
        };
        (1..).zip(life).map(event).collect()
    };
    lives.into_iter().map(numbered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CountingIds, echo};
    use std::collections::HashMap;
    use toolgate_core::MemoryStore;

    #[tokio::test]
    async fn the_memory_store_keeps_the_contract() {
        let report = store(MemoryStore::new(), &CountingIds::new()).await;
        report.assert();
        assert_eq!(report.passed.len(), 48);
    }

    #[tokio::test]
    async fn the_echo_executor_keeps_the_contract_and_a_hanging_one_does_not() {
        let forever = |_| -> BoxFuture<'static, ()> { Box::pin(std::future::pending()) };
        executor(
            echo(),
            "echo",
            json!({ "n": 1 }),
            Patience::new(Duration::ZERO, forever),
        )
        .await
        .assert();
        let at_once = |_| -> BoxFuture<'static, ()> { Box::pin(std::future::ready(())) };
        let hanging = (0..64).fold(crate::Scripted::new(), |script, _| script.then_hang());
        let report = executor(
            hanging,
            "echo",
            json!({}),
            Patience::new(Duration::ZERO, at_once),
        )
        .await;
        assert!(report.failed.len() >= 3, "{report}");
    }

    /// Shows exactly what the events say.
    #[derive(Default)]
    struct Faithful(HashMap<CallId, (u64, Phase)>);

    impl Screen for Faithful {
        fn event(&mut self, event: &Event) {
            let Some((head, kind)) = event.as_tool() else {
                return;
            };
            let seen = self.0.get(&head.id).copied();
            let phase = match seen {
                Some((sequence, _)) if event.sequence() <= sequence => return,
                Some((_, phase)) => phase.apply(kind).unwrap_or(phase),
                None => Phase::Requested,
            };
            self.0.insert(head.id, (event.sequence(), phase));
        }
        fn lagged(&mut self, _: u64) {}
        fn phase(&self, call: CallId) -> Option<Phase> {
            self.0.get(&call).map(|(_, phase)| *phase)
        }
    }

    /// Believes log lines.
    #[derive(Default)]
    struct Gullible(Faithful);

    impl Screen for Gullible {
        fn event(&mut self, event: &Event) {
            match event.as_tool() {
                Some((head, ToolEvent::ToolLog { .. })) => {
                    self.0
                        .0
                        .insert(head.id, (event.sequence(), Phase::Settled(Status::Denied)));
                }
                _ => self.0.event(event),
            }
        }
        fn lagged(&mut self, _: u64) {}
        fn phase(&self, call: CallId) -> Option<Phase> {
            self.0.phase(call)
        }
    }

    #[test]
    fn a_faithful_screen_passes_and_a_gullible_one_does_not() {
        screen(Faithful::default).assert();
        assert_eq!(screen(Gullible::default).failed.len(), 1);
    }
}
