//! The tool that writes a whole file.

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
    expected,
    files::{NEW_FILE, Snapshot},
    place::Place,
    sniff::human_size,
    text::{Encoding, Newline, Text, with_newline},
};

/// Writes a whole file of the workspace, new or in place of an old one.
///
/// The file changes in one step: whoever looks finds the old content or the new one, also after a crash. Directories
/// are made where they are missing. Permissions, encoding and line ends of an old file are kept.
///
/// ```
/// # use {toolgate_core::{Arguments, Call, Registry, Stack}, toolgate_tools::{Workspace, WriteFile}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// let registry = Registry::new();
/// registry.register(WriteFile::new(Workspace::open(dir.path())?))?;
/// let stack = Stack::over(registry).build()?;
/// let arguments = Arguments::parse(r#"{"path":"notes/a.txt","content":"one\n"}"#)?;
/// assert!(stack.run(Call::detached("write_file", arguments)).await.is_ok());
/// assert_eq!(std::fs::read_to_string(dir.path().join("notes/a.txt"))?, "one\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct WriteFile(Workspace);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The file, relative to the workspace.
    path: String,
    /// The whole new content.
    content: String,
    /// The digest that read_file told. If the file is another version by now, nothing is written.
    #[serde(default)]
    expected_digest: Option<String>,
    /// True to write only if there is no such file yet.
    #[serde(default)]
    must_not_exist: bool,
}

impl WriteFile {
    /// What the tool is called.
    pub const NAME: &'static str = "write_file";

    /// Writes files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        let description = "Writes a whole file; an old one is replaced. To change a part of a file use edit_file. \
             Missing directories are made.";
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
    let place = workspace.target(&workspace.place(&input.path)?)?;
    let before = workspace.look(&place)?;
    if input.must_not_exist && before.is_some() {
        return Err(conflict(format!(
            "{place} exists already; read it, or choose another name"
        )));
    }
    expected::check(input.expected_digest.as_deref(), &place, before.as_ref())?;
    let (bytes, notes) = match &before {
        Some(before) => like(before, &input.content),
        None => (input.content.clone().into_bytes(), Vec::new()),
    };
    let mode = before.as_ref().map_or(NEW_FILE, |before| before.mode);
    one_file(workspace, place, before, Snapshot::new(bytes, mode), notes)
}

/// The plan that changes one file, if it may be changed and is.
pub(crate) fn one_file(
    workspace: &Workspace,
    place: Place,
    before: Option<Snapshot>,
    after: Snapshot,
    mut notes: Vec<String>,
) -> Result<Plan, ToolError> {
    check_writable(workspace, &place, before.as_ref(), Some(&after))?;
    if before.as_ref() == Some(&after) {
        notes.push(format!("{place} has this content already"));
        return Ok(Plan {
            notes,
            ..Plan::default()
        });
    }
    let files = vec![Planned {
        place,
        renamed_from: None,
        before,
        after: Some(after),
    }];
    Ok(Plan {
        files,
        notes,
        ..Plan::default()
    })
}

/// Whether the tools may change a file like this.
pub(crate) fn check_writable(
    workspace: &Workspace,
    place: &Place,
    before: Option<&Snapshot>,
    after: Option<&Snapshot>,
) -> Result<(), ToolError> {
    // The directory would let us replace it, and root may write anything; whoever took the permission away meant it.
    if before.is_some_and(|before| before.mode & 0o222 == 0) {
        return Err(conflict(format!(
            "{place} is read-only; leave it, or have it made writable first"
        ))
        .with_category(toolgate_core::ErrorCategory::Permission));
    }
    let (most, size) = (
        workspace.limits().write_bytes,
        after.map_or(0, |after| after.bytes.len() as u64),
    );
    if size > most {
        let (size, most) = (human_size(size), human_size(most));
        return Err(invalid(format!(
            "{place} would have {size}, more than the {most} that a file may have"
        )));
    }
    Ok(())
}

/// The content written the way the old file was, and what is to be said about it.
fn like(before: &Snapshot, content: &str) -> (Vec<u8>, Vec<String>) {
    let Some(old) = Text::decode(&before.bytes) else {
        return (
            content.as_bytes().to_vec(),
            vec!["the old file was not text".to_owned()],
        );
    };
    let mut notes = Vec::new();
    let mut text = content
        .strip_prefix('\u{feff}')
        .unwrap_or(content)
        .to_owned();
    if old.newline() == Newline::Crlf && !content.contains('\r') && content.contains('\n') {
        text = with_newline(&text, Newline::Crlf);
        notes.push("the lines end in CRLF, as before".to_owned());
    }
    if old.encoding == Encoding::Utf8 {
        return (content_of(content, text), notes);
    }
    match old.encoding.encode(&text) {
        Some(bytes) => {
            notes.push(format!("the file is {}, as before", old.encoding.name()));
            (bytes, notes)
        }
        None => {
            notes.push(format!(
                "the file is UTF-8 now; {} lacks some of the characters",
                old.encoding.name()
            ));
            (text.into_bytes(), notes)
        }
    }
}

/// A byte order mark that was asked for stays.
fn content_of(content: &str, text: String) -> Vec<u8> {
    let mark = if content.starts_with('\u{feff}') {
        "\u{feff}"
    } else {
        ""
    };
    format!("{mark}{text}").into_bytes()
}
