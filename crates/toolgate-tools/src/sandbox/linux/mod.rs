//! Puts the parts of the sandbox together on Linux.

mod child;
mod guard;
mod mounts;
mod rules;
mod sys;
mod syscalls;

use std::{
    ffi::CString,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) use child::{Ended, Leash, Started};

use self::{
    child::Plan,
    mounts::{Layout, Namespaces, SHARED_MEMORY, Way},
    rules::{Grants, Rules},
};
use super::{Kernel, Network, Sandbox, SandboxError, SandboxMode, kernel, paths};

/// What a command as root keeps: the rights to files, whoever owns them. Landlock decides which files.
const FILE_CAPABILITIES: u64 = 1 << CHOWN | 1 << DAC_OVERRIDE | 1 << FOWNER | 1 << FSETID;
const CHOWN: u64 = 0;
const DAC_OVERRIDE: u64 = 1;
const FOWNER: u64 = 3;
const FSETID: u64 = 4;

/// The kernel takes no smaller number as the highest of a namespace.
const LEAST_PROCESSES: u32 = 302;

impl Sandbox {
    /// Starts a command. Its directory and the program have to be absolute.
    pub(crate) async fn start(
        &self,
        mut command: Command,
        cwd: &Path,
    ) -> Result<Started, SandboxError> {
        let enforced = self.enforced()?;
        let cwd = mounts::path_text(cwd)?;
        command.env_clear();
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let plan = match (enforced.mode, way(enforced.namespaces)) {
            (SandboxMode::Off, _) => self.free(&mut command, cwd)?,
            (_, Some(way)) => self.apart(&mut command, cwd, way, enforced.network)?,
            (_, None) => self.among_others(&mut command, cwd, enforced.network)?,
        };
        child::start(command, plan).await
    }

    /// With all the rights of our own process.
    fn free(&self, command: &mut Command, cwd: CString) -> Result<Plan, SandboxError> {
        let temp = private_dir()?;
        command.env("TMPDIR", temp.path());
        if let Some(home) = std::env::var_os("HOME") {
            command.env("HOME", home);
        }
        let limits = vec![(libc::RLIMIT_CORE, 0)];
        let (filters, temp) = (Vec::new(), Some(temp));
        Ok(Plan {
            namespaces: None,
            rules: None,
            filters,
            limits,
            capabilities: None,
            cwd,
            temp,
        })
    }

    /// With processes and mounts of its own.
    fn apart(
        &self,
        command: &mut Command,
        cwd: CString,
        way: Way,
        network: Network,
    ) -> Result<Plan, SandboxError> {
        let temp = self.temp_point();
        command
            .env("TMPDIR", &temp)
            .env_default("HOME", mounts::home_in(&temp));
        let layout = Layout {
            writable: &self.writable,
            readable: &self.readable,
            temp: &temp,
            temp_bytes: self.limits.temp_bytes,
            processes: self.limits.processes.max(LEAST_PROCESSES),
            own_network: network == Network::Loopback,
        };
        let namespaces = Some(Namespaces::new(way, &layout)?);
        let version = self.kernel().landlock;
        let rules = self
            .rules(network, &self.writable, &self.readable)?
            .map(|rules| {
                let temp = mounts::path_text(&temp).into_iter();
                let rules = temp.fold(rules, |rules, temp| rules.late_write(version, temp));
                rules
                    .late_read(version, c"/proc".into())
                    .late_write(version, SHARED_MEMORY.into())
            });
        let filters = self.filters(network, true)?;
        let mut limits = self.limits();
        // Counted anew in a user namespace; root is not bound by it, but by the numbers there are for processes.
        limits.push((libc::RLIMIT_NPROC, self.limits.processes.into()));
        let capabilities = Some(FILE_CAPABILITIES);
        Ok(Plan {
            namespaces,
            rules,
            filters,
            limits,
            capabilities,
            cwd,
            temp: None,
        })
    }

