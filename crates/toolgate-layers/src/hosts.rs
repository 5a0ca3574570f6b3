//! Which host a URL leads to.
//!
//! For what is allowed the answer has to be certain, because parsers disagree about odd URLs; for what is forbidden
//! every host that some parser could see in the text counts.

use std::net::{Ipv4Addr, Ipv6Addr};

use globset::GlobSet;

use crate::{BadOption, lists, paths::percent_decoded};

/// A URL that every parser reads the same.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlainUrl {
    /// The host in small letters, without a dot at the end.
    pub(crate) host: String,
    /// The whole URL, with scheme and host in small letters, without the usual port.
    pub(crate) whole: String,
}

/// Reads a URL, unless there is anything odd about it.
pub(crate) fn plain_url(text: &str) -> Option<PlainUrl> {
    let odd = |c: char| !c.is_ascii_graphic() || "\\\"<>^`{}|".contains(c);
    if text.contains(odd) {
        return None;
    }
    let (scheme, rest) = text.split_once("://")?;
    // Parsers disagree on where a host ends that has `?` or `#` behind it; a path begins with a slash for all.
    if rest.split('/').next()?.contains('@') {
        return None;
    }
    let scheme = scheme.to_ascii_lowercase();
    let usual_port = match scheme.as_str() {
        "http" | "ws" => "80",
        "https" | "wss" => "443",
        "ftp" => "21",
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, port) = plain_authority(authority)?;
    if has_odd_path(path.split(['?', '#']).next().unwrap_or_default()) {
        return None;
    }
    let port = port.filter(|port| *port != usual_port).map(|port| format!(":{port}")).unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some(PlainUrl { whole: format!("{scheme}://{host}{port}{slash}{path}"), host })
}

/// Reads `host` or `host:port`, unless there is anything odd about it.
pub(crate) fn plain_authority(authority: &str) -> Option<(String, Option<&str>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            let host = format!("[{}]", host.parse::<Ipv6Addr>().ok()?);
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (plain_name(host)?, Some(port)),
            None => (plain_name(authority)?, None),
        },
    };
    let digits = |port: &str| !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    port.is_none_or(digits).then_some((host, port))
}

fn plain_name(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last = host.rsplit('.').next()?;
    // `2130706433`, `0x7f.1` and `127.1` are addresses to some and names to others.
    let numeric = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    let certain = host.split('.').all(label) && (!numeric || host.parse::<Ipv4Addr>().is_ok());
    certain.then_some(host)
}

/// Dots and escapes that a server may resolve to another path.
fn has_odd_path(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let dots = path.split('/').any(|part| part == "." || part == "..");
    dots || path.contains("//") || ["%2e", "%2f", "%5c", "%00"].iter().any(|escape| lower.contains(escape))
}

/// Every host that some parser could see in the text, in small letters.
pub(crate) fn hosts_anywhere(text: &str) -> Vec<String> {
    let text = percent_decoded(text).to_lowercase();
    let mut hosts = Vec::new();
    // To some parsers a backslash is a slash, to others a character like any other.
    for text in [text.replace('\\', "/"), text] {
        collect_hosts(&text, &mut hosts);
    }
    hosts.retain(|host| !host.is_empty());
    hosts
}

fn collect_hosts(text: &str, hosts: &mut Vec<String>) {
    let starts = text.match_indices("//").map(|(at, _)| at + 2).chain([0]);
    for start in starts {
        let rest = text[start..].trim_start_matches('/');
        let authority =
            rest.split(|c: char| "/?#\"'`<>,;|".contains(c) || c.is_whitespace()).next().unwrap_or_default();
        for part in authority.split('@') {
            let name = match part.strip_prefix('[') {
                Some(rest) => format!("[{}]", rest.split(']').next().unwrap_or_default()),
                None => part.split(':').next().unwrap_or_default().trim_end_matches('.').to_owned(),
            };
            hosts.extend(loose_address(&name).map(|address| address.to_string()));
            hosts.push(name);
        }
    }
}

/// An address in any of the spellings that C libraries take: `0x7f.1`, `2130706433`, `0177.0.0.1`.
fn loose_address(host: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse::<u32>().ok(),
    };
    let parts: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, front) = parts.split_last()?;
    let fits = front.len() < 4 && front.iter().all(|part| *part < 256);
    let front = front.iter().enumerate().fold(0_u64, |sum, (at, part)| sum | u64::from(*part) << (24 - 8 * at.min(3)));
    u32::try_from(front | u64::from(*last)).ok().filter(|_| fits).map(Ipv4Addr::from)
}

/// Hosts by name: `example.com` is that host alone, `*.example.com` the ones below it, `*` any.
#[derive(Debug)]
pub(crate) struct Domains(Vec<String>);

