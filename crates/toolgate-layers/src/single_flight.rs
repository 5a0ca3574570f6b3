//! Lets identical calls wait for the first of them.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tokio::sync::{Semaphore, SemaphorePermit};

/// What is under way, by key.
///
/// Everybody with the same key joins one flight. One of them leads; if it lands, all get what it brought. If it leaves
/// without landing, because it failed or was dropped, one of those who wait leads next.
#[derive(Debug)]
pub(crate) struct Flights<K, V>(Mutex<HashMap<K, Arc<Flight<V>>>>);

#[derive(Debug)]
struct Flight<V> {
    /// Whoever holds the permit leads; closed once the flight has landed.
    lead: Semaphore,
    landed: OnceLock<V>,
}

/// A place on a flight. Leaving it is dropping it.
pub(crate) struct Seat<'a, K: Eq + Hash, V> {
    flights: &'a Flights<K, V>,
    key: K,
    flight: Option<Arc<Flight<V>>>,
}

/// What happens to somebody who has joined.
pub(crate) enum Turn<'a, V> {
    /// It leads for as long as it holds the permit.
    Lead(#[allow(dead_code, reason = "held, not read")] SemaphorePermit<'a>),
    /// Somebody else has landed with this.
    Landed(V),
}

impl<K: Eq + Hash + Clone, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// Joins the flight for `key`, or starts one.
    pub(crate) fn join(&self, key: K) -> Seat<'_, K, V> {
        let start = || {
            Arc::new(Flight {
                lead: Semaphore::new(1),
                landed: OnceLock::new(),
            })
        };
        let flight = self.map().entry(key.clone()).or_insert_with(start).clone();
        Seat {
            flights: self,
            key,
            flight: Some(flight),
        }
    }
}

impl<K, V> Flights<K, V> {
    // Inserting and removing leave the map whole.
    fn map(&self) -> MutexGuard<'_, HashMap<K, Arc<Flight<V>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, V: Clone> Seat<'_, K, V> {
    fn flight(&self) -> &Arc<Flight<V>> {
        self.flight
            .as_ref()
            .expect("a seat has its flight until it is dropped")
    }

    /// Waits until it is this one's turn to lead, or somebody else has landed.
    pub(crate) async fn turn(&self) -> Turn<'_, V> {
        let flight = self.flight();
        match flight.lead.acquire().await {
            Ok(permit) => Turn::Lead(permit),
            Err(_closed) => Turn::Landed(
                flight
                    .landed
                    .get()
                    .expect("set before it is closed")
                    .clone(),
            ),
        }
    }

    /// Gives everybody who waits the same `value`. Whoever comes later starts a flight of their own.
    pub(crate) fn land(&self, value: V) {
        let flight = self.flight();
        let mut map = self.flights.map();
        if map
            .get(&self.key)
            .is_some_and(|current| Arc::ptr_eq(current, flight))
        {
            map.remove(&self.key);
        }
        drop(map);
        // Only the leader lands, so this is the first value.
        let _ = flight.landed.set(value);
        flight.lead.close();
    }
}

impl<K: Eq + Hash, V> Drop for Seat<'_, K, V> {
    fn drop(&mut self) {
        let mut map = self.flights.map();
        // Under the lock, so that the last to leave sees that it is the last.
        self.flight = None;
        if map
            .get(&self.key)
            .is_some_and(|flight| Arc::strong_count(flight) == 1)
        {
            map.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, poll};
    use std::pin::pin;

    #[tokio::test]
    async fn one_leads_and_the_others_get_what_it_brings() {
        let flights = Flights::<u8, u8>::new();
        let (first, second, third) = (flights.join(1), flights.join(1), flights.join(1));
        let lead = first.turn().await;
        assert!(matches!(lead, Turn::Lead(_)));
        let (mut second, mut third) = (pin!(second.turn()), pin!(third.turn()));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        first.land(7);
        drop(lead);
        for waiting in [second, third] {
            assert!(matches!(waiting.await, Turn::Landed(7)));
        }
    }

    #[tokio::test]
    async fn when_the_leader_leaves_exactly_one_of_the_others_leads() {
        let flights = Flights::<u8, u8>::new();
        let (first, second, third) = (flights.join(1), flights.join(1), flights.join(1));
        let lead = first.turn().await;
        let (mut second, mut third) = (pin!(second.turn()), pin!(third.turn()));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        drop(lead);
        drop(first);
        assert!(matches!(second.now_or_never(), Some(Turn::Lead(_))));
        assert!(
            matches!(third.now_or_never(), Some(Turn::Lead(_))),
            "after the second has left"
        );
    }

    #[tokio::test]
    async fn nothing_is_left_behind_when_all_have_left() {
        let flights = Flights::<u8, u8>::new();
        let (a, b) = (flights.join(1), flights.join(1));
        let lead = a.turn().await;
        drop(b);
        assert_eq!(flights.map().len(), 1);
        drop(lead);
        drop(a);
        assert!(flights.map().is_empty());
        let c = flights.join(2);
        c.land(1);
        assert!(flights.map().is_empty(), "a flight that has landed is over");
    }
}
