//! Finds the host of a URL.
//!
//! For what is allowed the host has to be certain, because parsers disagree about unusual URLs; for
//! what is forbidden every host that some parser could see in the text counts.

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr};

use globset::GlobSet;
use url::{Host, Url};

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

/// Returns the host that a URL parser makes of a name, with the mapping of UTS 46: letters of other
/// scripts, widths and cases, punycode, escapes, addresses in every notation. An IPv6 address that
/// stands for an IPv4 address becomes that one.
pub(crate) fn resolve_host(name: &str) -> Option<String> {
    let host = match Host::parse(name).ok()? {
        Host::Domain(name) => name.trim_end_matches('.').to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => match embedded_ipv4(address) {
            Some(address) => address.to_string(),
            None => format!("[{address}]"),
        },
    };
    Some(host).filter(|host| !host.is_empty())
}

/// Returns the IPv4 address that an IPv6 address leads to: mapped, compatible, or through NAT64.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, .., high, low] = address.segments();
    let nat64 = [a, b] == [0x64, 0xff9b] && address.segments()[2..6] == [0; 4];
    let last = Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    let compatible = address
        .to_ipv4()
        .filter(|_| !address.is_loopback() && !address.is_unspecified());
    address
        .to_ipv4_mapped()
        .or(compatible)
        .or(nat64.then_some(last))
}

/// Checks whether two URLs lead to the same host and port; `http` and `https` have each their own
/// default port.
pub(crate) fn have_same_host(a: &str, b: &str) -> bool {
    let place = |text: &str| {
        let url = Url::parse(text.trim()).ok()?;
        Some((resolve_host(url.host_str()?)?, url.port()))
    };
    place(a).is_some_and(|a| place(b) == Some(a))
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
    // The parser that fetches has to see the same host.
    (certain && resolve_host(&host).as_ref() == Some(&host)).then_some(host)
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
    if let Ok(url) = Url::parse(text.trim()) {
        hosts.extend(url.host_str().and_then(resolve_host));
    }
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
        hosts.extend(embedded_ipv4(address).map(|address| address.to_string()));
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
        let mut spellings = vec![name.to_owned()];
        // A parser that follows the older mapping of IDNA 2003 replaces two more letters.
        if name.contains(['ß', 'ς']) {
            spellings.extend(resolve_host(&name.replace('ß', "ss").replace('ς', "σ")));
        }
        if !name.is_ascii() {
            spellings.extend(resolve_host(name));
        }
        for name in spellings {
            let address = parse_loose_address(&name);
            hosts.extend(address.map(|address| address.to_string()));
            // All of these lead to this machine.
            if name == "localhost"
                || name.ends_with(".localhost")
                || address.is_some_and(|it| it.is_unspecified())
            {
                hosts.extend(["127.0.0.1".to_owned(), "[::1]".to_owned()]);
            }
            hosts.push(name);
        }
    }
}

/// Checks whether a text is a URL, or begins like one to some parser.
pub(crate) fn is_like_url(text: &str) -> bool {
    let text = fold_url_text(text);
    let text = text.trim();
    let schemes = ["http:", "https:", "ws:", "wss:", "ftp:", "ssh:", "git:"];
    text.contains("://")
        || text.starts_with("//")
        || schemes.iter().any(|scheme| text.starts_with(scheme))
}

/// Normalizes a URL as most parsers do, for what is forbidden.
pub(crate) fn normalize_url(text: &str) -> Option<String> {
    let text = fold_url_text(text);
    let (scheme, rest) = text.trim().split_once(':')?;
    let rest = rest.trim_start_matches('/');
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let usual = match scheme {
        "http" | "ws" => "80",
        "ftp" => "21",
        _ => "443",
    };
    let resolved = if host.is_ascii() {
        None
    } else {
        resolve_host(host)
    };
    let host = resolved.as_deref().unwrap_or(host);
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
            let plain = parse_plain_authority(name).is_some_and(|(_, port)| port.is_none());
            let letters = |c: char| c.is_alphanumeric() || "-.。．｡".contains(c);
            let international = !name.is_ascii() && name.chars().all(letters);
            match resolve_host(name).filter(|_| plain || international) {
                Some(host) if name == pattern => Ok(host),
                Some(host) => Ok(format!("*.{host}")),
                None if pattern == "*" => Ok(pattern.clone()),
                None => Err(BadOption::new(
                    "rules",
                    format!("{pattern:?} is not a domain such as example.com or *.example.com"),
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
        self.0.iter().any(|pattern| covers_host(pattern, host))
    }

    /// Checks whether a word that is perhaps a host is one that a pattern names. `*` and `*.md` name
    /// none: they would match every file name.
    pub(crate) fn names_word(&self, word: &str) -> bool {
        let telling = |pattern: &&String| match pattern.strip_prefix("*.") {
            Some(below) => below.contains('.'),
            None => *pattern != "*",
        };
        let mut patterns = self.0.iter().filter(telling);
        patterns.any(|pattern| covers_host(pattern, word))
    }
}

fn covers_host(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(below) => host.ends_with(below) && host.len() > below.len(),
        None => host == pattern,
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
