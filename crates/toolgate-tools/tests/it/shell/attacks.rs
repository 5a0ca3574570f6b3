//! Attacks on the sandbox, run from inside it by this test program.
//!
//! Each attack is a function that succeeds if the sandbox fails to block it.
#![expect(unsafe_code, reason = "an attacker makes raw system calls")]

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{PermissionsExt, symlink},
            net::{UnixDatagram, UnixListener, UnixStream},
        },
    },
    path::PathBuf,
};

/// The targets of an attacker outside the sandbox.
pub(crate) struct AttackTargets {
    outside: PathBuf,
    /// The process that runs the tool.
    pid: i32,
    /// The process between it and the command.
    guard: i32,
    tcp: u16,
    udp: u16,
    unix: PathBuf,
    name: String,
}

/// An attack: its name and its function.
pub(crate) type Attack = (&'static str, fn(&AttackTargets) -> io::Result<()>);

pub(crate) const ATTACKS: &[Attack] = &[
    ("write a file outside", |world| {
        File::create(world.outside.join("new")).map(drop)
    }),
    ("overwrite a file outside", |world| {
        OpenOptions::new()
            .write(true)
            .open(world.secret())
            .map(drop)
    }),
    ("truncate a file outside", |world| {
        check_status(unsafe { libc::truncate(path_cstring(&world.secret()).as_ptr(), 0) })
    }),
    ("write through a link", |world| {
        let _ = symlink(&world.outside, "link");
        File::create("link/new").map(drop)
    }),
    ("link a file outside into the workspace", |world| {
        fs::hard_link(world.secret(), "hard")
    }),
    ("move a file out", |world| {
        fs::write("mine", "x")?;
        fs::rename("mine", world.outside.join("moved"))
    }),
    ("move a file in", |world| {
        fs::rename(world.secret(), "stolen")
    }),
    ("remove a file outside", |world| {
        fs::remove_file(world.secret())
    }),
    ("make a directory outside", |world| {
        fs::create_dir(world.outside.join("dir"))
    }),
    ("read a file outside", |world| {
        fs::read(world.secret()).map(drop)
    }),
    ("list a directory outside", |world| {
        fs::read_dir(&world.outside).map(drop)
    }),
    ("read through /proc/self/root", |world| {
        fs::read(proc_root("self", &world.secret())).map(drop)
    }),
    ("write through /proc/self/root", |world| {
        File::create(proc_root("self", &world.outside.join("new"))).map(drop)
    }),
    ("read through the root of the parent", |world| {
        fs::read(proc_root(&world.pid.to_string(), &world.secret())).map(drop)
    }),
    ("read passwords", |_| File::open("/etc/shadow").map(drop)),
    ("read the memory of the tool", |world| {
        File::open(format!("/proc/{}/mem", world.pid)).map(drop)
    }),
    ("read the memory of the guard", |world| {
        File::open(format!("/proc/{}/mem", world.guard)).map(drop)
    }),
    ("read the environment of the tool", |world| {
        fs::read(format!("/proc/{}/environ", world.pid)).map(drop)
    }),
    ("read the environment of the guard", |world| {
        fs::read(format!("/proc/{}/environ", world.guard)).map(drop)
    }),
    ("change the mode of a file outside", |world| {
        fs::set_permissions(world.secret(), fs::Permissions::from_mode(0o777))
    }),
    ("change the owner of a file outside", |world| {
        let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
        check_status(unsafe { libc::chown(path_cstring(&world.secret()).as_ptr(), user, group) })
    }),
    ("change the times of a file outside", |world| {
        check_status(unsafe {
            libc::utimes(path_cstring(&world.secret()).as_ptr(), std::ptr::null())
        })
    }),
    ("change the attributes of a file outside", |world| {
        let path = path_cstring(&world.secret());
        let name = c"user.x";
        check_status(unsafe {
            libc::setxattr(path.as_ptr(), name.as_ptr(), c"y".as_ptr().cast(), 1, 0)
        })
    }),
    // By calls that are newer than most filters: `setxattrat`, `removexattrat`, `open_tree_attr`,
    // `file_setattr`.
    ("set attributes by a newer call", |world| {
        newer_call(463, &world.secret())
    }),
    ("remove attributes by a newer call", |world| {
        newer_call(466, &world.secret())
    }),
    ("open a tree of mounts by a newer call", |world| {
        newer_call(467, &world.outside)
    }),
    ("set flags by a newer call", |world| {
        newer_call(469, &world.secret())
    }),
    ("let others write a program of the toolchain", |_| {
        let program = File::open(std::env::current_exe()?)?;
        let usual = program.metadata()?.permissions();
        program.set_permissions(fs::Permissions::from_mode(usual.mode() | 0o022))?;
        program.set_permissions(usual)
    }),
    ("write a setting of the kernel", |_| {
        OpenOptions::new()
            .write(true)
            .open("/proc/sys/kernel/core_pattern")
            .map(drop)
    }),
    ("open the memory of the machine", |_| {
        File::open("/dev/mem").map(drop)
    }),
    ("open a terminal", |_| File::open("/dev/ptmx").map(drop)),
    ("make a device", |_| {
        check_status(unsafe {
            libc::mknod(
                c"device".as_ptr(),
                libc::S_IFCHR | 0o600,
                libc::makedev(1, 1),
            )
        })
    }),
    ("make a program that runs as its owner", |_| {
        File::create("suid")?;
        fs::set_permissions("suid", fs::Permissions::from_mode(0o4755))
    }),
    ("create a program that runs as its owner", |_| {
        check_status(unsafe {
            libc::open(c"suid2".as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o4755)
        })
    }),
    ("connect by TCP", |world| {
        TcpStream::connect(("127.0.0.1", world.tcp)).map(drop)
    }),
    ("listen by TCP", |_| {
        TcpListener::bind("127.0.0.1:0").map(drop)
    }),
    ("send by UDP", |world| {
        UdpSocket::bind("127.0.0.1:0")?
            .send_to(b"CANARY", ("127.0.0.1", world.udp))
            .map(drop)
    }),
    ("connect to a UNIX socket by path", |world| {
        UnixStream::connect(&world.unix).map(drop)
    }),
    ("connect to an abstract socket", |world| {
        use std::os::linux::net::SocketAddrExt;
        UnixStream::connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(
            &world.name,
        )?)
        .map(drop)
    }),
    ("listen on a UNIX socket", |_| {
        UnixListener::bind("socket").map(drop)
    }),
    ("send datagrams from a pair of sockets", |_| {
        UnixDatagram::pair().map(drop)
    }),
    ("open a raw socket", |_| {
        open_socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
    }),
    ("open a packet socket", |_| {
        open_socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
    }),
    ("open a netlink socket", |_| {
        open_socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW,
            libc::NETLINK_KOBJECT_UEVENT,
        )
    }),
    ("open a socket to the host of this machine", |_| {
        open_socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
    }),
    ("open a socket to the ciphers of the kernel", |_| {
        open_socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
    }),
    ("use io_uring", |_| {
        raw_syscall(
            libc::SYS_io_uring_setup,
            [8, zeroed_buffer().as_ptr() as i64, 0, 0, 0],
        )
    }),
    ("trace the tool", |world| {
        raw_syscall(libc::SYS_ptrace, [0x4206, world.pid.into(), 0, 0, 0])
    }),
    ("be traced", |_| {
        raw_syscall(libc::SYS_ptrace, [0, 0, 0, 0, 0])
    }),
    ("read memory of the guard by address", |world| {
        let mut byte = 0_u8;
        let own = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let at = &raw const own as i64;
        raw_syscall(
            libc::SYS_process_vm_readv,
            [world.guard.into(), at, 1, at, 1],
        )
    }),
    ("signal the tool", |world| {
        check_status(unsafe { libc::kill(world.pid, 0) })
    }),
    ("take a file of the guard", |world| {
        let guard = unsafe { libc::syscall(libc::SYS_pidfd_open, world.guard, 0) };
        raw_syscall(libc::SYS_pidfd_getfd, [guard, 1, 0, 0, 0])
    }),
    ("raise the limits of the tool", |world| {
        raw_syscall(libc::SYS_prlimit64, [world.pid.into(), 7, 0, 0, 0])
    }),
    ("raise one's own limits", |_| {
        let all = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        check_status(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const all) })
    }),
    // From here on with arguments that would do no harm if the call succeeded.
    ("mount", |_| {
        raw_syscall(
            libc::SYS_mount,
            [
                0,
                c"/no/such/place".as_ptr() as i64,
                c"tmpfs".as_ptr() as i64,
                0,
                0,
            ],
        )
    }),
    ("unmount", |_| {
        raw_syscall(
            libc::SYS_umount2,
            [c"/no/such/place".as_ptr() as i64, 0, 0, 0, 0],
        )
    }),
    ("open a tree of mounts", |_| {
        raw_syscall(
            libc::SYS_open_tree,
            [libc::AT_FDCWD.into(), c"/".as_ptr() as i64, 1, 0, 0],
        )
    }),
    ("change the root", |_| {
        check_status(unsafe { libc::chroot(c"/".as_ptr()) })
    }),
    ("make a user namespace", |_| {
        check_status(unsafe { libc::unshare(libc::CLONE_NEWUSER) })
    }),
    ("clone into a namespace", |_| {
        let child = unsafe {
            libc::syscall(
                libc::SYS_clone,
                libc::CLONE_NEWUSER | libc::SIGCHLD,
                0,
                0,
                0,
                0,
            )
        };
        if child == 0 {
            unsafe { libc::_exit(0) };
        }
        if child < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }),
    ("clone in a way no filter can read", |_| {
        raw_syscall(libc::SYS_clone3, [0, 0, 0, 0, 0])
    }),
    ("open in a way no filter can read", |_| {
        raw_syscall(libc::SYS_openat2, [0, 0, 0, 0, 0])
    }),
    ("join the namespace of the tool", |world| {
        let file = File::open(format!("/proc/{}/ns/user", world.pid))?;
        check_status(unsafe { libc::setns(file.as_raw_fd(), 0) })
    }),
    ("load a program into the kernel", |_| {
        raw_syscall(
            libc::SYS_bpf,
            [0, zeroed_buffer().as_ptr() as i64, 128, 0, 0],
        )
    }),
    ("read keys", |_| {
        raw_syscall(libc::SYS_keyctl, [0, -3, 0, 0, 0])
    }),
    ("handle page faults", |_| {
        raw_syscall(libc::SYS_userfaultfd, [1, 0, 0, 0, 0])
    }),
    ("watch events of the processor", |_| {
        raw_syscall(
            libc::SYS_perf_event_open,
            [zeroed_buffer().as_ptr() as i64, 0, -1, -1, 0],
        )
    }),
    ("open a file by number", |_| {
        raw_syscall(
            libc::SYS_open_by_handle_at,
            [-100, zeroed_buffer().as_ptr() as i64, 0, 0, 0],
        )
    }),
    ("load a module", |_| {
        raw_syscall(libc::SYS_init_module, [0, 0, c"".as_ptr() as i64, 0, 0])
    }),
    ("read the log of the kernel", |_| {
        raw_syscall(libc::SYS_syslog, [10, 0, 0, 0, 0])
    }),
    ("name the machine", |_| {
        raw_syscall(libc::SYS_sethostname, [0, -1, 0, 0, 0])
    }),
    ("set the clock", |_| {
        raw_syscall(libc::SYS_clock_settime, [0, 0, 0, 0, 0])
    }),
    ("type into a terminal", |_| {
        // Without the filter the error would be that this is not a terminal.
        let typed = unsafe { libc::ioctl(0, libc::TIOCSTI, c"x".as_ptr()) };
        let error = io::Error::last_os_error();
        if typed == 0 || error.raw_os_error() != Some(libc::EPERM) {
            Ok(())
        } else {
            Err(error)
        }
    }),
    ("have a terminal", |_| File::open("/dev/tty").map(drop)),
    ("have a capability beyond files", |_| {
        let status = fs::read_to_string("/proc/self/status")?;
        let bits = status
            .lines()
            .filter(|line| line.starts_with("Cap"))
            .filter_map(|line| line.split('\t').nth(1));
        let more = bits
            .filter_map(|bits| u64::from_str_radix(bits, 16).ok())
            .any(|bits| bits & !0b11011 != 0);
        // Bits in the bounding set mean nothing for a user who cannot gain capabilities.
        let root = unsafe { libc::getuid() } == 0;
        if more && root {
            Ok(())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }),
    ("gain privileges", |_| {
        let fixed = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
        if fixed == 1 {
            Err(io::ErrorKind::PermissionDenied.into())
        } else {
            Ok(())
        }
    }),
    #[cfg(target_arch = "x86_64")]
    ("make calls by the numbers of x32", |_| {
        raw_syscall(0x4000_0000 + 39, [0; 5])
    }),
    #[cfg(target_arch = "x86_64")]
    ("make calls of another architecture", |_| {
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut number = 20_i64;
            unsafe { std::arch::asm!("int 0x80", inout("rax") number) };
            unsafe { libc::_exit(if number > 0 { 0 } else { 1 }) };
        }
        let mut status = 0;
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        if status == 0 {
            Ok(())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }),
];

