//! The processes that stand between us and a command, so that nothing it starts outlives it.
//!
//! They are copies of our process that never run a program: they close every file, wait for signals, and end.
//! `SIGTERM` asks what runs below to end, `SIGQUIT` ends it. When the guard itself has ended, nothing is left.

use std::{io, os::fd::RawFd};

use libc::{SIGCHLD, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, c_int, pid_t};

use super::sys::{self, Waited};

/// What the guard reports when the command has ended: its wait status, and how many others were still running.
pub(super) const REPORT: usize = 8;

/// Stands outside of a PID namespace and waits for its first process, with which the kernel ends all others.
pub(super) fn outside(first: pid_t) -> ! {
    sys::close_all_but(RawFd::MAX);
    loop {
        if matches!(sys::wait_any(false), Waited::Ended(..) | Waited::NoChildren) {
            sys::exit(0);
        }
        match sys::next_signal(&[SIGCHLD, SIGTERM, SIGQUIT]) {
            SIGTERM => sys::kill(first, SIGTERM),
            SIGQUIT => sys::kill(first, SIGKILL),
            _ => {}
        }
    }
}

/// Is the first process of a PID namespace: waits for the command and for whatever it leaves behind.
pub(super) fn first(command: pid_t, report: RawFd) -> ! {
    sys::close_all_but(report);
    let status = loop {
        if let Some(status) = reap(command) {
            break status;
        }
        if sys::next_signal(&[SIGCHLD, SIGTERM]) == SIGTERM {
            sys::kill(-1, SIGTERM);
        }
    };
    sys::kill(-1, SIGKILL);
    let mut left = 0;
    while let Waited::Ended(..) = sys::wait_any(true) {
        left += 1;
    }
    tell(report, status, left)
}

/// Stands in for a PID namespace where there is none: adopts every orphan below it and ends them with the command.
pub(super) fn reaper(command: pid_t, report: RawFd) -> ! {
    sys::close_all_but(report);
    let status = loop {
        if let Some(status) = reap(command) {
            break status;
        }
        match sys::next_signal(&[SIGCHLD, SIGTERM, SIGQUIT, SIGUSR1]) {
            SIGTERM => {
                // The command leads a group of its own; others may have left it.
                sys::kill(-command, SIGTERM);
                let _ = for_each_child(|child| sys::kill(child, SIGTERM));
            }
            SIGQUIT | SIGUSR1 => sys::kill(command, SIGKILL),
            _ => {}
        }
    };
    tell(report, status, end_all(command))
}

/// The signal that tells the reaper of our own end; it has work to do before its own.
pub(super) const PARENT_ENDED: c_int = SIGUSR1;

/// Clears away what has ended, and says how the command did if it has.
fn reap(command: pid_t) -> Option<c_int> {
    let mut ended = None;
    loop {
        match sys::wait_any(false) {
            Waited::Ended(pid, status) if pid == command => ended = Some(status),
            Waited::Ended(..) => {}
            Waited::Running => return ended,
            Waited::NoChildren => return Some(ended.unwrap_or_default()),
        }
    }
}

/// Ends all children, and theirs, which become ours by that. A process that is to be killed can no longer fork.
fn end_all(command: pid_t) -> u32 {
    let mut left = 0;
    loop {
        if !for_each_child(|child| sys::kill(child, SIGKILL)) {
            // Nobody lists them. Only the group of the command can be found, and waiting for others could take forever.
            sys::kill(-command, SIGKILL);
            return left;
        }
        match sys::wait_any(true) {
            Waited::Ended(..) => left += 1,
            Waited::Running => {}
            Waited::NoChildren => return left,
        }
    }
}

/// Reads the list of children that the kernel keeps, in pieces; false if there is none.
fn for_each_child(mut act: impl FnMut(pid_t)) -> bool {
    let Ok(list) = sys::open(c"/proc/thread-self/children", libc::O_RDONLY) else {
        return false;
    };
    let (mut buffer, mut number) = ([0_u8; 1024], 0);
    while let Ok(count @ 1..) = sys::read(list, &mut buffer) {
        for byte in &buffer[..count] {
            match byte {
                b'0'..=b'9' => number = number * 10 + pid_t::from(byte - b'0'),
                _ if number > 0 => act(std::mem::take(&mut number)),
                _ => {}
            }
        }
    }
    if number > 0 {
        act(number);
    }
    sys::close(list);
    true
}

fn tell(report: RawFd, status: c_int, left: u32) -> ! {
    let mut bytes = [0; REPORT];
    bytes[..4].copy_from_slice(&status.to_ne_bytes());
    bytes[4..].copy_from_slice(&left.to_ne_bytes());
    // Whoever would read it may be gone.
    let _: io::Result<()> = sys::write(report, &bytes);
    sys::exit(0)
}
