//! Scenarios about models: errors, odd replies, output formats, and the history of a conversation.

use std::sync::Arc;

use serde_json::json;
use toolgate::{
    Message,
    model::{
        ModelErrorKind, OutputFormat, PartContent, ProviderCall, Reply, Role, ScriptLine,
        ScriptedModel,
    },
    session::RunOptions,
    value::Schema,
};

use crate::modes::{
    asked::FixedReplies,
    parity::{check_both, check_managed},
    scenario::{ModeScenario, ScenarioStep},
};

fn look_line() -> ScriptLine {
    ScriptLine::new().call("look", json!({}))
}

fn failing_line(kind: ModelErrorKind) -> ScriptLine {
    ScriptLine::new().fail(kind, "the provider is on fire")
}

#[tokio::test]
async fn an_error_in_the_first_iteration_can_be_resumed() {
    let scenario = ModeScenario::with_lines([
        failing_line(ModelErrorKind::Overloaded),
        look_line(),
        "Done.".into(),
    ]);
    check_both("error_in_round_1", &scenario.run("look").resume()).await;
}

#[tokio::test]
async fn an_error_in_the_third_iteration_keeps_the_earlier_ones() {
    let read = |path: &str| ScriptLine::new().call("read", json!({ "path": path }));
    let scenario = ModeScenario::with_lines([
        read("a"),
        read("b"),
        failing_line(ModelErrorKind::Connection),
        read("c"),
        "Done.".into(),
    ]);
    check_both(
        "error_in_round_3",
        &scenario
            .run("read")
            .then(ScenarioStep::Lose)
            .resume()
            .on_sqlite(),
    )
    .await;
}

#[tokio::test]
async fn runs_of_one_session_follow_one_another() {
    let scenario =
        ModeScenario::with_lines([look_line(), "One.".into(), look_line(), "Two.".into()]);
    check_both("two_runs", &scenario.run("first").run("second")).await;
}

#[tokio::test]
async fn a_session_with_nothing_left_to_do_reports_it() {
    let scenario = ModeScenario::with_lines(["One."])
        .resume()
        .run("first")
        .resume()
        .then(ScenarioStep::Lose)
        .resume();
    check_both("nothing_to_do", &scenario).await;
}

#[tokio::test]
async fn calls_with_the_same_label_or_none_are_all_answered() {
    let first = ScriptLine::new()
        .raw_call("x", "read", r#"{"path":"a"}"#)
        .raw_call("x", "read", r#"{"path":"b"}"#)
        .raw_call("", "read", r#"{"path":"c"}"#);
    check_both(
        "odd_labels",
        &ModeScenario::with_lines([first, "Done.".into()]).run("read"),
    )
    .await;
}

fn provider_search() -> ProviderCall {
    let id = "srv_1".to_owned();
    let tool = "web_search".to_owned();
    ProviderCall {
        id,
        tool,
        arguments: json!({ "query": "rust" }),
        result: json!(["a page"]),
        failed: false,
    }
}

#[tokio::test]
async fn provider_executed_calls_are_recorded_and_not_executed_again() {
    let both = Message::new(
        Role::Assistant,
        vec![
            PartContent::Ran(provider_search()).into(),
            PartContent::Call(toolgate::stack::ToolRequest::from_json(
                "a",
                "look",
                json!({}),
            ))
            .into(),
        ],
    );
    let alone = Message::new(
        Role::Assistant,
        vec![
            PartContent::Ran(provider_search()).into(),
            toolgate::model::MessagePart::from_text("Found it."),
        ],
    );
    let replies = vec![Reply::new(both), Reply::new(alone)];
    let scenario = ModeScenario::with_model(move || Arc::new(FixedReplies::new(replies.clone())));
    check_both("provider_native", &scenario.run("search")).await;
}

#[tokio::test]
async fn a_secret_in_a_message_is_in_no_event() {
    const SECRET: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
    let said = ScriptLine::new()
        .say(format!("I will remember {SECRET}."))
        .call("read", json!({ "path": SECRET }));
    let scenario = ModeScenario::with_lines([said, "Done.".into()])
        .run("my key is sk_live_4eC39HqLyjWDarjtT1zdp7dc");
    let events = check_managed("secret_said", &scenario).await.lines;
    assert!(
        events
            .iter()
            .all(|line| !line.to_string().contains("4eC39")),
        "{events:?}"
    );
    check_both("secret_said", &scenario).await;
}

#[tokio::test]
async fn a_history_that_is_too_long_is_truncated_by_whole_turns() {
    let scenario = ModeScenario::with_model(|| {
        let long = || {
            ScriptLine::new()
                .say("z".repeat(300))
                .call("look", json!({}))
        };
        Arc::new(
            ScriptedModel::new([long(), long(), long(), "Done.".into(), "Again.".into()])
                .in_order(),
        )
    });
    let scenario = scenario.setup(|_, builder| builder.window_bytes(700));
    check_both(
        "history_compacted",
        &scenario.run("a long story").run("and now?"),
    )
    .await;
}

fn person_format() -> OutputFormat {
    let schema = json!({ "type": "object", "properties": { "age": { "type": "integer" } }, "required": ["age"] });
    OutputFormat {
        name: "person".to_owned(),
        schema: Schema::new(schema).expect("valid"),
    }
}

fn scenario_with_format(lines: &[&str]) -> ModeScenario {
    let lines: Vec<ScriptLine> = std::iter::once(look_line())
        .chain(lines.iter().map(|line| ScriptLine::from(*line)))
        .collect();
    ModeScenario::with_lines(lines)
        .run_with("how old?", |_| RunOptions::new().output(person_format()))
}

#[tokio::test]
async fn an_answer_in_the_right_format_is_parsed() {
    let scenario = scenario_with_format(&[r#"{"age":7}"#]).then(ScenarioStep::Lose);
    check_both(
        "output_right",
        &scenario.resume_with(|_| RunOptions::new().output(person_format())),
    )
    .await;
}

#[tokio::test]
async fn an_answer_in_the_wrong_format_is_rejected_once() {
    check_both(
        "output_wrong_once",
        &scenario_with_format(&["seven", r#"{"age":7}"#]),
    )
    .await;
}

#[tokio::test]
async fn a_second_answer_in_the_wrong_format_is_a_failure() {
    check_both(
        "output_wrong_twice",
        &scenario_with_format(&["seven", r#"{"age":"seven"}"#]),
    )
    .await;
}

#[tokio::test]
async fn reasoning_is_stored_beside_the_text() {
    let scenario = ModeScenario::with_lines([
        look_line().think("Where is it?"),
        ScriptLine::new().think("There.").say("There it is."),
    ]);
    check_both("reasoning", &scenario.run("find it")).await;
}
