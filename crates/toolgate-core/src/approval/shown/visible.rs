//! Text in which every character can be seen: invisible ones are escaped, and what the program adds
//! cannot be mistaken for the text.

use std::{borrow::Cow, fmt};

use serde::Serialize;
use unicode_general_category::{GeneralCategory as Category, get_general_category};

/// Text for a person who decides, in one line, with every character visible.
///
/// Everything between `⟨` and `⟩` is written by the program: `⟨U+200B⟩` stands for a character that
/// cannot be seen, `⟨masked: 32 characters⟩` for a secret, other words are remarks. The two signs
/// themselves are escaped where the text has them, so two different texts never look the same. A tab
/// is `⇥` and three blanks.
///
/// ```
/// use toolgate_core::VisibleText;
/// assert_eq!(VisibleText::new("rm\u{200b} -rf").as_str(), "rm⟨U+200B⟩ -rf");
/// assert_eq!(VisibleText::new("⟨U+200B⟩").as_str(), "⟨U+27E8⟩U+200B⟨U+27E9⟩");
/// assert_eq!(VisibleText::new("# note\rimport os ").as_str(), "# note⟨U+000D⟩import os⟨U+0020⟩");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct VisibleText(String);

impl VisibleText {
    /// Makes every character of a text visible, also the line ends.
    pub fn new(text: &str) -> Self {
        let mut out = VisibleWriter::default();
        out.write_text(text);
        out.finish()
    }

    /// Creates a remark of the program about a text.
    pub(crate) fn remark(words: &str) -> Self {
        let mut out = VisibleWriter::default();
        out.write_remark(words);
        out.finish()
    }

    /// Adds a remark of the program at the end.
    pub(crate) fn with_remark(mut self, words: &str) -> Self {
        self.0.push_str(Self::remark(words).as_str());
        self
    }

    /// Wraps a line that was put together from visible texts.
    pub(crate) fn from_visible(line: String) -> Self {
        Self(line)
    }

    /// Returns it as plain text that is safe to print.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VisibleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<VisibleText> for String {
    fn from(text: VisibleText) -> Self {
        text.0
    }
}

/// The longest run of blanks that is shown as blanks: a longer one would push what follows out of
/// sight.
const MAX_BLANKS: usize = 60;

/// The most combining marks on one letter, and letters that are drawn into a syllable. More would
/// hide the letter or its neighbours.
const MAX_MARKS: usize = 2;

const TAB: &str = "⇥   ";

/// Writes a line of visible text.
#[derive(Default)]
pub(crate) struct VisibleWriter {
    out: String,
    /// Blanks that are written when it is known whether something visible follows.
    blanks: usize,
    before: Before,
    has_remarked_direction: bool,
}

/// What stands before the next character.
#[derive(Default, Clone, Copy, PartialEq)]
enum Before {
    #[default]
    Other,
    Letter {
        marks: usize,
    },
    /// The beginning of a Korean syllable, which vowels and final consonants are drawn into.
    Syllable {
        more: usize,
    },
    Emoji,
}

impl VisibleWriter {
    /// Writes text of others.
    pub(crate) fn write_text(&mut self, text: &str) {
        for c in text.chars() {
            self.write_char(c);
        }
    }

    /// Writes a remark of the program. The words are its own, or escaped already.
    pub(crate) fn write_remark(&mut self, words: &str) {
        self.flush_blanks(false);
        self.out.push('⟨');
        self.out.push_str(words);
        self.out.push('⟩');
        self.before = Before::Other;
    }

    pub(crate) fn finish(mut self) -> VisibleText {
        self.flush_blanks(true);
        VisibleText(self.out)
    }

