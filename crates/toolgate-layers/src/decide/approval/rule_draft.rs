//! The standing rule that is drafted for an approval request: "always allow" on every surface.

use std::collections::BTreeMap;

use serde_json::Value;
use toolgate_core::{
    Annotations, ApprovalRequest, Principal, Resource, SessionId, Timestamp, argument_pointer,
};

use crate::{ArgumentPattern, RuleEffect, RuleScope, StandingRule};

/// A standing rule that is drafted for an approval request, before a person confirms it.
///
/// At first it covers exactly this call in this session: every argument is named with its value,
/// and a rule that allows covers no call with other arguments. The person may choose another scope,
/// and [`switch_coverage`](Self::switch_coverage) leaves the arguments open that do not name what
/// the call works on. The text of the rule is its `Display`.
///
/// ```
/// use serde_json::json;
/// use toolgate_core::{ApprovalRequest, Timestamp};
/// use toolgate_layers::RuleDraft;
/// use toolgate_testkit::call_with;
///
/// let call = call_with("run_shell", json!({ "command": "cargo test" }));
/// let request = ApprovalRequest::for_call(&call);
/// let draft = RuleDraft::for_request(&request, call.turn().session, "ann", Timestamp::EPOCH)?;
/// assert_eq!(draft.rule().to_string(), r#"allow run_shell where command is "cargo test""#);
/// # Ok::<(), toolgate_layers::UndraftableRule>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RuleDraft {
    rule: StandingRule,
    session: SessionId,
    /// The patterns of the other coverage; `None` if there is no choice.
    alternative: Option<BTreeMap<String, ArgumentPattern>>,
}

/// The calls that a drafted rule covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleCoverage {
    /// Calls with the same arguments.
    SameCall,
    /// Calls with the same target, such as a path; the other arguments have any value.
    SameTarget,
}

/// The reason why no rule can be drafted for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UndraftableRule {
    /// A rule would store what was redacted, or would name the redaction mark.
    #[error("the arguments are redacted or too large to show, and a rule would have to store them")]
    Redacted,
    /// One person's rule must not stand for the approvals of several.
    #[error("the call needs more than one approval, and a rule is the decision of one person")]
    Quorum,
    /// A rule would not answer the next such request either.
    #[error("a call like this is asked about each time, so a rule would not count")]
    EachTime,
    /// The request was stored without the name of the tool, or no tool can have the name.
    #[error("the approval request does not name a tool")]
    NoTool,
}

impl RuleDraft {
    /// Drafts the rule for a request as it is shown, made in `session`.
    ///
    /// # Errors
    ///
    /// Returns an error as [`check_request`](Self::check_request) does.
    pub fn for_request(
        request: &ApprovalRequest,
        session: SessionId,
        owner: impl Into<Principal>,
        now: Timestamp,
    ) -> Result<Self, UndraftableRule> {
        Self::check_request(request)?;
        let equals = |(name, value): (&String, &Value)| {
            let pattern = ArgumentPattern::Equals(value.clone());
            (argument_pointer(name), pattern)
        };
        let rule = StandingRule {
            // The same id for a call and generation: confirming twice stores one rule.
            id: format!(
                "always-{}-{}",
                request.approval_id.call_id(),
                request.generation
            ),
            effect: RuleEffect::Allow,
            tool: request.tool.to_string(),
            arguments: request.arguments.as_map().iter().map(equals).collect(),
            scope: RuleScope::Session { session },
            owner: owner.into(),
            created_at: now,
            expires_at: None,
            reason: Some("always, chosen for an approval request".to_owned()),
        };
        Ok(Self {
            rule,
            session,
            alternative: None,
        })
    }

    /// Checks whether a rule can be drafted for a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the arguments are not shown exactly as they will run, if the request needs
    /// several approvals, if calls like it are asked about each time, or if it names no tool.
    pub fn check_request(request: &ApprovalRequest) -> Result<(), UndraftableRule> {
        if request.withheld || request.arguments.digest() != request.arguments_digest {
            return Err(UndraftableRule::Redacted);
        }
        if request.quorum.is_some() {
            return Err(UndraftableRule::Quorum);
        }
        if request.each_time {
            return Err(UndraftableRule::EachTime);
        }
        // A rule names tools by a glob: another name could match more than itself.
        if request.tool.check_characters().is_err() {
            return Err(UndraftableRule::NoTool);
        }
        Ok(())
    }

