//! The queue: order, fairness, and every order of pushing and waiting.

use std::sync::Arc;

use super::*;
use crate::schedule::model::explore;

#[test]
fn results_come_before_requests_before_messages() {
    let inbox = InputQueue::new();
    inbox.push(Urgency::Message, "hi");
    inbox.push(Urgency::Request, "start");
    inbox.push(Urgency::Settlement, "result");
    inbox.push(Urgency::Settlement, "decision");
    let order: Vec<_> = std::iter::from_fn(|| inbox.take()).collect();
    assert_eq!(order, ["result", "decision", "start", "hi"]);
}

#[test]
fn a_flood_of_results_starves_neither_requests_nor_messages() {
    let inbox = InputQueue::new();
    inbox.push(Urgency::Request, 1);
    inbox.push(Urgency::Message, 2);
    let mut served = Vec::new();
    for _ in 0..1_000 {
        inbox.push(Urgency::Settlement, 0);
        inbox.push(Urgency::Settlement, 0);
        served.extend(inbox.take());
    }
    let place = |wanted| {
        served
            .iter()
            .position(|item| *item == wanted)
            .expect("was served")
    };
    let bound = 2 * (InputQueue::<i32>::FAIR_AFTER as usize + 1);
    assert!(
        place(1) <= bound && place(2) <= bound,
        "{} {}",
        place(1),
        place(2)
    );
    assert!(served.iter().filter(|item| **item == 0).count() >= 990);
}

#[tokio::test]
async fn items_that_arrive_without_a_waiter_are_not_missed() {
    let inbox = std::sync::Arc::new(InputQueue::new());
    let waiter = tokio::spawn({
        let inbox = inbox.clone();
        async move { [inbox.next().await, inbox.next().await] }
    });
    inbox.push(Urgency::Message, 'a');
    tokio::task::yield_now().await;
    inbox.push(Urgency::Message, 'b');
    assert_eq!(waiter.await.expect("no panic"), ['a', 'b']);
}

/// Takes `count` items in a task of its own.
fn consume(
    queue: &Arc<InputQueue<(u32, u32)>>,
    count: usize,
) -> shuttle::future::JoinHandle<Vec<(u32, u32)>> {
    let queue = queue.clone();
    shuttle::future::spawn(async move {
        let mut items = Vec::new();
        while items.len() < count {
            items.push(queue.next().await);
        }
        items
    })
}

/// Pushes three items from a thread of its own, each producer with its own urgency.
fn produce(queue: &Arc<InputQueue<(u32, u32)>>, producer: u32) {
    let queue = queue.clone();
    let urgency = [Urgency::Settlement, Urgency::Message][producer as usize % 2];
    shuttle::thread::spawn(move || {
        queue.push(urgency, (producer, 0));
        queue.extend(urgency, [(producer, 1), (producer, 2)]);
    });
}

#[test]
fn in_every_order_each_item_is_taken_once_and_in_the_order_of_its_producer() {
    explore(|| {
        let queue = Arc::new(InputQueue::new());
        let consumer = consume(&queue, 6);
        produce(&queue, 0);
        produce(&queue, 1);
        let items = shuttle::future::block_on(consumer).expect("no panic");
        for producer in 0..2 {
            let of: Vec<_> = items.iter().filter(|item| item.0 == producer).collect();
            assert_eq!(of, [&(producer, 0), &(producer, 1), &(producer, 2)]);
        }
    });
}

#[test]
fn in_every_order_two_consumers_miss_no_item() {
    explore(|| {
        let queue = Arc::new(InputQueue::new());
        let consumers = [consume(&queue, 3), consume(&queue, 3)];
        produce(&queue, 0);
        produce(&queue, 1);
        let mut items = Vec::new();
        for consumer in consumers {
            items.extend(shuttle::future::block_on(consumer).expect("no panic"));
        }
        items.sort_unstable();
        assert_eq!(items, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    });
}

#[test]
fn in_every_order_a_consumer_that_stops_waiting_loses_no_item() {
    explore(|| {
        let queue = Arc::new(InputQueue::new());
        let waiting = queue.clone();
        let impatient = shuttle::future::spawn(async move {
            let mut next = Box::pin(waiting.next());
            for _ in 0..2 {
                if let std::task::Poll::Ready(item) = futures::poll!(&mut next) {
                    return vec![item];
                }
                shuttle::future::yield_now().await;
            }
            Vec::new()
        });
        produce(&queue, 0);
        let mut items = shuttle::future::block_on(impatient).expect("no panic");
        let rest = consume(&queue, 3 - items.len());
        items.extend(shuttle::future::block_on(rest).expect("no panic"));
        assert_eq!(items, [(0, 0), (0, 1), (0, 2)]);
    });
}
