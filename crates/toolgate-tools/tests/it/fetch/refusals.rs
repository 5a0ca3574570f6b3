//! Tests of rejected URLs and rejected pages.

use std::process::Command;

use serde_json::json;
use toolgate_core::{Call, CallSeed, ErrorCategory, HumanDuration, Status};
use toolgate_tools::FetchOptions;

use crate::fetch::server::{
    TestServer, fetch, http_response, redirect_to, stack_and_call, stack_and_seed,
};

fn allowing_hosts(allow: &[&str]) -> FetchOptions {
    FetchOptions {
        allow: allow.iter().map(|host| (*host).to_owned()).collect(),
        ..FetchOptions::default()
    }
}

#[tokio::test]
async fn a_host_that_is_not_listed_is_not_contacted() {
    let server = TestServer::friendly().await;
    for options in [FetchOptions::default(), allowing_hosts(&["docs.rs", "*"])] {
        let error = fetch(options, &server.url("/"))
            .await
            .error
            .expect("rejected");
        assert_eq!(error.category, ErrorCategory::Permission, "{}", error.model);
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_rehearsal_names_a_host_that_is_not_listed_and_contacts_none() {
    let server = TestServer::friendly().await;
    let rehearse = async |options| {
        let (stack, seed) = stack_and_seed(options, json!({ "url": server.url("/") }));
        let rehearsal = CallSeed {
            rehearsal: true,
            ..seed
        };
        let outcome = stack.run(Call::new(rehearsal)).await;
        outcome.settled().cloned().expect("settled")
    };
    let refused = rehearse(allowing_hosts(&["docs.rs"])).await;
    let real = fetch(allowing_hosts(&["docs.rs"]), &server.url("/")).await;
    assert_eq!((refused.status, refused.error), (real.status, real.error));
    let fine = rehearse(server.options()).await;
    assert_eq!(fine.status, Status::DryRun);
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_name_that_resolves_to_this_machine_is_rejected() {
    let server = TestServer::friendly().await;
    let name = format!("localhost:{}", server.address.port());
    let error = fetch(allowing_hosts(&[&name]), &format!("http://{name}/"))
        .await
        .error
        .expect("rejected");
    assert_eq!(error.category, ErrorCategory::Permission);
    assert!(
        error.model.contains("not a public address"),
        "{}",
        error.model
    );
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_url() {
    let inner = TestServer::friendly().await;
    let port = inner.address.port();
    for (location, word) in [
        (inner.url("/"), "not an allowed host"),
        (format!("http://127.1:{port}/"), "not an allowed host"),
        (format!("http://localhost:{port}/"), "not an allowed host"),
        (
            "http://user:CANARY@127.0.0.1/".to_owned(),
            "user name or password",
        ),
        ("file:///etc/passwd".to_owned(), "only http and https"),
        ("http://".to_owned(), "not a valid URL"),
    ] {
        let server = TestServer::new(move |_| Some(redirect_to(&location))).await;
        let error = fetch(server.options(), &server.url("/"))
            .await
            .error
            .expect("rejected");
        assert!(error.model.contains(word), "{}", error.model);
        assert!(!format!("{error:?} {:?} {}", error.operator, error.model).contains("CANARY"));
        assert_eq!(server.requests().len(), 1);
    }
    assert_eq!(inner.requests().len(), 0);
}

#[tokio::test]
async fn credentials_in_a_url_are_rejected_and_not_shown() {
    let server = TestServer::friendly().await;
    let url = format!("http://user:CANARY@{}/", server.address);
    let settled = fetch(server.options(), &url).await;
    assert_eq!(
        settled.error.as_ref().map(|error| error.category),
        Some(ErrorCategory::InvalidInput)
    );
    let error = settled.error.clone().expect("rejected");
    assert!(!format!("{settled:?} {:?} {}", error.operator, error.model).contains("CANARY"));
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn compressed_and_binary_pages_are_rejected() {
    for (headers, word) in [
        (
            "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n",
            "compressed",
        ),
        ("Content-Type: image/png\r\n", "image/png"),
        ("", "not text"),
    ] {
        let server =
            TestServer::new(move |_| Some(http_response("200 OK", headers, b"\x89PNG\0\x1f\x8b")))
                .await;
        let error = fetch(server.options(), &server.url("/"))
            .await
            .error
            .expect("rejected");
        assert!(error.model.contains(word), "{}", error.model);
    }
}

#[tokio::test]
async fn a_server_that_never_answers_times_out() {
    let server = TestServer::new(|_| None).await;
    let options = FetchOptions {
        timeout: HumanDuration::from_millis(100),
        ..server.options()
    };
    let error = fetch(options, &server.url("/"))
        .await
        .error
        .expect("timed out");
    assert_eq!(error.category, ErrorCategory::Transient);
}

#[tokio::test]
async fn a_server_that_is_gone_is_reported_as_unreachable() {
    let server = TestServer::friendly().await;
    let options = server.options();
    let url = server.url("/secret-path");
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
    let server = TestServer::new(|_| None).await;
    let (stack, call) = stack_and_call(server.options(), json!({ "url": server.url("/") }));
    let cancel = call.cancel.clone();
    let run = tokio::spawn(stack.run(call));
    while server.requests().is_empty() {
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

/// The environment of a process cannot be changed safely while it runs, so this program starts itself
/// again with another environment.
#[tokio::test]
async fn the_proxy_of_the_environment_is_not_used() {
    if std::env::var_os("FETCH_INNER").is_some() {
        let server = TestServer::friendly().await;
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
            "fetch::refusals::the_proxy_of_the_environment_is_not_used",
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
