//! Finds secrets in text and JSON and replaces them by a mark.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    ops::Range,
    sync::{Arc, LazyLock, OnceLock},
};

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, Match, MatchKind};
use serde_json::{Map, Value};
use toolgate_core::{Json, RedactionError, Redactor, SecretSource, SecretSpan};

use crate::shape::redact::{
    detectors::{BUNDLED_DETECTORS, is_absolute_path, is_directory_name, is_literal},
    lookahead::Lookahead,
};

/// A scanner for secrets. Clones share its rules.
///
/// It recognises the formats of common tokens, private keys, passwords in URLs, cookies, names that
/// a password or token is assigned to, and the names of JSON fields that hold them. Values that are
/// known to be secret can be added. Ordinary text, hashes, UUIDs and encoded images stay unchanged.
///
/// ```
/// use toolgate_layers::SecretScanner;
/// let secrets = SecretScanner::standard();
/// assert_eq!(secrets.redact_str("curl https://ann:hunter2@host/x"), "curl https://ann:[redacted:url_password]@host/x");
/// assert_eq!(secrets.redact_str("commit 3f786850e387550fdab836ed7e6dc881de23001b"), "commit 3f786850e387550fdab836ed7e6dc881de23001b");
/// ```
#[derive(Clone)]
pub struct SecretScanner(Arc<ScannerRules>);

struct ScannerRules {
    /// The anchors of all secrets: first the known values, then the bundled anchors.
    anchors: Arc<AnchorIndex>,
    /// Names of fields besides the bundled ones.
    fields: BTreeSet<String>,
    shown_fields: BTreeSet<String>,
}

/// The index of known values and bundled anchors.
struct AnchorIndex {
    known: Vec<String>,
    beginnings: PatternPrefixes,
    /// Built for the first text with an anchor, because building it takes longer than most programs
    /// need to start.
    automaton: OnceLock<AhoCorasick>,
    /// The known values alone. An anchor that begins earlier would hide one that it overlaps.
    known_automaton: OnceLock<AhoCorasick>,
}

/// The bundled anchors alone: most stacks have no known values.
static BUNDLED_ANCHORS: LazyLock<Arc<AnchorIndex>> =
    LazyLock::new(|| Arc::new(AnchorIndex::new(Vec::new())));

impl AnchorIndex {
    fn new(known: Vec<String>) -> Self {
        let beginnings = PatternPrefixes::new(all_patterns(&known));
        Self {
            known,
            beginnings,
            automaton: OnceLock::new(),
            known_automaton: OnceLock::new(),
        }
    }

    fn find_iter<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Match> + 'a {
        let look = |from| self.automaton().find_iter(Input::new(text).range(from..));
        self.first_in(text.as_bytes())
            .map(look)
            .into_iter()
            .flatten()
    }

    /// Returns where known values are, whatever anchors overlap them.
    fn known_values<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        let automaton = self.known_automaton();
        let found = automaton.map(|automaton| automaton.find_iter(text));
        found.into_iter().flatten().map(|found| found.range())
    }

    fn known_automaton(&self) -> Option<&AhoCorasick> {
        let build = || build_automaton(self.known.iter().map(String::as_str));
        (!self.known.is_empty()).then(|| self.known_automaton.get_or_init(build))
    }

    /// Returns a position before which no anchor begins; usually that of the first one.
    fn first_in(&self, text: &[u8]) -> Option<usize> {
        // After many false starts the automaton is faster.
        const MAX_FALSE_STARTS: usize = 16;
        self.beginnings
            .candidates_in(text)
            .enumerate()
            .find_map(|(looks, (at, patterns))| {
                let begins = |(_, pattern): &(usize, usize)| {
                    let pattern = self.pattern_text(*pattern).as_bytes();
                    text[at..]
                        .get(..pattern.len())
                        .is_some_and(|here| here.eq_ignore_ascii_case(pattern))
                };
                (looks == MAX_FALSE_STARTS || patterns.iter().any(begins)).then_some(at)
            })
    }

    /// Returns the position at which the end of the text may be the beginning of a known value.
    fn begun_known_value(&self, text: &str) -> Option<usize> {
        let longest = self.known.iter().map(String::len).max()?;
        let first = text.ceil_char_boundary(text.len().saturating_sub(longest));
        let begins = |rest: &[u8]| {
            let same = |known: &String| {
                let beginning = known.as_bytes().get(..rest.len());
                beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(rest))
            };
            self.known.iter().any(same)
        };
        (first..text.len()).find(|at| text.is_char_boundary(*at) && begins(&text.as_bytes()[*at..]))
    }

    fn pattern_text(&self, number: usize) -> &str {
        let bundled = |number: usize| BUNDLED_DETECTORS[number - self.known.len()].anchor;
        self.known
            .get(number)
            .map_or_else(|| bundled(number), String::as_str)
    }

    fn automaton(&self) -> &AhoCorasick {
        self.automaton
            .get_or_init(|| build_automaton(all_patterns(&self.known)))
    }
}

