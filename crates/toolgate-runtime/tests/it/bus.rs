//! The rules of the event bus: ordered, bounded, and never delayed by a slow or panicking
//! subscriber.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{Probe, registry, request, stack, transcript, view};
use toolgate_core::Event;
use toolgate_runtime::{Bus, BusDelivery, Dispatcher, TurnEnd, TurnRequest};
use toolgate_testkit::TestClock;

fn sequences(events: &[Arc<Event>]) -> Vec<u64> {
    events.iter().map(|event| event.sequence()).collect()
}

#[tokio::test]
async fn one_stuck_and_one_panicking_subscriber_do_not_affect_the_others() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let bus = Bus::new(64);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .bus(bus.clone())
        .build()
        .await
        .expect("builds");
    let mut stuck = bus.subscribe();
    let panicking = bus.attach(|_| panic!("cannot draw"));
    let seen: Vec<Arc<Mutex<Vec<Arc<Event>>>>> = (0..8).map(|_| Arc::default()).collect();
    let attached: Vec<_> = seen
        .iter()
        .map(|seen| {
            let seen = seen.clone();
            bus.attach(move |delivery| match delivery {
                BusDelivery::Event(event) => seen.lock().expect("no panic").push(event),
                BusDelivery::Piece(_) => {}
                BusDelivery::Lagged(missed) => panic!("missed {missed}"),
            })
        })
        .collect();
    assert_eq!(bus.subscriber_count(), 10);
    for n in 0..50 {
        let calls = vec![request("a", "echo", "x"), request("b", "echo", "y")];
        let request = TurnRequest::new(view(&registry), calls).iteration(n);
        let report = dispatcher
            .open_turn(request)
            .await
            .expect("opens")
            .run()
            .await
            .expect("runs");
        assert_eq!(report.end, TurnEnd::Settled);
    }
    let (events, _) = transcript(&dispatcher).await;
    for (seen, attached) in seen.iter().zip(attached) {
        assert_eq!(attached.panic_count(), 0);
        attached.finish().await;
        assert_eq!(
            sequences(&seen.lock().expect("no panic")),
            sequences(&events)
        );
    }
    while panicking.panic_count() < events.len() as u64 {
        tokio::task::yield_now().await;
    }
    let Some(BusDelivery::Lagged(missed)) = stuck.next().await else {
        panic!("not told")
    };
    assert_eq!(
        missed,
        events.len() as u64 - 64,
        "told exactly how many it missed"
    );
    let Some(BusDelivery::Event(next)) = stuck.next().await else {
        panic!("no event")
    };
    assert_eq!(next.sequence(), missed + 1);
    let reread = dispatcher
        .store()
        .events(dispatcher.session(), 0, missed as usize)
        .await
        .expect("reads");
    assert_eq!(
        sequences(&reread),
        (1..=missed).collect::<Vec<_>>(),
        "and it can load them"
    );
}

#[tokio::test]
async fn a_follower_sees_every_event_once_however_slow_it_is() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let bus = Bus::new(4);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .bus(bus.clone())
        .build()
        .await
        .expect("builds");
    let turn = |n: usize| {
        let calls = (0..n)
            .map(|n| request(&n.to_string(), "echo", "x"))
            .collect();
        TurnRequest::new(view(&registry), calls)
    };
    dispatcher
        .open_turn(turn(3))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let mut follow = bus.follow_session(dispatcher.store().clone(), dispatcher.session(), 2);
    let mut seen = vec![
        follow
            .next()
            .await
            .expect("reads")
            .expect("open")
            .sequence(),
    ];
    dispatcher
        .open_turn(turn(200))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let last = dispatcher
        .store()
        .revision(dispatcher.session())
        .await
        .expect("reads");
    while seen.last() != Some(&last) {
        seen.push(
            follow
                .next()
                .await
                .expect("reads")
                .expect("open")
                .sequence(),
        );
    }
    assert_eq!(seen, (3..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_detached_consumer_is_not_called_any_more() {
    let bus = Bus::default();
    let attached = bus.attach(|_| {});
    assert_eq!(bus.subscriber_count(), 1);
    drop(attached);
    while bus.subscriber_count() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_follower_sees_what_another_process_writes() {
    let registry = registry(&Probe::default());
    let dispatcher = Dispatcher::builder(stack(&registry))
        .build()
        .await
        .expect("builds");
    // A bus of its own, as in another process: only the store is shared.
    let clock = TestClock::new();
    let elsewhere = Bus::default();
    let mut follow = elsewhere
        .follow_session(dispatcher.store().clone(), dispatcher.session(), 0)
        .with_clock(clock.clone());
    let mut waiting = Box::pin(follow.next());
    while clock.sleeper_count() == 0 {
        assert!(
            futures::poll!(&mut waiting).is_pending(),
            "nothing happened"
        );
    }
    let calls = vec![request("1", "echo", "x")];
    let turn = dispatcher.open_turn(TurnRequest::new(view(&registry), calls));
    turn.await.expect("opens").run().await.expect("runs");
    assert!(
        futures::poll!(&mut waiting).is_pending(),
        "the store is read after a pause"
    );
    clock.advance(Duration::from_secs(1));
    let first = waiting.await.expect("reads").expect("open");
    assert_eq!(first.sequence(), 1);
    let store = dispatcher.store();
    let last = store.revision(dispatcher.session()).await.expect("reads");
    let mut seen = first.sequence();
    while seen < last {
        seen = follow
            .next()
            .await
            .expect("reads")
            .expect("open")
            .sequence();
    }
}
