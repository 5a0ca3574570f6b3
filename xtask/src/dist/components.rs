//! The packages that are compiled into the program.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use serde_json::Value;

use super::run_program;
use crate::{cargo, root};

/// One package of the program.
#[derive(Debug, Clone)]
pub(super) struct Component {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) license: Option<String>,
    /// The SHA-256 of its archive; none for a package of ours.
    pub(super) checksum: Option<String>,
    pub(super) directory: PathBuf,
    /// The packages that it uses, as `name@version`.
    pub(super) uses: BTreeSet<String>,
}

/// The packages of the program by `name@version`.
#[derive(Debug)]
pub(super) struct Components(pub(super) BTreeMap<String, Component>);

impl Components {
    /// Lists the packages that the program is made of on a target: what it links, and what builds it.
    pub(super) fn of_program(target: &str) -> Result<Self, String> {
        let used = list_used_packages(target)?;
        let metadata = [
            "metadata",
            "--locked",
            "--all-features",
            "--format-version",
            "1",
            "--filter-platform",
            target,
        ];
        let metadata = run_program(&mut cargo(&metadata), "cargo metadata")?;
        let metadata: Value = serde_json::from_str(&metadata)
            .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        let checksums = read_checksums()?;
        let mut names = BTreeMap::new();
        let mut found = BTreeMap::new();
        for package in list_of(&metadata["packages"]) {
            let key = format!(
                "{}@{}",
                text_of(&package["name"]),
                text_of(&package["version"])
            );
            names.insert(text_of(&package["id"]), key.clone());
            if used.contains(&key) {
                found.insert(key.clone(), read_package(package, checksums.get(&key)));
            }
        }
        for node in list_of(&metadata["resolve"]["nodes"]) {
            let key = names.get(&text_of(&node["id"]));
            let Some(component) = key.and_then(|key| found.get_mut(key)) else {
                continue;
            };
            let uses = list_of(&node["dependencies"]).filter_map(|id| names.get(&text_of(id)));
            component.uses = uses.filter(|key| used.contains(*key)).cloned().collect();
        }
        match used.iter().find(|key| !found.contains_key(*key)) {
            Some(missing) => Err(format!("cargo metadata does not know {missing}")),
            None => Ok(Self(found)),
        }
    }
}

/// Returns the packages of the program as `name@version`. `cargo metadata` alone would add those of other members
/// of the workspace and of tests.
fn list_used_packages(target: &str) -> Result<BTreeSet<String>, String> {
    let tree = [
        "tree",
        "--locked",
        "-p",
        "toolgate-cli",
        "--features",
        "dist",
        "--target",
        target,
        "-e",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let tree = run_program(&mut cargo(&tree), "cargo tree")?;
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        let version = words.next()?.strip_prefix('v')?;
        Some(format!("{name}@{version}"))
    };
    Ok(tree.lines().filter_map(parse).collect())
}

fn read_package(package: &Value, checksum: Option<&String>) -> Component {
    let manifest = PathBuf::from(text_of(&package["manifest_path"]));
    Component {
        name: text_of(&package["name"]),
        version: text_of(&package["version"]),
        license: package["license"].as_str().map(str::to_owned),
        checksum: checksum.cloned(),
        directory: manifest.parent().map(PathBuf::from).unwrap_or_default(),
        uses: BTreeSet::new(),
    }
}

/// Returns the checksums of the lock file by `name@version`.
fn read_checksums() -> Result<BTreeMap<String, String>, String> {
    let lock = fs::read_to_string(root().join("Cargo.lock"))
        .map_err(|error| format!("Cargo.lock: {error}"))?;
    let mut checksums = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_matches([' ', '=', '"']).to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (value("name"), value("version"), value("checksum"))
        {
            checksums.insert(format!("{name}@{version}"), checksum);
        }
    }
    Ok(checksums)
}

fn list_of(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
