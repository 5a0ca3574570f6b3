//! The licences of everything that is compiled into the program, each text once.

use std::{collections::BTreeMap, fs, path::Path};

use super::components::{Component, Components};

const HEADING: &str = "\
Toolgate contains the packages below. Each is listed with its licence, and then the texts of the licences as the
packages contain them, each text once with the packages that it belongs to.
";

/// Returns the list of licences and their texts.
pub(super) fn collect(components: &Components) -> String {
    let mut list = String::from(HEADING);
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, component) in &components.0 {
        let license = component.license.as_deref().unwrap_or("see its text");
        list.push_str(&format!("\n{key}: {license}"));
        for text in license_texts(component) {
            texts.entry(text).or_default().push(key.clone());
        }
    }
    let line = "-".repeat(100);
    for (text, packages) in texts {
        list.push_str(&format!("\n\n{line}\n{}\n\n{text}", packages.join(", ")));
    }
    list + "\n"
}

/// Returns the texts in the directory of a package, with the line ends of this system.
fn license_texts(component: &Component) -> Vec<String> {
    let entries = fs::read_dir(&component.directory).into_iter().flatten();
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| is_license(path));
    paths.sort();
    let texts = paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts
        .map(|text| text.replace("\r\n", "\n").trim().to_owned())
        .collect()
}

fn is_license(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().to_uppercase());
    let name = name.unwrap_or_default();
    ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
        .iter()
        .any(|word| name.starts_with(word))
        && path.is_file()
}
