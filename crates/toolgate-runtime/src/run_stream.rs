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

use crate::{Delivery, Piece, RunReport, Session, SessionError, Subscription};

/// Everything that happens in a run: a [`Stream`] of [`Update`]s that ends with the report.
#[must_use = "nothing happens until the stream is polled"]
pub struct RunStream(BoxStream<'static, Update>);

/// Something that happened in a run.
#[derive(Debug)]
pub enum Update {
    /// A piece of the reply.
    Piece(Arc<Piece>),
    /// An event of the session; it is durable.
    Event(Arc<Event>),
    /// So much was missed because nobody read the stream in time. Events can be read from the store.
    Lagged(u64),
    /// The end.
    End(Box<Result<RunReport, SessionError>>),
}

struct Streaming {
    run: Option<BoxFuture<'static, Result<RunReport, SessionError>>>,
    report: Option<Result<RunReport, SessionError>>,
    events: Subscription,
    session: Session,
}

impl RunStream {
    pub(crate) fn new(
        session: &Session,
        run: BoxFuture<'static, Result<RunReport, SessionError>>,
    ) -> Self {
        let (events, session) = (session.bus().subscribe(), session.clone());
        let streaming = Streaming {
            run: Some(run),
            report: None,
            events,
            session,
        };
        Self(stream::unfold(streaming, Streaming::step).boxed())
    }
}

impl Streaming {
    async fn step(mut self) -> Option<(Update, Self)> {
        loop {
            if let Some(report) = self.report.take() {
                // What was published before the end comes before it.
                while let Some(delivery) = self.events.try_next() {
                    if let Some(update) = self.update(delivery) {
                        self.report = Some(report);
                        return Some((update, self));
                    }
                }
                return Some((Update::End(Box::new(report)), self));
            }
            let run = self.run.as_mut()?;
            let delivery = tokio::select! {
                biased;
                delivery = self.events.next() => delivery,
                report = run => {
                    (self.report, self.run) = (Some(report), None);
                    continue;
                }
            };
            if let Some(update) = delivery.and_then(|delivery| self.update(delivery)) {
                return Some((update, self));
            }
        }
    }

    /// What is ours of what came.
    fn update(&self, delivery: Delivery) -> Option<Update> {
        let ours = |session| session == self.session.id();
        match delivery {
            Delivery::Event(event) => {
                ours(event.turn_info().session).then_some(Update::Event(event))
            }
            Delivery::Piece(piece) => ours(piece.turn.session).then_some(Update::Piece(piece)),
            Delivery::Lagged(missed) => Some(Update::Lagged(missed)),
        }
    }
}

impl Stream for RunStream {
    type Item = Update;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Update>> {
        self.0.poll_next_unpin(cx)
    }
}

impl std::fmt::Debug for RunStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunStream")
    }
}
