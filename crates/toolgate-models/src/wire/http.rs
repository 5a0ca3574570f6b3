//! HTTP access to providers: a request goes out, and a stream or a failure comes back.

use std::{fmt, time::Duration};

use reqwest::{
    Body, Client, Response, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tokio::time::timeout;
use toolgate_core::{ModelError, ModelErrorKind, ModelName};

use crate::{
    ApiKey,
    providers::builder::{WireLimits, is_loopback},
    wire::{body::BodyChunks, errors::WireFailure},
};

pub(crate) use crate::providers::builder::{AuthScheme, WireSetup};

/// How long a server on this machine that refuses connections may take to start.
const LOCAL_START: Duration = Duration::from_secs(2);

/// The URL, headers and limits under which one model is requested.
pub(crate) struct ModelEndpoint {
    name: ModelName,
    client: Client,
    url: Url,
    headers: HeaderMap,
    secrets: Vec<ApiKey>,
    limits: WireLimits,
}

impl ModelEndpoint {
    /// The number of bytes of an error response that are read.
    const ERROR_BYTES: usize = 64 * 1024;
    /// The number of characters of an error message that are reported.
    const DETAIL_CHARS: usize = 500;

    pub(crate) fn new(
        name: ModelName,
        client: Client,
        url: Url,
        headers: HeaderMap,
        secrets: Vec<ApiKey>,
        limits: WireLimits,
    ) -> Self {
        Self {
            name,
            client,
            url,
            headers,
            secrets,
            limits,
        }
    }

    /// Returns the name of the model.
    pub(crate) fn name(&self) -> &ModelName {
        &self.name
    }

    /// Returns the limits of time and size.
    pub(crate) fn limits(&self) -> &WireLimits {
        &self.limits
    }

    /// Adds segments to the path of the base URL.
    pub(crate) fn with_path<'s>(mut self, segments: impl IntoIterator<Item = &'s str>) -> Self {
        // A base URL may end with a slash, which is an empty last segment.
        if let Ok(mut path) = self.url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        self
    }

    /// Adds a parameter to the query.
    pub(crate) fn with_query(mut self, name: &str, value: &str) -> Self {
        self.url.query_pairs_mut().append_pair(name, value);
        self
    }

    /// Adds a header unless the user set it.
    pub(crate) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
        self
    }

    /// Adds a header beside those of the same name that the user set.
    pub(crate) fn with_another_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.append(name, HeaderValue::from_static(value));
        self
    }

    /// Sends a request and waits until a stream of events begins.
    pub(crate) async fn send_request(&self, body: BodyChunks) -> Result<Response, WireFailure> {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone());
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream");
        // Covers connecting and the wait for the headers. The body has its own limit for silence.
        let sent = timeout(self.limits.start, request.body(Body::wrap(body)).send()).await;
        let response = sent
            .map_err(|_| {
                WireFailure::new(
                    ModelErrorKind::Timeout,
                    "the server did not begin to answer",
                )
            })?
            .map_err(WireFailure::from_transport)?;
        match response.status().as_u16() {
            // Some servers report an error with status 200, as plain JSON instead of a stream.
            200..300 if is_json_response(&response) => {
                Err(self.classify_unstreamed(response).await)
            }
            200..300 => Ok(response),
            300..400 => Err(redirect_failure(response.status().as_u16())),
            status => {
                let headers = response.headers().clone();
                Err(WireFailure::from_response(
                    status,
                    &headers,
                    &self.read_error_body(response).await,
                ))
            }
        }
    }

    /// Sends a request whose answer is one JSON document of at most `limit` bytes. The whole exchange may
    /// take as long as a response may take to begin.
    pub(crate) async fn fetch_json(
        &self,
        body: Vec<u8>,
        limit: usize,
    ) -> Result<Vec<u8>, WireFailure> {
        let late = |_| {
            let detail = "the server did not answer in time";
            WireFailure::new(ModelErrorKind::Timeout, detail)
        };
        timeout(self.limits.start, self.exchange_json(body, limit))
            .await
            .map_err(late)?
    }

    async fn exchange_json(&self, body: Vec<u8>, limit: usize) -> Result<Vec<u8>, WireFailure> {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone());
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json");
        let sent = request.body(body).send().await;
        let mut response = sent.map_err(WireFailure::from_transport)?;
        match response.status().as_u16() {
            200..300 => {}
            300..400 => return Err(redirect_failure(response.status().as_u16())),
            status => {
                let headers = response.headers().clone();
                let body = self.read_error_body(response).await;
                return Err(WireFailure::from_response(status, &headers, &body));
            }
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(WireFailure::from_transport)?
        {
            if bytes.len() + chunk.len() > limit {
                let detail = format!("the answer is larger than {limit} bytes");
                return Err(WireFailure::malformed(detail));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Returns the address of the server, without path, query and credentials.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Adds the name of the model to a failure and redacts secrets, in one line of bounded length.
    pub(crate) fn to_model_error(&self, failure: WireFailure) -> ModelError {
        // Redacted before it is truncated: half of a key would no longer be found.
        let detail = self
            .secrets
            .iter()
            .fold(failure.detail, |text, secret| secret.redact_from(&text));
        let mut words = detail
            .split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty());
        let mut line = words.next().unwrap_or_default().to_owned();
        words.for_each(|word| line.extend([" ", word]));
        if let Some((cut, _)) = line.char_indices().nth(Self::DETAIL_CHARS) {
            line.truncate(cut);
            line.push('…');
        }
        let error = ModelError::new(failure.kind, self.name.clone(), line);
        ModelError {
            status: failure.status,
            retry_after: failure.retry_after,
            retry_within: (failure.refused && is_loopback(&self.url)).then_some(LOCAL_START),
            ..error
        }
    }

    /// Classifies a response to a streaming request that is one JSON document: an error, or an
    /// unusable reply.
    async fn classify_unstreamed(&self, response: Response) -> WireFailure {
        let body = self.read_error_body(response).await;
        match serde_json::from_slice::<serde_json::Value>(&body) {
            Ok(value) if value.get("error").is_some_and(|error| !error.is_null()) => {
                WireFailure::from_error_json(&value)
            }
            _ => WireFailure::malformed("the server did not stream its reply"),
        }
    }

    /// Reads the beginning of a response, or as much of it as arrives.
    async fn read_error_body(&self, mut response: Response) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < Self::ERROR_BYTES {
            match timeout(self.limits.idle, response.chunk()).await {
                Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
                _ => break,
            }
        }
        // The last chunk may exceed the limit.
        bytes.truncate(Self::ERROR_BYTES);
        bytes
    }
}

