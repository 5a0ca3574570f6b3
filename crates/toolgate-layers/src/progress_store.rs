//! What is going on right now, for screens.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use toolgate_core::{
    CallId, Event, LoopEvent, Progress, ProgressKind, SessionId, Timestamp, ToolEvent,
};

use crate::observed::{Changed, Observed};

/// The work that is going on, in the order it was started. Cloning shares it.
///
/// It is filled by the `progress` layer, by a program through [`start`](Self::start), or from the events of a session
/// through [`apply`](Self::apply). Layer and events know a call by the same id, so it is never listed twice.
///
/// ```
/// use toolgate_core::{ProgressKind, Timestamp};
/// use toolgate_layers::ProgressManager;
///
/// let progress = ProgressManager::new();
/// progress.start("index", "Indexing", ProgressKind::Determinate, Some(8), Timestamp::EPOCH);
/// progress.update("index", 2);
/// assert_eq!(progress.active()[0].percent, Some(25.0));
/// progress.done("index");
/// assert!(progress.active().is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct ProgressManager(Observed<ProgressItem>);

/// One piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ProgressItem {
    /// What it is known by; for a call, the invocation's id.
    pub id: Arc<str>,
    /// How to draw it.
    pub kind: ProgressKind,
    /// What it is called on a screen.
    pub label: String,
    /// How much is done.
    pub current: u64,
    /// How much there is, if that is known.
    pub total: Option<u64>,
    /// The share that is done, from 0 to 100, if it can be told.
    pub percent: Option<f64>,
    /// Whether it can be stopped.
    pub cancellable: bool,
    /// When it was started.
    pub started_at: Timestamp,
    /// What is being done right now.
    pub message: Option<String>,
}

impl ProgressItem {
    /// Work about which nothing is known but that it goes on.
    pub fn new(id: impl Into<Arc<str>>, label: impl Into<String>, started_at: Timestamp) -> Self {
        Self {
            id: id.into(),
            kind: ProgressKind::Indeterminate,
            label: bounded(&label.into()),
            current: 0,
            total: None,
            percent: None,
            cancellable: false,
            started_at,
            message: None,
        }
    }

    /// Says that it can be stopped.
    pub fn cancellable(mut self) -> Self {
        self.cancellable = true;
        self
    }

    /// The same work with other numbers.
    fn with_numbers(mut self, kind: ProgressKind, current: u64, total: Option<u64>) -> Self {
        (self.kind, self.current, self.total) = (kind, current, total);
        self.percent = Progress {
            kind,
            current: Some(current),
            total,
            message: None,
        }
        .percent();
        self
    }
}

impl ProgressManager {
    /// The most that is listed at a time; the oldest makes room.
    pub const MOST: usize = 1000;

    /// Nothing is going on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something has been started. If it was listed before, it starts over.
    pub fn start(
        &self,
        id: impl Into<Arc<str>>,
        label: impl Into<String>,
        kind: ProgressKind,
        total: Option<u64>,
        now: Timestamp,
    ) {
        self.begin(ProgressItem::new(id, label, now).with_numbers(kind, 0, total));
    }

    /// Lists `item`, in place of an earlier one of its id.
    pub fn begin(&self, item: ProgressItem) {
        self.0.change(|items| {
            items.retain(|known| known.id != item.id);
            if items.len() >= Self::MOST {
                items.remove(0);
            }
            items.push(item);
            ((), Changed::Yes)
        });
    }

    /// So much is done. Nothing happens if nothing of that id is going on.
    pub fn update(&self, id: &str, current: u64) {
        self.edit(id, |item| {
            let (kind, total) = (item.kind, item.total);
            item.with_numbers(kind, current, total)
        });
    }

    /// This is how far it has come. Nothing happens if nothing of that id is going on.
    pub fn update_with(&self, id: &str, progress: &Progress) {
        self.edit(id, |item| item.with(progress));
    }

    /// It is over. Nothing happens if nothing of that id is going on.
    pub fn done(&self, id: &str) {
        self.remove(|item| *item.id == *id);
    }

    /// Forgets everything, for a screen that has lost track.
    pub fn clear(&self) {
        self.remove(|_| true);
    }

    /// What is going on, in the order it was started.
    pub fn active(&self) -> Vec<ProgressItem> {
        self.0.snapshot().to_vec()
    }

