//! Opens files and directories below a root, without leaving it or blocking.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    io::{self, Read},
    path::Path,
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, FileType, OpenOptions},
};

use crate::RootedPath;

/// A handle on a directory. All access is relative to it, even if the directory is renamed.
///
/// A process that may write below the root can still create a hard link to a file elsewhere on the
/// same disk. Such a link cannot be told from a regular file.
#[derive(Debug)]
pub struct RootedDir(Dir);

/// Anything that was opened for reading: a file, or a directory, pipe or device.
#[derive(Debug)]
pub struct OpenedFile {
    /// The handle.
    pub file: File,
    /// The metadata of the handle, not of the path: the path may name another file by now.
    pub meta: Metadata,
}

impl RootedDir {
    /// Opens a directory. `path` itself may lead through links.
    pub fn open(path: &Path) -> io::Result<Self> {
        Dir::open_ambient_dir(path, ambient_authority()).map(Self)
    }

    /// Returns the handle, for changes. Its methods follow links that stay inside.
    pub fn as_dir(&self) -> &Dir {
        &self.0
    }

    /// Opens the same directory again.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Opens anything for reading. Links are followed as long as they stay inside.
    pub fn open_file(&self, path: &RootedPath) -> io::Result<OpenedFile> {
        self.open_nonblocking(path.path_to_open(), FollowSymlinks::Yes)
    }

    /// Opens anything for reading, through no link.
    pub fn open_file_nofollow(&self, path: &RootedPath) -> io::Result<OpenedFile> {
        let (parent, name) = self.open_parent(path)?;
        parent.open_entry(&name)
    }

    /// Opens an entry of the directory for reading; a link is an error.
    pub fn open_entry(&self, name: &OsStr) -> io::Result<OpenedFile> {
        self.open_nonblocking(Path::new(name), FollowSymlinks::No)
    }

    /// Opens an entry that is a directory; a link is an error.
    pub fn open_dir(&self, name: &OsStr) -> io::Result<Self> {
        self.0.open_dir_nofollow(name).map(Self)
    }

    /// Opens the parent directory of a path, one component at a time and through no link. Returns
    /// it with the last component.
    pub fn open_parent(&self, path: &RootedPath) -> io::Result<(Self, OsString)> {
        let path = path.as_path();
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut dir = self.try_clone()?;
        for step in path.parent().into_iter().flat_map(Path::components) {
            dir = dir.open_dir(step.as_os_str())?;
        }
        Ok((dir, name.to_owned()))
    }

    /// Returns up to `most` entries of the directory, sorted by name.
    pub fn sorted_entries(&self, most: usize) -> io::Result<Vec<(OsString, FileType)>> {
        let read = self.0.entries()?.take(most).map(|entry| {
            let entry = entry?;
            Ok((entry.file_name(), entry.file_type()?))
        });
        // An entry that is deleted while the directory is read is skipped.
        let mut entries: Vec<_> = read.filter_map(|entry: io::Result<_>| entry.ok()).collect();
        // The order of the system differs between disks, and a truncated list must not depend on it.
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(entries)
    }

    fn open_nonblocking(&self, path: &Path, follow: FollowSymlinks) -> io::Result<OpenedFile> {
        let mut options = OpenOptions::new();
        // Without this, opening a pipe would block until a writer opens it too.
        options.read(true).nonblock(true).follow(follow);
        #[cfg(unix)]
        {
            use cap_std::fs::OpenOptionsExt;
            // Without this, opening a terminal device could make it our controlling terminal.
            options.custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32);
        }
        let file = self.0.open_with(path, &options)?.into_std();
        let meta = file.metadata()?;
        Ok(OpenedFile { file, meta })
    }
}

