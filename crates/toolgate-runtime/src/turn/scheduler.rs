//! Decides which calls may run at the same time: a limit, and no two calls that conflict over one
//! resource.

use std::collections::{BTreeSet, VecDeque};

use toolgate_core::ConflictKey;

/// Decides which of the waiting calls may start now.
///
/// Calls start in the order they came. A call that conflicts with an earlier unfinished call waits
/// for it, so writes to one file happen in the order the model asked for them; other calls
/// overtake.
#[derive(Debug)]
pub(crate) struct CallScheduler {
    cap: usize,
    running: usize,
    ready: VecDeque<ScheduledCall>,
    /// Calls that an external executor runs: they keep their slot and their resources.
    outside: BTreeSet<usize>,
    /// Calls whose result arrived and that have a slot already: they start before all others.
    answered: VecDeque<usize>,
    /// Calls that own or wait for resources, oldest first.
    holders: Vec<ResourceOwner>,
}

/// A call as the scheduler sees it: its position in the turn, and what it touches.
#[derive(Debug, Clone)]
pub(crate) struct ScheduledCall {
    pub(crate) at: usize,
    pub(crate) keys: Vec<ConflictKey>,
    pub(crate) writes: bool,
}

/// A call that owns resources, or waits for them.
#[derive(Debug)]
struct ResourceOwner {
    ticket: ScheduledCall,
    /// The earlier call that this one waits for.
    behind: Option<usize>,
}

impl ScheduledCall {
    fn conflicts_with(&self, other: &Self) -> bool {
        (self.writes || other.writes)
            && self
                .keys
                .iter()
                .any(|a| other.keys.iter().any(|b| a.overlaps(b)))
    }
}

impl CallScheduler {
    pub(crate) fn new(cap: usize) -> Self {
        let ready = VecDeque::new();
        let answered = VecDeque::new();
        Self {
            cap: cap.max(1),
            running: 0,
            ready,
            outside: BTreeSet::new(),
            answered,
            holders: Vec::new(),
        }
    }

    /// Adds a call; it starts when it can.
    pub(crate) fn add_call(&mut self, ticket: ScheduledCall) {
        // A call without resources conflicts with nothing.
        if ticket.keys.is_empty() {
            return self.ready.push_back(ticket);
        }
        let behind = self.find_blocker(&ticket, self.holders.len());
        if behind.is_none() {
            self.ready.push_back(ticket.clone());
        }
        self.holders.push(ResourceOwner { ticket, behind });
    }

    /// Marks a running call as run by an external executor from now on.
    pub(crate) fn mark_external(&mut self, at: usize) {
        self.outside.insert(at);
    }

    /// Adds a call that has been running externally since before this driver began.
    pub(crate) fn add_external(&mut self, ticket: ScheduledCall) {
        // It counts against the limit, as in the process that started it.
        self.running += 1;
        self.outside.insert(ticket.at);
        if !ticket.keys.is_empty() {
            self.holders.push(ResourceOwner {
                ticket,
                behind: None,
            });
        }
    }

    /// Queues an external call to continue here. Returns false if it is not one.
    pub(crate) fn return_external(&mut self, at: usize) -> bool {
        let back = self.outside.remove(&at);
        if back {
            self.answered.push_back(at);
        }
        back
    }

    /// Returns the next call to start, if there is a free slot.
    pub(crate) fn next_to_start(&mut self) -> Option<usize> {
        // They still count as running, so the limit does not apply to them again.
        if let Some(at) = self.answered.pop_front() {
            return Some(at);
        }
        if self.running >= self.cap {
            return None;
        }
        let ticket = self.ready.pop_front()?;
        self.running += 1;
        Some(ticket.at)
    }

    /// Removes a call that settled or suspended. Calls that waited for it may start.
    pub(crate) fn finish_call(&mut self, at: usize) {
        self.running -= 1;
        // An external call may have been settled without its result.
        self.outside.remove(&at);
        let Some(place) = self
            .holders
            .iter()
            .position(|holder| holder.ticket.at == at)
        else {
            return;
        };
        self.holders.remove(place);
        for place in place..self.holders.len() {
            if self.holders[place].behind == Some(at) {
                let ticket = self.holders[place].ticket.clone();
                // It may conflict with several earlier calls; it starts only after the last of
                // them.
                self.holders[place].behind = self.find_blocker(&ticket, place);
                if self.holders[place].behind.is_none() {
                    self.ready.push_back(ticket);
                }
            }
        }
    }

    /// Removes every call that has not started.
    pub(crate) fn clear_waiting(&mut self) {
        self.answered.clear();
        let waiting: Vec<usize> = self.ready.drain(..).map(|ticket| ticket.at).collect();
        // Running and external calls keep their resources.
        self.holders
            .retain(|holder| holder.behind.is_none() && !waiting.contains(&holder.ticket.at));
    }

