//! Short messages that appear on a screen and expire.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use toolgate_core::{
    BudgetAlert, BudgetAlertLevel, Event, EventBody, SessionEvent, Timestamp, ToastAction,
    ToastLevel, ToastNotice, ToolEvent,
};

use crate::record::ui::observable::{ListChange, ObservableList};

/// The messages on the screen, oldest first. Clones share them.
///
/// It is filled from the events of a session through [`apply_event`](Self::apply_event), and by a
/// program through [`show`](Self::show).
///
/// ```
/// use std::time::Duration;
/// use toolgate_core::{Timestamp, ToastLevel};
/// use toolgate_layers::{Toast, ToastManager};
///
/// let (toasts, now) = (ToastManager::new(), Timestamp::EPOCH);
/// toasts.warning("budget", "90 % of today's budget is spent", now);
/// let toast = Toast::new(ToastLevel::Error, "deploy", "it failed", now).with_action("Retry", "deploy.retry");
/// let id = toasts.show(toast);
/// toasts.dismiss(id);
/// toasts.expire(now.plus(Duration::from_secs(60)));
/// assert!(toasts.current().is_empty());
/// ```
#[derive(Debug, Clone)]
pub struct ToastManager {
    toasts: ObservableList<Toast>,
    last_id: Arc<AtomicU64>,
    max_count: usize,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Toast {
    /// The message's id, assigned when it is shown.
    pub id: ToastId,
    /// The level of the message.
    pub level: ToastLevel,
    /// The title.
    pub title: String,
    /// The text.
    pub message: String,
    /// The time it stays; without one, it stays until it is dismissed.
    pub duration: Option<Duration>,
    /// The time it was created.
    pub created_at: Timestamp,
    /// The action that the screen offers with it.
    pub action: Option<ToastAction>,
}

/// The id of a message.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct ToastId(u64);

impl Toast {
    /// The default time a message stays.
    pub const DURATION: Duration = Duration::from_secs(5);

    /// Creates a message that stays for the default time.
    pub fn new(
        level: ToastLevel,
        title: impl Into<String>,
        message: impl Into<String>,
        created_at: Timestamp,
    ) -> Self {
        let title = title.into();
        let message = message.into();
        Self {
            id: ToastId::default(),
            level,
            title,
            message,
            duration: Some(Self::DURATION),
            created_at,
            action: None,
        }
    }

    /// Sets the time it stays; `None` is until it is dismissed.
    pub fn with_duration(mut self, duration: Option<Duration>) -> Self {
        self.duration = duration;
        self
    }

    /// Adds an action.
    pub fn with_action(mut self, label: impl Into<String>, command: impl Into<String>) -> Self {
        self.action = Some(ToastAction {
            label: label.into(),
            command: command.into(),
        });
        self
    }

    /// Checks whether the message has expired.
    fn is_expired(&self, now: Timestamp) -> bool {
        self.duration
            .is_some_and(|duration| self.created_at.plus(duration) <= now)
    }
}

impl ToastManager {
    /// The default number of messages at a time.
    pub const MAX_COUNT: usize = 5;

    /// Creates a manager without messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of messages at a time; at least one.
    pub fn with_max_count(mut self, max_count: usize) -> Self {
        self.max_count = max_count.max(1);
        self
    }

    /// Shows a message; beyond the maximum, the oldest is removed.
    pub fn show(&self, mut toast: Toast) -> ToastId {
        // The counter is shared by clones, so ids stay unique.
        toast.id = ToastId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let id = toast.id;
        self.toasts.change(|toasts| {
            toasts.push(toast);
            toasts.drain(..toasts.len().saturating_sub(self.max_count));
            (id, ListChange::Yes)
        })
    }

