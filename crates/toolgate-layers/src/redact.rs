//! Takes secrets out of what comes back from a tool.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::{
    Arguments, Band, Call, CallError, Json, Layer, LayerTraits, Next, Notes, Outcome,
    RedactionFailed, Redactor, Settled, Status, ToolName, contained_sync,
};

use crate::{BadOption, Configurable, Parts, Secrets, SecretsOptions, SharedRedactor};

/// Replaces secrets in results, errors and notes by a mark such as `[redacted:jwt]`.
///
/// Everything outside this layer reads the redacted outcome: receipts, spans, hooks, the model. What the tool receives
/// stays as it is unless `arguments` is asked for. A redactor that fails blocks what it should have cleaned: before the
/// call, so that nothing runs; after it, so that the result is withheld and the status is `redacted`. Events, progress
/// and logs are redacted by the runtime with the same rules ([`Redact::redactor`]).
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
    own: Option<OwnRedactor>,
    arguments: bool,
}

type OwnRedactor =
    Arc<dyn Fn(Phase, &ToolName, &Json) -> Result<Option<Json>, RedactionFailed> + Send + Sync>;

/// On which way a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Arguments, on their way to the tool.
    In,
    /// A result, on its way back.
    Out,
}

/// What can be set about redaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedactOptions {
    /// Whether the tool itself gets redacted arguments, too.
    pub arguments: bool,
    /// Names of fields whose values are secret, besides the bundled ones.
    pub fields: Vec<String>,
    /// Names of fields that are shown although the bundled list has them.
    pub shown_fields: Vec<String>,
    /// Names of environment variables whose values are secret wherever they turn up.
    pub environment: Vec<String>,
}

impl Redact {
    /// Redacts with the bundled detectors.
    pub fn new() -> Self {
        Self::with(SharedRedactor::bundled(Secrets::standard()))
    }

    /// Redacts with a redactor that other parts of the program share.
    pub fn with(secrets: SharedRedactor) -> Self {
        Self {
            secrets,
            own: None,
            arguments: false,
        }
    }

    /// Redacts what the tool receives as well.
    pub fn arguments(mut self) -> Self {
        self.arguments = true;
        self
    }

    /// Adds a redactor of one's own. It sees arguments, and on the way back values, texts, errors and notes, and returns
    /// a copy, or nothing to leave them. A text comes as a JSON string and has to stay one.
    ///
    /// What never passes this layer on its way out (events, progress, spans of arguments) it does not see. Rules that
    /// hold there too are a [`Redactor`], given to [`Redact::with`] with [`SharedRedactor::and`]. Its copy of the arguments reaches the tool only if `arguments` is asked for; but if it fails on them, the call
    /// does not run at all.
    pub fn own<F>(mut self, redactor: F) -> Self
    where
        F: Fn(Phase, &ToolName, &Json) -> Result<Option<Json>, RedactionFailed>
            + Send
            + Sync
            + 'static,
    {
        self.own = Some(Arc::new(redactor));
        self
    }

    /// The redactor itself, for the runtime and for everything else that keeps or shows something.
    pub fn redactor(&self) -> SharedRedactor {
        self.secrets.clone()
    }

    /// What the user's redactor makes of a value. One that panics has failed.
    fn own_copy(
        &self,
        phase: Phase,
        call: &Call,
        value: &Json,
    ) -> Result<Option<Json>, RedactionFailed> {
        let Some(own) = &self.own else {
            return Ok(None);
        };
        contained_sync(|| own(phase, &call.tool, value)).unwrap_or(Err(RedactionFailed))
    }

    /// The call as the tool may see it.
    fn inbound(&self, call: Call) -> Result<Call, RedactionFailed> {
        if self.own.is_none() && !self.arguments {
            return Ok(call);
        }
        let given = call.arguments.as_json().clone();
        let own = self.own_copy(Phase::In, &call, &given)?;
        if !self.arguments {
            return Ok(call);
        }
        let clean = self.secrets.redact(&own.unwrap_or_else(|| given.clone()))?;
        if clean.same(&given) {
            return Ok(call);
        }
        let arguments = Arguments::try_from(clean).map_err(|_| RedactionFailed)?;
        Ok(call.with_arguments(arguments))
    }

