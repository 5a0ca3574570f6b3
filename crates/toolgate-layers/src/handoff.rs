//! Recognises that a tool hands its work over to somebody else.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Json, Layer, LayerTraits, Next, Outcome, Settled, Status,
    contained_sync,
};

use crate::{
    BadOption, Configurable, HandoffRecord, Parts, SharedRedactor, handoff_record::Unreadable,
};

/// Finds a handoff in the result of a call, notes it in one shape, and passes it to a sink.
///
/// A result carries a handoff if it is an object with one of the keys (`__handoff` or `handoff`), or if a function of the
/// program finds one. The model reads the result as it is; the record is noted as `handoff`. A handoff that cannot be read
/// is noted as `handoff_error`, or with `strict` turns the call into an error. The sink is told once per call, however
/// often the call comes back, and not about a result that is only remembered from an earlier call.
///
/// A key is all it takes, so a page that a tool has fetched can pretend to be a handoff. Restrict the layer to the tools
/// that really hand over: with `on`, in a program (see [`LayerExt`](toolgate_core::LayerExt)) as in a configuration
/// file.
///
/// ```
/// use toolgate_core::{LayerExt, Matcher, Stack};
/// use toolgate_layers::Handoff;
/// use toolgate_testkit::echo;
///
/// let handoff = Handoff::new().sink(|record, _call| println!("{} takes over: {}", record.target, record.task));
/// let stack = Stack::over(echo()).layer(handoff.on(Matcher::name("delegate"))).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Clone)]
pub struct Handoff {
    options: HandoffOptions,
    detect: Option<Detect>,
    sink: Option<HandoffSink>,
    redactor: Option<SharedRedactor>,
}

type Detect = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

/// Is told about handoffs; a program puts one into its parts.
#[derive(Clone)]
pub struct HandoffSink(Arc<Sink>);

type Sink = dyn Fn(&HandoffRecord, &Call) + Send + Sync;

/// What can be set for [`Handoff`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HandoffOptions {
    /// Under which keys of a result a handoff is looked for, first one first.
    pub keys: Vec<String>,
    /// Who hands over, if the tool does not say so.
    pub source: Option<String>,
    /// Whether a handoff that cannot be read makes the call an error.
    pub strict: bool,
}

impl Default for HandoffOptions {
    fn default() -> Self {
        Self {
            keys: vec!["__handoff".to_owned(), "handoff".to_owned()],
            source: None,
            strict: false,
        }
    }
}

impl Handoff {
    /// Looks for handoffs as by default.
    pub fn new() -> Self {
        Self {
            options: HandoffOptions::default(),
            detect: None,
            sink: None,
            redactor: None,
        }
    }

    /// Sets what can be set, if it makes sense.
    pub fn with_options(mut self, options: HandoffOptions) -> Result<Self, BadOption> {
        if options.keys.is_empty() || options.keys.iter().any(String::is_empty) {
            return Err(BadOption::new(
                "keys",
                "has to name at least one key, such as handoff",
            ));
        }
        self.options = options;
        Ok(self)
    }

    /// Tells `sink` about each handoff, once per call.
    pub fn sink(mut self, sink: impl Fn(&HandoffRecord, &Call) + Send + Sync + 'static) -> Self {
        self.sink = Some(HandoffSink::new(sink));
        self
    }

    /// Asks `detect` for the handoff in a result before the keys are tried.
    pub fn detect(
        mut self,
        detect: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        self.detect = Some(Arc::new(detect));
        self
    }

    /// Takes secrets out of what is noted and passed on.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// The handoff in a result, if there is one.
    fn found(&self, value: &Json) -> Result<Option<Value>, Unreadable> {
        if let Some(detect) = &self.detect {
            let broken = |report| Unreadable::because("could not be looked for", report);
            if let Some(found) = contained_sync(|| detect(value)).map_err(broken)? {
                return Ok(Some(found));
            }
        }
        let keyed = self.options.keys.iter().find_map(|key| value.get(key));
        Ok(keyed.filter(|payload| !payload.is_null()).cloned())
    }

