//! The system calls that a child makes between `fork` and `exec`.
//!
//! Everything here is safe to call there: no allocation, no locks, nothing of the parent's runtime.
#![expect(
    unsafe_code,
    reason = "system calls that no safe crate offers between fork and exec"
)]

use std::{ffi::CStr, io, os::fd::RawFd, ptr};

use libc::{c_int, c_long, c_ulong, pid_t};

/// On which side of a fork the caller is.
pub(super) enum Fork {
    Child,
    Parent(pid_t),
}

fn done(result: c_long) -> io::Result<c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn ok(result: c_int) -> io::Result<()> {
    done(result.into()).map(drop)
}

/// Makes a copy of this process.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: the caller is the single thread of a child that was forked before, and the copy keeps to this module.
    match unsafe { libc::fork() } {
        0 => Ok(Fork::Child),
        pid if pid > 0 => Ok(Fork::Parent(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends this process at once.
pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: `_exit` runs no handlers of the parent's runtime, which is why it is used.
    unsafe { libc::_exit(code) }
}

/// Holds all signals back and forgets the parent's handlers, which would write into the parent's pipes.
pub(super) fn hold_signals() -> io::Result<()> {
    // SAFETY: both structures are plain data that these calls fill in; a signal that cannot be changed is left alone.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        ok(libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const all,
            ptr::null_mut(),
        ))?;
        let mut usual: libc::sigaction = std::mem::zeroed();
        usual.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const usual, ptr::null_mut());
        }
    }
    Ok(())
}

/// Lets signals through again.
pub(super) fn let_signals() -> io::Result<()> {
    // SAFETY: as above.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        ok(libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null_mut(),
        ))
    }
}

/// Waits for one of the signals, all of which are held back.
pub(super) fn next_signal(among: &[c_int]) -> c_int {
    // SAFETY: as above; the set is not changed by waiting.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in among {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::sigwaitinfo(&raw const set, ptr::null_mut())
    }
}

/// Sends a signal; that nobody is there is no failure.
pub(super) fn kill(pid: pid_t, signal: c_int) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal) };
}

/// What waiting for children found.
pub(super) enum Waited {
    Ended(pid_t, c_int),
    Running,
    NoChildren,
}

