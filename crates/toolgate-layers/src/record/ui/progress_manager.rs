//! The list of running work, for screens.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use toolgate_core::{
    CallId, Event, Progress, ProgressKind, SessionEvent, SessionId, Timestamp, ToolEvent,
};

use crate::record::ui::observable::{ListChange, ObservableList};

/// The running work, in the order it was started. Clones share it.
///
/// It is filled from the events of a session through [`apply_event`](Self::apply_event), and by a
/// program through [`start`](Self::start). The layer `progress` labels calls of long-running tools,
/// so that they are listed when they start.
///
/// ```
/// use toolgate_core::{ProgressKind, Timestamp};
/// use toolgate_layers::ProgressManager;
///
/// let progress = ProgressManager::new();
/// progress.start("index", "Indexing", ProgressKind::Determinate, Some(8), Timestamp::EPOCH);
/// progress.update("index", 2);
/// assert_eq!(progress.active_items()[0].percent, Some(25.0));
/// progress.finish("index");
/// assert!(progress.active_items().is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct ProgressManager(ObservableList<ProgressItem>);

/// One piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ProgressItem {
    /// The item's id; for a call, the invocation's id.
    pub id: Arc<str>,
    /// The kind of progress bar.
    pub kind: ProgressKind,
    /// The label on a screen.
    pub label: String,
    /// The amount that is done.
    pub current: u64,
    /// The total amount, if it is known.
    pub total: Option<u64>,
    /// The share that is done, from 0 to 100, if it is known.
    pub percent: Option<f64>,
    /// True if it can be cancelled.
    pub cancellable: bool,
    /// The start time.
    pub started_at: Timestamp,
    /// A description of the current step.
    pub message: Option<String>,
}

impl ProgressItem {
    /// Creates an item without any known amount.
    pub fn new(id: impl Into<Arc<str>>, label: impl Into<String>, started_at: Timestamp) -> Self {
        Self {
            id: id.into(),
            kind: ProgressKind::Indeterminate,
            label: clean_line(&label.into()),
            current: 0,
            total: None,
            percent: None,
            cancellable: false,
            started_at,
            message: None,
        }
    }

    /// Marks the item as cancellable.
    pub fn cancellable(mut self) -> Self {
        self.cancellable = true;
        self
    }

    /// Returns the item with other numbers.
    fn with_numbers(mut self, kind: ProgressKind, current: u64, total: Option<u64>) -> Self {
        self.kind = kind;
        self.current = current;
        self.total = total;
        self.percent = Progress {
            kind,
            current: Some(current),
            total,
            message: None,
            label: None,
        }
        .percent();
        self
    }
}

impl ProgressManager {
    /// The most items at a time; beyond that, the oldest is removed.
    pub const MOST: usize = 1000;

    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists new work. If its id was listed before, it starts over.
    pub fn start(
        &self,
        id: impl Into<Arc<str>>,
        label: impl Into<String>,
        kind: ProgressKind,
        total: Option<u64>,
        now: Timestamp,
    ) {
        self.add_item(ProgressItem::new(id, label, now).with_numbers(kind, 0, total));
    }

    /// Lists `item`, replacing an earlier one with its id.
    pub fn add_item(&self, item: ProgressItem) {
        self.0.change(|items| {
            items.retain(|known| known.id != item.id);
            // A program that never reports the end of its work must not fill the memory.
            if items.len() >= Self::MOST {
                items.remove(0);
            }
            items.push(item);
            ((), ListChange::Yes)
        });
    }

    /// Sets the amount that is done. Ignores an unknown id.
    pub fn update(&self, id: &str, current: u64) {
        self.edit_item(id, |item| {
            let kind = item.kind;
            let total = item.total;
            item.with_numbers(kind, current, total)
        });
    }

    /// Applies a progress report. Ignores an unknown id.
    pub fn update_with(&self, id: &str, progress: &Progress) {
        self.edit_item(id, |item| item.with_report(progress));
    }

    /// Removes finished work. Ignores an unknown id.
    pub fn finish(&self, id: &str) {
        self.remove_items(|item| *item.id == *id);
    }

