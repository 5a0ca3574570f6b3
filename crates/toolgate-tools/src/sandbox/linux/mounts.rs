//! Namespaces of a command: processes and mounts of its own, and if wanted a network of its own.
//!
//! Everything is mounted read-only but the workspace, so that nothing outside it can be changed in ways that Landlock
//! does not watch over: modes, owners, times, attributes. `/proc` shows only the command's processes, and the
//! temporary directory is in memory, of bounded size, and gone with the command.

use std::{
    ffi::{CStr, CString},
    io,
    os::{fd::RawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use super::{super::SandboxError, sys};

/// How namespaces can be made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// With the privilege for it.
    Privileged,
    /// Inside a user namespace, which anybody may make.
    User,
}

/// All that is needed to make the namespaces, put together before the fork.
pub(super) struct Namespaces {
    ids: Option<Ids>,
    own_network: bool,
    most_processes: CString,
    temp: CString,
    temp_options: CString,
    home: CString,
    kept: Vec<Kept>,
}

/// The user and group that a user namespace maps to themselves.
struct Ids {
    users: CString,
    groups: CString,
}

/// A path that stays visible, and perhaps writable.
struct Kept {
    path: CString,
    /// The directories above it that the temporary directory hides.
    above: Vec<CString>,
    is_dir: bool,
    writable: bool,
}

/// What namespaces are made from.
pub(super) struct Layout<'a> {
    pub(super) writable: &'a [PathBuf],
    pub(super) readable: &'a [PathBuf],
    pub(super) temp: &'a Path,
    pub(super) temp_bytes: u64,
    pub(super) processes: u32,
    pub(super) own_network: bool,
}

/// Stands for a tree that could not be taken.
const GONE: RawFd = -1;

/// Where shared memory is found by programs.
pub(super) const SHARED_MEMORY: &CStr = c"/dev/shm";

impl Namespaces {
    pub(super) fn new(way: Way, layout: &Layout<'_>) -> Result<Self, SandboxError> {
        let ids = match way {
            Way::Privileged => None,
            Way::User => {
                let (user, group) = (
                    rustix::process::geteuid().as_raw(),
                    rustix::process::getegid().as_raw(),
                );
                Some(Ids {
                    users: text(&format!("{user} {user} 1"))?,
                    groups: text(&format!("{group} {group} 1"))?,
                })
            }
        };
        let hidden = |path: &&PathBuf| path.starts_with(layout.temp);
        let mut paths: Vec<(&PathBuf, bool)> =
            layout.writable.iter().map(|path| (path, true)).collect();
        paths.extend(
            layout
                .readable
                .iter()
                .filter(hidden)
                .map(|path| (path, false)),
        );
        // What is around something else comes first.
        paths.sort_by_key(|(path, _)| path.components().count());
        let kept = paths
            .into_iter()
            .map(|(path, writable)| Kept::new(path, layout.temp, writable));
        Ok(Self {
            ids,
            own_network: layout.own_network,
            most_processes: text(&layout.processes.to_string())?,
            temp: path_text(layout.temp)?,
            temp_options: text(&format!("size={},mode=700", layout.temp_bytes))?,
            home: path_text(&home_in(layout.temp))?,
            kept: kept.collect::<Result<_, _>>()?,
        })
    }

    /// Leaves the namespaces we live in. What is forked next is the first process of a new one.
    pub(super) fn enter(&self) -> io::Result<()> {
        if let Some(ids) = &self.ids {
            sys::unshare(libc::CLONE_NEWUSER)?;
            sys::write_file(c"/proc/self/setgroups", b"deny")?;
            sys::write_file(c"/proc/self/uid_map", ids.users.to_bytes())?;
            sys::write_file(c"/proc/self/gid_map", ids.groups.to_bytes())?;
        }
        let network = if self.own_network {
            libc::CLONE_NEWNET
        } else {
            0
        };
        sys::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | network)
    }

    /// Arranges the mounts, as the first process of the namespace.
    pub(super) fn arrange(&self, trees: &mut [RawFd]) -> io::Result<()> {
        sys::keep_mounts_private()?;
        if self.own_network {
            sys::loopback_up()?;
        }
        for (tree, kept) in trees.iter_mut().zip(&self.kept) {
            *tree = match sys::copy_tree(&kept.path) {
                Ok(tree) => tree,
                // It was there a moment ago; what is not there cannot be read.
                Err(_) if !kept.writable => GONE,
                Err(error) => return Err(error),
            };
            if !kept.writable && *tree != GONE {
                sys::read_only_tree(*tree, c"")?;
            }
        }
        let quiet = libc::MS_NOSUID | libc::MS_NODEV;
        // Where parts of /proc are covered, as in many containers, a new one is not permitted; the old one stays.
        if sys::mount(c"proc", c"/proc", quiet | libc::MS_NOEXEC, c"").is_ok() {
            // Root is not bound by RLIMIT_NPROC. Kernels before 6.14 have one number for all namespaces.
            let _: io::Result<()> =
                sys::write_file(c"/proc/sys/kernel/pid_max", self.most_processes.to_bytes());
        }
        sys::read_only_tree(libc::AT_FDCWD, c"/")?;
        sys::mount(c"tmpfs", &self.temp, quiet, &self.temp_options)?;
        sys::mkdir(&self.home)?;
        // There may be no such directory, or nobody who needs it.
        let _: io::Result<()> = sys::mount(c"tmpfs", SHARED_MEMORY, quiet, &self.temp_options);
        let there = trees
            .iter()
            .zip(&self.kept)
            .filter(|(tree, _)| **tree != GONE);
        for (tree, kept) in there {
            kept.put_back(*tree)?;
        }
        Ok(())
    }

    /// How many trees [`arrange`](Self::arrange) has to hold on the way.
    pub(super) fn trees(&self) -> usize {
        self.kept.len()
    }
}

impl Kept {
    fn new(path: &Path, temp: &Path, writable: bool) -> Result<Self, SandboxError> {
        let hidden = path
            .ancestors()
            .skip(1)
            .take_while(|above| above.starts_with(temp) && *above != temp);
        let mut above = hidden.map(path_text).collect::<Result<Vec<_>, _>>()?;
        above.reverse();
        let under = path.starts_with(temp) && path != temp;
        if under && path.is_dir() {
            above.push(path_text(path)?);
        }
        Ok(Self {
            path: path_text(path)?,
            above,
            is_dir: !under || path.is_dir(),
            writable,
        })
    }

    fn put_back(&self, tree: RawFd) -> io::Result<()> {
        for dir in &self.above {
            sys::mkdir(dir)?;
        }
        if !self.is_dir {
            sys::close(sys::open(&self.path, libc::O_WRONLY | libc::O_CREAT)?);
        }
        sys::put_tree(tree, &self.path)
    }
}

/// The home directory of a command, inside its temporary directory.
pub(super) fn home_in(temp: &Path) -> PathBuf {
    temp.join("home")
}

pub(super) fn path_text(path: &Path) -> Result<CString, SandboxError> {
    let odd = |_| SandboxError::OddPath {
        path: path.to_owned(),
    };
    CString::new(path.as_os_str().as_bytes()).map_err(odd)
}

fn text(text: &str) -> Result<CString, SandboxError> {
    path_text(Path::new(text))
}
