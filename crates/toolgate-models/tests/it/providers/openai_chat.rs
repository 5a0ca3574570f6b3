//! Chat completions, against the types of the package `openai`.

use serde_json::json;
use toolgate_core::{Delta, FinishReason, ModelRequest, PartContent, ToolChoice, Usage};

use crate::providers::{
    peer::{Peer, Wire, reply, streamed_calls, streamed_text},
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
    let (deltas, whole) = reply(&*Wire::Chat.at(&peer.at("text")), &saying("hi")).await;
    let pieces = ["Hel", "lo, w", "örld 🦀"].map(|piece| Delta::Text(piece.to_owned()));
    assert_eq!(deltas, pieces);
    assert_eq!(
        (whole.message.text().as_str(), whole.finish, whole.usage),
        ("Hello, wörld 🦀", FinishReason::Stop, Some(USAGE))
    );
    assert_eq!(
        (whole.model.as_deref(), whole.id.as_deref()),
        (Some("gpt-stub-1"), Some("chatcmpl-1"))
    );
    let official = peer.official().await;
    assert_eq!(official["text"], "Hello, wörld 🦀");
    assert_eq!(official["usage"]["total_tokens"], USAGE.total_tokens());
}

#[tokio::test]
async fn interleaved_parallel_calls_are_joined_as_by_the_official_client() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let request = ModelRequest {
        view: tools(),
        ..saying("hi")
    };
    let model = Wire::Chat.at(&peer.at("parallel"));
    let (deltas, whole) = reply(&*model, &request).await;
    let calls = streamed_calls(&deltas);
    let expected = [
        ("call_a", "files.read", r#"{"path": "a"}"#),
        ("call_b", "write", r#"{"path": "ü"}"#),
    ];
    assert_eq!(
        calls,
        expected.map(|(id, tool, text)| (id.to_owned(), tool.to_owned(), text.to_owned()))
    );
    assert_eq!(
        (whole.finish, whole.message.calls().count()),
        (FinishReason::Calls, 2)
    );
    let official = peer.official().await;
    for (ours, theirs) in calls
        .iter()
        .zip(official["calls"].as_array().expect("a list"))
    {
        assert_eq!(
            (&json!(ours.0), &json!(ours.2)),
            (&theirs["id"], &theirs["arguments"])
        );
    }
    let (_, second) = reply(&*Wire::Chat.at(&peer.at("text")), &answered(request, whole)).await;
    assert_eq!(
        second.finish,
        FinishReason::Stop,
        "the stub server checked that every call is answered"
    );
    let body = &peer.last().await["body"];
    assert_eq!(
        body["messages"][1]["tool_calls"][1]["function"]["arguments"], r#"{"path": "ü"}"#,
        "as the model wrote it"
    );
    assert_eq!(
        body["messages"][4]["content"][1]["image_url"]["url"],
        "data:image/png;base64,iVBORw0KGgo="
    );
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
        reply(&*Wire::Chat.at(&peer.at("text")), &request).await;
        peer.official().await;
    }
    let body = &peer.last().await["body"];
    assert_eq!(
        body["response_format"]["json_schema"]["strict"], true,
        "this schema can be enforced"
    );
    assert_eq!(
        (&body["max_completion_tokens"], &body["temperature"]),
        (&json!(1000), &json!(0.5))
    );
    assert_eq!(
        (&body["reasoning_effort"], &body["parallel_tool_calls"]),
        (&json!("low"), &json!(false))
    );
    assert_eq!(
        body["messages"][0],
        json!({ "role": "system", "content": "Be brief." })
    );
}

#[tokio::test]
async fn a_refused_or_truncated_reply_is_marked_as_such() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (deltas, refused) = reply(&*Wire::Chat.at(&peer.at("refusal")), &saying("hi")).await;
    assert_eq!(
        (streamed_text(&deltas).as_str(), refused.finish),
        ("I will not.", FinishReason::Filtered)
    );
    reply(
        &*Wire::Chat.at(&peer.at("text")),
        &answered(saying("hi"), refused),
    )
    .await;
    let given_back = &peer.last().await["body"]["messages"][1];
    assert_eq!(
        *given_back,
        json!({ "role": "assistant", "content": null, "refusal": "I will not." })
    );
    let (_, cut) = reply(&*Wire::Chat.at(&peer.at("length")), &saying("hi")).await;
    assert_eq!((cut.finish, cut.usage), (FinishReason::Length, None));
}

#[tokio::test]
async fn a_compatible_server_gets_its_reasoning_back() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (deltas, first) = reply(
        &*Wire::Compatible.at(&peer.at("thinking+compatible")),
        &saying("hi"),
    )
    .await;
    assert_eq!(
        deltas[..2],
        ["Let me ", "see."].map(|piece| Delta::Reasoning(piece.to_owned()))
    );
    assert_eq!(
        first.message.parts[0].content,
        PartContent::Reasoning("Let me see.".to_owned())
    );
    reply(
        &*Wire::Compatible.at(&peer.at("text+compatible")),
        &answered(saying("hi"), first),
    )
    .await;
    assert_eq!(
        peer.last().await["body"]["messages"][1]["reasoning_content"],
        "Let me see."
    );
}

#[tokio::test]
async fn a_stream_that_ends_after_the_finish_reason_is_complete() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (_, whole) = reply(
        &*Wire::Compatible.at(&peer.at("no-end+compatible")),
        &saying("hi"),
    )
    .await;
    assert_eq!(
        (whole.message.text().as_str(), whole.finish),
        ("hi", FinishReason::Stop)
    );
}
