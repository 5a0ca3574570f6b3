//! The tool that applies a patch to several files at once.

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate_core::{
    Arguments, Context, IdempotencyKey, Kind, Reconciled, Resource, Schema, Tool, ToolError,
    ToolOutput, ToolSpec, typed,
};

use crate::{
    Workspace,
    changes::ChangeSet,
    changing::{Plan, change, conflict, invalid, writing},
    commit::Planned,
    files::{NEW_FILE, Snapshot},
    hunks::apply,
    patch::{FilePatch, parse},
    place::Place,
    text::{Encoding, Text},
    write_file::check_writable,
};

/// Applies a unified diff to files of the workspace: it creates, changes, renames and deletes.
///
/// The whole patch is checked against all files first and then written; it applies whole or not at all. Lines have to
/// be there exactly as the patch has them, only their numbers may be off.
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
/// let arguments = Arguments::empty().with("patch", patch.into())?;
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
struct Input {
    /// A unified diff of one or more files: ---, +++ and @@ -12,3 +12,4 @@ lines, with exact counts and some lines of
    /// context. A new file has --- /dev/null, a deleted one +++ /dev/null. A rename has the lines of git: diff --git,
    /// rename from, rename to.
    patch: String,
}

impl ApplyPatch {
    /// What the tool is called.
    pub const NAME: &'static str = "apply_patch";

    /// Patches files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        let description = "Applies a unified diff to one or more files, whole or not at all. For a small change in \
             one file edit_file is simpler.";
        let annotations = writing(&self.0, Kind::Edit).with_resource(Resource::workspace());
        ToolSpec::new(Self::NAME, description, Schema::of::<Input>()).with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let Input { patch } = typed(&arguments)?;
        let files =
            parse(&patch).map_err(|why| invalid(format!("the patch cannot be read: {why}")))?;
        change(&self.0, &cx, move |workspace, halt| {
            let mut plan = Plan::default();
            for file in &files {
                halt.check()?;
                add(workspace, file, &mut plan)?;
            }
            Ok(plan)
        })
        .await
    }

    async fn reconcile(&self, _: Arguments, key: IdempotencyKey) -> Reconciled {
        ChangeSet::reconcile(&self.0, key).await
    }
}

/// Plans what a patch does to one file.
fn add(workspace: &Workspace, patch: &FilePatch, plan: &mut Plan) -> Result<(), ToolError> {
    let place = |name: &Option<String>| {
        name.as_deref()
            .map(|name| workspace.target(&workspace.place(name)?))
            .transpose()
    };
    let (old, new) = (place(&patch.old)?, place(&patch.new)?);
    let before = match &old {
        Some(old) => Some(existing(workspace, old)?),
        None => None,
    };
    let told = new
        .as_ref()
        .or(old.as_ref())
        .map(Place::to_string)
        .unwrap_or_default();
    let after = patched(&told, patch, before.as_ref(), plan)?;
    let is_move = old.is_some() && new.is_some() && old != new;
    if let Some(new) = new.clone().filter(|_| old.is_none() || is_move) {
        if workspace.look(&new)?.is_some() {
            return Err(conflict(format!(
                "{new} exists already; nothing was changed"
            )));
        }
        let planned = Planned {
            place: new,
            renamed_from: old.clone().filter(|_| is_move),
            before: None,
            after,
        };
        push(workspace, planned, plan)?;
        return match old {
            Some(old) => push(
                workspace,
                Planned {
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
    match before == after {
        true => Ok(()),
        false => push(
            workspace,
            Planned {
                place: old,
                renamed_from: None,
                before,
                after,
            },
            plan,
        ),
    }
}

/// The file as a patch leaves it; nothing if the patch takes it away.
fn patched(
    told: &str,
    patch: &FilePatch,
    before: Option<&Snapshot>,
    plan: &mut Plan,
) -> Result<Option<Snapshot>, ToolError> {
    let old = match before {
        Some(before) if !patch.hunks.is_empty() => Text::decode(&before.bytes)
            .ok_or_else(|| invalid(format!("{told} is not text, so it cannot be patched")))?,
        Some(_) | None => Text {
            text: String::new(),
            encoding: Encoding::Utf8,
        },
    };
    let applied = apply(&old.text, &patch.hunks);
    let applied = applied.map_err(|why| invalid(format!("{told}: {why}; nothing was changed")))?;
    plan.notes.extend(
        applied
            .notes
            .into_iter()
            .map(|note| format!("{told}: {note}")),
    );
    if patch.new.is_none() {
        let whole = match patch.hunks.is_empty() {
            true => before.is_none_or(|before| before.bytes.is_empty()),
            false => applied.text.is_empty(),
        };
        return match whole {
            true => Ok(None),
            false => Err(conflict(format!(
                "{told}: the patch deletes the file but not all of its lines; read it again"
            ))),
        };
    }
    let mode = patch
        .mode
        .or(before.map(|before| before.mode))
        .unwrap_or(NEW_FILE);
    if let Some(before) = before.filter(|_| patch.hunks.is_empty()) {
        return Ok(Some(Snapshot {
            mode,
            ..before.clone()
        }));
    }
    match old.encoding.encode(&applied.text) {
        Some(bytes) => Ok(Some(Snapshot::new(bytes, mode))),
        None => Err(invalid(format!(
            "{told} is {}, which lacks some of the new characters",
            old.encoding.name()
        ))),
    }
}

fn existing(workspace: &Workspace, place: &Place) -> Result<Snapshot, ToolError> {
    let missing = || workspace.refusal(place, &std::io::ErrorKind::NotFound.into());
    workspace.look(place)?.ok_or_else(missing)
}

fn push(workspace: &Workspace, planned: Planned, plan: &mut Plan) -> Result<(), ToolError> {
    let place = &planned.place;
    if plan.files.iter().any(|other| other.place == *place) {
        return Err(invalid(format!(
            "{place} is in the patch twice; put all of its hunks under one pair of --- and +++"
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
