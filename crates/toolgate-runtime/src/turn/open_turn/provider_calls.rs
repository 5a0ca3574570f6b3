//! Provider-executed calls: recorded like all others, but not run here.

use std::sync::Arc;

use toolgate_core::{
    CallError, Digest, ErrorCategory, ExecutorTag, Json, ProviderCall, SettledOutcome, Status,
    ToolEvent,
};

use super::OpenTurn;
use crate::journal::{JournalError, PendingEvent};

impl OpenTurn {
    /// Settles every provider-executed call that is not settled yet.
    pub(crate) async fn settle_provider_calls(&self) -> Result<(), JournalError> {
        let open: Vec<(usize, Arc<ProviderCall>)> = {
            let state = self.lock_state();
            let slots = state.turn.slots().iter().zip(&state.work).enumerate();
            let open = slots.filter(|(_, (slot, _))| slot.status().is_none());
            open.filter_map(|(at, (_, work))| Some((at, work.ran.clone()?)))
                .collect()
        };
        for (at, ran) in open {
            self.record_provider_start(at);
            self.close_call(at, provider_outcome(&ran)).await?;
        }
        Ok(())
    }

    /// Records that the call has run at the provider.
    fn record_provider_start(&self, at: usize) {
        let mut state = self.lock_state();
        let arguments_digest: Digest = state.work[at].admission.arguments.digest();
        let executor = Some(ExecutorTag::ProviderNative);
        let event = ToolEvent::ToolExecutionStarted {
            attempt: 1,
            executor,
            external: true,
            arguments_digest,
            arguments: None,
        };
        let invocation = state.turn.slots()[at].invocation().clone();
        // A start that was recorded before the process was lost is not recorded again.
        if state.turn.apply(invocation.id, &event).is_ok() {
            drop(
                self.shared
                    .journal
                    .append([PendingEvent::Tool(invocation, event)], []),
            );
        }
    }
}

fn provider_outcome(ran: &ProviderCall) -> SettledOutcome {
    let status = if ran.failed {
        Status::ExecutorError
    } else {
        Status::Ok
    };
    let mut settled = SettledOutcome::new(status);
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
