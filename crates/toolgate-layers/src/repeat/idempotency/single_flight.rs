//! Makes identical calls wait for the first of them.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The running calls by key.
///
/// All calls with the same key join one flight. One of them leads; when it lands, all get its
/// value. If it leaves without landing, because it failed or was dropped, one of the waiting calls
/// leads next.
#[derive(Debug)]
pub(crate) struct SingleFlight<K, V>(Mutex<HashMap<K, Arc<CallFlight<V>>>>);

/// A group of identical calls.
#[derive(Debug)]
struct CallFlight<V> {
    /// The holder of the permit leads; closed once the flight has landed.
    lead: Semaphore,
    landed: OnceLock<V>,
}

/// The place of one call in a flight. Dropping it leaves the flight.
pub(crate) struct FlightSeat<'a, K: Eq + Hash, V> {
    flights: &'a SingleFlight<K, V>,
    key: K,
    flight: Option<Arc<CallFlight<V>>>,
}

/// The role of a call that has joined a flight.
pub(crate) enum FlightRole<'a, V> {
    /// It leads as long as it holds the permit.
    Lead(#[allow(dead_code, reason = "held, not read")] SemaphorePermit<'a>),
    /// Another call has landed with this value.
    Landed(V),
}

impl<K: Eq + Hash + Clone, V: Clone> SingleFlight<K, V> {
    /// Creates an empty set of flights.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// Joins the flight for `key`, or starts one.
    pub(crate) fn join(&self, key: K) -> FlightSeat<'_, K, V> {
        let start = || {
            Arc::new(CallFlight {
                lead: Semaphore::new(1),
                landed: OnceLock::new(),
            })
        };
        let flight = self
            .lock_flights()
            .entry(key.clone())
            .or_insert_with(start)
            .clone();
        FlightSeat {
            flights: self,
            key,
            flight: Some(flight),
        }
    }
}

impl<K, V> SingleFlight<K, V> {
    // A poisoned lock is usable: no operation under it leaves the map half-changed.
    fn lock_flights(&self) -> MutexGuard<'_, HashMap<K, Arc<CallFlight<V>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, V: Clone> FlightSeat<'_, K, V> {
    /// Returns the flight that this seat belongs to.
    fn flight(&self) -> &Arc<CallFlight<V>> {
        self.flight
            .as_ref()
            .expect("a seat has its flight until it is dropped")
    }

    /// Waits until this call leads or another call has landed.
    pub(crate) async fn wait_for_role(&self) -> FlightRole<'_, V> {
        let flight = self.flight();
        match flight.lead.acquire().await {
            Ok(permit) => FlightRole::Lead(permit),
            Err(_closed) => FlightRole::Landed(
                flight
                    .landed
                    .get()
                    .expect("set before it is closed")
                    .clone(),
            ),
        }
    }

    /// Gives `value` to all waiting calls. Later calls start a new flight.
    pub(crate) fn land(&self, value: V) {
        let flight = self.flight();
        let mut map = self.flights.lock_flights();
        // Only our own flight: a later one under the same key has other waiting calls.
        if map
            .get(&self.key)
            .is_some_and(|current| Arc::ptr_eq(current, flight))
        {
            map.remove(&self.key);
        }
        drop(map);
        // Before the semaphore is closed: a waiting call reads the value as soon as it sees the
        // close. Only the leader lands, so this is the first value.
        let _ = flight.landed.set(value);
        flight.lead.close();
    }
}

impl<K: Eq + Hash, V> Drop for FlightSeat<'_, K, V> {
    fn drop(&mut self) {
        let mut map = self.flights.lock_flights();
        // Under the lock: otherwise two seats that leave together could both see the other and
        // leave the entry behind.
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
    async fn one_call_leads_and_the_others_get_its_value() {
        let flights = SingleFlight::<u8, u8>::new();
        let first = flights.join(1);
        let second = flights.join(1);
        let third = flights.join(1);
        let lead = first.wait_for_role().await;
        assert!(matches!(lead, FlightRole::Lead(_)));
        let mut second = pin!(second.wait_for_role());
        let mut third = pin!(third.wait_for_role());
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        first.land(7);
        drop(lead);
        for waiting in [second, third] {
            assert!(matches!(waiting.await, FlightRole::Landed(7)));
        }
    }

    #[tokio::test]
    async fn when_the_leader_leaves_exactly_one_of_the_others_leads() {
        let flights = SingleFlight::<u8, u8>::new();
        let first = flights.join(1);
        let second = flights.join(1);
        let third = flights.join(1);
        let lead = first.wait_for_role().await;
        let mut second = pin!(second.wait_for_role());
        let mut third = pin!(third.wait_for_role());
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        drop(lead);
        drop(first);
        assert!(matches!(second.now_or_never(), Some(FlightRole::Lead(_))));
        assert!(
            matches!(third.now_or_never(), Some(FlightRole::Lead(_))),
            "after the second has left"
        );
    }

    #[tokio::test]
    async fn no_entry_remains_when_all_have_left() {
        let flights = SingleFlight::<u8, u8>::new();
        let a = flights.join(1);
        let b = flights.join(1);
        let lead = a.wait_for_role().await;
        drop(b);
        assert_eq!(flights.lock_flights().len(), 1);
        drop(lead);
        drop(a);
        assert!(flights.lock_flights().is_empty());
        let c = flights.join(2);
        c.land(1);
        assert!(
            flights.lock_flights().is_empty(),
            "a flight that has landed is removed"
        );
    }
}
