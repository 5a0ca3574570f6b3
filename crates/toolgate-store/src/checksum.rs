//! The checksums of rows, which show that stored bytes were damaged.

use toolgate_core::{Digest, MemoryId, SessionId, StoreError};

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
        Self::of_row(b"events", &[&id, &sequence.to_be_bytes()], body.as_bytes())
    }

    pub(crate) fn of_record(key: &str, body: &str) -> Self {
        Self::of_row(b"records", &[key.as_bytes()], body.as_bytes())
    }

    pub(crate) fn of_post(session: SessionId, number: i64, body: &[u8]) -> Self {
        let id = session.uuid().into_bytes();
        Self::of_row(b"posts", &[&id, &number.to_be_bytes()], body)
    }

    pub(crate) fn of_account(key: &[u8], spent: i64, reserved: i64) -> Self {
        let amounts = [spent.to_be_bytes(), reserved.to_be_bytes()].concat();
        Self::of_row(b"accounts", &[key], &amounts)
    }

    pub(crate) fn of_charge(id: &[u8], session: Option<SessionId>, body: &[u8]) -> Self {
        let session = session.map(|session| session.uuid().into_bytes());
        let session = session.as_ref().map_or(&[][..], |id| &id[..]);
        Self::of_row(b"charges", &[id, session], body)
    }

    pub(crate) fn of_memory(id: MemoryId, body: &str) -> Self {
        Self::of_row(b"memories", &[id.uuid().as_bytes()], body.as_bytes())
    }

    pub(crate) fn of_session(session: SessionId, columns: &CheckedColumns<'_>) -> Self {
        let mut body = Vec::with_capacity(128);
        for number in [Some(columns.fence), Some(columns.posted), columns.hidden_at] {
            push_part(
                &mut body,
                number
                    .map(i64::to_be_bytes)
                    .as_ref()
                    .map(|number| &number[..]),
            );
        }
        let parent = columns.parent.map(|parent| parent.uuid().into_bytes());
        push_part(&mut body, parent.as_ref().map(|parent| &parent[..]));
        push_part(&mut body, columns.holder);
        push_part(&mut body, columns.directory);
        Self::of_row(b"sessions", &[&session.uuid().into_bytes()], &body)
    }

    fn of_row(table: &[u8], key: &[&[u8]], body: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(body.len() + 96);
        for part in [table].iter().chain(key) {
            // With its length, so that no two keys give the same bytes.
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(body);
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

/// The columns of a session that its checksum covers: what no event says.
///
/// The revision, the times, the principal, the labels and the last run follow from the events, with
/// which a check compares them. The expiry of a lease and the number of the last use change with
/// almost every write, and harm nothing if they are wrong: the fence keeps two writers apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckedColumns<'a> {
    pub(crate) fence: i64,
    pub(crate) holder: Option<&'a [u8]>,
    pub(crate) posted: i64,
    pub(crate) hidden_at: Option<i64>,
    pub(crate) parent: Option<SessionId>,
    pub(crate) directory: Option<&'a [u8]>,
}

/// Adds a part with its length, so that no two rows give the same bytes.
fn push_part(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    let length = part.map_or(u64::MAX, |part| part.len() as u64);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(part.unwrap_or_default());
}

/// Names a row in an error and in the result of a check.
pub(crate) fn row_name(table: &str, row: impl std::fmt::Display) -> String {
    format!("the row {row} of the table {table}")
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
            RowChecksum::of_post(session(1), 1, b"x"),
            RowChecksum::of_account(b"x", 1, 2),
            RowChecksum::of_account(b"x", 2, 1),
            RowChecksum::of_charge(b"x", None, b"y"),
            RowChecksum::of_charge(b"x", Some(session(1)), b"y"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at}");
        }
    }

    #[test]
    fn the_checksum_of_a_session_covers_each_of_its_columns() {
        let id = SessionId::new(Uuid::from_u128(1));
        let whole = CheckedColumns {
            fence: 3,
            holder: Some(b"ab"),
            posted: 4,
            hidden_at: None,
            parent: None,
            directory: Some(b"c"),
        };
        let changed = [
            CheckedColumns { fence: 4, ..whole },
            CheckedColumns { posted: 3, ..whole },
            CheckedColumns {
                holder: None,
                ..whole
            },
            CheckedColumns {
                holder: Some(b"abc"),
                directory: Some(b""),
                ..whole
            },
            CheckedColumns {
                hidden_at: Some(0),
                ..whole
            },
            CheckedColumns {
                parent: Some(id),
                ..whole
            },
            CheckedColumns {
                directory: None,
                ..whole
            },
        ];
        let sum = RowChecksum::of_session(id, &whole);
        for columns in changed {
            assert_ne!(RowChecksum::of_session(id, &columns), sum, "{columns:?}");
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
