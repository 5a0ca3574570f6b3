//! A normalized path below a directory.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
};

/// A relative path without `.` and `..`; the empty path is the root. The file need not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootedPath(PathBuf);

/// The limit of the system: it opens no longer path.
const MAX_PATH_BYTES: usize = 4096;

/// The reason why a text is not a path below the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// It contains a NUL byte.
    #[error("the path contains a NUL byte")]
    Nul,
    /// It is longer than the system allows.
    #[error("the path has {bytes} bytes; the limit is {MAX_PATH_BYTES} bytes")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It leads out of the root.
    #[error("the path leads out of the directory")]
    Outside,
}

impl RootedPath {
    /// Parses a path: relative to the root, or absolute and below one of `roots`.
    pub fn parse(text: &str, roots: &[&Path]) -> Result<Self, InvalidPath> {
        if text.contains('\0') {
            return Err(InvalidPath::Nul);
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(InvalidPath::TooLong { bytes: text.len() });
        }
        let path = Path::new(text);
        let inside = if path.has_root() {
            roots
                .iter()
                .find_map(|root| path.strip_prefix(root).ok())
                .ok_or(InvalidPath::Outside)?
        } else {
            path
        };
        normalize_path(inside).map(Self).ok_or(InvalidPath::Outside)
    }

    /// Wraps a path that is normalized already: from a walk or from a record.
    pub fn from_normalized(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path; empty for the root.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Checks whether it is the root itself.
    pub fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// Returns the path to open below the root.
    pub fn path_to_open(&self) -> &Path {
        if self.is_root() {
            // The system rejects an empty path.
            Path::new(".")
        } else {
            &self.0
        }
    }
}

impl fmt::Display for RootedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            f.write_str(".")
        } else {
            f.write_str(&display_path(&self.0))
        }
    }
}

/// Formats a path for display: with slashes, and bytes that are not UTF-8 written as `\xff`.
pub fn display_path(path: &Path) -> String {
    let part = |part: Component<'_>| {
        let chunks = part
            .as_os_str()
            .as_encoded_bytes()
            .utf8_chunks()
            .flat_map(|chunk| {
                let bytes = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
                std::iter::once(chunk.valid().to_owned()).chain(bytes)
            });
        chunks.collect::<String>()
    };
    path.components().map(part).collect::<Vec<_>>().join("/")
}

/// Resolves `.` and `..` in the text; returns `None` if the path leads above its start.
fn normalize_path(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    // In the text only; links are checked when the path is opened below the root handle.
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_path(text: &str) -> Option<String> {
        let roots = [Path::new("/work/space"), Path::new("/link")];
        RootedPath::parse(text, &roots)
            .ok()
            .map(|place| place.to_string())
    }

    #[test]
    fn a_path_is_normalized_and_made_relative() {
        for (text, plain) in [
            ("a/b", "a/b"),
            ("./a//b/", "a/b"),
            ("a/../b", "b"),
            ("", "."),
            (".", "."),
            ("/work/space/a", "a"),
            ("/link/a/./b", "a/b"),
            ("/work/space", "."),
            ("/work/space/x/../a", "a"),
        ] {
            assert_eq!(parse_path(text).as_deref(), Some(plain), "{text}");
        }
    }

    #[test]
    fn a_path_that_leaves_the_root_is_rejected() {
        let long = "a/".repeat(3000);
        for text in [
            "..",
            "../a",
            "a/../../b",
            "/etc/passwd",
            "/work/space2/a",
            "/work/space/../x",
            "/",
            "a\0b",
            &long,
        ] {
            assert_eq!(parse_path(text), None, "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_not_utf8_can_still_be_displayed() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"dir/caf\xe9.txt"));
        assert_eq!(display_path(path), "dir/caf\\xe9.txt");
    }
}
