//! Requires a reason for each tool call.

use std::{any::TypeId, borrow::Cow, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Band, Call, Layer, LayerCapabilities, LayerName, Next, NoteFields, Outcome, Refusal,
    StatedReason, ToolSpec, Transform,
};

use crate::{BadOption, Configurable, Resources, SharedRedactor};

/// A layer that adds a parameter to every tool in which the model gives its reason, and removes it
/// before the tool runs.
///
/// The reason is stored in the notes, by default as the summary that people read, and an approver
/// reads it in the approval request. A call without
/// one is rejected with a text that tells the model what to add, or gets a blank reason. A tool
/// that has a parameter of that name keeps it: its value counts as the reason and reaches the tool.
/// Install the layer in a stack and build the view with `View::for_stack`; a second layer of this kind
/// changes nothing.
///
/// A tool whose schema lists its parameters in alternatives or references that allow no others
/// ([`Schema::accepts_more`](toolgate_core::Schema::accepts_more)) could not be called with an
/// additional one. It is shown unchanged, no reason is required for it, and the notes record that
/// none was given.
///
/// ```
/// use toolgate_core::{Registry, Schema, Stack, ToolSpec, View};
/// use toolgate_layers::RequireReason;
///
/// let registry = Registry::new();
/// registry.register_host(ToolSpec::new("search", "Searches.", Schema::any_object()))?;
/// let stack = Stack::over(registry.clone()).layer(RequireReason::new()).build()?;
/// let view = View::for_stack(&registry, &stack)?;
/// assert!(view.get("search").unwrap().spec.input.parameters().any(|name| name == "reason"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RequireReason {
    options: Arc<RequireReasonOptions>,
    redactor: Option<SharedRedactor>,
}

/// Options of [`RequireReason`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RequireReasonOptions {
    /// The name of the parameter.
    pub field: String,
    /// The description of the parameter for the model.
    pub description: String,
    /// True if the parameter is removed before the tool runs.
    pub strip: bool,
    /// The note that holds the reason: `summary`, `description`, or a key of the metadata.
    pub audit_key: String,
    /// Minimum number of characters of a reason, without surrounding blanks.
    pub min_length: usize,
    /// Handling of a call without a reason.
    pub on_missing: OnMissing,
    /// True if the schema that the model sees makes the parameter mandatory.
    pub schema_required: bool,
}

/// Handling of a call without a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnMissing {
    /// It is rejected.
    Reject,
    /// It runs, and the notes record that no reason was given.
    FillBlank,
}

impl Default for RequireReasonOptions {
    fn default() -> Self {
        Self {
            field: "reason".to_owned(),
            description: "Why you make this call, in one short sentence for the user.".to_owned(),
            strip: true,
            audit_key: "summary".to_owned(),
            min_length: 1,
            on_missing: OnMissing::Reject,
            schema_required: true,
        }
    }
}

impl RequireReason {
    /// Maximum number of characters of a stored reason.
    const MOST: usize = 1000;

    /// The note of a call without a reason.
    const BLANK: &'static str = "(no reason given)";

    /// Creates a layer with the default options.
    pub fn new() -> Self {
        Self {
            options: Arc::new(RequireReasonOptions::default()),
            redactor: None,
        }
    }

    /// Creates a layer with these options, if they are valid.
    pub fn with_options(options: RequireReasonOptions) -> Result<Self, BadOption> {
        let problem = |key, problem| Err(BadOption::new(key, problem));
        match &options {
            o if o.field.trim().is_empty() => {
                problem("field", "a parameter needs a name, such as reason")
            }
            o if o.audit_key.trim().is_empty() => {
                problem("audit_key", "must name a note, such as summary")
            }
            o if o.min_length == 0 => problem(
                "min_length",
                "with 0 no reason would be required; use at least 1",
            ),
            o if o.min_length > Self::MOST => {
                problem("min_length", "a reason is truncated at 1000 characters")
            }
            _ => Ok(Self {
                options: Arc::new(options),
                redactor: None,
            }),
        }
    }

