//! Processes the messages that other processes left in the store for this session: answers,
//! results, interruptions, rejections.

use std::sync::{Arc, atomic::Ordering};

use toolgate_core::{CallId, MailboxItem, SettledOutcome, TurnEvent, TurnId, TurnInfo};

use crate::{
    DeliverError, DispatchError, Dispatcher,
    journal::{BatchExtras, PendingEvent},
};

impl Dispatcher {
    /// Processes all messages so far, in order, each once.
    pub(crate) async fn process_mailbox(&self) -> Result<(), DispatchError> {
        const PAGE: usize = 64;
        let _one_at_a_time = self.0.taking.lock().await;
        loop {
            let after = self.0.posts_seen.load(Ordering::SeqCst);
            let posts = self.0.store.posts(self.0.session, after, PAGE).await?;
            let full = posts.len() == PAGE;
            for (number, post) in posts {
                self.process_message(number, post).await?;
                // Only now: a message that failed is processed again.
                self.0.posts_seen.store(number, Ordering::SeqCst);
            }
            if !full {
                return Ok(());
            }
        }
    }

    async fn process_message(&self, number: u64, post: MailboxItem) -> Result<(), DispatchError> {
        match post {
            MailboxItem::Answer {
                turn,
                call,
                generation,
            } => self.process_answer(number, turn, call, generation).await,
            MailboxItem::Result {
                turn,
                call,
                outcome,
            } => {
                let delivered = self
                    .deliver(turn, call, SettledOutcome::clone(&outcome).into())
                    .await;
                // A rejection is in the log by now; a failed journal has to stop the processing.
                match delivered {
                    Err(DeliverError::Journal(error)) => return Err(error.into()),
                    Err(DeliverError::Turn(error)) => return Err(*error),
                    Ok(()) | Err(DeliverError::Rejected(_) | DeliverError::NoApprover) => {}
                }
                // Not the same write as the result: after a crash in between, the result is
                // delivered again and rejected as a duplicate.
                self.mark_processed(number, None).await
            }
            MailboxItem::Refused {
                turn,
                call,
                what,
                code,
            } => {
                let event = TurnEvent::InputRejected {
                    invocation_id: call,
                    what,
                    code,
                };
                let draft = self
                    .load_turn_info(turn)
                    .await?
                    .map(|info| PendingEvent::Turn(info, event));
                self.mark_processed(number, draft).await
            }
            MailboxItem::Interrupt { turn, reason } => {
                // While a turn is being resumed, it is unknown whether it has loaded its state
                // already.
                let _nothing_is_taken_up = self.0.posting.lock().await;
                let draft = match self.0.driven_turn(turn) {
                    Some(active) => {
                        if let Some(durable) = active.interrupt_turn(&reason) {
                            durable.await?;
                        }
                        None
                    }
                    None => self.interruption_event(turn, &reason).await?,
                };
                self.mark_processed(number, draft).await
            }
        }
    }

    /// Applies an answer. If the turn has no driver, the answer is in the store and is loaded when
    /// the turn is resumed.
    async fn process_answer(
        &self,
        number: u64,
        turn: TurnId,
        call: CallId,
        generation: u32,
    ) -> Result<(), DispatchError> {
        let answer = self.0.store.load_answer(call, generation).await?;
        // A turn that is being resumed may have loaded its answers before this one came, and is not
        // registered yet.
        let _nothing_is_taken_up = self.0.posting.lock().await;
        match (self.0.driven_turn(turn), answer) {
            (Some(active), Some(answer)) => {
                Ok(active.apply_answer(call, &answer, Some(number)).0.await?)
            }
            _ => self.mark_processed(number, None).await,
        }
    }

    /// Returns the event that stops a turn without a driver: it stops when it is resumed.
    async fn interruption_event(
        &self,
        turn: TurnId,
        reason: &str,
    ) -> Result<Option<PendingEvent>, DispatchError> {
        if self.0.store.load_turn_end(turn).await?.is_some() {
            return Ok(None);
        }
        let event = TurnEvent::TurnInterrupted {
            reason: self.0.visible_text(reason),
        };
        Ok(self
            .load_turn_info(turn)
            .await?
            .map(|info| PendingEvent::Turn(info, event)))
    }

    async fn load_turn_info(&self, turn: TurnId) -> Result<Option<Arc<TurnInfo>>, DispatchError> {
        let requests = self.0.store.load_turn_requests(turn).await?;
        Ok(requests
            .filter(|requests| requests.info.session == self.0.session)
            .map(|requests| requests.info.clone()))
    }

    /// Records a message as processed, in the same write as its event: after a crash it is not
    /// processed twice.
    async fn mark_processed(
        &self,
        number: u64,
        draft: Option<PendingEvent>,
    ) -> Result<(), DispatchError> {
        let along = BatchExtras {
            taken_posts: Some(number),
            ..BatchExtras::default()
        };
        Ok(self.0.journal.append_with(draft, along).await?)
    }
}
