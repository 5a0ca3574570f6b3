//! The tool that searches the text of files.

use std::{fs::File, io, path::Path};

use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Arguments, Context, Resource, Schema, Tool, ToolError, ToolKind, ToolOutput, ToolSpec,
    parse_arguments,
};
use toolgate_rooted::{OpenedFile, RootedPath, display_path};

use crate::{
    Workspace,
    files::find_files::compile_glob,
    workspace::{
        blocking::{HaltFlag, run_blocking},
        plan::{invalid_input, reading_annotations},
        walk::{SkippedEntries, TreeWalk, WalkEntry},
    },
};

/// Searches the text of files of the workspace, sorted by path, without files that git ignores.
///
/// ```
/// # use {toolgate_core::{Arguments, Call, Registry, Stack}, toolgate_tools::{SearchText, Workspace}};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("a.txt"), "one\ntwo\n")?;
/// let registry = Registry::new();
/// registry.register(SearchText::new(Workspace::open(dir.path())?))?;
/// let stack = Stack::over(registry).build()?;
/// let outcome = stack.run(Call::detached("search_text", Arguments::parse(r#"{"pattern":"t.o"}"#)?)).await;
/// assert_eq!(outcome.settled().unwrap().model_text(), "a.txt\n     2:two");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SearchText(Workspace);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchTextInput {
    /// The regular expression to search for; it matches within one line.
    pattern: String,
    /// The file or directory to search, relative to the workspace; the whole workspace if not given.
    #[serde(default)]
    path: Option<String>,
    /// The pattern of the files to search, such as *.rs or src/**/*.ts.
    #[serde(default)]
    glob: Option<String>,
    /// The case sensitivity; smart is case-sensitive only if the pattern has upper case letters.
    #[serde(default)]
    case: CaseMode,
    /// The number of lines to show before and after each matching line.
    #[serde(default)]
    #[schemars(range(max = 20))]
    context: usize,
    /// True to search for the pattern as plain text.
    #[serde(default)]
    literal: bool,
    /// The most lines to show; 200 if not given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2000))]
    max: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CaseMode {
    #[default]
    Sensitive,
    Insensitive,
    Smart,
}

/// The number of matching lines that are shown by default.
const DEFAULT_LINES: usize = 200;
/// The most further matching lines that are counted; then the search ends.
const MAX_COUNTED: u64 = 10_000;
/// The longest line in characters; a longer one is truncated.
const MAX_LINE_CHARS: usize = 400;
/// The most memory that one search may use for a line, in bytes.
const MAX_LINE_BUFFER: usize = 8 << 20;

impl SearchText {
    /// The name of the tool.
    pub const NAME: &'static str = "search_text";

    /// Creates the tool for files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for SearchText {
    fn spec(&self) -> ToolSpec {
        let description = "Searches the lines of files for a regular expression (Rust syntax) or for plain text. \
             Hidden files, those that git ignores and binary files are skipped.";
        let annotations =
            reading_annotations(ToolKind::Search).with_resource(Resource::workspace());
        ToolSpec::new(
            Self::NAME,
            description,
            Schema::for_type::<SearchTextInput>(),
        )
        .with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let prepared = PreparedSearch::new(&self.0, &arguments)?;
        let workspace = self.0.for_call(&cx);
        run_blocking(&cx, &HaltFlag::default(), move |halt| {
            let PreparedSearch {
                input,
                start,
                matcher,
                glob,
            } = prepared;
            let mut search = TextSearch::new(&workspace, matcher, glob, &input);
            search.run(&start, halt)?;
            Ok(search.to_output(&input.pattern))
        })
        .await
    }

    async fn rehearse(&self, arguments: Arguments, cx: Context) -> Result<(), ToolError> {
        let prepared = PreparedSearch::new(&self.0, &arguments)?;
        let workspace = self.0.for_call(&cx);
        run_blocking(&cx, &HaltFlag::default(), move |_| {
            match open_named_file(&workspace, &prepared.start)? {
                Some(_) => Ok(()),
                None => TreeWalk::new(&workspace).check_start(&prepared.start),
            }
        })
        .await
    }
}

/// The arguments of a search, checked and compiled.
struct PreparedSearch {
    input: SearchTextInput,
    start: RootedPath,
    matcher: RegexMatcher,
    glob: Option<GlobMatcher>,
}

