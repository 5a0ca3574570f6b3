//! The owner of a call, for state that must not be shared between users.

use toolgate_core::{Call, Principal, SessionId};

/// The principal of a call or, if it has none, its session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CallOwner {
    /// A known principal.
    Principal(Principal),
    /// The unnamed user of this session.
    Session(SessionId),
}

impl CallOwner {
    /// Returns the owner of `call`.
    pub(crate) fn for_call(call: &Call) -> Self {
        let turn = call.turn();
        // Without a principal, sharing ends at the session: two unnamed users must not meet.
        turn.principal
            .clone()
            .map_or(Self::Session(turn.session), Self::Principal)
    }
}
