//! Search in a conversation.

use crate::show::screen::{AgentView, ConversationItem, SessionScreen};

/// A search and its matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationSearch {
    /// The search text, in lower case.
    pub(crate) words: String,
    /// The items that contain it.
    pub(crate) found: Vec<usize>,
    /// The match that is shown.
    pub(crate) at: usize,
}

/// The direction of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepDirection {
    Next,
    Previous,
}

impl ConversationSearch {
    /// Searches the conversation. The newest match is shown first.
    pub(crate) fn new(words: &str, screen: &SessionScreen, agent: &AgentView) -> Self {
        let words = words.trim().to_lowercase();
        let found = find_items(&words, screen, agent);
        let at = found.len().saturating_sub(1);
        Self { words, found, at }
    }

    /// Searches again, since there may be new items, and moves on from the match that was shown.
    pub(crate) fn step(
        &mut self,
        way: StepDirection,
        screen: &SessionScreen,
        agent: &AgentView,
    ) -> Option<usize> {
        let shown = self.current_item();
        // Searched again, because the conversation may have grown since.
        self.found = find_items(&self.words, screen, agent);
        let now = shown
            .and_then(|shown| self.found.iter().position(|item| *item == shown))
            .unwrap_or_default();
        let len = self.found.len().max(1);
        self.at = match way {
            StepDirection::Next => (now + 1) % len,
            StepDirection::Previous => (now + len - 1) % len,
        };
        self.current_item()
    }

    /// Returns the item that is shown.
    pub(crate) fn current_item(&self) -> Option<usize> {
        self.found.get(self.at).copied()
    }

    /// Returns the search text and the number of the match.
    pub(crate) fn status_text(&self) -> String {
        match self.found.len() {
            0 => format!("no match for “{}”", super::text::one_line(&self.words)),
            count => format!(
                "“{}”: {} of {count}",
                super::text::one_line(&self.words),
                self.at + 1
            ),
        }
    }
}

fn find_items(words: &str, screen: &SessionScreen, agent: &AgentView) -> Vec<usize> {
    if words.is_empty() {
        return Vec::new();
    }
    let has = |text: &str| text.to_lowercase().contains(words);
    let hit = |item: &ConversationItem| match item {
        ConversationItem::User { text, .. }
        | ConversationItem::Model(text)
        | ConversationItem::Note(text) => has(text),
        ConversationItem::Call(id) => screen.call(*id).is_some_and(|call| {
            let said = |text: &Option<String>| text.as_deref().is_some_and(has);
            let json = |value: &Option<toolgate::value::Json>| {
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