impl OpenedFile {
    /// Reads a file of up to `most` bytes; returns `None` for a larger one, also if it grows
    /// meanwhile.
    pub fn read_bounded(self, most: u64) -> io::Result<Option<Vec<u8>>> {
        if self.meta.len() > most {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(self.meta.len()).unwrap_or_default());
        self.file
            .take(most.saturating_add(1))
            .read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= most))
    }
}

/// Checks whether links form a loop, or there is a link where none is allowed.
pub fn is_link_error(error: &io::Error) -> bool {
    #[cfg(unix)]
    let number = Some(rustix::io::Errno::LOOP.raw_os_error());
    #[cfg(not(unix))]
    let number: Option<i32> = None;
    number.is_some() && error.raw_os_error() == number
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder() -> (tempfile::TempDir, RootedDir) {
        let outer = tempfile::tempdir().expect("a directory");
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("deep")).expect("created");
        fs::write(outer.path().join("secret"), "hunter2").expect("written");
        fs::write(root.join("deep/a.md"), "text").expect("written");
        let dir = RootedDir::open(&root).expect("a directory");
        (outer, dir)
    }

    fn path(text: &str) -> RootedPath {
        RootedPath::parse(text, &[]).expect("inside")
    }

    #[test]
    fn a_file_is_read_up_to_a_limit_and_one_byte_more_is_too_large() {
        let (_outer, dir) = folder();
        let read = |most| {
            let file = dir.open_file(&path("./deep//a.md")).expect("there");
            file.read_bounded(most).expect("readable")
        };
        assert_eq!(read(4), Some(b"text".to_vec()));
        assert_eq!(read(3), None);
        assert_eq!(read(u64::MAX), Some(b"text".to_vec()));
        let missing = dir.open_file(&path("deep/b.md")).expect_err("missing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn no_link_leads_outside_and_with_nofollow_no_link_is_followed() {
        use std::os::unix::fs::symlink;
        let (outer, dir) = folder();
        let root = outer.path().join("root");
        symlink("../secret", root.join("out")).expect("linked");
        symlink(outer.path().join("secret"), root.join("absolute")).expect("linked");
        symlink("..", root.join("up")).expect("linked");
        symlink("deep/a.md", root.join("inside")).expect("linked");
        symlink("deep", root.join("way")).expect("linked");
        for text in ["out", "absolute", "up/secret"] {
            let error = dir.open_file(&path(text)).expect_err(text);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{text}");
        }
        for text in ["inside", "way/a.md"] {
            let file = dir.open_file(&path(text)).expect(text);
            assert_eq!(file.read_bounded(9).expect("read"), Some(b"text".to_vec()));
        }
        for text in ["out", "absolute", "up/secret", "inside", "way/a.md"] {
            let error = dir.open_file_nofollow(&path(text)).expect_err(text);
            let is_link = is_link_error(&error) || error.kind() == io::ErrorKind::NotADirectory;
            assert!(is_link, "{text}: {error}");
        }
        assert!(dir.open_dir(OsStr::new("way")).is_err());
        assert!(dir.open_file_nofollow(&path("deep/a.md")).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_opened_without_waiting_for_a_writer() {
        let (outer, dir) = folder();
        let pipe = outer.path().join("root/pipe");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::Mode::from_raw_mode(0o600),
        )
        .expect("created");
        for opened in [
            dir.open_file(&path("pipe")),
            dir.open_file_nofollow(&path("pipe")),
        ] {
            assert!(!opened.expect("opened").meta.is_file());
        }
    }

    #[test]
    fn entries_are_sorted_and_limited() {
        let (outer, dir) = folder();
        for name in ["c", "a", "b"] {
            fs::write(outer.path().join("root").join(name), "").expect("written");
        }
        let entries = dir.sorted_entries(100).expect("readable");
        let names: Vec<_> = entries.iter().map(|(name, _)| name.to_str()).collect();
        assert_eq!(names, [Some("a"), Some("b"), Some("c"), Some("deep")]);
        assert_eq!(dir.sorted_entries(2).expect("readable").len(), 2);
    }
}
