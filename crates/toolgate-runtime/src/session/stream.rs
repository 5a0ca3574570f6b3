//! Everything that happens in a run, as it happens.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{
    Stream, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use toolgate_core::Event;

use crate::{BusDelivery, BusSubscription, RunReport, Session, SessionError, StreamPiece};

/// Everything that happens in a run: a [`Stream`] of [`RunUpdate`]s that ends with the report.
#[must_use = "nothing happens until the stream is polled"]
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
    End(Box<Result<RunReport, SessionError>>),
}

struct RunStreamState {
    run: Option<BoxFuture<'static, Result<RunReport, SessionError>>>,
    report: Option<Result<RunReport, SessionError>>,
    events: BusSubscription,
    session: Session,
}

impl RunStream {
    pub(crate) fn new(
        session: &Session,
        run: BoxFuture<'static, Result<RunReport, SessionError>>,
    ) -> Self {
        let events = session.bus().subscribe();
        let session = session.clone();
        let streaming = RunStreamState {
            run: Some(run),
            report: None,
            events,
            session,
        };
        Self(stream::unfold(streaming, RunStreamState::next_update).boxed())
    }
}

impl RunStreamState {
    async fn next_update(mut self) -> Option<(RunUpdate, Self)> {
        loop {
            if let Some(report) = self.report.take() {
                // Everything that was published before the end comes before it.
                while let Some(delivery) = self.events.try_next() {
                    if let Some(update) = self.to_update(delivery) {
                        self.report = Some(report);
                        return Some((update, self));
                    }
                }
                return Some((RunUpdate::End(Box::new(report)), self));
            }
            let run = self.run.as_mut()?;
            let delivery = tokio::select! {
                biased;
                delivery = self.events.next() => delivery,
                report = run => {
                    self.report = Some(report);
                    self.run = None;
                    continue;
                }
            };
            if let Some(update) = delivery.and_then(|delivery| self.to_update(delivery)) {
                return Some((update, self));
            }
        }
    }

    /// Converts a delivery, if it belongs to this session.
    fn to_update(&self, delivery: BusDelivery) -> Option<RunUpdate> {
        let ours = |session| session == self.session.id();
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
