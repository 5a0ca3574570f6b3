//! Finds secrets in text and JSON and writes a mark in their place.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    sync::{Arc, LazyLock, OnceLock},
};

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, Match, MatchKind};
use serde_json::{Map, Value};
use toolgate_core::{Json, RedactionFailed, Redactor};

use crate::detectors::{BUNDLED, is_literal};

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
    /// Everything by which a secret is found: first the values that are known, then the bundled anchors.
    anchors: Arc<Anchors>,
    /// Names of fields besides the bundled ones.
    fields: BTreeSet<String>,
    shown_fields: BTreeSet<String>,
}

/// Finds known values and bundled anchors.
struct Anchors {
    known: Vec<String>,
    beginnings: Beginnings,
    /// Made for the first text that has an anchor in it: that takes longer than most programs need to start.
    automaton: OnceLock<AhoCorasick>,
}

/// The bundled anchors alone: most stacks know no values.
static BUNDLED_ANCHORS: LazyLock<Arc<Anchors>> =
    LazyLock::new(|| Arc::new(Anchors::new(Vec::new())));

impl Anchors {
    fn new(known: Vec<String>) -> Self {
        let beginnings = Beginnings::new(patterns(&known));
        Self {
            known,
            beginnings,
            automaton: OnceLock::new(),
        }
    }

    fn find_iter<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Match> + 'a {
        let look = |from| self.automaton().find_iter(Input::new(text).range(from..));
        self.first_in(text.as_bytes())
            .map(look)
            .into_iter()
            .flatten()
    }

    /// A place before which no anchor begins; mostly the place of the first one.
    fn first_in(&self, text: &[u8]) -> Option<usize> {
        // A text that looks like anchors again and again is what the automaton is for.
        const MOST_LOOKS: usize = 16;
        self.beginnings
            .in_text(text)
            .enumerate()
            .find_map(|(looks, (at, patterns))| {
                let begins = |(_, pattern): &(usize, usize)| {
                    let pattern = self.pattern(*pattern).as_bytes();
                    text[at..]
                        .get(..pattern.len())
                        .is_some_and(|here| here.eq_ignore_ascii_case(pattern))
                };
                (looks == MOST_LOOKS || patterns.iter().any(begins)).then_some(at)
            })
    }

    fn pattern(&self, number: usize) -> &str {
        let bundled = |number: usize| BUNDLED[number - self.known.len()].anchor;
        self.known
            .get(number)
            .map_or_else(|| bundled(number), String::as_str)
    }

    fn automaton(&self) -> &AhoCorasick {
        self.automaton.get_or_init(|| {
            // The longest anchor at a place is the most specific: `sk-ant-` before `sk-`.
            AhoCorasick::builder()
                .ascii_case_insensitive(true)
                .match_kind(MatchKind::LeftmostLongest)
                .kind(Some(AhoCorasickKind::DFA))
                .build(patterns(&self.known))
                .expect("a few dozen short patterns fit")
        })
    }
}

fn patterns(known: &[String]) -> impl Iterator<Item = &str> {
    known
        .iter()
        .map(String::as_str)
        .chain(BUNDLED.iter().map(|detector| detector.anchor))
}

/// With which three letters patterns begin. Most short texts have none of them anywhere, which is seen several times as
/// fast as an automaton can say it.
struct Beginnings {
    /// A bit for each kind of three letters.
    kinds: Box<[u64; Self::KINDS / 64]>,
    /// Kinds with the numbers of the patterns that begin so, in order.
    patterns: Vec<(usize, usize)>,
}

impl Beginnings {
    const LETTERS: usize = 3;
    /// Of each letter five bits count, so that large and small ones are the same.
    const KINDS: usize = 1 << (5 * Self::LETTERS);

