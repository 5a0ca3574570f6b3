//! What a scripted model can be relied on for.

use super::*;
use futures::executor::block_on;
use serde_json::json;
use toolgate_core::{Registry, Schema, ToolAnswer, ToolSpec, Usage, View};

fn asked(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..ModelRequest::default()
    }
}

fn played(model: &Scripted, request: &ModelRequest) -> Vec<Result<Delta, ModelError>> {
    block_on(model.reply(request).collect())
}

fn reply(model: &Scripted, request: &ModelRequest) -> Result<Reply, ModelError> {
    match played(model, request).pop().expect("a last piece")? {
        Delta::Done(reply) => Ok(*reply),
        other => panic!("the last piece is {other:?}"),
    }
}

fn said(model: &Scripted, request: &ModelRequest) -> String {
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
    Message::new(Role::Tool, vec![Content::Result(answer).into()])
}

#[test]
fn the_pieces_put_together_are_the_reply_and_parallel_arguments_are_mixed() {
    let line = Line::new()
        .think("Grüße an alle")
        .say("I look.")
        .call("read", json!({ "path": "a long path" }))
        .call("read", json!({ "path": "ö" }));
    let model = Scripted::new([line]).chunk(NonZeroUsize::new(4).expect("not zero"));
    let mut pieces = played(&model, &ModelRequest::default());
    let Some(Ok(Delta::Done(reply))) = pieces.pop() else {
        panic!("no reply")
    };
    let (mut text, mut thought, mut calls) =
        (String::new(), String::new(), Vec::<(String, String)>::new());
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
        .map(|(id, text)| ToolRequest::text(id, "read", text))
        .collect();
    assert_eq!(asked, wanted);
    assert_ne!(calls[0].0, calls[1].0);
    assert_eq!(order[..4], [0, 1, 0, 1], "mixed");
    assert_eq!(reply.finish, Finish::Calls);
}

#[test]
fn a_session_that_is_taken_up_elsewhere_goes_on_at_the_right_reply() {
    let lines = ["one", "two", "three"];
    let mut messages = vec![Message::user("go")];
    for line in lines {
        let fresh = Scripted::new(lines);
        assert_eq!(said(&fresh, &asked(messages.clone())), line);
        messages.push(Message::assistant(line));
    }
}

#[test]
fn the_same_model_counts_on_and_notices_another_conversation() {
    let model = Scripted::new(["one", "two", "three"]);
    let mut request = asked(vec![Message::user("go")]);
    for line in ["one", "two", "three"] {
        assert_eq!(said(&model, &request), line);
        assert_eq!(
            said(&model, &request),
            line,
            "asked again without having answered"
        );
        request.messages.push(Message::assistant(line).into());
    }
    assert_eq!(said(&model, &asked(vec![Message::user("go")])), "one");
    let error = reply(&model, &request).expect_err("nothing is left");
    assert_eq!(error.kind, ModelErrorKind::Setup);
    assert_eq!(
        error.detail,
        "the script has 3 replies and was asked for reply 4"
    );
}

#[test]
fn in_order_it_plays_one_line_after_the_other() {
    let model = Scripted::new(["one", "two"]).in_order();
    let request = ModelRequest::default();
    assert_eq!(
        (said(&model, &request), said(&model, &request)),
        ("one".into(), "two".into())
    );
    assert_eq!(
        reply(&model, &request).expect_err("nothing is left").kind,
        ModelErrorKind::Setup
    );
}

#[test]
fn a_failure_takes_no_place_and_comes_as_often_as_it_is_told() {
    let wait = Duration::from_secs(2);
    let failing = || {
        Line::new()
            .say("Hm")
            .fail(ModelErrorKind::RateLimited, "slow down")
            .retry_after(wait)
            .times(2)
    };
    for model in [
        Scripted::new([failing(), "fine".into()]),
        Scripted::new([failing(), "fine".into()]).in_order(),
    ] {
        let request = ModelRequest::default();
        for _ in 0..2 {
            let pieces = played(&model, &request);
            assert_eq!(pieces[0], Ok(Delta::Text("Hm".into())));
            let error = pieces[1].clone().expect_err("a failure");
            assert_eq!(
                (error.kind, error.retry_after),
                (ModelErrorKind::RateLimited, Some(wait))
            );
        }
        assert_eq!(said(&model, &request), "fine");
    }
}

