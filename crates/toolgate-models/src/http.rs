//! How providers are reached: a request goes out, and a stream or a failure comes back.

use std::fmt;

use reqwest::{
    Body, Client, Response, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tokio::time::timeout;
use toolgate_core::{ModelError, ModelErrorKind, ModelName};

use crate::{ApiKey, body::Chunks, builder::Limits, errors::Failure};

pub(crate) use crate::builder::{Auth, WireSetup};

/// Where one model is asked.
pub(crate) struct Endpoint {
    name: ModelName,
    client: Client,
    url: Url,
    headers: HeaderMap,
    secrets: Vec<ApiKey>,
    limits: Limits,
}

impl Endpoint {
    /// How much of what a server says about an error is read, and how much of that is kept.
    const ERROR_BYTES: usize = 64 * 1024;
    const DETAIL_CHARS: usize = 500;

    pub(crate) fn new(
        name: ModelName,
        client: Client,
        url: Url,
        headers: HeaderMap,
        secrets: Vec<ApiKey>,
        limits: Limits,
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

    /// Which model it is.
    pub(crate) fn name(&self) -> &ModelName {
        &self.name
    }

    /// How long and how much it may send.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The same, with segments added to the path of the base URL.
    pub(crate) fn at<'s>(mut self, segments: impl IntoIterator<Item = &'s str>) -> Self {
        if let Ok(mut path) = self.url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        self
    }

    /// The same, with a parameter added to the query.
    pub(crate) fn with_query(mut self, name: &str, value: &str) -> Self {
        self.url.query_pairs_mut().append_pair(name, value);
        self
    }

    /// The same, with a header unless the user set it.
    pub(crate) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
        self
    }

    /// The same, with a header beside those of the same name that the user set.
    pub(crate) fn with_another_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.append(name, HeaderValue::from_static(value));
        self
    }

    /// Sends a request and waits until a stream of events begins.
    pub(crate) async fn send(&self, body: Chunks) -> Result<Response, Failure> {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone());
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream");
        let sent = timeout(self.limits.start, request.body(Body::wrap(body)).send()).await;
        let response = sent
            .map_err(|_| {
                Failure::new(
                    ModelErrorKind::Timeout,
                    "the server did not begin to answer",
                )
            })?
            .map_err(Failure::from_transport)?;
        match response.status().as_u16() {
            200..300 if is_json(&response) => Err(self.unstreamed(response).await),
            200..300 => Ok(response),
            300..400 => Err(redirected(response.status().as_u16())),
            status => {
                let headers = response.headers().clone();
                Err(Failure::from_answer(
                    status,
                    &headers,
                    &self.error_bytes(response).await,
                ))
            }
        }
    }

    /// The failure with the name of the model, without secrets, in one line of bounded length.
    pub(crate) fn error(&self, failure: Failure) -> ModelError {
        let detail = self
            .secrets
            .iter()
            .fold(failure.detail, |text, secret| secret.scrub(&text));
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
            ..error
        }
    }

    /// A server that was asked to stream and answered with one piece of JSON: an error, or not what was asked.
    async fn unstreamed(&self, response: Response) -> Failure {
        let body = self.error_bytes(response).await;
        match serde_json::from_slice::<serde_json::Value>(&body) {
            Ok(value) if value.get("error").is_some_and(|error| !error.is_null()) => {
                Failure::from_value(&value)
            }
            _ => Failure::malformed("the server did not stream its reply"),
        }
    }

    /// The beginning of an answer, or as much of it as came.
    async fn error_bytes(&self, mut response: Response) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < Self::ERROR_BYTES {
            match timeout(self.limits.idle, response.chunk()).await {
                Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
                _ => break,
            }
        }
        bytes.truncate(Self::ERROR_BYTES);
        bytes
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the whole address: paths and queries may carry secrets, too.
        f.debug_struct("Endpoint")
            .field("name", &self.name)
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

fn is_json(response: &Response) -> bool {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    kind.starts_with("application/json")
}

fn redirected(status: u16) -> Failure {
    let detail = "the server sends elsewhere, which is not followed, so that the key stays with it; correct the base URL";
    Failure {
        status: Some(status),
        ..Failure::new(ModelErrorKind::Setup, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::tests::{builder, key};
    use reqwest::header::AUTHORIZATION;

    #[test]
    fn the_path_goes_on_from_the_base_url_and_keeps_its_query() {
        for (base, expected) in [
            ("https://h/v1", "https://h/v1/chat/completions"),
            ("https://h/v1/", "https://h/v1/chat/completions"),
            ("http://h:8080", "http://h:8080/chat/completions"),
            (
                "https://h/v1?api-version=2",
                "https://h/v1/chat/completions?api-version=2",
            ),
        ] {
            let endpoint = builder()
                .base_url(base)
                .build()
                .expect("fine")
                .at(["chat", "completions"]);
            assert_eq!(endpoint.url.as_str(), expected);
        }
    }

    #[test]
    fn nothing_shows_a_key_or_a_secret_header() {
        let secret = ApiKey::new("gateway-CANARY-42").expect("a key");
        let builder = builder().key(key()).secret_header("x-gateway", secret);
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
        let error = endpoint.error(Failure::malformed(
            "gateway-CANARY-42, sk-canary-0123456789",
        ));
        assert_eq!(error.detail, "[key], [key]");
    }

    #[test]
    fn what_a_server_says_is_kept_in_one_bounded_line() {
        let endpoint = builder().key(key()).build().expect("fine");
        let error = endpoint.error(Failure::malformed(format!(
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
    fn a_key_of_the_environment_is_asked_for_only_where_it_belongs() {
        let missing = builder().build().expect_err("no key").to_string();
        assert!(missing.contains("TOOLGATE_NO_SUCH_KEY"), "{missing}");
        assert!(
            builder()
                .base_url("http://127.0.0.1:1")
                .build()
                .expect("needs none")
                .headers
                .is_empty()
        );
    }
}
