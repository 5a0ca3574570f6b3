//! Calls that the provider has made by itself: recorded like all others, and run by nobody here.

use std::sync::Arc;

use toolgate_core::{
    CallError, Digest, ErrorCategory, ExecutorTag, Json, ProviderCall, Settled, Status, ToolEvent,
};

use super::Active;
use crate::journal::{Draft, JournalError};

impl Active {
    /// Settles every call that the provider has made, unless that was done before.
    pub(crate) async fn settle_ran(&self) -> Result<(), JournalError> {
        let open: Vec<(usize, Arc<ProviderCall>)> = {
            let state = self.state();
            let slots = state.turn.slots().iter().zip(&state.work).enumerate();
            let open = slots.filter(|(_, (slot, _))| slot.status().is_none());
            open.filter_map(|(at, (_, work))| Some((at, work.ran.clone()?)))
                .collect()
        };
        for (at, ran) in open {
            self.start_ran(at);
            self.close(at, settled(&ran)).await?;
        }
        Ok(())
    }

    /// Says that the call has run elsewhere.
    fn start_ran(&self, at: usize) {
        let mut state = self.state();
        let arguments_digest: Digest = state.work[at].admission.arguments.digest();
        let executor = Some(ExecutorTag::ProviderNative);
        let event = ToolEvent::ToolExecutionStarted {
            attempt: 1,
            executor,
            external: true,
            arguments_digest,
        };
        let invocation = state.turn.slots()[at].invocation().clone();
        // One that was said to have started before its process was lost is not started again.
        if state.turn.apply(invocation.id, &event).is_ok() {
            drop(
                self.shared
                    .journal
                    .write([Draft::Tool(invocation, event)], []),
            );
        }
    }
}

fn settled(ran: &ProviderCall) -> Settled {
    let status = if ran.failed {
        Status::ExecutorError
    } else {
        Status::Ok
    };
    let mut settled = Settled::new(status);
    if let Ok(value) = Json::new(ran.result.clone()) {
        settled.value = value;
    }
    settled.executor = Some(ExecutorTag::ProviderNative);
    settled.attempts = 1;
    if ran.failed {
        settled.error = Some(CallError::new(
            ErrorCategory::Unknown,
            "the provider could not run the tool",
        ));
    }
    settled
}
