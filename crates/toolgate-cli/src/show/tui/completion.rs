//! Completion in the message: commands after `/`, files of the workspace after `@`.

use super::{ChatApp, UiEffect, slash::SLASH_COMMANDS};

/// The choices for the word before the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputCompletion {
    /// The word, with its sign.
    word: String,
    pub(crate) choices: Vec<CompletionChoice>,
    pub(crate) selected: usize,
}

/// Something that the word can become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompletionChoice {
    /// The text that replaces the word.
    pub(crate) text: String,
    /// The description, or nothing.
    pub(crate) does: &'static str,
    /// True if there is nothing to write after it.
    is_whole: bool,
}

/// The most choices that are shown.
pub(crate) const MAX_CHOICES: usize = 8;

/// Looks up the choices for the word before the cursor, after the message has changed.
pub(super) fn look_up(app: &mut ChatApp) -> Vec<UiEffect> {
    let word = app.input.word_before_cursor();
    if app
        .completion
        .as_ref()
        .is_some_and(|shown| Some(&shown.word) == word.as_ref())
    {
        return Vec::new();
    }
    app.completion = None;
    let Some(word) = word else {
        return Vec::new();
    };
    if let Some(part) = word.strip_prefix('@') {
        // A mail address has its sign in the middle, so it does not begin a word.
        return vec![UiEffect::FindFiles(part.to_owned())];
    }
    if word == app.input.text()
        && let Some(part) = word.strip_prefix('/')
    {
        let commands = SLASH_COMMANDS
            .iter()
            .filter(|command| command.name.starts_with(part));
        let choices = commands.map(|command| CompletionChoice {
            text: format!("/{}", command.name),
            does: command.does,
            is_whole: command.argument.is_empty(),
        });
        app.completion = InputCompletion::new(word.clone(), choices.collect());
    }
    Vec::new()
}

/// Shows the files that were found for a word, if it is still the one before the cursor.
pub(super) fn show_files(app: &mut ChatApp, part: &str, files: Vec<String>) {
    let word = format!("@{part}");
    if app.input.word_before_cursor().as_deref() != Some(word.as_str()) {
        return;
    }
    let choices = files.into_iter().map(|text| CompletionChoice {
        text,
        does: "",
        is_whole: false,
    });
    app.completion = InputCompletion::new(word, choices.collect());
}

/// Puts the selected choice into the message. Returns true if the message is a whole command now.
pub(super) fn accept(app: &mut ChatApp) -> bool {
    let Some(shown) = app.completion.take() else {
        return false;
    };
    let Some(choice) = shown.choices.get(shown.selected) else {
        return false;
    };
    // Enter after a whole word means to run it.
    if choice.text == shown.word {
        return true;
    }
    let end = if choice.is_whole { "" } else { " " };
    app.input
        .replace_before_cursor(&shown.word, &format!("{}{end}", choice.text));
    choice.is_whole
}

impl InputCompletion {
    fn new(word: String, choices: Vec<CompletionChoice>) -> Option<Self> {
        (!choices.is_empty()).then_some(Self {
            word,
            choices,
            selected: 0,
        })
    }

    /// Selects the next or previous choice.
    pub(super) fn step(&mut self, way: super::search::StepDirection) {
        let len = self.choices.len();
        self.selected = way.step_index(self.selected, len);
    }
}
