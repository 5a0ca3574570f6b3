//! The events of a session and of its agents' sessions, live and without gaps.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use toolgate::{
    Event,
    event::{Bus, BusDelivery, BusSubscription, StreamPiece},
    store::{StoreError, StoreHandle},
    value::SessionId,
};

/// The page size when reading events from the store.
const PAGE_SIZE: usize = 256;

/// A bus subscription that reads missed events from the store.
#[derive(Debug)]
pub struct EventFeed {
    live: BusSubscription,
    store: StoreHandle,
    /// The sequence number of the last event returned, for each session.
    seen: HashMap<SessionId, u64>,
    /// The sessions with missed events.
    behind: BTreeSet<SessionId>,
    ready: VecDeque<FeedItem>,
}

/// An item of the feed.
#[derive(Debug, Clone)]
pub enum FeedItem {
    /// An event; it is durable.
    Event(Arc<Event>),
    /// A fragment of a reply that is still streaming.
    Piece(Arc<StreamPiece>),
}

impl EventFeed {
    /// Subscribes from now on. For each session that an event arrives from, all events since its
    /// first one are returned, except those already read with [`EventFeed::read_session`].
    pub fn new(bus: &Bus, store: StoreHandle) -> Self {
        let live = bus.subscribe();
        let seen = HashMap::new();
        Self {
            live,
            store,
            seen,
            behind: BTreeSet::new(),
            ready: VecDeque::new(),
        }
    }

    /// Waits for the next item; returns `None` once the bus is gone.
    ///
    /// # Errors
    /// If missed events cannot be read from the store.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: what was received stays in the feed.
    pub async fn next(&mut self) -> Result<Option<FeedItem>, StoreError> {
        loop {
            self.catch_up().await?;
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let Some(delivery) = self.live.next().await else {
                return Ok(None);
            };
            self.receive(delivery);
        }
    }

    /// Returns what has happened already, without waiting for more.
    ///
    /// # Errors
    /// If missed events cannot be read from the store.
    pub async fn drain(&mut self) -> Result<Vec<FeedItem>, StoreError> {
        while let Some(delivery) = self.live.try_next() {
            self.receive(delivery);
            self.catch_up().await?;
        }
        self.catch_up().await?;
        Ok(self.ready.drain(..).collect())
    }

    /// Reads the events of a session so far; [`EventFeed::next`] does not return them again.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn read_session(
        &mut self,
        session: SessionId,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let mut events = Vec::new();
        loop {
            let seen = self.seen.entry(session).or_default();
            let page = self.store.events(session, *seen, PAGE_SIZE).await?;
            *seen = page.last().map_or(*seen, |event| event.sequence());
            let is_last = page.len() < PAGE_SIZE;
            events.extend(page);
            if is_last {
                return Ok(events);
            }
        }
    }

    fn receive(&mut self, delivery: BusDelivery) {
        match delivery {
            // Fragments are not stored: one that was missed is gone, and the finished reply has its
            // text. A reply that was cut off has no other copy.
            BusDelivery::Piece(piece) => self.ready.push_back(FeedItem::Piece(piece)),
            // The bus does not say whose events were dropped, so every known session may have a
            // gap.
            BusDelivery::Lagged(_) => self.behind.extend(self.seen.keys()),
            BusDelivery::Event(event) => {
                let session = event.turn_info().session;
                let seen = self.seen.entry(session).or_default();
                // An event with a known number was read from the store while it waited in the
                // subscription; returning it again would apply it twice.
                if event.sequence() == *seen + 1 {
                    *seen += 1;
                    self.ready.push_back(FeedItem::Event(event));
                } else if event.sequence() > *seen {
                    self.behind.insert(session);
                }
            }
        }
    }

    /// Reads missed events from the store.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        while let Some(session) = self.behind.first().copied() {
            let seen = self.seen.entry(session).or_default();
            let page = self.store.events(session, *seen, PAGE_SIZE).await?;
            // The position moves before the page is handed out, so a future dropped after this
            // await neither loses nor repeats an event.
            *seen = page.last().map_or(*seen, |event| event.sequence());
            if page.len() < PAGE_SIZE {
                self.behind.remove(&session);
            }
            self.ready.extend(page.into_iter().map(FeedItem::Event));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{Registry, Session, model::ScriptedModel, store::MemoryStore};
    use toolgate_testkit::LifecycleChecker;

    #[tokio::test]
    async fn a_slow_reader_misses_nothing() {
        let store = StoreHandle::new(MemoryStore::new());
        let bus = Bus::new(4);
        let model = ScriptedModel::from_toml("[[reply]]\nrepeat = 'always'\ntext = 'hello'")
            .expect("a scenario");
        let kept = store.clone();
        let heard = bus.clone();
        let builder = Session::ungated(model, Registry::new())
            .dispatcher(move |builder| builder.store(kept).bus(heard));
        let session = builder.build().await.expect("builds");
        let mut feed = EventFeed::new(session.bus(), store.clone());
        for _ in 0..20 {
            session.run("hello").await.expect("runs");
        }
        let items = feed.drain().await.expect("reads");
        let is_event = |item| match item {
            FeedItem::Event(event) => Some(event),
            FeedItem::Piece(_) => None,
        };
        let events: Vec<Arc<Event>> = items.into_iter().filter_map(is_event).collect();
        LifecycleChecker::check_all(events.iter().map(|event| &**event))
            .expect("no gap, nothing twice");
        assert_eq!(
            events.len() as u64,
            store.revision(session.id()).await.expect("reads")
        );
    }
}
