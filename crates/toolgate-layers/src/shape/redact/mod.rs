//! Redacts secrets in the results of tools.

mod detectors;
mod large;
mod lookahead;
pub(crate) mod scanner;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::{
    Arguments, Band, Call, CallError, Json, Layer, LayerCapabilities, Next, Notes, Outcome,
    RedactionError, Redactor, Refusal, SettledOutcome, Status,
};

use crate::{
    BadOption, Configurable, KnownSecrets, Resources, SecretScanner, SecretScannerOptions,
    SharedRedactor,
};

/// A layer that replaces secrets in results, errors and notes by a mark such as `[redacted:jwt]`.
///
/// Everything outside this layer reads the redacted outcome: receipts, spans, hooks, the model. The
/// tool receives its arguments unchanged unless `arguments` is set. A redactor that fails blocks
/// what it should have redacted: before the call, so that nothing runs; after it, so that the
/// result is withheld and the status is `redacted`. Events, progress and logs are redacted by the
/// runtime with the same rules ([`Redact::redactor`]): there is one redactor for everything. Rules
/// of the program's own are a [`Redactor`], such as a closure in [`redact_fn`](crate::redact_fn),
/// and are given to [`Redact::with`] or to a gate.
///
/// ```
/// # use {toolgate_core::Stack, toolgate_layers::Redact, toolgate_testkit::{call_with, echo}};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let stack = Stack::over(echo()).layer(Redact::new()).build()?;
/// let outcome = stack.run(call_with("echo", serde_json::json!({ "password": "hunter2" }))).await;
/// assert_eq!(outcome.settled().unwrap().value["password"], "[redacted:password]");
/// # Ok::<(), toolgate_core::StackError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Redact {
    secrets: SharedRedactor,
    arguments: bool,
}

/// Options of [`Redact`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedactOptions {
    /// True if the tool itself receives redacted arguments, too.
    pub arguments: bool,
    /// Names of fields whose values are secret, besides the bundled ones.
    pub fields: Vec<String>,
    /// Names of fields that are shown although the bundled list has them.
    pub shown_fields: Vec<String>,
    /// Names of environment variables whose values are secret wherever they occur.
    pub environment: Vec<String>,
}

impl Redact {
    /// Creates a layer with the bundled detectors.
    pub fn new() -> Self {
        Self::with(SharedRedactor::from_secrets(SecretScanner::standard()))
    }

    /// Creates a layer with a redactor that other parts of the program share.
    pub fn with(secrets: SharedRedactor) -> Self {
        Self {
            secrets,
            arguments: false,
        }
    }

    /// Redacts the arguments that the tool receives, too.
    pub fn arguments(mut self) -> Self {
        self.arguments = true;
        self
    }

    /// Returns the redactor, for the runtime and for everything else that stores or shows data.
    pub fn redactor(&self) -> SharedRedactor {
        self.secrets.clone()
    }

    /// Returns the call as the tool may see it.
    fn redact_call(&self, call: Call) -> Result<Call, RedactionError> {
        // Runs even if its copy is not used: a redactor that fails must stop the call before it
        // runs.
        if !self.arguments && !self.secrets.can_fail() {
            return Ok(call);
        }
        let given = call.arguments.as_json();
        let clean = self.secrets.redact(given)?;
        if !self.arguments || clean.is_same(given) {
            return Ok(call);
        }
        let arguments = Arguments::try_from(clean).map_err(|_| RedactionError)?;
        Ok(call.with_arguments(arguments))
    }

    /// Redacts an outcome. Returns true if there was a secret in its value, text or error.
    fn redact_settled(&self, settled: &mut SettledOutcome) -> Result<bool, RedactionError> {
        let value = self.secrets.redact(&settled.value)?;
        let mut redacted = !value.is_same(&settled.value) && value != settled.value;
        settled.value = value;
        if let Some(clean) = self.changed_text(settled.text.as_deref())? {
            settled.text = Some(clean.into());
            redacted = true;
        }
        if let Some(error) = &mut settled.error {
            let more = [error.reason.as_mut(), error.operator.as_mut()];
            for text in more.into_iter().flatten().chain([&mut error.model]) {
                if let Some(clean) = self.changed_text(Some(text))? {
                    *text = clean;
                    redacted = true;
                }
            }
        }
        self.redact_notes(&mut settled.notes)?;
        Ok(redacted)
    }

