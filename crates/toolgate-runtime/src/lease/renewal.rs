//! Renews the lease of a session while a run or a turn is driven, and processes its mailbox.

use std::{
    convert::Infallible,
    sync::{Weak, atomic::Ordering},
    time::Duration,
};

use tokio::sync::oneshot;
use toolgate_core::{MailboxItem, StoreError};

use crate::{
    Dispatcher,
    turn::{DispatcherShared, open_turn::DriverInput, queue::Urgency},
};

/// Pause after the store has failed.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// Runs for as long as there is a dispatcher, without keeping it alive. Between runs it sleeps:
/// the lease may expire then, and nothing is lost.
pub(crate) async fn run_renewal(
    shared: Weak<DispatcherShared>,
    gone: oneshot::Receiver<Infallible>,
) {
    tokio::select! {
        _ = gone => {}
        () = renew_while_driven(shared) => {}
    }
}

async fn renew_while_driven(shared: Weak<DispatcherShared>) {
    loop {
        let Some(now) = shared.upgrade() else { return };
        if !now.is_driving() {
            // Dropped before waiting, so that the last dispatcher can be dropped.
            drop(now);
            wait_for_work(&shared).await;
            continue;
        }
        let journal = now.journal.clone();
        let driving = journal.lease().clone();
        let clock = now.clock.clone();
        let store = now.store.clone();
        let session = now.session;
        let seen = now.posts_seen.load(Ordering::SeqCst);
        drop(now);
        let posted = store.wait_for_post(session, seen);
        let renew = tokio::select! {
            () = driving.wait_until_due() => true,
            () = posted => false,
        };
        let Some(now) = shared.upgrade() else { return };
        // The run may have ended while this waited; its lease need not be renewed. Items that were
        // processed meanwhile, as they are when a turn is resumed, need not be read again.
        let is_processed = now.posts_seen.load(Ordering::SeqCst) > seen;
        let has_nothing_new = is_processed && !renew && journal.failure().is_none();
        if !now.is_driving() || has_nothing_new {
            continue;
        }
        drop(now);
        let kept = if renew { journal.renew().await } else { Ok(()) };
        let taken = process_mailbox(&shared, &store.posts(session, seen, 1).await).await;
        if journal.failure().is_some() {
            // Wakes everything that waits for a call or a decision: the driver then finds the
            // failed journal.
            let driven = shared
                .upgrade()
                .map(|now| now.driven_turns())
                .unwrap_or_default();
            driven
                .iter()
                .for_each(|active| active.inbox.push(Urgency::Settlement, DriverInput::Applied));
            return;
        }
        if kept.is_err() || !taken {
            clock.sleep(AFTER_A_FAILURE).await;
        }
    }
}

/// Processes mailbox messages, if there are any. Returns false if that failed.
///
/// Only meanwhile is the dispatcher kept alive: when its last handle is dropped, the session should
/// be free at once.
async fn process_mailbox(
    shared: &Weak<DispatcherShared>,
    found: &Result<Vec<(u64, MailboxItem)>, StoreError>,
) -> bool {
    match (found, shared.upgrade()) {
        (Ok(posts), Some(now)) if !posts.is_empty() => {
            Dispatcher(now).process_mailbox().await.is_ok()
        }
        (found, _) => found.is_ok(),
    }
}

/// Waits for a run or a turn to drive.
async fn wait_for_work(shared: &Weak<DispatcherShared>) {
    while let Some(now) = shared.upgrade() {
        if now.is_driving() {
            return;
        }
        let opened = now.wait_for_open();
        drop(now);
        opened.await;
    }
}
