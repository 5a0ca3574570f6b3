//! Tells people on the screen that a call failed or was refused.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Band, Call, Layer, LayerTraits, Next, Outcome, Settled, Status, Suspension};

use crate::{
    BadOption, Configurable, Parts, SharedRedactor, Span, Toast, ToastLevel, ToastManager,
};

/// Shows a short message for each call that did not go well.
///
/// The model notices nothing. A failure is an error, a refusal a warning, and what went well or was only pretended
/// needs no words. A call that suspends and comes back is told once, when it has settled. The message is what the
/// model was told, shortened; arguments are never shown.
///
/// ```
/// use toolgate_core::Stack;
/// use toolgate_layers::{ToastManager, Toasts};
/// use toolgate_testkit::echo;
///
/// let manager = ToastManager::new();
/// let stack = Stack::over(echo()).layer(Toasts::new(manager.clone())).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Toasts {
    manager: ToastManager,
    redactor: Option<SharedRedactor>,
    options: ToastsOptions,
}

/// What can be set for [`Toasts`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToastsOptions {
    /// Levels by status, in place of the usual ones; `off` shows nothing.
    pub levels: BTreeMap<Status, ToastsLevel>,
    /// Whether a call that went well is shown too.
    pub on_success: bool,
    /// Whether a call that waits for a decision or a result is shown too.
    pub on_suspended: bool,
    /// How long a message stays.
    pub duration: Span,
}

impl Default for ToastsOptions {
    fn default() -> Self {
        let (levels, duration) = (BTreeMap::new(), Toast::DURATION.into());
        Self {
            levels,
            on_success: false,
            on_suspended: false,
            duration,
        }
    }
}

/// The level of a message, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToastsLevel {
    /// Show nothing.
    Off,
    /// Good to know.
    Info,
    /// It worked.
    Success,
    /// Something was refused.
    Warning,
    /// Something went wrong.
    Error,
}

impl Toasts {
    /// The most characters of one message.
    const MOST: usize = 200;

    /// Shows messages in `manager`.
    pub fn new(manager: ToastManager) -> Self {
        Self {
            manager,
            redactor: None,
            options: ToastsOptions::default(),
        }
    }

    /// Sets what can be set.
    pub fn with_options(mut self, options: ToastsOptions) -> Self {
        self.options = options;
        self
    }

    /// Takes secrets out of what is shown.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    fn level(&self, status: Status) -> Option<ToastLevel> {
        match self
            .options
            .levels
            .get(&status)
            .copied()
            .unwrap_or_else(|| usual(status, self.options.on_success))
        {
            ToastsLevel::Off => None,
            ToastsLevel::Info => Some(ToastLevel::Info),
            ToastsLevel::Success => Some(ToastLevel::Success),
            ToastsLevel::Warning => Some(ToastLevel::Warning),
            ToastsLevel::Error => Some(ToastLevel::Error),
        }
    }

    fn show(&self, call: &Call, level: ToastLevel, text: &str) {
        let toast = Toast::new(level, call.tool.as_str(), text, call.env().clock().now());
        self.manager
            .show(toast.lasting(Some(self.options.duration.get())));
    }

    /// What went wrong, as the model was told, safe and short.
    fn said(&self, settled: &Settled) -> String {
        let Some(error) = &settled.error else {
            return if settled.status == Status::Ok {
                "done".to_owned()
            } else {
                settled.status.to_string()
            };
        };
        let safe = match &self.redactor {
            // The whole text and then shortened: half a secret would not be recognised.
            Some(redactor) => redactor.text(&error.model),
            None => Some(error.model.clone()),
        };
        let Some(safe) = safe else {
            return format!("{} (details withheld)", settled.status);
        };
        let line: String = clipped(&safe, Self::MOST)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        if line.len() < safe.len() {
            line + "…"
        } else {
            line
        }
    }
}

impl Configurable for Toasts {
    const NAME: &'static str = "toasts";
    const SUMMARY: &'static str = "Tells people on the screen that a call failed or was refused.";
    type Options = ToastsOptions;

    fn configure(options: ToastsOptions, parts: &Parts) -> Result<Self, BadOption> {
        if options.duration == Span::default() {
            return Err(BadOption::new(
                "duration",
                "a message that stays for 0s is never seen; try 5s",
            ));
        }
        Ok(Self {
            manager: parts.get_or_default(),
            redactor: parts.get(),
            options,
        })
    }
}

impl Layer for Toasts {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let outcome = next.run(call.clone()).await;
        if call.is_rehearsal() {
            return outcome;
        }
        match &outcome {
            Outcome::Settled(settled) => {
                if let Some(level) = self.level(settled.status) {
                    self.show(&call, level, &self.said(settled));
                }
            }
            Outcome::Suspended(waits_for) if self.options.on_suspended => {
                let text = match **waits_for {
                    Suspension::Decision(_) => "waits for a decision",
                    Suspension::Result => "waits for a result from outside",
                };
                self.show(&call, ToastLevel::Info, text);
            }
            Outcome::Suspended(_) => {}
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).recording()
    }
}

