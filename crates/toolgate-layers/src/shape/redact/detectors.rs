//! Detectors of secrets: token shapes, and the words that precede a password.
//!
//! Every detector has a literal anchor. All anchors of a text are found at once, and a detector
//! looks closer only there; that keeps redaction fast on text without secrets.

use std::{
    ops::Range,
    sync::{LazyLock, OnceLock},
};

use regex::Regex;

use crate::shape::redact::{
    lookahead::{Lookahead, SearchFor},
    scanner::is_secret_kind,
};

/// A shape of secrets, or a word that precedes one.
pub(crate) struct Detector {
    /// The name in the mark that replaces the secret.
    pub(crate) kind: &'static str,
    /// The text by which it is found, ignoring case.
    pub(crate) anchor: &'static str,
    pub(crate) look: DetectorLook,
}

/// The way a detector examines the text around its anchor.
pub(crate) enum DetectorLook {
    /// The text from the anchor on has this shape; a letter or digit before it means that it is
    /// something else.
    Shape(&'static str),
    /// The same, but only if the text found also passes a test.
    ShapeIf(&'static str, fn(&str) -> bool),
    /// The anchor is the end of a name that something is assigned to.
    Assigned(SecretStrength),
    /// The same for a password, if the name around the anchor passes a test.
    NamedBy(fn(&[u8], &Range<usize>) -> bool),
    /// The text from the anchor on has this shape, and the first group in it is the secret.
    Group(&'static str),
    /// A private key in PEM armour.
    Pem,
    /// `scheme://user:password@host`.
    UserInfo,
    /// `Cookie: a=b; c=d` and `Set-Cookie: a=b; Path=/`.
    Cookie,
}

/// The probability that a name is followed by a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretStrength {
    /// A password: any literal counts.
    Any,
    /// A token: only what looks random counts.
    Random,
}

macro_rules! shapes {
    ($($kind:literal $anchor:literal $shape:literal $(if $test:path)?;)*) => {
        &[$(Detector { kind: $kind, anchor: $anchor, look: shapes!(@ $shape $($test)?) }),*]
    };
    (@ $shape:literal) => { DetectorLook::Shape($shape) };
    (@ $shape:literal $test:path) => { DetectorLook::ShapeIf($shape, $test) };
}

/// Tokens that are recognised by their shape alone.
pub(crate) const SHAPE_DETECTORS: &[Detector] = shapes! {
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
    "gitlab_token" "glagent-" r"^glagent-[0-9A-Za-z_.-]{20,}";
    "gitlab_token" "glsoat-" r"^glsoat-[0-9A-Za-z_.-]{20,}";
    "docker_token" "dckr_pat_" r"^dckr_pat_[0-9A-Za-z_-]{16,}";
    "sentry_token" "sntryu_" r"^sntryu_[0-9a-f]{64}";
    "sentry_token" "sntrys_" r"^sntrys_[0-9A-Za-z_+/=-]{40,}";
    "grafana_token" "glsa_" r"^glsa_[0-9A-Za-z]{32}_[0-9A-Fa-f]{8}";
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
    "openai_key" "sk-" r"^sk-[0-9A-Za-z_-]{20,}" if looks_generated;
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
    "bearer_token" "bearer" r"^(?i:bearer)[:\s]\s*[0-9A-Za-z._~+/=-]{8,}" if is_credential;
    "basic_auth" "basic" r"^(?i:basic)\s+[0-9A-Za-z+/]{12,}={0,2}" if is_credential;
};

macro_rules! others {
    ($($kind:literal $look:expr => $($anchor:literal)*;)*) => {
        &[$($(Detector { kind: $kind, anchor: $anchor, look: $look }),*),*]
    };
}

/// Secrets that are recognised by their context.
pub(crate) const CONTEXT_DETECTORS: &[Detector] = others! {
    "private_key" DetectorLook::Pem => "-----BEGIN";
    "url_password" DetectorLook::UserInfo => "://" ":\\/\\/";
    "cookie" DetectorLook::Cookie => "cookie";
    "password" DetectorLook::Assigned(SecretStrength::Any) => "password" "passwd" "passphrase" "pwd" "client_secret" "clientsecret"
        "secret_key" "secretkey" "secret_access_key" "secretaccesskey" "accountkey" "sharedaccesskey";
    "password" DetectorLook::NamedBy(is_npm_name) => "_authtoken" "_auth=" "_auth:" "_auth\"" "_auth'" "_auth ";
    "password" DetectorLook::NamedBy(is_account_name) => "_pass=" "_pass:" "_pass\"" "_pass'" "_pass ";
    "password" DetectorLook::Group(CURL_USER) => "curl";
    "password" DetectorLook::Group(NETRC_ENTRY) => "machine";
    "secret" DetectorLook::Assigned(SecretStrength::Random) => "secret" "token" "api_key" "apikey" "api-key" "access_key" "accesskey"
        "private_key" "privatekey" "signing_key" "encryption_key" "authorization" "credential" "auth_key"
        "x-amz-signature" "x-goog-signature";
};

/// `curl -u user:password`, on one line.
const CURL_USER: &str =
    r#"^(?i:curl)\s[^\n|;&]{0,300}?(?:-u\s*|--user[ =])["']?[^\s:"'$]{1,64}:([^\s"'$][^\s"']*)"#;

/// An entry of a `.netrc`, on one line or several.
const NETRC_ENTRY: &str = r"^(?i:machine)\s+(?:\S{0,120}\.\S{1,120}|localhost)(?:\s+(?:login|account)\s+\S{1,128}){0,2}\s+password\s+(\S+)";

/// The most words of an entry of a `.netrc` after the first.
const NETRC_WORDS: usize = 7;

/// Returns the anchor without the sign at its end. The sign is part of the anchor because `_pass`
/// alone would hide the anchor `password` in `db_password`.
fn name_in_anchor(text: &str, anchor: &Range<usize>) -> Range<usize> {
    let name = text[anchor.clone()].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    anchor.start..anchor.start + name.len()
}

/// Checks for `_auth` as npm has it, alone or after the registry, and not as the end of a word such
/// as `requires_auth`.
fn is_npm_name(bytes: &[u8], name: &Range<usize>) -> bool {
    let before = name.start.checked_sub(1).map(|at| bytes[at]);
    let value = skip_bytes(bytes, name.end, b"\"'= :");
    // A token of npm has a shape of its own.
    !bytes[value..].starts_with(b"npm_")
        && before.is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte != b'_')
}

/// Checks for a name such as `DB_PASS` or `smtp_pass`, and not `first_pass`.
fn is_account_name(bytes: &[u8], name: &Range<usize>) -> bool {
    const ACCOUNTS: &str = "admin bind cert database db ftp http imap jwt keystore ldap login mail mariadb \
        mongo mongodb mqtt mssql mysql oracle pg postgres proxy rabbitmq redis root smtp sql ssh store sudo user vpn";
    let part = |byte: &&u8| byte.is_ascii_alphanumeric();
    let front = bytes[..name.start]
        .iter()
        .rev()
        .take(16)
        .take_while(part)
        .count();
    let word = &bytes[name.start - front..name.start];
    let is_known = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    is_upper_name(bytes, name) && bytes.get(name.end) == Some(&b'=')
        || ACCOUNTS.split_whitespace().any(is_known)
}

/// Checks for upper and lower case letters and digits, which no ordinary word has.
fn is_mixed(text: &str) -> bool {
    let has = |test: fn(&u8) -> bool| text.as_bytes().iter().any(test);
    has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// Checks whether a part of the text is too long and too varied for a word.
fn looks_generated(text: &str) -> bool {
    let varied = |part: &str| {
        part.bytes().any(|b| b.is_ascii_digit()) && part.bytes().any(|b| b.is_ascii_alphabetic())
    };
    is_mixed(text)
        || text
            .split(['-', '_'])
            .any(|part| part.len() >= 20 && varied(part))
}

/// Checks that the text after `Bearer` or `Basic` is not an ordinary word.
fn is_credential(text: &str) -> bool {
    let value = text
        .split([' ', '\t', '\r', '\n', ':'])
        .rfind(|part| !part.is_empty())
        .unwrap_or_default();
    value.bytes().any(|b| b.is_ascii_digit()) || has_inner_capital(value) && value.len() >= 12
}

fn has_inner_capital(text: &str) -> bool {
    // A capital inside a word, not at its start.
    text.bytes().skip(1).any(|b| b.is_ascii_uppercase())
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// All bundled detectors, shared by all scanners.
pub(crate) static BUNDLED_DETECTORS: LazyLock<Vec<CompiledDetector>> = LazyLock::new(|| {
    SHAPE_DETECTORS
        .iter()
        .chain(CONTEXT_DETECTORS)
        .map(CompiledDetector::new)
        .collect()
});

/// A detector whose pattern is compiled when its anchor first occurs: most never do.
pub(crate) struct CompiledDetector {
    pub(crate) kind: &'static str,
    pub(crate) anchor: &'static str,
    look: CompiledLook,
}

enum CompiledLook {
    Shape(CompiledShape),
    Assigned(SecretStrength),
    NamedBy(fn(&[u8], &Range<usize>) -> bool),
    Group(CompiledShape),
    Pem,
    UserInfo,
    Cookie,
}

struct CompiledShape {
    pattern: &'static str,
    regex: OnceLock<Regex>,
    test: Option<fn(&str) -> bool>,
    /// True if its beginning is specific enough, even in the middle of a word.
    distinctive: bool,
}

/// Beginnings that also occur inside ordinary words or encoded data.
const COMMON_PREFIXES: [&str; 17] = [
    "sk-", "key-", "dapi", "SG.", "hf_", "r8_", "AKIA", "ASIA", "AIza", "eyJ", "xai-", "gsk_",
    "ntn_", "bearer", "basic", "ya29.", "hvs.",
];

/// Maximum number of bytes that a detector examines before it has found something. The secret may
/// be longer; but a text full of anchors must not be read to its end from each of them.
const MAX_LOOK_BYTES: usize = 1024;
/// The same where many bytes have to be counted to tell whether a text looks random.
const MAX_RANDOM_BYTES: usize = 256;
/// The same for shapes, which begin with what makes them look generated.
const MAX_TEST_BYTES: usize = 64;
/// Maximum length of a private key.
const MAX_KEY_BYTES: usize = 16 * 1024;

impl CompiledDetector {
    fn new(detector: &Detector) -> Self {
        let shape = |pattern, test| CompiledShape {
            pattern,
            regex: OnceLock::new(),
            test,
            distinctive: !COMMON_PREFIXES.contains(&detector.anchor),
        };
        let look = match detector.look {
            DetectorLook::Shape(pattern) => CompiledLook::Shape(shape(pattern, None)),
            DetectorLook::ShapeIf(pattern, test) => CompiledLook::Shape(shape(pattern, Some(test))),
            DetectorLook::Group(pattern) => CompiledLook::Group(shape(pattern, None)),
            DetectorLook::Assigned(strength) => CompiledLook::Assigned(strength),
            DetectorLook::NamedBy(test) => CompiledLook::NamedBy(test),
            DetectorLook::Pem => CompiledLook::Pem,
            DetectorLook::UserInfo => CompiledLook::UserInfo,
            DetectorLook::Cookie => CompiledLook::Cookie,
        };
        Self {
            kind: detector.kind,
            anchor: detector.anchor,
            look,
        }
    }

    /// Returns the range of the secret at `anchor`, if there is one.
    pub(crate) fn find_secret(
        &self,
        text: &str,
        anchor: Range<usize>,
        ahead: &mut Lookahead,
    ) -> Option<Range<usize>> {
        match &self.look {
            CompiledLook::Shape(shape) => shape.find_match(text, anchor, ahead),
            CompiledLook::Assigned(strength) => find_assigned(text, anchor, *strength, ahead),
            CompiledLook::NamedBy(test) => {
                let name = name_in_anchor(text, &anchor);
                test(text.as_bytes(), &name)
                    .then(|| find_assigned(text, name, SecretStrength::Any, ahead))?
            }
            CompiledLook::Group(shape) => shape.find_group(text, anchor.start, ahead),
            CompiledLook::Pem => find_pem(text, anchor.start, ahead),
            CompiledLook::UserInfo => find_url_password(text, anchor.end, ahead),
            CompiledLook::Cookie => find_cookie(text, anchor.end, ahead),
        }
    }
}

impl CompiledDetector {
    /// Checks whether text that follows can no longer change what is found at `anchor`.
    ///
    /// It may say no although nothing can change: the text is then shown a little later.
    pub(crate) fn is_decided(&self, text: &str, anchor: Range<usize>) -> bool {
        let rest = &text[anchor.end..];
        match &self.look {
            CompiledLook::Pem => is_pem_decided(text, anchor.start),
            // A detector reads no further, except to the end of what it has found.
            _ if rest.len() >= 4 * MAX_LOOK_BYTES => true,
            // `Bearer` and its token may be on two lines; all other shapes end with their word.
            CompiledLook::Shape(_) => has_word_after(rest),
            CompiledLook::UserInfo => rest.contains(char::is_whitespace),
            CompiledLook::Cookie => !may_be_assigned(text, &anchor) || has_line_after(rest),
            CompiledLook::Assigned(_) => !may_be_assigned(text, &anchor) || has_line_after(rest),
            CompiledLook::NamedBy(_) => {
                !may_be_assigned(text, &name_in_anchor(text, &anchor)) || has_line_after(rest)
            }
            CompiledLook::Group(_) if !rest.starts_with(|c: char| c.is_whitespace()) => {
                !rest.is_empty()
            }
            // As many whole words as the longest entry has, and a whole line.
            CompiledLook::Group(_) => {
                let is_word_ended = rest.ends_with(|c: char| c.is_whitespace());
                rest.contains('\n')
                    && rest.split_whitespace().count() >= NETRC_WORDS + usize::from(!is_word_ended)
            }
        }
    }
}

/// Checks whether `rest`, which follows an anchor, has a complete word after that of the anchor.
fn has_word_after(rest: &str) -> bool {
    let mut words = rest.split_ascii_whitespace();
    let begins_with_space = rest.starts_with(|c: char| c.is_ascii_whitespace());
    let needed = if begins_with_space { 1 } else { 2 };
    let ends_with_space = rest.ends_with(|c: char| c.is_ascii_whitespace());
    words.by_ref().take(needed).count() == needed && (words.next().is_some() || ends_with_space)
}

/// Checks whether `rest`, which follows an anchor, has a complete line with text after that of the
/// anchor: a value may be on the next line.
fn has_line_after(rest: &str) -> bool {
    let Some((_, below)) = rest.split_once('\n') else {
        return false;
    };
    let blank = |c: char| c == '[' || c.is_ascii_whitespace();
    below.trim_start_matches(blank).contains('\n')
}

/// Checks whether a value may follow the name at `anchor`, as far as the text shows.
fn may_be_assigned(text: &str, anchor: &Range<usize>) -> bool {
    let bytes = text.as_bytes();
    let sign = skip_bytes(bytes, anchor.end, b"\"'\\] \t");
    match bytes.get(sign) {
        None | Some(b'=' | b':' | b'>') => true,
        Some(_) => is_flag(bytes, anchor),
    }
}

/// Checks whether text that follows can no longer change what is found of a private key.
fn is_pem_decided(text: &str, start: usize) -> bool {
    // Room for the header and the footer.
    const ROOM: usize = 128;
    let rest = &text[start..];
    if rest.len() >= MAX_KEY_BYTES + ROOM {
        return true;
    }
    let near = &rest["-----BEGIN".len()..];
    match near.find("-----") {
        None => near.len() > ROOM,
        Some(header) if !near[..header].contains("PRIVATE KEY") => true,
        Some(header) => near[header..]
            .find("-----END")
            .is_some_and(|footer| near.len() - header - footer > ROOM),
    }
}

impl CompiledShape {
    fn find_match(
        &self,
        text: &str,
        anchor: Range<usize>,
        ahead: &mut Lookahead,
    ) -> Option<Range<usize>> {
        let start = anchor.start;
        if !self.distinctive && ends_in_word(&text.as_bytes()[..start]) {
            return None;
        }
        // A tested shape may fail many times in one text; the others fail at once or match, but for
        // one that has several parts.
        let mut near = match self.test {
            Some(_) => text_near(text, start, MAX_TEST_BYTES),
            None => text_near(text, start, MAX_KEY_BYTES),
        };
        let is_jwt = anchor.len() == 3 && &text[anchor.clone()] == "eyJ";
        if is_jwt && !has_token_parts(text.as_bytes(), start, ahead) {
            return None;
        }
        ahead.charge(near.len().min(MAX_TEST_BYTES));
        let mut found = self.regex().find(near)?;
        if let Some(test) = self.test {
            if !test(found.as_str()) {
                return None;
            }
            near = text_near(text, start, MAX_LOOK_BYTES);
            found = self.regex().find(near)?;
        }
        let cut = found.end() == near.len();
        let more = if cut {
            text[start + found.end()..]
                .bytes()
                .take_while(|b| is_token_byte(*b))
                .count()
        } else {
            0
        };
        Some(start..start + found.end() + more)
    }

    /// Returns the first group of the shape at `start`, if it is a literal.
    fn find_group(&self, text: &str, start: usize, ahead: &mut Lookahead) -> Option<Range<usize>> {
        if ends_in_word(&text.as_bytes()[..start]) {
            return None;
        }
        let near = text_near(text, start, MAX_LOOK_BYTES);
        ahead.charge(MAX_TEST_BYTES.min(near.len()));
        let secret = self.regex().captures(near)?.get(1)?;
        ahead.charge(near.len());
        let cut = secret.end() == near.len();
        let end = start + secret.end();
        let is_more = |byte: &u8| !byte.is_ascii_whitespace() && !b"\"'".contains(byte);
        let more = text.as_bytes()[end..]
            .iter()
            .take_while(|byte| is_more(byte));
        let more = if cut { more.count() } else { 0 };
        is_literal(secret.as_str()).then(|| start + secret.start()..end + more)
    }

    fn regex(&self) -> &Regex {
        self.regex
            .get_or_init(|| Regex::new(self.pattern).expect("the bundled shapes are valid"))
    }
}

/// Checks whether three parts with dots between them follow, as in every JSON web token.
fn has_token_parts(text: &[u8], start: usize, ahead: &mut Lookahead) -> bool {
    let first = ahead.find_next(SearchFor::TokenPartEnd, text, start, MAX_KEY_BYTES);
    if first - start > MAX_KEY_BYTES || text.get(first) != Some(&b'.') {
        return false;
    }
    let second = ahead.find_next(SearchFor::SecondPartEnd, text, first + 1, MAX_KEY_BYTES);
    second - start < MAX_KEY_BYTES && text.get(second) == Some(&b'.')
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.~+/=-".contains(&byte)
}

/// Returns at most `most` bytes of the text from `start` on.
fn text_near(text: &str, start: usize, most: usize) -> &str {
    &text[start..text.floor_char_boundary(start.saturating_add(most).min(text.len()))]
}

/// Checks whether `before` ends inside a word: `risk-…` is not `sk-…`. Escapes and colours are not
/// words.
fn ends_in_word(before: &[u8]) -> bool {
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
    !(escaped || hex(2, b"%") || hex(4, b"\\u") || hex(2, b"\\x") || ends_in_colour(before))
}

/// Checks whether `before` ends in a sequence such as `ESC [ 3 2 m`.
fn ends_in_colour(before: &[u8]) -> bool {
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

/// Returns the armour of a private key, up to its end or to where it is truncated.
fn find_pem(text: &str, start: usize, ahead: &mut Lookahead) -> Option<Range<usize>> {
    const BEGIN: usize = "-----BEGIN".len();
    let rest = text_near(text, start, MAX_KEY_BYTES);
    let header = BEGIN + text_near(rest, BEGIN, 72).find("-----")?;
    if !rest[..header].contains("PRIVATE KEY") {
        return None;
    }
    let body = header + 5;
    let last = ahead.find_next(
        SearchFor::KeyEnd,
        text.as_bytes(),
        start + body,
        rest.len() - body,
    );
    let last = Some(last - start)
        .filter(|at| rest.get(*at..).is_some_and(|it| it.starts_with("-----END")));
    let end = match last {
        Some(end) => {
            let end = end + "-----END".len();
            text_near(rest, end, 72)
                .find("-----")
                .map_or(end, |length| end + length + 5)
        }
        None => truncated_key_end(text, start + body, ahead) - start,
    };
    Some(start..start + end)
}

/// Returns where the body of a key ends whose last line is missing: everything that can belong to a
/// key, also with line numbers or marks before its lines, and lines that end like those of a key,
/// whatever is before (`a/key.txt-2-MIIE…`).
fn truncated_key_end(text: &str, body: usize, ahead: &mut Lookahead) -> usize {
    // Shorter ones end in an ordinary word.
    const MIN_LINE_BYTES: usize = 32;
    // So many bytes of a line are examined from its end on.
    const MAX_TAIL_BYTES: usize = 256;
    let encoded = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let key = |c: char| encoded(c) || c.is_ascii_whitespace() || "\\:,-|>".contains(c);
    let mut end = body;
    loop {
        end += text[end..].find(|c| !key(c)).unwrap_or(text.len() - end);
        let line_end = ahead.find_next(SearchFor::LineEnd, text.as_bytes(), end, MAX_KEY_BYTES);
        let line_end = text.floor_char_boundary(line_end);
        let tail_start = line_end.saturating_sub(MAX_TAIL_BYTES).max(end);
        let rest = text[text.ceil_char_boundary(tail_start)..line_end].trim_end();
        ahead.charge(rest.len());
        let tail = rest.len() - rest.trim_end_matches(encoded).len();
        if tail < MIN_LINE_BYTES {
            return end;
        }
        end = line_end;
    }
}

/// Returns the password in `user:password@host`; `start` is after `://`.
fn find_url_password(text: &str, start: usize, ahead: &mut Lookahead) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let url_end = ahead.find_next(SearchFor::UrlEnd, bytes, start, MAX_LOOK_BYTES);
    let at = ahead.find_next(SearchFor::At, bytes, start, MAX_LOOK_BYTES);
    if at >= url_end.min(start + MAX_LOOK_BYTES) {
        return None;
    }
    let whole = text_near(text, start, MAX_LOOK_BYTES.min(url_end - start));
    ahead.charge(whole.len());
    let until = |stops: &str| {
        let end = whole
            .find(|c: char| c.is_whitespace() || stops.contains(c))
            .unwrap_or(whole.len());
        whole[..end].rfind('@').map(|at| &whole[..at])
    };
    // A password may contain characters that should have been escaped; but after a port begins a
    // path, and an `@` in it is part of it.
    let strict = until("/?#\"'<>`\\");
    let loose = || {
        until("\"'<>`").filter(|info| {
            !info
                .split_once(':')
                .is_some_and(|(_, rest)| begins_with_port(rest))
        })
    };
    let info = strict.or_else(loose)?;
    // A mark has a colon of its own, which separates nothing.
    let colon = info
        .match_indices(':')
        .map(|(at, _)| at)
        .find(|at| !info[..*at].ends_with("[redacted"));
    let (at, password) = match colon {
        Some(colon) => (colon + 1, &info[colon + 1..]),
        // A token instead of the user.
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

/// Returns the values of a cookie header, up to the end of the line or string; `start` is after the
/// name.
fn find_cookie(text: &str, start: usize, ahead: &mut Lookahead) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let sign = skip_bytes(bytes, start, b"\"'\\ \t");
    let value = match bytes.get(sign)? {
        b':' => skip_bytes(bytes, sign + 1, b"\"'\\ \t"),
        _ => return None,
    };
    let equals = ahead.find_next(SearchFor::EqualsSign, bytes, value, MAX_LOOK_BYTES);
    if equals >= value + MAX_LOOK_BYTES {
        return None;
    }
    let looks = text_near(text, value, MAX_LOOK_BYTES);
    // A quote ends the value only where a string can end; a cookie may contain quotes.
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
    ahead.charge(begin.len());
    if !begin.contains('=') || begin.starts_with('[') {
        return None;
    }
    let length = text[value..][..line(&text[value..])].trim_end().len();
    Some(value..value + length)
}

/// Returns the first position from `at` on whose byte is not in `set`.
fn skip_bytes(bytes: &[u8], mut at: usize, set: &[u8]) -> usize {
    while bytes.get(at).is_some_and(|byte| set.contains(byte)) {
        at += 1;
    }
    at
}

/// Returns the value that is assigned to the name which ends with `name`.
fn find_assigned(
    text: &str,
    name: Range<usize>,
    strength: SecretStrength,
    ahead: &mut Lookahead,
) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    if is_pagination_token(bytes, &name) {
        return None;
    }
    // `"password" : "…"`, `password = '…'`, `password=>…`, `\"password\":\"…\"`.
    let sign = skip_bytes(bytes, name.end, b"\"'\\] \t");
    let behind = match bytes.get(sign)? {
        b'=' | b':' => value_start(bytes, sign + 1),
        // `<password>…</password>`
        b'>' if sign == name.end => sign + 1,
        // `--password …`
        _ if sign == name.end + 1 && is_flag(bytes, &name) => sign,
        _ => return None,
    };
    let mark = skip_bytes(bytes, behind, b"\\");
    let quote = bytes
        .get(mark)
        .copied()
        .filter(|byte| b"\"'`".contains(byte));
    let start = mark + usize::from(quote.is_some());
    if text_near(text, start, 16).starts_with("-----BEGIN") {
        return find_pem(text, start, ahead);
    }
    let end = AssignedValue {
        text,
        name: name.start,
        start,
        quote,
        escaped: mark > behind,
    };
    // `PASSWORD=word` in a shell or a settings file is a value, not a word of code.
    let setting = sign == name.end
        && behind == sign + 1
        && bytes[sign] == b'='
        && is_upper_name(bytes, &name);
    let most = match strength {
        SecretStrength::Any => MAX_LOOK_BYTES,
        SecretStrength::Random => MAX_RANDOM_BYTES,
    };
    let plain = quote.is_none() && !setting;
    if plain && is_certainly_harmless(bytes, start, strength, ahead) {
        return None;
    }
    let value = end.value_text(most);
    ahead.charge(value.len());
    if is_working_directory(bytes, &name, value) {
        return None;
    }
    // `token = next_token()` is a call, `token: Token<'a>` a type.
    let code = quote.is_none()
        && is_word(value)
        && matches!(bytes.get(start + value.len()), Some(b'(' | b'<' | b'{'));
    let (scheme, credential) = split_scheme(value);
    let secret = match strength {
        SecretStrength::Random if scheme > 0 && credential.len() >= 8 => is_literal(credential),
        SecretStrength::Any => {
            is_literal(value)
                && is_literal(credential)
                && (quote.is_some() || setting || !is_word(value))
                && !value.starts_with(' ')
        }
        SecretStrength::Random => looks_random(credential),
    };
    if !secret || code {
        return None;
    }
    let length = if value.len() + 4 >= most {
        end.value_text(usize::MAX).len()
    } else {
        value.len()
    };
    Some(start + scheme..start + length)
}

/// Returns the start of a value after its sign: a string may be on the next line or in a list.
fn value_start(bytes: &[u8], behind: usize) -> usize {
    let here = skip_bytes(bytes, behind, b"=:> \t");
    let further = skip_bytes(bytes, here, b"[ \t\r\n");
    if matches!(bytes.get(further), Some(b'"' | b'\'')) {
        further
    } else {
        here
    }
}

/// Checks whether the name is an option such as `--password`.
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

/// Checks for a pagination token such as `next_page_token`, which a model needs to continue a list.
fn is_pagination_token(bytes: &[u8], name: &Range<usize>) -> bool {
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

/// Checks for `PWD` and `OLDPWD` with the path of a directory, which every shell exports. Any other
/// value counts: `PWD=` is also the password of a connection string.
fn is_working_directory(bytes: &[u8], name: &Range<usize>, value: &str) -> bool {
    let part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let front = bytes[..name.start].iter().rev().take(8).take_while(part);
    let whole = name.start - front.count()..name.end;
    is_directory_name(&bytes[whole]) && is_absolute_path(value)
}

/// Checks for the names that shells give to the working directory.
pub(super) fn is_directory_name(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"pwd") || name.eq_ignore_ascii_case(b"oldpwd")
}

pub(super) fn is_absolute_path(value: &str) -> bool {
    // A bare value ends before a backslash.
    let drive = |rest: &str| rest == ":" || rest.starts_with(":\\") || rest.starts_with(":/");
    let rooted = value.starts_with('/')
        || value.starts_with(|c: char| c.is_ascii_alphabetic()) && drive(&value[1..]);
    rooted && value.split(['/', '\\']).all(|part| !is_mixed(part))
}

/// Checks whether the whole name around `name` is in capitals, as settings are.
fn is_upper_name(bytes: &[u8], name: &Range<usize>) -> bool {
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

/// Checks from a few remembered positions whether a bare value cannot be a secret: it is a word as
/// in code, or has no digit where only a random text counts.
fn is_certainly_harmless(
    bytes: &[u8],
    start: usize,
    strength: SecretStrength,
    ahead: &mut Lookahead,
) -> bool {
    let word_end = ahead.find_next(SearchFor::NonWord, bytes, start, MAX_LOOK_BYTES);
    // After `Bearer` the credential is the next word.
    let first = &bytes[start..word_end.min(start + "bearer".len())];
    let is_scheme = |scheme: &&str| first.eq_ignore_ascii_case(scheme.as_bytes());
    if bytes.get(word_end) == Some(&b' ') && SCHEMES.iter().any(is_scheme) {
        return false;
    }
    match strength {
        SecretStrength::Any => {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`<>\\({".contains(byte);
            word_end >= start + MAX_LOOK_BYTES || bytes.get(word_end).is_none_or(ends)
        }
        SecretStrength::Random => {
            let digit = ahead.find_next(SearchFor::Digit, bytes, start, MAX_RANDOM_BYTES);
            digit >= start + MAX_RANDOM_BYTES
        }
    }
}

/// Words before a credential.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];

/// Splits off the scheme, which is kept so that a reader sees the kind of credential.
fn split_scheme(value: &str) -> (usize, &str) {
    let schemes = ["Bearer", "bearer", "Basic", "basic", "token", "Token"];
    let rest = schemes.iter().find_map(|scheme| value.strip_prefix(scheme));
    match rest.filter(|rest| rest.starts_with([' ', '\t'])) {
        Some(rest) => (value.len() - rest.len() + 1, &rest[1..]),
        None => (0, value),
    }
}

/// The search for the end of an assigned value.
struct AssignedValue<'a> {
    text: &'a str,
    name: usize,
    start: usize,
    quote: Option<u8>,
    /// True if the quote itself is escaped, as in JSON inside a text.
    escaped: bool,
}

impl<'a> AssignedValue<'a> {
    fn value_text(&self, most: usize) -> &'a str {
        let near = text_near(self.text, self.start, most);
        let length = match self.quote {
            Some(quote) => self.quoted_length(near.as_bytes(), quote),
            None => self.bare_length(near.as_bytes()),
        };
        &near[..near.floor_char_boundary(length)]
    }

    fn quoted_length(&self, bytes: &[u8], quote: u8) -> usize {
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

    fn bare_length(&self, bytes: &[u8]) -> usize {
        let before = &self.text.as_bytes()[self.name.saturating_sub(MAX_TEST_BYTES)..self.name];
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
            // The text so far may be the name of a function or type.
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
        // `Bearer` alone is not a credential; the word after it is.
        let scheme = SCHEMES
            .iter()
            .any(|word| bytes[..first].eq_ignore_ascii_case(word.as_bytes()));
        if !scheme || bytes.get(first) != Some(&b' ') {
            return first;
        }
        length(first + 1).map_or(bytes.len(), |length| first + 1 + length)
    }
}

/// Checks whether a value is a literal: not empty, not a variable, not a placeholder, not already
/// redacted.
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

/// Checks whether the whole value is a variable or a placeholder.
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
    // Only a mask that we make, or text after its beginning would not be redacted. The end of a bare
    // value may lack the bracket.
    let masked = value
        .strip_prefix("[redacted:")
        .map(|rest| rest.strip_suffix(']').unwrap_or(rest));
    variable
        || within("${", "}").is_some()
        || within("$(", ")").is_some()
        || within("{{", "}}").is_some()
        || masked.is_some_and(is_secret_kind)
        || within("<", ">").is_some_and(word)
        || within("%", "%").is_some_and(word)
        || value.bytes().all(|b| b == b'*')
        || value.len() > 2
            && value
                .bytes()
                .all(|b| matches!(b, b'x' | b'X' | b'.' | b'-'))
        || ["process.env", "os.environ", "env."]
            .iter()
            .any(|begin| value.starts_with(begin) && is_code_word(value))
}

fn is_code_word(value: &str) -> bool {
    value
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_.[]'\"".contains(&b))
}

/// Checks for a plain word or a path of code such as `config.password` or `&str`, as it follows
/// `password:` in a program.
fn is_word(value: &str) -> bool {
    value
        .bytes()
        .all(|b| b.is_ascii_alphabetic() || b"_.:&*|?!".contains(&b))
}

/// Checks whether a value looks randomly generated.
pub(crate) fn looks_random(value: &str) -> bool {
    if value.len() < 12 || !is_literal(value) || value.contains(' ') || !has_variety(value) {
        return false;
    }
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    digits > 0 && letters > 0 && !is_path(value) && entropy(value) > 3.0
}

/// Checks for more than eight different bytes. With fewer, the entropy is at most three bits.
fn has_variety(value: &str) -> bool {
    let mut seen = [0_u64; 4];
    value
        .bytes()
        .for_each(|byte| seen[usize::from(byte / 64)] |= 1 << (byte % 64));
    seen.iter().map(|bits| bits.count_ones()).sum::<u32>() > 8
}

/// Checks for a path such as `src/auth/token.rs`, as opposed to base64 with slashes.
fn is_path(value: &str) -> bool {
    let parts = value.split(['/', '.']).filter(|part| !part.is_empty());
    let rooted = ["/", "./", "../", "~/"]
        .iter()
        .any(|root| value.starts_with(root));
    let separators = value.bytes().filter(|b| b"/.".contains(b)).count();
    (rooted || separators > 2)
        && parts
            .into_iter()
            .all(|part| part.len() <= 32 && !is_mixed(part))
}

/// Computes the entropy in bits per byte.
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
        for pattern in [CURL_USER, NETRC_ENTRY] {
            assert!(Regex::new(pattern).is_ok(), "{pattern}");
        }
        for detector in SHAPE_DETECTORS {
            let (DetectorLook::Shape(pattern) | DetectorLook::ShapeIf(pattern, _)) = detector.look
            else {
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
