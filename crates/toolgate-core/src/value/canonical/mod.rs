//! Canonical JSON (RFC 8785), written in one pass from data whose fields are declared in its order.

mod writer;

use serde::Serialize;

use self::writer::write_in_order;
use crate::value::digest::canonical_json;

/// Returns the canonical form (RFC 8785) of anything that can be serialised.
///
/// The text is that of [`canonical_json`] for the same data. Structs that declare their fields in
/// alphabetical order are written in one pass, without a tree of values in between; anything else
/// becomes a tree first, which is sorted.
///
/// ```
/// use toolgate_core::canonical_text;
///
/// #[derive(serde::Serialize)]
/// struct Total {
///     amount: f64,
///     currency: &'static str,
/// }
/// let total = Total { amount: 20.0, currency: "EUR" };
/// assert_eq!(canonical_text(&total)?, r#"{"amount":20,"currency":"EUR"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
///
/// An error if the data has no JSON form, for example a map whose keys are not text.
pub fn canonical_text(data: &impl Serialize) -> serde_json::Result<String> {
    match write_in_order(data) {
        Some(text) => Ok(text),
        None => Ok(canonical_json(&serde_json::to_value(data)?)),
    }
}

#[cfg(test)]
mod tests;
