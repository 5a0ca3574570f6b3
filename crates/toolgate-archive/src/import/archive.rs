//! Imports an archive: verifies all of it, then writes it session by session.

use std::{collections::HashMap, io::BufRead};

use bytes::Bytes;
use toolgate_core::{
    Digest, ErasureNames, Event, ImportOrigin, Json, RecordKey, SessionId, StoreRecord,
};

use super::{
    ImportResult, ImportState, Importer,
    check::ArchiveCheck,
    part::{SessionImport, done_key},
};
use crate::{
    ImportError,
    export::receipts::imported_receipts_prefix,
    line::{ArchiveLine, SessionLine},
    reader::ArchiveReader,
};

/// The number of events whose ids are looked up in the store at once.
const LOOKUP_EVENTS: usize = 200;

/// An archive that passed verification.
pub(super) struct CheckedArchive {
    root: Digest,
    /// The sessions that are in the store completely, from this very archive.
    present: HashMap<SessionId, bool>,
}

impl CheckedArchive {
    /// Returns the mark of its sessions.
    fn mark(&self) -> Json {
        let origin = ImportOrigin {
            format: ImportOrigin::ARCHIVE.into(),
            source: Some(self.root.to_string().into()),
        };
        origin.to_json()
    }
}

impl Importer {
    /// Reads the whole file, checks every line, and that nothing of it is in the store as something
    /// else.
    pub(super) async fn check_archive(
        &self,
        file: &mut (impl BufRead + Send),
    ) -> Result<CheckedArchive, ImportError> {
        let mut reader = ArchiveReader::new(file);
        let header = reader.header()?;
        let mut check = ArchiveCheck::new(&header)?;
        let mut marks = Vec::new();
        let mut ids = EventIds::default();
        while let Some(line) = reader.next_line()? {
            check.check_line(&line)?;
            match line {
                ArchiveLine::Session(session) => {
                    self.look_up(&mut ids).await?;
                    let mark = self.load_mark(session.id, reader.line()).await?;
                    ids.is_marked = mark.is_some();
                    marks.push((reader.line(), session.id, mark));
                }
                ArchiveLine::Event(event) => {
                    ids.add(&event, reader.line());
                    if ids.count >= LOOKUP_EVENTS {
                        self.look_up(&mut ids).await?;
                    }
                }
                _ => {}
            }
        }
        self.look_up(&mut ids).await?;
        let root = reader.root();
        let mut present = HashMap::new();
        for (line, session, mark) in marks {
            let is_present = self.is_present(session, mark, root, line).await?;
            present.insert(session, is_present);
        }
        Ok(CheckedArchive { root, present })
    }

    /// Checks that the store has no records of turns or calls of these events: a file must not add
    /// records, an answer for example, to a call of another session.
    async fn look_up(&self, ids: &mut EventIds) -> Result<(), ImportError> {
        let names = std::mem::take(&mut ids.names);
        ids.count = 0;
        if ids.is_marked || names == ErasureNames::default() {
            return Ok(());
        }
        if self.store.records_named(&names, None, 1).await?.is_empty() {
            return Ok(());
        }
        let what = "a turn or call since here is in the store already, as that of another session";
        Err(ImportError::at_line(ids.line, what))
    }

    /// Loads the mark of a session that came from an archive.
    async fn load_mark(&self, session: SessionId, line: u64) -> Result<Option<Json>, ImportError> {
        let mark = self
            .store
            .load_json(&ImportOrigin::archive_key(session))
            .await?;
        if mark.is_none() && self.store.revision(session).await? > 0 {
            return Err(ImportError::Exists { line, session });
        }
        Ok(mark)
    }

    /// Checks whether a session is in the store completely. It is an error if it came from another
    /// archive.
    async fn is_present(
        &self,
        session: SessionId,
        mark: Option<Json>,
        root: Digest,
        line: u64,
    ) -> Result<bool, ImportError> {
        let Some(mark) = mark else {
            return Ok(false);
        };
        let root = root.to_string();
        if mark.get("source").and_then(|source| source.as_str()) != Some(&root) {
            return Err(ImportError::Exists { line, session });
        }
        Ok(self.store.load_record(&done_key(session)).await?.is_some())
    }

    /// Writes a file that passed verification.
    pub(super) async fn write_archive(
        &self,
        file: &mut (impl BufRead + Send),
        checked: &CheckedArchive,
    ) -> Result<Vec<ImportResult>, ImportError> {
        let mut reader = ArchiveReader::new(file);
        let header = reader.header()?;
        let mut writing = ArchiveImport {
            importer: self,
            checked,
            check: ArchiveCheck::new(&header)?,
            family: Vec::new(),
            results: Vec::new(),
            receipts: 0,
            asked: header.sessions,
        };
        while let Some(line) = reader.next_line()? {
            let blob = writing.check.check_line(&line)?;
            writing.write_line(line).await?;
            if let Some((_, bytes)) = blob {
                self.store.put_blob(Bytes::from(bytes)).await?;
            }
        }
        // The file was read twice; if it changed in between, what was written is not complete.
        if reader.root() != checked.root {
            let what = "the file was changed while it was imported; import it again";
            return Err(ImportError::Unusable(what.to_owned()));
        }
        Ok(writing.results)
    }
}

/// The ids of events that were not looked up yet.
#[derive(Default)]
struct EventIds {
    names: ErasureNames,
    count: usize,
    /// The line of the first of them.
    line: u64,
    /// True if their session came from an archive before.
    is_marked: bool,
}

