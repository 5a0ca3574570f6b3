//! What secrets look like: token shapes, and the words that stand in front of a password.
//!
//! Every detector has a literal anchor. All anchors of a text are found at once, and only there a detector
//! looks closer; that is what keeps redaction fast on text that holds no secret.

use std::{
    ops::Range,
    sync::{LazyLock, OnceLock},
};

use regex::Regex;

/// One shape of secret, or one word that introduces one.
pub(crate) struct Detector {
    /// What is written in place of the secret.
    pub(crate) kind: &'static str,
    /// The text by which it is found, in any case.
    pub(crate) anchor: &'static str,
    pub(crate) look: Look,
}

/// How a detector looks at the text around its anchor.
pub(crate) enum Look {
    /// The text from the anchor on has this shape; letters and digits in front of it mean that it is something else.
    Shape(&'static str),
    /// The same, but only if the text found also passes a test.
    ShapeIf(&'static str, fn(&str) -> bool),
    /// The anchor is the end of a name that something is assigned to.
    Assigned(Strength),
    /// A private key in PEM armour.
    Pem,
    /// `scheme://user:password@host`.
    UserInfo,
    /// `Cookie: a=b; c=d` and `Set-Cookie: a=b; Path=/`.
    Cookie,
}

/// How sure a name is to be followed by a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strength {
    /// A password: any literal counts.
    Any,
    /// A token: only what looks random counts.
    Random,
}

macro_rules! shapes {
    ($($kind:literal $anchor:literal $shape:literal $(if $test:path)?;)*) => {
        &[$(Detector { kind: $kind, anchor: $anchor, look: shapes!(@ $shape $($test)?) }),*]
    };
    (@ $shape:literal) => { Look::Shape($shape) };
    (@ $shape:literal $test:path) => { Look::ShapeIf($shape, $test) };
}

/// Tokens that can be told by their shape alone.
pub(crate) const SHAPES: &[Detector] = shapes! {
    "aws_key_id" "AKIA" r"^AKIA[0-9A-Z]{16}";
    "aws_key_id" "ASIA" r"^ASIA[0-9A-Z]{16}";
    "github_token" "ghp_" r"^ghp_[0-9A-Za-z]{20,255}";
    "github_token" "gho_" r"^gho_[0-9A-Za-z]{20,255}";
    "github_token" "ghu_" r"^ghu_[0-9A-Za-z]{20,255}";
    "github_token" "ghs_" r"^ghs_[0-9A-Za-z]{20,255}";
    "github_token" "ghr_" r"^ghr_[0-9A-Za-z]{20,255}";
    "github_token" "github_pat_" r"^github_pat_[0-9A-Za-z_]{40,255}";
    "gitlab_token" "glpat-" r"^glpat-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "gldt-" r"^gldt-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "glrt-" r"^glrt-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "glptt-" r"^glptt-[0-9a-f]{40}";
    "npm_token" "npm_" r"^npm_[0-9A-Za-z]{36}";
    "pypi_token" "pypi-AgEI" r"^pypi-AgEI[0-9A-Za-z_-]{50,}";
    "slack_token" "xoxb-" r"^xoxb-[0-9A-Za-z-]{10,}";
    "slack_token" "xoxp-" r"^xoxp-[0-9A-Za-z-]{10,}";
    "slack_token" "xoxa-" r"^xoxa-[0-9A-Za-z-]{10,}";
    "slack_token" "xoxr-" r"^xoxr-[0-9A-Za-z-]{10,}";
    "slack_token" "xoxs-" r"^xoxs-[0-9A-Za-z-]{10,}";
    "slack_token" "xapp-" r"^xapp-\d-[0-9A-Za-z-]{20,}";
    "slack_webhook" "hooks.slack.com/services/" r"^hooks\.slack\.com/services/T[0-9A-Z]+/B[0-9A-Z]+/[0-9A-Za-z]{16,}";
    "discord_webhook" "discord.com/api/webhooks/" r"^discord\.com/api/webhooks/\d+/[0-9A-Za-z_-]{30,}";
    "stripe_key" "sk_live_" r"^sk_live_[0-9A-Za-z]{16,}";
    "stripe_key" "sk_test_" r"^sk_test_[0-9A-Za-z]{16,}";
    "stripe_key" "rk_live_" r"^rk_live_[0-9A-Za-z]{16,}";
    "stripe_key" "whsec_" r"^whsec_[0-9A-Za-z]{24,}";
    "anthropic_key" "sk-ant-" r"^sk-ant-[0-9A-Za-z_-]{20,}";
    "openai_key" "sk-" r"^sk-[0-9A-Za-z_-]{20,}" if generated;
    "google_key" "AIza" r"^AIza[0-9A-Za-z_-]{35}";
    "google_token" "ya29." r"^ya29\.[0-9A-Za-z_.-]{20,}";
    "google_secret" "GOCSPX-" r"^GOCSPX-[0-9A-Za-z_-]{20,}";
    "jwt" "eyJ" r"^eyJ[0-9A-Za-z_-]{8,}(?:\.[0-9A-Za-z_-]{4,}){2,4}";
    "sendgrid_key" "SG." r"^SG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}";
    "huggingface_token" "hf_" r"^hf_[0-9A-Za-z]{30,}";
    "digitalocean_token" "dop_v1_" r"^dop_v1_[0-9a-f]{64}";
    "shopify_token" "shpat_" r"^shpat_[0-9a-fA-F]{32}";
    "mailgun_key" "key-" r"^key-[0-9a-f]{32}\b";
    "vault_token" "hvs." r"^hvs\.[0-9A-Za-z_-]{20,}";
    "databricks_token" "dapi" r"^dapi[0-9a-f]{32}\b";
    "groq_key" "gsk_" r"^gsk_[0-9A-Za-z]{30,}";
    "xai_key" "xai-" r"^xai-[0-9A-Za-z]{40,}";
    "replicate_token" "r8_" r"^r8_[0-9A-Za-z]{30,}";
    "linear_key" "lin_api_" r"^lin_api_[0-9A-Za-z]{30,}";
    "notion_token" "ntn_" r"^ntn_[0-9A-Za-z]{30,}";
    "postman_key" "PMAK-" r"^PMAK-[0-9a-f]{24}-[0-9a-f]{34}";
    "age_key" "AGE-SECRET-KEY-1" r"^AGE-SECRET-KEY-1[0-9A-Z]{50,}";
    "bearer_token" "bearer" r"^(?i:bearer)[:\s]\s*[0-9A-Za-z._~+/=-]{8,}" if credential;
    "basic_auth" "basic" r"^(?i:basic)\s+[0-9A-Za-z+/]{12,}={0,2}" if credential;
};

macro_rules! others {
    ($($kind:literal $look:expr => $($anchor:literal)*;)*) => {
        &[$($(Detector { kind: $kind, anchor: $anchor, look: $look }),*),*]
    };
}

/// What is recognised by its surroundings.
pub(crate) const OTHERS: &[Detector] = others! {
    "private_key" Look::Pem => "-----BEGIN";
    "url_password" Look::UserInfo => "://" ":\\/\\/";
    "cookie" Look::Cookie => "cookie";
    "password" Look::Assigned(Strength::Any) => "password" "passwd" "passphrase" "pwd" "client_secret" "clientsecret"
        "secret_key" "secretkey" "secret_access_key" "secretaccesskey" "accountkey" "sharedaccesskey";
    "secret" Look::Assigned(Strength::Random) => "secret" "token" "api_key" "apikey" "api-key" "access_key" "accesskey"
        "private_key" "privatekey" "signing_key" "encryption_key" "authorization" "credential" "auth_key"
        "x-amz-signature" "x-goog-signature";
};

/// Upper and lower case letters and digits: no word of any language.
fn mixed(text: &str) -> bool {
    let has = |test: fn(&u8) -> bool| text.as_bytes().iter().any(test);
    has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// A part of it is too long and too varied for a word.
fn generated(text: &str) -> bool {
    let varied = |part: &str| {
        part.bytes().any(|b| b.is_ascii_digit()) && part.bytes().any(|b| b.is_ascii_alphabetic())
    };
    mixed(text)
        || text
            .split(['-', '_'])
            .any(|part| part.len() >= 20 && varied(part))
}

/// What follows `Bearer` or `Basic` is no ordinary word.
fn credential(text: &str) -> bool {
    let value = text
        .split([' ', '\t', '\r', '\n', ':'])
        .rfind(|part| !part.is_empty())
        .unwrap_or_default();
    value.bytes().any(|b| b.is_ascii_digit()) || mixed_case(value) && value.len() >= 12
}

fn mixed_case(text: &str) -> bool {
    // A capital inside a word, not at its start.
    text.bytes().skip(1).any(|b| b.is_ascii_uppercase())
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// Every bundled detector, for all who look for secrets.
pub(crate) static BUNDLED: LazyLock<Vec<Compiled>> =
    LazyLock::new(|| SHAPES.iter().chain(OTHERS).map(Compiled::new).collect());

/// A detector whose pattern is compiled when its anchor is first met: most never are.
pub(crate) struct Compiled {
    pub(crate) kind: &'static str,
    pub(crate) anchor: &'static str,
    look: CompiledLook,
}

enum CompiledLook {
    Shape(Shape),
    Assigned(Strength),
    Pem,
    UserInfo,
    Cookie,
}

struct Shape {
    pattern: &'static str,
    regex: OnceLock<Regex>,
    test: Option<fn(&str) -> bool>,
    /// Whether its beginning says enough, also in the middle of a word.
    distinctive: bool,
}

/// Beginnings that are also found inside ordinary words or encoded data.
const COMMON: [&str; 17] = [
    "sk-", "key-", "dapi", "SG.", "hf_", "r8_", "AKIA", "ASIA", "AIza", "eyJ", "xai-", "gsk_",
    "ntn_", "bearer", "basic", "ya29.", "hvs.",
];

/// How far a detector looks before it has found something. What it finds may be longer; but a text of nothing but
/// anchors must not be read to its end from each of them.
const FAR: usize = 1024;
/// No private key is longer.
const KEY: usize = 16 * 1024;

impl Compiled {
    fn new(detector: &Detector) -> Self {
        let shape = |pattern, test| {
            let distinctive = !COMMON.contains(&detector.anchor);
            CompiledLook::Shape(Shape {
                pattern,
                regex: OnceLock::new(),
                test,
                distinctive,
            })
        };
        let look = match detector.look {
            Look::Shape(pattern) => shape(pattern, None),
            Look::ShapeIf(pattern, test) => shape(pattern, Some(test)),
            Look::Assigned(strength) => CompiledLook::Assigned(strength),
            Look::Pem => CompiledLook::Pem,
            Look::UserInfo => CompiledLook::UserInfo,
            Look::Cookie => CompiledLook::Cookie,
        };
        Self {
            kind: detector.kind,
            anchor: detector.anchor,
            look,
        }
    }

    /// Where the secret is that the anchor at `anchor` introduces, if it does.
    pub(crate) fn find(&self, text: &str, anchor: Range<usize>) -> Option<Range<usize>> {
        match &self.look {
            CompiledLook::Shape(shape) => shape.find(text, anchor.start),
            CompiledLook::Assigned(strength) => assigned(text, anchor, *strength),
            CompiledLook::Pem => pem(text, anchor.start),
            CompiledLook::UserInfo => user_info(text, anchor.end),
            CompiledLook::Cookie => cookie(text, anchor.end),
        }
    }
}

impl Shape {
    fn find(&self, text: &str, start: usize) -> Option<Range<usize>> {
        if !self.distinctive && is_joined(&text.as_bytes()[..start]) {
            return None;
        }
        // A tested shape may fail over and over in one text; the others fail at once or are taken out.
        let near = near(text, start, if self.test.is_some() { FAR } else { KEY });
        let found = self.regex().find(near)?;
        if !self.test.is_none_or(|test| test(found.as_str())) {
            return None;
        }
        let cut = found.end() == near.len();
        let more = if cut {
            text[start + found.end()..]
                .bytes()
                .take_while(|b| is_token(*b))
                .count()
        } else {
            0
        };
        Some(start..start + found.end() + more)
    }

    fn regex(&self) -> &Regex {
        self.regex
            .get_or_init(|| Regex::new(self.pattern).expect("the bundled shapes are valid"))
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.~+/=-".contains(&byte)
}

/// The text from `start` on, at most `most` bytes of it.
fn near(text: &str, start: usize, most: usize) -> &str {
    &text[start..text.floor_char_boundary(start.saturating_add(most).min(text.len()))]
}

/// Whether a word goes on where `before` ends: `risk-…` is not `sk-…`. Escapes and colours are no words.
fn is_joined(before: &[u8]) -> bool {
    let Some((last, rest)) = before.split_last() else {
        return false;
    };
    if !last.is_ascii_alphanumeric() {
        return false;
    }
    let hex = |count: usize, mark: &[u8]| {
        before.len() >= count + mark.len()
            && before[before.len() - count..]
                .iter()
                .all(u8::is_ascii_hexdigit)
            && before[..before.len() - count].ends_with(mark)
    };
    let escaped = matches!(last, b'n' | b't' | b'r' | b'f' | b'b') && rest.ends_with(b"\\");
    !(escaped || hex(2, b"%") || hex(4, b"\\u") || hex(2, b"\\x") || is_colour(before))
}

/// Whether `before` ends in a sequence such as `ESC [ 3 2 m`.
fn is_colour(before: &[u8]) -> bool {
    let Some(rest) = before.strip_suffix(b"m") else {
        return false;
    };
    let length = rest
        .iter()
        .rev()
        .take(16)
        .take_while(|b| b.is_ascii_digit() || **b == b';')
        .count();
    rest[..rest.len() - length].ends_with(b"[")
}

/// The armour of a private key, up to its end or to where it was cut off.
fn pem(text: &str, start: usize) -> Option<Range<usize>> {
    const BEGIN: usize = "-----BEGIN".len();
    let rest = near(text, start, KEY);
    let header = BEGIN + near(rest, BEGIN, 72).find("-----")?;
    if !rest[..header].contains("PRIVATE KEY") {
        return None;
    }
    let body = header + 5;
    let end = match rest[body..].find("-----END") {
        Some(end) => {
            let end = body + end + "-----END".len();
            near(rest, end, 72)
                .find("-----")
                .map_or(end, |length| end + length + 5)
        }
        // Cut off: everything that can belong to a key, also with numbers or marks in front of its lines.
        None => {
            let key = |c: char| {
                c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || "+/=\\:,-|>".contains(c)
            };
            body + text[start + body..]
                .find(|c| !key(c))
                .unwrap_or(text.len() - start - body)
        }
    };
    Some(start..start + end)
}

/// The password in `user:password@host`; `start` is behind `://`.
fn user_info(text: &str, start: usize) -> Option<Range<usize>> {
    let whole = near(text, start, FAR);
    let until = |stops: &str| {
        let end = whole
            .find(|c: char| c.is_whitespace() || stops.contains(c))
            .unwrap_or(whole.len());
        whole[..end].rfind('@').map(|at| &whole[..at])
    };
    // A password may hold what should have been escaped; but behind a port begins a path, and an `@` in it is one.
    let strict = until("/?#\"'<>`\\");
    let loose = || {
        until("\"'<>`").filter(|info| {
            !info
                .split_once(':')
                .is_some_and(|(_, rest)| begins_with_port(rest))
        })
    };
    let info = strict.or_else(loose)?;
    let (at, password) = match info.split_once(':') {
        Some((user, password)) => (user.len() + 1, password),
        // A token in place of the user.
        None => (0, info),
    };
    let secret = if at > 0 {
        is_literal(password)
    } else {
        looks_random(password)
    };
    secret.then(|| start + at..start + at + password.len())
}

fn begins_with_port(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && !matches!(text.as_bytes().get(digits), Some(byte) if byte.is_ascii_alphanumeric())
}

/// The values of a cookie header, up to the end of the line or string; `start` is behind the name.
fn cookie(text: &str, start: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let sign = skip(bytes, start, b"\"'\\ \t");
    let value = match bytes.get(sign)? {
        b':' => skip(bytes, sign + 1, b"\"'\\ \t"),
        _ => return None,
    };
    let looks = near(text, value, FAR);
    // A quote ends it where a string can end; a cookie may hold quotes of its own.
    let line = |text: &str| {
        let after = |at: usize| {
            text.as_bytes()
                .get(at + 1)
                .is_none_or(|b| b.is_ascii_whitespace() || b",;)}]".contains(b))
        };
        let ends = |(at, c): (usize, char)| {
            matches!(c, '\r' | '\n' | '\\') || matches!(c, '"' | '\'') && after(at)
        };
        text.char_indices()
            .find(|found| ends(*found))
            .map_or(text.len(), |(at, _)| at)
    };
    let begin = &looks[..line(looks)];
    if !begin.contains('=') || begin.starts_with('[') {
        return None;
    }
    let length = text[value..][..line(&text[value..])].trim_end().len();
    Some(value..value + length)
}

/// The place from `at` on that is none of `set`.
fn skip(bytes: &[u8], mut at: usize, set: &[u8]) -> usize {
    while bytes.get(at).is_some_and(|byte| set.contains(byte)) {
        at += 1;
    }
    at
}

/// The value that is assigned to the name which ends with `name`.
fn assigned(text: &str, name: Range<usize>, strength: Strength) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    if is_pointer_to_go_on(bytes, &name) {
        return None;
    }
    // `"password" : "…"`, `password = '…'`, `password=>…`, `\"password\":\"…\"`.
    let sign = skip(bytes, name.end, b"\"'\\] \t");
    let behind = match bytes.get(sign)? {
        b'=' | b':' => value_start(bytes, sign + 1),
        // `<password>…</password>`
        b'>' if sign == name.end => sign + 1,
        // `--password …`
        _ if sign == name.end + 1 && is_flag(bytes, &name) => sign,
        _ => return None,
    };
    let mark = skip(bytes, behind, b"\\");
    let quote = bytes
        .get(mark)
        .copied()
        .filter(|byte| b"\"'`".contains(byte));
    let start = mark + usize::from(quote.is_some());
    if near(text, start, 16).starts_with("-----BEGIN") {
        return pem(text, start);
    }
    let end = Ends {
        text,
        name: name.start,
        start,
        quote,
        escaped: mark > behind,
    };
    let value = end.value(FAR);
    // `token = next_token()` is a call, `token: Token<'a>` a type.
    let code = quote.is_none()
        && is_word(value)
        && matches!(bytes.get(start + value.len()), Some(b'(' | b'<' | b'{'));
    // `PASSWORD=word` in a shell or a file of settings is no word of a program.
    let setting =
        sign == name.end && behind == sign + 1 && bytes[sign] == b'=' && is_upper(bytes, &name);
    let (scheme, credential) = without_scheme(value);
    let secret = match strength {
        Strength::Random if scheme > 0 && credential.len() >= 8 => is_literal(credential),
        Strength::Any => {
            is_literal(value)
                && (quote.is_some() || setting || !is_word(value))
                && !value.starts_with(' ')
        }
        Strength::Random => looks_random(credential),
    };
    if !secret || code {
        return None;
    }
    let length = if value.len() + 4 >= FAR {
        end.value(usize::MAX).len()
    } else {
        value.len()
    };
    Some(start + scheme..start + length)
}

/// Where a value begins behind its sign: a string may stand in the next line or in a list.
fn value_start(bytes: &[u8], behind: usize) -> usize {
    let here = skip(bytes, behind, b"=:> \t");
    let further = skip(bytes, here, b"[ \t\r\n");
    if matches!(bytes.get(further), Some(b'"' | b'\'')) {
        further
    } else {
        here
    }
}

/// Whether the name is an option such as `--password`.
fn is_flag(bytes: &[u8], name: &Range<usize>) -> bool {
    let part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let front = bytes[..name.start]
        .iter()
        .rev()
        .take(64)
        .take_while(part)
        .count();
    bytes[name.start - front..].starts_with(b"--")
}

/// A model needs `next_page_token` to go on.
fn is_pointer_to_go_on(bytes: &[u8], name: &Range<usize>) -> bool {
    let before = bytes[..name.start]
        .strip_suffix(b"_")
        .unwrap_or(&bytes[..name.start]);
    let ends = |word: &&str| {
        before.len() >= word.len()
            && before[before.len() - word.len()..].eq_ignore_ascii_case(word.as_bytes())
    };
    bytes[name.clone()].eq_ignore_ascii_case(b"token")
        && ["page", "next", "continuation", "sync", "cursor"]
            .iter()
            .any(ends)
}

/// Whether the whole name around `name` is in capitals, as settings are written.
fn is_upper(bytes: &[u8], name: &Range<usize>) -> bool {
    let part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let front = bytes[..name.start]
        .iter()
        .rev()
        .take(64)
        .take_while(part)
        .count();
    !bytes[name.start - front..name.end]
        .iter()
        .any(u8::is_ascii_lowercase)
}

/// The scheme stays, so that a reader sees what kind of credential was there.
fn without_scheme(value: &str) -> (usize, &str) {
    match value.split_once([' ', '\t']) {
        Some((scheme @ ("Bearer" | "bearer" | "Basic" | "basic" | "token" | "Token"), value)) => {
            (scheme.len() + 1, value)
        }
        _ => (0, value),
    }
}

/// Where an assigned value ends.
struct Ends<'a> {
    text: &'a str,
    name: usize,
    start: usize,
    quote: Option<u8>,
    /// Whether the quote itself is escaped, as in JSON inside of text.
    escaped: bool,
}

impl<'a> Ends<'a> {
    fn value(&self, most: usize) -> &'a str {
        let near = near(self.text, self.start, most);
        let length = match self.quote {
            Some(quote) => self.quoted(near.as_bytes(), quote),
            None => self.bare(near.as_bytes()),
        };
        &near[..near.floor_char_boundary(length)]
    }

    fn quoted(&self, bytes: &[u8], quote: u8) -> usize {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\r' | b'\n' => return at,
                b'\\' if self.escaped => return at,
                b'\\' => at += 1,
                byte if *byte == quote => return at,
                _ => {}
            }
            at += 1;
        }
        bytes.len()
    }

    fn bare(&self, bytes: &[u8]) -> usize {
        let before = &self.text.as_bytes()[self.name.saturating_sub(512)..self.name];
        let word = before
            .iter()
            .rev()
            .take_while(|byte| !byte.is_ascii_whitespace());
        let query = word.into_iter().any(|byte| b"?&".contains(byte));
        let ends = |at: usize| {
            bytes
                .get(at + 1)
                .is_none_or(|next| next.is_ascii_whitespace() || b",;)]}".contains(next))
        };
        let stop = |(at, byte): (usize, &u8)| match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' => true,
            b'&' => query,
            b',' | b';' | b')' | b'}' | b']' => ends(at),
            // Up to here it may be the name of a function or type.
            b'(' | b'{' => std::str::from_utf8(&bytes[..at]).is_ok_and(is_word),
            _ => false,
        };
        let length = |from: usize| {
            bytes[from..]
                .iter()
                .enumerate()
                .position(|(at, byte)| stop((from + at, byte)))
        };
        let first = length(0).unwrap_or(bytes.len());
        // `Bearer` alone is no credential; the word behind it is.
        let scheme = ["bearer", "basic", "token"]
            .iter()
            .any(|word| bytes[..first].eq_ignore_ascii_case(word.as_bytes()));
        if !scheme || bytes.get(first) != Some(&b' ') {
            return first;
        }
        length(first + 1).map_or(bytes.len(), |length| first + 1 + length)
    }
}