/// The attacks that may succeed without harm to the machine, to check that they would.
pub(crate) const HARMLESS: &[&str] = &[
    "write a file outside",
    "write through a link",
    "link a file outside into the workspace",
    "read a file outside",
    "list a directory outside",
    "read the environment of the tool",
    "read the environment of the guard",
    "change the mode of a file outside",
    "change the times of a file outside",
    "make a program that runs as its owner",
    "create a program that runs as its owner",
    "connect by TCP",
    "listen by TCP",
    "send by UDP",
    "connect to a UNIX socket by path",
    "connect to an abstract socket",
    "listen on a UNIX socket",
    "send datagrams from a pair of sockets",
    "signal the tool",
    "be traced",
    "mount",
    "unmount",
    "clone in a way no filter can read",
    "open in a way no filter can read",
    "read keys",
    "type into a terminal",
];

impl AttackTargets {
    fn secret(&self) -> PathBuf {
        self.outside.join("secret")
    }

    fn from_environment() -> Option<Self> {
        let get = |name: &str| std::env::var(name).ok();
        Some(Self {
            outside: get("ATTACK_OUTSIDE")?.into(),
            pid: get("ATTACK_PID")?.parse().ok()?,
            guard: get("ATTACK_GUARD")?.parse().ok()?,
            tcp: get("ATTACK_TCP")?.parse().ok()?,
            udp: get("ATTACK_UDP")?.parse().ok()?,
            unix: get("ATTACK_UNIX")?.into(),
            name: get("ATTACK_NAME")?,
        })
    }
}

