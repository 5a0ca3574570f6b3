//! Who may run at the same time: a cap, and no two calls that fight over one resource.

use std::collections::{BTreeSet, VecDeque};

use toolgate_core::ConflictKey;

/// Decides which of the waiting calls may start now.
///
/// Calls start in the order they came. One that conflicts with an earlier unfinished call waits for it, so
/// writes to one file happen in the order the model asked for them; everything else overtakes.
#[derive(Debug)]
pub(crate) struct Lanes {
    cap: usize,
    running: usize,
    ready: VecDeque<Ticket>,
    /// Calls that something outside runs: they keep their place and their resources.
    outside: BTreeSet<usize>,
    /// Calls that were answered and have a place already: they go before all others.
    answered: VecDeque<usize>,
    /// Calls that hold or wait for resources, oldest first.
    holders: Vec<Holder>,
}

/// A call as the scheduler sees it: its number, and what it touches.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub(crate) at: usize,
    pub(crate) keys: Vec<ConflictKey>,
    pub(crate) writes: bool,
}

#[derive(Debug)]
struct Holder {
    ticket: Ticket,
    /// The earlier call this one waits for.
    behind: Option<usize>,
}

impl Ticket {
    fn conflicts(&self, other: &Self) -> bool {
        (self.writes || other.writes)
            && self
                .keys
                .iter()
                .any(|a| other.keys.iter().any(|b| a.overlaps(b)))
    }
}

impl Lanes {
    pub(crate) fn new(cap: usize) -> Self {
        let (ready, answered) = (VecDeque::new(), VecDeque::new());
        Self {
            cap: cap.max(1),
            running: 0,
            ready,
            outside: BTreeSet::new(),
            answered,
            holders: Vec::new(),
        }
    }

    /// Takes a call in; it starts when it can.
    pub(crate) fn add(&mut self, ticket: Ticket) {
        if ticket.keys.is_empty() {
            return self.ready.push_back(ticket);
        }
        let behind = self.blocker(&ticket, self.holders.len());
        if behind.is_none() {
            self.ready.push_back(ticket.clone());
        }
        self.holders.push(Holder { ticket, behind });
    }

    /// A running call is run by something outside from now on.
    pub(crate) fn leave_outside(&mut self, at: usize) {
        self.outside.insert(at);
    }

    /// A call that something outside has been running since before this driver began.
    pub(crate) fn hold_outside(&mut self, ticket: Ticket) {
        self.running += 1;
        self.outside.insert(ticket.at);
        if !ticket.keys.is_empty() {
            self.holders.push(Holder {
                ticket,
                behind: None,
            });
        }
    }

    /// Takes back a call that something outside ran, if it is one.
    pub(crate) fn take_back(&mut self, at: usize) -> bool {
        let back = self.outside.remove(&at);
        if back {
            self.answered.push_back(at);
        }
        back
    }

