//! Ordered, bounded event bus that screens subscribe to. It never delays execution.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{
    sync::broadcast::{
        self,
        error::{RecvError, TryRecvError},
    },
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Clock, Delta, Event, SessionId, StoreError, StoreHandle, TurnInfo, run_contained_sync,
};

use crate::{SystemClock, schedule::switch_point};

/// Publishes events to any number of subscribers, in order.
///
/// The bus buffers a bounded number of events. A subscriber that falls further behind is told how
/// many it missed and can load them from the store; the publisher does not wait for it.
#[derive(Debug, Clone)]
pub struct Bus(Arc<BusChannel>);

#[derive(Debug)]
struct BusChannel {
    capacity: usize,
    /// Created for the first subscriber: allocating the buffer takes longer than a whole turn.
    sender: OnceLock<broadcast::Sender<BusItem>>,
}

/// An item on the bus.
#[derive(Debug, Clone)]
enum BusItem {
    Event(Arc<Event>),
    Piece(Arc<StreamPiece>),
}

/// A piece of a reply, as it arrives. It is shown and not stored: the log has the whole reply.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamPiece {
    /// The turn of the reply.
    pub turn: Arc<TurnInfo>,
    /// The number of an event after which the model was asked for this reply, and before which it
    /// had not ended. Pieces do not wait for the store, so that they may arrive before this event,
    /// and a subscriber that loads missed events may see the end of the reply first: pieces belong
    /// to the same reply if they have the same number, and to an earlier one if it is lower.
    pub after: u64,
    /// The change to the reply. Secrets in it are redacted as in events, also those that arrive in
    /// two pieces.
    pub delta: Delta,
}

/// An item that a subscriber receives.
#[derive(Debug, Clone)]
pub enum BusDelivery {
    /// The next event.
    Event(Arc<Event>),
    /// A piece of a reply that is under way.
    Piece(Arc<StreamPiece>),
    /// The subscriber was too slow and missed this many events or pieces.
    Lagged(u64),
}

impl Bus {
    /// Number of events the default bus buffers for slow subscribers.
    pub const DEFAULT_CAPACITY: usize = 4096;

    /// Creates a bus that buffers `capacity` events (at least one).
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(BusChannel {
            capacity: capacity.clamp(1, 1 << 20),
            sender: OnceLock::new(),
        }))
    }

    /// Sends an event to all current subscribers.
    pub(crate) fn publish(&self, event: Arc<Event>) {
        switch_point();
        if let Some(sender) = self.0.sender.get() {
            // An error means that there are no subscribers, which is fine.
            let _ = sender.send(BusItem::Event(event));
        }
    }

    /// Sends a piece of a reply to all current subscribers.
    pub(crate) fn publish_piece(&self, piece: StreamPiece) {
        if let Some(sender) = self.0.sender.get() {
            let _ = sender.send(BusItem::Piece(Arc::new(piece)));
        }
    }

    /// Subscribes to everything published from now on.
    pub fn subscribe(&self) -> BusSubscription {
        switch_point();
        let sender = self
            .0
            .sender
            .get_or_init(|| broadcast::Sender::new(self.0.capacity));
        BusSubscription(sender.subscribe())
    }

    /// Follows one session from event number `after` on: what the store has, whichever process wrote
    /// it. An event that this process publishes is returned at once; for those of other processes
    /// the store is read repeatedly.
    pub fn follow_session(
        &self,
        store: StoreHandle,
        session: SessionId,
        after: u64,
    ) -> SessionFollower {
        SessionFollower {
            live: self.subscribe(),
            store,
            session,
            seen: after,
            backlog: Vec::new().into_iter(),
            reread: true,
            clock: Arc::new(SystemClock::new()),
            delay: SessionFollower::SHORTEST_DELAY,
            pause: None,
        }
    }

    /// Calls `consumer` with everything that is published, in a separate task.
    ///
    /// A panic of the consumer affects only itself: it is counted, and the next event is delivered.
    pub fn attach(
        &self,
        mut consumer: impl FnMut(BusDelivery) + Send + 'static,
    ) -> AttachedConsumer {
        let mut subscription = self.subscribe();
        let panics = Arc::new(AtomicU64::new(0));
        let stop = CancellationToken::new();
        let counted = panics.clone();
        let stopping = stop.clone();
        let mut deliver = move |delivery| {
            if run_contained_sync(|| consumer(delivery)).is_err() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let task = tokio::spawn(async move {
            while let Some(Some(delivery)) = stopping.run_until_cancelled(subscription.next()).await
            {
                deliver(delivery);
            }
            // What was published before `finish` is delivered, too.
            while let Some(delivery) = subscription.try_next() {
                deliver(delivery);
            }
        });
        AttachedConsumer { task, stop, panics }
    }

    /// Returns the number of subscribers.
    pub fn subscriber_count(&self) -> usize {
        self.0
            .sender
            .get()
            .map_or(0, broadcast::Sender::receiver_count)
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::new(Self::DEFAULT_CAPACITY)
    }
}

/// One subscriber's position in the stream.
#[derive(Debug)]
pub struct BusSubscription(broadcast::Receiver<BusItem>);

