//! Tests of the tools that `#[tool]` generates.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::executor::block_on;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate::{
    Annotations, Arguments, Call, Outcome, Registry, SideEffect, Stack, Status, Tool, ToolError,
    stack::ErrorCategory,
    tool,
    tool::{Context, RegisterError, Resource, State, ToolKind, ToolOutput},
};

/// Reads a text file.
///
/// Lines are counted from 1:
/// - the first is 1
/// - there is no 0
#[tool(
    kind = "read",
    side_effect = "read_only",
    idempotent,
    resource = "path",
    timeout = "30s",
    long_running = "Reading",
    cost = 0.5
)]
async fn read_file(
    /// The file to read.
    path: String,
    /// The first line,
    /// counted from 1.
    first_line: Option<u32>,
    cx: &Context,
) -> Result<String, ToolError> {
    Ok(format!(
        "{path} from {} for {}",
        first_line.unwrap_or(1),
        cx.tool
    ))
}

/// Adds.
#[tool]
async fn add(a: i64, mut b: i64) -> i64 {
    b += a;
    b
}

fn input_schema(tool: &impl Tool) -> Value {
    tool.spec().input.as_json().as_value().clone()
}

fn run_tool(tool: impl Tool, arguments: Value) -> Outcome {
    let name = tool.spec().name;
    let registry = Registry::new();
    registry.register(tool).expect("registers");
    let stack = Stack::over(registry).build().expect("builds");
    block_on(stack.run(Call::detached(
        name.as_str(),
        Arguments::try_from(arguments).expect("object"),
    )))
}

fn model_text(outcome: &Outcome) -> String {
    outcome
        .settled()
        .expect("settled")
        .model_text()
        .into_owned()
}

fn detached_context() -> Context {
    Context::new(Call::detached("by hand", Arguments::empty()))
}

#[test]
fn the_function_name_is_the_tool_name() {
    assert_eq!(read_file.spec().name.as_str(), "read_file");
}

#[test]
fn the_doc_comment_is_the_description_with_its_paragraphs_and_lists() {
    let expected =
        "Reads a text file.\n\nLines are counted from 1:\n- the first is 1\n- there is no 0";
    assert_eq!(read_file.spec().description, expected);
}

#[test]
fn argument_docs_are_in_the_schema() {
    let schema = input_schema(&read_file);
    assert_eq!(
        schema["properties"]["path"]["description"],
        "The file to read."
    );
    assert_eq!(
        schema["properties"]["first_line"]["description"],
        "The first line,\ncounted from 1."
    );
}

#[test]
fn an_option_is_not_required() {
    assert_eq!(input_schema(&read_file)["required"], json!(["path"]));
    assert_eq!(
        model_text(&run_tool(read_file, json!({ "path": "a" }))),
        "a from 1 for read_file"
    );
    assert_eq!(
        model_text(&run_tool(
            read_file,
            json!({ "path": "a", "first_line": null })
        )),
        "a from 1 for read_file"
    );
}

#[test]
fn a_missing_argument_is_rejected() {
    assert_eq!(
        run_tool(read_file, json!({})).status(),
        Some(Status::SchemaViolation)
    );
}

#[test]
fn a_misspelled_argument_is_rejected() {
    let outcome = run_tool(read_file, json!({ "path": "a", "first_lin": 2 }));
    assert_eq!(outcome.status(), Some(Status::SchemaViolation));
    // Also if the schema is not checked first.
    let arguments = Arguments::try_from(json!({ "path": "a", "first_lin": 2 })).expect("object");
    let error = block_on(read_file.invoke(arguments, detached_context())).expect_err("misspelt");
    assert_eq!(error.category, ErrorCategory::InvalidInput);
}

#[test]
fn the_context_parameter_is_not_in_the_schema() {
    let schema = input_schema(&read_file);
    let mut properties: Vec<_> = schema["properties"]
        .as_object()
        .expect("object")
        .keys()
        .collect();
    properties.sort();
    assert_eq!(properties, ["first_line", "path"]);
}

