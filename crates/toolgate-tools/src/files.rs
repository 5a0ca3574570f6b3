//! Opens files below the root without leaving it or waiting, and says why not.

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
    place::{Place, shown},
    sniff::human_size,
    suggest::instead_of,
};

/// A file as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) bytes: Bytes,
    pub(crate) digest: Digest,
    /// The permission bits; the same for all files where a system has none.
    pub(crate) mode: u32,
}

/// The permissions of a new file before the system takes some away.
pub(crate) const NEW_FILE: u32 = 0o644;

impl Snapshot {
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
    /// Opens a plain file for reading. Links are followed as long as they stay inside.
    pub(crate) fn open_file(&self, place: &Place) -> Result<(File, Metadata), ToolError> {
        let opened = open_plain(self.dir(), place.to_open(), FollowSymlinks::Yes);
        let (file, meta) = opened.map_err(|error| self.refusal(place, &error))?;
        match meta.is_file() {
            true => Ok((file, meta)),
            false => Err(no_file(place, meta.file_type())),
        }
    }

    /// Reads a whole file, if it is not too large.
    pub(crate) fn snapshot(&self, place: &Place) -> Result<Snapshot, ToolError> {
        let (file, meta) = self.open_file(place)?;
        let most = self.limits().read_bytes;
        match read_bounded(file, &meta, most).map_err(|error| self.refusal(place, &error))? {
            Some(snapshot) => Ok(snapshot),
            None => Err(too_large(place, meta.len(), most)),
        }
    }

    /// The file that a change of `place` changes: links are followed, and what is not there yet stays as it is spelled.
    ///
    /// From then on the path is opened without following any link, so that a link which is swapped in later is
    /// noticed and not followed.
    pub(crate) fn target(&self, place: &Place) -> Result<Place, ToolError> {
        let path = place.as_path();
        let Some(name) = path.file_name() else {
            let text = "the path names the workspace itself; name a file in it";
            return Err(ToolError::new(text).with_category(ErrorCategory::InvalidInput));
        };
        match self.dir().canonicalize(path) {
            // What is kept about a change names the file as text.
            Ok(found) if found.to_str().is_none() => {
                let text = format!("{place} leads to {}, whose name is no text", shown(&found));
                Err(ToolError::new(text).with_category(ErrorCategory::InvalidInput))
            }
            Ok(found) => Ok(Place::of(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.dir().symlink_metadata(path).is_ok() {
                    return Err(dangling(place));
                }
                let parent = Place::of(path.parent().unwrap_or(Path::new("")));
                let parent = if parent.is_root() {
                    parent
                } else {
                    self.target(&parent)?
                };
                Ok(Place::of(parent.as_path().join(name)))
            }
            Err(error) => Err(self.refusal(place, &error)),
        }
    }

    /// The file at a [`target`](Self::target) as it is now, if there is one.
    pub(crate) fn look(&self, target: &Place) -> Result<Option<Snapshot>, ToolError> {
        let (dir, name) = match self.open_parent(target) {
            Ok(parent) => parent,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.refusal(target, &error)),
        };
        self.look_in(&dir, &name, target)
    }

