//! Names the process that drives a session, so that another one on the same machine can check
//! whether it is still running.

use std::{fmt, fs, io, path::Path, sync::OnceLock};

/// A process: its machine and boot, its pid, and its start time. Pids are reused; start times are
/// not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseHolder {
    pid: u32,
    began: u64,
    machine: String,
}

/// Returns the name of this process, the same for as long as it runs.
pub(crate) fn this_process() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let pid = std::process::id();
        LeaseHolder {
            pid,
            began: process_start(pid).ok().flatten().unwrap_or(0),
            machine: machine_name(),
        }
        .to_string()
    })
}

/// Returns the id of the process that a lease holder names, if it is one of ours.
pub fn holder_process_id(holder: &str) -> Option<u32> {
    LeaseHolder::parse_driver(holder).map(|holder| holder.pid)
}

impl LeaseHolder {
    /// Parses a name that a process gave itself.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (process, machine) = name.strip_prefix("process ")?.split_once(" of ")?;
        let (pid, began) = process.split_once('+')?;
        Some(Self {
            pid: pid.parse().ok()?,
            began: began.parse().ok()?,
            machine: machine.to_owned(),
        })
    }

    /// Parses the process from the name that a driver gave itself.
    pub(crate) fn parse_driver(name: &str) -> Option<Self> {
        Self::parse(name.split_once(" in ")?.1)
    }

    /// Checks whether the process is known to have ended. A process on another machine never is.
    pub(crate) fn is_gone(&self) -> bool {
        let here = self.began != 0 && !self.machine.is_empty() && self.machine == machine_name();
        here && process_has_ended(
            self.began,
            process_start(self.pid),
            Path::new("/proc/1/stat").exists(),
        )
    }
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}+{} of {}", self.pid, self.began, self.machine)
    }
}

/// Returns the name of this machine since its last boot. It is empty where that is unknown: then
/// leases have to expire.
fn machine_name() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // Processes in another pid namespace have pids of their own, so the namespace is part of the
    // name.
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    match boot.trim() {
        "" => String::new(),
        boot => format!("{boot} {}", namespace.display()),
    }
}

/// Checks whether a process that began at `began` is gone, by what was found under its pid.
fn process_has_ended(began: u64, found: io::Result<Option<u64>>, sees_others: bool) -> bool {
    match found {
        Ok(found) => found != Some(began),
        // The system may hide the processes of other users. Then a missing entry says nothing.
        Err(error) => error.kind() == io::ErrorKind::NotFound && sees_others,
    }
}

/// Returns when a process began, in ticks since boot; nothing if it is a zombie.
fn process_start(pid: u32) -> io::Result<Option<u64>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program is in parentheses and may contain anything.
    let mut fields = line
        .rsplit_once(')')
        .map_or("", |(_, fields)| fields)
        .split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return Ok(None);
    }
    let ticks = fields.nth(18).and_then(|ticks| ticks.parse().ok());
    ticks
        .map(Some)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_of(pid: u32) -> Option<u64> {
        process_start(pid).ok().flatten()
    }

    #[test]
    fn a_hidden_process_is_not_reported_as_ended() {
        let error = |kind: io::ErrorKind| Err(kind.into());
        assert!(!process_has_ended(
            7,
            error(io::ErrorKind::PermissionDenied),
            true
        ));
        assert!(!process_has_ended(
            7,
            error(io::ErrorKind::InvalidData),
            true
        ));
        assert!(!process_has_ended(7, error(io::ErrorKind::NotFound), false));
        assert!(process_has_ended(7, error(io::ErrorKind::NotFound), true));
        assert!(
            process_has_ended(7, Ok(None), false)
                && process_has_ended(7, Ok(Some(8)), false)
                && !process_has_ended(7, Ok(Some(7)), true)
        );
    }

    #[test]
    fn this_process_is_running() {
        let me = LeaseHolder::parse(this_process()).expect("parses");
        assert_eq!(me.to_string(), this_process());
        assert!(!me.is_gone());
    }

    #[test]
    fn a_process_that_ended_is_gone_even_as_a_zombie() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("starts");
        let holder = LeaseHolder {
            pid: child.id(),
            began: start_of(child.id()).expect("is running"),
            machine: machine_name(),
        };
        assert!(!holder.is_gone());
        child.kill().expect("is stopped");
        while start_of(child.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(holder.is_gone(), "not waited for yet");
        child.wait().expect("ends");
        assert!(holder.is_gone());
        let another = LeaseHolder {
            began: 1,
            pid: std::process::id(),
            machine: machine_name(),
        };
        assert!(
            another.is_gone(),
            "the pid was given to another process since"
        );
    }

    #[test]
    fn processes_of_other_machines_and_unknown_names_are_never_reported_as_ended() {
        let far = LeaseHolder {
            pid: 1,
            began: 1,
            machine: "another".into(),
        };
        let unknown = LeaseHolder {
            pid: u32::MAX,
            began: 7,
            machine: String::new(),
        };
        assert!(!far.is_gone() && !unknown.is_gone());
        assert_eq!(
            (LeaseHolder::parse("ann"), LeaseHolder::parse_driver("ann")),
            (None, None)
        );
        assert!(LeaseHolder::parse_driver(&format!("driver 3 in {}", this_process())).is_some());
    }
}