impl fmt::Debug for ModelEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the whole URL: paths and queries may carry secrets, too.
        f.debug_struct("ModelEndpoint")
            .field("name", &self.name)
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

fn is_json_response(response: &Response) -> bool {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    kind.starts_with("application/json")
}

fn redirect_failure(status: u16) -> WireFailure {
    let detail = "the server answered with a redirect, which is not followed so that the key is not sent elsewhere; correct the base URL";
    WireFailure {
        status: Some(status),
        ..WireFailure::new(ModelErrorKind::Setup, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::builder::tests::{canary_key, test_builder};
    use reqwest::header::AUTHORIZATION;

    #[test]
    fn the_path_extends_the_base_url_and_keeps_its_query() {
        for (base, expected) in [
            ("https://h/v1", "https://h/v1/chat/completions"),
            ("https://h/v1/", "https://h/v1/chat/completions"),
            ("http://h:8080", "http://h:8080/chat/completions"),
            (
                "https://h/v1?api-version=2",
                "https://h/v1/chat/completions?api-version=2",
            ),
        ] {
            let endpoint = test_builder()
                .base_url(base)
                .build()
                .expect("fine")
                .with_path(["chat", "completions"]);
            assert_eq!(endpoint.url.as_str(), expected);
        }
    }

    #[test]
    fn nothing_shows_a_key_or_a_secret_header() {
        let secret = ApiKey::new("gateway-CANARY-42").expect("a key");
        let builder = test_builder()
            .key(canary_key())
            .secret_header("x-gateway", secret);
        let before = format!("{builder:?}");
        let endpoint = builder.build().expect("fine");
        for shown in [before, format!("{endpoint:?} {:?}", endpoint.headers)] {
            assert!(!shown.to_lowercase().contains("canary"), "{shown}");
        }
        assert_eq!(
            endpoint.headers[AUTHORIZATION],
            "Bearer sk-canary-0123456789"
        );
        assert_eq!(endpoint.headers["x-gateway"], "gateway-CANARY-42");
        let error = endpoint.to_model_error(WireFailure::malformed(
            "gateway-CANARY-42, sk-canary-0123456789",
        ));
        assert_eq!(error.detail, "[key], [key]");
    }

    #[test]
    fn a_server_message_becomes_one_bounded_line() {
        let endpoint = test_builder().key(canary_key()).build().expect("fine");
        let error = endpoint.to_model_error(WireFailure::malformed(format!(
            "a\r\n\u{1b}  b {}",
            "é".repeat(600)
        )));
        assert!(
            error.detail.starts_with("a b éé") && error.detail.ends_with('…'),
            "{}",
            error.detail
        );
        assert_eq!(error.detail.chars().count(), 501);
    }

    #[test]
    fn a_key_from_the_environment_is_required_only_for_the_default_url() {
        let missing = test_builder().build().expect_err("no key").to_string();
        assert!(missing.contains("TOOLGATE_NO_SUCH_KEY"), "{missing}");
        assert!(
            test_builder()
                .base_url("http://127.0.0.1:1")
                .build()
                .expect("needs none")
                .headers
                .is_empty()
        );
    }
}
