//! The tool that lists a directory.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{
    Arguments, Context, Resource, Schema, Tool, ToolError, ToolKind, ToolOutput, ToolSpec,
    parse_arguments,
};
use toolgate_rooted::{RootedPath, display_path};

use crate::{
    Workspace,
    workspace::{
        blocking::{HaltFlag, run_blocking},
        plan::reading_annotations,
        walk::{SkippedEntries, TreeWalk, WalkEntry},
    },
};

/// Lists a directory of the workspace, sorted, without files that git ignores.
///
/// ```
/// # use {toolgate_core::{Arguments, Call, Registry, Stack}, toolgate_tools::{ListDir, Workspace}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// std::fs::create_dir(dir.path().join("src"))?;
/// let registry = Registry::new();
/// registry.register(ListDir::new(Workspace::open(dir.path())?))?;
/// let stack = Stack::over(registry).build()?;
/// let outcome = stack.run(Call::detached("list_dir", Arguments::empty())).await;
/// assert!(outcome.settled().unwrap().model_text().contains("src/"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ListDir(Workspace);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListDirInput {
    /// The directory, relative to the workspace; the workspace itself if not given.
    #[serde(default)]
    path: Option<String>,
    /// The number of levels to list; 1 if not given.
    #[serde(default)]
    #[schemars(range(min = 1))]
    depth: Option<usize>,
    /// True to list hidden files and those that git ignores as well.
    #[serde(default)]
    hidden: bool,
}

/// The most entries that are listed; further ones are only counted.
const MAX_ENTRIES: usize = 1_000;
/// The most further entries that are counted; then the walk ends.
const MAX_COUNTED: usize = 100_000;

impl ListDir {
    /// The name of the tool.
    pub const NAME: &'static str = "list_dir";

    /// Creates the tool for directories of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for ListDir {
    fn spec(&self) -> ToolSpec {
        let description = "Lists a directory: directories end in /, files are followed by their size in bytes. Hidden \
             files and those that git ignores are omitted unless hidden is set.";
        let annotations =
            reading_annotations(ToolKind::Search).with_resource(Resource::workspace());
        ToolSpec::new(Self::NAME, description, Schema::for_type::<ListDirInput>())
            .with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let ListDirInput {
            path,
            depth,
            hidden,
        } = parse_arguments(&arguments)?;
        let workspace = self.0.for_call(&cx);
        let start = self.0.parse_path(path.as_deref().unwrap_or("."))?;
        run_blocking(&cx, &HaltFlag::default(), move |halt| {
            let mut entries = Vec::new();
            let mut more = 0;
            let walk = TreeWalk::new(&workspace)
                .include_ignored(hidden)
                .max_depth(depth.unwrap_or(1));
            let left_out = walk.run(&start, halt, &mut |seen| {
                if entries.len() < MAX_ENTRIES {
                    entries.push(ListedEntry::from_walk(seen))
                } else {
                    more += 1
                }
                // Bounds the walk in a huge tree; the note then says "at least".
                more < MAX_COUNTED
            })?;
            Ok(render_listing(&start, &entries, more, left_out))
        })
        .await
    }

    async fn rehearse(&self, arguments: Arguments, cx: Context) -> Result<(), ToolError> {
        let ListDirInput { path, .. } = parse_arguments(&arguments)?;
        let start = self.0.parse_path(path.as_deref().unwrap_or("."))?;
        check_walk_start(&self.0, &cx, start).await
    }
}

struct ListedEntry {
    path: String,
    kind: &'static str,
    size: Option<u64>,
}

impl ListedEntry {
    fn from_walk(seen: &WalkEntry<'_>) -> Self {
        let kind = match seen.kind {
            kind if kind.is_dir() => "directory",
            kind if kind.is_file() => "file",
            kind if kind.is_symlink() => "link",
            _ => "special",
        };
        // Looked up in the open directory without following links: the path may have been swapped.
        let name = seen.path.file_name().filter(|_| seen.kind.is_file());
        let size = name
            .and_then(|name| seen.dir.as_dir().symlink_metadata(name).ok())
            .map(|meta| meta.len());
        Self {
            path: display_path(seen.path),
            kind,
            size,
        }
    }

    fn render_line(&self) -> String {
        match (self.kind, self.size) {
            ("directory", _) => format!("{}/", self.path),
            ("file", Some(size)) => format!("{} ({size})", self.path),
            ("file", None) => self.path.clone(),
            (kind, _) => format!("{} ({kind})", self.path),
        }
    }

    fn to_json(&self) -> Value {
        match self.size {
            Some(size) => json!({ "path": self.path, "kind": self.kind, "size": size }),
            None => json!({ "path": self.path, "kind": self.kind }),
        }
    }
}

fn render_listing(
    start: &RootedPath,
    entries: &[ListedEntry],
    more: usize,
    left_out: SkippedEntries,
) -> ToolOutput {
    let mut lines: Vec<String> = entries.iter().map(ListedEntry::render_line).collect();
    if lines.is_empty() {
        lines.push(format!("[{start} has no entries to list]"));
    }
    lines.extend(omission_notes(more, left_out));
    let entries: Vec<Value> = entries.iter().map(ListedEntry::to_json).collect();
    let value = json!({
        "path": start.to_string(), "entries": entries, "left_out": more,
        "ignored": left_out.ignored, "unreadable": left_out.unreadable,
        "denied": left_out.denied, "needs_approval": left_out.needs_approval,
    });
    ToolOutput::from(value).with_text(lines.join("\n"))
}

/// Fails if a call cannot begin its walk at `start`.
pub(crate) async fn check_walk_start(
    workspace: &Workspace,
    cx: &Context,
    start: RootedPath,
) -> Result<(), ToolError> {
    let workspace = workspace.for_call(cx);
    run_blocking(cx, &HaltFlag::default(), move |_| {
        TreeWalk::new(&workspace).check_start(&start)
    })
    .await
}

/// Returns notes about the entries that a list does not show.
pub(crate) fn omission_notes(more: usize, left_out: SkippedEntries) -> Vec<String> {
    let mut notes = Vec::new();
    if more > 0 {
        let at_least = if more >= MAX_COUNTED { "at least " } else { "" };
        notes.push(format!(
            "[{at_least}{more} more not listed; narrow the request]"
        ));
    }
    if left_out.ignored > 0 {
        notes.push(format!("[{} hidden or ignored by git]", left_out.ignored));
    }
    if left_out.unreadable > 0 {
        notes.push(format!(
            "[{} directories could not be read]",
            left_out.unreadable
        ));
    }
    notes.extend(left_out.access_notes());
    notes
}
