//! Filters of a search, as flags and as words of the query.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{HumanDuration, SearchFacet, SearchKind, SearchRequirement, Status, Timestamp};

/// The maximum number of values of one filter.
const MAX_VALUES: usize = 32;

/// Limits a search to some documents. Values of one kind are alternatives; all kinds have to match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SearchFilter {
    /// Ids of sessions, or their beginnings or ends.
    pub sessions: Vec<String>,
    /// Kinds of documents.
    pub kinds: Vec<SearchKind>,
    /// Tools.
    pub tools: Vec<String>,
    /// Wire names of statuses.
    pub statuses: Vec<String>,
    /// Directories: the whole path, its last part, or a part of it that ends at a slash.
    pub projects: Vec<String>,
    /// Agents, by name or id.
    pub agents: Vec<String>,
    /// Models, as `provider:name` or only the name.
    pub models: Vec<String>,
    /// Nothing older than this.
    pub after: Option<SearchTime>,
    /// Nothing that is not older than this.
    pub before: Option<SearchTime>,
}

/// A time in a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchTime {
    /// A point in time.
    At(Timestamp),
    /// A time before now.
    Ago(Duration),
}

/// The words that begin a filter in a query.
pub const SEARCH_FILTER_WORDS: [&str; 9] = [
    "session", "role", "tool", "status", "project", "agent", "model", "after", "before",
];

/// The reason why a filter does not limit the search.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{value} is not understood: {expected}")]
pub struct InvalidSearchFilter {
    /// The name of the filter.
    pub name: String,
    /// The value, truncated.
    pub value: String,
    /// The values that it accepts.
    pub expected: String,
}

impl SearchFilter {
    /// Adds a filter by its name, as in `tool:shell`.
    ///
    /// # Errors
    ///
    /// Fails with the accepted values if the name or the value is not known.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), InvalidSearchFilter> {
        let invalid = |expected: &str| InvalidSearchFilter {
            name: name.chars().take(64).collect(),
            value: value.chars().take(64).collect(),
            expected: expected.to_owned(),
        };
        match name {
            "session" if !is_id_prefix(value) => {
                return Err(invalid(
                    "an id of a session, or at least 4 characters of it",
                ));
            }
            "session" => push_value(&mut self.sessions, value.to_ascii_lowercase()),
            "role" => {
                let kinds = kinds_of_role(value);
                if kinds.is_empty() {
                    return Err(invalid("user, assistant, tool, call, result or title"));
                }
                self.kinds.extend(kinds);
                self.kinds.sort_unstable();
                self.kinds.dedup();
            }
            "tool" => push_value(&mut self.tools, value.to_owned()),
            "status" => match statuses_of_word(value) {
                found if found.is_empty() => return Err(invalid(&known_statuses())),
                found => found
                    .into_iter()
                    .for_each(|status| push_value(&mut self.statuses, status.into())),
            },
            "project" => push_value(&mut self.projects, trim_slash(value).to_owned()),
            "agent" => push_value(&mut self.agents, value.to_owned()),
            "model" => push_value(&mut self.models, value.to_owned()),
            "after" => self.after = Some(SearchTime::parse(value).ok_or_else(|| invalid(TIMES))?),
            "before" => self.before = Some(SearchTime::parse(value).ok_or_else(|| invalid(TIMES))?),
            _ => return Err(invalid(&SEARCH_FILTER_WORDS.join(", "))),
        }
        Ok(())
    }

    /// Adds everything that another filter asks for.
    pub fn merge(&mut self, other: &Self) {
        self.sessions.extend(other.sessions.iter().cloned());
        self.kinds.extend(other.kinds.iter().copied());
        self.tools.extend(other.tools.iter().cloned());
        self.statuses.extend(other.statuses.iter().cloned());
        self.projects.extend(other.projects.iter().cloned());
        self.agents.extend(other.agents.iter().cloned());
        self.models.extend(other.models.iter().cloned());
        self.after = other.after.or(self.after);
        self.before = other.before.or(self.before);
    }

    /// Checks whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Writes the filter into a requirement. `directories` are those that sessions of the store work
    /// in.
    pub(crate) fn apply(
        &self,
        required: &mut SearchRequirement,
        now: Timestamp,
        directories: &[std::sync::Arc<str>],
    ) {
        required.after = self.after.map(|time| time.resolve(now));
        required.before = self.before.map(|time| time.resolve(now));
        let sessions = self.sessions.iter();
        let sessions = sessions.flat_map(|id| {
            [
                SearchFacet::session_prefix(id),
                SearchFacet::session_suffix(id),
            ]
        });
        let kinds = self.kinds.iter().copied().map(SearchFacet::kind);
        let projects = directories.iter().filter(|directory| {
            self.projects
                .iter()
                .any(|wanted| is_project(directory, wanted))
        });
        // The number of directories is not limited, but a query is.
        let projects = projects
            .take(MAX_VALUES * 4)
            .map(|directory| SearchFacet::project(directory));
        let named = |names: &[String], facet: fn(&str) -> SearchFacet| {
            names.iter().map(|name| facet(name)).collect::<Vec<_>>()
        };
        let groups = [
            (self.sessions.is_empty(), sessions.collect()),
            (self.kinds.is_empty(), kinds.collect()),
            (self.tools.is_empty(), named(&self.tools, SearchFacet::tool)),
            (
                self.statuses.is_empty(),
                named(&self.statuses, SearchFacet::status),
            ),
            (self.projects.is_empty(), projects.collect()),
            (
                self.agents.is_empty(),
                named(&self.agents, SearchFacet::agent),
            ),
            (
                self.models.is_empty(),
                named(&self.models, SearchFacet::model),
            ),
        ];
        let asked = groups.into_iter().filter(|(is_empty, _)| !is_empty);
        required.facets.extend(asked.map(|(_, group)| group));
    }
}

