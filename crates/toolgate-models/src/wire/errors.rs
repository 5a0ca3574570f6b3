//! Failures of a provider, classified by status, headers and error body.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;
use toolgate_core::{ModelErrorKind as Kind, error_chain};

/// A failure before it names the model and before secrets are redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WireFailure {
    /// The kind of failure.
    pub(crate) kind: Kind,
    /// The HTTP status of the response, if there was one.
    pub(crate) status: Option<u16>,
    /// The delay that the provider asks for before a retry.
    pub(crate) retry_after: Option<Duration>,
    /// True if no server listens at the address.
    pub(crate) refused: bool,
    /// The provider's message, of any length.
    pub(crate) detail: String,
}

impl WireFailure {
    /// Creates a failure without an HTTP status.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            retry_after: None,
            refused: false,
            detail: detail.into(),
        }
    }

    /// Creates a failure for a reply that cannot be decoded.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Kind::Malformed, detail)
    }

    /// Classifies a response whose status is not a success.
    pub(crate) fn from_response(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let error = ProviderErrorBody::parse(body);
        let retry_after = retry_delay(headers).or(error.retry_after);
        Self {
            kind: classify_error(Some(status), &error),
            status: Some(status),
            retry_after,
            refused: false,
            detail: error.message,
        }
    }

    /// Classifies an error that arrives in the middle of a stream, or with a success status: an
    /// object with an `error` field.
    pub(crate) fn from_error_json(value: &Value) -> Self {
        let error = ProviderErrorBody::from_json(value);
        // Google and vLLM put the status into the body.
        let status = error
            .words
            .iter()
            .find_map(|word| word.parse().ok())
            .filter(|code| (400..600).contains(code));
        Self {
            kind: classify_error(status, &error),
            status,
            retry_after: error.retry_after,
            refused: false,
            detail: error.message,
        }
    }

    /// Classifies a request without a response, or a response that broke off.
    pub(crate) fn from_transport(error: reqwest::Error) -> Self {
        let kind = if error.is_timeout() {
            Kind::Timeout
        } else if error.is_builder() {
            Kind::Setup
        } else {
            Kind::Connection
        };
        let refused = is_refused(&error);
        // Only the server: the rest of the URL may carry secrets.
        let server = error.url().map(|url| url.origin().ascii_serialization());
        let error = error.without_url();
        let detail = match server {
            Some(server) if refused => format!("nothing listens at {server}"),
            Some(server) => format!("{server}: {}", error_chain(&error)),
            None => error_chain(&error),
        };
        Self {
            refused,
            ..Self::new(kind, detail)
        }
    }
}

/// Checks whether a connection was refused: nothing listens at the address.
fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.downcast_ref::<std::io::Error>();
        if cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}

/// The error body of any provider.
#[derive(Debug, Default)]
struct ProviderErrorBody {
    /// The message for people.
    message: String,
    /// The words for programs: types, codes, states, reasons.
    words: Vec<String>,
    retry_after: Option<Duration>,
}

impl ProviderErrorBody {
    fn parse(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::from_json(&value),
            Err(_) => Self {
                message: String::from_utf8_lossy(body).trim().to_owned(),
                ..Self::default()
            },
        }
    }

    /// Extracts the error. Google may send a list of errors; most put the error under `error`; vLLM
    /// and others put it at the top.
    fn from_json(value: &Value) -> Self {
        let value = value.get(0).unwrap_or(value);
        let error = value
            .get("error")
            .filter(|error| !error.is_null())
            .unwrap_or(value);
        let message = match error {
            Value::String(text) => text.clone(),
            _ => ["message", "detail", "error_description"]
                .iter()
                .find_map(|field| error.get(field).filter(|said| !said.is_null()))
                .map_or_else(|| error.to_string(), json_to_text),
        };
        let details = error
            .get("details")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let words = ["type", "code", "status"]
            .iter()
            .filter_map(|field| error.get(field));
        let reasons = details.iter().filter_map(|detail| detail.get("reason"));
        let words = words
            .chain(reasons)
            .filter(|word| !word.is_null())
            .map(json_to_text)
            .collect();
        Self {
            message,
            words,
            retry_after: details.iter().find_map(parse_retry_info),
        }
    }

    fn has_any_code(&self, any: &[&str]) -> bool {
        self.words.iter().any(|word| any.contains(&word.as_str()))
    }

    fn mentions_any(&self, any: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        any.iter().any(|phrase| message.contains(phrase))
    }
}

