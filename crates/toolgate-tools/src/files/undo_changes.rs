//! The tool that undoes the file changes of an earlier call.

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate_core::{
    Arguments, CallId, Context, ErrorCategory, IdempotencyKey, ReconciledAttempt, Resource, Schema,
    Tool, ToolError, ToolKind, ToolOutput, ToolSpec, acting_file, parse_arguments,
};
use toolgate_rooted::RootedPath;

use crate::{
    Workspace,
    workspace::{
        blocking::HaltFlag,
        changes::{ChangeProgress, ChangeSet},
        commit::PlannedChange,
        plan::{
            ChangePlan, ChangePlanner, conflict_error, invalid_input, plan_and_commit,
            rehearse_plan, writing_annotations,
        },
    },
};

/// Undoes the changes of a file tool call.
///
/// Files are restored only if they are still as the call left them, all of them or none; `force`
/// restores them in any case. The undo is a change like any other and can itself be undone. A model
/// can undo calls of its own session; [`UndoChanges::for_any_session`] is for users and operators.
///
/// ```
/// # use {serde_json::json, toolgate_core::*, toolgate_tools::{UndoChanges, Workspace, WriteFile}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// let workspace = Workspace::open(dir.path())?.with_undo_store(StoreHandle::new(MemoryStore::new()));
/// let registry = Registry::new();
/// registry.register(WriteFile::new(workspace.clone()))?;
/// registry.register(UndoChanges::new(workspace))?;
/// let stack = Stack::over(registry).build()?;
/// let write = Call::detached("write_file", Arguments::parse(r#"{"path":"a.txt","content":"one"}"#)?);
/// let undo = Call::detached("undo_changes", Arguments::try_from(json!({ "call": write.id }))?);
/// stack.run(write).await;
/// assert!(stack.run(undo).await.is_ok());
/// assert!(!dir.path().join("a.txt").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct UndoChanges {
    workspace: Workspace,
    any_session: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UndoChangesInput {
    /// The change id of the call to undo, from the result of that call.
    call: String,
    /// True to restore files even if they were changed since; those later changes are lost.
    #[serde(default)]
    force: bool,
}

impl UndoChanges {
    /// The name of the tool.
    pub const NAME: &'static str = "undo_changes";

    /// Creates the tool for changes that the session of the caller made in this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self {
            workspace,
            any_session: false,
        }
    }

    /// Creates the tool for changes of any session.
    pub fn for_any_session(workspace: Workspace) -> Self {
        Self {
            workspace,
            any_session: true,
        }
    }

    async fn planner(
        &self,
        arguments: &Arguments,
        cx: &Context,
    ) -> Result<impl ChangePlanner + use<>, ToolError> {
        let input: UndoChangesInput = parse_arguments(arguments)?;
        let (set, done) = self.load_changes(&input, cx).await?;
        Ok(move |workspace: &Workspace, _: &HaltFlag| {
            let mut plan = plan_undo(workspace, &done, input.force)?;
            plan.empty_dirs = set
                .made_dirs
                .iter()
                .map(RootedPath::from_normalized)
                .collect();
            Ok(plan)
        })
    }

    async fn load_changes(
        &self,
        input: &UndoChangesInput,
        cx: &Context,
    ) -> Result<(ChangeSet, Vec<PlannedChange>), ToolError> {
        let unknown = || {
            let text = "there is no change with this id in this session; copy the change id from the result of the call";
            ToolError::new(text).with_category(ErrorCategory::NotFound)
        };
        let store = self.workspace.store().ok_or_else(|| {
            invalid_input("this workspace does not store changes, so they cannot be undone")
        })?;
        let call: CallId = input.call.trim().parse().map_err(|_| unknown())?;
        let set = ChangeSet::load(store, call).await?.ok_or_else(unknown)?;
        // The same answer as for an unknown id: a model learns nothing about other sessions.
        if !self.any_session && set.session != cx.turn().session || !set.belongs_to(&self.workspace)
        {
            return Err(unknown());
        }
        let planned = set.load_plan(store).await?;
        // The call names no path, so no policy could have asked about the file.
        let acts_later = |change: &&PlannedChange| {
            let place = change.place.to_string().to_lowercase();
            !self.any_session && acting_file(&place).is_some()
        };
        if let Some(change) = planned.iter().find(acts_later) {
            let text = format!(
                "that call changed {}, which acts later outside of this workspace; only a person can undo it, with \
                 `toolgate sessions undo`",
                change.place
            );
            return Err(ToolError::new(text).with_category(ErrorCategory::Permission));
        }
        Ok((set, planned))
    }
}

impl Tool for UndoChanges {
    fn spec(&self) -> ToolSpec {
        let description = "Undoes the file changes of an earlier call, if the files are still as that call left them.";
        let annotations = writing_annotations(&self.workspace, ToolKind::Edit)
            .with_resource(Resource::workspace());
        ToolSpec::new(
            Self::NAME,
            description,
            Schema::for_type::<UndoChangesInput>(),
        )
        .with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let planner = self.planner(&arguments, &cx).await?;
        plan_and_commit(&self.workspace, &cx, planner).await
    }

    async fn rehearse(&self, arguments: Arguments, cx: Context) -> Result<(), ToolError> {
        let planner = self.planner(&arguments, &cx).await?;
        rehearse_plan(&self.workspace, &cx, planner).await
    }

    async fn reconcile(&self, _: Arguments, key: IdempotencyKey) -> ReconciledAttempt {
        ChangeSet::reconcile(&self.workspace, key).await
    }
}

/// Plans the changes that restore the old contents.
fn plan_undo(
    workspace: &Workspace,
    done: &[PlannedChange],
    force: bool,
) -> Result<ChangePlan, ToolError> {
    let mut plan = ChangePlan::default();
    for change in done {
        match ChangeProgress::detect(workspace, change) {
            // Restored already, or never written because of a crash.
            ChangeProgress::Before => continue,
            ChangeProgress::Other if !force => {
                let text = format!(
                    "{} was changed since; nothing was restored. Set force to restore it anyway, \
                     which loses the later changes",
                    change.place
                );
                return Err(conflict_error(text));
            }
            ChangeProgress::After | ChangeProgress::Other => {}
        }
        // The undo of a rename is a rename back.
        let renamed = done
            .iter()
            .find(|other| other.renamed_from.as_ref() == Some(&change.place));
        plan.files.push(PlannedChange {
            place: change.place.clone(),
            renamed_from: renamed.map(|other| other.place.clone()),
            // Not what that call left: with `force` the file may have another content by now.
            before: workspace.read_target(&change.place)?,
            after: change.before.clone(),
        });
    }
    if plan.files.is_empty() {
        plan.notes
            .push("every file already is as it was before that call".to_owned());
    }
    Ok(plan)
}
