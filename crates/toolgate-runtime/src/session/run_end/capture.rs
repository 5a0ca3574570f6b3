//! What a hook sees of a run: its messages, its final text and its calls.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use toolgate_core::{
    CallId, Message, MessageRecord, PartContent, RecordKey, Role, RunEnd, SessionId, StoreError,
    StoreHandle, StoreRecord, ToolName, ToolRequest, TurnId,
};

/// The maximum number of messages that a hook sees: the last ones of the run.
const MAX_MESSAGES: usize = 2_000;

const PAGE_MESSAGES: usize = 64;

/// A run that has ended, as its hooks see it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CapturedRun {
    /// The session.
    pub session: SessionId,
    /// The number of the message that began the run.
    pub run: u64,
    /// The end of the run.
    pub end: RunEnd,
    /// The messages of the run in order, as they were said; the last 2,000 of a longer run. Unlike
    /// in events, secrets are not redacted.
    pub messages: Vec<Arc<Message>>,
    /// The last text of the model.
    pub text: String,
    /// The calls that the model asked for, in order.
    pub calls: Vec<CapturedCall>,
}

/// A call of a run, as hooks see it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CapturedCall {
    /// The id, as in events and receipts; nothing if the call was never accepted.
    pub id: Option<CallId>,
    /// The tool.
    pub tool: ToolName,
    /// The request, as the model wrote it.
    pub request: ToolRequest,
    /// The turn of the call.
    pub turn: TurnId,
    /// True if it succeeded; nothing if it has no result.
    pub succeeded: Option<bool>,
}

impl CapturedRun {
    /// Loads a run from the store, so that it is the same in every process.
    pub(crate) async fn load(
        store: &StoreHandle,
        session: SessionId,
        run: u64,
        end: RunEnd,
    ) -> Result<Self, StoreError> {
        let records = load_messages(store, session, run).await?;
        let ids = load_call_ids(store, &records).await?;
        let last_reply = records
            .iter()
            .rfind(|record| record.message.role == Role::Assistant);
        let text = last_reply.map(|record| record.message.text());
        Ok(Self {
            session,
            run,
            end,
            text: text.unwrap_or_default(),
            calls: list_calls(&records, &ids),
            messages: records
                .into_iter()
                .map(|record| record.message.clone())
                .collect(),
        })
    }
}

async fn load_messages(
    store: &StoreHandle,
    session: SessionId,
    run: u64,
) -> Result<Vec<Arc<MessageRecord>>, StoreError> {
    let mut found = VecDeque::new();
    let mut before = u64::MAX;
    loop {
        let page = store.messages(session, before, PAGE_MESSAGES).await?;
        let Some((first, _)) = page.first() else {
            return Ok(found.into());
        };
        before = *first;
        for (_, record) in page.into_iter().rev() {
            // The next run may have begun, and its messages come after those of this one.
            if record.run == run {
                found.push_front(record);
            } else if record.run < run {
                return Ok(found.into());
            }
            if found.len() == MAX_MESSAGES {
                return Ok(found.into());
            }
        }
    }
}

/// Returns the ids of the calls by turn and label, in one read of the store.
async fn load_call_ids(
    store: &StoreHandle,
    records: &[Arc<MessageRecord>],
) -> Result<HashMap<(TurnId, String), CallId>, StoreError> {
    let asking = records
        .iter()
        .filter(|record| record.message.calls().next().is_some());
    let keys: Vec<_> = asking
        .map(|record| RecordKey::Requests(record.turn))
        .collect();
    let mut ids = HashMap::new();
    for stored in store.load_records(&keys).await?.into_iter().flatten() {
        let StoreRecord::Requests(requests) = stored else {
            continue;
        };
        for call in &requests.calls {
            ids.insert((requests.info.turn, call.call_id.to_string()), call.id);
        }
    }
    Ok(ids)
}

fn list_calls(
    records: &[Arc<MessageRecord>],
    ids: &HashMap<(TurnId, String), CallId>,
) -> Vec<CapturedCall> {
    let mut calls: Vec<CapturedCall> = Vec::new();
    // A label is used again in a later turn, so the newest call of the label is answered.
    let mut by_label: HashMap<String, usize> = HashMap::new();
    for record in records {
        for part in &record.message.parts {
            match &part.content {
                PartContent::Call(request) => {
                    by_label.insert(request.provider_call_id.clone(), calls.len());
                    let label = (record.turn, request.provider_call_id.clone());
                    calls.push(CapturedCall {
                        id: ids.get(&label).copied(),
                        tool: ToolName::from(request.tool.as_str()),
                        request: request.clone(),
                        turn: record.turn,
                        succeeded: None,
                    });
                }
                PartContent::Result(answer) => {
                    if let Some(at) = by_label.get(&answer.call_id) {
                        calls[*at].succeeded = Some(!answer.is_error);
                    }
                }
                PartContent::Text(_)
                | PartContent::Reasoning(_)
                | PartContent::Media(_)
                | PartContent::Ran(_)
                | PartContent::Opaque => {}
            }
        }
    }
    calls
}
