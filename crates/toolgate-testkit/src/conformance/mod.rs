//! Conformance suites for stores, executors and screens of other crates.

mod archive;
mod store;

use std::{fmt, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use serde_json::json;
use toolgate_core::{
    CallId, Digest, Event, Executor, Invocation, Outcome, Phase, SessionId, SettledOutcome, Stack,
    Status, Suspension, Timestamp, ToolEvent, Turn, TurnId, TurnInfo,
};

use crate::fakes::{call_with, seed};

pub use archive::{SampleSessions, check_archive, export_raw};
pub use store::check_store;

/// The findings of a suite.
#[derive(Debug, Default)]
pub struct ConformanceReport {
    /// The rules that hold.
    pub passed: Vec<&'static str>,
    /// The rules that do not hold, with what was seen instead.
    pub failed: Vec<(&'static str, String)>,
}

impl ConformanceReport {
    /// Checks that every rule holds.
    ///
    /// # Panics
    ///
    /// If a rule does not hold; the message names all of them.
    pub fn assert_all(&self) {
        assert!(self.failed.is_empty(), "{self}");
    }

    fn add_result(&mut self, rule: &'static str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed.push(rule),
            Err(seen) => self.failed.push((rule, seen)),
        }
    }
}

impl fmt::Display for ConformanceReport {
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
/// `tool` and `arguments` are a call that the executor should answer with `ok`. `patience` limits a
/// single answer; it is only reached by an executor that hangs.
pub async fn check_executor(
    executor: impl Executor,
    tool: &str,
    arguments: serde_json::Value,
    patience: AnswerTimeout,
) -> ConformanceReport {
    let stack = Stack::over(executor)
        .build()
        .expect("an empty stack is in band order");
    let mut report = ConformanceReport::default();
    let within = |future| patience.limit_future(future);
    let good = within(Box::pin(stack.run(call_with(tool, arguments.clone())))).await;
    report.add_result(
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
    report.add_result("odd_calls_are_answered_without_panic", odd);
    let mut cancelled = seed(tool, arguments.clone());
    cancelled.cancel = tokio_util::sync::CancellationToken::new();
    let token = cancelled.cancel.clone();
    let running = stack.run(toolgate_core::Call::new(cancelled));
    // Before the first poll: an executor has to notice that as well.
    token.cancel();
    let stopped = within(Box::pin(running)).await;
    report.add_result(
        "a_cancelled_call_ends",
        ensure(stopped.is_some(), "no answer in time"),
    );
    let many = join_all((0..32).map(|_| stack.run(call_with(tool, arguments.clone()))));
    let many = patience.limit_future(Box::pin(many)).await;
    report.add_result(
        "many_calls_at_once_are_answered",
        ensure(many.is_some(), "no answer in time"),
    );
    report
}

/// A limit for one answer. The timer comes from the caller's runtime.
pub struct AnswerTimeout {
    limit: Duration,
    sleep: fn(Duration) -> BoxFuture<'static, ()>,
}

impl AnswerTimeout {
    /// Waits at most `limit`, measured by `sleep`.
    pub fn new(limit: Duration, sleep: fn(Duration) -> BoxFuture<'static, ()>) -> Self {
        Self { limit, sleep }
    }

    async fn limit_future<T>(&self, future: BoxFuture<'_, T>) -> Option<T> {
        match futures::future::select(future, (self.sleep)(self.limit)).await {
            futures::future::Either::Left((answer, _)) => Some(answer),
            futures::future::Either::Right(_) => None,
        }
    }
}

impl fmt::Debug for AnswerTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limit.fmt(f)
    }
}

// --------------------------------------------------------------------------------------------- screens

/// A display of events: a terminal, a web page, an editor.
pub trait Screen {
    /// Receives the next event.
    fn show_event(&mut self, event: &Event);

    /// Receives the news that this many events were missed. They come again from the store, perhaps
    /// with some that were seen.
    fn note_lag(&mut self, missed: u64);

    /// Returns the phase in which the screen shows an invocation.
    fn shown_phase(&self, call: CallId) -> Option<Phase>;
}

/// Runs the screen suite; `make` creates a fresh screen for every rule.
pub fn check_screen<S: Screen>(mut make: impl FnMut() -> S) -> ConformanceReport {
    let mut report = ConformanceReport::default();
    let mut settled = Ok(());
    for status in Status::ALL {
        for life in sample_lives(status) {
            let mut screen = make();
            life.iter().for_each(|event| screen.show_event(event));
            settled = settled.and(check_phase(&screen, &life));
        }
    }
    report.add_result("every_way_to_settle_is_shown_as_the_events_say", settled);
    let mut steps = Ok(());
    for life in sample_lives(Status::Ok) {
        let mut screen = make();
        for shown in 1..=life.len() {
            screen.show_event(&life[shown - 1]);
            steps = steps.and(check_phase(&screen, &life[..shown]));
        }
    }
    report.add_result("every_step_is_shown_when_it_happens", steps);
    let mut caught_up = Ok(());
    for life in sample_lives(Status::Timeout) {
        for missed in 1..life.len() {
            let mut screen = make();
            screen.show_event(&life[0]);
            screen.note_lag(missed as u64);
            life.iter().for_each(|event| screen.show_event(event));
            caught_up = caught_up.and(check_phase(&screen, &life));
        }
    }
    report.add_result("after_a_lag_the_screen_catches_up", caught_up);
    let mut logs = Ok(());
    for life in sample_lives(Status::Ok) {
        let mut screen = make();
        for event in &life {
            screen.show_event(event);
            // These log lines are false on purpose: no state may be inferred from them.
            if let Some((head, _)) = event.as_tool() {
                let lie = ToolEvent::ToolLog {
                    level: toolgate_core::LogLevel::Error,
                    message: "tool denied, failed".into(),
                };
                screen.show_event(
                    &Event::for_invocation(event.sequence(), event.at(), head.clone(), lie)
                        .expect("a valid event"),
                );
            }
        }
        logs = logs.and(check_phase(&screen, &life));
    }
    report.add_result("log_lines_say_nothing_about_phases", logs);
    let mut late = Ok(());
    for status in Status::ALL {
        for life in sample_lives(status) {
            let mut screen = make();
            life.iter().for_each(|event| screen.show_event(event));
            // The events of the call come again under new numbers, as a faulty sender would do it.
            for event in &life {
                let Some((head, what)) = event.as_tool() else {
                    continue;
                };
                let sequence = event.sequence() + life.len() as u64;
                let again = Event::for_invocation(sequence, event.at(), head.clone(), what.clone());
                screen.show_event(&again.expect("a valid event"));
            }
            late = late.and(check_phase(&screen, &life));
        }
    }
    report.add_result("nothing_reopens_a_settled_call", late);
    report
}

fn check_phase(screen: &impl Screen, events: &[Event]) -> Result<(), String> {
    let Some((head, _)) = events.iter().find_map(Event::as_tool) else {
        return Ok(());
    };
    let mut turn = Turn::new(head.turn.clone(), [head.clone()]);
    for event in events {
        turn.replay(event).map_err(|error| error.to_string())?;
    }
    let shown = screen.shown_phase(head.id);
    let is = turn
        .slot(head.id)
        .and_then(toolgate_core::InvocationSlot::phase);
    ensure(shown == is, format!("shown as {shown:?}, but it is {is:?}"))
}

/// Returns event sequences that end with `status`: with and without approval, started or not, run
/// in process or externally.
fn sample_lives(status: Status) -> Vec<Vec<Event>> {
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
        ToolEvent::ToolApprovalRequested(Box::new(toolgate_core::ApprovalRequest::for_call(
            &call_with("t", json!({})),
        )))
    };
    let approved = || ToolEvent::ToolApproved {
        approver: "ann".into(),
        established: Default::default(),
        claimed_as: None,
        reason: None,
        edited: false,
        unseen: false,
        with: Vec::new(),
    };
    let started = |external| ToolEvent::ToolExecutionStarted {
        attempt: 1,
        executor: None,
        external,
        arguments_digest: digest,
        arguments: None,
    };
    let end = |ran: bool| {
        let mut settled = SettledOutcome::new(status);
        settled.attempts = u32::from(ran);
        ToolEvent::from_settled(&settled, ran, None, None)
    };
    let lives = vec![
        vec![requested(), end(false)],
        vec![requested(), started(false), end(true)],
        vec![requested(), started(true), end(true)],
        vec![requested(), asked(), approved(), started(false), end(true)],
    ];
    let numbered = |life: Vec<ToolEvent>| {
        let event = |(n, event)| {
            Event::for_invocation(n, Timestamp::EPOCH, head.clone(), event).expect("a valid event")
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
    async fn the_memory_store_passes_the_suite() {
        let report = check_store(MemoryStore::new(), &CountingIds::new()).await;
        report.assert_all();
        assert_eq!(report.passed.len(), 87);
    }

    #[tokio::test]
    async fn the_echo_executor_passes_the_suite_and_a_hanging_one_does_not() {
        let forever = |_| -> BoxFuture<'static, ()> { Box::pin(std::future::pending()) };
        check_executor(
            echo(),
            "echo",
            json!({ "n": 1 }),
            AnswerTimeout::new(Duration::ZERO, forever),
        )
        .await
        .assert_all();
        let at_once = |_| -> BoxFuture<'static, ()> { Box::pin(std::future::ready(())) };
        let hanging = (0..64).fold(crate::FakeExecutor::new(), |script, _| script.then_hang());
        let report = check_executor(
            hanging,
            "echo",
            json!({}),
            AnswerTimeout::new(Duration::ZERO, at_once),
        )
        .await;
        assert!(report.failed.len() >= 3, "{report}");
    }

    /// A screen that shows exactly what the events say.
    #[derive(Default)]
    struct FaithfulScreen(HashMap<CallId, (u64, Phase)>);

    impl Screen for FaithfulScreen {
        fn show_event(&mut self, event: &Event) {
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
        fn note_lag(&mut self, _: u64) {}
        fn shown_phase(&self, call: CallId) -> Option<Phase> {
            self.0.get(&call).map(|(_, phase)| *phase)
        }
    }

    /// A screen that infers state from log lines.
    #[derive(Default)]
    struct GullibleScreen(FaithfulScreen);

    impl Screen for GullibleScreen {
        fn show_event(&mut self, event: &Event) {
            match event.as_tool() {
                Some((head, ToolEvent::ToolLog { .. })) => {
                    self.0
                        .0
                        .insert(head.id, (event.sequence(), Phase::Settled(Status::Denied)));
                }
                _ => self.0.show_event(event),
            }
        }
        fn note_lag(&mut self, _: u64) {}
        fn shown_phase(&self, call: CallId) -> Option<Phase> {
            self.0.shown_phase(call)
        }
    }

    #[test]
    fn a_faithful_screen_passes_and_a_gullible_one_does_not() {
        check_screen(FaithfulScreen::default).assert_all();
        assert_eq!(check_screen(GullibleScreen::default).failed.len(), 1);
    }
}
