//! The tool that replaces parts of a file.

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate_core::{
    Arguments, Context, IdempotencyKey, ReconciledAttempt, Resource, Schema, Tool, ToolError,
    ToolKind, ToolOutput, ToolSpec, parse_arguments,
};

use crate::{
    Workspace,
    files::{
        text::{
            DecodedText,
            replace::{Replacement, apply_replacements},
        },
        write_file::plan_one_file,
    },
    workspace::{
        blocking::HaltFlag,
        changes::ChangeSet,
        expected,
        open::FileSnapshot,
        plan::{
            ChangePlan, ChangePlanner, invalid_input, plan_and_commit, rehearse_plan,
            writing_annotations,
        },
    },
};

/// Replaces parts of a file of the workspace.
///
/// Each old text must occur exactly once, unless all occurrences are to be replaced. Either all
/// edits are made or none. If a text does not occur, the error shows the most similar lines.
///
/// ```
/// # use {toolgate_core::{Arguments, Call, Registry, Stack}, toolgate_tools::{EditFile, Workspace}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("a.txt"), "one\ntwo\n")?;
/// let registry = Registry::new();
/// registry.register(EditFile::new(Workspace::open(dir.path())?))?;
/// let stack = Stack::over(registry).build()?;
/// let arguments = Arguments::parse(r#"{"path":"a.txt","edits":[{"old":"two","new":"2"}]}"#)?;
/// assert!(stack.run(Call::detached("edit_file", arguments)).await.is_ok());
/// assert_eq!(std::fs::read_to_string(dir.path().join("a.txt"))?, "one\n2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct EditFile(Workspace);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditFileInput {
    /// The file, relative to the workspace.
    path: String,
    /// The replacements. All old texts are searched in the current file, before any edit is made.
    #[schemars(length(min = 1))]
    edits: Vec<TextEdit>,
    /// The digest from read_file. If the file has changed since, nothing is written.
    #[serde(default)]
    expected_digest: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TextEdit {
    /// The text to replace, exactly as it is in the file, without line numbers. It must occur exactly once.
    old: String,
    /// The text to replace it with.
    new: String,
    /// True to replace every occurrence.
    #[serde(default)]
    all: bool,
}

impl EditFile {
    /// The name of the tool.
    pub const NAME: &'static str = "edit_file";

    /// Creates the tool for files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        let description = "Replaces parts of a text file. Each old text must occur in the file exactly once, unless \
             all is set. Either all edits are made or none.";
        let annotations =
            writing_annotations(&self.0, ToolKind::Edit).with_resource(Resource::path("path"));
        ToolSpec::new(Self::NAME, description, Schema::for_type::<EditFileInput>())
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
    let input: EditFileInput = parse_arguments(arguments)?;
    Ok(move |workspace: &Workspace, _: &HaltFlag| plan_edits(workspace, &input))
}

fn plan_edits(workspace: &Workspace, input: &EditFileInput) -> Result<ChangePlan, ToolError> {
    let place = workspace.parse_path(&input.path)?;
    // Opened first because a missing file then fails with a suggestion; the target may not exist.
    workspace.open_file(&place)?;
    let place = workspace.resolve_target(&place)?;
    let before = workspace.read_target(&place)?;
    expected::check_expected_digest(input.expected_digest.as_deref(), &place, before.as_ref())?;
    let Some(before) = before else {
        return Err(workspace.explain_io_error(&place, &std::io::ErrorKind::NotFound.into()));
    };
    let Some(old) = DecodedText::decode(&before.bytes) else {
        return Err(invalid_input(format!(
            "{place} is not text, so it cannot be edited"
        )));
    };
    let edits: Vec<Replacement<'_>> = input
        .edits
        .iter()
        .map(|edit| Replacement {
            old: &edit.old,
            new: &edit.new,
            all: edit.all,
        })
        .collect();
    let text = apply_replacements(&old.text, &edits)
        .map_err(|why| workspace.explain_content(&place, why))
        .map_err(|why| invalid_input(format!("{place} was not changed: {why}")))?;
    let Some(bytes) = old.encoding.encode(&text) else {
        let encoding = old.encoding.name();
        return Err(invalid_input(format!(
            "{place} is {encoding}, which lacks some of the new characters"
        )));
    };
    let after = FileSnapshot::new(bytes, before.mode);
    plan_one_file(workspace, place, Some(before), after, Vec::new())
}
