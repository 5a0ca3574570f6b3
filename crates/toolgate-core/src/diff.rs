//! Structural differences between two JSON values, as pointers without values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::within;

/// One place where two values differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// What happened there.
    pub op: ChangeOp,
    /// Where, as a JSON pointer (RFC 6901).
    pub pointer: String,
}

/// What happened at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOp {
    /// Something is there now.
    Add,
    /// Something is gone.
    Remove,
    /// Something else is there.
    Replace,
}

/// The most changes listed for one layer; the rest is only counted as "more".
const MOST: usize = 64;

/// Lists where `new` differs from `old`, and whether the list was cut.
pub(crate) fn changes(old: &Value, new: &Value) -> (Vec<Change>, bool) {
    let mut found = Vec::new();
    compare(old, new, &mut String::new(), &mut found);
    let truncated = found.len() > MOST;
    found.truncate(MOST);
    (found, truncated)
}

fn compare(old: &Value, new: &Value, at: &mut String, found: &mut Vec<Change>) {
    if found.len() > MOST {
        return;
    }
    let note = |op, at: &mut String, found: &mut Vec<Change>| {
        found.push(Change {
            op,
            pointer: at.clone(),
        })
    };
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, old) in a {
                within(at, key, |at| match b.get(key) {
                    Some(new) => compare(old, new, at, found),
                    None => note(ChangeOp::Remove, at, found),
                });
            }
            for key in b.keys().filter(|key| !a.contains_key(*key)) {
                within(at, key, |at| note(ChangeOp::Add, at, found));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for index in 0..a.len().max(b.len()) {
                within(at, &index.to_string(), |at| {
                    match (a.get(index), b.get(index)) {
                        (Some(old), Some(new)) => compare(old, new, at, found),
                        (Some(_), None) => note(ChangeOp::Remove, at, found),
                        (None, _) => note(ChangeOp::Add, at, found),
                    }
                });
                if found.len() > MOST {
                    return;
                }
            }
        }
        (old, new) if old == new => {}
        _ => note(ChangeOp::Replace, at, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_each_place_that_differs_and_no_value() {
        let (found, cut) = changes(
            &json!({ "a": 1, "b": { "x/y": [1, 2] }, "gone": true }),
            &json!({ "a": 1, "b": { "x/y": [1, 3, 4] }, "new": "secret" }),
        );
        let found: Vec<_> = found.iter().map(|c| (c.op, c.pointer.as_str())).collect();
        assert_eq!(
            found,
            [
                (ChangeOp::Replace, "/b/x~1y/1"),
                (ChangeOp::Add, "/b/x~1y/2"),
                (ChangeOp::Remove, "/gone"),
                (ChangeOp::Add, "/new"),
            ]
        );
        assert!(!cut);
    }

    #[test]
    fn a_rewrite_of_everything_is_cut_short() {
        let (found, cut) = changes(
            &json!((0..5000).collect::<Vec<_>>()),
            &json!((1..5001).collect::<Vec<_>>()),
        );
        assert!(cut);
        assert_eq!(found.len(), MOST);
    }
}