/// Looks for a child that has ended; with `block` until there is one.
pub(super) fn wait_any(block: bool) -> Waited {
    let mut status = 0;
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` outlives the call.
        match unsafe { libc::waitpid(-1, &raw mut status, flags) } {
            0 => return Waited::Running,
            pid if pid > 0 => return Waited::Ended(pid, status),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Waited::NoChildren,
        }
    }
}

/// Asks for `signal` when the parent ends, and makes sure that it has not ended already.
pub(super) fn die_with_parent(parent: pid_t, signal: c_int) -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe {
        ok(libc::prctl(
            libc::PR_SET_PDEATHSIG,
            signal as c_ulong,
            0,
            0,
            0,
        ))?;
        // From inside a new PID namespace the parent outside has no number.
        match libc::getppid() {
            found if found == parent || found == 0 => Ok(()),
            _ => exit(1),
        }
    }
}

/// Becomes the one that orphans below this process are handed to.
pub(super) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { ok(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) }
}

/// Gives up ever gaining privileges by running a program.
pub(super) fn no_new_privileges() -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { ok(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) }
}

/// Begins a session without a terminal.
pub(super) fn new_session() -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { ok(libc::setsid()) }
}

pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: the caller has one thread and shares nothing with others.
    unsafe { ok(libc::unshare(flags)) }
}

pub(super) fn chdir(path: &CStr) -> io::Result<()> {
    // SAFETY: the text outlives the call.
    unsafe { ok(libc::chdir(path.as_ptr())) }
}

/// Makes a directory; that there is one is no failure.
pub(super) fn mkdir(path: &CStr) -> io::Result<()> {
    // SAFETY: the text outlives the call.
    let made = unsafe { ok(libc::mkdir(path.as_ptr(), 0o700)) };
    made.or_else(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// Opens a path only to name it.
pub(super) fn open_path(path: &CStr) -> io::Result<RawFd> {
    open(path, libc::O_PATH)
}

pub(super) fn open(path: &CStr, flags: c_int) -> io::Result<RawFd> {
    // SAFETY: the text outlives the call.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
    ok(fd).map(|()| fd)
}

/// Writes all of a short text; the kernel's files take it at once or not at all.
pub(super) fn write(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes outlive the call.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    match usize::try_from(written) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Reads what fits.
pub(super) fn read(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as said.
    let count = unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: the number belongs to the caller, who does not use it again.
    unsafe { libc::close(fd) };
}

/// Writes a text into a file of the kernel.
pub(super) fn write_file(path: &CStr, text: &[u8]) -> io::Result<()> {
    let fd = open(path, libc::O_WRONLY)?;
    let written = write(fd, text);
    close(fd);
    written
}

/// Closes every file but one; the guard must hold no end of anybody's pipe.
pub(super) fn close_all_but(keep: RawFd) {
    let keep = u32::try_from(keep).unwrap_or(u32::MAX);
    if keep > 0 && keep < u32::MAX {
        close_range(0, keep - 1, 0);
    }
    close_range(keep.saturating_add(1), u32::MAX, 0);
}

/// Closes every file when a program is run, but standard input, output and error.
pub(super) fn keep_only_standard_files() {
    close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) {
    // SAFETY: in a forked child nobody else uses these numbers.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, flags) == 0 {
            return;
        }
        // Kernels before 5.9 do not know it.
        for fd in first..=last.min(MOST_FILES) {
            match flags {
                0 => libc::close(fd as RawFd),
                _ => libc::fcntl(fd as RawFd, libc::F_SETFD, libc::FD_CLOEXEC),
            };
        }
    }
}

/// More files than this are hardly open where they have to be closed one by one.
const MOST_FILES: u32 = 65_535;

/// Sets both limits of a resource.
pub(super) fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the structure outlives the call.
    unsafe { ok(libc::setrlimit(resource, &raw const limit)) }
}

/// The type of resource numbers, which differs between C libraries.
#[cfg(target_env = "gnu")]
pub(super) type Resource = libc::__rlimit_resource_t;
/// The type of resource numbers, which differs between C libraries.
#[cfg(not(target_env = "gnu"))]
pub(super) type Resource = c_int;

/// Gives up all capabilities but those of `kept`, a set of bits, also for programs that are run later.
pub(super) fn keep_capabilities(kept: u64) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let zero = || Data {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    };
    let mut data = [zero(), zero()];
    // SAFETY: the structures are those of version 3 of the call and outlive it.
    unsafe {
        done(libc::syscall(
            libc::SYS_capget,
            &raw mut header,
            data.as_mut_ptr(),
        ))?;
        for capability in 0..64_u64 {
            if kept >> capability & 1 == 0 {
                // Beyond the last one, or without the right to drop: then there is nothing to drop either.
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
        }
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        );
        for (half, data) in data.iter_mut().enumerate() {
            let kept = (kept >> (32 * half)) as u32 & data.permitted;
            *data = Data {
                effective: kept,
                permitted: kept,
                inheritable: 0,
            };
        }
        done(libc::syscall(
            libc::SYS_capset,
            &raw mut header,
            data.as_ptr(),
        ))
        .map(drop)
    }
}

/// Mounts a file system.
pub(super) fn mount(kind: &CStr, target: &CStr, flags: c_ulong, options: &CStr) -> io::Result<()> {
    // SAFETY: the texts outlive the call.
    unsafe {
        ok(libc::mount(
            kind.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        ))
    }
}

/// Lets no mount or unmount pass from here to elsewhere or back.
pub(super) fn keep_mounts_private() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the text is static, and the other pointers may be null.
    unsafe {
        ok(libc::mount(
            ptr::null(),
            c"/".as_ptr(),
            ptr::null(),
            flags,
            ptr::null(),
        ))
    }
}

/// Takes a copy of what is mounted at and below a path.
pub(super) fn copy_tree(path: &CStr) -> io::Result<RawFd> {
    const OPEN_TREE_CLONE: c_int = 1;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_RECURSIVE;
    // SAFETY: the text outlives the call.
    let fd =
        done(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })?;
    Ok(fd as RawFd)
}

/// Mounts a copy at a path.
pub(super) fn put_tree(tree: RawFd, at: &CStr) -> io::Result<()> {
    const FROM_EMPTY_PATH: c_int = 4;
    let (here, empty) = (libc::AT_FDCWD, c"".as_ptr());
    // SAFETY: the texts outlive the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree,
            empty,
            here,
            at.as_ptr(),
            FROM_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Makes everything mounted at and below a path read-only. `tree` may be [`libc::AT_FDCWD`], or a copy with no path.
pub(super) fn read_only_tree(tree: RawFd, path: &CStr) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const READ_ONLY: u64 = 1;
    let attributes = Attributes {
        set: READ_ONLY,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    let flags = libc::AT_RECURSIVE
        | if path.is_empty() {
            libc::AT_EMPTY_PATH
        } else {
            0
        };
    let (at, size) = (&raw const attributes, size_of::<Attributes>());
    // SAFETY: the structure is as long as said, and it and the text outlive the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree,
            path.as_ptr(),
            flags,
            at,
            size,
        )
    })
    .map(drop)
}

/// Switches the loopback device of a new network on.
pub(super) fn loopback_up() -> io::Result<()> {
    // SAFETY: the request is plain data with a name that fits, and the socket belongs to this function.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        ok(socket)?;
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        let up = ok(libc::ioctl(
            socket,
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        ));
        libc::close(socket);
        up
    }
}

/// The version of Landlock that the kernel has; 0 if none.
pub(super) fn landlock_version() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: asking for the version takes no structure.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<u8>(),
            0_usize,
            VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}

/// Whether the kernel filters system calls and can answer them with an error.
pub(super) fn has_seccomp() -> bool {
    const GET_ACTION_AVAILABLE: u32 = 2;
    let errno: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the number outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            GET_ACTION_AVAILABLE,
            0_u32,
            &raw const errno,
        ) == 0
    }
}

/// Adds a path to a set of Landlock rules.
pub(super) fn landlock_allow(ruleset: RawFd, path: &CStr, access: u64) -> io::Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        access: u64,
        parent: RawFd,
    }
    const PATH_BENEATH: u32 = 1;
    let parent = open_path(path)?;
    let rule = PathBeneath { access, parent };
    // SAFETY: the structure is the one of this kind of rule and outlives the call.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset,
            PATH_BENEATH,
            &raw const rule,
            0_u32,
        )
    };
    let added = done(added).map(drop);
    close(parent);
    added
}

/// Puts this process under a set of Landlock rules for good.
pub(super) fn landlock_restrict(ruleset: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0_u32) }).map(drop)
}
