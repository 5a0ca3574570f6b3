//! Fetches a page, only from allowed hosts.

#[cfg(feature = "http")]
mod addresses;
#[cfg(feature = "http")]
pub(crate) mod options;
#[cfg(feature = "http")]
mod page_text;

use std::{sync::Arc, time::Duration};

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, LOCATION},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use toolgate_core::{
    Access, AccessVerdict, Annotations, Arguments, Context, ErrorCategory, Schema, SideEffect,
    Tool, ToolError, ToolKind, ToolOutput, ToolSpec, parse_arguments,
};

use crate::{
    FetchOptions, FetchSetupError,
    fetch::{
        addresses::{NotPublicError, PublicResolver},
        options::{AllowedHosts, UrlRejection},
    },
};

/// The tool `fetch_url`: fetches a URL and returns its text.
///
/// Only hosts on the list are contacted, only with `GET`, and only at public addresses: the tool
/// resolves every name itself, and connects to an address that was checked. Every redirect has to be
/// on the list too, and is judged by the policy like a call of its own. Compressed and binary bodies are rejected. A body that is too long is truncated, and
/// the result says so. The proxy of the environment is not used, because it would resolve names by
/// itself. No cookies or keys are sent.
///
/// ```
/// use toolgate_core::Registry;
/// use toolgate_tools::{FetchOptions, FetchUrl};
/// let registry = Registry::new();
/// let options = FetchOptions { allow: vec!["docs.rs".into()], ..FetchOptions::default() };
/// registry.register(FetchUrl::new(options)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FetchUrl {
    options: FetchOptions,
    allowed: AllowedHosts,
    /// Built when it is first needed, because loading the certificates of the system takes a while.
    client: Arc<OnceCell<Client>>,
}

/// The arguments of the model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FetchUrlInput {
    /// The page, such as https://docs.rs/tokio
    url: String,
    /// The most bytes to read.
    #[schemars(range(min = 1))]
    max_bytes: Option<usize>,
}

/// The fetched page.
#[derive(Debug, Serialize, JsonSchema)]
struct FetchedPage {
    /// The URL after all redirects.
    url: String,
    /// The HTTP status: 200 is success, 404 is not found.
    status: u16,
    /// The content type that the server sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    /// The unmodified text of the page.
    text: String,
    /// The number of bytes that were read.
    bytes: usize,
    /// True if the page was truncated.
    cut: bool,
    /// True if parts could not be decoded as text and were replaced.
    replaced: bool,
}

/// The most redirects that are followed.
const MAX_REDIRECTS: usize = 5;

impl FetchUrl {
    /// Creates the tool for the hosts that `options` allow.
    ///
    /// # Errors
    ///
    /// Fails if an entry of `allow` is not a host.
    pub fn new(options: FetchOptions) -> Result<Self, FetchSetupError> {
        let allowed = AllowedHosts::new(&options)?;
        Ok(Self {
            options,
            allowed,
            client: Arc::default(),
        })
    }

    /// Returns the URL that the model asks for, if it may be contacted.
    fn first_url(&self, input: &FetchUrlInput, cx: &Context) -> Result<Url, ToolError> {
        let url = self.allowed.parse_url(&input.url);
        let url = url.map_err(rejected_url_error)?;
        // The policy has judged the text of the model, and this is what the parser made of it.
        check_access(cx, &url)?;
        Ok(url)
    }

    async fn fetch_page(
        &self,
        input: FetchUrlInput,
        cx: &Context,
    ) -> Result<FetchedPage, ToolError> {
        let client = self
            .client
            .get_or_try_init(|| async { build_client() })
            .await?;
        let mut url = self.first_url(&input, cx)?;
        for _ in 0..=MAX_REDIRECTS {
            let response = send_get(client, &url).await?;
            match redirect_location(&response) {
                Some(location) => {
                    url = self
                        .allowed
                        .follow_redirect(&url, &location)
                        .map_err(rejected_redirect_error)?;
                    check_access(cx, &url)?;
                }
                None => return self.read_page(url, response, input.max_bytes).await,
            }
        }
        Err(ToolError::new(format!(
            "the page was redirected more than {MAX_REDIRECTS} times"
        )))
    }

    async fn read_page(
        &self,
        url: Url,
        mut response: Response,
        wanted: Option<usize>,
    ) -> Result<FetchedPage, ToolError> {
        let header = |name| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let kind = header(CONTENT_TYPE);
        let coding = header(CONTENT_ENCODING);
        // A small compressed body can expand beyond every limit, so none is decompressed.
        if coding.is_some_and(|coding| !coding.trim().eq_ignore_ascii_case("identity")) {
            return Err(ToolError::new(
                "the server sent a compressed page although none was accepted; it cannot be read",
            ));
        }
        let most = wanted
            .unwrap_or(self.options.max_bytes)
            .min(self.options.max_bytes);
        let (bytes, cut) = read_body(&mut response, most).await?;
        let Some(text) = page_text::decode_page(&bytes, kind.as_deref(), cut) else {
            let kind = kind.as_deref().map_or_else(
                || "of an unknown type".to_owned(),
                page_text::media_type_essence,
            );
            return Err(ToolError::new(format!(
                "the page is {kind}, not text, so it is not shown"
            )));
        };
        let status = response.status().as_u16();
        let content_type = kind;
        Ok(FetchedPage {
            url: url.into(),
            status,
            content_type,
            text: text.text,
            bytes: bytes.len(),
            cut,
            replaced: text.replaced,
        })
    }
}

