//! Detects that a tool hands its work over to another agent or a person.

pub(crate) mod record;

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Json, Layer, LayerCapabilities, Next, Outcome,
    SettledOutcome, Status, note_keys, run_contained_sync,
};

use crate::{
    BadOption, Configurable, HandoffRecord, Resources, SharedRedactor,
    shape::handoff::record::InvalidHandoff,
};

/// A layer that detects a handoff in the result of a call, notes it in one format, and passes it to
/// a sink.
///
/// A result contains a handoff if it is an object with one of the keys (`__handoff` or `handoff`),
/// or if a function of the program finds one. The model reads the result unchanged; the record is
/// noted as `handoff`. An invalid handoff is noted as `handoff_error`, or with `strict` turns the
/// call into an error. The sink is called once per call, however often the call resumes, and not
/// for a cached result.
///
/// A key is enough, so a page that a tool has fetched can imitate a handoff. Restrict the layer to
/// the tools that really hand over: with `on`, in a program (see
/// [`LayerExt`](toolgate_core::LayerExt)) or in a configuration file.
///
/// If the target is an agent of the session, its work in the same run is done under the limits of
/// the handoff ([`PolicyOverride`](crate::PolicyOverride)). They can only tighten.
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
    detect: Option<HandoffDetector>,
    sink: Option<HandoffSink>,
    redactor: Option<SharedRedactor>,
}

type HandoffDetector = Arc<dyn Fn(&Value) -> Option<Value> + Send + Sync>;

/// A callback for handoffs; a program adds one to its resources.
#[derive(Clone)]
pub struct HandoffSink(Arc<HandoffSinkFn>);

type HandoffSinkFn = dyn Fn(&HandoffRecord, &Call) + Send + Sync;

/// Options of [`Handoff`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HandoffOptions {
    /// Keys of a result that may contain a handoff, in order of precedence.
    pub keys: Vec<String>,
    /// The source of the handoff, if the tool does not name one.
    pub source: Option<String>,
    /// True if an invalid handoff makes the call an error.
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
    /// Creates a layer with the default options.
    pub fn new() -> Self {
        Self {
            options: HandoffOptions::default(),
            detect: None,
            sink: None,
            redactor: None,
        }
    }

    /// Sets the options, if they are valid.
    pub fn with_options(mut self, options: HandoffOptions) -> Result<Self, BadOption> {
        if options.keys.is_empty() || options.keys.iter().any(String::is_empty) {
            return Err(BadOption::new(
                "keys",
                "must name at least one key, such as handoff",
            ));
        }
        self.options = options;
        Ok(self)
    }

    /// Calls `sink` for each handoff, once per call.
    pub fn sink(mut self, sink: impl Fn(&HandoffRecord, &Call) + Send + Sync + 'static) -> Self {
        self.sink = Some(HandoffSink::new(sink));
        self
    }

    /// Calls `detect` to find the handoff in a result before the keys are tried.
    pub fn detect(
        mut self,
        detect: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        self.detect = Some(Arc::new(detect));
        self
    }

    /// Redacts the record before it is noted and passed on.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Returns the handoff in a result, if there is one.
    fn find_payload(&self, value: &Json) -> Result<Option<Value>, InvalidHandoff> {
        if let Some(detect) = &self.detect {
            let broken = |report| InvalidHandoff::because("could not be detected", report);
            if let Some(found) = run_contained_sync(|| detect(value)).map_err(broken)? {
                return Ok(Some(found));
            }
        }
        let keyed = self.options.keys.iter().find_map(|key| value.get(key));
        Ok(keyed.filter(|payload| !payload.is_null()).cloned())
    }

    fn read_record(
        &self,
        call: &Call,
        value: &Json,
    ) -> Result<Option<HandoffRecord>, InvalidHandoff> {
        let Some(payload) = self.find_payload(value)? else {
            return Ok(None);
        };
        let payload =
            Json::new(payload).map_err(|error| InvalidHandoff::because("is malformed", error))?;
        // Redacted before it is parsed, so that neither the notes nor the sink receive a secret.
        let payload = match &self.redactor {
            Some(redactor) => redactor
                .redacted_json(&payload)
                .ok_or_else(|| InvalidHandoff::plain("could not be redacted"))?,
            None => payload,
        };
        let record = HandoffRecord::from_payload(&payload, call.id)?;
        Ok(Some(
            record.with_default_source(self.options.source.as_deref()),
        ))
    }

    /// Calls the sink, unless it was called for this call before.
    async fn notify_sink(
        &self,
        call: &Call,
        next: &Next,
        record: &HandoffRecord,
    ) -> Result<(), &'static str> {
        let Some(HandoffSink(sink)) = &self.sink else {
            return Ok(());
        };
        // Recorded per call, so that a replay does not hand the work over twice.
        let told = next.perform_once(call, "sink", || async {
            let told = run_contained_sync(|| sink(record, call)).is_ok();
            Json::new(told.into()).unwrap_or_else(|_| Json::null())
        });
        match told.await.map(|told| told.as_bool()) {
            Ok(Some(true)) => Ok(()),
            Ok(_) => Err("the sink failed"),
            Err(_) => Err("it is unknown whether the sink was called"),
        }
    }

    fn note_invalid(&self, settled: &mut SettledOutcome, problem: InvalidHandoff) {
        let text = format!("the handoff {}", problem.model);
        if self.options.strict {
            let mut error = CallError::new(
                ErrorCategory::Internal,
                format!("The tool ran, but {text}."),
            );
            error.operator = problem.operator;
            settled.status = Status::ExecutorError;
            settled.error = Some(error);
            settled.text = None;
        }
        settled
            .notes
            .fields_mut()
            .insert(note_keys::HANDOFF_ERROR, &*text);
    }
}

