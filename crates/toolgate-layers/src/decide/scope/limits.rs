//! The limits of a scope, as plain data.

use std::{collections::BTreeMap, fmt, sync::Arc};

use globset::GlobSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Annotations, Arguments, SideEffect, ToolKind, parse_argument_pointer, serialized_word,
};

use crate::{BadOption, ScopeOptions, config::lists};

/// The limits of a scope as plain data. It judges calls and can be intersected with another one.
#[derive(Debug, Clone, Default)]
pub struct ScopePolicy(Vec<Arc<ScopeLimits>>);

impl ScopePolicy {
    /// Creates the limits from options.
    pub fn new(options: ScopeOptions) -> Result<Self, BadOption> {
        Ok(Self(vec![Arc::new(ScopeLimits::new(options)?)]))
    }

    /// Returns limits that allow only what both allow.
    pub fn intersect(&self, other: &Self) -> Self {
        // Globs have no general intersection, so both sets are kept and a call has to pass both.
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Checks whether a call is inside the scope.
    pub fn judge(
        &self,
        tool: &str,
        annotations: &Annotations,
        arguments: &Arguments,
    ) -> Result<(), ScopeViolation> {
        self.0
            .iter()
            .try_for_each(|limits| limits.judge(tool, annotations, arguments))
    }

    /// Returns the lists of tools, all of which have to name a tool.
    pub(crate) fn allowed_tools(&self) -> impl Iterator<Item = &Vec<String>> {
        self.0
            .iter()
            .filter_map(|limits| limits.options.allowed_tools.as_ref())
    }

    /// Returns the strongest effect that is allowed.
    pub(crate) fn side_effect_level(&self) -> Option<SideEffect> {
        self.0
            .iter()
            .filter_map(|limits| limits.options.side_effect_level)
            .min()
    }
}

/// The place of a tool's strongest effect.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// In the workspace: it reads or writes there.
    Workspace,
    /// In another program.
    Process,
    /// On the network, or unknown.
    Network,
}

impl Capability {
    fn for_effect(effect: SideEffect) -> Option<Self> {
        match effect {
            SideEffect::None => None,
            SideEffect::ReadOnly | SideEffect::WorkspaceWrite => Some(Self::Workspace),
            SideEffect::ProcessExec => Some(Self::Process),
            SideEffect::Network => Some(Self::Network),
        }
    }
}

/// The reason why a call is outside a scope. It repeats no value of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeViolation {
    /// The tool is not on the list.
    Tool,
    /// Its effect reaches further than allowed.
    SideEffect(SideEffect),
    /// It needs a capability that the stage does not have.
    Capability(Capability),
    /// An argument is missing or matches no pattern.
    Argument(String),
}

impl fmt::Display for ScopeViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool => f.write_str("this tool is not available"),
            Self::SideEffect(most) => write!(
                f,
                "tools with effects beyond {} are not available",
                serialized_word(most)
            ),
            Self::Capability(missing) => write!(
                f,
                "this kind of work is not allowed on the {}",
                serialized_word(missing)
            ),
            Self::Argument(pointer) => {
                write!(f, "the argument {pointer} has a value that is not allowed")
            }
        }
    }
}

#[derive(Debug)]
struct ScopeLimits {
    options: ScopeOptions,
    tools: Option<GlobSet>,
    capabilities: Option<BTreeMap<Capability, AllowedKinds>>,
    arguments: Vec<(GlobSet, Vec<ArgumentLimit>)>,
}

#[derive(Debug)]
enum AllowedKinds {
    Any,
    Listed(Vec<ToolKind>),
}

#[derive(Debug)]
struct ArgumentLimit {
    pointer: String,
    globs: GlobSet,
    /// True if any text matches, also one with `..`.
    any: bool,
}

impl ScopeLimits {
    fn new(options: ScopeOptions) -> Result<Self, BadOption> {
        let tools = options
            .allowed_tools
            .as_ref()
            .map(|list| lists::compile_name_globs("allowed_tools", list))
            .transpose()?;
        let capabilities = options.capabilities.as_ref().map(|map| {
            map.iter()
                .map(|(capability, words)| Ok((*capability, AllowedKinds::new(words)?)))
                .collect()
        });
        let mut arguments = Vec::new();
        for (tool, limits) in &options.arguments {
            let limits = limits
                .iter()
                .map(|(name, globs)| ArgumentLimit::new(name, globs));
            arguments.push((
                lists::compile_name_globs("arguments", &[tool])?,
                limits.collect::<Result<_, _>>()?,
            ));
        }
        Ok(Self {
            tools,
            capabilities: capabilities.transpose()?,
            arguments,
            options,
        })
    }