    fn read(&self, call: &Call, value: &Json) -> Result<Option<HandoffRecord>, Unreadable> {
        let Some(payload) = self.found(value)? else {
            return Ok(None);
        };
        let payload =
            Json::new(payload).map_err(|error| Unreadable::because("is malformed", error))?;
        let payload = match &self.redactor {
            Some(redactor) => redactor
                .json(&payload)
                .ok_or_else(|| Unreadable::plain("could not be redacted"))?,
            None => payload,
        };
        let record = HandoffRecord::read(&payload, call.id)?;
        Ok(Some(record.handed_over_by(self.options.source.as_deref())))
    }

    /// Tells the sink, unless it has been told about this call.
    async fn tell(
        &self,
        call: &Call,
        next: &Next,
        record: &HandoffRecord,
    ) -> Result<(), &'static str> {
        let Some(HandoffSink(sink)) = &self.sink else {
            return Ok(());
        };
        let told = next.once(call, "sink", || async {
            let told = contained_sync(|| sink(record, call)).is_ok();
            Json::new(told.into()).unwrap_or_else(|_| Json::null())
        });
        match told.await.map(|told| told.as_bool()) {
            Ok(Some(true)) => Ok(()),
            Ok(_) => Err("the sink failed"),
            Err(_) => Err("it is not known whether the sink was told"),
        }
    }

    fn unreadable(&self, settled: &mut Settled, problem: Unreadable) {
        let text = format!("the handoff {}", problem.model);
        if self.options.strict {
            let mut error = CallError::new(
                ErrorCategory::Internal,
                format!("The tool ran, but {text}."),
            );
            error.operator = problem.operator;
            (settled.status, settled.error, settled.text) =
                (Status::ExecutorError, Some(error), None);
        }
        settled
            .notes
            .edit()
            .metadata
            .insert("handoff_error".into(), text.into());
    }
}

impl Default for Handoff {
    fn default() -> Self {
        Self::new()
    }
}

impl HandoffSink {
    /// Makes a sink of a function.
    pub fn new(sink: impl Fn(&HandoffRecord, &Call) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }
}

impl Configurable for Handoff {
    const NAME: &'static str = "handoff";
    const SUMMARY: &'static str = "Recognises that a tool hands its work over to somebody else.";
    type Options = HandoffOptions;

    fn configure(options: HandoffOptions, parts: &Parts) -> Result<Self, BadOption> {
        Ok(Self {
            sink: parts.get(),
            redactor: parts.get(),
            ..Self::new().with_options(options)?
        })
    }
}