    /// Shows an information.
    pub fn info(
        &self,
        title: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> ToastId {
        self.show(Toast::new(ToastLevel::Info, title, message, now))
    }

    /// Shows a success.
    pub fn success(
        &self,
        title: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> ToastId {
        self.show(Toast::new(ToastLevel::Success, title, message, now))
    }

    /// Shows a warning.
    pub fn warning(
        &self,
        title: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> ToastId {
        self.show(Toast::new(ToastLevel::Warning, title, message, now))
    }

    /// Shows an error.
    pub fn error(
        &self,
        title: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> ToastId {
        self.show(Toast::new(ToastLevel::Error, title, message, now))
    }

    /// Shows what the events of a session report: the messages of the layer `toasts`, and budget
    /// alerts. A message that is already shown is not repeated.
    pub fn apply_event(&self, event: &Event) {
        let toast = match event.body() {
            EventBody::Tool(_, ToolEvent::ToolToast(notice)) => from_notice(notice, event.at()),
            EventBody::Loop(_, SessionEvent::BudgetAlert(alert)) => {
                Some(Toast::for_budget(alert, event.at()))
            }
            EventBody::Tool(..) | EventBody::Turn(..) | EventBody::Loop(..) => None,
        };
        let Some(toast) = toast else { return };
        let is_same = |shown: &Toast| shown.title == toast.title && shown.message == toast.message;
        if !self.current().iter().any(is_same) {
            self.show(toast);
        }
    }

    /// Removes a message. Ignores one that is gone.
    pub fn dismiss(&self, id: ToastId) {
        self.remove_toasts(|toast| toast.id == id);
    }

    /// Removes the messages that have expired.
    pub fn expire(&self, now: Timestamp) {
        self.remove_toasts(|toast| toast.is_expired(now));
    }

    /// Returns the current messages, oldest first.
    pub fn current(&self) -> Vec<Toast> {
        self.toasts.snapshot().to_vec()
    }

    /// Returns a watch on the newest snapshot. A slow watcher skips snapshots.
    pub fn subscribe(&self) -> watch::Receiver<Arc<[Toast]>> {
        self.toasts.subscribe()
    }

    /// Calls `listener` after changes, as long as this manager lives. See
    /// [`subscribe`](Self::subscribe) for a watch that can end.
    pub fn on_change(&self, listener: impl Fn(&[Toast]) + Send + Sync + 'static) {
        self.toasts.on_change(listener);
    }

    /// Removes the messages that match.
    fn remove_toasts(&self, which: impl Fn(&Toast) -> bool) {
        self.toasts.change(|toasts| {
            let before = toasts.len();
            toasts.retain(|toast| !which(toast));
            ((), (toasts.len() != before).into())
        });
    }
}

/// Returns the message of a layer.
fn from_notice(notice: &ToastNotice, at: Timestamp) -> Option<Toast> {
    let toast = Toast::new(notice.level, &notice.title, &notice.message, at);
    let duration = notice.duration_ms.map(Duration::from_millis);
    Some(Toast {
        action: notice.action.clone(),
        ..toast.with_duration(duration)
    })
}

impl Toast {
    /// Creates a toast for a budget that has reached a threshold, with the level of the alert.
    pub fn for_budget(alert: &BudgetAlert, at: Timestamp) -> Self {
        let level = match alert.level {
            BudgetAlertLevel::Info => ToastLevel::Info,
            BudgetAlertLevel::Warning | BudgetAlertLevel::Critical => ToastLevel::Warning,
            BudgetAlertLevel::Exceeded => ToastLevel::Error,
        };
        let BudgetAlert {
            budget,
            period,
            percent,
            spent,
            limit,
            ..
        } = alert;
        let message = format!("{percent} % of the budget is used: {spent} of {limit} ({period})");
        Self {
            action: Some(ToastAction::show_budgets()),
            ..Self::new(level, budget, message, at)
        }
    }
}

impl Default for ToastManager {
    fn default() -> Self {
        Self {
            toasts: ObservableList::default(),
            last_id: Arc::default(),
            max_count: Self::MAX_COUNT,
        }
    }
}

impl fmt::Display for ToastId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "toast_{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::EPOCH;

    fn titles(toasts: &ToastManager) -> Vec<String> {
        toasts
            .current()
            .into_iter()
            .map(|toast| toast.title)
            .collect()
    }

    #[test]
    fn the_oldest_message_is_removed_beyond_the_maximum() {
        let toasts = ToastManager::new();
        for n in 0..7 {
            toasts.info(n.to_string(), "", NOW);
        }
        assert_eq!(titles(&toasts), ["2", "3", "4", "5", "6"]);
        let one = ToastManager::new().with_max_count(0);
        one.error("a", "", NOW);
        one.error("b", "", NOW);
        assert_eq!(titles(&one), ["b"]);
    }

    #[test]
    fn a_message_expires_after_its_time_and_not_before() {
        let toasts = ToastManager::new();
        toasts.show(
            Toast::new(ToastLevel::Info, "short", "", NOW)
                .with_duration(Some(Duration::from_secs(1))),
        );
        toasts.show(Toast::new(ToastLevel::Info, "default", "", NOW));
        toasts.show(Toast::new(ToastLevel::Info, "stays", "", NOW).with_duration(None));
        toasts.expire(NOW.plus(Duration::from_millis(999)));
        assert_eq!(titles(&toasts), ["short", "default", "stays"]);
        toasts.expire(NOW.plus(Duration::from_secs(1)));
        assert_eq!(titles(&toasts), ["default", "stays"]);
        toasts.expire(NOW.plus(Duration::MAX));
        assert_eq!(titles(&toasts), ["stays"]);
    }

    #[test]
    fn a_message_can_be_dismissed_once() {
        let toasts = ToastManager::new();
        let a = toasts.success("a", "", NOW);
        let b = toasts.clone().warning("b", "", NOW);
        assert_ne!(a, b, "clones never assign the same id");
        let watching = toasts.subscribe();
        toasts.dismiss(a);
        assert!(watching.has_changed().expect("open"));
        let watching = toasts.subscribe();
        toasts.dismiss(a);
        assert!(
            !watching.has_changed().expect("open"),
            "dismissing again changes nothing"
        );
        assert_eq!(titles(&toasts), ["b"]);
    }

    #[test]
    fn a_budget_alert_is_shown_once_for_each_threshold() {
        let toasts = ToastManager::new();
        let turn = toolgate_testkit::seed("t", serde_json::json!({})).turn;
        for percent in [50, 75, 75, 90, 100] {
            let alert = BudgetAlert {
                budget: "recursive tokens".to_owned(),
                period: "run".to_owned(),
                percent,
                level: BudgetAlertLevel::for_percent(percent),
                spent: format!("{percent}0"),
                limit: "1000".to_owned(),
                amounts: None,
            };
            let event = Event::for_run(1, NOW, turn.clone(), alert.into()).expect("valid");
            toasts.apply_event(&event);
        }
        let shown: Vec<_> = toasts
            .current()
            .into_iter()
            .map(|toast| (toast.level, toast.message))
            .collect();
        let message =
            |percent: u8| format!("{percent} % of the budget is used: {percent}0 of 1000 (run)");
        let expected = [
            (ToastLevel::Info, 50),
            (ToastLevel::Warning, 75),
            (ToastLevel::Warning, 90),
            (ToastLevel::Error, 100),
        ]
        .map(|(level, percent)| (level, message(percent)));
        assert_eq!(shown, expected);
    }

    #[test]
    fn messages_have_the_shape_that_screens_expect() {
        let toast = Toast::new(ToastLevel::Error, "deploy", "failed", NOW)
            .with_action("Retry", "deploy.retry");
        let wire = serde_json::to_value(&toast).expect("writes");
        assert_eq!(wire["level"], "error");
        assert_eq!(
            wire["action"],
            serde_json::json!({ "label": "Retry", "command": "deploy.retry" })
        );
        assert_eq!(serde_json::from_value::<Toast>(wire).expect("reads"), toast);
    }
}
