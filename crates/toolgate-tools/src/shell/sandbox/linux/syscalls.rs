//! The seccomp filters: the system calls that a command may not make.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpArgLen::Dword,
    SeccompCmpOp, SeccompCmpOp::Eq, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    sock_filter,
};

use super::super::NetworkAccess;

/// The input for building the filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterSettings {
    pub(super) network: NetworkAccess,
    pub(super) unix_sockets: bool,
    /// True if mounts protect the modes, owners and times of files outside. Otherwise no file's
    /// metadata may be changed by path.
    pub(super) mounts: bool,
    /// True if the command runs as root and so owns the files of the system.
    pub(super) root: bool,
}

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Builds the filters, each of which a system call has to pass.
pub(super) fn build_filters(wanted: FilterSettings) -> Result<Vec<BpfProgram>, BackendError> {
    let refused = compile_filter(denied_calls(wanted)?, libc::EPERM)?;
    // For these ENOSYS, not EPERM: programs then fall back to the older calls.
    let unknown = compile_filter(match_always(UNSUPPORTED_CALLS), libc::ENOSYS)?;
    Ok(vec![refused, unknown])
}

/// System calls whose arguments are in memory, which a filter cannot inspect.
const UNSUPPORTED_CALLS: &[i64] = &[libc::SYS_clone3, libc::SYS_openat2];

/// System calls that no command of a workspace needs.
const BLOCKED_CALLS: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Requests in an io_uring bypass the filters.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Files by number instead of by path.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    #[cfg(not(all(target_arch = "aarch64", target_env = "musl")))]
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_vhangup,
    // The machine as a whole.
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// System calls that change the metadata of files.
const METADATA_CALLS: &[i64] = &[
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fremovexattr,
    // Without a namespace, System V objects are shared with every process on the machine.
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// The number of `fchmodat2`, which is the same on all architectures.
const SYS_FCHMODAT2: i64 = 452;

fn denied_calls(wanted: FilterSettings) -> Result<SyscallRules, BackendError> {
    let mut rules = match_always(BLOCKED_CALLS);
    add_processes(&mut rules)?;
    add_set_user_id(&mut rules)?;
    if !wanted.mounts {
        add_metadata(&mut rules, wanted.root)?;
    }
    match wanted.network {
        NetworkAccess::Off => add_no_network(&mut rules, wanted.unix_sockets)?,
        NetworkAccess::Loopback | NetworkAccess::On => {
            add_network(&mut rules, wanted.unix_sockets)?
        }
    }
    Ok(rules)
}

/// Blocks changes of file metadata, except harmless ones on open files. A file that is only readable
/// can be opened too, so the allowed changes must do no harm to such files.
fn add_metadata(rules: &mut SyscallRules, root: bool) -> Result<(), BackendError> {
    rules.append(&mut match_always(METADATA_CALLS));
    // With a null path the call is `futimens`, which changes the times of an open file only.
    rules.insert(libc::SYS_utimensat, vec![match_pointer(1)?]);
    if root {
        // Neither needs write access, and root owns the system files that it may open for reading.
        rules.append(&mut match_always(&[libc::SYS_fchmod, libc::SYS_fchown]));
        return Ok(());
    }
    let bits = [libc::S_ISUID, libc::S_IWGRP, libc::S_IWOTH].map(u64::from);
    let opens = bits.map(|bit| match_all(&[(1, has_bits(bit), bit)]));
    rules.insert(
        libc::SYS_fchmod,
        opens.into_iter().collect::<Result<_, _>>()?,
    );
    Ok(())
}

/// Blocks new namespaces, limits and priorities of other processes, and input injected into
/// terminals.
fn add_processes(rules: &mut SyscallRules) -> Result<(), BackendError> {
    // CLONE_NEWTIME shares its bit with the signal number of `clone`, so only `unshare` can use it.
    const NAMESPACES: [i32; 7] = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let flags = NAMESPACES.map(|flag| match_all(&[(0, has_bits(flag as u64), flag as u64)]));
    rules.insert(
        libc::SYS_clone,
        flags.into_iter().collect::<Result<_, _>>()?,
    );
    rules.insert(
        libc::SYS_prlimit64,
        vec![match_all(&[(0, SeccompCmpOp::Ne, 0)])?],
    );
    let not_own = [
        match_all(&[(0, SeccompCmpOp::Ne, 0)])?,
        match_all(&[(1, SeccompCmpOp::Ne, 0)])?,
    ];
    rules.insert(libc::SYS_setpriority, not_own.to_vec());
    // The same numbers on both architectures; C libraries disagree on their type.
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    const TIOCCONS: u64 = 0x541d;
    let terminals = [TIOCSTI, TIOCLINUX, TIOCCONS].map(|request| match_all(&[(1, Eq, request)]));
    rules.insert(
        libc::SYS_ioctl,
        terminals.into_iter().collect::<Result<_, _>>()?,
    );
    Ok(())
}

/// Blocks set-user-ID files: such a file, owned by our user, would give its rights to other users of
/// the machine.
fn add_set_user_id(rules: &mut SyscallRules) -> Result<(), BackendError> {
    let bit = u64::from(libc::S_ISUID);
    let create = libc::O_CREAT as u64;
    let mode_at = |argument| match_all(&[(argument, has_bits(bit), bit)]);
    let opens = |flags, mode| {
        match_all(&[
            (flags, has_bits(create), create),
            (mode, has_bits(bit), bit),
        ])
    };
    rules.insert(libc::SYS_fchmod, vec![mode_at(1)?]);
    rules.insert(libc::SYS_fchmodat, vec![mode_at(2)?]);
    rules.insert(SYS_FCHMODAT2, vec![mode_at(2)?]);
    rules.insert(libc::SYS_mknodat, vec![mode_at(2)?]);
    rules.insert(libc::SYS_openat, vec![opens(2, 3)?]);
    #[cfg(target_arch = "x86_64")]
    {
        rules.insert(libc::SYS_chmod, vec![mode_at(1)?]);
        rules.insert(libc::SYS_creat, vec![mode_at(1)?]);
        rules.insert(libc::SYS_mknod, vec![mode_at(1)?]);
        rules.insert(libc::SYS_open, vec![opens(1, 2)?]);
    }
    Ok(())
}

const SOCKET_TYPE_MASK: u64 = 0xf;

/// Blocks all sockets except connected pairs. Datagram pairs are blocked too: they can send to any
/// address.
fn add_no_network(rules: &mut SyscallRules, unix_sockets: bool) -> Result<(), BackendError> {
    if unix_sockets {
        rules.insert(
            libc::SYS_socket,
            vec![match_all(&[(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)])?],
        );
        return Ok(());
    }
    rules.append(&mut match_always(&[
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
    ]));
    rules.insert(
        libc::SYS_socketpair,
        vec![
            match_all(&[(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)])?,
            match_all(&[(
                1,
                SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK),
                libc::SOCK_DGRAM as u64,
            )])?,
            match_all(&[(
                1,
                SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK),
                libc::SOCK_RAW as u64,
            )])?,
        ],
    );
    Ok(())
}