/// Whether a value stands for itself: not empty, not a variable, not a placeholder, not redacted before.
pub(crate) fn is_literal(value: &str) -> bool {
    const WORDS: [&str; 10] = [
        "null",
        "none",
        "true",
        "false",
        "undefined",
        "string",
        "str",
        "password",
        "changeme",
        "redacted",
    ];
    !value.is_empty()
        && !is_placeholder(value)
        && !WORDS.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether the whole of a value is a variable or says that something belongs here.
fn is_placeholder(value: &str) -> bool {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_ .-".contains(&b))
    };
    let within = |open: &str, close: &str| {
        value
            .strip_prefix(open)
            .and_then(|rest| rest.strip_suffix(close))
    };
    let variable = value.strip_prefix('$').is_some_and(|name| {
        name.is_empty()
            || name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    });
    variable
        || within("${", "}").is_some()
        || within("$(", ")").is_some()
        || within("{{", "}}").is_some()
        || value.starts_with("[redacted:")
        || within("<", ">").is_some_and(word)
        || within("%", "%").is_some_and(word)
        || value.bytes().all(|b| b == b'*')
        || value.len() > 2
            && value
                .bytes()
                .all(|b| matches!(b, b'x' | b'X' | b'.' | b'-'))
        || ["process.env", "os.environ", "env."]
            .iter()
            .any(|begin| value.starts_with(begin) && word_of_code(value))
}

