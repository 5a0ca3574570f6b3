//! The tool that searches the text of files.

use std::{fs::File, io, path::Path};

use cap_fs_ext::FollowSymlinks;
use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Arguments, Context, Kind, Resource, Schema, Tool, ToolError, ToolOutput, ToolSpec, typed,
};

use crate::{
    Workspace,
    blocking::{Halt, blocking},
    changing::{invalid, looking},
    files::open_plain,
    find_files::pattern,
    place::{Place, shown},
    walk::{Seen, Walk},
};

/// Searches the text of files of the workspace, in order, without what git ignores.
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
struct Input {
    /// What to look for: a regular expression that fits within one line.
    pattern: String,
    /// The file or directory to look in, relative to the workspace; the whole workspace if not given.
    #[serde(default)]
    path: Option<String>,
    /// Which files to look in, such as *.rs or src/**/*.ts.
    #[serde(default)]
    glob: Option<String>,
    /// Whether capitals matter; smart: only if the pattern has any.
    #[serde(default)]
    case: Case,
    /// How many lines to show before and after each line that fits.
    #[serde(default)]
    #[schemars(range(max = 20))]
    context: usize,
    /// True to look for the pattern as plain text.
    #[serde(default)]
    literal: bool,
    /// The most lines to show; 200 if not given.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2000))]
    max: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Case {
    #[default]
    Sensitive,
    Insensitive,
    Smart,
}

/// So many lines are shown unless it is said otherwise.
const LINES: usize = 200;
/// Counting goes on so far.
const MOST_COUNTED: u64 = 10_000;
/// A longer line is cut, in characters.
const LONGEST_LINE: usize = 400;
/// What one search may hold in memory for a line, in bytes.
const LONGEST_BUFFER: usize = 8 << 20;

impl SearchText {
    /// What the tool is called.
    pub const NAME: &'static str = "search_text";

    /// Searches files of this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self(workspace)
    }
}

impl Tool for SearchText {
    fn spec(&self) -> ToolSpec {
        let description = "Searches the lines of files for a regular expression (Rust syntax) or for plain text. \
             Hidden files, those that git ignores and those that are no text are left out.";
        let annotations = looking(Kind::Search).with_resource(Resource::workspace());
        ToolSpec::new(Self::NAME, description, Schema::of::<Input>()).with_annotations(annotations)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let input: Input = typed(&arguments)?;
        let (workspace, start) = (
            self.0.clone(),
            self.0.place(input.path.as_deref().unwrap_or("."))?,
        );
        let matcher = matcher(&input)?;
        let glob = input.glob.as_deref().map(pattern).transpose()?;
        blocking(&cx, &Halt::default(), move |halt| {
            let mut search = Search::new(&workspace, matcher, glob, &input);
            search.run(&start, halt)?;
            Ok(search.output(&input.pattern))
        })
        .await
    }
}

fn matcher(input: &Input) -> Result<RegexMatcher, ToolError> {
    if input.pattern.is_empty() {
        return Err(invalid(
            "the pattern is empty; use list_dir or find_files to see which files there are",
        ));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .crlf(true)
        .fixed_strings(input.literal)
        .size_limit(10 << 20);
    match input.case {
        Case::Sensitive => {}
        Case::Insensitive => drop(builder.case_insensitive(true)),
        Case::Smart => drop(builder.case_smart(true)),
    }
    builder.build(&input.pattern).map_err(|error| {
        invalid(format!(
            "the pattern cannot be used: {error}\nset literal to true to look for it as plain text"
        ))
    })
}

/// A search on its way.
struct Search<'a> {
    workspace: &'a Workspace,
    matcher: RegexMatcher,
    glob: Option<GlobMatcher>,
    searcher: Searcher,
    most: usize,
    found: Found,
    searched: u64,
    /// Files above the size that is searched.
    too_large: u64,
    /// Files that could not be read to their end, or have a line that does not fit into memory.
    unreadable: u64,
}

#[derive(Default)]
struct Found {
    lines: Vec<Line>,
    shown: usize,
    left_out: u64,
}