    /// Removes everything, for a screen that has missed events.
    pub fn clear(&self) {
        self.remove_items(|_| true);
    }

    /// Returns the running work, in the order it was started.
    pub fn active_items(&self) -> Vec<ProgressItem> {
        self.0.snapshot().to_vec()
    }

    /// Returns a watch on the newest snapshot. A slow watcher skips snapshots.
    pub fn subscribe(&self) -> watch::Receiver<Arc<[ProgressItem]>> {
        self.0.subscribe()
    }

    /// Calls `listener` after changes, as long as this list lives. See
    /// [`subscribe`](Self::subscribe) for a watch that can end.
    pub fn on_change(&self, listener: impl Fn(&[ProgressItem]) + Send + Sync + 'static) {
        self.0.on_change(listener);
    }

    /// Follows calls and recursive runs by their events, for a screen that listens to the event
    /// bus.
    ///
    /// A tool that reports progress is listed from its first report, under its label or the name of
    /// the tool, until it settles or requests approval. A recursive run is listed from its first step until
    /// it has an answer, suspends or ends.
    pub fn apply_event(&self, event: &Event) {
        if let Some(what) = event.as_session() {
            return self.apply_loop_event(event.turn_info().session, what, event.at());
        }
        let Some((invocation, what)) = event.as_tool() else {
            return;
        };
        match what {
            ToolEvent::ToolExecutionProgress { progress } => {
                let label = progress.label.as_deref();
                let label = label.unwrap_or(invocation.tool.as_str());
                self.report_call(invocation.id, label, progress, event.at());
            }
            // A retry starts from zero.
            ToolEvent::ToolExecutionStarted { attempt, .. } if *attempt > 1 => {
                self.edit_item(&invocation.id.to_string(), |item| {
                    let kind = item.kind;
                    let total = item.total;
                    ProgressItem {
                        message: None,
                        ..item.with_numbers(kind, 0, total)
                    }
                });
            }
            // A late event may be about a generation before the one that runs now.
            ToolEvent::ToolApprovalRequested(_) => {
                let id = invocation.id.to_string();
                self.remove_items(|item| *item.id == *id && item.started_at <= event.at());
            }
            ToolEvent::ToolDenied { .. }
            | ToolEvent::ToolExecutionSucceeded { .. }
            | ToolEvent::ToolExecutionFailed { .. }
            | ToolEvent::ToolExecutionInterrupted { .. }
            | ToolEvent::ToolSkipped { .. } => self.finish(&invocation.id.to_string()),
            ToolEvent::ToolRequested { .. }
            | ToolEvent::ToolApproved { .. }
            | ToolEvent::ToolExecutionStarted { .. }
            | ToolEvent::ToolCallAudit { .. }
            | ToolEvent::ToolFilesChanged { .. }
            | ToolEvent::ToolToast(_)
            | ToolEvent::ToolLog { .. } => {}
        }
    }

    /// Follows a recursive run.
    fn apply_loop_event(&self, session: SessionId, what: &SessionEvent, now: Timestamp) {
        let id = format!("recursive/{session}");
        match what {
            SessionEvent::RecursiveIteration { ready: true, .. }
            | SessionEvent::RunEnded { .. } => self.finish(&id),
            SessionEvent::RecursiveIteration {
                iteration,
                max,
                summary,
                ..
            } => {
                let progress =
                    Progress::step((*iteration).into(), (*max).into()).with_message(summary);
                self.report_item(id.into(), "Working over a large context", &progress, now);
            }
            SessionEvent::UserMessage { .. }
            | SessionEvent::ModelRouted(_)
            | SessionEvent::InferenceStarted { .. }
            | SessionEvent::InferenceFinished { .. }
            | SessionEvent::InferenceFailed { .. }
            | SessionEvent::HistoryCompacted { .. }
            | SessionEvent::SkillLoaded { .. }
            | SessionEvent::MemoryRecalled { .. }
            | SessionEvent::BudgetAlert(_)
            | SessionEvent::ImportedCall { .. }
            | SessionEvent::ImportedResult { .. } => {}
        }
    }

