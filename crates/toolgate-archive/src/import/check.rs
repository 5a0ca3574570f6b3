//! The rules of an archive: what may follow what, and that every line belongs to its session.

use std::collections::HashSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use toolgate_core::{
    Digest, ErasureNames, ErasureScope, Event, EventBody, LedgerVerification, RecordKey, SessionId,
};

use crate::{
    ImportError,
    export::session_records::is_local_state,
    line::{
        ArchiveHeader, ArchiveLine, BlobLine, MAX_BLOB_BYTES, MAX_SESSIONS, RecordLine, SessionLine,
    },
};

/// A session that is being read.
struct OpenSession {
    line: SessionLine,
    events: u64,
    scope: ErasureScope,
    /// The first half of the digest of each name: no record may occur twice.
    names: HashSet<[u8; 16]>,
}

/// A blob that is being read.
struct OpenBlob {
    digest: Digest,
    size: u64,
    bytes: Vec<u8>,
}

/// Follows the lines of an archive and rejects the first that is out of place.
pub(super) struct ArchiveCheck {
    line: u64,
    wanted: Vec<SessionId>,
    sessions: HashSet<SessionId>,
    open: Option<OpenSession>,
    blob: Option<OpenBlob>,
    ledger: Option<LedgerVerification>,
    /// The calls of all sessions so far: agents work for one of them.
    agents: HashSet<SessionId>,
}

impl ArchiveCheck {
    pub(super) fn new(header: &ArchiveHeader) -> Result<Self, ImportError> {
        if header.redacted {
            return Err(ImportError::Redacted);
        }
        Ok(Self {
            line: 1,
            wanted: header.sessions.clone(),
            sessions: HashSet::new(),
            open: None,
            blob: None,
            ledger: None,
            agents: HashSet::new(),
        })
    }

    /// Checks the next line. Returns the complete bytes of a blob with its last line.
    pub(super) fn check_line(
        &mut self,
        line: &ArchiveLine,
    ) -> Result<Option<(Digest, Vec<u8>)>, ImportError> {
        self.line += 1;
        if self.blob.is_some() && !matches!(line, ArchiveLine::Blob(_)) {
            return self.fail("bytes of a blob are missing before it");
        }
        match line {
            ArchiveLine::Archive(_) => self.fail("it is a second header"),
            ArchiveLine::Session(session) => self.check_session(session).map(|()| None),
            ArchiveLine::Event(event) => self.check_event(event).map(|()| None),
            ArchiveLine::Record(record) => self.check_record(record).map(|()| None),
            ArchiveLine::Blob(blob) => self.check_blob(blob),
            ArchiveLine::Ledger(head) => {
                self.end_session()?;
                self.ledger = Some(LedgerVerification::after_head(head.clone()));
                Ok(None)
            }
            ArchiveLine::Entry(_) | ArchiveLine::Outline(_) | ArchiveLine::Checkpoint(_) => {
                self.check_receipt(line).map(|()| None)
            }
            ArchiveLine::RedactedEvent(_)
            | ArchiveLine::RedactedMessage(_)
            | ArchiveLine::RedactedInstructions(_) => self.fail("it belongs to a redacted archive"),
            ArchiveLine::End(_) => {
                self.end_session()?;
                if self.wanted.iter().any(|id| !self.sessions.contains(id)) {
                    return self.fail("a session that the header names is missing before it");
                }
                Ok(None)
            }
        }
    }

    fn check_session(&mut self, line: &SessionLine) -> Result<(), ImportError> {
        self.end_session()?;
        self.ledger = None;
        if !self.sessions.insert(line.id) {
            return self.fail("its session occurs twice");
        }
        if self.sessions.len() > MAX_SESSIONS {
            return self.fail("there are too many sessions");
        }
        if !self.wanted.contains(&line.id) && !self.agents.contains(&line.id) {
            return self
                .fail("the header does not name its session, and it is not that of an agent");
        }
        if line.events == 0 {
            return self.fail("its session has no events");
        }
        self.open = Some(OpenSession {
            line: line.clone(),
            events: 0,
            scope: ErasureScope::for_session(line.id),
            names: HashSet::new(),
        });
        Ok(())
    }

    fn check_event(&mut self, event: &Event) -> Result<(), ImportError> {
        let Some(open) = &mut self.open else {
            return self.fail("it is an event outside of a session");
        };
        if event.turn_info().session != open.line.id {
            return self.fail("it is an event of another session");
        }
        if event.sequence() != open.events + 1 {
            return self.fail("its event does not follow the one before it");
        }
        open.events += 1;
        open.scope.add_event(event);
        if let EventBody::Tool(invocation, _) = event.body() {
            self.agents.insert(invocation.id.agent_session());
        }
        Ok(())
    }

