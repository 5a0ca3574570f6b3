//! Reads all commands of a text with their redirections, also behind what `reader` cannot read.
//!
//! This reader never stops: it enters substitutions, compound commands, here-documents and the texts
//! that shells run, and marks every word that a shell expands. What it finds is only ever asked
//! about or denied, so a text that no shell accepts may be read in any way.

mod words;

use super::{ShellWord, base_name, shorten};
use crate::decide::policy::matching::{
    program_runners::{lists, starts_others},
    programs::SHELL_PROGRAMS,
};

/// One command of a text, wherever it stands.
#[derive(Debug, Default)]
pub(crate) struct ScriptCommand {
    /// The program and its arguments, without assignments in front of them.
    pub(crate) words: Vec<ShellWord>,
    /// The files that its output is redirected to.
    pub(crate) writes: Vec<ShellWord>,
    /// The files that its input is redirected from.
    pub(crate) reads: Vec<ShellWord>,
    /// The here-documents and here-strings that it reads.
    pub(crate) inputs: Vec<ShellWord>,
}

impl ScriptCommand {
    /// Returns the name of the program; `None` if a shell expands it.
    pub(crate) fn program(&self) -> Option<String> {
        let first = self.words.first().filter(|word| word.certain)?;
        Some(base_name(&first.text))
    }

    /// Returns the words from the program on that the command runs, also behind `sudo`, `xargs`,
    /// `env` and what else starts it, or behind `-exec`: the first that `is_wanted`.
    pub(crate) fn find_program(&self, is_wanted: impl Fn(&str) -> bool) -> Option<&[ShellWord]> {
        let first = self.program()?;
        let executing = if lists("fd fdfind", &first) {
            "-x -X --exec --exec-batch"
        } else {
            "-exec -execdir -ok -okdir"
        };
        // These have an operand in front of the program.
        let mut skipped = usize::from(!lists(STARTERS_WITH_OPERAND, &first));
        let mut is_open = starts_others(&first);
        for (at, word) in self.words.iter().enumerate() {
            let before = at.checked_sub(1).map_or("", |at| &self.words[at].text);
            let is_program = at == 0 || is_open || lists(executing, before);
            if is_program && word.certain && is_wanted(&base_name(&word.text)) {
                return Some(&self.words[at..]);
            }
            if at > 0 && !may_precede_program(before, &word.text) {
                skipped += 1;
                is_open &= skipped < 2;
            }
        }
        None
    }

    /// Checks whether the command passes words to another one that are not in the text.
    pub(crate) fn passes_unknown_words(&self) -> bool {
        let passes = |word: &ShellWord| lists("xargs parallel", &base_name(&word.text));
        self.words.iter().any(passes)
    }

    /// Returns the words that a shell runs as code, if the program is one, or `eval`.
    fn code_words(&self) -> Option<&[ShellWord]> {
        if self.program()? == "eval" {
            return Some(&self.words[1..]);
        }
        let words = self.find_program(is_shell)?;
        let takes_code = |word: &ShellWord| {
            let letters = word.text.strip_prefix('-').unwrap_or_default();
            letters.contains('c') && !letters.starts_with('-')
        };
        let after = words.iter().position(takes_code).map(|at| at + 1);
        Some(&words[after.unwrap_or(words.len())..])
    }

    /// Checks for a shell that runs what another command writes: `| sh`, `| sudo bash -s`.
    fn is_fed_shell(&self) -> bool {
        let mut words = self.words.iter().map(|word| word.text.as_str());
        let shell = words.find(|word| !lists("sudo doas env exec nohup nice", word));
        let is_option = |word: &str| word.starts_with(['-', '+']);
        let reads_input = |rest: Vec<&str>| {
            rest.contains(&"-s")
                || rest
                    .iter()
                    .all(|word| is_option(word) && !word.contains('c'))
        };
        shell.is_some_and(|word| is_shell(&base_name(word)))
            && self.inputs.is_empty()
            && self.reads.is_empty()
            && reads_input(words.collect())
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.writes.is_empty() && self.reads.is_empty()
    }
}

