//! Ordered, bounded event bus that screens subscribe to. It never holds up execution.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    sync::broadcast::{
        self,
        error::{RecvError, TryRecvError},
    },
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use toolgate_core::{Delta, Event, SessionId, StoreError, StoreHandle, TurnInfo, contained_sync};

/// Publishes events to any number of subscribers, in order.
///
/// The bus keeps a bounded number of events. A subscriber that falls further behind is told how many it
/// missed and can read them again from the store; nobody waits for it.
#[derive(Debug, Clone)]
pub struct Bus(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    capacity: usize,
    /// Made for the first subscriber: room for all the events it keeps takes longer to make than a whole turn.
    sender: OnceLock<broadcast::Sender<Delivered>>,
}

/// What travels on a bus.
#[derive(Debug, Clone)]
enum Delivered {
    Event(Arc<Event>),
    Piece(Arc<Piece>),
}

/// A piece of a reply, as it comes. It is shown and not kept: the log has the whole reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Of which turn.
    pub turn: Arc<TurnInfo>,
    /// What came.
    pub delta: Delta,
}

/// What a subscriber gets.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// The next event.
    Event(Arc<Event>),
    /// A piece of a reply that is under way.
    Piece(Arc<Piece>),
    /// The subscriber was too slow and missed this many events or pieces.
    Lagged(u64),
}

impl Bus {
    /// How many events the default bus keeps for slow subscribers.
    pub const DEFAULT_CAPACITY: usize = 4096;

    /// A bus that keeps `capacity` events (at least one).
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Inner {
            capacity: capacity.clamp(1, 1 << 20),
            sender: OnceLock::new(),
        }))
    }

    /// Hands an event to everybody who listens now.
    pub(crate) fn publish(&self, event: Arc<Event>) {
        if let Some(sender) = self.0.sender.get() {
            // An error means that nobody listens, which is fine.
            let _ = sender.send(Delivered::Event(event));
        }
    }

    /// Hands a piece of a reply to everybody who listens now.
    pub(crate) fn show(&self, turn: &Arc<TurnInfo>, delta: &Delta) {
        if let Some(sender) = self
            .0
            .sender
            .get()
            .filter(|sender| sender.receiver_count() > 0)
        {
            let piece = Arc::new(Piece {
                turn: turn.clone(),
                delta: delta.clone(),
            });
            let _ = sender.send(Delivered::Piece(piece));
        }
    }

    /// Listens from now on.
    pub fn subscribe(&self) -> Subscription {
        let sender = self
            .0
            .sender
            .get_or_init(|| broadcast::Sender::new(self.0.capacity));
        Subscription(sender.subscribe())
    }

    /// Listens to one session from event number `after` on: first what the store has, then what comes, and
    /// after a lag what was missed.
    pub fn follow(&self, store: StoreHandle, session: SessionId, after: u64) -> Follow {
        Follow {
            live: self.subscribe(),
            store,
            session,
            seen: after,
            backlog: Vec::new().into_iter(),
            reread: true,
        }
    }

    /// Calls `consumer` with everything that comes, in a task of its own.
    ///
    /// A consumer that panics harms nobody but itself: the panic is counted and the next event delivered.
    pub fn attach(&self, mut consumer: impl FnMut(Delivery) + Send + 'static) -> Attached {
        let mut subscription = self.subscribe();
        let (panics, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let (counted, stopping) = (panics.clone(), stop.clone());
        let mut deliver = move |delivery| {
            if contained_sync(|| consumer(delivery)).is_err() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let task = tokio::spawn(async move {
            while let Some(Some(delivery)) = stopping.run_until_cancelled(subscription.next()).await
            {
                deliver(delivery);
            }
            while let Some(delivery) = subscription.try_next() {
                deliver(delivery);
            }
        });
        Attached { task, stop, panics }
    }

    /// How many subscribers there are.
    pub fn subscribers(&self) -> usize {
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

/// One subscriber's place in the stream.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Delivered>);

impl Subscription {
    /// Waits for the next event; `None` once the bus is gone.
    pub async fn next(&mut self) -> Option<Delivery> {
        match self.0.recv().await {
            Ok(Delivered::Event(event)) => Some(Delivery::Event(event)),
            Ok(Delivered::Piece(piece)) => Some(Delivery::Piece(piece)),
            Err(RecvError::Lagged(missed)) => Some(Delivery::Lagged(missed)),
            Err(RecvError::Closed) => None,
        }
    }

    /// What is there already, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        match self.0.try_recv() {
            Ok(Delivered::Event(event)) => Some(Delivery::Event(event)),
            Ok(Delivered::Piece(piece)) => Some(Delivery::Piece(piece)),
            Err(TryRecvError::Lagged(missed)) => Some(Delivery::Lagged(missed)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

/// One session's events without gaps.
#[derive(Debug)]
pub struct Follow {
    live: Subscription,
    store: StoreHandle,
    session: SessionId,
    seen: u64,
    backlog: std::vec::IntoIter<Arc<Event>>,
    reread: bool,
}

impl Follow {
    const PAGE: usize = 256;

    /// Waits for the next event of the session, reading missed ones from the store; `None` once the bus is gone.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, StoreError> {
        loop {
            if let Some(event) = self.backlog.next() {
                self.seen = event.sequence();
                return Ok(Some(event));
            }
            if self.reread {
                let page = self
                    .store
                    .events(self.session, self.seen, Self::PAGE)
                    .await?;
                self.reread = page.len() == Self::PAGE;
                self.backlog = page.into_iter();
                if self.backlog.len() > 0 {
                    continue;
                }
            }
            match self.live.next().await {
                None => return Ok(None),
                Some(Delivery::Lagged(_)) => self.reread = true,
                Some(Delivery::Piece(_)) => {}
                Some(Delivery::Event(event)) => {
                    let ours =
                        event.turn_info().session == self.session && event.sequence() > self.seen;
                    match event.sequence() == self.seen + 1 {
                        true if ours => {
                            self.seen = event.sequence();
                            return Ok(Some(event));
                        }
                        // Something in between is missing here, but not in the store.
                        false if ours => self.reread = true,
                        _ => {}
                    }
                }
            }
        }
    }
}

/// A consumer that was attached to a bus; dropping it detaches the consumer at once.
#[derive(Debug)]
pub struct Attached {
    task: JoinHandle<()>,
    stop: CancellationToken,
    panics: Arc<AtomicU64>,
}

impl Attached {
    /// How often the consumer panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Delivers everything that was published so far, then detaches the consumer.
    pub async fn finish(mut self) {
        self.stop.cancel();
        // The task contains the consumer's panics, so it can only have been aborted with its runtime.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.task.abort();
    }
}
