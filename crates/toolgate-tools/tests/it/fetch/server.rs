//! A local server that answers each path as a test wants, and records the requests.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use toolgate_core::{Call, CallSeed, Registry, SettledOutcome, Stack};
use toolgate_testkit::seed_for;
use toolgate_tools::{FetchOptions, FetchUrl};

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl TestServer {
    /// Starts a server that answers a path with the bytes from `answer`; for `None` it never answers.
    pub(crate) async fn new(
        answer: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let answer = Arc::new(answer);
        let requests = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, requests.clone(), answer.clone()));
            }
        });
        Self {
            address,
            seen,
            task,
        }
    }

    /// Starts a server that answers "hello".
    pub(crate) async fn friendly() -> Self {
        Self::new(|_| {
            Some(http_response(
                "200 OK",
                "Content-Type: text/plain\r\n",
                "hello",
            ))
        })
        .await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns options that allow this server.
    pub(crate) fn options(&self) -> FetchOptions {
        FetchOptions {
            allow_private: vec![self.address],
            ..FetchOptions::default()
        }
    }

    /// Returns the heads of the requests that arrived.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().expect("not poisoned").clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<String>>>,
    answer: Arc<impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).expect("text");
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().expect("not poisoned").push(head);
    match answer(&path) {
        Some(bytes) => {
            // Fails if the client has read enough and closed the connection.
            let _ = stream.write_all(&bytes).await;
        }
        None => std::future::pending().await,
    }
}

/// Builds a response with a content length.
pub(crate) fn http_response(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn redirect_to(location: &str) -> Vec<u8> {
    http_response("302 Found", &format!("Location: {location}\r\n"), "")
}

/// Builds a stack over the tool, and a call of it.
pub(crate) fn stack_and_call(options: FetchOptions, arguments: Value) -> (Stack, Call) {
    let (stack, seed) = stack_and_seed(options, arguments);
    (stack, Call::new(seed))
}

pub(crate) fn stack_and_seed(options: FetchOptions, arguments: Value) -> (Stack, CallSeed) {
    let registry = Registry::new();
    registry
        .register(FetchUrl::new(options).expect("valid options"))
        .expect("a free name");
    let view = toolgate_testkit::plain_view(&registry);
    let seed = seed_for(&view, "fetch_url", arguments);
    (Stack::over(registry).build().expect("it builds"), seed)
}

pub(crate) async fn fetch_with(options: FetchOptions, arguments: Value) -> SettledOutcome {
    let (stack, call) = stack_and_call(options, arguments);
    stack.run(call).await.settled().cloned().expect("settled")
}

pub(crate) async fn fetch(options: FetchOptions, url: &str) -> SettledOutcome {
    fetch_with(options, json!({ "url": url })).await
}
