//! Everything that happens in a session and in those of its agents, as it happens and without gaps.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use toolgate::{Bus, Delivery, Event, Piece, SessionId, StoreError, StoreHandle, Subscription};

/// How many events are read at once.
const PAGE: usize = 256;

/// What comes from a bus, with what was missed read from the store.
#[derive(Debug)]
pub struct Feed {
    live: Subscription,
    store: StoreHandle,
    /// The number of the last event that was given out, for each session.
    seen: HashMap<SessionId, u64>,
    /// The sessions of which something was missed.
    behind: BTreeSet<SessionId>,
    ready: VecDeque<Arc<Event>>,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Fed {
    /// An event; it is durable.
    Event(Arc<Event>),
    /// A piece of a reply that is still coming.
    Piece(Arc<Piece>),
}

impl Feed {
    /// Listens from now on. Of a session that something is heard of, everything is given out, from its first event on,
    /// unless it was read before.
    pub fn new(bus: &Bus, store: StoreHandle) -> Self {
        let (live, seen) = (bus.subscribe(), HashMap::new());
        Self {
            live,
            store,
            seen,
            behind: BTreeSet::new(),
            ready: VecDeque::new(),
        }
    }

    /// Waits for the next thing that happens; nothing once the bus is gone. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Fed>, StoreError> {
        loop {
            self.catch_up().await?;
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(Fed::Event(event)));
            }
            let Some(delivery) = self.live.next().await else {
                return Ok(None);
            };
            if let Some(piece) = self.take(delivery) {
                return Ok(Some(Fed::Piece(piece)));
            }
        }
    }

    /// The events that have happened already, without waiting for more.
    pub async fn rest(&mut self) -> Result<Vec<Arc<Event>>, StoreError> {
        while let Some(delivery) = self.live.try_next() {
            self.take(delivery);
            self.catch_up().await?;
        }
        self.catch_up().await?;
        Ok(self.ready.drain(..).collect())
    }

    /// Reads what has happened in a session so far; it is not given out again.
    pub async fn read(&mut self, session: SessionId) -> Result<Vec<Arc<Event>>, StoreError> {
        let mut events = Vec::new();
        loop {
            let seen = self.seen.entry(session).or_default();
            let page = self.store.events(session, *seen, PAGE).await?;
            *seen = page.last().map_or(*seen, |event| event.sequence());
            let is_last = page.len() < PAGE;
            events.extend(page);
            if is_last {
                return Ok(events);
            }
        }
    }

    fn take(&mut self, delivery: Delivery) -> Option<Arc<Piece>> {
        match delivery {
            Delivery::Piece(piece) => return Some(piece),
            Delivery::Lagged(_) => self.behind.extend(self.seen.keys()),
            Delivery::Event(event) => {
                let session = event.turn_info().session;
                let seen = self.seen.entry(session).or_default();
                if event.sequence() == *seen + 1 {
                    *seen += 1;
                    self.ready.push_back(event);
                } else if event.sequence() > *seen {
                    self.behind.insert(session);
                }
            }
        }
        None
    }

    /// Reads what was missed. What comes from the bus meanwhile and was read here is not given out twice.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        while let Some(session) = self.behind.first().copied() {
            let seen = self.seen.entry(session).or_default();
            let page = self.store.events(session, *seen, PAGE).await?;
            *seen = page.last().map_or(*seen, |event| event.sequence());
            if page.len() < PAGE {
                self.behind.remove(&session);
            }
            self.ready.extend(page);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{MemoryStore, Registry, Session, models::Scripted};
    use toolgate_testkit::LifecycleChecker;

    #[tokio::test]
    async fn whoever_was_too_slow_misses_nothing() {
        let (store, bus) = (StoreHandle::new(MemoryStore::new()), Bus::new(4));
        let model = Scripted::from_toml("[[reply]]\nrepeat = 'always'\ntext = 'hello'")
            .expect("a scenario");
        let (kept, heard) = (store.clone(), bus.clone());
        let builder = Session::builder(model, Registry::new())
            .dispatcher(move |builder| builder.store_handle(kept).bus(heard));
        let session = builder.build().await.expect("builds");
        let mut feed = Feed::new(session.bus(), store.clone());
        for _ in 0..20 {
            session.run("hello").await.expect("runs");
        }
        let events = feed.rest().await.expect("reads");
        LifecycleChecker::check_all(events.iter().map(|event| &**event))
            .expect("no gap, nothing twice");
        assert_eq!(
            events.len() as u64,
            store.revision(session.id()).await.expect("reads")
        );
    }
}