impl Tool for FetchUrl {
    fn spec(&self) -> ToolSpec {
        let hosts = match self.options.allow.as_slice() {
            [] => String::new(),
            hosts => format!(" Hosts that may be fetched: {}.", hosts.join(", ")),
        };
        let description =
            format!("Fetches a page over http or https and returns its unmodified text.{hosts}");
        let mut annotations = Annotations::read_only()
            .with_kind(ToolKind::Fetch)
            .with_side_effect(SideEffect::Network);
        annotations.hints.open_world = Some(true);
        annotations.long_running = Some("fetching a page".to_owned());
        let spec = ToolSpec::new(
            "fetch_url",
            description,
            Schema::for_type::<FetchUrlInput>(),
        );
        spec.with_annotations(annotations)
            .with_output(Schema::for_type::<FetchedPage>())
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let limit = self.options.timeout.get();
        let page = tokio::select! {
            page = tokio::time::timeout(limit, self.fetch_page(parse_arguments(&arguments)?, &cx)) => page,
            () = cx.cancelled() => return Err(ToolError::cancelled()),
        };
        // Reported as transient, not as a timeout of the call: a GET changes nothing, so it may be
        // retried.
        let page =
            page.map_err(|_| ToolError::transient("the server took too long to answer"))??;
        let text = render_page(&page);
        Ok(ToolOutput::from_value(page)?.with_text(text))
    }

    async fn rehearse(&self, arguments: Arguments, cx: Context) -> Result<(), ToolError> {
        self.first_url(&parse_arguments(&arguments)?, &cx).map(drop)
    }
}

/// Renders the page for the model.
fn render_page(page: &FetchedPage) -> String {
    let kind = page.content_type.as_deref().unwrap_or("no content type");
    let mut text = format!("[{} {} {kind}]\n{}", page.status, page.url, page.text);
    if page.cut {
        text.push_str(&format!(
            "\n[truncated after {} bytes; request more with max_bytes]",
            page.bytes
        ));
    }
    if page.replaced {
        text.push_str("\n[parts of the page could not be decoded and were replaced]");
    }
    text
}

fn build_client() -> Result<Client, ToolError> {
    // Fails if the program has installed another provider, which works too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // No automatic redirects: `FetchUrl::fetch_page` checks every location before it follows it.
    let builder = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(PublicResolver);
    let named = builder
        .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true);
    let unmade = |error: reqwest::Error| {
        ToolError::new("fetching is not available here").with_operator_detail(error.to_string())
    };
    named
        .connect_timeout(Duration::from_secs(10))
        .referer(false)
        .build()
        .map_err(unmade)
}

async fn send_get(client: &Client, url: &Url) -> Result<Response, ToolError> {
    let request = client.get(url.clone()).header(
        ACCEPT,
        "text/*, application/json, application/xml, */*;q=0.5",
    );
    request
        .header(ACCEPT_ENCODING, "identity")
        .send()
        .await
        .map_err(|error| unreachable_host_error(&error, url))
}

/// Returns the location of a redirect, if the response is one.
fn redirect_location(response: &Response) -> Option<String> {
    let moves = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let location = response
        .headers()
        .get(LOCATION)
        .filter(|_| moves.contains(&response.status()))?;
    // A location that is not text becomes empty, which leads back to the same page until the limit.
    Some(location.to_str().unwrap_or_default().to_owned())
}

/// Reads the body up to `most` bytes; the flag is true if there was more.
async fn read_body(response: &mut Response, most: usize) -> Result<(Vec<u8>, bool), ToolError> {
    let mut bytes = Vec::new();
    let lost = |error: reqwest::Error| {
        ToolError::transient("the connection was lost while reading")
            .with_operator_detail(error.without_url().to_string())
    };
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        let room = most - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

/// Fails if the policy does not let the call contact this URL.
fn check_access(cx: &Context, url: &Url) -> Result<(), ToolError> {
    let text = match cx.judge_access(Access::FetchUrl(url.as_str())) {
        AccessVerdict::Allowed => return Ok(()),
        AccessVerdict::NeedsApproval(why) => {
            format!("the page leads to a URL that needs an approval of its own: {why}")
        }
        AccessVerdict::Denied(why) => format!("the page leads to a URL that is blocked: {why}"),
    };
    Err(ToolError::new(text).with_category(ErrorCategory::Permission))
}

fn rejected_url_error(refused: UrlRejection) -> ToolError {
    let category = match refused {
        UrlRejection::InvalidUrl | UrlRejection::Scheme | UrlRejection::Credentials => {
            ErrorCategory::InvalidInput
        }
        UrlRejection::Host { .. } | UrlRejection::Private { .. } | UrlRejection::Downgrade => {
            ErrorCategory::Permission
        }
    };
    ToolError::new(refused.to_string()).with_category(category)
}

fn rejected_redirect_error(to: UrlRejection) -> ToolError {
    ToolError::new(format!(
        "the page redirects to a URL that is not followed: {to}"
    ))
    .with_category(ErrorCategory::Permission)
}

/// Explains why there is no response, without the URL, which the operator can find in the call.
fn unreachable_host_error(error: &reqwest::Error, url: &Url) -> ToolError {
    let host = url.host_str().unwrap_or_default();
    // The client wraps the error of the resolver, so it is somewhere among the causes.
    let mut causes =
        std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    if causes.any(|cause| cause.is::<NotPublicError>()) {
        let refused = UrlRejection::Private {
            host: host.to_owned(),
        };
        return ToolError::new(refused.to_string()).with_category(ErrorCategory::Permission);
    }
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let detail: Vec<String> = causes.map(ToString::to_string).collect();
    ToolError::transient(format!("{host} could not be reached"))
        .with_operator_detail(detail.join(": "))
}
