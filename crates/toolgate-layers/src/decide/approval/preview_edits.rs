//! The effect of a call on the text of a file, taken from its arguments.

use std::ops::Range;

use serde_json::{Map, Value};
use toolgate_core::Call;

/// The change of a file by a call.
pub(crate) enum PreviewEdit<'a> {
    /// The whole text is replaced.
    Replace(&'a str),
    /// Parts of the text are replaced.
    Replacements(Vec<TextReplacement<'a>>),
}

/// The replacement of one part.
pub(crate) struct TextReplacement<'a> {
    old: &'a str,
    new: &'a str,
    all: bool,
}

/// Argument names of the old and the new text of an edit.
const ARGUMENT_NAME_PAIRS: [(&str, &str); 3] = [
    ("old", "new"),
    ("old_text", "new_text"),
    ("old_string", "new_string"),
];

impl<'a> PreviewEdit<'a> {
    /// Parses the arguments, if they are those of an edit.
    pub(crate) fn from_call(call: &'a Call) -> Option<Self> {
        let arguments = call.arguments.as_map();
        if let Some(content) = arguments.get("content").and_then(Value::as_str) {
            return Some(Self::Replace(content));
        }
        if let Some(edits) = arguments.get("edits").and_then(Value::as_array) {
            let parts: Option<Vec<TextReplacement<'a>>> = edits
                .iter()
                .map(|edit| TextReplacement::from_fields(edit.as_object()?))
                .collect();
            return parts
                .filter(|parts| !parts.is_empty())
                .map(Self::Replacements);
        }
        TextReplacement::from_fields(arguments).map(|part| Self::Replacements(vec![part]))
    }

    /// Returns the text before and after, for comparing, or the reason why it cannot be determined.
    pub(crate) fn apply(&self, text: &str) -> Result<(String, String), String> {
        let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
        match self {
            Self::Replace(content) => {
                // Where every line of the file ends in CRLF and the call has none, tools keep the
                // line ends. They are left out on both sides, because a diff of every line shows
                // nothing.
                let keeps = !content.contains('\r')
                    && plain.matches("\r\n").count() == plain.matches('\n').count();
                let old = if keeps {
                    plain.replace("\r\n", "\n")
                } else {
                    plain.to_owned()
                };
                Ok((
                    old,
                    content
                        .strip_prefix('\u{feff}')
                        .unwrap_or(content)
                        .to_owned(),
                ))
            }
            Self::Replacements(parts) => {
                let old = plain.replace("\r\n", "\n");
                let new = apply_replacements(&old, parts)?;
                Ok((old, new))
            }
        }
    }
}

impl<'a> TextReplacement<'a> {
    fn from_fields(fields: &'a Map<String, Value>) -> Option<Self> {
        let text = |name: &str| fields.get(name)?.as_str();
        let (old, new) = ARGUMENT_NAME_PAIRS
            .into_iter()
            .find_map(|(old, new)| Some((text(old)?, text(new)?)))?;
        let all = ["all", "replace_all"]
            .iter()
            .any(|name| fields.get(*name).and_then(Value::as_bool) == Some(true));
        Some(Self { old, new, all })
    }

    fn find_ranges(&self, text: &str) -> Result<Vec<Range<usize>>, String> {
        let old = self.old.replace("\r\n", "\n");
        if old.is_empty() {
            return Err("the text to be replaced is empty".to_owned());
        }
        let found: Vec<Range<usize>> = text
            .match_indices(&old)
            .map(|(at, old)| at..at + old.len())
            .collect();
        match found.len() {
            1 => Ok(found),
            _ if self.all => Ok(found),
            times => Err(format!("the text to be replaced occurs {times} times")),
        }
    }
}

/// Replaces the parts. All of them are searched in the original text.
fn apply_replacements(text: &str, parts: &[TextReplacement<'_>]) -> Result<String, String> {
    let mut places = Vec::new();
    for part in parts {
        let new = part.new.replace("\r\n", "\n");
        places.extend(
            part.find_ranges(text)?
                .into_iter()
                .map(|place| (place, new.clone())),
        );
    }
    places.sort_by_key(|(place, _)| place.start);
    let mut result = String::with_capacity(text.len());
    let mut from = 0;
    for (place, new) in places {
        if place.start < from {
            return Err("two edits change the same text".to_owned());
        }
        result.push_str(&text[from..place.start]);
        result.push_str(&new);
        from = place.end;
    }
    result.push_str(&text[from..]);
    Ok(result)
}
