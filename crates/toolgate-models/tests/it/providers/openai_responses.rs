//! Responses, against the types of the package `openai`.

use serde_json::{Value, json};
use toolgate_core::{
    Delta, FinishReason, Message, ModelErrorKind, ModelRequest, PartContent, ToolChoice, Usage,
};

use crate::providers::{
    peer::{Peer, Wire, ask, assert_clean, reply, streamed_calls, streamed_text},
    requests::{answered, everything, saying, tools},
};

const USAGE: Usage = Usage {
    input: 30,
    cache_read: 60,
    cache_write: 10,
    output: 20,
    reasoning: 5,
};

#[tokio::test]
async fn text_is_streamed_and_the_official_client_decodes_the_same() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (deltas, whole) = reply(&*Wire::Responses.at(&peer.at("text")), &saying("hi")).await;
    assert_eq!(
        deltas,
        ["Hel", "lo, w", "örld 🦀"].map(|piece| Delta::Text(piece.to_owned()))
    );
    assert_eq!(
        (whole.message.text().as_str(), whole.finish, whole.usage),
        ("Hello, wörld 🦀", FinishReason::Stop, Some(USAGE))
    );
    assert_eq!(
        (whole.model.as_deref(), whole.id.as_deref()),
        (Some("gpt-stub-1"), Some("resp_1"))
    );
    assert_eq!(peer.official().await["text"], "Hello, wörld 🦀");
}

#[tokio::test]
async fn reasoning_and_calls_are_stored_and_sent_back_verbatim() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let request = ModelRequest {
        view: tools(),
        ..saying("hi")
    };
    let (deltas, whole) = reply(&*Wire::Responses.at(&peer.at("parallel")), &request).await;
    let thoughts: String = deltas.iter().filter_map(reasoning).collect();
    assert_eq!(thoughts, "First this.\n\nThen that.");
    assert_eq!(
        whole.message.parts[0].content,
        PartContent::Reasoning(thoughts)
    );
    let expected = [
        ("call_a", "files.read", r#"{"path": "a"}"#),
        ("call_b", "write", r#"{"path": "ü"}"#),
    ];
    let expected =
        expected.map(|(id, tool, text)| (id.to_owned(), tool.to_owned(), text.to_owned()));
    assert_eq!(
        (streamed_calls(&deltas), whole.finish),
        (expected.to_vec(), FinishReason::Calls)
    );
    let official = peer.official().await;

    // The session is stored and loaded in between.
    let saved = serde_json::to_string(&whole.message).expect("writes");
    let message: Message = serde_json::from_str(&saved).expect("reads");
    let second = answered(request, toolgate_core::Reply { message, ..whole });
    reply(&*Wire::Responses.at(&peer.at("text")), &second).await;
    let input = peer.last().await["body"]["input"].clone();
    let items = official["items"].as_array().expect("a list");
    assert_eq!(
        input.as_array().expect("a list")[1..=items.len()],
        items[..],
        "including the encrypted reasoning"
    );
    let output = &input[items.len() + 1];
    assert_eq!(
        (&output["type"], &output["call_id"]),
        (&json!("function_call_output"), &json!("call_a"))
    );
    let kinds: Vec<&Value> = output["output"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|part| &part["type"])
        .collect();
    assert_eq!(kinds, ["input_text", "input_image", "input_file"]);
    peer.official().await;
}

#[tokio::test]
async fn every_request_setting_can_be_sent_by_the_official_client() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for choice in [
        everything().choice,
        ToolChoice::None,
        ToolChoice::Required,
        ToolChoice::Auto,
    ] {
        let request = ModelRequest {
            choice,
            ..everything()
        };
        reply(&*Wire::Responses.at(&peer.at("text")), &request).await;
        peer.official().await;
    }
    let body = &peer.last().await["body"];
    assert_eq!(
        (&body["store"], &body["include"]),
        (&json!(false), &json!(["reasoning.encrypted_content"]))
    );
    assert_eq!(
        body["reasoning"],
        json!({ "effort": "low", "summary": "auto" })
    );
    assert_eq!(
        (
            &body["text"]["format"]["strict"],
            &body["max_output_tokens"]
        ),
        (&json!(true), &json!(1000))
    );
}

#[tokio::test]
async fn a_provider_executed_call_is_recorded_and_sent_back() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let mut request = saying("hi");
    request
        .extra
        .insert("tools".to_owned(), json!([{ "type": "web_search" }]));
    let (_, whole) = reply(&*Wire::Responses.at(&peer.at("searched")), &request).await;
    let PartContent::Ran(call) = &whole.message.parts[0].content else {
        panic!("{:?}", whole.message)
    };
    assert_eq!(
        (call.tool.as_str(), &call.arguments["query"]),
        ("web_search", &json!("crabs"))
    );
    assert_eq!(
        (whole.message.calls().count(), whole.finish),
        (0, FinishReason::Stop),
        "it is not a call for us"
    );
    reply(
        &*Wire::Responses.at(&peer.at("text")),
        &answered(request, whole),
    )
    .await;
    assert_eq!(peer.last().await["body"]["input"][1]["id"], "ws_1");
}

#[tokio::test]
async fn a_refused_truncated_or_failed_reply_is_marked_as_such() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (deltas, refused) = reply(&*Wire::Responses.at(&peer.at("refusal")), &saying("hi")).await;
    assert_eq!(
        (streamed_text(&deltas).as_str(), refused.finish),
        ("I will not.", FinishReason::Filtered)
    );
    reply(
        &*Wire::Responses.at(&peer.at("text")),
        &answered(saying("hi"), refused),
    )
    .await;
    let (_, cut) = reply(&*Wire::Responses.at(&peer.at("length")), &saying("hi")).await;
    assert_eq!((cut.finish, cut.usage), (FinishReason::Length, Some(USAGE)));
    let (_, failed) = ask(&*Wire::Responses.at(&peer.at("failed")), &saying("hi")).await;
    let failed = failed.expect_err("a failure");
    assert_eq!(failed.kind, ModelErrorKind::RateLimited);
    assert_clean(&format!("{failed:?}"));
}

fn reasoning(delta: &Delta) -> Option<&str> {
    match delta {
        Delta::Reasoning(text) => Some(text),
        _ => None,
    }
}
