//! The deadlines of a run and of its turns.

use std::time::Duration;

use futures::future::BoxFuture;
use toolgate_core::Timestamp;

use crate::{RunOptions, session::SessionShared};

/// The reason shown for calls that were under way when a deadline was reached.
pub(super) const DEADLINE: &str = "the deadline was reached";

/// The time that a run has, and whether it is over.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunClock {
    run_until: Option<Timestamp>,
    turn_until: Option<Timestamp>,
    /// Set once work was stopped because of a deadline.
    pub(super) stopped: bool,
}

impl RunClock {
    /// Starts the time of a run with these options. A resumed run has its whole time again.
    pub(super) fn start(shared: &SessionShared, options: &RunOptions) -> Self {
        let limit = options.deadline.or(shared.limits.deadline);
        Self {
            run_until: limit.map(|limit| shared.now().plus(limit)),
            ..Self::default()
        }
    }

    /// Starts the time of a turn.
    pub(super) fn start_turn(&mut self, shared: &SessionShared, options: &RunOptions) {
        let limit = options.turn_deadline.or(shared.limits.turn_deadline);
        self.turn_until = limit.map(|limit| shared.now().plus(limit));
    }

    /// Ends the time of a turn that is settled.
    pub(super) fn end_turn(&mut self) {
        self.turn_until = None;
    }

    /// Returns the time that is left; nothing without a deadline.
    pub(super) fn time_left(&self, shared: &SessionShared) -> Option<Duration> {
        let until = [self.run_until, self.turn_until]
            .into_iter()
            .flatten()
            .min();
        until.map(|until| until.since(shared.now()))
    }

    /// Checks whether a deadline was reached.
    pub(super) fn is_over(&self, shared: &SessionShared) -> bool {
        self.stopped || self.time_left(shared).is_some_and(|left| left.is_zero())
    }

    /// Completes when the next deadline is reached; never without one.
    pub(super) fn until_over(&self, shared: &SessionShared) -> BoxFuture<'static, ()> {
        match self.time_left(shared) {
            Some(left) => shared.dispatcher.0.clock.sleep(left),
            None => Box::pin(std::future::pending()),
        }
    }
}
