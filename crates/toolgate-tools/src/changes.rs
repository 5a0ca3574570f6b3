//! What calls have changed: kept before it happens, read back for taking it back, for screens, and after a crash.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Call, CallId, Digest, IdempotencyKey, Json, Reconciled, Record, RecordKey, SessionId,
    StoreError, StoreHandle, ToolName,
};

use crate::{
    Workspace,
    commit::{Planned, tidy_up},
    files::Snapshot,
    place::Place,
    report::{Report, diff_of},
    text::Text,
};

/// The files that one call has changed, or was about to change.
///
/// It is written before the first file is touched. Whether the call went through is told by its outcome.
///
/// ```
/// # use toolgate_core::{CallId, MemoryStore, StoreHandle};
/// # use toolgate_tools::ChangeSet;
/// # async fn show(store: StoreHandle, call: CallId) -> Result<(), toolgate_core::StoreError> {
/// if let Some(changes) = ChangeSet::of(&store, call).await? {
///     println!("{}", changes.diff(&store).await?);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangeSet {
    version: u32,
    /// Which call.
    pub call: CallId,
    /// Which tool.
    pub tool: ToolName,
    /// In which session.
    pub session: SessionId,
    /// The root of the workspace.
    pub root: String,
    /// The files.
    pub files: Vec<ChangedFile>,
    /// Directories that did not exist before, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_dirs: Vec<String>,
}

/// What a call has made of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangedFile {
    /// Which file, below the root.
    pub path: String,
    /// What it was called, if it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// What was there; nothing for a new file.
    pub before: Option<FileVersion>,
    /// What is there afterwards; nothing for a file that was taken away.
    pub after: Option<FileVersion>,
}

/// The content of a file, which the store keeps under its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileVersion {
    /// The digest of the content.
    pub digest: Digest,
    /// How many bytes it has.
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
}

const VERSION: u32 = 1;

/// So many different attempts of one call are told apart.
const MOST_ATTEMPTS: u32 = 100;

impl ChangeSet {
    /// What a call has changed, if it was kept.
    pub async fn of(store: &StoreHandle, call: CallId) -> Result<Option<Self>, StoreError> {
        let kept = store
            .list(&key(call, 1), None, MOST_ATTEMPTS as usize)
            .await?;
        kept.into_iter()
            .next_back()
            .map(|(key, record)| Self::read(&key, &record))
            .transpose()
    }

    /// The change as a unified diff. Files that are no text are only named, and a long diff is cut.
    pub async fn diff(&self, store: &StoreHandle) -> Result<String, StoreError> {
        Ok(diff_of(&self.planned(store).await?))
    }

    /// The text of a version; nothing if it is no text.
    pub async fn text(
        store: &StoreHandle,
        version: &FileVersion,
    ) -> Result<Option<String>, StoreError> {
        let bytes = content(store, version).await?;
        Ok(Text::decode(&bytes).map(|text| text.text))
    }

    /// Keeps what a plan is about to change, under its call.
    pub(crate) async fn keep(
        store: &StoreHandle,
        workspace: &Workspace,
        call: &Call,
        plan: &[Planned],
        made_dirs: &[Place],
    ) -> Result<(), StoreError> {
        let mut files = Vec::with_capacity(plan.len());
        for planned in plan {
            files.push(ChangedFile {
                path: planned.place.to_string(),
                renamed_from: planned.renamed_from.as_ref().map(Place::to_string),
                before: kept(store, planned.before.as_ref()).await?,
                after: kept(store, planned.after.as_ref()).await?,
            });
        }
        let (tool, session) = (call.tool.clone(), call.turn().session);
        let root = workspace.root().to_string_lossy().into_owned();
        let made_dirs = made_dirs.iter().map(Place::to_string).collect();
        let set = Self {
            version: VERSION,
            call: call.id,
            tool,
            session,
            root,
            files,
            made_dirs,
        };
        let record = serde_json::to_value(&set).expect("plain data is JSON");
        let record = Record::Json(Json::new(record).expect("a list of files is not deeply nested"));
        // A record is written once. Another attempt that finds other files has a record of its own, behind this one.
        for attempt in 1..=MOST_ATTEMPTS {
            let key = RecordKey::Other(Arc::from(key(call.id, attempt)));
            match store.once(key, record.clone()).await? {
                Some(earlier) if earlier != record => {}
                Some(_) | None => return Ok(()),
            }
        }
        Err(StoreError::Backend(
            "there are too many attempts of one call".into(),
        ))
    }

