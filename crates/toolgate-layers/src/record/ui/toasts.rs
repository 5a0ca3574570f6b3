//! Shows a message on the screen when a call failed, was blocked or was denied.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, Layer, LayerCapabilities, Next, Outcome, SettledOutcome, Status, Suspension,
    ToastAction, ToastLevel, ToastNotice,
};

use crate::{
    BadOption, Configurable, HumanDuration, Resources, Toast,
    record::receipts::sanitize::truncate_text,
};

/// Reports a short message for each call that did not succeed, as the event `tool_toast`.
///
/// Screens show it, with an action that shows the call. A [`ToastManager`](crate::ToastManager) that
/// is given the events of a session lists the messages. The model notices nothing. A failure is an error, a blocked or denied call a warning; a success
/// or a dry run shows nothing. A suspended call is shown once, when it settles. The message is the
/// text that the model read, truncated; arguments are never shown.
///
/// ```
/// use toolgate_core::Stack;
/// use toolgate_layers::Toasts;
/// use toolgate_testkit::echo;
///
/// let stack = Stack::over(echo()).layer(Toasts::new()).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Toasts {
    options: ToastsOptions,
}

/// The options of [`Toasts`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToastsOptions {
    /// Levels by status that replace the default ones; `off` shows nothing.
    pub levels: BTreeMap<Status, ToastLevelOption>,
    /// If true, successful calls are shown too.
    pub on_success: bool,
    /// If true, calls that wait for a decision or a result are shown too.
    pub on_suspended: bool,
    /// The time a message stays.
    pub duration: HumanDuration,
}

impl Default for ToastsOptions {
    fn default() -> Self {
        let levels = BTreeMap::new();
        let duration = Toast::DURATION.into();
        Self {
            levels,
            on_success: false,
            on_suspended: false,
            duration,
        }
    }
}

/// The level of a message, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToastLevelOption {
    /// No message.
    Off,
    /// An information.
    Info,
    /// A success.
    Success,
    /// A blocked or denied call.
    Warning,
    /// A failure.
    Error,
}

impl Toasts {
    /// The most characters of one message.
    const MOST: usize = 200;

    /// Creates a layer with the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the options.
    pub fn with_options(mut self, options: ToastsOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns the level for a status; `None` shows nothing.
    fn level_for(&self, status: Status) -> Option<ToastLevel> {
        match self
            .options
            .levels
            .get(&status)
            .copied()
            .unwrap_or_else(|| default_level(status, self.options.on_success))
        {
            ToastLevelOption::Off => None,
            ToastLevelOption::Info => Some(ToastLevel::Info),
            ToastLevelOption::Success => Some(ToastLevel::Success),
            ToastLevelOption::Warning => Some(ToastLevel::Warning),
            ToastLevelOption::Error => Some(ToastLevel::Error),
        }
    }

    /// Reports a message about a call.
    fn show_toast(&self, call: &Call, level: ToastLevel, text: &str) {
        let duration = self.options.duration.get().as_millis();
        let toast = ToastNotice {
            level,
            title: call.tool.to_string(),
            message: text.to_owned(),
            duration_ms: u64::try_from(duration).ok(),
            action: Some(ToastAction::show_call(call.id)),
        };
        call.env().probe().show_toast(call, toast);
    }
}

/// Returns the text that the model read, truncated. The runtime redacts it.
fn message_for(settled: &SettledOutcome) -> String {
    match &settled.error {
        Some(error) => truncate_text(&*error.model, Toasts::MOST).replace(char::is_control, " "),
        None => settled.status.text().to_owned(),
    }
}

impl Configurable for Toasts {
    const NAME: &'static str = "toasts";
    const SUMMARY: &'static str =
        "Shows a message on the screen when a call failed, was blocked or was denied.";
    type Options = ToastsOptions;

