//! The lossless archive: everything that belongs to a session, byte for byte the same after an
//! import.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    io::Write,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use toolgate_core::{Digest, SessionId, SessionRow, StoreHandle};

use super::{
    ExportSummary, Exporter,
    receipts::write_receipts,
    session_records::{LogScan, PAGE_EVENTS, RecordPages, collect_blobs, is_local_state},
};
use crate::{
    ExportError,
    line::{
        ArchiveHeader, ArchiveLine, BLOB_LINE_BYTES, BlobLine, FORMAT, MAX_BLOB_BYTES,
        MAX_SESSIONS, RecordLine, SessionLine, VERSION,
    },
    writer::ArchiveWriter,
};

/// The kinds of lines in a lossless archive.
const CONTAINS: [&str; 5] = ["events", "records", "blobs", "receipts", "agents"];

impl ArchiveHeader {
    pub(crate) fn new(sessions: &[SessionId], redacted: bool, contains: &[&str]) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            redacted,
            sessions: sessions.to_vec(),
            contains: contains.iter().map(ToString::to_string).collect(),
        }
    }
}

impl SessionLine {
    pub(crate) fn from_row(row: &SessionRow) -> Self {
        Self {
            id: row.session,
            events: row.revision,
            parent: row.parent,
            directory: row.directory.as_deref().map(str::to_owned),
            title: row.title.as_ref().map(ToString::to_string),
            hidden_at: row.hidden_at,
        }
    }
}

impl Exporter {
    pub(super) async fn export_archive(
        &self,
        sessions: &[SessionId],
        out: impl Write + Send,
    ) -> Result<ExportSummary, ExportError> {
        if sessions.len() > MAX_SESSIONS {
            return Err(ExportError::TooLarge {
                what: format!("a list of {} sessions", sessions.len()),
                limit: MAX_SESSIONS as u64,
            });
        }
        let mut archive = ArchiveExport {
            store: &self.store,
            writer: ArchiveWriter::new(out),
            seen: HashSet::new(),
            written: Vec::new(),
            messages: 0,
        };
        let header = ArchiveHeader::new(sessions, false, &CONTAINS);
        archive.writer.put(&ArchiveLine::Archive(header))?;
        for session in sessions {
            self.load_row(*session).await?;
            archive.write_family(self, *session).await?;
        }
        let (_, root) = archive.writer.finish()?;
        Ok(ExportSummary {
            sessions: archive.written,
            messages: archive.messages,
            redacted: false,
            root: Some(root),
        })
    }
}

struct ArchiveExport<'a, W> {
    store: &'a StoreHandle,
    writer: ArchiveWriter<W>,
    seen: HashSet<SessionId>,
    written: Vec<SessionId>,
    messages: u64,
}

impl<W: Write + Send> ArchiveExport<'_, W> {
    /// Writes a session, those of its agents, and their receipts.
    async fn write_family(
        &mut self,
        exporter: &Exporter,
        root: SessionId,
    ) -> Result<(), ExportError> {
        let first = self.written.len();
        let mut waiting = VecDeque::from([root]);
        while let Some(session) = waiting.pop_front() {
            // A session that was asked for and is also that of an agent is written once.
            if self.seen.insert(session) {
                let row = exporter.load_row(session).await?;
                waiting.extend(self.write_session(&row).await?);
                self.written.push(session);
            }
        }
        let family: HashSet<_> = self.written[first..].iter().copied().collect();
        if family.is_empty() {
            return Ok(());
        }
        write_receipts(self.store, root, &family, &mut self.writer).await
    }

    /// Writes a session and returns those of its agents.
    async fn write_session(&mut self, row: &SessionRow) -> Result<Vec<SessionId>, ExportError> {
        let session = row.session;
        let line = SessionLine::from_row(row);
        self.writer.put(&ArchiveLine::Session(line))?;
        let mut scan = LogScan::default();
        let mut blobs = BTreeSet::new();
        let mut agents = Vec::new();
        let mut after = 0;
        while after < row.revision {
            let left = usize::try_from(row.revision - after).unwrap_or(usize::MAX);
            let page = self
                .store
                .events(session, after, left.min(PAGE_EVENTS))
                .await?;
            let Some(last) = page.last() else {
                return Err(ExportError::Changed(session));
            };
            after = last.sequence();
            for event in &page {
                self.writer
                    .put(&ArchiveLine::Event(Box::new((**event).clone())))?;
            }
            let (names, calls) = scan.add_events(&page);
            self.write_records(RecordPages::new(self.store, names), &mut blobs)
                .await?;
            for call in calls {
                let agent = call.agent_session();
                if self.store.revision(agent).await? > 0 {
                    agents.push(agent);
                }
            }
        }
        let own = RecordPages::of_session(self.store, session);
        self.write_records(own, &mut blobs).await?;
        for digest in blobs {
            self.write_blob(digest).await?;
        }
        // An append since the beginning may have added records to some pages and not to others.
        if self.store.revision(session).await? != row.revision {
            return Err(ExportError::Changed(session));
        }
        Ok(agents)
    }

    async fn write_records(
        &mut self,
        mut pages: RecordPages<'_>,
        blobs: &mut BTreeSet<Digest>,
    ) -> Result<(), ExportError> {
        loop {
            let page = pages.next_page().await?;
            if page.is_empty() {
                return Ok(());
            }
            for (name, record) in page {
                if is_local_state(&name) {
                    continue;
                }
                self.messages += u64::from(name.starts_with("message/"));
                collect_blobs(&name, &record, blobs);
                let name = name.to_string();
                self.writer
                    .put(&ArchiveLine::Record(RecordLine { name, record }))?;
            }
        }
    }

    async fn write_blob(&mut self, digest: Digest) -> Result<(), ExportError> {
        let missing = ExportError::MissingBlob(digest);
        let Some(bytes) = self.store.blob(digest, 0..MAX_BLOB_BYTES + 1).await? else {
            return Err(missing);
        };
        let size = bytes.len() as u64;
        if size > MAX_BLOB_BYTES {
            return Err(ExportError::TooLarge {
                what: format!("the blob {digest}"),
                limit: MAX_BLOB_BYTES,
            });
        }
        let mut at = 0;
        // An empty blob has one line, too.
        loop {
            let end = size.min(at + BLOB_LINE_BYTES);
            let data = STANDARD.encode(&bytes[at as usize..end as usize]);
            let line = BlobLine {
                digest,
                size,
                at,
                data,
            };
            self.writer.put(&ArchiveLine::Blob(line))?;
            at = end;
            if at >= size {
                return Ok(());
            }
        }
    }
}
