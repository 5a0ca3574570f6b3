//! Splits texts into words. Documents and queries use the same function, on every database.

use std::ops::Range;

use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_normalization::UnicodeNormalization;

/// The version of words and facets. An index that was built with another one is rebuilt.
pub const SEARCH_INDEX_VERSION: u32 = 2;

/// The maximum number of characters of a word; the rest of a longer one is ignored.
const MAX_WORD_CHARS: usize = 64;

/// The maximum number of words of one document. PostgreSQL counts positions up to 16,383.
const MAX_WORDS: usize = 16_000;

/// The maximum size of all words of one document in bytes; a `tsvector` is limited to 1 MiB.
const MAX_WORDS_BYTES: usize = 384 * 1024;

/// A word of a text: folded, with its place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchWord {
    /// The word without case and accents.
    pub text: String,
    /// The bytes of the text that it stands for.
    pub range: Range<usize>,
    /// The number of the name that it is part of: `camelCase` is one name with two words.
    pub name: u32,
}

/// Splits a text into words without case and accents.
///
/// `snake_case`, `camelCase` and paths are split into their parts. Scripts that are written without
/// blanks between words become single characters, so that every part of a sentence is found.
///
/// ```
/// use toolgate_core::split_words;
/// let words = |text| split_words(text).into_iter().map(|word| word.text).collect::<Vec<_>>();
/// assert_eq!(words("src/parseURLPath.rs"), ["src", "parse", "url", "path", "rs"]);
/// assert_eq!(words("Crème brûlée"), ["creme", "brulee"]);
/// assert_eq!(words("東京 2026"), ["東", "京", "2026"]);
/// ```
pub fn split_words(text: &str) -> Vec<SearchWord> {
    let mut splitter = WordSplitter::default();
    for (at, character) in text.char_indices() {
        if !splitter.push_char(at, character) {
            break;
        }
    }
    splitter.close_word();
    splitter.words
}

/// Returns the names of more than one word, in one piece: `getuserid` for `getUserId`.
pub fn joined_names(words: &[SearchWord]) -> Vec<String> {
    let names = words.chunk_by(|a, b| a.name == b.name);
    names.filter_map(join_name).collect()
}

/// Joins the words of a name, if there is more than one and it is short enough to be a word.
pub(crate) fn join_name(words: &[SearchWord]) -> Option<String> {
    let joined: String = words.iter().map(|word| word.text.as_str()).collect();
    let is_name = words.len() > 1 && joined.chars().count() <= MAX_WORD_CHARS;
    is_name.then_some(joined)
}

/// The kinds of characters, as far as words depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharKind {
    Separator,
    Underscore,
    /// A mark on the letter before it.
    Mark,
    Upper,
    /// Any other letter or digit.
    Lower,
    /// A character that is a word by itself.
    Single,
}

#[derive(Default)]
struct WordSplitter {
    words: Vec<SearchWord>,
    current: String,
    current_chars: usize,
    range: Range<usize>,
    last: Option<CharKind>,
    /// The place of the last capital: in the text, and in the current word.
    upper: (usize, usize),
    name: u32,
    bytes: usize,
}

impl WordSplitter {
    /// Adds a character. Returns false when the document has enough words.
    fn push_char(&mut self, at: usize, character: char) -> bool {
        let kind = char_kind(character);
        match kind {
            CharKind::Separator => {
                self.close_word();
                self.name += 1;
            }
            CharKind::Underscore => self.close_word(),
            CharKind::Mark => self.extend_word(at, character),
            CharKind::Single => {
                self.close_word();
                // Each character is a name of its own: a run of them is a phrase, not an identifier.
                self.name += 1;
                self.extend_word(at, character);
                self.close_word();
                self.name += 1;
            }
            CharKind::Upper => {
                if self.last == Some(CharKind::Lower) {
                    self.close_word();
                }
                self.upper = (at, self.current.len());
                self.extend_word(at, character);
            }
            CharKind::Lower => {
                if self.last == Some(CharKind::Upper) && character.is_lowercase() {
                    self.split_before_last_upper();
                }
                self.extend_word(at, character);
            }
        }
        if kind != CharKind::Mark {
            self.last = Some(kind);
        }
        self.words.len() < MAX_WORDS && self.bytes < MAX_WORDS_BYTES
    }

