//! Scenarios about models: errors, odd replies, forms, and what is kept of a conversation.

use std::sync::Arc;

use serde_json::json;
use toolgate::{
    Content, Message, ModelErrorKind, OutputFormat, ProviderCall, Reply, Role, RunOptions, Schema,
    models::{Line, Scripted},
};

use crate::{
    asked::Replies,
    parity::{check, check_core},
    scenario::{Scenario, Step},
};

fn look() -> Line {
    Line::new().call("look", json!({}))
}

fn failing(kind: ModelErrorKind) -> Line {
    Line::new().fail(kind, "the provider is on fire")
}

#[tokio::test]
async fn an_error_in_the_first_round_can_be_resumed() {
    let scenario = Scenario::of([failing(ModelErrorKind::Overloaded), look(), "Done.".into()]);
    check("error_in_round_1", &scenario.run("look").resume()).await;
}

#[tokio::test]
async fn an_error_in_the_third_round_keeps_the_rounds_before_it() {
    let read = |path: &str| Line::new().call("read", json!({ "path": path }));
    let scenario = Scenario::of([
        read("a"),
        read("b"),
        failing(ModelErrorKind::Connection),
        read("c"),
        "Done.".into(),
    ]);
    check(
        "error_in_round_3",
        &scenario.run("read").then(Step::Lose).resume().on_sqlite(),
    )
    .await;
}

#[tokio::test]
async fn runs_of_one_session_follow_one_another() {
    let scenario = Scenario::of([look(), "One.".into(), look(), "Two.".into()]);
    check("two_runs", &scenario.run("first").run("second")).await;
}

#[tokio::test]
async fn a_session_in_which_nothing_is_left_to_do_says_so() {
    let scenario = Scenario::of(["One."])
        .resume()
        .run("first")
        .resume()
        .then(Step::Lose)
        .resume();
    check("nothing_to_do", &scenario).await;
}

#[tokio::test]
async fn calls_with_the_same_label_or_none_are_all_answered() {
    let first = Line::new()
        .raw_call("x", "read", r#"{"path":"a"}"#)
        .raw_call("x", "read", r#"{"path":"b"}"#)
        .raw_call("", "read", r#"{"path":"c"}"#);
    check(
        "odd_labels",
        &Scenario::of([first, "Done.".into()]).run("read"),
    )
    .await;
}

fn searched() -> ProviderCall {
    let (id, tool) = ("srv_1".to_owned(), "web_search".to_owned());
    ProviderCall {
        id,
        tool,
        arguments: json!({ "query": "rust" }),
        result: json!(["a page"]),
        failed: false,
    }
}

#[tokio::test]
async fn what_the_provider_ran_by_itself_is_recorded_and_not_run_again() {
    let both = Message::new(
        Role::Assistant,
        vec![
            Content::Ran(searched()).into(),
            Content::Call(toolgate::ToolRequest::json("a", "look", json!({}))).into(),
        ],
    );
    let alone = Message::new(
        Role::Assistant,
        vec![
            Content::Ran(searched()).into(),
            toolgate::Part::text("Found it."),
        ],
    );
    let replies = vec![Reply::new(both), Reply::new(alone)];
    let scenario = Scenario::with_model(move || Arc::new(Replies::new(replies.clone())));
    check("provider_native", &scenario.run("search")).await;
}

#[tokio::test]
async fn a_secret_that_somebody_says_is_in_no_event() {
    const SECRET: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
    let said = Line::new()
        .say(format!("I will remember {SECRET}."))
        .call("read", json!({ "path": SECRET }));
    let scenario =
        Scenario::of([said, "Done.".into()]).run("my key is sk_live_4eC39HqLyjWDarjtT1zdp7dc");
    let events = check_core("secret_said", &scenario).await.lines;
    assert!(
        events
            .iter()
            .all(|line| !line.to_string().contains("4eC39")),
        "{events:?}"
    );
    check("secret_said", &scenario).await;
}

#[tokio::test]
async fn what_is_too_long_to_be_read_is_left_out_in_whole_turns() {
    let scenario = Scenario::with_model(|| {
        let long = || Line::new().say("z".repeat(300)).call("look", json!({}));
        Arc::new(
            Scripted::new([long(), long(), long(), "Done.".into(), "Again.".into()]).in_order(),
        )
    });
    let scenario = scenario.setup(|_, builder| builder.window_bytes(700));
    check(
        "history_compacted",
        &scenario.run("a long story").run("and now?"),
    )
    .await;
}

fn person() -> OutputFormat {
    let schema = json!({ "type": "object", "properties": { "age": { "type": "integer" } }, "required": ["age"] });
    OutputFormat {
        name: "person".to_owned(),
        schema: Schema::new(schema).expect("valid"),
    }
}

fn in_form(lines: &[&str]) -> Scenario {
    let lines: Vec<Line> = std::iter::once(look())
        .chain(lines.iter().map(|line| Line::from(*line)))
        .collect();
    Scenario::of(lines).run_with("how old?", |_| RunOptions::new().output(person()))
}

#[tokio::test]
async fn an_answer_of_the_right_form_is_read() {
    let scenario = in_form(&[r#"{"age":7}"#]).then(Step::Lose);
    check(
        "output_right",
        &scenario.resume_with(|_| RunOptions::new().output(person())),
    )
    .await;
}

#[tokio::test]
async fn an_answer_of_the_wrong_form_is_sent_back_once() {
    check("output_wrong_once", &in_form(&["seven", r#"{"age":7}"#])).await;
}

#[tokio::test]
async fn a_second_answer_of_the_wrong_form_is_a_failure() {
    check(
        "output_wrong_twice",
        &in_form(&["seven", r#"{"age":"seven"}"#]),
    )
    .await;
}

#[tokio::test]
async fn reasoning_is_kept_beside_the_words() {
    let scenario = Scenario::of([
        look().think("Where is it?"),
        Line::new().think("There.").say("There it is."),
    ]);
    check("reasoning", &scenario.run("find it")).await;
}
