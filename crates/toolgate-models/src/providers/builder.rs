//! Configures models of providers: an HTTP client each, with address, key and limits.

use std::{fmt, sync::Once, time::Duration};

use reqwest::{
    Client, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use toolgate_core::ModelName;

use crate::{ApiKey, SetupError, wire::http::ModelEndpoint};

/// Configures a model of a provider.
///
/// If no key is given and the base URL is the provider's own, the key is taken from the provider's
/// variable; a key from the environment is never sent to another address. Redirects are not
/// followed, so that the key stays with the server it is for. Proxies come from the environment
/// (`HTTPS_PROXY`, `NO_PROXY`…), but none is used for an address on this machine.
///
/// ```
/// use toolgate_models::{ApiKey, OpenAiChat};
/// let model = OpenAiChat::builder("gpt-5").key(ApiKey::new("sk-hunter2")?).build()?;
/// assert!(!format!("{model:?}").contains("hunter2"));
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
pub struct ModelBuilder<M> {
    name: ModelName,
    wire: WireSetup<M>,
    base_url: Option<String>,
    key: Option<ApiKey>,
    headers: Result<HeaderMap, SetupError>,
    secrets: Vec<ApiKey>,
    limits: WireLimits,
}

/// The settings that a wire format contributes to the models that speak it.
pub(crate) struct WireSetup<M> {
    /// The name of the provider.
    pub(crate) provider: &'static str,
    /// The provider's own address; none for wire formats that many servers speak.
    pub(crate) base_url: Option<&'static str>,
    /// The variable that holds the provider's key.
    pub(crate) key_variable: &'static str,
    /// The header that the key is sent in.
    pub(crate) auth: AuthScheme,
    /// Builds the model.
    pub(crate) make: fn(ModelEndpoint) -> M,
}

/// The header that a key is sent in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AuthScheme {
    /// `authorization: Bearer …`.
    Bearer,
    /// A header that holds the key alone.
    Header(&'static str),
}

/// The limits on the time and size of a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireLimits {
    connect: Duration,
    /// The longest wait for the response to begin.
    pub(crate) start: Duration,
    /// The longest silence in the middle of a reply.
    pub(crate) idle: Duration,
    /// The largest size of a whole reply in bytes.
    pub(crate) reply_bytes: usize,
    /// The largest size of the text, reasoning and arguments of a reply in bytes.
    pub(crate) content_bytes: usize,
}

impl Default for WireLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            start: Duration::from_secs(300),
            idle: Duration::from_secs(120),
            reply_bytes: 64 * 1024 * 1024,
            content_bytes: 8 * 1024 * 1024,
        }
    }
}

impl<M> ModelBuilder<M> {
    pub(crate) fn new(model: &str, wire: WireSetup<M>) -> Self {
        Self {
            name: ModelName::new(wire.provider, model),
            wire,
            base_url: None,
            key: None,
            headers: Ok(HeaderMap::new()),
            secrets: Vec::new(),
            limits: WireLimits::default(),
        }
    }

    /// Sets the key that is sent with every request.
    #[must_use]
    pub fn key(mut self, key: ApiKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the base URL of the provider, as in `https://api.openai.com/v1`.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the name of the provider in names, events and errors, if it differs from the one that
    /// the wire format is named for.
    #[must_use]
    pub fn provider(mut self, provider: &str) -> Self {
        self.name = ModelName::new(provider, &self.name.model);
        self
    }

    /// Adds a header that is sent with every request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers = self
            .headers
            .and_then(|headers| insert_header(headers, name, value));
        self
    }

    /// Adds a header whose value is a secret: it is treated like the key.
    #[must_use]
    pub fn secret_header(mut self, name: &str, value: ApiKey) -> Self {
        self.headers = self
            .headers
            .and_then(|headers| insert_header(headers, name, value.expose()));
        self.secrets.push(value);
        self
    }

    /// Sets how long connecting may take; 10 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.limits.connect = limit;
        self
    }

    /// Sets how long the server may take to begin its response; 5 minutes by default, since models
    /// on small machines process the prompt for a while before they produce output.
    #[must_use]
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.limits.start = limit;
        self
    }

    /// Sets how long nothing may arrive in the middle of a reply; 2 minutes by default. A reply as
    /// a whole may take any time.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.limits.idle = limit;
        self
    }

    /// Sets the largest size of the text, reasoning and arguments of a reply in bytes; 8 MiB by
    /// default, many times what any model can write.
    #[must_use]
    pub fn max_content_bytes(mut self, limit: usize) -> Self {
        self.limits.content_bytes = limit;
        self
    }

    /// Sets the largest size of a whole response in bytes, with everything around the content;
    /// 64 MiB by default.
    #[must_use]
    pub fn max_reply_bytes(mut self, limit: usize) -> Self {
        self.limits.reply_bytes = limit;
        self
    }

    /// Builds the model. Nothing is sent yet.
    pub fn build(self) -> Result<M, SetupError> {
        let own = self.base_url.is_none();
        let url = self
            .base_url
            .as_deref()
            .or(self.wire.base_url)
            .ok_or_else(|| SetupError::MissingBaseUrl {
                provider: self.name.provider.to_string(),
                hint: "set one with `base_url`".to_owned(),
            })?;
        let url = parse_base_url(url)?;
        let key = match self.key {
            // A key from the environment belongs to the provider's own address. With another base
            // URL, it would be sent to a server that it is not for.
            None if own => Some(ApiKey::from_env(self.wire.key_variable)?),
            key => key,
        };
        let mut headers = self.headers?;
        let mut secrets = self.secrets;
        if let Some(key) = key {
            let (name, value) = self.wire.auth.to_header(&key);
            headers.insert(name, value);
            secrets.push(key);
        }
        let client = build_client(&self.limits, is_loopback(&url))?;
        Ok((self.wire.make)(ModelEndpoint::new(
            self.name,
            client,
            url,
            headers,
            secrets,
            self.limits,
        )))
    }
}

