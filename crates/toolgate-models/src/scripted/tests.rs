//! Tests of the scripted model.

use super::*;
use futures::executor::block_on;
use serde_json::json;
use toolgate_core::{Registry, Schema, ToolAnswer, ToolSpec, Usage};

fn asked(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..ModelRequest::default()
    }
}

fn play_all(model: &ScriptedModel, request: &ModelRequest) -> Vec<Result<Delta, ModelError>> {
    block_on(model.reply(request).collect())
}

fn reply(model: &ScriptedModel, request: &ModelRequest) -> Result<Reply, ModelError> {
    match play_all(model, request).pop().expect("a last delta")? {
        Delta::Done(reply) => Ok(*reply),
        other => panic!("the last piece is {other:?}"),
    }
}

fn reply_text(model: &ScriptedModel, request: &ModelRequest) -> String {
    reply(model, request).expect("a reply").message.text()
}

fn result(tool: &str, text: &str, is_error: bool) -> Message {
    let answer = ToolAnswer {
        call_id: "1".into(),
        tool: tool.into(),
        text: text.into(),
        is_error,
        media: Vec::new(),
    };
    Message::new(Role::Tool, vec![PartContent::Result(answer).into()])
}

#[test]
fn the_joined_deltas_are_the_reply_and_parallel_arguments_are_interleaved() {
    let line = ScriptLine::new()
        .think("Grüße an alle")
        .say("I look.")
        .call("read", json!({ "path": "a long path" }))
        .call("read", json!({ "path": "ö" }));
    let model = ScriptedModel::new([line]).chunk(NonZeroUsize::new(4).expect("not zero"));
    let mut pieces = play_all(&model, &ModelRequest::default());
    let Some(Ok(Delta::Done(reply))) = pieces.pop() else {
        panic!("no reply")
    };
    let mut text = String::new();
    let mut thought = String::new();
    let mut calls = Vec::<(String, String)>::new();
    let mut order = Vec::new();
    for piece in pieces {
        match piece.expect("no error") {
            Delta::Text(piece) => text += &piece,
            Delta::Reasoning(piece) => thought += &piece,
            Delta::Call { id, .. } => calls.push((id, String::new())),
            Delta::Arguments { index, text } => {
                order.push(index);
                calls[index].1 += &text;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (text.as_str(), thought.as_str()),
        ("I look.", "Grüße an alle")
    );
    let asked: Vec<_> = reply.message.calls().cloned().collect();
    let wanted: Vec<_> = calls
        .iter()
        .map(|(id, text)| ToolRequest::from_text(id, "read", text))
        .collect();
    assert_eq!(asked, wanted);
    assert_ne!(calls[0].0, calls[1].0);
    assert_eq!(order[..4], [0, 1, 0, 1], "interleaved");
    assert_eq!(reply.finish, FinishReason::Calls);
}

#[test]
fn a_session_resumed_elsewhere_continues_with_the_right_reply() {
    let lines = ["one", "two", "three"];
    let mut messages = vec![Message::user("go")];
    for line in lines {
        let fresh = ScriptedModel::new(lines);
        assert_eq!(reply_text(&fresh, &asked(messages.clone())), line);
        messages.push(Message::assistant(line));
    }
}

#[test]
fn one_model_keeps_counting_and_detects_another_conversation() {
    let model = ScriptedModel::new(["one", "two", "three"]);
    let mut request = asked(vec![Message::user("go")]);
    for line in ["one", "two", "three"] {
        assert_eq!(reply_text(&model, &request), line);
        assert_eq!(reply_text(&model, &request), line, "the same request again");
        request.messages.push(Message::assistant(line).into());
    }
    assert_eq!(reply_text(&model, &asked(vec![Message::user("go")])), "one");
    let error = reply(&model, &request).expect_err("the script has ended");
    assert_eq!(error.kind, ModelErrorKind::Setup);
    assert_eq!(
        error.detail,
        "the script has 3 replies and was asked for reply 4"
    );
}

#[test]
fn in_order_it_plays_one_line_after_the_other() {
    let model = ScriptedModel::new(["one", "two"]).in_order();
    let request = ModelRequest::default();
    assert_eq!(
        (reply_text(&model, &request), reply_text(&model, &request)),
        ("one".into(), "two".into())
    );
    assert_eq!(
        reply(&model, &request)
            .expect_err("the script has ended")
            .kind,
        ModelErrorKind::Setup
    );
}

#[test]
fn a_failure_is_not_a_reply_and_is_played_as_often_as_configured() {
    let wait = Duration::from_secs(2);
    let failing = || {
        ScriptLine::new()
            .say("Hm")
            .fail(ModelErrorKind::RateLimited, "slow down")
            .retry_after(wait)
            .times(2)
    };
    for model in [
        ScriptedModel::new([failing(), "fine".into()]),
        ScriptedModel::new([failing(), "fine".into()]).in_order(),
    ] {
        let request = ModelRequest::default();
        for _ in 0..2 {
            let pieces = play_all(&model, &request);
            assert_eq!(pieces[0], Ok(Delta::Text("Hm".into())));
            let error = pieces[1].clone().expect_err("a failure");
            assert_eq!(
                (error.kind, error.retry_after),
                (ModelErrorKind::RateLimited, Some(wait))
            );
        }
        assert_eq!(reply_text(&model, &request), "fine");
    }
}

#[test]
fn the_first_matching_alternative_is_played() {
    let model = ScriptedModel::new([
        ScriptLine::from("denied").when(LineCondition::tool_failed("write")),
        ScriptLine::from("found").when(LineCondition::tool_result("list", "Cargo.toml")),
        ScriptLine::from("please").when(LineCondition::user_contains("please")),
        ScriptLine::from("nothing"),
        ScriptLine::from("second"),
    ]);
    assert_eq!(
        reply_text(&model, &asked(vec![result("write", "no", true)])),
        "denied"
    );
    assert_eq!(
        reply_text(&model, &asked(vec![result("write", "yes", false)])),
        "nothing"
    );
    assert_eq!(
        reply_text(&model, &asked(vec![result("list", "Cargo.toml", false)])),
        "found"
    );
    assert_eq!(
        reply_text(&model, &asked(vec![result("read", "Cargo.toml", false)])),
        "nothing"
    );
    let polite = asked(vec![
        Message::user("yes, please"),
        result("list", "", false),
    ]);
    assert_eq!(reply_text(&model, &polite), "please");
    let after = asked(vec![Message::assistant("found"), Message::user("and?")]);
    assert_eq!(
        reply_text(&model, &after),
        "second",
        "alternatives share one position"
    );
}

#[test]
fn without_a_matching_alternative_the_error_names_the_position() {
    let model =
        ScriptedModel::new([ScriptLine::from("x").when(LineCondition::last_contains("never"))]);
    let error = reply(&model, &asked(vec![Message::user("hello")])).expect_err("no line matches");
    assert_eq!(
        error.to_string(),
        "scripted:script: the model is not configured: no line of the script fits as reply 1"
    );
}

#[test]
fn a_line_can_depend_on_the_tools_in_the_view() {
    let registry = Registry::new();
    registry
        .register_host(ToolSpec::new("read", "Reads.", Schema::any_object()))
        .expect("free");
    let model = ScriptedModel::new([
        ScriptLine::from("I can read").when(LineCondition::tool_shown("read")),
        "I cannot".into(),
    ]);
    let request = ModelRequest {
        view: toolgate_testkit::plain_view(&registry),
        ..ModelRequest::default()
    };
    assert_eq!(reply_text(&model, &request), "I can read");
    assert_eq!(reply_text(&model, &ModelRequest::default()), "I cannot");
}

#[test]
fn a_repeated_line_gets_another_call_id_each_time() {
    let model = ScriptedModel::new([
        ScriptLine::new().call("poll", json!({})).times(2),
        ScriptLine::from("over").always(),
    ]);
    let mut request = ModelRequest::default();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let reply = reply(&model, &request).expect("a reply");
        ids.push(
            reply
                .message
                .calls()
                .next()
                .expect("a call")
                .provider_call_id
                .clone(),
        );
        request.messages.push(reply.message.into());
    }
    assert_ne!(ids[0], ids[1]);
    for _ in 0..3 {
        assert_eq!(reply_text(&model, &request), "over");
        request.messages.push(Message::assistant("over").into());
    }
}

#[test]
fn a_call_can_have_invalid_arguments() {
    let model =
        ScriptedModel::new([ScriptLine::new()
            .raw_call("", "read", "{\"path\": ")
            .usage(Usage {
                input: 3,
                ..Usage::default()
            })]);
    let reply = reply(&model, &ModelRequest::default()).expect("a reply");
    assert_eq!(
        reply.message.calls().next(),
        Some(&ToolRequest::from_text("", "read", "{\"path\": "))
    );
    assert_eq!(reply.usage.expect("usage").input, 3);
}

#[test]
fn requests_are_stored_only_if_configured() {
    let watched = ScriptedModel::new(["x"]).store_requests();
    let other = ScriptedModel::new(["x"]);
    let request = asked(vec![Message::user("hello")]);
    assert_eq!(reply_text(&watched, &request), reply_text(&other, &request));
    assert_eq!(watched.requests()[0].messages, request.messages);
    assert!(other.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn pauses_are_real_only_if_configured() {
    let line = || ScriptLine::from("one two three four five").pause(Duration::from_secs(1));
    let request = ModelRequest::default();
    let start = tokio::time::Instant::now();
    let pieces = ScriptedModel::new([line()]).reply(&request).count().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        ScriptedModel::new([line()])
            .real_time()
            .reply(&request)
            .count()
            .await,
        pieces
    );
    assert!(start.elapsed() >= Duration::from_secs(pieces as u64));
}
