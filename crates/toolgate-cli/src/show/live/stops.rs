//! Signals that ask the program to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::CliError;

/// Ctrl-C, and the signals with which a system ends a program.
pub(crate) struct StopSignals([Signal; 3]);

impl StopSignals {
    /// Listens from now on; the signals no longer end the program by themselves.
    pub(crate) fn listen() -> Result<Self, CliError> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for a signal.
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
