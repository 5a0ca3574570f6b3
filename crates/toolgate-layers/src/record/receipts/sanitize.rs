//! Makes redacted copies of arguments, results and texts for recorders to store or send away.

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolgate_core::Json;

use crate::SharedRedactor;

/// Removes configured keys at any depth, then applies the stack's redactor.
///
/// Every method returns `None` if the redaction fails. The caller must then store nothing, never
/// the original.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordSanitizer {
    keys: Vec<String>,
    redactor: Option<SharedRedactor>,
}

impl RecordSanitizer {
    /// Sets the keys to remove.
    pub(crate) fn without_keys(mut self, keys: Vec<String>) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the redactor.
    pub(crate) fn with_redactor(mut self, redactor: Option<SharedRedactor>) -> Self {
        self.redactor = redactor;
        self
    }

    /// Checks whether there is a redactor.
    pub(crate) fn has_redactor(&self) -> bool {
        self.redactor.is_some()
    }

    /// Returns a redacted copy. If there is nothing to redact, it is the same allocation, whose
    /// digest is cached.
    pub(crate) fn sanitize_json(&self, json: &Json) -> Option<Json> {
        // Searched before copying: most values contain none of the keys, and a copy would lose the
        // cached digest.
        let named = if self.has_removed_key(json) {
            Json::new(self.strip_keys(json)).ok()?
        } else {
            json.clone()
        };
        match &self.redactor {
            Some(redactor) => redactor.redacted_json(&named),
            None => Some(named),
        }
    }

    /// Returns a redacted copy of an object, borrowed if there is nothing to redact.
    pub(crate) fn sanitize_map<'a>(
        &self,
        map: &'a Map<String, Value>,
    ) -> Option<Cow<'a, Map<String, Value>>> {
        if self.keys.is_empty()
            && let Some(redactor) = &self.redactor
        {
            let changed = redactor.changed_map(map).ok()?;
            return Some(changed.map_or(Cow::Borrowed(map), Cow::Owned));
        }
        let copy = self.sanitize_json(&Json::new(Value::Object(map.clone())).ok()?)?;
        copy.as_object().cloned().map(Cow::Owned)
    }

    /// Returns a redacted copy of a text, borrowed if there is nothing to redact.
    pub(crate) fn sanitize_text<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        match &self.redactor {
            Some(redactor) => Some(
                redactor
                    .changed_text(text)
                    .ok()?
                    .map_or(Cow::Borrowed(text), Cow::Owned),
            ),
            None => Some(Cow::Borrowed(text)),
        }
    }

    /// Checks whether this key is removed.
    pub(crate) fn removes_key(&self, key: &str) -> bool {
        self.keys.iter().any(|name| name == key)
    }

    /// Checks whether a removed key occurs at any depth.
    fn has_removed_key(&self, value: &Value) -> bool {
        match value {
            _ if self.keys.is_empty() => false,
            Value::Array(items) => items.iter().any(|item| self.has_removed_key(item)),
            Value::Object(map) => map
                .iter()
                .any(|(key, item)| self.removes_key(key) || self.has_removed_key(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    /// Returns a copy without the removed keys.
    fn strip_keys(&self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.strip_keys(item)).collect(),
            Value::Object(map) => {
                let kept = map.iter().filter(|(key, _)| !self.removes_key(key));
                Value::Object(
                    kept.map(|(key, item)| (key.clone(), self.strip_keys(item)))
                        .collect(),
                )
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
}

/// Truncates a text to at most `most` characters, with a mark at the end.
pub(crate) fn truncate_text<'a>(text: impl Into<Cow<'a, str>>, most: usize) -> String {
    let text = text.into();
    // The cheap test first: no text has more characters than bytes, and most texts are short.
    if text.len() <= most || text.char_indices().nth(most).is_none() {
        return text.into_owned();
    }
    text.chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_removed_at_any_depth_and_nothing_is_copied_without_them() {
        let keeper = RecordSanitizer::default().without_keys(vec!["token".into()]);
        let json =
            Json::new(json!({ "token": 1, "list": [{ "token": { "deep": 2 }, "kept": 3 }] }))
                .expect("shallow");
        assert_eq!(
            *keeper.sanitize_json(&json).expect("kept"),
            json!({ "list": [{ "kept": 3 }] })
        );
        let plain = Json::new(json!({ "tokens": [1] })).expect("shallow");
        assert!(keeper.sanitize_json(&plain).expect("kept").is_same(&plain));
    }

    #[test]
    fn text_is_truncated_between_characters() {
        assert_eq!(truncate_text("äöü", 3), "äöü");
        assert_eq!(truncate_text("äöüß", 3), "äö…");
    }
}