    fn redact_notes(&self, notes: &mut Notes) -> Result<(), RedactionError> {
        let Some(fields) = notes.fields().filter(|fields| fields.has_remarks()) else {
            return Ok(());
        };
        let summary = self.changed_text(fields.summary.as_deref())?;
        let description = self.changed_text(fields.description.as_deref())?;
        let version = self.changed_text(fields.policy_version.as_deref())?;
        let uri = self.changed_text(fields.receipt_uri.as_deref())?;
        let scope = fields
            .scope
            .as_ref()
            .map(|scope| self.changed_value(scope.clone()))
            .transpose()?
            .flatten();
        let metadata = self.changed_map(&fields.metadata)?;
        let mut superseded = Vec::new();
        for (at, entry) in fields.superseded.iter().enumerate() {
            // The field name tells whether the value is secret, so both are redacted together.
            let name = entry
                .field
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            let alone = self.changed_map(&Map::from_iter([(name, entry.value.clone())]))?;
            superseded
                .extend(alone.map(|alone| (at, alone.into_iter().next().map(|(_, value)| value))));
        }
        let texts =
            summary.is_some() || description.is_some() || version.is_some() || uri.is_some();
        if !texts && scope.is_none() && metadata.is_none() && superseded.is_empty() {
            return Ok(());
        }
        let fields = notes.fields_mut();
        fields.summary = summary.or(fields.summary.take());
        fields.description = description.or(fields.description.take());
        fields.policy_version = version.map(Into::into).or(fields.policy_version.take());
        fields.receipt_uri = uri.or(fields.receipt_uri.take());
        fields.scope = scope.or(fields.scope.take());
        fields.metadata = metadata.unwrap_or_else(|| std::mem::take(&mut fields.metadata));
        for (at, value) in superseded {
            fields.superseded[at].value = value.unwrap_or_default();
        }
        Ok(())
    }

    /// Returns the redacted text, or `None` if it has no secrets.
    fn changed_text(&self, text: Option<&str>) -> Result<Option<String>, RedactionError> {
        match text {
            Some(text) => self.secrets.changed_text(text),
            None => Ok(None),
        }
    }

    /// Returns a redacted copy of the value, or `None` if it has no secrets.
    fn changed_value(&self, value: Value) -> Result<Option<Value>, RedactionError> {
        let json = Json::new(value).map_err(|_| RedactionError)?;
        let clean = self.secrets.redact(&json)?;
        Ok((clean != json).then(|| clean.as_value().clone()))
    }

    fn changed_map(
        &self,
        map: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, RedactionError> {
        if map.is_empty() {
            return Ok(None);
        }
        self.secrets.changed_map(map)
    }
}

impl Default for Redact {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for Redact {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // The arguments of a call that has already ended are not passed on.
        let call = if call.closing_outcome().is_some() {
            Ok(call)
        } else {
            self.redact_call(call)
        };
        let Ok(call) = call else {
            next.note_reason("redaction of the arguments failed");
            return Outcome::refused(
                Refusal::Redacted,
                "the call was not run because its arguments could not be redacted",
            );
        };
        let mut outcome = next.clone().run(call.clone()).await;
        if let Outcome::Settled(settled) = &mut outcome {
            match self.redact_outcome(&call, settled).await {
                Ok(false) => {}
                Ok(true) => next.note_redaction(),
                Err(RedactionError) => {
                    next.note_reason("redaction of the result failed");
                    **settled = withheld_outcome(settled);
                }
            }
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn capabilities(&self) -> LayerCapabilities {
        let traits = LayerCapabilities::for_kind(Self::NAME).redacting();
        if self.arguments {
            traits.rewriting()
        } else {
            traits
        }
    }
}

/// Returns an outcome without the result, which could not be redacted.
fn withheld_outcome(settled: &SettledOutcome) -> SettledOutcome {
    let mut rest = SettledOutcome::new(Status::Redacted);
    let text = "the call was made, but its result is withheld because it could not be redacted";
    rest.error = Some(CallError::new(toolgate_core::ErrorCategory::Internal, text));
    // The notes are dropped too, because they may contain the same secret.
    rest.executor = settled.executor.clone();
    rest
}

impl Configurable for Redact {
    const NAME: &'static str = "redact";
    const SUMMARY: &'static str = "Replaces secrets in results, errors and notes by a mark.";
    type Options = RedactOptions;

