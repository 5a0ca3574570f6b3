//! The changes of a call: stored before they happen, and loaded for undo, for display, and after a
//! crash.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Call, CallId, Digest, IdempotencyKey, Json, ReconciledAttempt, RecordKey, SessionId,
    StoreError, StoreHandle, ToolName,
};
use toolgate_rooted::RootedPath;

use crate::{
    Workspace,
    files::{
        report::{ChangeReport, unified_diff},
        text::DecodedText,
    },
    workspace::{
        commit::{PlannedChange, delete_temp_files},
        open::FileSnapshot,
    },
};

/// The files that one call has changed, or was about to change.
///
/// It is stored before the first file is touched. The outcome of the call tells whether the changes
/// were made.
///
/// ```
/// # use toolgate_core::{CallId, MemoryStore, StoreHandle};
/// # use toolgate_tools::ChangeSet;
/// # async fn show(store: StoreHandle, call: CallId) -> Result<(), toolgate_core::StoreError> {
/// if let Some(changes) = ChangeSet::load(&store, call).await? {
///     println!("{}", changes.diff(&store).await?);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangeSet {
    version: u32,
    /// The call.
    pub call: CallId,
    /// The tool's name.
    pub tool: ToolName,
    /// The session of the call.
    pub session: SessionId,
    /// The root of the workspace.
    pub root: String,
    /// The files.
    pub files: Vec<ChangedFile>,
    /// Directories that did not exist before, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_dirs: Vec<String>,
}

/// The change of one file by a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangedFile {
    /// The path of the file, relative to the root.
    pub path: String,
    /// The old path, if the file was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// The old content; `None` for a new file.
    pub before: Option<FileVersion>,
    /// The new content; `None` for a deleted file.
    pub after: Option<FileVersion>,
}

/// The content of a file, stored as a blob under its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileVersion {
    /// The digest of the content.
    pub digest: Digest,
    /// The size in bytes.
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
}

const CHANGE_SET_VERSION: u32 = 1;

/// The most change sets that are stored for one call.
const MAX_ATTEMPTS: u32 = 100;

impl ChangeSet {
    /// Loads the change set of a call, if one was stored.
    ///
    /// # Errors
    ///
    /// Fails if the store does, or if the record is damaged.
    pub async fn load(store: &StoreHandle, call: CallId) -> Result<Option<Self>, StoreError> {
        // The key of the first attempt is a prefix of all later ones, so one list finds them all.
        let kept = store
            .list_json(&change_set_key(call, 1), None, MAX_ATTEMPTS as usize)
            .await?;
        kept.into_iter()
            .next_back()
            .map(|(key, record)| Self::parse_record(&key, &record))
            .transpose()
    }

    /// Returns the change as a unified diff. Binary files are only named, and a long diff is
    /// truncated.
    ///
    /// # Errors
    ///
    /// Fails if the store does, or if a content is missing from it.
    pub async fn diff(&self, store: &StoreHandle) -> Result<String, StoreError> {
        Ok(unified_diff(&self.load_plan(store).await?))
    }

    /// Loads the text of a version; returns `None` if it is not text.
    ///
    /// # Errors
    ///
    /// Fails if the store does, or if the content is missing from it.
    pub async fn load_text(
        store: &StoreHandle,
        version: &FileVersion,
    ) -> Result<Option<String>, StoreError> {
        let bytes = load_content(store, version).await?;
        Ok(DecodedText::decode(&bytes).map(|text| text.text))
    }

    /// Stores the changes that a plan is about to make, under its call.
    pub(crate) async fn persist_plan(
        store: &StoreHandle,
        workspace: &Workspace,
        call: &Call,
        plan: &[PlannedChange],
        made_dirs: &[RootedPath],
    ) -> Result<(), StoreError> {
        let mut files = Vec::with_capacity(plan.len());
        // Contents before the record: a record must never refer to a missing content.
        for planned in plan {
            files.push(ChangedFile {
                path: planned.place.to_string(),
                renamed_from: planned.renamed_from.as_ref().map(RootedPath::to_string),
                before: store_snapshot(store, planned.before.as_ref()).await?,
                after: store_snapshot(store, planned.after.as_ref()).await?,
            });
        }
        let tool = call.tool.clone();
        let session = call.turn().session;
        let root = workspace.root().to_string_lossy().into_owned();
        let made_dirs = made_dirs.iter().map(RootedPath::to_string).collect();
        let set = Self {
            version: CHANGE_SET_VERSION,
            call: call.id,
            tool,
            session,
            root,
            files,
            made_dirs,
        };
        let record = serde_json::to_value(&set).expect("plain data is JSON");
        let record = Json::new(record).expect("a list of files is not deeply nested");
        // A record is written once. Another attempt that finds other files gets a record of its own,
        // which sorts after this one: the last record is the one that counts.
        for attempt in 1..=MAX_ATTEMPTS {
            let key = RecordKey::Other(Arc::from(change_set_key(call.id, attempt)));
            match store.put_json_once(key, record.clone()).await? {
                Some(earlier) if earlier != record => {}
                Some(_) | None => return Ok(()),
            }
        }
        Err(StoreError::Backend("one call has too many attempts".into()))
    }

