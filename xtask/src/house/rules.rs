//! What is never right, wherever it stands.

use std::{collections::BTreeMap, fs, path::Path};

use regex::Regex;

use super::source::Source;

/// The number of source files that a reader can take in at a glance.
const FILES_PER_FOLDER: usize = 20;

/// The page that defines the words of the project.
const GLOSSARY: &str = "docs/concepts/glossary.md";

/// Finds `#[path]`, which hides where a module is.
pub(crate) fn path_attributes(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (index, line) in source.lines.iter().enumerate() {
            if line.trim_start().starts_with("#[path") {
                found.push(format!("{}: a module with #[path]", source.at(index + 1)));
            }
        }
    }
    found
}

/// Finds folders with more source files than [`FILES_PER_FOLDER`].
pub(crate) fn full_folders(sources: &[Source]) -> Vec<String> {
    let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
    for source in sources {
        if let Some(folder) = source.path.parent() {
            *folders.entry(folder).or_default() += 1;
        }
    }
    folders
        .into_iter()
        .filter(|(_, count)| *count > FILES_PER_FOLDER)
        .map(|(folder, count)| {
            format!(
                "{}: {count} source files, at most {FILES_PER_FOLDER} belong into one folder",
                folder.display()
            )
        })
        .collect()
}

/// Finds public types of the crates that share their name.
pub(crate) fn shared_public_types(sources: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in sources {
        for named in source.types.iter().filter(|named| named.public) {
            places
                .entry(&named.name)
                .or_default()
                .push(source.at(named.line));
        }
    }
    places
        .into_iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{}: also public types named {name}", places.join(", ")))
        .collect()
}

/// Finds words that the glossary replaces in texts of the command line: its help, and its string literals.
pub(crate) fn words_of_the_command_line(
    root: &Path,
    sources: &[Source],
) -> Result<Vec<String>, String> {
    let page = fs::read_to_string(root.join(GLOSSARY))
        .map_err(|error| format!("{GLOSSARY} cannot be read: {error}"))?;
    let replaced = replaced_words(&page)?;
    let mut found = Vec::new();
    let mut look = |at: String, text: &str| {
        let text = text.to_lowercase();
        for (pattern, word) in &replaced {
            if pattern.is_match(&text) {
                found.push(format!(
                    "{at}: \"{word}\" is not a word of ours, see {GLOSSARY}"
                ));
            }
        }
    };
    let command_line = Path::new("crates/toolgate-cli");
    for source in sources
        .iter()
        .filter(|source| source.path.starts_with(command_line))
    {
        for (line, text) in &source.texts {
            look(source.at(*line), text);
        }
    }
    for name in ["docs/reference/cli.md", "docs/reference/keys.md"] {
        let help = fs::read_to_string(root.join(name)).unwrap_or_default();
        for (index, line) in help.lines().enumerate() {
            look(format!("{name}:{}", index + 1), line);
        }
    }
    Ok(found)
}

/// Reads the third column of the glossary's tables: what we do not say.
fn replaced_words(page: &str) -> Result<Vec<(Regex, String)>, String> {
    let mut words = Vec::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, _, replaced] = cells[..] else {
            continue;
        };
        for word in replaced.split(',').map(str::trim) {
            // Headings, separators and empty cells name nothing.
            if !word.starts_with('*') || !word.ends_with('*') {
                continue;
            }
            let word = word.trim_matches('*').to_owned();
            let pattern = format!(r"\b{}\b", regex::escape(&word));
            let pattern = Regex::new(&pattern).map_err(|error| error.to_string())?;
            words.push((pattern, word));
        }
    }
    if words.is_empty() {
        return Err(format!("{GLOSSARY} names no word that we do not say"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::source::Named;

    /// Returns a source file with these lines and public types.
    fn source(path: &str, lines: &[&str], types: &[&str]) -> Source {
        let named = |name: &&str| Named {
            name: (*name).to_owned(),
            line: 1,
            length: 1,
            public: true,
        };
        Source {
            path: path.into(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            types: types.iter().map(named).collect(),
            functions: Vec::new(),
            texts: Vec::new(),
        }
    }

    #[test]
    fn a_path_attribute_is_found_with_its_line() {
        let found = path_attributes(&[source("a.rs", &["", "#[path = \"b.rs\"]"], &[])]);
        assert_eq!(found, ["a.rs:2: a module with #[path]"]);
    }

    #[test]
    fn a_folder_may_have_twenty_source_files_and_no_more() {
        let files = |count: usize| -> Vec<Source> {
            (0..count)
                .map(|number| source(&format!("src/{number}.rs"), &[], &[]))
                .collect()
        };
        assert!(full_folders(&files(20)).is_empty());
        assert_eq!(full_folders(&files(21)).len(), 1);
    }

    #[test]
    fn a_public_type_name_in_two_places_is_found() {
        let once = [
            source("a.rs", &[], &["Call"]),
            source("b.rs", &[], &["Turn"]),
        ];
        assert!(shared_public_types(&once).is_empty());
        let twice = [
            source("a.rs", &[], &["Call"]),
            source("b.rs", &[], &["Call"]),
        ];
        assert_eq!(shared_public_types(&twice).len(), 1);
    }

    #[test]
    fn the_third_column_of_the_glossary_names_the_replaced_words() {
        let page = "| Word | Means | We do not say |\n|---|---|---|\n| resume | continue a run | *take up*, *go on* |\n| turn | calls | |\n";
        let words = replaced_words(page).expect("a glossary");
        let words: Vec<&str> = words.iter().map(|(_, word)| word.as_str()).collect();
        assert_eq!(words, ["take up", "go on"]);
    }

    #[test]
    fn a_glossary_without_replaced_words_is_an_error() {
        assert!(replaced_words("| Word | Means | |\n").is_err());
    }
}
