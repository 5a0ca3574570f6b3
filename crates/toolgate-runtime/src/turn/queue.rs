//! The inputs of a turn, in order of urgency and without starving any of them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// Urgency of an input: what ends an invocation comes first, then what starts one, then messages.
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
/// The most urgent lane is served first. After [`InputQueue::FAIR_AFTER`] items in a row the oldest item
/// of a less urgent lane is served, so a flood of results cannot delay a message for ever.
#[derive(Debug)]
pub struct InputQueue<T> {
    lanes: Mutex<QueueLanes<T>>,
    arrived: Notify,
}

#[derive(Debug)]
struct QueueLanes<T> {
    queues: [VecDeque<T>; 3],
    /// Number of times in a row each lane was passed over although it had items.
    passed_over: [u32; 3],
}

impl<T> InputQueue<T> {
    /// Limit on how often a lane with items can be passed over.
    pub const FAIR_AFTER: u32 = 16;

    /// Creates an empty queue.
    pub fn new() -> Self {
        let lanes = QueueLanes {
            queues: [VecDeque::new(), VecDeque::new(), VecDeque::new()],
            passed_over: [0; 3],
        };
        Self {
            lanes: Mutex::new(lanes),
            arrived: Notify::new(),
        }
    }

    /// Adds an item.
    pub fn push(&self, urgency: Urgency, item: T) {
        self.extend(urgency, [item]);
    }

    /// Adds several items, in order.
    pub fn extend(&self, urgency: Urgency, items: impl IntoIterator<Item = T>) {
        self.lock_lanes().queues[urgency as usize].extend(items);
        self.arrived.notify_one();
    }

    /// Removes and returns the next item, if there is one.
    pub fn take(&self) -> Option<T> {
        self.lock_lanes().take_next()
    }

    /// Waits for the next item, removes it and returns it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no item is lost.
    pub async fn next(&self) -> T {
        loop {
            if let Some(item) = self.take() {
                return item;
            }
            // `notify_one` stores a permit, so an item that arrives in between is not missed.
            self.arrived.notified().await;
        }
    }

    /// Removes and returns all items of one lane.
    pub fn drain(&self, urgency: Urgency) -> Vec<T> {
        self.lock_lanes().queues[urgency as usize]
            .drain(..)
            .collect()
    }

    fn lock_lanes(&self) -> MutexGuard<'_, QueueLanes<T>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> QueueLanes<T> {
    fn take_next(&mut self) -> Option<T> {
        let waiting = |lane: &usize| !self.queues[*lane].is_empty();
        let overdue = (0..3)
            .find(|lane| waiting(lane) && self.passed_over[*lane] >= InputQueue::<T>::FAIR_AFTER);
        let lane = overdue.or_else(|| (0..3).find(waiting))?;
        for other in 0..3 {
            // Counted only while items wait, so that an empty lane earns no priority.
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

impl<T> Default for InputQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_before_requests_before_messages() {
        let inbox = InputQueue::new();
        inbox.push(Urgency::Message, "hi");
        inbox.push(Urgency::Request, "start");
        inbox.push(Urgency::Settlement, "result");
        inbox.push(Urgency::Settlement, "decision");
        let order: Vec<_> = std::iter::from_fn(|| inbox.take()).collect();
        assert_eq!(order, ["result", "decision", "start", "hi"]);
    }

    #[test]
    fn a_flood_of_results_starves_neither_requests_nor_messages() {
        let inbox = InputQueue::new();
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
        let bound = 2 * (InputQueue::<i32>::FAIR_AFTER as usize + 1);
        assert!(
            place(1) <= bound && place(2) <= bound,
            "{} {}",
            place(1),
            place(2)
        );
        assert!(served.iter().filter(|item| **item == 0).count() >= 990);
    }

    #[tokio::test]
    async fn items_that_arrive_without_a_waiter_are_not_missed() {
        let inbox = std::sync::Arc::new(InputQueue::new());
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
