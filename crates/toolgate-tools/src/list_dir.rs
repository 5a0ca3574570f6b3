//! The tool that lists a directory.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{
    Arguments, Context, Kind, Resource, Schema, Tool, ToolError, ToolOutput, ToolSpec, typed,
};

use crate::{
    Workspace,
    blocking::{Halt, blocking},
    changing::looking,
    place::{Place, shown},
    walk::{LeftOut, Seen, Walk},
};

/// Lists a directory of the workspace, in order, without what git ignores.
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
struct Input {
    /// The directory, relative to the workspace; the workspace itself if not given.
    #[serde(default)]
    path: Option<String>,
    /// How many levels to list; 1 if not given.
    #[serde(default)]
    #[schemars(range(min = 1))]
    depth: Option<usize>,
    /// True to list hidden files and those that git ignores as well.
    #[serde(default)]
    hidden: bool,
}

/// More entries are counted and not listed.
const MOST: usize = 1_000;
/// More entries are not even counted.
const MOST_COUNTED: usize = 100_000;

impl ListDir {
    /// What the tool is called.
    pub const NAME: &'static str = "list_dir";

    /// Lists directories of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for ListDir {
    fn spec(&self) -> ToolSpec {
        let description = "Lists a directory: directories end in /, files have their size behind them. Hidden files \
             and those that git ignores are left out unless hidden is set.";
        let annotations = looking(Kind::Search).with_resource(Resource::workspace());
        ToolSpec::new(Self::NAME, description, Schema::of::<Input>()).with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let Input {
            path,
            depth,
            hidden,
        } = typed(&arguments)?;
        let (workspace, start) = (
            self.0.clone(),
            self.0.place(path.as_deref().unwrap_or("."))?,
        );
        blocking(&cx, &Halt::default(), move |halt| {
            let (mut entries, mut more) = (Vec::new(), 0);
            let walk = Walk::new(&workspace)
                .everything(hidden)
                .depth(depth.unwrap_or(1));
            let left_out = walk.run(&start, halt, &mut |seen| {
                match entries.len() < MOST {
                    true => entries.push(Entry::of(seen)),
                    false => more += 1,
                }
                more < MOST_COUNTED
            })?;
            Ok(listing(&start, &entries, more, left_out))
        })
        .await
    }
}

struct Entry {
    path: String,
    kind: &'static str,
    size: Option<u64>,
}

impl Entry {
    fn of(seen: &Seen<'_>) -> Self {
        let kind = match seen.kind {
            kind if kind.is_dir() => "directory",
            kind if kind.is_file() => "file",
            kind if kind.is_symlink() => "link",
            _ => "special",
        };
        let name = seen.path.file_name().filter(|_| seen.kind.is_file());
        let size = name
            .and_then(|name| seen.dir.symlink_metadata(name).ok())
            .map(|meta| meta.len());
        Self {
            path: shown(seen.path),
            kind,
            size,
        }
    }

    fn text(&self) -> String {
        match (self.kind, self.size) {
            ("directory", _) => format!("{}/", self.path),
            ("file", Some(size)) => format!("{} ({size})", self.path),
            ("file", None) => self.path.clone(),
            (kind, _) => format!("{} ({kind})", self.path),
        }
    }

    fn value(&self) -> Value {
        match self.size {
            Some(size) => json!({ "path": self.path, "kind": self.kind, "size": size }),
            None => json!({ "path": self.path, "kind": self.kind }),
        }
    }
}

fn listing(start: &Place, entries: &[Entry], more: usize, left_out: LeftOut) -> ToolOutput {
    let mut lines: Vec<String> = entries.iter().map(Entry::text).collect();
    if lines.is_empty() {
        lines.push(format!("[{start} has nothing to list]"));
    }
    lines.extend(notes(more, left_out));
    let entries: Vec<Value> = entries.iter().map(Entry::value).collect();
    let value = json!({
        "path": start.to_string(), "entries": entries, "left_out": more,
        "ignored": left_out.ignored, "unreadable": left_out.unreadable,
    });
    ToolOutput::from(value).with_text(lines.join("\n"))
}

/// What a list does not show.
pub(crate) fn notes(more: usize, left_out: LeftOut) -> Vec<String> {
    let mut notes = Vec::new();
    if more > 0 {
        let at_least = if more >= MOST_COUNTED {
            "at least "
        } else {
            ""
        };
        notes.push(format!("[{at_least}{more} more left out; ask for less]"));
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
    notes
}
