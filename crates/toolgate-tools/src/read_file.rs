//! The tool that reads a file, or some lines of it.

use base64::{Engine, prelude::BASE64_STANDARD};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Arguments, Context, Kind, Media, MediaSource, Resource, Schema, Tool, ToolError, ToolOutput,
    ToolSpec, typed,
};

use crate::{
    Workspace,
    blocking::{Halt, blocking},
    changing::{invalid, looking},
    files::Snapshot,
    place::Place,
    report::short,
    sniff::{human_size, is_picture, media_type},
    text::{Text, bare, lines},
};

/// Reads a file of the workspace.
///
/// The model gets numbered lines and the digest of the whole file, with which an edit can say what it has seen. A
/// small picture is shown as one; of other files that are no text only size and kind are told.
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
struct Input {
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

/// So many lines are read unless it is said otherwise.
const LINES: usize = 2_000;
/// No answer is longer, in bytes.
const LONGEST: usize = 256 * 1024;
/// A longer line is cut, in characters.
const LONGEST_LINE: usize = 2_000;

impl ReadFile {
    /// What the tool is called.
    pub const NAME: &'static str = "read_file";

    /// Reads files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        let description = "Reads a text file, with line numbers, or looks at a picture. Long files are read in parts: \
             go on with the offset that is told. The digest in the first line names this version of the file.";
        let annotations = looking(Kind::Read).with_resource(Resource::path("path"));
        ToolSpec::new(Self::NAME, description, Schema::of::<Input>()).with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let Input {
            path,
            offset,
            limit,
        } = typed(&arguments)?;
        let (workspace, place) = (self.0.clone(), self.0.place(&path)?);
        blocking(&cx, &Halt::default(), move |_| {
            let file = workspace.snapshot(&place)?;
            match Text::decode(&file.bytes) {
                Some(text) => part(
                    &place,
                    &file,
                    &text,
                    offset.unwrap_or(1),
                    limit.unwrap_or(LINES),
                ),
                None => Ok(no_text(&place, &file, workspace.limits().image_bytes)),
            }
        })
        .await
    }
}

/// The lines from `first` on, as many as fit.
fn part(
    place: &Place,
    file: &Snapshot,
    text: &Text,
    first: usize,
    limit: usize,
) -> Result<ToolOutput, ToolError> {
    let total = lines(&text.text).count();
    if first > total.max(1) {
        return Err(invalid(format!(
            "{place} has {total} lines, so there is no line {first}"
        )));
    }
    let (mut shown, mut content, mut count) = (String::new(), String::new(), 0);
    for (number, line) in lines(&text.text).enumerate().skip(first - 1).take(limit) {
        let numbered = numbered(number + 1, line);
        if shown.len() + numbered.len() > LONGEST && count > 0 {
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
            format!("lines {first} to {last} of {total}; go on with offset {next}")
        }
    };
    let encoding = text.encoding;
    let how = if encoding == crate::text::Encoding::Utf8 {
        String::new()
    } else {
        format!(", {}", encoding.name())
    };
    let head = format!("[{place}: {range}{how}, {}]\n", short(file.digest));
    let value = json!({
        "path": place.to_string(), "content": content, "first_line": first, "last_line": last, "lines": total,
        "next_offset": next, "size": file.bytes.len(), "digest": file.digest, "encoding": encoding,
        "newline": text.newline(),
    });
    Ok(ToolOutput::from(value).with_text(head + &shown))
}

/// A line with its number in front; a very long one is cut.
fn numbered(number: usize, line: &str) -> String {
    let line = bare(line);
    match line.char_indices().nth(LONGEST_LINE) {
        None => format!("{number:>6}\t{line}\n"),
        Some((end, _)) => {
            let left = line[end..].chars().count();
            format!("{number:>6}\t{} … {left} more characters\n", &line[..end])
        }
    }
}

fn no_text(place: &Place, file: &Snapshot, most: u64) -> ToolOutput {
    let (kind, size) = (media_type(&file.bytes), file.bytes.len() as u64);
    let about = format!(
        "[{place}: {kind}, {}, {}]",
        human_size(size),
        short(file.digest)
    );
    if is_picture(kind) && size <= most {
        let source = MediaSource::Data(BASE64_STANDARD.encode(&file.bytes));
        return ToolOutput::media(
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
