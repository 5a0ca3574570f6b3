//! Parses the names of files in the headers of a patch.

use super::{InvalidPatch, invalid_line};

/// Parses the name in a `---` or `+++` line, without the timestamp that may follow it.
pub(super) fn parse_name(rest: &str, number: usize) -> Result<String, InvalidPatch> {
    let name = if rest.starts_with('"') {
        unquote(rest, number)?
    } else {
        rest.split('\t')
            .next()
            .unwrap_or(rest)
            .trim_end()
            .to_owned()
    };
    if name.is_empty() {
        Err(invalid_line(number, "the file has no name"))
    } else {
        Ok(name)
    }
}

/// Returns a name that may be quoted.
pub(super) fn unquote(text: &str, number: usize) -> Result<String, InvalidPatch> {
    let text = text.trim();
    if text.starts_with('"') {
        unquote_name(text).ok_or_else(|| invalid_line(number, "the quoted name is not valid"))
    } else {
        Ok(text.to_owned())
    }
}

/// Decodes a quoted name; git quotes names with unusual bytes: `"caf\303\251"`. Returns `None` if
/// it is not quoted, or not as git does.
pub fn unquote_name(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'"' => return None,
            b'\\' => match rest.next()? {
                // A higher first digit would not fit into a byte.
                first @ b'0'..=b'3' => {
                    let mut digit = || rest.next().filter(|byte| matches!(byte, b'0'..=b'7'));
                    (first - b'0') * 64 + (digit()? - b'0') * 8 + (digit()? - b'0')
                }
                b'n' => b'\n',
                b't' => b'\t',
                other @ (b'"' | b'\\') => other,
                _ => return None,
            },
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Strips git's `a/` and `b/` from the names; returns `None` for `/dev/null`.
pub(super) fn strip_prefixes(old: &str, new: &str, git: bool) -> (Option<String>, Option<String>) {
    let created = old == "/dev/null";
    let deleted = new == "/dev/null";
    // Only git adds the prefixes; in other diffs these may be real directories.
    let prefixed = git || (created || old.starts_with("a/")) && (deleted || new.starts_with("b/"));
    let bare = |name: &str, prefix: &str| match name.strip_prefix(prefix) {
        Some(rest) if prefixed => rest.to_owned(),
        _ => name.to_owned(),
    };
    (
        (!created).then(|| bare(old, "a/")),
        (!deleted).then(|| bare(new, "b/")),
    )
}

/// Returns the name after `diff --git`, which occurs there twice.
pub(super) fn parse_git_name(rest: &str) -> Option<String> {
    // A name may contain spaces, so only the middle separates the two for certain.
    let half = rest.len().checked_sub(1)? / 2;
    let old = rest.get(..half)?;
    let new = rest.get(half..)?.strip_prefix(' ')?;
    let (old, new) = if rest.starts_with('"') {
        (unquote(old, 0).ok()?, unquote(new, 0).ok()?)
    } else {
        (old.to_owned(), new.to_owned())
    };
    let name = old.strip_prefix("a/")?;
    (new.strip_prefix("b/")? == name && !name.is_empty()).then(|| name.to_owned())
}
