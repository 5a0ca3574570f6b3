//! Mailboxes of the in-memory store.

use std::{future::Future, ops::Bound};

use crate::{
    ApprovalState, MailboxItem, MailboxStore, RecordKey, SessionId, StoreError, StoreRecord,
    store::memory::MemoryStore,
};

impl MailboxStore for MemoryStore {
    async fn post_item(
        &self,
        session: SessionId,
        post: MailboxItem,
        records: Vec<(RecordKey, StoreRecord)>,
    ) -> Result<(), StoreError> {
        let shelf = &mut *self.lock_state();
        shelf.check_records(&records)?;
        shelf.insert_records(records);
        if let MailboxItem::Answer { call, .. } = &post {
            // Lists show the decision at once, not only after the driver has consumed the item.
            shelf.set_approval_state(*call, ApprovalState::Answered);
        }
        let known = shelf.sessions.entry(session).or_default();
        // Numbers are never reused, so a cursor stays valid when items are consumed.
        known.posted += 1;
        known.posts.insert(known.posted, post);
        if let Some(waiting) = shelf.waiting.get(&session) {
            waiting.send_replace(());
        }
        Ok(())
    }

    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        let shelf = self.lock_state();
        let Some(known) = shelf.sessions.get(&session) else {
            return Ok(Vec::new());
        };
        let found = known
            .posts
            .range((Bound::Excluded(after), Bound::Unbounded))
            .take(limit);
        Ok(found
            .map(|(number, post)| (*number, post.clone()))
            .collect())
    }

    fn wait_for_post(&self, session: SessionId, after: u64) -> impl Future<Output = ()> + Send {
        let mut watching = self
            .lock_state()
            .waiting
            .entry(session)
            .or_default()
            .subscribe();
        let store = self.clone();
        async move {
            // Subscribed before the first check, so that no item is missed in between. Consumed
            // items do not count.
            while !store.has_mailbox_item(session, after) && watching.changed().await.is_ok() {}
        }
    }
}

impl MemoryStore {
    fn has_mailbox_item(&self, session: SessionId, after: u64) -> bool {
        let shelf = self.lock_state();
        let newest = shelf
            .sessions
            .get(&session)
            .and_then(|known| known.posts.last_key_value());
        newest.is_some_and(|(number, _)| *number > after)
    }
}
