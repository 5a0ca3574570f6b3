//! Which part of a text may be masked for a person who decides: a secret value, and nothing that
//! could run or name something.

use std::ops::Range;

use super::visible::{VisibleText, VisibleWriter};

/// A part of a text that a [`Redactor`](crate::Redactor) takes for a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSpan {
    /// Its bytes in the text.
    pub range: Range<usize>,
    /// The way it was recognised.
    pub source: SecretSource,
}

/// The way a secret was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretSource {
    /// The value is known to be secret.
    Known,
    /// It is the value of a header, of a password assignment, or of a field with such a name.
    Assigned,
    /// It looks like one.
    Shape,
}

/// A line of a text, for which masks are looked for.
#[derive(Clone, Copy)]
pub(crate) struct MaskedLine<'a> {
    /// The line.
    pub(crate) line: &'a str,
    /// The whole text: what is assigned in one line may be run in another.
    pub(crate) text: &'a str,
    /// True if the line is the whole value of a field whose name says that it is secret.
    pub(crate) is_field: bool,
}

/// Returns a line with its masks and remarks.
pub(crate) fn mask_line(masked: MaskedLine<'_>, spans: &[SecretSpan]) -> VisibleText {
    let line = masked.line;
    let masks = find_masks(masked, spans);
    let mut out = VisibleWriter::default();
    let mut done = 0;
    for part in masks {
        out.write_text(&line[done..part.range.start]);
        match part.kind {
            PartKind::Mask => {
                let length = line[part.range.clone()].chars().count();
                out.write_remark(&format!("masked: {length} characters"));
            }
            PartKind::Remark => {
                out.write_text(&line[part.range.clone()]);
                out.write_remark("looks like a secret");
            }
        }
        done = part.range.end;
    }
    out.write_text(&line[done..]);
    out.finish()
}

struct LinePart {
    range: Range<usize>,
    kind: PartKind,
}

#[derive(Clone, Copy, PartialEq)]
enum PartKind {
    Mask,
    Remark,
}

/// Returns the parts that are masked or remarked on, in order and without overlaps. A mask comes
/// before a remark about the text around it.
fn find_masks(masked: MaskedLine<'_>, spans: &[SecretSpan]) -> Vec<LinePart> {
    let MaskedLine { line, is_field, .. } = masked;
    let mut parts: Vec<LinePart> = Vec::new();
    for kind in [PartKind::Mask, PartKind::Remark] {
        for span in spans {
            let range = span.range.clone();
            // A span that is no part of the text is the mistake of a redactor, not ours.
            let Some(text) = line.get(range.clone()).filter(|text| !text.is_empty()) else {
                continue;
            };
            // Never what only looks like a secret: the model writes such a text, and code that is
            // encoded in it would run unseen.
            let masked = span.source == SecretSource::Known
                && is_unmistakable(text)
                && (is_field && range == (0..line.len()) || masked.is_value(&range));
            let is_free =
                |part: &LinePart| part.range.end <= range.start || range.end <= part.range.start;
            if masked == (kind == PartKind::Mask) && parts.iter().all(is_free) {
                parts.push(LinePart { range, kind });
            }
        }
    }
    parts.sort_by_key(|part| part.range.start);
    parts
}

/// Checks whether a text can be nothing but a secret: it could not be a command, an option, an
/// assignment, nor name a file, a program or a host.
///
/// When in doubt it is shown: what the approver reads is no log.
fn is_unmistakable(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let has = |test: fn(&u8) -> bool| body.as_bytes().iter().any(test);
    let joints = body.bytes().filter(|byte| b"_-".contains(byte)).count();
    // A dot makes a host or an extension, a slash or a tilde a path, a sign `=` an assignment.
    let plain = body
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+_-".contains(&byte));
    let mixed =
        has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit);
    let coded = has(u8::is_ascii_alphabetic) && has(u8::is_ascii_digit);
    let generated = match joints {
        0 => body.len() >= 10 && mixed || body.len() >= 24 && coded,
        // `x86_64-Linux-gcc-12` is a program.
        1..=4 => body.len() >= 24 && mixed,
        _ => false,
    };
    plain && generated && !body.starts_with(['-', '+'])
}

impl MaskedLine<'_> {
    /// Checks whether a part of the line is the value of an assignment or a header: `name=…`,
    /// `name: …`, also in quotes and after the word `Bearer`, `Basic` or `token`.
    fn is_value(&self, range: &Range<usize>) -> bool {
        let is_end = |c: char| c.is_whitespace() || "\"',;&|)}]".contains(c);
        if !self.line[range.end..].chars().next().is_none_or(is_end) {
            return false;
        }
        let before = &self.line[..range.start];
        let scheme = ["Bearer ", "bearer ", "Basic ", "basic ", "token ", "Token "]
            .iter()
            .find_map(|scheme| before.strip_suffix(scheme));
        let sign = scheme.unwrap_or(before);
        let sign = sign.strip_suffix(['"', '\'']).unwrap_or(sign);
        // After `=` nothing may stand in between: the shell runs what follows `PASSWORD= `.
        let header = sign.strip_suffix(": ").or_else(|| sign.strip_suffix(':'));
        let assigned = sign.strip_suffix('=').filter(|_| scheme.is_none());
        let Some(name) = assigned.or(header) else {
            return false;
        };
        let name = name.strip_suffix(['"', '\'']).unwrap_or(name);
        // `a==b`, `a=>b` and `a!=b` are no assignments, and `${name:-value}` is a command at times.
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let start = name.trim_end_matches(is_name).len();
        let name = &name[start..];
        !name.is_empty() && (assigned.is_none() || !self.is_used(name))
    }

    /// Checks whether the text uses a variable or an alias of this name: what was assigned to it may
    /// then run.
    fn is_used(&self, name: &str) -> bool {
        let expanded = [
            format!("${name}"),
            format!("${{{name}"),
            format!("${{!{name}"),
        ];
        let words = ["alias", "eval", "source"];
        expanded
            .iter()
            .any(|used| self.text.contains(used.as_str()))
            || words.iter().any(|word| self.text.contains(word))
    }
}

#[cfg(test)]
mod tests;
