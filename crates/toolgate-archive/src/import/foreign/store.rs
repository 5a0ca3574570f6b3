//! Stores a session of another program as history: messages and what its model asked for, and no
//! claim that any gate of ours had a part in it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use toolgate_core::{
    Digest, ImportOrigin, Json, LogPosition, RecordKey, Redactor, SessionId, SessionTitle,
    StoreRecord, Timestamp, WriteBatch,
};
use uuid::Uuid;

use super::{ForeignMessage, ForeignPart, ForeignSession, history::HistoryWriter};
use crate::{ImportError, ImportResult, ImportState, Importer, import::part::take_lease};

/// The number of messages in one transaction.
const PART_MESSAGES: usize = 500;

/// The most system messages that are stored.
const MAX_SYSTEM: usize = 100;

/// How much of a file was imported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SourceState {
    /// The number of messages.
    messages: u64,
    /// The digest of these messages, by which a file that grew is told from one that changed.
    digest: Digest,
}

impl Importer {
    /// Stores a session of another program, or what is new in it since the last time.
    ///
    /// Each transaction also says how far the import came, so that one that was interrupted is
    /// completed by repeating it.
    ///
    /// # Errors
    ///
    /// Fails without a redactor, or if the store fails.
    pub async fn import_foreign(
        &self,
        foreign: &ForeignSession,
    ) -> Result<ImportResult, ImportError> {
        let redactor = self
            .redactor
            .as_deref()
            .ok_or(toolgate_core::RedactionError)?;
        let session = session_id(foreign);
        let mut result = ImportResult {
            session,
            message_count: 0,
            warnings: foreign.warnings.clone(),
            state: ImportState::Unchanged,
        };
        let (number, known) = self.load_source(session).await?;
        let total = foreign.messages.len() as u64;
        let known_messages = known.as_ref().map_or(0, |known| known.messages);
        let mut digest = start_digest();
        let mut messages = foreign.messages.iter();
        for message in messages.by_ref().take(known_messages as usize) {
            digest = next_digest(digest, message);
        }
        if known
            .as_ref()
            .is_some_and(|known| known.messages > total || known.digest != digest)
        {
            let what =
                "the file does not continue what was imported from it before; nothing was changed";
            result.warnings.push(what.to_owned());
            result.state = ImportState::Diverged;
            return Ok(result);
        }
        if messages.len() == 0 {
            return Ok(result);
        }
        result.state = match known {
            Some(_) => ImportState::Grown,
            None => ImportState::Added,
        };
        let mut writing = ForeignImport {
            importer: self,
            redactor,
            foreign,
            session,
            part: number,
        };
        let new = writing.write(known_messages, digest).await?;
        result.message_count = new.messages;
        result.warnings.extend(new.warnings);
        Ok(result)
    }

    /// Loads how much of a file was imported, and the number of the next such record.
    async fn load_source(
        &self,
        session: SessionId,
    ) -> Result<(u64, Option<SourceState>), ImportError> {
        let prefix = source_prefix(session);
        let mut number = 0;
        let mut last = None;
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list_json(&prefix, after.as_deref(), 500).await?;
            let Some((name, json)) = page.last() else {
                return Ok((number, last));
            };
            number += page.len() as u64;
            last = serde_json::from_value(json.as_value().clone()).ok();
            after = Some(name.to_string());
        }
    }
}

fn source_prefix(session: SessionId) -> String {
    format!("imported/{session}/source/")
}

