//! The table of environment variables is complete: it names what the source reads, and nothing else.

use std::{collections::BTreeSet, fs, path::Path};

use super::{
    ENVIRONMENT,
    page::{GuidePage, repository_root},
};

/// Crates whose source is not part of the program.
const NOT_SHIPPED: [&str; 2] = ["toolgate-testkit", "toolgate-macros"];

/// Variables that are read and need no row: the build and the tests set them.
const NOT_FOR_USERS: [&str; 1] = ["TOOLGATE_TEST_POSTGRES"];

/// Returns the source of the program, without its tests.
fn read_sources(directory: &Path, sources: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).expect("readable");
            let shipped = text.split("mod tests {").next();
            sources.push(shipped.unwrap_or_default().to_owned());
        }
    }
}

fn is_variable(word: &str) -> bool {
    let letters = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    word.len() > 1 && word.chars().all(letters)
}

/// Returns the names in quotes that are read from the environment: those of ours and of providers by
/// their form, all others where they are an argument.
fn variables_in(source: &str) -> BTreeSet<String> {
    const FORMS: [&str; 3] = ["_API_KEY", "_BASE_URL", "_HOST"];
    const READERS: [&str; 5] = ["var(", "var_os(", "env = ", "environment(", "from_env("];
    let mut found = BTreeSet::new();
    let mut rest = source;
    while let Some((before, after)) = rest.split_once('"') {
        let Some((word, tail)) = after.split_once('"') else {
            break;
        };
        let is_read = READERS.iter().any(|reader| before.ends_with(reader));
        let has_form = word.starts_with("TOOLGATE_")
            || word.starts_with("OTEL_")
            || word.starts_with("LANGFUSE_")
            || FORMS
                .iter()
                .any(|form| word.len() > form.len() && word.ends_with(form));
        if is_variable(word) && (is_read || has_form) {
            found.insert(word.to_owned());
        }
        rest = if is_variable(word) { tail } else { after };
    }
    found
}

fn variables_of_program() -> BTreeSet<String> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(repository_root().join("crates")).expect("readable") {
        let path = entry.expect("readable").path();
        if !NOT_SHIPPED.iter().any(|name| path.ends_with(name)) {
            read_sources(&path.join("src"), &mut sources);
        }
    }
    let mut found: BTreeSet<String> = { sources.iter() }
        .flat_map(|source| variables_in(source))
        .filter(|name| !name.ends_with('_') && !name.contains("__"))
        .collect();
    found.retain(|name| !NOT_FOR_USERS.contains(&name.as_str()));
    found
}

#[test]
fn every_variable_that_the_source_reads_is_in_the_reference() {
    let found = variables_of_program();
    // The search itself works: one of each way to read.
    for known in [
        "TOOLGATE_HOME",
        "TOOLGATE_MODEL",
        "OLLAMA_HOST",
        "GOOGLE_API_KEY",
    ] {
        assert!(found.contains(known), "{known} in {found:?}");
    }
    let page = GuidePage::load(ENVIRONMENT);
    let missing = found
        .iter()
        .filter(|name| !page.text().contains(&format!("`{name}`")));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "{ENVIRONMENT} lacks {missing:?}");
}

#[test]
fn every_variable_of_ours_in_the_reference_is_read() {
    let found = variables_of_program();
    let page = GuidePage::load(ENVIRONMENT);
    let words = page.text().split('`').skip(1).step_by(2);
    let documented = words.filter(|word| word.starts_with("TOOLGATE_") && is_variable(word));
    let documented = documented.filter(|word| !word.contains("__") && !word.ends_with('_'));
    let mut seen = 0;
    for name in documented {
        assert!(
            found.contains(name),
            "{ENVIRONMENT} has {name}, and no source reads it"
        );
        seen += 1;
    }
    assert!(seen > 6, "only {seen} variables were found");
}