impl EventIds {
    fn add(&mut self, event: &Event, line: u64) {
        if self.count == 0 {
            self.line = line;
        }
        let names = ArchiveCheck::names_of_event(event);
        self.names.whole.extend(names.whole);
        self.names.starts.extend(names.starts);
        self.count += 1;
    }
}

/// The second pass over an archive: writes what the first has verified.
struct ArchiveImport<'a> {
    importer: &'a Importer,
    checked: &'a CheckedArchive,
    check: ArchiveCheck,
    /// The sessions of the family that is being written. The first is the one that was asked for.
    family: Vec<FamilyMember>,
    results: Vec<ImportResult>,
    receipts: u64,
    asked: Vec<SessionId>,
}

/// A session of a family: one that is written, or one that is there already.
struct FamilyMember {
    line: SessionLine,
    writing: Option<SessionImport>,
}

impl ArchiveImport<'_> {
    async fn write_line(&mut self, line: ArchiveLine) -> Result<(), ImportError> {
        match line {
            ArchiveLine::Session(session) => self.begin_session(session).await,
            ArchiveLine::Event(event) => {
                let Some(writing) = self.writing() else {
                    return Ok(());
                };
                let bytes = event_size(&event);
                writing.add_event(*event, bytes).await
            }
            ArchiveLine::Record(record) => self.write_record(record.name, record.record).await,
            ArchiveLine::Ledger(_)
            | ArchiveLine::Entry(_)
            | ArchiveLine::Outline(_)
            | ArchiveLine::Checkpoint(_) => self.write_receipt(&line).await,
            ArchiveLine::End(_) => self.end_family().await,
            ArchiveLine::Archive(_)
            | ArchiveLine::Blob(_)
            | ArchiveLine::RedactedEvent(_)
            | ArchiveLine::RedactedMessage(_)
            | ArchiveLine::RedactedInstructions(_) => Ok(()),
        }
    }

    /// Returns the session whose lines are read, unless it is there already.
    fn writing(&mut self) -> Option<&mut SessionImport> {
        self.family.last_mut()?.writing.as_mut()
    }

    async fn begin_session(&mut self, line: SessionLine) -> Result<(), ImportError> {
        // Each session is written before the next begins: one is in memory at a time.
        if let Some(writing) = self.writing() {
            writing.write_part().await?;
        }
        if self.asked.contains(&line.id) && !self.check.is_agent(line.id) {
            self.end_family().await?;
        }
        let is_present = self.checked.present.get(&line.id) == Some(&true);
        let state = if is_present {
            ImportState::Unchanged
        } else {
            ImportState::Added
        };
        self.results.push(ImportResult {
            session: line.id,
            message_count: 0,
            warnings: Vec::new(),
            state,
        });
        let mut writing = None;
        if !is_present {
            let importer = self.importer;
            let mark = self.checked.mark();
            let begun = SessionImport::begin(&importer.store, line.clone(), mark, importer.now);
            writing = Some(begun.await?);
        }
        self.family.push(FamilyMember { line, writing });
        Ok(())
    }

    async fn write_record(&mut self, name: String, record: StoreRecord) -> Result<(), ImportError> {
        let is_message = name.starts_with("message/");
        let Some(writing) = self.writing() else {
            return Ok(());
        };
        let key = RecordKey::from_name(&name).expect("the name was checked");
        let bytes = record_size(&record);
        writing.add_record(key, record, bytes).await?;
        if let Some(result) = self.results.last_mut() {
            result.message_count += u64::from(is_message);
        }
        Ok(())
    }

    /// Stores a receipt beside the first session of its family. It keeps its number and its ledger,
    /// and is no part of ours.
    async fn write_receipt(&mut self, line: &ArchiveLine) -> Result<(), ImportError> {
        self.receipts += 1;
        let number = self.receipts;
        let Some(root) = self
            .family
            .first_mut()
            .and_then(|root| root.writing.as_mut())
        else {
            return Ok(());
        };
        let prefix = imported_receipts_prefix(root.session());
        let key = RecordKey::Other(format!("{prefix}{number:012}").into());
        let value = serde_json::to_value(line).map_err(std::io::Error::from)?;
        let json = Json::new(value).map_err(|error| ImportError::Unusable(error.to_string()))?;
        let bytes = json.size();
        root.add_record(key, StoreRecord::Json(json), bytes).await
    }

    /// Completes the sessions of a family, the one that was asked for last.
    async fn end_family(&mut self) -> Result<(), ImportError> {
        self.receipts = 0;
        let store = &self.importer.store;
        let mut family: Vec<_> = self.family.drain(..).collect();
        for writing in family
            .iter_mut()
            .filter_map(|member| member.writing.as_mut())
        {
            writing.write_part().await?;
        }
        let is_written = family.iter().any(|member| member.writing.is_some());
        let is_hidden = family.iter().any(|member| member.line.hidden_at.is_some());
        // In this order: hiding a session also hides those of its agents, which may differ from it.
        for line in family.iter().map(|member| &member.line) {
            if is_written && is_hidden {
                store.hide_session(line.id, line.hidden_at).await?;
            }
        }
        for member in family.into_iter().rev() {
            if let Some(writing) = member.writing {
                writing.finish().await?;
            }
        }
        Ok(())
    }
}

/// Returns the approximate size of an event.
fn event_size(event: &Event) -> usize {
    serde_json::to_vec(event).map_or(0, |text| text.len())
}

/// Returns the approximate size of a record.
fn record_size(record: &StoreRecord) -> usize {
    serde_json::to_vec(record).map_or(0, |text| text.len())
}
