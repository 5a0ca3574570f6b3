//! Names that a secret is assigned to, and names that only look like them.

use std::ops::Range;

use super::{literals::is_mixed, skip_bytes};

/// Returns the anchor without the sign at its end. The sign is part of the anchor because `_pass`
/// alone would hide the anchor `password` in `db_password`.
pub(super) fn name_in_anchor(text: &str, anchor: &Range<usize>) -> Range<usize> {
    let name = text[anchor.clone()].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    anchor.start..anchor.start + name.len()
}

/// Checks for `_auth` as npm has it, alone or after the registry, and not as the end of a word such
/// as `requires_auth`.
pub(super) fn is_npm_name(bytes: &[u8], name: &Range<usize>) -> bool {
    let before = name.start.checked_sub(1).map(|at| bytes[at]);
    let value = skip_bytes(bytes, name.end, b"\"'= :");
    // A token of npm has a shape of its own.
    !bytes[value..].starts_with(b"npm_")
        && before.is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte != b'_')
}

/// Checks for a name such as `DB_PASS` or `smtp_pass`, and not `first_pass`.
pub(super) fn is_account_name(bytes: &[u8], name: &Range<usize>) -> bool {
    const ACCOUNTS: &str = "admin bind cert database db ftp http imap jwt keystore ldap login mail mariadb \
        mongo mongodb mqtt mssql mysql oracle pg postgres proxy rabbitmq redis root smtp sql ssh store sudo user vpn";
    let part = |byte: &&u8| byte.is_ascii_alphanumeric();
    let front = bytes[..name.start]
        .iter()
        .rev()
        .take(16)
        .take_while(part)
        .count();
    let word = &bytes[name.start - front..name.start];
    let is_known = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    is_upper_name(bytes, name) && bytes.get(name.end) == Some(&b'=')
        || ACCOUNTS.split_whitespace().any(is_known)
}

/// Checks whether the name is an option such as `--password`.
pub(super) fn is_flag(bytes: &[u8], name: &Range<usize>) -> bool {
    let part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let front = bytes[..name.start]
        .iter()
        .rev()
        .take(64)
        .take_while(part)
        .count();
    bytes[name.start - front..].starts_with(b"--")
}

/// Checks for a pagination token such as `next_page_token`, which a model needs to continue a list.
pub(super) fn is_pagination_token(bytes: &[u8], name: &Range<usize>) -> bool {
    let before = bytes[..name.start]
        .strip_suffix(b"_")
        .unwrap_or(&bytes[..name.start]);
    let ends = |word: &&str| {
        before.len() >= word.len()
            && before[before.len() - word.len()..].eq_ignore_ascii_case(word.as_bytes())
    };
    bytes[name.clone()].eq_ignore_ascii_case(b"token")
        && ["page", "next", "continuation", "sync", "cursor"]
            .iter()
            .any(ends)
}

/// Checks for `PWD` and `OLDPWD` with the path of a directory, which every shell exports. Any other
/// value counts: `PWD=` is also the password of a connection string.
pub(super) fn is_working_directory(bytes: &[u8], name: &Range<usize>, value: &str) -> bool {
    let part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let front = bytes[..name.start].iter().rev().take(8).take_while(part);
    let whole = name.start - front.count()..name.end;
    is_directory_name(&bytes[whole]) && is_absolute_path(value)
}

/// Checks whether the whole name around `name` is in capitals, as settings are.
pub(super) fn is_upper_name(bytes: &[u8], name: &Range<usize>) -> bool {
    let part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
    let front = bytes[..name.start]
        .iter()
        .rev()
        .take(64)
        .take_while(part)
        .count();
    !bytes[name.start - front..name.end]
        .iter()
        .any(u8::is_ascii_lowercase)
}

/// Checks for the names that shells give to the working directory.
pub(in crate::shape::redact) fn is_directory_name(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"pwd") || name.eq_ignore_ascii_case(b"oldpwd")
}

pub(in crate::shape::redact) fn is_absolute_path(value: &str) -> bool {
    // A bare value ends before a backslash.
    let drive = |rest: &str| rest == ":" || rest.starts_with(":\\") || rest.starts_with(":/");
    let rooted = value.starts_with('/')
        || value.starts_with(|c: char| c.is_ascii_alphabetic()) && drive(&value[1..]);
    rooted && value.split(['/', '\\']).all(|part| !is_mixed(part))
}
