//! The settings for fetching, and the check of URLs against them.

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::HumanDuration;

use crate::fetch::addresses::is_public;

/// The settings for fetching. Nothing can be fetched until hosts are allowed.
///
/// ```
/// # use toolgate_tools::FetchOptions;
/// let options: FetchOptions = serde_json::from_value(serde_json::json!({ "allow": ["docs.rs", "*.rust-lang.org"] }))?;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FetchOptions {
    /// The allowed hosts: `docs.rs` is that host alone, `*.rust-lang.org` its subdomains, `*` any
    /// host. Only at the default ports, unless one is given: `example.com:8080`.
    pub allow: Vec<String>,
    /// Allowed addresses that are not public, with their port: `127.0.0.1:8080`, `[::1]:8080`.
    /// They apply to URLs that contain the address itself.
    pub allow_private: Vec<SocketAddr>,
    /// The most bytes that are read.
    pub max_bytes: usize,
    /// The time limit, with all redirects.
    pub timeout: HumanDuration,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            allow_private: Vec::new(),
            max_bytes: 1 << 20,
            timeout: HumanDuration::from_secs(30),
        }
    }
}

/// An allowed host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostPattern {
    /// The name in lower case, with a leading dot if it means the subdomains; empty for any host.
    name: String,
    port: Option<u16>,
}

/// The hosts and addresses that may be fetched.
#[derive(Debug, Clone)]
pub(crate) struct AllowedHosts {
    hosts: Vec<HostPattern>,
    private: Vec<SocketAddr>,
}

/// The reason the settings for fetching are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchSetupError {
    /// An entry is not a host.
    #[error(
        "{pattern:?} in `allow` is not a host such as docs.rs, *.rust-lang.org or example.com:8080 (write international names as xn--…)"
    )]
    InvalidHost {
        /// The entry.
        pattern: String,
    },
}

/// The reason a URL is not fetched, as a message for the model. None of them repeats the URL: it may
/// contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlRejection {
    #[error("this is not a valid URL; write it like https://docs.rs/tokio")]
    InvalidUrl,
    #[error("only http and https can be fetched")]
    Scheme,
    #[error("a URL with a user name or password is not fetched; remove them")]
    Credentials,
    #[error("{host} is not an allowed host{}", list_known_hosts(.known))]
    Host { host: String, known: Vec<String> },
    #[error("{host} is not a public address; only public addresses are fetched")]
    Private { host: String },
    #[error("the page redirects from https to http, which is not followed")]
    Downgrade,
}

fn list_known_hosts(known: &[String]) -> String {
    match known {
        [] => "; no host is allowed".to_owned(),
        known => format!("; allowed hosts: {}", known.join(", ")),
    }
}

impl AllowedHosts {
    pub(crate) fn new(options: &FetchOptions) -> Result<Self, FetchSetupError> {
        let hosts = options
            .allow
            .iter()
            .map(|pattern| HostPattern::new(pattern))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            hosts,
            private: options.allow_private.clone(),
        })
    }

    /// Parses a URL and checks that it may be fetched.
    pub(crate) fn parse_url(&self, text: &str) -> Result<Url, UrlRejection> {
        let url = Url::parse(text.trim()).map_err(|_| UrlRejection::InvalidUrl)?;
        self.check_url(&url).map(|()| url)
    }

    /// Resolves the location of a redirect and checks that it may be fetched.
    pub(crate) fn follow_redirect(&self, from: &Url, location: &str) -> Result<Url, UrlRejection> {
        let url = from.join(location).map_err(|_| UrlRejection::InvalidUrl)?;
        self.check_url(&url)?;
        match (from.scheme(), url.scheme()) {
            ("https", "http") => Err(UrlRejection::Downgrade),
            _ => Ok(url),
        }
    }

    fn check_url(&self, url: &Url) -> Result<(), UrlRejection> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlRejection::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlRejection::Credentials);
        }
        let host = url.host_str().ok_or(UrlRejection::InvalidUrl)?;
        let port = url
            .port_or_known_default()
            .ok_or(UrlRejection::InvalidUrl)?;
        // The URL parser has normalized every notation of an address (0x7f.1, 2130706433, …).
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        if address.is_some_and(|address| self.private.contains(&SocketAddr::new(address, port))) {
            return Ok(());
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if !self
            .hosts
            .iter()
            .any(|host| host.matches_host(&name, port, address.is_some()))
        {
            let known = self.hosts.iter().map(ToString::to_string).collect();
            return Err(UrlRejection::Host {
                host: display_host(&name, port),
                known,
            });
        }
        match address {
            Some(address) if !is_public(address) => Err(UrlRejection::Private {
                host: display_host(&name, port),
            }),
            _ => Ok(()),
        }
    }
}