    /// The next call to start, if there is room.
    pub(crate) fn start(&mut self) -> Option<usize> {
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

    /// A running call is over or suspended; what waited for it may go on.
    pub(crate) fn finish(&mut self, at: usize) {
        self.running -= 1;
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
                self.holders[place].behind = self.blocker(&ticket, place);
                if self.holders[place].behind.is_none() {
                    self.ready.push_back(ticket);
                }
            }
        }
    }

    /// Forgets every call that has not started.
    pub(crate) fn clear(&mut self) {
        self.answered.clear();
        let waiting: Vec<usize> = self.ready.drain(..).map(|ticket| ticket.at).collect();
        self.holders
            .retain(|holder| holder.behind.is_none() && !waiting.contains(&holder.ticket.at));
    }

    /// How many calls run in this process.
    pub(crate) fn running_here(&self) -> usize {
        self.running - self.outside.len()
    }

    /// Whether nothing runs here and nothing can start.
    pub(crate) fn is_idle(&self) -> bool {
        let full = self.running >= self.cap;
        self.running_here() == 0 && self.answered.is_empty() && (self.ready.is_empty() || full)
    }

    /// The latest of the first `before` holders that conflicts with `ticket`.
    fn blocker(&self, ticket: &Ticket, before: usize) -> Option<usize> {
        let earlier = self.holders[..before].iter().rev();
        earlier
            .map(|holder| &holder.ticket)
            .find(|other| ticket.conflicts(other))
            .map(|other| other.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toolgate_core::ResourceKind;

    fn ticket(at: usize, paths: &[&str], writes: bool) -> Ticket {
        let keys = paths
            .iter()
            .map(|path| ConflictKey::new(ResourceKind::Path, path))
            .collect();
        Ticket { at, keys, writes }
    }

    fn started(lanes: &mut Lanes) -> Vec<usize> {
        std::iter::from_fn(|| lanes.start()).collect()
    }

    #[test]
    fn writes_to_one_file_happen_in_order_and_reads_share() {
        let mut lanes = Lanes::new(8);
        lanes.add(ticket(0, &["a"], true));
        lanes.add(ticket(1, &["a"], true));
        lanes.add(ticket(2, &["b"], true));
        lanes.add(ticket(3, &["a"], false));
        lanes.add(ticket(4, &["a"], false));
        lanes.add(ticket(5, &[], true));
        assert_eq!(started(&mut lanes), [0, 2, 5]);
        lanes.finish(0);
        assert_eq!(started(&mut lanes), [1]);
        lanes.finish(1);
        assert_eq!(started(&mut lanes), [3, 4]);
    }

    #[test]
    fn a_call_that_runs_outside_keeps_its_place_and_its_resources() {
        let mut lanes = Lanes::new(2);
        lanes.add(ticket(0, &["a"], true));
        lanes.add(ticket(1, &["a"], true));
        lanes.add(ticket(2, &[], true));
        lanes.add(ticket(3, &[], true));
        assert_eq!(started(&mut lanes), [0, 2]);
        lanes.leave_outside(0);
        lanes.leave_outside(2);
        assert!(
            lanes.is_idle() && started(&mut lanes).is_empty(),
            "the cap holds for what runs outside too"
        );
        assert!(lanes.take_back(2) && !lanes.take_back(2));
        assert_eq!(
            started(&mut lanes),
            [2],
            "what was answered goes on at once"
        );
        lanes.finish(2);
        assert_eq!(started(&mut lanes), [3], "and the file is still taken");
        lanes.take_back(0);
        assert_eq!(started(&mut lanes), [0]);
        lanes.finish(0);
        assert_eq!(started(&mut lanes), [1]);
    }

    proptest! {
        #[test]
        fn conflicting_calls_never_overlap_the_cap_holds_and_all_run(
            calls in prop::collection::vec((prop::collection::vec(0_u8..4, 0..3), any::<bool>()), 1..40),
            cap in 1_usize..6,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let tickets: Vec<Ticket> = calls.iter().enumerate().map(|(at, (files, writes))| {
                let names: Vec<String> = files.iter().map(|file| format!("dir/{file}")).collect();
                ticket(at, &names.iter().map(String::as_str).collect::<Vec<_>>(), *writes)
            }).collect();
            let mut lanes = Lanes::new(cap);
            tickets.iter().cloned().for_each(|ticket| lanes.add(ticket));
            let (mut running, mut done, mut picks) = (Vec::new(), Vec::new(), picks.iter().cycle());
            loop {
                for at in started(&mut lanes) {
                    for other in &running {
                        prop_assert!(!tickets[at].conflicts(&tickets[*other]), "{at} beside {other}");
                    }
                    for earlier in &tickets[..at] {
                        let over = done.contains(&earlier.at);
                        prop_assert!(over || !earlier.conflicts(&tickets[at]), "{at} before {}", earlier.at);
                    }
                    running.push(at);
                }
                prop_assert!(running.len() <= cap);
                if running.is_empty() {
                    break;
                }
                let at = running.remove(picks.next().expect("cycles").index(running.len()));
                lanes.finish(at);
                done.push(at);
            }
            prop_assert_eq!(done.len(), tickets.len());
            prop_assert!(lanes.is_idle() && lanes.holders.is_empty());
        }
    }
}
