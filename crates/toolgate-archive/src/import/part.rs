//! The parts in which a session is written: few transactions, of bounded size.

use std::sync::Arc;

use toolgate_core::{
    Event, ImportOrigin, Json, Lease, LeaseRequest, LeaseTerm, LogPosition, RecordKey, SessionId,
    StoreError, StoreHandle, StoreRecord, Timestamp, WriteBatch,
};

use crate::{ImportError, line::SessionLine};

/// The size at which a part is written. Smaller sessions are one transaction.
const PART_ROWS: usize = 4_000;
const PART_BYTES: usize = 16 * 1024 * 1024;

/// The time until the lease of an import that was interrupted expires.
const LEASE_SPAN: std::time::Duration = std::time::Duration::from_secs(60);

/// The name of the lease holder.
const HOLDER: &str = "import";

/// Writes the rows of one session, in parts.
pub(super) struct SessionImport {
    store: StoreHandle,
    lease: Lease,
    line: SessionLine,
    mark: Json,
    batch: WriteBatch,
    bytes: usize,
    part: u32,
    revision: u64,
}

/// Returns the key of the record that says that a session was imported completely.
pub(super) fn done_key(session: SessionId) -> RecordKey {
    RecordKey::Other(format!("archive/{session}/done").into())
}

fn part_key(session: SessionId, part: u32) -> RecordKey {
    match part {
        0 => ImportOrigin::archive_key(session),
        part => RecordKey::Other(format!("archive/{session}/part/{part:06}").into()),
    }
}

/// Takes the lease of a session. That of an import that was interrupted is replaced.
pub(crate) async fn take_lease(
    store: &StoreHandle,
    session: SessionId,
    now: Timestamp,
    parent: Option<SessionId>,
    directory: Option<&str>,
) -> Result<Lease, StoreError> {
    let request = LeaseRequest {
        session,
        holder: HOLDER.into(),
        term: LeaseTerm {
            now,
            span: LEASE_SPAN,
        },
        instead_of: None,
        parent,
        directory: directory.map(Into::into),
    };
    store.acquire_lease(request).await
}

impl SessionImport {
    pub(super) async fn begin(
        store: &StoreHandle,
        line: SessionLine,
        mark: Json,
        now: Timestamp,
    ) -> Result<Self, ImportError> {
        let directory = line.directory.as_deref();
        let lease = take_lease(store, line.id, now, line.parent, directory).await?;
        Ok(Self {
            store: store.clone(),
            lease,
            line,
            mark,
            batch: WriteBatch::default(),
            bytes: 0,
            part: 0,
            revision: 0,
        })
    }

    pub(super) fn session(&self) -> SessionId {
        self.line.id
    }

    pub(super) async fn add_event(
        &mut self,
        event: Event,
        bytes: usize,
    ) -> Result<(), ImportError> {
        self.batch.events.push(Arc::new(event));
        self.count_row(bytes).await
    }

    pub(super) async fn add_record(
        &mut self,
        key: RecordKey,
        record: StoreRecord,
        bytes: usize,
    ) -> Result<(), ImportError> {
        self.batch.records.push((key, record));
        self.count_row(bytes).await
    }

    async fn count_row(&mut self, bytes: usize) -> Result<(), ImportError> {
        self.bytes += bytes;
        let rows = self.batch.events.len() + self.batch.records.len();
        if rows >= PART_ROWS || self.bytes >= PART_BYTES {
            self.write_part().await?;
        }
        Ok(())
    }

    /// Writes what was collected as one transaction, together with the mark of the part, by which a
    /// repeated import knows that it is there.
    pub(super) async fn write_part(&mut self) -> Result<(), ImportError> {
        let mut batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        let key = part_key(self.line.id, self.part);
        self.part += 1;
        let revision = self.revision + batch.events.len() as u64;
        if self.store.load_record(&key).await?.is_none() {
            let mark = StoreRecord::Json(self.mark.clone());
            batch.records.push((key, mark));
            let at = LogPosition {
                revision: self.revision,
                fence: self.lease.fence,
                lease_term: None,
            };
            self.store.append(self.line.id, at, batch).await?;
        }
        self.revision = revision;
        Ok(())
    }

    /// Writes the rest, and everything about the session that no event says.
    pub(super) async fn finish(mut self) -> Result<(), ImportError> {
        self.write_part().await?;
        let session = self.line.id;
        let filter = toolgate_core::SessionFilter::for_session(session);
        let row = self.store.sessions(filter).await?.pop();
        let title = self.line.title.as_deref();
        let shown = row.and_then(|row| row.title);
        if title != shown.as_ref().map(toolgate_core::SessionTitle::as_str)
            && let Some(title) = title.and_then(toolgate_core::SessionTitle::new)
        {
            self.store.rename_session(session, title).await?;
        }
        let done = StoreRecord::Json(self.mark.clone());
        self.store.put_record_once(done_key(session), done).await?;
        Ok(self.store.release_lease(&self.lease).await?)
    }
}