fn build_automaton<'p>(patterns: impl Iterator<Item = &'p str>) -> AhoCorasick {
    // The longest anchor at a position is the most specific: `sk-ant-` before `sk-`.
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostLongest)
        .kind(Some(AhoCorasickKind::DFA))
        .build(patterns)
        .expect("a few dozen short patterns fit")
}

/// Sorts ranges and joins those that overlap. The first one gives the kind.
fn merge_ranges(
    mut ranges: Vec<(&'static str, Range<usize>)>,
) -> Vec<(&'static str, Range<usize>)> {
    ranges.sort_by_key(|(_, range)| range.start);
    ranges.dedup_by(|(_, later), (_, earlier)| {
        let overlaps = later.start < earlier.end;
        if overlaps {
            earlier.end = earlier.end.max(later.end);
        }
        overlaps
    });
    ranges
}

fn all_patterns(known: &[String]) -> impl Iterator<Item = &str> {
    known
        .iter()
        .map(String::as_str)
        .chain(BUNDLED_DETECTORS.iter().map(|detector| detector.anchor))
}

/// The first three letters of all patterns. Most short texts contain none of them, and this check
/// is several times faster than the automaton.
struct PatternPrefixes {
    /// One bit for each combination of three letters.
    kinds: Box<[u64; Self::KINDS / 64]>,
    /// Combinations with the numbers of the patterns that begin with them, sorted.
    patterns: Vec<(usize, usize)>,
}

impl PatternPrefixes {
    const LETTERS: usize = 3;
    /// Five bits of each letter count, so that case is ignored.
    const KINDS: usize = 1 << (5 * Self::LETTERS);

    fn new<'p>(patterns: impl Iterator<Item = &'p str>) -> Self {
        let kind = |pattern: &str| {
            let letters = pattern
                .as_bytes()
                .first_chunk::<{ Self::LETTERS }>()
                .expect("patterns are longer");
            letters
                .iter()
                .fold(0, |kind, letter| Self::shift_letter(kind, *letter))
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

    /// Returns the positions where patterns may begin, with those patterns.
    fn candidates_in<'t>(
        &'t self,
        text: &'t [u8],
    ) -> impl Iterator<Item = (usize, &'t [(usize, usize)])> {
        let mut kind = 0;
        let kinds = text.iter().map(move |letter| {
            kind = Self::shift_letter(kind, *letter);
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

    fn shift_letter(kind: usize, letter: u8) -> usize {
        (kind << 5 | usize::from(letter & 0x1f)) % Self::KINDS
    }
}

/// Endings of the names of secret fields, in lower case without `_` and `-`.
const SECRET_FIELDS: &[&str] = &[
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

/// Checks whether a mask names this kind of secret.
pub(super) fn is_secret_kind(kind: &str) -> bool {
    ["known", "field", "private_key"].contains(&kind)
        || SECRET_FIELDS.contains(&kind)
        || BUNDLED_DETECTORS
            .iter()
            .any(|detector| detector.kind == kind)
}

/// Names that end like a secret and hold none: a model needs them to continue a list.
const HARMLESS_FIELDS: &[&str] = &[
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

/// Maximum length of the name of a secret field.
const MAX_NAME_BYTES: usize = 64;

/// Minimum length of a known value. Shorter ones would occur in ordinary text.
const MIN_KNOWN_BYTES: usize = 8;

impl SecretScanner {
    /// Creates a scanner with the bundled rules.
    pub fn standard() -> Self {
        Self::with_options(SecretScannerOptions::default(), [])
    }

    /// Creates a scanner with the bundled rules, more or fewer fields, and values that are known to
    /// be secret.
    ///
    /// Known values of less than eight bytes are ignored: they would occur in ordinary text.
    pub fn with_options(
        options: SecretScannerOptions,
        known: impl IntoIterator<Item = String>,
    ) -> Self {
        let known: Vec<String> = known
            .into_iter()
            .filter(|value| value.len() >= MIN_KNOWN_BYTES)
            .collect();
        let anchors = if known.is_empty() {
            BUNDLED_ANCHORS.clone()
        } else {
            Arc::new(AnchorIndex::new(known))
        };
        let normal = |names: &[String]| {
            let name = |name: &String| {
                normalize_field_name(name, &mut [0; MAX_NAME_BYTES]).map(str::to_owned)
            };
            names.iter().filter_map(name).collect()
        };
        let fields = normal(&options.fields);
        let shown_fields = normal(&options.shown_fields);
        Self(Arc::new(ScannerRules {
            anchors,
            fields,
            shown_fields,
        }))
    }

    /// Returns the text with every secret replaced by a mark such as `[redacted:jwt]`.
    pub fn redact_str<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.redact_with(text, &mut Lookahead::default())
    }

    fn redact_with<'a>(&self, text: &'a str, ahead: &mut Lookahead) -> Cow<'a, str> {
        let mut out = String::new();
        let mut copied = 0;
        for (kind, secret) in self.secret_ranges(text, ahead) {
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

    /// Returns the secrets in a text with their kinds, in order and without overlaps.
    fn secret_ranges(
        &self,
        text: &str,
        ahead: &mut Lookahead,
    ) -> Vec<(&'static str, Range<usize>)> {
        let anchors = &self.0.anchors;
        let known = anchors.known_values(text).map(|range| ("known", range));
        let mut secrets: Vec<(&'static str, Range<usize>)> = known.collect();
        // The secrets that reach beyond the last anchor.
        let mut open: Vec<Range<usize>> = Vec::new();
        for found in anchors.find_iter(text) {
            let anchor = found.range();
            open.retain(|secret| secret.end > anchor.start);
            let bundled = found.pattern().as_usize().checked_sub(anchors.known.len());
            // A secret that began before this anchor covers it. One that begins after it does not:
            // between `://` and a password there may be another secret.
            let is_covered = open.iter().any(|secret| secret.start <= anchor.start);
            let Some(detector) = bundled.map(|number| &BUNDLED_DETECTORS[number]) else {
                continue;
            };
            let secret = if is_covered {
                None
            } else {
                detector.find_secret(text, anchor, ahead)
            };
            if let Some(secret) = secret.filter(|range| !range.is_empty()) {
                open.push(secret.clone());
                secrets.push((detector.kind, secret));
            }
        }
        merge_ranges(secrets)
    }

    /// Returns a redacted copy of the value, or `None` if it has no secrets.
    pub fn redacted_value(&self, value: &Value) -> Option<Value> {
        match value {
            Value::String(text) => match self.redact_str(text) {
                Cow::Borrowed(_) => None,
                Cow::Owned(text) => Some(Value::String(text)),
            },
            Value::Array(items) => self.redacted_lines(items),
            Value::Object(map) => self.redacted_object(map).map(Value::Object),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    /// Returns a redacted copy of the object, or `None` if it has no secrets.
    pub(crate) fn redacted_object(&self, map: &Map<String, Value>) -> Option<Map<String, Value>> {
        // `{"name": "DB_PASSWORD", "value": "…"}`
        let name = ["name", "key"]
            .iter()
            .find_map(|key| map.get(*key)?.as_str());
        let named = name.and_then(|name| self.secret_kind(name));
        self.changed_members(map, |key, value| match (self.secret_kind(key), named) {
            (Some("pwd"), _) if is_working_directory(key, value) => self.redacted_value(value),
            (None, Some("pwd")) if is_working_directory(name.unwrap_or_default(), value) => {
                self.redacted_value(value)
            }
            (Some(kind), _) => self.mask_literals(value, kind),
            (None, Some(kind)) if key == "value" => self.mask_literals(value, kind),
            (None, _) => self.redacted_value(value),
        })
    }

    /// Returns a copy of the object with changed members or names, or `None` if none changed.
    fn changed_members(
        &self,
        map: &Map<String, Value>,
        change: impl Fn(&str, &Value) -> Option<Value>,
    ) -> Option<Map<String, Value>> {
        let mut copy: Option<Map<String, Value>> = None;
        for (key, value) in map {
            let shown = match self.redact_str(key) {
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

    /// Redacts the words of a command, or the name and value of a header: a name may precede its
    /// secret.
    fn redacted_words(&self, items: &[Value]) -> Option<Value> {
        let names = |at: usize| {
            let word = items.get(at.checked_sub(1)?)?.as_str()?;
            // Only a flag, or the first of two words: any other word may merely mention passwords.
            (word.starts_with("--") || items.len() == 2 && at == 1)
                .then(|| self.secret_kind(word))?
        };
        let changed: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(at, item)| match (names(at), item) {
                (Some(kind), Value::String(_)) => self.mask_literals(item, kind),
                _ => self.redacted_value(item),
            })
            .collect();
        merge_items(items, changed)
    }

    /// Redacts the lines of a text: a private key may begin in one and end in another.
    fn redacted_lines(&self, items: &[Value]) -> Option<Value> {
        let has = |item: &Value, word: &str| item.as_str().is_some_and(|text| text.contains(word));
        let Some(begin) = items
            .iter()
            .position(|item| has(item, "-----BEGIN") && has(item, "PRIVATE KEY-----"))
        else {
            return self.redacted_words(items);
        };
        let length = items[begin..]
            .iter()
            .position(|item| has(item, "-----END"))
            .map_or(items.len() - begin, |at| at + 1);
        let mark = || Value::String("[redacted:private_key]".to_owned());
        let line = |(at, item): (usize, &Value)| match item {
            Value::String(_) if (begin..begin + length).contains(&at) => mark(),
            item => self.redacted_value(item).unwrap_or_else(|| item.clone()),
        };
        Some(items.iter().enumerate().map(line).collect())
    }

    /// Replaces every literal inside a secret field.
    fn mask_literals(&self, value: &Value, kind: &str) -> Option<Value> {
        let mark = || Value::String(format!("[redacted:{kind}]"));
        match value {
            Value::String(text) if is_literal(text) => Some(mark()),
            Value::String(_) => self.redacted_value(value),
            // `"token": 7` counts something; a password may be all digits.
            Value::Number(_) => matches!(
                kind,
                "password" | "passwd" | "pwd" | "passphrase" | "secret" | "field"
            )
            .then(mark),
            Value::Array(items) => change_items(items, |item| self.mask_literals(item, kind)),
            Value::Object(map) => self
                .changed_members(map, |_, value| self.mask_literals(value, kind))
                .map(Value::Object),
            Value::Null | Value::Bool(_) => None,
        }
    }

    /// Returns the kind of secret that a field of this name holds.
    fn secret_kind(&self, key: &str) -> Option<&'static str> {
        // The end of a long name is its significant part.
        let key = &key[key.ceil_char_boundary(key.len().saturating_sub(MAX_NAME_BYTES))..];
        let mut buffer = [0; MAX_NAME_BYTES];
        let name =
            normalize_field_name(key, &mut buffer)?.trim_end_matches(|c: char| c.is_ascii_digit());
        if self.0.shown_fields.contains(name) {
            return None;
        }
        if self.0.fields.contains(name) {
            return Some("field");
        }
        let ends = |word: &&&str| name.ends_with(**word);
        let kind = SECRET_FIELDS.iter().find(ends)?;
        HARMLESS_FIELDS.iter().find(ends).is_none().then_some(kind)
    }
}

/// Changes to the bundled list of secret fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretScannerOptions {
    /// Names of fields whose values are secret.
    pub fields: Vec<String>,
    /// Names of fields that are shown although the bundled list has them.
    pub shown_fields: Vec<String>,
}

impl Redactor for SecretScanner {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        match self.redacted_value(value) {
            None => Ok(value.clone()),
            Some(value) => Json::new(value).map_err(|_| RedactionError),
        }
    }

    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        Ok(self.redact_str(text).into_owned())
    }

    fn find_secrets(&self, field: Option<&str>, text: &str) -> Vec<SecretSpan> {
        let named = field.is_some_and(|field| self.secret_kind(field).is_some());
        let whole = (named && is_literal(text)).then_some(SecretSpan {
            range: 0..text.len(),
            source: SecretSource::Assigned,
        });
        // Exactly the known values: the ranges below may have grown by what stands around one.
        let known = self.0.anchors.known_values(text).map(|range| SecretSpan {
            range,
            source: SecretSource::Known,
        });
        let found = self.secret_ranges(text, &mut Lookahead::default());
        let found = found.into_iter().map(|(kind, range)| SecretSpan {
            range,
            source: match kind {
                "password" | "secret" | "cookie" => SecretSource::Assigned,
                _ => SecretSource::Shape,
            },
        });
        whole.into_iter().chain(known).chain(found).collect()
    }

    fn safe_prefix(&self, text: &str) -> usize {
        // No shape or anchor contains white space, and what a detector looks at before its anchor
        // is a part of the same word.
        let mut safe = end_of_last_space(text);
        safe = safe.min(self.0.anchors.begun_known_value(text).unwrap_or(safe));
        // From the last to the first: what is held back may begin inside an earlier secret.
        for span in self.undecided_spans(text).into_iter().rev() {
            if span.start < safe && safe < span.end {
                safe = span.start;
            }
        }
        safe
    }
}

impl SecretScanner {
    /// Returns the parts of a text, in order, that have to be redacted as a whole: from the word of
    /// an anchor to the end of its secret, or to the end of everything if more text may change it.
    fn undecided_spans(&self, text: &str) -> Vec<Range<usize>> {
        // A detector reads the next characters, too, to see whether a value ends there.
        const SEEN_AFTER: usize = 4;
        let known = self.0.anchors.known.len();
        let mut ahead = Lookahead::default();
        let span = |found: Match| {
            let anchor = found.range();
            let start = end_of_last_space(&text[..anchor.start]);
            let Some(bundled) = found.pattern().as_usize().checked_sub(known) else {
                return anchor;
            };
            let detector = &BUNDLED_DETECTORS[bundled];
            let decided = detector.is_decided(text, anchor.clone());
            let secret = detector.find_secret(text, anchor.clone(), &mut ahead);
            let end = secret.map_or(anchor.end, |secret| secret.end.max(anchor.end));
            if decided && end + SEEN_AFTER <= text.len() {
                start..end
            } else {
                start..usize::MAX
            }
        };
        let known_values = self.0.anchors.known_values(text);
        let mut spans: Vec<Range<usize>> = self.0.anchors.find_iter(text).map(span).collect();
        spans.extend(known_values);
        spans.sort_by_key(|span| span.start);
        spans
    }
}

/// Returns the position after the last white space; 0 if there is none.
fn end_of_last_space(text: &str) -> usize {
    let space = text.bytes().rposition(|byte| byte.is_ascii_whitespace());
    space.map_or(0, |at| at + 1)
}

impl fmt::Debug for SecretScanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The known values are secret and must not be printed.
        f.debug_struct("SecretScanner")
            .field("known", &self.0.anchors.known.len())
            .finish_non_exhaustive()
    }
}

/// Checks for a field such as `"PWD": "/home/ann"`.
fn is_working_directory(key: &str, value: &Value) -> bool {
    is_directory_name(key.as_bytes()) && value.as_str().is_some_and(is_absolute_path)
}

/// Returns a copy of the items with the changed ones, or `None` if none changed.
fn change_items(items: &[Value], change: impl Fn(&Value) -> Option<Value>) -> Option<Value> {
    merge_items(items, items.iter().map(change).collect())
}

fn merge_items(items: &[Value], changed: Vec<Option<Value>>) -> Option<Value> {
    let merge = |(new, old): (Option<Value>, &Value)| new.unwrap_or_else(|| old.clone());
    changed
        .iter()
        .any(Option::is_some)
        .then(|| changed.into_iter().zip(items).map(merge).collect())
}

/// Normalizes a name into `buffer`: `X-Api-Key`, `api_key` and `apiKey` become the same. Returns
/// `None` if the name is too long.
fn normalize_field_name<'a>(key: &str, buffer: &'a mut [u8; MAX_NAME_BYTES]) -> Option<&'a str> {
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

    static ANCHORS: LazyLock<AnchorIndex> = LazyLock::new(|| {
        AnchorIndex::new(vec![
            "swordfish-7".to_owned(),
            "köche-und-köchinnen".to_owned(),
        ])
    });

    fn any_piece() -> impl Strategy<Value = String> {
        let anchor = (0..BUNDLED_DETECTORS.len(), any::<bool>(), 0..24_usize).prop_map(
            |(at, large, length)| {
                let anchor = BUNDLED_DETECTORS[at].anchor;
                let cut = &anchor[..length.min(anchor.len())];
                if large {
                    cut.to_uppercase()
                } else {
                    cut.to_owned()
                }
            },
        );
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
        fn every_anchor_is_found_wherever_it_begins(pieces in prop::collection::vec(any_piece(), 0..12)) {
            let text = pieces.concat();
            let found: Vec<Match> = ANCHORS.find_iter(&text).collect();
            prop_assert_eq!(found, ANCHORS.automaton().find_iter(&text).collect::<Vec<_>>());
        }
    }

    /// Texts with an anchor every few bytes.
    const HOSTILE_UNITS: [&str; 33] = [
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----!",
        "-----BEGIN PRIVATE KEY-----! ",
        "-----BEGIN PRIVATE KEY-----!\n",
        "password=-----BEGIN PRIVATE KEY-----!",
        "Bearer ",
        "bearer: ",
        "bearer aaaaaaaa ",
        "basic  ",
        "password=",
        "password:",
        "password: ",
        "password=$",
        "password(",
        "PASSWORD=<",
        "pwd:\"",
        "://",
        "://a:1/",
        ":\\/\\/",
        "://u:$@",
        "eyJ",
        "-eyJ",
        ".eyJaaaaaaaa",
        "-eyJaaaaaaaa",
        "cookie:",
        "cookie: [",
        "token=",
        "token=1",
        "/token=1",
        "secret: bearer ",
        "-sk-a1",
        "-sk-aaaaaaaaaaaaaaaaaaaa",
        "api_key=%",
    ];

    #[test]
    fn the_work_on_a_text_full_of_anchors_is_proportional_to_its_length() {
        let scanner = SecretScanner::standard();
        let work = |text: &str| {
            let mut ahead = Lookahead::default();
            scanner.redact_with(text, &mut ahead);
            ahead.examined
        };
        for unit in HOSTILE_UNITS {
            for tail in ["", ".", "@", "=", "1", " ", "\n"] {
                let text = unit.repeat((64 << 10) / unit.len()) + tail;
                let often = unit.repeat(1000 / unit.len()) + tail;
                let mixed = often.repeat((64 << 10) / often.len());
                for text in [text, mixed] {
                    let per_byte = work(&text) / text.len();
                    assert!(
                        per_byte <= 192,
                        "{unit:?} {tail:?}: {per_byte} for each byte"
                    );
                }
            }
        }
    }

    #[test]
    fn a_text_without_anchors_needs_no_automaton() {
        let anchors = AnchorIndex::new(Vec::new());
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
            "it gives up after a few false starts"
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
