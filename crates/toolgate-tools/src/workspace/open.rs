//! Reads files of the workspace, and explains failures to the model.

use std::{
    ffi::OsStr,
    fs::{FileType, Metadata},
    io,
    path::Path,
};

use bytes::Bytes;
use toolgate_core::{Digest, ErrorCategory, ToolError};
use toolgate_rooted::{OpenedFile, RootedDir, RootedPath, display_path, is_link_error};

use crate::{
    Workspace,
    files::text::{sniff::human_size, suggest::suggest_instead},
};

/// The content and mode of a file at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSnapshot {
    pub(crate) bytes: Bytes,
    pub(crate) digest: Digest,
    /// The permission bits; a constant on systems that have none.
    pub(crate) mode: u32,
}

/// The permissions of a new file, before the umask is applied.
pub(crate) const NEW_FILE_MODE: u32 = 0o644;

impl FileSnapshot {
    pub(crate) fn new(bytes: impl Into<Bytes>, mode: u32) -> Self {
        let bytes = bytes.into();
        Self {
            digest: Digest::of_bytes(&bytes),
            bytes,
            mode,
        }
    }
}

impl Workspace {
    /// Opens a regular file for reading. Links are followed as long as they stay inside.
    pub(crate) fn open_file(&self, place: &RootedPath) -> Result<OpenedFile, ToolError> {
        let opened = self.dir().open_file(place);
        let opened = opened.map_err(|error| self.explain_io_error(place, &error))?;
        check_regular(opened, place)
    }

    /// Reads a whole file, unless it is too large.
    pub(crate) fn read_snapshot(&self, place: &RootedPath) -> Result<FileSnapshot, ToolError> {
        self.read_opened(self.open_file(place)?, place)
    }

    fn read_opened(
        &self,
        opened: OpenedFile,
        place: &RootedPath,
    ) -> Result<FileSnapshot, ToolError> {
        let most = self.limits().read_bytes;
        let size = opened.meta.len();
        let mode = mode_of(&opened.meta);
        let bytes = opened
            .read_bounded(most)
            .map_err(|error| self.explain_io_error(place, &error))?;
        match bytes {
            Some(bytes) => Ok(FileSnapshot::new(bytes, mode)),
            None => Err(too_large_error(place, size, most)),
        }
    }

    /// Resolves the file that a change of `place` changes: links are followed, and the part of the
    /// path that does not exist yet stays as it is written.
    ///
    /// Afterwards the path is opened without following any link, so that a link that is swapped in
    /// later is noticed and not followed.
    pub(crate) fn resolve_target(&self, place: &RootedPath) -> Result<RootedPath, ToolError> {
        let path = place.as_path();
        let Some(name) = path.file_name() else {
            let text = "the path names the workspace itself; name a file in it";
            return Err(ToolError::new(text).with_category(ErrorCategory::InvalidInput));
        };
        match self.dir().as_dir().canonicalize(path) {
            // The stored change set names the file as text, so another name could not be undone.
            Ok(found) if found.to_str().is_none() => {
                let text = format!(
                    "{place} leads to {}, whose name is not valid UTF-8",
                    display_path(&found)
                );
                Err(ToolError::new(text).with_category(ErrorCategory::InvalidInput))
            }
            Ok(found) => Ok(RootedPath::from_normalized(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Creating the target of a dangling link would write to a path that was not checked.
                if self.dir().as_dir().symlink_metadata(path).is_ok() {
                    return Err(dangling_link_error(place));
                }
                let parent = RootedPath::from_normalized(path.parent().unwrap_or(Path::new("")));
                let parent = if parent.is_root() {
                    parent
                } else {
                    self.resolve_target(&parent)?
                };
                Ok(RootedPath::from_normalized(parent.as_path().join(name)))
            }
            Err(error) => Err(self.explain_io_error(place, &error)),
        }
    }

    /// Reads the current file at a [`target`](Self::resolve_target), if there is one.
    pub(crate) fn read_target(
        &self,
        target: &RootedPath,
    ) -> Result<Option<FileSnapshot>, ToolError> {
        self.read_unless_missing(self.dir().open_file_nofollow(target), target)
    }

    /// Reads the file `name` in a directory that is open already; `target` is used in messages.
    pub(crate) fn read_target_in(
        &self,
        dir: &RootedDir,
        name: &OsStr,
        target: &RootedPath,
    ) -> Result<Option<FileSnapshot>, ToolError> {
        self.read_unless_missing(dir.open_entry(name), target)
    }

    fn read_unless_missing(
        &self,
        opened: io::Result<OpenedFile>,
        target: &RootedPath,
    ) -> Result<Option<FileSnapshot>, ToolError> {
        match opened {
            Ok(opened) => self
                .read_opened(check_regular(opened, target)?, target)
                .map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.explain_io_error(target, &error)),
        }
    }

