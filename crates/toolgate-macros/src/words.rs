//! The options and values of `#[tool]`, and suggestions for misspelled ones.

/// The values a user writes, each with the variant it stands for.
pub(crate) type ValueVariants = &'static [(&'static str, &'static str)];

pub(crate) const OPTION_NAMES: &[&str] = &[
    "name",
    "description",
    "kind",
    "side_effect",
    "read_only",
    "destructive",
    "idempotent",
    "open_world",
    "resource",
    "resource_name",
    "timeout",
    "long_running",
    "cost",
    "output",
    "crate",
];

pub(crate) const KINDS: ValueVariants = &[
    ("read", "Read"),
    ("edit", "Edit"),
    ("delete", "Delete"),
    ("move", "Move"),
    ("search", "Search"),
    ("execute", "Execute"),
    ("think", "Think"),
    ("fetch", "Fetch"),
    ("other", "Other"),
];

pub(crate) const SIDE_EFFECTS: ValueVariants = &[
    ("none", "None"),
    ("read_only", "ReadOnly"),
    ("workspace_write", "WorkspaceWrite"),
    ("process_exec", "ProcessExec"),
    ("network", "Network"),
];

/// Returns the valid word that is most similar to `given`, if one is similar enough.
pub(crate) fn find_nearest<'a>(given: &str, valid: &[&'a str]) -> Option<&'a str> {
    let alike = |word: &str| strsim::jaro_winkler(given, word);
    let best = valid
        .iter()
        .copied()
        .max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(best) > 0.7).then_some(best)
}

/// Checks whether a tool can be registered under `name`; the same rule as `ToolName::check_characters`.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=128).contains(&name.len()) && name.bytes().all(plain)
}

/// Parses `500ms`, `30s` or `2m` into milliseconds.
pub(crate) fn parse_milliseconds(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return None,
    };
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(factor)
        .filter(|ms| *ms > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_whole_number_and_a_unit() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("2m", 120_000)] {
            assert_eq!(parse_milliseconds(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "s",
            "30",
            "0s",
            "-1s",
            "1.5s",
            "30 s",
            "1h",
            "99999999999999999999s",
            "18446744073709551615m",
        ] {
            assert_eq!(parse_milliseconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_misspelled_option_is_recognized_and_nonsense_is_not() {
        assert_eq!(find_nearest("idempotnt", OPTION_NAMES), Some("idempotent"));
        assert_eq!(
            find_nearest("sideeffect", OPTION_NAMES),
            Some("side_effect")
        );
        assert_eq!(find_nearest("readonly", OPTION_NAMES), Some("read_only"));
        assert_eq!(find_nearest("xyz", OPTION_NAMES), None);
    }

    #[test]
    fn tool_names_are_short_and_plain() {
        assert!(is_tool_name("fs.read-file_2") && is_tool_name(&"a".repeat(128)));
        for bad in ["", "a b", "é", &"a".repeat(129)] {
            assert!(!is_tool_name(bad), "{bad}");
        }
    }
}