    fn configure(options: ToastsOptions, _: &Resources) -> Result<Self, BadOption> {
        if options.duration == HumanDuration::default() {
            return Err(BadOption::new(
                "duration",
                "a message that stays for 0s is never visible; set it to 5s for example",
            ));
        }
        Ok(Self { options })
    }
}

impl Layer for Toasts {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let outcome = next.run(call.clone()).await;
        // A rehearsal is not a real call: people should not see a failure that did not happen.
        if call.is_rehearsal() {
            return outcome;
        }
        match &outcome {
            Outcome::Settled(settled) => {
                if let Some(level) = self.level_for(settled.status) {
                    self.show_toast(&call, level, &message_for(settled));
                }
            }
            Outcome::Suspended(waits_for) if self.options.on_suspended => {
                let text = match **waits_for {
                    Suspension::Decision(_) => "waiting for approval",
                    Suspension::Result => "waiting for an external result",
                };
                self.show_toast(&call, ToastLevel::Info, text);
            }
            Outcome::Suspended(_) => {}
        }
        outcome
    }

    fn waits_for_outcome(&self, _: &Call) -> bool {
        true
    }

    fn wants_outcome(&self, _: &Call, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Settled(settled) => self.level_for(settled.status).is_some(),
            Outcome::Suspended(_) => self.options.on_suspended,
        }
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).recording()
    }
}

