//! The journal, the bus and their readers in thousands of orders: the real code, with the tasks of
//! several callers and a store that answers later.

use std::sync::atomic::AtomicU64;

use shuttle::future::{block_on, spawn};
use toolgate_core::{EventBody, EventStore, MemoryStore, StoppedClock, TurnId};
use toolgate_testkit::{CountingIds, FaultyStore, StoreCall, StoreFault};

use super::*;
use crate::{BusDelivery, BusSubscription, SessionFollower, schedule::model::explore};

/// A journal over a store whose appends take a while, and what a test reads of both.
struct Setting {
    journal: Journal,
    store: FaultyStore<MemoryStore>,
    bus: Bus,
}

fn session() -> SessionId {
    SessionId::from_source(&CountingIds::after(0))
}

/// Opens a journal. `fault` chooses what happens to append number n, counted from 1.
async fn open(
    bus_capacity: usize,
    fault: impl Fn(u64) -> StoreFault + Send + Sync + 'static,
) -> Setting {
    let appends = AtomicU64::new(0);
    let store = FaultyStore::new(MemoryStore::new(), move |call, _| match call {
        StoreCall::Append => fault(appends.fetch_add(1, Ordering::SeqCst) + 1),
        _ => StoreFault::Pass,
    });
    let bus = Bus::new(bus_capacity);
    let journal = Journal::open(
        session(),
        StoreHandle::new(store.clone()),
        bus.clone(),
        Arc::new(StoppedClock),
        Duration::from_secs(10),
    )
    .await
    .expect("the session is free");
    Setting {
        journal,
        store,
        bus,
    }
}

/// Lets other tasks run before the store answers; every second append is answered at once.
fn slow_store(append: u64) -> StoreFault {
    if append.is_multiple_of(2) {
        StoreFault::Pass
    } else {
        StoreFault::Wait(Box::pin(shuttle::future::yield_now()))
    }
}

/// Returns an event that a test recognises by its number.
fn event(number: u32) -> PendingEvent {
    let turn = TurnId::from_source(&CountingIds::after(1));
    let info = TurnInfo::new(session(), turn);
    PendingEvent::Turn(
        Arc::new(info),
        TurnEvent::TurnOpened {
            size: number,
            after: None,
        },
    )
}

fn number_of(event: &Event) -> u32 {
    match event.body() {
        EventBody::Turn(_, TurnEvent::TurnOpened { size, .. }) => *size,
        other => panic!("another event: {other:?}"),
    }
}

impl Setting {
    /// Appends `count` events in a task of its own, one after the other, and returns how many of
    /// them became durable.
    fn append_in_task(&self, producer: u32, count: u32) -> shuttle::future::JoinHandle<u32> {
        let journal = self.journal.clone();
        let store = self.store.inner().clone();
        spawn(async move {
            for n in 0..count {
                let ack = journal.append([event(producer * 100 + n)], []);
                if ack.await.is_err() {
                    return n;
                }
                let stored = store.events(session(), 0, 100).await.expect("reads");
                let durable = stored
                    .iter()
                    .any(|event| number_of(event) == producer * 100 + n);
                assert!(
                    durable,
                    "an event was acknowledged before it was in the store"
                );
            }
            count
        })
    }

    async fn stored_numbers(&self) -> Vec<u32> {
        let events = self.store.inner().events(session(), 0, 100).await;
        let events = events.expect("reads");
        let sequences: Vec<u64> = events.iter().map(|event| event.sequence()).collect();
        let expected: Vec<u64> = (1..=sequences.len() as u64).collect();
        assert_eq!(sequences, expected, "the log has a gap");
        events.iter().map(|event| number_of(event)).collect()
    }
}

/// Returns the events that a subscriber has received so far, and how many it missed.
fn received(subscription: &mut BusSubscription) -> (Vec<u32>, u64) {
    let mut numbers = Vec::new();
    let mut missed = 0;
    while let Some(delivery) = subscription.try_next() {
        match delivery {
            BusDelivery::Event(event) => numbers.push(number_of(&event)),
            BusDelivery::Lagged(count) => missed += count,
            BusDelivery::Piece(piece) => panic!("nothing streams: {piece:?}"),
        }
    }
    (numbers, missed)
}

#[test]
fn in_every_order_what_is_acknowledged_is_stored_once_and_published_in_the_order_of_the_log() {
    explore(|| {
        block_on(async {
            let setting = open(64, slow_store).await;
            let mut subscription = setting.bus.subscribe();
            let producers = [1, 2, 3].map(|producer| setting.append_in_task(producer, 2));
            for producer in producers {
                assert_eq!(producer.await.expect("no panic"), 2);
            }
            let stored = setting.stored_numbers().await;
            assert_eq!(stored.len(), 6);
            for producer in [1, 2, 3] {
                let of: Vec<_> = stored.iter().filter(|n| *n / 100 == producer).collect();
                assert_eq!(of, [&(producer * 100), &(producer * 100 + 1)]);
            }
            assert_eq!(received(&mut subscription), (stored, 0));
        });
    });
}

#[test]
fn in_every_order_a_store_that_fails_ends_the_journal_without_a_gap_or_a_waiting_caller() {
    for failing in 1..=3 {
        explore(move || {
            block_on(async {
                let fault = move |append| {
                    if append == failing {
                        StoreFault::Fail(StoreError::Backend("disk full".into()))
                    } else {
                        slow_store(append)
                    }
                };
                let setting = open(64, fault).await;
                let mut subscription = setting.bus.subscribe();
                let producers = [1, 2].map(|producer| setting.append_in_task(producer, 3));
                let mut acknowledged = 0;
                for producer in producers {
                    acknowledged += producer.await.expect("no panic") as usize;
                }
                let stored = setting.stored_numbers().await;
                assert_eq!(stored.len(), acknowledged, "stored and acknowledged differ");
                assert_eq!(received(&mut subscription), (stored, 0));
                // Two producers make at most six appends and at least three.
                assert!(setting.journal.failure().is_some());
                assert!(setting.journal.append([event(1)], []).await.is_err());
            });
        });
    }
}

