//! The excerpt of a long text that the model reads.

use std::borrow::Cow;

use serde_json::json;
use toolgate_core::{Digest, Json};

use crate::{
    OutputCapOptions,
    shape::output_cap::{shared_text::SharedText, truncate::middle_range},
};

/// Placeholder in the marker for the tool that reads the rest.
const READ_TOOL_PLACEHOLDER: &str = "{read_tool}";

/// The text in the gap if the full text could not be stored.
const LOST_MARKER: &str = "\n…[{shown} of {total} bytes shown; the rest was not stored]…\n";

/// The text in the gap if the model has no tool to read the rest.
const NO_TOOL_MARKER: &str = "\n…[{shown} of {total} bytes shown; the rest was omitted]…\n";

/// Number of bytes of a value that stay beside its pointer, at each end.
const PREVIEW_BYTES: usize = 200;

/// A long text, and the name of its stored output, if there is one.
pub(crate) struct StoredText {
    pub(crate) text: SharedText,
    pub(crate) output: Option<Digest>,
}

impl StoredText {
    /// Returns the beginning, the marker and the end, together not longer than the cap.
    pub(crate) fn to_excerpt(&self, options: &OutputCapOptions) -> String {
        let text = self.text.as_str();
        if text.len() <= options.max_bytes {
            // Redaction has made it short enough.
            return text.to_owned();
        }
        // No marker is longer than the one with the largest numbers.
        let longest = self.marker_text(options, text.len(), text.len()).len();
        let gap = middle_range(
            text,
            options.max_bytes.saturating_sub(longest),
            options.head,
        );
        let marker = self.marker_text(options, text.len() - gap.len(), gap.start);
        [&text[..gap.start], marker.as_str(), &text[gap.end..]].concat()
    }

    /// Returns the object that replaces a value that is too large.
    pub(crate) fn to_pointer(&self) -> Json {
        let text = self.text.as_str();
        let gap = middle_range(text, text.len().min(2 * PREVIEW_BYTES), 0.5);
        let head = &text[..gap.start];
        let tail = &text[gap.end..];
        let pointer = json!({ "truncated": true, "bytes": text.len(), "output": self.output, "head": head, "tail": tail });
        Json::new(pointer).expect("a flat object is not nested deeply")
    }

    fn marker_text(&self, options: &OutputCapOptions, shown: usize, offset: usize) -> String {
        let total = self.text.as_str().len();
        match self.output {
            Some(output) => fill_template(
                &marker_template(options),
                shown,
                total,
                offset,
                &output.to_string(),
            ),
            None => fill_template(LOST_MARKER, shown, total, offset, ""),
        }
    }
}

/// Returns the marker, depending on whether there is a tool to read the rest.
fn marker_template(options: &OutputCapOptions) -> Cow<'_, str> {
    match &options.read_tool {
        _ if !options.marker.contains(READ_TOOL_PLACEHOLDER) => Cow::Borrowed(&options.marker),
        Some(tool) => options.marker.replace(READ_TOOL_PLACEHOLDER, tool).into(),
        None => Cow::Borrowed(NO_TOOL_MARKER),
    }
}

/// Returns the length of the marker with the largest numbers.
pub(crate) fn longest_marker(options: &OutputCapOptions) -> usize {
    let output = Digest::of_bytes(b"").to_string();
    fill_template(
        &marker_template(options),
        usize::MAX,
        usize::MAX,
        usize::MAX,
        &output,
    )
    .len()
}

fn fill_template(
    template: &str,
    shown: usize,
    total: usize,
    offset: usize,
    output: &str,
) -> String {
    template
        .replace("{shown}", &group_digits(shown))
        .replace("{total}", &group_digits(total))
        .replace("{output}", output)
        .replace("{offset}", &offset.to_string())
}

/// Formats `1234567` as `1,234,567`.
fn group_digits(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default());
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(text: &str) -> StoredText {
        StoredText {
            text: text.to_owned().into(),
            output: Some(Digest::of_bytes(text.as_bytes())),
        }
    }

    #[test]
    fn the_offset_in_the_marker_is_where_the_beginning_ends() {
        let long: String = (0..4000).map(|n| format!("{n:05}é")).collect();
        let options = OutputCapOptions {
            max_bytes: 1000,
            ..OutputCapOptions::default()
        };
        let text = stored(&long).to_excerpt(&options);
        let (head, rest) = text.split_once("\n…[").expect("a marker");
        let (marker, tail) = rest.split_once("]…\n").expect("its end");
        let (said, arguments) = marker
            .split_once(" bytes shown; read more with read_output ")
            .expect("the tool and its arguments");
        assert_eq!(said, format!("{} of 28,000", head.len() + tail.len()));
        let arguments: serde_json::Value =
            serde_json::from_str(arguments).expect("valid arguments");
        assert_eq!(arguments["offset"], head.len());
        assert_eq!(
            arguments["output"],
            Digest::of_bytes(long.as_bytes()).to_string()
        );
        assert!(long.starts_with(head) && long.ends_with(tail));
        assert!(
            head.len() > 2 * tail.len(),
            "the beginning gets more room than the end"
        );
    }

    #[test]
    fn the_cap_holds_for_every_share_and_marker() {
        let long = "漢\u{1b}[1m".repeat(2000);
        for head in [0.0, 0.3, 1.0] {
            for marker in ["", "{output}{output}", "…"] {
                let options = OutputCapOptions {
                    max_bytes: 512,
                    head,
                    marker: marker.into(),
                    ..OutputCapOptions::default()
                };
                let text = stored(&long).to_excerpt(&options);
                assert!(
                    text.len() <= 512 && text.len() > 500,
                    "{head} {marker} {}",
                    text.len()
                );
            }
        }
    }

    #[test]
    fn the_marker_names_the_tool_that_the_model_has() {
        let shown = |read_tool: Option<&str>, marker: Option<&str>| {
            let mut options = OutputCapOptions {
                read_tool: read_tool.map(str::to_owned),
                ..OutputCapOptions::default()
            };
            options.max_bytes = 512;
            options.marker = marker.map_or(options.marker, str::to_owned);
            stored(&"x".repeat(5000)).to_excerpt(&options)
        };
        assert!(
            shown(Some("output.read"), None)
                .contains("read more with output.read {\"output\":\"sha256:")
        );
        let without = shown(None, None);
        assert!(
            without.contains("bytes shown; the rest was omitted]") && !without.contains("read"),
            "{without}"
        );
        assert!(
            shown(None, Some("<cut>")).contains("x<cut>x"),
            "a marker that names no tool is kept"
        );
    }

    #[test]
    fn a_pointer_shows_both_ends() {
        let long = "a".repeat(500) + &"z".repeat(500);
        let pointer = stored(&long).to_pointer();
        assert_eq!(
            (pointer["bytes"].as_u64(), pointer["truncated"].as_bool()),
            (Some(1000), Some(true))
        );
        assert_eq!(
            (pointer["head"].as_str(), pointer["tail"].as_str()),
            (Some(&long[..200]), Some(&long[800..]))
        );
        assert_eq!(
            stored("short").to_pointer()["head"]
                .as_str()
                .zip(stored("short").to_pointer()["tail"].as_str())
                .map(|(a, b)| a.len() + b.len()),
            Some(5)
        );
    }

    #[test]
    fn numbers_have_digit_groups() {
        let all = [0, 999, 1000, 1_234_567].map(group_digits);
        assert_eq!(all, ["0", "999", "1,000", "1,234,567"]);
    }
}
