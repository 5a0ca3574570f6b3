//! What secrets look like: token shapes, and the words that stand in front of a password.
//!
//! Every detector has a literal anchor. One pass over a text finds all anchors at once, and only there a detector
//! looks closer; that is what keeps redaction fast on text that holds no secret.

use std::ops::Range;

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
    "aws_key_id" "AKIA" r"^AKIA[0-9A-Z]{16}\b";
    "aws_key_id" "ASIA" r"^ASIA[0-9A-Z]{16}\b";
    "github_token" "ghp_" r"^ghp_[0-9A-Za-z]{30,255}";
    "github_token" "gho_" r"^gho_[0-9A-Za-z]{30,255}";
    "github_token" "ghu_" r"^ghu_[0-9A-Za-z]{30,255}";
    "github_token" "ghs_" r"^ghs_[0-9A-Za-z]{30,255}";
    "github_token" "ghr_" r"^ghr_[0-9A-Za-z]{30,255}";
    "github_token" "github_pat_" r"^github_pat_[0-9A-Za-z_]{40,255}";
    "gitlab_token" "glpat-" r"^glpat-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "gldt-" r"^gldt-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "glrt-" r"^glrt-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "glptt-" r"^glptt-[0-9a-f]{40}";
    "npm_token" "npm_" r"^npm_[0-9A-Za-z]{36}\b";
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
    "openai_key" "sk-" r"^sk-[0-9A-Za-z_-]{20,}" if mixed;
    "google_key" "AIza" r"^AIza[0-9A-Za-z_-]{35}";
    "google_token" "ya29." r"^ya29\.[0-9A-Za-z_.-]{20,}";
    "google_secret" "GOCSPX-" r"^GOCSPX-[0-9A-Za-z_-]{20,}";
    "jwt" "eyJ" r"^eyJ[0-9A-Za-z_-]{8,}\.eyJ[0-9A-Za-z_-]{8,}(?:\.[0-9A-Za-z_-]*)?";
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
    "bearer_token" "bearer " r"^(?i:bearer)\s+[0-9A-Za-z._~+/=-]{8,}" if credential;
    "basic_auth" "basic " r"^(?i:basic)\s+[0-9A-Za-z+/]{12,}={0,2}" if credential;
};

macro_rules! others {
    ($($kind:literal $look:expr => $($anchor:literal)*;)*) => {
        &[$($(Detector { kind: $kind, anchor: $anchor, look: $look }),*),*]
    };
}

