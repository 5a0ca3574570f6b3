//! Writes that are held back until something waits, so that one commit has what happens in one go.
//!
//! A reply and the opening of its turn, or an approval request and the end of the run, follow each
//! other at once. Written by themselves, each would cost a sync of the disk. A held write costs
//! none: it is part of the next write, and the next write begins at the latest when the run, or a
//! call that it started, has to wait for anything. So a held event is never older than the work
//! that is done without waiting, and nothing is published before it is durable.

use std::{
    future::{Future, poll_fn},
    pin::pin,
};

use super::{BatchExtras, Journal, JournalWriter, PendingEvent, WriteAck};

/// When a write begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteTiming {
    /// As soon as possible.
    Now,
    /// With the next write, or before anything waits.
    Held,
}

impl Journal {
    /// Hands over events and what belongs to the same write, at the given time.
    pub(crate) fn append_at(
        &self,
        timing: WriteTiming,
        drafts: impl IntoIterator<Item = PendingEvent>,
        along: BatchExtras,
    ) -> WriteAck {
        self.hand_over(drafts, along, None, timing)
    }

    /// Checks whether the write with this number is held.
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.0.lock_state().released < number
    }

    /// Completes when the write with this number is durable. A held one begins when this is awaited.
    pub(crate) fn when_written(&self, number: u64) -> WriteAck {
        if self.0.lock_state().durable >= number {
            return WriteAck::Now(Ok(()));
        }
        WriteAck::held(&self.0, number)
    }

    /// Begins to write everything that is held.
    pub(crate) fn flush(&self) {
        let state = self.0.lock_state();
        if state.released < state.handed {
            JournalWriter::release_writes(&self.0, state);
        }
    }

    /// Begins to write everything that is held, unless a call that was started has not come to wait
    /// yet: what it hands over belongs to the same write.
    fn flush_before_waiting(&self) {
        let state = self.0.lock_state();
        if state.runnable == 0 && state.released < state.handed {
            JournalWriter::release_writes(&self.0, state);
        }
    }

    /// Drives `work` to its end. Whenever it has to wait, everything that is held is written.
    pub(crate) async fn flush_while_waiting<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            if polled.is_pending() {
                self.flush_before_waiting();
            }
            polled
        })
        .await
    }

    /// Notes that a call is started, which may hand over something before it comes to wait.
    pub(crate) fn note_runnable(&self) -> RunnableCall {
        self.0.lock_state().runnable += 1;
        RunnableCall(self.clone())
    }
}

/// A call that was started. Writes are held until it has come to wait, has ended or is dropped.
pub(crate) struct RunnableCall(Journal);

impl RunnableCall {
    /// Drives the call. When it comes to wait, held writes begin.
    pub(crate) async fn drive<T>(self, work: impl Future<Output = T>) -> T {
        let journal = self.0.clone();
        // Dropped with this future, so before the driver learns that the call has left: a driver
        // that waits while the call counts as runnable would leave its writes held.
        let mut counted = Some(self);
        let mut work = pin!(work);
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            if polled.is_pending() {
                drop(counted.take());
                journal.flush_before_waiting();
            }
            polled
        })
        .await
    }
}

impl Drop for RunnableCall {
    fn drop(&mut self) {
        self.0.0.lock_state().runnable -= 1;
    }
}
