//! What a person is shown before a decision: the stored request, complete, with every character
//! visible. Every surface draws these lines and no others.

pub(crate) mod mask;
mod value;
pub(crate) mod visible;

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::{ApprovalRequest, Redactor, run_contained_sync};
use mask::{MaskedLine, SecretSpan, mask_line};
use visible::VisibleText;

/// An approval request as an approver sees it, field by field.
///
/// It has every byte of the arguments, of the reason and of the preview, except for secret values
/// that a mask covers. A mask covers only the value of a header or of a password assignment that
/// cannot be a command, an option, or the name of something; it says how long the value is.
/// Everything else that looks like a secret is shown with a remark.
///
/// ```
/// use toolgate_core::{ApprovalRequest, Arguments, Call};
/// let call = Call::detached("shell", Arguments::parse(r#"{"command":"ls\u200b\nrm x"}"#)?);
/// let shown = ApprovalRequest::for_call(&call).show(None).to_string();
/// assert!(shown.contains("command: ⟨2 lines⟩\n  │ ls⟨U+200B⟩\n  │ rm x⟨no line end⟩\n"), "{shown}");
/// # Ok::<(), toolgate_core::JsonError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShownRequest {
    /// The tool's name.
    pub tool: VisibleText,
    /// The fields, in the order in which they are drawn.
    pub fields: Vec<ShownField>,
}

/// One field of an approval request as an approver sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShownField {
    /// Its name.
    pub name: VisibleText,
    /// The content of the field.
    pub kind: ShownKind,
    /// Its text: one line to be drawn behind the name, or a block of lines to be drawn below it. Each
    /// line of a block ends the way lines do; if the last one does not, it has a remark.
    pub lines: Vec<VisibleText>,
    /// True if the lines are drawn below the name.
    pub is_block: bool,
}

/// The content of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShownKind {
    /// Something about the call.
    Fact,
    /// An argument, or a part of one.
    Argument,
    /// A preview of the change, as a diff.
    Diff,
}

impl ShownField {
    /// Creates a field of one line.
    fn of_line(name: &str, kind: ShownKind, line: VisibleText) -> Self {
        Self {
            name: visible_name(name),
            kind,
            lines: vec![line],
            is_block: false,
        }
    }

    /// Returns the line with the name.
    pub fn head(&self) -> String {
        match self.lines.as_slice() {
            [line] if !self.is_block => format!("{}: {line}", self.name),
            [_] => format!("{}: ⟨1 line⟩", self.name),
            lines => format!("{}: ⟨{} lines⟩", self.name, lines.len()),
        }
    }
}

/// What stands before each line of a text that is drawn below its name, so that it cannot pass for a
/// field.
pub const SHOWN_MARGIN: &str = "  │ ";

impl ShownRequest {
    /// Returns all lines, in the order in which they are drawn.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let field = |field: &'_ ShownField| {
            let below = field.lines.iter().filter(|_| field.is_block);
            let mut lines = vec![field.head()];
            lines.extend(below.map(|line| format!("{SHOWN_MARGIN}{line}")));
            lines
        };
        std::iter::once(format!("tool: {}", self.tool)).chain(self.fields.iter().flat_map(field))
    }
}

impl fmt::Display for ShownRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl ApprovalRequest {
    /// Returns the request as an approver sees it. `secrets` recognises what may be masked or is
    /// remarked on; without it everything is shown.
    ///
    /// Only the stored request has everything: the copy in an event is redacted.
    pub fn show(&self, secrets: Option<&dyn Redactor>) -> ShownRequest {
        let mut out = RequestWriter {
            secrets,
            fields: Vec::new(),
        };
        out.write_facts(self);
        if self.withheld {
            // A redacted copy without its arguments: there is nothing to decide on.
            let line = VisibleText::remark("withheld");
            out.fields
                .push(ShownField::of_line("arguments", ShownKind::Fact, line));
        }
        let preview = self.shown.as_ref();
        // A patch is its own preview: it is shown once. Another argument with the same text is shown
        // too.
        let is_preview = |value: &Value| value.is_string() && preview == Some(value);
        let mut same = self.arguments.as_map().iter();
        let patch = same.find(|(_, value)| is_preview(value));
        let patch = patch.map(|(name, _)| name);
        for (name, value) in self.arguments.as_map() {
            if patch != Some(name) {
                out.write_argument(&argument_name(name), value);
            }
        }
        match preview {
            Some(Value::String(text)) => {
                let name = patch.map_or_else(|| "change".to_owned(), |name| argument_name(name));
                out.write_text(&name, text, ShownKind::Diff);
            }
            Some(other) => out.write_argument("change", other),
            None => {}
        }
        ShownRequest {
            tool: VisibleText::new(self.tool.as_str()),
            fields: out.fields,
        }
    }
}

/// The names of the fields that are not arguments.
const FACTS: [&str; 13] = [
    "tool",
    "why",
    "reason of the model",
    "risk",
    "workspace",
    "on behalf of",
    "quorum",
    "expires",
    "requested again",
    "file",
    "link",
    "change",
    "arguments",
];

