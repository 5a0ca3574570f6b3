//! Reads files below the folder of a skill and nothing else; links are not followed at all.

use std::{io, path::Path};

use toolgate_rooted::{RootedDir, RootedPath, is_link_error};

/// Reason why a file below the folder of a skill was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SkillReadError {
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
pub(crate) fn read_text(folder: &Path, path: &str, most: u64) -> Result<String, SkillReadError> {
    let path = RootedPath::parse(path, &[]).map_err(|_| SkillReadError::Outside)?;
    if path.is_root() {
        return Err(SkillReadError::Outside);
    }
    let opened = RootedDir::open(folder).and_then(|dir| dir.open_file_nofollow(&path))?;
    if !opened.meta.is_file() {
        return Err(SkillReadError::NotAFile);
    }
    let bytes = opened.read_bounded(most)?;
    let bytes = bytes.ok_or(SkillReadError::TooLarge { most })?;
    String::from_utf8(bytes).map_err(|_| SkillReadError::NotText)
}

impl From<io::Error> for SkillReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::NotADirectory => Self::Link,
            _ if is_link_error(&error) => Self::Link,
            _ => Self::Io(error),
        }
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
                matches!(read(outside), Err(SkillReadError::Outside)),
                "{outside}"
            );
        }
        assert!(matches!(read("references"), Err(SkillReadError::NotAFile)));
        assert!(matches!(
            read("references/b.md"),
            Err(SkillReadError::Missing)
        ));
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
            Err(SkillReadError::Link)
        ));
        assert!(matches!(
            read_text(&skill, "up/secret", 100),
            Err(SkillReadError::Link)
        ));
    }

    #[test]
    fn too_large_or_non_text_files_are_errors() {
        let dir = folder();
        fs::write(dir.path().join("bytes"), [0xff, 0xfe]).expect("written");
        let read = |path: &str, most| read_text(dir.path(), path, most);
        assert!(matches!(
            read("secret", 6),
            Err(SkillReadError::TooLarge { most: 6 })
        ));
        assert_eq!(read("secret", 7).expect("fits"), "hunter2");
        assert!(matches!(read("bytes", 7), Err(SkillReadError::NotText)));
    }
}
