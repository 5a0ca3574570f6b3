//! Finds secrets in text and JSON and writes a mark in their place.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};
use toolgate_core::{Json, RedactionFailed, Redactor};

use crate::detectors::{Compiled, OTHERS, SHAPES, is_literal};

/// Knows what secrets look like. Cloning shares it.
///
/// It knows the shapes of common tokens, private keys, passwords in URLs, cookies, names that a password or token is
/// assigned to, and the names of JSON fields that hold them. Values that are known to be secret can be added. Ordinary
/// text, hashes, UUIDs and encoded images stay as they are.
///
/// ```
/// use toolgate_layers::Secrets;
/// let secrets = Secrets::standard();
/// assert_eq!(secrets.text("curl https://ann:hunter2@host/x"), "curl https://ann:[redacted:url_password]@host/x");
/// assert_eq!(secrets.text("commit 3f786850e387550fdab836ed7e6dc881de23001b"), "commit 3f786850e387550fdab836ed7e6dc881de23001b");
/// ```
#[derive(Clone)]
pub struct Secrets(Arc<Inner>);

struct Inner {
    anchors: AhoCorasick,
    /// What to do at each anchor.
    detectors: Vec<Anchor>,
    /// Names of fields besides the bundled ones.
    fields: BTreeSet<String>,
    shown_fields: BTreeSet<String>,
}

enum Anchor {
    Shape(Compiled),
    /// The anchor itself is the secret.
    Known,
}

/// How the names of secret fields end, in lower case without `_` and `-`.
const FIELDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "authorization",
    "cookie",
    "privatekey",
    "secretkey",
    "accesskey",
    "signingkey",
    "encryptionkey",
    "credentials",
    "accountkey",
    "sharedaccesskey",
];

/// Names that end like a secret and hold none: a model needs them to go on.
const NOT_SECRET: &[&str] = &[
    "pagetoken",
    "nexttoken",
    "continuationtoken",
    "synctoken",
    "cursortoken",
    "cancellationtoken",
    "stoptoken",
    "padtoken",
    "eostoken",
    "bostoken",
    "masktoken",
    "unktoken",
];

/// No name of a secret field is longer.
const LONGEST_NAME: usize = 64;

/// Known values shorter than this would turn up in ordinary text.
const SHORTEST_KNOWN: usize = 8;

impl Secrets {
    /// Everything that is bundled.
    pub fn standard() -> Self {
        Self::with(SecretsOptions::default(), [])
    }

    /// What is bundled, with more or fewer fields, and values that are known to be secret.
    ///
    /// Known values of less than eight bytes are not searched for: they would turn up in ordinary text.
    pub fn with(options: SecretsOptions, known: impl IntoIterator<Item = String>) -> Self {
        let (mut patterns, mut detectors) = (Vec::new(), Vec::new());
        for value in known.into_iter().filter(|value| value.len() >= SHORTEST_KNOWN) {
            patterns.push(value);
            detectors.push(Anchor::Known);
        }
        for detector in SHAPES.iter().chain(OTHERS) {
            patterns.push(detector.anchor.to_owned());
            detectors.push(Anchor::Shape(Compiled::new(detector)));
        }
        // The longest anchor at a place is the most specific: `sk-ant-` before `sk-`.
        let anchors = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(aho_corasick::AhoCorasickKind::DFA))
            .build(patterns)
            .expect("a few dozen short patterns fit");
        let normal = |names: &[String]| {
            let name = |name: &String| field_name(name, &mut [0; LONGEST_NAME]).map(str::to_owned);
            names.iter().filter_map(name).collect()
        };
        let (fields, shown_fields) = (normal(&options.fields), normal(&options.shown_fields));
        Self(Arc::new(Inner { anchors, detectors, fields, shown_fields }))
    }

    /// The text with every secret replaced by a mark such as `[redacted:jwt]`.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = String::new();
        let mut copied = 0;
        for found in self.0.anchors.find_iter(text) {
            let anchor = found.range();
            // A secret that began earlier covers this anchor as well.
            if anchor.start < copied {
                continue;
            }
            let (kind, secret) = match &self.0.detectors[found.pattern().as_usize()] {
                Anchor::Known => ("known", Some(anchor)),
                Anchor::Shape(detector) => (detector.kind, detector.find(text, anchor)),
            };
            let Some(secret) = secret.filter(|range| !range.is_empty() && range.start >= copied) else { continue };
            out.push_str(&text[copied..secret.start]);
            out.push_str("[redacted:");
            out.push_str(kind);
            out.push(']');
            copied = secret.end;
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[copied..]);
        Cow::Owned(out)
    }

    /// A copy of the value without secrets; nothing if there are none in it.
    pub fn value(&self, value: &Value) -> Option<Value> {
        match value {
            Value::String(text) => match self.text(text) {
                Cow::Borrowed(_) => None,
                Cow::Owned(text) => Some(Value::String(text)),
            },
            Value::Array(items) => each(items, |item| self.value(item)),
            Value::Object(map) => self.object(map).map(Value::Object),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    fn object(&self, map: &Map<String, Value>) -> Option<Map<String, Value>> {
        let mut copy: Option<Map<String, Value>> = None;
        for (key, value) in map {
            let shown = match self.text(key) {
                Cow::Borrowed(_) => None,
                Cow::Owned(key) => Some(key),
            };
            let kind = self.field(key);
            let changed = match kind {
                Some(kind) => conceal(value, kind),
                None => self.value(value),
            };
            if changed.is_none() && shown.is_none() {
                continue;
            }
            let copy = copy.get_or_insert_with(|| map.clone());
            let changed = changed.unwrap_or_else(|| value.clone());
            match shown {
                None => drop(copy.insert(key.clone(), changed)),
                Some(shown) => {
                    copy.remove(key);
                    copy.insert(shown, changed);
                }
            }
        }
        copy
    }

    /// The kind of secret that a field of this name holds.
    fn field(&self, key: &str) -> Option<&'static str> {
        let mut buffer = [0; LONGEST_NAME];
        let name = field_name(key, &mut buffer)?;
        if self.0.shown_fields.contains(name) {
            return None;
        }
        if self.0.fields.contains(name) {
            return Some("field");
        }
        let ends = |word: &&&str| name.ends_with(**word);
        let kind = FIELDS.iter().find(ends)?;
        NOT_SECRET.iter().find(ends).is_none().then_some(kind)
    }
}

