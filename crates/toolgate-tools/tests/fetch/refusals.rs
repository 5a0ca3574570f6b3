//! Where nothing is fetched from, and what is not shown.

use std::process::Command;

use serde_json::json;
use toolgate_core::{ErrorCategory, Status};
use toolgate_tools::FetchOptions;

use crate::server::{Server, fetch, page, prepared, to};

fn allowing(allow: &[&str]) -> FetchOptions {
    FetchOptions {
        allow: allow.iter().map(|host| (*host).to_owned()).collect(),
        ..FetchOptions::default()
    }
}

#[tokio::test]
async fn what_is_not_listed_is_not_asked() {
    let server = Server::friendly().await;
    for options in [FetchOptions::default(), allowing(&["docs.rs", "*"])] {
        let error = fetch(options, &server.url("/"))
            .await
            .error
            .expect("refused");
        assert_eq!(error.category, ErrorCategory::Permission, "{}", error.model);
    }
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_not_followed() {
    let server = Server::friendly().await;
    let name = format!("localhost:{}", server.address.port());
    let error = fetch(allowing(&[&name]), &format!("http://{name}/"))
        .await
        .error
        .expect("refused");
    assert_eq!(error.category, ErrorCategory::Permission);
    assert!(
        error.model.contains("not a public address"),
        "{}",
        error.model
    );
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_url() {
    let inner = Server::friendly().await;
    let port = inner.address.port();
    for (location, word) in [
        (inner.url("/"), "not among the hosts"),
        (format!("http://127.1:{port}/"), "not among the hosts"),
        (format!("http://localhost:{port}/"), "not among the hosts"),
        (
            "http://user:CANARY@127.0.0.1/".to_owned(),
            "user name or password",
        ),
        ("file:///etc/passwd".to_owned(), "only http and https"),
        ("http://".to_owned(), "no URL"),
    ] {
        let server = Server::new(move |_| Some(to(&location))).await;
        let error = fetch(server.options(), &server.url("/"))
            .await
            .error
            .expect("refused");
        assert!(error.model.contains(word), "{}", error.model);
        assert!(!format!("{error:?} {:?} {}", error.operator, error.model).contains("CANARY"));
        assert_eq!(server.seen().len(), 1);
    }
    assert_eq!(inner.seen().len(), 0);
}

#[tokio::test]
async fn credentials_in_a_url_are_refused_and_not_shown() {
    let server = Server::friendly().await;
    let url = format!("http://user:CANARY@{}/", server.address);
    let settled = fetch(server.options(), &url).await;
    assert_eq!(
        settled.error.as_ref().map(|error| error.category),
        Some(ErrorCategory::InvalidInput)
    );
    let error = settled.error.clone().expect("refused");
    assert!(!format!("{settled:?} {:?} {}", error.operator, error.model).contains("CANARY"));
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn what_is_compressed_or_no_text_is_not_read() {
    for (headers, word) in [
        (
            "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n",
            "compressed",
        ),
        ("Content-Type: image/png\r\n", "image/png"),
        ("", "not text"),
    ] {
        let server =
            Server::new(move |_| Some(page("200 OK", headers, b"\x89PNG\0\x1f\x8b"))).await;
        let error = fetch(server.options(), &server.url("/"))
            .await
            .error
            .expect("refused");
        assert!(error.model.contains(word), "{}", error.model);
    }
}

#[tokio::test]
async fn a_server_that_keeps_silent_is_given_up() {
    let server = Server::new(|_| None).await;
    let options = FetchOptions {
        timeout_ms: 100,
        ..server.options()
    };
    let error = fetch(options, &server.url("/"))
        .await
        .error
        .expect("given up");
    assert_eq!(error.category, ErrorCategory::Transient);
}

#[tokio::test]
async fn a_server_that_is_gone_is_said_to_be() {
    let server = Server::friendly().await;
    let (options, url) = (server.options(), server.url("/secret-path"));
    drop(server);
    let error = fetch(options, &url).await.error.expect("unreachable");
    assert_eq!(error.category, ErrorCategory::Transient);
    assert!(
        error.model.contains("could not be reached") && !error.model.contains("secret-path"),
        "{}",
        error.model
    );
}

#[tokio::test]
async fn a_cancelled_fetch_stops_at_once() {
    let server = Server::new(|_| None).await;
    let (stack, call) = prepared(server.options(), json!({ "url": server.url("/") }));
    let cancel = call.cancel.clone();
    let run = tokio::spawn(stack.run(call));
    while server.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    let settled = run
        .await
        .expect("no panic")
        .settled()
        .cloned()
        .expect("settled");
    assert_eq!(settled.status, Status::Cancelled);
}

/// The environment of a process cannot be changed safely while it runs, so this program is started again with another.
#[tokio::test]
async fn the_proxy_of_the_environment_is_not_used() {
    if std::env::var_os("FETCH_INNER").is_some() {
        let server = Server::friendly().await;
        let settled = fetch(server.options(), &server.url("/")).await;
        assert_eq!(
            settled.value.as_value()["text"],
            "hello",
            "{:?}",
            settled.error
        );
        return;
    }
    let mut again = Command::new(std::env::current_exe().expect("a program"));
    again
        .args([
            "--exact",
            "refusals::the_proxy_of_the_environment_is_not_used",
        ])
        .env("FETCH_INNER", "1");
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        again.env(name, "http://127.0.0.1:1");
    }
    let output = again
        .env_remove("no_proxy")
        .env_remove("NO_PROXY")
        .output()
        .expect("run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
