//! Reads which commands a text runs, as far as every POSIX shell agrees on it.
//!
//! This is not a shell. It understands lists of simple commands with quotes, redirections and plain
//! parameters. At the first piece beyond that it stops and says which piece it was.

use std::borrow::Cow;

use super::{CommandWords, MAX_COMMAND_BYTES, MAX_PLAIN_BYTES};
use crate::decide::policy::matching::program_runners::{Runner, find_runner, takes_any_option};

/// The commands that a text runs, as far as they can be read.
#[derive(Debug, Default)]
pub(crate) struct ShellReading {
    /// The commands up to the unread piece.
    pub(crate) commands: Vec<Vec<ShellWord>>,
    /// The files that it redirects to and from.
    pub(crate) targets: CommandWords,
    /// The first piece because of which it cannot be told which commands run, as it is written.
    pub(crate) unread: Option<String>,
    /// True if the text uses something that no rule allows, such as a redirection to a file.
    beyond_plain: bool,
}

/// One word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellWord {
    pub(crate) text: String,
    /// False if a shell expands the text to words that are not known.
    pub(crate) certain: bool,
}

impl ShellWord {
    pub(crate) fn literal(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            certain: true,
        }
    }
}

impl ShellReading {
    fn stopped_at(piece: impl AsRef<str>) -> Self {
        Self {
            unread: Some(shorten(piece.as_ref())),
            beyond_plain: true,
            ..Self::default()
        }
    }

    /// Marks everything as unread because of something outside the text.
    pub(crate) fn doubt(&mut self, why: &str) {
        self.unread.get_or_insert_with(|| why.to_owned());
    }

    /// Returns the commands if the text is a list of plain commands, which a rule can allow.
    pub(crate) fn plain_commands(&self) -> Option<Vec<CommandWords>> {
        let plain = !self.beyond_plain && !self.commands.is_empty();
        let texts = |words: &Vec<ShellWord>| words.iter().map(|word| word.text.clone()).collect();
        plain.then(|| self.commands.iter().map(texts).collect())
    }

    /// Adds a command, unless the program itself runs others. If only one of its words does, a rule
    /// can still allow that word.
    fn add_command(&mut self, words: Vec<ShellWord>) -> Result<(), String> {
        match find_runner(&words) {
            Some(Runner::Program(name)) => return Err(name),
            Some(Runner::Word(piece)) => self.doubt(&shorten(&piece)),
            None => {}
        }
        let expands = words.iter().any(|word| !word.certain);
        self.beyond_plain |= expands && !takes_any_option(&words[0].text);
        self.commands.push(words);
        Ok(())
    }
}

/// Reads the commands of a shell text.
pub(crate) fn read_commands(text: &str) -> ShellReading {
    if text.len() > MAX_COMMAND_BYTES {
        return ShellReading::stopped_at(format!("{} bytes of text", text.len()));
    }
    // Windows shells have other quotes and escapes.
    if cfg!(windows) && text.contains(['\'', '"', '%', '^']) {
        return ShellReading::stopped_at(text);
    }
    let mut reader = ShellReader {
        text,
        at: 0,
        words: Vec::new(),
        reading: ShellReading {
            beyond_plain: text.len() > MAX_PLAIN_BYTES,
            ..ShellReading::default()
        },
    };
    if let Err(piece) = reader.read_all() {
        reader.reading.doubt(&shorten(&piece));
        reader.reading.beyond_plain = true;
    }
    reader.reading
}

/// Reads the command that a list of words runs. The tool may join the words and pass them to a
/// shell, so a word that a shell would read differently is not certain.
pub(crate) fn read_argv(words: &[&str]) -> ShellReading {
    let special =
        |c: char| SPECIAL_CHARS.contains(c) || c.is_control() || (c.is_whitespace() && c != ' ');
    let unclear = |word: &&&str| word.is_empty() || word.contains(special);
    if let Some(word) = words.iter().find(unclear) {
        return ShellReading::stopped_at(word);
    }
    if !words.first().is_some_and(|first| is_program_name(first)) {
        return ShellReading::stopped_at(words.first().copied().unwrap_or("an empty list"));
    }
    let mut reading = ShellReading::default();
    match reading.add_command(words.iter().map(|word| ShellWord::literal(*word)).collect()) {
        Ok(()) => reading,
        Err(name) => ShellReading::stopped_at(name),
    }
}

/// Characters that mean something to a shell outside quotes.
const SPECIAL_CHARS: &str = ";&|<>()$`\\\"'*?[]{}~!#\n";

/// Variables that change neither which programs run nor what they load.
const HARMLESS_VARIABLES: [&str; 13] = [
    "CI",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "NODE_ENV",
    "LANG",
    "LC_ALL",
    "TZ",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CARGO_TERM_COLOR",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
];

/// Returns a piece of a command for a reason: one line, visible characters, and not much of it.
pub(crate) fn shorten(piece: &str) -> String {
    const MAX_SHOWN_BYTES: usize = 48;
    let end = piece.floor_char_boundary(MAX_SHOWN_BYTES);
    let cut = if end < piece.len() { "…" } else { "" };
    format!("{}{cut}", piece[..end].escape_debug())
}