/// Allows TCP, UDP and route queries; blocks raw packets.
fn add_network(rules: &mut SyscallRules, unix_sockets: bool) -> Result<(), BackendError> {
    let other = |family: i32| (0, SeccompCmpOp::Ne, family as u64);
    let mut families = vec![
        other(libc::AF_INET),
        other(libc::AF_INET6),
        other(libc::AF_NETLINK),
    ];
    let datagrams = (
        1,
        SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK),
        libc::SOCK_DGRAM as u64,
    );
    if unix_sockets {
        families.push(other(libc::AF_UNIX));
    } else {
        rules.insert(libc::SYS_socketpair, vec![match_all(&[datagrams])?]);
    }
    let raw = |family: i32| {
        match_all(&[
            (0, Eq, family as u64),
            (
                1,
                SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK),
                libc::SOCK_RAW as u64,
            ),
        ])
    };
    let netlink = match_all(&[
        (0, Eq, libc::AF_NETLINK as u64),
        (2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u64),
    ])?;
    rules.insert(
        libc::SYS_socket,
        vec![
            match_all(&families)?,
            raw(libc::AF_INET)?,
            raw(libc::AF_INET6)?,
            netlink,
        ],
    );
    Ok(())
}

fn match_always(calls: &[i64]) -> SyscallRules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn has_bits(bits: u64) -> SeccompCmpOp {
    SeccompCmpOp::MaskedEq(bits)
}

/// Builds a rule that matches if all conditions do: argument, comparison, value.
fn match_all(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let condition = |(argument, how, value): &(u8, SeccompCmpOp, u64)| {
        // The kernel ignores the upper half of these arguments: a comparison of 64 bits could be
        // evaded by setting a bit there.
        SeccompCondition::new(*argument, Dword, how.clone(), *value)
    };
    SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
}

/// Builds a rule that matches if the argument is not a null pointer.
fn match_pointer(argument: u8) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(
        argument,
        // All 64 bits: the lower half of a valid pointer may be zero.
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::Ne,
        0,
    )?])
}

fn compile_filter(rules: SyscallRules, error: i32) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(error as u32),
        arch,
    )?;
    // seccompiler's prologue already kills the process on calls of another architecture.
    let mut program: BpfProgram = filter.try_into()?;
    // Jumps are relative, so a prefix leaves their targets alone.
    program.splice(0..0, NO_OTHER_NUMBERS);
    Ok(program)
}

/// The highest system call that this filter was written for, `mseal`; numbers from 424 on are the
/// same on all architectures.
const HIGHEST_KNOWN_CALL: u32 = 462;

/// The check against calls that did not exist when the rules were written, such as `setxattrat`,
/// which does what `setxattr` does. On x86_64 it also covers x32 calls: for a filter they are the
/// same architecture with numbers from 0x4000_0000 on.
const NO_OTHER_NUMBERS: [sock_filter; 3] = [
    sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: 0,
    },
    sock_filter {
        code: 0x35,
        jt: 0,
        jf: 1,
        k: HIGHEST_KNOWN_CALL + 1,
    },
    sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        // Programs fall back to the older calls.
        k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
    },
];