#[test]
fn the_context_can_be_taken_by_value_and_at_any_position() {
    /// Returns its own name.
    #[tool]
    async fn which(cx: toolgate::tool::Context, mark: char) -> String {
        format!("{}{mark}", cx.tool)
    }
    assert_eq!(
        model_text(&run_tool(which, json!({ "mark": "!" }))),
        "which!"
    );
}

#[test]
fn options_become_annotations() {
    let annotations = read_file.spec().annotations;
    let mut expected = Annotations::default()
        .with_kind(ToolKind::Read)
        .with_side_effect(SideEffect::ReadOnly)
        .with_idempotent(true)
        .with_resource(Resource::path("path"));
    expected.timeout_ms = Some(30_000);
    expected.long_running = Some("Reading".to_owned());
    expected.cost = Some(0.5);
    assert_eq!(annotations, expected);
}

#[test]
fn a_tool_without_options_has_no_annotations() {
    assert_eq!(add.spec().annotations, Annotations::default());
    assert_eq!(add.spec().output, None);
}

#[test]
fn every_hint_can_be_given() {
    /// Looks.
    #[tool(read_only, idempotent, open_world)]
    async fn look() {}
    /// Wipes.
    #[tool(destructive)]
    async fn wipe() {}
    let hints = look.spec().annotations.hints;
    assert_eq!((hints.read_only, hints.destructive), (Some(true), None));
    assert_eq!(
        (hints.idempotent, hints.open_world),
        (Some(true), Some(true))
    );
    assert!(!look.spec().annotations.may_write(), "read_only is enough");
    assert_eq!(wipe.spec().annotations.hints.destructive, Some(true));
}

#[test]
fn every_kind_and_side_effect_has_its_word() {
    macro_rules! annotated {
        ($($option:ident = $word:literal),*) => {{
            /// Does it.
            #[tool($($option = $word),*)]
            async fn it() {}
            it.spec().annotations
        }};
    }
    macro_rules! kinds {
        ($($word:literal)*) => { vec![$(($word, annotated!(kind = $word).kind)),*] };
    }
    macro_rules! effects {
        ($($word:literal)*) => { vec![$(($word, annotated!(side_effect = $word).side_effect)),*] };
    }
    for (word, kind) in
        kinds!("read" "edit" "delete" "move" "search" "execute" "think" "fetch" "other")
    {
        assert_eq!(serde_json::to_value(kind).expect("json"), word);
    }
    for (word, effect) in effects!("none" "read_only" "workspace_write" "process_exec" "network") {
        assert_eq!(serde_json::to_value(effect).expect("json"), word);
    }
}

#[test]
fn name_and_description_can_be_given() {
    /// For people.
    #[tool(name = "fs.list-all", description = "For the model.")]
    async fn list() {}
    assert_eq!(list.spec().name.as_str(), "fs.list-all");
    assert_eq!(list.spec().description, "For the model.");
}

