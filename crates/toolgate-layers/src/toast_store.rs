//! Short messages that appear on a screen and go away again.

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
use toolgate_core::{Event, LoopEvent, Timestamp};

use crate::observed::{Changed, Observed};

/// The messages on the screen, oldest first. Cloning shares them.
///
/// ```
/// use std::time::Duration;
/// use toolgate_core::Timestamp;
/// use toolgate_layers::{Toast, ToastLevel, ToastManager};
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
    toasts: Observed<Toast>,
    last_id: Arc<AtomicU64>,
    max_count: usize,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Toast {
    /// What it is known by; given out when it is shown.
    pub id: ToastId,
    /// How it looks.
    pub level: ToastLevel,
    /// What it is about.
    pub title: String,
    /// What it says.
    pub message: String,
    /// How long it stays; until it is dismissed, if there is no end.
    pub duration: Option<Duration>,
    /// Since when it is there.
    pub created_at: Timestamp,
    /// What a person can do about it.
    pub action: Option<ToastAction>,
}

/// Names a message.
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

/// How a message looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToastLevel {
    /// Good to know.
    Info,
    /// It worked.
    Success,
    /// Something was refused or is about to go wrong.
    Warning,
    /// Something went wrong.
    Error,
}

/// Something a person can do about a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToastAction {
    /// What the button says.
    pub label: String,
    /// The command the screen runs.
    pub command: String,
}

impl Toast {
    /// How long a message stays unless it says otherwise.
    pub const DURATION: Duration = Duration::from_secs(5);

    /// A message that stays for a while.
    pub fn new(
        level: ToastLevel,
        title: impl Into<String>,
        message: impl Into<String>,
        created_at: Timestamp,
    ) -> Self {
        let (title, message) = (title.into(), message.into());
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

    /// Says how long it stays; `None` is until it is dismissed.
    pub fn lasting(mut self, duration: Option<Duration>) -> Self {
        self.duration = duration;
        self
    }

    /// Offers something to do about it.
    pub fn with_action(mut self, label: impl Into<String>, command: impl Into<String>) -> Self {
        self.action = Some(ToastAction {
            label: label.into(),
            command: command.into(),
        });
        self
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.duration
            .is_some_and(|duration| self.created_at.plus(duration) <= now)
    }
}

impl ToastManager {
    /// How many messages there are at a time unless it is said otherwise.
    pub const MAX_COUNT: usize = 5;

    /// No messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets up to `max_count` messages be there at a time; one always may.
    pub fn with_max_count(mut self, max_count: usize) -> Self {
        self.max_count = max_count.max(1);
        self
    }

    /// Shows a message; the oldest one makes room.
    pub fn show(&self, mut toast: Toast) -> ToastId {
        toast.id = ToastId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let id = toast.id;
        self.toasts.change(|toasts| {
            toasts.push(toast);
            toasts.drain(..toasts.len().saturating_sub(self.max_count));
            (id, Changed::Yes)
        })
    }

    /// Something is good to know.
    pub fn info(
        &self,
        title: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> ToastId {
        self.show(Toast::new(ToastLevel::Info, title, message, now))
    }

    /// Something worked.
    pub fn success(
        &self,
        title: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> ToastId {
        self.show(Toast::new(ToastLevel::Success, title, message, now))
    }

    /// Something was refused or is about to go wrong.
    pub fn warning(
        &self,
        title: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> ToastId {
        self.show(Toast::new(ToastLevel::Warning, title, message, now))
    }

    /// Something went wrong.
    pub fn error(
        &self,
        title: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> ToastId {
        self.show(Toast::new(ToastLevel::Error, title, message, now))
    }

    /// Shows what people should know of a session, for a screen that hands over its events: how much of a budget is
    /// used. A message that is there already is not shown twice.
    pub fn apply(&self, event: &Event) {
        let Some(LoopEvent::BudgetAlert {
            budget,
            period,
            percent,
            spent,
            limit,
        }) = event.as_loop()
        else {
            return;
        };
        let level = if *percent < 100 {
            ToastLevel::Warning
        } else {
            ToastLevel::Error
        };
        let message = format!("{percent} % of the budget is used: {spent} of {limit} ({period})");
        if !self
            .current()
            .iter()
            .any(|shown| shown.title == *budget && shown.message == message)
        {
            self.show(Toast::new(level, budget, message, event.at()));
        }
    }

    /// Takes a message away. Nothing happens if it is gone.
    pub fn dismiss(&self, id: ToastId) {
        self.remove(|toast| toast.id == id);
    }

    /// Takes away the messages whose time is over.
    pub fn expire(&self, now: Timestamp) {
        self.remove(|toast| toast.is_over(now));
    }

    /// The messages that are there, oldest first.
    pub fn current(&self) -> Vec<Toast> {
        self.toasts.snapshot().to_vec()
    }

    /// Watches the messages: the newest snapshot, made on change only. A slow watcher skips snapshots.
    pub fn subscribe(&self) -> watch::Receiver<Arc<[Toast]>> {
        self.toasts.subscribe()
    }

    /// Calls `listener` after changes, for as long as this store lives. See [`subscribe`](Self::subscribe) for a watch
    /// that can end.
    pub fn on_change(&self, listener: impl Fn(&[Toast]) + Send + Sync + 'static) {
        self.toasts.on_change(listener);
    }

    fn remove(&self, which: impl Fn(&Toast) -> bool) {
        self.toasts.change(|toasts| {
            let before = toasts.len();
            toasts.retain(|toast| !which(toast));
            ((), (toasts.len() != before).into())
        });
    }
}

impl Default for ToastManager {
    fn default() -> Self {
        Self {
            toasts: Observed::default(),
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
    fn the_oldest_message_makes_room() {
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
    fn a_message_goes_when_its_time_is_over_and_not_before() {
        let toasts = ToastManager::new();
        toasts.show(
            Toast::new(ToastLevel::Info, "short", "", NOW).lasting(Some(Duration::from_secs(1))),
        );
        toasts.show(Toast::new(ToastLevel::Info, "default", "", NOW));
        toasts.show(Toast::new(ToastLevel::Info, "stays", "", NOW).lasting(None));
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
        let (a, b) = (
            toasts.success("a", "", NOW),
            toasts.clone().warning("b", "", NOW),
        );
        assert_ne!(a, b, "clones never give out the same id");
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
    fn a_budget_that_is_nearly_used_up_is_told_once_for_each_threshold() {
        let toasts = ToastManager::new();
        let turn = toolgate_testkit::seed("t", serde_json::json!({})).turn;
        for percent in [75, 75, 90, 100] {
            let (budget, period) = ("recursive tokens".to_owned(), "run".to_owned());
            let (spent, limit) = (format!("{percent}0"), "1000".to_owned());
            let alert = LoopEvent::BudgetAlert {
                budget,
                period,
                percent,
                spent,
                limit,
            };
            toasts.apply(&Event::around(1, NOW, turn.clone(), alert).expect("valid"));
        }
        let shown: Vec<_> = toasts
            .current()
            .into_iter()
            .map(|toast| (toast.level, toast.message))
            .collect();
        let message =
            |percent: u8| format!("{percent} % of the budget is used: {percent}0 of 1000 (run)");
        let expected = [
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
