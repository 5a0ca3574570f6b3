//! The answer of a policy about one call.

use std::sync::{Arc, LazyLock};

use crate::PolicyEffect;

/// The judgement of a policy about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The effect on the call.
    pub effect: PolicyEffect,
    /// The rule that decided; `None` if it was the default.
    pub rule: Option<Arc<str>>,
    /// The reason, which names the rule. It repeats no value of the call, except the piece of a
    /// command that cannot be read, or that no rule covers.
    pub reason: Arc<str>,
    /// True if an approver has to decide about this very call: a standing rule is not enough.
    pub each_time: bool,
}

impl Judgement {
    /// Returns the stricter of two; this one if they are equally strict.
    pub fn or_stricter(self, other: Self) -> Self {
        if (other.effect, other.each_time) > (self.effect, self.each_time) {
            other
        } else {
            self
        }
    }

    /// Returns the judgement of most calls: nothing forbids a tool that only reads.
    pub(super) fn allowed_read() -> Self {
        static REASON: LazyLock<Arc<str>> =
            LazyLock::new(|| "the tool only reads and no rule forbids it".into());
        Self {
            effect: PolicyEffect::Allow,
            rule: None,
            reason: REASON.clone(),
            each_time: false,
        }
    }

    pub(super) fn denied_by_built_in(rule: &str, why: &str) -> Self {
        let reason = format!("the built-in rule {rule:?} denies: {why}").into();
        Self {
            effect: PolicyEffect::Deny,
            rule: Some(rule.into()),
            reason,
            each_time: false,
        }
    }
}
