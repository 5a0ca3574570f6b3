//! The tool that finds files by name.

use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Arguments, Context, Kind, Resource, Schema, Tool, ToolError, ToolOutput, ToolSpec, typed,
};

use crate::{
    Workspace,
    blocking::{Halt, blocking},
    changing::{invalid, looking},
    list_dir::notes,
    place::shown,
    walk::Walk,
};

/// Finds files of the workspace by a pattern for their paths, in order, without what git ignores.
///
/// ```
/// # use {toolgate_core::{Arguments, Call, Registry, Stack}, toolgate_tools::{FindFiles, Workspace}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// std::fs::create_dir(dir.path().join("src"))?;
/// std::fs::write(dir.path().join("src/main.rs"), "")?;
/// let registry = Registry::new();
/// registry.register(FindFiles::new(Workspace::open(dir.path())?))?;
/// let stack = Stack::over(registry).build()?;
/// let outcome = stack.run(Call::detached("find_files", Arguments::parse(r#"{"glob":"*.rs"}"#)?)).await;
/// assert_eq!(outcome.settled().unwrap().model_text(), "src/main.rs");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FindFiles(Workspace);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The pattern, such as *.rs, src/**/*.{ts,tsx} or Cargo.toml. Without a slash it fits in every directory.
    glob: String,
    /// The directory to look in, relative to the workspace; the whole workspace if not given.
    #[serde(default)]
    path: Option<String>,
}

/// More files are counted and not listed.
const MOST: usize = 1_000;

impl FindFiles {
    /// What the tool is called.
    pub const NAME: &'static str = "find_files";

    /// Finds files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for FindFiles {
    fn spec(&self) -> ToolSpec {
        let description = "Finds files by a pattern for their paths. Hidden files and those that git ignores are left \
             out. To look for text inside files use search_text.";
        let annotations = looking(Kind::Search).with_resource(Resource::workspace());
        ToolSpec::new(Self::NAME, description, Schema::of::<Input>()).with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let Input { glob, path } = typed(&arguments)?;
        let (workspace, start) = (
            self.0.clone(),
            self.0.place(path.as_deref().unwrap_or("."))?,
        );
        let pattern = pattern(&glob)?;
        blocking(&cx, &Halt::default(), move |halt| {
            let (mut files, mut more) = (Vec::new(), 0);
            let walk = Walk::new(&workspace);
            let left_out = walk.run(&start, halt, &mut |seen| {
                let below = seen.path.strip_prefix(start.as_path()).unwrap_or(seen.path);
                if !seen.kind.is_dir() && (pattern.is_match(below) || pattern.is_match(seen.path)) {
                    match files.len() < MOST {
                        true => files.push(shown(seen.path)),
                        false => more += 1,
                    }
                }
                true
            })?;
            let mut lines = files.clone();
            if lines.is_empty() {
                lines.push(format!("[no file fits {glob}]"));
                lines.extend(notes(0, left_out));
            } else {
                lines.extend(notes(more, Default::default()));
            }
            let value = json!({ "files": files, "left_out": more, "ignored": left_out.ignored });
            Ok(ToolOutput::from(value).with_text(lines.join("\n")))
        })
        .await
    }
}

/// A pattern for paths. Without a slash it fits in every directory.
pub(crate) fn pattern(glob: &str) -> Result<GlobMatcher, ToolError> {
    let glob = glob.strip_prefix("./").unwrap_or(glob);
    let anywhere = if glob.contains('/') {
        glob.to_owned()
    } else {
        format!("**/{glob}")
    };
    let built = GlobBuilder::new(&anywhere).literal_separator(true).build();
    match built {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => Err(invalid(format!(
            "the pattern cannot be read: {}",
            error.kind()
        ))),
    }
}
