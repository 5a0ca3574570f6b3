//! Reads a page of the documentation: its commands, the output they claim, and the files it shows.

use std::path::{Path, PathBuf};

/// The name of the file that a block of TOML without a name stands for.
pub(super) const CONFIG_NAME: &str = "toolgate.toml";

/// A page of the documentation.
pub(super) struct GuidePage {
    /// Its path from the root of the repository.
    pub(super) name: String,
    text: String,
}

/// A part of a page, in order.
pub(super) enum PageStep {
    /// A heading of the second level.
    Section,
    /// A block that shows the content of a file.
    File { name: String, text: String },
    /// A line that begins with `$ ` in a block of the kind `console`.
    Command(PageCommand),
}

/// A command of a page.
pub(super) struct PageCommand {
    /// The number of the line on the page.
    pub(super) line: usize,
    /// The command, with its comment.
    pub(super) text: String,
    /// The output that the page shows below it.
    pub(super) claims: Vec<String>,
}

/// A fenced block: the words after the fence, the number of its first line, its lines.
struct FencedBlock<'a> {
    words: Vec<&'a str>,
    first_line: usize,
    lines: Vec<&'a str>,
}

/// Returns the root of the repository.
pub(super) fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl GuidePage {
    /// Loads the page with this path from the root of the repository.
    pub(super) fn load(name: &str) -> Self {
        let text = std::fs::read_to_string(repository_root().join(name)).expect(name);
        let name = name.to_owned();
        Self { name, text }
    }

    /// Loads every page of a directory, in order of their names.
    pub(super) fn load_directory(directory: &str) -> Vec<Self> {
        let entries = std::fs::read_dir(repository_root().join(directory)).expect(directory);
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("it can be read").file_name())
            .filter_map(|name| name.into_string().ok())
            .filter(|name| name.ends_with(".md"))
            .collect();
        names.sort();
        let load = |name: &String| Self::load(&format!("{directory}/{name}"));
        names.iter().map(load).collect()
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parts of the page that a test can use.
    pub(super) fn steps(&self) -> Vec<PageStep> {
        let mut steps = Vec::new();
        let mut open: Option<FencedBlock<'_>> = None;
        for (index, line) in self.text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (Some(_), Some(_)) => steps.extend(open.take().into_iter().flat_map(block_steps)),
                (Some(block), None) => block.lines.push(line),
                (None, Some(info)) => {
                    let words = info.split_whitespace().collect();
                    let (first_line, lines) = (index + 2, Vec::new());
                    open = Some(FencedBlock {
                        words,
                        first_line,
                        lines,
                    });
                }
                (None, None) if line.starts_with("## ") => steps.push(PageStep::Section),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block has no end", self.name);
        steps
    }

    /// Returns the commands of the page.
    pub(super) fn commands(&self) -> Vec<PageCommand> {
        let command = |step| match step {
            PageStep::Command(command) => Some(command),
            PageStep::Section | PageStep::File { .. } => None,
        };
        self.steps().into_iter().filter_map(command).collect()
    }

    /// Returns the files that the page shows, by name.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let file = |step| match step {
            PageStep::File { name, text } => Some((name, text)),
            PageStep::Section | PageStep::Command(_) => None,
        };
        self.steps().into_iter().filter_map(file).collect()
    }
}

fn block_steps(block: FencedBlock<'_>) -> Vec<PageStep> {
    let file = |name: &str| {
        let (name, text) = (name.to_owned(), block.lines.join("\n") + "\n");
        vec![PageStep::File { name, text }]
    };
    match block.words[..] {
        ["console"] => block_commands(&block),
        ["toml"] => file(CONFIG_NAME),
        [_, name] => file(name),
        _ => Vec::new(),
    }
}

fn block_commands(block: &FencedBlock<'_>) -> Vec<PageStep> {
    let mut commands: Vec<PageCommand> = Vec::new();
    for (index, line) in block.lines.iter().enumerate() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(text), _) => commands.push(PageCommand {
                line: block.first_line + index,
                text: text.to_owned(),
                claims: Vec::new(),
            }),
            (None, Some(command)) if !line.trim().is_empty() => {
                command.claims.push((*line).to_owned());
            }
            (None, _) => {}
        }
    }
    commands.into_iter().map(PageStep::Command).collect()
}

impl PageCommand {
    /// Returns the command without the comment about its exit code.
    pub(super) fn command(&self) -> &str {
        self.text.split(" #").next().unwrap_or_default().trim_end()
    }

    /// Returns the exit code that the page claims: that of the comment or of the verdict, else 0.
    pub(super) fn claimed_exit(&self) -> i32 {
        if let Some((_, code)) = self.text.split_once("# exit ") {
            return code.trim().parse().expect("an exit code is a number");
        }
        let says = |verdict: &str| self.claims.iter().any(|claim| claim.starts_with(verdict));
        if says("the call would run if approved") {
            3
        } else if says("the call would not run") {
            5
        } else if says("the tool would fail") {
            1
        } else {
            0
        }
    }

    /// Returns the first claim that the output does not have, in order. Blanks do not count, and
    /// `…` stands for any text.
    pub(super) fn missing_claim(&self, output: &str) -> Option<&str> {
        let mut lines = output.lines().map(join_blanks);
        let is_there = |claim: &String| lines.any(|line| has_pieces(&line, &join_blanks(claim)));
        let mut is_there = is_there;
        self.claims
            .iter()
            .find(|claim| !is_there(claim))
            .map(String::as_str)
    }
}

fn join_blanks(line: impl AsRef<str>) -> String {
    line.as_ref()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Checks whether a line has the pieces between the `…` of a claim, in order.
fn has_pieces(line: &str, claim: &str) -> bool {
    let mut rest = line;
    claim
        .split('…')
        .map(str::trim)
        .all(|piece| match rest.split_once(piece) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
}

#[test]
fn a_claim_that_the_output_does_not_have_is_found() {
    let claims = ["one  …  two", "three"].map(str::to_owned).to_vec();
    let command = PageCommand {
        line: 1,
        text: "toolgate x   # exit 3".to_owned(),
        claims,
    };
    assert_eq!(command.claimed_exit(), 3);
    assert_eq!(command.command(), "toolgate x");
    assert_eq!(command.missing_claim("a one b two\n\nthree c"), None);
    assert_eq!(command.missing_claim("three\none two"), Some("three"));
    assert_eq!(command.missing_claim("two one\nthree"), Some("one  …  two"));
}
