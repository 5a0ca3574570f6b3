//! Reads the last messages of a conversation, backwards in pages.

use std::sync::Arc;

use toolgate_core::{MessageRecord, SessionId, StoreError, StoreHandle};

/// The number of messages that are loaded first.
pub(super) const FIRST_PAGE: usize = 64;
/// The most messages that are loaded at once.
pub(super) const LARGEST_PAGE: usize = 1_024;

/// The last messages of a conversation, read backwards in pages.
pub(super) struct MessageTail<'a> {
    store: &'a StoreHandle,
    session: SessionId,
    /// The newest page first.
    pub(super) pages: Vec<Vec<(u64, Arc<MessageRecord>)>>,
    size: usize,
    /// The number of the first message that was read.
    pub(super) before: Option<u64>,
    has_read_all: bool,
}

impl<'a> MessageTail<'a> {
    pub(super) fn new(store: &'a StoreHandle, session: SessionId) -> Self {
        Self {
            store,
            session,
            pages: Vec::new(),
            size: 0,
            before: None,
            has_read_all: false,
        }
    }

    pub(super) async fn read_page(&mut self, page_size: usize) -> Result<(), StoreError> {
        let before = self.before.unwrap_or(u64::MAX);
        let page = self.store.messages(self.session, before, page_size).await?;
        self.has_read_all = page.len() < page_size;
        let Some((first, _)) = page.first() else {
            return Ok(());
        };
        self.before = Some(*first);
        self.has_read_all |= *first == 0;
        let sizes = page.iter().map(|(_, said)| said.message.size());
        self.size += sizes.sum::<usize>();
        self.pages.push(page);
        Ok(())
    }

    /// Checks whether there are messages before these that fit into `most` bytes.
    pub(super) fn reaches_further(&self, most: usize) -> bool {
        self.size <= most && !self.has_read_all
    }
}