impl Default for Handoff {
    fn default() -> Self {
        Self::new()
    }
}

impl HandoffSink {
    /// Creates a sink from a function.
    pub fn new(sink: impl Fn(&HandoffRecord, &Call) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }
}

impl Configurable for Handoff {
    const NAME: &'static str = "handoff";
    const SUMMARY: &'static str =
        "Detects that a tool hands its work over to another agent or a person.";
    type Options = HandoffOptions;

    fn configure(options: HandoffOptions, parts: &Resources) -> Result<Self, BadOption> {
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
        match self.read_record(&call, &settled.value) {
            Ok(None) => {}
            Ok(Some(record)) => {
                next.note_reason("the result hands work over");
                let notes = settled.notes.fields_mut();
                let noted = serde_json::to_value(&record).unwrap_or_default();
                notes.insert(note_keys::HANDOFF, &noted);
                // A cached result was handed over when it was first produced.
                if !settled.cached
                    && !call.is_rehearsal()
                    && let Err(problem) = self.notify_sink(&call, &next, &record).await
                {
                    notes.insert(note_keys::HANDOFF_ERROR, problem);
                }
            }
            Err(problem) => {
                next.note_reason("the handoff in the result is invalid");
                self.note_invalid(settled, problem);
            }
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn capabilities(&self) -> LayerCapabilities {
        let traits = LayerCapabilities::for_kind(Self::NAME);
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
    use toolgate_core::{CallSeed, RedactionError, Redactor, Stack};
    use toolgate_testkit::{FakeExecutor, call, call_with, run_twice, seed};

    type ReceivedRecords = Arc<Mutex<Vec<HandoffRecord>>>;

    fn recording_handoff() -> (Handoff, ReceivedRecords) {
        let told = ReceivedRecords::default();
        let kept = told.clone();
        (
            Handoff::new()
                .sink(move |record, _| kept.lock().expect("not poisoned").push(record.clone())),
            told,
        )
    }

    fn strict_handoff() -> Handoff {
        Handoff::new()
            .with_options(HandoffOptions {
                strict: true,
                ..HandoffOptions::default()
            })
            .expect("valid options")
    }

    async fn run_through(layer: Handoff, outcome: impl Into<Outcome>) -> SettledOutcome {
        let stack = Stack::over(FakeExecutor::new().then(outcome.into()))
            .layer(layer)
            .build()
            .expect("valid order");
        stack
            .run(call("ask"))
            .await
            .settled()
            .expect("settled")
            .clone()
    }

    fn noted_value(settled: &SettledOutcome, key: &str) -> Value {
        settled
            .notes
            .fields()
            .and_then(|notes| notes.metadata.get(key))
            .cloned()
            .unwrap_or_default()
    }

    #[tokio::test]
    async fn a_handoff_is_normalized_noted_and_passed_on() {
        let (layer, told) = recording_handoff();
        let source = Some("captain".to_owned());
        let layer = layer
            .with_options(HandoffOptions {
                source,
                ..HandoffOptions::default()
            })
            .expect("valid options");
        let result = json!({ "answer": 1, "handoff": { "to": "reviewer", "reason": "look at it", "artifacts": ["a.rs"],
            "policy_override": { "allowed_tools": ["read_file"] } } });
        let settled = run_through(layer, Outcome::ok(result.clone())).await;
        let id = seed("ask", json!({})).id;
        let expected = json!({ "schema_version": 1, "source_persona": "captain", "target": "reviewer",
            "task": "look at it", "artifacts": ["a.rs"], "policy_override": { "allowed_tools": ["read_file"] },
            "call_id": id });
        assert_eq!(noted_value(&settled, "handoff"), expected);
        assert_eq!(
            (settled.status, settled.value.as_value()),
            (Status::Ok, &result),
            "the model reads the result unchanged"
        );
        assert_eq!(told.lock().expect("not poisoned")[0].target, "reviewer");
    }

    #[tokio::test]
    async fn an_invalid_handoff_is_noted_or_with_strict_an_error() {
        for bad in [
            json!("reviewer"),
            json!({ "target": "reviewer" }),
            json!({ "target": " ", "task": "x" }),
            json!({ "target": "a", "task": "x", "schema_version": 2 }),
            json!({ "target": "a", "task": "x", "policy_override": { "allow_everything": "hunter2" } }),
        ] {
            let result = || Outcome::ok(json!({ "__handoff": bad }));
            let (layer, told) = recording_handoff();
            let settled = run_through(layer, result()).await;
            assert_eq!(settled.status, Status::Ok);
            assert!(noted_value(&settled, "handoff_error").is_string(), "{bad}");
            assert!(told.lock().expect("not poisoned").is_empty(), "{bad}");
            let settled = run_through(strict_handoff(), result()).await;
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
            let settled = run_through(strict_handoff(), Outcome::ok(result.clone())).await;
            assert_eq!(
                (settled.status, settled.value.as_value()),
                (Status::Ok, &result)
            );
        }
        let failed = Outcome::from(failed_with(
            json!({ "handoff": { "target": "a", "task": "b" } }),
        ));
        assert_eq!(
            noted_value(&run_through(Handoff::new(), failed).await, "handoff"),
            Value::Null,
            "a failed call hands nothing over"
        );
    }

    fn failed_with(value: Value) -> SettledOutcome {
        let mut settled = SettledOutcome::new(Status::ExecutorError);
        settled.value = Json::new(value).expect("flat");
        settled
    }

    #[tokio::test]
    async fn the_sink_is_called_once_per_call() {
        let (layer, told) = recording_handoff();
        let arguments = json!({ "handoff": { "target": "a", "task": "b" } });
        run_twice(layer.clone(), seed("ask", arguments.clone()))
            .await
            .assert_replays();
        assert_eq!(told.lock().expect("not poisoned").len(), 1);
        let again = toolgate_core::from_fn(async |call: Call, next: Next| {
            next.clone().run(call.clone()).await;
            next.run(call).await
        });
        let stack = Stack::over(FakeExecutor::new())
            .layer(again)
            .layer(layer)
            .build()
            .expect("valid order");
        stack.run(call_with("ask", arguments)).await;
        assert_eq!(told.lock().expect("not poisoned").len(), 2);
    }

    #[tokio::test]
    async fn a_cached_result_or_a_rehearsal_hands_nothing_over() {
        let (layer, told) = recording_handoff();
        let mut cached = failed_with(json!({ "handoff": { "target": "a", "task": "b" } }));
        cached.status = Status::Ok;
        cached.cached = true;
        let settled = run_through(layer.clone(), cached.clone()).await;
        assert_eq!(noted_value(&settled, "handoff")["target"], "a");
        cached.cached = false;
        let remember =
            toolgate_core::from_fn(move |_, _| std::future::ready(Outcome::from(cached.clone())));
        let stack = Stack::over(FakeExecutor::new())
            .layer(layer)
            .layer(remember)
            .build()
            .expect("valid order");
        stack
            .run(Call::new(CallSeed {
                rehearsal: true,
                ..seed("ask", json!({}))
            }))
            .await;
        assert!(told.lock().expect("not poisoned").is_empty());
        stack.run(call("ask")).await;
        assert_eq!(told.lock().expect("not poisoned").len(), 1);
    }

    #[tokio::test]
    async fn functions_of_the_program_may_find_handoffs_and_may_panic() {
        let found = |value: &Value| value.pointer("/deep/down").cloned();
        let result = || Outcome::ok(json!({ "deep": { "down": { "target": "a", "task": "b" } } }));
        assert_eq!(
            noted_value(
                &run_through(Handoff::new().detect(found), result()).await,
                "handoff"
            )["target"],
            "a"
        );
        let settled = run_through(Handoff::new().detect(|_| panic!("hunter2")), result()).await;
        assert_eq!(
            (
                settled.status,
                noted_value(&settled, "handoff_error").is_string()
            ),
            (Status::Ok, true)
        );
        let settled = run_through(
            Handoff::new().detect(found).sink(|_, _| panic!("hunter2")),
            result(),
        )
        .await;
        assert_eq!(
            (settled.status, noted_value(&settled, "handoff_error")),
            (Status::Ok, json!("the sink failed"))
        );
    }

    #[tokio::test]
    async fn the_record_is_redacted_or_withheld() {
        struct Censor;
        impl Redactor for Censor {
            fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
                let text = value.to_string();
                if text.contains("poison") {
                    return Err(RedactionError);
                }
                text.replace("s3cret", "***")
                    .parse()
                    .map_err(|_| RedactionError)
            }
            fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
                Ok(text.to_owned())
            }
        }
        let (layer, told) = recording_handoff();
        let layer = layer.redactor(SharedRedactor::new(Censor));
        let result =
            |task: &str| Outcome::ok(json!({ "handoff": { "target": "a", "task": task } }));
        assert_eq!(
            noted_value(
                &run_through(layer.clone(), result("s3cret")).await,
                "handoff"
            )["task"],
            "***"
        );
        let settled = run_through(layer, result("s3cret poison")).await;
        assert_eq!(
            noted_value(&settled, "handoff_error"),
            "the handoff could not be redacted"
        );
        assert_eq!(
            told.lock()
                .expect("not poisoned")
                .iter()
                .map(|record| record.task.as_str())
                .collect::<Vec<_>>(),
            ["***"]
        );
    }

    #[test]
    fn an_empty_list_of_keys_is_rejected() {
        for keys in [vec![], vec![String::new()]] {
            let options = HandoffOptions {
                keys,
                ..HandoffOptions::default()
            };
            assert_eq!(
                Handoff::configure(options, &Resources::new())
                    .expect_err("no key")
                    .key,
                "keys"
            );
        }
    }
}
