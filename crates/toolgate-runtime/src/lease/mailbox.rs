//! Processes the messages that were left in the store for this session, by this process or another:
//! answers, results, interruptions, rejections.

use std::sync::atomic::Ordering;

use tokio::sync::MutexGuard;
use toolgate_core::{InputKind, MailboxItem, RejectCode, TurnEvent, TurnId};

use crate::{
    DispatchError, Dispatcher,
    journal::{BatchExtras, PendingEvent, WriteAck},
};

impl Dispatcher {
    /// Processes all messages so far, in order, each once.
    pub(crate) async fn process_mailbox(&self) -> Result<(), DispatchError> {
        let inputs = self.0.inputs.lock().await;
        self.apply_mailbox(&inputs).await
    }

    /// Processes all messages so far; the guard shows that no other input is applied meanwhile.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a message that was handed over is not processed again, and the
    /// others stay in the mailbox.
    pub(crate) async fn apply_mailbox(
        &self,
        _inputs: &MutexGuard<'_, ()>,
    ) -> Result<(), DispatchError> {
        const PAGE: usize = 64;
        loop {
            let after = self.0.posts_seen.load(Ordering::SeqCst);
            let posts = self.0.store.posts(self.0.session, after, PAGE).await?;
            let full = posts.len() == PAGE;
            let mut writes = Vec::with_capacity(posts.len());
            for (number, post) in posts {
                writes.push(self.apply_message(number, post).await?);
                // Only now: a message that failed is processed again.
                self.0.posts_seen.store(number, Ordering::SeqCst);
            }
            self.0.await_all(writes).await?;
            if !full {
                return Ok(());
            }
        }
    }

    /// Hands over what follows from a message. If its turn has no driver, its answer or result is in
    /// the store and is loaded when the turn is resumed.
    async fn apply_message(
        &self,
        number: u64,
        post: MailboxItem,
    ) -> Result<WriteAck, DispatchError> {
        let along = BatchExtras::consuming(number);
        let event = match post {
            MailboxItem::Answer {
                turn,
                call,
                generation,
            } => {
                if let Some(active) = self.0.driven_turn(turn)
                    && let Some(answer) = self.0.store.load_answer(call, generation).await?
                {
                    return Ok(active.apply_answer(call, &answer, along));
                }
                None
            }
            MailboxItem::Result {
                turn,
                call,
                attempt,
                ..
            } => {
                if let Some(active) = self.0.driven_turn(turn) {
                    // An item that was stored by an earlier version does not name its attempt; one
                    // about an earlier attempt was loaded when the turn was resumed.
                    let attempt = if attempt == 0 {
                        active.newest_attempt(call)
                    } else {
                        attempt
                    };
                    if let Some(outcome) = self.0.store.load_result(call, attempt).await? {
                        return Ok(active.apply_result(call, (attempt, outcome), along));
                    }
                }
                None
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
                self.turn_event(turn, event).await?
            }
            // The log says that there was an input, as far as it says what it was about.
            MailboxItem::Unreadable { about: None } => None,
            MailboxItem::Unreadable {
                about: Some((turn, call)),
            } => {
                let event = TurnEvent::InputRejected {
                    invocation_id: call,
                    what: InputKind::Decision,
                    code: RejectCode::NotADecision,
                };
                self.turn_event(turn, event).await?
            }
            MailboxItem::Interrupt { turn, reason } => match self.0.driven_turn(turn) {
                Some(active) => {
                    let consuming = BatchExtras::consuming(number);
                    match active.interrupt_turn(&reason, consuming) {
                        Some(durable) => return Ok(durable),
                        // It has stopped already.
                        None => None,
                    }
                }
                None => self.interruption_event(turn, &reason).await?,
            },
        };
        // The same write as its event: after a crash it is not processed twice.
        Ok(self.0.journal.append_with(event, along))
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
        let reason = self.0.visible_text(reason);
        self.turn_event(turn, TurnEvent::TurnInterrupted { reason })
            .await
    }

    /// Returns an event of a turn of this session; nothing if there is no such turn.
    async fn turn_event(
        &self,
        turn: TurnId,
        event: TurnEvent,
    ) -> Result<Option<PendingEvent>, DispatchError> {
        let requests = self.0.store.load_turn_requests(turn).await?;
        Ok(requests
            .filter(|requests| requests.info.session == self.0.session)
            .map(|requests| PendingEvent::Turn(requests.info.clone(), event)))
    }
}
