//! What went wrong with a provider, read from its status, headers and whatever it calls an error.

use std::{
    error::Error,
    time::{Duration, SystemTime},
};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;
use toolgate_core::ModelErrorKind as Kind;

/// A failure before it is said which model failed and before secrets are taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What kind of failure it is.
    pub(crate) kind: Kind,
    /// The status of the answer, if there was one.
    pub(crate) status: Option<u16>,
    /// How long the provider asks to wait.
    pub(crate) retry_after: Option<Duration>,
    /// What the provider said; of any length.
    pub(crate) detail: String,
}

impl Failure {
    /// A failure that no status came with.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            retry_after: None,
            detail: detail.into(),
        }
    }

    /// A reply that cannot be understood.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Kind::Malformed, detail)
    }

    /// The answer of a server that did not answer with success.
    pub(crate) fn from_answer(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let error = ErrorBody::read(body);
        let retry_after = retry_after(headers).or(error.retry_after);
        Self {
            kind: kind_of(Some(status), &error),
            status: Some(status),
            retry_after,
            detail: error.message,
        }
    }

    /// An error that comes in the middle of a stream, or with a status of success: an object that says `error`.
    pub(crate) fn from_value(value: &Value) -> Self {
        let error = ErrorBody::of(value);
        // Google and vLLM put the status into the body.
        let status = error
            .words
            .iter()
            .find_map(|word| word.parse().ok())
            .filter(|code| (400..600).contains(code));
        Self {
            kind: kind_of(status, &error),
            status,
            retry_after: error.retry_after,
            detail: error.message,
        }
    }

    /// A request that was not answered, or an answer that broke off.
    pub(crate) fn from_transport(error: reqwest::Error) -> Self {
        let kind = match error.is_timeout() {
            true => Kind::Timeout,
            false if error.is_builder() => Kind::Setup,
            false => Kind::Connection,
        };
        // The address says nothing that the name of the model does not, and may carry secrets.
        Self::new(kind, chain(&error.without_url()))
    }
}

/// What an error and its causes say, each cause once.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

/// What the body of an error says, whoever's it is.
#[derive(Debug, Default)]
struct ErrorBody {
    /// What it says to people.
    message: String,
    /// What it says to programs: types, codes, states, reasons.
    words: Vec<String>,
    retry_after: Option<Duration>,
}

impl ErrorBody {
    fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::of(&value),
            Err(_) => Self {
                message: String::from_utf8_lossy(body).trim().to_owned(),
                ..Self::default()
            },
        }
    }

    /// Google may send a list of errors; most put the error under `error`; vLLM and others put it at the top.
    fn of(value: &Value) -> Self {
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
                .map_or_else(|| error.to_string(), text_of),
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
            .map(text_of)
            .collect();
        Self {
            message,
            words,
            retry_after: details.iter().find_map(retry_info),
        }
    }

    fn says(&self, any: &[&str]) -> bool {
        self.words.iter().any(|word| any.contains(&word.as_str()))
    }

    fn mentions(&self, any: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        any.iter().any(|phrase| message.contains(phrase))
    }
}

fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Google's `RetryInfo`: `{ "retryDelay": "7.5s" }`.
fn retry_info(detail: &Value) -> Option<Duration> {
    seconds(detail.get("retryDelay")?.as_str()?.strip_suffix('s')?)
}

/// The words decide where they are clear, since several kinds share a status; otherwise the status does.
fn kind_of(status: Option<u16>, error: &ErrorBody) -> Kind {
    by_words(error)
        .or_else(|| status.and_then(|status| by_message(status, error)))
        .unwrap_or_else(|| by_status(status))
}

/// The words that say clearly what is wrong. Not among them are `invalid_request_error` and `INVALID_ARGUMENT`, which cover
/// several kinds that only the message tells apart, and `server_error` and its like, about which the status says more.
const WORDS: &[(Kind, &[&str])] = &[
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

fn by_words(error: &ErrorBody) -> Option<Kind> {
    WORDS
        .iter()
        .find(|(_, words)| error.says(words))
        .map(|(kind, _)| *kind)
}

fn by_message(status: u16, error: &ErrorBody) -> Option<Kind> {
    let too_long = [
        "context length",
        "context window",
        "prompt is too long",
        "maximum number of tokens",
        "too many tokens",
    ];
    match status {
        400 | 413 | 422 if error.mentions(&too_long) => Some(Kind::TooLong),
        400 if error.mentions(&["api key not valid", "api key expired"]) => Some(Kind::Auth),
        400 | 403 if error.mentions(&["credit balance is too low"]) => Some(Kind::Quota),
        429 if error.mentions(&["exceeded your current quota", "insufficient credits"]) => {
            Some(Kind::Quota)
        }
        _ => None,
    }
}

fn by_status(status: Option<u16>) -> Kind {
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

/// How long to wait: `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    let exact = text("retry-after-ms")
        .and_then(seconds)
        .map(|thousandfold| thousandfold / 1000);
    exact.or_else(|| {
        let asked = text(RETRY_AFTER.as_str())?;
        seconds(asked).or_else(|| until(asked, text(DATE.as_str())))
    })
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// How long it is until a date, by the clock of the server if it tells its time. A date that has passed is now.
fn until(date: &str, server_time: Option<&str>) -> Option<Duration> {
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

    fn failure(status: u16, body: Value) -> Failure {
        Failure::from_answer(status, &HeaderMap::new(), body.to_string().as_bytes())
    }

    #[test]
    fn errors_of_openai_are_told_apart() {
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
    fn errors_of_anthropic_are_told_apart() {
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
    fn errors_of_google_are_told_apart() {
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
    fn errors_of_other_servers_and_of_no_shape_are_read_as_far_as_possible() {
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
        let html = Failure::from_answer(502, &HeaderMap::new(), b" <h1>Bad gateway</h1>\n");
        assert_eq!(
            (html.kind, html.detail.as_str()),
            (Kind::Server, "<h1>Bad gateway</h1>")
        );
        let empty = Failure::from_answer(418, &HeaderMap::new(), b"");
        assert_eq!(
            (empty.kind, empty.detail.as_str(), empty.status),
            (Kind::BadRequest, "", Some(418))
        );
    }

    #[test]
    fn an_error_without_a_status_is_told_by_its_body() {
        let overloaded =
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } });
        assert_eq!(Failure::from_value(&overloaded).kind, Kind::Overloaded);
        let google = json!({ "error": { "code": 429, "message": "slow down" } });
        let google = Failure::from_value(&google);
        assert_eq!((google.kind, google.status), (Kind::RateLimited, Some(429)));
        assert_eq!(
            Failure::from_value(&json!({ "error": { "message": "?" } })).kind,
            Kind::Server
        );
    }

    #[test]
    fn the_time_to_wait_is_read_in_every_form() {
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
                retry_after(&given),
                expected.map(Duration::from_millis),
                "{given:?}"
            );
        }
    }
}
