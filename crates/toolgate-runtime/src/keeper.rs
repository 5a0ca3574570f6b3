//! Keeps the lease of a session while a turn is driven, and looks after what others leave for it.

use std::{
    convert::Infallible,
    sync::{Weak, atomic::Ordering},
    time::Duration,
};

use tokio::sync::oneshot;
use toolgate_core::{Post, StoreError};

use crate::{Dispatcher, active::Item, dispatch::Shared, inbox::Urgency};

/// How long a store that failed is left alone.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// Works for as long as there is a dispatcher, and holds nothing of it for longer. Between turns it sleeps: then the lease
/// may run out, and nothing is lost.
pub(crate) async fn keep(shared: Weak<Shared>, gone: oneshot::Receiver<Infallible>) {
    tokio::select! {
        _ = gone => {}
        () = work(shared) => {}
    }
}

async fn work(shared: Weak<Shared>) {
    loop {
        let Some(now) = shared.upgrade() else { return };
        if now.driven().is_empty() {
            // Not held while it waits, so that the last dispatcher can go.
            drop(now);
            idle(&shared).await;
            continue;
        }
        let (journal, driving, clock) = (
            now.journal.clone(),
            now.journal.driving().clone(),
            now.clock.clone(),
        );
        let (store, session, seen) = (
            now.store.clone(),
            now.session,
            now.posts_seen.load(Ordering::SeqCst),
        );
        drop(now);
        let posted = store.posted(session, seen);
        let renew = tokio::select! {
            () = driving.due() => true,
            () = posted => false,
        };
        if shared.upgrade().is_none_or(|now| now.driven().is_empty()) {
            continue;
        }
        let kept = if renew { journal.renew().await } else { Ok(()) };
        let taken = take_posts(&shared, &store.posts(session, seen, 1).await).await;
        if journal.failure().is_some() {
            // Whoever waits for a call or a decision is told at once.
            let driven = shared.upgrade().map(|now| now.driven()).unwrap_or_default();
            driven
                .iter()
                .for_each(|active| active.inbox.push(Urgency::Settlement, Item::Posted));
            return;
        }
        if kept.is_err() || !taken {
            clock.sleep(AFTER_A_FAILURE).await;
        }
    }
}

/// Takes posts up, if there are any, and says whether that could be done. Only then is the dispatcher held: whoever drops
/// the last handle to it wants the session to be free at once.
async fn take_posts(shared: &Weak<Shared>, found: &Result<Vec<(u64, Post)>, StoreError>) -> bool {
    match (found, shared.upgrade()) {
        (Ok(posts), Some(now)) if !posts.is_empty() => Dispatcher(now).take_posts().await.is_ok(),
        (found, _) => found.is_ok(),
    }
}

/// Waits for a turn to drive.
async fn idle(shared: &Weak<Shared>) {
    while let Some(now) = shared.upgrade() {
        if !now.driven().is_empty() {
            return;
        }
        let opened = now.opened_soon();
        drop(now);
        opened.await;
    }
}
