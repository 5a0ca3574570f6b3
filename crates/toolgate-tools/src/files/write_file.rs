//! The tool that writes a whole file.

use schemars::JsonSchema;
use serde::Deserialize;
use toolgate_core::{
    Arguments, Context, IdempotencyKey, ReconciledAttempt, Resource, Schema, Tool, ToolError,
    ToolKind, ToolOutput, ToolSpec, parse_arguments,
};
use toolgate_rooted::RootedPath;

use crate::{
    Workspace,
    files::text::{DecodedText, LineEnding, TextEncoding, sniff::human_size, with_line_ending},
    workspace::{
        blocking::HaltFlag,
        changes::ChangeSet,
        commit::PlannedChange,
        expected,
        open::{FileSnapshot, NEW_FILE_MODE},
        plan::{
            ChangePlan, ChangePlanner, conflict_error, invalid_input, plan_and_commit,
            rehearse_plan, writing_annotations,
        },
    },
};

/// Writes a whole file of the workspace, and replaces an existing one.
///
/// The file changes in one step: a reader finds the old content or the new one, also after a crash.
/// Missing directories are created. Permissions, encoding and line endings of an existing file are
/// preserved.
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
struct WriteFileInput {
    /// The file, relative to the workspace.
    path: String,
    /// The whole new content.
    content: String,
    /// The digest from read_file. If the file has changed since, nothing is written.
    #[serde(default)]
    expected_digest: Option<String>,
    /// True to write only if the file does not exist yet.
    #[serde(default)]
    must_not_exist: bool,
}

impl WriteFile {
    /// The name of the tool.
    pub const NAME: &'static str = "write_file";

    /// Creates the tool for files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        let description = "Writes a whole file and replaces an existing one. To change a part of a file use edit_file. \
             Missing directories are created.";
        let annotations =
            writing_annotations(&self.0, ToolKind::Edit).with_resource(Resource::path("path"));
        ToolSpec::new(
            Self::NAME,
            description,
            Schema::for_type::<WriteFileInput>(),
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
    let input: WriteFileInput = parse_arguments(arguments)?;
    Ok(move |workspace: &Workspace, _: &HaltFlag| plan_write(workspace, &input))
}

fn plan_write(workspace: &Workspace, input: &WriteFileInput) -> Result<ChangePlan, ToolError> {
    let place = workspace.resolve_target(&workspace.parse_path(&input.path)?)?;
    let before = workspace.read_target(&place)?;
    if input.must_not_exist && before.is_some() {
        return Err(conflict_error(format!(
            "{place} already exists; read it, or choose another name"
        )));
    }
    expected::check_expected_digest(input.expected_digest.as_deref(), &place, before.as_ref())?;
    let (bytes, notes) = match &before {
        Some(before) => encode_like(before, &input.content),
        None => (input.content.clone().into_bytes(), Vec::new()),
    };
    let mode = before.as_ref().map_or(NEW_FILE_MODE, |before| before.mode);
    plan_one_file(
        workspace,
        place,
        before,
        FileSnapshot::new(bytes, mode),
        notes,
    )
}

/// Plans the change of one file; the plan is empty if the content is the same.
pub(crate) fn plan_one_file(
    workspace: &Workspace,
    place: RootedPath,
    before: Option<FileSnapshot>,
    after: FileSnapshot,
    mut notes: Vec<String>,
) -> Result<ChangePlan, ToolError> {
    check_writable(workspace, &place, before.as_ref(), Some(&after))?;
    if before.as_ref() == Some(&after) {
        notes.push(format!("{place} already has this content"));
        return Ok(ChangePlan {
            notes,
            ..ChangePlan::default()
        });
    }
    let files = vec![PlannedChange {
        place,
        renamed_from: None,
        before,
        after: Some(after),
    }];
    Ok(ChangePlan {
        files,
        notes,
        ..ChangePlan::default()
    })
}

/// Checks that the tools may change a file: it is not read-only, and the result is not too large.
pub(crate) fn check_writable(
    workspace: &Workspace,
    place: &RootedPath,
    before: Option<&FileSnapshot>,
    after: Option<&FileSnapshot>,
) -> Result<(), ToolError> {
    // A rename would replace it anyway, and root may write anything. Read-only is a statement of the
    // user, so it is respected.
    if before.is_some_and(|before| before.mode & 0o222 == 0) {
        return Err(conflict_error(format!(
            "{place} is read-only; leave it unchanged, or have it made writable first"
        ))
        .with_category(toolgate_core::ErrorCategory::Permission));
    }
    let most = workspace.limits().write_bytes;
    let size = after.map_or(0, |after| after.bytes.len() as u64);
    if size > most {
        let size = human_size(size);
        let most = human_size(most);
        return Err(invalid_input(format!(
            "{place} would have {size}, more than the limit of {most} for a file"
        )));
    }
    Ok(())
}

/// Encodes the content like the old file, and returns notes about it.
fn encode_like(before: &FileSnapshot, content: &str) -> (Vec<u8>, Vec<String>) {
    let Some(old) = DecodedText::decode(&before.bytes) else {
        return (
            content.as_bytes().to_vec(),
            vec!["the old file was not text".to_owned()],
        );
    };
    let mut notes = Vec::new();
    // An encoding with a byte order mark writes its own; it must not occur twice.
    let mut text = content
        .strip_prefix('\u{feff}')
        .unwrap_or(content)
        .to_owned();
    // Content that has any `\r` is written as it is: the model chose its line endings.
    if old.line_ending() == LineEnding::Crlf && !content.contains('\r') && content.contains('\n') {
        text = with_line_ending(&text, LineEnding::Crlf);
        notes.push("the lines end in CRLF, as before".to_owned());
    }
    if old.encoding == TextEncoding::Utf8 {
        return (with_requested_bom(content, text), notes);
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

/// Returns the bytes of `text`, with a byte order mark if the requested content has one.
fn with_requested_bom(content: &str, text: String) -> Vec<u8> {
    let mark = if content.starts_with('\u{feff}') {
        "\u{feff}"
    } else {
        ""
    };
    format!("{mark}{text}").into_bytes()
}
