//! A standing rule that is proposed for a call: as narrow as the call, or as its target.

use std::collections::BTreeMap;

use toolgate::{
    Annotations,
    approval::ApprovalRequest,
    layers::{ArgumentPattern, RuleEffect, RuleScope, StandingRule},
    value::{Principal, SessionId, Timestamp},
};

/// A rule that the user is drafting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromptRuleDraft {
    /// The request that it is drafted for.
    pub(crate) request: ApprovalRequest,
    /// The scope of the rule.
    pub(crate) place: RuleTarget,
    /// The calls that it covers.
    pub(crate) reach: RuleCoverage,
    /// JSON pointers of the arguments that name the target; empty if the tool does not annotate
    /// any.
    touches: Vec<String>,
}

/// The scope of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleTarget {
    /// This session.
    Session,
    /// This project.
    Project,
    /// All sessions.
    Everywhere,
}

/// The calls that a rule covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleCoverage {
    /// Calls with the same arguments.
    SameCall,
    /// Calls with the same target: path, command, address.
    SameTarget,
}

impl PromptRuleDraft {
    /// Drafts the narrowest useful rule: for this session, and for the same target if the tool
    /// names one.
    pub(crate) fn new(request: ApprovalRequest, annotations: &Annotations) -> Self {
        let there = |pointer: &String| request.arguments.as_json().pointer(pointer).is_some();
        let touches: Vec<String> = annotations
            .resources
            .iter()
            .map(|resource| resource.argument.clone())
            // An optional argument that this call does not have cannot be matched.
            .filter(there)
            .collect();
        let reach = if touches.is_empty() {
            RuleCoverage::SameCall
        } else {
            RuleCoverage::SameTarget
        };
        Self {
            request,
            place: RuleTarget::Session,
            reach,
            touches,
        }
    }

    /// Checks whether there is a choice of what it covers.
    pub(crate) fn has_coverage_choice(&self) -> bool {
        let all = self.request.arguments.as_map().len();
        !self.touches.is_empty() && self.touches.len() < all
    }

    /// Switches between the same call and the same target.
    pub(crate) fn switch_coverage(&mut self) {
        self.reach = match self.reach {
            RuleCoverage::SameCall if self.has_coverage_choice() => RuleCoverage::SameTarget,
            RuleCoverage::SameCall | RuleCoverage::SameTarget => RuleCoverage::SameCall,
        };
    }

    /// Builds the rule.
    pub(crate) fn build_rule(
        &self,
        session: SessionId,
        project: &str,
        owner: &Principal,
        now: Timestamp,
    ) -> StandingRule {
        StandingRule {
            // The same id for a call and generation: confirming twice stores one rule.
            id: format!(
                "always-{}-{}",
                self.request.approval_id.call_id(),
                self.request.generation
            ),
            effect: RuleEffect::Allow,
            tool: self.request.tool.to_string(),
            arguments: self.argument_patterns(),
            scope: match self.place {
                RuleTarget::Session => RuleScope::Session { session },
                RuleTarget::Project => RuleScope::Project {
                    project: project.to_owned(),
                },
                RuleTarget::Everywhere => RuleScope::Global,
            },
            owner: owner.clone(),
            created_at: now,
            expires_at: None,
            reason: Some("always, chosen at the approval prompt".to_owned()),
        }
    }

    fn argument_patterns(&self) -> BTreeMap<String, ArgumentPattern> {
        let arguments = self.request.arguments.as_json();
        let whole = || {
            self.request
                .arguments
                .as_map()
                .keys()
                .map(|name| format!("/{}", escape_pointer(name)))
                .collect()
        };
        let pointers: Vec<String> = match self.reach {
            RuleCoverage::SameTarget => self.touches.clone(),
            RuleCoverage::SameCall => whole(),
        };
        let equals = |pointer: String| {
            let value = arguments.pointer(&pointer)?.clone();
            Some((pointer, ArgumentPattern::Equals(value)))
        };
        pointers.into_iter().filter_map(equals).collect()
    }
}

/// Escapes a name for a JSON pointer.
fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl RuleTarget {
    /// Returns the text for the scope.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Session => "in this session",
            Self::Project => "in this project",
            Self::Everywhere => "everywhere",
        }
    }
}
