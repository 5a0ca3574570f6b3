//! Redacts what goes into a cassette, and checks that no known secret is left.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolgate_core::{Delta, Json, RedactionError, Redactor, run_contained_sync};
use zeroize::Zeroizing;

/// The text that replaces a known secret.
const REDACTED_MARK: &str = "[redacted]";

/// Redacts known secrets exactly and everything else that a redactor finds.
#[derive(Clone, Default)]
pub(crate) struct CassetteRedactor {
    redactor: Option<Arc<dyn Redactor>>,
    /// The known secrets, longest first, each also in its JSON-escaped form.
    secrets: Vec<Arc<Zeroizing<String>>>,
}

impl CassetteRedactor {
    pub(crate) fn with_redactor(redactor: Arc<dyn Redactor>) -> Self {
        Self {
            redactor: Some(redactor),
            secrets: Vec::new(),
        }
    }

    /// Checks whether a redactor looks for secrets that are not known beforehand.
    pub(crate) fn has_redactor(&self) -> bool {
        self.redactor.is_some()
    }

    /// Copies the known secrets of another.
    pub(crate) fn copy_secrets(&mut self, other: &Self) {
        self.secrets.clone_from(&other.secrets);
    }

    pub(crate) fn add_secret(&mut self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        let escaped = Value::from(secret).to_string();
        let escaped = &escaped[1..escaped.len() - 1];
        // Inside a JSON string the secret appears in its escaped form.
        for form in [secret, escaped] {
            if self.secrets.iter().all(|known| known.as_str() != form) {
                self.secrets.push(Arc::new(Zeroizing::new(form.to_owned())));
            }
        }
        // Longest first: a secret that is part of another one must not break up the longer one.
        self.secrets
            .sort_by_key(|known| std::cmp::Reverse(known.len()));
    }

    /// Redacts a text. A text that is JSON is parsed, since there the names of fields count.
    pub(crate) fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        let text = self.replace_known(text);
        match parse_structured(&text) {
            Some(value) => self.redact_json_text(text, value),
            None => self.redact_plain_text(text),
        }
    }

    /// Redacts a value.
    pub(crate) fn redact_value(&self, value: &Value) -> Result<Value, RedactionError> {
        let value = self.redact_strings(value)?;
        let Some(redactor) = &self.redactor else {
            return Ok(value);
        };
        let value = Json::new(value).map_err(|_| RedactionError)?;
        // A redactor that panicked has failed: unredacted text must not be written.
        let clean =
            run_contained_sync(|| redactor.redact(&value)).unwrap_or(Err(RedactionError))?;
        Ok(clean.as_value().clone())
    }

    /// Checks that a text that is about to be written contains no known secret.
    pub(crate) fn is_clean(&self, text: &str) -> bool {
        self.secrets
            .iter()
            .all(|secret| !text.contains(secret.as_str()))
    }

    /// Redacts deltas. A secret may be spread over several deltas, so those of one channel are
    /// joined and checked together; if the text changes, the first of them carries all of it.
    pub(crate) fn redact_deltas(
        &self,
        mut pieces: Vec<Delta>,
    ) -> Result<Vec<Delta>, RedactionError> {
        let mut whole: Vec<(DeltaChannel, String)> = Vec::new();
        for piece in &mut pieces {
            let Some((channel, text)) = delta_channel(piece) else {
                continue;
            };
            match whole.iter_mut().find(|(known, _)| *known == channel) {
                Some((_, whole)) => whole.push_str(text),
                None => whole.push((channel, text.clone())),
            }
        }
        for (changed, clean) in whole {
            let mut clean = match self.redact_text(&clean)? {
                same if same == clean => continue,
                clean => Some(clean),
            };
            pieces.retain_mut(|piece| match delta_channel(piece) {
                Some((channel, text)) if channel == changed => {
                    clean.take().map(|clean| *text = clean).is_some()
                }
                _ => true,
            });
        }
        pieces
            .into_iter()
            .map(|piece| self.redact_labels(piece))
            .collect()
    }

    /// Redacts the fields of a delta besides its text.
    fn redact_labels(&self, piece: Delta) -> Result<Delta, RedactionError> {
        Ok(match piece {
            Delta::Call { index, id, tool } => Delta::Call {
                index,
                id: self.redact_text(&id)?,
                tool: self.redact_text(&tool)?,
            },
            Delta::Routed(mut routed) => {
                routed.reason = self.redact_text(&routed.reason)?;
                Delta::Routed(routed)
            }
            other => other,
        })
    }

    /// Redacts every text in a value on its own, as texts may hold arguments and other JSON.
    fn redact_strings(&self, value: &Value) -> Result<Value, RedactionError> {
        Ok(match value {
            Value::String(text) => {
                let text = self.replace_known(text);
                match parse_structured(&text) {
                    Some(value) => self.redact_json_text(text, value)?.into(),
                    None => text.into(),
                }
            }
            Value::Array(items) => items
                .iter()
                .map(|item| self.redact_strings(item))
                .collect::<Result<_, _>>()?,
            Value::Object(map) => {
                let clean = |(key, value): (&String, &Value)| {
                    Ok((self.replace_known(key), self.redact_strings(value)?))
                };
                Value::Object(map.iter().map(clean).collect::<Result<Map<_, _>, _>>()?)
            }
            other => other.clone(),
        })
    }

    fn redact_json_text(&self, text: String, value: Value) -> Result<String, RedactionError> {
        let clean = self.redact_value(&value)?;
        Ok(if clean == value {
            text
        } else {
            clean.to_string()
        })
    }

    fn redact_plain_text(&self, text: String) -> Result<String, RedactionError> {
        match &self.redactor {
            Some(redactor) => {
                run_contained_sync(|| redactor.redact_text(&text)).unwrap_or(Err(RedactionError))
            }
            None => Ok(text),
        }
    }

    fn replace_known(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret.as_str()) {
                text.replace(secret.as_str(), REDACTED_MARK)
            } else {
                text
            }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeltaChannel {
    Text,
    Reasoning,
    Arguments(usize),
}

fn delta_channel(piece: &mut Delta) -> Option<(DeltaChannel, &mut String)> {
    match piece {
        Delta::Text(text) => Some((DeltaChannel::Text, text)),
        Delta::Reasoning(text) => Some((DeltaChannel::Reasoning, text)),
        Delta::Arguments { index, text } => Some((DeltaChannel::Arguments(*index), text)),
        Delta::Routed(_) | Delta::Retry(_) | Delta::Call { .. } | Delta::Done(_) => None,
    }
}

/// Parses a text that is a JSON object or list.
fn parse_structured(text: &str) -> Option<Value> {
    let start = text.trim_start();
    let begins = start.starts_with('{') || start.starts_with('[');
    begins.then(|| serde_json::from_str(text).ok()).flatten()
}
