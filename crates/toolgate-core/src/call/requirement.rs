//! Requirements to ask for approval, which a layer puts on a call and an approval layer below meets.
//!
//! A requirement holds for everything below the layer that made it. Each [`Next`](crate::Next)
//! keeps the requirements that its layer was entered with, so a layer that passes on another copy
//! of the call loses none. The mark that one is met comes from [`Next::run_approved`] only and
//! holds for the arguments that were approved.
//!
//! [`Next::run_approved`]: crate::Next::run_approved

use std::sync::Arc;

use serde_json::json;

use crate::{Arguments, Call, Digest, Json, Outcome, Refusal};

/// The requirement that a call is approved before it runs; see [`Call::require_approval`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApprovalRequirement {
    /// The reason, for approvers.
    pub reason: Arc<str>,
    /// The version of the policy that requires it, if it has one.
    pub policy_version: Option<Arc<str>>,
    /// True if an approver has to decide about this very call: no standing rule meets it.
    pub each_time: bool,
    /// The arguments that were approved, if any were.
    met_for: Option<Arguments>,
}

impl ApprovalRequirement {
    /// Returns the digest of the reason and the policy version, by which an approval request names
    /// the requirement.
    pub fn digest(&self) -> Digest {
        let Self {
            reason,
            policy_version,
            each_time: _,
            met_for: _,
        } = self;
        Json::from_shallow(json!({ "reason": reason, "policy_version": policy_version })).digest()
    }

    fn is_met_for(&self, arguments: &Arguments) -> bool {
        self.met_for
            .as_ref()
            .is_some_and(|met| met.is_same(arguments) || met.digest() == arguments.digest())
    }

    /// Checks whether this is a copy of a requirement that was met for the same arguments.
    fn is_copy_of_met(&self, other: &Self) -> bool {
        self.demands_same(&other.reason, other.policy_version.as_ref())
            && self
                .met_for
                .as_ref()
                .is_some_and(|arguments| other.is_met_for(arguments))
    }

    fn demands_same(&self, reason: &str, policy_version: Option<&Arc<str>>) -> bool {
        *self.reason == *reason && self.policy_version.as_ref() == policy_version
    }
}

/// The requirements on a call, outermost first; without any, nothing is allocated.
#[derive(Clone, Default)]
pub(crate) struct ApprovalRequirements(Option<Arc<Vec<ApprovalRequirement>>>);

impl ApprovalRequirements {
    fn as_slice(&self) -> &[ApprovalRequirement] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Checks whether requirements were added to `inherited`.
    pub(crate) fn has_more_than(&self, inherited: &Self) -> bool {
        self.as_slice().len() > inherited.as_slice().len()
    }

    /// Adds a requirement that is not met, unless there is the same one and it is not met either.
    fn add(&mut self, required: ApprovalRequirement) {
        // One that was met does not count: the layer that requires it now saw another call, or is
        // below the layer that asked.
        let known = |known: &ApprovalRequirement| {
            known.met_for.is_none()
                && known.each_time == required.each_time
                && known.demands_same(&required.reason, required.policy_version.as_ref())
        };
        if !self.as_slice().iter().any(known) {
            Arc::make_mut(self.0.get_or_insert_default()).push(ApprovalRequirement {
                met_for: None,
                ..required
            });
        }
    }
}

impl Call {
    /// Returns a copy that must not run before it is approved, for this reason.
    ///
    /// An approval layer below asks. If none does, the call settles as `policy_blocked`. Several
    /// requirements add up, and no layer below can remove one.
    pub fn require_approval(
        self,
        reason: impl Into<Arc<str>>,
        policy_version: Option<Arc<str>>,
    ) -> Self {
        self.require(reason.into(), policy_version, false)
    }

    /// Returns a copy that must not run before an approver has approved this very call: other than
    /// with [`Call::require_approval`], no standing rule stands for the approval.
    pub fn require_approval_each_time(
        self,
        reason: impl Into<Arc<str>>,
        policy_version: Option<Arc<str>>,
    ) -> Self {
        self.require(reason.into(), policy_version, true)
    }

    fn require(
        mut self,
        reason: Arc<str>,
        policy_version: Option<Arc<str>>,
        each_time: bool,
    ) -> Self {
        Arc::make_mut(&mut self.0)
            .required
            .add(ApprovalRequirement {
                reason,
                policy_version,
                each_time,
                met_for: None,
            });
        self
    }

    /// Returns the requirements that no approval of these arguments has met, outermost first.
    pub fn unmet_requirements(&self) -> impl Iterator<Item = &ApprovalRequirement> {
        let unmet = |required: &&ApprovalRequirement| !required.is_met_for(&self.arguments);
        self.required.as_slice().iter().filter(unmet)
    }

    /// Returns the outcome of a call that must not run because a required approval is missing;
    /// `None` if every requirement is met for these arguments.
    ///
    /// The runtime checks this in front of the executor. It is for a layer that answers in place of
    /// the executor, such as a dry run: what would be blocked must not look as if it would run.
    pub fn refuse_unapproved(&self) -> Option<Outcome> {
        let mut reasons = self
            .unmet_requirements()
            .map(|required| &*required.reason)
            .peekable();
        reasons.peek()?;
        let reasons: Vec<&str> = reasons.collect();
        let text = format!(
            "approval is required, and no approval layer asked for it: {}",
            reasons.join("; ")
        );
        Some(Outcome::refused(Refusal::Blocked, text))
    }

    pub(crate) fn requirements(&self) -> &ApprovalRequirements {
        &self.required
    }

    /// Returns the call with the requirements of the layer that passes it on, and with those that
    /// it carries besides.
    pub(crate) fn inherit_requirements(mut self, inherited: &ApprovalRequirements) -> Self {
        if !self.required.is_same(inherited) {
            let mut all = inherited.clone();
            // Added as not met: an approval counts only for the layers below the one that got it.
            for carried in self.required.as_slice() {
                let is_inherited = |known: &ApprovalRequirement| carried.is_copy_of_met(known);
                if !inherited.as_slice().iter().any(is_inherited) {
                    all.add(carried.clone());
                }
            }
            Arc::make_mut(&mut self.0).required = all;
        }
        self
    }

    /// Returns the call without its requirements, which are met: for the executor, which may be
    /// another stack.
    pub(crate) fn without_requirements(mut self) -> Self {
        if self.required.0.is_some() {
            Arc::make_mut(&mut self.0).required = ApprovalRequirements::default();
        }
        self
    }

    /// Returns the call with every requirement met for its arguments.
    pub(crate) fn with_requirements_met(mut self) -> Self {
        if self.required.0.is_some() {
            let data = Arc::make_mut(&mut self.0);
            for required in data.required.0.iter_mut().flat_map(Arc::make_mut) {
                required.met_for = Some(data.arguments.clone());
            }
        }
        self
    }
}
