//! Makes the copies of arguments, results and texts that recorders may keep or send away.

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolgate_core::Json;

use crate::SharedRedactor;

/// Removes named keys at any depth, then lets the stack's redactor take out secrets.
///
/// Every method returns nothing if the copy cannot be made; then nothing is kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keeper {
    keys: Vec<String>,
    redactor: Option<SharedRedactor>,
}

impl Keeper {
    /// Also removes these keys.
    pub(crate) fn without(mut self, keys: Vec<String>) -> Self {
        self.keys = keys;
        self
    }

    /// Also lets this redactor take out secrets.
    pub(crate) fn redacting(mut self, redactor: Option<SharedRedactor>) -> Self {
        self.redactor = redactor;
        self
    }

    /// Whether somebody takes out secrets.
    pub(crate) fn redacts(&self) -> bool {
        self.redactor.is_some()
    }

    /// A copy that may be kept. If nothing has to go, it is the same allocation, whose digest is known already.
    pub(crate) fn json(&self, json: &Json) -> Option<Json> {
        let named = match self.names_part_of(json) {
            true => Json::new(self.stripped(json)).ok()?,
            false => json.clone(),
        };
        match &self.redactor {
            Some(redactor) => redactor.json(&named),
            None => Some(named),
        }
    }

    /// The same for an object that is not shared.
    pub(crate) fn map<'a>(
        &self,
        map: &'a Map<String, Value>,
    ) -> Option<Cow<'a, Map<String, Value>>> {
        if self.keys.is_empty()
            && let Some(redactor) = &self.redactor
        {
            let changed = redactor.changed_map(map).ok()?;
            return Some(changed.map_or(Cow::Borrowed(map), Cow::Owned));
        }
        let copy = self.json(&Json::new(Value::Object(map.clone())).ok()?)?;
        copy.as_object().cloned().map(Cow::Owned)
    }

    /// A text that may be kept.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
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

    /// Whether this key is removed.
    pub(crate) fn names(&self, key: &str) -> bool {
        self.keys.iter().any(|name| name == key)
    }

    fn names_part_of(&self, value: &Value) -> bool {
        match value {
            _ if self.keys.is_empty() => false,
            Value::Array(items) => items.iter().any(|item| self.names_part_of(item)),
            Value::Object(map) => map
                .iter()
                .any(|(key, item)| self.names(key) || self.names_part_of(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    fn stripped(&self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.stripped(item)).collect(),
            Value::Object(map) => {
                let kept = map.iter().filter(|(key, _)| !self.names(key));
                Value::Object(
                    kept.map(|(key, item)| (key.clone(), self.stripped(item)))
                        .collect(),
                )
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
}

/// At most `most` characters, with a mark where text is missing.
pub(crate) fn bounded<'a>(text: impl Into<Cow<'a, str>>, most: usize) -> String {
    let text = text.into();
    // No text has more characters than bytes, and most are short.
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
    fn named_keys_go_at_any_depth_and_nothing_is_copied_when_there_are_none() {
        let keeper = Keeper::default().without(vec!["token".into()]);
        let json =
            Json::new(json!({ "token": 1, "list": [{ "token": { "deep": 2 }, "kept": 3 }] }))
                .expect("shallow");
        assert_eq!(
            *keeper.json(&json).expect("kept"),
            json!({ "list": [{ "kept": 3 }] })
        );
        let plain = Json::new(json!({ "tokens": [1] })).expect("shallow");
        assert!(keeper.json(&plain).expect("kept").same(&plain));
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(bounded("äöü", 3), "äöü");
        assert_eq!(bounded("äöüß", 3), "äö…");
    }
}
