//! The mirror of the house: numbers about folders, names and words, and the few rules that always hold.
//!
//! `cargo xtask house` prints the numbers; none of them can fail. `cargo xtask test` checks the rules, which name
//! only what is never right.

mod links;
mod measure;
mod rules;
mod source;

use std::path::Path;

use links::MarkdownPage;
use source::Source;

/// Prints the numbers, each beside the one to aim for.
pub(crate) fn print(root: &Path) -> Result<(), String> {
    let sources = Source::load_all(root)?;
    let rows = measure::rows(&sources);
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    println!("{:width$}  {:>14}  {:>9}", "", "here", "aim");
    for row in rows {
        println!("{:width$}  {:>14}  {:>9}", row.name, row.here, row.aim);
    }
    Ok(())
}

/// Checks the rules and names every place that breaks one.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let sources = Source::load_all(root)?;
    let mut broken = rules::path_attributes(&sources);
    broken.extend(rules::full_folders(&sources));
    broken.extend(rules::shared_public_types(&sources));
    broken.extend(rules::words_of_the_command_line(root, &sources)?);
    let pages = MarkdownPage::load_all(root)?;
    broken.extend(links::broken_links(&pages, &|path| {
        root.join(path).exists()
    }));
    broken.extend(links::hidden_lines(&pages));
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nhint: CONTRIBUTING.md says how files, types and texts are named",
        broken.join("\n")
    ))
}
