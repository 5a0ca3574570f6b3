//! The tool that finds files by name.

use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Arguments, Context, Resource, Schema, Tool, ToolError, ToolKind, ToolOutput, ToolSpec,
    parse_arguments,
};
use toolgate_rooted::{RootedPath, display_path};

use crate::{
    Workspace,
    files::list_dir::{check_walk_start, omission_notes},
    workspace::{
        blocking::{HaltFlag, run_blocking},
        plan::{invalid_input, reading_annotations},
        walk::{SkippedEntries, TreeWalk},
    },
};

/// Finds files of the workspace by a path pattern, sorted, without files that git ignores.
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
struct FindFilesInput {
    /// The pattern, such as *.rs, src/**/*.{ts,tsx} or Cargo.toml. Without a slash it matches in every directory.
    glob: String,
    /// The directory to search, relative to the workspace; the whole workspace if not given.
    #[serde(default)]
    path: Option<String>,
}

/// The most files that are listed; further ones are only counted.
const MAX_FILES: usize = 1_000;

impl FindFiles {
    /// The name of the tool.
    pub const NAME: &'static str = "find_files";

    /// Creates the tool for files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }

    /// Returns the pattern as it was given, the directory to search, and the compiled pattern.
    fn parse_input(
        &self,
        arguments: &Arguments,
    ) -> Result<(String, RootedPath, GlobMatcher), ToolError> {
        let FindFilesInput { glob, path } = parse_arguments(arguments)?;
        let start = self.0.parse_path(path.as_deref().unwrap_or("."))?;
        let pattern = compile_glob(&glob)?;
        Ok((glob, start, pattern))
    }
}

impl Tool for FindFiles {
    fn spec(&self) -> ToolSpec {
        let description = "Finds files by a path pattern. Hidden files and those that git ignores are omitted. \
             To search for text inside files use search_text.";
        let annotations =
            reading_annotations(ToolKind::Search).with_resource(Resource::workspace());
        ToolSpec::new(
            Self::NAME,
            description,
            Schema::for_type::<FindFilesInput>(),
        )
        .with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let (glob, start, pattern) = self.parse_input(&arguments)?;
        let workspace = self.0.for_call(&cx);
        run_blocking(&cx, &HaltFlag::default(), move |halt| {
            let mut files = Vec::new();
            let mut more = 0;
            let walk = TreeWalk::new(&workspace);
            let left_out = walk.run(&start, halt, &mut |seen| {
                // A model may write the pattern relative to `path` or to the workspace; both match.
                let below = seen.path.strip_prefix(start.as_path()).unwrap_or(seen.path);
                if !seen.kind.is_dir() && (pattern.is_match(below) || pattern.is_match(seen.path)) {
                    if files.len() < MAX_FILES {
                        files.push(display_path(seen.path))
                    } else {
                        more += 1
                    }
                }
                true
            })?;
            let mut lines = files.clone();
            if lines.is_empty() {
                lines.push(format!("[no file matches {glob}]"));
                // Ignored files are mentioned only here: they may be the reason for no match.
                lines.extend(omission_notes(0, left_out));
            } else {
                lines.extend(omission_notes(more, SkippedEntries::default()));
                lines.extend(left_out.access_notes());
            }
            let value = json!({
                "files": files, "left_out": more, "ignored": left_out.ignored,
                "denied": left_out.denied, "needs_approval": left_out.needs_approval,
            });
            Ok(ToolOutput::from(value).with_text(lines.join("\n")))
        })
        .await
    }

    async fn rehearse(&self, arguments: Arguments, cx: Context) -> Result<(), ToolError> {
        let (_, start, _) = self.parse_input(&arguments)?;
        check_walk_start(&self.0, &cx, start).await
    }
}

/// Compiles a path pattern. Without a slash it matches in every directory.
pub(crate) fn compile_glob(glob: &str) -> Result<GlobMatcher, ToolError> {
    let glob = glob.strip_prefix("./").unwrap_or(glob);
    let anywhere = if glob.contains('/') {
        glob.to_owned()
    } else {
        format!("**/{glob}")
    };
    let built = GlobBuilder::new(&anywhere).literal_separator(true).build();
    match built {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => Err(invalid_input(format!(
            "the pattern is not valid: {}",
            error.kind()
        ))),
    }
}