    /// Applies a report about a call, and lists the call if it is new.
    fn report_call(&self, call: CallId, label: &str, progress: &Progress, now: Timestamp) {
        self.report_item(call.to_string().into(), label, progress, now);
    }

    /// Applies a report under an id, and lists the item if it is new.
    fn report_item(&self, id: Arc<str>, label: &str, progress: &Progress, now: Timestamp) {
        if !self.0.snapshot().iter().any(|item| item.id == id) {
            let item = ProgressItem::new(id, label, now).cancellable();
            return self.add_item(item.with_report(progress));
        }
        self.update_with(&id, progress);
    }

    /// Changes the item with this id, if there is one.
    fn edit_item(&self, id: &str, edit: impl FnOnce(ProgressItem) -> ProgressItem) {
        self.0.change(|items| {
            let Some(item) = items.iter_mut().find(|item| *item.id == *id) else {
                return ((), ListChange::No);
            };
            let edited = edit(item.clone());
            let changed = edited != *item;
            *item = edited;
            ((), changed.into())
        });
    }

    /// Removes the items that match.
    fn remove_items(&self, which: impl Fn(&ProgressItem) -> bool) {
        self.0.change(|items| {
            let before = items.len();
            items.retain(|item| !which(item));
            ((), (items.len() != before).into())
        });
    }
}

impl ProgressItem {
    /// Returns the item after a report. Values that the report does not have stay.
    fn with_report(self, progress: &Progress) -> Self {
        let message = progress
            .message
            .as_deref()
            .map(clean_line)
            .or_else(|| self.message.clone());
        let current = progress.current.unwrap_or(self.current);
        let total = progress.total.or(self.total);
        Self {
            message,
            ..self.with_numbers(progress.kind, current, total)
        }
    }
}

