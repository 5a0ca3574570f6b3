//! Calls that are only walked through, in the surroundings of a real session.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    CallId, CallSeed, Env, Resumed, ToolRequest, TurnId, TurnInfo, Unwatched, View,
};

use crate::Dispatcher;

impl Dispatcher {
    /// A call that this dispatcher would make of `request`, for walking it through the stack without running it.
    ///
    /// It has the session, clock and store of the dispatcher, and nobody is told of it: no event is written.
    pub fn rehearsal(&self, view: &View, request: &ToolRequest) -> CallSeed {
        let shared = &self.0;
        let turn = TurnInfo::new(shared.session, TurnId::from_source(&*shared.ids));
        CallSeed {
            id: CallId::from_source(&*shared.ids),
            generation: 0,
            provider_call_id: request.provider_call_id.as_str().into(),
            emit_order: 0,
            turn: Arc::new(turn),
            admission: view.admit(request),
            resumed: Resumed::default(),
            attempts_before: 0,
            rehearsal: true,
            closing: None,
            cancel: CancellationToken::new(),
            env: Env::new(
                shared.clock.clone(),
                shared.store.clone(),
                Arc::new(Unwatched),
            ),
        }
    }
}
