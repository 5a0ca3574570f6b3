//! What a call becomes for a provider that takes only objects as arguments.

use serde_json::{Map, Value, json};
use toolgate_core::RawArguments;

/// What a call was asked with. What is no object is handed back as what it is, under a name that says so: the model
/// shall see what it wrote, and an empty object would be something that nobody wrote.
pub(crate) fn object(arguments: &RawArguments) -> Value {
    let invalid = |text: String| json!({ "INVALID_JSON": text });
    match arguments {
        RawArguments::Json(json) if json.is_object() => json.as_value().clone(),
        RawArguments::Json(json) => invalid(json.to_string()),
        RawArguments::Text(text) => match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(object) => object.into(),
            Err(_) => invalid(text.clone()),
        },
    }
}
