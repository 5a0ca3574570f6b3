//! Names the process that drives a session, so that others can check whether it is still running,
//! and people can find it.

use std::{
    collections::HashSet,
    fmt, fs, io,
    path::Path,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use toolgate_core::Timestamp;

/// The driver that holds the lease of a session: a process, and its number in that process.
///
/// `Display` is for people, such as "process 4711 of ann on build-7, since 2026-11-17T22:01:05Z".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    driver: u64,
    process: HolderProcess,
    since: Option<Timestamp>,
}

/// A process: its machine and boot, its pid, and its start time. Pids are reused; start times are
/// not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HolderProcess {
    pid: u32,
    began: u64,
    machine: String,
    /// The names for people; empty in a name that an older version wrote.
    host: String,
    user: String,
}

/// The state of the process that holds a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderState {
    /// It runs on this machine.
    Running,
    /// It was stopped on this machine, such as with Ctrl-Z, and may continue.
    Stopped,
    /// It ran on this machine and has ended.
    Ended,
    /// It is on another machine, or cannot be seen from here.
    Unknown,
}

impl HolderState {
    /// Returns the text that people read; it follows "the process".
    pub const fn text(self) -> &'static str {
        match self {
            Self::Running => "is running",
            Self::Stopped => "is stopped",
            Self::Ended => "has ended",
            Self::Unknown => "is on another machine or cannot be seen from here",
        }
    }
}

impl LeaseHolder {
    /// Creates the name of a new driver in this process.
    pub(crate) fn for_driver(driver: u64, since: Timestamp) -> Self {
        Self {
            driver,
            process: HolderProcess::this().clone(),
            since: Some(since),
        }
    }

    /// Parses the name that a driver stored; nothing if it is not one of ours.
    pub fn parse(name: &str) -> Option<Self> {
        let (driver, rest) = name.strip_prefix("driver ")?.split_once(" in process ")?;
        let mut fields = rest.split("; ");
        let (process, machine) = fields.next()?.split_once(" of ")?;
        let (pid, began) = process.split_once('+')?;
        let mut found = Self {
            driver: driver.parse().ok()?,
            process: HolderProcess {
                pid: pid.parse().ok()?,
                began: began.parse().ok()?,
                machine: machine.to_owned(),
                host: String::new(),
                user: String::new(),
            },
            since: None,
        };
        for field in fields {
            match field.split_once('=') {
                Some(("host", host)) => found.process.host = host.to_owned(),
                Some(("user", user)) => found.process.user = user.to_owned(),
                Some(("since", since)) => {
                    found.since = since.parse().ok().map(Timestamp::from_micros);
                }
                _ => {}
            }
        }
        Some(found)
    }

    /// Returns the text under which a store keeps it.
    pub(crate) fn stored_name(&self) -> String {
        let HolderProcess {
            pid,
            began,
            machine,
            host,
            user,
        } = &self.process;
        let since = self.since.unwrap_or_default().as_micros();
        format!(
            "driver {} in process {pid}+{began} of {machine}; host={host}; user={user}; since={since}",
            self.driver
        )
    }

    /// Returns the id of the process.
    pub const fn process_id(&self) -> u32 {
        self.process.pid
    }

    /// Returns the state of the process, as far as it can be seen from here.
    pub fn state(&self) -> HolderState {
        if !self.process.is_here() {
            return HolderState::Unknown;
        }
        if self.process == *HolderProcess::this() {
            // A driver that was dropped before it could release its lease has ended.
            return if live_drivers().contains(&self.driver) {
                HolderState::Running
            } else {
                HolderState::Ended
            };
        }
        self.process.state()
    }

    /// Checks whether another driver may replace this one without being told to: it has ended, or it
    /// cannot be seen from here and its lease has expired.
    pub(crate) fn is_replaceable(&self, is_expired: bool) -> bool {
        match self.state() {
            HolderState::Running | HolderState::Stopped => false,
            HolderState::Ended => true,
            HolderState::Unknown => is_expired,
        }
    }
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HolderProcess {
            pid, host, user, ..
        } = &self.process;
        write!(f, "process {pid}")?;
        if !user.is_empty() {
            write!(f, " of {user}")?;
        }
        if !host.is_empty() {
            write!(f, " on {host}")?;
        }
        match self.since {
            Some(since) => write!(f, ", since {since}"),
            None => Ok(()),
        }
    }
}

