//! Fills the index behind the log, in small batches.

use std::sync::Arc;

use crate::{
    Embedder, Event, IndexBatch, IndexEntry, SearchDocument, SearchError, SessionEvent,
    SessionTitle, StaleSession, StoreError, StoreHandle, search::query::truncate_bytes,
};

/// The maximum number of events of one batch: other writers wait for as long as a batch takes.
const BATCH_EVENTS: usize = 128;

/// The maximum size of the words of one batch, unless a single document is larger.
const BATCH_BYTES: usize = 128 * 1024;

/// The number of sessions that are listed at a time.
const LISTED_SESSIONS: usize = 64;

/// The number of documents that are embedded at a time.
const EMBEDDED_AT_ONCE: usize = 64;

/// The maximum number of bytes of a document that are embedded: its beginning says what it is about.
const EMBEDDED_BYTES: usize = 2 * 1024;

/// The progress of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchProgress {
    /// The number of events that were indexed.
    pub events: u64,
    /// The number of documents that were embedded.
    pub embedded: u64,
    /// The number of events that were not indexed at the beginning. Only
    /// [`SearchService::continue_index`](crate::SearchService::continue_index) counts them.
    pub pending_events: u64,
    /// The number of documents that were not embedded once everything was indexed. It is 0 until then,
    /// and counted like the events.
    pub pending_documents: u64,
    /// True if nothing is left to do.
    pub is_complete: bool,
}

/// Indexes events until all are indexed or `most_events` were.
pub(crate) async fn index_events(
    store: &StoreHandle,
    most_events: u64,
    mut report: impl FnMut(u64),
) -> Result<SearchProgress, StoreError> {
    let mut progress = SearchProgress::default();
    let mut listed = LISTED_SESSIONS;
    loop {
        let stale = store.stale_sessions(listed).await?;
        let is_everything = stale.len() < listed;
        if stale.is_empty() {
            progress.is_complete = true;
            return Ok(progress);
        }
        let before = progress.events;
        let mut is_moved = false;
        for session in stale {
            if progress.events >= most_events {
                return Ok(progress);
            }
            let left = most_events - progress.events;
            let done = match index_session(store, session, left).await {
                // The other sessions can be found all the same, and the progress is not complete.
                Err(StoreError::Damaged { .. }) => continue,
                done => done?,
            };
            is_moved |= done.is_moved;
            progress.events += done.events;
            report(progress.events);
        }
        if progress.events > before || is_moved {
            continue;
        }
        // Another process indexes the same sessions and will finish them, or their logs are damaged.
        // Sessions behind them must not wait for that.
        if is_everything {
            return Ok(progress);
        }
        listed = listed.saturating_mul(4);
    }
}

struct IndexedPart {
    events: u64,
    is_moved: bool,
}

/// Indexes a session up to its revision, or as far as the limit allows.
async fn index_session(
    store: &StoreHandle,
    stale: StaleSession,
    most_events: u64,
) -> Result<IndexedPart, StoreError> {
    let mut part = IndexedPart {
        events: 0,
        is_moved: false,
    };
    let mut from = stale.indexed;
    let mut needs_title = stale.is_retitled;
    loop {
        let page = store.events(stale.session, from, BATCH_EVENTS).await?;
        let (entries, to) = take_entries(&page, from, &stale);
        if from == 0 {
            needs_title |= has_own_title(&page, stale.title.as_ref());
        }
        let title = needs_title.then(|| title_entry(&stale)).flatten();
        // A log that ends before its revision is damaged: it moves nothing, and must not be tried
        // without end.
        let moves = to > from || title.is_some() || stale.is_retitled;
        let batch = IndexBatch {
            session: stale.session,
            created_at: stale.created_at,
            from,
            to,
            entries,
            title,
        };
        if !store.index_batch(batch).await? {
            return Ok(part);
        }
        part.is_moved |= moves;
        part.events += to - from;
        needs_title = false;
        from = to;
        if from >= stale.revision || page.is_empty() || part.events >= most_events {
            return Ok(part);
        }
    }
}

/// Returns the entries of the first events of a page, and the number of the last event of them.
fn take_entries(page: &[Arc<Event>], from: u64, stale: &StaleSession) -> (Vec<IndexEntry>, u64) {
    let mut entries = Vec::new();
    let mut bytes = 0;
    let mut to = from;
    for event in page {
        if bytes >= BATCH_BYTES {
            break;
        }
        to = event.sequence();
        let document = SearchDocument::from_event(event, stale.directory.as_ref());
        if let Some(entry) = document.map(IndexEntry::new) {
            bytes += entry.words.len();
            entries.push(entry);
        }
    }
    (entries, to)
}

/// Checks whether the title of a session is not that of its first message: it was given one before
/// there was an index.
fn has_own_title(first_events: &[Arc<Event>], title: Option<&SessionTitle>) -> bool {
    let message = first_events
        .iter()
        .find_map(|event| match event.as_session() {
            Some(SessionEvent::UserMessage {
                text: Some(text),
                steering: false,
                ..
            }) => Some(text),
            _ => None,
        });
    match (title, message) {
        // Titles that a migration made are cut differently, so only the beginnings are compared.
        (Some(title), Some(message)) => {
            let start: String = title
                .as_str()
                .chars()
                .take(40)
                .filter(|c| c.is_alphanumeric())
                .collect();
            let said = message.chars().take(400).filter(|c| c.is_alphanumeric());
            !said.collect::<String>().starts_with(&start)
        }
        (Some(_), None) | (None, _) => false,
    }
}

fn title_entry(stale: &StaleSession) -> Option<Box<IndexEntry>> {
    let title = stale.title.as_ref()?;
    let document = SearchDocument::from_title(
        stale.session,
        title,
        stale.directory.as_ref(),
        stale.updated_at,
    );
    Some(Box::new(IndexEntry::new(document)))
}

/// Embeds documents until all are embedded or `most_documents` were.
pub(crate) async fn embed_documents(
    store: &StoreHandle,
    embedder: &dyn Embedder,
    most_documents: u64,
    mut report: impl FnMut(u64),
) -> Result<SearchProgress, SearchError> {
    let mut progress = SearchProgress::default();
    while progress.embedded < most_documents {
        let left = usize::try_from(most_documents - progress.embedded).unwrap_or(usize::MAX);
        let wanted = left.min(EMBEDDED_AT_ONCE);
        let documents = store
            .unembedded_documents(embedder.id().clone(), wanted)
            .await?;
        if documents.is_empty() {
            progress.is_complete = true;
            return Ok(progress);
        }
        let texts: Vec<&str> = documents
            .iter()
            .map(|(_, document)| truncate_bytes(&document.text, EMBEDDED_BYTES))
            .collect();
        let vectors = embedder.embed(&texts).await?;
        // An embedder that returns fewer vectors than texts would be asked for the same ones forever.
        if vectors.len() != documents.len() {
            return Err(SearchError::Embed(crate::EmbedError::Model {
                embedder: embedder.id().clone(),
                reason: format!(
                    "it returned {} vectors for {} texts",
                    vectors.len(),
                    documents.len()
                ),
            }));
        }
        let ids = documents.iter().map(|(id, _)| *id);
        let vectors: Vec<_> = ids.zip(vectors).collect();
        progress.embedded += vectors.len() as u64;
        store.put_vectors(embedder.id().clone(), vectors).await?;
        report(progress.embedded);
    }
    Ok(progress)
}
