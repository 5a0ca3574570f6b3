//! One skill on disk: its `SKILL.md` and the files beside it.

use std::{
    io,
    path::{Path, PathBuf},
};

use toolgate_rooted::RootedDir;

use crate::{
    SkillFault, SkillFile,
    agent::skills::read_text::{SkillReadError, read_text},
};

/// A skill in a folder of its own.
///
/// The `SKILL.md` is read once, so that everything a session reads is consistent. The files beside
/// it are read on request, and only from below the folder: links are not followed.
///
/// ```
/// use toolgate_runtime::Skill;
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path().join("pdf");
/// # std::fs::create_dir_all(folder.join("references")).unwrap();
/// # std::fs::write(folder.join("SKILL.md"), "---\nname: pdf\ndescription: Reads PDF files.\n---\nSee references/forms.md.").unwrap();
/// # std::fs::write(folder.join("references/forms.md"), "Fill in the fields.").unwrap();
/// let skill = Skill::open(&folder)?;
/// assert_eq!(skill.file().name, "pdf");
/// assert_eq!(skill.read_reference("references/forms.md")?, "Fill in the fields.");
/// assert!(skill.read_reference("../secrets.txt").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Skill {
    file: SkillFile,
    folder: PathBuf,
}

/// Reason why a skill cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillError {
    /// The file is not a valid `SKILL.md`.
    #[error("{path}, {fault}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line and the problem there.
        fault: SkillFault,
    },
    /// The file cannot be used at all.
    #[error("{path}: {why}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A folder or file could not be read; `source()` has the cause.
    #[error("{path} could not be read: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Reason why a file of a skill was not read.
#[derive(Debug, thiserror::Error)]
#[error("{path:?} in the skill {skill}")]
pub struct ReferenceError {
    /// The skill's name.
    pub skill: String,
    /// The file, as it was requested.
    pub path: String,
    /// The problem with it.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl Skill {
    /// The file in each folder.
    pub const FILE: &'static str = "SKILL.md";
    /// The maximum size of a `SKILL.md`.
    pub const FILE_BYTES: u64 = 256 * 1024;
    /// The maximum size of a file beside it.
    pub const REFERENCE_BYTES: u64 = 1024 * 1024;
    /// The maximum number of files that are named to the model.
    pub const LISTED: usize = 100;