/// Checks whether another driver may replace the holder of a lease without being told to: it has
/// ended, or it cannot be seen from here and its lease has expired.
pub fn is_holder_replaceable(holder: &str, is_expired: bool) -> bool {
    LeaseHolder::parse(holder).map_or(is_expired, |holder| holder.is_replaceable(is_expired))
}

/// Describes a lease holder for people. The stored name of a holder that is not one of ours means
/// nothing to them.
pub fn describe_holder(name: &str) -> String {
    LeaseHolder::parse(name).map_or_else(|| "another program".to_owned(), |it| it.to_string())
}

/// Returns the id of the process that a lease holder names, if it is one of ours.
pub fn holder_process_id(holder: &str) -> Option<u32> {
    LeaseHolder::parse(holder).map(|holder| holder.process_id())
}

/// The drivers of this process that have a lease.
fn live_drivers() -> MutexGuard<'static, HashSet<u64>> {
    static DRIVERS: OnceLock<Mutex<HashSet<u64>>> = OnceLock::new();
    let drivers = DRIVERS.get_or_init(Mutex::default);
    drivers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks a driver of this process as running until it is dropped.
#[derive(Debug)]
pub(crate) struct LiveDriver(u64);

impl LiveDriver {
    pub(crate) fn register(driver: u64) -> Self {
        live_drivers().insert(driver);
        Self(driver)
    }
}

impl Drop for LiveDriver {
    fn drop(&mut self) {
        live_drivers().remove(&self.0);
    }
}

impl HolderProcess {
    /// Returns this process, the same for as long as it runs.
    fn this() -> &'static Self {
        static THIS: OnceLock<HolderProcess> = OnceLock::new();
        THIS.get_or_init(|| {
            let pid = std::process::id();
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            Self {
                pid,
                began: process_stat(pid).map_or(0, |found| found.began),
                machine: machine_name(),
                host: plain_word(&host),
                user: plain_word(&user_name()),
            }
        })
    }

    /// Checks whether the process is on this machine, since its last boot.
    fn is_here(&self) -> bool {
        self.began != 0 && !self.machine.is_empty() && self.machine == machine_name()
    }

    fn state(&self) -> HolderState {
        let sees_others = Path::new("/proc/1/stat").exists();
        process_state(self.began, process_stat(self.pid), sees_others)
    }
}

/// Returns a word without the characters that separate the fields of a stored name.
fn plain_word(text: &str) -> String {
    let plain = |c: &char| !c.is_control() && !matches!(c, ';' | '=' | ' ');
    text.trim().chars().filter(plain).take(64).collect()
}

/// Returns the name of the user, or the number of the account.
fn user_name() -> String {
    let id = fs::metadata("/proc/self").map(|found| std::os::unix::fs::MetadataExt::uid(&found));
    let Ok(id) = id else { return String::new() };
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id.to_string()).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid-{id}"))
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

/// What the system reports about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessStat {
    /// The start time in ticks since boot; 0 for a zombie.
    began: u64,
    is_stopped: bool,
}

/// Returns the state of a process that began at `began`, by what was found under its pid.
fn process_state(began: u64, found: io::Result<ProcessStat>, sees_others: bool) -> HolderState {
    match found {
        Ok(found) if found.began != began => HolderState::Ended,
        Ok(found) if found.is_stopped => HolderState::Stopped,
        Ok(_) => HolderState::Running,
        // The system may hide the processes of other users. Then a missing entry says nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound && sees_others => HolderState::Ended,
        Err(_) => HolderState::Unknown,
    }
}