    fn write_char(&mut self, c: char) {
        if c == ' ' {
            self.blanks += 1;
            self.before = Before::Other;
            return;
        }
        self.flush_blanks(false);
        let (shown, before) = match c {
            '\t' => {
                self.out.push_str(TAB);
                self.before = Before::Other;
                return;
            }
            _ if is_bracket(c) || c == '⇥' => (false, Before::Other),
            _ => next_state(c, self.before),
        };
        if shown && is_right_to_left(c) && !self.has_remarked_direction {
            // The letters stay readable, but a terminal may draw them and their neighbours in
            // another order than that in which they run.
            self.has_remarked_direction = true;
            self.write_remark("right-to-left text");
        }
        self.before = before;
        if shown {
            self.out.push(c);
        } else {
            self.out.push_str(&format!("⟨U+{:04X}⟩", c as u32));
        }
    }

    fn flush_blanks(&mut self, at_end: bool) {
        match std::mem::take(&mut self.blanks) {
            0 => {}
            1 if at_end => self.out.push_str("⟨U+0020⟩"),
            many if at_end || many > MAX_BLANKS => {
                self.out.push_str(&format!("⟨U+0020 ×{many}⟩"));
            }
            few => self.out.extend(std::iter::repeat_n(' ', few)),
        }
    }
}

/// Escapes what cannot be seen in a text that is not shown for a decision: line ends, tabs, wide
/// blanks and the joints of emoji stay. Escaping twice changes nothing.
///
/// ```
/// use toolgate_core::escape_invisible;
/// assert_eq!(escape_invisible("a\u{1b}[2J\r\nb\u{202e}"), "a⟨U+001B⟩[2J\nb⟨U+202E⟩");
/// ```
pub fn escape_invisible(text: &str) -> Cow<'_, str> {
    if text
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut before = Before::Other;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let (shown, after) = match c {
            '\n' | '\t' | ' ' => (true, Before::Other),
            // The first half of a Windows line end. Anywhere else it would let the text overwrite
            // its own line.
            '\r' if chars.peek() == Some(&'\n') => continue,
            '\u{200d}' | '\u{fe0f}' if before == Before::Emoji => (true, Before::Emoji),
            _ if get_general_category(c) == Category::SpaceSeparator => (true, Before::Other),
            _ => next_state(c, before),
        };
        before = after;
        if shown {
            out.push(c);
        } else {
            out.push_str(&format!("⟨U+{:04X}⟩", c as u32));
        }
    }
    Cow::Owned(out)
}

/// Returns whether a character other than a blank can be seen after what stands before it, and what
/// then stands before the next one.
fn next_state(c: char, before: Before) -> (bool, Before) {
    use Category as C;
    if c.is_ascii() {
        let letter = Before::Letter { marks: 0 };
        let after = if c.is_ascii_alphanumeric() {
            letter
        } else {
            Before::Other
        };
        return (!c.is_ascii_control(), after);
    }
    if looks_blank(c) {
        return (false, Before::Other);
    }
    if is_syllable_part(c) {
        // Alone it has no width on a terminal, and the next letter is drawn over it.
        return match before {
            Before::Syllable { more } if more < MAX_MARKS => {
                (true, Before::Syllable { more: more + 1 })
            }
            _ => (false, Before::Other),
        };
    }
    if begins_syllable(c) {
        return (true, Before::Syllable { more: 0 });
    }
    match get_general_category(c) {
        C::UppercaseLetter
        | C::LowercaseLetter
        | C::TitlecaseLetter
        | C::ModifierLetter
        | C::OtherLetter
        | C::DecimalNumber
        | C::LetterNumber
        | C::OtherNumber => (true, Before::Letter { marks: 0 }),
        C::NonspacingMark | C::SpacingMark => match before {
            Before::Letter { marks } if marks < MAX_MARKS && !is_overlay(c) => {
                (true, Before::Letter { marks: marks + 1 })
            }
            // Its escape stands before the next character then, so nothing joins across it.
            _ => (false, Before::Other),
        },
        C::OtherSymbol | C::ModifierSymbol => (true, Before::Emoji),
        C::ConnectorPunctuation
        | C::DashPunctuation
        | C::OpenPunctuation
        | C::ClosePunctuation
        | C::InitialPunctuation
        | C::FinalPunctuation
        | C::OtherPunctuation
        | C::MathSymbol
        | C::CurrencySymbol => (true, Before::Other),
        // Blanks, line and paragraph separators, control and format characters, enclosing marks,
        // private use, and what is not assigned.
        _ => (false, Before::Other),
    }
}

