//! Annotations: the effects of a tool beyond its schema, and how far they are trusted.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Arguments, argument_pointer};

/// The effects of a tool, for policy, retry, scheduling and people.
///
/// A tool that declares nothing is treated as able to do anything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Annotations {
    /// The kind of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    /// Hints as defined by MCP.
    pub hints: ToolHints,
    /// The strongest effect the tool can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect: Option<SideEffect>,
    /// The arguments that name a resource for which two calls can conflict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// The time limit of one attempt, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The cost of one call, in the unit of the operator's budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The label of a progress display for a tool that takes long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_running: Option<String>,
    /// True if the tool can tell later whether a call with a given idempotency key took effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reconcile: bool,
    /// True if the tool can undo its effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undo: bool,
}

impl Annotations {
    /// Creates the annotations of a tool that only reads: it changes nothing and can be repeated.
    pub fn read_only() -> Self {
        Self {
            kind: Some(ToolKind::Read),
            side_effect: Some(SideEffect::ReadOnly),
            hints: ToolHints {
                read_only: Some(true),
                idempotent: Some(true),
                ..ToolHints::default()
            },
            ..Self::default()
        }
    }

    /// Sets the strongest effect of the tool.
    pub fn with_side_effect(mut self, side_effect: SideEffect) -> Self {
        self.side_effect = Some(side_effect);
        self
    }

    /// Sets the kind of work.
    pub fn with_kind(mut self, kind: ToolKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Declares whether a repeat with the same arguments is harmless.
    pub fn with_idempotent(mut self, idempotent: bool) -> Self {
        self.hints.idempotent = Some(idempotent);
        self
    }

    /// Adds an argument that names a resource for which two calls can conflict.
    pub fn with_resource(mut self, resource: Resource) -> Self {
        self.resources.push(resource);
        self
    }

    /// Sets the time limit of one attempt.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Returns the strongest possible effect; the highest if nothing is declared.
    pub fn strongest_effect(&self) -> SideEffect {
        match (self.side_effect, self.hints.read_only) {
            (Some(declared), _) => declared,
            (None, Some(true)) => SideEffect::ReadOnly,
            (None, _) => SideEffect::Network,
        }
    }

    /// Checks whether a call can change anything.
    pub fn may_write(&self) -> bool {
        self.strongest_effect() > SideEffect::ReadOnly
    }

    /// Checks whether running the same call again is harmless.
    pub fn may_repeat(&self) -> bool {
        !self.may_write() || self.hints.idempotent == Some(true)
    }

    /// Returns the time limit of one attempt, if the tool declares one.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// Keeps only the claims that restrict, for a source that is not trusted.
    ///
    /// An MCP server that calls its tool "read only" gains nothing by it; one that calls its tool
    /// "destructive" is restricted more. Only the operator's configuration may loosen a
    /// restriction.
    pub fn restricting_only(self) -> Self {
        let tightens = |kind: &ToolKind| match kind {
            ToolKind::Edit | ToolKind::Delete | ToolKind::Move | ToolKind::Execute => true,
            ToolKind::Read
            | ToolKind::Search
            | ToolKind::Think
            | ToolKind::Fetch
            | ToolKind::Other => false,
        };
        Self {
            kind: self.kind.filter(tightens),
            hints: ToolHints {
                read_only: self.hints.read_only.filter(|yes| !yes),
                destructive: self.hints.destructive.filter(|yes| *yes),
                idempotent: self.hints.idempotent.filter(|yes| !yes),
                open_world: self.hints.open_world.filter(|yes| *yes),
            },
            // `None` counts as the strongest effect.
            side_effect: None,
            resources: self.resources,
            // A long time limit or a low price would loosen the operator's limits.
            timeout_ms: None,
            cost: None,
            long_running: self.long_running,
            // A wrong answer to `reconcile` could run an effect twice.
            reconcile: false,
            undo: false,
        }
    }

    /// Returns the resources that a call with `arguments` uses.
    pub fn conflict_keys(&self, arguments: &Arguments) -> Vec<ConflictKey> {
        let key = |resource: &Resource| {
            if resource.is_workspace() {
                return Some(vec![ConflictKey::new(resource.kind, "")]);
            }
            let value = arguments.as_json().pointer(&resource.argument)?;
            Some(match value {
                Value::String(text) => vec![ConflictKey::new(resource.kind, text)],
                Value::Array(items) => items
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|text| ConflictKey::new(resource.kind, text))
                    .collect(),
                other => vec![ConflictKey::new(resource.kind, &other.to_string())],
            })
        };
        self.resources.iter().filter_map(key).flatten().collect()
    }
}

