//! Runs targets on the stable compiler: seeded mutations, limits, and files of failing inputs.

pub mod allocator;
mod corpus;
mod execute;
mod mutate;
mod shrink;
pub mod single;
pub mod supervise;

use std::path::{Path, PathBuf};

/// The folders that runs read and write.
#[derive(Debug, Clone)]
pub struct FuzzFolders {
    /// The committed inputs, a folder for each target.
    pub corpus: PathBuf,
    /// Where failing inputs and the input under way are written.
    pub work: PathBuf,
}

impl FuzzFolders {
    /// Returns the folders of this repository.
    pub fn of_repository() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| here.join("../target"), PathBuf::from);
        Self {
            corpus: here.join("corpus"),
            work: target.join("fuzz"),
        }
    }
}
