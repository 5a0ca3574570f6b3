//! How a policy tells the approval layer of the same stack what to ask about.

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

/// What the policies of one stack want asked about. Fresh for every stack that is made from a file.
#[derive(Clone, Default)]
pub(crate) struct PolicyAsks {
    below: Option<AskedBelow>,
    /// Whether the layer that is being made is the one that asks.
    here: Arc<AtomicBool>,
    marks: Marks,
    versions: PolicyVersions,
}

/// The versions of the policies that stand above the layer that asks.
#[derive(Clone, Default)]
pub(crate) struct PolicyVersions(Arc<Mutex<Vec<Digest>>>);

impl PolicyVersions {
    /// Another policy stands there too.
    pub(crate) fn add(&self, version: Digest) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(version);
    }

    /// One text for all of them; it changes when one of them does.
    pub(crate) fn text(&self) -> Option<String> {
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
pub(crate) struct AskedBelow {
    /// Where in the stack it stands, counted from outside.
    pub(crate) at: usize,
    /// Whether at least one of the policies sees every call.
    pub(crate) sees_all: bool,
}

/// What the layer that asks is told.
pub(crate) struct PolicyRule {
    pub(crate) when: AskWhen,
    /// Under which policies it asks. Known when the whole stack is made.
    pub(crate) versions: PolicyVersions,
    /// Whether a policy has looked at every call, so that nothing else has to say what is asked about.
    pub(crate) sees_all: bool,
}

impl PolicyAsks {
    /// `below` says which layer further in will ask, if one does.
    pub(crate) fn new(below: Option<AskedBelow>) -> Self {
        Self {
            below,
            ..Self::default()
        }
    }

    /// Says that the layer at this place is made next.
    pub(crate) fn making(&self, at: usize) {
        self.here.store(
            self.below.is_some_and(|below| below.at == at),
            Ordering::SeqCst,
        );
    }

    /// Where a policy of this version leaves what has to be asked about; nothing if it has to ask by itself.
    pub(crate) fn marks(&self, version: Digest) -> Option<Marks> {
        self.below?;
        self.versions.add(version);
        Some(self.marks.clone())
    }

    /// What the policies left, for the layer that asks and for no other: nobody is asked twice about one thing.
    pub(crate) fn rule(&self) -> Option<PolicyRule> {
        let below = self.below.filter(|_| self.here.load(Ordering::SeqCst))?;
        let marks = self.marks.clone();
        let when = AskWhen::new(move |call| marks.why(call.id));
        Some(PolicyRule {
            when,
            versions: self.versions.clone(),
            sees_all: below.sees_all,
        })
    }
}

/// The calls that are on their way from a policy to the layer that asks. Judging them there again would look at every
/// path a second time.
#[derive(Clone, Default)]
pub(crate) struct Marks(Arc<Mutex<HashMap<CallId, Mark>>>);

struct Mark {
    /// The same call can be on its way twice: under two policies, or in a copy of its turn that is about to stop.
    times: u32,
    why: Arc<str>,
}

impl Marks {
    /// Marks a call until the guard is dropped.
    pub(crate) fn mark(&self, call: CallId, why: Arc<str>) -> Marked<'_> {
        self.map()
            .entry(call)
            .or_insert(Mark { times: 0, why })
            .times += 1;
        Marked { marks: self, call }
    }

    /// Whether a mark here is a mark there.
    pub(crate) fn are_those_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn why(&self, call: CallId) -> Option<String> {
        self.map().get(&call).map(|mark| mark.why.to_string())
    }

    // Every change leaves the map whole.
    fn map(&self) -> MutexGuard<'_, HashMap<CallId, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Marks").field(&self.map().len()).finish()
    }
}

/// A call that has to be asked about, for as long as it is inside the policy.
pub(crate) struct Marked<'a> {
    marks: &'a Marks,
    call: CallId,
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        let mut map = self.marks.map();
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
    fn a_call_is_marked_until_every_policy_has_let_go_of_it() {
        let marks = Marks::default();
        let id = call("x").id;
        let first = marks.mark(id, "first".into());
        let second = marks.mark(id, "second".into());
        drop(first);
        assert_eq!(marks.why(id).as_deref(), Some("first"));
        drop(second);
        assert_eq!(marks.why(id), None);
    }

    #[test]
    fn without_a_layer_that_asks_the_policy_has_to() {
        let nobody = PolicyAsks::new(None);
        nobody.making(0);
        assert!(nobody.marks(Digest::of_bytes(b"1")).is_none() && nobody.rule().is_none());
    }

    #[test]
    fn only_the_layer_that_asks_is_told_what_about() {
        let asks = PolicyAsks::new(Some(AskedBelow {
            at: 2,
            sees_all: true,
        }));
        let told = [0, 1, 2, 3].map(|at| {
            asks.making(at);
            asks.rule().is_some()
        });
        assert_eq!(told, [false, false, true, false]);
        assert!(asks.marks(Digest::of_bytes(b"1")).is_some());
    }
}
