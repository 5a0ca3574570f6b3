//! The check that a file is still the version that the model has read.

use toolgate_core::{Digest, ToolError};
use toolgate_rooted::RootedPath;

use crate::{
    files::report::short_digest,
    workspace::{
        open::FileSnapshot,
        plan::{conflict_error, invalid_input},
    },
};

/// The fewest digits of a digest; fewer could match another version by chance.
const MIN_DIGEST_DIGITS: usize = 12;

/// Checks that a file has the digest `expected`, given in full or by its first digits.
pub(crate) fn check_expected_digest(
    expected: Option<&str>,
    place: &RootedPath,
    found: Option<&FileSnapshot>,
) -> Result<(), ToolError> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let digits = expected.strip_prefix("sha256:").unwrap_or(expected);
    if digits.len() < MIN_DIGEST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let text =
            "expected_digest must be a digest from read_file, such as sha256:0123456789abcdef";
        return Err(invalid_input(text));
    }
    match found {
        Some(found) if matches_digest(digits, found.digest) => Ok(()),
        Some(found) => {
            let now = short_digest(found.digest);
            Err(conflict_error(format!(
                "{place} has changed since it was read (now {now}); read it again before you change it"
            )))
        }
        None => Err(conflict_error(format!(
            "{place} does not exist any more; check with list_dir"
        ))),
    }
}

fn matches_digest(digits: &str, digest: Digest) -> bool {
    digest
        .to_string()
        .strip_prefix("sha256:")
        .is_some_and(|whole| whole.starts_with(&digits.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_recognized_by_its_whole_digest_or_a_long_enough_prefix() {
        let place = RootedPath::from_normalized("a");
        let found = FileSnapshot::new("one", 0o644);
        let whole = found.digest.to_string();
        for good in [
            &whole[..],
            &whole[7..],
            &whole[..23],
            &whole[7..].to_uppercase(),
        ] {
            assert!(
                check_expected_digest(Some(good), &place, Some(&found)).is_ok(),
                "{good}"
            );
        }
        for bad in [
            "",
            "sha256:",
            &whole[..18],
            "sha256:zzzzzzzzzzzzzzzz",
            "sha256:0123456789abcdef",
        ] {
            assert!(
                check_expected_digest(Some(bad), &place, Some(&found)).is_err(),
                "{bad}"
            );
        }
        assert!(check_expected_digest(Some(&whole), &place, None).is_err());
        assert!(check_expected_digest(None, &place, None).is_ok());
    }
}