    fn check_record(&mut self, line: &RecordLine) -> Result<(), ImportError> {
        let Some(open) = &mut self.open else {
            return self.fail("it is a record outside of a session");
        };
        // A record of anything else, a standing rule for example, must not enter with a session.
        let key = RecordKey::from_name(&line.name).filter(|key| open.scope.owns_record(key));
        let Some(key) = key.filter(|_| !is_local_state(&line.name)) else {
            return self.fail("its record does not belong to the session");
        };
        let mut half = [0; 16];
        half.copy_from_slice(&Digest::of_bytes(line.name.as_bytes()).as_bytes()[..16]);
        if !open.names.insert(half) {
            return self.fail("its record occurs twice");
        }
        if line.record.kind() != kind_of(&key) {
            return self.fail("its record is of another kind than its name says");
        }
        Ok(())
    }

    fn check_blob(&mut self, line: &BlobLine) -> Result<Option<(Digest, Vec<u8>)>, ImportError> {
        if self.open.is_none() {
            return self.fail("it is a blob outside of a session");
        }
        if line.size > MAX_BLOB_BYTES {
            return self.fail("its blob is too large");
        }
        let mut blob = self.blob.take().unwrap_or(OpenBlob {
            digest: line.digest,
            size: line.size,
            bytes: Vec::new(),
        });
        let is_next = blob.digest == line.digest
            && blob.size == line.size
            && blob.bytes.len() as u64 == line.at;
        let Ok(bytes) = STANDARD.decode(&line.data) else {
            return self.fail("its bytes are not base64");
        };
        blob.bytes.extend_from_slice(&bytes);
        let length = blob.bytes.len() as u64;
        if !is_next || length > blob.size || (bytes.is_empty() && blob.size > 0) {
            return self.fail("its bytes do not continue the blob");
        }
        if length < blob.size {
            self.blob = Some(blob);
            return Ok(None);
        }
        if Digest::of_bytes(&blob.bytes) != blob.digest {
            return self.fail("its blob has another digest");
        }
        Ok(Some((blob.digest, blob.bytes)))
    }

    fn check_receipt(&mut self, line: &ArchiveLine) -> Result<(), ImportError> {
        let number = self.line;
        let Some(ledger) = &mut self.ledger else {
            return self.fail("it is a receipt outside of a ledger");
        };
        let checked = match line {
            ArchiveLine::Entry(entry) => ledger.verify_entry(entry),
            ArchiveLine::Outline(outline) => ledger.verify_outline(outline),
            ArchiveLine::Checkpoint(checkpoint) if checkpoint.head() != *ledger.head() => {
                return self.fail("its checkpoint signs another receipt than the one before it");
            }
            _ => Ok(()),
        };
        checked.map_err(|source| ImportError::Receipts {
            line: number,
            source,
        })
    }

    /// Checks that the session so far is complete.
    fn end_session(&mut self) -> Result<(), ImportError> {
        match self.open.take() {
            Some(open) if open.events != open.line.events => {
                self.fail("events of the session before it are missing")
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks whether a session is that of an agent of a session before it.
    pub(super) fn is_agent(&self, session: SessionId) -> bool {
        self.agents.contains(&session)
    }

    /// Returns the names of the records of the turn and the call of an event.
    pub(super) fn names_of_event(event: &Event) -> ErasureNames {
        let mut names = ErasureNames::default();
        names.add_turn(event.turn_info().turn);
        if let EventBody::Tool(invocation, _) = event.body() {
            names.add_call(invocation.id);
        }
        names
    }

    fn fail<T>(&self, what: &str) -> Result<T, ImportError> {
        Err(ImportError::at_line(self.line, what))
    }
}

/// Returns the word for the kind of record that a key requires.
fn kind_of(key: &RecordKey) -> &'static str {
    match key {
        RecordKey::Outcome(_) | RecordKey::Result(..) => "outcome",
        RecordKey::Requests(_) => "requests",
        RecordKey::Ended(_) | RecordKey::Successor(_) => "turn",
        RecordKey::Question(..) => "question",
        RecordKey::Answer(..) => "answer",
        RecordKey::Message(..) => "message",
        RecordKey::Run(..) => "run",
        RecordKey::Layer(..) | RecordKey::Other(_) => "json",
    }
}