    fn extend_word(&mut self, at: usize, character: char) {
        if self.current.is_empty() && self.range.is_empty() {
            self.range.start = at;
        }
        self.range.end = at + character.len_utf8();
        if self.current_chars < MAX_WORD_CHARS {
            let before = self.current.len();
            fold_char(character, &mut self.current);
            self.current_chars += self.current[before..].chars().count();
        }
    }

    /// Splits `URLPath` before the `P`: the last capital begins the next word.
    fn split_before_last_upper(&mut self) {
        let (start, cut) = self.upper;
        // The end of a very long word is ignored, so there is nothing to cut off.
        if cut == 0 || cut >= self.current.len() {
            return;
        }
        let last = self.current.split_off(cut);
        let end = self.range.end;
        self.range.end = start;
        self.close_word();
        self.current_chars = last.chars().count();
        self.current = last;
        self.range = start..end;
    }

    fn close_word(&mut self) {
        let text = std::mem::take(&mut self.current);
        let range = std::mem::take(&mut self.range);
        self.current_chars = 0;
        if !text.is_empty() {
            self.bytes += text.len() + 1;
            self.words.push(SearchWord {
                text,
                range,
                name: self.name,
            });
        }
    }
}

fn char_kind(character: char) -> CharKind {
    if character.is_ascii() {
        return match character {
            'A'..='Z' => CharKind::Upper,
            'a'..='z' | '0'..='9' => CharKind::Lower,
            '_' => CharKind::Underscore,
            _ => CharKind::Separator,
        };
    }
    if is_single(character) {
        return CharKind::Single;
    }
    match get_general_category(character) {
        GeneralCategory::NonspacingMark
        | GeneralCategory::SpacingMark
        | GeneralCategory::EnclosingMark => CharKind::Mark,
        GeneralCategory::UppercaseLetter => CharKind::Upper,
        _ if character.is_alphanumeric() => CharKind::Lower,
        _ if is_pictograph(character) => CharKind::Single,
        _ => CharKind::Separator,
    }
}

/// Checks whether a character belongs to a script without blanks between words.
fn is_single(character: char) -> bool {
    matches!(u32::from(character),
        0x0E00..=0x0EFF          // Thai, Lao
        | 0x1000..=0x109F        // Myanmar
        | 0x1100..=0x11FF        // Hangul letters
        | 0x1780..=0x17FF        // Khmer
        | 0x3005..=0x3007
        | 0x3040..=0x312F        // Hiragana, Katakana, Bopomofo
        | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF        // Han
        | 0xAC00..=0xD7AF        // Hangul syllables
        | 0xF900..=0xFAFF
        | 0xFF66..=0xFF9D        // narrow Katakana
        | 0x20000..=0x3FFFD)
}

/// Checks whether a character is an emoji or a similar picture: people search for these, too.
fn is_pictograph(character: char) -> bool {
    matches!(u32::from(character), 0x2600..=0x27BF | 0x1F300..=0x1FAFF)
}

/// Appends a character without case and accents.
fn fold_char(character: char, out: &mut String) {
    if character.is_ascii() {
        out.push(character.to_ascii_lowercase());
        return;
    }
    // Letters that Unicode does not decompose, although people leave their strokes out.
    let plain = match character {
        'ß' | 'ẞ' => "ss",
        'æ' | 'Æ' => "ae",
        'œ' | 'Œ' => "oe",
        'ø' | 'Ø' => "o",
        'ł' | 'Ł' => "l",
        'đ' | 'Đ' | 'ð' | 'Ð' => "d",
        'þ' | 'Þ' => "th",
        'ı' => "i",
        _ => "",
    };
    if !plain.is_empty() {
        out.push_str(plain);
        return;
    }
    let folded = std::iter::once(character)
        .nfkd()
        .filter(|part| !is_accent(*part));
    // A compatibility form may contain blanks or signs, which cannot be part of a word.
    let folded = folded.filter(|part| !part.is_ascii() || part.is_ascii_alphanumeric());
    out.extend(
        folded
            .flat_map(char::to_lowercase)
            .filter(|part| !is_accent(*part)),
    );
}

