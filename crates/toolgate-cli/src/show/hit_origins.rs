//! The origins of the sessions that a search has found.

use std::collections::{HashMap, hash_map::Entry};

use toolgate::{
    search::SearchHit,
    store::{ImportOrigin, StoreError, StoreHandle},
    value::SessionId,
};

/// The origins of sessions that were imported, by session. Others have none.
#[derive(Debug, Default)]
pub(crate) struct HitOrigins(HashMap<SessionId, Option<ImportOrigin>>);

impl HitOrigins {
    /// Loads the origins of the sessions of these hits.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub(crate) async fn load(store: &StoreHandle, hits: &[SearchHit]) -> Result<Self, StoreError> {
        let mut origins = HashMap::new();
        for hit in hits {
            if let Entry::Vacant(unknown) = origins.entry(hit.session) {
                unknown.insert(store.load_import_origin(hit.session).await?);
            }
        }
        Ok(Self(origins))
    }

    /// Returns the origin of a session, if it was imported.
    pub(crate) fn of_session(&self, session: SessionId) -> Option<&ImportOrigin> {
        self.0.get(&session)?.as_ref()
    }
}
