//! Builds the sandbox on Linux from its parts.

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

pub(crate) use child::{CommandEnd, CommandHandle, StartedCommand};

use self::{
    child::ChildPlan,
    mounts::{MountLayout, NamespaceMode, NamespaceSetup, SHARED_MEMORY},
    rules::{LandlockGrants, LandlockRules},
};
use super::{
    KernelFeatures, NetworkAccess, Sandbox, SandboxError, SandboxMode, acting_files::ActingFiles,
    kernel, paths,
};

/// The capabilities of a command as root: access to files of any owner. Landlock decides which files.
const FILE_CAPABILITIES: u64 = 1 << CHOWN | 1 << DAC_OVERRIDE | 1 << FOWNER | 1 << FSETID;
const CHOWN: u64 = 0;
const DAC_OVERRIDE: u64 = 1;
const FOWNER: u64 = 3;
const FSETID: u64 = 4;

/// The smallest `pid_max` that the kernel accepts for a namespace.
const MIN_PID_MAX: u32 = 302;

impl Sandbox {
    /// Starts a command. Its directory and its program must be absolute paths.
    ///
    /// # Errors
    ///
    /// Fails if the sandbox cannot be enforced or set up, or if the program cannot be started.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a command that starts meanwhile is killed.
    pub(crate) async fn start(
        &self,
        mut command: Command,
        cwd: &Path,
        acting: &ActingFiles,
    ) -> Result<StartedCommand, SandboxError> {
        let enforced = self.enforcement()?;
        let cwd = mounts::path_cstring(cwd)?;
        command.env_clear();
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let plan = match (enforced.mode, namespace_mode(enforced.namespaces)) {
            (SandboxMode::Off, _) => self.plan_unrestricted(&mut command, cwd)?,
            (_, Some(way)) => {
                self.plan_with_namespaces(&mut command, cwd, way, enforced.network, acting)?
            }
            (_, None) => self.plan_without_namespaces(&mut command, cwd, enforced.network)?,
        };
        child::start_command(command, plan).await
    }

    /// Builds the plan for a command with all the privileges of our own process.
    fn plan_unrestricted(
        &self,
        command: &mut Command,
        cwd: CString,
    ) -> Result<ChildPlan, SandboxError> {
        let temp = create_temp_dir()?;
        command.env("TMPDIR", temp.path());
        if let Some(home) = std::env::var_os("HOME") {
            command.env("HOME", home);
        }
        let limits = vec![(libc::RLIMIT_CORE, 0)];
        let filters = Vec::new();
        let temp = Some(temp);
        Ok(ChildPlan {
            namespaces: None,
            rules: None,
            filters,
            limits,
            capabilities: None,
            cwd,
            temp,
        })
    }

    /// Builds the plan for a command with its own process and mount namespaces.
    fn plan_with_namespaces(
        &self,
        command: &mut Command,
        cwd: CString,
        way: NamespaceMode,
        network: NetworkAccess,
        acting: &ActingFiles,
    ) -> Result<ChildPlan, SandboxError> {
        let temp = self.temp_mount_point();
        command
            .env("TMPDIR", &temp)
            .env_default("HOME", mounts::home_in(&temp));
        let layout = MountLayout {
            writable: &self.writable,
            readable: &self.readable,
            acting,
            blanked: &paths::blanked_paths(&self.readable),
            temp: &temp,
            temp_bytes: self.limits.temp_bytes,
            processes: self.limits.processes.max(MIN_PID_MAX),
            own_network: network == NetworkAccess::Loopback,
        };
        let namespaces = Some(NamespaceSetup::new(way, &layout)?);
        let version = self.kernel().landlock;
        let rules = self
            .landlock_rules(network, &self.writable, &self.readable)?
            .map(|rules| {
                // These mounts do not exist yet, so the child adds their rules after mounting.
                let temp = mounts::path_cstring(&temp).into_iter();
                let rules = temp.fold(rules, |rules, temp| rules.allow_late_write(version, temp));
                rules
                    .allow_late_read(version, c"/proc".into())
                    .allow_late_write(version, SHARED_MEMORY.into())
            });
        let filters = self.seccomp_filters(network, true)?;
        let mut limits = self.resource_limits();
        // Counted per user namespace. Root is exempt from it and limited by `pid_max` instead.
        limits.push((libc::RLIMIT_NPROC, self.limits.processes.into()));
        let capabilities = Some(FILE_CAPABILITIES);
        Ok(ChildPlan {
            namespaces,
            rules,
            filters,
            limits,
            capabilities,
            cwd,
            temp: None,
        })
    }

