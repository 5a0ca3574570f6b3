//! The tool that takes back what an earlier call has changed.

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate_core::{
    Arguments, CallId, Context, ErrorCategory, IdempotencyKey, Kind, Reconciled, Resource, Schema,
    Tool, ToolError, ToolOutput, ToolSpec, typed,
};

use crate::{
    Workspace,
    changes::{ChangeSet, Standing},
    changing::{Plan, change, conflict, invalid, writing},
    commit::Planned,
    place::Place,
};

/// Takes back what a call of a file tool has changed.
///
/// Files are put back only if they are still as the call left them, all of them or none; `force` puts them back
/// whatever they are. The undo is a change like any other and can be taken back in turn. A model can undo calls of
/// its own session; [`UndoChanges::of_any_session`] is for people.
///
/// ```
/// # use {serde_json::json, toolgate_core::*, toolgate_tools::{UndoChanges, Workspace, WriteFile}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// let workspace = Workspace::open(dir.path())?.keeping(StoreHandle::new(MemoryStore::new()));
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
struct Input {
    /// The change id of the call to take back, as its result told.
    call: String,
    /// True to put files back even if they were changed since; what was changed since is lost then.
    #[serde(default)]
    force: bool,
}

impl UndoChanges {
    /// What the tool is called.
    pub const NAME: &'static str = "undo_changes";

    /// Takes back changes that the session of the caller has made in this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self {
            workspace,
            any_session: false,
        }
    }

    /// Takes back changes whichever session has made them.
    pub fn of_any_session(workspace: Workspace) -> Self {
        Self {
            workspace,
            any_session: true,
        }
    }

    async fn found(
        &self,
        input: &Input,
        cx: &Context,
    ) -> Result<(ChangeSet, Vec<Planned>), ToolError> {
        let unknown = || {
            let text = "there is no change with this id in this session; copy the change id from the result of the call";
            ToolError::new(text).with_category(ErrorCategory::NotFound)
        };
        let store = self
            .workspace
            .store()
            .ok_or_else(|| invalid("changes are not kept in this workspace"))?;
        let call: CallId = input.call.trim().parse().map_err(|_| unknown())?;
        let set = ChangeSet::of(store, call).await?.ok_or_else(unknown)?;
        if !self.any_session && set.session != cx.turn().session || !set.is_of(&self.workspace) {
            return Err(unknown());
        }
        let planned = set.planned(store).await?;
        Ok((set, planned))
    }
}

impl Tool for UndoChanges {
    fn spec(&self) -> ToolSpec {
        let description =
            "Takes back what an earlier call changed in files, if they are still as it left them.";
        let annotations = writing(&self.workspace, Kind::Edit).with_resource(Resource::workspace());
        ToolSpec::new(Self::NAME, description, Schema::of::<Input>()).with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let input: Input = typed(&arguments)?;
        let (set, done) = self.found(&input, &cx).await?;
        change(&self.workspace, &cx, move |workspace, _| {
            let mut plan = back(workspace, &done, input.force)?;
            plan.empty_dirs = set.made_dirs.iter().map(Place::of).collect();
            Ok(plan)
        })
        .await
    }

    async fn reconcile(&self, _: Arguments, key: IdempotencyKey) -> Reconciled {
        ChangeSet::reconcile(&self.workspace, key).await
    }
}

/// The plan that leads back to what was there before.
fn back(workspace: &Workspace, done: &[Planned], force: bool) -> Result<Plan, ToolError> {
    let mut plan = Plan::default();
    for change in done {
        match Standing::of(workspace, change) {
            Standing::Before => continue,
            Standing::Other if !force => {
                let text = format!(
                    "{} was changed since; nothing was put back. Set force to put it back all the same, \
                     which loses what was changed since",
                    change.place
                );
                return Err(conflict(text));
            }
            Standing::After | Standing::Other => {}
        }
        let renamed = done
            .iter()
            .find(|other| other.renamed_from.as_ref() == Some(&change.place));
        plan.files.push(Planned {
            place: change.place.clone(),
            renamed_from: renamed.map(|other| other.place.clone()),
            before: workspace.look(&change.place)?,
            after: change.before.clone(),
        });
    }
    if plan.files.is_empty() {
        plan.notes
            .push("every file is as it was before that call".to_owned());
    }
    Ok(plan)
}