    fn judge(
        &self,
        tool: &str,
        annotations: &Annotations,
        arguments: &Arguments,
    ) -> Result<(), ScopeViolation> {
        // No special case for an empty list: one that failed to load must not mean "no limit".
        if self
            .tools
            .as_ref()
            .is_some_and(|tools| !tools.is_match(tool))
        {
            return Err(ScopeViolation::Tool);
        }
        let effect = annotations.strongest_effect();
        if let Some(most) = self.options.side_effect_level.filter(|most| effect > *most) {
            return Err(ScopeViolation::SideEffect(most));
        }
        self.judge_capability(Capability::for_effect(effect), annotations.kind)?;
        let limits = self
            .arguments
            .iter()
            .filter(|(tools, _)| tools.is_match(tool))
            .flat_map(|(_, limits)| limits);
        for limit in limits {
            if !arguments
                .as_json()
                .pointer(&limit.pointer)
                .is_some_and(|value| limit.matches_value(value))
            {
                return Err(ScopeViolation::Argument(limit.pointer.clone()));
            }
        }
        Ok(())
    }

    fn judge_capability(
        &self,
        needed: Option<Capability>,
        kind: Option<ToolKind>,
    ) -> Result<(), ScopeViolation> {
        let (Some(allowed), Some(needed)) = (&self.capabilities, needed) else {
            return Ok(());
        };
        let fits = match allowed.get(&needed) {
            None => false,
            Some(AllowedKinds::Any) => true,
            // A tool that does not declare its kind matches no listed kind.
            Some(AllowedKinds::Listed(kinds)) => kind.is_some_and(|kind| kinds.contains(&kind)),
        };
        if fits {
            Ok(())
        } else {
            Err(ScopeViolation::Capability(needed))
        }
    }
}

impl AllowedKinds {
    fn new(words: &[String]) -> Result<Self, BadOption> {
        if words.iter().any(|word| word == "*") {
            return Ok(Self::Any);
        }
        let kind = |word: &String| {
            let problem = |_| {
                BadOption::new(
                    "capabilities",
                    format!("{word:?} is not a kind of work such as read or edit"),
                )
            };
            serde_json::from_value(json!(word)).map_err(problem)
        };
        words
            .iter()
            .map(kind)
            .collect::<Result<_, _>>()
            .map(Self::Listed)
    }
}

impl ArgumentLimit {
    fn new(name: &str, globs: &[String]) -> Result<Self, BadOption> {
        let any = globs.iter().any(|glob| glob == "*" || glob == "**");
        Ok(Self {
            pointer: parse_argument_pointer(name),
            globs: lists::compile_path_globs("arguments", globs)?,
            any,
        })
    }

    fn matches_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => {
                self.any || (self.globs.is_match(text) && !has_parent_part(text))
            }
            Value::Array(items) => {
                // `all` is true for an empty list, which must not pass.
                !items.is_empty()
                    && items
                        .iter()
                        .all(|item| item.is_string() && self.matches_value(item))
            }
            _ => false,
        }
    }
}

/// Checks whether a text, read as a path, goes up: `src/../../x` matches `src/**` as a text but
/// leads elsewhere.
fn has_parent_part(text: &str) -> bool {
    text.split(['/', '\\']).any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy_from(options: Value) -> ScopePolicy {
        ScopePolicy::new(serde_json::from_value(options).expect("options")).expect("valid options")
    }

    #[test]
    fn a_capability_that_is_not_listed_is_not_allowed() {
        let policy = policy_from(
            json!({ "capabilities": { "workspace": ["read", "search"], "process": ["*"] } }),
        );
        let judge =
            |annotations: Annotations| policy.judge("x", &annotations, &Arguments::empty()).is_ok();
        let exec = Annotations::default().with_side_effect(SideEffect::ProcessExec);
        assert!(judge(Annotations::read_only()));
        assert!(judge(exec.clone()) && judge(exec.with_kind(ToolKind::Execute)));
        assert!(judge(
            Annotations::default().with_side_effect(SideEffect::None)
        ));
        assert!(!judge(Annotations::read_only().with_kind(ToolKind::Fetch)));
        assert!(
            !judge(Annotations::default().with_side_effect(SideEffect::ReadOnly)),
            "no kind declared"
        );
        assert!(!judge(Annotations::default()), "nothing declared");
    }

    #[test]
    fn an_argument_has_to_be_present_and_match_one_of_its_patterns() {
        let policy = policy_from(
            json!({ "arguments": { "write_*": { "path": ["src/**", "docs/*.md"], "/meta/tag": ["a*"] } } }),
        );
        let judge = |tool: &str, arguments: Value| {
            let arguments = Arguments::try_from(arguments).expect("object");
            policy
                .judge(tool, &Annotations::default(), &arguments)
                .is_ok()
        };
        let with = |path: Value| json!({ "path": path, "meta": { "tag": "ab" } });
        assert!(judge("write_file", with(json!("src/a/b.rs"))));
        assert!(judge("write_file", with(json!(["src/a", "docs/x.md"]))));
        assert!(judge("read_file", json!({})));
        for path in [
            json!("lib/a"),
            json!("docs/a/b.md"),
            json!("src/../etc"),
            json!(7),
            json!([]),
            json!(["src/a", 1]),
        ] {
            assert!(!judge("write_file", with(path.clone())), "{path}");
        }
        assert!(
            !judge("write_file", json!({ "path": "src/a" })),
            "a missing argument"
        );
    }
}
