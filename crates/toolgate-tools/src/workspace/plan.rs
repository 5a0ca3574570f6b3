//! The one way in which a tool changes files: plan, store the old contents, write.

use tokio::sync::OwnedMutexGuard;
use toolgate_core::{
    Annotations, Context, ErrorCategory, SideEffect, ToolError, ToolKind, ToolOutput,
};
use toolgate_rooted::RootedPath;

use crate::{
    Workspace,
    files::report::ChangeReport,
    workspace::{
        blocking::{HaltFlag, run_blocking},
        changes::ChangeSet,
        commit::{PlannedChange, commit_changes},
    },
};

/// The changes a tool is going to make, and its notes for the model.
#[derive(Debug, Default)]
pub(crate) struct ChangePlan {
    pub(crate) files: Vec<PlannedChange>,
    pub(crate) notes: Vec<String>,
    /// Directories to remove afterwards, if they are empty by then.
    pub(crate) empty_dirs: Vec<RootedPath>,
}

/// A function that plans the changes of a call from the current files.
pub(crate) trait ChangePlanner:
    FnOnce(&Workspace, &HaltFlag) -> Result<ChangePlan, ToolError> + Send + 'static
{
}

impl<F> ChangePlanner for F where
    F: FnOnce(&Workspace, &HaltFlag) -> Result<ChangePlan, ToolError> + Send + 'static
{
}

/// Builds a plan from the current files, stores the old contents, and writes the new ones.
///
/// # Errors
///
/// Fails if the plan does, if the old contents cannot be stored, or if a file cannot be written.
/// All changes made by then are undone.
///
/// # Cancel safety
///
/// If the call is stopped or dropped before the first file is replaced, nothing changes. After that
/// point the work is finished on its own thread, or undone if a step fails.
pub(crate) async fn plan_and_commit(
    workspace: &Workspace,
    cx: &Context,
    plan: impl ChangePlanner,
) -> Result<ToolOutput, ToolError> {
    // What a message shows of a file is judged like every other access.
    let workspace = &workspace.for_call(cx);
    let halt = HaltFlag::default();
    // Registered before the wait for the lock: a call that is stopped there has changed nothing,
    // and the stop is confirmed.
    let stop = halt.on_stop(cx);
    let (turn, plan) = build_plan(workspace, cx, &halt, plan).await?;
    let made_dirs = missing_dirs(workspace, &plan.files);
    let ChangePlan {
        files,
        notes,
        empty_dirs,
    } = plan;
    if files.is_empty() {
        return ChangeReport::new(cx.id, &files)
            .with_notes(notes)
            .to_output();
    }
    if let Some(store) = workspace.store() {
        // Durable before the first write: after a crash, no change set means that nothing changed.
        ChangeSet::persist_plan(store, workspace, cx, &files, &made_dirs)
            .await
            .map_err(not_stored_error)?;
    }
    let writing = workspace.clone();
    let call = cx.id;
    let files = run_blocking(cx, &halt, move |halt| {
        let _turn = turn;
        commit_changes(&writing, call, &files, halt, &mut |_| Ok(()))?;
        // Innermost first. A directory that is not empty stays.
        for dir in empty_dirs.iter().rev() {
            let _ = writing.dir().as_dir().remove_dir(dir.path_to_open());
        }
        Ok(files)
    })
    .await?;
    stop.unregister();
    ChangeReport::new(cx.id, &files)
        .with_notes(notes)
        .with_undo(workspace.store().is_some())
        .to_output()
}

/// Builds the plan of a call and drops it: fails where the call would fail before its first change.
///
/// # Errors
///
/// Returns the error of the plan.
pub(crate) async fn rehearse_plan(
    workspace: &Workspace,
    cx: &Context,
    plan: impl ChangePlanner,
) -> Result<(), ToolError> {
    let workspace = &workspace.for_call(cx);
    build_plan(workspace, cx, &HaltFlag::default(), plan)
        .await
        .map(drop)
}

/// Builds a plan from the current files, with the lock under which it has to be performed.
async fn build_plan(
    workspace: &Workspace,
    cx: &Context,
    halt: &HaltFlag,
    plan: impl ChangePlanner,
) -> Result<(OwnedMutexGuard<()>, ChangePlan), ToolError> {
    // The guard moves into the thread: a dropped call excludes others until its thread ends.
    let turn = workspace.lock_writes().await;
    let workspace = workspace.clone();
    run_blocking(cx, halt, move |halt| Ok((turn, plan(&workspace, halt)?))).await
}

/// Returns the directories that have to be created for a plan, outermost first.
fn missing_dirs(workspace: &Workspace, files: &[PlannedChange]) -> Vec<RootedPath> {
    let mut missing = std::collections::BTreeSet::new();
    for planned in files.iter().filter(|planned| planned.after.is_some()) {
        let around = planned
            .place
            .as_path()
            .ancestors()
            .skip(1)
            .filter(|dir| !dir.as_os_str().is_empty());
        missing.extend(
            around
                .filter(|dir| !workspace.dir().as_dir().exists(dir))
                .map(RootedPath::from_normalized),
        );
    }
    missing.into_iter().collect()
}

/// Returns the annotations of a tool that changes files.
pub(crate) fn writing_annotations(workspace: &Workspace, kind: ToolKind) -> Annotations {
    // Not idempotent: if another process has changed the file since, a repeat would overwrite that.
    let mut annotations = Annotations::default()
        .with_kind(kind)
        .with_side_effect(SideEffect::WorkspaceWrite)
        .with_idempotent(false);
    annotations.hints.read_only = Some(false);
    annotations.hints.open_world = Some(false);
    // Both need the stored change set: files alone do not tell which call changed them.
    annotations.reconcile = workspace.store().is_some();
    annotations.undo = workspace.store().is_some();
    annotations
}

/// Returns the annotations of a tool that only reads files.
pub(crate) fn reading_annotations(kind: ToolKind) -> Annotations {
    let mut annotations = Annotations::read_only().with_kind(kind);
    annotations.hints.open_world = Some(false);
    annotations
}

/// Creates an error for invalid arguments.
pub(crate) fn invalid_input(text: impl Into<String>) -> ToolError {
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

/// Creates an error for a file that is not in the expected state.
pub(crate) fn conflict_error(text: impl Into<String>) -> ToolError {
    ToolError::new(text).with_category(ErrorCategory::Conflict)
}

/// Creates the error for old contents that could not be stored.
fn not_stored_error(error: toolgate_core::StoreError) -> ToolError {
    let detail = ToolError::from(error).operator.unwrap_or_default();
    ToolError::new("nothing was changed, because the old contents could not be stored for undo")
        .with_operator_detail(detail)
}
