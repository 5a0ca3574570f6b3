//! Redacts texts and values, and JSON inside of texts.
//!
//! A result is often JSON inside a text: the fields that a configuration redacts by their names are in
//! there too, and a redactor that sees only a text cannot know them. So a text that is an object or a
//! list is redacted as a value as well.

use serde_json::Value;
use toolgate_core::{Json, RedactionError, Redactor};

/// Redacts a text.
pub(crate) fn redact_text(redactor: &dyn Redactor, text: &str) -> Result<String, RedactionError> {
    match redact_inner_json(redactor, text)? {
        Some(redacted) => redactor.redact_text(&redacted),
        None => redactor.redact_text(text),
    }
}

/// Redacts a value and the texts in it.
pub(crate) fn redact_json(redactor: &dyn Redactor, value: &Json) -> Result<Json, RedactionError> {
    let mut redacted = redactor.redact(value)?.as_value().clone();
    redact_strings(redactor, &mut redacted)?;
    Json::new(redacted).map_err(|_| RedactionError)
}

/// Redacts the texts in a value that are JSON themselves.
fn redact_strings(redactor: &dyn Redactor, value: &mut Value) -> Result<(), RedactionError> {
    match value {
        Value::String(text) => {
            if let Some(redacted) = redact_inner_json(redactor, text)? {
                *text = redacted;
            }
            Ok(())
        }
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|item| redact_strings(redactor, item)),
        Value::Object(fields) => fields
            .values_mut()
            .try_for_each(|field| redact_strings(redactor, field)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Redacts the object or list that a text is; none if it is another text, or if there is nothing to
/// redact and the text stays as it was written.
fn redact_inner_json(
    redactor: &dyn Redactor,
    text: &str,
) -> Result<Option<String>, RedactionError> {
    if !text.trim_start().starts_with(['{', '[']) {
        return Ok(None);
    }
    let parsed = serde_json::from_str(text).ok();
    let Some(json) = parsed.and_then(|value| Json::new(value).ok()) else {
        return Ok(None);
    };
    let redacted = redactor.redact(&json)?;
    Ok((redacted != json).then(|| redacted.to_string()))
}