    /// Redacts the reason before it is noted.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Checks whether this layer added the parameter, so that it may remove it.
    fn is_injected_here(&self, call: &Call) -> bool {
        let Some(shown) = call.shown_tool() else {
            return true;
        };
        match shown
            .injected
            .iter()
            .find(|injected| injected.parameter == self.options.field)
        {
            Some(injected) => injected.origin == TypeId::of::<Self>(),
            // Without an injection record, a parameter that the schema mentions is the tool's own.
            None => !shown
                .entry
                .spec
                .input
                .mentions_parameter(&self.options.field),
        }
    }

    /// Checks whether the model was shown a tool that accepts no reason.
    fn accepts_no_reason(&self, call: &Call) -> bool {
        call.shown_tool().is_some_and(|shown| {
            let added = shown
                .injected
                .iter()
                .any(|injected| injected.parameter == self.options.field);
            !added && !shown.entry.spec.input.accepts_more()
        })
    }

    /// Returns the reason that the model gave, trimmed and not empty.
    fn given_reason<'a>(&self, call: &'a Call, ours: bool) -> Option<Cow<'a, str>> {
        let field = &self.options.field;
        // Another layer of this kind may already have removed it.
        let value = call
            .arguments
            .get(field)
            .or_else(|| call.original_arguments().get(field).filter(|_| ours))?;
        let text = match value {
            Value::String(text) => Cow::Borrowed(text.trim()),
            // A tool's own parameter may be of any type.
            Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                Cow::Owned(value.to_string())
            }
            Value::Null => return None,
        };
        (!text.is_empty()).then_some(text)
    }

    /// Returns the reason for the notes, redacted and truncated.
    fn noted_reason(&self, reason: &str) -> String {
        let safe = match &self.redactor {
            Some(redactor) => redactor.redacted_text(reason).map(Cow::Owned),
            None => Some(Cow::Borrowed(reason)),
        };
        let Some(safe) = safe else {
            // Fail closed: a reason that cannot be redacted is not noted.
            return "(reason withheld)".to_owned();
        };
        let one_line = self.options.audit_key == "summary";
        let flat = |c: char| if one_line && c.is_control() { ' ' } else { c };
        safe.chars().take(Self::MOST).map(flat).collect()
    }

    fn add_note(&self, notes: &mut NoteFields, reason: String) {
        match self.options.audit_key.as_str() {
            "summary" => notes.summary = Some(reason),
            "description" => notes.description = Some(reason),
            key => drop(notes.metadata.insert(key.to_owned(), reason.into())),
        }
    }

    fn missing_reason_outcome(&self) -> Outcome {
        let RequireReasonOptions {
            field, min_length, ..
        } = &*self.options;
        let length = match min_length {
            1 => String::new(),
            least => format!(" of at least {least} characters"),
        };
        let text = format!(
            "Give a {field}{length}: add \"{field}\" to the arguments and explain why you make this call."
        );
        Outcome::refused(Refusal::SchemaViolation, text)
    }
}

impl Default for RequireReason {
    fn default() -> Self {
        Self::new()
    }
}

impl Configurable for RequireReason {
    const NAME: &'static str = "require_reason";
    const SUMMARY: &'static str = "Requires the model to give a reason for each call.";
    type Options = RequireReasonOptions;

    fn configure(options: RequireReasonOptions, parts: &Resources) -> Result<Self, BadOption> {
        Ok(Self {
            redactor: parts.get(),
            ..Self::with_options(options)?
        })
    }
}

impl Transform for RequireReason {
    fn name(&self) -> LayerName {
        Self::NAME.into()
    }

    fn transform(&self, mut spec: ToolSpec) -> Option<ToolSpec> {
        let RequireReasonOptions {
            field,
            description,
            min_length,
            schema_required,
            on_missing,
            ..
        } = &*self.options;
        let mut parameter = json!({ "type": "string", "description": description });
        // A blank reason that the layer fills in must pass the schema.
        if *on_missing == OnMissing::Reject && *schema_required {
            parameter["minLength"] = json!(min_length);
        }
        // A closed schema with an additional required parameter would reject every call.
        let asks = spec.input.accepts_more() && !spec.input.mentions_parameter(field);
        if asks
            && let Ok(Some(input)) = spec
                .input
                .with_parameter(field, parameter, *schema_required)
        {
            spec.input = input;
        }
        Some(spec)
    }
}