    /// Determines from the files whether the call with this key took effect.
    pub(crate) async fn reconcile(workspace: &Workspace, key: IdempotencyKey) -> ReconciledAttempt {
        let Some(store) = workspace.store() else {
            return ReconciledAttempt::Unknown;
        };
        let Ok(call) = key.to_string().parse::<CallId>() else {
            return ReconciledAttempt::Unknown;
        };
        match Self::load(store, call).await {
            // The change set is stored before the first write.
            Ok(None) => ReconciledAttempt::DidNotHappen,
            Ok(Some(set)) if set.belongs_to(workspace) => {
                set.reconcile_files(workspace, store).await
            }
            // Stored for another workspace, whose files cannot be checked here.
            Ok(Some(_)) => ReconciledAttempt::Unknown,
            Err(_) => ReconciledAttempt::Unknown,
        }
    }

    async fn reconcile_files(
        &self,
        workspace: &Workspace,
        store: &StoreHandle,
    ) -> ReconciledAttempt {
        let Ok(plan) = self.load_plan(store).await else {
            return ReconciledAttempt::Unknown;
        };
        let workspace = workspace.clone();
        let call = self.call;
        let planned = plan.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let look = |planned: &PlannedChange| {
                // A killed attempt leaves its temporary files; only this call may delete them.
                delete_temp_files(&workspace, call, &planned.place);
                ChangeProgress::detect(&workspace, planned)
            };
            planned.iter().map(look).collect::<Vec<_>>()
        });
        let Ok(found) = looked.await else {
            return ReconciledAttempt::Unknown;
        };
        match found {
            found if found.iter().all(|found| *found == ChangeProgress::After) => {
                ChangeReport::new(self.call, &plan)
                    .to_output()
                    .map_or(ReconciledAttempt::Unknown, ReconciledAttempt::Happened)
            }
            found if found.iter().all(|found| *found == ChangeProgress::Before) => {
                ReconciledAttempt::DidNotHappen
            }
            // Partly applied, or changed again since: a person has to look.
            _ => ReconciledAttempt::Unknown,
        }
    }

    /// Checks whether the files are those of this workspace.
    pub(crate) fn belongs_to(&self, workspace: &Workspace) -> bool {
        *self.root == *workspace.root().to_string_lossy()
    }

    /// Loads the changes with their contents.
    pub(crate) async fn load_plan(
        &self,
        store: &StoreHandle,
    ) -> Result<Vec<PlannedChange>, StoreError> {
        let mut plan = Vec::with_capacity(self.files.len());
        for file in &self.files {
            plan.push(PlannedChange {
                place: RootedPath::from_normalized(&file.path),
                renamed_from: file.renamed_from.as_ref().map(RootedPath::from_normalized),
                before: load_snapshot(store, file.before.as_ref()).await?,
                after: load_snapshot(store, file.after.as_ref()).await?,
            });
        }
        Ok(plan)
    }

    fn parse_record(key: &str, record: &Json) -> Result<Self, StoreError> {
        let damaged = |source: Box<dyn std::error::Error + Send + Sync>| {
            let what = format!("the record {key}");
            StoreError::Damaged { what, source }
        };
        let set = Self::deserialize(record.as_value()).map_err(|error| damaged(error.into()))?;
        match set.version {
            CHANGE_SET_VERSION => Ok(set),
            other => Err(damaged(format!("version {other} is not supported").into())),
        }
    }
}

/// The state of a file in relation to a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeProgress {
    /// As it was before.
    Before,
    /// As the plan leaves it.
    After,
    /// Something else.
    Other,
}

impl ChangeProgress {
    pub(crate) fn detect(workspace: &Workspace, planned: &PlannedChange) -> Self {
        let Ok(found) = workspace.read_target(&planned.place) else {
            return Self::Other;
        };
        // Only the executable bit is compared: the umask clears others on new files.
        let telling = |snapshot: &FileSnapshot| (snapshot.digest, snapshot.mode & 0o100);
        let is = |wanted: &Option<FileSnapshot>| {
            wanted.as_ref().map(telling) == found.as_ref().map(telling)
        };
        match (is(&planned.after), is(&planned.before)) {
            (true, _) => Self::After,
            (false, true) => Self::Before,
            (false, false) => Self::Other,
        }
    }
}

/// Returns the key of a change set. Later attempts sort after the first one.
fn change_set_key(call: CallId, attempt: u32) -> String {
    match attempt {
        1 => format!("undo/{call}"),
        later => format!("undo/{call}/{later:03}"),
    }
}

async fn store_snapshot(
    store: &StoreHandle,
    snapshot: Option<&FileSnapshot>,
) -> Result<Option<FileVersion>, StoreError> {
    let Some(FileSnapshot { bytes, mode, .. }) = snapshot else {
        return Ok(None);
    };
    let digest = store.put_blob(bytes.clone()).await?;
    Ok(Some(FileVersion {
        digest,
        size: bytes.len() as u64,
        mode: *mode,
    }))
}

async fn load_snapshot(
    store: &StoreHandle,
    version: Option<&FileVersion>,
) -> Result<Option<FileSnapshot>, StoreError> {
    let Some(version) = version else {
        return Ok(None);
    };
    Ok(Some(FileSnapshot::new(
        load_content(store, version).await?,
        version.mode,
    )))
}

async fn load_content(store: &StoreHandle, version: &FileVersion) -> Result<Bytes, StoreError> {
    let damaged = || StoreError::Damaged {
        what: format!("the file {}", version.digest),
        source: "the content is missing".into(),
    };
    store
        .blob(version.digest, 0..version.size)
        .await?
        // Half a file must not be restored as if it were the whole.
        .filter(|bytes| bytes.len() as u64 == version.size)
        .ok_or_else(damaged)
}