/// Checks for a Korean consonant that begins a syllable, and for a syllable, which takes a final
/// consonant that follows.
fn begins_syllable(c: char) -> bool {
    matches!(c, '\u{1100}'..='\u{115e}' | '\u{a960}'..='\u{a97c}' | '\u{ac00}'..='\u{d7a3}')
}

/// Checks for a Korean vowel or final consonant, which is drawn into a syllable.
fn is_syllable_part(c: char) -> bool {
    matches!(c, '\u{1161}'..='\u{11ff}' | '\u{d7b0}'..='\u{d7c6}' | '\u{d7cb}'..='\u{d7fb}')
}

/// Checks for letters and symbols that look like nothing, and for marks that are ignored.
fn looks_blank(c: char) -> bool {
    matches!(
        c,
        '\u{034f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{fffc}'
            | '\u{13441}'..='\u{13442}'
            | '\u{16fe4}'
            | '\u{1d159}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Checks for marks that are drawn over a letter or around it.
fn is_overlay(c: char) -> bool {
    matches!(c, '\u{0334}'..='\u{0338}' | '\u{20d0}'..='\u{20ff}' | '\u{1abe}' | '\u{0488}'..='\u{0489}')
}

/// Checks for the signs around what the program writes, and for those that look like them.
fn is_bracket(c: char) -> bool {
    matches!(
        c,
        '\u{2329}'..='\u{232a}'
            | '\u{276c}'..='\u{276d}'
            | '\u{2770}'..='\u{2771}'
            | '\u{27e8}'..='\u{27e9}'
            | '\u{29fc}'..='\u{29fd}'
            | '\u{3008}'..='\u{3009}'
            | '\u{fe3f}'..='\u{fe40}'
    )
}

fn is_right_to_left(c: char) -> bool {
    matches!(
        c,
        '\u{0590}'..='\u{08ff}'
            | '\u{fb1d}'..='\u{fdff}'
            | '\u{fe70}'..='\u{fefe}'
            | '\u{10800}'..='\u{10fff}'
            | '\u{1e800}'..='\u{1efff}'
    )
}

/// A part of a text that was read back from its visible form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisiblePart {
    /// Characters of the text.
    Text(String),
    /// A mask over this many characters.
    Masked(usize),
}

impl VisibleText {
    /// Reads the text back. Remarks are left out; `None` if it is not visible text.
    pub fn parts(&self) -> Option<Vec<VisiblePart>> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find(['⟨', '⇥']) {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix(TAB) {
                text.push('\t');
                rest = after;
                continue;
            }
            let (words, after) = rest.strip_prefix('⟨')?.split_once('⟩')?;
            rest = after;
            match parse_words(words)? {
                VisiblePart::Text(more) => text.push_str(&more),
                masked => {
                    parts.push(VisiblePart::Text(std::mem::take(&mut text)));
                    parts.push(masked);
                }
            }
        }
        text.push_str(rest);
        parts.push(VisiblePart::Text(text));
        Some(parts)
    }
}

fn parse_words(words: &str) -> Option<VisiblePart> {
    if let Some(code) = words.strip_prefix("U+") {
        let (code, times) = code.split_once(" ×").unwrap_or((code, "1"));
        let c = char::from_u32(u32::from_str_radix(code, 16).ok()?)?;
        let times = times.parse().ok()?;
        return Some(VisiblePart::Text(std::iter::repeat_n(c, times).collect()));
    }
    if let Some(length) = words.strip_prefix("masked: ") {
        let length = length.strip_suffix(" characters")?.parse().ok()?;
        return Some(VisiblePart::Masked(length));
    }
    Some(VisiblePart::Text(String::new()))
}

#[cfg(test)]
mod tests;