    fn new<'p>(patterns: impl Iterator<Item = &'p str>) -> Self {
        let kind = |pattern: &str| {
            let letters = pattern
                .as_bytes()
                .first_chunk::<{ Self::LETTERS }>()
                .expect("patterns are longer");
            letters
                .iter()
                .fold(0, |kind, letter| Self::next(kind, *letter))
        };
        let mut patterns: Vec<_> = patterns
            .map(kind)
            .enumerate()
            .map(|(number, kind)| (kind, number))
            .collect();
        patterns.sort_unstable();
        let mut kinds = Box::new([0; Self::KINDS / 64]);
        patterns
            .iter()
            .for_each(|(kind, _)| kinds[kind / 64] |= 1 << (kind % 64));
        Self { kinds, patterns }
    }

    /// The places where patterns may begin, with those patterns.
    fn in_text<'t>(
        &'t self,
        text: &'t [u8],
    ) -> impl Iterator<Item = (usize, &'t [(usize, usize)])> {
        let mut kind = 0;
        let kinds = text.iter().map(move |letter| {
            kind = Self::next(kind, *letter);
            kind
        });
        let ends = kinds.enumerate().skip(Self::LETTERS - 1);
        ends.filter(|(_, kind)| self.kinds[kind / 64] >> (kind % 64) & 1 == 1)
            .map(|(end, kind)| {
                let first = self.patterns.partition_point(|(other, _)| *other < kind);
                let same = self.patterns[first..].partition_point(|(other, _)| *other == kind);
                (end + 1 - Self::LETTERS, &self.patterns[first..first + same])
            })
    }

    fn next(kind: usize, letter: u8) -> usize {
        (kind << 5 | usize::from(letter & 0x1f)) % Self::KINDS
    }
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
    "credential",
    "secrets",
    "passwords",
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
        let known: Vec<String> = known
            .into_iter()
            .filter(|value| value.len() >= SHORTEST_KNOWN)
            .collect();
        let anchors = if known.is_empty() {
            BUNDLED_ANCHORS.clone()
        } else {
            Arc::new(Anchors::new(known))
        };
        let normal = |names: &[String]| {
            let name = |name: &String| field_name(name, &mut [0; LONGEST_NAME]).map(str::to_owned);
            names.iter().filter_map(name).collect()
        };
        let (fields, shown_fields) = (normal(&options.fields), normal(&options.shown_fields));
        Self(Arc::new(Inner {
            anchors,
            fields,
            shown_fields,
        }))
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
            let (kind, secret) = match found
                .pattern()
                .as_usize()
                .checked_sub(self.0.anchors.known.len())
            {
                // The anchor itself is the secret.
                None => ("known", Some(anchor)),
                Some(bundled) => (BUNDLED[bundled].kind, BUNDLED[bundled].find(text, anchor)),
            };
            let Some(secret) = secret.filter(|range| !range.is_empty() && range.start >= copied)
            else {
                continue;
            };
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
            Value::Array(items) => self.lines(items),
            Value::Object(map) => self.object(map).map(Value::Object),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    /// The same for an object.
    pub(crate) fn object(&self, map: &Map<String, Value>) -> Option<Map<String, Value>> {
        // `{"name": "DB_PASSWORD", "value": "…"}`
        let named = ["name", "key"]
            .iter()
            .find_map(|key| map.get(*key)?.as_str())
            .and_then(|name| self.field(name));
        self.members(map, |key, value| match (self.field(key), named) {
            (Some(kind), _) => self.conceal(value, kind),
            (None, Some(kind)) if key == "value" => self.conceal(value, kind),
            (None, _) => self.value(value),
        })
    }

    /// A copy of the object of which some members or their names were changed; nothing if none was.
    fn members(
        &self,
        map: &Map<String, Value>,
        change: impl Fn(&str, &Value) -> Option<Value>,
    ) -> Option<Map<String, Value>> {
        let mut copy: Option<Map<String, Value>> = None;
        for (key, value) in map {
            let shown = match self.text(key) {
                Cow::Borrowed(_) => None,
                Cow::Owned(key) => Some(key),
            };
            let changed = change(key, value);
            if changed.is_none() && shown.is_none() {
                continue;
            }
            let copy = copy.get_or_insert_with(|| map.clone());
            let changed = changed.unwrap_or_else(|| value.clone());
            if let Some(shown) = shown {
                copy.remove(key);
                copy.insert(shown, changed);
            } else {
                copy.insert(key.clone(), changed);
            }
        }
        copy
    }

    /// The words of a command or the name and value of a header: a name may stand in front of its secret.
    fn words(&self, items: &[Value]) -> Option<Value> {
        let names = |at: usize| {
            let word = items.get(at.checked_sub(1)?)?.as_str()?;
            // A flag, or the first of two: any other word may only talk of passwords.
            (word.starts_with("--") || items.len() == 2 && at == 1).then(|| self.field(word))?
        };
        let changed: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(at, item)| match (names(at), item) {
                (Some(kind), Value::String(_)) => self.conceal(item, kind),
                _ => self.value(item),
            })
            .collect();
        merged(items, changed)
    }

    /// The lines of a text: a private key may begin in one and end in another.
    fn lines(&self, items: &[Value]) -> Option<Value> {
        let has = |item: &Value, word: &str| item.as_str().is_some_and(|text| text.contains(word));
        let Some(begin) = items
            .iter()
            .position(|item| has(item, "-----BEGIN") && has(item, "PRIVATE KEY-----"))
        else {
            return self.words(items);
        };
        let length = items[begin..]
            .iter()
            .position(|item| has(item, "-----END"))
            .map_or(items.len() - begin, |at| at + 1);
        let mark = || Value::String("[redacted:private_key]".to_owned());
        let line = |(at, item): (usize, &Value)| match item {
            Value::String(_) if (begin..begin + length).contains(&at) => mark(),
            item => self.value(item).unwrap_or_else(|| item.clone()),
        };
        Some(items.iter().enumerate().map(line).collect())
    }

    /// Replaces every literal inside a secret field.
    fn conceal(&self, value: &Value, kind: &str) -> Option<Value> {
        let mark = || Value::String(format!("[redacted:{kind}]"));
        match value {
            Value::String(text) if is_literal(text) => Some(mark()),
            Value::String(_) => self.value(value),
            // `"token": 7` counts something; a password may be all digits.
            Value::Number(_) => matches!(
                kind,
                "password" | "passwd" | "pwd" | "passphrase" | "secret" | "field"
            )
            .then(mark),
            Value::Array(items) => each(items, |item| self.conceal(item, kind)),
            Value::Object(map) => self
                .members(map, |_, value| self.conceal(value, kind))
                .map(Value::Object),
            Value::Null | Value::Bool(_) => None,
        }
    }

    /// The kind of secret that a field of this name holds.
    fn field(&self, key: &str) -> Option<&'static str> {
        // The end of a name says what it is.
        let key = &key[key.ceil_char_boundary(key.len().saturating_sub(LONGEST_NAME))..];
        let mut buffer = [0; LONGEST_NAME];
        let name = field_name(key, &mut buffer)?.trim_end_matches(|c: char| c.is_ascii_digit());
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
        f.debug_struct("Secrets")
            .field("known", &self.0.anchors.known.len())
            .finish_non_exhaustive()
    }
}

