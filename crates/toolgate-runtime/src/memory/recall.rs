//! Puts memories into the instructions of a run, as quoted data.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Json, MemoryFilter, MemoryId, MemoryRecord, Message, RecallOptions, RecordKey, Role,
    SessionEvent, SessionId, StoreError, estimate_tokens, quote_memories,
};

use crate::{Memory, RequestContext, Strategy, StrategyError};

/// The part of a request that memories are compared with, in bytes.
const MAX_QUERY_BYTES: usize = 8 * 1024;

/// Recalls memories at the beginning of a run and puts them into its instructions.
///
/// What is recalled follows from the message that begins the run. The ids are stored with the run,
/// so every request of it, in every process, has the same memories; one that is forgotten meanwhile
/// is left out. The event `memory_recalled` has the ids. A store or an embedder that fails leaves
/// the run without memories.
pub struct MemoryRecall {
    memory: Memory,
    options: RecallOptions,
    /// The block of the last run, so that it is built once in a process.
    last: Mutex<Option<RecalledBlock>>,
}

#[derive(Clone)]
struct RecalledBlock {
    session: SessionId,
    run: u64,
    text: Option<Arc<str>>,
}

/// The record of what a run recalled: ids only, so that forgetting a memory leaves no copy of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct RecallRecord {
    memories: Vec<MemoryId>,
}

impl MemoryRecall {
    /// Creates the strategy. The session of the run is filled in, and so is the project of `memory`
    /// unless the options name one.
    pub fn new(memory: Memory, options: RecallOptions) -> Self {
        Self {
            memory,
            options,
            last: Mutex::new(None),
        }
    }

    fn known_block(&self, session: SessionId, run: u64) -> Option<Option<Arc<str>>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref();
        let known = known.filter(|block| block.session == session && block.run == run);
        known.map(|block| block.text.clone())
    }

    async fn recall_for(
        &self,
        context: &mut RequestContext<'_>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let session = context.session;
        let run = context.run;
        let key = RecordKey::Other(format!("memory-recall/{session}/{run:012}").into());
        let stored = context.store.load_json(&key).await?;
        let is_new = stored.is_none();
        let ids = match stored {
            Some(stored) => {
                { RecallRecord::deserialize(stored.as_value()) }
                    .unwrap_or_default()
                    .memories
            }
            None => self.choose(context, &key).await?,
        };
        let records = self.load(&ids).await?;
        // A process that died before its first request may not have written the event.
        if (is_new || context.iteration == 0) && !records.is_empty() {
            let tokens = records.iter().map(count_tokens);
            context.events.push(SessionEvent::MemoryRecalled {
                memories: records.iter().map(|record| record.id).collect(),
                tokens: tokens.sum::<usize>() as u64,
            });
        }
        Ok(quote_memories(&records).map(Arc::from))
    }

    /// Chooses the memories of a run and stores their ids. Of two processes, the first one chooses.
    async fn choose(
        &self,
        context: &RequestContext<'_>,
        key: &RecordKey,
    ) -> Result<Vec<MemoryId>, StoreError> {
        let mut options = self.options.clone();
        options.session = Some(context.session);
        if options.project.is_none() {
            options.project = self.memory.project_directory().cloned();
        }
        let query = last_request(&context.request.messages);
        let found = match self.memory.recall(&query, &options).await {
            Ok(found) => found,
            Err(crate::MemoryError::Store(error)) => return Err(error),
            Err(_) => Vec::new(),
        };
        let record = RecallRecord {
            memories: found.iter().map(|ranked| ranked.record.id).collect(),
        };
        let json = Json::new(json!(record)).expect("flat JSON");
        let there = context.store.put_json_once(key.clone(), json).await?;
        let first = there.and_then(|first| RecallRecord::deserialize(first.as_value()).ok());
        Ok(first.unwrap_or(record).memories)
    }

    /// Loads memories in the order of their ids in the list; those that are gone are left out.
    async fn load(&self, ids: &[MemoryId]) -> Result<Vec<MemoryRecord>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let filter = MemoryFilter {
            ids: ids.to_vec(),
            ..self.memory.filter()
        };
        let found = self.memory.store.memories(filter).await?;
        let by_id = |id: &MemoryId| found.iter().find(|stored| stored.record.id == *id);
        Ok(ids
            .iter()
            .filter_map(by_id)
            .map(|stored| stored.record.clone())
            .collect())
    }
}

fn count_tokens(record: &MemoryRecord) -> usize {
    estimate_tokens(record.content.as_str())
}

impl Strategy for MemoryRecall {
    fn prepare_request<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
    ) -> BoxFuture<'a, Result<(), StrategyError>> {
        Box::pin(async move {
            let text = match self.known_block(context.session, context.run) {
                Some(text) => text,
                None => {
                    let text = match self.recall_for(context).await {
                        Ok(text) => text,
                        Err(error) => {
                            // Memories help; a run does not depend on them.
                            tracing::warn!(session = %context.session, "no memories are recalled: {error}");
                            None
                        }
                    };
                    let block = RecalledBlock {
                        session: context.session,
                        run: context.run,
                        text: text.clone(),
                    };
                    *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(block);
                    text
                }
            };
            if let Some(text) = text {
                let before = context.request.instructions.as_deref();
                let whole = match before {
                    Some(before) => format!("{before}\n\n{text}"),
                    None => text.to_string(),
                };
                context.request.instructions = Some(whole.into());
            }
            Ok(())
        })
    }
}

/// Returns the last message of the user: the one that began the run, or a later one of it.
fn last_request(messages: &[Arc<Message>]) -> String {
    let asked = messages.iter().rev();
    let asked = asked.filter(|message| message.role == Role::User);
    let text = asked
        .map(|message| message.text())
        .next()
        .unwrap_or_default();
    let mut end = text.len().min(MAX_QUERY_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
