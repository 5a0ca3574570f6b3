//! The process that drives a session, as lists and hints name it.

use std::fmt;

use toolgate::{
    session::{HolderState, LeaseHolder, is_holder_replaceable},
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
        if is_holder_replaceable(name, *until <= times::current_time()) {
            return None;
        }
        let holder = LeaseHolder::parse(name);
        Some(Self {
            is_stopped: holder
                .as_ref()
                .is_some_and(|holder| holder.state() == HolderState::Stopped),
            process: holder.map(|holder| holder.process_id()),
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
