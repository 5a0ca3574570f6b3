//! Writes a session's events: numbered, in order, durable before they are published.
//!
//! Whoever has something to write hands it over and goes on; if it has to be durable first, it waits for the
//! answer. What is handed over while a write is under way goes out together in the next one. With a store
//! that answers at once no task is ever started; with one that does not, a task of its own finishes the
//! write, so that a caller who stops waiting cannot tear it.
//!
//! Only one journal of a session writes at a time, whatever process it is in: it holds the lease of the session, and
//! once another one has taken that, nothing it hands over is written any more.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::oneshot;
use toolgate_core::{
    Batch, Clock, Event, InvalidEvent, Invocation, LedgerDraft, LoopEvent, Record, RecordKey,
    SessionId, StoreError, StoreHandle, ToolEvent, TurnEvent, TurnInfo, contained, contained_sync,
};

use crate::{Bus, lease::Driving};

/// The log of one session. Cloning shares it.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    session: SessionId,
    store: StoreHandle,
    driving: Driving,
    bus: Bus,
    clock: Arc<dyn Clock>,
    runtime: tokio::runtime::Handle,
    state: Mutex<State>,
}

struct State {
    /// The number of the last event handed over.
    sequence: u64,
    /// The number of the last event in the store.
    durable_sequence: u64,
    /// How many writes were handed over, and how many are durable.
    handed: u64,
    durable: u64,
    waiting: Batch,
    writing: bool,
    waiters: Vec<(u64, oneshot::Sender<Result<(), JournalError>>)>,
    failed: Option<JournalError>,
}

/// Why the journal cannot go on. From then on nothing is written, and nothing that has to be recorded runs.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The store refused or failed; the cause is kept.
    #[error("the journal of session {session} could not be written")]
    Store {
        /// Which session.
        session: SessionId,
        /// What the store said.
        #[source]
        source: Arc<StoreError>,
    },
    /// An event was not valid.
    #[error("an event could not be made")]
    Event(#[from] InvalidEvent),
    /// The runtime was shut down while a write was under way.
    #[error("the runtime stopped before the journal was written")]
    Stopped,
}

/// What is about to be written.
pub(crate) enum Draft {
    Tool(Arc<Invocation>, ToolEvent),
    Turn(Arc<TurnInfo>, TurnEvent),
    Loop(Arc<TurnInfo>, LoopEvent),
}

/// What is written along with events, in the same write.
#[derive(Default)]
pub(crate) struct Along {
    pub(crate) records: Vec<(RecordKey, Record)>,
    pub(crate) entries: Vec<LedgerDraft>,
    pub(crate) taken_posts: Option<u64>,
}

impl Along {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.entries.is_empty() && self.taken_posts.is_none()
    }
}

impl JournalError {
    /// Whether somebody else drives the session now.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Store { source, .. } if matches!(**source, StoreError::Fenced { .. }))
    }
}

impl Journal {
    /// Takes the lease of `session` and takes up its log where the store has it.
    ///
    /// The lease runs for `span` after the last write and is renewed while a turn is driven. If somebody else holds it,
    /// the error says who.
    pub async fn open(
        session: SessionId,
        store: StoreHandle,
        bus: Bus,
        clock: Arc<dyn Clock>,
        span: Duration,
    ) -> Result<Self, JournalError> {
        let driving = Driving::take(session, store.clone(), clock.clone(), span, false).await;
        let driving = driving.map_err(|source| JournalError::Store {
            session,
            source: Arc::new(source),
        })?;
        Ok(Self::under(driving, store, bus, clock))
    }

    /// Takes up the log of a session under a lease.
    pub(crate) fn under(
        driving: Driving,
        store: StoreHandle,
        bus: Bus,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let session = driving.lease.session;
        let sequence = driving.lease.revision;
        let state = State {
            sequence,
            durable_sequence: sequence,
            handed: 0,
            durable: 0,
            waiting: Batch::default(),
            writing: false,
            waiters: Vec::new(),
            failed: None,
        };
        Self(Arc::new(Inner {
            session,
            store,
            driving,
            bus,
            clock,
            runtime: tokio::runtime::Handle::current(),
            state: Mutex::new(state),
        }))
    }