    /// The same in a directory that is open already.
    pub(crate) fn look_in(
        &self,
        dir: &Dir,
        name: &OsStr,
        target: &Place,
    ) -> Result<Option<Snapshot>, ToolError> {
        let (file, meta) = match open_plain(dir, Path::new(name), FollowSymlinks::No) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.refusal(target, &error)),
        };
        if !meta.is_file() {
            return Err(no_file(target, meta.file_type()));
        }
        let most = self.limits().read_bytes;
        match read_bounded(file, &meta, most).map_err(|error| self.refusal(target, &error))? {
            Some(snapshot) => Ok(Some(snapshot)),
            None => Err(too_large(target, meta.len(), most)),
        }
    }

    /// Opens the directory around a target, one step after the other and through no link.
    pub(crate) fn open_parent(&self, target: &Place) -> io::Result<(Dir, OsString)> {
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

    /// What the model is told about a file that could not be opened.
    pub(crate) fn refusal(&self, place: &Place, error: &io::Error) -> ToolError {
        use io::ErrorKind as Kind;
        // Without a number it is not the system's word: a link led out of the root.
        let left = error.kind() == Kind::PermissionDenied && error.raw_os_error().is_none();
        let (text, category) = match error.kind() {
            Kind::NotFound => (
                format!("no such file: {place}{}", instead_of(self, place)),
                ErrorCategory::NotFound,
            ),
            Kind::PermissionDenied if left => {
                let text = format!(
                    "{place} leads out of the workspace through a link, and is not followed"
                );
                (text, ErrorCategory::Permission)
            }
            Kind::PermissionDenied => (
                format!("the permissions of {place} or of its directory do not allow this"),
                ErrorCategory::Permission,
            ),
            Kind::NotADirectory => {
                let text = format!(
                    "a part of {place} is not a directory, or became a link just now; look with list_dir"
                );
                (text, ErrorCategory::NotFound)
            }
            _ if is_system(error, Told::Loop) => (
                format!("{place} is a link that goes in circles or changed just now"),
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
                format!("{place} is no name a file can have here"),
                ErrorCategory::InvalidInput,
            ),
            // What the system answers to somebody who opens a socket like a file.
            _ if is_system(error, Told::Socket) => (
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

/// Opens something for reading without waiting for it. What it is, is asked of the handle.
pub(crate) fn open_plain(
    dir: &Dir,
    path: &Path,
    follow: FollowSymlinks,
) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    // A pipe would wait for somebody who writes.
    options.read(true).nonblock(true).follow(follow);
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32);
    }
    let file = dir.open_with(path, &options)?.into_std();
    let meta = file.metadata()?;
    Ok((file, meta))
}

/// Reads a file of up to `most` bytes; of a larger one nothing. A file that grows meanwhile is cut off and told.
pub(crate) fn read_bounded(file: File, meta: &Metadata, most: u64) -> io::Result<Option<Snapshot>> {
    if meta.len() > most {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or_default());
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then(|| Snapshot::new(bytes, mode_of(meta))))
}

#[cfg(unix)]
fn mode_of(meta: &Metadata) -> u32 {
    use std::os::unix::fs::MetadataExt;
    meta.mode() & 0o777
}

#[cfg(not(unix))]
fn mode_of(_: &Metadata) -> u32 {
    NEW_FILE
}

/// What a system says that has no word of its own.
enum Told {
    /// A link goes in circles, or is where none may be.
    Loop,
    /// A socket was opened like a file.
    Socket,
}

#[cfg(unix)]
fn is_system(error: &io::Error, told: Told) -> bool {
    let number = match told {
        Told::Loop => rustix::io::Errno::LOOP,
        Told::Socket => rustix::io::Errno::NXIO,
    };
    error.raw_os_error() == Some(number.raw_os_error())
}

#[cfg(not(unix))]
fn is_system(_: &io::Error, _: Told) -> bool {
    false
}

fn no_file(place: &Place, kind: FileType) -> ToolError {
    let text = match kind.is_dir() {
        true => format!("{place} is a directory; use list_dir"),
        false => format!("{place} is {}, not a file", special(kind)),
    };
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

#[cfg(unix)]
fn special(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "something special",
    }
}

#[cfg(not(unix))]
fn special(_: FileType) -> &'static str {
    "something special"
}

fn too_large(place: &Place, size: u64, most: u64) -> ToolError {
    let (size, most) = (human_size(size), human_size(most));
    let text = format!(
        "{place} has {size}, more than the {most} that the file tools take on; look into it another way"
    );
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

fn dangling(place: &Place) -> ToolError {
    let text = format!("{place} is a link to something that does not exist; name the file itself");
    ToolError::new(text).with_category(ErrorCategory::NotFound)
}