#[test]
fn in_every_order_callers_that_stop_waiting_do_not_tear_a_write() {
    explore(|| {
        block_on(async {
            let setting = open(64, slow_store).await;
            let journal = setting.journal.clone();
            let impatient = spawn(async move {
                drop(journal.append([event(900), event(901)], []));
                drop(journal.append([event(902)], []));
            });
            let patient = setting.append_in_task(1, 2);
            impatient.await.expect("no panic");
            assert_eq!(patient.await.expect("no panic"), 2);
            setting.journal.when_flushed().await.expect("durable");
            let stored = setting.stored_numbers().await;
            let of: Vec<_> = stored.iter().filter(|n| **n >= 900).collect();
            assert_eq!(of, [&900, &901, &902]);
            assert_eq!(stored.len(), 5);
        });
    });
}

#[test]
fn in_every_order_one_of_two_contested_records_stands_and_the_other_event_is_replaced() {
    explore(|| {
        block_on(async {
            let setting = open(64, slow_store).await;
            let mut subscription = setting.bus.subscribe();
            let contend = |producer: u32| {
                let journal = setting.journal.clone();
                spawn(async move {
                    let key = RecordKey::Other("contested".into());
                    let record = (key, StoreRecord::Json("first".into()));
                    let own = Some(event(producer * 100));
                    let instead = event(producer * 100 + 99);
                    journal.append_first(own, record, instead).await
                })
            };
            let plain = setting.append_in_task(3, 2);
            let contenders = [contend(1), contend(2)];
            let mut standing = Vec::new();
            for contender in contenders {
                standing.push(contender.await.expect("no panic").expect("durable"));
            }
            assert_eq!(plain.await.expect("no panic"), 2);
            let stored = setting.stored_numbers().await;
            for (stands, producer) in standing.iter().zip([100, 200]) {
                assert_eq!(stored.contains(&producer), *stands);
                assert_eq!(stored.contains(&(producer + 99)), !*stands);
            }
            assert_eq!(standing.iter().filter(|stands| **stands).count(), 1);
            assert_eq!(received(&mut subscription), (stored, 0));
        });
    });
}

#[test]
fn in_every_order_a_follower_sees_every_event_once_even_if_the_bus_is_too_small() {
    explore(|| {
        block_on(async {
            let setting = open(2, slow_store).await;
            let producers = [1, 2].map(|producer| setting.append_in_task(producer, 3));
            let store = StoreHandle::new(setting.store.inner().clone());
            let mut follower: SessionFollower = setting
                .bus
                .follow_session(store, session(), 0)
                .with_clock(StoppedClock);
            let mut followed = Vec::new();
            while followed.len() < 6 {
                let next = follower.next().await.expect("reads");
                followed.push(number_of(&next.expect("the bus is there")));
            }
            for producer in producers {
                assert_eq!(producer.await.expect("no panic"), 3);
            }
            assert_eq!(followed, setting.stored_numbers().await);
        });
    });
}

#[test]
fn in_every_order_a_subscriber_gets_everything_that_is_published_after_it_subscribed() {
    explore(|| {
        block_on(async {
            let setting = open(64, slow_store).await;
            let producer = setting.append_in_task(1, 3);
            let bus = setting.bus.clone();
            let journal = setting.journal.clone();
            let subscriber = spawn(async move {
                let mut subscription = bus.subscribe();
                let ack = journal.append([event(900)], []);
                ack.await.expect("durable");
                received(&mut subscription).0
            });
            let seen = subscriber.await.expect("no panic");
            assert_eq!(producer.await.expect("no panic"), 3);
            let stored = setting.stored_numbers().await;
            let end = seen.iter().position(|number| *number == 900);
            assert!(
                end.is_some(),
                "its own event was published after it subscribed"
            );
            let part = stored.windows(seen.len()).any(|window| window == seen);
            assert!(part, "{seen:?} is not a part of {stored:?}");
        });
    });
}

#[test]
fn in_every_order_what_is_held_is_written_before_anything_waits() {
    explore(|| {
        block_on(async {
            let setting = open(64, slow_store).await;
            let journal = setting.journal.clone();
            let mut subscription = setting.bus.subscribe();
            let hold = |journal: &Journal, number| {
                let extras = BatchExtras::default();
                drop(journal.append_at(WriteTiming::Held, [event(number)], extras));
            };
            let runnable = journal.note_runnable();
            let (leave, left) = oneshot::channel();
            let of_call = journal.clone();
            let call = spawn(async move {
                let work = async {
                    hold(&of_call, 1);
                    shuttle::future::yield_now().await;
                    hold(&of_call, 2);
                };
                runnable.drive(work).await;
                let _ = leave.send(());
            });
            let driver = async {
                hold(&journal, 0);
                left.await.expect("the call leaves");
                hold(&journal, 3);
                // Only what is written is published, so this would wait for ever.
                let mut published = Vec::new();
                while published.len() < 4 {
                    if let Some(BusDelivery::Event(event)) = subscription.next().await {
                        published.push(number_of(&event));
                    }
                }
                published
            };
            let mut published = journal.flush_while_waiting(driver).await;
            call.await.expect("ends");
            assert_eq!(
                published,
                setting.stored_numbers().await,
                "the order of the log"
            );
            published.sort_unstable();
            assert_eq!(published, [0, 1, 2, 3]);
        });
    });
}
