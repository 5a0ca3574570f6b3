//! Which system calls a command may not make.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpArgLen::Dword,
    SeccompCmpOp, SeccompCmpOp::Eq, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    sock_filter,
};

use super::super::Network;

/// What decides about the filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) network: Network,
    pub(super) unix_sockets: bool,
    /// Whether mounts keep the modes, owners and times of files outside from being changed. Otherwise nobody's may be.
    pub(super) mounts: bool,
    /// Whether the command owns what belongs to the system.
    pub(super) root: bool,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filters, each of which a system call has to pass.
pub(super) fn filters(wanted: Wanted) -> Result<Vec<BpfProgram>, BackendError> {
    let refused = compile(refused(wanted)?, libc::EPERM)?;
    // To these, programs have an answer of old: they do without.
    let unknown = compile(always(UNKNOWN), libc::ENOSYS)?;
    Ok(vec![refused, unknown])
}

/// Their arguments are in memory, where no filter can look.
const UNKNOWN: &[i64] = &[libc::SYS_clone3, libc::SYS_openat2];

/// No command of a workspace has business with these.
const NEVER: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Requests in a ring pass no filter.
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

/// Change what is known about files.
const METADATA: &[i64] = &[
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fremovexattr,
    // System V objects are found by number and belong to everybody, without a namespace for them.
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

/// One number on all architectures.
const SYS_FCHMODAT2: i64 = 452;

fn refused(wanted: Wanted) -> Result<Rules, BackendError> {
    let mut rules = always(NEVER);
    add_processes(&mut rules)?;
    add_set_user_id(&mut rules)?;
    if !wanted.mounts {
        add_metadata(&mut rules, wanted.root)?;
    }
    match wanted.network {
        Network::Off => add_no_network(&mut rules, wanted.unix_sockets)?,
        Network::Loopback | Network::On => add_network(&mut rules, wanted.unix_sockets)?,
    }
    Ok(rules)
}

/// What is known about files stays as it is, but for what ordinary programs do to files that they have open. Files
/// that can only be read can be opened, too, so nothing of this may do harm to those.
fn add_metadata(rules: &mut Rules, root: bool) -> Result<(), BackendError> {
    rules.append(&mut always(METADATA));
    rules.insert(libc::SYS_utimensat, vec![with_path(1)?]);
    if root {
        rules.append(&mut always(&[libc::SYS_fchmod, libc::SYS_fchown]));
        return Ok(());
    }
    let bits = [libc::S_ISUID, libc::S_IWGRP, libc::S_IWOTH].map(u64::from);
    let opens = bits.map(|bit| rule(&[(1, has(bit), bit)]));
    rules.insert(
        libc::SYS_fchmod,
        opens.into_iter().collect::<Result<_, _>>()?,
    );
    Ok(())
}

/// New namespaces, other people's limits and priorities, and terminals that are typed into.
fn add_processes(rules: &mut Rules) -> Result<(), BackendError> {
    // CLONE_NEWTIME shares its bit with the signal that `clone` sends, so only `unshare` makes one.
    const NAMESPACES: [i32; 7] = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let flags = NAMESPACES.map(|flag| rule(&[(0, has(flag as u64), flag as u64)]));
    rules.insert(
        libc::SYS_clone,
        flags.into_iter().collect::<Result<_, _>>()?,
    );
    rules.insert(
        libc::SYS_prlimit64,
        vec![rule(&[(0, SeccompCmpOp::Ne, 0)])?],
    );
    let not_own = [
        rule(&[(0, SeccompCmpOp::Ne, 0)])?,
        rule(&[(1, SeccompCmpOp::Ne, 0)])?,
    ];
    rules.insert(libc::SYS_setpriority, not_own.to_vec());
    // The same on both architectures; C libraries do not agree on their type.
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    const TIOCCONS: u64 = 0x541d;
    let terminals = [TIOCSTI, TIOCLINUX, TIOCCONS].map(|request| rule(&[(1, Eq, request)]));
    rules.insert(
        libc::SYS_ioctl,
        terminals.into_iter().collect::<Result<_, _>>()?,
    );
    Ok(())
}

/// A program that runs as its owner, made by us, would lend our rights to other users of the machine.
fn add_set_user_id(rules: &mut Rules) -> Result<(), BackendError> {
    let bit = u64::from(libc::S_ISUID);
    let create = libc::O_CREAT as u64;
    let mode_at = |argument| rule(&[(argument, has(bit), bit)]);
    let opens = |flags, mode| rule(&[(flags, has(create), create), (mode, has(bit), bit)]);
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

const TYPE: u64 = 0xf;

/// Nothing but pairs of connected sockets; datagrams could be sent from those to others by address.
fn add_no_network(rules: &mut Rules, unix_sockets: bool) -> Result<(), BackendError> {
    if unix_sockets {
        rules.insert(
            libc::SYS_socket,
            vec![rule(&[(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)])?],
        );
        return Ok(());
    }
    rules.append(&mut always(&[
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_listen,
    ]));
    rules.insert(
        libc::SYS_socketpair,
        vec![
            rule(&[(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)])?,
            rule(&[(1, SeccompCmpOp::MaskedEq(TYPE), libc::SOCK_DGRAM as u64)])?,
            rule(&[(1, SeccompCmpOp::MaskedEq(TYPE), libc::SOCK_RAW as u64)])?,
        ],
    );
    Ok(())
}

/// TCP and UDP, and questions about routes; no raw packets.
fn add_network(rules: &mut Rules, unix_sockets: bool) -> Result<(), BackendError> {
    let other = |family: i32| (0, SeccompCmpOp::Ne, family as u64);
    let mut families = vec![
        other(libc::AF_INET),
        other(libc::AF_INET6),
        other(libc::AF_NETLINK),
    ];
    let datagrams = (1, SeccompCmpOp::MaskedEq(TYPE), libc::SOCK_DGRAM as u64);
    if unix_sockets {
        families.push(other(libc::AF_UNIX));
    } else {
        rules.insert(libc::SYS_socketpair, vec![rule(&[datagrams])?]);
    }
    let raw = |family: i32| {
        rule(&[
            (0, Eq, family as u64),
            (1, SeccompCmpOp::MaskedEq(TYPE), libc::SOCK_RAW as u64),
        ])
    };
    let netlink = rule(&[
        (0, Eq, libc::AF_NETLINK as u64),
        (2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u64),
    ])?;
    rules.insert(
        libc::SYS_socket,
        vec![
            rule(&families)?,
            raw(libc::AF_INET)?,
            raw(libc::AF_INET6)?,
            netlink,
        ],
    );
    Ok(())
}

fn always(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn has(bits: u64) -> SeccompCmpOp {
    SeccompCmpOp::MaskedEq(bits)
}

/// Fits if all conditions do: which argument, how it is compared, with what.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let condition = |(argument, how, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*argument, Dword, how.clone(), *value)
    };
    SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
}

/// Fits if the argument is a pointer to something.
fn with_path(argument: u8) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::Ne,
        0,
    )?])
}

fn compile(rules: Rules, error: i32) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(error as u32),
        arch,
    )?;
    // Calls of another architecture end the process; that is seccompiler's own beginning.
    let mut program: BpfProgram = filter.try_into()?;
    program.splice(0..0, NO_OTHER_NUMBERS);
    Ok(program)
}

/// x32 is the same architecture to a filter, with other numbers from here on.
#[cfg(target_arch = "x86_64")]
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
        k: 0x4000_0000,
    },
    sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
    },
];
#[cfg(not(target_arch = "x86_64"))]
const NO_OTHER_NUMBERS: [sock_filter; 0] = [];