impl PreparedSearch {
    fn new(workspace: &Workspace, arguments: &Arguments) -> Result<Self, ToolError> {
        let input: SearchTextInput = parse_arguments(arguments)?;
        let start = workspace.parse_path(input.path.as_deref().unwrap_or("."))?;
        let matcher = build_matcher(&input)?;
        let glob = input.glob.as_deref().map(compile_glob).transpose()?;
        Ok(Self {
            input,
            start,
            matcher,
            glob,
        })
    }
}

/// Opens the file that the model named, or returns nothing for a directory.
fn open_named_file(
    workspace: &Workspace,
    start: &RootedPath,
) -> Result<Option<OpenedFile>, ToolError> {
    // A link to a file is searched if the model names it. A walk skips links.
    if start.is_root() || !workspace.dir().as_dir().is_file(start.as_path()) {
        return Ok(None);
    }
    workspace.check_readable(start)?;
    workspace.open_file(start).map(Some)
}

fn build_matcher(input: &SearchTextInput) -> Result<RegexMatcher, ToolError> {
    if input.pattern.is_empty() {
        return Err(invalid_input(
            "the pattern is empty; use list_dir or find_files to list files",
        ));
    }
    let mut builder = RegexMatcherBuilder::new();
    // The size limit rejects patterns that would compile to gigabytes, such as ((a{1000}){1000}){1000}.
    builder
        .multi_line(true)
        // Otherwise `$` would not match in a file with Windows line endings.
        .crlf(true)
        .fixed_strings(input.literal)
        .size_limit(10 << 20);
    match input.case {
        CaseMode::Sensitive => {}
        CaseMode::Insensitive => drop(builder.case_insensitive(true)),
        CaseMode::Smart => drop(builder.case_smart(true)),
    }
    builder.build(&input.pattern).map_err(|error| {
        invalid_input(format!(
            "the pattern is not valid: {error}\nset literal to true to search for it as plain text"
        ))
    })
}

/// A search in progress.
struct TextSearch<'a> {
    workspace: &'a Workspace,
    matcher: RegexMatcher,
    glob: Option<GlobMatcher>,
    searcher: Searcher,
    most: usize,
    found: SearchMatches,
    searched: u64,
    /// The number of files above the size limit.
    too_large: u64,
    /// The number of files that could not be read to the end, or have a line that is too long.
    unreadable: u64,
    /// The entries that the walk has not visited.
    skipped: SkippedEntries,
}

#[derive(Default)]
struct SearchMatches {
    lines: Vec<MatchedLine>,
    shown: usize,
    left_out: u64,
}

/// A matching line, or a line of context.
#[derive(Debug, Serialize)]
struct MatchedLine {
    path: String,
    line: u64,
    text: String,
    /// True for a matching line, false for a line of context.
    #[serde(rename = "match")]
    fits: bool,
}

