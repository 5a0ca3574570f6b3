//! Signals that ask the program to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::CliError;

/// Ctrl-C, and what a system sends to end a program.
pub(crate) struct Stops([Signal; 3]);

impl Stops {
    /// Listens from now on; the program is not ended by them any more.
    pub(crate) fn listen() -> Result<Self, CliError> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for one.
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
