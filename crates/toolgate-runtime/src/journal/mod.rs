//! Writes a session's events: numbered, in order, durable before they are published.
//!
//! A caller hands its events over and continues; if they have to be durable first, it awaits the
//! answer. What is handed over while a write is under way is written together in the next one. With
//! a store that answers at once no task is ever started; with a slower one, a separate task
//! finishes the write, so that a caller that stops waiting cannot tear it.
//!
//! A caller that hands over more right afterwards can have a write held: it is written with what
//! follows, at the latest before anything waits ([`held`]).
//!
//! Only one journal of a session writes at a time, whatever process it is in: it holds the lease of
//! the session. Once another journal has taken the lease, nothing more is written here.

pub(crate) mod bus;
pub(crate) mod held;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Clock, Event, InvalidEvent, Invocation, LedgerDraft, RecordKey, SessionEvent, SessionId,
    StoreError, StoreHandle, StoreRecord, Timestamp, ToolEvent, TurnEvent, TurnInfo, WriteBatch,
    run_contained, run_contained_sync,
};

pub(crate) use self::held::{RunnableCall, WriteTiming};
use crate::{
    Bus,
    lease::{SessionLease, SessionOrigin},
    schedule::{self, TaskSpawner},
};

/// The number of events of most writes.
const USUAL_EVENTS: usize = 8;

/// The log of one session. Clones share it.
#[derive(Clone)]
pub struct Journal(Arc<JournalWriter>);

struct JournalWriter {
    session: SessionId,
    store: StoreHandle,
    driving: SessionLease,
    bus: Bus,
    clock: Arc<dyn Clock>,
    tasks: TaskSpawner,
    state: Mutex<JournalState>,
}

struct JournalState {
    /// The number of the last event handed over.
    sequence: u64,
    /// The number of the last event in the store.
    durable_sequence: u64,
    /// The numbers of writes that were handed over, that are not held any more, and that are
    /// durable.
    handed: u64,
    released: u64,
    durable: u64,
    /// The number of calls that were started and have not come to wait yet.
    runnable: usize,
    waiting: WriteBatch,
    /// Those of the waiting records that another process may write first.
    contested: Vec<ContestedRecord>,
    writing: bool,
    waiters: Vec<(u64, oneshot::Sender<Result<(), JournalError>>)>,
    failed: Option<JournalError>,
    /// Cancelled by the first failure.
    ended: CancellationToken,
    /// The time at which the last write or renewal under the lease began.
    confirmed_at: Timestamp,
}

/// Reason why the journal failed. From then on nothing is written, and nothing that has to be
/// recorded runs.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The store rejected the write or failed.
    #[error("the journal of session {session} could not be written: {source}")]
    Store {
        /// The session's id.
        session: SessionId,
        /// The store's error.
        #[source]
        source: Arc<StoreError>,
    },
    /// An event was not valid.
    #[error("an event is not valid: {0}")]
    Event(#[from] InvalidEvent),
    /// The runtime was shut down while a write was under way.
    #[error("the runtime stopped before the journal was written")]
    Stopped,
}

/// An event to be written, before it has a number and a time.
pub(crate) enum PendingEvent {
    Tool(Arc<Invocation>, ToolEvent),
    Turn(Arc<TurnInfo>, TurnEvent),
    Loop(Arc<TurnInfo>, SessionEvent),
}

/// Records, ledger entries and the mailbox position that belong to the same write as some events.
#[derive(Default)]
pub(crate) struct BatchExtras {
    pub(crate) records: Vec<(RecordKey, StoreRecord)>,
    pub(crate) entries: Vec<LedgerDraft>,
    pub(crate) taken_posts: Option<u64>,
}

impl BatchExtras {
    /// Creates the extras of a write with these records.
    pub(crate) fn with_records(records: Vec<(RecordKey, StoreRecord)>) -> Self {
        Self {
            records,
            ..Self::default()
        }
    }

    /// Creates the extras of a write that consumes the mailbox up to item `number`.
    pub(crate) fn consuming(number: u64) -> Self {
        Self {
            taken_posts: Some(number),
            ..Self::default()
        }
    }
}

/// A record that another process may write first, and what is written then.
struct ContestedRecord {
    key: RecordKey,
    /// The number of the event that is true only with this record, if there is one.
    event: Option<u64>,
    instead: PendingEvent,
    lost: Arc<AtomicBool>,
}

