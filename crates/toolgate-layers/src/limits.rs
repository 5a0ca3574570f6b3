//! What a scope allows, as plain data.

use std::{collections::BTreeMap, fmt, sync::Arc};

use globset::GlobSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{Annotations, Arguments, Kind, SideEffect};

use crate::{BadOption, ScopeOptions, lists};

/// The limits of a scope as plain data: judges calls, and can be intersected with another one.
#[derive(Debug, Clone, Default)]
pub struct ScopePolicy(Vec<Arc<Limits>>);

impl ScopePolicy {
    /// Reads the limits.
    pub fn new(options: ScopeOptions) -> Result<Self, BadOption> {
        Ok(Self(vec![Arc::new(Limits::new(options)?)]))
    }

    /// Allows what both allow and nothing else.
    pub fn intersect(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Says whether a call lies inside, and if not, why.
    pub fn judge(
        &self,
        tool: &str,
        annotations: &Annotations,
        arguments: &Arguments,
    ) -> Result<(), Violation> {
        self.0
            .iter()
            .try_for_each(|limits| limits.judge(tool, annotations, arguments))
    }

    /// The lists of tools, all of which have to name a tool.
    pub(crate) fn allowed_tools(&self) -> impl Iterator<Item = &Vec<String>> {
        self.0
            .iter()
            .filter_map(|limits| limits.options.allowed_tools.as_ref())
    }

    /// The strongest effect that is allowed.
    pub(crate) fn side_effect_level(&self) -> Option<SideEffect> {
        self.0
            .iter()
            .filter_map(|limits| limits.options.side_effect_level)
            .min()
    }
}

/// Where the strongest effect of a tool lies.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// In the workspace: it reads or writes there.
    Workspace,
    /// In another program.
    Process,
    /// On the network, or nobody knows where.
    Network,
}

impl Capability {
    fn of(effect: SideEffect) -> Option<Self> {
        match effect {
            SideEffect::None => None,
            SideEffect::ReadOnly | SideEffect::WorkspaceWrite => Some(Self::Workspace),
            SideEffect::ProcessExec => Some(Self::Process),
            SideEffect::Network => Some(Self::Network),
        }
    }
}

/// Why a call lies outside a scope. It repeats no value of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The tool is not on the list.
    Tool,
    /// Its effect reaches further than allowed.
    SideEffect(SideEffect),
    /// It needs a capability that the stage does not have.
    Capability(Capability),
    /// An argument is missing or fits no pattern.
    Argument(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool => f.write_str("this tool is not available"),
            Self::SideEffect(most) => write!(
                f,
                "tools with effects beyond {} are not available",
                word(most)
            ),
            Self::Capability(missing) => write!(
                f,
                "this kind of work is not allowed on the {}",
                word(missing)
            ),
            Self::Argument(pointer) => {
                write!(f, "the argument {pointer} has a value that is not allowed")
            }
        }
    }
}

/// The word of an option, without quotes.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|word| word.as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[derive(Debug)]
struct Limits {
    options: ScopeOptions,
    tools: Option<GlobSet>,
    capabilities: Option<BTreeMap<Capability, Operations>>,
    arguments: Vec<(GlobSet, Vec<ArgumentLimit>)>,
}

#[derive(Debug)]
enum Operations {
    Any,
    These(Vec<Kind>),
}

#[derive(Debug)]
struct ArgumentLimit {
    pointer: String,
    globs: GlobSet,
    /// Whether any text fits, also one with `..` in it.
    any: bool,
}

