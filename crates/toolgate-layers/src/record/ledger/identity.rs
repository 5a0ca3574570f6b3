//! The identity of a ledger: the same name in another database is another ledger.

use serde_json::json;
use toolgate_core::{Json, RecordKey};
use uuid::Uuid;

use crate::{Ledger, LedgerError};

impl Ledger {
    /// Returns the id of the ledger, if it has one. A copy of the database has the same id.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if the record of the id cannot be parsed.
    pub async fn identity(&self) -> Result<Option<Uuid>, LedgerError> {
        let stored = self.store.load_json(&self.identity_key()).await?;
        stored
            .map(|stored| self.parse_identity(&stored))
            .transpose()
    }

    /// Returns the id of the ledger, and gives it one if it has none.
    ///
    /// # Errors
    ///
    /// Fails as [`Ledger::identity`] does.
    pub async fn establish_identity(&self) -> Result<Uuid, LedgerError> {
        let new = Uuid::now_v7();
        let record = Json::new(json!({ "id": new })).expect("an id is not deep");
        match self
            .store
            .put_json_once(self.identity_key(), record)
            .await?
        {
            Some(stored) => self.parse_identity(&stored),
            None => Ok(new),
        }
    }

    fn identity_key(&self) -> RecordKey {
        RecordKey::Other(format!("ledger-id/{}", self.name()).into())
    }

    fn parse_identity(&self, stored: &Json) -> Result<Uuid, LedgerError> {
        let id = stored.get("id").and_then(|id| id.as_str()?.parse().ok());
        // A changed id would hide that the ledger is known.
        id.ok_or_else(|| self.unreadable_record(0).into())
    }
}