/// A line that fits, or one around it.
#[derive(Debug, Serialize)]
struct Line {
    path: String,
    line: u64,
    text: String,
    /// Whether it fits, or stands around one that does.
    #[serde(rename = "match")]
    fits: bool,
}

impl<'a> Search<'a> {
    fn new(
        workspace: &'a Workspace,
        matcher: RegexMatcher,
        glob: Option<GlobMatcher>,
        input: &Input,
    ) -> Self {
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(input.context)
            .after_context(input.context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LONGEST_BUFFER))
            .build();
        let (most, found) = (input.max.unwrap_or(LINES), Found::default());
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
        }
    }

    fn run(&mut self, start: &Place, halt: &Halt) -> Result<(), ToolError> {
        // A link to a file is searched when it is named, and not when it is come by.
        if !start.is_root() && self.workspace.dir().is_file(start.as_path()) {
            let (file, meta) = self.workspace.open_file(start)?;
            self.file(start.as_path(), &file, meta.len());
            return Ok(());
        }
        let walk = Walk::new(self.workspace);
        let mut stopped = Ok(());
        walk.run(start, halt, &mut |seen| {
            stopped = halt.check();
            self.entry(start, seen);
            stopped.is_ok() && self.found.left_out < MOST_COUNTED
        })?;
        stopped
    }

    fn entry(&mut self, start: &Place, seen: &Seen<'_>) {
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
        // It may have become something else since it was come by.
        let Ok((file, meta)) = open_plain(seen.dir, Path::new(name), FollowSymlinks::No) else {
            return;
        };
        if meta.is_file() {
            self.file(seen.path, &file, meta.len());
        }
    }

    fn file(&mut self, path: &Path, file: &File, size: u64) {
        if size > self.workspace.limits().search_bytes {
            self.too_large += 1;
            return;
        }
        self.searched += 1;
        let (most, before) = (self.most, self.found.lines.len());
        let mut sink = Lines {
            path: shown(path),
            found: &mut self.found,
            most,
            binary: false,
        };
        let searched = self.searcher.search_file(&self.matcher, file, &mut sink);
        self.unreadable += u64::from(searched.is_err());
        // Of a file that is no text, or cannot be read to its end, nothing is shown.
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

    fn output(&self, pattern: &str) -> ToolOutput {
        let Found {
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
                "[nothing fits {pattern} in {} files]",
                self.searched
            ));
        }
        if *left_out > 0 {
            let at_least = if *left_out >= MOST_COUNTED {
                "at least "
            } else {
                ""
            };
            text.push(format!("[{at_least}{left_out} more lines left out; narrow it with path or glob, or raise max]"));
        }
        if self.too_large > 0 {
            text.push(format!(
                "[{} files are too large to be searched]",
                self.too_large
            ));
        }
        if self.unreadable > 0 {
            text.push(format!("[{} files could not be searched]", self.unreadable));
        }
        let value = json!({
            "matches": lines, "count": shown, "left_out": left_out, "files_searched": self.searched,
            "files_too_large": self.too_large, "files_unreadable": self.unreadable,
        });
        ToolOutput::from(value).with_text(text.join("\n"))
    }
}

/// Takes down the lines of one file.
struct Lines<'a> {
    path: String,
    found: &'a mut Found,
    most: usize,
    binary: bool,
}

impl Lines<'_> {
    fn push(&mut self, line: Option<u64>, bytes: &[u8], fits: bool) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        let text = match text.char_indices().nth(LONGEST_LINE) {
            Some((end, _)) => format!("{} …", &text[..end]),
            None => text.to_owned(),
        };
        self.found.lines.push(Line {
            path: self.path.clone(),
            line: line.unwrap_or_default(),
            text,
            fits,
        });
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        if self.found.shown >= self.most {
            self.found.left_out += 1;
            return Ok(self.found.left_out < MOST_COUNTED);
        }
        self.found.shown += 1;
        self.push(line.line_number(), line.bytes(), true);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        if self.found.shown < self.most {
            self.push(line.line_number(), line.bytes(), false);
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }
}
