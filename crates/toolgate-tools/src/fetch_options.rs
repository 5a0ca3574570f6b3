//! What can be set about fetching, and which URLs that permits.

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fetch_addresses::is_public;

/// What can be set about fetching. Nothing can be fetched until hosts are allowed.
///
/// ```
/// # use toolgate_tools::FetchOptions;
/// let options: FetchOptions = serde_json::from_value(serde_json::json!({ "allow": ["docs.rs", "*.rust-lang.org"] }))?;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FetchOptions {
    /// The hosts that may be asked: `docs.rs` is that host alone, `*.rust-lang.org` the ones below it, `*` any. Only
    /// at the usual ports, unless one is given: `example.com:8080`.
    pub allow: Vec<String>,
    /// Addresses that may be asked although they are not public, with their port: `127.0.0.1:8080`, `[::1]:8080`.
    /// They count for URLs that name the address itself.
    pub allow_private: Vec<SocketAddr>,
    /// How many bytes are read at most.
    pub max_bytes: usize,
    /// How long it may take, with all redirects, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            allow_private: Vec::new(),
            max_bytes: 1 << 20,
            timeout_ms: 30_000,
        }
    }
}

/// A host that may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    /// In small letters, with a dot in front if it stands for the hosts below; empty for any.
    name: String,
    port: Option<u16>,
}

/// What may be fetched.
#[derive(Debug, Clone)]
pub(crate) struct Allowed {
    hosts: Vec<Host>,
    private: Vec<SocketAddr>,
}

/// An option about fetching that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchSetupError {
    /// It is no host.
    #[error(
        "{pattern:?} in `allow` is no host such as docs.rs, *.rust-lang.org or example.com:8080 (write others as xn--…)"
    )]
    NoHost {
        /// What it is instead.
        pattern: String,
    },
}

/// Why a URL is not fetched, in words for the model. None of them repeats the URL: it may carry a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("this is no URL; write it like https://docs.rs/tokio")]
    NoUrl,
    #[error("only http and https can be fetched")]
    Scheme,
    #[error("a URL with a user name or password in it is not fetched; leave them out")]
    Credentials,
    #[error("{host} is not among the hosts that may be fetched{}", such_as(.known))]
    Host { host: String, known: Vec<String> },
    #[error("{host} is not a public address, and only those are fetched")]
    Private { host: String },
    #[error("it sends from https to http, which is not followed")]
    Downgrade,
}

fn such_as(known: &[String]) -> String {
    match known {
        [] => "; none may".to_owned(),
        known => format!(", which are {}", known.join(", ")),
    }
}

impl Allowed {
    pub(crate) fn new(options: &FetchOptions) -> Result<Self, FetchSetupError> {
        let hosts = options
            .allow
            .iter()
            .map(|pattern| Host::new(pattern))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            hosts,
            private: options.allow_private.clone(),
        })
    }

    /// Reads a URL that may be fetched.
    pub(crate) fn read(&self, text: &str) -> Result<Url, Refused> {
        let url = Url::parse(text.trim()).map_err(|_| Refused::NoUrl)?;
        self.check(&url).map(|()| url)
    }

    /// Where a redirect leads, if that may be fetched.
    pub(crate) fn follow(&self, from: &Url, location: &str) -> Result<Url, Refused> {
        let url = from.join(location).map_err(|_| Refused::NoUrl)?;
        self.check(&url)?;
        match (from.scheme(), url.scheme()) {
            ("https", "http") => Err(Refused::Downgrade),
            _ => Ok(url),
        }
    }

    fn check(&self, url: &Url) -> Result<(), Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::Credentials);
        }
        let (host, port) = (
            url.host_str().ok_or(Refused::NoUrl)?,
            url.port_or_known_default().ok_or(Refused::NoUrl)?,
        );
        // Whatever notation an address was written in, a parsed URL has it in the usual one.
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        if address.is_some_and(|address| self.private.contains(&SocketAddr::new(address, port))) {
            return Ok(());
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if !self
            .hosts
            .iter()
            .any(|host| host.covers(&name, port, address.is_some()))
        {
            let known = self.hosts.iter().map(ToString::to_string).collect();
            return Err(Refused::Host {
                host: shown(&name, port),
                known,
            });
        }
        match address {
            Some(address) if !is_public(address) => Err(Refused::Private {
                host: shown(&name, port),
            }),
            _ => Ok(()),
        }
    }
}

fn shown(host: &str, port: u16) -> String {
    if matches!(port, 80 | 443) {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    }
}

