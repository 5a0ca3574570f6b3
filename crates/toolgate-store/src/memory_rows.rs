//! Memories as rows: the same columns in both databases.

use toolgate_core::{
    Digest, MemoryId, MemoryRecord, MemoryVector, Principal, SessionId, StoreError, StoredMemory,
};

use crate::{
    checksum::{RowChecksum, row_name},
    encoded::{decode_json, encode_json},
};

/// The number of neighbours whose vectors are compared when a memory is stored: the newest of its
/// scope.
pub(crate) const MAX_NEIGHBOURS: usize = 10_000;

/// A memory in its encoded form.
pub(crate) struct EncodedMemory {
    pub(crate) id: MemoryId,
    pub(crate) owner: String,
    pub(crate) scope: String,
    pub(crate) key: Digest,
    pub(crate) kind: &'static str,
    pub(crate) session: Option<SessionId>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) body: String,
    pub(crate) checksum: RowChecksum,
}

impl EncodedMemory {
    pub(crate) fn new(record: &MemoryRecord) -> Result<Self, StoreError> {
        let body = encode_json(record)?;
        Ok(Self {
            id: record.id,
            owner: owner_column(record.owner.as_ref()),
            scope: record.scope.to_key(),
            key: record.dedup_key(),
            kind: record.kind.as_str(),
            session: record.source.session,
            expires_at: record.expires_at.map(|at| at.as_micros()),
            checksum: RowChecksum::of_memory(record.id, &body),
            body,
        })
    }
}

/// Returns the column of an owner; no owner is empty text, which no principal is.
pub(crate) fn owner_column(owner: Option<&Principal>) -> String {
    owner.map_or_else(String::new, |owner| format!("@{}", owner.as_str()))
}

/// Parses the body of a memory, after a check of its checksum.
pub(crate) fn decode_memory(
    id: MemoryId,
    body: &str,
    checksum: Option<i64>,
) -> Result<MemoryRecord, StoreError> {
    let what = || row_name("memories", id);
    RowChecksum::of_memory(id, body).check(checksum, what)?;
    let record: MemoryRecord = decode_json(body, what)?;
    if record.id == id {
        return Ok(record);
    }
    Err(StoreError::Damaged {
        what: what(),
        source: "its id is another one".into(),
    })
}

/// Returns a memory with its vector. A vector that cannot be read counts as missing: it is made
/// again from the text.
pub(crate) fn with_vector(
    record: MemoryRecord,
    embedder: Option<&str>,
    vector: Option<&[u8]>,
) -> StoredMemory {
    let vector = embedder
        .zip(vector)
        .and_then(|(embedder, bytes)| MemoryVector::from_bytes(embedder, bytes));
    StoredMemory { record, vector }
}