fn json_to_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Parses Google's `RetryInfo`: `{ "retryDelay": "7.5s" }`.
fn parse_retry_info(detail: &Value) -> Option<Duration> {
    parse_seconds(detail.get("retryDelay")?.as_str()?.strip_suffix('s')?)
}

/// Classifies an error. Its codes decide where they are clear, since several kinds share a status;
/// otherwise the status does.
fn classify_error(status: Option<u16>, error: &ProviderErrorBody) -> Kind {
    kind_from_codes(error)
        .or_else(|| status.and_then(|status| kind_from_message(status, error)))
        .unwrap_or_else(|| kind_from_status(status))
}

/// The codes that identify a kind. Not among them are `invalid_request_error` and
/// `INVALID_ARGUMENT`, which cover several kinds that only the message tells apart, and
/// `server_error` and the like, about which the status says more.
const ERROR_CODES: &[(Kind, &[&str])] = &[
    (
        Kind::Quota,
        &[
            "insufficient_quota",
            "billing_error",
            "billing_hard_limit_reached",
            "quota_exceeded",
        ],
    ),
    (
        Kind::TooLong,
        &[
            "context_length_exceeded",
            "request_too_large",
            "string_above_max_length",
        ],
    ),
    (
        Kind::Auth,
        &[
            "invalid_api_key",
            "authentication_error",
            "permission_error",
            "API_KEY_INVALID",
        ],
    ),
    (
        Kind::Auth,
        &[
            "UNAUTHENTICATED",
            "PERMISSION_DENIED",
            "invalid_authentication",
        ],
    ),
    (
        Kind::NotFound,
        &[
            "model_not_found",
            "not_found_error",
            "NOT_FOUND",
            "NotFoundError",
        ],
    ),
    (
        Kind::Refused,
        &[
            "content_policy_violation",
            "content_filter",
            "invalid_prompt",
            "bio_policy",
            "cyber_policy",
        ],
    ),
    (
        Kind::Refused,
        &[
            "misalignment_policy_violation",
            "image_content_policy_violation",
        ],
    ),
    (
        Kind::BadRequest,
        &[
            "invalid_image",
            "invalid_image_format",
            "invalid_image_mode",
            "invalid_image_url",
        ],
    ),
    (
        Kind::BadRequest,
        &[
            "invalid_base64_image",
            "image_parse_error",
            "image_too_large",
            "image_too_small",
        ],
    ),
    (
        Kind::BadRequest,
        &[
            "image_file_too_large",
            "image_file_not_found",
            "empty_image_file",
        ],
    ),
    (
        Kind::BadRequest,
        &["unsupported_image_media_type", "failed_to_download_image"],
    ),
    (
        Kind::Overloaded,
        &[
            "overloaded_error",
            "UNAVAILABLE",
            "server_is_overloaded",
            "slow_down",
            "engine_overloaded",
        ],
    ),
    (
        Kind::RateLimited,
        &[
            "rate_limit_error",
            "rate_limit_exceeded",
            "RESOURCE_EXHAUSTED",
        ],
    ),
    (
        Kind::Timeout,
        &["timeout_error", "DEADLINE_EXCEEDED", "vector_store_timeout"],
    ),
];

fn kind_from_codes(error: &ProviderErrorBody) -> Option<Kind> {
    ERROR_CODES
        .iter()
        .find(|(_, words)| error.has_any_code(words))
        .map(|(kind, _)| *kind)
}

fn kind_from_message(status: u16, error: &ProviderErrorBody) -> Option<Kind> {
    // Some providers have no code for this and only say it in the message.
    let too_long = [
        "context length",
        "context window",
        "prompt is too long",
        "maximum number of tokens",
        "too many tokens",
    ];
    match status {
        400 | 413 | 422 if error.mentions_any(&too_long) => Some(Kind::TooLong),
        400 if error.mentions_any(&["api key not valid", "api key expired"]) => Some(Kind::Auth),
        400 | 403 if error.mentions_any(&["credit balance is too low"]) => Some(Kind::Quota),
        429 if error.mentions_any(&["exceeded your current quota", "insufficient credits"]) => {
            Some(Kind::Quota)
        }
        _ => None,
    }
}

fn kind_from_status(status: Option<u16>) -> Kind {
    match status {
        Some(401 | 403 | 407) => Kind::Auth,
        Some(402) => Kind::Quota,
        Some(404 | 410) => Kind::NotFound,
        Some(408 | 504) => Kind::Timeout,
        Some(413) => Kind::TooLong,
        Some(429) => Kind::RateLimited,
        Some(503 | 529) => Kind::Overloaded,
        Some(300..400) => Kind::Setup,
        Some(400..500) => Kind::BadRequest,
        _ => Kind::Server,
    }
}