#[test]
fn the_first_alternative_that_fits_is_said() {
    let model = Scripted::new([
        Line::from("denied").when(When::tool_failed("write")),
        Line::from("found").when(When::tool_result("list", "Cargo.toml")),
        Line::from("please").when(When::user_contains("please")),
        Line::from("nothing"),
        Line::from("second"),
    ]);
    assert_eq!(
        said(&model, &asked(vec![result("write", "no", true)])),
        "denied"
    );
    assert_eq!(
        said(&model, &asked(vec![result("write", "yes", false)])),
        "nothing"
    );
    assert_eq!(
        said(&model, &asked(vec![result("list", "Cargo.toml", false)])),
        "found"
    );
    assert_eq!(
        said(&model, &asked(vec![result("read", "Cargo.toml", false)])),
        "nothing"
    );
    let polite = asked(vec![
        Message::user("yes, please"),
        result("list", "", false),
    ]);
    assert_eq!(said(&model, &polite), "please");
    let after = asked(vec![Message::assistant("found"), Message::user("and?")]);
    assert_eq!(
        said(&model, &after),
        "second",
        "alternatives take one place together"
    );
}

#[test]
fn without_an_alternative_that_fits_the_error_says_where() {
    let model = Scripted::new([Line::from("x").when(When::last_contains("never"))]);
    let error = reply(&model, &asked(vec![Message::user("hello")])).expect_err("nothing fits");
    assert_eq!(
        error.to_string(),
        "scripted:script: the model is not set up: no line of the script fits as reply 1"
    );
}

#[test]
fn a_line_can_depend_on_the_tools_that_are_shown() {
    let registry = Registry::new();
    registry
        .register_host(ToolSpec::new("read", "Reads.", Schema::any_object()))
        .expect("free");
    let model = Scripted::new([
        Line::from("I can read").when(When::tool_shown("read")),
        "I cannot".into(),
    ]);
    let request = ModelRequest {
        view: View::of(&registry),
        ..ModelRequest::default()
    };
    assert_eq!(said(&model, &request), "I can read");
    assert_eq!(said(&model, &ModelRequest::default()), "I cannot");
}

#[test]
fn a_repeated_line_asks_with_another_id_each_time() {
    let model = Scripted::new([
        Line::new().call("poll", json!({})).times(2),
        Line::from("over").always(),
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
        assert_eq!(said(&model, &request), "over");
        request.messages.push(Message::assistant("over").into());
    }
}

#[test]
fn a_call_can_be_as_broken_as_models_make_it() {
    let model = Scripted::new([Line::new()
        .raw_call("", "read", "{\"path\": ")
        .usage(Usage {
            input: 3,
            ..Usage::default()
        })]);
    let reply = reply(&model, &ModelRequest::default()).expect("a reply");
    assert_eq!(
        reply.message.calls().next(),
        Some(&ToolRequest::text("", "read", "{\"path\": "))
    );
    assert_eq!(reply.usage.expect("told").input, 3);
}

#[test]
fn requests_are_kept_only_when_asked_for() {
    let (watched, other) = (Scripted::new(["x"]).watch(), Scripted::new(["x"]));
    let request = asked(vec![Message::user("hello")]);
    assert_eq!(said(&watched, &request), said(&other, &request));
    assert_eq!(watched.requests()[0].messages, request.messages);
    assert!(other.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn pauses_are_real_only_when_asked_for() {
    let line = || Line::from("one two three four five").pause(Duration::from_secs(1));
    let request = ModelRequest::default();
    let start = tokio::time::Instant::now();
    let pieces = Scripted::new([line()]).reply(&request).count().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        Scripted::new([line()])
            .real_time()
            .reply(&request)
            .count()
            .await,
        pieces
    );
    assert!(start.elapsed() >= Duration::from_secs(pieces as u64));
}
