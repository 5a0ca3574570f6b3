//! The namespaces of a command: its own processes and mounts, and optionally its own network.
//!
//! Everything except the workspace is mounted read-only, so that nothing outside it can be changed
//! in ways that Landlock does not control: modes, owners, times, attributes. `/proc` shows only the
//! command's processes. The temporary directory is in memory, has a size limit, and is gone with the
//! command.

use std::{
    ffi::{CStr, CString},
    io,
    os::{fd::RawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use super::{
    super::{SandboxError, acting_files::ActingFiles},
    sys,
};

/// The way to create namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamespaceMode {
    /// With privileges.
    Privileged,
    /// Inside a user namespace, which needs no privileges.
    User,
}

/// The setup of the namespaces, built before the fork.
pub(super) struct NamespaceSetup {
    ids: Option<IdMaps>,
    own_network: bool,
    /// `None` if the kernel has one limit for all namespaces, which is not ours to change.
    most_processes: Option<CString>,
    temp: CString,
    temp_options: CString,
    home: CString,
    kept: Vec<VisiblePath>,
    covers: Vec<CoveringMount>,
}

/// The user and group that a user namespace maps to themselves.
struct IdMaps {
    users: CString,
    groups: CString,
}

/// A path that stays visible, and may stay writable.
struct VisiblePath {
    path: CString,
    /// The directories above it that the temporary directory hides.
    above: Vec<CString>,
    is_dir: bool,
    writable: bool,
}

/// A mount over a path that exists.
struct CoveringMount {
    /// The mounted path: the same one, or another in its place.
    source: CString,
    path: CString,
    writable: bool,
}

/// The input for building namespaces.
pub(super) struct MountLayout<'a> {
    pub(super) writable: &'a [PathBuf],
    pub(super) readable: &'a [PathBuf],
    /// Files below the writable paths that stay read-only.
    pub(super) acting: &'a ActingFiles,
    /// Files that programs look for, and that are empty for a command.
    pub(super) blanked: &'a [PathBuf],
    pub(super) temp: &'a Path,
    pub(super) temp_bytes: u64,
    pub(super) processes: u32,
    pub(super) own_network: bool,
}

/// The placeholder for a mount tree that could not be copied.
const NO_TREE: RawFd = -1;

/// The directory in which programs look for shared memory.
pub(super) const SHARED_MEMORY: &CStr = c"/dev/shm";

impl NamespaceSetup {
    pub(super) fn new(way: NamespaceMode, layout: &MountLayout<'_>) -> Result<Self, SandboxError> {
        let ids = match way {
            NamespaceMode::Privileged => None,
            NamespaceMode::User => {
                let user = rustix::process::geteuid().as_raw();
                let group = rustix::process::getegid().as_raw();
                Some(IdMaps {
                    users: to_cstring(&format!("{user} {user} 1"))?,
                    groups: to_cstring(&format!("{group} {group} 1"))?,
                })
            }
        };
        // Other readable paths stay where they are; only the temporary directory hides some.
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
        // Outer paths come first: mounting them later would hide the inner ones.
        paths.sort_by_key(|(path, _)| path.components().count());
        let kept = paths
            .into_iter()
            .map(|(path, writable)| VisiblePath::new(path, layout.temp, writable));
        Ok(Self {
            ids,
            own_network: layout.own_network,
            most_processes: has_pid_limit_per_namespace(&kernel_release())
                .then(|| to_cstring(&layout.processes.to_string()))
                .transpose()?,
            temp: path_cstring(layout.temp)?,
            temp_options: to_cstring(&format!("size={},mode=700", layout.temp_bytes))?,
            home: path_cstring(&home_in(layout.temp))?,
            kept: kept.collect::<Result<_, _>>()?,
            covers: layout.covering_mounts()?,
        })
    }

