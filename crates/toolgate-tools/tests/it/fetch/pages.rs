//! Tests of the result of ordinary pages.

use serde_json::json;
use toolgate_core::{Annotations, SideEffect, Status, Tool, ToolKind};
use toolgate_tools::{FetchOptions, FetchUrl};

use crate::fetch::server::{TestServer, fetch, fetch_with, http_response, redirect_to};

#[tokio::test]
async fn a_page_is_returned_unmodified_with_status_and_content_type() {
    let html = "<p>hello</p>";
    let server = TestServer::new(move |_| {
        Some(http_response("200 OK", "Content-Type: text/html\r\n", html))
    })
    .await;
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
async fn only_the_request_is_sent() {
    let server = TestServer::friendly().await;
    fetch(server.options(), &server.url("/x#fragment")).await;
    let [request] = server.requests().try_into().expect("one request");
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
async fn a_missing_page_is_a_result() {
    let server = TestServer::new(|_| {
        Some(http_response(
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
    let server = TestServer::new(|path| {
        let left: u32 = path.trim_start_matches('/').parse().expect("a number");
        Some(if left == 0 {
            http_response("200 OK", "Content-Type: text/plain\r\n", "there")
        } else {
            redirect_to(&format!("/{}", left - 1))
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
            .expect("rejected")
            .model
            .contains("more than 5 times")
    );
}

#[tokio::test]
async fn an_endless_page_is_truncated() {
    let endless = || {
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec();
        bytes.extend("é".repeat(4 << 20).into_bytes());
        bytes
    };
    let server = TestServer::new(move |_| Some(endless())).await;
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
        assert!(settled.model_text().contains("truncated after"));
    }
}

#[test]
fn the_annotations_describe_a_network_read() {
    let annotations: Annotations = FetchUrl::new(FetchOptions::default())
        .expect("valid options")
        .spec()
        .annotations;
    assert_eq!(
        (annotations.kind, annotations.strongest_effect()),
        (Some(ToolKind::Fetch), SideEffect::Network)
    );
    assert_eq!(
        (annotations.hints.read_only, annotations.hints.open_world),
        (Some(true), Some(true))
    );
    assert!(annotations.may_repeat());
}
