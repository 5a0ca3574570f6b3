//! The embedder behind HTTP against a server on loopback, honest and lying.

#![cfg(feature = "http")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Response, StatusCode, header},
    routing::post,
};
use futures::stream;
use serde_json::{Value, json};
use toolgate_core::{EmbedError, Embedder};
use toolgate_models::{ApiKey, EndpointEmbedder};

const CANARY: &str = "sk-canary-0123456789";

type Answer = fn(&Value) -> Response<Body>;

/// A server that records requests and answers as a test says.
struct EmbeddingServer {
    address: String,
    requests: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
}

#[derive(Clone)]
struct ServerState {
    answer: Answer,
    requests: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
}

impl EmbeddingServer {
    async fn start(answer: Answer) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let state = ServerState {
            answer,
            requests: requests.clone(),
        };
        let routes = Router::new()
            .route("/v1/embeddings", post(respond))
            .with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { address, requests }
    }

    fn embedder(&self) -> EndpointEmbedder {
        let builder = EndpointEmbedder::builder("tiny", 2)
            .base_url(format!("{}/v1", self.address))
            .key(ApiKey::new(CANARY).expect("a key"));
        builder.build().expect("an embedder")
    }

    fn requests(&self) -> Vec<(HeaderMap, Value)> {
        self.requests.lock().expect("not poisoned").clone()
    }
}

async fn respond(
    State(state): State<ServerState>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let request: Value = serde_json::from_slice(&body).expect("JSON");
    let response = (state.answer)(&request);
    state
        .requests
        .lock()
        .expect("not poisoned")
        .push((headers, request));
    response
}

fn answer_json(value: &Value) -> Response<Body> {
    Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(value.to_string()))
        .expect("a response")
}

/// Answers with a vector whose first value is the length of the text, in the reverse order.
fn honest(request: &Value) -> Response<Body> {
    let texts = request["input"].as_array().expect("texts");
    let vector = |(at, text): (usize, &Value)| {
        let length = text.as_str().map_or(0, str::len);
        json!({ "object": "embedding", "index": at, "embedding": [length, 1] })
    };
    let data: Vec<Value> = texts.iter().enumerate().map(vector).rev().collect();
    answer_json(&json!({ "object": "list", "data": data, "model": "tiny" }))
}