fn word_of_code(value: &str) -> bool {
    value
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_.[]'\"".contains(&b))
}

/// A plain word or a path of code such as `config.password` or `&str`: what stands behind `password:` in a program.
fn is_word(value: &str) -> bool {
    value
        .bytes()
        .all(|b| b.is_ascii_alphabetic() || b"_.:&*|?!".contains(&b))
}

/// Whether a value looks like it came out of a random generator.
pub(crate) fn looks_random(value: &str) -> bool {
    if value.len() < 12 || !is_literal(value) || value.contains(' ') {
        return false;
    }
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    digits > 0 && letters > 0 && !is_path(value) && entropy(value) > 3.0
}

/// `src/auth/token.rs`, and not base64 that happens to hold slashes.
fn is_path(value: &str) -> bool {
    let parts = value.split(['/', '.']).filter(|part| !part.is_empty());
    let rooted = ["/", "./", "../", "~/"]
        .iter()
        .any(|root| value.starts_with(root));
    let separators = value.bytes().filter(|b| b"/.".contains(b)).count();
    (rooted || separators > 2)
        && parts
            .into_iter()
            .all(|part| part.len() <= 32 && !mixed(part))
}

/// Bits per byte.
fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    value
        .bytes()
        .for_each(|byte| counts[usize::from(byte)] += 1);
    let length = value.len() as f64;
    let share = |count: &&u32| f64::from(**count) / length;
    -counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| share(&count) * share(&count).log2())
        .sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_shape_is_valid_and_begins_with_its_anchor() {
        for detector in SHAPES {
            let (Look::Shape(pattern) | Look::ShapeIf(pattern, _)) = detector.look else {
                panic!("a shape")
            };
            assert!(Regex::new(pattern).is_ok(), "{pattern}");
            let plain = pattern.replace('\\', "").replace("(?i:", "").to_lowercase();
            assert!(
                plain.starts_with(&format!("^{}", detector.anchor.to_lowercase())),
                "{pattern}"
            );
        }
    }
}
