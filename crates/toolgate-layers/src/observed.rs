//! A list that screens can watch: the newest snapshot for whoever looks, and callbacks that hold nobody up.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use toolgate_core::contained_sync;

type Listener<T> = Arc<dyn Fn(&[T]) + Send + Sync>;

/// A snapshot and whom it goes to.
type Round<T> = (Arc<[T]>, Vec<Listener<T>>);

/// A shared list with snapshots. Cloning shares it.
///
/// Listeners run on the thread that made a change, after every lock is released. While one runs, changes made
/// elsewhere (or by the listener itself) do not wait for it: they leave the newest snapshot behind, and it is delivered
/// next. So listeners see snapshots in order, may miss some, and always see the last.
pub(crate) struct Observed<T>(Arc<Inner<T>>);

struct Inner<T> {
    list: Mutex<Vec<T>>,
    snapshots: watch::Sender<Arc<[T]>>,
    delivery: Mutex<Delivery<T>>,
}

struct Delivery<T> {
    listeners: Vec<Listener<T>>,
    waiting: Option<Arc<[T]>>,
    running: bool,
}

impl<T: Clone> Observed<T> {
    /// Changes the list. If `change` says that it did, a snapshot is made and delivered.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Vec<T>) -> (R, Changed)) -> R {
        let mut list = lock(&self.0.list);
        let (result, changed) = change(&mut list);
        if changed == Changed::No {
            return result;
        }
        let snapshot: Arc<[T]> = list.as_slice().into();
        // Still under the lock, so that the last snapshot is that of the last change.
        self.0.snapshots.send_replace(snapshot.clone());
        lock(&self.0.delivery).waiting = Some(snapshot);
        drop(list);
        self.deliver();
        result
    }

    /// The list as it is now.
    pub(crate) fn snapshot(&self) -> Arc<[T]> {
        self.0.snapshots.borrow().clone()
    }

    /// Watches the list: the newest snapshot, for as long as the receiver lives.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<[T]>> {
        self.0.snapshots.subscribe()
    }

    /// Calls `listener` after changes.
    pub(crate) fn on_change(&self, listener: impl Fn(&[T]) + Send + Sync + 'static) {
        lock(&self.0.delivery).listeners.push(Arc::new(listener));
    }

    fn deliver(&self) {
        if std::mem::replace(&mut lock(&self.0.delivery).running, true) {
            return;
        }
        while let Some((snapshot, listeners)) = self.next_delivery() {
            for listener in listeners {
                // A listener that panics loses this snapshot; nobody else does.
                let _ = contained_sync(|| listener(&snapshot));
            }
        }
    }

    /// What is to be delivered next; if nothing is, delivering is over.
    fn next_delivery(&self) -> Option<Round<T>> {
        let mut delivery = lock(&self.0.delivery);
        let next = delivery
            .waiting
            .take()
            .map(|snapshot| (snapshot, delivery.listeners.clone()));
        delivery.running = next.is_some();
        next
    }
}

/// Whether a change changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Yes,
    No,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Self {
        if changed { Self::Yes } else { Self::No }
    }
}

// Changes of the list are made whole by short functions of this crate, so a poisoned lock hides nothing half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Default for Observed<T> {
    fn default() -> Self {
        let snapshots = watch::Sender::new(Arc::from(Vec::new()));
        let delivery = Mutex::new(Delivery {
            listeners: Vec::new(),
            waiting: None,
            running: false,
        });
        Self(Arc::new(Inner {
            list: Mutex::new(Vec::new()),
            snapshots,
            delivery,
        }))
    }
}

impl<T> Clone for Observed<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Observed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("items", &self.0.snapshots.borrow().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn push(list: &Observed<u32>, n: u32) {
        list.change(|items| (items.push(n), Changed::Yes));
    }

    #[test]
    fn a_listener_that_panics_harms_nobody() {
        let (list, seen) = (Observed::default(), Arc::new(Mutex::new(Vec::new())));
        list.on_change(|_| panic!("hunter2"));
        let kept = seen.clone();
        list.on_change(move |items: &[u32]| lock(&kept).push(items.len()));
        push(&list, 1);
        push(&list, 2);
        assert_eq!(*lock(&seen), [1, 2]);
    }

    #[test]
    fn a_listener_may_change_what_it_listens_to() {
        let list = Observed::default();
        let (again, seen) = (list.clone(), Arc::new(Mutex::new(Vec::new())));
        let kept = seen.clone();
        list.on_change(move |items: &[u32]| {
            lock(&kept).push(items.to_vec());
            if items.len() < 3 {
                push(&again, items.len() as u32);
            }
        });
        push(&list, 0);
        assert_eq!(*lock(&seen), [vec![0], vec![0, 1], vec![0, 1, 2]]);
    }

    #[test]
    fn nobody_waits_for_a_slow_listener_and_it_sees_the_last_snapshot() {
        let (list, seen) = (Observed::default(), Arc::new(Mutex::new(Vec::new())));
        let (entered, on_entered) = mpsc::channel();
        let (leave, on_leave) = mpsc::channel::<()>();
        let (kept, on_leave) = (seen.clone(), Mutex::new(on_leave));
        list.on_change(move |items: &[u32]| {
            lock(&kept).push(items.len());
            entered.send(()).expect("the test listens");
            lock(&on_leave).recv().expect("the test answers");
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
            *lock(&seen),
            [1, 3],
            "in order, the middle one skipped, the last one seen"
        );
    }

    #[tokio::test]
    async fn a_subscriber_sees_the_newest_snapshot_and_only_changes_wake_it() {
        let list = Observed::default();
        let mut watching = list.subscribe();
        list.change(|_: &mut Vec<u32>| ((), Changed::No));
        assert!(!watching.has_changed().expect("open"));
        push(&list, 1);
        push(&list, 2);
        watching.changed().await.expect("open");
        assert_eq!(**watching.borrow_and_update(), [1, 2]);
        assert!(!watching.has_changed().expect("open"));
    }
}