/// A batch that is being written.
struct BatchInFlight {
    events: Vec<Arc<Event>>,
    ticket: u64,
    /// The time at which the write began.
    begun_at: Timestamp,
    /// The batch and its contested records, to write it again without those that lost.
    retry: Option<(WriteBatch, Vec<ContestedRecord>)>,
}

impl JournalError {
    /// Checks whether another process drives the session now.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Store { source, .. } if matches!(**source, StoreError::Fenced { .. }))
    }
}

impl Journal {
    /// Takes the lease of `session` and continues its log where the store has it.
    ///
    /// The lease is valid for `span` after the last write and is renewed while a turn is driven.
    ///
    /// # Errors
    ///
    /// Fails if another process holds the lease (the error names it) or if the store failed.
    pub async fn open(
        session: SessionId,
        store: StoreHandle,
        bus: Bus,
        clock: Arc<dyn Clock>,
        span: Duration,
    ) -> Result<Self, JournalError> {
        let driving = SessionLease::acquire(
            session,
            store.clone(),
            clock.clone(),
            span,
            false,
            SessionOrigin::default(),
        )
        .await;
        let driving = driving.map_err(|source| JournalError::Store {
            session,
            source: Arc::new(source),
        })?;
        Ok(Self::with_lease(driving, store, bus, clock))
    }

    /// Continues the log of a session under a lease.
    pub(crate) fn with_lease(
        driving: SessionLease,
        store: StoreHandle,
        bus: Bus,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let session = driving.lease.session;
        let sequence = driving.lease.revision;
        let state = JournalState {
            sequence,
            durable_sequence: sequence,
            handed: 0,
            released: 0,
            durable: 0,
            runnable: 0,
            waiting: WriteBatch::default(),
            contested: Vec::new(),
            writing: false,
            waiters: Vec::new(),
            failed: None,
            ended: CancellationToken::new(),
            confirmed_at: clock.now(),
        };
        Self(Arc::new(JournalWriter {
            session,
            store,
            driving,
            bus,
            clock,
            tasks: TaskSpawner::current(),
            state: Mutex::new(state),
        }))
    }

    /// Returns the number of the last event handed over.
    pub fn sequence(&self) -> u64 {
        self.0.lock_state().sequence
    }

    /// Returns the error since which nothing is written, if there is one.
    pub fn failure(&self) -> Option<JournalError> {
        self.0.lock_state().failed.clone()
    }

    /// Completes when nothing more is written, because another process has the lease or the store
    /// failed.
    pub(crate) fn wait_for_failure(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.lock_state().ended.clone().cancelled_owned()
    }

    /// Returns the lease under which it writes.
    pub(crate) fn lease(&self) -> &SessionLease {
        &self.0.driving
    }

    /// Renews the lease. If another process has it, nothing is written from then on.
    pub(crate) async fn renew(&self) -> Result<(), JournalError> {
        let now = self.0.clock.now();
        let renewed = self.0.driving.renew().await;
        if renewed.is_ok() {
            self.0.lock_state().confirmed_at = now;
        }
        renewed.map_err(|source| {
            let error = JournalError::Store {
                session: self.0.session,
                source: Arc::new(source),
            };
            // A store that is unreachable for a moment does not mean that the lease is lost.
            if error.is_fenced() {
                self.0.lock_state().record_failure(error)
            } else {
                error
            }
        })
    }

    /// Completes when everything handed over so far is durable.
    pub(crate) fn when_flushed(&self) -> WriteAck {
        let handed = self.0.lock_state().handed;
        WriteAck::held(&self.0, handed)
    }

    /// Checks whether the store has confirmed the lease within its duration. If it has not, another
    /// process may have taken the session.
    pub(crate) fn is_lease_current(&self) -> bool {
        let confirmed_at = self.0.lock_state().confirmed_at;
        self.0.clock.now().since(confirmed_at) < self.0.driving.span()
    }

    /// Hands over events and records that belong to one write. The order of the calls is the order
    /// of the log.
    pub(crate) fn append(
        &self,
        drafts: impl IntoIterator<Item = PendingEvent>,
        records: impl IntoIterator<Item = (RecordKey, StoreRecord)>,
    ) -> WriteAck {
        self.append_with(
            drafts,
            BatchExtras::with_records(records.into_iter().collect()),
        )
    }

