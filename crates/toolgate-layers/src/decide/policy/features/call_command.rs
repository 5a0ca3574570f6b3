//! A command that a call names, and how it is read from the arguments.

use std::cell::OnceCell;

use serde_json::Value;

use crate::decide::policy::matching::shell::{
    self, CommandWords, ScriptCommand, ShellReading, ShellWord,
};

/// A command that the call names.
pub(crate) struct CallCommand {
    pub(crate) text: String,
    /// The commands that it runs, as far as they can be read.
    pub(crate) reading: ShellReading,
    /// Those commands, if a rule can allow all of them.
    pub(crate) runs: Option<Vec<CommandWords>>,
    said: OnceCell<Vec<CommandWords>>,
    certain: OnceCell<Vec<CommandWords>>,
    script: OnceCell<Vec<ScriptCommand>>,
}

impl CallCommand {
    fn new(text: String, reading: ShellReading) -> Self {
        Self {
            text,
            runs: reading.plain_commands().map(without_idle_directories),
            reading,
            said: OnceCell::new(),
            certain: OnceCell::new(),
            script: OnceCell::new(),
        }
    }

    /// Returns all commands of the text, also behind what cannot be read with certainty.
    pub(crate) fn script(&self) -> &[ScriptCommand] {
        self.script.get_or_init(|| shell::read_script(&self.text))
    }

    /// Checks whether it is certain which commands run.
    pub(crate) fn is_certain(&self) -> bool {
        self.reading.unread.is_none()
    }

    /// Returns every run of words that could be a command, however it is quoted.
    pub(crate) fn possible_runs(&self) -> &[CommandWords] {
        self.said.get_or_init(|| {
            let mut runs = shell::possible_runs(&self.text);
            runs.extend(self.reading.commands.iter().map(|words| plain_texts(words)));
            runs.extend(self.reading.targets.iter().map(|file| vec![file.clone()]));
            runs
        })
    }

    /// Returns the commands that run if all is certain: as they are and, because a tool may join
    /// their words and pass them to a shell, split at blanks.
    pub(crate) fn certain_runs(&self) -> &[CommandWords] {
        self.certain.get_or_init(|| {
            let whole = self.reading.commands.iter().map(|words| plain_texts(words));
            whole.flat_map(|run| [split_run(&run), run]).collect()
        })
    }
}

/// Reads `git -C . status` as `git status`: both run in the same directory.
fn without_idle_directories(mut runs: Vec<CommandWords>) -> Vec<CommandWords> {
    let is_git = |words: &&mut CommandWords| words.first().is_some_and(|word| word == "git");
    for words in runs.iter_mut().filter(is_git) {
        while let [_, option, dir, _, ..] = words.as_slice()
            && option == "-C"
            && matches!(dir.as_str(), "." | "./")
        {
            words.drain(1..3);
        }
    }
    runs
}

fn plain_texts(words: &[ShellWord]) -> CommandWords {
    words.iter().map(|word| word.text.clone()).collect()
}

/// Splits the words of a command at blanks.
fn split_run(run: &[String]) -> CommandWords {
    run.iter()
        .flat_map(|word| shell::split_words(word))
        .collect()
}

/// Reads a command and its arguments: `{ "command": "git", "args": ["status"] }` is one command.
pub(super) fn read_command(value: &Value, more: &[&Value]) -> CallCommand {
    let words_of = |value: &Value| -> Option<Vec<String>> {
        let words = value.as_array()?.iter();
        words.map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let argv = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        shell::read_argv(&words)
    };
    let unread = |value: &Value| {
        let mut reading = ShellReading::default();
        reading.doubt(&format!("a value of type {}", type_name(value)));
        reading
    };
    let reading = match value {
        Value::String(text) => shell::read_commands(text),
        other => words_of(other).map_or_else(|| unread(other), |words| argv(&words)),
    };
    let whole = more.iter().fold(join_texts(value), |text, value| {
        format!("{text} {}", join_texts(value))
    });
    let reading = match more {
        [] => reading,
        // With several lists, or something other than a list of words, it is unknown which of them
        // the tool uses: all of it counts as text of the command and none of it as certain.
        [list, rest @ ..] => match (reading.plain_commands().as_deref(), words_of(list)) {
            (Some([one]), Some(words)) if rest.is_empty() => argv(&[one.clone(), words].concat()),
            _ => unread(list),
        },
    };
    CallCommand::new(whole, reading)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Joins every text in a value, keys included, with spaces.
fn join_texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(join_texts).collect::<Vec<_>>().join(" "),
        Value::Object(object) => {
            let texts = object
                .iter()
                .map(|(key, value)| format!("{key} {}", join_texts(value)));
            texts.collect::<Vec<_>>().join(" ")
        }
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
