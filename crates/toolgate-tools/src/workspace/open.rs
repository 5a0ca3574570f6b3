//! Opens files below the root without leaving it or blocking, and explains failures to the model.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, FileType, Metadata},
    io::{self, Read},
    path::Path,
};

use bytes::Bytes;
use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, OpenOptions};
use toolgate_core::{Digest, ErrorCategory, ToolError};

use crate::{
    Workspace,
    files::text::{sniff::human_size, suggest::suggest_instead},
    workspace::path::{WorkspacePath, display_path},
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
    pub(crate) fn open_file(&self, place: &WorkspacePath) -> Result<(File, Metadata), ToolError> {
        let opened = open_nonblocking(self.dir(), place.path_to_open(), FollowSymlinks::Yes);
        let (file, meta) = opened.map_err(|error| self.explain_io_error(place, &error))?;
        if meta.is_file() {
            Ok((file, meta))
        } else {
            Err(not_a_file_error(place, meta.file_type()))
        }
    }

    /// Reads a whole file, unless it is too large.
    pub(crate) fn read_snapshot(&self, place: &WorkspacePath) -> Result<FileSnapshot, ToolError> {
        let (file, meta) = self.open_file(place)?;
        let most = self.limits().read_bytes;
        match read_bounded(file, &meta, most)
            .map_err(|error| self.explain_io_error(place, &error))?
        {
            Some(snapshot) => Ok(snapshot),
            None => Err(too_large_error(place, meta.len(), most)),
        }
    }

    /// Resolves the file that a change of `place` changes: links are followed, and the part of the
    /// path that does not exist yet stays as it is written.
    ///
    /// Afterwards the path is opened without following any link, so that a link that is swapped in
    /// later is noticed and not followed.
    pub(crate) fn resolve_target(&self, place: &WorkspacePath) -> Result<WorkspacePath, ToolError> {
        let path = place.as_path();
        let Some(name) = path.file_name() else {
            let text = "the path names the workspace itself; name a file in it";
            return Err(ToolError::new(text).with_category(ErrorCategory::InvalidInput));
        };
        match self.dir().canonicalize(path) {
            // The stored change set names the file as text, so another name could not be undone.
            Ok(found) if found.to_str().is_none() => {
                let text = format!(
                    "{place} leads to {}, whose name is not valid UTF-8",
                    display_path(&found)
                );
                Err(ToolError::new(text).with_category(ErrorCategory::InvalidInput))
            }
            Ok(found) => Ok(WorkspacePath::from_normalized(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Creating the target of a dangling link would write to a path that was not checked.
                if self.dir().symlink_metadata(path).is_ok() {
                    return Err(dangling_link_error(place));
                }
                let parent = WorkspacePath::from_normalized(path.parent().unwrap_or(Path::new("")));
                let parent = if parent.is_root() {
                    parent
                } else {
                    self.resolve_target(&parent)?
                };
                Ok(WorkspacePath::from_normalized(parent.as_path().join(name)))
            }
            Err(error) => Err(self.explain_io_error(place, &error)),
        }
    }

    /// Reads the current file at a [`target`](Self::resolve_target), if there is one.
    pub(crate) fn read_target(
        &self,
        target: &WorkspacePath,
    ) -> Result<Option<FileSnapshot>, ToolError> {
        let (dir, name) = match self.open_parent(target) {
            Ok(parent) => parent,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.explain_io_error(target, &error)),
        };
        self.read_target_in(&dir, &name, target)
    }

    /// Reads the file `name` in a directory that is open already; `target` is used in messages.
    pub(crate) fn read_target_in(
        &self,
        dir: &Dir,
        name: &OsStr,
        target: &WorkspacePath,
    ) -> Result<Option<FileSnapshot>, ToolError> {
        let (file, meta) = match open_nonblocking(dir, Path::new(name), FollowSymlinks::No) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.explain_io_error(target, &error)),
        };
        if !meta.is_file() {
            return Err(not_a_file_error(target, meta.file_type()));
        }
        let most = self.limits().read_bytes;
        match read_bounded(file, &meta, most)
            .map_err(|error| self.explain_io_error(target, &error))?
        {
            Some(snapshot) => Ok(Some(snapshot)),
            None => Err(too_large_error(target, meta.len(), most)),
        }
    }

    /// Opens the parent directory of a target, one component at a time and through no link.
    pub(crate) fn open_parent(&self, target: &WorkspacePath) -> io::Result<(Dir, OsString)> {
        let name = target
            .as_path()
            .file_name()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut dir = self.dir().try_clone()?;
        for step in target
            .as_path()
            .parent()
            .into_iter()
            .flat_map(Path::components)
        {
            dir = dir.open_dir_nofollow(step.as_os_str())?;
        }
        Ok((dir, name.to_owned()))
    }

    /// Returns the message for the model about a file that could not be opened.
    pub(crate) fn explain_io_error(&self, place: &WorkspacePath, error: &io::Error) -> ToolError {
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
            _ if is_errno(error, UnnamedErrno::Loop) => (
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
            // The errno of `open` on a socket.
            _ if is_errno(error, UnnamedErrno::Socket) => (
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

/// Opens anything for reading without blocking, and returns the metadata of the handle.
pub(crate) fn open_nonblocking(
    dir: &Dir,
    path: &Path,
    follow: FollowSymlinks,
) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    // Without this, opening a pipe would block until a writer opens it too.
    options.read(true).nonblock(true).follow(follow);
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt;
        // Without this, opening a terminal device could make it our controlling terminal.
        options.custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32);
    }
    let file = dir.open_with(path, &options)?.into_std();
    // The metadata of the handle, not of the path: the path may name another file by now.
    let meta = file.metadata()?;
    Ok((file, meta))
}

/// Reads a file of up to `most` bytes; returns `None` for a larger one, also if it grows meanwhile.
pub(crate) fn read_bounded(
    file: File,
    meta: &Metadata,
    most: u64,
) -> io::Result<Option<FileSnapshot>> {
    if meta.len() > most {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or_default());
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then(|| FileSnapshot::new(bytes, mode_of(meta))))
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

/// System errors without an [`io::ErrorKind`].
enum UnnamedErrno {
    /// Links form a loop, or there is a link where none is allowed.
    Loop,
    /// A socket or device was opened like a file.
    Socket,
}

#[cfg(unix)]
fn is_errno(error: &io::Error, told: UnnamedErrno) -> bool {
    let number = match told {
        UnnamedErrno::Loop => rustix::io::Errno::LOOP,
        UnnamedErrno::Socket => rustix::io::Errno::NXIO,
    };
    error.raw_os_error() == Some(number.raw_os_error())
}

#[cfg(not(unix))]
fn is_errno(_: &io::Error, _: UnnamedErrno) -> bool {
    false
}

fn not_a_file_error(place: &WorkspacePath, kind: FileType) -> ToolError {
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

fn too_large_error(place: &WorkspacePath, size: u64, most: u64) -> ToolError {
    let size = human_size(size);
    let most = human_size(most);
    let text = format!(
        "{place} has {size}, more than the limit of {most} for file tools; read it in another way"
    );
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

fn dangling_link_error(place: &WorkspacePath) -> ToolError {
    let text = format!("{place} is a link to a file that does not exist; name the file itself");
    ToolError::new(text).with_category(ErrorCategory::NotFound)
}
