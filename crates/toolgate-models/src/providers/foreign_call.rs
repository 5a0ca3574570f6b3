//! Converts the arguments of a call for providers that accept only objects.

use serde_json::{Map, Value, json};
use toolgate_core::RawArguments;

/// Returns the arguments as an object. Anything else is wrapped under a key that says so: the model
/// should see what it wrote, and an empty object would be something that the model never wrote.
pub(crate) fn arguments_as_object(arguments: &RawArguments) -> Value {
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
