//! Looking for words in a conversation.

use crate::screen::{AgentView, Item, Screen};

/// What is looked for, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Search {
    /// The words, in small letters.
    pub(crate) words: String,
    /// The items that have them.
    pub(crate) found: Vec<usize>,
    /// Which of those is shown.
    pub(crate) at: usize,
}

/// Which way to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Next,
    Before,
}

impl Search {
    /// Looks for words. The newest place is the first to be shown.
    pub(crate) fn new(words: &str, screen: &Screen, agent: &AgentView) -> Self {
        let words = words.trim().to_lowercase();
        let found = places(&words, screen, agent);
        let at = found.len().saturating_sub(1);
        Self { words, found, at }
    }

    /// Looks again, since more may have been said, and goes on from the place that was shown.
    pub(crate) fn go(&mut self, way: Way, screen: &Screen, agent: &AgentView) -> Option<usize> {
        let shown = self.place();
        self.found = places(&self.words, screen, agent);
        let now = shown
            .and_then(|shown| self.found.iter().position(|item| *item == shown))
            .unwrap_or_default();
        let len = self.found.len().max(1);
        self.at = match way {
            Way::Next => (now + 1) % len,
            Way::Before => (now + len - 1) % len,
        };
        self.place()
    }

    /// The item that is shown.
    pub(crate) fn place(&self) -> Option<usize> {
        self.found.get(self.at).copied()
    }

    /// How it stands, in words.
    pub(crate) fn standing(&self) -> String {
        match self.found.len() {
            0 => format!("nothing has “{}”", super::text::one_line(&self.words)),
            count => format!(
                "“{}”: {} of {count}",
                super::text::one_line(&self.words),
                self.at + 1
            ),
        }
    }
}

fn places(words: &str, screen: &Screen, agent: &AgentView) -> Vec<usize> {
    if words.is_empty() {
        return Vec::new();
    }
    let has = |text: &str| text.to_lowercase().contains(words);
    let hit = |item: &Item| match item {
        Item::User { text, .. } | Item::Model(text) | Item::Note(text) => has(text),
        Item::Call(id) => screen.call(*id).is_some_and(|call| {
            let said = |text: &Option<String>| text.as_deref().is_some_and(has);
            let json = |value: &Option<toolgate::Json>| {
                value
                    .as_ref()
                    .is_some_and(|v| has(&v.as_value().to_string()))
            };
            has(call.invocation.tool.as_str())
                || json(&call.arguments)
                || said(&call.reason)
                || json(&call.result)
        }),
    };
    agent
        .items
        .iter()
        .enumerate()
        .filter(|(_, item)| hit(item))
        .map(|(place, _)| place)
        .collect()
}