    /// The number of the last event handed over.
    pub fn sequence(&self) -> u64 {
        self.0.state().sequence
    }

    /// Why nothing is written any more, if so.
    pub fn failure(&self) -> Option<JournalError> {
        self.0.state().failed.clone()
    }

    /// The lease under which it writes.
    pub(crate) fn driving(&self) -> &Driving {
        &self.0.driving
    }

    /// Lets the lease run on. From the first failure on nothing is written.
    pub(crate) async fn renew(&self) -> Result<(), JournalError> {
        let renewed = self.0.driving.renew().await;
        renewed.map_err(|source| {
            let error = JournalError::Store {
                session: self.0.session,
                source: Arc::new(source),
            };
            // A store that is away for a moment says nothing about who drives.
            if error.is_fenced() {
                self.0.state().fail(error)
            } else {
                error
            }
        })
    }

    /// Completes when everything handed over so far is durable.
    pub(crate) fn flushed(&self) -> Durable {
        let handed = self.0.state().handed;
        self.0.when_durable(handed)
    }

    /// Hands over events and records that belong together. The order of calls is the order of the log.
    pub(crate) fn write(
        &self,
        drafts: impl IntoIterator<Item = Draft>,
        records: impl IntoIterator<Item = (RecordKey, Record)>,
    ) -> Durable {
        self.write_along(
            drafts,
            Along {
                records: records.into_iter().collect(),
                ..Along::default()
            },
        )
    }

    /// The same, with whatever else belongs to it.
    pub(crate) fn write_along(
        &self,
        drafts: impl IntoIterator<Item = Draft>,
        along: Along,
    ) -> Durable {
        let now = self.0.clock.now();
        let mut state = self.0.state();
        if let Some(error) = &state.failed {
            return Durable::Now(Err(error.clone()));
        }
        let before = state.sequence;
        for draft in drafts {
            let sequence = state.sequence + 1;
            let event = match draft {
                Draft::Tool(invocation, event) => Event::tool(sequence, now, invocation, event),
                Draft::Turn(turn, event) => Event::turn(sequence, now, turn, event),
                Draft::Loop(turn, event) => Event::around(sequence, now, turn, event),
            };
            match event {
                Ok(event) => state.waiting.events.push(Arc::new(event)),
                Err(error) => return Durable::Now(Err(state.fail(error.into()))),
            }
            state.sequence = sequence;
        }
        if state.sequence == before && along.is_empty() {
            // Nothing to write: whatever came before is all there is to wait for.
            let handed = state.handed;
            drop(state);
            return self.0.when_durable(handed);
        }
        join(&mut state.waiting.records, along.records);
        join(&mut state.waiting.entries, along.entries);
        state.waiting.taken_posts = along.taken_posts.or(state.waiting.taken_posts);
        state.handed += 1;
        let ticket = state.handed;
        let lead = !std::mem::replace(&mut state.writing, true);
        drop(state);
        if lead {
            Inner::write_out(&self.0);
        }
        self.0.when_durable(ticket)
    }
}

impl Inner {
    // Every method leaves the state whole before it lets go of the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes batches until nothing is left. Only one caller at a time is here: the one who set `writing`.
    fn write_out(self: &Arc<Self>) {
        while let Some((mut write, events, ticket)) = self.next_batch() {
            match contained_sync(|| write.as_mut().now_or_never()) {
                Ok(Some(result)) => self.written(events, ticket, result),
                Err(_) => self.written(events, ticket, Err(store_panicked())),
                Ok(None) => {
                    // Not `tokio::spawn`: a tool may report progress from a thread of its own.
                    let finish = Finish {
                        inner: self.clone(),
                        done: false,
                    };
                    self.runtime.spawn(finish.run(write, events, ticket));
                    return;
                }
            }
        }
    }