    /// Finds out from the files whether the call with this key took effect.
    pub(crate) async fn reconcile(workspace: &Workspace, key: IdempotencyKey) -> Reconciled {
        let Some(store) = workspace.store() else {
            return Reconciled::Unknown;
        };
        let Ok(call) = key.to_string().parse::<CallId>() else {
            return Reconciled::Unknown;
        };
        match Self::of(store, call).await {
            // Nothing is changed before it is kept.
            Ok(None) => Reconciled::DidNotHappen,
            Ok(Some(set)) if set.is_of(workspace) => set.find_out(workspace, store).await,
            Ok(Some(_)) => Reconciled::Unknown,
            Err(_) => Reconciled::Unknown,
        }
    }

    async fn find_out(&self, workspace: &Workspace, store: &StoreHandle) -> Reconciled {
        let Ok(plan) = self.planned(store).await else {
            return Reconciled::Unknown;
        };
        let (workspace, call, planned) = (workspace.clone(), self.call, plan.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let look = |planned: &Planned| {
                tidy_up(&workspace, call, &planned.place);
                Standing::of(&workspace, planned)
            };
            planned.iter().map(look).collect::<Vec<_>>()
        });
        let Ok(found) = looked.await else {
            return Reconciled::Unknown;
        };
        match found {
            found if found.iter().all(|found| *found == Standing::After) => {
                Report::new(self.call, &plan)
                    .output()
                    .map_or(Reconciled::Unknown, Reconciled::Happened)
            }
            found if found.iter().all(|found| *found == Standing::Before) => {
                Reconciled::DidNotHappen
            }
            _ => Reconciled::Unknown,
        }
    }

    /// Whether the files are those of this workspace.
    pub(crate) fn is_of(&self, workspace: &Workspace) -> bool {
        *self.root == *workspace.root().to_string_lossy()
    }

    /// The changes with their contents.
    pub(crate) async fn planned(&self, store: &StoreHandle) -> Result<Vec<Planned>, StoreError> {
        let mut plan = Vec::with_capacity(self.files.len());
        for file in &self.files {
            plan.push(Planned {
                place: Place::of(&file.path),
                renamed_from: file.renamed_from.as_ref().map(Place::of),
                before: snapshot(store, file.before.as_ref()).await?,
                after: snapshot(store, file.after.as_ref()).await?,
            });
        }
        Ok(plan)
    }

    fn read(key: &str, record: &Record) -> Result<Self, StoreError> {
        let damaged = |source: Box<dyn std::error::Error + Send + Sync>| {
            let what = format!("what is kept as {key}");
            StoreError::Damaged { what, source }
        };
        let Record::Json(json) = record else {
            return Err(damaged("it is no JSON".into()));
        };
        let set = Self::deserialize(json.as_value()).map_err(|error| damaged(error.into()))?;
        match set.version {
            VERSION => Ok(set),
            other => Err(damaged(format!("version {other} is not known here").into())),
        }
    }
}

/// How a file stands to a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// As it was before.
    Before,
    /// As the plan leaves it.
    After,
    /// Something else.
    Other,
}

impl Standing {
    pub(crate) fn of(workspace: &Workspace, planned: &Planned) -> Self {
        let Ok(found) = workspace.look(&planned.place) else {
            return Self::Other;
        };
        // Of the permissions only "can be run" counts: a system takes others away from new files.
        let telling = |snapshot: &Snapshot| (snapshot.digest, snapshot.mode & 0o100);
        let is =
            |wanted: &Option<Snapshot>| wanted.as_ref().map(telling) == found.as_ref().map(telling);
        match (is(&planned.after), is(&planned.before)) {
            (true, _) => Self::After,
            (false, true) => Self::Before,
            (false, false) => Self::Other,
        }
    }
}

/// Attempts after the first come behind it in the order of keys.
fn key(call: CallId, attempt: u32) -> String {
    match attempt {
        1 => format!("undo/{call}"),
        later => format!("undo/{call}/{later:03}"),
    }
}

async fn kept(
    store: &StoreHandle,
    snapshot: Option<&Snapshot>,
) -> Result<Option<FileVersion>, StoreError> {
    let Some(Snapshot { bytes, mode, .. }) = snapshot else {
        return Ok(None);
    };
    let digest = store.put_blob(bytes.clone()).await?;
    Ok(Some(FileVersion {
        digest,
        size: bytes.len() as u64,
        mode: *mode,
    }))
}

async fn snapshot(
    store: &StoreHandle,
    version: Option<&FileVersion>,
) -> Result<Option<Snapshot>, StoreError> {
    let Some(version) = version else {
        return Ok(None);
    };
    Ok(Some(Snapshot::new(
        content(store, version).await?,
        version.mode,
    )))
}

async fn content(store: &StoreHandle, version: &FileVersion) -> Result<Bytes, StoreError> {
    let damaged = || StoreError::Damaged {
        what: format!("the file {}", version.digest),
        source: "it is gone".into(),
    };
    store
        .blob(version.digest, 0..version.size)
        .await?
        .filter(|bytes| bytes.len() as u64 == version.size)
        .ok_or_else(damaged)
}