impl Limits {
    fn new(options: ScopeOptions) -> Result<Self, BadOption> {
        let tools = options
            .allowed_tools
            .as_ref()
            .map(|list| lists::names("allowed_tools", list))
            .transpose()?;
        let capabilities = options.capabilities.as_ref().map(|map| {
            map.iter()
                .map(|(capability, words)| Ok((*capability, Operations::new(words)?)))
                .collect()
        });
        let mut arguments = Vec::new();
        for (tool, limits) in &options.arguments {
            let limits = limits
                .iter()
                .map(|(name, globs)| ArgumentLimit::new(name, globs));
            arguments.push((
                lists::names("arguments", &[tool])?,
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
    ) -> Result<(), Violation> {
        // No special case for an empty list: one that failed to load must not mean "no limit".
        if self
            .tools
            .as_ref()
            .is_some_and(|tools| !tools.is_match(tool))
        {
            return Err(Violation::Tool);
        }
        let effect = annotations.effect();
        if let Some(most) = self.options.side_effect_level.filter(|most| effect > *most) {
            return Err(Violation::SideEffect(most));
        }
        self.judge_capability(Capability::of(effect), annotations.kind)?;
        let limits = self
            .arguments
            .iter()
            .filter(|(tools, _)| tools.is_match(tool))
            .flat_map(|(_, limits)| limits);
        for limit in limits {
            if !arguments
                .as_json()
                .pointer(&limit.pointer)
                .is_some_and(|value| limit.fits(value))
            {
                return Err(Violation::Argument(limit.pointer.clone()));
            }
        }
        Ok(())
    }

    fn judge_capability(
        &self,
        needed: Option<Capability>,
        kind: Option<Kind>,
    ) -> Result<(), Violation> {
        let (Some(allowed), Some(needed)) = (&self.capabilities, needed) else {
            return Ok(());
        };
        let fits = match allowed.get(&needed) {
            None => false,
            Some(Operations::Any) => true,
            Some(Operations::These(kinds)) => kind.is_some_and(|kind| kinds.contains(&kind)),
        };
        if fits {
            Ok(())
        } else {
            Err(Violation::Capability(needed))
        }
    }
}

impl Operations {
    fn new(words: &[String]) -> Result<Self, BadOption> {
        if words.iter().any(|word| word == "*") {
            return Ok(Self::Any);
        }
        let kind = |word: &String| {
            let problem = |_| {
                BadOption::new(
                    "capabilities",
                    format!("{word:?} is no kind of work such as read or edit"),
                )
            };
            serde_json::from_value(json!(word)).map_err(problem)
        };
        words
            .iter()
            .map(kind)
            .collect::<Result<_, _>>()
            .map(Self::These)
    }
}

impl ArgumentLimit {
    fn new(name: &str, globs: &[String]) -> Result<Self, BadOption> {
        let any = globs.iter().any(|glob| glob == "*" || glob == "**");
        Ok(Self {
            pointer: lists::pointer(name),
            globs: lists::paths("arguments", globs)?,
            any,
        })
    }

    fn fits(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.any || (self.globs.is_match(text) && !climbs(text)),
            Value::Array(items) => {
                !items.is_empty() && items.iter().all(|item| item.is_string() && self.fits(item))
            }
            _ => false,
        }
    }
}

/// Whether a text, read as a path, goes up: `src/../../x` fits `src/**` as a text but leads elsewhere.
fn climbs(text: &str) -> bool {
    text.split(['/', '\\']).any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(options: Value) -> ScopePolicy {
        ScopePolicy::new(serde_json::from_value(options).expect("reads")).expect("fine")
    }

    #[test]
    fn a_capability_that_is_not_listed_is_not_allowed() {
        let policy = policy(
            json!({ "capabilities": { "workspace": ["read", "search"], "process": ["*"] } }),
        );
        let judge =
            |annotations: Annotations| policy.judge("x", &annotations, &Arguments::empty()).is_ok();
        let exec = Annotations::default().with_side_effect(SideEffect::ProcessExec);
        assert!(judge(Annotations::read_only()));
        assert!(judge(exec.clone()) && judge(exec.with_kind(Kind::Execute)));
        assert!(judge(
            Annotations::default().with_side_effect(SideEffect::None)
        ));
        assert!(!judge(Annotations::read_only().with_kind(Kind::Fetch)));
        assert!(
            !judge(Annotations::default().with_side_effect(SideEffect::ReadOnly)),
            "no kind declared"
        );
        assert!(!judge(Annotations::default()), "nothing declared");
    }

    #[test]
    fn an_argument_has_to_be_there_and_fit_one_of_its_patterns() {
        let policy = policy(
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
