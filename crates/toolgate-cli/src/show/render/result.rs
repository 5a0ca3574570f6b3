//! The result of a call for people: how a command ended, its output, and values as text.

use serde_json::Value;
use toolgate::{Status, stack::note_keys};

use super::StyledLine;
use crate::{
    env::style::{DIM, escape_controls},
    show::screen::{CallState, CallView},
};

/// What stands before the output of a command.
const OUTPUT_MARGIN: &str = "  │ ";

/// How much of the output of a command is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputRows {
    /// A few lines: the first ones, or the last ones of a command that failed.
    #[default]
    Few,
    /// A page.
    Page,
    /// All of them.
    All,
}

impl OutputRows {
    fn limit(self) -> usize {
        match self {
            Self::Few => 3,
            Self::Page => 40,
            Self::All => usize::MAX,
        }
    }
}

/// Returns how a command ended that did not succeed: its call succeeded, the command did not.
pub(crate) fn failed_command(call: &CallView) -> Option<String> {
    let result = call.result.as_ref()?;
    result.get("output")?.as_str()?;
    if result.get("timed_out").and_then(Value::as_bool) == Some(true) {
        return Some("timed out".to_owned());
    }
    let code = result.get("exit_code").and_then(Value::as_i64);
    let signal = result.get("signal").and_then(Value::as_i64);
    match (code, signal) {
        (Some(0), _) | (None, None) => None,
        (Some(code), _) => Some(format!("exit {code}")),
        (None, Some(signal)) => Some(format!("killed by signal {signal}")),
    }
}

/// Checks whether the call had taken effect before its process was lost, so that it was not run again.
pub(crate) fn is_reconciled(call: &CallView) -> bool {
    let notes = call.note_fields();
    notes.is_some_and(|notes| matches!(notes.get(note_keys::RECONCILED), Ok(Some(true))))
}

/// Returns how a call ended in a few words, or its state if it has not.
pub(crate) fn outcome_text(call: &CallView) -> String {
    match call.state {
        CallState::Settled(Status::Ok) => {
            let failed = failed_command(call);
            failed.unwrap_or_else(|| Status::Ok.text().to_owned())
        }
        state => state.text().to_owned(),
    }
}

/// Renders the output of a command in rows of at most `width` columns; a line that is left out is
/// counted.
pub fn render_output(call: &CallView, rows: OutputRows, width: usize) -> Vec<StyledLine> {
    let output = call.result.as_ref().filter(|_| call.state.is_settled());
    let output = output.filter(|result| result.get("exit_code").is_some());
    let output = output.and_then(|result| result.get("output")?.as_str());
    let lines: Vec<&str> = output.unwrap_or_default().trim_end().lines().collect();
    let left = lines.len().saturating_sub(rows.limit());
    let cut = (left > 0).then(|| {
        let what = if left == 1 { "line" } else { "lines" };
        let margin = StyledLine::styled(OUTPUT_MARGIN, DIM);
        margin.with(&format!("… {left} more {what}"), DIM)
    });
    // The end of a failed command's output says why it failed.
    let is_end = failed_command(call).is_some();
    let shown = if is_end {
        &lines[left..]
    } else {
        &lines[..lines.len() - left]
    };
    let mut drawn: Vec<StyledLine> = cut.iter().filter(|_| is_end).cloned().collect();
    for line in shown {
        let row = StyledLine::styled(OUTPUT_MARGIN, DIM).with(&escape_controls(line), DIM);
        match rows {
            OutputRows::Few => drawn.push(row.clip(width)),
            OutputRows::Page | OutputRows::All => {
                drawn.extend(row.wrap_exactly(width, &StyledLine::styled(OUTPUT_MARGIN, DIM)))
            }
        }
    }
    drawn.extend(cut.filter(|_| !is_end));
    drawn
}

