//! How a policy tells the approval layer of the same stack what to ask about.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use toolgate_core::CallId;

use crate::AskWhen;

/// What the policies of one stack want asked about. Fresh for every stack that is made from a file.
#[derive(Clone, Default)]
pub(crate) struct PolicyAsks {
    below: bool,
    marks: Marks,
}

impl PolicyAsks {
    /// `below` says whether an approval layer further in will ask.
    pub(crate) fn new(below: bool) -> Self {
        Self { below, marks: Marks::default() }
    }

    /// Where a policy leaves what has to be asked about; nothing if it has to ask by itself.
    pub(crate) fn marks(&self) -> Option<Marks> {
        self.below.then(|| self.marks.clone())
    }

    /// What the policies left, as a rule for the layer that asks.
    pub(crate) fn rule(&self) -> Option<AskWhen> {
        let marks = self.marks()?;
        Some(AskWhen::new(move |call| marks.why(call.id)))
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
        self.map().entry(call).or_insert(Mark { times: 0, why }).times += 1;
        Marked { marks: self, call }
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
        assert!(PolicyAsks::new(false).marks().is_none() && PolicyAsks::new(false).rule().is_none());
        assert!(PolicyAsks::new(true).marks().is_some() && PolicyAsks::new(true).rule().is_some());
    }
}