    /// Reads the skill in `folder`.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, SkillError> {
        let folder = folder.as_ref();
        let path = folder.join(Self::FILE);
        let unusable = |why: &str| SkillError::Unusable {
            path: path.clone(),
            why: why.to_owned(),
        };
        let name = folder.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| unusable("the folder has no name that a skill can have"))?;
        let text =
            read_text(folder, Self::FILE, Self::FILE_BYTES).map_err(|error| match error {
                SkillReadError::Io(source) => SkillError::Io {
                    path: path.clone(),
                    source,
                },
                other => unusable(&other.to_string()),
            })?;
        let file = SkillFile::parse(&text, name).map_err(|fault| SkillError::Malformed {
            path: path.clone(),
            fault,
        })?;
        Ok(Self {
            file,
            folder: folder.to_owned(),
        })
    }

    /// Returns the content of its `SKILL.md`.
    pub fn file(&self) -> &SkillFile {
        &self.file
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the text of a file below the folder.
    pub fn read_reference(&self, path: &str) -> Result<String, ReferenceError> {
        read_text(&self.folder, path, Self::REFERENCE_BYTES).map_err(|source| ReferenceError {
            skill: self.file.name.clone(),
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// Returns the files below the folder with their sizes, in order, as far as they are worth
    /// naming: no hidden ones, no links, not too deep and not too many.
    pub fn list_references(&self) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        if let Ok(dir) = RootedDir::open(&self.folder) {
            list_files(&dir, "", 0, &mut found);
        }
        found.retain(|(path, _)| path != Self::FILE);
        found.truncate(Self::LISTED);
        found
    }

    /// Returns the text for the model that loads the skill.
    pub(crate) fn loading_text(&self) -> String {
        let mut text = format!("{}\n\n{}", self.heading_line(), self.file.instructions);
        let files = self.list_references();
        if !files.is_empty() {
            text.push_str("\n\nFiles of this skill, to be read with `load_reference`:");
            for (path, bytes) in files {
                text.push_str(&format!("\n- {path} ({bytes} bytes)"));
            }
        }
        text
    }

    /// Returns the first line of that text.
    pub(crate) fn heading_line(&self) -> String {
        format!("# Skill: {}", self.file.name)
    }
}

/// Limits on how deep files are searched, and on how many entries of a folder are read.
const DEEPEST: usize = 4;
const LOOKED_AT: usize = 1000;

fn list_files(dir: &RootedDir, prefix: &str, depth: usize, found: &mut Vec<(String, u64)>) {
    for (name, kind) in dir.sorted_entries(LOOKED_AT).unwrap_or_default() {
        let Some(text) = name.to_str().filter(|name| !name.starts_with('.')) else {
            continue;
        };
        // A link is neither a file nor a directory, so it is not listed.
        if kind.is_file() {
            let size = dir.as_dir().symlink_metadata(&name).map(|meta| meta.len());
            found.extend(size.ok().map(|size| (format!("{prefix}{text}"), size)));
        } else if kind.is_dir()
            && depth < DEEPEST
            && found.len() <= Skill::LISTED
            && let Ok(inner) = dir.open_dir(&name)
        {
            list_files(&inner, &format!("{prefix}{text}/"), depth + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const PDF: &str = "---\nname: pdf\ndescription: Reads PDF files.\n---\nCall read_pdf.\n";

    fn folder(name: &str, text: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a place");
        let folder = dir.path().join(name);
        fs::create_dir(&folder).expect("made");
        fs::write(folder.join(Skill::FILE), text).expect("written");
        (dir, folder)
    }

    #[test]
    fn a_malformed_file_is_named_with_its_line() {
        let (_dir, at) = folder("docx", PDF.as_bytes());
        let error = Skill::open(&at).expect_err("another name").to_string();
        assert!(
            error.contains("docx/SKILL.md, line 2: the skill is named"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_too_large_or_non_text_file_is_an_error() {
        let said = |at: &Path| Skill::open(at).expect_err("unusable").to_string();
        let (_dir, at) = folder("pdf", &[b'x'; 256 * 1024 + 1]);
        assert!(
            said(&at).ends_with("SKILL.md: it has more than 262144 bytes"),
            "{}",
            said(&at)
        );
        fs::write(at.join(Skill::FILE), [0xff]).expect("written");
        assert!(said(&at).ends_with("it is not UTF-8 text"));
        fs::remove_file(at.join(Skill::FILE)).expect("removed");
        assert!(said(&at).ends_with("there is no such file"));
    }

    #[test]
    fn the_model_gets_the_instructions_and_the_list_of_files() {
        let (_dir, at) = folder("pdf", PDF.as_bytes());
        fs::create_dir_all(at.join("references/deep")).expect("made");
        for path in [
            "references/b.md",
            "references/a.md",
            "references/deep/c.md",
            ".hidden",
        ] {
            fs::write(at.join(path), "12345").expect("written");
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink("/etc/passwd", at.join("references/link")).expect("linked");
        let told = Skill::open(&at).expect("fine").loading_text();
        let expected = "# Skill: pdf\n\nCall read_pdf.\n\nFiles of this skill, to be read with `load_reference`:\n\
                        - references/a.md (5 bytes)\n- references/b.md (5 bytes)\n- references/deep/c.md (5 bytes)";
        assert_eq!(told, expected);
    }

    #[test]
    fn a_reference_outside_is_rejected_without_revealing_what_is_there() {
        let (dir, at) = folder("pdf", PDF.as_bytes());
        fs::write(dir.path().join("secret"), "hunter2").expect("written");
        let error = Skill::open(&at)
            .expect("fine")
            .read_reference("../secret")
            .expect_err("outside");
        assert_eq!(error.to_string(), "\"../secret\" in the skill pdf");
        assert_eq!(
            error.source.to_string(),
            "it is not a path below the folder"
        );
    }
}