    /// Builds the plan for a command without namespaces.
    fn plan_without_namespaces(
        &self,
        command: &mut Command,
        cwd: CString,
        network: NetworkAccess,
    ) -> Result<ChildPlan, SandboxError> {
        let temp = create_temp_dir()?;
        let home = mounts::home_in(temp.path());
        std::fs::create_dir(&home).map_err(SandboxError::Start)?;
        command.env("TMPDIR", temp.path()).env_default("HOME", home);
        let mut writable = self.writable.clone();
        writable.push(temp.path().to_owned());
        let mut readable = self.readable.clone();
        readable.push("/proc".into());
        let rules = self.landlock_rules(network, &writable, &readable)?;
        // Best effort may allow changes of modes: more programs work, and no guarantee is given.
        let filters = self.seccomp_filters(network, self.mode == SandboxMode::BestEffort)?;
        let limits = self.resource_limits();
        let capabilities = Some(FILE_CAPABILITIES);
        Ok(ChildPlan {
            namespaces: None,
            rules,
            filters,
            limits,
            capabilities,
            cwd,
            temp: Some(temp),
        })
    }

    fn landlock_rules(
        &self,
        network: NetworkAccess,
        writable: &[PathBuf],
        readable: &[PathBuf],
    ) -> Result<Option<LandlockRules>, SandboxError> {
        let version = self.kernel().landlock;
        if version == 0 {
            return Ok(None);
        }
        let devices = paths::device_paths();
        let no_network = network == NetworkAccess::Off;
        let grants = LandlockGrants {
            version,
            writable,
            readable,
            devices: &devices,
            no_network,
        };
        LandlockRules::new(&grants)
            .map(Some)
            .map_err(|error| SandboxError::Rules(error.into()))
    }

    fn seccomp_filters(
        &self,
        network: NetworkAccess,
        mounts: bool,
    ) -> Result<Vec<seccompiler::BpfProgram>, SandboxError> {
        if !self.kernel().seccomp {
            return Ok(Vec::new());
        }
        let root = rustix::process::geteuid().is_root();
        let wanted = syscalls::FilterSettings {
            network,
            unix_sockets: self.unix_sockets,
            mounts,
            root,
        };
        syscalls::build_filters(wanted).map_err(|error| SandboxError::Rules(error.into()))
    }

    fn resource_limits(&self) -> Vec<(sys::RlimitResource, u64)> {
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

    /// Selects the mount point of the temporary directory: one that does not hide the workspace.
    fn temp_mount_point(&self) -> PathBuf {
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

/// Sets a variable unless the operator passes it on.
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

fn namespace_mode(namespaces: kernel::NamespaceSupport) -> Option<NamespaceMode> {
    match namespaces {
        kernel::NamespaceSupport::Privileged => Some(NamespaceMode::Privileged),
        kernel::NamespaceSupport::User => Some(NamespaceMode::User),
        kernel::NamespaceSupport::None => None,
    }
}

fn create_temp_dir() -> Result<tempfile::TempDir, SandboxError> {
    tempfile::Builder::new()
        .prefix("toolgate-")
        .tempdir()
        .map_err(SandboxError::Start)
}

/// Probes the features of the kernel.
pub(super) fn probe_kernel() -> KernelFeatures {
    // Namespaces are created as a trial: no setting tells reliably whether that is allowed.
    let works = |way: NamespaceMode| child::try_namespaces(way).is_ok();
    // Privileged ones first: a user namespace maps one user only, so root would lose its access to
    // the files of others.
    let namespaces = if works(NamespaceMode::Privileged) {
        kernel::NamespaceSupport::Privileged
    } else if works(NamespaceMode::User) {
        kernel::NamespaceSupport::User
    } else {
        kernel::NamespaceSupport::None
    };
    KernelFeatures {
        landlock: sys::landlock_version(),
        seccomp: sys::has_seccomp(),
        namespaces,
        children: Path::new("/proc/thread-self/children").exists(),
    }
}
