//! The stub server, and helpers for the models that talk to it.

use std::{path::Path, process::Stdio, sync::Arc};

use futures::StreamExt;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use toolgate_core::{Delta, Model, ModelError, ModelRequest, Reply};
use toolgate_models::{Anthropic, ApiKey, Gemini, ModelBuilder, OpenAiChat, OpenAiResponses};

/// A key that must not appear in any output.
pub(crate) const CANARY: &str = "sk-7f3a91d2c4b8e605";

/// A wire format, as its models are configured for the stub.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wire {
    Chat,
    Compatible,
    Responses,
    Anthropic,
    /// A model of Anthropic that thinks by budget.
    AnthropicBudget,
    /// A model of Anthropic whose thoughts are bound to what came before them.
    AnthropicBound,
    Gemini,
    /// A model of Google that thinks by budget.
    GeminiBudget,
}

impl Wire {
    pub(crate) const ALL: [Self; 5] = [
        Self::Chat,
        Self::Compatible,
        Self::Responses,
        Self::Anthropic,
        Self::Gemini,
    ];

    /// Builds the model for an address.
    pub(crate) fn at(self, url: &str) -> Arc<dyn Model> {
        self.with(url, Plain)
    }

    /// Builds the model for an address, with further settings.
    pub(crate) fn with(self, url: &str, more: impl SetUp) -> Arc<dyn Model> {
        let v1 = format!("{url}/v1");
        match self {
            Self::Chat => Arc::new(built(OpenAiChat::builder("gpt-stub").base_url(v1), more)),
            Self::Compatible => Arc::new(built(OpenAiChat::compatible("stub", v1), more)),
            Self::Responses => Arc::new(built(
                OpenAiResponses::builder("gpt-stub").base_url(v1),
                more,
            )),
            Self::Anthropic => {
                Arc::new(built(Anthropic::builder("claude-stub").base_url(url), more))
            }
            Self::AnthropicBudget => Arc::new(built(
                Anthropic::builder("claude-opus-4-1").base_url(url),
                more,
            )),
            Self::AnthropicBound => Arc::new(built(
                Anthropic::builder("claude-opus-5-5").base_url(url),
                more,
            )),
            Self::Gemini => Arc::new(built(Gemini::builder("gemini-stub").base_url(url), more)),
            Self::GeminiBudget => {
                Arc::new(built(Gemini::builder("gemini-2.5-pro").base_url(url), more))
            }
        }
    }
}

/// A setting on a builder, whatever it builds.
pub(crate) trait SetUp {
    fn set_up<M>(self, builder: ModelBuilder<M>) -> ModelBuilder<M>;
}

/// No further settings.
pub(crate) struct Plain;

impl SetUp for Plain {
    fn set_up<M>(self, builder: ModelBuilder<M>) -> ModelBuilder<M> {
        builder
    }
}

fn built<M: std::fmt::Debug>(builder: ModelBuilder<M>, more: impl SetUp) -> M {
    let builder = more.set_up(builder.key(ApiKey::new(CANARY).expect("a key")));
    assert_clean(&format!("{builder:?}"));
    let model = builder.build().expect("a model");
    assert_clean(&format!("{model:?}"));
    model
}

/// Asserts that no piece of the key is in the text.
pub(crate) fn assert_clean(text: &str) {
    let secret = CANARY.trim_start_matches("sk-");
    for start in 0..=secret.len() - 8 {
        assert!(
            !text.contains(&secret[start..start + 8]),
            "the key has leaked into {text}"
        );
    }
}

/// The stub server. It ends with the test, however that ends: its input is closed then.
pub(crate) struct Peer {
    url: String,
    client: reqwest::Client,
    _server: Child,
}

