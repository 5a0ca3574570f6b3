//! Keeps a command in its place.

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

pub use kernel::{Kernel, Missing, Namespaces};

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub(crate) use linux::{Ended, Leash, Started};
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
pub(crate) use other::{Ended, Leash, Started};

use crate::ShellOptions;

/// What a command may do to the machine it runs on.
///
/// On Linux, and with nothing configured, a command
///
/// * writes below the workspace and in a temporary directory of its own (`$TMPDIR`, which also holds its `$HOME`), and
///   nowhere else;
/// * reads the system (`/usr`, `/lib`, parts of `/etc` without keys), the toolchains that `PATH`, `CARGO_HOME` and
///   `RUSTUP_HOME` lead to, and the workspace; not the rest of the home, not other people's files;
/// * has no network: no sockets of any kind but pairs that are connected to each other;
/// * can neither signal nor trace a process outside, and gains no privileges by running a program;
/// * is bounded in the size of each file it writes, in its processes, in its temporary directory, leaves no core
///   dumps, and if wanted is bounded in memory;
/// * ends with all it has started: nothing is left when the call is over, is cancelled, or when our own process dies.
///
/// It is held by Landlock (files, TCP, signals, abstract sockets), by filters of system calls (sockets, tracing,
/// mounts, namespaces, io_uring, keys, modules …; calls of other architectures end the process), and by namespaces
/// (processes, mounts, System V objects), in which everything but the workspace is mounted read-only. Where there are
/// no namespaces, a process of ours adopts and ends what a command leaves behind, and modes, owners and times of files
/// cannot be changed by path at all, so that some programs fail. What the kernel lacks is named, and nothing runs, unless the operator has chosen
/// [`SandboxMode::BestEffort`] or [`SandboxMode::Off`]; see [`Sandbox::check`]. Root has namespaces unless a container
/// takes that away; others have them where user namespaces are open to everybody, which some distributions restrict.
///
/// Of our environment a command is given `PATH`, the language, the terminal, the user and the time zone, the places of
/// Rust toolchains, and what the operator names; no keys.
///
/// What it does not do:
///
/// * A command may use up the disk of the workspace: each file is bounded, their number is not.
/// * Where there are no namespaces, the temporary directory and the number of processes are not bounded, the directory
///   stays behind if our own process is killed (the processes do not), and command lines of others can be read.
/// * Names, sizes and times of files outside can be seen, though not what is in them.
/// * What a command writes into the workspace may harm whoever runs it later outside: a hook of git, a build script.
/// * As root a command keeps the rights to any file of the workspace, whoever owns it, and no other privilege.
/// * With [`Network::On`] there is no telling where it connects to. UNIX sockets by path stay closed unless
///   `unix_sockets` is set: behind one of them may be a daemon that does anything for whoever asks.
/// * Time on the processor is bounded by the time limit of the call only.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) mode: SandboxMode,
    pub(crate) network: Network,
    unix_sockets: bool,
    root: PathBuf,
    writable: Vec<PathBuf>,
    readable: Vec<PathBuf>,
    variables: Vec<(OsString, OsString)>,
    limits: Limits,
    /// Another kernel than the one we run on.
    other_kernel: Option<Kernel>,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    file_bytes: u64,
    temp_bytes: u64,
    memory_bytes: Option<u64>,
    processes: u32,
}

/// What happens where the kernel cannot keep a command in its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Nothing runs.
    #[default]
    Required,
    /// It runs with whatever the kernel has, and the result says what that was.
    BestEffort,
    /// It runs with all the rights of our own process. It still ends with all it has started.
    Off,
}

/// What a command can reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Nothing.
    #[default]
    Off,
    /// A network of its own with nobody else on it, for tests that listen on 127.0.0.1.
    Loopback,
    /// Everything that our own process reaches by TCP and UDP.
    On,
}

