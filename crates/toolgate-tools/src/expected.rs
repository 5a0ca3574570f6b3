//! The version of a file that a model has seen.

use toolgate_core::{Digest, ToolError};

use crate::{
    changing::{conflict, invalid},
    files::Snapshot,
    place::Place,
    report::short,
};

/// Fewer digits could fit another version by chance.
const FEWEST_DIGITS: usize = 12;

/// Checks that a file is the version that `expected` names, whole or by its first digits.
pub(crate) fn check(
    expected: Option<&str>,
    place: &Place,
    found: Option<&Snapshot>,
) -> Result<(), ToolError> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let digits = expected.strip_prefix("sha256:").unwrap_or(expected);
    if digits.len() < FEWEST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let text =
            "expected_digest is the digest that read_file told, such as sha256:0123456789abcdef";
        return Err(invalid(text));
    }
    match found {
        Some(found) if fits(digits, found.digest) => Ok(()),
        Some(found) => {
            let now = short(found.digest);
            Err(conflict(format!(
                "{place} has changed since it was read (now {now}); read it again, then decide anew"
            )))
        }
        None => Err(conflict(format!(
            "{place} does not exist any more; look with list_dir"
        ))),
    }
}

fn fits(digits: &str, digest: Digest) -> bool {
    digest
        .to_string()
        .strip_prefix("sha256:")
        .is_some_and(|whole| whole.starts_with(&digits.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_by_its_whole_digest_or_enough_of_it() {
        let (place, found) = (Place::of("a"), Snapshot::new("one", 0o644));
        let whole = found.digest.to_string();
        for good in [
            &whole[..],
            &whole[7..],
            &whole[..23],
            &whole[7..].to_uppercase(),
        ] {
            assert!(check(Some(good), &place, Some(&found)).is_ok(), "{good}");
        }
        for bad in [
            "",
            "sha256:",
            &whole[..18],
            "sha256:zzzzzzzzzzzzzzzz",
            "sha256:0123456789abcdef",
        ] {
            assert!(check(Some(bad), &place, Some(&found)).is_err(), "{bad}");
        }
        assert!(check(Some(&whole), &place, None).is_err());
        assert!(check(None, &place, None).is_ok());
    }
}