/// The kind of work of a tool, as defined by the Agent Client Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Reads something.
    Read,
    /// Changes something.
    Edit,
    /// Deletes something.
    Delete,
    /// Moves or renames something.
    Move,
    /// Searches for something.
    Search,
    /// Runs a program.
    Execute,
    /// Only thinks.
    Think,
    /// Fetches something external.
    Fetch,
    /// Anything else.
    Other,
}

/// Hints about a tool as defined by MCP; a missing hint is not assumed.
// Fields are in the order of canonical JSON, so that a receipt is written in one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolHints {
    /// It may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// A repeat with the same arguments does nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// It interacts with external systems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// The strongest effect of a tool, weakest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    /// It has no effect and reads nothing.
    None,
    /// It only reads.
    ReadOnly,
    /// It changes files of the workspace.
    WorkspaceWrite,
    /// It runs programs.
    ProcessExec,
    /// It uses the network.
    Network,
}

impl SideEffect {
    /// Returns the text that people read.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "has no effect",
            Self::ReadOnly => "only reads",
            Self::WorkspaceWrite => "writes in the workspace",
            Self::ProcessExec => "runs a program",
            Self::Network => "reaches other machines",
        }
    }
}

/// An argument that names a resource for which two calls can conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// The JSON pointer to the argument.
    pub argument: String,
    /// The comparison of two such arguments.
    pub kind: ResourceKind,
}

impl Resource {
    /// Declares that the argument `name` is a path: a directory conflicts with what is inside it.
    pub fn path(name: &str) -> Self {
        Self {
            argument: argument_pointer(name),
            kind: ResourceKind::Path,
        }
    }

    /// Declares that the call uses files that no argument names: it conflicts with every path.
    ///
    /// It is represented by the empty pointer, to the arguments as a whole.
    pub fn workspace() -> Self {
        Self {
            argument: String::new(),
            kind: ResourceKind::Path,
        }
    }

    /// Checks whether the call uses files that no argument names.
    pub fn is_workspace(&self) -> bool {
        self.argument.is_empty() && self.kind == ResourceKind::Path
    }

    /// Declares that the argument `name` names one thing; equal names conflict.
    pub fn name(name: &str) -> Self {
        Self {
            argument: argument_pointer(name),
            kind: ResourceKind::Name,
        }
    }
}

/// The comparison of two resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// A file or directory; compared by path, not by spelling.
    Path,
    /// Anything that is compared as text.
    Name,
}

/// A resource that a call uses. Two calls with the same key never run at the same time if one
/// writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConflictKey {
    kind: ResourceKind,
    value: String,
}

impl ConflictKey {
    /// Creates the key of the resource that `text` names.
    pub fn new(kind: ResourceKind, text: &str) -> Self {
        let value = match kind {
            ResourceKind::Path => normalize_path(text),
            ResourceKind::Name => text.to_owned(),
        };
        Self { kind, value }
    }

