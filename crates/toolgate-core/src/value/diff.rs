//! Structural differences between two JSON values, as pointers without values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::value::pointer::within_pointer;

/// One place where two values differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JsonChange {
    /// The kind of change.
    pub op: JsonChangeOp,
    /// The JSON pointer (RFC 6901) to the value.
    pub pointer: String,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JsonChangeOp {
    /// A value was added.
    Add,
    /// A value was removed.
    Remove,
    /// A value was replaced.
    Replace,
}

/// The most changes listed for one layer; the rest only sets the `truncated` flag.
const MAX_CHANGES: usize = 64;

/// Lists where `new` differs from `old`, and whether the list was truncated.
pub(crate) fn list_changes(old: &Value, new: &Value) -> (Vec<JsonChange>, bool) {
    let mut found = Vec::new();
    compare_values(old, new, &mut String::new(), &mut found);
    let truncated = found.len() > MAX_CHANGES;
    found.truncate(MAX_CHANGES);
    (found, truncated)
}

fn compare_values(old: &Value, new: &Value, at: &mut String, found: &mut Vec<JsonChange>) {
    // One more than the limit is enough to know that the list is truncated.
    if found.len() > MAX_CHANGES {
        return;
    }
    let note = |op, at: &mut String, found: &mut Vec<JsonChange>| {
        found.push(JsonChange {
            op,
            pointer: at.clone(),
        })
    };
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, old) in a {
                within_pointer(at, key, |at| match b.get(key) {
                    Some(new) => compare_values(old, new, at, found),
                    None => note(JsonChangeOp::Remove, at, found),
                });
            }
            for key in b.keys().filter(|key| !a.contains_key(*key)) {
                within_pointer(at, key, |at| note(JsonChangeOp::Add, at, found));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for index in 0..a.len().max(b.len()) {
                within_pointer(at, &index.to_string(), |at| {
                    match (a.get(index), b.get(index)) {
                        (Some(old), Some(new)) => compare_values(old, new, at, found),
                        (Some(_), None) => note(JsonChangeOp::Remove, at, found),
                        (None, _) => note(JsonChangeOp::Add, at, found),
                    }
                });
                if found.len() > MAX_CHANGES {
                    return;
                }
            }
        }
        (old, new) if old == new => {}
        _ => note(JsonChangeOp::Replace, at, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_each_pointer_that_differs_and_no_value() {
        let (found, cut) = list_changes(
            &json!({ "a": 1, "b": { "x/y": [1, 2] }, "gone": true }),
            &json!({ "a": 1, "b": { "x/y": [1, 3, 4] }, "new": "secret" }),
        );
        let found: Vec<_> = found.iter().map(|c| (c.op, c.pointer.as_str())).collect();
        assert_eq!(
            found,
            [
                (JsonChangeOp::Replace, "/b/x~1y/1"),
                (JsonChangeOp::Add, "/b/x~1y/2"),
                (JsonChangeOp::Remove, "/gone"),
                (JsonChangeOp::Add, "/new"),
            ]
        );
        assert!(!cut);
    }

    #[test]
    fn a_rewrite_of_everything_is_truncated() {
        let (found, cut) = list_changes(
            &json!((0..5000).collect::<Vec<_>>()),
            &json!((1..5001).collect::<Vec<_>>()),
        );
        assert!(cut);
        assert_eq!(found.len(), MAX_CHANGES);
    }
}