/// What is recognised by its surroundings.
pub(crate) const OTHERS: &[Detector] = others! {
    "private_key" Look::Pem => "-----BEGIN";
    "url_password" Look::UserInfo => "://";
    "cookie" Look::Cookie => "cookie:";
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

/// What follows `Bearer` or `Basic` is no ordinary word.
fn credential(text: &str) -> bool {
    let value = text.split_ascii_whitespace().nth(1).unwrap_or_default();
    value.bytes().any(|b| b.is_ascii_digit()) || mixed_case(value) && value.len() >= 12
}

fn mixed_case(text: &str) -> bool {
    // A capital inside a word, not at its start.
    text.bytes().skip(1).any(|b| b.is_ascii_uppercase()) && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// A detector with its pattern compiled.
pub(crate) struct Compiled {
    pub(crate) kind: &'static str,
    look: CompiledLook,
}

enum CompiledLook {
    Shape(Regex, Option<fn(&str) -> bool>),
    Assigned(Strength),
    Pem,
    UserInfo,
    Cookie,
}

impl Compiled {
    pub(crate) fn new(detector: &Detector) -> Self {
        let regex = |shape| Regex::new(shape).expect("the bundled shapes are valid");
        let look = match detector.look {
            Look::Shape(shape) => CompiledLook::Shape(regex(shape), None),
            Look::ShapeIf(shape, test) => CompiledLook::Shape(regex(shape), Some(test)),
            Look::Assigned(strength) => CompiledLook::Assigned(strength),
            Look::Pem => CompiledLook::Pem,
            Look::UserInfo => CompiledLook::UserInfo,
            Look::Cookie => CompiledLook::Cookie,
        };
        Self { kind: detector.kind, look }
    }

    /// Where the secret is that the anchor at `anchor` introduces, if it does.
    pub(crate) fn find(&self, text: &str, anchor: Range<usize>) -> Option<Range<usize>> {
        match &self.look {
            CompiledLook::Shape(regex, test) => shape(regex, *test, text, anchor.start),
            CompiledLook::Assigned(strength) => assigned(text, anchor, *strength),
            CompiledLook::Pem => pem(text, anchor.start),
            CompiledLook::UserInfo => user_info(text, anchor.end),
            CompiledLook::Cookie => cookie(text, anchor.end),
        }
    }
}

fn shape(regex: &Regex, test: Option<fn(&str) -> bool>, text: &str, start: usize) -> Option<Range<usize>> {
    // `risk-…` is not `sk-…`.
    let joined = text[..start].bytes().next_back().is_some_and(|b| b.is_ascii_alphanumeric());
    let found = (!joined).then(|| regex.find(&text[start..])).flatten()?;
    let passes = test.is_none_or(|test| test(found.as_str()));
    passes.then(|| start..start + found.end())
}

/// The armour of a private key, up to its end or to where it was cut off.
fn pem(text: &str, start: usize) -> Option<Range<usize>> {
    let rest = &text[start..];
    let header = rest["-----BEGIN".len()..].find("-----").filter(|length| *length < 64)?;
    let header = "-----BEGIN".len() + header;
    if !rest[..header].contains("PRIVATE KEY") {
        return None;
    }
    let end = match rest[header + 5..].find("-----END") {
        Some(end) => {
            let end = header + 5 + end + "-----END".len();
            rest[end..].find("-----").filter(|length| *length < 64).map_or(end, |length| end + length + 5)
        }
        // Cut off: everything that can belong to a key.
        None => {
            let key = |c: char| c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || "+/=\\:,-".contains(c);
            rest.find(|c| !key(c)).unwrap_or(rest.len())
        }
    };
    Some(start..start + end)
}

/// The password in `user:password@host`; `start` is behind `://`.
fn user_info(text: &str, start: usize) -> Option<Range<usize>> {
    let rest = &text[start..];
    let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'<>`\\".contains(c)).unwrap_or(rest.len());
    let info = &rest[..rest[..end].rfind('@')?];
    let (at, password) = match info.split_once(':') {
        Some((user, password)) => (user.len() + 1, password),
        // A token in place of the user.
        None => (0, info),
    };
    let secret = if at > 0 { is_literal(password) } else { looks_random(password) };
    secret.then(|| start + at..start + at + password.len())
}

/// The values of a cookie header, up to the end of the line.
fn cookie(text: &str, start: usize) -> Option<Range<usize>> {
    let line = text[start..].find(['\r', '\n', '"', '\'', '\\']).map_or(text.len(), |length| start + length);
    let skipped = text[start..line].len() - text[start..line].trim_start().len();
    let value = text[start + skipped..line].trim_end();
    (value.contains('=') && !value.starts_with('[')).then(|| start + skipped..start + skipped + value.len())
}

/// The value that is assigned to the name which ends with `name`.
fn assigned(text: &str, name: Range<usize>, strength: Strength) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    // A model needs `next_page_token` to go on.
    let before = bytes[..name.start].strip_suffix(b"_").unwrap_or(&bytes[..name.start]);
    let harmless = |word: &&str| {
        before.len() >= word.len() && before[before.len() - word.len()..].eq_ignore_ascii_case(word.as_bytes())
    };
    if ["page", "next", "continuation", "sync", "cursor"].iter().any(harmless) {
        return None;
    }
    let skip = |mut at: usize, set: &[u8]| {
        while at < bytes.len() && set.contains(&bytes[at]) {
            at += 1;
        }
        at
    };
    // `"password" : "…"`, `password = '…'`, `password=>…`, `\"password\":\"…\"`.
    let sign = skip(name.end, b"\"'\\] \t");
    let behind = match bytes.get(sign)? {
        b'=' | b':' => skip(sign + 1, b"=:> \t"),
        _ => return None,
    };
    let mark = skip(behind, b"\\");
    let quoted = matches!(bytes.get(mark), Some(b'"' | b'\'' | b'`'));
    let start = mark + usize::from(quoted);
    // A sentence may end in "the password:" and go on in the next line.
    let stop = |b: &u8| if quoted { b"\"'`\\\r\n".contains(b) } else { b" \t\r\n\"'`,;&<>(){}\\".contains(b) };
    let length = bytes[start..].iter().position(stop).unwrap_or(bytes.len() - start);
    let value = &text[start..start + length];
    // `token = next_token()` is a call, `token: Token<'a>` a type.
    let code = !quoted && matches!(bytes.get(start + length), Some(b'(' | b'<' | b'{'));
    // The scheme stays, so that a reader sees what kind of credential was there.
    let (scheme, value) = match value.split_once(' ') {
        Some((scheme @ ("Bearer" | "bearer" | "Basic" | "basic" | "token" | "Token"), value)) => {
            (scheme.len() + 1, value)
        }
        _ => (0, value),
    };
    let secret = match strength {
        Strength::Any => is_literal(value) && (quoted || !is_word(value)),
        Strength::Random => looks_random(value),
    };
    (secret && !code).then(|| start + scheme..start + scheme + value.len())
}

/// Whether a value stands for itself: not empty, not a variable, not a placeholder, not redacted before.
pub(crate) fn is_literal(value: &str) -> bool {
    let placeholder = value.starts_with(['$', '<', '{', '%', '[', '*', '@', ' '])
        || value.len() > 2 && value.bytes().all(|b| matches!(b, b'x' | b'X' | b'.' | b'-'))
        || value.starts_with("process.env")
        || value.starts_with("os.environ")
        || value.starts_with("env.");
    let word = ["null", "none", "true", "false", "undefined", "string", "str", "password", "changeme", "redacted"];
    !value.is_empty() && !placeholder && !word.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// A plain word or a path of code such as `config.password` or `&str`: what stands behind `password:` in a program.
fn is_word(value: &str) -> bool {
    value.bytes().all(|b| b.is_ascii_alphabetic() || b"_.:&*|?!".contains(&b))
}

/// Whether a value looks like it came out of a random generator.
pub(crate) fn looks_random(value: &str) -> bool {
    if value.len() < 12 || !is_literal(value) || value.contains(' ') {
        return false;
    }
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    let path = value.matches(['/', '.']).count() > 2;
    digits > 0 && letters > 0 && !path && entropy(value) > 3.0
}

/// Bits per byte.
fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    value.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let length = value.len() as f64;
    let share = |count: &&u32| f64::from(**count) / length;
    -counts.iter().filter(|count| **count > 0).map(|count| share(&count) * share(&count).log2()).sum::<f64>()
}