/// Returns the id of a session: always the same for the same session of a program, and in the order
/// of time among ours.
fn session_id(foreign: &ForeignSession) -> SessionId {
    let name = format!("toolgate import\0{}\0{}", foreign.format, foreign.id);
    let digest = Digest::of_bytes(name.as_bytes());
    let first = foreign.messages.iter().find_map(|message| message.at);
    let millis = first.map_or(0, |at| at.as_micros() / 1_000).max(0) as u64;
    let mut random = [0; 10];
    random.copy_from_slice(&digest.as_bytes()[..10]);
    SessionId::new(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
}

/// Returns an id that depends on the session and a number.
pub(super) fn derived_uuid(session: SessionId, word: &str, number: u64) -> Uuid {
    let digest =
        Digest::of_bytes(format!("toolgate import\0{session}\0{word}\0{number}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

fn start_digest() -> Digest {
    Digest::of_bytes(b"toolgate import\0messages")
}

fn next_digest(before: Digest, message: &ForeignMessage) -> Digest {
    let text = serde_json::to_vec(message).unwrap_or_default();
    Digest::of_bytes(&[&before.as_bytes()[..], &text].concat())
}

/// What was written.
struct WrittenMessages {
    messages: u64,
    warnings: Vec<String>,
}

struct ForeignImport<'a> {
    importer: &'a Importer,
    redactor: &'a dyn Redactor,
    foreign: &'a ForeignSession,
    session: SessionId,
    part: u64,
}

impl ForeignImport<'_> {
    /// Writes the messages after the first `known`, whose digest is `digest`.
    async fn write(
        &mut self,
        known: u64,
        mut digest: Digest,
    ) -> Result<WrittenMessages, ImportError> {
        let store = &self.importer.store;
        let directory = match self.foreign.directory.as_deref() {
            Some(directory) => Some(self.redactor.redact_text(directory)?),
            None => None,
        };
        let lease = take_lease(
            store,
            self.session,
            self.importer.now,
            None,
            directory.as_deref(),
        );
        let lease = lease.await?;
        let mut revision = store.revision(self.session).await?;
        let tools = tool_names(&self.foreign.messages);
        let mut history =
            HistoryWriter::new(self.session, self.foreign.format, self.redactor, tools);
        history.begin(
            &self.foreign.messages[..known as usize],
            known,
            revision,
            self.importer.now,
        );
        let mut done = known;
        for part in self.foreign.messages[known as usize..].chunks(PART_MESSAGES) {
            for message in part {
                history.add_message(message);
                digest = next_digest(digest, message);
            }
            done += part.len() as u64;
            let mut batch = history.take_batch();
            if done == part.len() as u64 {
                self.add_first_records(&mut batch)?;
            }
            let state = SourceState {
                messages: done,
                digest,
            };
            self.add_state(&mut batch, &state)?;
            let at = LogPosition {
                revision,
                fence: lease.fence,
                lease_term: None,
            };
            revision = store.append(self.session, at, batch).await?;
        }
        if known == 0 {
            self.set_title().await?;
        }
        store.release_lease(&lease).await?;
        Ok(WrittenMessages {
            messages: done - known,
            warnings: history.warnings,
        })
    }

    /// Adds the mark of the session and its instructions.
    fn add_first_records(&self, batch: &mut WriteBatch) -> Result<(), ImportError> {
        let origin = ImportOrigin {
            format: self.foreign.format.as_str().into(),
            source: Some(self.redactor.redact_text(&self.foreign.id)?.into()),
        };
        let key = ImportOrigin::record_key(self.session);
        batch
            .records
            .push((key, StoreRecord::Json(origin.to_json())));
        for (number, text) in self.foreign.system.iter().take(MAX_SYSTEM).enumerate() {
            let name = format!("imported/{}/system/{number:04}", self.session);
            let text = Json::from(self.redactor.redact_text(text)?.as_str());
            batch
                .records
                .push((RecordKey::Other(name.into()), StoreRecord::Json(text)));
        }
        Ok(())
    }

    fn add_state(
        &mut self,
        batch: &mut WriteBatch,
        state: &SourceState,
    ) -> Result<(), ImportError> {
        let name = format!("{}{:06}", source_prefix(self.session), self.part);
        self.part += 1;
        let value = serde_json::to_value(state).map_err(std::io::Error::from)?;
        let json = Json::new(value).map_err(|error| ImportError::Unusable(error.to_string()))?;
        batch
            .records
            .push((RecordKey::Other(name.into()), StoreRecord::Json(json)));
        Ok(())
    }

    async fn set_title(&self) -> Result<(), ImportError> {
        let Some(title) = &self.foreign.title else {
            return Ok(());
        };
        if let Some(title) = SessionTitle::new(&self.redactor.redact_text(title)?) {
            self.importer
                .store
                .rename_session(self.session, title)
                .await?;
        }
        Ok(())
    }
}

/// Returns the tool of each call by its label: results name only the label.
fn tool_names(messages: &[ForeignMessage]) -> HashMap<String, String> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let calls = parts.filter_map(|part| match part {
        ForeignPart::Call { label, tool, .. } => Some((label.clone(), tool.clone())),
        ForeignPart::Text(_) | ForeignPart::Reasoning(_) | ForeignPart::Result { .. } => None,
    });
    calls.collect()
}

/// Returns the time of the last message that has one.
pub(super) fn last_time(messages: &[ForeignMessage]) -> Option<Timestamp> {
    messages.iter().rev().find_map(|message| message.at)
}