/// Reads the delay before a retry: `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_delay(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    // The non-standard header in milliseconds is more precise than `retry-after`.
    let exact = text("retry-after-ms")
        .and_then(parse_seconds)
        .map(|thousandfold| thousandfold / 1000);
    exact.or_else(|| {
        let asked = text(RETRY_AFTER.as_str())?;
        parse_seconds(asked).or_else(|| time_until(asked, text(DATE.as_str())))
    })
}

fn parse_seconds(text: &str) -> Option<Duration> {
    // The server chooses the number, and `from_secs_f64` panics if it is negative or too large.
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// Returns the time until a date, by the server's clock if it sends its time, since clocks differ.
/// A date in the past is now.
fn time_until(date: &str, server_time: Option<&str>) -> Option<Duration> {
    let date = httpdate::parse_http_date(date).ok()?;
    let now = server_time
        .and_then(|time| httpdate::parse_http_date(time).ok())
        .unwrap_or_else(SystemTime::now);
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    (*name).parse().expect("a name"),
                    value.parse().expect("a value"),
                )
            })
            .collect()
    }

    fn failure(status: u16, body: Value) -> WireFailure {
        WireFailure::from_response(status, &HeaderMap::new(), body.to_string().as_bytes())
    }

    #[test]
    fn openai_errors_are_classified() {
        let openai = |status, kind: &str, code: Value, message: &str| {
            failure(status, json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })).kind
        };
        let expected = [
            (
                openai(400, "invalid_request_error", json!(null), "bad"),
                Kind::BadRequest,
            ),
            (
                openai(
                    400,
                    "invalid_request_error",
                    json!("context_length_exceeded"),
                    "long",
                ),
                Kind::TooLong,
            ),
            (
                openai(
                    401,
                    "invalid_request_error",
                    json!("invalid_api_key"),
                    "Incorrect API key",
                ),
                Kind::Auth,
            ),
            (
                openai(
                    403,
                    "request_forbidden",
                    json!("unsupported_country_region_territory"),
                    "no",
                ),
                Kind::Auth,
            ),
            (
                openai(
                    404,
                    "invalid_request_error",
                    json!("model_not_found"),
                    "no such model",
                ),
                Kind::NotFound,
            ),
            (
                openai(429, "requests", json!("rate_limit_exceeded"), "slow down"),
                Kind::RateLimited,
            ),
            (
                openai(
                    429,
                    "insufficient_quota",
                    json!("insufficient_quota"),
                    "pay",
                ),
                Kind::Quota,
            ),
            (
                openai(500, "server_error", json!(null), "sorry"),
                Kind::Server,
            ),
            (
                openai(503, "server_error", json!(null), "busy"),
                Kind::Overloaded,
            ),
        ];
        for (found, kind) in expected {
            assert_eq!(found, kind);
        }
    }

    #[test]
    fn anthropic_errors_are_classified() {
        let anthropic = |status, kind: &str, message: &str| {
            failure(
                status,
                json!({ "type": "error", "error": { "type": kind, "message": message } }),
            )
            .kind
        };
        let expected = [
            (
                anthropic(400, "invalid_request_error", "max_tokens: required"),
                Kind::BadRequest,
            ),
            (
                anthropic(
                    400,
                    "invalid_request_error",
                    "prompt is too long: 210000 tokens > 200000",
                ),
                Kind::TooLong,
            ),
            (
                anthropic(
                    400,
                    "invalid_request_error",
                    "Your credit balance is too low",
                ),
                Kind::Quota,
            ),
            (
                anthropic(401, "authentication_error", "invalid x-api-key"),
                Kind::Auth,
            ),
            (anthropic(403, "permission_error", "no"), Kind::Auth),
            (
                anthropic(404, "not_found_error", "model: x"),
                Kind::NotFound,
            ),
            (
                anthropic(413, "request_too_large", "too large"),
                Kind::TooLong,
            ),
            (
                anthropic(429, "rate_limit_error", "slow down"),
                Kind::RateLimited,
            ),
            (anthropic(500, "api_error", "sorry"), Kind::Server),
            (anthropic(529, "overloaded_error", "busy"), Kind::Overloaded),
        ];
        for (found, kind) in expected {
            assert_eq!(found, kind);
        }
    }

    #[test]
    fn google_errors_are_classified() {
        let google = |code: u16, status: &str, message: &str, details: Value| {
            failure(
                code,
                json!([{ "error": { "code": code, "status": status, "message": message, "details": details } }]),
            )
        };
        let retry =
            json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s" }]);
        let limited = google(429, "RESOURCE_EXHAUSTED", "slow down", retry);
        assert_eq!(
            (limited.kind, limited.retry_after),
            (Kind::RateLimited, Some(Duration::from_millis(7500)))
        );
        let key = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID" }]);
        assert_eq!(
            google(400, "INVALID_ARGUMENT", "API key not valid.", key).kind,
            Kind::Auth
        );
        assert_eq!(
            google(400, "INVALID_ARGUMENT", "bad", json!([])).kind,
            Kind::BadRequest
        );
        let long = "The input token count (9) exceeds the maximum number of tokens allowed (8).";
        assert_eq!(
            google(400, "INVALID_ARGUMENT", long, json!([])).kind,
            Kind::TooLong
        );
        assert_eq!(
            google(403, "PERMISSION_DENIED", "no", json!([])).kind,
            Kind::Auth
        );
        assert_eq!(
            google(404, "NOT_FOUND", "no", json!([])).kind,
            Kind::NotFound
        );
        assert_eq!(
            google(500, "INTERNAL", "sorry", json!([])).kind,
            Kind::Server
        );
        assert_eq!(
            google(503, "UNAVAILABLE", "busy", json!([])).kind,
            Kind::Overloaded
        );
        assert_eq!(
            google(504, "DEADLINE_EXCEEDED", "slow", json!([])).kind,
            Kind::Timeout
        );
    }

    #[test]
    fn errors_of_unknown_shape_are_parsed_as_far_as_possible() {
        let ollama = failure(404, json!({ "error": "model 'x' not found" }));
        assert_eq!(
            (ollama.kind, ollama.detail.as_str()),
            (Kind::NotFound, "model 'x' not found")
        );
        let long = "This model's maximum context length is 8 tokens.";
        let vllm =
            json!({ "object": "error", "message": long, "type": "BadRequestError", "code": 400 });
        assert_eq!(
            (
                failure(400, vllm.clone()).kind,
                failure(400, vllm).detail.as_str()
            ),
            (Kind::TooLong, long)
        );
        assert_eq!(
            failure(422, json!({ "detail": [{ "msg": "missing" }] })).detail,
            r#"[{"msg":"missing"}]"#
        );
        let html = WireFailure::from_response(502, &HeaderMap::new(), b" <h1>Bad gateway</h1>\n");
        assert_eq!(
            (html.kind, html.detail.as_str()),
            (Kind::Server, "<h1>Bad gateway</h1>")
        );
        let empty = WireFailure::from_response(418, &HeaderMap::new(), b"");
        assert_eq!(
            (empty.kind, empty.detail.as_str(), empty.status),
            (Kind::BadRequest, "", Some(418))
        );
    }

    #[test]
    fn an_error_without_a_status_is_classified_by_its_body() {
        let overloaded =
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } });
        assert_eq!(
            WireFailure::from_error_json(&overloaded).kind,
            Kind::Overloaded
        );
        let google = json!({ "error": { "code": 429, "message": "slow down" } });
        let google = WireFailure::from_error_json(&google);
        assert_eq!((google.kind, google.status), (Kind::RateLimited, Some(429)));
        assert_eq!(
            WireFailure::from_error_json(&json!({ "error": { "message": "?" } })).kind,
            Kind::Server
        );
    }

    #[test]
    fn the_retry_delay_is_read_in_every_form() {
        let date = ("date", "Mon, 02 Nov 2026 10:00:00 GMT");
        for (given, expected) in [
            (headers(&[("retry-after", "20")]), Some(20_000)),
            (headers(&[("retry-after", "0.5")]), Some(500)),
            (
                headers(&[("retry-after-ms", "1500"), ("retry-after", "2")]),
                Some(1500),
            ),
            (
                headers(&[date, ("retry-after", "Mon, 02 Nov 2026 10:01:30 GMT")]),
                Some(90_000),
            ),
            (
                headers(&[date, ("retry-after", "Mon, 02 Nov 2026 09:00:00 GMT")]),
                Some(0),
            ),
            (headers(&[("retry-after", "-1")]), None),
            (headers(&[("retry-after", "1e400")]), None),
            (headers(&[("retry-after", "soon")]), None),
            (headers(&[]), None),
        ] {
            assert_eq!(
                retry_delay(&given),
                expected.map(Duration::from_millis),
                "{given:?}"
            );
        }
    }
}