    #[expect(
        clippy::type_complexity,
        reason = "used once, and the parts have names where they are used"
    )]
    fn next_batch(
        &self,
    ) -> Option<(
        BoxFuture<'static, Result<u64, StoreError>>,
        Vec<Arc<Event>>,
        u64,
    )> {
        let mut state = self.state();
        let batch = std::mem::take(&mut state.waiting);
        if batch.is_empty() || state.failed.is_some() {
            state.writing = false;
            return None;
        }
        let events = batch.events.clone();
        let write = self.store.append(
            self.session,
            self.driving.position(state.durable_sequence),
            batch,
        );
        Some((write, events, state.handed))
    }

    fn written(&self, events: Vec<Arc<Event>>, ticket: u64, result: Result<u64, StoreError>) {
        let mut state = self.state();
        match result {
            Ok(revision) => {
                state.durable_sequence = revision;
                state.durable = ticket;
                // Published under the lock: the order on the bus is the order of the log.
                for event in events {
                    self.bus.publish(event);
                }
                state.wake(ticket);
            }
            Err(source) => {
                state.fail(JournalError::Store {
                    session: self.session,
                    source: Arc::new(source),
                });
            }
        }
    }

    fn when_durable(&self, ticket: u64) -> Durable {
        let mut state = self.state();
        if state.durable >= ticket {
            return Durable::Now(Ok(()));
        }
        if let Some(error) = &state.failed {
            return Durable::Now(Err(error.clone()));
        }
        let (tell, told) = oneshot::channel();
        state.waiters.push((ticket, tell));
        Durable::Later(told)
    }
}

impl State {
    fn fail(&mut self, error: JournalError) -> JournalError {
        self.failed = Some(error.clone());
        for (_, waiter) in self.waiters.drain(..) {
            let _ = waiter.send(Err(error.clone()));
        }
        error
    }

    fn wake(&mut self, ticket: u64) {
        for (wanted, waiter) in std::mem::take(&mut self.waiters) {
            if wanted <= ticket {
                // Whoever stopped waiting does not need the answer.
                let _ = waiter.send(Ok(()));
            } else {
                self.waiters.push((wanted, waiter));
            }
        }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("session", &self.0.session)
            .field("sequence", &self.sequence())
            .finish()
    }
}

/// Finishes a write in a task of its own. If the task is dropped with its runtime, nobody waits for ever.
struct Finish {
    inner: Arc<Inner>,
    done: bool,
}

impl Finish {
    async fn run(
        mut self,
        write: BoxFuture<'static, Result<u64, StoreError>>,
        events: Vec<Arc<Event>>,
        ticket: u64,
    ) {
        let result = contained(write)
            .await
            .unwrap_or_else(|_| Err(store_panicked()));
        self.inner.written(events, ticket, result);
        // Whoever waited for this write goes first, so that what they hand over next goes out together: the calls that
        // end, the driver that hears of it, the calls that it starts. Without it the quickest of many calls has a
        // write of its own, and the others wait for that.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.done = true;
        self.inner.write_out();
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        if !self.done {
            self.inner.state().fail(JournalError::Stopped);
        }
    }
}

/// Adds to a list; to an empty one without copying.
fn join<T>(list: &mut Vec<T>, more: Vec<T>) {
    if list.is_empty() {
        *list = more;
    } else {
        list.extend(more);
    }
}

fn store_panicked() -> StoreError {
    StoreError::Backend("the store panicked".into())
}

/// Completes when what was handed over is durable. Dropping it does not take the write back.
#[must_use = "a write is only known to be durable once this completes"]
pub(crate) enum Durable {
    Now(Result<(), JournalError>),
    Later(oneshot::Receiver<Result<(), JournalError>>),
}

impl Future for Durable {
    type Output = Result<(), JournalError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(result) => Poll::Ready(result.clone()),
            Self::Later(told) => Pin::new(told)
                .poll(cx)
                .map(|told| told.unwrap_or(Err(JournalError::Stopped))),
        }
    }
}