    /// Leaves the namespaces of our process. The next fork is the first process of the new ones.
    pub(super) fn enter(&self) -> io::Result<()> {
        if let Some(ids) = &self.ids {
            sys::unshare(libc::CLONE_NEWUSER)?;
            // The kernel requires this before an unprivileged process may write `gid_map`.
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
    pub(super) fn arrange_mounts(&self, trees: &mut [RawFd]) -> io::Result<()> {
        // First: on most systems mounts are shared, and those below would appear on the host too.
        sys::make_mounts_private()?;
        if self.own_network {
            sys::bring_up_loopback()?;
        }
        // Copied before the mounts below hide these paths or make them read-only.
        for (tree, kept) in trees.iter_mut().zip(&self.kept) {
            *tree = match sys::copy_tree(&kept.path) {
                Ok(tree) => tree,
                // It was deleted since the sandbox was built. A missing path gives no access.
                Err(_) if !kept.writable => NO_TREE,
                Err(error) => return Err(error),
            };
            if !kept.writable && *tree != NO_TREE {
                sys::make_tree_read_only(*tree, c"")?;
            }
        }
        let quiet = libc::MS_NOSUID | libc::MS_NODEV;
        // Where parts of /proc are masked, as in many containers, the kernel permits no new mount of
        // it; then the old one stays.
        if sys::mount(c"proc", c"/proc", quiet | libc::MS_NOEXEC, c"").is_ok() {
            // Root is exempt from RLIMIT_NPROC, so the process numbers are limited.
            if let Some(most) = &self.most_processes {
                let _: io::Result<()> =
                    sys::write_file(c"/proc/sys/kernel/pid_max", most.to_bytes());
            }
        }
        // After `pid_max`, which could not be written any more, and before the mounts below, which
        // stay writable.
        sys::make_tree_read_only(libc::AT_FDCWD, c"/")?;
        sys::mount(c"tmpfs", &self.temp, quiet, &self.temp_options)?;
        sys::mkdir(&self.home)?;
        // The directory may not exist. Few programs need it.
        let _: io::Result<()> = sys::mount(c"tmpfs", SHARED_MEMORY, quiet, &self.temp_options);
        let there = trees
            .iter()
            .zip(&self.kept)
            .filter(|(tree, _)| **tree != NO_TREE);
        for (tree, kept) in there {
            kept.mount_at_path(*tree)?;
        }
        // Last: they are inside what was just mounted.
        self.covers.iter().try_for_each(CoveringMount::mount)
    }

    /// Returns the number of mount trees that [`arrange`](Self::arrange_mounts) needs room for.
    pub(super) fn tree_count(&self) -> usize {
        self.kept.len()
    }
}

impl MountLayout<'_> {
    /// Returns the mounts over files that a command may not change or read, outer ones first.
    fn covering_mounts(&self) -> Result<Vec<CoveringMount>, SandboxError> {
        // The operator gives write access to these by name.
        let is_given = |path: &Path| self.writable.iter().any(|given| given == path);
        // A directory that is mounted cannot be moved, so no other one can take its place.
        let holders = { self.acting.holders() }.filter(|path| !is_given(path));
        let read_only = { self.acting.read_only() }
            // A mount would cover the target of a link, which is in the list by itself.
            .filter(|path| !is_given(path) && !path.is_symlink());
        // Below the temporary directory a file is not there at all.
        let is_there = |path: &&PathBuf| {
            let is_inside = |given: &PathBuf| path.starts_with(given);
            !path.starts_with(self.temp) && !self.writable.iter().any(is_inside)
        };
        let blanked = self.blanked.iter().filter(is_there);
        let blank = Path::new("/dev/null");
        let mut mounts: Vec<(&Path, &Path, bool)> = Vec::new();
        mounts.extend(holders.map(|path| (path, path, true)));
        mounts.extend(read_only.map(|path| (path, path, false)));
        mounts.extend(blanked.map(|path| (path.as_path(), blank, false)));
        mounts.sort_by_key(|(path, ..)| path.components().count());
        let cover = |(path, source, writable)| {
            Ok(CoveringMount {
                source: path_cstring(source)?,
                path: path_cstring(path)?,
                writable,
            })
        };
        mounts.into_iter().map(cover).collect()
    }
}

impl CoveringMount {
    fn mount(&self) -> io::Result<()> {
        let tree = match sys::copy_tree(&self.source) {
            Ok(tree) => tree,
            // It was deleted since it was found.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.writable {
            sys::make_tree_read_only(tree, c"")?;
        }
        let mounted = sys::mount_tree(tree, &self.path);
        // At once: a workspace may have more such files than a process may have open.
        sys::close(tree);
        mounted
    }
}

impl VisiblePath {
    fn new(path: &Path, temp: &Path, writable: bool) -> Result<Self, SandboxError> {
        let hidden = path
            .ancestors()
            .skip(1)
            .take_while(|above| above.starts_with(temp) && *above != temp);
        let mut above = hidden.map(path_cstring).collect::<Result<Vec<_>, _>>()?;
        above.reverse();
        let under = path.starts_with(temp) && path != temp;
        if under && path.is_dir() {
            above.push(path_cstring(path)?);
        }
        Ok(Self {
            path: path_cstring(path)?,
            above,
            // Only below the temporary directory does a mount point have to be created.
            is_dir: !under || path.is_dir(),
            writable,
        })
    }

    fn mount_at_path(&self, tree: RawFd) -> io::Result<()> {
        for dir in &self.above {
            sys::mkdir(dir)?;
        }
        if !self.is_dir {
            // A file can be mounted only over a file, so an empty one is created.
            sys::close(sys::open(&self.path, libc::O_WRONLY | libc::O_CREAT)?);
        }
        sys::mount_tree(tree, &self.path)
    }
}

/// The home directory of a command, inside its temporary directory.
pub(super) fn home_in(temp: &Path) -> PathBuf {
    temp.join("home")
}

/// Returns the version of the kernel; empty if it is unknown.
fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Checks whether a kernel has a `pid_max` for each namespace, as Linux has since 6.14.
fn has_pid_limit_per_namespace(release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version| version >= (6, 14))
}

pub(super) fn path_cstring(path: &Path) -> Result<CString, SandboxError> {
    let odd = |_| SandboxError::OddPath {
        path: path.to_owned(),
    };
    CString::new(path.as_os_str().as_bytes()).map_err(odd)
}

fn to_cstring(text: &str) -> Result<CString, SandboxError> {
    path_cstring(Path::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_process_numbers_is_written_only_where_it_is_per_namespace() {
        for release in ["6.14", "6.14.0-rc1", "6.18.44-fc-v490", "7.0.1", "10.2"] {
            assert!(has_pid_limit_per_namespace(release), "{release}");
        }
        for release in ["6.13.9", "5.15.0-91-generic", "6.1", "6", "", "x.y", "4.99"] {
            assert!(!has_pid_limit_per_namespace(release), "{release}");
        }
    }
}
