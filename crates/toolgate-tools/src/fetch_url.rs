//! Fetches a page from hosts that were allowed, and from nowhere else.

use std::{sync::Arc, time::Duration};

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, LOCATION},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use toolgate_core::{
    Annotations, Arguments, Context, ErrorCategory, Kind, Schema, SideEffect, Tool, ToolError,
    ToolOutput, ToolSpec, typed,
};

use crate::{
    FetchOptions, FetchSetupError,
    fetch_addresses::{NotPublic, PublicOnly},
    fetch_options::{Allowed, Refused},
    fetch_text,
};

/// The tool `fetch_url`: a URL in, text out.
///
/// Only hosts of the list are asked, only with `GET`, and only at public addresses: every name is looked up by us, and
/// the connection goes to an address that was checked. Redirects are followed by the same rules. What is compressed,
/// or is no text, is refused; what is too long is cut, and the result says so. The proxy of the environment is not
/// used, because it would look names up by itself. No cookies or keys are sent.
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
    allowed: Allowed,
    /// Made when it is first needed: reading the certificates of the system takes a while.
    client: Arc<OnceCell<Client>>,
}

/// What the model says.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The page, such as https://docs.rs/tokio
    url: String,
    /// How many bytes to read at most.
    #[schemars(range(min = 1))]
    max_bytes: Option<usize>,
}

/// What was fetched.
#[derive(Debug, Serialize, JsonSchema)]
struct Page {
    /// Where it came from in the end.
    url: String,
    /// What the server says about it: 200 is fine, 404 not found.
    status: u16,
    /// What the server says that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    /// The page as it is.
    text: String,
    /// How many bytes were read.
    bytes: usize,
    /// Whether there was more.
    cut: bool,
    /// Whether something in it could not be read as text and was replaced.
    replaced: bool,
}

/// So many redirects are followed.
const MOST_REDIRECTS: usize = 5;

impl FetchUrl {
    /// Fetches what `options` allow.
    pub fn new(options: FetchOptions) -> Result<Self, FetchSetupError> {
        let allowed = Allowed::new(&options)?;
        Ok(Self {
            options,
            allowed,
            client: Arc::default(),
        })
    }

    async fn fetch(&self, input: Input) -> Result<Page, ToolError> {
        let client = self.client.get_or_try_init(|| async { client() }).await?;
        let mut url = self.allowed.read(&input.url).map_err(refused)?;
        for _ in 0..=MOST_REDIRECTS {
            let response = get(client, &url).await?;
            match moved(&response) {
                Some(location) => url = self.allowed.follow(&url, &location).map_err(redirected)?,
                None => return self.page(url, response, input.max_bytes).await,
            }
        }
        Err(ToolError::new(format!(
            "it was redirected more than {MOST_REDIRECTS} times"
        )))
    }