    /// Checks whether both name the same thing, or one a directory that contains the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let inside = |inner: &str, outer: &str| {
            outer.is_empty()
                || outer == "/"
                || inner
                    .strip_prefix(outer)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let absolute = |key: &Self| key.value.starts_with('/');
        match (self.kind, other.kind) {
            // The base directory of a relative path is unknown here, so assume a conflict.
            (ResourceKind::Path, ResourceKind::Path) if absolute(self) != absolute(other) => true,
            (ResourceKind::Path, ResourceKind::Path) => {
                inside(&self.value, &other.value) || inside(&other.value, &self.value)
            }
            (ResourceKind::Name, ResourceKind::Name) => self.value == other.value,
            (ResourceKind::Path, ResourceKind::Name) | (ResourceKind::Name, ResourceKind::Path) => {
                false
            }
        }
    }
}

/// Resolves `.` and `..` by text alone; the empty path is the root of everything relative.
fn normalize_path(text: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let root = if text.starts_with('/') { "/" } else { "" };
    root.to_owned() + &parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tool_that_declares_nothing_has_the_strongest_effect() {
        assert_eq!(
            Annotations::default().strongest_effect(),
            SideEffect::Network
        );
        assert!(Annotations::default().may_write());
        assert!(!Annotations::default().may_repeat());
        assert!(!Annotations::read_only().may_write());
    }

    #[test]
    fn an_untrusted_source_can_only_tighten() {
        let friendly = Annotations::read_only().restricting_only();
        assert_eq!(friendly.strongest_effect(), SideEffect::Network);
        assert!(!friendly.may_repeat());
        assert_eq!(friendly.kind, None);
        let mut generous = Annotations::default().with_timeout(Duration::MAX);
        generous.cost = Some(-5.0);
        assert_eq!(generous.restricting_only(), Annotations::default());
        let honest = Annotations {
            kind: Some(ToolKind::Delete),
            hints: ToolHints {
                destructive: Some(true),
                ..ToolHints::default()
            },
            ..Annotations::default()
        };
        assert_eq!(honest.clone().restricting_only(), honest);
    }

    #[test]
    fn paths_conflict_when_equal_after_normalization_or_nested() {
        let path = |text| ConflictKey::new(ResourceKind::Path, text);
        for (a, b) in [
            ("a/b", "a/./b"),
            ("a/b", "a/x/../b/"),
            ("a", "a/b/c"),
            (".", "a"),
            ("/x//y", "/x/y"),
            ("/", "/x"),
            ("x", "/x"),
        ] {
            assert!(
                path(a).overlaps(&path(b)) && path(b).overlaps(&path(a)),
                "{a} {b}"
            );
        }
        for (a, b) in [("a/b", "a/bc"), ("a", "b"), ("../a", "a")] {
            assert!(
                !path(a).overlaps(&path(b)) && !path(b).overlaps(&path(a)),
                "{a} {b}"
            );
        }
    }

    #[test]
    fn a_call_that_may_use_any_file_conflicts_with_every_path_and_no_name() {
        let keys = Annotations::default()
            .with_resource(Resource::workspace())
            .conflict_keys(&Arguments::empty());
        let overlaps = |kind, text| {
            keys.iter()
                .any(|key| key.overlaps(&ConflictKey::new(kind, text)))
        };
        for text in ["a", "a/b", "/a", "", "../a"] {
            assert!(overlaps(ResourceKind::Path, text), "{text}");
        }
        assert!(!overlaps(ResourceKind::Name, "a"));
    }

    #[test]
    fn keys_come_from_the_named_arguments_and_lists_of_them() {
        let annotations = Annotations::default()
            .with_resource(Resource::path("paths"))
            .with_resource(Resource::name("id"));
        let arguments =
            Arguments::try_from(json!({ "paths": ["a", "b"], "id": 7 })).expect("object");
        let keys = annotations.conflict_keys(&arguments);
        assert_eq!(keys.len(), 3);
        assert_eq!(keys[2], ConflictKey::new(ResourceKind::Name, "7"));
        assert!(annotations.conflict_keys(&Arguments::empty()).is_empty());
    }
}