fn is_program_name(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./+-".contains(c);
    !word.is_empty() && !word.starts_with('-') && word.chars().all(plain)
}

struct ShellReader<'a> {
    text: &'a str,
    at: usize,
    /// The words of the current command.
    words: Vec<ShellWord>,
    reading: ShellReading,
}

/// The error of every step is the piece that cannot be read.
type Step<T = ()> = Result<T, String>;

impl<'a> ShellReader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn read_all(&mut self) -> Step {
        while !self.rest().is_empty() {
            self.read_token()?;
        }
        if !self.words.is_empty() {
            let words = std::mem::take(&mut self.words);
            self.reading.add_command(words)?;
        }
        if self.reading.commands.is_empty() {
            return Err("an empty command".to_owned());
        }
        Ok(())
    }

    /// Reads blanks, one redirection, operator or word.
    fn read_token(&mut self) -> Step {
        let rest = self.rest();
        let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        if blank > 0 {
            self.at += blank;
            return Ok(());
        }
        if self.read_redirection()? {
            return Ok(());
        }
        // The longer ones first.
        const OPERATORS: [&str; 6] = ["&&", "||", ";", "|", "\n", "&"];
        match OPERATORS.iter().find(|text| rest.starts_with(**text)) {
            Some(operator) => {
                self.at += operator.len();
                self.end_command(operator)
            }
            None => self.read_word(),
        }
    }

    fn end_command(&mut self, operator: &str) -> Step {
        let rest = self.rest();
        let piece = || format!("{operator}{}", first_word(rest));
        if self.words.is_empty() {
            // An empty line, or the line end at the end of the text.
            return if operator == "\n" {
                Ok(())
            } else {
                Err(piece())
            };
        }
        // `|&`, `;;`, `&&&`, and `&>` which shells read in two ways.
        if rest.starts_with(['&', '|', ';']) || operator == "&" && rest.starts_with('>') {
            return Err(piece());
        }
        // After these operators there has to be another command.
        if matches!(operator, "&&" | "||" | "|") && rest.trim().is_empty() {
            return Err(piece());
        }
        self.reading.beyond_plain |= operator == "&";
        let words = std::mem::take(&mut self.words);
        self.reading.add_command(words)
    }

    /// Reads a redirection, if there is one. The file that it names does not change which commands
    /// run; a here-document and a process substitution may.
    fn read_redirection(&mut self) -> Step<bool> {
        // These write no file. They count only as words of their own.
        const HARMLESS: [&str; 5] = ["2>&1", "1>&2", ">/dev/null", "2>/dev/null", "1>/dev/null"];
        let rest = self.rest();
        let sign = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if !sign.starts_with(['<', '>']) {
            return Ok(false);
        }
        let ends = |after: &str| after.is_empty() || after.starts_with([' ', '\t', '\n', ';', '|']);
        let harmless = |text: &&&str| rest.strip_prefix(**text).is_some_and(ends);
        if let Some(text) = HARMLESS.iter().find(harmless) {
            self.at += text.len();
            return Ok(true);
        }
        self.reading.beyond_plain = true;
        const SIGNS: [&str; 7] = [">>", ">|", ">&", "<>", "<&", ">", "<"];
        let length = SIGNS.iter().find(|text| sign.starts_with(**text));
        let length = rest.len() - sign.len() + length.map_or(0, |text| text.len());
        let target = rest[length..].trim_start_matches([' ', '\t']);
        if target.is_empty() || target.starts_with(['<', '>', '(', '&', '|', ';', '\n']) {
            return Err(first_word(rest).to_owned());
        }
        self.at += rest.len() - target.len();
        let target = self.read_pieces(false)?;
        self.reading.targets.push(target.text);
        Ok(true)
    }

    fn read_word(&mut self) -> Step {
        let start = self.at;
        let is_program = self.words.is_empty();
        let word = self.read_pieces(is_program)?;
        let written = &self.text[start..self.at];
        if !is_program || (word.certain && is_program_name(&word.text)) {
            self.words.push(word);
            return Ok(());
        }
        // `X=1 git`: most variables can change what the command does.
        let harmless = word.certain
            && written
                .split_once('=')
                .is_some_and(|(name, _)| HARMLESS_VARIABLES.contains(&name));
        self.reading.beyond_plain = true;
        if harmless {
            Ok(())
        } else {
            Err(written.to_owned())
        }
    }

    /// Reads the pieces of one word: literal text, quotes and parameters.
    fn read_pieces(&mut self, is_program: bool) -> Step<ShellWord> {
        let start = self.at;
        let mut word = ShellWord::literal("");
        while let Some(c) = self.rest().chars().next() {
            let first = self.at == start;
            let unread = || Err(first_word(&self.text[start..]).to_owned());
            match c {
                ' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>' => break,
                '\'' => self.read_single_quotes(&mut word)?,
                '"' => self.read_double_quotes(&mut word)?,
                '$' => self.read_parameter(&mut word, false)?,
                // A comment, a substitution, a subshell, a pattern group.
                '#' if first => return unread(),
                '`' | '(' | ')' => return unread(),
                '\\' | '*' | '?' | '[' | ']' | '{' | '}' if is_program => return unread(),
                '~' | '^' | '!' if first && is_program => return unread(),
                '\\' => self.read_escape(&mut word)?,
                // A pattern that begins the word, or an option, may expand to any option. Empty quotes
                // in front of it add nothing.
                '*' | '?' | '[' if word.text.is_empty() || word.text.starts_with('-') => {
                    word.certain = false;
                    self.push(c, &mut word);
                }
                '{' | '}' | '~' | '^' if first || matches!(c, '{' | '}') => {
                    self.reading.beyond_plain = true;
                    word.certain = false;
                    self.push(c, &mut word);
                }
                '!' => {
                    self.reading.beyond_plain = true;
                    self.push(c, &mut word);
                }
                c if c.is_control() || c.is_whitespace() => return unread(),
                c => self.push(c, &mut word),
            }
        }
        Ok(word)
    }

    fn push(&mut self, c: char, word: &mut ShellWord) {
        word.text.push(c);
        self.at += c.len_utf8();
    }

    fn read_single_quotes(&mut self, word: &mut ShellWord) -> Step {
        let inner = &self.rest()[1..];
        let hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        match inner.find('\'').map(|end| &inner[..end]) {
            Some(inner) if !inner.contains(hidden) => {
                word.text.push_str(inner);
                self.at += inner.len() + 2;
                Ok(())
            }
            _ => Err(first_word(self.rest()).to_owned()),
        }
    }

    fn read_double_quotes(&mut self, word: &mut ShellWord) -> Step {
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.rest().chars().next() {
            match c {
                '"' => {
                    self.at += 1;
                    return Ok(());
                }
                '$' => self.read_parameter(word, true)?,
                '\\' => {
                    let next = self.rest()[1..].chars().next();
                    match next {
                        Some('$' | '`' | '"' | '\\') => self.read_escape(word)?,
                        Some('\n' | '\r') | None => break,
                        Some(_) => {
                            self.reading.beyond_plain = true;
                            self.push('\\', word);
                        }
                    }
                }
                '!' => {
                    self.reading.beyond_plain = true;
                    self.push(c, word);
                }
                '`' => break,
                c if c.is_control() && !matches!(c, '\n' | '\t') => break,
                c => self.push(c, word),
            }
        }
        Err(first_word(&self.text[start..]).to_owned())
    }

    /// Reads a backslash and the character that it escapes.
    fn read_escape(&mut self, word: &mut ShellWord) -> Step {
        self.reading.beyond_plain = true;
        match self.rest()[1..].chars().next() {
            // A line continuation joins words.
            Some(c) if !c.is_control() => {
                self.at += 1;
                self.push(c, word);
                Ok(())
            }
            _ => Err(self.rest()[..1].to_owned()),
        }
    }

    /// Reads `$x`, `${x}` or `$1`. Every other expansion can run a command or choose another text.
    fn read_parameter(&mut self, word: &mut ShellWord, quoted: bool) -> Step {
        self.reading.beyond_plain = true;
        let after = &self.rest()[1..];
        let name_length = |text: &str| {
            let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let begins = text.starts_with(|c: char| part(c) && !c.is_ascii_digit());
            text.find(|c| !part(c)).unwrap_or(text.len()) * usize::from(begins)
        };
        let ends_word = |c: char| matches!(c, ' ' | '\t' | '\n' | ';' | '|') || quoted && c == '"';
        let length = match after.chars().next() {
            // A dollar sign at the end of a word stands for itself: `grep x$`.
            next if next.is_none_or(ends_word) => {
                self.push('$', word);
                return Ok(());
            }
            Some('{') => {
                let name = name_length(&after[1..]);
                if name == 0 || !after[1 + name..].starts_with('}') {
                    return Err(expansion_piece(self.rest()).into_owned());
                }
                name + 2
            }
            Some('@' | '*' | '#' | '?' | '$' | '!' | '-' | '0'..='9') => 1,
            _ if name_length(after) > 0 => name_length(after),
            _ => return Err(expansion_piece(self.rest()).into_owned()),
        };
        word.certain = false;
        word.text.push_str(&self.rest()[..=length]);
        self.at += 1 + length;
        Ok(())
    }
}

/// Returns the beginning of a text up to the next blank.
fn first_word(text: &str) -> &str {
    let body = text.trim_start_matches(char::is_whitespace);
    let end = body.find(char::is_whitespace).unwrap_or(body.len());
    if body.is_empty() { text } else { &body[..end] }
}

/// Returns an expansion up to its closing bracket, or the word that it begins.
fn expansion_piece(text: &str) -> Cow<'_, str> {
    let close = match text.as_bytes().get(1) {
        Some(b'{') => '}',
        Some(b'(') => ')',
        _ => return first_word(text).into(),
    };
    text.find(close)
        .map_or(first_word(text), |end| &text[..=end])
        .into()
}