/// The level of a status that no option speaks about.
fn usual(status: Status, on_success: bool) -> ToastsLevel {
    match status {
        Status::Ok if on_success => ToastsLevel::Success,
        Status::Ok | Status::DryRun => ToastsLevel::Off,
        Status::Cancelled => ToastsLevel::Info,
        Status::Denied
        | Status::Expired
        | Status::Blocked
        | Status::OutOfScope
        | Status::RateLimited
        | Status::BudgetExceeded
        | Status::LoopGuard => ToastsLevel::Warning,
        Status::ToolNotFound
        | Status::SchemaViolation
        | Status::ExecutorError
        | Status::Timeout
        | Status::OutcomeUnknown
        | Status::Redacted
        | Status::Exception
        | Status::LayerException => ToastsLevel::Error,
    }
}

/// The first `most` characters.
fn clipped(text: &str, most: usize) -> &str {
    text.char_indices()
        .nth(most)
        .map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::{
        CallError, CallSeed, ErrorCategory, Json, RedactionFailed, Redactor, Stack,
    };
    use toolgate_testkit::{Scripted, call, call_with, run_twice, seed};

    async fn after(layer: Toasts, outcome: Outcome) -> Vec<Toast> {
        let manager = layer.manager.clone();
        let stack = Stack::over(Scripted::new().then(outcome))
            .layer(layer)
            .build()
            .expect("in order");
        stack
            .run(call_with("deploy", json!({ "password": "hunter2" })))
            .await;
        manager.current()
    }

    fn plain() -> Toasts {
        Toasts::new(ToastManager::new())
    }

    #[tokio::test]
    async fn every_status_has_its_level() {
        for status in Status::ALL {
            let shown = after(plain(), Outcome::refused(status, "why")).await;
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
    async fn a_message_names_the_tool_and_what_the_model_was_told_but_no_argument() {
        let error = CallError::new(ErrorCategory::Internal, "it\nfailed")
            .with_operator("postgres://u:pw@db");
        let shown = after(plain(), Outcome::error(Status::ExecutorError, error)).await;
        assert_eq!(
            (shown[0].title.as_str(), shown[0].message.as_str()),
            ("deploy", "it failed")
        );
        assert!(!format!("{shown:?}").contains("hunter2"));
        assert!(!format!("{shown:?}").contains("postgres"));
    }

    #[tokio::test]
    async fn a_long_message_is_cut_on_a_character() {
        let shown = after(plain(), Outcome::refused(Status::Blocked, "ä".repeat(5000))).await;
        assert_eq!(shown[0].message.chars().count(), 201);
        assert!(shown[0].message.ends_with('…'));
    }

    #[tokio::test]
    async fn success_is_shown_only_when_asked_for_and_levels_can_be_changed() {
        assert!(after(plain(), Outcome::ok("fine")).await.is_empty());
        let options = ToastsOptions {
            on_success: true,
            levels: [
                (Status::Denied, ToastsLevel::Off),
                (Status::Timeout, ToastsLevel::Info),
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
            after(with(), Outcome::refused(Status::Timeout, "late")).await[0].level,
            ToastLevel::Info
        );
    }

    #[tokio::test]
    async fn a_call_that_suspends_is_shown_once_when_it_settles() {
        let manager = ToastManager::new();
        let options = ToastsOptions {
            on_success: true,
            ..ToastsOptions::default()
        };
        let layer = Toasts::new(manager.clone()).with_options(options.clone());
        run_twice(layer, seed("deploy", json!({})))
            .await
            .assert_replays();
        assert_eq!(manager.current().len(), 1);
        let layer = Toasts::new(manager.clone()).with_options(ToastsOptions {
            on_suspended: true,
            on_success: false,
            ..options
        });
        run_twice(layer, seed("deploy", json!({})))
            .await
            .assert_replays();
        assert_eq!(manager.current()[1].message, "waits for a decision");
    }

    #[tokio::test]
    async fn a_rehearsal_shows_nothing() {
        let layer = plain();
        let manager = layer.manager.clone();
        let refuse = toolgate_core::from_fn(async |_, _| Outcome::denied(None));
        let stack = Stack::over(Scripted::new())
            .layer(layer)
            .layer(refuse)
            .build()
            .expect("in order");
        stack
            .run(Call::new(CallSeed {
                rehearsal: true,
                ..seed("deploy", json!({}))
            }))
            .await;
        assert!(manager.current().is_empty());
        stack.run(call("deploy")).await;
        assert_eq!(manager.current().len(), 1);
    }

    #[tokio::test]
    async fn secrets_are_taken_out_or_the_message_is_withheld() {
        struct Censor;
        impl Redactor for Censor {
            fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
                Ok(value.clone())
            }
            fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
                if text.contains("poison") {
                    Err(RedactionFailed)
                } else {
                    Ok(text.replace("s3cret", "***"))
                }
            }
        }
        let layer = || plain().redactor(SharedRedactor::new(Censor));
        let said = async |text: &str| {
            after(layer(), Outcome::refused(Status::Blocked, text))
                .await
                .remove(0)
                .message
        };
        assert_eq!(said("no s3cret here").await, "no *** here");
        assert_eq!(
            said("poison s3cret").await,
            "policy_blocked (details withheld)"
        );
    }

    #[test]
    fn a_misspelt_word_or_a_duration_of_nothing_is_refused() {
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
            duration: Span::default(),
            ..ToastsOptions::default()
        };
        assert_eq!(
            Toasts::configure(options, &Parts::new())
                .expect_err("0s")
                .key,
            "duration"
        );
    }
}
