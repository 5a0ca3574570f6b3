//! What is known about a tool beyond its schema, and how far that knowledge is trusted.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Arguments;

/// What a tool does, for policy, retry, scheduling and people.
///
/// A tool that declares nothing counts as able to do anything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Annotations {
    /// What kind of work it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Hints in the words of MCP.
    pub hints: Hints,
    /// The strongest effect the tool can have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect: Option<SideEffect>,
    /// Which arguments name something that two calls could fight over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// How long one attempt may take, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What one call costs, in the unit the operator budgets in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The label of a progress display for a tool that takes long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_running: Option<String>,
    /// Whether the tool can tell later if a call with a given idempotency key took effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reconcile: bool,
    /// Whether the tool can take its effect back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undo: bool,
}

impl Annotations {
    /// For a tool that only looks: nothing is changed and a repeat does no harm.
    pub fn read_only() -> Self {
        Self {
            kind: Some(Kind::Read),
            side_effect: Some(SideEffect::ReadOnly),
            hints: Hints {
                read_only: Some(true),
                idempotent: Some(true),
                ..Hints::default()
            },
            ..Self::default()
        }
    }

    /// Says how far the effects of the tool reach.
    pub fn with_side_effect(mut self, side_effect: SideEffect) -> Self {
        self.side_effect = Some(side_effect);
        self
    }

    /// Says what kind of work the tool does.
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Says that a repeat with the same arguments does no harm.
    pub fn with_idempotent(mut self, idempotent: bool) -> Self {
        self.hints.idempotent = Some(idempotent);
        self
    }

    /// Names an argument that two calls could fight over.
    pub fn with_resource(mut self, resource: Resource) -> Self {
        self.resources.push(resource);
        self
    }

    /// Says how long one attempt may take.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// The strongest effect to reckon with; the highest if nothing is declared.
    pub fn effect(&self) -> SideEffect {
        match (self.side_effect, self.hints.read_only) {
            (Some(declared), _) => declared,
            (None, Some(true)) => SideEffect::ReadOnly,
            (None, _) => SideEffect::Network,
        }
    }

    /// Whether a call can change anything.
    pub fn may_write(&self) -> bool {
        self.effect() > SideEffect::ReadOnly
    }

    /// Whether running the same call once more does no harm.
    pub fn may_repeat(&self) -> bool {
        !self.may_write() || self.hints.idempotent == Some(true)
    }

    /// How long one attempt may take, if the tool says so.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// Keeps only the claims that restrict, for a source whose word is not taken for granted.
    ///
    /// An MCP server that calls its tool "read only" gets no easier treatment for it; one that calls its
    /// tool "destructive" does get the harder one. Only the operator's configuration may lower a restriction.
    pub fn restricting_only(self) -> Self {
        let tightens = |kind: &Kind| match kind {
            Kind::Edit | Kind::Delete | Kind::Move | Kind::Execute => true,
            Kind::Read | Kind::Search | Kind::Think | Kind::Fetch | Kind::Other => false,
        };
        Self {
            kind: self.kind.filter(tightens),
            hints: Hints {
                read_only: self.hints.read_only.filter(|yes| !yes),
                destructive: self.hints.destructive.filter(|yes| *yes),
                idempotent: self.hints.idempotent.filter(|yes| !yes),
                open_world: self.hints.open_world.filter(|yes| *yes),
            },
            side_effect: None,
            resources: self.resources,
            // A long time limit or a low price would loosen what the operator set.
            timeout_ms: None,
            cost: None,
            long_running: self.long_running,
            reconcile: false,
            undo: false,
        }
    }

    /// The resources that a call with `arguments` touches.
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

/// What kind of work a tool does; the words of the Agent Client Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Looks at something.
    Read,
    /// Changes something.
    Edit,
    /// Removes something.
    Delete,
    /// Moves or renames something.
    Move,
    /// Looks for something.
    Search,
    /// Runs a program.
    Execute,
    /// Only thinks.
    Think,
    /// Gets something from outside.
    Fetch,
    /// Anything else.
    Other,
}

/// Hints about a tool in the words of MCP; a hint that is not given is not assumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hints {
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// It may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// A repeat with the same arguments does nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// It talks to the world outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

/// How far the effects of a tool reach, weakest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    /// It touches nothing.
    None,
    /// It looks at things.
    ReadOnly,
    /// It changes files of the workspace.
    WorkspaceWrite,
    /// It runs programs.
    ProcessExec,
    /// It talks to the network.
    Network,
}

/// An argument that names something two calls could fight over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Which argument, as a JSON pointer into the arguments.
    pub argument: String,
    /// How to compare two of them.
    pub kind: ResourceKind,
}

impl Resource {
    /// The argument called `name` is a path: a directory conflicts with what is inside it.
    pub fn path(name: &str) -> Self {
        Self {
            argument: pointer(name),
            kind: ResourceKind::Path,
        }
    }

    /// The call touches files that no argument names: it conflicts with every path.
    ///
    /// The pointer to the arguments as a whole stands for it.
    pub fn workspace() -> Self {
        Self {
            argument: String::new(),
            kind: ResourceKind::Path,
        }
    }

    /// Whether the call touches files that no argument names.
    pub fn is_workspace(&self) -> bool {
        self.argument.is_empty() && self.kind == ResourceKind::Path
    }

    /// The argument called `name` names one thing; equal names conflict.
    pub fn name(name: &str) -> Self {
        Self {
            argument: pointer(name),
            kind: ResourceKind::Name,
        }
    }
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// How two resources are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// A file or directory; compared by path, not by spelling.
    Path,
    /// Anything that is compared as text.
    Name,
}

/// One resource a call touches. Two calls of which one writes never overlap on the same key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConflictKey {
    kind: ResourceKind,
    value: String,
}

impl ConflictKey {
    /// The key of the resource that `text` names.
    pub fn new(kind: ResourceKind, text: &str) -> Self {
        let value = match kind {
            ResourceKind::Path => normal_path(text),
            ResourceKind::Name => text.to_owned(),
        };
        Self { kind, value }
    }

    /// Whether the two name the same thing, or one a directory around the other.
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
            // Nobody here knows which directory a relative path starts from.
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
fn normal_path(text: &str) -> String {
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
    fn a_tool_that_declares_nothing_counts_as_the_highest() {
        assert_eq!(Annotations::default().effect(), SideEffect::Network);
        assert!(Annotations::default().may_write());
        assert!(!Annotations::default().may_repeat());
        assert!(!Annotations::read_only().may_write());
    }

    #[test]
    fn an_untrusted_source_can_only_tighten() {
        let friendly = Annotations::read_only().restricting_only();
        assert_eq!(friendly.effect(), SideEffect::Network);
        assert!(!friendly.may_repeat());
        assert_eq!(friendly.kind, None);
        let mut generous = Annotations::default().with_timeout(Duration::MAX);
        generous.cost = Some(-5.0);
        assert_eq!(generous.restricting_only(), Annotations::default());
        let honest = Annotations {
            kind: Some(Kind::Delete),
            hints: Hints {
                destructive: Some(true),
                ..Hints::default()
            },
            ..Annotations::default()
        };
        assert_eq!(honest.clone().restricting_only(), honest);
    }

    #[test]
    fn paths_conflict_by_meaning_and_with_what_is_inside() {
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
    fn a_call_that_may_touch_any_file_conflicts_with_every_path_and_no_name() {
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
