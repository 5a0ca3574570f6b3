//! The tool that reads a file, or some lines of it.

use base64::{Engine, prelude::BASE64_STANDARD};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Arguments, Context, Media, MediaSource, Resource, Schema, Tool, ToolError, ToolKind,
    ToolOutput, ToolSpec, parse_arguments,
};
use toolgate_rooted::RootedPath;

use crate::{
    Workspace,
    files::{
        report::short_digest,
        text::{
            DecodedText, lines_with_endings,
            sniff::{detect_media_type, human_size, is_image},
            strip_line_ending,
        },
    },
    workspace::{
        blocking::{HaltFlag, run_blocking},
        open::FileSnapshot,
        plan::{invalid_input, reading_annotations},
    },
};

/// Reads a file of the workspace.
///
/// The model gets numbered lines and the digest of the whole file. An edit can name that digest as
/// the version it expects. A small image is shown to the model. For other binary files the result
/// has only the size and the media type.
///
/// ```
/// # use {toolgate_core::{Arguments, Call, Registry, Stack}, toolgate_tools::{ReadFile, Workspace}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("a.txt"), "one\ntwo\n")?;
/// let registry = Registry::new();
/// registry.register(ReadFile::new(Workspace::open(dir.path())?))?;
/// let stack = Stack::over(registry).build()?;
/// let call = Call::detached("read_file", Arguments::parse(r#"{"path":"a.txt","offset":2}"#)?);
/// assert!(stack.run(call).await.settled().unwrap().model_text().contains("2\ttwo"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReadFile(Workspace);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFileInput {
    /// The file, relative to the workspace.
    path: String,
    /// The first line to read, counted from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    offset: Option<usize>,
    /// The most lines to read; 2000 if not given.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

/// The number of lines that are read by default.
const DEFAULT_LINES: usize = 2_000;
/// The longest result, in bytes.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
/// The longest line in characters; a longer one is truncated.
const MAX_LINE_CHARS: usize = 2_000;

impl ReadFile {
    /// The name of the tool.
    pub const NAME: &'static str = "read_file";

    /// Creates the tool for files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        let description = "Reads a text file with line numbers, or shows an image. Long files are read in parts: \
             continue with the offset given in the first line. The digest there identifies this version of the file.";
        let annotations = reading_annotations(ToolKind::Read).with_resource(Resource::path("path"));
        ToolSpec::new(Self::NAME, description, Schema::for_type::<ReadFileInput>())
            .with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let ReadFileInput {
            path,
            offset,
            limit,
        } = parse_arguments(&arguments)?;
        let workspace = self.0.for_call(&cx);
        let place = self.0.parse_path(&path)?;
        run_blocking(&cx, &HaltFlag::default(), move |_| {
            let file = workspace.read_snapshot(&place)?;
            match DecodedText::decode(&file.bytes) {
                Some(text) => render_lines(
                    &place,
                    &file,
                    &text,
                    offset.unwrap_or(1),
                    limit.unwrap_or(DEFAULT_LINES),
                ),
                None => Ok(render_binary(&place, &file, workspace.limits().image_bytes)),
            }
        })
        .await
    }

    async fn rehearse(&self, arguments: Arguments, cx: Context) -> Result<(), ToolError> {
        // Reading changes nothing, and whether it works is known only afterwards.
        self.invoke(arguments, cx).await.map(drop)
    }
}

/// Renders the lines from `first` on, as many as fit.
fn render_lines(
    place: &RootedPath,
    file: &FileSnapshot,
    text: &DecodedText,
    first: usize,
    limit: usize,
) -> Result<ToolOutput, ToolError> {
    let total = lines_with_endings(&text.text).count();
    if first > total.max(1) {
        return Err(invalid_input(format!(
            "{place} has {total} lines, so there is no line {first}"
        )));
    }
    let mut shown = String::new();
    let mut content = String::new();
    let mut count = 0;
    for (number, line) in lines_with_endings(&text.text)
        .enumerate()
        .skip(first - 1)
        .take(limit)
    {
        let numbered = numbered_line(number + 1, line);
        // At least one line: otherwise the model could not get past it with any offset.
        if shown.len() + numbered.len() > MAX_OUTPUT_BYTES && count > 0 {
            break;
        }
        shown.push_str(&numbered);
        content.push_str(line);
        count += 1;
    }
    let last = first - 1 + count;
    let next = (last < total).then_some(last + 1);
    let range = match (total, next, first) {
        (0, _, _) => "empty".to_owned(),
        (_, None, 1) => format!("{total} lines"),
        (_, None, _) => format!("lines {first} to {last} of {total}"),
        (_, Some(next), _) => {
            format!("lines {first} to {last} of {total}; continue with offset {next}")
        }
    };
    let encoding = text.encoding;
    let how = if encoding == crate::files::text::TextEncoding::Utf8 {
        String::new()
    } else {
        format!(", {}", encoding.name())
    };
    let head = format!("[{place}: {range}{how}, {}]\n", short_digest(file.digest));
    let value = json!({
        "path": place.to_string(), "content": content, "first_line": first, "last_line": last, "lines": total,
        "next_offset": next, "size": file.bytes.len(), "digest": file.digest, "encoding": encoding,
        "newline": text.line_ending(),
    });
    Ok(ToolOutput::from(value).with_text(head + &shown))
}

/// Formats a line with its number; a very long line is truncated.
fn numbered_line(number: usize, line: &str) -> String {
    let line = strip_line_ending(line);
    match line.char_indices().nth(MAX_LINE_CHARS) {
        None => format!("{number:>6}\t{line}\n"),
        Some((end, _)) => {
            let left = line[end..].chars().count();
            format!("{number:>6}\t{} … {left} more characters\n", &line[..end])
        }
    }
}

fn render_binary(place: &RootedPath, file: &FileSnapshot, most: u64) -> ToolOutput {
    let kind = detect_media_type(&file.bytes);
    let size = file.bytes.len() as u64;
    let about = format!(
        "[{place}: {kind}, {}, {}]",
        human_size(size),
        short_digest(file.digest)
    );
    if is_image(kind) && size <= most {
        let source = MediaSource::Data(BASE64_STANDARD.encode(&file.bytes));
        return ToolOutput::from_media(
            about,
            &[Media {
                media_type: kind.to_owned(),
                name: Some(place.to_string()),
                source,
            }],
        );
    }
    let value = json!({ "path": place.to_string(), "binary": true, "media_type": kind, "size": size, "digest": file.digest });
    ToolOutput::from(value).with_text(format!(
        "{about}\nThe file is not text, so its content is not shown."
    ))
}
