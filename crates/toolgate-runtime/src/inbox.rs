//! What a turn has to attend to, in order of urgency and without starving anything.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// How urgent something is. What ends an invocation comes before what begins one, and both before talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A result or a decision.
    Settlement,
    /// A call to start.
    Request,
    /// A message of the user.
    Message,
}

/// A queue with three lanes.
///
/// The most urgent lane is served first, but after [`Inbox::FAIR_AFTER`] things in a row the oldest thing of a
/// less urgent lane gets its turn, so a flood of results cannot hold up a message for ever.
#[derive(Debug)]
pub struct Inbox<T> {
    lanes: Mutex<Lanes<T>>,
    arrived: Notify,
}

#[derive(Debug)]
struct Lanes<T> {
    queues: [VecDeque<T>; 3],
    /// How often in a row each lane was passed over although something waited in it.
    passed_over: [u32; 3],
}

impl<T> Inbox<T> {
    /// How often a lane can be passed over while something waits in it.
    pub const FAIR_AFTER: u32 = 16;

    /// An empty inbox.
    pub fn new() -> Self {
        let lanes = Lanes {
            queues: [VecDeque::new(), VecDeque::new(), VecDeque::new()],
            passed_over: [0; 3],
        };
        Self {
            lanes: Mutex::new(lanes),
            arrived: Notify::new(),
        }
    }

    /// Puts something in.
    pub fn push(&self, urgency: Urgency, item: T) {
        self.extend(urgency, [item]);
    }

    /// Puts several things in, in order.
    pub fn extend(&self, urgency: Urgency, items: impl IntoIterator<Item = T>) {
        self.lanes().queues[urgency as usize].extend(items);
        self.arrived.notify_one();
    }

    /// Takes out what is due, if anything is there.
    pub fn take(&self) -> Option<T> {
        self.lanes().take()
    }

    /// Waits until something is due and takes it out.
    pub async fn next(&self) -> T {
        loop {
            if let Some(item) = self.take() {
                return item;
            }
            // `notify_one` keeps a permit, so what arrives in between is not missed.
            self.arrived.notified().await;
        }
    }

    /// Takes out everything of one lane.
    pub fn drain(&self, urgency: Urgency) -> Vec<T> {
        self.lanes().queues[urgency as usize].drain(..).collect()
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<T>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Lanes<T> {
    fn take(&mut self) -> Option<T> {
        let waiting = |lane: &usize| !self.queues[*lane].is_empty();
        let overdue =
            (0..3).find(|lane| waiting(lane) && self.passed_over[*lane] >= Inbox::<T>::FAIR_AFTER);
        let lane = overdue.or_else(|| (0..3).find(waiting))?;
        for other in 0..3 {
            let passed = other != lane && !self.queues[other].is_empty();
            self.passed_over[other] = if passed {
                self.passed_over[other] + 1
            } else {
                0
            };
        }
        self.queues[lane].pop_front()
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_before_requests_before_messages() {
        let inbox = Inbox::new();
        inbox.push(Urgency::Message, "hi");
        inbox.push(Urgency::Request, "start");
        inbox.push(Urgency::Settlement, "result");
        inbox.push(Urgency::Settlement, "decision");
        let order: Vec<_> = std::iter::from_fn(|| inbox.take()).collect();
        assert_eq!(order, ["result", "decision", "start", "hi"]);
    }

    #[test]
    fn a_flood_of_results_starves_neither_requests_nor_messages() {
        let inbox = Inbox::new();
        inbox.push(Urgency::Request, 1);
        inbox.push(Urgency::Message, 2);
        let mut served = Vec::new();
        for _ in 0..1_000 {
            inbox.push(Urgency::Settlement, 0);
            inbox.push(Urgency::Settlement, 0);
            served.extend(inbox.take());
        }
        let place = |wanted| {
            served
                .iter()
                .position(|item| *item == wanted)
                .expect("was served")
        };
        let bound = 2 * (Inbox::<i32>::FAIR_AFTER as usize + 1);
        assert!(
            place(1) <= bound && place(2) <= bound,
            "{} {}",
            place(1),
            place(2)
        );
        assert!(served.iter().filter(|item| **item == 0).count() >= 990);
    }

    #[tokio::test]
    async fn what_arrives_while_nobody_waits_is_not_missed() {
        let inbox = std::sync::Arc::new(Inbox::new());
        let waiter = tokio::spawn({
            let inbox = inbox.clone();
            async move { [inbox.next().await, inbox.next().await] }
        });
        inbox.push(Urgency::Message, 'a');
        tokio::task::yield_now().await;
        inbox.push(Urgency::Message, 'b');
        assert_eq!(waiter.await.expect("no panic"), ['a', 'b']);
    }
}
