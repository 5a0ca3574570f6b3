//! Takes secrets out of what goes into a cassette, and makes sure that none is left.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate_core::{Delta, Json, RedactionFailed, Redactor, contained_sync};
use zeroize::Zeroizing;

/// What stands where a known secret stood.
const MARK: &str = "[redacted]";

/// Removes known secrets exactly and everything else that a redactor finds.
#[derive(Clone, Default)]
pub(crate) struct Scrub {
    redactor: Option<Arc<dyn Redactor>>,
    /// Longest first, each also as it looks inside of JSON.
    secrets: Vec<Arc<Zeroizing<String>>>,
}

impl Scrub {
    pub(crate) fn with(redactor: Arc<dyn Redactor>) -> Self {
        Self {
            redactor: Some(redactor),
            secrets: Vec::new(),
        }
    }

    /// Whether anybody looks for secrets that are not known beforehand.
    pub(crate) fn is_thorough(&self) -> bool {
        self.redactor.is_some()
    }

    /// Takes over the known secrets of another.
    pub(crate) fn known_from(&mut self, other: &Self) {
        self.secrets.clone_from(&other.secrets);
    }

    pub(crate) fn secret(&mut self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        let escaped = Value::from(secret).to_string();
        let escaped = &escaped[1..escaped.len() - 1];
        for form in [secret, escaped] {
            if self.secrets.iter().all(|known| known.as_str() != form) {
                self.secrets.push(Arc::new(Zeroizing::new(form.to_owned())));
            }
        }
        self.secrets
            .sort_by_key(|known| std::cmp::Reverse(known.len()));
    }

    /// A copy of a text without secrets. A text that is JSON is looked at as such: there, names of fields count.
    pub(crate) fn text(&self, text: &str) -> Result<String, RedactionFailed> {
        let text = self.without_known(text);
        match structured(&text) {
            Some(value) => self.structured_text(text, value),
            None => self.redacted_text(text),
        }
    }

    /// A copy of a value without secrets.
    pub(crate) fn value(&self, value: &Value) -> Result<Value, RedactionFailed> {
        let value = self.strings(value)?;
        let Some(redactor) = &self.redactor else {
            return Ok(value);
        };
        let value = Json::new(value).map_err(|_| RedactionFailed)?;
        let clean = contained_sync(|| redactor.redact(&value)).unwrap_or(Err(RedactionFailed))?;
        Ok(clean.as_value().clone())
    }

    /// Whether no known secret is in a text that is about to be written.
    pub(crate) fn is_clean(&self, text: &str) -> bool {
        self.secrets
            .iter()
            .all(|secret| !text.contains(secret.as_str()))
    }

    /// Pieces without secrets. A secret may be spread over several pieces, so those that belong together are looked at
    /// together; if they have to be changed, the first of them carries all.
    pub(crate) fn pieces(&self, mut pieces: Vec<Delta>) -> Result<Vec<Delta>, RedactionFailed> {
        let mut whole: Vec<(Channel, String)> = Vec::new();
        for piece in &mut pieces {
            let Some((channel, text)) = channel(piece) else {
                continue;
            };
            match whole.iter_mut().find(|(known, _)| *known == channel) {
                Some((_, whole)) => whole.push_str(text),
                None => whole.push((channel, text.clone())),
            }
        }
        for (changed, clean) in whole {
            let mut clean = match self.text(&clean)? {
                same if same == clean => continue,
                clean => Some(clean),
            };
            pieces.retain_mut(|piece| match channel(piece) {
                Some((channel, text)) if channel == changed => {
                    clean.take().map(|clean| *text = clean).is_some()
                }
                _ => true,
            });
        }
        pieces.into_iter().map(|piece| self.label(piece)).collect()
    }

    /// Cleans what a piece says besides its text.
    fn label(&self, piece: Delta) -> Result<Delta, RedactionFailed> {
        Ok(match piece {
            Delta::Call { index, id, tool } => Delta::Call {
                index,
                id: self.text(&id)?,
                tool: self.text(&tool)?,
            },
            Delta::Routed(mut routed) => {
                routed.reason = self.text(&routed.reason)?;
                Delta::Routed(routed)
            }
            other => other,
        })
    }

    /// The same with every text in it looked at on its own, as texts hold arguments and other JSON.
    fn strings(&self, value: &Value) -> Result<Value, RedactionFailed> {
        Ok(match value {
            Value::String(text) => {
                let text = self.without_known(text);
                match structured(&text) {
                    Some(value) => self.structured_text(text, value)?.into(),
                    None => text.into(),
                }
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.strings(item))
                .collect::<Result<_, _>>()?,
            Value::Object(map) => {
                let clean = |(key, value): (&String, &Value)| {
                    Ok((self.without_known(key), self.strings(value)?))
                };
                Value::Object(map.iter().map(clean).collect::<Result<Map<_, _>, _>>()?)
            }
            other => other.clone(),
        })
    }

    fn structured_text(&self, text: String, value: Value) -> Result<String, RedactionFailed> {
        let clean = self.value(&value)?;
        Ok(if clean == value {
            text
        } else {
            clean.to_string()
        })
    }

    fn redacted_text(&self, text: String) -> Result<String, RedactionFailed> {
        match &self.redactor {
            Some(redactor) => {
                contained_sync(|| redactor.redact_text(&text)).unwrap_or(Err(RedactionFailed))
            }
            None => Ok(text),
        }
    }

    fn without_known(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            match text.contains(secret.as_str()) {
                true => text.replace(secret.as_str(), MARK),
                false => text,
            }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Channel {
    Text,
    Reasoning,
    Arguments(usize),
}

fn channel(piece: &mut Delta) -> Option<(Channel, &mut String)> {
    match piece {
        Delta::Text(text) => Some((Channel::Text, text)),
        Delta::Reasoning(text) => Some((Channel::Reasoning, text)),
        Delta::Arguments { index, text } => Some((Channel::Arguments(*index), text)),
        Delta::Routed(_) | Delta::Call { .. } | Delta::Done(_) => None,
    }
}

/// The object or list that a text is, if it is one.
fn structured(text: &str) -> Option<Value> {
    let start = text.trim_start();
    let begins = start.starts_with('{') || start.starts_with('[');
    begins.then(|| serde_json::from_str(text).ok()).flatten()
}