/// A copy of the items of which some were changed; nothing if none was.
fn each(items: &[Value], change: impl Fn(&Value) -> Option<Value>) -> Option<Value> {
    merged(items, items.iter().map(change).collect())
}

fn merged(items: &[Value], changed: Vec<Option<Value>>) -> Option<Value> {
    let merge = |(new, old): (Option<Value>, &Value)| new.unwrap_or_else(|| old.clone());
    changed
        .iter()
        .any(Option::is_some)
        .then(|| changed.into_iter().zip(items).map(merge).collect())
}

/// `X-Api-Key`, `api_key` and `apiKey` are one name, written into `buffer`; nothing for a name that is too long to be one.
fn field_name<'a>(key: &str, buffer: &'a mut [u8; LONGEST_NAME]) -> Option<&'a str> {
    let mut length = 0;
    for byte in key
        .bytes()
        .filter(|byte| !matches!(byte, b'_' | b'-' | b' ' | b'.' | b':' | b'?'))
    {
        *buffer.get_mut(length)? = byte.to_ascii_lowercase();
        length += 1;
    }
    std::str::from_utf8(&buffer[..length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    static ANCHORS: LazyLock<Anchors> = LazyLock::new(|| {
        Anchors::new(vec![
            "swordfish-7".to_owned(),
            "köche-und-köchinnen".to_owned(),
        ])
    });

    fn piece() -> impl Strategy<Value = String> {
        let anchor =
            (0..BUNDLED.len(), any::<bool>(), 0..24_usize).prop_map(|(at, large, length)| {
                let anchor = BUNDLED[at].anchor;
                let cut = &anchor[..length.min(anchor.len())];
                if large {
                    cut.to_uppercase()
                } else {
                    cut.to_owned()
                }
            });
        let known = prop::sample::select(vec![
            "swordfish-7",
            "SWORDFISH-7",
            "swo",
            "köche-und-köchinnen",
            "KöCHE-UND-KöCHINNEN",
        ]);
        let known = known.prop_map(str::to_owned);
        prop_oneof![3 => anchor, 1 => known, 3 => "[ -~]{0,9}", 1 => "\\PC{0,5}"]
    }

    proptest! {
        #[test]
        fn every_anchor_is_found_wherever_it_begins(pieces in prop::collection::vec(piece(), 0..12)) {
            let text = pieces.concat();
            let found: Vec<Match> = ANCHORS.find_iter(&text).collect();
            prop_assert_eq!(found, ANCHORS.automaton().find_iter(&text).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_text_without_anchors_needs_no_automaton() {
        let anchors = Anchors::new(Vec::new());
        for text in [
            "",
            "a",
            "hello world",
            "src/lib.rs",
            "a passing toll",
            "sha256:9f86d081884c7d659a2feaa0c55ad015",
        ] {
            assert_eq!(anchors.find_iter(text).count(), 0, "{text}");
        }
        assert!(anchors.automaton.get().is_none());
        assert_eq!(anchors.first_in(b"pass the PASSWORD on"), Some(9));
        let places: Vec<_> = anchors
            .find_iter("pass the PASSWORD on")
            .map(|found| (found.start(), found.end()))
            .collect();
        assert_eq!(places, [(9, 17)]);
        let teasing = "tok".repeat(1_000) + "token";
        assert_eq!(
            anchors.first_in(teasing.as_bytes()),
            Some(48),
            "it does not look at each for long"
        );
        assert_eq!(
            anchors
                .find_iter(&teasing)
                .map(|found| found.start())
                .collect::<Vec<_>>(),
            [3_000]
        );
    }
}