    /// Offers the coverage [`SameTarget`](RuleCoverage::SameTarget) if the annotations of the tool
    /// say which of the arguments name the target.
    pub fn with_targets(mut self, annotations: &Annotations) -> Self {
        let is_target = |pointer: &String| {
            let names = |resource: &Resource| resource.argument == *pointer;
            annotations.resources.iter().any(names)
        };
        let mut patterns = self.rule.arguments.clone();
        let targets = patterns.keys().filter(|pointer| is_target(pointer)).count();
        // Without a target the rule would allow the tool whatever its arguments.
        if targets > 0 && targets < patterns.len() {
            for (pointer, pattern) in &mut patterns {
                if !is_target(pointer) {
                    *pattern = ArgumentPattern::Any;
                }
            }
            self.alternative = Some(patterns);
        }
        self
    }

    /// Returns the rule as it would be stored.
    pub fn rule(&self) -> &StandingRule {
        &self.rule
    }

    /// Returns what the rule covers.
    pub fn coverage(&self) -> RuleCoverage {
        if self
            .rule
            .arguments
            .values()
            .any(|pattern| *pattern == ArgumentPattern::Any)
        {
            RuleCoverage::SameTarget
        } else {
            RuleCoverage::SameCall
        }
    }

    /// Returns the session of the call.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Checks whether another coverage can be chosen.
    pub fn has_coverage_choice(&self) -> bool {
        self.alternative.is_some()
    }

    /// Switches to the other coverage, if there is one.
    pub fn switch_coverage(&mut self) {
        if let Some(patterns) = &mut self.alternative {
            std::mem::swap(patterns, &mut self.rule.arguments);
        }
    }

