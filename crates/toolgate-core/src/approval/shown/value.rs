//! Arguments as fields: texts line by line, everything else as JSON.

use serde_json::Value;

use super::{RequestWriter, ShownField, ShownKind, visible::VisibleWriter};

impl RequestWriter<'_> {
    /// Writes an argument. Texts inside lists and objects become fields of their own, named by the
    /// way to them.
    pub(super) fn write_argument(&mut self, name: &str, value: &Value) {
        match value {
            Value::String(text) => self.write_text(name, text, ShownKind::Argument),
            Value::Array(items) if has_text(value) => {
                for (at, item) in items.iter().enumerate() {
                    self.write_argument(&format!("{name}/{at}"), item);
                }
            }
            Value::Object(members) if has_text(value) => {
                for (key, member) in members {
                    // As in a JSON pointer: a name with a slash must not look like a way.
                    let key = key.replace('~', "~0").replace('/', "~1");
                    self.write_argument(&format!("{name}/{key}"), member);
                }
            }
            other => self.write_json(name, other),
        }
    }

    /// Writes a value that has no texts. The remark tells it from a text that looks the same.
    fn write_json(&mut self, name: &str, value: &Value) {
        let mut line = VisibleWriter::default();
        line.write_text(&value.to_string());
        line.write_text(" ");
        line.write_remark(match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "text",
            Value::Array(_) => "list",
            Value::Object(_) => "object",
        });
        let line = line.finish();
        self.fields
            .push(ShownField::of_line(name, ShownKind::Argument, line));
    }
}

/// Checks whether there is a text in a list or object; names of members are texts, too.
fn has_text(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Array(items) => items.iter().any(has_text),
        Value::Object(members) => !members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
