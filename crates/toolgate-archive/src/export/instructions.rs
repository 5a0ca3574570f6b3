//! The instructions of a session: those that its runs began with, or those that were imported.

use std::{collections::BTreeMap, sync::Arc};

use toolgate_core::{RecordKey, RunInstructions, StoreRecord};

/// The instructions in the records of a session.
#[derive(Debug, Default)]
pub(super) struct SessionInstructions {
    /// Instructions and system messages of another program, in order.
    pub(super) imported: Vec<Arc<str>>,
    runs: BTreeMap<u64, Option<RunInstructions>>,
}

impl SessionInstructions {
    /// Takes from a record of the session what it says about instructions.
    pub(super) fn add_record(&mut self, name: &str, record: &StoreRecord) {
        match (RecordKey::from_name(name), record) {
            (Some(RecordKey::Run(_, number)), StoreRecord::Run(run)) => {
                self.runs.insert(number, run.instructions.clone());
            }
            (Some(RecordKey::Other(key)), StoreRecord::Json(json))
                if key.starts_with("imported/") && key.contains("/system/") =>
            {
                self.imported
                    .extend(json.as_value().as_str().map(Into::into));
            }
            _ => {}
        }
    }

    /// Returns the instructions of each run that did not begin with those of the run before it.
    pub(super) fn list_changes(&self) -> BTreeMap<u64, Arc<str>> {
        let mut changes = BTreeMap::new();
        let mut before = None;
        for (number, instructions) in &self.runs {
            let text = instructions
                .as_ref()
                .and_then(|found| self.find_text(found));
            if let Some(text) = text.filter(|text| before != Some(*text)) {
                changes.insert(*number, text.clone());
            }
            before = text;
        }
        changes
    }

    fn find_text<'a>(&'a self, instructions: &'a RunInstructions) -> Option<&'a Arc<str>> {
        match instructions {
            RunInstructions::Text(text) => Some(text),
            RunInstructions::SameAs(run) => match self.runs.get(run) {
                Some(Some(RunInstructions::Text(text))) => Some(text),
                Some(Some(RunInstructions::SameAs(_)) | None) | None => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_listed_where_they_change() {
        let text = |text: &str| Some(RunInstructions::Text(text.into()));
        let same = |run| Some(RunInstructions::SameAs(run));
        let found = SessionInstructions {
            imported: Vec::new(),
            runs: BTreeMap::from([
                (0, text("a")),
                (2, same(0)),
                (4, text("a")),
                (6, text("b")),
                (8, None),
                (10, same(6)),
                // A file may say anything: a run that names itself, or one without a text.
                (12, same(12)),
                (14, same(8)),
            ]),
        };
        let changes = found.list_changes();
        let changes: Vec<_> = changes.iter().map(|(run, text)| (*run, &**text)).collect();
        assert_eq!(changes, [(0, "a"), (6, "b"), (10, "b")]);
    }
}
