//! The committed inputs of a target: small files in a folder of its name.

use std::{collections::BTreeSet, fs, io, path::Path};

use toolgate_core::Digest;

/// The largest input that is added to a corpus, in bytes.
const MAX_ADDED_BYTES: usize = 1024;
/// The most inputs of a corpus.
const MAX_FILES: usize = 96;

/// Loads the inputs of a folder, in the order of their names. A missing folder has none.
pub(super) fn load_inputs(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = BTreeSet::new();
    match fs::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                paths.insert(entry?.path());
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    paths.iter().map(fs::read).collect()
}

/// Adds inputs that are small enough, the smallest first, until the corpus is full. Returns how
/// many were added.
pub(super) fn add_inputs(folder: &Path, mut inputs: Vec<Vec<u8>>) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let room = MAX_FILES.saturating_sub(fs::read_dir(folder)?.count());
    inputs.retain(|input| !input.is_empty() && input.len() <= MAX_ADDED_BYTES);
    inputs.sort_by_key(Vec::len);
    inputs.truncate(room);
    for input in &inputs {
        fs::write(folder.join(file_name(input)), input)?;
    }
    Ok(inputs.len())
}

/// Returns the name of the file of an input: the beginning of its digest.
pub(super) fn file_name(input: &[u8]) -> String {
    let digest = Digest::of_bytes(input).to_string();
    digest
        .trim_start_matches("sha256:")
        .chars()
        .take(16)
        .collect()
}
