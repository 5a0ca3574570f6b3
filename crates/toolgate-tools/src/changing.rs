//! The one way in which a tool changes files: plan, keep what was there, write.

use toolgate_core::{Annotations, Context, ErrorCategory, Kind, SideEffect, ToolError, ToolOutput};

use crate::{
    Workspace,
    blocking::{Halt, blocking},
    changes::ChangeSet,
    commit::{Planned, commit},
    place::Place,
    report::Report,
};

/// What a tool is going to do, and what it has to say about it.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) files: Vec<Planned>,
    pub(crate) notes: Vec<String>,
    /// Directories to take away afterwards, if they are empty by then.
    pub(crate) empty_dirs: Vec<Place>,
}

/// Makes a plan from the files as they are, keeps what was there, and writes.
///
/// If the call is stopped before anything was written, nothing is; from then on it is finished, or taken back.
pub(crate) async fn change(
    workspace: &Workspace,
    cx: &Context,
    plan: impl FnOnce(&Workspace, &Halt) -> Result<Plan, ToolError> + Send + 'static,
) -> Result<ToolOutput, ToolError> {
    let halt = Halt::default();
    let stop = halt.on_stop(cx);
    // The threads below hold on to it, so that a dropped call keeps others out until it has really ended.
    let turn = workspace.writing().await;
    let planning = workspace.clone();
    let planned = blocking(cx, &halt, move |halt| {
        let plan = plan(&planning, halt)?;
        let made_dirs = missing_dirs(&planning, &plan.files);
        Ok((turn, plan, made_dirs))
    });
    let (turn, plan, made_dirs) = planned.await?;
    let Plan {
        files,
        notes,
        empty_dirs,
    } = plan;
    if files.is_empty() {
        return Report::new(cx.id, &files).noting(notes).output();
    }
    if let Some(store) = workspace.store() {
        ChangeSet::keep(store, workspace, cx, &files, &made_dirs)
            .await
            .map_err(not_kept)?;
    }
    let (writing, call) = (workspace.clone(), cx.id);
    let files = blocking(cx, &halt, move |halt| {
        let _turn = turn;
        commit(&writing, call, &files, halt, &mut |_| Ok(()))?;
        for dir in empty_dirs.iter().rev() {
            let _ = writing.dir().remove_dir(dir.to_open());
        }
        Ok(files)
    })
    .await?;
    stop.done();
    Report::new(cx.id, &files)
        .noting(notes)
        .undoable(workspace.store().is_some())
        .output()
}

/// The directories that have to be made for a plan, outermost first.
fn missing_dirs(workspace: &Workspace, files: &[Planned]) -> Vec<Place> {
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
                .filter(|dir| !workspace.dir().exists(dir))
                .map(Place::of),
        );
    }
    missing.into_iter().collect()
}

/// What every tool that changes files says about itself.
pub(crate) fn writing(workspace: &Workspace, kind: Kind) -> Annotations {
    // Not idempotent: after somebody else has changed the file, a repeat would take their change away.
    let mut annotations = Annotations::default()
        .with_kind(kind)
        .with_side_effect(SideEffect::WorkspaceWrite)
        .with_idempotent(false);
    annotations.hints.read_only = Some(false);
    annotations.hints.open_world = Some(false);
    annotations.reconcile = workspace.store().is_some();
    annotations.undo = workspace.store().is_some();
    annotations
}

/// What every tool that only looks at files says about itself.
pub(crate) fn looking(kind: Kind) -> Annotations {
    let mut annotations = Annotations::read_only().with_kind(kind);
    annotations.hints.open_world = Some(false);
    annotations
}

/// Arguments that make no sense.
pub(crate) fn invalid(text: impl Into<String>) -> ToolError {
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

/// A file that is not as it was expected.
pub(crate) fn conflict(text: impl Into<String>) -> ToolError {
    ToolError::new(text).with_category(ErrorCategory::Conflict)
}

/// Without undo data nothing is changed.
fn not_kept(error: toolgate_core::StoreError) -> ToolError {
    let detail = ToolError::from(error).operator.unwrap_or_default();
    ToolError::new("nothing was changed, because what was there before could not be kept")
        .with_operator(detail)
}
