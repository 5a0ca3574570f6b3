//! Failures of a provider: classified, bounded, and without the key.

use std::time::Duration;

use toolgate_core::{Delta, Model, ModelError, ModelErrorKind as Kind, ModelRequest};
use toolgate_models::ModelBuilder;

use crate::providers::{
    peer::{CANARY, Peer, Plain, SetUp, Wire, ask, assert_clean},
    requests::{saying, tools},
};

/// Returns the deltas and the error of a request that has to fail. No piece of the key may be in
/// them.
async fn failure(model: &dyn Model) -> (Vec<Delta>, ModelError) {
    let request = ModelRequest {
        view: tools(),
        ..saying("hi")
    };
    let (deltas, end) = ask(model, &request).await;
    let error = end.expect_err("a failure");
    assert_clean(&format!("{error} {error:?} {:?} {}", deltas, error.detail));
    assert!(error.detail.chars().count() <= 501, "{}", error.detail);
    (deltas, error)
}

#[tokio::test]
async fn server_errors_are_classified_and_never_repeat_the_key() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let cases = [
        ("error-400", Kind::BadRequest, None),
        ("error-401", Kind::Auth, None),
        ("error-403", Kind::Auth, None),
        ("error-404", Kind::NotFound, None),
        ("error-429-seconds", Kind::RateLimited, Some(7_000)),
        ("error-429-ms", Kind::RateLimited, Some(1_500)),
        ("error-429-date", Kind::RateLimited, Some(90_000)),
        ("error-500", Kind::Server, None),
        ("error-503-seconds", Kind::Overloaded, Some(7_000)),
        ("error-529", Kind::Overloaded, None),
    ];
    for wire in Wire::ALL {
        for (scenario, kind, wait) in cases {
            let (deltas, error) = failure(&*wire.at(&peer.at(scenario))).await;
            let found = (error.kind, error.retry_after);
            assert_eq!(
                found,
                (kind, wait.map(Duration::from_millis)),
                "{wire:?} {scenario}: {error}"
            );
            assert!(deltas.is_empty());
            assert_eq!(
                error.status.map(|status| status.to_string()).as_deref(),
                scenario.split('-').nth(1)
            );
            assert!(
                error.detail.contains("[key] was refused"),
                "the server's message contains the key: {error}"
            );
        }
        let (header, value) = match wire {
            Wire::Anthropic | Wire::AnthropicBudget | Wire::AnthropicBound => {
                ("x-api-key", CANARY.to_owned())
            }
            Wire::Gemini | Wire::GeminiBudget => ("x-goog-api-key", CANARY.to_owned()),
            Wire::Chat | Wire::Compatible | Wire::Responses => {
                ("authorization", format!("Bearer {CANARY}"))
            }
        };
        assert_eq!(
            peer.last().await["headers"][header],
            value,
            "the key is in its header"
        );
    }
}

#[tokio::test]
async fn a_truncated_stream_is_never_a_complete_reply() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in Wire::ALL {
        for scenario in [
            "text+drop",
            "parallel+drop",
            "text+drop+unframed",
            "hang-up",
        ] {
            let (_, error) = failure(&*wire.at(&peer.at(scenario))).await;
            assert_eq!(error.kind, Kind::Connection, "{wire:?} {scenario}: {error}");
        }
    }
}

#[tokio::test]
async fn deltas_before_an_error_are_streamed_and_the_error_is_last() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in Wire::ALL {
        let (_, error) = failure(&*wire.at(&peer.at("late-error"))).await;
        assert!(
            error.kind == Kind::Server && error.detail.ends_with("[key] broke"),
            "{wire:?}: {error:?}"
        );
    }
    for wire in [Wire::Chat, Wire::Anthropic, Wire::Gemini] {
        let (deltas, _) = failure(&*wire.at(&peer.at("late-error"))).await;
        assert_eq!(deltas, [Delta::Text("hi".to_owned())]);
    }
}

#[tokio::test]
async fn unexpected_responses_are_classified() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in Wire::ALL {
        for (scenario, kind) in [
            ("page", Kind::Server),
            ("redirect", Kind::Setup),
            ("whole", Kind::Malformed),
            ("hidden-error", Kind::Overloaded),
            ("garbage", Kind::Malformed),
        ] {
            let (_, error) = failure(&*wire.at(&peer.at(scenario))).await;
            assert_eq!(error.kind, kind, "{wire:?} {scenario}: {error}");
        }
    }
    let followed = peer
        .log()
        .await
        .iter()
        .any(|asked| asked["scenario"] == "text");
    assert!(
        !followed,
        "a redirect is not followed: the key is not sent elsewhere"
    );
}

#[tokio::test]
async fn an_endless_reply_is_aborted() {
    struct Small;
    impl SetUp for Small {
        fn set_up<M>(self, builder: ModelBuilder<M>) -> ModelBuilder<M> {
            builder.max_reply_bytes(100_000)
        }
    }
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in Wire::ALL {
        let (_, error) = failure(&*wire.with(&peer.at("flood"), Small)).await;
        assert_eq!(
            (error.kind, error.detail.as_str()),
            (Kind::Malformed, "the reply is larger than 100000 bytes")
        );
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_a_failed_connection() {
    // A port that was free a moment ago, and a URL that may carry a secret.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    for wire in Wire::ALL {
        let model = wire.with(&format!("http://127.0.0.1:{port}/{CANARY}"), Plain);
        let (_, error) = failure(&*model).await;
        assert_eq!(
            (error.kind, error.status),
            (Kind::Connection, None),
            "{wire:?}: {error}"
        );
    }
}
