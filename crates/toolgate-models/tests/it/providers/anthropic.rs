//! Anthropic's messages, against the types of the package `anthropic`.

use serde_json::{Value, json};
use toolgate_core::{
    Delta, Effort, FinishReason, ModelErrorKind as Kind, ModelRequest, PartContent, ProviderCall,
    Role, ToolChoice, Usage,
};

use crate::providers::{
    peer::{Peer, Wire, ask, assert_clean, reply, streamed_calls},
    requests::{answered, everything, saying, tools},
};

const USAGE: Usage = Usage {
    input: 30,
    cache_read: 60,
    cache_write: 10,
    output: 20,
    reasoning: 5,
};

/// Returns the items as the provider sent them.
fn natives(message: &toolgate_core::Message) -> Value {
    message
        .parts
        .iter()
        .map(|part| part.native_for("anthropic").expect("stored").clone())
        .collect()
}

#[tokio::test]
async fn text_is_streamed_and_the_official_client_decodes_the_same() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (deltas, whole) = reply(&*Wire::Anthropic.at(&peer.at("text")), &saying("hi")).await;
    assert_eq!(
        deltas,
        ["Hel", "lo, w", "örld 🦀"].map(|piece| Delta::Text(piece.to_owned()))
    );
    let found = (whole.message.text(), whole.finish, whole.usage);
    assert_eq!(
        found,
        (
            "Hello, wörld 🦀".to_owned(),
            FinishReason::Stop,
            Some(USAGE)
        )
    );
    assert_eq!(
        (whole.model.as_deref(), whole.id.as_deref()),
        (Some("claude-stub-1"), Some("msg_1"))
    );
    let official = peer.official().await;
    assert_eq!(
        (&official["text"], &official["items"]),
        (&json!("Hello, wörld 🦀"), &natives(&whole.message))
    );
    assert_eq!(official["usage"]["output_tokens"], USAGE.output);
}

#[tokio::test]
async fn thinking_and_interleaved_calls_are_joined_as_by_the_official_client_and_sent_back_verbatim()
 {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let request = ModelRequest {
        view: tools(),
        effort: Some(Effort::Medium),
        cache: true,
        ..saying("hi")
    };
    let (deltas, whole) = reply(&*Wire::Anthropic.at(&peer.at("parallel")), &request).await;
    let thoughts = ["First t", "his. Then thät."].map(|piece| Delta::Reasoning(piece.to_owned()));
    assert_eq!(deltas[..2], thoughts);
    let expected = [
        ("toolu_a", "files.read", r#"{"path": "a"}"#),
        ("toolu_b", "write", r#"{"path": "ü"}"#),
    ];
    let expected =
        expected.map(|(id, tool, text)| (id.to_owned(), tool.to_owned(), text.to_owned()));
    assert_eq!(streamed_calls(&deltas), expected);
    assert_eq!(
        (whole.finish, whole.message.calls().count()),
        (FinishReason::Calls, 2)
    );
    assert_eq!(peer.official().await["items"], natives(&whole.message));
    let mut second = answered(request, whole.clone());
    second
        .messages
        .push(toolgate_core::Message::user("And now?").into());
    reply(&*Wire::Anthropic.at(&peer.at("text")), &second).await;
    let body = peer.last().await["body"].take();
    assert_eq!(
        body["messages"][1]["content"],
        natives(&whole.message),
        "the stub server checked the signature, too"
    );
    assert_eq!(
        body["messages"][2]["content"][0]["content"][1]["type"],
        "image"
    );
    assert_eq!(
        body["messages"][2]["content"][0]["content"][2]["type"],
        "document"
    );
    assert_eq!(body["messages"][2]["content"][2]["text"], "And now?");
    peer.official().await;
}

#[tokio::test]
async fn a_stored_and_loaded_reply_is_sent_back_verbatim() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let request = ModelRequest {
        view: tools(),
        ..saying("hi")
    };
    let (_, mut whole) = reply(&*Wire::Anthropic.at(&peer.at("parallel")), &request).await;
    let saved = serde_json::to_string(&whole.message).expect("writes");
    whole.message = serde_json::from_str(&saved).expect("reads");
    reply(
        &*Wire::Anthropic.at(&peer.at("text")),
        &answered(request, whole),
    )
    .await;
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
        reply(&*Wire::Anthropic.at(&peer.at("text")), &request).await;
        peer.official().await;
    }
    let body = &peer.last().await["body"];
    assert_eq!(
        body["output_config"]["format"]["schema"]["additionalProperties"],
        false
    );
    assert_eq!(
        body["tool_choice"],
        json!({ "type": "auto", "disable_parallel_tool_use": true })
    );
    assert_eq!(
        body["messages"].as_array().map(Vec::len),
        Some(1),
        "consecutive messages of one side are joined"
    );
    let bound = ModelRequest {
        choice: ToolChoice::Auto,
        ..everything()
    };
    reply(&*Wire::AnthropicBound.at(&peer.at("text")), &bound).await;
    peer.official().await;
    let old = ModelRequest {
        max_tokens: Some(4000),
        ..bound
    };
    reply(&*Wire::AnthropicBudget.at(&peer.at("text")), &old).await;
    assert_eq!(
        peer.last().await["body"]["thinking"],
        json!({ "type": "enabled", "budget_tokens": 2000 })
    );
    peer.official().await;
}

#[tokio::test]
async fn a_provider_executed_search_is_recorded_and_sent_back() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (deltas, whole) = reply(&*Wire::Anthropic.at(&peer.at("searched")), &saying("hi")).await;
    assert_eq!(deltas, [Delta::Text("Crabs.".into())], "no call for us");
    let native = natives(&whole.message);
    let ran = ProviderCall {
        id: "srvtoolu_1".into(),
        tool: "web_search".into(),
        arguments: json!({ "query": "crabs" }),
        result: native[1]["content"].clone(),
        failed: false,
    };
    assert_eq!(whole.message.parts[0].content, PartContent::Ran(ran));
    assert_eq!(native[2]["citations"].as_array().map(Vec::len), Some(1));
    let mut second = answered(saying("hi"), whole);
    second.messages.retain(|message| message.role != Role::Tool);
    second
        .messages
        .push(toolgate_core::Message::user("More?").into());
    reply(&*Wire::Anthropic.at(&peer.at("text")), &second).await;
    assert_eq!(peer.last().await["body"]["messages"][1]["content"], native);
}

#[tokio::test]
async fn a_refused_or_truncated_reply_is_marked_as_such() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for (scenario, said, finish) in [
        ("refusal", "I will not.", FinishReason::Filtered),
        ("length", "and then", FinishReason::Length),
    ] {
        let (_, whole) = reply(&*Wire::Anthropic.at(&peer.at(scenario)), &saying("hi")).await;
        assert_eq!(
            (whole.message.text().as_str(), whole.finish),
            (said, finish)
        );
    }
    for (scenario, kind, said) in [
        ("refused", Kind::Refused, "[key] asks too much"),
        ("overloaded", Kind::Overloaded, "[key] has to wait"),
        ("error-413", Kind::TooLong, "[key] was refused with 413"),
    ] {
        let (_, end) = ask(&*Wire::Anthropic.at(&peer.at(scenario)), &saying("hi")).await;
        let error = end.expect_err("a failure");
        assert_eq!((error.kind, error.detail.as_str()), (kind, said));
        assert_clean(&format!("{error} {error:?}"));
    }
}
