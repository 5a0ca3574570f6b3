//! The system calls that a child makes between `fork` and `exec`.
//!
//! Everything here is safe to call there: no allocation, no locks, nothing of the parent's runtime.
#![expect(
    unsafe_code,
    reason = "system calls that no safe crate offers between fork and exec"
)]

use std::{ffi::CStr, io, os::fd::RawFd, ptr};

use libc::{c_int, c_long, c_ulong, pid_t};

/// The side of a fork on which the caller is.
pub(super) enum ForkSide {
    Child,
    Parent(pid_t),
}

fn check_result(result: c_long) -> io::Result<c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn check_status(result: c_int) -> io::Result<()> {
    check_result(result.into()).map(drop)
}

/// Forks this process.
pub(super) fn fork() -> io::Result<ForkSide> {
    // SAFETY: the caller is the only thread of a child that was forked before, and the new child calls
    // only this module.
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        pid if pid > 0 => Ok(ForkSide::Parent(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the memory that holds the arguments and the environment of this process, each with its
/// begin and its end; empty areas if the kernel does not tell.
pub(super) fn argument_areas() -> [(usize, usize); 2] {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program is the second field and may contain blanks; the addresses are the
    // fields 48 to 51.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let mut addresses = fields.split_whitespace().skip(45).map(str::parse::<usize>);
    let mut area = || match (addresses.next(), addresses.next()) {
        (Some(Ok(begin)), Some(Ok(end))) if begin > 0 && begin < end => (begin, end),
        _ => (0, 0),
    };
    [area(), area()]
}

/// Erases areas of memory in a forked child, which has its own copy of them.
pub(super) fn erase_areas(areas: [(usize, usize); 2]) {
    for (begin, end) in areas {
        let first: *mut u8 = ptr::with_exposed_provenance_mut(begin);
        // SAFETY: the kernel placed these texts on the stack of this process before it began, so the
        // memory is mapped and writable; the child has one thread, which reads neither of them.
        unsafe { ptr::write_bytes(first, 0, end - begin) };
    }
}

/// Exits this process at once.
pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: `_exit` runs no handlers of the parent's runtime, which is why it is used.
    unsafe { libc::_exit(code) }
}

/// Blocks all signals and resets the parent's handlers, which would write into the parent's pipes.
pub(super) fn block_signals() -> io::Result<()> {
    // SAFETY: both structures are plain data that these calls fill in; a signal that cannot be changed
    // is skipped.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        check_status(libc::sigprocmask(
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

/// Unblocks all signals.
pub(super) fn unblock_signals() -> io::Result<()> {
    // SAFETY: as above.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        check_status(libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null_mut(),
        ))
    }
}

/// Waits for one of the signals, all of which are blocked.
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

/// Sends a signal; a process that has ended is not an error.
pub(super) fn kill(pid: pid_t, signal: c_int) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal) };
}

/// The result of waiting for children.
pub(super) enum WaitResult {
    Ended(pid_t, c_int),
    Running,
    NoChildren,
}

