//! The commands and configurations in the terminal guide and the README are valid.
#![allow(missing_docs, reason = "a test has no public items")]

use std::path::{Path, PathBuf};

use clap::Parser;
use toolgate::Config;
use toolgate_cli::Cli;

fn guide_pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_dir(root.join("docs/guide/terminal")).expect("there is a guide");
    let mut pages: Vec<PathBuf> = guide
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    pages.push(root.join("README.md"));
    pages
}

/// Returns the fenced blocks of a page that are marked with `kind`.
fn fenced_blocks(page: &Path, kind: &str) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("a page");
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => *block += &format!("{line}\n"),
            (None, Some(marked)) if marked == kind => open = Some(String::new()),
            (None, _) => {}
        }
    }
    blocks
}

/// Splits a line like a shell, as far as the guide needs it.
fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.push(String::new()),
            (_, c) => words.last_mut().expect("there is one").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_command_in_the_guide_is_valid() {
    let mut seen = 0;
    for page in guide_pages() {
        for line in fenced_blocks(&page, "console")
            .iter()
            .flat_map(|block| block.lines())
        {
            let (Some(at), true) = (line.find("toolgate "), line.starts_with("$ ")) else {
                continue;
            };
            let command = line[at..].split(" #").next().unwrap_or_default();
            if let Err(error) = Cli::try_parse_from(split_words(command)) {
                panic!("{}: {command}\n{error}", page.display());
            }
            seen += 1;
        }
        for line in fenced_blocks(&page, "console")
            .iter()
            .flat_map(|block| block.lines())
        {
            let Some(rest) = line.strip_prefix("$ cargo run --release -- ") else {
                continue;
            };
            let command = split_words(&format!("toolgate {rest}"));
            assert!(
                Cli::try_parse_from(&command).is_ok(),
                "{}: {line}",
                page.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} commands were found");
}

#[test]
fn every_configuration_in_the_guide_loads() {
    let mut seen = 0;
    for page in guide_pages() {
        for block in fenced_blocks(&page, "toml") {
            let read = Config::parse_with_catalog(
                &page.display().to_string(),
                &block,
                toolgate::gate::gate_catalog(),
            );
            assert!(read.is_ok(), "{}\n{block}", read.expect_err("wrong"));
            seen += 1;
        }
    }
    assert!(seen > 2, "only {seen} configurations were found");
}