    /// Hands over a record that another process may have written first, and the event that is true
    /// only with this record. If the other process was first, `instead` is written.
    ///
    /// Returns true if this record stands. The hand-over happens before the first await.
    pub(crate) fn append_first(
        &self,
        draft: Option<PendingEvent>,
        record: (RecordKey, StoreRecord),
        instead: PendingEvent,
    ) -> impl Future<Output = Result<bool, JournalError>> + Send + use<> {
        let lost = Arc::new(AtomicBool::new(false));
        let contested = ContestedRecord {
            key: record.0.clone(),
            event: None,
            instead,
            lost: lost.clone(),
        };
        let along = BatchExtras {
            records: vec![record],
            ..BatchExtras::default()
        };
        let durable = self.hand_over(draft, along, Some(contested), WriteTiming::Now);
        async move {
            durable.await?;
            Ok(!lost.load(Ordering::SeqCst))
        }
    }

    /// Hands over events together with everything else that belongs to the same write.
    pub(crate) fn append_with(
        &self,
        drafts: impl IntoIterator<Item = PendingEvent>,
        along: BatchExtras,
    ) -> WriteAck {
        self.hand_over(drafts, along, None, WriteTiming::Now)
    }

    fn hand_over(
        &self,
        drafts: impl IntoIterator<Item = PendingEvent>,
        along: BatchExtras,
        contested: Option<ContestedRecord>,
        timing: WriteTiming,
    ) -> WriteAck {
        let now = self.0.clock.now();
        let mut state = self.0.lock_state();
        // After a failure nothing is written, so that the log has no gap.
        if let Some(error) = &state.failed {
            return WriteAck::Now(Err(error.clone()));
        }
        let before = state.sequence;
        if state.waiting.events.is_empty() {
            state.waiting.events.reserve(USUAL_EVENTS);
        }
        for draft in drafts {
            let sequence = state.sequence + 1;
            match draft.into_event(sequence, now) {
                Ok(event) => state.waiting.events.push(Arc::new(event)),
                // Numbers would have a gap otherwise, and what follows may depend on this event.
                Err(error) => return WriteAck::Now(Err(state.record_failure(error.into()))),
            }
            state.sequence = sequence;
        }
        state.waiting.taken_posts = along.taken_posts.or(state.waiting.taken_posts);
        if state.sequence == before && along.records.is_empty() && along.entries.is_empty() {
            // Only earlier writes have to become durable. Consumed mailbox items wait for the next
            // write: if there is none, they are processed again, which changes nothing.
            let ticket = state.handed;
            drop(state);
            return WriteAck::held(&self.0, ticket);
        }
        let event = (state.sequence > before).then_some(state.sequence);
        state
            .contested
            .extend(contested.map(|contested| ContestedRecord { event, ..contested }));
        append_list(&mut state.waiting.records, along.records);
        append_list(&mut state.waiting.entries, along.entries);
        state.handed += 1;
        let ticket = state.handed;
        if timing == WriteTiming::Held {
            return WriteAck::held(&self.0, ticket);
        }
        JournalWriter::release_writes(&self.0, state);
        self.0.when_durable(ticket)
    }
}

impl PendingEvent {
    fn into_event(self, sequence: u64, now: Timestamp) -> Result<Event, InvalidEvent> {
        match self {
            Self::Tool(invocation, event) => {
                Event::for_invocation(sequence, now, invocation, event)
            }
            Self::Turn(turn, event) => Event::for_turn(sequence, now, turn, event),
            Self::Loop(turn, event) => Event::for_run(sequence, now, turn, event),
        }
    }
}