/// Reaps a child that has ended; with `block` it waits for one.
pub(super) fn wait_any(block: bool) -> WaitResult {
    let mut status = 0;
    // `__WALL` includes children that were cloned with another exit signal than SIGCHLD.
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` outlives the call.
        match unsafe { libc::waitpid(-1, &raw mut status, flags) } {
            0 => return WaitResult::Running,
            pid if pid > 0 => return WaitResult::Ended(pid, status),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return WaitResult::NoChildren,
        }
    }
}

/// Requests `signal` when the parent ends, and exits if it has ended already.
pub(super) fn die_with_parent(parent: pid_t, signal: c_int) -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe {
        check_status(libc::prctl(
            libc::PR_SET_PDEATHSIG,
            signal as c_ulong,
            0,
            0,
            0,
        ))?;
        // Checked after the request: a parent that ended before it sends no signal. Inside a new PID
        // namespace the parent outside has number 0.
        match libc::getppid() {
            found if found == parent || found == 0 => Ok(()),
            _ => exit(1),
        }
    }
}

/// Makes this process the new parent of all orphans below it.
pub(super) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { check_status(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) }
}

/// Prevents this process from ever gaining privileges by running a program.
pub(super) fn no_new_privileges() -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { check_status(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) }
}

/// Starts a session without a terminal.
pub(super) fn new_session() -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { check_status(libc::setsid()) }
}

pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: the caller has one thread and shares nothing with others.
    unsafe { check_status(libc::unshare(flags)) }
}

pub(super) fn chdir(path: &CStr) -> io::Result<()> {
    // SAFETY: the text outlives the call.
    unsafe { check_status(libc::chdir(path.as_ptr())) }
}

/// Creates a directory; an existing one is not an error.
pub(super) fn mkdir(path: &CStr) -> io::Result<()> {
    // SAFETY: the text outlives the call.
    let made = unsafe { check_status(libc::mkdir(path.as_ptr(), 0o700)) };
    made.or_else(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// Opens a path only as a reference, without access to its content.
pub(super) fn open_path(path: &CStr) -> io::Result<RawFd> {
    open(path, libc::O_PATH)
}

pub(super) fn open(path: &CStr, flags: c_int) -> io::Result<RawFd> {
    // SAFETY: the text outlives the call.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
    check_status(fd).map(|()| fd)
}

/// Writes all of a short text; the kernel's files accept it in one write or not at all.
pub(super) fn write(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes outlive the call.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    match usize::try_from(written) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Reads as many bytes as fit.
pub(super) fn read(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer has the given length.
    let count = unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: the descriptor belongs to the caller, who does not use it again.
    unsafe { libc::close(fd) };
}

/// Writes a text into a file of the kernel.
pub(super) fn write_file(path: &CStr, text: &[u8]) -> io::Result<()> {
    let fd = open(path, libc::O_WRONLY)?;
    let written = write(fd, text);
    close(fd);
    written
}

/// Closes every file except one; the guard must not keep any pipe open.
pub(super) fn close_all_but(keep: RawFd) {
    let keep = u32::try_from(keep).unwrap_or(u32::MAX);
    if keep > 0 && keep < u32::MAX {
        close_range(0, keep - 1, 0);
    }
    close_range(keep.saturating_add(1), u32::MAX, 0);
}

/// Marks every file except standard input, output and error to be closed when a program is run.
pub(super) fn keep_only_standard_files() {
    close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
}

fn close_range(first: u32, last: u32, flags: libc::c_uint) {
    // SAFETY: in a forked child no other code uses these descriptors.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, flags) == 0 {
            return;
        }
        // Kernels before 5.9 lack the call.
        for fd in first..=last.min(MAX_FILES) {
            match flags {
                0 => libc::close(fd as RawFd),
                _ => libc::fcntl(fd as RawFd, libc::F_SETFD, libc::FD_CLOEXEC),
            };
        }
    }
}

/// The highest descriptor that is closed where they have to be closed one by one.
const MAX_FILES: u32 = 65_535;

/// Sets both limits of a resource.
pub(super) fn set_limit(resource: RlimitResource, most: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: the structure outlives the call.
    unsafe { check_status(libc::setrlimit(resource, &raw const limit)) }
}

/// The type of resource numbers, which differs between C libraries.
#[cfg(target_env = "gnu")]
pub(super) type RlimitResource = libc::__rlimit_resource_t;
/// The type of resource numbers, which differs between C libraries.
#[cfg(not(target_env = "gnu"))]
pub(super) type RlimitResource = c_int;

/// Drops all capabilities except those in the bit set `kept`, also for programs that are run later.
pub(super) fn keep_capabilities(kept: u64) -> io::Result<()> {
    #[repr(C)]
    struct CapabilityHeader {
        version: u32,
        pid: c_int,
    }
    #[repr(C)]
    struct CapabilityData {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = CapabilityHeader {
        version: VERSION_3,
        pid: 0,
    };
    let zero = || CapabilityData {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    };
    let mut data = [zero(), zero()];
    // SAFETY: the structures are those of version 3 of the call and outlive it.
    unsafe {
        check_result(libc::syscall(
            libc::SYS_capget,
            &raw mut header,
            data.as_mut_ptr(),
        ))?;
        // Before `capset`, which gives up CAP_SETPCAP, the right to do this.
        for capability in 0..64_u64 {
            if kept >> capability & 1 == 0 {
                // Fails beyond the last capability, or without the right to drop: then there is
                // nothing to drop.
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
            // Never more than the process has: the kernel would reject the whole call.
            let kept = (kept >> (32 * half)) as u32 & data.permitted;
            *data = CapabilityData {
                effective: kept,
                permitted: kept,
                inheritable: 0,
            };
        }
        check_result(libc::syscall(
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
        check_status(libc::mount(
            kind.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        ))
    }
}

/// Stops the propagation of mounts between this namespace and others.
pub(super) fn make_mounts_private() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the text is static, and the other pointers may be null.
    unsafe {
        check_status(libc::mount(
            ptr::null(),
            c"/".as_ptr(),
            ptr::null(),
            flags,
            ptr::null(),
        ))
    }
}

/// Copies the mount tree at and below a path.
pub(super) fn copy_tree(path: &CStr) -> io::Result<RawFd> {
    const OPEN_TREE_CLONE: c_int = 1;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_RECURSIVE;
    // SAFETY: the text outlives the call.
    let fd = check_result(unsafe {
        libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags)
    })?;
    Ok(fd as RawFd)
}

/// Mounts a copied tree at a path.
pub(super) fn mount_tree(tree: RawFd, at: &CStr) -> io::Result<()> {
    const FROM_EMPTY_PATH: c_int = 4;
    let here = libc::AT_FDCWD;
    let empty = c"".as_ptr();
    // SAFETY: the texts outlive the call.
    check_result(unsafe {
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

/// Makes every mount at and below a path read-only. `tree` is [`libc::AT_FDCWD`], or a copied tree
/// with an empty path.
pub(super) fn make_tree_read_only(tree: RawFd, path: &CStr) -> io::Result<()> {
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const READ_ONLY: u64 = 1;
    let attributes = MountAttributes {
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
    let at = &raw const attributes;
    let size = size_of::<MountAttributes>();
    // SAFETY: the structure has the given size, and it and the text outlive the call.
    check_result(unsafe {
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

/// Brings up the loopback device of a new network.
pub(super) fn bring_up_loopback() -> io::Result<()> {
    // SAFETY: the request is plain data with a name that fits, and the socket belongs to this function.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        check_status(socket)?;
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        let up = check_status(libc::ioctl(
            socket,
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        ));
        libc::close(socket);
        up
    }
}

/// Returns the version of Landlock in the kernel; 0 if there is none.
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

/// Checks whether the kernel can filter system calls and answer them with an error.
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
    let added = check_result(added).map(drop);
    close(parent);
    added
}

/// Restricts this process by a set of Landlock rules, irrevocably.
pub(super) fn landlock_restrict(ruleset: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check_result(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0_u32) })
        .map(drop)
}