/// What keeps a command in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Enforced {
    /// How it was chosen.
    pub mode: SandboxMode,
    /// The version of Landlock that watches over files, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landlock: Option<u32>,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// How it was given processes and mounts of its own.
    pub namespaces: Namespaces,
    /// What it can reach. It is everything where system calls are not filtered.
    pub network: Network,
    /// What the kernel lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// Why a command could not be put in its place, and so was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The kernel cannot keep a command in its place.
    #[error("this system cannot keep commands in a sandbox; it lacks {}", list(.missing))]
    Missing {
        /// What it lacks.
        missing: Vec<Missing>,
    },
    /// The workspace cannot be used.
    #[error("{} cannot be a workspace for commands: {reason}", path.display())]
    Workspace {
        /// Which directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A path of the configuration is not there.
    #[error("the sandbox cannot give access to {}", path.display())]
    Path {
        /// Which path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A path has a null in it.
    #[error("{path:?} is no path")]
    OddPath {
        /// Which path.
        path: PathBuf,
    },
    /// The rules could not be made.
    #[error("the rules of the sandbox could not be made")]
    Rules(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A step of the way into the sandbox failed, so nothing was run.
    #[error("the sandbox could not be set up: {step}")]
    Step {
        /// Which step.
        step: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program could not be started.
    #[error("the command could not be started")]
    Start(#[source] io::Error),
}

fn list(missing: &[Missing]) -> String {
    missing
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

impl Sandbox {
    /// A sandbox around the directory `root`.
    pub fn new(root: impl AsRef<Path>, options: &ShellOptions) -> Result<Self, SandboxError> {
        let root = workspace(root.as_ref())?;
        let mut writable = vec![root.clone()];
        writable.extend(configured(&options.write)?);
        let mut readable = configured(&options.read)?;
        readable.extend(paths::readable());
        let limits = Limits {
            file_bytes: options.file_bytes,
            temp_bytes: options.temp_bytes,
            memory_bytes: options.memory_bytes,
            processes: options.processes,
        };
        let (mode, network, unix_sockets) =
            (options.sandbox, options.network, options.unix_sockets);
        let variables = variables(options);
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

    /// What the kernel has, for whoever wants to know before anything is run.
    pub fn check() -> &'static Kernel {
        Kernel::here()
    }

    /// The same on a kernel that has no more than this, to see what would happen there.
    pub fn on(mut self, kernel: Kernel) -> Self {
        self.other_kernel = Some(kernel);
        self
    }

    // Found out when it is first needed, not when a tool is made: it takes a few processes.
    fn kernel(&self) -> &Kernel {
        self.other_kernel.as_ref().unwrap_or_else(|| Kernel::here())
    }

    /// The directory a command may change.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What will keep a command in its place; an error if that is not enough and nothing will run.
    pub fn enforced(&self) -> Result<Enforced, SandboxError> {
        let mode = self.mode;
        if mode == SandboxMode::Off {
            let (landlock, seccomp, namespaces, missing) =
                (None, false, Namespaces::None, Vec::new());
            return Ok(Enforced {
                mode,
                landlock,
                seccomp,
                namespaces,
                network: Network::On,
                missing,
            });
        }
        let kernel = self.kernel();
        let mut missing = kernel.missing();
        let mut network = self.network;
        if network == Network::Loopback && kernel.namespaces == Namespaces::None {
            missing.push(Missing::Loopback);
            network = Network::Off;
        }
        if mode == SandboxMode::Required && !missing.is_empty() {
            return Err(SandboxError::Missing { missing });
        }
        // Landlock alone refuses TCP and nothing else.
        if !kernel.seccomp {
            network = Network::On;
        }
        let landlock = Some(kernel.landlock).filter(|version| *version > 0);
        let (seccomp, namespaces) = (kernel.seccomp, kernel.namespaces);
        Ok(Enforced {
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
        // Of variables only the names: the operator may pass keys on.
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

fn workspace(root: &Path) -> Result<PathBuf, SandboxError> {
    let refused = |reason: String| SandboxError::Workspace {
        path: root.to_owned(),
        reason,
    };
    let real = root
        .canonicalize()
        .map_err(|error| refused(error.to_string()))?;
    if !real.is_dir() {
        return Err(refused("it is no directory".to_owned()));
    }
    if real.parent().is_none() {
        return Err(refused(
            "a command could change the whole system".to_owned(),
        ));
    }
    Ok(real)
}

/// Paths of the configuration, resolved; `~/` is the home.
fn configured(paths: &[PathBuf]) -> Result<Vec<PathBuf>, SandboxError> {
    let real = |path: &PathBuf| {
        let whole = match (path.strip_prefix("~"), paths::home()) {
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

/// What commands are told about their surroundings. No key of ours is among it.
fn variables(options: &ShellOptions) -> Vec<(OsString, OsString)> {
    const PASSED: [&str; 7] = ["PATH", "LANG", "LANGUAGE", "TERM", "USER", "LOGNAME", "TZ"];
    let passed = |name: &str| {
        PASSED.contains(&name)
            || name.starts_with("LC_")
            || options.env.iter().any(|wanted| wanted == name)
    };
    let mut variables: Vec<(OsString, OsString)> = env::vars_os()
        .filter(|(name, _)| name.to_str().is_some_and(passed))
        .collect();
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
