//! The inputs of a turn, in order of urgency and without starving any of them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::Notify;

use crate::schedule::{lock, switch_point};

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
        switch_point();
        self.arrived.notify_one();
    }

    /// Removes and returns the next item, if there is one.
    pub fn take(&self) -> Option<T> {
        let mut lanes = self.lock_lanes();
        let item = lanes.take_next();
        // One wake-up may stand for several items: the rest are for another consumer.
        if item.is_some() && !lanes.is_empty() {
            self.arrived.notify_one();
        }
        item
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
            switch_point();
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
        lock(&self.lanes)
    }
}

impl<T> QueueLanes<T> {
    fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

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
mod tests;
