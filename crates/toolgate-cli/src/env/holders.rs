//! The process that drives a session, as lists and hints name it.

use std::fmt;

use toolgate::{
    session::{HolderState, LeaseHolder},
    store::SessionRow,
};

use crate::env::times;

/// A process that drives a session: it has not ended, as far as can be seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionHolder {
    process: Option<u32>,
    /// True if the process was stopped, such as with Ctrl-Z.
    pub(crate) is_stopped: bool,
}

impl SessionHolder {
    /// Returns the holder of a session's lease. A process that is gone holds nothing, nor does a lease
    /// that has expired in the hands of a process that cannot be seen from here.
    pub(crate) fn of_row(row: &SessionRow) -> Option<Self> {
        let (name, until) = row.held.as_ref()?;
        let is_expired = *until <= times::current_time();
        let holder = LeaseHolder::parse(name);
        let state = holder
            .as_ref()
            .map_or(HolderState::Unknown, LeaseHolder::state);
        let is_driving = match state {
            HolderState::Ended => false,
            HolderState::Running | HolderState::Stopped => true,
            _ => !is_expired,
        };
        is_driving.then(|| Self {
            process: holder.map(|holder| holder.process_id()),
            is_stopped: state == HolderState::Stopped,
        })
    }
}

impl fmt::Display for SessionHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(id) => write!(f, "process {id}"),
            // The stored name of a foreign holder means nothing to people.
            None => f.write_str("another program"),
        }
    }
}
