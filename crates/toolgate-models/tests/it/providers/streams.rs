//! Streaming of replies: in arbitrary pieces, without delay, over reused connections.

use std::{collections::BTreeSet, time::Duration};

use futures::StreamExt;
use toolgate_core::{Delta, ModelErrorKind, ModelRequest};
use toolgate_models::ModelBuilder;

use crate::providers::{
    peer::{Peer, SetUp, Wire, ask, reply},
    requests::{saying, tools},
};

#[tokio::test]
async fn the_reply_does_not_depend_on_how_the_stream_is_split() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    let request = ModelRequest {
        view: tools(),
        ..saying("hi")
    };
    for wire in Wire::ALL {
        for scenario in ["text", "parallel", "refusal"] {
            let whole = reply(&*wire.at(&peer.at(scenario)), &request).await;
            let bytewise = reply(
                &*wire.at(&peer.at(&format!("{scenario}+bytewise"))),
                &request,
            )
            .await;
            assert_eq!(bytewise, whole, "{wire:?} {scenario}");
        }
    }
}

#[tokio::test]
async fn each_delta_of_a_slow_stream_arrives_before_the_next_is_sent() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    // The number of events before the first text that have to be released.
    let before = [
        (Wire::Chat, 1),
        (Wire::Compatible, 1),
        (Wire::Responses, 2),
        (Wire::Anthropic, 1),
        (Wire::Gemini, 0),
    ];
    for (wire, before) in before {
        let scenario = format!("text+gated+{wire:?}");
        let model = wire.at(&peer.at(&scenario));
        let request = saying("hi");
        let mut stream = model.reply(&request);
        for _ in 0..before {
            peer.release(&scenario).await;
        }
        for piece in ["Hel", "lo, w", "örld 🦀"] {
            peer.release(&scenario).await;
            let next = stream
                .next()
                .await
                .expect("there is more")
                .expect("no error");
            assert_eq!(next, Delta::Text(piece.to_owned()), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn dropping_a_stream_ends_the_request() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in Wire::ALL {
        let scenario = format!("text+gated+{wire:?}");
        let model = wire.at(&peer.at(&scenario));
        let request = saying("hi");
        let mut stream = model.reply(&request);
        for _ in 0..3 {
            peer.release(&scenario).await;
        }
        stream
            .next()
            .await
            .expect("there is more")
            .expect("no error");
        drop(stream);
        while peer.last().await["left"] != true {}
    }
}

#[tokio::test]
async fn connections_are_reused() {
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in Wire::ALL {
        let model = wire.at(&peer.at("text"));
        for _ in 0..10 {
            reply(&*model, &saying("hi")).await;
        }
        let log = peer.log().await;
        let connections: BTreeSet<String> = log
            .iter()
            .rev()
            .take(10)
            .map(|one| one["connection"].to_string())
            .collect();
        assert!(connections.len() < 10, "{wire:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_begin_to_answer_times_out() {
    struct Impatient;
    impl SetUp for Impatient {
        fn set_up<M>(self, builder: ModelBuilder<M>) -> ModelBuilder<M> {
            builder.start_timeout(Duration::from_millis(50))
        }
    }
    // Connections wait in its queue, and are never accepted.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    for wire in Wire::ALL {
        let (_, end) = ask(&*wire.with(&url, Impatient), &saying("hi")).await;
        let error = end.expect_err("silence");
        assert_eq!(
            (error.kind, error.detail.as_str()),
            (
                ModelErrorKind::Timeout,
                "the server did not begin to answer"
            )
        );
    }
}

#[tokio::test]
async fn a_stream_that_falls_silent_times_out() {
    struct Impatient;
    impl SetUp for Impatient {
        fn set_up<M>(self, builder: ModelBuilder<M>) -> ModelBuilder<M> {
            builder.idle_timeout(Duration::from_millis(50))
        }
    }
    let Some(peer) = Peer::start().await else {
        return;
    };
    for wire in Wire::ALL {
        let (_, end) = ask(
            &*wire.with(&peer.at("text+gated"), Impatient),
            &saying("hi"),
        )
        .await;
        assert_eq!(
            end.expect_err("silence").kind,
            ModelErrorKind::Timeout,
            "{wire:?}"
        );
    }
}
