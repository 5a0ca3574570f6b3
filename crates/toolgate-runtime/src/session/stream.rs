//! Everything that happens in a run, as it happens.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::watch;
use toolgate_core::{Event, SessionId};

use crate::{
    BusDelivery, BusSubscription, RunReport, SessionError, StreamPiece,
    session::handle::{SharedRunResult, wait_for_end},
};

/// Everything that happens in a run: a [`Stream`] of [`RunUpdate`]s that ends with the report.
///
/// It only observes: dropping it leaves the run as it is.
#[must_use = "updates are seen only by reading the stream"]
pub struct RunStream(BoxStream<'static, RunUpdate>);

/// Something that happened in a run.
#[derive(Debug)]
pub enum RunUpdate {
    /// A piece of the reply.
    Piece(Arc<StreamPiece>),
    /// An event of the session; it is durable.
    Event(Arc<Event>),
    /// This many updates were missed because the stream was not read in time. Events can be loaded
    /// from the store.
    Lagged(u64),
    /// The end of the run.
    End(Box<Result<RunReport, Arc<SessionError>>>),
}

struct RunStreamState {
    session: SessionId,
    events: BusSubscription,
    run: watch::Receiver<Option<SharedRunResult>>,
    progress: StreamProgress,
}

/// How far a stream has got.
enum StreamProgress {
    Running,
    /// The run has ended; updates from before the end may be left.
    Ended(Box<SharedRunResult>),
    Done,
}

impl RunStream {
    pub(crate) fn new(
        session: SessionId,
        events: BusSubscription,
        run: watch::Receiver<Option<SharedRunResult>>,
    ) -> Self {
        let streaming = RunStreamState {
            session,
            events,
            run,
            progress: StreamProgress::Running,
        };
        Self(stream::unfold(streaming, RunStreamState::next_update).boxed())
    }
}

impl RunStreamState {
    async fn next_update(mut self) -> Option<(RunUpdate, Self)> {
        loop {
            let delivery = match std::mem::replace(&mut self.progress, StreamProgress::Done) {
                StreamProgress::Done => return None,
                // Everything that was published before the end comes before it.
                StreamProgress::Ended(result) => match self.events.try_next() {
                    Some(delivery) => {
                        self.progress = StreamProgress::Ended(result);
                        delivery
                    }
                    None => return Some((RunUpdate::End(result), self)),
                },
                StreamProgress::Running => {
                    self.progress = StreamProgress::Running;
                    tokio::select! {
                        biased;
                        Some(delivery) = self.events.next() => delivery,
                        result = wait_for_end(&mut self.run) => {
                            self.progress = StreamProgress::Ended(Box::new(result));
                            continue;
                        }
                    }
                }
            };
            if let Some(update) = self.to_update(delivery) {
                return Some((update, self));
            }
        }
    }

    /// Converts a delivery, if it belongs to this session.
    fn to_update(&self, delivery: BusDelivery) -> Option<RunUpdate> {
        let ours = |session| session == self.session;
        match delivery {
            BusDelivery::Event(event) => {
                ours(event.turn_info().session).then_some(RunUpdate::Event(event))
            }
            BusDelivery::Piece(piece) => {
                ours(piece.turn.session).then_some(RunUpdate::Piece(piece))
            }
            BusDelivery::Lagged(missed) => Some(RunUpdate::Lagged(missed)),
        }
    }
}

impl Stream for RunStream {
    type Item = RunUpdate;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RunUpdate>> {
        self.0.poll_next_unpin(cx)
    }
}

impl std::fmt::Debug for RunStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunStream")
    }
}
