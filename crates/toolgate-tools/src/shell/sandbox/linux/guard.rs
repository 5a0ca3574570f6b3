//! The guard processes between our process and a command, which ensure that no process outlives it.
//!
//! They are copies of our process that never run a program: they close every file, wait for signals,
//! and exit. `SIGTERM` asks the processes below to terminate, `SIGQUIT` kills them. When the guard
//! itself has ended, no process is left.

use std::{io, os::fd::RawFd};

use libc::{SIGCHLD, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, c_int, pid_t};

use super::sys::{self, WaitResult};

/// The length of the guard's report: the wait status of the command, and the number of other
/// processes that were still running.
pub(super) const REPORT_BYTES: usize = 8;

/// Waits outside of a PID namespace for its first process, with which the kernel kills all others.
pub(super) fn wait_outside(first: pid_t) -> ! {
    sys::close_all_but(RawFd::MAX);
    loop {
        if matches!(
            sys::wait_any(false),
            WaitResult::Ended(..) | WaitResult::NoChildren
        ) {
            sys::exit(0);
        }
        match sys::next_signal(&[SIGCHLD, SIGTERM, SIGQUIT]) {
            // The kernel drops a signal to an init that has no handler for it, unless it is
            // blocked, as all are here.
            SIGTERM => sys::kill(first, SIGTERM),
            SIGQUIT => sys::kill(first, SIGKILL),
            _ => {}
        }
    }
}

/// Runs as the first process of a PID namespace: waits for the command, then kills the rest.
pub(super) fn run_as_init(command: pid_t, report: RawFd) -> ! {
    sys::close_all_but(report);
    let status = loop {
        if let Some(status) = reap_children(command) {
            break status;
        }
        if sys::next_signal(&[SIGCHLD, SIGTERM]) == SIGTERM {
            sys::kill(-1, SIGTERM);
        }
    };
    // For the first process of a namespace, -1 means every other process in it.
    sys::kill(-1, SIGKILL);
    let mut left = 0;
    while let WaitResult::Ended(..) = sys::wait_any(true) {
        left += 1;
    }
    send_report(report, status, left)
}

/// Replaces a PID namespace where there is none: adopts every orphan and kills it with the command.
pub(super) fn run_reaper(command: pid_t, report: RawFd) -> ! {
    sys::close_all_but(report);
    let status = loop {
        if let Some(status) = reap_children(command) {
            break status;
        }
        match sys::next_signal(&[SIGCHLD, SIGTERM, SIGQUIT, SIGUSR1]) {
            SIGTERM => {
                // The command leads a process group; its descendants may have left that group.
                sys::kill(-command, SIGTERM);
                let _ = for_each_child(|child| sys::kill(child, SIGTERM));
            }
            // Only the command: the loop ends with it, and then all that it leaves behind is
            // killed.
            SIGQUIT | SIGUSR1 => sys::kill(command, SIGKILL),
            _ => {}
        }
    };
    send_report(report, status, kill_descendants(command))
}

/// The signal that tells the reaper that our process has ended. It is not `SIGKILL`, because the
/// reaper has to kill the command first.
pub(super) const PARENT_ENDED: c_int = SIGUSR1;

/// Reaps all ended children, and returns the status of the command if it is among them.
fn reap_children(command: pid_t) -> Option<c_int> {
    let mut ended = None;
    // Pending signals of one kind merge, so one SIGCHLD may stand for many children.
    loop {
        match sys::wait_any(false) {
            WaitResult::Ended(pid, status) if pid == command => ended = Some(status),
            WaitResult::Ended(..) => {}
            WaitResult::Running => return ended,
            WaitResult::NoChildren => return Some(ended.unwrap_or_default()),
        }
    }
}

/// Kills all children and their descendants, and returns their number.
fn kill_descendants(command: pid_t) -> u32 {
    let mut left = 0;
    // Repeated until none is left: orphans of a killed child become ours. A process with a pending
    // SIGKILL can no longer fork, so this ends.
    loop {
        if !for_each_child(|child| sys::kill(child, SIGKILL)) {
            // The kernel lists no children. Only the group of the command is known, and waiting for
            // other processes might never end.
            sys::kill(-command, SIGKILL);
            return left;
        }
        match sys::wait_any(true) {
            WaitResult::Ended(..) => left += 1,
            WaitResult::Running => {}
            WaitResult::NoChildren => return left,
        }
    }
}

/// Calls `act` for every child that the kernel lists; returns false if there is no list.
fn for_each_child(mut act: impl FnMut(pid_t)) -> bool {
    let Ok(list) = sys::open(c"/proc/thread-self/children", libc::O_RDONLY) else {
        return false;
    };
    // Parsed byte by byte: a forked child must not allocate, and a number may span two reads.
    let mut buffer = [0_u8; 1024];
    let mut number = 0;
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

fn send_report(report: RawFd, status: c_int, left: u32) -> ! {
    let mut bytes = [0; REPORT_BYTES];
    bytes[..4].copy_from_slice(&status.to_ne_bytes());
    bytes[4..].copy_from_slice(&left.to_ne_bytes());
    // Our process may have ended and no longer read it.
    let _: io::Result<()> = sys::write(report, &bytes);
    sys::exit(0)
}