/// Returns the reason of a failure, which must not contain the key.
async fn failure(answer: Answer) -> String {
    let server = EmbeddingServer::start(answer).await;
    let error = server.embedder().embed(&["a", "b"]).await;
    let error = error.expect_err("a failure");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("canary"), "{shown}");
    match error {
        EmbedError::Endpoint { address, reason } => {
            assert_eq!(address, server.address);
            reason
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn texts_become_vectors_of_length_one_in_their_order() {
    let server = EmbeddingServer::start(honest).await;
    let embedder = server.embedder();
    let vectors = embedder.embed(&["", "a", "abcdefgh", " \n"]).await;
    let vectors = vectors.expect("an honest server");
    assert_eq!(vectors.len(), 4);
    assert_eq!(
        vectors[0],
        [0.0, 0.0],
        "an empty text is similar to nothing"
    );
    assert_eq!(vectors[3], [0.0, 0.0]);
    assert!((vectors[1][0] - std::f32::consts::FRAC_1_SQRT_2).abs() < 1e-6);
    assert!(vectors[2][0] > 0.99 && vectors[2][1] > 0.1);
    let (headers, request) = server.requests().remove(0);
    assert_eq!(headers[header::AUTHORIZATION], format!("Bearer {CANARY}"));
    let expected =
        json!({ "model": "tiny", "input": ["a", "abcdefgh"], "encoding_format": "float" });
    assert_eq!(request, expected, "empty texts are not sent");
    assert_eq!(embedder.id().as_str(), format!("{}/tiny/2", server.address));
}

#[tokio::test]
async fn many_and_long_texts_are_sent_in_bounded_batches() {
    let server = EmbeddingServer::start(honest).await;
    let long = "é".repeat(1_000_000);
    let texts: Vec<&str> = (0..250)
        .map(|at| if at % 2 == 0 { "a" } else { &long })
        .collect();
    let vectors = server.embedder().embed(&texts).await.expect("vectors");
    assert_eq!(vectors.len(), 250);
    assert!(vectors.iter().all(|vector| vector[1] > 0.0));
    let requests = server.requests();
    assert!(requests.len() > 2, "{}", requests.len());
    for (_, request) in requests {
        assert!(request.to_string().len() < 600 * 1024);
    }
}

#[tokio::test]
async fn nothing_is_sent_for_no_text() {
    let server = EmbeddingServer::start(honest).await;
    assert_eq!(server.embedder().embed(&[]).await.expect("none").len(), 0);
    assert_eq!(
        server
            .embedder()
            .embed(&["", "\n"])
            .await
            .expect("zeros")
            .len(),
        2
    );
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_wrong_count_wrong_dimensions_and_values_that_are_no_numbers_are_errors() {
    let fewer: Answer = |_| answer_json(&json!({ "data": [{ "index": 0, "embedding": [1, 2] }] }));
    assert!(failure(fewer).await.contains("1 vectors for 2 texts"));
    let wider: Answer = |_| {
        let item = |at: usize| json!({ "index": at, "embedding": [1, 2, 3] });
        answer_json(&json!({ "data": [item(0), item(1)] }))
    };
    let reason = failure(wider).await;
    assert!(
        reason.contains("3 dimensions instead of 2; set the dimensions to 3"),
        "{reason}"
    );
    let no_number: Answer = |_| {
        let body = r#"{"data":[{"index":0,"embedding":[NaN,1]},{"index":1,"embedding":[1,2]}]}"#;
        Response::new(Body::from(body))
    };
    assert!(
        failure(no_number)
            .await
            .contains("not a list of embeddings")
    );
    let infinite: Answer = |_| {
        let body = r#"{"data":[{"index":0,"embedding":[1e39,1]},{"index":1,"embedding":[1,2]}]}"#;
        Response::new(Body::from(body))
    };
    assert!(failure(infinite).await.contains("number"));
}

#[tokio::test]
async fn an_answer_without_an_end_is_read_up_to_a_limit() {
    let endless: Answer = |_| {
        let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 16 * 1024]));
        Response::new(Body::from_stream(stream::repeat_with(piece)))
    };
    let reason = failure(endless).await;
    assert!(reason.contains("larger than"), "{reason}");
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up() {
    let hanging: Answer = |_| {
        Response::new(Body::from_stream(stream::pending::<
            Result<Bytes, std::io::Error>,
        >()))
    };
    let server = EmbeddingServer::start(hanging).await;
    let builder = EndpointEmbedder::builder("tiny", 2).base_url(format!("{}/v1", server.address));
    let embedder = builder
        .timeout(Duration::from_millis(50))
        .build()
        .expect("an embedder");
    let error = embedder.embed(&["a"]).await.expect_err("no answer");
    assert!(
        error.to_string().contains("did not answer in time"),
        "{error}"
    );
}

#[tokio::test]
async fn errors_of_a_server_say_what_to_do_and_never_repeat_the_key() {
    let unauthorized: Answer = |_| {
        let body = json!({ "error": { "message": format!("{CANARY} is not\u{1b}[31m valid") } });
        let mut response = answer_json(&body);
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response
    };
    let reason = failure(unauthorized).await;
    assert!(
        reason.contains("status 401") && reason.contains("[key] is not"),
        "{reason}"
    );
    assert!(reason.contains("check the key"), "{reason}");
    assert!(!reason.contains('\u{1b}'), "{reason:?}");
    let redirect: Answer = |_| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        let target = header::HeaderValue::from_static("http://127.0.0.1:9/v1/embeddings");
        response.headers_mut().insert(header::LOCATION, target);
        response
    };
    assert!(failure(redirect).await.contains("redirect"));
}

#[tokio::test]
async fn a_server_that_is_away_is_named() {
    let builder = EndpointEmbedder::builder("tiny", 2).base_url("http://127.0.0.1:9/v1");
    let error = builder.build().expect("an embedder").embed(&["a"]).await;
    let error = error.expect_err("nothing listens").to_string();
    assert!(error.contains("http://127.0.0.1:9"), "{error}");
}
