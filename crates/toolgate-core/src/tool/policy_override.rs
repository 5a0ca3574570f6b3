//! Limits that a handoff sets for its target. They can only tighten.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{SideEffect, ToolName};

/// Limits for a piece of work. A limit that is not set does not restrict.
///
/// An unknown limit is rejected, because it could not be enforced.
///
/// ```
/// use toolgate_core::{PolicyOverride, SideEffect};
///
/// let ambient = PolicyOverride { side_effect_level: Some(SideEffect::ReadOnly), ..PolicyOverride::default() };
/// let asked = PolicyOverride { side_effect_level: Some(SideEffect::Network), max_calls: Some(3), ..Default::default() };
/// let holds = asked.tighten(&ambient);
/// assert_eq!((holds.side_effect_level, holds.max_calls), (Some(SideEffect::ReadOnly), Some(3)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyOverride {
    /// The only tools that may be called; an empty list allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<BTreeSet<String>>,
    /// The strongest effect that a tool may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect_level: Option<SideEffect>,
    /// Maximum number of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
}

impl PolicyOverride {
    /// Combines two sets of limits: the result is never looser than either.
    pub fn tighten(&self, ambient: &Self) -> Self {
        let both =
            |a: &BTreeSet<String>, b: &BTreeSet<String>| a.intersection(b).cloned().collect();
        Self {
            allowed_tools: tighter_limit(&self.allowed_tools, &ambient.allowed_tools, both),
            side_effect_level: tighter_limit(
                &self.side_effect_level,
                &ambient.side_effect_level,
                |a, b| *a.min(b),
            ),
            max_calls: tighter_limit(&self.max_calls, &ambient.max_calls, |a, b| *a.min(b)),
        }
    }

    /// Checks whether a tool with this effect may be called after `made` calls.
    pub fn allows(&self, tool: &ToolName, effect: SideEffect, made: u64) -> bool {
        self.allowed_tools
            .as_ref()
            .is_none_or(|tools| tools.contains(tool.as_str()))
            && self.side_effect_level.is_none_or(|level| effect <= level)
            && self.max_calls.is_none_or(|most| made < most)
    }
}

/// Returns the tighter of two limits. No limit is the loosest one.
fn tighter_limit<T: Clone>(
    a: &Option<T>,
    b: &Option<T>,
    both: impl FnOnce(&T, &T) -> T,
) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (Some(one), None) | (None, Some(one)) => Some(one.clone()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_set, option, prelude::*};

    const EFFECTS: [SideEffect; 5] = [
        SideEffect::None,
        SideEffect::ReadOnly,
        SideEffect::WorkspaceWrite,
        SideEffect::ProcessExec,
        SideEffect::Network,
    ];

    fn any_limits() -> impl Strategy<Value = PolicyOverride> {
        let tools = option::of(btree_set("[abc]", 0..3));
        let effect = option::of((0..EFFECTS.len()).prop_map(|at| EFFECTS[at]));
        (tools, effect, option::of(0_u64..4)).prop_map(
            |(allowed_tools, side_effect_level, max_calls)| PolicyOverride {
                allowed_tools,
                side_effect_level,
                max_calls,
            },
        )
    }

    proptest! {
        #[test]
        fn tightening_allows_exactly_what_both_allow(asked in any_limits(), ambient in any_limits()) {
            let holds = asked.tighten(&ambient);
            for tool in ["a", "b", "c", "d"].map(ToolName::from) {
                for effect in EFFECTS {
                    for made in 0..5 {
                        let both = asked.allows(&tool, effect, made) && ambient.allows(&tool, effect, made);
                        prop_assert_eq!(holds.allows(&tool, effect, made), both);
                    }
                }
            }
            prop_assert_eq!(&ambient.tighten(&asked), &holds);
        }
    }

    #[test]
    fn an_empty_list_allows_nothing_and_no_list_everything() {
        let none = PolicyOverride {
            allowed_tools: Some(BTreeSet::new()),
            ..PolicyOverride::default()
        };
        assert!(!none.allows(&"a".into(), SideEffect::None, 0));
        assert!(PolicyOverride::default().allows(&"a".into(), SideEffect::Network, u64::MAX));
        assert_eq!(PolicyOverride::default().tighten(&none), none);
    }

    #[test]
    fn an_unknown_limit_is_rejected() {
        assert!(serde_json::from_str::<PolicyOverride>(r#"{"max_cals":1}"#).is_err());
        assert!(
            serde_json::from_str::<PolicyOverride>(r#"{"side_effect_level":"anything"}"#).is_err()
        );
    }
}
