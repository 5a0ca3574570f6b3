//! Gemini, against the types of the package `google-genai`.

use serde_json::json;
use toolgate_core::{
    Delta, FinishReason, Message, ModelErrorKind as Kind, ModelRequest, PartContent, ToolChoice,
    Usage,
};

use crate::providers::{
    peer::{Peer, Wire, ask, assert_clean, reply, streamed_calls},
    requests::{answered, everything, saying, tools},
};

const USAGE: Usage = Usage {
    input: 30,
    cache_read: 60,
    cache_write: 0,
    output: 20,
    reasoning: 5,
};

#[tokio::test]
async fn text_is_streamed_and_the_official_client_decodes_the_same() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (deltas, whole) = reply(&*Wire::Gemini.at(&peer.at("text")), &saying("hi")).await;
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
        (Some("gemini-stub-1"), Some("resp_1"))
    );
    let asked = peer.last().await;
    assert_eq!(
        asked["path"],
        "/text/v1beta/models/gemini-stub:streamGenerateContent"
    );
    let official = peer.official().await;
    assert_eq!(official["text"], "Hello, wörld 🦀");
    assert_eq!(official["usage"]["total_token_count"], USAGE.total_tokens());
}

#[tokio::test]
async fn calls_are_decoded_as_by_the_official_client_and_signatures_are_sent_back_verbatim() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in [Wire::Gemini, Wire::GeminiBudget] {
        let request = ModelRequest {
            view: tools(),
            ..saying("hi")
        };
        let (deltas, whole) = reply(&*wire.at(&peer.at("parallel")), &request).await;
        let thoughts =
            ["First this. ", "Then thät."].map(|piece| Delta::Reasoning(piece.to_owned()));
        assert_eq!(deltas[..2], thoughts);
        let expected = [
            ("gemini_0", "files.read", r#"{"path":"a"}"#),
            ("fc_b", "write", r#"{"path":"ü"}"#),
        ];
        let expected =
            expected.map(|(id, tool, text)| (id.to_owned(), tool.to_owned(), text.to_owned()));
        assert_eq!(streamed_calls(&deltas), expected);
        assert_eq!(
            (whole.finish, whole.message.calls().count()),
            (FinishReason::Calls, 2)
        );
        let official = peer.official().await;
        assert_eq!(
            official["calls"][1],
            json!({ "id": "fc_b", "arguments": { "path": "ü" } })
        );
        assert_eq!(official["calls"][0]["id"], json!(null));
        let saved = serde_json::to_string(&whole.message).expect("writes");
        let whole = toolgate_core::Reply {
            message: serde_json::from_str(&saved).expect("reads"),
            ..whole
        };
        let second = answered(request, whole);
        reply(&*wire.at(&peer.at("text")), &second).await;
        peer.official().await;
    }
}

#[tokio::test]
async fn a_signature_on_an_empty_part_is_sent_back() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (_, whole) = reply(&*Wire::Gemini.at(&peer.at("sealed")), &saying("hi")).await;
    assert_eq!(whole.message.text(), "It is.");
    let mut second = saying("hi");
    second
        .messages
        .extend([whole.message.into(), Message::user("And?").into()]);
    reply(&*Wire::Gemini.at(&peer.at("text")), &second).await;
    let expected =
        json!([{ "text": "It is." }, { "text": "", "thoughtSignature": "Q3NFQkNpNEJqejFyWDk=" }]);
    assert_eq!(peer.last().await["body"]["contents"][1]["parts"], expected);
}

#[tokio::test]
async fn every_request_setting_can_be_sent_by_the_official_client() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in [Wire::Gemini, Wire::GeminiBudget] {
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
            reply(&*wire.at(&peer.at("text")), &request).await;
            peer.official().await;
        }
    }
}

#[tokio::test]
async fn provider_executed_calls_are_recorded_and_sent_back_if_they_are_parts() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let (_, whole) = reply(&*Wire::Gemini.at(&peer.at("searched")), &saying("hi")).await;
    let ran = whole
        .message
        .parts
        .iter()
        .filter_map(|part| match &part.content {
            PartContent::Ran(call) => Some((call.tool.as_str(), call.failed)),
            _ => None,
        });
    assert_eq!(
        ran.collect::<Vec<_>>(),
        [("code_execution", false), ("google_search", false)]
    );
    let mut second = saying("hi");
    second
        .messages
        .extend([whole.message.into(), Message::user("And?").into()]);
    reply(&*Wire::Gemini.at(&peer.at("text")), &second).await;
    let expected = json!([
        { "executableCode": { "language": "PYTHON", "code": "1 + 1" } },
        { "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": "2" } },
        { "text": "Crabs." },
    ]);
    assert_eq!(peer.last().await["body"]["contents"][1]["parts"], expected);
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
        let (_, whole) = reply(&*Wire::Gemini.at(&peer.at(scenario)), &saying("hi")).await;
        assert_eq!(
            (whole.message.text().as_str(), whole.finish),
            (said, finish)
        );
    }
    for (scenario, kind, said) in [
        ("refused", Kind::Refused, "[key] asks too much"),
        (
            "malformed",
            Kind::Malformed,
            "(MALFORMED_FUNCTION_CALL): Malformed function call: [key]",
        ),
        ("error-413", Kind::TooLong, "[key] was refused with 413"),
    ] {
        let (_, end) = ask(&*Wire::Gemini.at(&peer.at(scenario)), &saying("hi")).await;
        let error = end.expect_err("a failure");
        assert!(
            error.kind == kind && error.detail.ends_with(said),
            "{error:?}"
        );
        assert_clean(&format!("{error} {error:?}"));
    }
}
