//! Takes up what others have left in the store for this session: answers, results, interruptions, refusals.

use std::sync::{Arc, atomic::Ordering};

use toolgate_core::{CallId, Post, Record, RecordKey, Settled, TurnEvent, TurnId, TurnInfo};

use crate::{
    DispatchError, Dispatcher, PostError,
    journal::{Along, Draft},
};

impl Dispatcher {
    /// Takes up everything that was left so far, in order, each once.
    pub(crate) async fn take_posts(&self) -> Result<(), DispatchError> {
        const PAGE: usize = 64;
        let _one_at_a_time = self.0.taking.lock().await;
        loop {
            let after = self.0.posts_seen.load(Ordering::SeqCst);
            let posts = self.0.store.posts(self.0.session, after, PAGE).await?;
            let full = posts.len() == PAGE;
            for (number, post) in posts {
                self.take_post(number, post).await?;
                self.0.posts_seen.store(number, Ordering::SeqCst);
            }
            if !full {
                return Ok(());
            }
        }
    }

    async fn take_post(&self, number: u64, post: Post) -> Result<(), DispatchError> {
        match post {
            Post::Answer {
                turn,
                call,
                generation,
            } => self.take_answer(number, turn, call, generation).await,
            Post::Result {
                turn,
                call,
                outcome,
            } => {
                let delivered = self
                    .deliver(turn, call, Settled::clone(&outcome).into())
                    .await;
                // What is refused is in the log by now; a journal that failed is another matter.
                match delivered {
                    Err(PostError::Journal(error)) => return Err(error.into()),
                    Err(PostError::Turn(error)) => return Err(*error),
                    Ok(()) | Err(PostError::Refused(_) | PostError::Nameless) => {}
                }
                self.taken(number, None).await
            }
            Post::Refused {
                turn,
                call,
                what,
                code,
            } => {
                let event = TurnEvent::PostRefused {
                    invocation_id: call,
                    what,
                    code,
                };
                let draft = self
                    .turn_info(turn)
                    .await?
                    .map(|info| Draft::Turn(info, event));
                self.taken(number, draft).await
            }
            Post::Interrupt { turn, reason } => {
                // While a turn is taken up, it is not known whether it has been read already.
                let _nothing_is_taken_up = self.0.posting.lock().await;
                let draft = match self.0.active(turn) {
                    Some(active) => {
                        if let Some(durable) = active.interrupt(&reason) {
                            durable.await?;
                        }
                        None
                    }
                    None => self.interruption(turn, &reason).await?,
                };
                self.taken(number, draft).await
            }
        }
    }

    /// An answer to a turn that nobody drives is in the store and is read when the turn is taken up.
    async fn take_answer(
        &self,
        number: u64,
        turn: TurnId,
        call: CallId,
        generation: u32,
    ) -> Result<(), DispatchError> {
        let record = self
            .0
            .store
            .record(&RecordKey::Answer(call, generation))
            .await?;
        // A turn that is being taken up may have looked for answers before this one came, and is not driven yet.
        let _nothing_is_taken_up = self.0.posting.lock().await;
        match (self.0.active(turn), record) {
            (Some(active), Some(Record::Answer(answer))) => {
                Ok(active.take_answer(call, &answer, Some(number)).0.await?)
            }
            _ => self.taken(number, None).await,
        }
    }

    /// What is written to stop a turn that nobody drives: it stops when it is taken up.
    async fn interruption(
        &self,
        turn: TurnId,
        reason: &str,
    ) -> Result<Option<Draft>, DispatchError> {
        if self
            .0
            .store
            .record(&RecordKey::Ended(turn))
            .await?
            .is_some()
        {
            return Ok(None);
        }
        let event = TurnEvent::TurnInterrupted {
            reason: self.0.said_text(reason),
        };
        Ok(self
            .turn_info(turn)
            .await?
            .map(|info| Draft::Turn(info, event)))
    }

    async fn turn_info(&self, turn: TurnId) -> Result<Option<Arc<TurnInfo>>, DispatchError> {
        Ok(
            match self.0.store.record(&RecordKey::Requests(turn)).await? {
                Some(Record::Requests(requests)) if requests.info.session == self.0.session => {
                    Some(requests.info.clone())
                }
                _ => None,
            },
        )
    }

    async fn taken(&self, number: u64, draft: Option<Draft>) -> Result<(), DispatchError> {
        let along = Along {
            taken_posts: Some(number),
            ..Along::default()
        };
        Ok(self.0.journal.write_along(draft, along).await?)
    }
}