    /// Where there are no namespaces.
    fn among_others(
        &self,
        command: &mut Command,
        cwd: CString,
        network: Network,
    ) -> Result<Plan, SandboxError> {
        let temp = private_dir()?;
        let home = mounts::home_in(temp.path());
        std::fs::create_dir(&home).map_err(SandboxError::Start)?;
        command.env("TMPDIR", temp.path()).env_default("HOME", home);
        let mut writable = self.writable.clone();
        writable.push(temp.path().to_owned());
        let mut readable = self.readable.clone();
        readable.push("/proc".into());
        let rules = self.rules(network, &writable, &readable)?;
        // In a sandbox that need not hold, more programs work if they may change modes.
        let filters = self.filters(network, self.mode == SandboxMode::BestEffort)?;
        let (limits, capabilities) = (self.limits(), Some(FILE_CAPABILITIES));
        Ok(Plan {
            namespaces: None,
            rules,
            filters,
            limits,
            capabilities,
            cwd,
            temp: Some(temp),
        })
    }

    fn rules(
        &self,
        network: Network,
        writable: &[PathBuf],
        readable: &[PathBuf],
    ) -> Result<Option<Rules>, SandboxError> {
        let version = self.kernel().landlock;
        if version == 0 {
            return Ok(None);
        }
        let (devices, no_network) = (paths::devices(), network == Network::Off);
        let grants = Grants {
            version,
            writable,
            readable,
            devices: &devices,
            no_network,
        };
        Rules::new(&grants)
            .map(Some)
            .map_err(|error| SandboxError::Rules(error.into()))
    }

    fn filters(
        &self,
        network: Network,
        mounts: bool,
    ) -> Result<Vec<seccompiler::BpfProgram>, SandboxError> {
        if !self.kernel().seccomp {
            return Ok(Vec::new());
        }
        let root = rustix::process::geteuid().is_root();
        let wanted = syscalls::Wanted {
            network,
            unix_sockets: self.unix_sockets,
            mounts,
            root,
        };
        syscalls::filters(wanted).map_err(|error| SandboxError::Rules(error.into()))
    }

    fn limits(&self) -> Vec<(sys::Resource, u64)> {
        let mut limits = vec![
            (libc::RLIMIT_CORE, 0),
            (libc::RLIMIT_FSIZE, self.limits.file_bytes),
        ];
        limits.extend(
            self.limits
                .memory_bytes
                .map(|bytes| (libc::RLIMIT_AS, bytes)),
        );
        limits
    }

    /// Where the temporary directory is mounted: where it hides no workspace.
    fn temp_point(&self) -> PathBuf {
        let places = ["/tmp", "/var/tmp", "/run", "/mnt"].map(PathBuf::from);
        let free = |place: &PathBuf| {
            let real = place
                .canonicalize()
                .is_ok_and(|real| real == *place && real.is_dir());
            real && !self.writable.iter().any(|path| place.starts_with(path))
        };
        places
            .into_iter()
            .find(free)
            .unwrap_or_else(|| "/tmp".into())
    }
}

/// Sets a variable unless the operator has it passed on.
trait EnvDefault {
    fn env_default(&mut self, name: &str, value: PathBuf) -> &mut Self;
}

impl EnvDefault for Command {
    fn env_default(&mut self, name: &str, value: PathBuf) -> &mut Self {
        let is_set = self
            .get_envs()
            .any(|(set, value)| set == name && value.is_some());
        if is_set { self } else { self.env(name, value) }
    }
}

fn way(namespaces: kernel::Namespaces) -> Option<Way> {
    match namespaces {
        kernel::Namespaces::Privileged => Some(Way::Privileged),
        kernel::Namespaces::User => Some(Way::User),
        kernel::Namespaces::None => None,
    }
}

fn private_dir() -> Result<tempfile::TempDir, SandboxError> {
    tempfile::Builder::new()
        .prefix("toolgate-")
        .tempdir()
        .map_err(SandboxError::Start)
}

/// Looks what the kernel has, by trying where there is no other way.
pub(super) fn look() -> Kernel {
    let works = |way: Way| child::try_namespaces(way).is_ok();
    let namespaces = match () {
        () if works(Way::Privileged) => kernel::Namespaces::Privileged,
        () if works(Way::User) => kernel::Namespaces::User,
        () => kernel::Namespaces::None,
    };
    Kernel {
        landlock: sys::landlock_version(),
        seccomp: sys::has_seccomp(),
        namespaces,
        children: Path::new("/proc/thread-self/children").exists(),
    }
}
