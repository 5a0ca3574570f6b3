//! Rehearsed calls: walked through the stack of a real session without being run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    CallEnv, CallId, CallSeed, NoProbe, ResumeState, ToolRequest, TurnId, TurnInfo, View,
};

use crate::Dispatcher;

impl Dispatcher {
    /// Builds the call that this dispatcher would make of `request`, for a walk through the stack
    /// that does not run it.
    ///
    /// It has the session, clock and store of the dispatcher. No event is written.
    pub fn rehearse_call(&self, view: &View, request: &ToolRequest) -> CallSeed {
        let shared = &self.0;
        let turn = TurnInfo::new(shared.session, TurnId::from_source(&*shared.ids));
        CallSeed {
            id: CallId::from_source(&*shared.ids),
            generation: 0,
            provider_call_id: request.provider_call_id.as_str().into(),
            emit_order: 0,
            turn: Arc::new(turn),
            admission: view.admit_request(request),
            resumed: ResumeState::default(),
            attempts_before: 0,
            rehearsal: true,
            closing: None,
            cancel: CancellationToken::new(),
            env: CallEnv::new(
                shared.clock.clone(),
                shared.store.clone(),
                Arc::new(NoProbe),
            ),
        }
    }
}