const TIMES: &str =
    "a date such as 2026-01-31, a time such as 2026-01-31T12:00:00Z, or an age such as 3d";

impl SearchTime {
    /// Parses a date (`2026-01-31`, in UTC), a time (RFC 3339) or an age (`3d`, `2w`, `1h 30m`).
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > 64 {
            return None;
        }
        if let Ok(at) = text.parse::<Timestamp>() {
            return Some(Self::At(at));
        }
        if let Ok(at) = format!("{text}T00:00:00Z").parse::<Timestamp>() {
            return Some(Self::At(at));
        }
        if let Some(days) = long_age(text) {
            return Some(Self::Ago(Duration::from_secs(days.checked_mul(86_400)?)));
        }
        text.parse::<HumanDuration>()
            .ok()
            .map(|age| Self::Ago(age.get()))
    }

    /// Returns the point in time.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(age) => {
                let micros = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
                Timestamp::from_micros(now.as_micros().saturating_sub(micros))
            }
        }
    }
}

/// Parses an age in days, weeks, months or years, which are not durations of a clock.
fn long_age(text: &str) -> Option<u64> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let count: u64 = text[..digits].parse().ok()?;
    let days = match text[digits..].trim() {
        "d" | "day" | "days" => 1,
        "w" | "week" | "weeks" => 7,
        "mo" | "month" | "months" => 30,
        "y" | "year" | "years" => 365,
        _ => return None,
    };
    count.checked_mul(days)
}

fn push_value(values: &mut Vec<String>, value: String) {
    if values.len() < MAX_VALUES && !values.contains(&value) {
        values.push(value);
    }
}

fn is_id_prefix(value: &str) -> bool {
    let digits = value.chars().filter(char::is_ascii_hexdigit).count();
    let is_id = value
        .chars()
        .all(|character| character.is_ascii_hexdigit() || character == '-');
    is_id && (4..=32).contains(&digits)
}

fn kinds_of_role(role: &str) -> Vec<SearchKind> {
    if role == "tool" {
        return vec![SearchKind::Call, SearchKind::Result];
    }
    SearchKind::from_word(role).into_iter().collect()
}

/// Returns the statuses with this wire name; `failed` stands for every status but success.
fn statuses_of_word(word: &str) -> Vec<&'static str> {
    let wanted = |status: &Status| match word {
        "failed" => *status != Status::Ok && *status != Status::DryRun,
        word => status.as_str() == word,
    };
    Status::ALL
        .iter()
        .filter(|status| wanted(status))
        .map(|status| status.as_str())
        .collect()
}

fn known_statuses() -> String {
    let known = Status::ALL.map(Status::as_str);
    format!("failed, {}", known.join(", "))
}

fn trim_slash(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => path,
        trimmed => trimmed,
    }
}

/// Checks whether a filter names a directory: its path, a directory above it, or its last parts.
pub fn is_project(directory: &str, wanted: &str) -> bool {
    let wanted = trim_slash(wanted);
    let is_above = directory
        .strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_end = directory
        .strip_suffix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    !wanted.is_empty() && (is_above || is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_moments_or_ages() {
        let at = |text: &str| Some(SearchTime::At(text.parse().expect("a time")));
        assert_eq!(SearchTime::parse("2026-01-31"), at("2026-01-31T00:00:00Z"));
        assert_eq!(
            SearchTime::parse("2026-01-31T12:00:00Z"),
            at("2026-01-31T12:00:00Z")
        );
        let ago = |secs| Some(SearchTime::Ago(Duration::from_secs(secs)));
        assert_eq!(SearchTime::parse("3d"), ago(3 * 86_400));
        assert_eq!(SearchTime::parse("2w"), ago(14 * 86_400));
        assert_eq!(SearchTime::parse("90m"), ago(90 * 60));
        for text in [
            "",
            "yesterday",
            "3",
            "-1h",
            "99999999999999999999d",
            "2026-13-01",
        ] {
            assert_eq!(SearchTime::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_project_is_named_by_its_path_or_its_end() {
        let path = "/home/ann/shop/api";
        for wanted in [
            path,
            "/home/ann/shop",
            "api",
            "shop/api",
            "/home/ann/shop/api/",
        ] {
            assert!(is_project(path, wanted), "{wanted}");
        }
        for wanted in ["", "pi", "shop", "/home/ann/sho", "ann/shop"] {
            assert!(!is_project(path, wanted), "{wanted}");
        }
    }

    #[test]
    fn an_unknown_value_names_the_accepted_ones() {
        let mut filter = SearchFilter::default();
        let error = filter.add("role", "robot").expect_err("unknown");
        assert!(error.to_string().contains("assistant"), "{error}");
        assert!(filter.add("status", "fine").is_err());
        assert!(filter.add("session", "xyz").is_err());
        assert!(filter.add("colour", "red").is_err());
        assert!(filter.is_empty());
        filter.add("status", "failed").expect("known");
        assert!(!filter.statuses.iter().any(|status| status == "ok"));
    }
}