    async fn page(
        &self,
        url: Url,
        mut response: Response,
        wanted: Option<usize>,
    ) -> Result<Page, ToolError> {
        let header = |name| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let (kind, coding) = (header(CONTENT_TYPE), header(CONTENT_ENCODING));
        if coding.is_some_and(|coding| !coding.trim().eq_ignore_ascii_case("identity")) {
            return Err(ToolError::new(
                "the server sends it compressed although it was asked not to; it is not read",
            ));
        }
        let most = wanted
            .unwrap_or(self.options.max_bytes)
            .min(self.options.max_bytes);
        let (bytes, cut) = body(&mut response, most).await?;
        let Some(text) = fetch_text::read(&bytes, kind.as_deref(), cut) else {
            let kind = kind
                .as_deref()
                .map_or_else(|| "of an unknown type".to_owned(), fetch_text::essence);
            return Err(ToolError::new(format!(
                "it is {kind}, not text, and is not shown"
            )));
        };
        let (status, content_type) = (response.status().as_u16(), kind);
        let (text, replaced) = (text.text, text.replaced);
        Ok(Page {
            url: url.into(),
            status,
            content_type,
            text,
            bytes: bytes.len(),
            cut,
            replaced,
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
            format!("Fetches a page over http or https and returns its text as it is.{hosts}");
        let mut annotations = Annotations::read_only()
            .with_kind(Kind::Fetch)
            .with_side_effect(SideEffect::Network);
        annotations.hints.open_world = Some(true);
        annotations.long_running = Some("fetching a page".to_owned());
        let spec = ToolSpec::new("fetch_url", description, Schema::of::<Input>());
        spec.with_annotations(annotations)
            .with_output(Schema::of::<Page>())
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let limit = Duration::from_millis(self.options.timeout_ms);
        let page = tokio::select! {
            page = tokio::time::timeout(limit, self.fetch(typed(&arguments)?)) => page,
            () = cx.cancelled() => return Err(ToolError::cancelled()),
        };
        // Not as a timeout of ours: nothing was changed there, and a later attempt may do.
        let page =
            page.map_err(|_| ToolError::transient("the server took too long to answer"))??;
        let text = in_words(&page);
        Ok(ToolOutput::of(page)?.with_text(text))
    }
}

/// The page as the model reads it.
fn in_words(page: &Page) -> String {
    let kind = page.content_type.as_deref().unwrap_or("no content type");
    let mut text = format!("[{} {} {kind}]\n{}", page.status, page.url, page.text);
    if page.cut {
        text.push_str(&format!(
            "\n[cut after {} bytes; ask for more with max_bytes]",
            page.bytes
        ));
    }
    if page.replaced {
        text.push_str("\n[parts of it are no text and were replaced]");
    }
    text
}

fn client() -> Result<Client, ToolError> {
    // Somebody else may have chosen one, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(PublicOnly);
    let named = builder
        .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true);
    let unmade = |error: reqwest::Error| {
        ToolError::new("nothing can be fetched here").with_operator(error.to_string())
    };
    named
        .connect_timeout(Duration::from_secs(10))
        .referer(false)
        .build()
        .map_err(unmade)
}

async fn get(client: &Client, url: &Url) -> Result<Response, ToolError> {
    let request = client.get(url.clone()).header(
        ACCEPT,
        "text/*, application/json, application/xml, */*;q=0.5",
    );
    request
        .header(ACCEPT_ENCODING, "identity")
        .send()
        .await
        .map_err(|error| unreachable_host(&error, url))
}

/// Where a redirect leads, if the answer is one.
fn moved(response: &Response) -> Option<String> {
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
    Some(location.to_str().unwrap_or_default().to_owned())
}

/// The body, or the beginning of it and that there was more.
async fn body(response: &mut Response, most: usize) -> Result<(Vec<u8>, bool), ToolError> {
    let mut bytes = Vec::new();
    let lost = |error: reqwest::Error| {
        ToolError::transient("the connection was lost while reading")
            .with_operator(error.without_url().to_string())
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

fn refused(refused: Refused) -> ToolError {
    let category = match refused {
        Refused::NoUrl | Refused::Scheme | Refused::Credentials => ErrorCategory::InvalidInput,
        Refused::Host { .. } | Refused::Private { .. } | Refused::Downgrade => {
            ErrorCategory::Permission
        }
    };
    ToolError::new(refused.to_string()).with_category(category)
}

fn redirected(to: Refused) -> ToolError {
    ToolError::new(format!(
        "it sends elsewhere, and that is not followed: {to}"
    ))
    .with_category(ErrorCategory::Permission)
}

/// Says why there is no answer, without the URL, which the operator can find in the call.
fn unreachable_host(error: &reqwest::Error, url: &Url) -> ToolError {
    let host = url.host_str().unwrap_or_default();
    let mut causes =
        std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    if causes.any(|cause| cause.is::<NotPublic>()) {
        let refused = Refused::Private {
            host: host.to_owned(),
        };
        return ToolError::new(refused.to_string()).with_category(ErrorCategory::Permission);
    }
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let detail: Vec<String> = causes.map(ToString::to_string).collect();
    ToolError::transient(format!("{host} could not be reached")).with_operator(detail.join(": "))
}
