//! Options that accept one value or a list, and the glob sets built from such lists.

use std::{borrow::Cow, fmt, marker::PhantomData};

use globset::{GlobBuilder, GlobSet};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, IntoDeserializer, SeqAccess, Visitor},
};

use crate::BadOption;

/// A list that may be written as a single value: `tool = "fs_*"` is `tool = ["fs_*"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> std::ops::Deref for OneOrMany<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, U: Into<T>, const N: usize> From<[U; N]> for OneOrMany<T> {
    fn from(list: [U; N]) -> Self {
        Self(list.into_iter().map(Into::into).collect())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    // By hand: the errors of an untagged enum do not say which word was wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
            type Value = OneOrMany<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<Self::Value, E> {
                T::deserialize(word.into_deserializer()).map(|one| OneOrMany(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut many = Vec::new();
                while let Some(one) = list.next_element()? {
                    many.push(one);
                }
                Ok(OneOrMany(many))
            }
        }
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one.clone(), { "type": "array", "items": one }] })
    }
}

/// Compiles globs for plain names, where `*` stands for any text. No globs match nothing.
pub(crate) fn compile_name_globs<T: AsRef<str>>(
    key: &'static str,
    patterns: &[T],
) -> Result<GlobSet, BadOption> {
    compile_globs(key, patterns, false)
}

/// Compiles globs for paths, where `*` stops at a slash and `**` does not.
pub(crate) fn compile_path_globs<T: AsRef<str>>(
    key: &'static str,
    patterns: &[T],
) -> Result<GlobSet, BadOption> {
    compile_globs(key, patterns, true)
}

fn compile_globs<T: AsRef<str>>(
    key: &'static str,
    patterns: &[T],
    slashes: bool,
) -> Result<GlobSet, BadOption> {
    let unreadable =
        |error: globset::Error| BadOption::new(key, format!("the pattern cannot be read: {error}"));
    let mut set = GlobSet::builder();
    for pattern in patterns {
        let pattern = pattern.as_ref();
        if pattern.trim().is_empty() {
            return Err(BadOption::new(
                key,
                "an empty pattern matches nothing; write `*` for everything",
            ));
        }
        set.add(
            GlobBuilder::new(pattern)
                .literal_separator(slashes)
                .build()
                .map_err(unreadable)?,
        );
    }
    set.build().map_err(unreadable)
}

/// Checks whether a shell pattern (`*`, `?`, `[…]`) may expand to `text`.
///
/// A class counts as any character, so the answer is "yes" too often rather than too rarely.
pub(crate) fn may_expand_to(pattern: &str, text: &str) -> bool {
    enum ShellPatternPiece {
        Any,
        One,
        Exactly(char),
    }
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        // A class ends at the first bracket after its first character; `[[:alpha:]]` has two.
        let class = || rest.get(1..).and_then(|tail| Some(1 + tail.find(']')?));
        match (c, class()) {
            ('*', _) => pieces.push(ShellPatternPiece::Any),
            ('?', _) => pieces.push(ShellPatternPiece::One),
            ('[', Some(end)) => {
                let named = rest.starts_with("[:") && rest[end + 1..].starts_with(']');
                rest = &rest[end + 1 + usize::from(named)..];
                pieces.push(ShellPatternPiece::One);
            }
            (c, _) => pieces.push(ShellPatternPiece::Exactly(c)),
        }
    }
    // The counts of pieces that the text so far may have consumed. Backtracking over several stars
    // would take exponential time on a hostile pattern; this is linear in pattern times text.
    let mut reached = vec![false; pieces.len() + 1];
    let skip_stars = |reached: &mut Vec<bool>| {
        for (at, piece) in pieces.iter().enumerate() {
            reached[at + 1] |= reached[at] && matches!(piece, ShellPatternPiece::Any);
        }
    };
    reached[0] = true;
    skip_stars(&mut reached);
    for c in text.chars() {
        let mut next = vec![false; pieces.len() + 1];
        for (at, piece) in pieces.iter().enumerate().filter(|(at, _)| reached[*at]) {
            match piece {
                ShellPatternPiece::Any => next[at] = true,
                ShellPatternPiece::One => next[at + 1] = true,
                ShellPatternPiece::Exactly(wanted) => next[at + 1] |= *wanted == c,
            }
        }
        skip_stars(&mut next);
        reached = next;
    }
    reached[pieces.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::ToolKind;

    #[test]
    fn a_single_value_is_a_list_of_one_and_a_misspelt_one_is_named() {
        let read = |text: &str| serde_json::from_str::<OneOrMany<ToolKind>>(text);
        assert_eq!(
            read(r#""edit""#).expect("one"),
            OneOrMany(vec![ToolKind::Edit])
        );
        assert_eq!(
            read(r#"["edit","read"]"#).expect("two"),
            OneOrMany(vec![ToolKind::Edit, ToolKind::Read])
        );
        assert_eq!(read("[]").expect("none"), OneOrMany(vec![]));
        assert!(
            read(r#""edti""#)
                .expect_err("misspelt")
                .to_string()
                .contains("edti")
        );
        assert!(read("7").is_err());
    }

    #[test]
    fn a_shell_pattern_may_expand_to_matching_texts() {
        for (pattern, text, fits) in [
            (".en*", ".env", true),
            (".e?v", ".env", true),
            (".[e]nv", ".env", true),
            (".[[:alpha:]]nv", ".env", true),
            (".[!z]nv", ".env", true),
            ("*", "", true),
            ("*a*b", "xaxb", true),
            ("[", "[", true),
            (".e?", ".env", false),
            ("*.rs", ".env", false),
            ("a*b", "abc", false),
        ] {
            assert_eq!(may_expand_to(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn no_globs_match_nothing_and_a_star_stops_at_a_slash_only_in_paths() {
        assert!(
            !compile_name_globs::<&str>("k", &[])
                .expect("empty")
                .is_match("x")
        );
        assert!(
            compile_name_globs("k", &["a*"])
                .expect("fine")
                .is_match("a/b")
        );
        assert!(
            !compile_path_globs("k", &["a*"])
                .expect("fine")
                .is_match("a/b")
        );
        assert!(compile_name_globs("k", &["["]).is_err());
        assert!(compile_name_globs("k", &[" "]).is_err());
    }
}