impl Layer for RequireReason {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let ours = self.is_injected_here(&call);
        // Exactly as the model gave it: the approver is shown all of it.
        let stated = self.given_reason(&call, ours);
        let stated = stated.map(|reason| StatedReason(reason.as_ref().into()));
        let reason = match (self.given_reason(&call, ours), self.options.on_missing) {
            (Some(reason), OnMissing::Reject)
                if reason.chars().count() < self.options.min_length =>
            {
                next.note_reason("the reason is too short");
                return self.missing_reason_outcome();
            }
            (Some(reason), OnMissing::Reject | OnMissing::FillBlank) => self.noted_reason(&reason),
            (None, OnMissing::FillBlank) => Self::BLANK.to_owned(),
            (None, OnMissing::Reject) if self.accepts_no_reason(&call) => {
                next.note_reason("the tool accepts no reason");
                Self::BLANK.to_owned()
            }
            (None, OnMissing::Reject) => {
                next.note_reason("no reason was given");
                return self.missing_reason_outcome();
            }
        };
        let strip = self.options.strip && ours && call.arguments.get(&self.options.field).is_some();
        let call = if strip {
            call.clone()
                .with_arguments(call.arguments.without_argument(&self.options.field))
        } else {
            call
        };
        let call = match stated {
            Some(stated) => call.with_extension(stated),
            None => call,
        };
        next.run(call)
            .await
            .with_notes(|notes| self.add_note(notes, reason))
    }

    fn name(&self) -> LayerName {
        Self::NAME.into()
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn transform(&self) -> Option<Arc<dyn Transform>> {
        Some(Arc::new(self.clone()))
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
            .rewriting()
            .answering()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Status;
    use toolgate_core::{
        Annotations, Arguments, CallSeed, Json, RedactionError, Redactor, Registry, Schema,
        SettledOutcome, Stack, Tool, ToolError, ToolRequest, View,
    };
    use toolgate_testkit::{FakeExecutor, call_with, run_twice, seed, seed_for};

    fn options_with(change: impl FnOnce(&mut RequireReasonOptions)) -> RequireReasonOptions {
        let mut options = RequireReasonOptions::default();
        change(&mut options);
        options
    }

    /// A tool that returns its arguments and accepts exactly those of its schema.
    struct StrictTool(&'static str, Value);

    impl Tool for StrictTool {
        fn spec(&self) -> ToolSpec {
            let schema =
                json!({ "type": "object", "properties": self.1, "additionalProperties": false });
            let input = Schema::new(schema).expect("valid");
            ToolSpec::new(self.0, "Works.", input).with_annotations(Annotations::read_only())
        }
        async fn invoke(
            &self,
            arguments: Arguments,
            _: toolgate_core::Context,
        ) -> Result<toolgate_core::ToolOutput, ToolError> {
            toolgate_core::ToolOutput::from_value(arguments)
        }
    }

    fn strict_registry() -> Registry {
        let registry = Registry::new();
        registry
            .register(StrictTool("open", json!({ "path": { "type": "string" } })))
            .expect("new");
        registry
            .register(StrictTool(
                "fire",
                json!({ "reason": { "type": "string" } }),
            ))
            .expect("new");
        registry
    }

    /// Sends a call through the view, admission, the stack and the tool.
    async fn run_call(layer: RequireReason, tool: &str, arguments: Value) -> SettledOutcome {
        let registry = strict_registry();
        let stack = Stack::over(registry.clone())
            .layer(layer)
            .build()
            .expect("valid order");
        let view = View::for_stack(&registry, &stack).expect("additive");
        let outcome = stack.run(Call::new(seed_for(&view, tool, arguments))).await;
        outcome.settled().expect("settled").clone()
    }

    fn summary_of(settled: &SettledOutcome) -> Option<&str> {
        settled
            .notes
            .fields()
            .and_then(|notes| notes.summary.as_deref())
    }

    fn layer_with(change: impl FnOnce(&mut RequireReasonOptions)) -> RequireReason {
        RequireReason::with_options(options_with(change)).expect("valid options")
    }

    #[tokio::test]
    async fn an_approver_reads_the_whole_reason_that_the_tool_does_not_get() {
        let long = "because ".repeat(500);
        for (reason, options) in [
            ("to read it", options_with(|_| {})),
            ("to\nread\u{202e} it", options_with(|_| {})),
            (long.trim(), options_with(|_| {})),
            ("kept by its own tool", options_with(|_| {})),
            (
                "noted elsewhere",
                options_with(|options| options.audit_key = "why".to_owned()),
            ),
            (
                "optional",
                options_with(|options| options.on_missing = OnMissing::FillBlank),
            ),
        ] {
            let registry = strict_registry();
            let stack = Stack::over(registry.clone())
                .layer(RequireReason::with_options(options).expect("valid options"))
                .layer(crate::Approval::when(|_| Some("it opens".to_owned())))
                .build()
                .expect("valid order");
            let view = View::for_stack(&registry, &stack).expect("additive");
            let own = reason.starts_with("kept");
            let (tool, arguments) = if own {
                ("fire", json!({ "reason": reason }))
            } else {
                ("open", json!({ "path": "a", "reason": reason }))
            };
            let outcome = stack.run(Call::new(seed_for(&view, tool, arguments))).await;
            let Some(toolgate_core::Suspension::Decision(request)) = outcome.suspension() else {
                panic!("no approval was requested: {outcome:?}")
            };
            assert_eq!(request.stated_reason.as_deref(), Some(reason));
            assert_eq!(request.arguments.get("reason").is_some(), own);
            let shown = request.show(None).to_string();
            assert!(shown.contains("reason of the model: "), "{shown}");
        }
    }

    #[tokio::test]
    async fn a_reason_is_required_noted_and_removed_before_a_strict_tool() {
        let settled = run_call(
            RequireReason::new(),
            "open",
            json!({ "path": "a", "reason": " to\nread it " }),
        )
        .await;
        assert_eq!(
            (settled.status, summary_of(&settled)),
            (Status::Ok, Some("to read it"))
        );
        assert_eq!(
            *settled.value.as_value(),
            json!({ "path": "a" }),
            "the tool does not receive it"
        );
        for arguments in [json!({ "path": "a" }), json!({ "path": "a", "reason": "" })] {
            assert_eq!(
                run_call(RequireReason::new(), "open", arguments)
                    .await
                    .status,
                Status::SchemaViolation
            );
        }
    }

    #[tokio::test]
    async fn without_the_schema_the_layer_rejects_with_a_helpful_text() {
        let layer =
            || layer_with(|options| (options.schema_required, options.min_length) = (false, 5));
        for arguments in [
            json!({}),
            json!({ "reason": "  ab   " }),
            json!({ "reason": "éééé" }),
        ] {
            let settled = run_call(layer(), "open", arguments).await;
            let text = settled.model_text().into_owned();
            assert_eq!(settled.status, Status::SchemaViolation);
            assert!(
                text.contains("\"reason\"") && text.contains("at least 5 characters"),
                "{text}"
            );
        }
        assert_eq!(
            run_call(layer(), "open", json!({ "reason": "ééééé" }))
                .await
                .status,
            Status::Ok
        );
    }

    #[tokio::test]
    async fn a_blank_can_be_filled_in() {
        let layer = || {
            layer_with(|options| {
                options.schema_required = false;
                options.on_missing = OnMissing::FillBlank;
            })
        };
        for arguments in [
            json!({ "path": "a" }),
            json!({ "path": "a", "reason": " " }),
        ] {
            let settled = run_call(layer(), "open", arguments).await;
            assert_eq!(
                (settled.status, summary_of(&settled)),
                (Status::Ok, Some("(no reason given)"))
            );
            assert_eq!(
                *settled.value.as_value(),
                json!({ "path": "a" }),
                "the real arguments stay intact"
            );
        }
    }

    #[tokio::test]
    async fn a_parameter_of_the_tool_itself_counts_and_stays() {
        let settled = run_call(RequireReason::new(), "fire", json!({ "reason": "budget" })).await;
        assert_eq!(
            (settled.status, summary_of(&settled)),
            (Status::Ok, Some("budget"))
        );
        assert_eq!(*settled.value.as_value(), json!({ "reason": "budget" }));
        let refused = run_call(RequireReason::new(), "fire", json!({})).await;
        assert_eq!(refused.status, Status::SchemaViolation);
    }

    #[tokio::test]
    async fn a_tool_with_closed_alternatives_stays_callable_and_needs_no_reason() {
        let branch = |name: &str| json!({ "properties": { name: {} }, "required": [name], "additionalProperties": false });
        let registry = Registry::new();
        for (tool, other) in [("either", "b"), ("own", "reason")] {
            let schema = json!({ "type": "object", "oneOf": [branch("a"), branch(other)] });
            let spec = ToolSpec::new(tool, "Works.", Schema::new(schema).expect("valid"));
            registry.register_host(spec).expect("a new name");
        }
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(RequireReason::new())
            .build()
            .expect("valid order");
        let view = View::for_stack(&registry, &stack).expect("additive");
        let run = async |tool: &str, arguments: Value| {
            let shown = view.get(tool).expect("shown");
            assert_eq!(shown.spec.input, shown.entry.spec.input, "unchanged");
            let outcome = stack.run(Call::new(seed_for(&view, tool, arguments))).await;
            let settled = outcome.settled().expect("settled");
            (settled.status, summary_of(settled).map(str::to_owned))
        };
        for tool in ["either", "own"] {
            assert_eq!(
                run(tool, json!({ "a": 1 })).await,
                (Status::Ok, Some("(no reason given)".into())),
                "{tool}"
            );
        }
        assert_eq!(
            run("own", json!({ "reason": "mine" })).await,
            (Status::Ok, Some("mine".into()))
        );
        assert!(
            executor.seen()[2].arguments.get("reason").is_some(),
            "the tool's own parameter stays"
        );
    }

    #[tokio::test]
    async fn a_parameter_of_another_layer_is_not_removed() {
        struct Other;
        impl Transform for Other {
            fn name(&self) -> LayerName {
                // The same name does not make it the same layer.
                RequireReason::NAME.into()
            }
            fn transform(&self, mut spec: ToolSpec) -> Option<ToolSpec> {
                let input = spec
                    .input
                    .with_parameter("reason", json!({ "type": "string" }), false);
                spec.input = input.ok().flatten().unwrap_or(spec.input);
                Some(spec)
            }
        }
        let other: Arc<dyn Transform> = Arc::new(Other);
        let view = toolgate_testkit::plain_view(&strict_registry())
            .apply_transforms([&other])
            .expect("additive");
        let executor = FakeExecutor::new();
        let take_out = toolgate_core::map_call(|call: Call| {
            assert!(
                call.arguments.get("reason").is_some(),
                "the layer that added it still receives it"
            );
            let rest = call.arguments.without_argument("reason");
            call.with_arguments(rest)
        });
        let stack = Stack::over(executor)
            .layer(RequireReason::new())
            .layer(take_out)
            .build()
            .expect("valid order");
        let outcome = stack
            .run(Call::new(seed_for(&view, "open", json!({ "reason": "r" }))))
            .await;
        assert!(outcome.is_ok());
    }

    #[tokio::test]
    async fn the_same_layer_twice_asks_once() {
        let registry = strict_registry();
        let named = toolgate_core::LayerExt::named(RequireReason::new(), "again");
        let stack = Stack::over(registry.clone())
            .layer(RequireReason::new())
            .layer(named)
            .build()
            .expect("valid order");
        let view = View::for_stack(&registry, &stack).expect("additive");
        let outcome = stack
            .run(Call::new(seed_for(&view, "open", json!({ "reason": "r" }))))
            .await;
        assert_eq!(
            outcome
                .settled()
                .map(|settled| (settled.status, summary_of(settled))),
            Some((Status::Ok, Some("r")))
        );
    }

    #[tokio::test]
    async fn outside_a_view_a_given_reason_is_removed() {
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(RequireReason::new())
            .build()
            .expect("valid order");
        stack
            .run(call_with("any", json!({ "reason": "r", "n": 1 })))
            .await;
        assert_eq!(
            *executor.seen()[0].arguments.as_json().as_value(),
            json!({ "n": 1 })
        );
        let stack = Stack::over(executor.clone())
            .layer(layer_with(|options| options.strip = false))
            .build()
            .expect("valid order");
        stack.run(call_with("any", json!({ "reason": "r" }))).await;
        assert!(
            executor.seen()[1].arguments.get("reason").is_some(),
            "unless `strip` is off"
        );
    }

    #[tokio::test]
    async fn the_reason_is_noted_under_the_configured_key_also_when_the_call_fails() {
        let noted = async |key: &str| {
            let key = key.to_owned();
            let executor = FakeExecutor::new().then(Outcome::denied(None));
            let stack = Stack::over(executor)
                .layer(layer_with(|options| options.audit_key = key))
                .build()
                .expect("valid order");
            let outcome = stack
                .run(call_with("any", json!({ "reason": "a\nb" })))
                .await;
            outcome
                .settled()
                .and_then(|settled| settled.notes.fields().cloned())
                .expect("noted")
        };
        assert_eq!(noted("summary").await.summary.as_deref(), Some("a b"));
        assert_eq!(
            noted("description").await.description.as_deref(),
            Some("a\nb")
        );
        assert_eq!(noted("why").await.metadata["why"], "a\nb");
    }

    #[tokio::test]
    async fn a_reason_is_bounded_and_redacted_or_withheld() {
        struct Censor;
        impl Redactor for Censor {
            fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
                Ok(value.clone())
            }
            fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
                if text.contains("poison") {
                    Err(RedactionError)
                } else {
                    Ok(text.replace("s3cret", "***"))
                }
            }
        }
        let layer = || RequireReason::new().redactor(SharedRedactor::new(Censor));
        let noted = async |reason: String| {
            let settled = run_call(layer(), "open", json!({ "reason": reason })).await;
            summary_of(&settled).expect("noted").to_owned()
        };
        assert_eq!(noted("use s3cret".into()).await, "use ***");
        assert_eq!(noted("poison s3cret".into()).await, "(reason withheld)");
        assert_eq!(noted("é".repeat(5000)).await.chars().count(), 1000);
    }

    #[tokio::test]
    async fn a_call_that_suspends_hands_down_the_same_arguments_again() {
        let twice = run_twice(
            RequireReason::new(),
            seed("any", json!({ "reason": "r", "n": 1 })),
        )
        .await;
        twice.assert_replays();
        assert_eq!(
            *twice.handed_down[1].as_json().as_value(),
            json!({ "n": 1 })
        );
    }

    #[tokio::test]
    async fn a_rehearsal_gets_the_same_verdict() {
        let stack = Stack::over(FakeExecutor::new())
            .layer(RequireReason::new())
            .build()
            .expect("valid order");
        let run = async |arguments| {
            stack
                .run(Call::new(CallSeed {
                    rehearsal: true,
                    ..seed("any", arguments)
                }))
                .await
                .status()
        };
        assert_eq!(run(json!({})).await, Some(Status::SchemaViolation));
        assert_eq!(run(json!({ "reason": "r" })).await, Some(Status::DryRun));
    }

    #[test]
    fn the_injected_parameter_is_described_and_bounded() {
        let registry = strict_registry();
        let stack = Stack::over(registry.clone())
            .layer(layer_with(|options| options.min_length = 3))
            .build()
            .expect("valid order");
        let view = View::for_stack(&registry, &stack).expect("additive");
        let schema = view
            .get("open")
            .expect("shown")
            .spec
            .input
            .as_json()
            .clone();
        assert_eq!(schema["properties"]["reason"]["minLength"], 3);
        assert_eq!(schema["required"], json!(["reason"]));
        assert!(
            view.admit_request(&ToolRequest::from_json(
                "c",
                "open",
                json!({ "reason": "no" })
            ))
            .refusal
            .is_some()
        );
    }

    #[test]
    fn invalid_options_are_rejected() {
        let refused = |change: fn(&mut RequireReasonOptions)| {
            RequireReason::with_options(options_with(change))
                .map(drop)
                .map_err(|error| error.key)
        };
        assert_eq!(refused(|options| options.min_length = 0), Err("min_length"));
        assert_eq!(
            refused(|options| options.min_length = 1001),
            Err("min_length")
        );
        assert_eq!(refused(|options| options.field = " ".into()), Err("field"));
        assert_eq!(
            refused(|options| options.audit_key.clear()),
            Err("audit_key")
        );
        assert!(
            serde_json::from_str::<RequireReasonOptions>(r#"{"on_missing":"rejects"}"#).is_err()
        );
    }
}
