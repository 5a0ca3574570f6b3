//! Texts of any size that are shared instead of copied.

use std::sync::Arc;

use serde_json::Value;
use toolgate_core::Json;

/// A text that the model reads, shared with the store and other holders of the result.
#[derive(Clone)]
pub(crate) enum SharedText {
    Plain(Arc<str>),
    /// JSON that is known to be a string.
    Json(Json),
}

impl SharedText {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Json(json) => json.as_str().unwrap_or_default(),
        }
    }
}

impl From<Arc<str>> for SharedText {
    fn from(text: Arc<str>) -> Self {
        Self::Plain(text)
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        // Not an `Arc<str>`, which would be another copy.
        Self::Json(text.into())
    }
}

impl From<Json> for SharedText {
    fn from(value: Json) -> Self {
        if value.is_string() {
            Self::Json(value)
        } else {
            value.to_string().into()
        }
    }
}

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.as_str().as_bytes()
    }
}

/// Checks whether a value is longer than `most` bytes as the model would read it, without
/// serializing it to memory.
pub(crate) fn exceeds_size(value: &Value, most: usize) -> bool {
    struct RoomCounter(usize);
    impl std::io::Write for RoomCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(std::io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    match value {
        Value::String(text) => text.len() > most,
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::Array(_) | Value::Object(_) => {
            serde_json::to_writer(RoomCounter(most), value).is_err()
        }
    }
}

/// Returns the length of a value as JSON, without serializing it to memory.
pub(crate) fn json_size(value: &Value) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = ByteCounter(0);
    // Counting cannot fail; a value that cannot be serialized counts as the largest.
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_as_long_as_what_the_model_would_read() {
        for value in [
            json!("é\u{1}\""),
            json!({ "a": ["é\u{1}\"", 1.5, null, true] }),
            json!([]),
            json!([[1], {}]),
        ] {
            let mut settled = toolgate_core::SettledOutcome::new(toolgate_core::Status::Ok);
            settled.value = Json::new(value.clone()).expect("flat");
            let size = settled.model_size();
            assert!(exceeds_size(&value, size - 1), "{value}");
            assert!(!exceeds_size(&value, size), "{value}");
            assert_eq!(
                SharedText::from(settled.value.clone()).as_str(),
                settled.model_text()
            );
            assert_eq!(json_size(&value), value.to_string().len());
        }
    }

    #[test]
    fn a_text_is_shared_and_not_copied() {
        let json = Json::from("x".repeat(100));
        let text = SharedText::from(json.clone());
        assert!(std::ptr::eq(
            text.clone().as_str(),
            json.as_str().expect("text")
        ));
    }
}
