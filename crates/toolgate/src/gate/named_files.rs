//! The files that a configuration names: prices, skills, scripts of models, commands of hooks. They
//! are part of its trust.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::json;
use toolgate_core::{Digest, Json};
use toolgate_layers::Config;

use crate::{
    Error, Result,
    gate::{
        AgentsSection, HooksSection, MemorySection, RoutingSection, RunSection,
        sections::script_path,
    },
};

/// The most bytes and the most files that a configuration may name and be trusted with.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
const MAX_FILES: usize = 4_096;

/// Returns the files and directories that a configuration names, absolute if its directory is known.
pub(super) fn list_named_files(config: &Config) -> Result<Vec<PathBuf>> {
    let run = RunSection::of(config)?;
    let agents = AgentsSection::of(config)?;
    let routing = RoutingSection::of(config)?;
    let memory = MemorySection::of(config)?;
    let models = run
        .model
        .iter()
        .chain(agents.0.iter().filter_map(|agent| agent.model.as_ref()))
        .chain(&memory.model)
        .map(String::as_str);
    let scripts = models
        .chain(routing.0.models())
        .filter_map(script_path)
        .map(PathBuf::from);
    let mut files: Vec<PathBuf> = run
        .prices
        .into_iter()
        .chain(run.skills)
        .chain(scripts)
        .collect();
    let hooks = HooksSection::of(config)?;
    if let Some(directory) = config.directory() {
        let named = hooks.pre.iter().chain(&hooks.post);
        files.extend(named.flat_map(|hook| hook.named_files(directory)));
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Returns the digest of the files and of everything in the directories; `None` if there are none
/// to name.
pub(super) fn digest_named_files(files: &[PathBuf]) -> Result<Option<Digest>> {
    if files.is_empty() {
        return Ok(None);
    }
    let mut contents = NamedContents::default();
    for file in files {
        contents.add(file)?;
    }
    let whole = Json::new(json!(contents.digests)).map_err(Error::from_source)?;
    Ok(Some(whole.digest()))
}

/// The digests of files by their paths.
#[derive(Default)]
struct NamedContents {
    digests: BTreeMap<String, String>,
    bytes: u64,
}

impl NamedContents {
    fn add(&mut self, path: &Path) -> Result<()> {
        let shown = path.display().to_string();
        // Followed only here: the configuration names the link, and below a directory a link is no
        // part of it.
        let digest = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return self.add_directory(path),
            Ok(found) if found.is_file() => self.digest_file(path)?,
            Ok(_) => "not a file".to_owned(),
            // Named before it exists: once it does, the digest is another one.
            Err(error) => error.kind().to_string(),
        };
        self.digests.insert(shown, digest);
        Ok(())
    }

    fn add_directory(&mut self, dir: &Path) -> Result<()> {
        let unread = |error: std::io::Error| {
            Error::from(error).while_doing(format!("{} cannot be read", dir.display()))
        };
        for entry in fs::read_dir(dir).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            let kind = entry.file_type().map_err(unread)?;
            let path = entry.path();
            if kind.is_dir() {
                self.add_directory(&path)?;
                continue;
            }
            let digest = if kind.is_file() {
                self.digest_file(&path)?
            } else {
                let target = fs::read_link(&path).unwrap_or_default();
                format!("link to {}", target.display())
            };
            self.digests.insert(path.display().to_string(), digest);
            if self.digests.len() > MAX_FILES {
                return Err(too_large(dir));
            }
        }
        Ok(())
    }

    fn digest_file(&mut self, path: &Path) -> Result<String> {
        let mut bytes = Vec::new();
        let left = MAX_BYTES.saturating_sub(self.bytes);
        // One byte more than the limit tells a larger file without loading it.
        File::open(path)
            .and_then(|file| file.take(left + 1).read_to_end(&mut bytes))
            .map_err(|error| {
                Error::from(error).while_doing(format!("{} cannot be read", path.display()))
            })?;
        self.bytes += bytes.len() as u64;
        if self.bytes > MAX_BYTES {
            return Err(too_large(path));
        }
        Ok(Digest::of_bytes(&bytes).to_string())
    }
}

fn too_large(path: &Path) -> Error {
    Error::configuration(format!(
        "{} is too large to be trusted by its content",
        path.display()
    ))
    .with_hint("name a directory with nothing but the skills, outside of the workspace")
}