/// Programs that start another one behind an operand of their own.
const STARTERS_WITH_OPERAND: &str =
    "flock chroot faketime taskset chrt setarch su runuser sg function coproc ssh timeout gtimeout";

/// Checks whether a word is one that a program which starts another one takes for itself.
fn may_precede_program(before: &str, word: &str) -> bool {
    let is_value = before.starts_with('-') && !before.contains('=');
    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
    let is_other = word.starts_with('-') || word.contains('=') || lists("{ }", word);
    is_value || is_number || is_other || starts_others(word)
}

fn is_shell(name: &str) -> bool {
    lists(SHELL_PROGRAMS, name)
}

/// Maximum number of commands that are read of a text. What follows is unknown.
pub(crate) const MAX_SCRIPT_COMMANDS: usize = 1_000;
/// Maximum depth of substitutions.
const MAX_DEPTH: usize = 16;
/// How much deeper the text is that a shell runs. Such texts can be read twice, so only a few of
/// them may be in each other.
const PASSED_DEPTH: usize = 4;

/// Reads all commands of a text.
pub(crate) fn read_script(text: &str) -> Vec<ScriptCommand> {
    read_nested(text, 0)
}

fn read_nested(text: &str, depth: usize) -> Vec<ScriptCommand> {
    let mut reader = ScriptReader::new(text, depth);
    while !reader.rest().is_empty() {
        reader.read_list(None);
    }
    let mut commands = reader.finish();
    let nested: Vec<ScriptCommand> = { commands.iter() }
        .flat_map(|command| read_passed_texts(command, depth + PASSED_DEPTH))
        .collect();
    commands.extend(nested);
    commands
}

/// Returns a command of which nothing is known because of `piece`.
fn unknown_command(piece: &str) -> ScriptCommand {
    let word = ShellWord {
        text: shorten(piece),
        certain: false,
    };
    ScriptCommand {
        words: vec![word.clone(), word],
        ..ScriptCommand::default()
    }
}

/// Returns the commands in the texts that a command gives to a shell: `sh -c 'rm x'`, `eval`, a
/// here-document.
fn read_passed_texts(command: &ScriptCommand, depth: usize) -> Vec<ScriptCommand> {
    let Some(first) = command.program() else {
        return Vec::new();
    };
    let code = command.code_words();
    let inputs = code.map_or(&[][..], |_| &command.inputs);
    let unknown = { code.into_iter().flatten().chain(inputs) }.find(|word| !word.certain);
    if let Some(word) = unknown {
        return vec![unknown_command(&word.text)];
    }
    if command.is_fed_shell() {
        return vec![unknown_command(&first)];
    }
    let is_text = |word: &&ShellWord| word.text.contains(|c: char| " \t\n;&|<>$`(".contains(c));
    let mut texts: Vec<&str> = inputs.iter().map(|word| word.text.as_str()).collect();
    let joined = code.filter(|_| first == "eval").map(join_words);
    texts.extend(joined.as_deref());
    if joined.is_none() && (starts_others(&first) || code.is_some()) {
        let words = command.words[1..].iter().filter(|word| word.certain);
        texts.extend(words.filter(is_text).map(|word| word.text.as_str()));
    }
    if depth > MAX_DEPTH && !texts.is_empty() {
        return vec![unknown_command(&first)];
    }
    { texts.into_iter() }
        .flat_map(|text| read_nested(text, depth))
        .collect()
}

fn join_words(words: &[ShellWord]) -> String {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    texts.join(" ")
}

/// A here-document whose text follows at the end of the line.
struct PendingDocument {
    /// The position of its command in the order of here-documents.
    number: usize,
    end: String,
    expands: bool,
    strips_tabs: bool,
}