impl<M> fmt::Debug for ModelBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelBuilder")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl AuthScheme {
    fn to_header(self, key: &ApiKey) -> (HeaderName, HeaderValue) {
        let (name, value) = match self {
            Self::Bearer => (AUTHORIZATION, format!("Bearer {}", key.expose())),
            Self::Header(name) => (HeaderName::from_static(name), key.expose().to_owned()),
        };
        // Sensitive values are hidden in `{:?}` and stay out of the compression tables of HTTP/2.
        let mut value = HeaderValue::try_from(value).expect("a key has visible characters only");
        value.set_sensitive(true);
        (name, value)
    }
}

fn insert_header(mut headers: HeaderMap, name: &str, value: &str) -> Result<HeaderMap, SetupError> {
    // Any header of the user may hold a token, so its value is marked as sensitive below.
    let invalid = || SetupError::InvalidHeader {
        name: name.to_owned(),
    };
    let mut value = HeaderValue::try_from(value).map_err(|_| invalid())?;
    value.set_sensitive(true);
    headers.insert(HeaderName::try_from(name).map_err(|_| invalid())?, value);
    Ok(headers)
}

pub(super) fn parse_base_url(text: &str) -> Result<Url, SetupError> {
    let invalid = |reason: String| SetupError::InvalidBaseUrl { reason };
    let url = Url::parse(text.trim()).map_err(|error| invalid(error.to_string()))?;
    match url.scheme() {
        "http" | "https" => {}
        other => {
            return Err(invalid(format!(
                "it begins with {other}:, not with http: or https:"
            )));
        }
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid(
            "it carries a name or password; give keys as keys".to_owned(),
        ));
    }
    Ok(url)
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    // `host_str` returns an IPv6 address in its brackets, and `IpAddr` does not parse them.
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    address.map_or_else(
        |_| host == "localhost" || host.ends_with(".localhost"),
        |address| address.is_loopback(),
    )
}

pub(super) fn build_client(limits: &WireLimits, loopback: bool) -> Result<Client, SetupError> {
    static INSTALL_TLS: Once = Once::new();
    // Fails if the program has already installed a TLS provider; then that one is used.
    INSTALL_TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let builder = Client::builder()
        .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true)
        .connect_timeout(limits.connect)
        .redirect(Policy::none());
    let builder = if loopback {
        // A proxy could not reach the loopback address of this machine.
        builder.no_proxy()
    } else {
        builder
    };
    builder
        .build()
        .map_err(|error| SetupError::Client(error.without_url().into()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Configures a provider that does not exist.
    pub(crate) fn test_builder() -> ModelBuilder<ModelEndpoint> {
        let wire = WireSetup {
            provider: "test",
            base_url: Some("https://api.example.com/v1"),
            key_variable: "TOOLGATE_NO_SUCH_KEY",
            auth: AuthScheme::Bearer,
            make: |endpoint| endpoint,
        };
        ModelBuilder::new("m", wire)
    }

    /// Returns a key that must not appear in any output.
    pub(crate) fn canary_key() -> ApiKey {
        ApiKey::new("sk-canary-0123456789").expect("a key")
    }

    #[test]
    fn an_invalid_base_url_is_rejected_and_not_repeated() {
        for (bad, reason) in [
            ("example.com/hunter2", "relative URL"),
            ("ftp://example.com/hunter2", "begins with ftp:"),
            ("https://me:hunter2@example.com", "name or password"),
        ] {
            let error = test_builder()
                .base_url(bad)
                .build()
                .expect_err("rejected")
                .to_string();
            assert!(
                error.contains(reason) && !error.contains("hunter2"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_invalid_header_is_rejected_by_name() {
        for (name, value) in [("bad name", "x"), ("x-good", "two\nlines")] {
            let error = test_builder()
                .header(name, value)
                .key(canary_key())
                .build()
                .expect_err("rejected");
            assert_eq!(
                error.to_string(),
                format!("the header {name:?} cannot be sent")
            );
        }
    }

    #[test]
    fn loopback_addresses_are_recognized() {
        let loopback = |text: &str| is_loopback(&Url::parse(text).expect("an address"));
        assert!(
            [
                "http://localhost:1",
                "http://127.0.0.9",
                "http://[::1]:1",
                "http://a.localhost"
            ]
            .into_iter()
            .all(loopback)
        );
        assert!(
            ![
                "http://10.0.0.1",
                "https://localhost.example.com",
                "http://[::2]"
            ]
            .into_iter()
            .any(loopback)
        );
    }
}
