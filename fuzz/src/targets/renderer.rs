//! What approvers see: every byte of the call that no mask covers is visible, nothing invisible is
//! printed, and a mask covers a secret value and gives its length.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use toolgate_core::{
    ApprovalRequest, FileState, Json, PathLink, RedactionError, Redactor, SHOWN_MARGIN,
    SecretSource, SecretSpan, ShownField, ShownKind, ShownRequest, VisiblePart, VisibleText,
    escape_invisible,
};
use toolgate_layers::{SecretScanner, SecretScannerOptions};
use toolgate_testkit::call_with;

use crate::{FuzzTarget, InputTrace, MemoryBound};

pub(super) const TARGET: FuzzTarget =
    FuzzTarget::new("renderer", run, WORDS).with_memory(MemoryBound {
        base: 24 << 20,
        per_byte: 4096,
    });

/// What stands between two pieces of an input.
const SEPARATOR: char = '\u{1f}';

/// A value that the scanner knows to be secret.
const KNOWN: &str = "hV9xQ2mLr7TzPw4K";

const WORDS: &[&str] = &[
    "\u{1f}",
    KNOWN,
    "TOKEN=",
    "PASSWORD=",
    "password",
    "Cookie: a=",
    "Authorization: Bearer ",
    "Basic ",
    ": ",
    "\"",
    "'",
    ";",
    " && ",
    "$",
    "$TOKEN",
    "${TOKEN",
    "alias ",
    "eval",
    "\n",
    "\r",
    "\r\n",
    "\t",
    " ",
    "                                                              ",
    "⟨",
    "⟩",
    "⟨masked: 16 characters⟩",
    "⟨no line end⟩",
    "⟨empty⟩",
    "⇥   ",
    "│",
    "  │ ",
    "→",
    "risk",
    "why",
    "argument ",
    "~1",
    "/",
    "\u{200b}",
    "\u{ad}",
    "\u{202e}",
    "\u{2028}",
    "\u{feff}",
    "\u{e0041}",
    "\u{fe0f}",
    "\u{200d}",
    "\u{301}",
    "\u{3164}",
    "\u{1b}[2J",
    "\u{85}",
    "\u{a0}",
    "א",
    "👩",
    "a",
    "é",
    "ghp_R3dK1tt3nS1tsOnTh3MatAllDayLong1234A",
    "-----BEGIN PRIVATE KEY-----\n",
    "https://u:",
    "@h",
    "--- a/x\n+++ b/x\n",
];

static SCANNER: LazyLock<SecretScanner> = LazyLock::new(|| {
    SecretScanner::with_options(SecretScannerOptions::default(), [KNOWN.to_owned()])
});

/// A redactor that takes every word, and the whole text, for a known secret.
struct SuspectsEverything;

impl Redactor for SuspectsEverything {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        Ok(value.clone())
    }

    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        Ok(text.to_owned())
    }

    fn find_secrets(&self, _: Option<&str>, text: &str) -> Vec<SecretSpan> {
        let of = |range, source| SecretSpan { range, source };
        let is_word = |c: char| c.is_ascii_alphanumeric() || "+/=_.~-".contains(c);
        let mut spans = vec![
            of(0..text.len(), SecretSource::Assigned),
            of(0..text.len(), SecretSource::Known),
            // A mistake of a redactor: it is no part of the text.
            of(text.len()..text.len() + 4, SecretSource::Known),
        ];
        let mut start = 0;
        for word in text.split_inclusive(|c| !is_word(c)) {
            let length = word.trim_end_matches(|c| !is_word(c)).len();
            spans.push(of(start..start + length, SecretSource::Known));
            let value = word[..length].rfind('=').map_or(0, |at| at + 1);
            spans.push(of(start + value..start + length, SecretSource::Known));
            start += word.len();
        }
        spans
    }
}

fn run(data: &[u8]) -> InputTrace {
    let Some((choice, rest)) = data.split_first() else {
        return InputTrace::NOTHING;
    };
    let text = String::from_utf8_lossy(rest);
    check_escaping(&text);
    let request = build_request(*choice, &text);
    let secrets: Option<&dyn Redactor> = match choice >> 6 {
        0 => None,
        1 => Some(&SuspectsEverything),
        _ => Some(&*SCANNER),
    };
    let shown = request.show(secrets);
    let masks = check_fields(&request, &shown);
    check_lines(&shown);
    let has = |word: &str| shown.lines().any(|line| line.contains(word));
    InputTrace::of((
        masks.min(3),
        shown.fields.len().min(12),
        has("⟨looks like a secret⟩"),
        has("⟨no line end⟩"),
        has("⟨U+0020 ×"),
        has("⟨right-to-left text⟩"),
        has("⇥"),
        has("⟨U+2"),
        has("⟨U+E"),
    ))
}