struct ScriptReader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    commands: Vec<(ScriptCommand, Vec<usize>)>,
    pending: Vec<PendingDocument>,
    /// The here-documents that were read, by number.
    documents: Vec<ShellWord>,
    /// Whether the text sets a variable that stands for a directory, once that was looked up.
    sets_directories: Option<bool>,
    /// True if the text has more commands than are read, and an unknown one stands for the rest.
    is_full: bool,
}

/// The command that is being read.
#[derive(Default)]
struct OpenCommand {
    command: ScriptCommand,
    documents: Vec<usize>,
}

impl<'a> ScriptReader<'a> {
    fn new(text: &'a str, depth: usize) -> Self {
        Self {
            text,
            at: 0,
            depth,
            commands: Vec::new(),
            pending: Vec::new(),
            documents: Vec::new(),
            // The text around a nested one may set them.
            sets_directories: Some(true).filter(|_| depth > 0),
            is_full: false,
        }
    }

    fn finish(self) -> Vec<ScriptCommand> {
        let documents = self.documents;
        let complete = |(mut command, numbers): (ScriptCommand, Vec<usize>)| {
            let texts = numbers.iter().filter_map(|number| documents.get(*number));
            command.inputs.extend(texts.cloned());
            command
        };
        self.commands.into_iter().map(complete).collect()
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Enters a nested piece, unless it is too deep: then all that follows is unknown.
    fn enter(&mut self, read: impl FnOnce(&mut Self)) {
        if self.depth >= MAX_DEPTH {
            self.push_unknown_command(self.at);
            self.at = self.text.len();
            return;
        }
        self.depth += 1;
        read(self);
        self.depth -= 1;
    }

    /// Reads commands up to the closing sign, or to the end.
    fn read_list(&mut self, close: Option<char>) {
        let mut open = OpenCommand::default();
        // The patterns of `case` end with a bracket that closes nothing.
        let mut cases = 0_usize;
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\r' => self.at += 1,
                '\\' if self.rest().starts_with("\\\n") => self.at += 2,
                '\n' => {
                    self.end_command(&mut open);
                    self.at += 1;
                    self.read_documents();
                }
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                '&' if self.rest().starts_with("&>") => {
                    self.at += 1;
                    self.read_redirection(&mut open);
                }
                ')' if close == Some(')') && cases == 0 => {
                    self.at += 1;
                    break;
                }
                ';' | '&' | '|' | ')' => {
                    self.end_command(&mut open);
                    self.at += 1;
                }
                '(' => {
                    self.end_command(&mut open);
                    self.at += 1;
                    self.enter(|reader| reader.read_list(Some(')')));
                }
                _ if self.begins_redirection() => self.read_redirection(&mut open),
                _ => self.read_command_word(&mut open, &mut cases),
            }
        }
        self.end_command(&mut open);
    }

    fn read_command_word(&mut self, open: &mut OpenCommand, cases: &mut usize) {
        const KEYWORDS: &str = "if then else elif fi while until do done time ! { }";
        let start = self.at;
        let is_first = open.command.words.is_empty();
        let word = self.read_word(false);
        let written = &self.text[start..self.at];
        if is_first && written == "case" {
            *cases += 1;
        }
        if is_first && written == "esac" {
            *cases = cases.saturating_sub(1);
        }
        let is_assignment = || {
            let name = written.split(['=', '+', '[']).next().unwrap_or_default();
            let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
            written.contains('=') && !name.is_empty() && name.chars().all(letters)
        };
        if is_first && (lists(KEYWORDS, written) || is_assignment()) {
            return;
        }
        open.command.words.push(word);
    }

    fn end_command(&mut self, open: &mut OpenCommand) {
        let done = std::mem::take(open);
        if done.command.is_empty() {
            return;
        }
        if self.commands.len() < MAX_SCRIPT_COMMANDS {
            self.commands.push((done.command, done.documents));
        } else if !self.is_full {
            // A here-document may have added many at once, so the count alone does not tell.
            self.is_full = true;
            self.push_unknown_command(self.at);
        }
    }

    fn begins_redirection(&self) -> bool {
        let sign = self.rest().trim_start_matches(|c: char| c.is_ascii_digit());
        let is_process = sign.len() == self.rest().len() && is_process_substitution(sign);
        sign.starts_with(['<', '>']) && !is_process
    }

    /// Reads a redirection with its target.
    fn read_redirection(&mut self, open: &mut OpenCommand) {
        const SIGNS: [&str; 10] = ["<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">|", ">&", ">"];
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let found = SIGNS.iter().find(|sign| self.rest().starts_with(**sign));
        let Some(sign) = found else {
            return;
        };
        self.at += sign.len();
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let start = self.at;
        let target = self.read_word(true);
        let written = &self.text[start..self.at];
        let is_descriptor = target.certain
            && (target.text == "-" || target.text.trim_end_matches('-').parse::<u32>().is_ok());
        match *sign {
            "<<" | "<<-" => self.expect_document(written, *sign == "<<-", open),
            "<<<" => open.command.inputs.push(target),
            ">&" | "<&" if is_descriptor => {}
            "<" | "<&" => open.command.reads.push(target),
            _ if is_process_substitution(written) => {}
            _ => open.command.writes.push(target),
        }
    }

    fn expect_document(&mut self, written: &str, strips_tabs: bool, open: &mut OpenCommand) {
        let quotes = ['\'', '"', '\\'];
        let number = self.documents.len() + self.pending.len();
        open.documents.push(number);
        self.pending.push(PendingDocument {
            number,
            end: written.replace(quotes, ""),
            expands: !written.contains(quotes),
            strips_tabs,
        });
    }

    /// Reads the here-documents that begin in this line.
    fn read_documents(&mut self) {
        for document in std::mem::take(&mut self.pending) {
            let body = self.read_document(&document);
            let expands = document.expands && body.contains(['$', '`']);
            debug_assert_eq!(self.documents.len(), document.number);
            self.documents.push(ShellWord {
                text: body.to_owned(),
                certain: !expands,
            });
            if expands {
                self.read_expansions_of(body);
            }
        }
    }

    /// Reads the lines of a here-document up to its end.
    fn read_document(&mut self, document: &PendingDocument) -> &'a str {
        let start = self.at;
        let mut end = self.text.len();
        let mut begins_like_end = false;
        // Without its last line it may end with the substitution that it is in.
        let mut is_doubtful = true;
        while self.at < self.text.len() {
            let line_start = self.at;
            let line = self.rest().split('\n').next().unwrap_or_default();
            self.at = (self.at + line.len() + 1).min(self.text.len());
            let bare = if document.strips_tabs {
                line.trim_start_matches('\t')
            } else {
                line
            };
            if bare == document.end {
                end = line_start;
                is_doubtful &= begins_like_end;
                break;
            }
            // Shells disagree on whether `EOF)` ends a here-document in a substitution.
            begins_like_end |= bare.starts_with(&document.end);
        }
        if is_doubtful && (begins_like_end || self.depth > 0) {
            self.push_unknown_command(start);
        }
        &self.text[start..end]
    }

    fn push_unknown_command(&mut self, start: usize) {
        let command = unknown_command(&self.text[start..]);
        self.commands.push((command, Vec::new()));
    }

    /// Reads the substitutions of a text that is not code itself.
    fn read_expansions_of(&mut self, body: &str) {
        self.enter(|reader| {
            let mut inner = ScriptReader::new(body, reader.depth);
            while !inner.rest().is_empty() {
                inner.read_double_quoted(&mut ShellWord::literal(""), None);
            }
            let found = inner.finish().into_iter();
            reader
                .commands
                .extend(found.map(|command| (command, Vec::new())));
        });
    }
}

fn is_process_substitution(text: &str) -> bool {
    text.starts_with("<(") || text.starts_with(">(")
}

#[cfg(test)]
mod tests;