impl JournalWriter {
    fn lock_state(&self) -> MutexGuard<'_, JournalState> {
        schedule::lock(&self.state)
    }

    /// Writes batches until nothing is left. Only one caller at a time is here: the one that set
    /// `writing`.
    fn write_batches(self: &Arc<Self>) {
        while let Some((mut write, batch)) = self.next_batch() {
            match run_contained_sync(|| write.as_mut().now_or_never()) {
                Ok(Some(result)) => self.finish_batch(batch, result),
                Err(_) => self.finish_batch(batch, Err(store_panicked())),
                Ok(None) => {
                    // Not `tokio::spawn`: a tool may report progress from a thread outside the
                    // runtime.
                    let finish = BackgroundWrite {
                        inner: self.clone(),
                        done: false,
                    };
                    self.tasks.spawn(finish.finish_write(write, batch));
                    return;
                }
            }
        }
    }

    /// Begins to write everything that was handed over, unless a write is under way: then it is part
    /// of the next one.
    fn release_writes(writer: &Arc<Self>, mut state: MutexGuard<'_, JournalState>) {
        state.released = state.handed;
        // The first writer leads; the others only queue and are written by it.
        let lead = !std::mem::replace(&mut state.writing, true);
        drop(state);
        if lead {
            writer.write_batches();
        }
    }

    fn next_batch(&self) -> Option<(BoxFuture<'static, Result<u64, StoreError>>, BatchInFlight)> {
        let mut state = self.lock_state();
        // A batch that only consumes mailbox items waits for the next one that writes something.
        if !state.has_work() || state.failed.is_some() {
            state.writing = false;
            return None;
        }
        let batch = std::mem::take(&mut state.waiting);
        let contested = std::mem::take(&mut state.contested);
        let in_flight = BatchInFlight {
            events: batch.events.clone(),
            ticket: state.handed,
            begun_at: self.clock.now(),
            retry: (!contested.is_empty()).then(|| (batch.clone(), contested)),
        };
        // The position has the revision and the fence: the store rejects the write if another
        // process has written or taken the lease.
        let write = self.store.append(
            self.session,
            self.driving.write_position(state.durable_sequence),
            batch,
        );
        Some((write, in_flight))
    }

    fn finish_batch(&self, batch: BatchInFlight, result: Result<u64, StoreError>) {
        let mut state = self.lock_state();
        match (result, batch.retry) {
            (Ok(revision), _) => {
                state.durable_sequence = revision;
                state.durable = batch.ticket;
                state.confirmed_at = batch.begun_at;
                // Published under the lock: the order on the bus is the order of the log.
                for event in batch.events {
                    self.bus.publish(event);
                }
                state.wake_waiters(batch.ticket);
            }
            // Nothing was written, so the batch is written again without the record that lost.
            (Err(StoreError::RecordExists { key }), Some((batch, contested)))
                if contested.iter().any(|contested| contested.key == key) =>
            {
                if let Err(error) = state.requeue_without(&key, batch, contested, self.clock.now())
                {
                    state.record_failure(error.into());
                }
            }
            (Err(source), _) => {
                state.record_failure(JournalError::Store {
                    session: self.session,
                    source: Arc::new(source),
                });
            }
        }
    }

    fn when_durable(&self, ticket: u64) -> WriteAck {
        let mut state = self.lock_state();
        // Before the check for a failure: a write that became durable stays so.
        if state.durable >= ticket {
            return WriteAck::Now(Ok(()));
        }
        if let Some(error) = &state.failed {
            return WriteAck::Now(Err(error.clone()));
        }
        let (tell, told) = oneshot::channel();
        state.waiters.push((ticket, tell));
        WriteAck::Later(told)
    }
}

impl JournalState {
    /// Checks whether anything waits to be written and is not held.
    fn has_work(&self) -> bool {
        if self.released <= self.durable {
            return false;
        }
        let WriteBatch {
            events,
            records,
            entries,
            ..
        } = &self.waiting;
        !(events.is_empty() && records.is_empty() && entries.is_empty())
    }

    /// Puts a batch back in front of what waits, with the last contested record `key` and its event
    /// replaced.
    ///
    /// Only the last one: the key may be twice in the batch and not in the store. If it is in the
    /// store, the next attempt replaces the one before.
    fn requeue_without(
        &mut self,
        key: &RecordKey,
        mut batch: WriteBatch,
        mut contested: Vec<ContestedRecord>,
        now: Timestamp,
    ) -> Result<(), InvalidEvent> {
        if let Some(at) = batch.records.iter().rposition(|(other, _)| other == key) {
            batch.records.remove(at);
        }
        let loser = contested.iter().rposition(|record| record.key == *key);
        let loser = loser.map(|at| contested.remove(at));
        let later = std::mem::take(&mut self.waiting);
        batch.events.extend(later.events);
        batch.records.extend(later.records);
        batch.entries.extend(later.entries);
        batch.taken_posts = later.taken_posts.or(batch.taken_posts);
        self.waiting = batch;
        // In the order of the records.
        contested.append(&mut self.contested);
        self.contested = contested;
        loser.map_or(Ok(()), |loser| self.write_instead(loser, now))
    }