/// Returns the default level of a status.
fn default_level(status: Status, on_success: bool) -> ToastLevelOption {
    match status {
        Status::Ok if on_success => ToastLevelOption::Success,
        Status::Ok | Status::DryRun => ToastLevelOption::Off,
        Status::Cancelled => ToastLevelOption::Info,
        Status::Denied
        | Status::Expired
        | Status::Blocked
        | Status::OutOfScope
        | Status::RateLimited
        | Status::BudgetExceeded
        | Status::LoopGuard => ToastLevelOption::Warning,
        Status::ToolNotFound
        | Status::SchemaViolation
        | Status::ExecutorError
        | Status::Timeout
        | Status::OutcomeUnknown
        | Status::Redacted
        | Status::Exception
        | Status::LayerException => ToastLevelOption::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::{CallError, CallSeed, ErrorCategory, ErrorStatus, Failure, Refusal, Stack};
    use toolgate_testkit::{FakeExecutor, ReportProbe, run_twice, seed};

    async fn after(layer: Toasts, outcome: Outcome) -> Vec<ToastNotice> {
        let probe = ReportProbe::new();
        let stack = Stack::over(FakeExecutor::new().then(outcome))
            .layer(layer)
            .build()
            .expect("in order");
        let seed = probe.attach(seed("deploy", json!({ "password": "hunter2" })));
        stack.run(Call::new(seed)).await;
        probe.toasts()
    }

    fn plain() -> Toasts {
        Toasts::new()
    }

    #[tokio::test]
    async fn every_status_has_its_level() {
        for status in Status::ALL {
            let outcome = match ErrorStatus::from_status(status) {
                Some(failed) => {
                    let category = ErrorCategory::for_status(status);
                    Outcome::error(failed, CallError::new(category, "why"))
                }
                None => Outcome::ok("why"),
            };
            let shown = after(plain(), outcome).await;
            let levels: Vec<_> = shown.iter().map(|toast| toast.level).collect();
            let expected = match status {
                Status::Ok | Status::DryRun => vec![],
                Status::Cancelled => vec![ToastLevel::Info],
                status if status.is_refusal() => vec![ToastLevel::Warning],
                _ => vec![ToastLevel::Error],
            };
            assert_eq!(levels, expected, "{status}");
        }
    }

    #[tokio::test]
    async fn a_message_has_the_tool_and_the_text_for_the_model_but_no_argument() {
        let error = CallError::new(ErrorCategory::Internal, "it\nfailed")
            .with_operator_detail("postgres://u:pw@db");
        let shown = after(plain(), Outcome::error(Failure::ExecutorError, error)).await;
        assert_eq!(
            (shown[0].title.as_str(), shown[0].message.as_str()),
            ("deploy", "it failed")
        );
        assert!(!format!("{shown:?}").contains("hunter2"));
        assert!(!format!("{shown:?}").contains("postgres"));
        let action = shown[0].action.as_ref().expect("it can be looked at");
        assert_eq!(action.shown_call(), Some(seed("deploy", json!({})).id));
    }

    #[tokio::test]
    async fn a_long_message_is_truncated_between_characters() {
        let shown = after(
            plain(),
            Outcome::refused(Refusal::Blocked, "ä".repeat(5000)),
        )
        .await;
        assert_eq!(shown[0].message.chars().count(), 200);
        assert!(shown[0].message.ends_with('…'));
    }

    #[tokio::test]
    async fn success_is_shown_only_if_configured_and_levels_can_be_changed() {
        assert!(after(plain(), Outcome::ok("fine")).await.is_empty());
        let options = ToastsOptions {
            on_success: true,
            levels: [
                (Status::Denied, ToastLevelOption::Off),
                (Status::Timeout, ToastLevelOption::Info),
            ]
            .into(),
            ..ToastsOptions::default()
        };
        let with = || plain().with_options(options.clone());
        let shown = after(with(), Outcome::ok("the answer is hunter2")).await;
        assert_eq!(
            (shown[0].level, shown[0].message.as_str()),
            (ToastLevel::Success, "done")
        );
        assert!(after(with(), Outcome::denied(None)).await.is_empty());
        assert_eq!(
            after(with(), Outcome::failed_with(Failure::Timeout, "late")).await[0].level,
            ToastLevel::Info
        );
    }

    #[tokio::test]
    async fn a_suspended_call_is_shown_once_when_it_settles() {
        let probe = ReportProbe::new();
        let options = ToastsOptions {
            on_success: true,
            ..ToastsOptions::default()
        };
        let layer = plain().with_options(options.clone());
        run_twice(layer, probe.attach(seed("deploy", json!({}))))
            .await
            .assert_replays();
        assert_eq!(probe.toasts().len(), 1);
        let layer = plain().with_options(ToastsOptions {
            on_suspended: true,
            on_success: false,
            ..options
        });
        run_twice(layer, probe.attach(seed("deploy", json!({}))))
            .await
            .assert_replays();
        assert_eq!(probe.toasts()[1].message, "waiting for approval");
    }

    #[tokio::test]
    async fn a_rehearsal_shows_nothing() {
        let probe = ReportProbe::new();
        let refuse = toolgate_core::from_fn(async |_, _| Outcome::denied(None));
        let stack = Stack::over(FakeExecutor::new())
            .layer(plain())
            .layer(refuse)
            .build()
            .expect("in order");
        let seed = probe.attach(seed("deploy", json!({})));
        let rehearsal = CallSeed {
            rehearsal: true,
            ..seed.clone()
        };
        stack.run(Call::new(rehearsal)).await;
        assert!(probe.toasts().is_empty());
        stack.run(Call::new(seed)).await;
        assert_eq!(probe.toasts().len(), 1);
    }

    #[test]
    fn a_misspelt_word_or_a_duration_of_zero_is_rejected() {
        let read = |text: &str| serde_json::from_str::<ToastsOptions>(text);
        assert!(read(r#"{"levels":{"consent_denied":"warning"},"duration":"3s"}"#).is_ok());
        for bad in [
            r#"{"levels":{"denied":"warning"}}"#,
            r#"{"levels":{"ok":"loud"}}"#,
            r#"{"on_sucess":true}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let options = ToastsOptions {
            duration: HumanDuration::default(),
            ..ToastsOptions::default()
        };
        assert_eq!(
            Toasts::configure(options, &Resources::new())
                .expect_err("0s")
                .key,
            "duration"
        );
    }
}