/// Formats a value as text: names and values line by line, and texts as they are, without escapes.
pub(crate) fn format_value(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format_field(name, value));
            fields.collect::<Vec<_>>().join("\n")
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| format_field("-", item));
            items.collect::<Vec<_>>().join("\n")
        }
        Value::String(text) => text.trim_end().to_owned(),
        Value::Null => "(nothing)".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn format_field(name: &str, value: &Value) -> String {
    let colon = if name == "-" { "" } else { ":" };
    let text = match value {
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Null => "null".to_owned(),
        value => format_value(value),
    };
    let is_block = text.contains('\n') || matches!(value, Value::Object(_) | Value::Array(_));
    if !is_block || text.len() <= 2 {
        return format!("{name}{colon} {text}");
    }
    let lines = text.lines().map(|line| format!("  {line}"));
    std::iter::once(format!("{name}{colon}"))
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::render::call::tests::settled_call;
    use serde_json::json;

    fn command(output: &str, exit: i64) -> CallView {
        settled_call(json!({ "output": output, "exit_code": exit, "timed_out": false }))
    }

    fn texts(rows: &[StyledLine]) -> Vec<String> {
        rows.iter().map(StyledLine::text).collect()
    }

    #[test]
    fn the_first_lines_of_an_output_are_shown_and_the_last_ones_of_a_failure() {
        let output = "one\ntwo\nthree\nfour\nfive\n";
        let rows = render_output(&command(output, 0), OutputRows::Few, 40);
        assert_eq!(
            texts(&rows),
            ["  │ one", "  │ two", "  │ three", "  │ … 2 more lines"]
        );
        let rows = render_output(&command(output, 1), OutputRows::Few, 40);
        assert_eq!(
            texts(&rows),
            ["  │ … 2 more lines", "  │ three", "  │ four", "  │ five"]
        );
        let all = render_output(&command(output, 1), OutputRows::All, 40);
        assert_eq!(all.len(), 5);
        assert!(render_output(&command("", 0), OutputRows::All, 40).is_empty());
        // What is not a command has its own line only.
        let file = settled_call(json!({ "text": "one\ntwo" }));
        assert!(render_output(&file, OutputRows::All, 40).is_empty());
    }

    #[test]
    fn nothing_of_an_output_is_left_out_when_all_of_it_is_shown() {
        let long = "x ".repeat(100);
        let rows = texts(&render_output(&command(&long, 0), OutputRows::All, 30));
        let joined: String = rows
            .iter()
            .map(|row| row.strip_prefix(OUTPUT_MARGIN).expect("a margin"))
            .collect();
        assert_eq!(joined, long.trim_end());
        let few = texts(&render_output(&command(&long, 0), OutputRows::Few, 30));
        assert!(few[0].ends_with('…'), "{few:?}");
    }

    #[test]
    fn a_command_that_did_not_succeed_is_never_called_done() {
        assert_eq!(outcome_text(&command("", 0)), "done");
        assert_eq!(outcome_text(&command("", 1)), "exit 1");
        let ended = |fields: Value| {
            let mut result = json!({ "output": "", "exit_code": null, "timed_out": false });
            for (name, value) in fields.as_object().expect("fields") {
                result[name] = value.clone();
            }
            outcome_text(&settled_call(result))
        };
        assert_eq!(ended(json!({ "signal": 9 })), "killed by signal 9");
        assert_eq!(
            ended(json!({ "signal": 9, "timed_out": true })),
            "timed out"
        );
    }

    #[test]
    fn a_value_is_shown_as_text_without_escapes() {
        let value = json!({
            "output": "one\n\"two\"\n",
            "exit_code": 0,
            "files": ["a", { "path": "b" }],
            "none": [],
        });
        assert_eq!(
            format_value(&value),
            "exit_code: 0\nfiles:\n  - a\n  -\n    path: b\nnone: []\noutput:\n  one\n  \"two\""
        );
        assert_eq!(format_value(&json!("a\nb\n")), "a\nb");
    }
}
