//! The tool that replaces parts of a file.

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate_core::{
    Arguments, Context, IdempotencyKey, Kind, Reconciled, Resource, Schema, Tool, ToolError,
    ToolOutput, ToolSpec, typed,
};

use crate::{
    Workspace,
    changes::ChangeSet,
    changing::{Plan, change, invalid, writing},
    expected,
    files::Snapshot,
    replace::{Replacement, replace},
    text::Text,
    write_file::one_file,
};

/// Replaces parts of a file of the workspace.
///
/// Each part has to be there exactly once, or all of its occurrences are meant. All edits are made or none. If the
/// text is not there, the model is shown what is.
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
struct Input {
    /// The file, relative to the workspace.
    path: String,
    /// What to replace. All of it is looked for in the file as it is, before any edit.
    #[schemars(length(min = 1))]
    edits: Vec<Edit>,
    /// The digest that read_file told. If the file is another version by now, nothing is changed.
    #[serde(default)]
    expected_digest: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The text to replace, exactly as it is in the file, without line numbers. It has to be there exactly once.
    old: String,
    /// The text to put in its place.
    new: String,
    /// True to replace every occurrence.
    #[serde(default)]
    all: bool,
}

impl EditFile {
    /// What the tool is called.
    pub const NAME: &'static str = "edit_file";

    /// Edits files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        let description = "Replaces parts of a text file. Each old text has to be in the file exactly once, unless \
             all is set. Either all edits are made or none.";
        let annotations = writing(&self.0, Kind::Edit).with_resource(Resource::path("path"));
        ToolSpec::new(Self::NAME, description, Schema::of::<Input>()).with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let input: Input = typed(&arguments)?;
        change(&self.0, &cx, move |workspace, _| plan(workspace, &input)).await
    }

    async fn reconcile(&self, _: Arguments, key: IdempotencyKey) -> Reconciled {
        ChangeSet::reconcile(&self.0, key).await
    }
}

fn plan(workspace: &Workspace, input: &Input) -> Result<Plan, ToolError> {
    let place = workspace.place(&input.path)?;
    // Something that is not there is told as such, with what may have been meant.
    workspace.open_file(&place)?;
    let place = workspace.target(&place)?;
    let before = workspace.look(&place)?;
    expected::check(input.expected_digest.as_deref(), &place, before.as_ref())?;
    let Some(before) = before else {
        return Err(workspace.refusal(&place, &std::io::ErrorKind::NotFound.into()));
    };
    let Some(old) = Text::decode(&before.bytes) else {
        return Err(invalid(format!(
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
    let text = replace(&old.text, &edits)
        .map_err(|why| invalid(format!("{place} was not changed: {why}")))?;
    let Some(bytes) = old.encoding.encode(&text) else {
        let encoding = old.encoding.name();
        return Err(invalid(format!(
            "{place} is {encoding}, which lacks some of the new characters"
        )));
    };
    let after = Snapshot::new(bytes, before.mode);
    one_file(workspace, place, Some(before), after, Vec::new())
}
