//! Confines a command: files, network, processes and resources.

pub(crate) mod acting_files;
mod kernel;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod linux;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod other;
mod paths;

use std::{
    env,
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use kernel::{KernelFeatures, MissingFeature, NamespaceSupport};

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub(crate) use linux::{CommandEnd, CommandHandle, StartedCommand};
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
pub(crate) use other::{CommandEnd, CommandHandle, StartedCommand};

use crate::{ShellOptions, shell::sandbox::acting_files::ActingFiles};

/// The restrictions on what a command may do to the machine it runs on.
///
/// On Linux, by default, a command
///
/// * writes below the workspace and in a temporary directory of its own (`$TMPDIR`, which also
///   holds its `$HOME`), and nowhere else; files of the workspace that act later ([`acting_file`]:
///   the configuration and hooks of git, workflows, `AGENTS.md` …) are read-only, unless the
///   approved call unlocks them;
/// * reads the system (`/usr`, `/lib`, parts of `/etc` without keys), the toolchains that `PATH`,
///   `CARGO_HOME` and `RUSTUP_HOME` lead to, and the workspace; not the rest of the home directory
///   and not the files of other users;
/// * has no network: no sockets of any kind except connected pairs;
/// * can neither signal nor trace a process outside, and gains no privileges by running a program;
/// * is limited in the size of each file it writes, in its processes and in its temporary
///   directory, leaves no core dumps, and has an optional memory limit;
/// * ends together with every process it has started: none is left when the call has ended or is
///   cancelled, or when our own process dies.
///
/// These restrictions are enforced by Landlock (files, TCP, signals, abstract sockets), by seccomp
/// filters (sockets, tracing, mounts, namespaces, io_uring, keys, modules …; calls of other
/// architectures kill the process), and by namespaces (processes, mounts, System V objects), in
/// which everything except the workspace is mounted read-only. Where there are no namespaces, a
/// guard process adopts and kills what a command leaves behind. Modes, owners and times of files
/// then cannot be changed by path at all, so some programs fail.
///
/// If the kernel lacks a feature, the error names it and nothing runs, unless the operator has
/// chosen [`SandboxMode::BestEffort`] or [`SandboxMode::Off`]; see [`Sandbox::check`]. Root has
/// namespaces unless a container prevents it. Other users have them where unprivileged user
/// namespaces are enabled, which some distributions restrict.
///
/// From our environment a command gets `PATH`, the language, the terminal, the user and the time
/// zone, the locations of Rust toolchains, and the variables that the operator names; no keys.
///
/// Limits:
///
/// * A command may fill the disk of the workspace: the size of each file is limited, their number is
///   not.
/// * Where there are no namespaces, the temporary directory and the number of processes are not
///   limited, the directory stays behind if our own process is killed (the processes do not), and
///   command lines of other processes can be read.
/// * Names, sizes and times of files outside can be seen, but not their contents.
/// * A file that a command writes into the workspace may do harm when it is run outside later, such
///   as a build script. Of the files that act later, the ones that exist are read-only where there
///   are namespaces. New ones can be created, and without namespaces they can be changed: the
///   result of the command lists them.
/// * A search for these files reads 10,000 directory entries, those near the root first.
/// * As root a command can access any file of the workspace, regardless of its owner, and has no
///   other privilege.
/// * With [`NetworkAccess::On`] connections are not restricted to hosts. UNIX sockets with a path stay
///   closed unless `unix_sockets` is set: a daemon behind one may do anything for any client.
/// * Processor time is limited only by the time limit of the call.
///
/// [`acting_file`]: toolgate_core::acting_file
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) mode: SandboxMode,
    pub(crate) network: NetworkAccess,
    unix_sockets: bool,
    root: PathBuf,
    writable: Vec<PathBuf>,
    readable: Vec<PathBuf>,
    variables: Vec<(OsString, OsString)>,
    limits: SandboxLimits,
    /// The features to assume instead of those of the running kernel.
    other_kernel: Option<KernelFeatures>,
}

#[derive(Debug, Clone, Copy)]
struct SandboxLimits {
    file_bytes: u64,
    temp_bytes: u64,
    memory_bytes: Option<u64>,
    processes: u32,
}

