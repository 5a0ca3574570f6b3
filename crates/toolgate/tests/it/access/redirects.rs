//! Each redirect of `fetch_url` is judged like a call of its own, against a real server.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    http::{StatusCode, Uri, header::LOCATION},
    response::IntoResponse,
};
use serde_json::json;
use tokio::net::TcpListener;
use toolgate::{
    Registry, Status,
    stack::{Call, SettledOutcome},
};
use toolgate_testkit::{plain_view, seed_for};
use toolgate_tools::{FetchOptions, FetchUrl};

use crate::access::{run_approved, shown_text, stack_under};

/// Two servers on loopback; the first redirects `/to?URL` to that URL, and both answer "page".
struct Sites {
    first: SocketAddr,
    second: SocketAddr,
    /// The ports at which requests arrived.
    requests: Arc<Mutex<Vec<u16>>>,
    registry: Registry,
}

impl Sites {
    async fn start() -> Self {
        let requests = Arc::default();
        let first = serve(&requests).await;
        let second = serve(&requests).await;
        let options = FetchOptions {
            allow_private: vec![first, second],
            ..FetchOptions::default()
        };
        let registry = Registry::new();
        registry
            .register(FetchUrl::new(options).expect("valid options"))
            .expect("a free name");
        Self {
            first,
            second,
            requests,
            registry,
        }
    }

    fn via_first(&self, target: &str) -> String {
        format!("http://{}/to?{target}", self.first)
    }

    async fn fetch(&self, policy: &str, url: &str) -> SettledOutcome {
        let call = Call::new(seed_for(
            &plain_view(&self.registry),
            "fetch_url",
            json!({ "url": url }),
        ));
        let stack = stack_under(policy, Path::new("/nowhere"), &self.registry);
        stack.run(call).await.settled().cloned().expect("settled")
    }

    fn reached_second(&self) -> bool {
        let requests = self.requests.lock().expect("not poisoned");
        requests.contains(&self.second.port())
    }
}

async fn serve(requests: &Arc<Mutex<Vec<u16>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let requests = requests.clone();
    let site = Router::new().fallback(move |uri: Uri| async move {
        requests.lock().expect("not poisoned").push(address.port());
        match uri.query().filter(|_| uri.path() == "/to") {
            Some(target) => (StatusCode::FOUND, [(LOCATION, target.to_owned())]).into_response(),
            None => "page".into_response(),
        }
    });
    tokio::spawn(axum::serve(listener, site).into_future());
    address
}

#[tokio::test]
async fn a_redirect_that_a_rule_denies_is_not_followed() {
    let sites = Sites::start().await;
    let port = sites.second.port();
    let deny = format!(
        "default = \"allow\"\n[[rules]]\neffect = \"deny\"\nurl = \"http://127.0.0.1:{port}/**\""
    );
    let deny_path =
        "default = \"allow\"\n[[rules]]\neffect = \"deny\"\nurl = \"http://127.0.0.1:*/secret/**\""
            .to_owned();
    let only_first = format!(
        "default = \"deny\"\n[[rules]]\neffect = \"allow\"\nurl = \"http://127.0.0.1:{}/**\"",
        sites.first.port()
    );
    let by_argument = format!(
        "default = \"allow\"\n[[rules]]\neffect = \"deny\"\ntool = \"fetch_*\"\narguments.url.matches = \"http://127.0.0.1:{port}/**\""
    );
    for (policy, target) in [
        (&deny, format!("http://127.0.0.1:{port}/secret/x")),
        (&deny, format!("http://2130706433:{port}/")),
        (&deny, format!("http://0x7f.1:{port}/y")),
        (&deny, format!("http://0177.0.0.1:{port}/y")),
        (&deny, format!("//127.0.0.1:{port}/")),
        (&deny, format!("http:\\\\127.0.0.1:{port}\\")),
        (&deny_path, format!("http://127.0.0.1:{port}/a/../secret/x")),
        (&deny_path, format!("http://127.0.0.1:{port}/secret/x")),
        (&only_first, format!("http://127.0.0.1:{port}/")),
        (&only_first, format!("http://127.1:{port}/")),
        (&by_argument, format!("http://127.0.0.1:{port}/")),
        // Two redirects: the second one leads to what is denied.
        (&deny, format!("/to?http://127.0.0.1:{port}/")),
    ] {
        let outcome = sites.fetch(policy, &sites.via_first(&target)).await;
        let shown = shown_text(&outcome);
        assert!(!sites.reached_second(), "{policy}\n{target}: {shown}");
        assert!(
            outcome.status != Status::Ok && shown.contains("blocked"),
            "{target}: {shown}"
        );
    }
    let open = sites
        .fetch(
            "default = \"allow\"",
            &sites.via_first(&format!("http://127.0.0.1:{port}/")),
        )
        .await;
    assert!(shown_text(&open).contains("page") && sites.reached_second());
}

#[tokio::test]
async fn a_redirect_that_needs_approval_is_a_call_of_its_own() {
    let sites = Sites::start().await;
    let port = sites.second.port();
    let asking = format!(
        "default = \"allow\"\n[[rules]]\neffect = \"ask\"\nurl = \"http://127.0.0.1:{port}/**\""
    );
    let target = format!("http://127.0.0.1:{port}/");
    let outcome = sites.fetch(&asking, &sites.via_first(&target)).await;
    assert!(
        shown_text(&outcome).contains("needs an approval of its own"),
        "{}",
        shown_text(&outcome)
    );
    // An approval covers the host that the approver saw, and no other one.
    for policy in [
        "default = \"ask\"",
        "[[rules]]\neffect = \"ask\"\ndomain = \"*\"",
        "[[rules]]\neffect = \"ask\"\ntool = \"fetch_url\"",
    ] {
        let stack = stack_under(policy, Path::new("/nowhere"), &sites.registry);
        let fetch =
            |url: String| run_approved(&stack, &sites.registry, "fetch_url", json!({ "url": url }));
        let elsewhere = fetch(sites.via_first(&target)).await;
        assert!(
            elsewhere.status != Status::Ok && !sites.reached_second(),
            "{policy}"
        );
        let same_host = fetch(sites.via_first("/page")).await;
        assert!(
            shown_text(&same_host).contains("page"),
            "{policy}: {}",
            shown_text(&same_host)
        );
    }
}
