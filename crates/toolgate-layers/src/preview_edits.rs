//! What a call would make of the text of a file, read from its arguments.

use std::ops::Range;

use serde_json::{Map, Value};
use toolgate_core::Call;

/// What a call does to a file.
pub(crate) enum Edit<'a> {
    /// All of it becomes this.
    Replace(&'a str),
    /// Parts of it become others.
    Parts(Vec<Part<'a>>),
}

/// One part that becomes another.
pub(crate) struct Part<'a> {
    old: &'a str,
    new: &'a str,
    all: bool,
}

/// What the parts of an edit are called.
const NAMES: [(&str, &str); 3] = [
    ("old", "new"),
    ("old_text", "new_text"),
    ("old_string", "new_string"),
];

impl<'a> Edit<'a> {
    /// What the arguments say, if they are those of an edit.
    pub(crate) fn of(call: &'a Call) -> Option<Self> {
        let arguments = call.arguments.as_map();
        if let Some(content) = arguments.get("content").and_then(Value::as_str) {
            return Some(Self::Replace(content));
        }
        if let Some(edits) = arguments.get("edits").and_then(Value::as_array) {
            let parts: Option<Vec<Part<'a>>> = edits
                .iter()
                .map(|edit| Part::of(edit.as_object()?))
                .collect();
            return parts.filter(|parts| !parts.is_empty()).map(Self::Parts);
        }
        Part::of(arguments).map(|part| Self::Parts(vec![part]))
    }

    /// The text before and after, for comparing, or why that cannot be told.
    ///
    /// Where every line of a file ends in CRLF and the call has none, the line ends are left out on both sides: tools
    /// keep them, and a diff that names every line shows nothing.
    pub(crate) fn apply(&self, text: &str) -> Result<(String, String), String> {
        let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
        match self {
            Self::Replace(content) => {
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
            Self::Parts(parts) => {
                let old = plain.replace("\r\n", "\n");
                let new = replaced(&old, parts)?;
                Ok((old, new))
            }
        }
    }
}

impl<'a> Part<'a> {
    fn of(fields: &'a Map<String, Value>) -> Option<Self> {
        let text = |name: &str| fields.get(name)?.as_str();
        let (old, new) = NAMES
            .into_iter()
            .find_map(|(old, new)| Some((text(old)?, text(new)?)))?;
        let all = ["all", "replace_all"]
            .iter()
            .any(|name| fields.get(*name).and_then(Value::as_bool) == Some(true));
        Some(Self { old, new, all })
    }

    fn places(&self, text: &str) -> Result<Vec<Range<usize>>, String> {
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

/// All parts are looked for in the text as it is.
fn replaced(text: &str, parts: &[Part<'_>]) -> Result<String, String> {
    let mut places = Vec::new();
    for part in parts {
        let new = part.new.replace("\r\n", "\n");
        places.extend(
            part.places(text)?
                .into_iter()
                .map(|place| (place, new.clone())),
        );
    }
    places.sort_by_key(|(place, _)| place.start);
    let (mut result, mut from) = (String::with_capacity(text.len()), 0);
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
