//! The checksums of rows, which show that stored bytes were damaged.

use toolgate_core::{Digest, SessionId, StoreError};

/// The checksum of a row: the first 8 bytes of the SHA-256 of its table, its key and its body.
///
/// It covers the bytes as they are stored, not what they mean, so it outlives a change of their
/// format. With the key in it, rows that were exchanged are found too. It finds damage, not
/// forgery: a process that can write the row can compute it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowChecksum(i64);

impl RowChecksum {
    pub(crate) fn of_event(session: SessionId, sequence: u64, body: &str) -> Self {
        let id = session.uuid().into_bytes();
        Self::of_row(b"events", &[&id, &sequence.to_be_bytes()], body)
    }

    pub(crate) fn of_record(key: &str, body: &str) -> Self {
        Self::of_row(b"records", &[key.as_bytes()], body)
    }

    fn of_row(table: &[u8], key: &[&[u8]], body: &str) -> Self {
        let mut bytes = Vec::with_capacity(body.len() + 96);
        for part in [table].iter().chain(key) {
            // With its length, so that no two keys give the same bytes.
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(body.as_bytes());
        let digest = Digest::of_bytes(&bytes);
        let (first, _) = digest.as_bytes().split_at(8);
        Self(i64::from_be_bytes(first.try_into().expect("8 bytes")))
    }

    pub(crate) const fn to_db(self) -> i64 {
        self.0
    }

    /// Compares with the stored checksum. A row that a version before schema 6 wrote has none and
    /// passes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] with `what`, if they differ.
    pub(crate) fn check(
        self,
        stored: Option<i64>,
        what: impl FnOnce() -> String,
    ) -> Result<(), StoreError> {
        if stored.is_none_or(|stored| stored == self.0) {
            return Ok(());
        }
        Err(StoreError::Damaged {
            what: what(),
            source: "its checksum does not match".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_checksum_covers_the_table_the_key_and_the_body() {
        let session = |n| SessionId::new(Uuid::from_u128(n));
        let all = [
            RowChecksum::of_event(session(1), 1, "x"),
            RowChecksum::of_event(session(2), 1, "x"),
            RowChecksum::of_event(session(1), 2, "x"),
            RowChecksum::of_event(session(1), 1, "y"),
            RowChecksum::of_record("x", ""),
            RowChecksum::of_record("", "x"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at}");
        }
    }

    #[test]
    fn a_row_without_a_checksum_passes_and_a_wrong_one_does_not() {
        let sum = RowChecksum::of_record("k", "body");
        assert!(sum.check(None, String::new).is_ok());
        assert!(sum.check(Some(sum.to_db()), String::new).is_ok());
        assert!(sum.check(Some(sum.to_db() ^ 1), String::new).is_err());
    }
}
