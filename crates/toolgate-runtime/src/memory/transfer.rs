//! Exports memories to a file and imports them from one.

use toolgate_core::{
    MemoryFilter, MemoryText, PutMemory, RecallScope, TransferredMemory, TransferredScope,
};

use super::{Memory, MemoryError, NewMemory};

/// The maximum number of memories in a file.
const MAX_EXPORTED: usize = 10_000;

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportedMemories {
    /// The number of memories that are new.
    pub stored: usize,
    /// The number of memories that were there already.
    pub duplicates: usize,
}

impl Memory {
    /// Returns the memories that the filter selects, as they stand in a file; oldest first, at most
    /// the newest 10,000.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn export(
        &self,
        filter: MemoryFilter,
    ) -> Result<Vec<TransferredMemory>, MemoryError> {
        let filter = MemoryFilter {
            owner: self.filter().owner,
            limit: filter.limit.min(MAX_EXPORTED),
            ..filter
        };
        let mut found = self.store.memories(filter).await?;
        found.reverse();
        Ok(found
            .iter()
            .map(|stored| TransferredMemory::from_record(&stored.record))
            .collect())
    }

    /// Stores the memories of a file, each once. Those of a project become memories of this project.
    /// All of them are checked first: if one cannot be stored, none is.
    ///
    /// # Errors
    ///
    /// Fails as [`add`](Self::add) does, and if a memory belongs to a project and there is none. If
    /// the store fails in the middle, those before are stored; importing the file again stores the
    /// rest.
    pub async fn import(
        &self,
        memories: Vec<TransferredMemory>,
    ) -> Result<ImportedMemories, MemoryError> {
        let now = self.clock.now();
        let mut checked = Vec::with_capacity(memories.len());
        for memory in memories {
            let content: MemoryText = self.redact(memory.content.as_str())?;
            let scope = match memory.scope {
                TransferredScope::Session(session) => RecallScope::Session(session),
                TransferredScope::Project => {
                    let project = self.project.clone().ok_or(MemoryError::NoProject)?;
                    RecallScope::Project(project)
                }
                TransferredScope::User => RecallScope::User,
            };
            let mut source = memory.source;
            source.imported_at = Some(now);
            source.pattern = source.pattern.filter(|name| is_pattern_name(name));
            checked.push(NewMemory {
                content: content.to_string(),
                kind: memory.kind,
                scope,
                source,
                expires_at: memory.expires_at,
            });
        }
        let mut imported = ImportedMemories::default();
        for memory in checked {
            match self.add(memory).await? {
                PutMemory::Stored(_) => imported.stored += 1,
                PutMemory::Duplicate(_) => imported.duplicates += 1,
            }
        }
        Ok(imported)
    }
}

/// Checks the name of a pattern in a file: free text would be stored without redaction.
fn is_pattern_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}
