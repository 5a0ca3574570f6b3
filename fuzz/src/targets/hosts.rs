//! Hosts: a URL that leads to a denied host is never allowed, and one that is allowed leads where
//! the rule says. The second opinion is `url`, the parser that HTTP clients use.

use std::sync::LazyLock;

use serde_json::json;
use toolgate_layers::{Policy, PolicyEffect};
use toolgate_testkit::call_with;
use url::{Host, Url};

use crate::{FuzzTarget, InputTrace, MemoryBound, targets::shell::parse_policy};

pub(super) const TARGET: FuzzTarget =
    FuzzTarget::new("hosts", run, WORDS).with_memory(MemoryBound {
        base: 8 << 20,
        per_byte: 2048,
    });

const WORDS: &[&str] = &[
    "http://",
    "https://",
    "HTTP:",
    "ftp://",
    "//",
    "http:",
    "http:/",
    "http:\\\\",
    "evil.example",
    "good.example",
    "EVIL.example",
    "sub.evil.example",
    "evil.example.",
    "evil%2eexample",
    "evil。example",
    "ｅvil.example",
    "ⓔvil.example",
    "e\u{ad}vil.example",
    "e\u{200b}vil.example",
    "xn--",
    "@",
    ":",
    ":80",
    ":443",
    ":0",
    "/",
    "\\",
    "?",
    "#",
    "%40",
    "%2f",
    "user:pw@",
    "good.example@",
    "evil.example#@good.example",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "127.0.0.1",
    "0x7f000001",
    "2130706433",
    "0177.0.0.1",
    "127.1",
    "localhost",
    "\t",
    "\n",
    " ",
    "\0",
    "javascript:",
    "file:",
    "data:",
    "blob:http://",
    "view-source:",
    "./",
    "..",
    "%00",
    "%09",
    "𝐞vil.example",
    "evil．example",
    "ﬁ",
    "ß",
];

static ALLOWING: LazyLock<Policy> = LazyLock::new(|| {
    parse_policy("default = 'ask'\n[[rules]]\neffect = 'allow'\ndomain = 'good.example'")
});

static DENYING: LazyLock<Policy> = LazyLock::new(|| {
    parse_policy(
        "default = 'allow'\nsecrets_files = false\n[[rules]]\neffect = 'deny'\n\
         domain = ['evil.example', '*.evil.example', '127.0.0.1']",
    )
});

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let call = call_with("fetch_url", json!({ "url": text }));
    let allowing = ALLOWING.judge(&call).effect;
    let denying = DENYING.judge(&call).effect;
    let url = Url::parse(&text).ok();
    // Only these are ever fetched.
    let fetched = url
        .as_ref()
        .filter(|url| ["http", "https", "ftp"].contains(&url.scheme()));
    let host = fetched.and_then(|url| match url.host()? {
        Host::Domain(name) => Some(name.trim_end_matches('.').to_owned()),
        Host::Ipv4(address) => Some(address.to_string()),
        Host::Ipv6(address) => Some(address.to_string()),
    });
    let is_denied = |host: &String| {
        host == "evil.example" || host.ends_with(".evil.example") || host == "127.0.0.1"
    };
    if let Some(host) = host.as_ref().filter(|host| is_denied(host)) {
        assert_ne!(
            denying,
            PolicyEffect::Allow,
            "{host} is denied, and a URL of it is allowed"
        );
    }
    if allowing == PolicyEffect::Allow {
        assert_eq!(
            host.as_deref(),
            Some("good.example"),
            "another host is allowed"
        );
    }
    let kind = url.as_ref().map(|url| url.scheme().to_owned());
    InputTrace::of((
        allowing,
        denying,
        kind,
        host.is_some_and(|host| is_denied(&host)),
    ))
}