    fn outbound(&self, call: &Call, settled: &mut Settled) -> Result<(), RedactionFailed> {
        settled.value = self.value(call, &settled.value)?;
        if let Some(clean) = self.changed_text(call, settled.text.as_deref())? {
            settled.text = Some(clean.into());
        }
        if let Some(error) = &mut settled.error {
            error.model = self.text(call, &error.model)?;
            error.operator = error
                .operator
                .as_deref()
                .map(|text| self.text(call, text))
                .transpose()?;
        }
        self.notes(call, &mut settled.notes)
    }

    fn value(&self, call: &Call, value: &Json) -> Result<Json, RedactionFailed> {
        let own = self.own_copy(Phase::Out, call, value)?;
        self.secrets.redact(own.as_ref().unwrap_or(value))
    }

    fn text(&self, call: &Call, text: &str) -> Result<String, RedactionFailed> {
        if self.own.is_none() {
            return self.secrets.redact_text(text);
        }
        match self.own_copy(Phase::Out, call, &Json::from(text))? {
            None => self.secrets.redact_text(text),
            Some(own) => self
                .secrets
                .redact_text(own.as_str().ok_or(RedactionFailed)?),
        }
    }

    fn notes(&self, call: &Call, notes: &mut Notes) -> Result<(), RedactionFailed> {
        let Some(fields) = notes.fields().filter(|fields| fields.has_remarks()) else {
            return Ok(());
        };
        let summary = self.changed_text(call, fields.summary.as_deref())?;
        let description = self.changed_text(call, fields.description.as_deref())?;
        let scope = fields
            .scope
            .as_ref()
            .map(|scope| self.changed(call, scope.clone()))
            .transpose()?
            .flatten();
        let metadata = self.changed_map(call, &fields.metadata)?;
        let mut superseded = Vec::new();
        for (at, entry) in fields.superseded.iter().enumerate() {
            // The name says what the value is.
            let name = entry
                .field
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            let alone = self.changed_map(call, &Map::from_iter([(name, entry.value.clone())]))?;
            superseded
                .extend(alone.map(|alone| (at, alone.into_iter().next().map(|(_, value)| value))));
        }
        let texts = summary.is_some() || description.is_some();
        if !texts && scope.is_none() && metadata.is_none() && superseded.is_empty() {
            return Ok(());
        }
        let fields = notes.edit();
        fields.summary = summary.or(fields.summary.take());
        fields.description = description.or(fields.description.take());
        fields.scope = scope.or(fields.scope.take());
        fields.metadata = metadata.unwrap_or_else(|| std::mem::take(&mut fields.metadata));
        for (at, value) in superseded {
            fields.superseded[at].value = value.unwrap_or_default();
        }
        Ok(())
    }

    /// The text without secrets; nothing if there are none in it.
    fn changed_text(
        &self,
        call: &Call,
        text: Option<&str>,
    ) -> Result<Option<String>, RedactionFailed> {
        match text {
            None => Ok(None),
            Some(text) if self.own.is_none() => self.secrets.changed_text(text),
            Some(text) => Ok(Some(self.text(call, text)?).filter(|clean| clean != text)),
        }
    }

    /// A copy of the value without secrets; nothing if there are none in it.
    fn changed(&self, call: &Call, value: Value) -> Result<Option<Value>, RedactionFailed> {
        let json = Json::new(value).map_err(|_| RedactionFailed)?;
        let clean = self.value(call, &json)?;
        Ok(if clean == json {
            None
        } else {
            Some(clean.as_value().clone())
        })
    }

    fn changed_map(
        &self,
        call: &Call,
        map: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, RedactionFailed> {
        if map.is_empty() {
            return Ok(None);
        }
        if self.own.is_none() {
            return self.secrets.changed_map(map);
        }
        match self.changed(call, Value::Object(map.clone()))? {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_),
            ) => Err(RedactionFailed),
        }
    }
}