/// What is secret besides what is bundled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretsOptions {
    /// Names of fields whose values are secret.
    pub fields: Vec<String>,
    /// Names of fields that are shown although the bundled list has them.
    pub shown_fields: Vec<String>,
}

impl Redactor for Secrets {
    fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
        match self.value(value) {
            None => Ok(value.clone()),
            Some(value) => Json::new(value).map_err(|_| RedactionFailed),
        }
    }

    fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
        Ok(self.text(text).into_owned())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No known values here.
        f.debug_struct("Secrets").field("detectors", &self.0.detectors.len()).finish_non_exhaustive()
    }
}

/// A copy of the items of which some were changed; nothing if none was.
fn each(items: &[Value], change: impl Fn(&Value) -> Option<Value>) -> Option<Value> {
    let changed: Vec<_> = items.iter().map(change).collect();
    let merge = |(new, old): (Option<Value>, &Value)| new.unwrap_or_else(|| old.clone());
    changed.iter().any(Option::is_some).then(|| changed.into_iter().zip(items).map(merge).collect())
}

/// Replaces every literal inside a secret field.
fn conceal(value: &Value, kind: &str) -> Option<Value> {
    let mark = || Value::String(format!("[redacted:{kind}]"));
    match value {
        Value::String(text) => is_literal(text).then(mark),
        // `"token": 7` counts something; a password may be all digits.
        Value::Number(_) => {
            matches!(kind, "password" | "passwd" | "pwd" | "passphrase" | "secret" | "field").then(mark)
        }
        Value::Array(items) => each(items, |item| conceal(item, kind)),
        Value::Object(map) => {
            let mut copy: Option<Map<String, Value>> = None;
            for (key, value) in map {
                if let Some(hidden) = conceal(value, kind) {
                    copy.get_or_insert_with(|| map.clone()).insert(key.clone(), hidden);
                }
            }
            copy.map(Value::Object)
        }
        Value::Null | Value::Bool(_) => None,
    }
}

/// `X-Api-Key`, `api_key` and `apiKey` are one name, written into `buffer`; nothing for a name that is too long to be one.
fn field_name<'a>(key: &str, buffer: &'a mut [u8; LONGEST_NAME]) -> Option<&'a str> {
    let mut length = 0;
    for byte in key.bytes().filter(|byte| !matches!(byte, b'_' | b'-' | b' ' | b'.')) {
        *buffer.get_mut(length)? = byte.to_ascii_lowercase();
        length += 1;
    }
    std::str::from_utf8(&buffer[..length]).ok()
}