fn display_host(host: &str, port: u16) -> String {
    if matches!(port, 80 | 443) {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    }
}

impl HostPattern {
    fn new(pattern: &str) -> Result<Self, FetchSetupError> {
        let wrong = || FetchSetupError::InvalidHost {
            pattern: pattern.to_owned(),
        };
        if pattern == "*" {
            return Ok(Self {
                name: String::new(),
                port: None,
            });
        }
        let below = pattern.strip_prefix("*.");
        let url =
            Url::parse(&format!("http://{}", below.unwrap_or(pattern))).map_err(|_| wrong())?;
        let host = url
            .host_str()
            .ok_or_else(wrong)?
            .trim_end_matches('.')
            .to_ascii_lowercase();
        let written = below.unwrap_or(pattern).to_ascii_lowercase();
        let port = written
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        // Whatever the URL parser changes or splits off (a path, credentials, 0x7f.1) is not a host.
        let plain = port.map_or_else(|| host.clone(), |port: u16| format!("{host}:{port}"));
        if host.is_empty() || host.contains('*') || plain != written.trim_end_matches('.') {
            return Err(wrong());
        }
        Ok(Self {
            name: if below.is_some() {
                format!(".{host}")
            } else {
                host
            },
            port,
        })
    }

    fn matches_host(&self, name: &str, port: u16, is_address: bool) -> bool {
        let named = match self.name.as_bytes().first() {
            None => true,
            // An address has no subdomains: `*.0.0.1` must not match 127.0.0.1.
            Some(b'.') => !is_address && name.ends_with(&self.name) && name.len() > self.name.len(),
            Some(_) => name == self.name,
        };
        named
            && self
                .port
                .map_or(matches!(port, 80 | 443), |own| own == port)
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_bytes().first() {
            None => f.write_str("any host at the default ports")?,
            Some(b'.') => write!(f, "*{}", self.name)?,
            Some(_) => f.write_str(&self.name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(allow: &[&str], private: &[&str]) -> AllowedHosts {
        let allow = allow.iter().map(|it| (*it).to_owned()).collect();
        let allow_private = private
            .iter()
            .map(|it| it.parse().expect("an address"))
            .collect();
        AllowedHosts::new(&FetchOptions {
            allow,
            allow_private,
            ..FetchOptions::default()
        })
        .expect("allowed")
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        let refused = allowed(&[], &[])
            .parse_url("https://docs.rs/")
            .expect_err("not listed");
        assert_eq!(
            refused.to_string(),
            "docs.rs is not an allowed host; no host is allowed"
        );
    }

    #[test]
    fn a_host_matches_only_itself_at_the_default_ports() {
        let allowed = allowed(&["docs.rs", "*.rust-lang.org", "example.com:8080"], &[]);
        for url in [
            "https://docs.rs/x",
            "http://DOCS.RS./",
            "https://doc.rust-lang.org",
            "https://a.b.rust-lang.org",
            "http://example.com:8080/",
        ] {
            assert!(allowed.parse_url(url).is_ok(), "{url}");
        }
        for url in [
            "https://docs.rs.evil.com/",
            "https://evildocs.rs/",
            "https://rust-lang.org",
            "https://evilrust-lang.org",
            "https://docs.rs:22/",
            "http://example.com/",
            "https://evil.com/docs.rs",
            "https://evil.com#docs.rs",
            "https://evil.com\\.docs.rs/",
        ] {
            assert!(
                matches!(allowed.parse_url(url), Err(UrlRejection::Host { .. })),
                "{url}: {:?}",
                allowed.parse_url(url)
            );
        }
    }

    #[test]
    fn addresses_that_are_not_public_are_rejected_in_every_notation() {
        let allowed = allowed(&["*"], &[]);
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://１２７.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://0/",
            "http://169.254.169.254/latest/meta-data",
            "http://10.0.0.1/",
            "http://[fe80::1]/",
        ] {
            assert!(
                matches!(allowed.parse_url(url), Err(UrlRejection::Private { .. })),
                "{url}: {:?}",
                allowed.parse_url(url)
            );
        }
        assert!(allowed.parse_url("http://1.1.1.1/").is_ok());
    }

    #[test]
    fn a_private_address_is_allowed_only_with_its_port() {
        let allowed = allowed(&[], &["127.0.0.1:8080", "[::1]:8080"]);
        assert!(allowed.parse_url("http://127.0.0.1:8080/x").is_ok());
        assert!(allowed.parse_url("http://127.1:8080/x").is_ok());
        assert!(allowed.parse_url("http://[::1]:8080/x").is_ok());
        for url in [
            "http://127.0.0.1:8081/",
            "http://127.0.0.1/",
            "http://127.0.0.2:8080/",
            "http://localhost:8080/",
        ] {
            assert!(allowed.parse_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn credentials_are_rejected_and_never_repeated() {
        let allowed = allowed(&["*"], &[]);
        for url in [
            "https://user:CANARY@docs.rs/",
            "https://CANARY@docs.rs/",
            "https://:CANARY@docs.rs/",
        ] {
            let refused = allowed.parse_url(url).expect_err("rejected");
            assert_eq!(refused, UrlRejection::Credentials);
            assert!(!format!("{refused} {refused:?}").contains("CANARY"));
        }
        let from = allowed.parse_url("https://docs.rs/").expect("allowed");
        assert_eq!(
            allowed.follow_redirect(&from, "https://u:CANARY@docs.rs/"),
            Err(UrlRejection::Credentials)
        );
    }

    #[test]
    fn other_schemes_and_downgrades_are_rejected() {
        let allowed = allowed(&["*"], &[]);
        for url in [
            "file:///etc/passwd",
            "ftp://docs.rs/",
            "data:text/plain,x",
            "gopher://docs.rs/",
        ] {
            assert_eq!(allowed.parse_url(url), Err(UrlRejection::Scheme), "{url}");
        }
        assert_eq!(allowed.parse_url("docs.rs"), Err(UrlRejection::InvalidUrl));
        let from = allowed.parse_url("https://docs.rs/a/b").expect("allowed");
        assert_eq!(
            allowed.follow_redirect(&from, "http://docs.rs/"),
            Err(UrlRejection::Downgrade)
        );
        assert_eq!(
            allowed
                .follow_redirect(&from, "../c")
                .expect("allowed")
                .as_str(),
            "https://docs.rs/c"
        );
        assert_eq!(
            allowed.follow_redirect(&from, "file:///etc/passwd"),
            Err(UrlRejection::Scheme)
        );
        assert!(matches!(
            allowed.follow_redirect(&from, "http://127.0.0.1/"),
            Err(UrlRejection::Private { .. })
        ));
    }

    #[test]
    fn an_entry_that_is_not_a_host_is_rejected_when_it_is_set() {
        for bad in [
            "",
            "https://docs.rs",
            "docs.rs/x",
            "*docs.rs",
            "*.",
            "a b",
            "u@docs.rs",
            "bücher.example",
            "docs.rs:x",
            "0x7f.1",
        ] {
            let options = FetchOptions {
                allow: vec![bad.to_owned()],
                ..FetchOptions::default()
            };
            assert!(AllowedHosts::new(&options).is_err(), "{bad:?}");
        }
    }
}
