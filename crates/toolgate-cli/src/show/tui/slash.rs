//! Commands that are written in the message: `/help`, `/model NAME`. They are not sent to the model.

/// A command that is written in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlashAction {
    /// Show keys and commands.
    Help,
    /// Use another model, or say which one is used.
    Model,
    /// Begin a new session.
    Clear,
    /// Choose another session.
    Resume,
    /// Search all sessions.
    Search,
    /// Give the session a title.
    Rename,
    /// Write the conversation to a file.
    Export,
    /// Import a file as history.
    Import,
    /// List, find, add, change or forget memories.
    Memory,
    /// Quit.
    Quit,
}

/// A row of the table of commands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlashCommand {
    /// The name, without the slash.
    pub(crate) name: &'static str,
    /// The argument in the help; empty if it takes none.
    pub(crate) argument: &'static str,
    /// The description.
    pub(crate) does: &'static str,
    /// The action.
    pub(crate) action: SlashAction,
}

const fn command(
    name: &'static str,
    argument: &'static str,
    does: &'static str,
    action: SlashAction,
) -> SlashCommand {
    SlashCommand {
        name,
        argument,
        does,
        action,
    }
}

/// The commands, in the order of the help.
pub(crate) const SLASH_COMMANDS: &[SlashCommand] = &[
    command("help", "", "show keys and commands", SlashAction::Help),
    command(
        "model",
        "NAME",
        "use another model from the next run on",
        SlashAction::Model,
    ),
    command(
        "clear",
        "",
        "begin a new session; this one is saved",
        SlashAction::Clear,
    ),
    command(
        "resume",
        "",
        "choose an earlier session of this directory",
        SlashAction::Resume,
    ),
    command(
        "search",
        "WORDS",
        "search all sessions, of every directory",
        SlashAction::Search,
    ),
    command(
        "rename",
        "TITLE",
        "give this session a title",
        SlashAction::Rename,
    ),
    command(
        "export",
        "[markdown|html|json]",
        "write the session to a file, redacted",
        SlashAction::Export,
    ),
    command(
        "import",
        "FILE",
        "import an archive or a session of another agent",
        SlashAction::Import,
    ),
    command(
        "memory",
        "WORDS",
        "list or find memories; also add, show, why, edit, forget",
        SlashAction::Memory,
    ),
    command("quit", "", "quit", SlashAction::Quit),
];

/// The meaning of what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WrittenText {
    /// A message to the model.
    Message(String),
    /// A command, with its argument.
    Command(SlashAction, String),
    /// Neither: why, and what to write instead.
    Mistake(String),
}

/// How to send a message that begins with a slash.
const LITERALLY: &str = "a second slash or a space before it sends it as a message";

impl WrittenText {
    /// Parses what was written. A leading space or a second slash makes a message of anything, and
    /// a path such as `/etc/hosts` is a message as well.
    pub(crate) fn parse(written: &str) -> Self {
        let message = || Self::Message(written.trim().to_owned());
        let Some(line) = written.strip_prefix('/') else {
            return message();
        };
        if line.starts_with('/') {
            return Self::Message(line.trim().to_owned());
        }
        let (word, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if !word.chars().all(|c| c.is_ascii_alphabetic() || c == '-') {
            return message();
        }
        let argument = argument.trim();
        let word = word.to_ascii_lowercase();
        match SLASH_COMMANDS.iter().find(|command| command.name == word) {
            Some(known) if known.argument.is_empty() && !argument.is_empty() => {
                Self::Mistake(format!("/{word} takes nothing after it; {LITERALLY}"))
            }
            Some(known) => Self::Command(known.action, argument.to_owned()),
            None => Self::Mistake(unknown_command(&word)),
        }
    }
}

/// Returns what to write for a message to be sent as it is.
pub(crate) fn to_draft(message: &str) -> String {
    match WrittenText::parse(message) {
        WrittenText::Message(text) if text == message => text,
        _ => format!(" {message}"),
    }
}

/// Says that there is no such command, and names the nearest one.
fn unknown_command(word: &str) -> String {
    let closeness =
        |command: &SlashCommand| strsim::normalized_damerau_levenshtein(word, command.name);
    let nearest = SLASH_COMMANDS
        .iter()
        .max_by(|a, b| closeness(a).total_cmp(&closeness(b)))
        // Less similar ones would be a guess.
        .filter(|command| closeness(command) >= 0.4 || command.name.starts_with(word));
    let instead = match nearest {
        Some(command) if !word.is_empty() => format!("did you mean /{}?", command.name),
        _ => "/help lists them;".to_owned(),
    };
    format!("there is no command /{word}: {instead} {LITERALLY}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_after_a_leading_slash_is_a_command() {
        let message = |text: &str| WrittenText::Message(text.to_owned());
        let cases = [
            ("hello", message("hello")),
            (" /help", message("/help")),
            ("//help", message("/help")),
            ("/etc/hosts is wrong", message("/etc/hosts is wrong")),
            (
                "/help",
                WrittenText::Command(SlashAction::Help, String::new()),
            ),
            (
                "/QUIT ",
                WrittenText::Command(SlashAction::Quit, String::new()),
            ),
            (
                "/model  ollama:qwen ",
                WrittenText::Command(SlashAction::Model, "ollama:qwen".to_owned()),
            ),
        ];
        for (written, meant) in cases {
            assert_eq!(WrittenText::parse(written), meant, "{written}");
            if let WrittenText::Message(text) = &meant {
                assert_eq!(WrittenText::parse(&to_draft(text)), meant, "{text}");
            }
        }
    }

    #[test]
    fn a_word_that_is_no_command_names_the_nearest_one() {
        let said = |written: &str| match WrittenText::parse(written) {
            WrittenText::Mistake(why) => why,
            other => panic!("{written}: {other:?}"),
        };
        assert!(said("/modle gpt").contains("did you mean /model?"));
        assert!(said("/res").contains("did you mean /resume?"));
        assert!(said("/zzz").contains("/help lists them"));
        assert!(said("/").contains("/help lists them"));
        assert!(said("/help me with this").contains("takes nothing after it"));
    }
}