/// Checks whether a mark is an accent or a vowel point that people leave out. The vowel signs of
/// other scripts are part of the word.
fn is_accent(character: char) -> bool {
    matches!(u32::from(character),
        0x0300..=0x036F | 0x0591..=0x05C7 | 0x0610..=0x061A | 0x064B..=0x065F | 0x1AB0..=0x1AFF
        | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF | 0xFE00..=0xFE0F | 0xFE20..=0xFE2F)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str) -> Vec<String> {
        split_words(text)
            .into_iter()
            .map(|word| word.text)
            .collect()
    }

    #[test]
    fn names_and_paths_are_split_into_their_parts() {
        assert_eq!(texts("snake_case_name"), ["snake", "case", "name"]);
        assert_eq!(
            texts("camelCase HTTPServer x2Y"),
            ["camel", "case", "http", "server", "x2", "y"]
        );
        assert_eq!(
            texts("/usr/lib64/libfoo-2.so.1"),
            ["usr", "lib64", "libfoo", "2", "so", "1"]
        );
        assert_eq!(texts("parseJSON"), ["parse", "json"]);
        assert_eq!(texts("ALL_CAPS"), ["all", "caps"]);
    }

    #[test]
    fn a_name_is_also_known_in_one_piece() {
        let names = |text: &str| joined_names(&split_words(text));
        assert_eq!(
            names("getUserId and get_user_id"),
            ["getuserid", "getuserid"]
        );
        assert_eq!(names("src/main.rs"), Vec::<String>::new());
        assert_eq!(names("東京"), Vec::<String>::new());
    }

    #[test]
    fn accents_and_case_are_folded() {
        assert_eq!(
            texts("Ärger ÉCOLE Straße Łódź İstanbul"),
            ["arger", "ecole", "strasse", "lodz", "istanbul"]
        );
        assert_eq!(texts("e\u{301}tat"), ["etat"]);
        assert_eq!(texts("ｆｕｌｌ"), ["full"]);
    }

    #[test]
    fn scripts_without_blanks_become_single_characters() {
        assert_eq!(texts("検索する"), ["検", "索", "す", "る"]);
        assert_eq!(texts("abc検索"), ["abc", "検", "索"]);
        assert_eq!(texts("ship it 🚀"), ["ship", "it", "🚀"]);
    }

    #[test]
    fn a_huge_text_gives_a_bounded_number_of_words() {
        let words = split_words(&"ab ".repeat(100_000));
        assert_eq!(words.len(), MAX_WORDS);
        let long = split_words(&"x".repeat(1_000_000));
        assert_eq!(long[0].text.len(), MAX_WORD_CHARS);
        assert_eq!(long[0].range, 0..1_000_000);
    }

    proptest! {
        #[test]
        fn words_are_folded_and_lie_in_the_text_in_order(text in any::<String>()) {
            let words = split_words(&text);
            let mut end = 0;
            for word in &words {
                prop_assert!(end <= word.range.start && word.range.start < word.range.end);
                prop_assert!(text.is_char_boundary(word.range.start) && text.is_char_boundary(word.range.end));
                end = word.range.end;
                for part in word.text.chars() {
                    prop_assert!(part.is_ascii_lowercase() || part.is_ascii_digit() || !part.is_ascii());
                }
            }
        }

        #[test]
        fn splitting_a_word_again_changes_nothing(text in "[a-zA-Zäöé_0-9 検索]{0,40}") {
            for word in split_words(&text) {
                prop_assert_eq!(texts(&word.text), vec![word.text.clone()]);
            }
        }
    }
}
