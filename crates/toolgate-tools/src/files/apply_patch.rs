//! The tool that applies a patch to several files at once.

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate_core::{
    Arguments, Context, IdempotencyKey, ReconciledAttempt, Resource, Schema, Tool, ToolError,
    ToolKind, ToolOutput, ToolSpec, parse_arguments,
    patch::{FilePatch, Patch},
};
use toolgate_rooted::RootedPath;

use crate::{
    Workspace,
    files::{
        apply_hunks::apply_hunks,
        text::{DecodedText, TextEncoding},
        write_file::check_writable,
    },
    workspace::{
        blocking::HaltFlag,
        changes::ChangeSet,
        commit::PlannedChange,
        open::{FileSnapshot, NEW_FILE_MODE},
        plan::{
            ChangePlan, ChangePlanner, conflict_error, invalid_input, plan_and_commit,
            rehearse_plan, writing_annotations,
        },
    },
};

/// Applies a unified diff to files of the workspace: it creates, changes, renames and deletes.
///
/// The whole patch is checked against all files first and then written: either all of it applies or
/// nothing does. Context and removed lines must match exactly; only line numbers may be off.
///
/// ```
/// # use {toolgate_core::{Arguments, Call, Registry, Stack}, toolgate_tools::{ApplyPatch, Workspace}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("a.txt"), "one\ntwo\n")?;
/// let registry = Registry::new();
/// registry.register(ApplyPatch::new(Workspace::open(dir.path())?))?;
/// let stack = Stack::over(registry).build()?;
/// let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
/// let arguments = Arguments::empty().with_argument("patch", patch.into())?;
/// assert!(stack.run(Call::detached("apply_patch", arguments)).await.is_ok());
/// assert_eq!(std::fs::read_to_string(dir.path().join("a.txt"))?, "one\n2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ApplyPatch(Workspace);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApplyPatchInput {
    /// A unified diff of one or more files: ---, +++ and @@ -12,3 +12,4 @@ lines, with exact counts and some lines of
    /// context. A new file has --- /dev/null, a deleted one +++ /dev/null. A rename has the header lines of git:
    /// diff --git, rename from, rename to.
    patch: String,
}

impl ApplyPatch {
    /// The name of the tool.
    pub const NAME: &'static str = "apply_patch";

    /// Creates the tool for files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        let description = "Applies a unified diff to one or more files. Either all of it applies or nothing is \
             changed. For a small change in one file edit_file is simpler.";
        let annotations =
            writing_annotations(&self.0, ToolKind::Edit).with_resource(Resource::workspace());
        ToolSpec::new(
            Self::NAME,
            description,
            Schema::for_type::<ApplyPatchInput>(),
        )
        .with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        plan_and_commit(&self.0, &cx, planner(&arguments)?).await
    }

    async fn rehearse(&self, arguments: Arguments, cx: Context) -> Result<(), ToolError> {
        rehearse_plan(&self.0, &cx, planner(&arguments)?).await
    }

    async fn reconcile(&self, _: Arguments, key: IdempotencyKey) -> ReconciledAttempt {
        ChangeSet::reconcile(&self.0, key).await
    }
}

fn planner(arguments: &Arguments) -> Result<impl ChangePlanner + use<>, ToolError> {
    let ApplyPatchInput { patch } = parse_arguments(arguments)?;
    let files = Patch::parse(&patch)
        .and_then(Patch::into_unified)
        .map_err(|why| invalid_input(format!("the patch is not valid: {why}")))?;
    Ok(move |workspace: &Workspace, halt: &HaltFlag| {
        let mut plan = ChangePlan::default();
        for file in &files {
            halt.check_running()?;
            plan_file(workspace, file, &mut plan)?;
        }
        Ok(plan)
    })
}