    /// Sets the scope of the rule.
    pub fn set_scope(&mut self, scope: RuleScope) {
        self.rule.scope = scope;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::path::Path;
    use toolgate_core::Call;
    use toolgate_testkit::call_with;

    use crate::decide::{
        approval::rule_match::{CompiledRule, RuleMatch, RuleSubject},
        policy::matching::paths::PathRoot,
    };

    fn draft_rule(call: &Call) -> RuleDraft {
        let request = ApprovalRequest::for_call(call);
        RuleDraft::for_request(&request, call.turn().session, "ann", Timestamp::EPOCH)
            .expect("drafts")
    }

    #[test]
    fn no_rule_is_drafted_for_a_request_that_needs_several_approvals() {
        let mut request = ApprovalRequest::for_call(&call_with("pay", json!({ "n": 1 })));
        request.quorum = Some(toolgate_core::Quorum {
            needed: 2,
            among: Vec::new(),
        });
        assert_eq!(
            RuleDraft::check_request(&request),
            Err(UndraftableRule::Quorum)
        );
    }

    #[test]
    fn no_rule_is_drafted_for_a_request_that_is_made_each_time() {
        let call = call_with("write_file", json!({ "path": ".envrc" }));
        let call = call.require_approval_each_time("it acts later", None);
        let request = ApprovalRequest::for_call(&call).naming_requirements(&call);
        assert_eq!(
            RuleDraft::check_request(&request),
            Err(UndraftableRule::EachTime)
        );
    }

    /// Checks whether the rule allows the call.
    fn is_allowed(rule: &StandingRule, call: &Call) -> bool {
        let root = PathRoot::new(Path::new("/nowhere"));
        let subject = RuleSubject::new(call, call.turn().session, Some("p"), &root);
        let ready = CompiledRule::new(rule.clone(), &root).expect("accepted");
        ready.match_call(&subject, Timestamp::EPOCH) == RuleMatch::Yes
    }

    fn names() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-c]{0,2}",
            "[~/01 ]{0,3}",
            "[日本ß\\PC]{0,2}",
            "[*?\\[\\]{}\\\\]{1,2}"
        ]
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            ".{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(names(), inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn argument_objects() -> impl Strategy<Value = Value> {
        prop::collection::btree_map(names(), values(), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    /// Lists the values that differ from `value` in one place: changed, removed or added.
    fn changed_once(value: &Value, name: &str) -> Vec<Value> {
        let mut all = Vec::new();
        match value {
            Value::Object(map) => {
                for (key, inner) in map {
                    let mut without = map.clone();
                    without.remove(key);
                    all.push(Value::Object(without));
                    for other in changed_once(inner, name) {
                        let mut changed = map.clone();
                        changed.insert(key.clone(), other);
                        all.push(Value::Object(changed));
                    }
                }
                if !map.contains_key(name) {
                    for added in [Value::Null, json!({}), json!([]), json!(1)] {
                        let mut more = map.clone();
                        more.insert(name.to_owned(), added);
                        all.push(Value::Object(more));
                    }
                }
            }
            Value::Array(items) => {
                for number in 0..items.len() {
                    let mut without = items.clone();
                    without.remove(number);
                    all.push(Value::Array(without));
                    for other in changed_once(&items[number], name) {
                        let mut changed = items.clone();
                        changed[number] = other;
                        all.push(Value::Array(changed));
                    }
                }
                all.push(Value::Array([&items[..], &[Value::Null]].concat()));
            }
            Value::Null => all.extend([json!(false), json!({})]),
            Value::Bool(yes) => all.extend([json!(!yes), Value::Null]),
            Value::Number(number) => all.extend([json!(number.to_string()), Value::Null]),
            Value::String(text) => all.extend([json!(format!("{text}x")), json!([text])]),
        }
        all
    }

    proptest! {
        #[test]
        fn a_drafted_rule_allows_the_call_and_none_that_differs_in_one_place(
            arguments in argument_objects(), name in names(), project in any::<bool>(),
        ) {
            let call = call_with("tool", arguments.clone());
            let mut draft = draft_rule(&call);
            if project {
                draft.set_scope(RuleScope::Project { project: "p".to_owned() });
            }
            prop_assert!(is_allowed(draft.rule(), &call));
            for other in changed_once(&arguments, &name) {
                let other = call_with("tool", other);
                prop_assert!(!is_allowed(draft.rule(), &other), "{:?}", other.arguments);
            }
            prop_assert!(!is_allowed(draft.rule(), &call_with("other", arguments)));
        }
    }

    #[test]
    fn the_target_stays_named_and_the_other_arguments_only_open_on_request() {
        let annotations = Annotations::default()
            .with_resource(Resource::path("path"))
            .with_resource(Resource::workspace());
        let write = |path: &str, content: &str| {
            call_with("write", json!({ "path": path, "content": content }))
        };
        let mut draft = draft_rule(&write("a", "x")).with_targets(&annotations);
        assert_eq!(draft.coverage(), RuleCoverage::SameCall);
        assert!(!is_allowed(draft.rule(), &write("a", "y")));
        draft.switch_coverage();
        assert_eq!(draft.coverage(), RuleCoverage::SameTarget);
        assert!(is_allowed(draft.rule(), &write("a", "y")));
        assert!(!is_allowed(draft.rule(), &write("b", "x")));
        let more = call_with("write", json!({ "path": "a", "content": "x", "mode": 7 }));
        assert!(!is_allowed(draft.rule(), &more));
        draft.switch_coverage();
        assert_eq!(
            draft,
            draft_rule(&write("a", "x")).with_targets(&annotations)
        );

        for arguments in [
            json!({ "command": "ls" }),
            json!({ "path": "a" }),
            json!({}),
        ] {
            let draft = draft_rule(&call_with("write", arguments)).with_targets(&annotations);
            assert!(!draft.has_coverage_choice(), "there is nothing to choose");
        }
    }

    #[test]
    fn no_rule_is_drafted_from_arguments_that_are_not_those_that_run() {
        let call = call_with("pay", json!({ "key": "secret" }));
        let drafted = |request: &ApprovalRequest| {
            RuleDraft::for_request(request, call.turn().session, "ann", Timestamp::EPOCH).err()
        };
        let request = ApprovalRequest::for_call(&call);
        let mut redacted = request.clone();
        redacted.arguments = call_with("pay", json!({ "key": "***" })).arguments.clone();
        assert_eq!(drafted(&redacted), Some(UndraftableRule::Redacted));
        let mut withheld = request.clone();
        withheld.withheld = true;
        assert_eq!(drafted(&withheld), Some(UndraftableRule::Redacted));
        for name in ["", "a*", "{a,b}", "[ab]", "a b"] {
            let mut unnamed = request.clone();
            unnamed.tool = name.into();
            assert_eq!(drafted(&unnamed), Some(UndraftableRule::NoTool), "{name}");
        }
        assert_eq!(drafted(&request), None);
    }
}
