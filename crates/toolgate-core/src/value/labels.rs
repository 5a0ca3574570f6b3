//! Labels of a session or run: a small map of strings such as tenant and request id.

use std::{collections::BTreeMap, fmt, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Facts about a session or run that the host knows: tenant, request id, environment.
///
/// They are part of every call, event and receipt, and policy rules can match them. Cloning shares
/// them; empty labels need no memory.
///
/// ```
/// use toolgate_core::Labels;
/// let labels = Labels::new([("tenant", "acme"), ("request", "r-17")])?;
/// assert_eq!(labels.get("tenant"), Some("acme"));
/// assert!(Labels::new([("Tenant", "acme")]).is_err(), "names are lower case");
/// # Ok::<(), toolgate_core::InvalidLabel>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<BTreeMap<Box<str>, Box<str>>>>);

/// The reason a label cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabel {
    /// The name is empty, too long, or has other characters than `a-z`, `0-9`, `_`, `-` and `.`.
    #[error(
        "the label name {0:?} is not valid: it has 1 to 64 characters of a-z, 0-9, `_`, `-` and `.`"
    )]
    Name(String),
    /// The value is empty or too long.
    #[error("the value of the label {0} is not valid: it has 1 to 256 bytes")]
    Value(String),
    /// There are too many labels.
    #[error("there are more than 16 labels")]
    TooMany,
}

impl Labels {
    /// The largest number of labels.
    pub const MAX_COUNT: usize = 16;

    /// The longest name, in bytes.
    pub const MAX_NAME_BYTES: usize = 64;

    /// The longest value, in bytes.
    pub const MAX_VALUE_BYTES: usize = 256;

    /// Creates labels. A name that is given twice has the last value.
    ///
    /// # Errors
    ///
    /// Fails if there are too many labels, or if one of them is not valid.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(
        labels: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidLabel> {
        Self::default().with(labels)
    }

    /// Returns these labels with more of them. A name that is given again gets the new value.
    ///
    /// # Errors
    ///
    /// Fails as [`Labels::new`] does.
    pub fn with<N: AsRef<str>, V: AsRef<str>>(
        &self,
        more: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidLabel> {
        let mut more = more.into_iter().peekable();
        if more.peek().is_none() {
            return Ok(self.clone());
        }
        let mut labels = self.0.as_deref().cloned().unwrap_or_default();
        for (name, value) in more {
            check_label(name.as_ref(), value.as_ref())?;
            labels.insert(name.as_ref().into(), value.as_ref().into());
        }
        if labels.len() > Self::MAX_COUNT {
            return Err(InvalidLabel::TooMany);
        }
        Ok(Self(Some(Arc::new(labels))))
    }

    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(name).map(AsRef::as_ref)
    }

    /// Returns all labels, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.0.iter().flat_map(|labels| labels.iter());
        labels.map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Checks whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Checks whether every one of `wanted` is here with the same value.
    pub fn contains_all(&self, wanted: &Labels) -> bool {
        wanted
            .iter()
            .all(|(name, value)| self.get(name) == Some(value))
    }
}

fn check_label(name: &str, value: &str) -> Result<(), InvalidLabel> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
    let name_is_valid = (1..=Labels::MAX_NAME_BYTES).contains(&name.len());
    if !name_is_valid || !name.chars().all(fits) {
        // Bounded: it becomes part of an error message.
        return Err(InvalidLabel::Name(name.chars().take(64).collect()));
    }
    if (1..=Labels::MAX_VALUE_BYTES).contains(&value.len()) {
        Ok(())
    } else {
        Err(InvalidLabel::Value(name.to_owned()))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let labels = BTreeMap::<String, String>::deserialize(deserializer)?;
        Self::new(labels).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Labels {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, String>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded_in_number_and_length() {
        let long = "x".repeat(Labels::MAX_VALUE_BYTES + 1);
        for (name, value) in [("", "v"), ("A", "v"), ("a b", "v"), ("n", ""), ("n", &long)] {
            assert!(Labels::new([(name, value)]).is_err(), "{name:?}");
        }
        let many = |count: usize| Labels::new((0..count).map(|n| (format!("n{n}"), "v")));
        assert!(many(Labels::MAX_COUNT).is_ok());
        assert_eq!(many(Labels::MAX_COUNT + 1), Err(InvalidLabel::TooMany));
        let error = Labels::new([("token", long.as_str())]).expect_err("too long");
        assert!(!error.to_string().contains("xx"), "no value in an error");
    }

    #[test]
    fn later_labels_win_and_no_labels_need_no_memory() {
        let session = Labels::new([("tenant", "acme"), ("env", "test")]).expect("valid");
        let run = session.with([("env", "prod")]).expect("valid");
        assert_eq!(
            run.iter().collect::<Vec<_>>(),
            [("env", "prod"), ("tenant", "acme")]
        );
        assert!(run.contains_all(&Labels::new([("tenant", "acme")]).expect("valid")));
        assert!(!run.contains_all(&session));
        let none = Labels::new::<&str, &str>([]).expect("valid");
        assert!(none.is_empty() && none.0.is_none());
        let text = serde_json::to_string(&run).expect("is JSON");
        assert_eq!(text, r#"{"env":"prod","tenant":"acme"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&text).expect("reads"), run);
    }
}