/// Adds the changes that a patch makes to one file to the plan.
fn plan_file(
    workspace: &Workspace,
    patch: &FilePatch,
    plan: &mut ChangePlan,
) -> Result<(), ToolError> {
    let place = |name: Option<&str>| {
        name.map(|name| workspace.resolve_target(&workspace.parse_path(name)?))
            .transpose()
    };
    let old = place(patch.file.old_path())?;
    let new = place(patch.file.new_path())?;
    let before = match &old {
        Some(old) => Some(read_existing(workspace, old)?),
        None => None,
    };
    let told = new
        .as_ref()
        .or(old.as_ref())
        .map(RootedPath::to_string)
        .unwrap_or_default();
    let explain = |why| match &old {
        Some(old) => workspace.explain_content(old, why),
        None => why,
    };
    let after = patched_snapshot(&told, patch, before.as_ref(), plan, explain)?;
    let is_move = old.is_some() && new.is_some() && old != new;
    if let Some(new) = new.clone().filter(|_| old.is_none() || is_move) {
        if workspace.read_target(&new)?.is_some() {
            return Err(conflict_error(format!(
                "{new} already exists; nothing was changed"
            )));
        }
        let planned = PlannedChange {
            place: new,
            renamed_from: old.clone().filter(|_| is_move),
            before: None,
            after,
        };
        push_change(workspace, planned, plan)?;
        // A rename is two changes: the new name is created before the old one is deleted.
        return match old {
            Some(old) => push_change(
                workspace,
                PlannedChange {
                    place: old,
                    renamed_from: None,
                    before,
                    after: None,
                },
                plan,
            ),
            None => Ok(()),
        };
    }
    let Some(old) = old else { return Ok(()) };
    if before == after {
        Ok(())
    } else {
        push_change(
            workspace,
            PlannedChange {
                place: old,
                renamed_from: None,
                before,
                after,
            },
            plan,
        )
    }
}

/// Returns the file after the patch; `None` if the patch deletes it.
fn patched_snapshot(
    told: &str,
    patch: &FilePatch,
    before: Option<&FileSnapshot>,
    plan: &mut ChangePlan,
    explain: impl Fn(String) -> String,
) -> Result<Option<FileSnapshot>, ToolError> {
    let old = match before {
        Some(before) if !patch.hunks.is_empty() => DecodedText::decode(&before.bytes)
            .ok_or_else(|| invalid_input(format!("{told} is not text, so it cannot be patched")))?,
        Some(_) | None => DecodedText {
            text: String::new(),
            encoding: TextEncoding::Utf8,
        },
    };
    let applied = apply_hunks(&old.text, &patch.hunks).map_err(explain);
    let applied =
        applied.map_err(|why| invalid_input(format!("{told}: {why}; nothing was changed")))?;
    plan.notes.extend(
        applied
            .notes
            .into_iter()
            .map(|note| format!("{told}: {note}")),
    );
    if patch.file.new_path().is_none() {
        // A deletion must list every line. Otherwise lines that the model has not seen would be lost.
        let whole = if patch.hunks.is_empty() {
            before.is_none_or(|before| before.bytes.is_empty())
        } else {
            applied.text.is_empty()
        };
        return if whole {
            Ok(None)
        } else {
            Err(conflict_error(format!(
                "{told}: the patch deletes the file but does not list all of its lines; read it again"
            )))
        };
    }
    let mode = patch
        .mode
        .or(before.map(|before| before.mode))
        .unwrap_or(NEW_FILE_MODE);
    // Without hunks the bytes stay untouched, so a rename or mode change works for binary files too.
    if let Some(before) = before.filter(|_| patch.hunks.is_empty()) {
        return Ok(Some(FileSnapshot {
            mode,
            ..before.clone()
        }));
    }
    match old.encoding.encode(&applied.text) {
        Some(bytes) => Ok(Some(FileSnapshot::new(bytes, mode))),
        None => Err(invalid_input(format!(
            "{told} is {}, which lacks some of the new characters",
            old.encoding.name()
        ))),
    }
}

fn read_existing(workspace: &Workspace, place: &RootedPath) -> Result<FileSnapshot, ToolError> {
    let missing = || workspace.explain_io_error(place, &std::io::ErrorKind::NotFound.into());
    workspace.read_target(place)?.ok_or_else(missing)
}

fn push_change(
    workspace: &Workspace,
    planned: PlannedChange,
    plan: &mut ChangePlan,
) -> Result<(), ToolError> {
    let place = &planned.place;
    if plan.files.iter().any(|other| other.place == *place) {
        return Err(invalid_input(format!(
            "{place} occurs twice in the patch; put all of its hunks under one pair of --- and +++ lines"
        )));
    }
    check_writable(
        workspace,
        place,
        planned.before.as_ref(),
        planned.after.as_ref(),
    )?;
    plan.files.push(planned);
    Ok(())
}
