//! The mark of sessions that another program or another store made.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Json, RecordKey, SessionId, StoreError, StoreHandle, StoreRecord};

/// The origin of a session that was imported.
///
/// Such a session is history: it is listed, shown and searched, and it cannot be driven. What it
/// says about calls and decisions was not checked by this gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportOrigin {
    /// The word for the format: `toolgate` for an archive, otherwise the program that wrote it.
    pub format: Arc<str>,
    /// The id that the session has there, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Arc<str>>,
}

impl ImportOrigin {
    /// The word for archives of our own.
    pub const ARCHIVE: &str = "toolgate";
    /// The word for a mark that cannot be read.
    pub const UNREADABLE: &str = "unreadable mark";

    /// Returns the key of the mark of a session that another program made. It belongs to the session
    /// and travels with it.
    pub fn record_key(session: SessionId) -> RecordKey {
        RecordKey::Other(format!("imported/{session}/origin").into())
    }

    /// Returns the key of the mark of a session that came from an archive. It belongs to this store
    /// and is not part of the session: exporting the session again gives the same archive.
    pub fn archive_key(session: SessionId) -> RecordKey {
        RecordKey::Other(format!("archive/{session}/mark").into())
    }

    /// Returns the keys of all marks that a session may have.
    pub fn keys(session: SessionId) -> [RecordKey; 2] {
        [Self::record_key(session), Self::archive_key(session)]
    }

    /// Returns the first mark of those that were loaded, if there is one. One that is damaged counts:
    /// the session must not look like one of ours.
    ///
    /// # Errors
    ///
    /// Fails if they could not be loaded for another reason.
    pub fn from_marks(
        marks: Result<Vec<Option<StoreRecord>>, StoreError>,
    ) -> Result<Option<Self>, StoreError> {
        match marks {
            Ok(marks) => {
                let first = marks.into_iter().flatten().next();
                Ok(first.map(|mark| Self::from_record(Ok(mark))))
            }
            Err(StoreError::Damaged { .. }) => Ok(Some(Self::unreadable())),
            Err(error) => Err(error),
        }
    }

    /// Returns the mark that a record holds. One that cannot be read must not make the session look
    /// like one of ours, and must not keep the other sessions from being listed.
    pub fn from_record(record: Result<StoreRecord, StoreError>) -> Self {
        match record {
            Ok(StoreRecord::Json(mark)) => Self::from_json(&mark),
            Ok(_) | Err(_) => Self::unreadable(),
        }
    }

    fn from_json(mark: &Json) -> Self {
        let origin = serde_json::from_value(mark.as_value().clone());
        origin.unwrap_or_else(|_| Self::unreadable())
    }

    fn unreadable() -> Self {
        Self {
            format: Self::UNREADABLE.into(),
            source: None,
        }
    }

    /// Returns the mark as the content of its record.
    pub fn to_json(&self) -> Json {
        let value = serde_json::to_value(self).expect("a mark is plain data");
        Json::new(value).expect("a mark is not nested")
    }
}

impl StoreHandle {
    /// Loads the origin of a session, if it was imported, in one read.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn load_import_origin(
        &self,
        session: SessionId,
    ) -> Result<Option<ImportOrigin>, StoreError> {
        let marks = self.load_records(&ImportOrigin::keys(session)).await;
        ImportOrigin::from_marks(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use uuid::Uuid;

    const SESSION: SessionId = SessionId::new(Uuid::from_u128(7));

    #[test]
    fn both_marks_are_found_and_a_damaged_one_is_an_error() {
        futures::executor::block_on(async {
            let origin = ImportOrigin {
                format: "claude".into(),
                source: Some("x".into()),
            };
            for key in [
                ImportOrigin::record_key(SESSION),
                ImportOrigin::archive_key(SESSION),
            ] {
                let store = StoreHandle::new(MemoryStore::new());
                let none = store.load_import_origin(SESSION).await.expect("reads");
                assert_eq!(none, None);
                store
                    .put_json_once(key, origin.to_json())
                    .await
                    .expect("writes");
                let found = store.load_import_origin(SESSION).await.expect("reads");
                assert_eq!(found.as_ref(), Some(&origin));
            }
            let store = StoreHandle::new(MemoryStore::new());
            let key = ImportOrigin::record_key(SESSION);
            store
                .put_json_once(key, Json::null())
                .await
                .expect("writes");
            let unreadable = store.load_import_origin(SESSION).await.expect("reads");
            let format = unreadable.map(|origin| origin.format);
            assert_eq!(format.as_deref(), Some(ImportOrigin::UNREADABLE));
        });
    }
}