/// The behavior if the kernel cannot enforce the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// The command does not run.
    #[default]
    Required,
    /// The command runs with the restrictions that are available; the result lists them.
    BestEffort,
    /// The command runs with all the privileges of our own process. Its processes still end with it.
    Off,
}

/// The network access of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkAccess {
    /// No network.
    #[default]
    Off,
    /// A private loopback network, for tests that listen on 127.0.0.1.
    Loopback,
    /// Everything that our own process can reach by TCP and UDP.
    On,
}

/// The restrictions that are enforced on a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SandboxEnforcement {
    /// The configured mode.
    pub mode: SandboxMode,
    /// The version of Landlock that restricts files, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landlock: Option<u32>,
    /// True if system calls are filtered.
    pub seccomp: bool,
    /// The kind of namespaces that isolate its processes and mounts.
    pub namespaces: NamespaceSupport,
    /// The network access. Without filters of system calls it is not restricted.
    pub network: NetworkAccess,
    /// The features that the kernel lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingFeature>,
}

/// The reason a command was not run because the sandbox could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The kernel cannot enforce the sandbox.
    #[error("this system cannot sandbox commands; it lacks {}", join_missing(.missing))]
    Missing {
        /// The missing features.
        missing: Vec<MissingFeature>,
    },
    /// The workspace cannot be used.
    #[error("{} cannot be a workspace for commands: {reason}", path.display())]
    Workspace {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A path of the configuration does not exist or is not accessible.
    #[error("the sandbox cannot give access to {}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A path contains a NUL byte.
    #[error("{path:?} is not a valid path")]
    OddPath {
        /// The path.
        path: PathBuf,
    },
    /// The rules could not be built.
    #[error("the rules of the sandbox could not be built")]
    Rules(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A step of the setup failed, so nothing was run.
    #[error("the sandbox could not be set up: {step}")]
    Step {
        /// The failed step.
        step: &'static str,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The program could not be started.
    #[error("the command could not be started")]
    Start(#[source] io::Error),
}

fn join_missing(missing: &[MissingFeature]) -> String {
    missing
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

impl Sandbox {
    /// Creates a sandbox around the directory `root`.
    ///
    /// # Errors
    ///
    /// Fails if `root` cannot be a workspace, or if a configured path does not exist.
    pub fn new(root: impl AsRef<Path>, options: &ShellOptions) -> Result<Self, SandboxError> {
        let root = resolve_workspace(root.as_ref())?;
        let mut writable = vec![root.clone()];
        writable.extend(resolve_configured(&options.write)?);
        let mut readable = resolve_configured(&options.read)?;
        readable.extend(paths::readable_paths());
        let limits = SandboxLimits {
            file_bytes: options.file_bytes,
            temp_bytes: options.temp_bytes,
            memory_bytes: options.memory_bytes,
            processes: options.processes,
        };
        let mode = options.sandbox;
        let network = options.network;
        let unix_sockets = options.unix_sockets;
        let variables = select_variables(options);
        Ok(Self {
            mode,
            network,
            unix_sockets,
            root,
            writable,
            readable,
            variables,
            limits,
            other_kernel: None,
        })
    }

    /// Returns the sandbox features of the running kernel, before anything is run.
    pub fn check() -> &'static KernelFeatures {
        KernelFeatures::current()
    }

    /// Assumes the features of `kernel` instead of the running one, to see what would happen there.
    pub fn assuming_kernel(mut self, kernel: KernelFeatures) -> Self {
        self.other_kernel = Some(kernel);
        self
    }

    // Probed when it is first needed, not when a tool is created: probing starts a few processes.
    fn kernel(&self) -> &KernelFeatures {
        self.other_kernel
            .as_ref()
            .unwrap_or_else(|| KernelFeatures::current())
    }

    /// Returns the directory that a command may change.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the paths that a command may read, with their contents and links resolved: those that
    /// it may write, the system and the toolchains.
    pub fn readable_paths(&self) -> impl Iterator<Item = &Path> {
        self.writable
            .iter()
            .chain(&self.readable)
            .map(PathBuf::as_path)
    }

    /// Finds the files that act later, except the ones that a call unlocks.
    pub(crate) fn find_acting_files(&self, unlocked: &[PathBuf]) -> ActingFiles {
        ActingFiles::find_in(&self.writable, unlocked)
    }

    /// Returns the restrictions that will be enforced on a command.
    ///
    /// # Errors
    ///
    /// Fails in [`SandboxMode::Required`] if the kernel lacks a feature; nothing runs then.
    pub fn enforcement(&self) -> Result<SandboxEnforcement, SandboxError> {
        let mode = self.mode;
        if mode == SandboxMode::Off {
            let landlock = None;
            let seccomp = false;
            let namespaces = NamespaceSupport::None;
            let missing = Vec::new();
            return Ok(SandboxEnforcement {
                mode,
                landlock,
                seccomp,
                namespaces,
                network: NetworkAccess::On,
                missing,
            });
        }
        let kernel = self.kernel();
        let mut missing = kernel.missing_features();
        let mut network = self.network;
        if network == NetworkAccess::Loopback && kernel.namespaces == NamespaceSupport::None {
            missing.push(MissingFeature::Loopback);
            // Fails closed: without a private network the command gets none, not the real one.
            network = NetworkAccess::Off;
        }
        if mode == SandboxMode::Required && !missing.is_empty() {
            return Err(SandboxError::Missing { missing });
        }
        // Landlock alone blocks TCP and no other protocol, so the network counts as open.
        if !kernel.seccomp {
            network = NetworkAccess::On;
        }
        let landlock = Some(kernel.landlock).filter(|version| *version > 0);
        let seccomp = kernel.seccomp;
        let namespaces = kernel.namespaces;
        Ok(SandboxEnforcement {
            mode,
            landlock,
            seccomp,
            namespaces,
            network,
            missing,
        })
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the names of variables: their values may be keys that the operator passes on.
        let names: Vec<_> = self.variables.iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("Sandbox");
        shown
            .field("mode", &self.mode)
            .field("network", &self.network)
            .field("root", &self.root);
        shown
            .field("writable", &self.writable)
            .field("variables", &names)
            .field("limits", &self.limits);
        shown.finish_non_exhaustive()
    }
}

fn resolve_workspace(root: &Path) -> Result<PathBuf, SandboxError> {
    let refused = |reason: String| SandboxError::Workspace {
        path: root.to_owned(),
        reason,
    };
    let real = root
        .canonicalize()
        .map_err(|error| refused(error.to_string()))?;
    if !real.is_dir() {
        return Err(refused("it is not a directory".to_owned()));
    }
    if real.parent().is_none() {
        return Err(refused(
            "a command could change the whole system".to_owned(),
        ));
    }
    Ok(real)
}

/// Resolves the paths of the configuration; `~/` is the home directory.
fn resolve_configured(paths: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    let real = |path: &PathBuf| {
        let whole = match (path.strip_prefix("~"), paths::home_dir()) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.clone(),
        };
        whole.canonicalize().map_err(|source| SandboxError::Path {
            path: path.clone(),
            source,
        })
    };
    paths.iter().map(real).collect()
}

/// Selects the environment variables of commands. Only listed names pass, so no key of ours does.
fn select_variables(options: &ShellOptions) -> Vec<(OsString, OsString)> {
    const PASSED: [&str; 7] = ["PATH", "LANG", "LANGUAGE", "TERM", "USER", "LOGNAME", "TZ"];
    let passed = |name: &str| {
        PASSED.contains(&name)
            || name.starts_with("LC_")
            || options.env.iter().any(|wanted| wanted == name)
    };
    let mut variables: Vec<(OsString, OsString)> = env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(passed))
        .collect();
    // `$HOME` of a command is a temporary directory, where no toolchain would be found.
    let toolchains = [
        ("CARGO_HOME", paths::cargo_home()),
        ("RUSTUP_HOME", paths::rustup_home()),
    ];
    let given = toolchains
        .into_iter()
        .filter_map(|(name, place)| Some((name.into(), place?.into_os_string())));
    variables.extend(given);
    variables
}
