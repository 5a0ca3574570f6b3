//! The archive: a directory that is filled, packed the same way each time, and given a checksum.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

use super::{copy_file, create_directory, run_program, write_file};

/// An archive that is being filled.
pub(super) struct Archive {
    name: String,
    out: PathBuf,
}

impl Archive {
    /// Begins an empty archive in `out`.
    pub(super) fn new(name: &str, out: &Path) -> Result<Self, String> {
        let archive = Self {
            name: name.to_owned(),
            out: out.to_owned(),
        };
        let stage = out.join(name);
        if stage.exists() {
            // Left by a run that failed.
            fs::remove_dir_all(&stage).map_err(|error| format!("{}: {error}", stage.display()))?;
        }
        create_directory(&stage)?;
        Ok(archive)
    }

    /// Returns the path of a file of the archive while it is filled.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.out.join(&self.name).join(inside)
    }

    /// Copies a file into the archive, and returns the copy.
    pub(super) fn copy(&self, from: &Path, inside: &str) -> Result<PathBuf, String> {
        let path = self.new_file(inside)?;
        copy_file(from, &path)?;
        Ok(path)
    }

    /// Writes a file of the archive.
    pub(super) fn write(&self, inside: &str, text: &str) -> Result<(), String> {
        write_file(&self.new_file(inside)?, text)
    }

    fn new_file(&self, inside: &str) -> Result<PathBuf, String> {
        let path = self.path(inside);
        if let Some(directory) = path.parent() {
            create_directory(directory)?;
        }
        Ok(path)
    }

    /// Packs the files, writes the checksum beside the archive, and returns the path of the archive.
    pub(super) fn finish(self) -> Result<PathBuf, String> {
        let file = format!("{}.tar.gz", self.name);
        let path = self.out.join(&file);
        let mut tar = Command::new("tar");
        // The same files make the same archive, on any day and for any user.
        tar.args([
            "--sort=name",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ])
        .args([
            "--mode=u=rwX,go=rX",
            "--use-compress-program=gzip -9n",
            "-cf",
        ])
        .arg(&path)
        .arg("-C")
        .arg(&self.out)
        .arg(&self.name);
        run_program(&mut tar, "GNU tar")?;
        write_file(
            &self.out.join(format!("{file}.sha256")),
            &format!("{}  {file}\n", digest_of(&path)?),
        )?;
        let stage = self.out.join(&self.name);
        fs::remove_dir_all(&stage).map_err(|error| format!("{}: {error}", stage.display()))?;
        Ok(path)
    }
}

fn digest_of(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let digest = Sha256::digest(bytes);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
