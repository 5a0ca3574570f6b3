//! Patterns that find memories in what was said: phrases with which people state preferences,
//! decisions and facts.

use crate::{MemoryKind, ScopeWord};

/// A pattern that finds memories of one kind: a sentence that begins with one of its phrases, or has
/// one in it.
///
/// ```
/// use toolgate_core::{ExtractionPattern, MemoryKind, SaidBy};
/// let pattern = ExtractionPattern::new("deploys", MemoryKind::Fact, ["we deploy with"]);
/// assert!(pattern.matches(SaidBy::User, "We deploy with kubectl on Fridays."));
/// assert!(!pattern.matches(SaidBy::User, "Should we deploy with kubectl?"));
/// assert!(!pattern.matches(SaidBy::Model, "We deploy with kubectl."));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractionPattern {
    name: String,
    kind: MemoryKind,
    phrases: Vec<String>,
    position: PhrasePosition,
    reads_model: bool,
    scope: ScopeWord,
}

/// The author of a text that is searched for memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SaidBy {
    /// The user.
    User,
    /// The model.
    Model,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PhrasePosition {
    Start,
    Anywhere,
}

impl ExtractionPattern {
    /// Creates a pattern for sentences of the user that begin with one of the phrases. Case and
    /// punctuation do not count. `name` says in `toolgate memory why` which pattern it was.
    pub fn new<'a>(
        name: &str,
        kind: MemoryKind,
        phrases: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let phrases = phrases.into_iter().map(plain_words);
        Self {
            name: name.to_owned(),
            kind,
            phrases: phrases.filter(|phrase| phrase.len() > 1).collect(),
            position: PhrasePosition::Start,
            reads_model: false,
            scope: ScopeWord::Project,
        }
    }

    /// Also finds the phrases within a sentence.
    pub fn anywhere(mut self) -> Self {
        self.position = PhrasePosition::Anywhere;
        self
    }

    /// Also reads what the model said. It may repeat what a page or a file told it.
    pub fn also_from_model(mut self) -> Self {
        self.reads_model = true;
        self
    }

    /// Sets the scope of what it finds; by default the project, or the session where there is no
    /// project.
    pub fn in_scope(mut self, scope: ScopeWord) -> Self {
        self.scope = scope;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of what it finds.
    pub const fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Returns the scope of what it finds.
    pub const fn scope(&self) -> ScopeWord {
        self.scope
    }

    /// Checks whether a sentence is a memory by this pattern. A question never is.
    pub fn matches(&self, by: SaidBy, sentence: &str) -> bool {
        if by == SaidBy::Model && !self.reads_model {
            return false;
        }
        if sentence.trim_end().ends_with(['?', '？']) {
            return false;
        }
        let plain = plain_words(sentence);
        self.phrases.iter().any(|phrase| match self.position {
            PhrasePosition::Start => plain.starts_with(phrase),
            PhrasePosition::Anywhere => plain.contains(phrase),
        })
    }

    /// Returns the patterns that are used by default.
    pub fn standard() -> Vec<Self> {
        let preference = MemoryKind::Preference;
        vec![
            Self::new("asked-to-remember", MemoryKind::Note, ASKED_TO_REMEMBER),
            Self::new("preference", preference, PREFERENCES),
            Self::new("from-now-on", preference, FROM_NOW_ON).anywhere(),
            Self::new("decision", MemoryKind::Decision, DECISIONS).also_from_model(),
            Self::new("project-fact", MemoryKind::Fact, FACTS).also_from_model(),
            Self::new("our-project", MemoryKind::Fact, OUR_FACTS),
        ]
    }
}

const ASKED_TO_REMEMBER: [&str; 6] = [
    "remember that",
    "please remember",
    "remember:",
    "keep in mind",
    "note that",
    "for the record",
];

const PREFERENCES: [&str; 14] = [
    "i prefer",
    "i always want",
    "i never want",
    "i like to",
    "i don't like",
    "i do not like",
    "please always",
    "please never",
    "please don't ever",
    "always use",
    "always run",
    "never use",
    "never run",
    "my preferred",
];

const FROM_NOW_ON: [&str; 3] = ["from now on", "going forward", "i would rather"];

const DECISIONS: [&str; 10] = [
    "we decided",
    "we've decided",
    "we have decided",
    "we agreed",
    "let's use",
    "let's go with",
    "let us use",
    "we will use",
    "we'll use",
    "the decision is",
];

const FACTS: [&str; 7] = [
    "this project uses",
    "the project uses",
    "this project is",
    "this repository uses",
    "this repo uses",
    "this codebase uses",
    "the tests are in",
];

const OUR_FACTS: [&str; 8] = [
    "we use",
    "we deploy",
    "our api",
    "our database",
    "our tests",
    "our code",
    "our ci",
    "our team",
];

/// Returns the words in lower case with single spaces, and a space before the first and after the
/// last, so that a phrase only matches whole words.
fn plain_words(text: &str) -> String {
    let mut plain = String::with_capacity(text.len() + 2);
    plain.push(' ');
    for c in text.chars().flat_map(char::to_lowercase) {
        match c {
            // An apostrophe belongs to its word, in either form.
            '\'' | '’' => plain.push('\''),
            _ if c.is_alphanumeric() => plain.push(c),
            _ if !plain.ends_with(' ') => plain.push(' '),
            _ => {}
        }
    }
    if !plain.ends_with(' ') {
        plain.push(' ');
    }
    plain
}