    /// Returns the message for the model about a file that could not be opened.
    pub(crate) fn explain_io_error(&self, place: &RootedPath, error: &io::Error) -> ToolError {
        use io::ErrorKind as Kind;
        // cap-std reports a link that leads out of the root as an error without an errno.
        let left = error.kind() == Kind::PermissionDenied && error.raw_os_error().is_none();
        let (text, category) = match error.kind() {
            Kind::NotFound => (
                format!("no such file: {place}{}", suggest_instead(self, place)),
                ErrorCategory::NotFound,
            ),
            Kind::PermissionDenied if left => {
                let text = format!(
                    "{place} leads out of the workspace through a link; such links are not followed"
                );
                (text, ErrorCategory::Permission)
            }
            Kind::PermissionDenied => (
                format!("the permissions of {place} or of its directory do not allow this"),
                ErrorCategory::Permission,
            ),
            Kind::NotADirectory => {
                let text = format!(
                    "a part of {place} is not a directory, or was just replaced by a link; check with list_dir"
                );
                (text, ErrorCategory::NotFound)
            }
            _ if is_link_error(error) => (
                format!("{place} is a link that forms a loop, or was just changed"),
                ErrorCategory::Conflict,
            ),
            Kind::IsADirectory => (
                format!("{place} is a directory; use list_dir"),
                ErrorCategory::InvalidInput,
            ),
            Kind::ReadOnlyFilesystem => (
                format!("{place} is on a read-only disk"),
                ErrorCategory::Permission,
            ),
            Kind::StorageFull | Kind::QuotaExceeded => {
                ("the disk is full".to_owned(), ErrorCategory::Internal)
            }
            Kind::InvalidFilename => (
                format!("{place} is not a valid file name on this system"),
                ErrorCategory::InvalidInput,
            ),
            _ if is_socket_error(error) => (
                format!("{place} is a socket or a device, not a file"),
                ErrorCategory::InvalidInput,
            ),
            _ => (
                format!("{place} cannot be used: {error}"),
                ErrorCategory::Internal,
            ),
        };
        ToolError::new(text).with_category(category)
    }
}

fn check_regular(opened: OpenedFile, place: &RootedPath) -> Result<OpenedFile, ToolError> {
    if opened.meta.is_file() {
        Ok(opened)
    } else {
        Err(not_a_file_error(place, opened.meta.file_type()))
    }
}

#[cfg(unix)]
fn mode_of(meta: &Metadata) -> u32 {
    use std::os::unix::fs::MetadataExt;
    // Without the set-user-ID bit: new content must not run with the rights of the owner.
    meta.mode() & 0o777
}

#[cfg(not(unix))]
fn mode_of(_: &Metadata) -> u32 {
    NEW_FILE_MODE
}

/// Checks for the error of the system if a socket or device is opened like a file.
fn is_socket_error(error: &io::Error) -> bool {
    #[cfg(unix)]
    let number = Some(rustix::io::Errno::NXIO.raw_os_error());
    #[cfg(not(unix))]
    let number: Option<i32> = None;
    number.is_some() && error.raw_os_error() == number
}

fn not_a_file_error(place: &RootedPath, kind: FileType) -> ToolError {
    let text = if kind.is_dir() {
        format!("{place} is a directory; use list_dir")
    } else {
        format!("{place} is {}, not a file", describe_special_file(kind))
    };
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

#[cfg(unix)]
fn describe_special_file(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "a special file",
    }
}

#[cfg(not(unix))]
fn describe_special_file(_: FileType) -> &'static str {
    "a special file"
}

fn too_large_error(place: &RootedPath, size: u64, most: u64) -> ToolError {
    let size = human_size(size);
    let most = human_size(most);
    let text = format!(
        "{place} has {size}, more than the limit of {most} for file tools; read it in another way"
    );
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

fn dangling_link_error(place: &RootedPath) -> ToolError {
    let text = format!("{place} is a link to a file that does not exist; name the file itself");
    ToolError::new(text).with_category(ErrorCategory::NotFound)
}