/// Returns the name under which an argument is shown: none looks like a fact, or like the way into
/// another argument.
fn argument_name(name: &str) -> String {
    let name = name.replace('~', "~0").replace('/', "~1");
    if FACTS.contains(&name.as_str()) || name.starts_with("argument ") {
        format!("argument {name}")
    } else {
        name
    }
}

/// Makes a name visible. It contains neither the sign that ends a name nor the margin of a block.
fn visible_name(name: &str) -> VisibleText {
    let mut out = String::new();
    for c in VisibleText::new(name).as_str().chars() {
        match c {
            ':' | '│' | '┆' => out.push_str(&format!("⟨U+{:04X}⟩", c as u32)),
            ' ' if out.is_empty() => out.push_str("⟨U+0020⟩"),
            c => out.push(c),
        }
    }
    if out.is_empty() {
        return VisibleText::remark("empty");
    }
    VisibleText::from_visible(out)
}

/// Makes a path visible, also an empty one.
fn visible_path(path: &str) -> VisibleText {
    if path.is_empty() {
        return VisibleText::remark("empty");
    }
    VisibleText::new(path)
}

/// Collects the fields of a request.
struct RequestWriter<'a> {
    secrets: Option<&'a dyn Redactor>,
    fields: Vec<ShownField>,
}

impl RequestWriter<'_> {
    fn write_facts(&mut self, request: &ApprovalRequest) {
        if let Some(reason) = &request.reason {
            self.write_text("why", reason, ShownKind::Fact);
        }
        if let Some(stated) = &request.stated_reason {
            self.write_text("reason of the model", stated, ShownKind::Fact);
        }
        self.write_text("risk", request.risk.text(), ShownKind::Fact);
        if let Some(workspace) = &request.workspace {
            self.write_text("workspace", workspace, ShownKind::Fact);
        }
        if let Some(requester) = &request.requester {
            self.write_text("on behalf of", requester.as_str(), ShownKind::Fact);
        }
        if let Some(quorum) = &request.quorum {
            let needed = format!("{} approvals needed", quorum.needed.max(1));
            self.write_text("quorum", &needed, ShownKind::Fact);
        }
        if let Some(until) = request.expires_at {
            self.write_text("expires", &until.to_string(), ShownKind::Fact);
        }
        for changed in &request.changed {
            self.write_text("requested again", &changed.text(), ShownKind::Fact);
        }
        // Usually it is an argument, which is shown anyway.
        let is_argument = |path: &str| {
            let mut values = request.arguments.as_map().values();
            values.any(|value| value.as_str() == Some(path))
        };
        for file in request.files.iter().filter(|file| !is_argument(&file.path)) {
            self.write_text("file", &file.path, ShownKind::Fact);
        }
        for link in &request.links {
            // Escaped apart from each other, so that no name can contain the arrow.
            let line = format!(
                "{} → {}",
                visible_path(&link.path).as_str().replace('→', "⟨U+2192⟩"),
                visible_path(&link.target)
            );
            let line = VisibleText::from_visible(line);
            self.fields
                .push(ShownField::of_line("link", ShownKind::Fact, line));
        }
    }

    fn write_text(&mut self, name: &str, text: &str, kind: ShownKind) {
        let is_block = text.contains('\n');
        let spans = self.find_secrets(name, text);
        let whole = |span: &SecretSpan| {
            span.range == (0..text.len()) && span.source == mask::SecretSource::Assigned
        };
        let is_field = !is_block && spans.iter().any(whole);
        let mut spans = spans;
        spans.sort_by_key(|span| span.range.start);
        let mut first = 0;
        let body = text.strip_suffix('\n').unwrap_or(text);
        let mut lines = Vec::new();
        let mut start = 0;
        for line in body.split('\n') {
            let end = start + line.len();
            // Those that ended before this line are left behind, as far as they are in order: a text
            // may have thousands of both.
            first += { spans[first..].iter() }
                .take_while(|span| span.range.end <= start)
                .count();
            let near = { spans[first..].iter() }.take_while(|span| span.range.start < end);
            // A secret of several lines is remarked on in each of them.
            let here = |span: &SecretSpan| {
                let range = span.range.start.max(start)..span.range.end.min(end);
                (range.start < range.end).then(|| SecretSpan {
                    range: range.start - start..range.end - start,
                    source: span.source,
                })
            };
            let spans: Vec<SecretSpan> = near.filter_map(here).collect();
            let line = MaskedLine {
                line,
                text,
                is_field,
            };
            lines.push(mask_line(line, &spans));
            start = end + 1;
        }
        if text.is_empty() {
            lines = vec![VisibleText::remark("empty")];
        } else if is_block && !text.ends_with('\n') {
            let last = lines.pop().unwrap_or_default();
            lines.push(last.with_remark("no line end"));
        }
        self.fields.push(ShownField {
            name: visible_name(name),
            kind,
            lines,
            is_block,
        });
    }

    fn find_secrets(&self, name: &str, text: &str) -> Vec<SecretSpan> {
        // A redactor that panics recognises nothing: then nothing is masked.
        let find = |secrets: &dyn Redactor| {
            run_contained_sync(|| secrets.find_secrets(Some(name), text)).unwrap_or_default()
        };
        self.secrets.map(find).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