    fn configure(options: RedactOptions, parts: &Resources) -> Result<Self, BadOption> {
        let shared = parts
            .get::<StackRedactor>()
            .filter(|stack| stack.options.contains(&options));
        let redactor = match shared {
            Some(stack) => stack.redactor,
            None => options.extend_redactor(parts.get(), parts.get()),
        };
        Ok(Self {
            arguments: options.arguments,
            ..Self::with(redactor)
        })
    }
}

impl RedactOptions {
    /// Returns a redactor that applies these rules to the output of `earlier`.
    fn extend_redactor(
        &self,
        earlier: Option<SharedRedactor>,
        known: Option<KnownSecrets>,
    ) -> SharedRedactor {
        let given = known.unwrap_or_default();
        let known = self
            .environment
            .iter()
            .filter_map(|name| std::env::var(name).ok())
            .chain(given.values().map(str::to_owned));
        let options = SecretScannerOptions {
            fields: self.fields.clone(),
            shown_fields: self.shown_fields.clone(),
        };
        let secrets = SecretScanner::with_options(options, known);
        match earlier {
            Some(earlier) => earlier.and(secrets),
            None => SharedRedactor::from_secrets(secrets),
        }
    }
}

/// The redactor that all layers of a stack share.
#[derive(Clone)]
pub(crate) struct StackRedactor {
    /// The program's own part of it.
    program: Option<SharedRedactor>,
    /// The rules of the layers of the stack.
    options: Vec<RedactOptions>,
    redactor: SharedRedactor,
}

impl Redact {
    /// Shares one redactor with all layers of a stack and with the program: the program's own
    /// redactor, then the rules of each layer.
    pub(crate) fn share_redactor(options: Vec<RedactOptions>, parts: &Resources) {
        let now = parts.get::<SharedRedactor>();
        let program = match parts.remove::<StackRedactor>() {
            // What an earlier stack shared must not be taken for the program's own.
            Some(earlier) if now.is_some_and(|now| now.is_same(&earlier.redactor)) => {
                earlier.program
            }
            Some(_) | None => parts.get(),
        };
        let shared = options.iter().fold(program.clone(), |earlier, options| {
            Some(options.extend_redactor(earlier, parts.get()))
        });
        match shared {
            Some(redactor) => {
                parts.insert(redactor.clone());
                parts.insert(StackRedactor {
                    program,
                    options,
                    redactor,
                });
            }
            None => drop(parts.remove::<SharedRedactor>()),
        }
    }
}

impl std::fmt::Debug for Redact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redact")
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact_fn;
    use serde_json::json;
    use toolgate_core::{ErrorCategory, LayerExt, NoteFields, Stack, ToolError, ToolOutput};
    use toolgate_testkit::{FakeExecutor, TestClock, call, call_with, env_at, run_twice, seed};

    const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

    async fn redacted_json(outcome: Outcome, layer: Redact) -> String {
        let stack = Stack::over(FakeExecutor::new().then(outcome))
            .layer(layer)
            .build()
            .expect("valid order");
        format!(
            "{}",
            json!(stack.run(call("x")).await.settled().expect("settled"))
        )
    }

    /// Returns a layer whose own rules are `rules`, before the bundled ones.
    fn with_rules(
        rules: impl Fn(&Json) -> Result<Option<Json>, RedactionError> + Send + Sync + 'static,
    ) -> Redact {
        let own = SharedRedactor::new(redact_fn(rules));
        Redact::with(own.and(SecretScanner::standard()))
    }

    /// Returns a layer that fails on values with this word.
    fn failing_on(word: &'static str) -> Redact {
        with_rules(move |value| {
            if value.to_string().contains(word) {
                Err(RedactionError)
            } else {
                Ok(None)
            }
        })
    }

