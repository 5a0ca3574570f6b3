//! Links and snippets in Markdown files: what a reader on the web cannot follow or use.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

use regex::Regex;

/// Folders without pages of the project.
const SKIPPED_FOLDERS: [&str; 2] = ["target", "node_modules"];

/// A Markdown file.
pub(crate) struct MarkdownPage {
    /// The path below the root of the project.
    path: PathBuf,
    text: String,
}

impl MarkdownPage {
    /// Loads every Markdown file of the project, in the order of their paths.
    pub(crate) fn load_all(root: &Path) -> Result<Vec<Self>, String> {
        let mut files = Vec::new();
        list_pages(root, &mut files).map_err(|error| error.to_string())?;
        files.sort();
        let load = |file: &PathBuf| {
            let path = file.strip_prefix(root).unwrap_or(file).to_owned();
            let text = fs::read_to_string(file);
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(Self { path, text })
        };
        files.iter().map(load).collect()
    }

    /// Returns the lines outside of fenced blocks, with their numbers.
    fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut inside = false;
        self.text
            .lines()
            .enumerate()
            .filter_map(move |(index, line)| {
                let is_fence = line.trim_start().starts_with("```");
                inside ^= is_fence;
                (!inside && !is_fence).then_some((index + 1, line))
            })
    }

    /// Returns the anchors of the headings, as the web view makes them.
    fn anchors(&self) -> Vec<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let headings = self.prose().filter(|(_, line)| line.starts_with('#'));
        headings
            .map(|(_, line)| {
                let slug = heading_slug(line.trim_start_matches('#'));
                let count = seen.entry(slug.clone()).or_default();
                *count += 1;
                match *count {
                    1 => slug,
                    more => format!("{slug}-{}", more - 1),
                }
            })
            .collect()
    }
}

fn list_pages(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&&*name) {
                list_pages(&entry.path(), files)?;
            }
        } else if name.ends_with(".md") {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Makes the anchor of a heading: lower case, without punctuation, with hyphens for blanks.
fn heading_slug(heading: &str) -> String {
    let text = without_link_targets(heading.trim()).to_lowercase();
    let kept = text.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then_some(c),
    });
    kept.collect()
}

/// Removes the targets of links from a heading: `[a](b.md)` becomes `[a]`.
fn without_link_targets(heading: &str) -> String {
    let mut parts = heading.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once(')').map_or("", |(_, after)| after)
    })
}

/// Finds relative links that lead to no file, or to no heading of it, and links that only rustdoc
/// understands. `exists` is asked about paths below the root.
pub(crate) fn broken_links(pages: &[MarkdownPage], exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let link = Regex::new(r"\]\(([^)\s]+)\)|^\[[^\]]+\]:\s+(\S+)").expect("a valid pattern");
    let anchors: BTreeMap<&Path, Vec<String>> = { pages.iter() }
        .map(|page| (page.path.as_path(), page.anchors()))
        .collect();
    let mut found = Vec::new();
    for page in pages {
        for (number, line) in page.prose() {
            for link in link.captures_iter(line) {
                let (Some(whole), Some(target)) = (link.get(0), link.get(1).or(link.get(2))) else {
                    continue;
                };
                // Inside a code span it is no link.
                let is_code = line[..whole.start()].matches('`').count() % 2 == 1;
                let problem = link_problem(&page.path, target.as_str(), &anchors, exists);
                if let (false, Some(problem)) = (is_code, problem) {
                    let at = page.path.display();
                    found.push(format!("{at}:{number}: {}: {problem}", target.as_str()));
                }
            }
        }
    }
    found
}

fn link_problem(
    from: &Path,
    target: &str,
    anchors: &BTreeMap<&Path, Vec<String>>,
    exists: &dyn Fn(&Path) -> bool,
) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    if target.contains("::") {
        return Some("only rustdoc knows this link; the web view does not");
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => from.to_owned(),
        path => tidy_path(&from.parent().unwrap_or(Path::new("")).join(path)),
    };
    if !exists(&file) {
        return Some("there is no such file");
    }
    let has_heading = |anchors: &Vec<String>| anchors.iter().any(|known| known == anchor);
    let headings = anchors.get(file.as_path()).filter(|_| !anchor.is_empty());
    (!headings.is_none_or(has_heading)).then_some("the page has no such heading")
}

/// Resolves `.` and `..` without asking the file system.
fn tidy_path(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                tidy.pop();
            }
            Component::CurDir => {}
            part => tidy.push(part),
        }
    }
    tidy
}

/// Finds lines that rustdoc hides and the web view shows, in Rust snippets of the pages.
pub(crate) fn hidden_lines(pages: &[MarkdownPage]) -> Vec<String> {
    let mut found = Vec::new();
    for page in pages {
        let mut language: Option<&str> = None;
        for (index, line) in page.text.lines().enumerate() {
            match (line.strip_prefix("```"), language) {
                (Some(_), Some(_)) => language = None,
                (Some(info), None) => language = Some(info),
                (None, Some(info)) if is_hidden(info, line) => {
                    let at = format!("{}:{}", page.path.display(), index + 1);
                    found.push(format!("{at}: the web view shows this line; write it out"));
                }
                (None, _) => {}
            }
        }
    }
    found
}

fn is_hidden(info: &str, line: &str) -> bool {
    // A block without a language is Rust for rustdoc.
    let is_rust = info.is_empty() || info.starts_with("rust") || info.starts_with("no_run");
    is_rust && (line == "#" || line.starts_with("# "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> MarkdownPage {
        MarkdownPage {
            path: path.into(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_found_with_its_line() {
        let pages = [
            page(
                "docs/a.md",
                "# A\n[b](b.md#the-first-one) [c](../c.md) [x](x.md)\n[b](b.md#nothing)\n[here](#a)",
            ),
            page("docs/b.md", "# B\n\n## The `first` one!\n"),
            page(
                "c.md",
                "[out](https://example.com/x.md#y) `[no](link.md)`\n```text\n[no](link.md)\n```\n",
            ),
        ];
        let exists = |path: &Path| pages.iter().any(|page| page.path == path);
        let found = broken_links(&pages, &exists);
        assert_eq!(
            found,
            [
                "docs/a.md:2: x.md: there is no such file",
                "docs/a.md:3: b.md#nothing: the page has no such heading",
            ]
        );
    }

    #[test]
    fn a_link_that_only_rustdoc_knows_is_found() {
        let pages = [page("a.md", "[`Model`](crate::Model)")];
        assert_eq!(broken_links(&pages, &|_| true).len(), 1);
    }

    #[test]
    fn headings_with_one_text_have_numbered_anchors() {
        let anchors = page("a.md", "# One\n## [Two](x.md)\n# One\n").anchors();
        assert_eq!(anchors, ["one", "two", "one-1"]);
    }

    #[test]
    fn a_line_that_rustdoc_hides_is_found() {
        let text =
            "```rust\n# fn main() {}\nlet x = 1;\n```\n```toml\n# a comment\n```\n# A heading\n";
        assert_eq!(hidden_lines(&[page("a.md", text)]).len(), 1);
        assert!(hidden_lines(&[page("a.md", "```text\n# x\n```\n")]).is_empty());
    }
}
