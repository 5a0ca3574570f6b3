//! Writes a configuration: completely or not at all, and never over another one without a backup.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::CliError;

/// Fails if the file exists already, before anything else is asked or looked for.
pub(super) fn require_new(path: &Path) -> Result<(), CliError> {
    if path.symlink_metadata().is_ok() {
        return Err(exists_error(path));
    }
    Ok(())
}

fn exists_error(path: &Path) -> CliError {
    CliError::usage(format!("{} exists already", path.display()))
        .with_hint("--force replaces it, and keeps a backup beside it")
}

/// Writes the file. With `force` an existing one is replaced, after it was copied; returns the path of the
/// copy.
pub(super) fn write_config(
    path: &Path,
    text: &str,
    force: bool,
) -> Result<Option<PathBuf>, CliError> {
    let failed = |error: io::Error| {
        CliError::usage(format!("{} cannot be written: {error}", path.display()))
            .with_hint("name another path: `toolgate init FILE`")
    };
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    // A temporary file is private by default, and renaming would keep that.
    let mut new = tempfile::Builder::new()
        .permissions(file_permissions())
        .tempfile_in(directory)
        .map_err(failed)?;
    new.write_all(text.as_bytes()).map_err(failed)?;
    let backup = if force {
        back_up(path).map_err(failed)?
    } else {
        None
    };
    let kept = if force {
        new.persist(path)
    } else {
        // The rename itself checks: a test before it could miss a file that appears meanwhile.
        new.persist_noclobber(path)
    };
    match kept {
        Ok(_) => Ok(backup),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(exists_error(path)),
        Err(error) => Err(failed(error.error)),
    }
}

/// Copies the file to the first free name of `NAME.bak`, `NAME.bak.1` …; `None` if there is no file.
fn back_up(path: &Path) -> io::Result<Option<PathBuf>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for number in 0.. {
        let mut name = path.as_os_str().to_owned();
        name.push(".bak");
        if number > 0 {
            name.push(format!(".{number}"));
        }
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Ok(mut copy) => {
                copy.write_all(&text)?;
                return Ok(Some(name.into()));
            }
            // An older backup is never replaced.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns the permissions of the file: a configuration is not secret, so others may read it.
fn file_permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}
