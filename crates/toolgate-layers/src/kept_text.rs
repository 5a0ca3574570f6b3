//! What is shown of a text that is kept elsewhere.

use std::borrow::Cow;

use serde_json::json;
use toolgate_core::{Digest, Json};

use crate::{OutputCapOptions, cut_text::middle, long_text::LongText};

/// Where the marker names the tool to read on with.
const READ_TOOL: &str = "{read_tool}";

/// What stands in the gap if the whole text could not be kept.
const LOST: &str = "\n…[{shown} of {total} bytes shown; the rest was not kept]…\n";

/// What stands in the gap if the model has no tool to read on with.
const NO_TOOL: &str = "\n…[{shown} of {total} bytes shown; the rest was left out]…\n";

/// The bytes of a value that stay beside its pointer, at each end.
const PREVIEW: usize = 200;

/// A long text, and where it is kept if it is.
pub(crate) struct Kept {
    pub(crate) text: LongText,
    pub(crate) output: Option<Digest>,
}

impl Kept {
    /// The beginning, the marker and the end, together not longer than the cap.
    pub(crate) fn shortened(&self, options: &OutputCapOptions) -> String {
        let text = self.text.as_str();
        if text.len() <= options.max_bytes {
            // Redaction has made it short enough.
            return text.to_owned();
        }
        // No marker is longer than the one with the largest numbers.
        let longest = self.marker(options, text.len(), text.len()).len();
        let gap = middle(
            text,
            options.max_bytes.saturating_sub(longest),
            options.head,
        );
        let marker = self.marker(options, text.len() - gap.len(), gap.start);
        [&text[..gap.start], marker.as_str(), &text[gap.end..]].concat()
    }

    /// What stands in place of a value that is too large.
    pub(crate) fn pointer(&self) -> Json {
        let text = self.text.as_str();
        let gap = middle(text, text.len().min(2 * PREVIEW), 0.5);
        let (head, tail) = (&text[..gap.start], &text[gap.end..]);
        let pointer = json!({ "truncated": true, "bytes": text.len(), "output": self.output, "head": head, "tail": tail });
        Json::new(pointer).expect("a flat object is not nested deeply")
    }

    fn marker(&self, options: &OutputCapOptions, shown: usize, offset: usize) -> String {
        let total = self.text.as_str().len();
        match self.output {
            Some(output) => filled_in(
                &template(options),
                shown,
                total,
                offset,
                &output.to_string(),
            ),
            None => filled_in(LOST, shown, total, offset, ""),
        }
    }
}

/// The marker for whoever has or has not a tool to read on with.
fn template(options: &OutputCapOptions) -> Cow<'_, str> {
    match &options.read_tool {
        _ if !options.marker.contains(READ_TOOL) => Cow::Borrowed(&options.marker),
        Some(tool) => options.marker.replace(READ_TOOL, tool).into(),
        None => Cow::Borrowed(NO_TOOL),
    }
}

/// The length of the marker with the largest numbers.
pub(crate) fn longest_marker(options: &OutputCapOptions) -> usize {
    let output = Digest::of_bytes(b"").to_string();
    filled_in(
        &template(options),
        usize::MAX,
        usize::MAX,
        usize::MAX,
        &output,
    )
    .len()
}

fn filled_in(template: &str, shown: usize, total: usize, offset: usize, output: &str) -> String {
    template
        .replace("{shown}", &grouped(shown))
        .replace("{total}", &grouped(total))
        .replace("{output}", output)
        .replace("{offset}", &offset.to_string())
}

/// `1234567` as `1,234,567`.
fn grouped(number: usize) -> String {
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

    fn kept(text: &str) -> Kept {
        Kept {
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
        let text = kept(&long).shortened(&options);
        let (head, rest) = text.split_once("\n…[").expect("a marker");
        let (marker, tail) = rest.split_once("]…\n").expect("its end");
        let (said, arguments) = marker
            .split_once(" bytes shown; read more with read_output ")
            .expect("said");
        assert_eq!(said, format!("{} of 28,000", head.len() + tail.len()));
        let arguments: serde_json::Value =
            serde_json::from_str(arguments).expect("ready to be used");
        assert_eq!(arguments["offset"], head.len());
        assert_eq!(
            arguments["output"],
            Digest::of_bytes(long.as_bytes()).to_string()
        );
        assert!(long.starts_with(head) && long.ends_with(tail));
        assert!(
            head.len() > 2 * tail.len(),
            "the beginning is worth more than the end"
        );
    }

    #[test]
    fn a_cap_is_kept_for_every_share_and_marker() {
        let long = "漢\u{1b}[1m".repeat(2000);
        for head in [0.0, 0.3, 1.0] {
            for marker in ["", "{output}{output}", "…"] {
                let options = OutputCapOptions {
                    max_bytes: 512,
                    head,
                    marker: marker.into(),
                    ..OutputCapOptions::default()
                };
                let text = kept(&long).shortened(&options);
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
            kept(&"x".repeat(5000)).shortened(&options)
        };
        assert!(
            shown(Some("output.read"), None)
                .contains("read more with output.read {\"output\":\"sha256:")
        );
        let without = shown(None, None);
        assert!(
            without.contains("bytes shown; the rest was left out]") && !without.contains("read"),
            "{without}"
        );
        assert!(
            shown(None, Some("<cut>")).contains("x<cut>x"),
            "a marker that names no tool stands"
        );
    }

    #[test]
    fn a_pointer_shows_both_ends() {
        let long = "a".repeat(500) + &"z".repeat(500);
        let pointer = kept(&long).pointer();
        assert_eq!(
            (pointer["bytes"].as_u64(), pointer["truncated"].as_bool()),
            (Some(1000), Some(true))
        );
        assert_eq!(
            (pointer["head"].as_str(), pointer["tail"].as_str()),
            (Some(&long[..200]), Some(&long[800..]))
        );
        assert_eq!(
            kept("short").pointer()["head"]
                .as_str()
                .zip(kept("short").pointer()["tail"].as_str())
                .map(|(a, b)| a.len() + b.len()),
            Some(5)
        );
    }

    #[test]
    fn numbers_are_written_for_people() {
        let all = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "999", "1,000", "1,234,567"]);
    }
}