    #[tokio::test]
    async fn secrets_are_redacted_in_results_texts_errors_and_notes() {
        let note = |notes: &mut NoteFields| {
            notes.summary = Some(format!("used {TOKEN}"));
            notes
                .metadata
                .insert("m".into(), json!({ "deep": [TOKEN] }));
        };
        let error = ToolError::new(format!("cannot use {TOKEN}"))
            .with_operator_detail(format!("{TOKEN} at db"));
        let outcomes = [
            Outcome::ok(json!({ "out": format!("token {TOKEN}"), TOKEN: 1 })),
            Outcome::ok(ToolOutput::from(json!(1)).with_text(format!("see {TOKEN}"))),
            Outcome::ok("fine").with_notes(note),
            Outcome::ok("fine").with_notes(|notes| notes.policy_version = Some(TOKEN.into())),
            Outcome::ok("fine").with_notes(|notes| notes.receipt_uri = Some(TOKEN.into())),
            Outcome::failed(error.with_category(ErrorCategory::Transient)),
        ];
        for outcome in outcomes {
            let shown = redacted_json(outcome, Redact::new()).await;
            // The trail names the path of the redacted key; nothing else contains it.
            let shown = shown.replace(&format!("/{TOKEN}"), "");
            assert!(
                shown.contains("[redacted:github_token]") && !shown.contains(TOKEN),
                "{shown}"
            );
        }
    }

    #[tokio::test]
    async fn only_what_the_layer_redacts_counts_as_redacted_whatever_a_text_looks_like() {
        let mask = "[redacted:github_token]";
        let cases = [
            (Outcome::ok(json!({ "out": TOKEN })), true),
            (
                Outcome::ok(ToolOutput::from(json!(1)).with_text(TOKEN)),
                true,
            ),
            (Outcome::failed(ToolError::new(TOKEN)), true),
            (Outcome::denied(Some(TOKEN)), true),
            (Outcome::ok(json!({ "out": mask, "token": mask })), false),
            (Outcome::denied(Some(mask)), false),
            (Outcome::failed(ToolError::new(mask)), false),
        ];
        for (outcome, expected) in cases {
            let shown = format!("{outcome:?}");
            let stack = Stack::over(FakeExecutor::new().then(outcome))
                .layer(Redact::new().named("another name"))
                .build()
                .expect("valid order");
            let outcome = stack.run(call("x")).await;
            let notes = outcome.settled().and_then(|end| end.notes.fields());
            assert_eq!(
                notes.expect("a trail").layers[0].redacted,
                expected,
                "{shown}"
            );
        }
    }