/// Builds a request whose parts are the pieces of the text.
fn build_request(choice: u8, text: &str) -> ApprovalRequest {
    let mut pieces = text.split(SEPARATOR);
    let mut next = || pieces.next().unwrap_or_default().to_owned();
    let (first, name, second, third) = (next(), next(), next(), next());
    let mut arguments = Map::new();
    arguments.insert("command".to_owned(), first.clone().into());
    let value = match choice & 3 {
        0 => second.clone().into(),
        1 => json!([{ (third.as_str()): second, "all": true }, third, [], {}, null]),
        2 => json!({ (third.as_str()): { "n": [1, 2.5] }, "e": second }),
        _ => first.clone().into(),
    };
    arguments.insert(name, value);
    let mut request = ApprovalRequest::for_call(&call_with("shell", Value::Object(arguments)));
    request.reason = Some(next());
    request.stated_reason = Some(next());
    if choice & 4 != 0 {
        let path = next();
        request.files.push(FileState { path, digest: None });
        let (path, target) = (next(), next());
        request.links.push(PathLink { path, target });
    }
    request.shown = match (choice >> 3) & 3 {
        0 => None,
        1 => Some(first.into()),
        2 => Some(next().into()),
        _ => Some(json!({ "note": next() })),
    };
    request
}

/// Something that has to be shown under a name.
struct Expected<'a> {
    name: String,
    leaf: Leaf<'a>,
}

enum Leaf<'a> {
    Text(&'a str),
    Json(&'a Value),
}

/// Adds the texts and values of an argument, by the way to them.
fn expect_value<'a>(name: String, value: &'a Value, out: &mut Vec<Expected<'a>>) {
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::String(text) => out.push(Expected {
            name,
            leaf: Leaf::Text(text),
        }),
        Value::Array(items) if has_name_or_text(value) => {
            for (at, item) in items.iter().enumerate() {
                expect_value(format!("{name}/{at}"), item, out);
            }
        }
        Value::Object(members) if has_name_or_text(value) => {
            for (key, member) in members {
                expect_value(format!("{name}/{}", escape(key)), member, out);
            }
        }
        other => out.push(Expected {
            name,
            leaf: Leaf::Json(other),
        }),
    }
}

fn has_name_or_text(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Array(items) => items.iter().any(has_name_or_text),
        Value::Object(members) => !members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Checks that everything in the request is shown, each thing in a field of its own, and returns the
/// number of masks.
fn check_fields(request: &ApprovalRequest, shown: &ShownRequest) -> usize {
    let mut expected = Vec::new();
    for (name, value) in request.arguments.as_map() {
        let name = name.replace('~', "~0").replace('/', "~1");
        expect_value(name, value, &mut expected);
    }
    if let Some(preview) = &request.shown {
        // A preview that is an argument is shown once, with the name of the argument.
        let same = |value: &Value| value.is_string() && value == preview;
        if !request.arguments.as_map().values().any(same) {
            expect_value("change".to_owned(), preview, &mut expected);
        }
    }
    let mut masks = 0;
    let is_fact = |field: &&ShownField| field.kind == ShownKind::Fact;
    let mut fields: Vec<&ShownField> = { shown.fields.iter() }
        .filter(|field| !is_fact(field))
        .collect();
    for Expected { name, leaf } in expected {
        let is_it = |field: &&ShownField| {
            let read = read_text(&field.name);
            (read == name || read.strip_prefix("argument ") == Some(&*name))
                && read_field(field, &leaf).is_some()
        };
        let at = fields.iter().position(is_it);
        let at = at.unwrap_or_else(|| panic!("{name:?} is not shown in {shown}"));
        let field = fields.remove(at);
        masks += read_field(field, &leaf).unwrap_or_default();
    }
    assert!(
        fields.is_empty(),
        "fields that nothing is shown in: {fields:?}"
    );
    let facts: Vec<&ShownField> = shown.fields.iter().filter(is_fact).collect();
    let told = [
        ("why", request.reason.as_deref()),
        ("reason of the model", request.stated_reason.as_deref()),
    ];
    for (name, text) in told {
        let text = Leaf::Text(text.unwrap_or_default());
        let is_it = |field: &&ShownField| field.name.as_str() == name;
        let mut found = facts.iter().copied().filter(is_it);
        let field = found
            .next()
            .unwrap_or_else(|| panic!("{name} is not shown"));
        let count = read_field(field, &text);
        masks += count.unwrap_or_else(|| panic!("{name} is shown as {field:?}"));
        assert!(found.next().is_none(), "{name} is shown twice");
    }
    check_paths(request, &facts);
    masks
}

/// Checks that files and links are named.
fn check_paths(request: &ApprovalRequest, facts: &[&ShownField]) {
    let named = |name: &str| {
        let fields = facts.iter().filter(|field| field.name.as_str() == name);
        fields.map(|field| read_lines(field)).collect::<Vec<_>>()
    };
    for link in &request.links {
        let arrow = format!("{} → {}", link.path, link.target);
        assert!(named("link").contains(&arrow), "{link:?} is not shown");
    }
    let values = || request.arguments.as_map().values();
    for file in &request.files {
        let is_argument = values().any(|value| value.as_str() == Some(&file.path));
        let fact = Leaf::Text(&file.path);
        let is_fact = { facts.iter() }
            .any(|field| field.name.as_str() == "file" && read_field(field, &fact).is_some());
        assert!(is_argument || is_fact, "{file:?} is not shown");
    }
}

/// Reads a field back and returns the number of its masks, or `None` if it shows something else.
fn read_field(field: &ShownField, leaf: &Leaf<'_>) -> Option<usize> {
    let text = match leaf {
        Leaf::Text(text) => *text,
        Leaf::Json(value) => {
            let line = format!("{value} ");
            return (!field.is_block && read_lines(field) == line).then_some(0);
        }
    };
    if field.is_block != text.contains('\n') {
        return None;
    }
    let mut rest = text;
    let mut masks = 0;
    for (at, line) in field.lines.iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('\n')?;
        }
        for part in line.parts()? {
            match part {
                VisiblePart::Text(piece) => rest = rest.strip_prefix(piece.as_str())?,
                VisiblePart::Masked(length) => {
                    let end = rest.char_indices().nth(length);
                    let end = end.map_or(rest.len(), |(at, _)| at);
                    check_mask(text, text.len() - rest.len(), end);
                    rest = &rest[end..];
                    masks += 1;
                }
            }
        }
    }
    let ends_open =
        { field.lines.last() }.is_some_and(|line| line.as_str().ends_with("⟨no line end⟩"));
    let end = if field.is_block && !ends_open {
        "\n"
    } else {
        ""
    };
    (rest == end).then_some(masks)
}