    /// Replaces the event of a contested record that lost.
    fn write_instead(
        &mut self,
        loser: ContestedRecord,
        now: Timestamp,
    ) -> Result<(), InvalidEvent> {
        loser.lost.store(true, Ordering::SeqCst);
        let number = loser.event.unwrap_or(self.sequence + 1);
        let event = Arc::new(loser.instead.into_event(number, now)?);
        let events = &mut self.waiting.events;
        match events.iter_mut().find(|event| event.sequence() == number) {
            Some(replaced) => *replaced = event,
            None => {
                events.push(event);
                self.sequence = number;
            }
        }
        Ok(())
    }

    fn record_failure(&mut self, error: JournalError) -> JournalError {
        self.failed = Some(error.clone());
        self.ended.cancel();
        for (_, waiter) in self.waiters.drain(..) {
            let _ = waiter.send(Err(error.clone()));
        }
        error
    }

    fn wake_waiters(&mut self, ticket: u64) {
        for (wanted, waiter) in std::mem::take(&mut self.waiters) {
            if wanted <= ticket {
                // A caller that stopped waiting does not need the answer.
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

/// Finishes a write in a separate task. If the task is dropped with its runtime, the waiting
/// callers get an error.
struct BackgroundWrite {
    inner: Arc<JournalWriter>,
    done: bool,
}

impl BackgroundWrite {
    async fn finish_write(
        mut self,
        write: BoxFuture<'static, Result<u64, StoreError>>,
        batch: BatchInFlight,
    ) {
        let result = run_contained(write)
            .await
            .unwrap_or_else(|_| Err(store_panicked()));
        self.inner.finish_batch(batch, result);
        // The callers that waited for this write run first, so that what they hand over next is
        // written together: calls that end, the driver that learns of it, the calls that it starts.
        // Without this the fastest of many calls has a write of its own, and the others wait for
        // it.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.done = true;
        self.inner.write_batches();
    }
}

impl Drop for BackgroundWrite {
    fn drop(&mut self) {
        if !self.done {
            self.inner
                .lock_state()
                .record_failure(JournalError::Stopped);
        }
    }
}

/// Appends to a list; to an empty one without copying.
fn append_list<T>(list: &mut Vec<T>, more: Vec<T>) {
    if list.is_empty() {
        *list = more;
    } else {
        list.extend(more);
    }
}

fn store_panicked() -> StoreError {
    StoreError::Backend("the store panicked".into())
}

/// Completes when what was handed over is durable. Dropping it does not undo the write. A held write
/// begins when this is awaited.
#[must_use = "a write is only known to be durable once this completes"]
pub(crate) enum WriteAck {
    Now(Result<(), JournalError>),
    Later(oneshot::Receiver<Result<(), JournalError>>),
    Held(HeldWrite),
}

/// A write that is held, by its number.
pub(crate) struct HeldWrite {
    writer: Arc<JournalWriter>,
    ticket: u64,
}

impl WriteAck {
    /// Returns the number of a write that is held.
    pub(crate) fn held_number(&self) -> Option<u64> {
        match self {
            Self::Held(HeldWrite { ticket, .. }) => Some(*ticket),
            Self::Now(_) | Self::Later(_) => None,
        }
    }

    fn held(writer: &Arc<JournalWriter>, ticket: u64) -> Self {
        Self::Held(HeldWrite {
            writer: writer.clone(),
            ticket,
        })
    }
}

impl Future for WriteAck {
    type Output = Result<(), JournalError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut *self {
                Self::Now(result) => return Poll::Ready(result.clone()),
                Self::Later(told) => {
                    let told = Pin::new(told).poll(cx);
                    return told.map(|told| told.unwrap_or(Err(JournalError::Stopped)));
                }
                Self::Held(HeldWrite { writer, ticket }) => {
                    let state = writer.lock_state();
                    if state.released < *ticket {
                        JournalWriter::release_writes(writer, state);
                    } else {
                        drop(state);
                    }
                    *self = writer.when_durable(*ticket);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
