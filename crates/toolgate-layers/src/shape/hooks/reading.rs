//! Reads which files the command of a hook runs: a changed one must not run as the user.

use std::path::{Path, PathBuf};

use super::command::HookCommandLine;
use crate::decide::policy::matching::shell::{ScriptCommand, ShellWord, read_script};

/// Programs whose operands are no files that run.
const PRINTING_PROGRAMS: [&str; 12] = [
    ":", "[", "cat", "echo", "exit", "export", "false", "grep", "jq", "printf", "test", "true",
];

/// Directories beyond this number are not looked into for more directories.
const MAX_DIRECTORIES: usize = 64;

/// What a command says about the files that it runs.
pub(super) struct HookReading {
    /// The words that may name a file.
    pub(super) words: Vec<String>,
    /// The directories from which they may be named: that of the configuration, and those that the
    /// command enters.
    pub(super) directories: Vec<PathBuf>,
    /// False if a variable or a substitution decides which files run.
    pub(super) is_certain: bool,
}

impl HookReading {
    pub(super) fn of(command: &HookCommandLine) -> Self {
        let mut reading = Self {
            words: Vec::new(),
            directories: vec![PathBuf::new()],
            is_certain: true,
        };
        match command {
            HookCommandLine::Shell(text) => reading.add_text(text),
            HookCommandLine::Program(words) => {
                reading.words.extend(words.iter().cloned());
                // A shell may be among them, with its text as one word.
                let is_text = |word: &&String| word.contains([' ', '\n', ';', '&', '|', '$', '`']);
                let texts: Vec<&String> = words.iter().filter(is_text).collect();
                texts.into_iter().for_each(|text| reading.add_text(text));
            }
        }
        reading
    }

    /// Returns the directories from which a word may name a file: those that the command enters, and
    /// those that it names in another way, as `env -C scripts` and `command cd scripts` do.
    pub(super) fn directories_in(&self, base: &Path) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = self.directories.iter().map(|it| base.join(it)).collect();
        let mut at = 0;
        while at < found.len() && found.len() < MAX_DIRECTORIES {
            let named = self.words.iter().map(|word| found[at].join(word));
            let mut named: Vec<PathBuf> = named.filter(|it| it.is_dir()).collect();
            named.retain(|it| !found.contains(it));
            found.extend(named);
            at += 1;
        }
        found
    }

    fn add_text(&mut self, text: &str) {
        // Whatever else the text is, each of its words may be a file.
        let is_border = |c: char| c.is_whitespace() || "\"'`;|&()<>=$".contains(c);
        let words = text.split(is_border).filter(|word| !word.is_empty());
        self.words.extend(words.map(str::to_owned));
        for command in &read_script(text) {
            self.add_command(command);
        }
    }

    fn add_command(&mut self, command: &ScriptCommand) {
        let words = command.words.iter().chain(&command.reads);
        self.words.extend(words.map(|word| word.text.clone()));
        let program = command.program();
        let name = program.as_deref().unwrap_or_default();
        let is_expanded = |word: &ShellWord| !word.certain || word.text.contains(['*', '?', '[']);
        let mut files = command.words.iter().chain(&command.reads);
        // Of these only the program itself could be a file that runs.
        let first = files.next();
        let prints = PRINTING_PROGRAMS.contains(&name);
        let is_program_unread = first.is_some_and(|word| is_expanded(word) && word.text != "[");
        if is_program_unread || !prints && files.any(is_expanded) {
            self.is_certain = false;
        }
        if ["cd", "pushd", "chdir"].contains(&name) {
            self.enter_directory(&command.words[1..]);
        }
    }

    fn enter_directory(&mut self, operands: &[ShellWord]) {
        match operands {
            [directory] if directory.certain && !directory.text.starts_with(['-', '~']) => {
                let last = self.directories.last().map(PathBuf::as_path);
                let entered = last.unwrap_or(Path::new("")).join(&directory.text);
                self.directories.push(entered);
            }
            _ => self.is_certain = false,
        }
    }
}