    /// Watches what is going on: the newest snapshot, made on change only. A slow watcher skips snapshots.
    pub fn subscribe(&self) -> watch::Receiver<Arc<[ProgressItem]>> {
        self.0.subscribe()
    }

    /// Calls `listener` after changes, for as long as this store lives. See [`subscribe`](Self::subscribe) for a watch
    /// that can end.
    pub fn on_change(&self, listener: impl Fn(&[ProgressItem]) + Send + Sync + 'static) {
        self.0.on_change(listener);
    }

    /// Follows calls and recursive runs by their events, for a screen that listens to the bus.
    ///
    /// A tool that reports progress is listed from its first report on, under the name of the tool; it leaves the list
    /// when it settles or asks for a decision. A recursive run is listed from its first step on until it has an answer or
    /// ends, for now or for good.
    pub fn apply(&self, event: &Event) {
        if let Some(what) = event.as_loop() {
            return self.apply_loop(event.turn_info().session, what, event.at());
        }
        let Some((invocation, what)) = event.as_tool() else {
            return;
        };
        match what {
            ToolEvent::ToolExecutionProgress { progress } => {
                self.report(
                    invocation.id,
                    invocation.tool.as_str(),
                    progress,
                    event.at(),
                );
            }
            // Another attempt begins at the beginning.
            ToolEvent::ToolExecutionStarted { attempt, .. } if *attempt > 1 => {
                self.edit(&invocation.id.to_string(), |item| {
                    let (kind, total) = (item.kind, item.total);
                    ProgressItem {
                        message: None,
                        ..item.with_numbers(kind, 0, total)
                    }
                });
            }
            // Told late, it may concern an earlier pass than the one that runs now.
            ToolEvent::ToolApprovalRequested(_) => {
                let id = invocation.id.to_string();
                self.remove(|item| *item.id == *id && item.started_at <= event.at());
            }
            ToolEvent::ToolDenied { .. }
            | ToolEvent::ToolExecutionSucceeded { .. }
            | ToolEvent::ToolExecutionFailed { .. }
            | ToolEvent::ToolExecutionInterrupted { .. }
            | ToolEvent::ToolSkipped { .. } => self.done(&invocation.id.to_string()),
            ToolEvent::ToolRequested { .. }
            | ToolEvent::ToolApproved { .. }
            | ToolEvent::ToolExecutionStarted { .. }
            | ToolEvent::ToolCallAudit { .. }
            | ToolEvent::ToolLog { .. } => {}
        }
    }

    fn apply_loop(&self, session: SessionId, what: &LoopEvent, now: Timestamp) {
        let id = format!("recursive/{session}");
        match what {
            LoopEvent::RecursiveIteration { ready: true, .. } | LoopEvent::RunEnded { .. } => {
                self.done(&id)
            }
            LoopEvent::RecursiveIteration {
                iteration,
                max,
                summary,
                ..
            } => {
                let progress =
                    Progress::step((*iteration).into(), (*max).into()).with_message(summary);
                self.report_as(id.into(), "Working over a large context", &progress, now);
            }
            LoopEvent::UserMessage { .. }
            | LoopEvent::ModelRouted(_)
            | LoopEvent::InferenceStarted { .. }
            | LoopEvent::InferenceFinished { .. }
            | LoopEvent::InferenceFailed { .. }
            | LoopEvent::HistoryCompacted { .. }
            | LoopEvent::SkillLoaded { .. }
            | LoopEvent::BudgetAlert { .. } => {}
        }
    }

    fn report(&self, call: CallId, label: &str, progress: &Progress, now: Timestamp) {
        self.report_as(call.to_string().into(), label, progress, now);
    }

    fn report_as(&self, id: Arc<str>, label: &str, progress: &Progress, now: Timestamp) {
        if !self.0.snapshot().iter().any(|item| item.id == id) {
            let item = ProgressItem::new(id, label, now).cancellable();
            return self.begin(item.with(progress));
        }
        self.update_with(&id, progress);
    }

    fn edit(&self, id: &str, edit: impl FnOnce(ProgressItem) -> ProgressItem) {
        self.0.change(|items| {
            let Some(item) = items.iter_mut().find(|item| *item.id == *id) else {
                return ((), Changed::No);
            };
            let edited = edit(item.clone());
            let changed = edited != *item;
            *item = edited;
            ((), changed.into())
        });
    }