/// Truncates a text and replaces control characters: labels and messages are one line on a screen.
fn clean_line(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use toolgate_core::{Digest, Invocation, SettledOutcome, Status};
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
        Event::for_invocation(1, Timestamp::from_micros(at), Arc::new(invocation), what)
            .expect("valid")
    }

    fn started(attempt: u32) -> ToolEvent {
        let arguments_digest = Digest::of_bytes(b"");
        ToolEvent::ToolExecutionStarted {
            attempt,
            executor: None,
            external: false,
            arguments_digest,
            arguments: None,
        }
    }

    fn asked() -> ToolEvent {
        let call = toolgate_testkit::call("build");
        ToolEvent::ToolApprovalRequested(Box::new(toolgate_core::ApprovalRequest::for_call(&call)))
    }

    #[test]
    fn a_percentage_stays_between_0_and_100_and_is_never_not_a_number() {
        let percent = |current, total| {
            let manager = one(ProgressKind::Determinate, total);
            manager.update("a", current);
            manager.active_items()[0].percent
        };
        assert_eq!(percent(1, Some(4)), Some(25.0));
        assert_eq!(percent(9, Some(4)), Some(100.0));
        assert_eq!(percent(u64::MAX, Some(1)), Some(100.0));
        assert_eq!(percent(0, Some(0)), None);
        assert_eq!(percent(3, None), None);
    }

    #[test]
    fn an_unknown_id_is_neither_updated_nor_listed() {
        let manager = ProgressManager::new();
        manager.update("a", 1);
        manager.update_with("a", &Progress::fraction(1, 2));
        manager.finish("a");
        assert!(manager.active_items().is_empty());
    }

    #[test]
    fn items_are_listed_in_order_of_start_and_a_second_start_starts_over() {
        let manager = one(ProgressKind::Steps, Some(3));
        manager.start("b", "B", ProgressKind::Indeterminate, None, NOW);
        manager.update("a", 2);
        manager.start("a", "again", ProgressKind::Steps, Some(5), NOW);
        let items = manager.active_items();
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
        manager.update_with("a", &Progress::fraction(1, 4));
        manager.update("unknown", 9);
        assert_eq!(*count.lock().expect("whole"), 1);
    }

    #[test]
    fn the_list_is_bounded_and_the_oldest_item_is_removed() {
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
        let items = manager.active_items();
        assert_eq!(
            (items.len(), &*items[0].id, items[0].label.len()),
            (ProgressManager::MOST, "1", 200)
        );
    }

    #[test]
    fn a_clone_shows_the_same_list() {
        let manager = one(ProgressKind::Steps, Some(2));
        manager.clone().finish("a");
        assert!(manager.active_items().is_empty());
    }

    #[test]
    fn a_call_is_followed_by_its_events() {
        let manager = ProgressManager::new();
        manager.apply_event(&event(1, started(1)));
        assert!(
            manager.active_items().is_empty(),
            "a call without progress reports is not listed"
        );
        let progress = Progress::step(1, 4).with_message("linking");
        manager.apply_event(&event(2, ToolEvent::ToolExecutionProgress { progress }));
        let item = manager.active_items().remove(0);
        assert_eq!(
            (item.label.as_str(), item.percent, item.message.as_deref()),
            ("build", Some(25.0), Some("linking"))
        );
        manager.apply_event(&event(3, started(2)));
        let item = manager.active_items().remove(0);
        assert_eq!(
            (item.current, item.message),
            (0, None),
            "a retry starts from zero"
        );
        manager.apply_event(&event(
            4,
            ToolEvent::from_settled(&SettledOutcome::new(Status::Ok), true, None, None),
        ));
        assert!(manager.active_items().is_empty());
    }

    fn around(at: i64, what: SessionEvent) -> Event {
        let turn = seed("build", serde_json::json!({})).turn;
        Event::for_run(1, Timestamp::from_micros(at), turn, what).expect("valid")
    }

    fn step(iteration: u32, ready: bool) -> SessionEvent {
        let summary = format!("search {iteration}");
        let scratchpad = String::new();
        SessionEvent::RecursiveIteration {
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
    fn a_recursive_run_is_followed_step_by_step_until_it_ends() {
        let manager = ProgressManager::new();
        manager.apply_event(&around(1, step(1, false)));
        manager.apply_event(&around(2, step(2, false)));
        let items = manager.active_items();
        let item = &items[0];
        assert_eq!(
            (items.len(), item.current, item.percent),
            (1, 2, Some(50.0))
        );
        assert_eq!(
            (item.message.as_deref(), item.started_at),
            (Some("search 2"), Timestamp::from_micros(1))
        );
        manager.apply_event(&around(3, step(3, true)));
        assert!(manager.active_items().is_empty(), "the answer is there");
        manager.apply_event(&around(4, step(1, false)));
        let usage = toolgate_core::Usage::default();
        let cost = toolgate_core::Cost::Unknown;
        let end = toolgate_core::RunEnd::Suspended;
        manager.apply_event(&around(
            5,
            SessionEvent::RunEnded {
                end,
                error: None,
                iterations: 1,
                usage,
                cost,
            },
        ));
        assert!(
            manager.active_items().is_empty(),
            "nothing runs while the run is suspended"
        );
    }

    #[test]
    fn an_item_that_is_listed_already_is_not_listed_twice() {
        let manager = ProgressManager::new();
        let id = seed("build", serde_json::json!({})).id.to_string();
        manager.add_item(ProgressItem::new(id, "Building", NOW));
        manager.apply_event(&event(
            9,
            ToolEvent::ToolExecutionProgress {
                progress: Progress::fraction(1, 2),
            },
        ));
        let items = manager.active_items();
        assert_eq!(
            (items.len(), items[0].label.as_str(), items[0].percent),
            (1, "Building", Some(50.0))
        );
    }

    #[test]
    fn a_late_approval_request_does_not_end_the_generation_after_it() {
        let manager = ProgressManager::new();
        let id = seed("build", serde_json::json!({})).id.to_string();
        manager.add_item(ProgressItem::new(
            id,
            "Building",
            Timestamp::from_micros(10),
        ));
        manager.apply_event(&event(9, asked()));
        assert_eq!(manager.active_items().len(), 1);
        manager.apply_event(&event(10, asked()));
        assert!(manager.active_items().is_empty());
    }
}
