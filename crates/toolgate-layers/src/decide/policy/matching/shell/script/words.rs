//! Reads the words of a script: quotes, expansions and substitutions.

use super::{ScriptReader, is_process_substitution, read_nested};
use crate::decide::policy::matching::shell::ShellWord;

/// Directories that a shell knows by name. What follows them is in the text.
const DIRECTORY_VARIABLES: [&str; 3] = ["HOME", "PWD", "TMPDIR"];

impl ScriptReader<'_> {
    /// Reads one word. In the target of a redirection a pattern counts as an expansion.
    pub(super) fn read_word(&mut self, is_target: bool) -> ShellWord {
        let mut word = ShellWord::literal("");
        while let Some(c) = self.peek() {
            match c {
                '<' | '>' if word.text.is_empty() && is_process_substitution(self.rest()) => {
                    self.at += 2;
                    self.enter(|reader| reader.read_list(Some(')')));
                    word.text.push_str("/dev/fd");
                }
                // A pattern group of bash: `@(a|b)`.
                '(' if word.text.ends_with(['?', '*', '+', '@', '!']) => {
                    word.certain = false;
                    self.at += self.rest().find(')').map_or(self.rest().len(), |at| at + 1);
                }
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\'' => self.read_single_quoted(&mut word),
                '"' => {
                    self.at += 1;
                    self.read_double_quoted(&mut word, Some('"'));
                }
                '\\' => self.read_escaped(&mut word),
                '$' => self.read_dollar(&mut word),
                '`' => self.read_backquoted(&mut word),
                '*' | '?' | '[' | '{' | '}' if is_target => self.push_unknown(c, &mut word),
                // `{a..c}` becomes words that are not in the text.
                '{' if self.begins_range() => self.push_unknown(c, &mut word),
                c => self.push_plain(c, &mut word),
            }
        }
        word
    }

    fn begins_range(&self) -> bool {
        const MAX_RANGE_BYTES: usize = 64;
        let rest = self.rest();
        let near = &rest[..rest.floor_char_boundary(MAX_RANGE_BYTES)];
        near.split('}').next().is_some_and(|it| it.contains(".."))
    }

    fn push_plain(&mut self, c: char, word: &mut ShellWord) {
        word.text.push(c);
        self.at += c.len_utf8();
    }

    fn push_unknown(&mut self, c: char, word: &mut ShellWord) {
        word.certain = false;
        self.push_plain(c, word);
    }

    fn read_single_quoted(&mut self, word: &mut ShellWord) {
        let inner = &self.rest()[1..];
        let end = inner.find('\'').unwrap_or(inner.len());
        word.text.push_str(&inner[..end]);
        self.at = (self.at + end + 2).min(self.text.len());
    }

    /// Reads up to the closing quote, or to the end if there is none.
    pub(super) fn read_double_quoted(&mut self, word: &mut ShellWord, close: Option<char>) {
        while let Some(c) = self.peek() {
            match c {
                c if Some(c) == close => {
                    self.at += 1;
                    return;
                }
                '\\' if self.rest()[1..].starts_with(['$', '`', '"', '\\', '\n']) => {
                    self.read_escaped(word);
                }
                '$' => self.read_dollar(word),
                '`' => self.read_backquoted(word),
                c => self.push_plain(c, word),
            }
        }
    }

    fn read_escaped(&mut self, word: &mut ShellWord) {
        self.at += 1;
        match self.peek() {
            // A line continuation joins what is around it.
            Some('\n') => self.at += 1,
            Some(c) => self.push_plain(c, word),
            None => {}
        }
    }

    fn read_dollar(&mut self, word: &mut ShellWord) {
        let after = &self.rest()[1..];
        match after.chars().next() {
            Some('(') if is_arithmetic(after) => {
                word.certain = false;
                word.text.push_str("$((…))");
                self.at += 1 + bracket_length(after).unwrap_or(after.len());
            }
            Some('(') => {
                let start = self.at;
                self.at += 2;
                self.enter(|reader| reader.read_list(Some(')')));
                word.certain = false;
                word.text.push_str(&self.text[start..self.at]);
            }
            Some('{') => self.read_braced(word),
            Some('\'') => {
                self.at += 1;
                let escaped = self.rest()[1..].split('\'').next();
                word.certain &= !escaped.is_some_and(|text| text.contains('\\'));
                self.read_single_quoted(word);
            }
            // The number of the process. No file that acts later has it in its name.
            Some('$') => {
                word.text.push_str("$$");
                self.at += 2;
            }
            Some(c) if "@*#?-!".contains(c) || c.is_ascii_digit() => {
                word.certain = false;
                word.text.push_str(&self.rest()[..2]);
                self.at += 2;
            }
            Some(c) if c == '_' || c.is_ascii_alphabetic() => {
                let part = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                let name = &after[..after.find(part).unwrap_or(after.len())];
                self.at += 1 + name.len();
                self.add_variable(name, word);
            }
            _ => self.push_plain('$', word),
        }
    }

    /// Reads `${…}`.
    fn read_braced(&mut self, word: &mut ShellWord) {
        let start = self.at;
        self.at += 2;
        let inner = self.rest();
        let name = &inner[..inner.find('}').unwrap_or(inner.len())];
        if DIRECTORY_VARIABLES.contains(&name) {
            self.at = (self.at + name.len() + 1).min(self.text.len());
            return self.add_variable(name, word);
        }
        let mut ignored = ShellWord::literal("");
        self.enter(|reader| {
            while let Some(c) = reader.peek() {
                match c {
                    '}' => {
                        reader.at += 1;
                        break;
                    }
                    '\'' => reader.read_single_quoted(&mut ignored),
                    '"' => {
                        reader.at += 1;
                        reader.read_double_quoted(&mut ignored, Some('"'));
                    }
                    '\\' => reader.read_escaped(&mut ignored),
                    '$' => reader.read_dollar(&mut ignored),
                    '`' => reader.read_backquoted(&mut ignored),
                    c => reader.push_plain(c, &mut ignored),
                }
            }
        });
        word.certain = false;
        word.text.push_str(&self.text[start..self.at]);
    }

    /// Adds a variable. A directory that the text does not set is certain in front of a path.
    fn add_variable(&mut self, name: &str, word: &mut ShellWord) {
        let rest = self.rest().strip_prefix('"').unwrap_or(self.rest());
        let is_directory = word.text.is_empty()
            && DIRECTORY_VARIABLES.contains(&name)
            && rest.starts_with('/')
            && !self.sets_directories();
        word.certain &= is_directory;
        word.text.push('$');
        word.text.push_str(name);
    }

    /// Checks whether the text mentions one of the directories other than by its value.
    fn sets_directories(&mut self) -> bool {
        let text = self.text;
        *self.sets_directories.get_or_insert_with(|| {
            let is_set = |name: &&str| {
                let mut found = text.match_indices(*name);
                found.any(|(at, _)| !text[..at].ends_with(['$', '{']))
            };
            DIRECTORY_VARIABLES.iter().any(is_set)
        })
    }

    /// Reads a substitution between backquotes, in which backslashes escape others.
    fn read_backquoted(&mut self, word: &mut ShellWord) {
        let mut inner = String::new();
        let mut chars = self.rest()[1..].char_indices().peekable();
        let mut length = self.rest().len();
        while let Some((at, c)) = chars.next() {
            match c {
                '`' => {
                    length = at + 2;
                    break;
                }
                '\\' if chars.peek().is_some_and(|(_, c)| "`\\$".contains(*c)) => {
                    inner.extend(chars.next().map(|(_, c)| c));
                }
                c => inner.push(c),
            }
        }
        self.at += length;
        word.certain = false;
        word.text.push_str("`…`");
        self.enter(|reader| {
            let found = read_nested(&inner, reader.depth).into_iter();
            reader
                .commands
                .extend(found.map(|command| (command, Vec::new())));
        });
    }
}

/// Returns the length of a text up to the bracket that closes its first one, if that is near.
fn bracket_length(text: &str) -> Option<usize> {
    const MAX_ARITHMETIC_BYTES: usize = 1024;
    let mut depth = 0_usize;
    for (at, c) in text.char_indices().take(MAX_ARITHMETIC_BYTES) {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Checks for `((…))` that is arithmetic: the two brackets close each other, and nothing in between
/// can be a command.
fn is_arithmetic(text: &str) -> bool {
    let whole = bracket_length(text).map(|length| &text[..length]);
    let inner = whole.and_then(|whole| whole.strip_prefix('(')?.strip_suffix(')'));
    inner.is_some_and(|inner| {
        let is_code = inner.contains(['`', '\'', '"', ';', '\n', '#', '{']);
        bracket_length(inner) == Some(inner.len())
            && inner.starts_with('(')
            && !inner.contains("$(")
            && !is_code
    })
}
