//! A server on this machine that answers each path as a test wants, and remembers what it was asked.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use toolgate_core::{Call, Registry, Settled, Stack, View};
use toolgate_testkit::seed_for;
use toolgate_tools::{FetchOptions, FetchUrl};

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Answers a path with the bytes that `answer` gives for it; with none it keeps silent.
    pub(crate) async fn new(
        answer: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let (seen, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
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

    /// A server that says hello.
    pub(crate) async fn friendly() -> Self {
        Self::new(|_| Some(page("200 OK", "Content-Type: text/plain\r\n", "hello"))).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Options with which this server may be asked.
    pub(crate) fn options(&self) -> FetchOptions {
        FetchOptions {
            allow_private: vec![self.address],
            ..FetchOptions::default()
        }
    }

    /// The requests that arrived, heads only.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("whole").clone()
    }
}

impl Drop for Server {
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
    seen.lock().expect("whole").push(head);
    match answer(&path) {
        Some(bytes) => {
            // Whoever has read enough closes.
            let _ = stream.write_all(&bytes).await;
        }
        None => std::future::pending().await,
    }
}

/// An answer with a length.
pub(crate) fn page(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn to(location: &str) -> Vec<u8> {
    page("302 Found", &format!("Location: {location}\r\n"), "")
}

/// A stack over the tool, and a call of it.
pub(crate) fn prepared(options: FetchOptions, arguments: Value) -> (Stack, Call) {
    let registry = Registry::new();
    registry
        .register(FetchUrl::new(options).expect("fine"))
        .expect("free");
    let view = View::of(&registry);
    let call = Call::new(seed_for(&view, "fetch_url", arguments));
    (Stack::over(registry).build().expect("in order"), call)
}

pub(crate) async fn fetch_with(options: FetchOptions, arguments: Value) -> Settled {
    let (stack, call) = prepared(options, arguments);
    stack.run(call).await.settled().cloned().expect("settled")
}

pub(crate) async fn fetch(options: FetchOptions, url: &str) -> Settled {
    fetch_with(options, json!({ "url": url })).await
}
