//! Publishes a reply while it arrives, without its secrets, also those that are split over two
//! pieces.

use std::{collections::BTreeMap, sync::Arc};

use toolgate_core::{Delta, Json, TurnInfo};

use crate::{Dispatcher, StreamPiece};

/// The text in place of a part that could not be redacted.
const WITHHELD: &str = "(withheld)";

/// The most text that is held back because it may be the beginning of a secret. It is searched again
/// with each piece, so a longer one would take quadratic time; it is shown with the whole reply.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// The pieces of one reply on their way to the bus.
pub(crate) struct LivePieces<'a> {
    dispatcher: &'a Dispatcher,
    turn: &'a Arc<TurnInfo>,
    /// The number of the last event when the model was asked.
    after: u64,
    parts: BTreeMap<PartKey, HeldPart>,
}

/// A part of the reply whose pieces belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PartKey {
    Text,
    Reasoning,
    Arguments(usize),
}

/// The end of a part that is not shown yet.
enum HeldPart {
    /// It may be the beginning of a secret.
    Text(String),
    /// Nothing more of the part is shown: it could not be redacted, or its beginning was not seen.
    Hidden,
}

impl<'a> LivePieces<'a> {
    /// Begins the reply to a request that was recorded just now.
    pub(crate) fn new(dispatcher: &'a Dispatcher, turn: &'a Arc<TurnInfo>) -> Self {
        Self {
            dispatcher,
            turn,
            after: dispatcher.0.journal.sequence(),
            parts: BTreeMap::new(),
        }
    }

    /// Begins the reply to the next attempt, which was recorded just now.
    pub(crate) fn begin_attempt(&mut self) {
        self.after = self.dispatcher.0.journal.sequence();
    }

    /// Publishes what can be shown after this piece.
    pub(crate) fn publish(&mut self, delta: &Delta) {
        match delta {
            Delta::Text(text) => {
                self.finish_part(PartKey::Reasoning);
                self.add_text(PartKey::Text, text);
            }
            Delta::Reasoning(text) => {
                self.finish_part(PartKey::Text);
                self.add_text(PartKey::Reasoning, text);
            }
            // Pieces of several calls may be mixed, so these parts end with the reply.
            Delta::Arguments { index, text } => self.add_text(PartKey::Arguments(*index), text),
            Delta::Call { .. } | Delta::Routed(_) => {
                self.finish_part(PartKey::Text);
                self.finish_part(PartKey::Reasoning);
                self.send(delta.clone());
            }
            Delta::Retry(retry) => {
                // What is held back belongs to a reply that is void.
                self.parts.clear();
                let mut retry = retry.clone();
                retry.error.detail = self.dispatcher.0.visible_text(&retry.error.detail);
                self.send(Delta::Retry(retry));
            }
            Delta::Done(_) => self.finish_reply(),
        }
    }

    /// Publishes what was held back: the reply is complete.
    fn finish_reply(&mut self) {
        let keys: Vec<PartKey> = self.parts.keys().copied().collect();
        keys.into_iter().for_each(|key| self.finish_part(key));
    }

    fn add_text(&mut self, key: PartKey, text: &str) {
        // A reply has thousands of pieces, so they are not prepared without a subscriber.
        if self.dispatcher.bus().subscriber_count() == 0 {
            self.parts.insert(key, HeldPart::Hidden);
            return;
        }
        if self.dispatcher.0.redactor.is_none() {
            return self.send(key.to_delta(text.to_owned()));
        }
        let part = self
            .parts
            .entry(key)
            .or_insert_with(|| HeldPart::Text(String::new()));
        let HeldPart::Text(held) = part else { return };
        held.push_str(text);
        if let PartKey::Arguments(_) = key {
            // Which values are secret follows from the names of their fields, so arguments are shown
            // when they are complete.
            return;
        }
        let safe = self.dispatcher.0.safe_prefix(held);
        if safe > 0 {
            let rest = held.split_off(safe);
            let shown = std::mem::replace(held, rest);
            self.show(key, &shown);
        } else if held.len() > MAX_HELD_BYTES {
            self.parts.insert(key, HeldPart::Hidden);
        }
    }

    fn finish_part(&mut self, key: PartKey) {
        if let Some(HeldPart::Text(held)) = self.parts.remove(&key)
            && !held.is_empty()
        {
            self.show(key, &held);
        }
    }

    fn show(&mut self, key: PartKey, text: &str) {
        let redacted = match key {
            PartKey::Text | PartKey::Reasoning => self.dispatcher.0.redact_piece(text),
            PartKey::Arguments(_) => self.redact_arguments(text),
        };
        let shown = redacted.unwrap_or_else(|| {
            self.parts.insert(key, HeldPart::Hidden);
            WITHHELD.to_owned()
        });
        self.send(key.to_delta(shown));
    }

    /// Returns what may be shown of complete arguments.
    fn redact_arguments(&self, text: &str) -> Option<String> {
        match serde_json::from_str(text).ok().map(Json::new) {
            Some(Ok(json)) => {
                let shown = self.dispatcher.0.visible_json(&json)?;
                Some(shown.to_string())
            }
            // The model has not written JSON; nothing is run with it.
            _ => self.dispatcher.0.redact_piece(text),
        }
    }

    fn send(&self, delta: Delta) {
        self.dispatcher.bus().publish_piece(StreamPiece {
            turn: self.turn.clone(),
            after: self.after,
            delta,
        });
    }
}

impl PartKey {
    fn to_delta(self, text: String) -> Delta {
        match self {
            Self::Text => Delta::Text(text),
            Self::Reasoning => Delta::Reasoning(text),
            Self::Arguments(index) => Delta::Arguments { index, text },
        }
    }
}
