//! What a model gets back from an ordinary page.

use serde_json::json;
use toolgate_core::{Annotations, Kind, SideEffect, Status, Tool};
use toolgate_tools::{FetchOptions, FetchUrl};

use crate::server::{Server, fetch, fetch_with, page, to};

#[tokio::test]
async fn a_page_comes_as_it_is_with_what_the_server_says_about_it() {
    let html = "<p>hello</p>";
    let server =
        Server::new(move |_| Some(page("200 OK", "Content-Type: text/html\r\n", html))).await;
    let settled = fetch(server.options(), &server.url("/a?b=c")).await;
    let value = settled.value.as_value();
    assert_eq!(
        (&value["text"], &value["status"]),
        (&json!(html), &json!(200))
    );
    assert_eq!(
        (&value["content_type"], &value["cut"]),
        (&json!("text/html"), &json!(false))
    );
    assert_eq!(
        &*settled.model_text(),
        format!("[200 {} text/html]\n{html}", server.url("/a?b=c"))
    );
}

#[tokio::test]
async fn nothing_is_sent_but_the_question() {
    let server = Server::friendly().await;
    fetch(server.options(), &server.url("/x#fragment")).await;
    let [request] = server.seen().try_into().expect("one request");
    let request = request.to_lowercase();
    assert!(
        request.starts_with("get /x http/1.1\r\n") && request.contains("accept-encoding: identity"),
        "{request}"
    );
    for header in ["cookie:", "authorization:", "referer:", "proxy-"] {
        assert!(!request.contains(header), "{request}");
    }
}

#[tokio::test]
async fn a_page_that_is_not_there_is_a_result() {
    let server = Server::new(|_| {
        Some(page(
            "404 Not Found",
            "Content-Type: text/plain\r\n",
            "none",
        ))
    })
    .await;
    let settled = fetch(server.options(), &server.url("/")).await;
    assert_eq!(
        (settled.status, &settled.value.as_value()["status"]),
        (Status::Ok, &json!(404))
    );
}

#[tokio::test]
async fn redirects_are_followed_up_to_five() {
    let server = Server::new(|path| {
        let left: u32 = path.trim_start_matches('/').parse().expect("a number");
        Some(if left == 0 {
            page("200 OK", "Content-Type: text/plain\r\n", "there")
        } else {
            to(&format!("/{}", left - 1))
        })
    })
    .await;
    let settled = fetch(server.options(), &server.url("/5")).await;
    assert_eq!(settled.value.as_value()["text"], "there");
    assert_eq!(settled.value.as_value()["url"], server.url("/0"));
    let settled = fetch(server.options(), &server.url("/6")).await;
    assert!(
        settled
            .error
            .expect("refused")
            .model
            .contains("more than 5 times")
    );
}

#[tokio::test]
async fn a_page_without_an_end_is_cut() {
    let endless = || {
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec();
        bytes.extend("é".repeat(4 << 20).into_bytes());
        bytes
    };
    let server = Server::new(move |_| Some(endless())).await;
    let options = FetchOptions {
        max_bytes: 10_001,
        ..server.options()
    };
    for (wanted, got) in [
        (json!(null), 10_001),
        (json!(101), 101),
        (json!(1_000_000), 10_001),
    ] {
        let mut arguments = json!({ "url": server.url("/") });
        if !wanted.is_null() {
            arguments["max_bytes"] = wanted;
        }
        let settled = fetch_with(options.clone(), arguments).await;
        let value = settled.value.as_value();
        assert_eq!(
            (&value["bytes"], &value["cut"], &value["replaced"]),
            (&json!(got), &json!(true), &json!(false))
        );
        assert_eq!(
            value["text"].as_str().expect("text").chars().count(),
            got / 2
        );
        assert!(settled.model_text().contains("cut after"));
    }
}

#[test]
fn it_is_known_for_what_it_is() {
    let annotations: Annotations = FetchUrl::new(FetchOptions::default())
        .expect("fine")
        .spec()
        .annotations;
    assert_eq!(
        (annotations.kind, annotations.effect()),
        (Some(Kind::Fetch), SideEffect::Network)
    );
    assert_eq!(
        (annotations.hints.read_only, annotations.hints.open_world),
        (Some(true), Some(true))
    );
    assert!(annotations.may_repeat());
}