    fn remove(&self, which: impl Fn(&ProgressItem) -> bool) {
        self.0.change(|items| {
            let before = items.len();
            items.retain(|item| !which(item));
            ((), (items.len() != before).into())
        });
    }
}

impl ProgressItem {
    /// The same work after a report. What the report does not say stays as it was.
    fn with(self, progress: &Progress) -> Self {
        let message = progress
            .message
            .as_deref()
            .map(bounded)
            .or_else(|| self.message.clone());
        let (current, total) = (
            progress.current.unwrap_or(self.current),
            progress.total.or(self.total),
        );
        Self {
            message,
            ..self.with_numbers(progress.kind, current, total)
        }
    }
}

/// Labels and messages are one line on a screen.
fn bounded(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use toolgate_core::{Digest, Invocation, Settled, Status};
    use toolgate_testkit::seed;

    const NOW: Timestamp = Timestamp::from_micros(7);

    fn one(kind: ProgressKind, total: Option<u64>) -> ProgressManager {
        let manager = ProgressManager::new();
        manager.start("a", "A", kind, total, NOW);
        manager
    }

    fn event(at: i64, what: ToolEvent) -> Event {
        let seed = seed("build", serde_json::json!({}));
        let invocation = Invocation {
            id: seed.id,
            call_id: "c".into(),
            tool: "build".into(),
            emit_order: 0,
            turn: seed.turn,
        };
        Event::tool(1, Timestamp::from_micros(at), Arc::new(invocation), what).expect("valid")
    }

    fn started(attempt: u32) -> ToolEvent {
        let arguments_digest = Digest::of_bytes(b"");
        ToolEvent::ToolExecutionStarted {
            attempt,
            executor: None,
            external: false,
            arguments_digest,
        }
    }

    fn asked() -> ToolEvent {
        let call = toolgate_testkit::call("build");
        ToolEvent::ToolApprovalRequested(Box::new(toolgate_core::ApprovalRequest::about(&call)))
    }

    #[test]
    fn a_percentage_stays_between_0_and_100_and_is_never_not_a_number() {
        let percent = |current, total| {
            let manager = one(ProgressKind::Determinate, total);
            manager.update("a", current);
            manager.active()[0].percent
        };
        assert_eq!(percent(1, Some(4)), Some(25.0));
        assert_eq!(percent(9, Some(4)), Some(100.0));
        assert_eq!(percent(u64::MAX, Some(1)), Some(100.0));
        assert_eq!(percent(0, Some(0)), None);
        assert_eq!(percent(3, None), None);
    }

    #[test]
    fn what_is_unknown_is_not_updated_and_not_listed() {
        let manager = ProgressManager::new();
        manager.update("a", 1);
        manager.update_with("a", &Progress::of(1, 2));
        manager.done("a");
        assert!(manager.active().is_empty());
    }

    #[test]
    fn items_are_listed_in_order_of_start_and_a_second_start_starts_over() {
        let manager = one(ProgressKind::Steps, Some(3));
        manager.start("b", "B", ProgressKind::Indeterminate, None, NOW);
        manager.update("a", 2);
        manager.start("a", "again", ProgressKind::Steps, Some(5), NOW);
        let items = manager.active();
        let ids: Vec<_> = items.iter().map(|item| &*item.id).collect();
        assert_eq!(ids, ["b", "a"]);
        assert_eq!(
            (items[1].current, items[1].total, items[1].label.as_str()),
            (0, Some(5), "again")
        );
    }

    #[test]
    fn the_same_value_twice_is_one_snapshot() {
        let manager = one(ProgressKind::Determinate, Some(4));
        let count = Arc::new(Mutex::new(0));
        let counted = count.clone();
        manager.on_change(move |_| *counted.lock().expect("whole") += 1);
        manager.update("a", 1);
        manager.update("a", 1);
        manager.update_with("a", &Progress::of(1, 4));
        manager.update("unknown", 9);
        assert_eq!(*count.lock().expect("whole"), 1);
    }

    #[test]
    fn the_list_is_bounded_and_the_oldest_makes_room() {
        let manager = ProgressManager::new();
        for n in 0..=ProgressManager::MOST {
            manager.start(
                n.to_string(),
                "x".repeat(10_000),
                ProgressKind::Indeterminate,
                None,
                NOW,
            );
        }
        let items = manager.active();
        assert_eq!(
            (items.len(), &*items[0].id, items[0].label.len()),
            (ProgressManager::MOST, "1", 200)
        );
    }

    #[test]
    fn a_clone_shows_the_same_list() {
        let manager = one(ProgressKind::Steps, Some(2));
        manager.clone().done("a");
        assert!(manager.active().is_empty());
    }

    #[test]
    fn a_call_is_followed_by_its_events() {
        let manager = ProgressManager::new();
        manager.apply(&event(1, started(1)));
        assert!(
            manager.active().is_empty(),
            "not every call is worth a line on the screen"
        );
        let progress = Progress::step(1, 4).with_message("linking");
        manager.apply(&event(2, ToolEvent::ToolExecutionProgress { progress }));
        let item = manager.active().remove(0);
        assert_eq!(
            (item.label.as_str(), item.percent, item.message.as_deref()),
            ("build", Some(25.0), Some("linking"))
        );
        manager.apply(&event(3, started(2)));
        let item = manager.active().remove(0);
        assert_eq!(
            (item.current, item.message),
            (0, None),
            "another attempt begins at the beginning"
        );
        manager.apply(&event(
            4,
            ToolEvent::settling(&Settled::new(Status::Ok), true, None, None),
        ));
        assert!(manager.active().is_empty());
    }

    fn around(at: i64, what: LoopEvent) -> Event {
        let turn = seed("build", serde_json::json!({})).turn;
        Event::around(1, Timestamp::from_micros(at), turn, what).expect("valid")
    }

    fn step(iteration: u32, ready: bool) -> LoopEvent {
        let (summary, scratchpad) = (format!("search {iteration}"), String::new());
        LoopEvent::RecursiveIteration {
            iteration,
            max: 4,
            ready,
            tokens: 9,
            summary,
            scratchpad,
            budget: 25,
        }
    }

    #[test]
    fn a_recursive_run_is_followed_step_by_step_until_it_is_over() {
        let manager = ProgressManager::new();
        manager.apply(&around(1, step(1, false)));
        manager.apply(&around(2, step(2, false)));
        let items = manager.active();
        let item = &items[0];
        assert_eq!(
            (items.len(), item.current, item.percent),
            (1, 2, Some(50.0))
        );
        assert_eq!(
            (item.message.as_deref(), item.started_at),
            (Some("search 2"), Timestamp::from_micros(1))
        );
        manager.apply(&around(3, step(3, true)));
        assert!(manager.active().is_empty(), "the answer is there");
        manager.apply(&around(4, step(1, false)));
        let (usage, cost) = (
            toolgate_core::Usage::default(),
            toolgate_core::Cost::Unknown,
        );
        let end = toolgate_core::RunEnd::Suspended;
        manager.apply(&around(
            5,
            LoopEvent::RunEnded {
                end,
                error: None,
                iterations: 1,
                usage,
                cost,
            },
        ));
        assert!(
            manager.active().is_empty(),
            "nothing goes on while the run waits"
        );
    }

    #[test]
    fn an_item_that_is_listed_already_is_not_listed_twice() {
        let manager = ProgressManager::new();
        let id = seed("build", serde_json::json!({})).id.to_string();
        manager.begin(ProgressItem::new(id, "Building", NOW));
        manager.apply(&event(
            9,
            ToolEvent::ToolExecutionProgress {
                progress: Progress::of(1, 2),
            },
        ));
        let items = manager.active();
        assert_eq!(
            (items.len(), items[0].label.as_str(), items[0].percent),
            (1, "Building", Some(50.0))
        );
    }

    #[test]
    fn a_late_word_of_a_question_does_not_end_the_pass_that_followed_it() {
        let manager = ProgressManager::new();
        let id = seed("build", serde_json::json!({})).id.to_string();
        manager.begin(ProgressItem::new(
            id,
            "Building",
            Timestamp::from_micros(10),
        ));
        manager.apply(&event(9, asked()));
        assert_eq!(manager.active().len(), 1);
        manager.apply(&event(10, asked()));
        assert!(manager.active().is_empty());
    }
}