fn process_stat(pid: u32) -> io::Result<ProcessStat> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program is in parentheses and may contain anything.
    let mut fields = line
        .rsplit_once(')')
        .map_or("", |(_, fields)| fields)
        .split_whitespace();
    let state = fields.next();
    if matches!(state, Some("Z" | "X")) {
        return Ok(ProcessStat {
            began: 0,
            is_stopped: false,
        });
    }
    let ticks = fields.nth(18).and_then(|ticks| ticks.parse().ok());
    Ok(ProcessStat {
        began: ticks.ok_or(io::ErrorKind::InvalidData)?,
        is_stopped: matches!(state, Some("T" | "t")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn holder_of(child: &Child) -> LeaseHolder {
        let process = HolderProcess {
            pid: child.id(),
            began: process_stat(child.id()).expect("is running").began,
            ..HolderProcess::this().clone()
        };
        LeaseHolder {
            driver: 0,
            process,
            since: None,
        }
    }

    fn signal(child: &Child, name: &str) {
        let id = child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.expect("kill runs").success());
    }

    #[test]
    fn a_hidden_process_is_not_reported_as_ended() {
        let error = |kind: io::ErrorKind| Err(kind.into());
        let found = |began| {
            Ok(ProcessStat {
                began,
                is_stopped: false,
            })
        };
        let denied = error(io::ErrorKind::PermissionDenied);
        assert_eq!(process_state(7, denied, true), HolderState::Unknown);
        let invalid = error(io::ErrorKind::InvalidData);
        assert_eq!(process_state(7, invalid, true), HolderState::Unknown);
        let hidden = error(io::ErrorKind::NotFound);
        assert_eq!(process_state(7, hidden, false), HolderState::Unknown);
        let missing = error(io::ErrorKind::NotFound);
        assert_eq!(process_state(7, missing, true), HolderState::Ended);
        assert_eq!(process_state(7, found(0), false), HolderState::Ended);
        assert_eq!(process_state(7, found(8), false), HolderState::Ended);
        assert_eq!(process_state(7, found(7), true), HolderState::Running);
    }

    #[test]
    fn a_driver_of_this_process_runs_until_it_is_dropped() {
        let me = LeaseHolder::for_driver(u64::MAX, Timestamp::from_micros(5));
        assert_eq!(LeaseHolder::parse(&me.stored_name()), Some(me.clone()));
        let live = LiveDriver::register(u64::MAX);
        assert_eq!(me.state(), HolderState::Running);
        assert!(!me.is_replaceable(true), "not even after its lease expired");
        drop(live);
        assert_eq!(me.state(), HolderState::Ended);
        assert!(me.is_replaceable(false));
    }

    #[test]
    fn a_stopped_process_is_seen_and_keeps_its_lease() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("starts");
        let holder = holder_of(&child);
        assert_eq!(holder.state(), HolderState::Running);
        signal(&child, "-STOP");
        while holder.state() == HolderState::Running {
            std::thread::yield_now();
        }
        assert_eq!(holder.state(), HolderState::Stopped);
        assert!(!holder.is_replaceable(true));
        child.kill().expect("is killed");
        child.wait().expect("ends");
    }

    #[test]
    fn a_process_that_ended_is_seen_even_as_a_zombie() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("starts");
        let holder = holder_of(&child);
        child.kill().expect("is stopped");
        while holder.state() != HolderState::Ended {
            std::thread::yield_now();
        }
        assert!(holder.is_replaceable(false), "not waited for yet");
        child.wait().expect("ends");
        assert_eq!(holder.state(), HolderState::Ended);
    }

    #[test]
    fn a_holder_elsewhere_is_replaced_only_after_its_lease_expired() {
        let stored = "driver 3 in process 12+345 of another; host=build-7; user=ann; since=1000000";
        let far = LeaseHolder::parse(stored).expect("parses");
        assert_eq!(far.state(), HolderState::Unknown);
        assert!(far.is_replaceable(true) && !far.is_replaceable(false));
        assert_eq!(
            far.to_string(),
            "process 12 of ann on build-7, since 1970-01-01T00:00:01.000000Z"
        );
        assert_eq!(LeaseHolder::parse("ann"), None);
        assert_eq!(describe_holder("ann"), "another program");
    }

    #[test]
    fn the_name_of_an_older_version_is_understood() {
        let old = LeaseHolder::parse("driver 3 in process 12+345 of boot pid:[1]").expect("parses");
        assert_eq!(old.process_id(), 12);
        assert_eq!(old.process.machine, "boot pid:[1]");
        assert_eq!(old.to_string(), "process 12");
    }
}