impl Default for Redact {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for Redact {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // Of a call that has ended already, the arguments go nowhere any more.
        let call = if call.closing().is_some() {
            Ok(call)
        } else {
            self.inbound(call)
        };
        let Ok(call) = call else {
            next.because("redaction of the arguments failed");
            return Outcome::refused(
                Status::Redacted,
                "the call was not run because its arguments could not be redacted",
            );
        };
        let mut outcome = next.clone().run(call.clone()).await;
        if let Outcome::Settled(settled) = &mut outcome
            && self.outbound(&call, settled).is_err()
        {
            next.because("redaction of the result failed");
            **settled = withheld(settled);
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn traits(&self) -> LayerTraits {
        let traits = LayerTraits::of(Self::NAME).redacting();
        if self.arguments {
            traits.rewriting()
        } else {
            traits
        }
    }
}

/// What is left of an outcome that could not be redacted: that there was one, and how often it was tried.
fn withheld(settled: &Settled) -> Settled {
    let mut rest = Settled::new(Status::Redacted);
    let text = "the call was made, but its result is withheld because it could not be redacted";
    rest.error = Some(CallError::new(toolgate_core::ErrorCategory::Internal, text));
    rest.executor = settled.executor.clone();
    rest
}

impl Configurable for Redact {
    const NAME: &'static str = "redact";
    const SUMMARY: &'static str = "Replaces secrets in results, errors and notes by a mark.";
    type Options = RedactOptions;

    fn configure(options: RedactOptions, parts: &Parts) -> Result<Self, BadOption> {
        let RedactOptions {
            arguments,
            fields,
            shown_fields,
            environment,
        } = options;
        let known = environment
            .iter()
            .filter_map(|name| std::env::var(name).ok());
        let secrets = Secrets::with(
            SecretsOptions {
                fields,
                shown_fields,
            },
            known,
        );
        // What the program brought along works first, and what an earlier layer of this stack knows is kept.
        let earlier = parts
            .get::<StackRedactor>()
            .and_then(|stack| stack.made)
            .or_else(|| parts.get::<SharedRedactor>());
        let redactor = match earlier {
            Some(earlier) => earlier.and(secrets),
            None => SharedRedactor::bundled(secrets),
        };
        StackRedactor::made(parts, redactor.clone());
        Ok(Self {
            arguments,
            ..Self::with(redactor)
        })
    }
}

/// What all redacting layers of the stack that is being made know together, and what the program brought along.
#[derive(Clone, Default)]
struct StackRedactor {
    program: Option<SharedRedactor>,
    made: Option<SharedRedactor>,
}

impl StackRedactor {
    fn made(parts: &Parts, redactor: SharedRedactor) {
        let stack = parts.get_or_default::<Self>();
        parts.put(Self {
            made: Some(redactor),
            ..stack
        });
    }
}

impl Redact {
    /// Forgets what an earlier stack left among the parts.
    pub(crate) fn begin(parts: &Parts) {
        let (before, now) = (
            parts.get_or_default::<StackRedactor>(),
            parts.get::<SharedRedactor>(),
        );
        let ours = matches!((&before.made, &now), (Some(made), Some(now)) if made.same(now));
        let program = if ours { before.program } else { now };
        match &program {
            Some(program) => parts.put(program.clone()),
            None => drop(parts.take::<SharedRedactor>()),
        }
        parts.put(StackRedactor {
            program,
            made: None,
        });
    }