/// Runs every attack if the variables are set, and prints one line for each.
#[test]
fn tries_every_way_out() {
    let Some(world) = AttackTargets::from_environment() else {
        return;
    };
    let harmless = std::env::var_os("ATTACK_HARMLESS").is_some();
    for (name, attack) in ATTACKS {
        if harmless && !HARMLESS.contains(name) {
            continue;
        }
        let line = match attack(&world) {
            Ok(()) => format!("\nBROKEN: {name}"),
            Err(error) => format!("\nheld: {name}: {error}"),
        };
        print!("{line}");
        io::stdout().flush().expect("printed");
    }
    println!();
}

fn proc_root(pid: &str, path: &std::path::Path) -> String {
    format!("/proc/{pid}/root{}", path.display())
}

fn path_cstring(path: &std::path::Path) -> CString {
    CString::new(path.to_str().expect("text")).expect("no null")
}

fn zeroed_buffer() -> &'static [u8; 128] {
    // Written to by some calls, if they succeed.
    Box::leak(Box::new([0; 128]))
}

fn check_status(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Makes a call that takes a directory and a path, with arguments that change nothing.
fn newer_call(number: i64, path: &std::path::Path) -> io::Result<()> {
    let path = path_cstring(path);
    raw_syscall(
        number,
        [libc::AT_FDCWD.into(), path.as_ptr() as i64, 0, 0, 0],
    )
}

fn raw_syscall(number: i64, arguments: [i64; 5]) -> io::Result<()> {
    let [a, b, c, d, e] = arguments;
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    let error = io::Error::last_os_error();
    // Any other error means that the call passed the filter: only the kernel checks the arguments.
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS | libc::EACCES | libc::ESRCH) if result < 0 => Err(error),
        _ => Ok(()),
    }
}

fn open_socket(family: i32, kind: i32, protocol: i32) -> io::Result<()> {
    check_status(unsafe { libc::socket(family, kind, protocol) })
}

/// Checks that nothing was sent to a socket.
pub(crate) fn is_silent(udp: &UdpSocket) -> bool {
    udp.set_nonblocking(true).expect("set");
    udp.recv(&mut [0; 16]).is_err()
}

/// Reads a file from outside the sandbox.
pub(crate) fn read_contents(path: &std::path::Path) -> String {
    let mut text = String::new();
    File::open(path)
        .expect("it exists")
        .read_to_string(&mut text)
        .expect("text");
    text
}
