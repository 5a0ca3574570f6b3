//! Reads files below a folder and nothing else: `..`, absolute paths and links are rejected.

use std::{
    fs::File,
    io::{self, Read},
    path::{Component, Path},
};

/// Reason why a file below a folder was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootedError {
    #[error("it is not a path below the folder")]
    Outside,
    #[error("there is no such file")]
    Missing,
    #[error("it is, or leads through, something that is not followed, such as a link")]
    Link,
    #[error("it is not a plain file")]
    NotAFile,
    #[error("it has more than {most} bytes")]
    TooLarge { most: u64 },
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("it could not be read")]
    Io(#[source] io::Error),
}

/// Reads the text of the file at `path` below `folder`, if it has at most `most` bytes.
pub(crate) fn read_text(folder: &Path, path: &str, most: u64) -> Result<String, RootedError> {
    let steps = path_names(path)?;
    let file = open(folder, &steps)?;
    if !file.metadata().map_err(RootedError::Io)?.is_file() {
        return Err(RootedError::NotAFile);
    }
    let mut bytes = Vec::new();
    // Not limited by the length in the metadata: the file may grow meanwhile.
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(RootedError::Io)?;
    if bytes.len() as u64 > most {
        return Err(RootedError::TooLarge { most });
    }
    String::from_utf8(bytes).map_err(|_| RootedError::NotText)
}

/// Splits a path into names; anything but plain names is rejected.
fn path_names(path: &str) -> Result<Vec<&str>, RootedError> {
    let mut steps = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => steps.push(name.to_str().ok_or(RootedError::Outside)?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(RootedError::Outside);
            }
        }
    }
    if steps.is_empty() || path.contains('\0') {
        Err(RootedError::Outside)
    } else {
        Ok(steps)
    }
}

/// Opens the file name by name without following links, also a link that is put in place meanwhile.
#[cfg(unix)]
fn open(folder: &Path, steps: &[&str]) -> Result<File, RootedError> {
    use rustix::fs::{Mode, OFlags};
    let folder_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(folder, folder_flags, Mode::empty()).map_err(refusal)?;
    let (last, way) = steps.split_last().ok_or(RootedError::Outside)?;
    for step in way {
        here = rustix::fs::openat(&here, *step, folder_flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(refusal)?;
    }
    // Does not wait for a writer if it is a pipe.
    let file_flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(&here, *last, file_flags, Mode::empty())
        .map(File::from)
        .map_err(refusal)
}

#[cfg(unix)]
fn refusal(error: rustix::io::Errno) -> RootedError {
    use rustix::io::Errno;
    match error {
        Errno::NOENT => RootedError::Missing,
        Errno::LOOP | Errno::NOTDIR => RootedError::Link,
        other => RootedError::Io(other.into()),
    }
}

#[cfg(not(unix))]
fn open(folder: &Path, steps: &[&str]) -> Result<File, RootedError> {
    let refusal = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => RootedError::Missing,
        _ => RootedError::Io(error),
    };
    let root = folder.canonicalize().map_err(refusal)?;
    let asked = steps
        .iter()
        .fold(root.clone(), |path, step| path.join(step));
    match asked.canonicalize().map_err(refusal)? {
        found if found == asked => File::open(found).map_err(refusal),
        _ => Err(RootedError::Link),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a place");
        fs::create_dir_all(dir.path().join("skill/references")).expect("made");
        fs::write(dir.path().join("secret"), "hunter2").expect("written");
        fs::write(dir.path().join("skill/references/a.md"), "text").expect("written");
        dir
    }

    #[test]
    fn only_plain_files_below_the_folder_are_read() {
        let dir = folder();
        let read = |path: &str| read_text(&dir.path().join("skill"), path, 100);
        assert_eq!(read("references/a.md").expect("there"), "text");
        assert_eq!(read("./references//a.md").expect("there"), "text");
        for outside in [
            "",
            ".",
            "..",
            "../secret",
            "references/../../secret",
            "/etc/passwd",
            "references/\0",
        ] {
            assert!(
                matches!(read(outside), Err(RootedError::Outside)),
                "{outside}"
            );
        }
        assert!(matches!(read("references"), Err(RootedError::NotAFile)));
        assert!(matches!(read("references/b.md"), Err(RootedError::Missing)));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed_as_a_file_or_in_the_path() {
        let dir = folder();
        let skill = dir.path().join("skill");
        std::os::unix::fs::symlink("../secret", skill.join("link")).expect("linked");
        std::os::unix::fs::symlink("..", skill.join("up")).expect("linked");
        assert!(matches!(
            read_text(&skill, "link", 100),
            Err(RootedError::Link)
        ));
        assert!(matches!(
            read_text(&skill, "up/secret", 100),
            Err(RootedError::Link)
        ));
    }

    #[test]
    fn too_large_or_non_text_files_are_errors() {
        let dir = folder();
        fs::write(dir.path().join("bytes"), [0xff, 0xfe]).expect("written");
        let read = |path: &str, most| read_text(dir.path(), path, most);
        assert!(matches!(
            read("secret", 6),
            Err(RootedError::TooLarge { most: 6 })
        ));
        assert_eq!(read("secret", 7).expect("fits"), "hunter2");
        assert!(matches!(read("bytes", 7), Err(RootedError::NotText)));
    }
}