#[test]
fn a_raw_identifier_loses_its_prefix() {
    /// Moves a file.
    #[tool(resource = "type")]
    async fn r#move(r#type: String) -> String {
        r#type
    }
    assert_eq!(r#move.spec().name.as_str(), "move");
    assert_eq!(
        r#move.spec().annotations.resources,
        [Resource::path("type")]
    );
    assert_eq!(model_text(&run_tool(r#move, json!({ "type": "x" }))), "x");
}

#[test]
fn the_function_can_still_be_called_directly() {
    assert_eq!(block_on(add::call(1, 2)), 3);
    let text = block_on(read_file::call(
        "a".to_owned(),
        Some(3),
        &detached_context(),
    ))
    .expect("reads");
    assert_eq!(text, "a from 3 for by hand");
}

#[test]
fn plain_values_are_serialized() {
    assert_eq!(model_text(&run_tool(add, json!({ "a": 1, "b": 2 }))), "3");
    /// Does nothing.
    #[tool]
    async fn nothing() {}
    assert!(run_tool(nothing, json!({})).is_ok());
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Point {
    /// The distance to the right.
    x: i32,
}

#[test]
fn output_adds_the_schema_of_the_value() {
    /// Mirrors a point.
    #[tool(output)]
    async fn mirror(point: Point) -> Result<Point, ToolError> {
        Ok(Point { x: -point.x })
    }
    /// Counts letters.
    #[tool(output)]
    async fn count(word: String) -> usize {
        word.len()
    }
    let schema = mirror.spec().output.expect("an output schema");
    assert_eq!(
        schema.as_json()["properties"]["x"]["description"],
        "The distance to the right."
    );
    assert_eq!(
        count.spec().output.expect("an output schema").as_json()["type"],
        "integer"
    );
    assert_eq!(
        model_text(&run_tool(mirror, json!({ "point": { "x": 2 } }))),
        r#"{"x":-2}"#
    );
}

#[test]
fn a_tool_output_is_returned_unchanged() {
    /// Speaks.
    #[tool]
    async fn speak() -> ToolOutput {
        ToolOutput::from(json!({ "n": 1 })).with_text("one")
    }
    /// Tries to speak.
    #[tool]
    async fn try_to_speak() -> Result<toolgate::tool::ToolOutput, ToolError> {
        Ok(ToolOutput::from("x").with_text("y"))
    }
    assert_eq!(model_text(&run_tool(speak, json!({}))), "one");
    assert_eq!(model_text(&run_tool(try_to_speak, json!({}))), "y");
}

#[test]
fn errors_convert_and_their_text_is_hidden_from_the_model() {
    /// Parses a number.
    #[tool]
    async fn parse(text: String) -> Result<u16, std::num::ParseIntError> {
        text.parse()
    }
    /// Reads a missing file.
    #[tool]
    async fn read() -> std::io::Result<String> {
        Err(std::io::Error::other("hunter2"))
    }
    let outcome = run_tool(parse, json!({ "text": "hunter2" }));
    assert_eq!(outcome.status(), Some(Status::ExecutorError));
    assert!(!model_text(&outcome).contains("hunter2"));
    assert!(!model_text(&run_tool(read, json!({}))).contains("hunter2"));
    assert!(run_tool(parse, json!({ "text": "7" })).is_ok());
}

#[test]
fn the_model_reads_the_text_of_a_tool_error() {
    /// Fails.
    #[tool]
    async fn fail() -> Result<(), ToolError> {
        Err(ToolError::new("retry with a shorter text"))
    }
    assert!(model_text(&run_tool(fail, json!({}))).contains("retry with a shorter text"));
}

#[test]
fn serde_and_schemars_attributes_shape_the_argument() {
    /// Searches.
    #[tool(resource = "place", resource = "other", resource_name = "key")]
    async fn search(
        #[serde(rename = "in")] place: String,
        #[serde(rename(deserialize = "or"))] other: Option<String>,
        #[serde(default)]
        #[schemars(range(max = 50))]
        limit: u32,
        #[serde(default, alias = "id")] key: String,
    ) -> String {
        format!("{place} {other:?} {limit} {key}")
    }
    let schema = input_schema(&search);
    assert_eq!(schema["required"], json!(["in"]));
    assert_eq!(schema["properties"]["limit"]["maximum"], 50);
    assert_eq!(
        model_text(&run_tool(search, json!({ "in": "src" }))),
        "src None 0 "
    );
    assert_eq!(
        run_tool(search, json!({ "in": "src", "limit": 51 })).status(),
        Some(Status::SchemaViolation)
    );
    let resources = search.spec().annotations.resources;
    assert_eq!(
        resources,
        [
            Resource::path("in"),
            Resource::path("or"),
            Resource::name("key")
        ]
    );
}

#[test]
fn flattened_arguments_keep_the_check_for_unknown_ones() {
    /// Moves a point.
    #[tool]
    async fn shift(#[serde(flatten)] point: Point, by: i32) -> i32 {
        point.x + by
    }
    assert_eq!(
        model_text(&run_tool(shift, json!({ "x": 1, "by": 2 }))),
        "3"
    );
    assert_eq!(
        run_tool(shift, json!({ "x": 1, "by": 2, "z": 3 })).status(),
        Some(Status::SchemaViolation)
    );
}

#[test]
fn an_alias_of_an_argument_is_not_in_the_schema_and_is_rejected() {
    /// Reads.
    #[tool(resource = "path")]
    async fn read(#[serde(alias = "file")] path: String) -> String {
        path
    }
    assert_eq!(
        run_tool(read, json!({ "file": "a" })).status(),
        Some(Status::SchemaViolation)
    );
}

#[test]
fn two_tools_of_one_module_do_not_conflict() {
    let registry = Registry::new();
    registry.register(add).expect("free");
    registry.register(read_file).expect("free");
    let names: Vec<_> = registry
        .entries()
        .iter()
        .map(|entry| entry.spec.name.to_string())
        .collect();
    assert_eq!(names, ["add", "read_file"]);
}

#[test]
fn other_attributes_stay_with_the_function() {
    /// Takes too much.
    #[tool]
    #[allow(clippy::too_many_arguments)]
    async fn many(
        a: u8,
        b: u8,
        c: u8,
        d: u8,
        e: u8,
        f: u8,
        g: u8,
        #[allow(unused_variables)] h: BTreeMap<String, u8>,
    ) -> u8 {
        a + b + c + d + e + f + g
    }
    /// Is not compiled.
    #[tool]
    #[cfg(any())]
    async fn absent(missing: NoSuchType) {}
    assert_eq!(
        input_schema(&many)["required"].as_array().map(Vec::len),
        Some(8)
    );
}

/// Counts the calls.
#[tool]
async fn count_calls(
    /// Added to the number of calls.
    by: u64,
    State(calls): State<Arc<AtomicU64>>,
    cx: &Context,
) -> String {
    let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
    format!("{} of {}", number + by, cx.tool)
}

#[test]
fn state_is_shared_by_the_calls_and_not_shown_to_the_model() {
    let calls = Arc::new(AtomicU64::new(0));
    let tool = count_calls.with_state(calls.clone());
    let parameters = input_schema(&tool)["properties"].clone();
    assert_eq!(
        parameters
            .as_object()
            .expect("an object")
            .keys()
            .collect::<Vec<_>>(),
        ["by"]
    );
    for expected in ["11 of count_calls", "12 of count_calls"] {
        assert_eq!(
            model_text(&run_tool(tool.clone(), json!({ "by": 10 }))),
            expected
        );
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let cx = detached_context();
    let by_hand = count_calls::call(1, State(calls), &cx);
    assert_eq!(block_on(by_hand), "4 of by hand");
}

/// Sends money back.
#[tool]
async fn refund(
    amount: u32,
    #[host]
    #[serde(rename = "tenant_id")]
    tenant: String,
) -> String {
    format!("{amount} for {tenant}")
}

#[test]
fn a_parameter_of_the_host_has_to_be_filled_before_the_tool_can_be_registered() {
    let registry = Registry::new();
    let error = registry.register(refund).expect_err("nothing fills it");
    assert!(
        matches!(&error, RegisterError::HostValue { parameter, .. } if parameter == "tenant_id"),
        "{error}"
    );
    registry
        .register(refund.fill("tenant_id", |_: &Call| Some("north")))
        .expect("filled");
    let entry = registry.get("refund").expect("there");
    assert_eq!(
        entry.host_values.parameters().collect::<Vec<_>>(),
        ["tenant_id"]
    );
    let by_hand = block_on(refund::call(5, "south".to_owned()));
    assert_eq!(by_hand, "5 for south");
}
