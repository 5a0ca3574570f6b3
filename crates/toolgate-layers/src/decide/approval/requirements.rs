//! Passes approval requirements from the policies of a stack to its approval layer.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use toolgate_core::{CallId, Digest};

use crate::AskWhen;

/// The approval requirements of all policies of one stack. Created anew for every stack that is
/// built from a configuration.
#[derive(Clone, Default)]
pub(crate) struct PolicyRequirements {
    below: Option<AskingLayer>,
    /// True while the layer that asks is being built.
    here: Arc<AtomicBool>,
    marks: ApprovalMarks,
    versions: PolicyVersions,
}

/// The versions of the policies above the layer that asks.
#[derive(Clone, Default)]
pub(crate) struct PolicyVersions(Arc<Mutex<Vec<Digest>>>);

impl PolicyVersions {
    /// Adds the version of another policy.
    pub(crate) fn add(&self, version: Digest) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(version);
    }

    /// Returns one text for all versions. It changes when one of them does.
    pub(crate) fn combined_text(&self) -> Option<String> {
        let versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match versions.as_slice() {
            [] => None,
            [one] => Some(one.to_string()),
            many => {
                let all: Vec<String> = many.iter().map(Digest::to_string).collect();
                Some(Digest::of_bytes(all.join("\n").as_bytes()).to_string())
            }
        }
    }
}

/// The one layer that asks for all policies of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AskingLayer {
    /// Its position in the stack, counted from the outside.
    pub(crate) at: usize,
    /// True if at least one of the policies sees every call.
    pub(crate) sees_all: bool,
}

/// The requirement that the layer that asks receives.
pub(crate) struct PolicyRequirement {
    pub(crate) when: AskWhen,
    /// The versions of the policies it asks for. Complete once the whole stack is built.
    pub(crate) versions: PolicyVersions,
    /// True if a policy sees every call, so that no other condition is needed.
    pub(crate) sees_all: bool,
}

impl PolicyRequirements {
    /// Creates the requirements. `below` is the layer further in that asks, if there is one.
    pub(crate) fn new(below: Option<AskingLayer>) -> Self {
        Self {
            below,
            ..Self::default()
        }
    }

    /// Sets the position of the layer that is built next.
    pub(crate) fn begin_layer(&self, at: usize) {
        self.here.store(
            self.below.is_some_and(|below| below.at == at),
            Ordering::SeqCst,
        );
    }

    /// Registers a policy and returns where it marks calls. Returns `None` if the policy has to ask
    /// by itself.
    pub(crate) fn register_policy(&self, version: Digest) -> Option<ApprovalMarks> {
        self.below?;
        self.versions.add(version);
        Some(self.marks.clone())
    }

    /// Returns the requirement for the layer that asks, and `None` for any other: one requirement
    /// must not lead to two approval requests.
    pub(crate) fn requirement(&self) -> Option<PolicyRequirement> {
        let below = self.below.filter(|_| self.here.load(Ordering::SeqCst))?;
        let marks = self.marks.clone();
        // The mark carries the reason, because judging the call a second time would resolve every
        // path again.
        let when = AskWhen::new(move |call| marks.reason_for(call.id));
        Some(PolicyRequirement {
            when,
            versions: self.versions.clone(),
            sees_all: below.sees_all,
        })
    }
}

/// The calls that are between a policy and the layer that asks.
#[derive(Clone, Default)]
pub(crate) struct ApprovalMarks(Arc<Mutex<HashMap<CallId, ApprovalMark>>>);

struct ApprovalMark {
    /// Number of guards. The same call can be marked twice: under two policies, or in a second copy
    /// of its turn that is about to stop.
    times: u32,
    why: Arc<str>,
}

impl ApprovalMarks {
    /// Marks a call until the guard is dropped.
    pub(crate) fn mark_call(&self, call: CallId, why: Arc<str>) -> ApprovalMarkGuard<'_> {
        self.lock_map()
            .entry(call)
            .or_insert(ApprovalMark { times: 0, why })
            .times += 1;
        ApprovalMarkGuard { marks: self, call }
    }

    /// Returns true if both share the same marks.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn reason_for(&self, call: CallId) -> Option<String> {
        self.lock_map().get(&call).map(|mark| mark.why.to_string())
    }

    // A poisoned lock is harmless: every change leaves the map consistent.
    fn lock_map(&self) -> MutexGuard<'_, HashMap<CallId, ApprovalMark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ApprovalMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ApprovalMarks")
            .field(&self.lock_map().len())
            .finish()
    }
}

/// Guard that marks a call as requiring approval while it is inside the policy.
pub(crate) struct ApprovalMarkGuard<'a> {
    marks: &'a ApprovalMarks,
    call: CallId,
}

impl Drop for ApprovalMarkGuard<'_> {
    fn drop(&mut self) {
        let mut map = self.marks.lock_map();
        if let Some(mark) = map.get_mut(&self.call) {
            mark.times -= 1;
            if mark.times == 0 {
                map.remove(&self.call);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_testkit::call;

    #[test]
    fn a_call_is_marked_until_every_guard_is_dropped() {
        let marks = ApprovalMarks::default();
        let id = call("x").id;
        let first = marks.mark_call(id, "first".into());
        let second = marks.mark_call(id, "second".into());
        drop(first);
        assert_eq!(marks.reason_for(id).as_deref(), Some("first"));
        drop(second);
        assert_eq!(marks.reason_for(id), None);
    }

    #[test]
    fn without_an_asking_layer_the_policy_asks_itself() {
        let unasked = PolicyRequirements::new(None);
        unasked.begin_layer(0);
        assert!(
            unasked.register_policy(Digest::of_bytes(b"1")).is_none()
                && unasked.requirement().is_none()
        );
    }

    #[test]
    fn only_the_asking_layer_receives_the_requirement() {
        let asks = PolicyRequirements::new(Some(AskingLayer {
            at: 2,
            sees_all: true,
        }));
        let told = [0, 1, 2, 3].map(|at| {
            asks.begin_layer(at);
            asks.requirement().is_some()
        });
        assert_eq!(told, [false, false, true, false]);
        assert!(asks.register_policy(Digest::of_bytes(b"1")).is_some());
    }
}
