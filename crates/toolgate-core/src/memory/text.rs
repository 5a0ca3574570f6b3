//! The text of a memory: its bounds, its normalised form, and its words.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use unicode_general_category::{GeneralCategory as Category, get_general_category};

/// The text of a memory: not empty, at most 4 KiB, without control characters other than line ends
/// and tabs.
///
/// ```
/// use toolgate_core::MemoryText;
/// let text = MemoryText::new("  I prefer tabs.\0 ")?;
/// assert_eq!(text.as_str(), "I prefer tabs.");
/// assert_eq!(text.normalised(), MemoryText::new("i  PREFER tabs")?.normalised());
/// # Ok::<(), toolgate_core::InvalidMemoryText>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct MemoryText(String);

/// The reason why a text cannot be a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMemoryText {
    /// There is no letter and no digit in it.
    #[error("a memory needs at least one letter or digit")]
    Empty,
    /// It is too long.
    #[error("a memory has at most {limit} bytes, and this text has {found}")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
        /// The length in bytes.
        found: usize,
    },
}

impl MemoryText {
    /// The maximum length in bytes. A memory is a sentence or two; documents belong in files.
    pub const MAX_BYTES: usize = 4 * 1024;

    /// Creates a text: white space around it is removed, and so are control characters and
    /// characters that change the direction of text.
    ///
    /// # Errors
    ///
    /// [`InvalidMemoryText`] if nothing readable is left, or if it is too long.
    pub fn new(text: &str) -> Result<Self, InvalidMemoryText> {
        let text = text.trim();
        // Checked before the text is copied: it may be a megabyte.
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidMemoryText::TooLong {
                limit: Self::MAX_BYTES,
                found: text.len(),
            });
        }
        let clean: String = text.chars().filter(|c| is_storable(*c)).collect();
        let clean = clean.trim();
        if !clean.contains(char::is_alphanumeric) {
            return Err(InvalidMemoryText::Empty);
        }
        Ok(Self(clean.to_owned()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the form in which the same content is the same text: lower case, single spaces, no
    /// punctuation at the ends.
    pub fn normalised(&self) -> String {
        let lower = self.0.to_lowercase();
        let words: Vec<&str> = lower.split_whitespace().collect();
        let joined = words.join(" ");
        let is_edge = |c: char| !c.is_alphanumeric() && !is_meaningful_edge(c);
        let trimmed = joined.trim_matches(is_edge);
        // A text of nothing but such characters stays as it is.
        if trimmed.is_empty() {
            joined
        } else {
            trimmed.to_owned()
        }
    }

    /// Checks whether a text that is near in meaning may say something else all the same: one of the
    /// two has a negation or a number that the other has not, or the words of both stand in another
    /// order ("tabs over spaces"). Vectors hardly show that, or not at all, and a memory that is stored
    /// twice is better than one that is lost.
    pub fn contradicts(&self, other: &Self) -> bool {
        negations_and_numbers(&self.0) != negations_and_numbers(&other.0)
            || !has_common_order(&content_words(&self.0), &content_words(&other.0))
    }
}

/// Checks whether the words that two texts share stand in the same order in both, at first.
fn has_common_order(these: &[String], others: &[String]) -> bool {
    let shared = |words: &[String], with: &[String]| {
        let mut shared: Vec<String> = Vec::new();
        for word in words.iter().filter(|word| with.contains(word)) {
            if !shared.contains(word) {
                shared.push(word.clone());
            }
        }
        shared
    };
    shared(these, others) == shared(others, these)
}

/// Words of English, German, French and Spanish that turn a text into its opposite.
const NEGATIONS: &[&str] = &[
    "cannot", "except", "jamais", "kein", "keine", "keinen", "neither", "never", "nicht", "nie",
    "niemals", "no", "nobody", "none", "nor", "not", "nothing", "nunca", "ohne", "pas", "sans",
    "sin", "unless", "without",
];

/// Returns the numbers in a text, and a mark for each negation.
fn negations_and_numbers(text: &str) -> Vec<String> {
    let lower = text.to_lowercase().replace('\u{2019}', "'");
    let words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let telling = words.filter_map(|word| {
        let is_negation = NEGATIONS.contains(&word) || word.ends_with("n't");
        let has_number = word.contains(char::is_numeric);
        (is_negation || has_number).then(|| if has_number { word } else { "not" }.to_owned())
    });
    let mut telling: Vec<String> = telling.collect();
    telling.sort_unstable();
    telling
}

/// Characters that stand at the end of a content, not of a sentence: `make -j`, `C++`, `C#`, `/tmp/`.
const fn is_meaningful_edge(c: char) -> bool {
    matches!(
        c,
        '+' | '#'
            | '/'
            | '-'
            | '_'
            | '$'
            | '~'
            | '%'
            | '@'
            | '*'
            | '&'
            | '='
            | '<'
            | '>'
            | '|'
            | '^'
    )
}

fn is_storable(c: char) -> bool {
    match get_general_category(c) {
        Category::Control => matches!(c, '\n' | '\t'),
        // Joints of emoji stay; what reorders or hides text does not.
        Category::Format => c == '\u{200d}',
        Category::LineSeparator | Category::ParagraphSeparator | Category::PrivateUse => false,
        _ => true,
    }
}

impl fmt::Display for MemoryText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MemoryText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

/// Words that say nothing about what a text is about.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do",
    "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "is", "it", "its", "me",
    "my", "of", "on", "or", "our", "please", "should", "so", "that", "the", "their", "them",
    "then", "there", "these", "they", "this", "to", "was", "we", "were", "what", "when", "where",
    "which", "who", "why", "will", "with", "would", "you", "your",
];

/// Returns the words of a text that ranking compares: lower case, parts of identifiers, without
/// very common words and plural endings. Of CJK text each character is a word.
pub(crate) fn content_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(|c: char| !c.is_alphanumeric()) {
        for part in split_identifier(run) {
            let word = stem(&part.to_lowercase());
            if !word.is_empty() && !STOP_WORDS.contains(&word.as_str()) {
                words.push(word);
            }
        }
    }
    words
}

/// Splits `camelCase` and CJK text into parts.
fn split_identifier(run: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut before: Option<char> = None;
    for (at, c) in run.char_indices() {
        let is_hump = before.is_some_and(char::is_lowercase) && c.is_uppercase();
        if at > start && (is_hump || is_ideograph(c) || before.is_some_and(is_ideograph)) {
            parts.push(&run[start..at]);
            start = at;
        }
        before = Some(c);
    }
    if start < run.len() {
        parts.push(&run[start..]);
    }
    parts
}

const fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{2ffff}')
}

/// Removes the endings of English plurals and verbs, so that `tests` finds `test`.
fn stem(word: &str) -> String {
    let cut = |ending: &str, rest: usize| {
        word.strip_suffix(ending)
            .filter(|stem| stem.chars().count() >= rest && stem.is_ascii())
    };
    let stem = cut("ing", 4).or_else(|| cut("ed", 4)).or_else(|| {
        if word.ends_with("ss") || word.ends_with("us") {
            None
        } else {
            cut("s", 3)
        }
    });
    stem.unwrap_or(word).to_owned()
}
