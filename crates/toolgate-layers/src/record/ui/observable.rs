//! A list that screens can watch: the newest snapshot, and callbacks that other writers do not wait
//! for.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use toolgate_core::run_contained_sync;

type Listener<T> = Arc<dyn Fn(&[T]) + Send + Sync>;

/// A snapshot and its recipients.
type PendingDelivery<T> = (Arc<[T]>, Vec<Listener<T>>);

/// A shared list with snapshots. Clones share it.
///
/// Listeners run on the thread that made a change, after every lock is released. While one runs,
/// changes on other threads (or by the listener itself) do not wait for it: they store the newest
/// snapshot, which is delivered next. So listeners see snapshots in order, may miss some, and
/// always see the last.
pub(crate) struct ObservableList<T>(Arc<ObservableState<T>>);

struct ObservableState<T> {
    list: Mutex<Vec<T>>,
    snapshots: watch::Sender<Arc<[T]>>,
    delivery: Mutex<ListenerQueue<T>>,
}

struct ListenerQueue<T> {
    listeners: Vec<Listener<T>>,
    waiting: Option<Arc<[T]>>,
    running: bool,
}

impl<T: Clone> ObservableList<T> {
    /// Changes the list. If `change` returns [`ListChange::Yes`], a snapshot is delivered.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Vec<T>) -> (R, ListChange)) -> R {
        let mut list = lock_ignoring_poison(&self.0.list);
        let (result, changed) = change(&mut list);
        if changed == ListChange::No {
            return result;
        }
        let snapshot: Arc<[T]> = list.as_slice().into();
        // Under the list's lock: two writers must not publish their snapshots in reverse order.
        self.0.snapshots.send_replace(snapshot.clone());
        lock_ignoring_poison(&self.0.delivery).waiting = Some(snapshot);
        drop(list);
        self.deliver_snapshots();
        result
    }

    /// Returns the current list.
    pub(crate) fn snapshot(&self) -> Arc<[T]> {
        self.0.snapshots.borrow().clone()
    }

    /// Returns a watch on the newest snapshot.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<[T]>> {
        self.0.snapshots.subscribe()
    }

    /// Calls `listener` after changes.
    pub(crate) fn on_change(&self, listener: impl Fn(&[T]) + Send + Sync + 'static) {
        lock_ignoring_poison(&self.0.delivery)
            .listeners
            .push(Arc::new(listener));
    }

    /// Delivers waiting snapshots, unless another thread is doing so.
    fn deliver_snapshots(&self) {
        // One thread delivers at a time, so that listeners see snapshots in order. It will find
        // ours in `waiting`.
        if std::mem::replace(&mut lock_ignoring_poison(&self.0.delivery).running, true) {
            return;
        }
        while let Some((snapshot, listeners)) = self.next_delivery() {
            for listener in listeners {
                // A listener that panics misses this snapshot; the others must still get it.
                let _ = run_contained_sync(|| listener(&snapshot));
            }
        }
    }

    /// Returns the next snapshot to deliver. If there is none, marks the delivery as finished.
    fn next_delivery(&self) -> Option<PendingDelivery<T>> {
        let mut delivery = lock_ignoring_poison(&self.0.delivery);
        let next = delivery
            .waiting
            .take()
            .map(|snapshot| (snapshot, delivery.listeners.clone()));
        // Under the same lock as `waiting`: a snapshot that arrives now is either seen here or
        // delivered by its writer.
        delivery.running = next.is_some();
        next
    }
}

/// The effect of a change on the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListChange {
    Yes,
    No,
}

impl From<bool> for ListChange {
    fn from(changed: bool) -> Self {
        if changed { Self::Yes } else { Self::No }
    }
}

// A poisoned lock is usable: the functions that change the list are short, and none leaves it
// half-changed.
fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Default for ObservableList<T> {
    fn default() -> Self {
        let snapshots = watch::Sender::new(Arc::from(Vec::new()));
        let delivery = Mutex::new(ListenerQueue {
            listeners: Vec::new(),
            waiting: None,
            running: false,
        });
        Self(Arc::new(ObservableState {
            list: Mutex::new(Vec::new()),
            snapshots,
            delivery,
        }))
    }
}

impl<T> Clone for ObservableList<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for ObservableList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservableList")
            .field("items", &self.0.snapshots.borrow().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn push(list: &ObservableList<u32>, n: u32) {
        list.change(|items| (items.push(n), ListChange::Yes));
    }

    #[test]
    fn a_listener_that_panics_does_not_affect_the_others() {
        let list = ObservableList::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        list.on_change(|_| panic!("hunter2"));
        let kept = seen.clone();
        list.on_change(move |items: &[u32]| lock_ignoring_poison(&kept).push(items.len()));
        push(&list, 1);
        push(&list, 2);
        assert_eq!(*lock_ignoring_poison(&seen), [1, 2]);
    }

    #[test]
    fn a_listener_may_change_what_it_listens_to() {
        let list = ObservableList::default();
        let again = list.clone();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        list.on_change(move |items: &[u32]| {
            lock_ignoring_poison(&kept).push(items.to_vec());
            if items.len() < 3 {
                push(&again, items.len() as u32);
            }
        });
        push(&list, 0);
        assert_eq!(
            *lock_ignoring_poison(&seen),
            [vec![0], vec![0, 1], vec![0, 1, 2]]
        );
    }

    #[test]
    fn writers_do_not_wait_for_a_slow_listener_and_it_sees_the_last_snapshot() {
        let list = ObservableList::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (entered, on_entered) = mpsc::channel();
        let (leave, on_leave) = mpsc::channel::<()>();
        let kept = seen.clone();
        let on_leave = Mutex::new(on_leave);
        list.on_change(move |items: &[u32]| {
            lock_ignoring_poison(&kept).push(items.len());
            entered.send(()).expect("the test listens");
            lock_ignoring_poison(&on_leave)
                .recv()
                .expect("the test answers");
        });
        let slow = std::thread::spawn({
            let list = list.clone();
            move || push(&list, 1)
        });
        on_entered.recv().expect("the listener runs");
        push(&list, 2);
        push(&list, 3);
        assert_eq!(
            list.snapshot().len(),
            3,
            "the changes are made while the listener hangs"
        );
        leave.send(()).expect("the listener waits");
        leave.send(()).expect("the listener waits");
        slow.join().expect("delivers the rest");
        assert_eq!(
            *lock_ignoring_poison(&seen),
            [1, 3],
            "in order, the middle one skipped, the last one seen"
        );
    }

    #[tokio::test]
    async fn a_subscriber_sees_the_newest_snapshot_and_only_changes_wake_it() {
        let list = ObservableList::default();
        let mut watching = list.subscribe();
        list.change(|_: &mut Vec<u32>| ((), ListChange::No));
        assert!(!watching.has_changed().expect("open"));
        push(&list, 1);
        push(&list, 2);
        watching.changed().await.expect("open");
        assert_eq!(**watching.borrow_and_update(), [1, 2]);
        assert!(!watching.has_changed().expect("open"));
    }
}
