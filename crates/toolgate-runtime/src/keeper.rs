//! Keeps the lease of a session while a turn is driven, and looks after what others leave for it.

use std::{
    sync::{Weak, atomic::Ordering},
    time::Duration,
};

use crate::{Dispatcher, active::Item, dispatch::Shared, inbox::Urgency};

/// How long a store that failed is left alone.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// Works for as long as there is a dispatcher. Between turns it sleeps: then the lease may run out, and nothing is lost.
pub(crate) async fn keep(shared: Weak<Shared>) {
    loop {
        let Some(now) = shared.upgrade() else { return };
        if now.driven().is_empty() {
            // Not held while it waits, so that the last dispatcher can go.
            drop(now);
            idle(&shared).await;
            continue;
        }
        let (driving, clock) = (now.journal.driving().clone(), now.clock.clone());
        let posted = now.store.posted(now.session, now.posts_seen.load(Ordering::SeqCst));
        drop(now);
        let renew = tokio::select! {
            () = driving.due() => true,
            () = posted => false,
        };
        let Some(now) = shared.upgrade() else { return };
        let dispatcher = Dispatcher(now);
        if dispatcher.0.driven().is_empty() {
            continue;
        }
        let kept = if renew { dispatcher.0.journal.renew().await } else { Ok(()) };
        let taken = dispatcher.take_posts().await;
        if dispatcher.0.journal.failure().is_some() {
            // Whoever waits for a call or a decision is told at once.
            dispatcher.0.driven().iter().for_each(|active| active.inbox.push(Urgency::Settlement, Item::Posted));
            return;
        }
        if kept.is_err() || taken.is_err() {
            drop(dispatcher);
            clock.sleep(AFTER_A_FAILURE).await;
        }
    }
}

/// Waits for a turn to drive, or for the end of the last dispatcher.
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