    /// Leaves what the redacting layers of this stack know for the layers that record, and for the program.
    pub(crate) fn share(parts: &Parts) {
        if let Some(made) = parts.get::<StackRedactor>().and_then(|stack| stack.made) {
            parts.put(made);
        }
    }
}

impl std::fmt::Debug for Redact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redact")
            .field("arguments", &self.arguments)
            .field("own", &self.own.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::{ErrorCategory, NoteFields, Stack, ToolError, ToolOutput};
    use toolgate_testkit::{Scripted, call, call_with, run_twice, seed};

    const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

    async fn after(outcome: Outcome, layer: Redact) -> String {
        let stack = Stack::over(Scripted::new().then(outcome))
            .layer(layer)
            .build()
            .expect("in order");
        format!(
            "{}",
            json!(stack.run(call("x")).await.settled().expect("settled"))
        )
    }

    fn failing(when: Phase) -> Redact {
        Redact::new().own(move |phase, _, _| {
            if phase == when {
                Err(RedactionFailed)
            } else {
                Ok(None)
            }
        })
    }

    #[tokio::test]
    async fn secrets_leave_results_texts_errors_and_notes() {
        let note = |notes: &mut NoteFields| {
            notes.summary = Some(format!("used {TOKEN}"));
            notes
                .metadata
                .insert("m".into(), json!({ "deep": [TOKEN] }));
        };
        let error =
            ToolError::new(format!("cannot use {TOKEN}")).with_operator(format!("{TOKEN} at db"));
        let outcomes = [
            Outcome::ok(json!({ "out": format!("token {TOKEN}"), TOKEN: 1 })),
            Outcome::ok(ToolOutput::from(json!(1)).with_text(format!("see {TOKEN}"))),
            Outcome::ok("fine").noting(note),
            Outcome::failed(error.with_category(ErrorCategory::Transient)),
        ];
        for outcome in outcomes {
            let shown = after(outcome, Redact::new()).await;
            // Nothing above reads the key that was taken out; the trail names places only, and this is one.
            let shown = shown.replace(&format!("/{TOKEN}"), "");
            assert!(
                shown.contains("[redacted:github_token]") && !shown.contains(TOKEN),
                "{shown}"
            );
        }
    }

    #[tokio::test]
    async fn the_tool_gets_raw_arguments_unless_they_are_asked_for() {
        for (layer, expected) in [
            (Redact::new(), TOKEN),
            (Redact::new().arguments(), "[redacted:github_token]"),
        ] {
            let tool = Scripted::new();
            let stack = Stack::over(tool.clone())
                .layer(layer)
                .build()
                .expect("in order");
            stack.run(call_with("x", json!({ "a": TOKEN }))).await;
            assert_eq!(tool.seen()[0].arguments.get("a"), Some(&json!(expected)));
        }
    }

    #[tokio::test]
    async fn a_redactor_that_fails_or_panics_on_arguments_lets_nothing_run() {
        let panics = Redact::new().own(|_, _, _| panic!("{TOKEN}"));
        for layer in [failing(Phase::In), panics] {
            let tool = Scripted::new();
            let stack = Stack::over(tool.clone())
                .layer(layer)
                .build()
                .expect("in order");
            let outcome = stack.run(call_with("write", json!({ "a": TOKEN }))).await;
            assert_eq!(outcome.status(), Some(Status::Redacted));
            assert!(
                tool.seen().is_empty() && !json!(outcome.settled()).to_string().contains(TOKEN)
            );
        }
    }

    #[tokio::test]
    async fn a_redactor_that_fails_or_panics_on_a_result_withholds_it_with_its_notes() {
        let panics = Redact::new().own(|phase, _, _| {
            if phase == Phase::Out {
                panic!("{TOKEN}")
            } else {
                Ok(None)
            }
        });
        for layer in [failing(Phase::Out), panics] {
            let outcome = Outcome::ok(json!({ "plain": "prose" }))
                .noting(|notes| notes.summary = Some("prose".into()));
            let shown = after(outcome, layer).await;
            assert!(
                shown.contains(r#""status":"redacted""#) && !shown.contains("prose"),
                "{shown}"
            );
        }
    }

    #[tokio::test]
    async fn an_own_redactor_works_before_the_bundled_one() {
        let own = Redact::new().own(|phase, tool, value| {
            assert_eq!(tool.as_str(), "x");
            Ok((phase == Phase::Out)
                .then(|| Json::from(value.to_string().replace("Ann", "somebody"))))
        });
        let shown = after(Outcome::ok(json!({ "by": "Ann", "with": TOKEN })), own).await;
        assert!(
            shown.contains("somebody") && shown.contains("[redacted:github_token]"),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn an_own_redactor_sees_everything_that_the_model_and_the_notes_say() {
        let own = || {
            Redact::new().own(|_, _, value: &Json| {
                value
                    .to_string()
                    .replace("Ann", "somebody")
                    .parse()
                    .map(Some)
                    .map_err(|_| RedactionFailed)
            })
        };
        for outcome in [
            Outcome::ok(ToolOutput::from(json!({ "n": "Ann" })).with_text("Ann lives here")),
            Outcome::failed(ToolError::new("no such person Ann").with_operator("Ann")),
            Outcome::ok("x").noting(|notes| notes.summary = Some("Ann".into())),
        ] {
            let shown = after(outcome, own()).await;
            assert!(
                shown.contains("somebody") && !shown.contains("Ann"),
                "{shown}"
            );
        }
    }

    #[tokio::test]
    async fn notes_are_redacted_by_their_names_too() {
        let outcome = Outcome::ok("x").noting(|notes| {
            notes
                .metadata
                .insert("password".into(), json!("Tr0ub4dor9"));
            notes.metadata.insert(TOKEN.into(), json!(1));
        });
        let shown = after(outcome, Redact::new()).await;
        assert!(
            !shown.contains("Tr0ub4dor9") && !shown.contains(TOKEN),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn a_second_pass_does_the_same() {
        run_twice(Redact::new().arguments(), seed("x", json!({ "a": TOKEN })))
            .await
            .assert_replays();
    }
}