impl BusSubscription {
    /// Waits for the next item; returns `None` once the bus is gone.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no item is lost.
    pub async fn next(&mut self) -> Option<BusDelivery> {
        match self.0.recv().await {
            Ok(BusItem::Event(event)) => Some(BusDelivery::Event(event)),
            Ok(BusItem::Piece(piece)) => Some(BusDelivery::Piece(piece)),
            Err(RecvError::Lagged(missed)) => Some(BusDelivery::Lagged(missed)),
            Err(RecvError::Closed) => None,
        }
    }

    /// Returns the next item, if it is there already.
    pub fn try_next(&mut self) -> Option<BusDelivery> {
        match self.0.try_recv() {
            Ok(BusItem::Event(event)) => Some(BusDelivery::Event(event)),
            Ok(BusItem::Piece(piece)) => Some(BusDelivery::Piece(piece)),
            Err(TryRecvError::Lagged(missed)) => Some(BusDelivery::Lagged(missed)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// One session's events without gaps, from the store that all processes share.
pub struct SessionFollower {
    live: BusSubscription,
    store: StoreHandle,
    session: SessionId,
    seen: u64,
    backlog: std::vec::IntoIter<Arc<Event>>,
    reread: bool,
    clock: Arc<dyn Clock>,
    /// The pause before the store is read again. It grows while nothing happens.
    delay: Duration,
    /// The pause that is under way. It is kept here, so that callers that wait for something else in
    /// between do not prolong it.
    pause: Option<BoxFuture<'static, ()>>,
}

impl SessionFollower {
    const PAGE: usize = 256;

    const SHORTEST_DELAY: Duration = Duration::from_millis(50);
    const LONGEST_DELAY: Duration = Duration::from_secs(1);

    /// Sets the clock that measures the pauses between two reads of the store.
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Waits for the next event of the session, in this process or another one; returns `None` once
    /// the bus is gone.
    ///
    /// # Errors
    ///
    /// Fails if the store failed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no event is lost.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, StoreError> {
        loop {
            if let Some(event) = self.backlog.next() {
                self.seen = event.sequence();
                return Ok(Some(event));
            }
            if self.reread {
                self.read_store().await?;
                continue;
            }
            match self.wait_for_news().await {
                FollowerNews::Closed => return Ok(None),
                FollowerNews::Reread => self.reread = true,
                FollowerNews::Next(event) => {
                    self.seen = event.sequence();
                    return Ok(Some(event));
                }
            }
        }
    }

    /// Reads the next page of events from the store.
    async fn read_store(&mut self) -> Result<(), StoreError> {
        let page = self
            .store
            .events(self.session, self.seen, Self::PAGE)
            .await?;
        self.reread = page.len() == Self::PAGE;
        self.delay = if page.is_empty() {
            (self.delay * 2).min(Self::LONGEST_DELAY)
        } else {
            Self::SHORTEST_DELAY
        };
        self.pause = None;
        self.backlog = page.into_iter();
        Ok(())
    }

    /// Waits until this process publishes an event of the session, or until it is time to look at
    /// the store again.
    async fn wait_for_news(&mut self) -> FollowerNews {
        let delay = self.delay;
        let clock = &self.clock;
        let pause = self.pause.get_or_insert_with(|| clock.sleep(delay));
        loop {
            let delivery = tokio::select! {
                biased;
                delivery = self.live.next() => delivery,
                () = &mut *pause => return FollowerNews::Reread,
            };
            match delivery {
                None => return FollowerNews::Closed,
                Some(BusDelivery::Lagged(_)) => return FollowerNews::Reread,
                Some(BusDelivery::Piece(_)) => {}
                Some(BusDelivery::Event(event)) => {
                    // What was loaded from the store may be published here again.
                    let ours =
                        event.turn_info().session == self.session && event.sequence() > self.seen;
                    match (ours, event.sequence() == self.seen + 1) {
                        (false, _) => {}
                        (true, true) => return FollowerNews::Next(event),
                        // An event in between is missing here, but not in the store.
                        (true, false) => return FollowerNews::Reread,
                    }
                }
            }
        }
    }
}

/// What a follower waited for.
enum FollowerNews {
    /// The next event, published in this process.
    Next(Arc<Event>),
    /// The store may have more events.
    Reread,
    /// The bus is gone.
    Closed,
}

impl std::fmt::Debug for SessionFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionFollower")
            .field("session", &self.session)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// A consumer that is attached to a bus; dropping it detaches the consumer at once.
#[derive(Debug)]
pub struct AttachedConsumer {
    task: JoinHandle<()>,
    stop: CancellationToken,
    panics: Arc<AtomicU64>,
}

impl AttachedConsumer {
    /// Returns how often the consumer panicked.
    pub fn panic_count(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Delivers everything that was published so far, then detaches the consumer.
    pub async fn finish(mut self) {
        self.stop.cancel();
        // The task contains the consumer's panics, so it can only have been aborted with its runtime.
        let _ = (&mut self.task).await;
    }
}

impl Drop for AttachedConsumer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
