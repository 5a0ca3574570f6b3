//! A standing rule that is proposed for a call: as narrow as the call, or as what it touches.

use std::collections::BTreeMap;

use toolgate::{
    Annotations, ApprovalRequest, Principal, SessionId, Timestamp,
    layers::{AllowRule, ArgumentPattern, RuleEffect, RuleScope},
};

/// A rule that somebody is about to make.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    /// The call that it is made for.
    pub(crate) request: ApprovalRequest,
    /// Where it will hold.
    pub(crate) place: Place,
    /// What it will cover.
    pub(crate) reach: Reach,
    /// The arguments that say what the call touches; empty if the tool does not tell.
    touches: Vec<String>,
}

/// Where a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this session.
    Session,
    /// In this project.
    Project,
    /// Everywhere.
    Everywhere,
}

/// What a rule covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Calls with the same arguments.
    SameCall,
    /// Calls that touch the same thing: path, command, address.
    SameTarget,
}

impl Draft {
    /// The narrowest rule that is of use: for this session, and about what the call touches if the tool tells that.
    pub(crate) fn new(request: ApprovalRequest, annotations: &Annotations) -> Self {
        let there = |pointer: &String| request.arguments.as_json().pointer(pointer).is_some();
        let touches: Vec<String> = annotations
            .resources
            .iter()
            .map(|resource| resource.argument.clone())
            .filter(there)
            .collect();
        let reach = if touches.is_empty() {
            Reach::SameCall
        } else {
            Reach::SameTarget
        };
        Self {
            request,
            place: Place::Session,
            reach,
            touches,
        }
    }

    /// Whether there is a choice of what it covers.
    pub(crate) fn can_reach(&self) -> bool {
        let all = self.request.arguments.as_map().len();
        !self.touches.is_empty() && self.touches.len() < all
    }

    /// Covers more, or less again.
    pub(crate) fn turn_reach(&mut self) {
        self.reach = match self.reach {
            Reach::SameCall if self.can_reach() => Reach::SameTarget,
            Reach::SameCall | Reach::SameTarget => Reach::SameCall,
        };
    }

    /// The rule.
    pub(crate) fn rule(
        &self,
        session: SessionId,
        project: &str,
        owner: &Principal,
        now: Timestamp,
    ) -> AllowRule {
        AllowRule {
            // One rule for a call and a generation: whoever confirms twice makes one.
            id: format!(
                "always-{}-{}",
                self.request.approval_id.call(),
                self.request.generation
            ),
            effect: RuleEffect::Allow,
            tool: self.request.tool.to_string(),
            arguments: self.patterns(),
            scope: match self.place {
                Place::Session => RuleScope::Session { session },
                Place::Project => RuleScope::Project {
                    project: project.to_owned(),
                },
                Place::Everywhere => RuleScope::Global,
            },
            owner: owner.clone(),
            created_at: now,
            expires_at: None,
            reason: Some("always, as somebody said when asked".to_owned()),
        }
    }

    fn patterns(&self) -> BTreeMap<String, ArgumentPattern> {
        let arguments = self.request.arguments.as_json();
        let whole = || {
            self.request
                .arguments
                .as_map()
                .keys()
                .map(|name| format!("/{}", escaped(name)))
                .collect()
        };
        let pointers: Vec<String> = match self.reach {
            Reach::SameTarget => self.touches.clone(),
            Reach::SameCall => whole(),
        };
        let equals = |pointer: String| {
            let value = arguments.pointer(&pointer)?.clone();
            Some((pointer, ArgumentPattern::Equals(value)))
        };
        pointers.into_iter().filter_map(equals).collect()
    }
}

/// A name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl Place {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Session => "in this session",
            Self::Project => "in this project",
            Self::Everywhere => "everywhere",
        }
    }
}