impl Host {
    fn new(pattern: &str) -> Result<Self, FetchSetupError> {
        let wrong = || FetchSetupError::NoHost {
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

    fn covers(&self, name: &str, port: u16, is_address: bool) -> bool {
        let named = match self.name.as_bytes().first() {
            None => true,
            Some(b'.') => !is_address && name.ends_with(&self.name) && name.len() > self.name.len(),
            Some(_) => name == self.name,
        };
        named
            && self
                .port
                .map_or(matches!(port, 80 | 443), |own| own == port)
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_bytes().first() {
            None => f.write_str("any at the usual ports")?,
            Some(b'.') => write!(f, "*{}", self.name)?,
            Some(_) => f.write_str(&self.name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(allow: &[&str], private: &[&str]) -> Allowed {
        let allow = allow.iter().map(|it| (*it).to_owned()).collect();
        let allow_private = private
            .iter()
            .map(|it| it.parse().expect("an address"))
            .collect();
        Allowed::new(&FetchOptions {
            allow,
            allow_private,
            ..FetchOptions::default()
        })
        .expect("fine")
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        let refused = allowed(&[], &[])
            .read("https://docs.rs/")
            .expect_err("not listed");
        assert_eq!(
            refused.to_string(),
            "docs.rs is not among the hosts that may be fetched; none may"
        );
    }

    #[test]
    fn a_host_is_that_host_at_its_usual_ports() {
        let allowed = allowed(&["docs.rs", "*.rust-lang.org", "example.com:8080"], &[]);
        for url in [
            "https://docs.rs/x",
            "http://DOCS.RS./",
            "https://doc.rust-lang.org",
            "https://a.b.rust-lang.org",
            "http://example.com:8080/",
        ] {
            assert!(allowed.read(url).is_ok(), "{url}");
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
                matches!(allowed.read(url), Err(Refused::Host { .. })),
                "{url}: {:?}",
                allowed.read(url)
            );
        }
    }

    #[test]
    fn addresses_that_are_not_public_are_refused_in_every_notation() {
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
                matches!(allowed.read(url), Err(Refused::Private { .. })),
                "{url}: {:?}",
                allowed.read(url)
            );
        }
        assert!(allowed.read("http://1.1.1.1/").is_ok());
    }

    #[test]
    fn a_private_address_is_allowed_only_with_its_port() {
        let allowed = allowed(&[], &["127.0.0.1:8080", "[::1]:8080"]);
        assert!(allowed.read("http://127.0.0.1:8080/x").is_ok());
        assert!(allowed.read("http://127.1:8080/x").is_ok());
        assert!(allowed.read("http://[::1]:8080/x").is_ok());
        for url in [
            "http://127.0.0.1:8081/",
            "http://127.0.0.1/",
            "http://127.0.0.2:8080/",
            "http://localhost:8080/",
        ] {
            assert!(allowed.read(url).is_err(), "{url}");
        }
    }

    #[test]
    fn credentials_are_refused_and_never_repeated() {
        let allowed = allowed(&["*"], &[]);
        for url in [
            "https://user:CANARY@docs.rs/",
            "https://CANARY@docs.rs/",
            "https://:CANARY@docs.rs/",
        ] {
            let refused = allowed.read(url).expect_err("refused");
            assert_eq!(refused, Refused::Credentials);
            assert!(!format!("{refused} {refused:?}").contains("CANARY"));
        }
        let from = allowed.read("https://docs.rs/").expect("fine");
        assert_eq!(
            allowed.follow(&from, "https://u:CANARY@docs.rs/"),
            Err(Refused::Credentials)
        );
    }

    #[test]
    fn other_schemes_and_downgrades_are_refused() {
        let allowed = allowed(&["*"], &[]);
        for url in [
            "file:///etc/passwd",
            "ftp://docs.rs/",
            "data:text/plain,x",
            "gopher://docs.rs/",
        ] {
            assert_eq!(allowed.read(url), Err(Refused::Scheme), "{url}");
        }
        assert_eq!(allowed.read("docs.rs"), Err(Refused::NoUrl));
        let from = allowed.read("https://docs.rs/a/b").expect("fine");
        assert_eq!(
            allowed.follow(&from, "http://docs.rs/"),
            Err(Refused::Downgrade)
        );
        assert_eq!(
            allowed.follow(&from, "../c").expect("fine").as_str(),
            "https://docs.rs/c"
        );
        assert_eq!(
            allowed.follow(&from, "file:///etc/passwd"),
            Err(Refused::Scheme)
        );
        assert!(matches!(
            allowed.follow(&from, "http://127.0.0.1/"),
            Err(Refused::Private { .. })
        ));
    }

    #[test]
    fn what_is_no_host_is_refused_when_it_is_set() {
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
            assert!(Allowed::new(&options).is_err(), "{bad:?}");
        }
    }
}