/// Checks that a mask covers a value, and nothing that could run or name something.
fn check_mask(text: &str, start: usize, length: usize) {
    let (before, rest) = text.split_at(start);
    let (masked, after) = rest.split_at(length);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+/=_.~-".contains(c);
    assert!(masked.chars().all(is_plain), "a mask covers {masked:?}");
    assert!(
        masked.len() >= 10
            && masked.contains(|c: char| c.is_ascii_digit())
            && !masked.starts_with('-'),
        "a mask covers {masked:?}"
    );
    let is_whole = before.is_empty() && after.is_empty();
    let words = ["=", ":", ": ", "=\"", "='", ":\"", ":'", ": \"", ": '"];
    let schemes = ["Bearer ", "bearer ", "Basic ", "basic ", "token ", "Token "];
    let is_value = words
        .iter()
        .chain(&schemes)
        .any(|sign| before.ends_with(sign));
    assert!(
        is_whole || is_value,
        "a mask covers {masked:?} after {before:?}"
    );
}

fn read_text(text: &VisibleText) -> String {
    let parts = text
        .parts()
        .unwrap_or_else(|| panic!("{text} cannot be read back"));
    let read = |part| match part {
        VisiblePart::Text(text) => text,
        VisiblePart::Masked(length) => panic!("a mask of {length} outside a text"),
    };
    parts.into_iter().map(read).collect()
}

fn read_lines(field: &ShownField) -> String {
    { field.lines.iter() }
        .map(read_text)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Checks that no line has anything invisible, and that none can pass for another kind of line.
fn check_lines(shown: &ShownRequest) {
    let mut blocks = 0;
    for line in shown.lines() {
        let invisible = line.chars().find(|c| is_invisible(*c));
        assert!(invisible.is_none(), "{invisible:?} in {line:?}");
        let text = line.strip_prefix(SHOWN_MARGIN);
        blocks += usize::from(text.is_some());
        let is_field = text.is_some() || line.contains(": ");
        assert!(is_field, "neither a field nor in a block: {line:?}");
        // A tab is a sign and three blanks.
        let text = text.unwrap_or(&line);
        let ends_blank = text.ends_with(' ') && !text.ends_with("⇥   ");
        assert!(!ends_blank, "a blank that cannot be seen: {line:?}");
    }
    let fields = shown.fields.iter().filter(|field| field.is_block);
    assert_eq!(blocks, fields.map(|field| field.lines.len()).sum::<usize>());
}

/// Checks text that is not shown for a decision.
fn check_escaping(text: &str) {
    let escaped = escape_invisible(text);
    let is_kept =
        |c: char| "\n\t\u{200d}\u{fe0f}".contains(c) || c.is_whitespace() && !c.is_control();
    let invisible = { escaped.chars() }.find(|c| is_invisible(*c) && !is_kept(*c));
    assert!(invisible.is_none(), "{invisible:?} in {escaped:?}");
    assert_eq!(escape_invisible(&escaped), escaped, "escaped twice");
}

/// Checks for controls, for blanks other than the usual one, and for what Unicode lists as
/// `Default_Ignorable_Code_Point`.
fn is_invisible(c: char) -> bool {
    let is_ignorable = matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    );
    is_ignorable || c.is_control() || c.is_whitespace() && c != ' '
}