impl<'a> TextSearch<'a> {
    fn new(
        workspace: &'a Workspace,
        matcher: RegexMatcher,
        glob: Option<GlobMatcher>,
        input: &SearchTextInput,
    ) -> Self {
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(input.context)
            .after_context(input.context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BUFFER))
            .build();
        let most = input.max.unwrap_or(DEFAULT_LINES);
        let found = SearchMatches::default();
        Self {
            workspace,
            matcher,
            glob,
            searcher,
            most,
            found,
            searched: 0,
            too_large: 0,
            unreadable: 0,
            skipped: SkippedEntries::default(),
        }
    }

    fn run(&mut self, start: &RootedPath, halt: &HaltFlag) -> Result<(), ToolError> {
        if let Some(opened) = open_named_file(self.workspace, start)? {
            self.search_file(start.as_path(), &opened.file, opened.meta.len());
            return Ok(());
        }
        let walk = TreeWalk::new(self.workspace).reading_files();
        let mut stopped = Ok(());
        let skipped = walk.run(start, halt, &mut |seen| {
            // Per entry: the walk itself checks only once per directory.
            stopped = halt.check_running();
            self.search_entry(start, seen);
            stopped.is_ok() && self.found.left_out < MAX_COUNTED
        })?;
        self.skipped = skipped;
        stopped
    }

    fn search_entry(&mut self, start: &RootedPath, seen: &WalkEntry<'_>) {
        let Some(name) = seen.path.file_name().filter(|_| seen.kind.is_file()) else {
            return;
        };
        let below = seen.path.strip_prefix(start.as_path()).unwrap_or(seen.path);
        if self
            .glob
            .as_ref()
            .is_some_and(|glob| !glob.is_match(below) && !glob.is_match(seen.path))
        {
            return;
        }
        // Opened without following links: the entry may have been replaced since the walk saw it.
        let Ok(opened) = seen.dir.open_entry(name) else {
            return;
        };
        if opened.meta.is_file() {
            self.search_file(seen.path, &opened.file, opened.meta.len());
        }
    }

    fn search_file(&mut self, path: &Path, file: &File, size: u64) {
        if size > self.workspace.limits().search_bytes {
            self.too_large += 1;
            return;
        }
        self.searched += 1;
        let most = self.most;
        let before = self.found.lines.len();
        let mut sink = LineSink {
            path: display_path(path),
            found: &mut self.found,
            most,
            binary: false,
        };
        let searched = self.searcher.search_file(&self.matcher, file, &mut sink);
        self.unreadable += u64::from(searched.is_err());
        // Drops the matches of a file that turns out to be binary or cannot be read to the end.
        if sink.binary || searched.is_err() {
            let gone = self
                .found
                .lines
                .drain(before..)
                .filter(|line| line.fits)
                .count();
            self.found.shown -= gone;
        }
    }

    fn to_output(&self, pattern: &str) -> ToolOutput {
        let SearchMatches {
            lines,
            shown,
            left_out,
        } = &self.found;
        let mut text = Vec::with_capacity(lines.len());
        let mut last: Option<(&str, u64)> = None;
        for line in lines {
            match last {
                Some((path, _)) if path != line.path => {
                    text.extend([String::new(), line.path.clone()])
                }
                None => text.push(line.path.clone()),
                Some((_, number))
                    if number + 1 < line.line && self.searcher.after_context() > 0 =>
                {
                    text.push("    --".to_owned());
                }
                Some(_) => {}
            }
            let mark = if line.fits { ':' } else { '-' };
            text.push(format!("{:>6}{mark}{}", line.line, line.text));
            last = Some((&line.path, line.line));
        }
        if lines.is_empty() {
            text.push(format!(
                "[no line matches {pattern} in {} files]",
                self.searched
            ));
        }
        if *left_out > 0 {
            let at_least = if *left_out >= MAX_COUNTED {
                "at least "
            } else {
                ""
            };
            text.push(format!(
                "[{at_least}{left_out} more lines not shown; narrow the search with path or glob, or raise max]"
            ));
        }
        if self.too_large > 0 {
            text.push(format!(
                "[{} files are too large to search]",
                self.too_large
            ));
        }
        if self.unreadable > 0 {
            text.push(format!("[{} files could not be searched]", self.unreadable));
        }
        text.extend(self.skipped.access_notes());
        let value = json!({
            "matches": lines, "count": shown, "left_out": left_out, "files_searched": self.searched,
            "files_too_large": self.too_large, "files_unreadable": self.unreadable,
            "denied": self.skipped.denied, "needs_approval": self.skipped.needs_approval,
        });
        ToolOutput::from(value).with_text(text.join("\n"))
    }
}

/// Collects the matching lines of one file.
struct LineSink<'a> {
    path: String,
    found: &'a mut SearchMatches,
    most: usize,
    binary: bool,
}

impl LineSink<'_> {
    fn push_line(&mut self, line: Option<u64>, bytes: &[u8], fits: bool) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        let text = match text.char_indices().nth(MAX_LINE_CHARS) {
            Some((end, _)) => format!("{} …", &text[..end]),
            None => text.to_owned(),
        };
        self.found.lines.push(MatchedLine {
            path: self.path.clone(),
            line: line.unwrap_or_default(),
            text,
            fits,
        });
    }
}

impl Sink for LineSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        if self.found.shown >= self.most {
            self.found.left_out += 1;
            return Ok(self.found.left_out < MAX_COUNTED);
        }
        self.found.shown += 1;
        self.push_line(line.line_number(), line.bytes(), true);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        if self.found.shown < self.most {
            self.push_line(line.line_number(), line.bytes(), false);
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }
}