impl Peer {
    /// Starts the server with the Python that `TOOLGATE_TEST_PYTHON` names; returns `None` if it is
    /// not set.
    pub(crate) async fn start() -> Option<Self> {
        let Some(python) = std::env::var_os("TOOLGATE_TEST_PYTHON").filter(|path| !path.is_empty())
        else {
            println!(
                "TOOLGATE_TEST_PYTHON is not set: nothing is tested against the official clients"
            );
            println!(
                "hint: `cargo xtask test` sets them up, and `cargo xtask peers` prints how to use them"
            );
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/server.py");
        let mut server = Command::new(&python);
        server
            .arg("-B")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut server = server
            .spawn()
            .unwrap_or_else(|error| panic!("{python:?} could not be started: {error}"));
        let mut first = String::new();
        let output = server.stdout.take().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut first)
            .await
            .expect("the server prints its port");
        let port: u16 = first
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("not a port: {first:?}"));
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client");
        Some(Self {
            url: format!("http://127.0.0.1:{port}"),
            client,
            _server: server,
        })
    }

    /// Returns the URL of a scenario.
    pub(crate) fn at(&self, scenario: &str) -> String {
        format!("{}/{scenario}", self.url)
    }

    /// Returns the requests so far.
    pub(crate) async fn log(&self) -> Vec<Value> {
        let text = self.control("log").await;
        serde_json::from_str(&text).expect("a list")
    }

    /// Returns the last request.
    pub(crate) async fn last(&self) -> Value {
        self.log().await.pop().expect("a request was sent")
    }

    /// Lets the gated streams of a scenario send their next event.
    pub(crate) async fn release(&self, scenario: &str) {
        self.control(&format!("release?{scenario}")).await;
    }

    /// Returns how the official client decodes the answer to the last request. It has to send the
    /// same request as we did.
    pub(crate) async fn official(&self) -> Value {
        let ours = self.last().await;
        let told = self.control("official").await;
        let theirs = self.last().await;
        assert_eq!(
            ours["body"], theirs["body"],
            "the official client sends the same request"
        );
        assert_ne!(
            ours["connection"], theirs["connection"],
            "the request came from another client"
        );
        serde_json::from_str(&told).expect("JSON")
    }

    async fn control(&self, what: &str) -> String {
        let answer = self
            .client
            .get(format!("{}/control/{what}", self.url))
            .send()
            .await
            .expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("text");
        assert!(status.is_success(), "{what}: {text}");
        text
    }
}

/// Runs a request; returns the deltas, and the reply or the error at the end.
pub(crate) async fn ask(
    model: &dyn Model,
    request: &ModelRequest,
) -> (Vec<Delta>, Result<Reply, ModelError>) {
    let mut stream = model.reply(request);
    let mut deltas = Vec::new();
    let end = loop {
        match stream
            .next()
            .await
            .expect("a stream ends with a reply or an error")
        {
            Ok(Delta::Done(reply)) => break Ok(*reply),
            Ok(delta) => deltas.push(delta),
            Err(error) => break Err(error),
        }
    };
    assert!(stream.next().await.is_none(), "nothing follows the end");
    (deltas, end)
}

/// Returns the reply to a request that has to succeed.
pub(crate) async fn reply(model: &dyn Model, request: &ModelRequest) -> (Vec<Delta>, Reply) {
    let (deltas, end) = ask(model, request).await;
    (deltas, end.unwrap_or_else(|error| panic!("{error}")))
}

/// Joins the text among the deltas.
pub(crate) fn streamed_text(deltas: &[Delta]) -> String {
    let words = deltas.iter().filter_map(|delta| match delta {
        Delta::Text(text) => Some(text.as_str()),
        _ => None,
    });
    words.collect()
}

/// Returns the calls among the deltas: id, tool and arguments.
pub(crate) fn streamed_calls(deltas: &[Delta]) -> Vec<(String, String, String)> {
    let mut calls = Vec::new();
    for delta in deltas {
        match delta {
            Delta::Call { index, id, tool } => {
                assert_eq!(*index, calls.len(), "calls are counted from 0");
                calls.push((id.clone(), tool.clone(), String::new()));
            }
            Delta::Arguments { index, text } => calls[*index].2.push_str(text),
            _ => {}
        }
    }
    calls
}