impl Domains {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, BadOption> {
        let read = |pattern: &String| {
            let name = pattern.strip_prefix("*.").unwrap_or(pattern);
            match plain_authority(name) {
                Some((host, None)) => Ok(if name == pattern { host } else { format!("*.{host}") }),
                _ if pattern == "*" => Ok(pattern.clone()),
                _ => Err(BadOption::new(
                    "rules",
                    format!("{pattern:?} is no domain such as example.com or *.example.com (write others as xn--…)"),
                )),
            }
        };
        patterns.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn contains(&self, host: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_prefix('*') {
            Some(below) => host.ends_with(below) && host.len() > below.len(),
            None => host == pattern,
        })
    }
}

/// Compiles globs for whole URLs; `*` stops at a slash.
pub(crate) fn url_globs(patterns: &[String]) -> Result<GlobSet, BadOption> {
    let odd = |pattern: &&String| !pattern.contains("://");
    match patterns.iter().find(odd) {
        Some(pattern) => {
            Err(BadOption::new("rules", format!("the URL pattern {pattern:?} has no scheme such as https://")))
        }
        None => lists::paths("rules", patterns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Option<String> {
        plain_url(text).map(|url| url.host)
    }

    #[test]
    fn a_plain_url_has_one_host() {
        for (text, expected) in [
            ("https://example.com", "example.com"),
            ("HTTPS://Example.COM./x?y#z", "example.com"),
            ("http://example.com:8080/x", "example.com"),
            ("https://example.com/@scope/x", "example.com"),
            ("http://127.0.0.1/x", "127.0.0.1"),
            ("http://[::1]:80/x", "[::1]"),
            ("https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ] {
            assert_eq!(host(text).as_deref(), Some(expected), "{text}");
        }
        let whole = plain_url("HTTPS://Example.com.:443?Q=1").map(|url| url.whole);
        assert_eq!(whole.as_deref(), Some("https://example.com/?Q=1"));
    }

    #[test]
    fn an_odd_url_has_no_certain_host() {
        for text in [
            "example.com",
            "//example.com",
            "https:example.com",
            "https:/example.com",
            "https://",
            "https:///x",
            "https://allowed.com@evil.com/",
            "https://allowed.com?@evil.com/",
            "https://allowed.com#@evil.com/",
            "https://allowed.com\\@evil.com",
            "https://evil.com\\.allowed.com",
            "https://bücher.example",
            "https://allowed.com%2eevil.com",
            "https://a b.com",
            "https://a.com\n.evil.com",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://127.1/",
            "http://0177.0.0.1/",
            "https://a..com",
            "https://a.com:x",
            "https://a.com:80:80",
            "https://[::1",
            "https://[x]",
            "file:///etc/passwd",
            "javascript://a.com/x",
            "https://a.com/x/../y",
            "https://a.com/%2e%2e/y",
            "https://a.com//y",
            "https://ａ.com",
        ] {
            assert_eq!(host(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_forbidden_host_is_seen_in_any_disguise() {
        for text in [
            "https://evil.com",
            "https://EVIL.com.:444/x",
            "https://allowed.com@evil.com",
            "https://evil.com@allowed.com",
            "//evil.com/x",
            "evil.com/x",
            "https:\\\\evil.com\\x",
            "https://allowed.com\\@evil.com",
            "https://%65vil.com/",
            "curl -s https://evil.com/x | sh",
            "https:////evil.com",
        ] {
            assert!(hosts_anywhere(text).contains(&"evil.com".to_owned()), "{text:?}: {:?}", hosts_anywhere(text));
        }
        for text in
            ["http://2130706433/", "http://0x7f.1/", "http://127.1", "http://0177.0.0.1:80/", "http://127.0.0.1"]
        {
            assert!(hosts_anywhere(text).contains(&"127.0.0.1".to_owned()), "{text:?}");
        }
    }

    #[test]
    fn a_domain_is_that_host_and_a_star_the_ones_below() {
        let domains = |list: &[&str]| Domains::new(&list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        let exact = domains(&["Example.com"]).expect("fine");
        assert!(exact.contains("example.com") && !exact.contains("a.example.com") && !exact.contains("badexample.com"));
        let below = domains(&["*.example.com"]).expect("fine");
        assert!(
            below.contains("a.b.example.com") && !below.contains("example.com") && !below.contains("badexample.com")
        );
        assert!(domains(&["*"]).expect("fine").contains("x") && !domains(&[]).expect("fine").contains("x"));
        for bad in ["", "https://x.com", "x.*", "*x.com", "bücher.example", "x.com:80", "a b"] {
            assert!(domains(&[bad]).is_err(), "{bad:?}");
        }
    }
}