impl Layer for Handoff {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let mut outcome = next.clone().run(call.clone()).await;
        let Some(settled) = outcome
            .settled_mut()
            .filter(|settled| settled.status == Status::Ok)
        else {
            return outcome;
        };
        match self.read(&call, &settled.value) {
            Ok(None) => {}
            Ok(Some(record)) => {
                next.because("the result hands work over");
                let noted = serde_json::to_value(&record).unwrap_or_default();
                settled
                    .notes
                    .edit()
                    .metadata
                    .insert("handoff".into(), noted);
                if !settled.cached
                    && !call.is_rehearsal()
                    && let Err(problem) = self.tell(&call, &next, &record).await
                {
                    settled
                        .notes
                        .edit()
                        .metadata
                        .insert("handoff_error".into(), problem.into());
                }
            }
            Err(problem) => {
                next.because("the handoff in the result cannot be read");
                self.unreadable(settled, problem);
            }
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn traits(&self) -> LayerTraits {
        let traits = LayerTraits::of(Self::NAME);
        if self.redactor.is_some() {
            traits
        } else {
            traits.recording()
        }
    }
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HandoffSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandoffSink")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Mutex;
    use toolgate_core::{CallSeed, RedactionFailed, Redactor, Stack};
    use toolgate_testkit::{Scripted, call, call_with, run_twice, seed};

    type Told = Arc<Mutex<Vec<HandoffRecord>>>;

    fn telling() -> (Handoff, Told) {
        let told = Told::default();
        let kept = told.clone();
        (
            Handoff::new().sink(move |record, _| kept.lock().expect("whole").push(record.clone())),
            told,
        )
    }

    fn strict() -> Handoff {
        Handoff::new()
            .with_options(HandoffOptions {
                strict: true,
                ..HandoffOptions::default()
            })
            .expect("fine")
    }

    async fn through(layer: Handoff, outcome: impl Into<Outcome>) -> Settled {
        let stack = Stack::over(Scripted::new().then(outcome.into()))
            .layer(layer)
            .build()
            .expect("in order");
        stack
            .run(call("ask"))
            .await
            .settled()
            .expect("settled")
            .clone()
    }

    fn noted(settled: &Settled, key: &str) -> Value {
        settled
            .notes
            .fields()
            .and_then(|notes| notes.metadata.get(key))
            .cloned()
            .unwrap_or_default()
    }

    #[tokio::test]
    async fn a_handoff_is_brought_into_one_shape_noted_and_passed_on() {
        let (layer, told) = telling();
        let source = Some("captain".to_owned());
        let layer = layer
            .with_options(HandoffOptions {
                source,
                ..HandoffOptions::default()
            })
            .expect("fine");
        let result = json!({ "answer": 1, "handoff": { "to": "reviewer", "reason": "look at it", "artifacts": ["a.rs"],
            "policy_override": { "allowed_tools": ["read_file"] } } });
        let settled = through(layer, Outcome::ok(result.clone())).await;
        let id = seed("ask", json!({})).id;
        let expected = json!({ "schema_version": 1, "source_persona": "captain", "target": "reviewer",
            "task": "look at it", "artifacts": ["a.rs"], "policy_override": { "allowed_tools": ["read_file"] },
            "call_id": id });
        assert_eq!(noted(&settled, "handoff"), expected);
        assert_eq!(
            (settled.status, settled.value.as_value()),
            (Status::Ok, &result),
            "the model reads what there was"
        );
        assert_eq!(told.lock().expect("whole")[0].target, "reviewer");
    }

    #[tokio::test]
    async fn a_handoff_that_cannot_be_read_is_noted_or_with_strict_an_error() {
        for bad in [
            json!("reviewer"),
            json!({ "target": "reviewer" }),
            json!({ "target": " ", "task": "x" }),
            json!({ "target": "a", "task": "x", "schema_version": 2 }),
            json!({ "target": "a", "task": "x", "policy_override": { "allow_everything": "hunter2" } }),
        ] {
            let result = || Outcome::ok(json!({ "__handoff": bad }));
            let (layer, told) = telling();
            let settled = through(layer, result()).await;
            assert_eq!(settled.status, Status::Ok);
            assert!(noted(&settled, "handoff_error").is_string(), "{bad}");
            assert!(told.lock().expect("whole").is_empty(), "{bad}");
            let settled = through(strict(), result()).await;
            assert_eq!(settled.status, Status::ExecutorError, "{bad}");
            assert!(
                settled
                    .model_text()
                    .starts_with("The tool ran, but the handoff"),
                "{bad}"
            );
            assert!(!settled.model_text().contains("hunter2"));
        }
    }

    #[tokio::test]
    async fn a_result_without_a_handoff_passes_untouched() {
        for result in [
            json!({ "answer": 1 }),
            json!({ "handoff": null }),
            json!("handoff"),
            json!(["handoff"]),
        ] {
            let settled = through(strict(), Outcome::ok(result.clone())).await;
            assert_eq!(
                (settled.status, settled.value.as_value()),
                (Status::Ok, &result)
            );
        }
        let failed = Outcome::from(failed_with(
            json!({ "handoff": { "target": "a", "task": "b" } }),
        ));
        assert_eq!(
            noted(&through(Handoff::new(), failed).await, "handoff"),
            Value::Null,
            "it did not happen"
        );
    }

    fn failed_with(value: Value) -> Settled {
        let mut settled = Settled::new(Status::ExecutorError);
        settled.value = Json::new(value).expect("flat");
        settled
    }

    #[tokio::test]
    async fn the_sink_is_told_once_per_call() {
        let (layer, told) = telling();
        let arguments = json!({ "handoff": { "target": "a", "task": "b" } });
        run_twice(layer.clone(), seed("ask", arguments.clone()))
            .await
            .assert_replays();
        assert_eq!(told.lock().expect("whole").len(), 1);
        let again = toolgate_core::from_fn(async |call: Call, next: Next| {
            next.clone().run(call.clone()).await;
            next.run(call).await
        });
        let stack = Stack::over(Scripted::new())
            .layer(again)
            .layer(layer)
            .build()
            .expect("in order");
        stack.run(call_with("ask", arguments)).await;
        assert_eq!(told.lock().expect("whole").len(), 2);
    }

    #[tokio::test]
    async fn a_remembered_result_or_a_rehearsal_hands_nothing_over() {
        let (layer, told) = telling();
        let mut cached = failed_with(json!({ "handoff": { "target": "a", "task": "b" } }));
        (cached.status, cached.cached) = (Status::Ok, true);
        let settled = through(layer.clone(), cached.clone()).await;
        assert_eq!(noted(&settled, "handoff")["target"], "a");
        cached.cached = false;
        let remember =
            toolgate_core::from_fn(move |_, _| std::future::ready(Outcome::from(cached.clone())));
        let stack = Stack::over(Scripted::new())
            .layer(layer)
            .layer(remember)
            .build()
            .expect("in order");
        stack
            .run(Call::new(CallSeed {
                rehearsal: true,
                ..seed("ask", json!({}))
            }))
            .await;
        assert!(told.lock().expect("whole").is_empty());
        stack.run(call("ask")).await;
        assert_eq!(told.lock().expect("whole").len(), 1);
    }

    #[tokio::test]
    async fn functions_of_the_program_may_find_handoffs_and_may_panic() {
        let found = |value: &Value| value.pointer("/deep/down").cloned();
        let result = || Outcome::ok(json!({ "deep": { "down": { "target": "a", "task": "b" } } }));
        assert_eq!(
            noted(
                &through(Handoff::new().detect(found), result()).await,
                "handoff"
            )["target"],
            "a"
        );
        let settled = through(Handoff::new().detect(|_| panic!("hunter2")), result()).await;
        assert_eq!(
            (settled.status, noted(&settled, "handoff_error").is_string()),
            (Status::Ok, true)
        );
        let settled = through(
            Handoff::new().detect(found).sink(|_, _| panic!("hunter2")),
            result(),
        )
        .await;
        assert_eq!(
            (settled.status, noted(&settled, "handoff_error")),
            (Status::Ok, json!("the sink failed"))
        );
    }

    #[tokio::test]
    async fn what_is_noted_and_passed_on_is_redacted_or_withheld() {
        struct Censor;
        impl Redactor for Censor {
            fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
                let text = value.to_string();
                if text.contains("poison") {
                    return Err(RedactionFailed);
                }
                text.replace("s3cret", "***")
                    .parse()
                    .map_err(|_| RedactionFailed)
            }
            fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
                Ok(text.to_owned())
            }
        }
        let (layer, told) = telling();
        let layer = layer.redactor(SharedRedactor::new(Censor));
        let result =
            |task: &str| Outcome::ok(json!({ "handoff": { "target": "a", "task": task } }));
        assert_eq!(
            noted(&through(layer.clone(), result("s3cret")).await, "handoff")["task"],
            "***"
        );
        let settled = through(layer, result("s3cret poison")).await;
        assert_eq!(
            noted(&settled, "handoff_error"),
            "the handoff could not be redacted"
        );
        assert_eq!(
            told.lock()
                .expect("whole")
                .iter()
                .map(|record| record.task.as_str())
                .collect::<Vec<_>>(),
            ["***"]
        );
    }

    #[test]
    fn no_key_to_look_for_is_refused() {
        for keys in [vec![], vec![String::new()]] {
            let options = HandoffOptions {
                keys,
                ..HandoffOptions::default()
            };
            assert_eq!(
                Handoff::configure(options, &Parts::new())
                    .expect_err("no key")
                    .key,
                "keys"
            );
        }
    }
}