    #[tokio::test]
    async fn a_secret_in_the_reason_of_a_denial_is_redacted() {
        let shown = redacted_json(Outcome::denied(Some(TOKEN)), Redact::new()).await;
        assert!(
            shown.contains(r#""reason":"[redacted:github_token]""#) && !shown.contains(TOKEN),
            "{shown}"
        );
    }

    #[test]
    fn a_value_that_only_begins_like_a_mask_is_redacted() {
        let scanner = SecretScanner::standard();
        let redacted = |text: &str| scanner.redacted_value(&json!({ "password": text }));
        assert_eq!(redacted("[redacted:password]"), None);
        for text in [
            "[redacted:hunter2",
            "[redacted:hunter2]",
            "[redacted:password] hunter2",
        ] {
            assert_eq!(
                redacted(text),
                Some(json!({ "password": "[redacted:password]" }))
            );
        }
    }

    #[tokio::test]
    async fn the_tool_gets_raw_arguments_unless_configured() {
        for (layer, expected) in [
            (Redact::new(), TOKEN),
            (Redact::new().arguments(), "[redacted:github_token]"),
        ] {
            let tool = FakeExecutor::new();
            let stack = Stack::over(tool.clone())
                .layer(layer)
                .build()
                .expect("valid order");
            stack.run(call_with("x", json!({ "a": TOKEN }))).await;
            assert_eq!(tool.seen()[0].arguments.get("a"), Some(&json!(expected)));
        }
    }

    #[tokio::test]
    async fn a_redactor_that_fails_or_panics_on_arguments_lets_nothing_run() {
        let panics = with_rules(|_| panic!("{TOKEN}"));
        for layer in [failing_on(TOKEN), panics] {
            let tool = FakeExecutor::new();
            let stack = Stack::over(tool.clone())
                .layer(layer)
                .build()
                .expect("valid order");
            let outcome = stack.run(call_with("write", json!({ "a": TOKEN }))).await;
            assert_eq!(outcome.status(), Some(Status::Redacted));
            assert!(
                tool.seen().is_empty() && !json!(outcome.settled()).to_string().contains(TOKEN)
            );
        }
    }

    #[tokio::test]
    async fn a_redactor_that_fails_or_panics_on_a_result_withholds_it_with_its_notes() {
        let panics = with_rules(|value| {
            if value.to_string().contains("prose") {
                panic!("{TOKEN}")
            } else {
                Ok(None)
            }
        });
        for layer in [failing_on("prose"), panics] {
            let outcome = Outcome::ok(json!({ "plain": "prose" }))
                .with_notes(|notes| notes.summary = Some("prose".into()));
            let shown = redacted_json(outcome, layer).await;
            assert!(
                shown.contains(r#""status":"redacted""#) && !shown.contains("prose"),
                "{shown}"
            );
        }
    }

    #[tokio::test]
    async fn the_rules_of_the_program_and_the_bundled_ones_both_hold() {
        let own = with_rules(|value| {
            let text = value.to_string().replace("Ann", "someone");
            text.parse().map(Some).map_err(|_| RedactionError)
        });
        let shown = redacted_json(Outcome::ok(json!({ "by": "Ann", "with": TOKEN })), own).await;
        assert!(
            shown.contains("someone") && shown.contains("[redacted:github_token]"),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn the_rules_of_the_program_see_everything_in_results_and_notes() {
        let own = || {
            with_rules(|value: &Json| {
                value
                    .to_string()
                    .replace("Ann", "someone")
                    .parse()
                    .map(Some)
                    .map_err(|_| RedactionError)
            })
        };
        for outcome in [
            Outcome::ok(ToolOutput::from(json!({ "n": "Ann" })).with_text("Ann lives here")),
            Outcome::failed(ToolError::new("no such person Ann").with_operator_detail("Ann")),
            Outcome::ok("x").with_notes(|notes| notes.summary = Some("Ann".into())),
        ] {
            let shown = redacted_json(outcome, own()).await;
            assert!(
                shown.contains("someone") && !shown.contains("Ann"),
                "{shown}"
            );
        }
    }

    #[tokio::test]
    async fn notes_are_redacted_by_their_names_too() {
        let outcome = Outcome::ok("x").with_notes(|notes| {
            notes
                .metadata
                .insert("password".into(), json!("Tr0ub4dor9"));
            notes.metadata.insert(TOKEN.into(), json!(1));
        });
        let shown = redacted_json(outcome, Redact::new()).await;
        assert!(
            !shown.contains("Tr0ub4dor9") && !shown.contains(TOKEN),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn a_large_result_is_redacted_on_another_thread() {
        let here = std::thread::current().id();
        let large = "x ".repeat(300_000);
        let results = [
            (json!("small"), true),
            (json!({ "list": vec!["x"; 1000] }), true),
            (json!(large), false),
            (json!({ "deep": [large] }), false),
            (json!(vec!["x"; 200_000]), false),
        ];
        for (value, expected) in results {
            let layer = with_rules(move |value| {
                let same = std::thread::current().id() == here;
                // The arguments of the call are empty.
                let wrong = value.to_string() != "{}" && same != expected;
                if wrong { Err(RedactionError) } else { Ok(None) }
            });
            let stack = Stack::over(FakeExecutor::new().then(Outcome::ok(value)))
                .layer(layer)
                .build()
                .expect("valid order");
            assert!(
                stack.run(call("x")).await.is_ok(),
                "expected in place: {expected}"
            );
        }
    }

    #[tokio::test]
    async fn a_large_result_that_is_not_redacted_in_time_is_withheld() {
        let clock = TestClock::new();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let layer = with_rules(move |value| {
            if value.to_string() != "{}" {
                // Ends when the test drops the other side.
                let _ = wait.lock().expect("not poisoned").recv();
            }
            Ok(None)
        });
        let stack = Stack::over(FakeExecutor::new().then(Outcome::ok("x ".repeat(300_000))))
            .layer(layer)
            .build()
            .expect("valid order");
        let mut seed = seed("x", json!({}));
        seed.env = env_at(&clock);
        let run = stack.run(Call::new(seed));
        let advance = async {
            while clock.sleeper_count() == 0 {
                tokio::task::yield_now().await;
            }
            clock.advance(std::time::Duration::from_secs(60));
        };
        let (outcome, ()) = futures::join!(run, advance);
        assert_eq!(outcome.status(), Some(Status::Redacted));
        drop(release);
    }

    #[tokio::test]
    async fn a_second_pass_does_the_same() {
        run_twice(Redact::new().arguments(), seed("x", json!({ "a": TOKEN })))
            .await
            .assert_replays();
    }
}
