//! A path below the root of a workspace, spelled in one way only.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
};

use toolgate_core::{ErrorCategory, ToolError};

/// A relative path without `.` and `..`; the empty one is the root. It says nothing about what is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(PathBuf);

/// No system opens a longer path.
const LONGEST: usize = 4096;

impl Place {
    /// Reads a path as a model writes it: relative to the root, or absolute and inside one of `roots`.
    pub(crate) fn read(text: &str, roots: &[&Path]) -> Result<Self, ToolError> {
        if text.contains('\0') {
            return Err(bad("a path has no zero byte in it".to_owned()));
        }
        if text.len() > LONGEST {
            return Err(bad(format!(
                "the path has {} bytes, more than the {LONGEST} any path can have",
                text.len()
            )));
        }
        let path = Path::new(text);
        let inside = match path.has_root() {
            true => roots
                .iter()
                .find_map(|root| path.strip_prefix(root).ok())
                .ok_or_else(|| outside(text))?,
            false => path,
        };
        plain(inside).map(Self).ok_or_else(|| outside(text))
    }

    /// The place that a path of a walk or of a record leads to.
    pub(crate) fn of(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// The path for opening it below the root.
    pub(crate) fn to_open(&self) -> &Path {
        if self.is_root() {
            Path::new(".")
        } else {
            &self.0
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_root() {
            true => f.write_str("."),
            false => f.write_str(&shown(&self.0)),
        }
    }
}

/// A path as it is shown: with slashes, and bytes that are no text written `\xff`.
pub(crate) fn shown(path: &Path) -> String {
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

/// Resolves `.` and `..` by spelling; nothing if that leads above where it starts.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
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

fn bad(text: String) -> ToolError {
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

fn outside(text: &str) -> ToolError {
    let text = format!(
        "{text} is outside the workspace; give a path relative to its root, such as src/main.rs"
    );
    ToolError::new(text).with_category(ErrorCategory::Permission)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        let roots = [Path::new("/work/space"), Path::new("/link")];
        Place::read(text, &roots)
            .ok()
            .map(|place| place.to_string())
    }

    #[test]
    fn a_path_is_made_plain_and_relative() {
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
            assert_eq!(read(text).as_deref(), Some(plain), "{text}");
        }
    }

    #[test]
    fn a_path_that_leaves_the_root_is_refused() {
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
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_no_text_can_still_be_shown() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"dir/caf\xe9.txt"));
        assert_eq!(shown(path), "dir/caf\\xe9.txt");
    }
}
