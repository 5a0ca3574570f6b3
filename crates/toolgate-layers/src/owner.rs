//! On whose behalf a call runs, for what must not be shared between people.

use toolgate_core::{Call, Principal, SessionId};

/// The principal of a call or, where nobody is named, its session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Somebody who is known.
    Principal(Principal),
    /// Whoever is behind this session.
    Session(SessionId),
}

impl Owner {
    /// The owner of `call`.
    pub(crate) fn of(call: &Call) -> Self {
        let turn = call.turn();
        turn.principal
            .clone()
            .map_or(Self::Session(turn.session), Self::Principal)
    }
}
