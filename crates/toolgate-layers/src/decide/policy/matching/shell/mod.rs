//! Reads the commands that a shell text would run.
//!
//! There are three readings. [`read_commands`] says which commands run as far as that is certain; the
//! rest is not guessed. [`possible_runs`] returns everything that could be a command, in any
//! quoting: a rule that forbids finds its command in there although the text cannot be read with
//! certainty. [`read_script`] returns all commands with their redirections and says of each word
//! whether a shell expands it.

mod possible_runs;
mod reader;
mod script;
mod words;

#[cfg(test)]
mod second_reader;
#[cfg(test)]
mod tests;

pub(crate) use possible_runs::{possible_runs, split_words};
pub(crate) use reader::{ShellReading, ShellWord, read_argv, read_commands, shorten};
pub(crate) use script::{MAX_SCRIPT_COMMANDS, ScriptCommand, read_script};
pub(crate) use words::{add_directories, unique_words};

/// One command: its name and its arguments.
pub(crate) type CommandWords = Vec<String>;

/// Maximum number of bytes that are read of all commands of a call. An approver would not read more
/// completely, and the readings of a text need about a hundred times its size.
pub(crate) const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// Maximum length of a text that a rule may allow.
const MAX_PLAIN_BYTES: usize = 16 * 1024;

/// Returns the name of a program without its directory.
pub(crate) fn base_name(word: &str) -> String {
    let name = word
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(word)
        .to_ascii_lowercase();
    name.strip_suffix(".exe").map(str::to_owned).unwrap_or(name)
}