    /// Returns how many calls run in this process.
    pub(crate) fn running_here(&self) -> usize {
        self.running - self.outside.len()
    }

    /// Checks whether nothing runs here and nothing can start.
    pub(crate) fn is_idle(&self) -> bool {
        let full = self.running >= self.cap;
        self.running_here() == 0 && self.answered.is_empty() && (self.ready.is_empty() || full)
    }

    /// Returns the latest of the first `before` owners that conflicts with `ticket`.
    fn find_blocker(&self, ticket: &ScheduledCall, before: usize) -> Option<usize> {
        let earlier = self.holders[..before].iter().rev();
        earlier
            .map(|holder| &holder.ticket)
            .find(|other| ticket.conflicts_with(other))
            .map(|other| other.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toolgate_core::ResourceKind;

    fn ticket(at: usize, paths: &[&str], writes: bool) -> ScheduledCall {
        let keys = paths
            .iter()
            .map(|path| ConflictKey::new(ResourceKind::Path, path))
            .collect();
        ScheduledCall { at, keys, writes }
    }

    fn start_all(lanes: &mut CallScheduler) -> Vec<usize> {
        std::iter::from_fn(|| lanes.next_to_start()).collect()
    }

    #[test]
    fn writes_to_one_file_happen_in_order_and_reads_share() {
        let mut lanes = CallScheduler::new(8);
        lanes.add_call(ticket(0, &["a"], true));
        lanes.add_call(ticket(1, &["a"], true));
        lanes.add_call(ticket(2, &["b"], true));
        lanes.add_call(ticket(3, &["a"], false));
        lanes.add_call(ticket(4, &["a"], false));
        lanes.add_call(ticket(5, &[], true));
        assert_eq!(start_all(&mut lanes), [0, 2, 5]);
        lanes.finish_call(0);
        assert_eq!(start_all(&mut lanes), [1]);
        lanes.finish_call(1);
        assert_eq!(start_all(&mut lanes), [3, 4]);
    }

    #[test]
    fn an_external_call_keeps_its_slot_and_its_resources() {
        let mut lanes = CallScheduler::new(2);
        lanes.add_call(ticket(0, &["a"], true));
        lanes.add_call(ticket(1, &["a"], true));
        lanes.add_call(ticket(2, &[], true));
        lanes.add_call(ticket(3, &[], true));
        assert_eq!(start_all(&mut lanes), [0, 2]);
        lanes.mark_external(0);
        lanes.mark_external(2);
        assert!(
            lanes.is_idle() && start_all(&mut lanes).is_empty(),
            "the limit includes external calls"
        );
        assert!(lanes.return_external(2) && !lanes.return_external(2));
        assert_eq!(
            start_all(&mut lanes),
            [2],
            "an answered call continues at once"
        );
        lanes.finish_call(2);
        assert_eq!(start_all(&mut lanes), [3], "and the file is still owned");
        lanes.return_external(0);
        assert_eq!(start_all(&mut lanes), [0]);
        lanes.finish_call(0);
        assert_eq!(start_all(&mut lanes), [1]);
    }

    proptest! {
        #[test]
        fn conflicting_calls_never_overlap_the_cap_holds_and_all_run(
            calls in prop::collection::vec((prop::collection::vec(0_u8..4, 0..3), any::<bool>()), 1..40),
            cap in 1_usize..6,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let tickets: Vec<ScheduledCall> = calls.iter().enumerate().map(|(at, (files, writes))| {
                let names: Vec<String> = files.iter().map(|file| format!("dir/{file}")).collect();
                ticket(at, &names.iter().map(String::as_str).collect::<Vec<_>>(), *writes)
            }).collect();
            let mut lanes = CallScheduler::new(cap);
            tickets.iter().cloned().for_each(|ticket| lanes.add_call(ticket));
            let (mut running, mut done, mut picks) = (Vec::new(), Vec::new(), picks.iter().cycle());
            loop {
                for at in start_all(&mut lanes) {
                    for other in &running {
                        prop_assert!(!tickets[at].conflicts_with(&tickets[*other]), "{at} beside {other}");
                    }
                    for earlier in &tickets[..at] {
                        let over = done.contains(&earlier.at);
                        prop_assert!(over || !earlier.conflicts_with(&tickets[at]), "{at} before {}", earlier.at);
                    }
                    running.push(at);
                }
                prop_assert!(running.len() <= cap);
                if running.is_empty() {
                    break;
                }
                let at = running.remove(picks.next().expect("cycles").index(running.len()));
                lanes.finish_call(at);
                done.push(at);
            }
            prop_assert_eq!(done.len(), tickets.len());
            prop_assert!(lanes.is_idle() && lanes.holders.is_empty());
        }
    }
}
