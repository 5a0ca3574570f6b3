//! Names the process that drives a session, so that another one on the same machine can tell whether it still lives.

use std::{fmt, fs, io, path::Path, sync::OnceLock};

/// A process: which machine since which start, which number, and when it began. Numbers are used again; beginnings are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pid: u32,
    began: u64,
    machine: String,
}

/// The name of this process, the same for as long as it lives.
pub(crate) fn this_process() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let pid = std::process::id();
        Holder {
            pid,
            began: began(pid).ok().flatten().unwrap_or(0),
            machine: machine(),
        }
        .to_string()
    })
}

impl Holder {
    /// Reads a name that a process gave itself.
    pub(crate) fn read(name: &str) -> Option<Self> {
        let (process, machine) = name.strip_prefix("process ")?.split_once(" of ")?;
        let (pid, began) = process.split_once('+')?;
        Some(Self {
            pid: pid.parse().ok()?,
            began: began.parse().ok()?,
            machine: machine.to_owned(),
        })
    }

    /// The process of a driver, by the name that the driver gave itself.
    pub(crate) fn of_driver(name: &str) -> Option<Self> {
        Self::read(name.split_once(" in ")?.1)
    }

    /// Whether the process is known to have ended. One on another machine never is.
    pub(crate) fn is_gone(&self) -> bool {
        let here = self.began != 0 && !self.machine.is_empty() && self.machine == machine();
        here && is_gone(
            self.began,
            began(self.pid),
            Path::new("/proc/1/stat").exists(),
        )
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}+{} of {}", self.pid, self.began, self.machine)
    }
}

/// This machine since it was last started. Nothing where that cannot be told: then leases have to run out.
///
/// Processes in another namespace have numbers of their own, so it is part of the name.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    match boot.trim() {
        "" => String::new(),
        boot => format!("{boot} {}", namespace.display()),
    }
}

/// Whether a process that began at `began` is gone, going by what stands under its number.
///
/// A machine may hide the processes of others, or not let them be read. Then nothing is known about them.
fn is_gone(began: u64, found: io::Result<Option<u64>>, sees_others: bool) -> bool {
    match found {
        Ok(found) => found != Some(began),
        Err(error) => error.kind() == io::ErrorKind::NotFound && sees_others,
    }
}

/// When a process began, in ticks since the machine started; nothing if only its remains are there.
fn began(pid: u32) -> io::Result<Option<u64>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program stands in parentheses and may hold anything.
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

    fn began_now(pid: u32) -> Option<u64> {
        began(pid).ok().flatten()
    }

    #[test]
    fn a_process_that_is_hidden_is_not_taken_for_one_that_ended() {
        let error = |kind: io::ErrorKind| Err(kind.into());
        assert!(!is_gone(7, error(io::ErrorKind::PermissionDenied), true));
        assert!(!is_gone(7, error(io::ErrorKind::InvalidData), true));
        assert!(!is_gone(7, error(io::ErrorKind::NotFound), false));
        assert!(is_gone(7, error(io::ErrorKind::NotFound), true));
        assert!(
            is_gone(7, Ok(None), false)
                && is_gone(7, Ok(Some(8)), false)
                && !is_gone(7, Ok(Some(7)), true)
        );
    }

    #[test]
    fn this_process_lives() {
        let me = Holder::read(this_process()).expect("reads back");
        assert_eq!(me.to_string(), this_process());
        assert!(!me.is_gone());
    }

    #[test]
    fn a_process_that_ended_is_gone_also_while_its_remains_are_there() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("starts");
        let holder = Holder {
            pid: child.id(),
            began: began_now(child.id()).expect("lives"),
            machine: machine(),
        };
        assert!(!holder.is_gone());
        child.kill().expect("is stopped");
        while began_now(child.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(holder.is_gone(), "not waited for yet");
        child.wait().expect("ends");
        assert!(holder.is_gone());
        let another = Holder {
            began: 1,
            pid: std::process::id(),
            machine: machine(),
        };
        assert!(
            another.is_gone(),
            "the number was given to another process since"
        );
    }

    #[test]
    fn nothing_is_said_about_other_machines_and_unreadable_names() {
        let far = Holder {
            pid: 1,
            began: 1,
            machine: "another".into(),
        };
        let unknown = Holder {
            pid: u32::MAX,
            began: 7,
            machine: String::new(),
        };
        assert!(!far.is_gone() && !unknown.is_gone());
        assert_eq!(
            (Holder::read("ann"), Holder::of_driver("ann")),
            (None, None)
        );
        assert!(Holder::of_driver(&format!("driver 3 in {}", this_process())).is_some());
    }
}
