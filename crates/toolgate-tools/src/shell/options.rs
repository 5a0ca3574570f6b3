//! The settings for running commands.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::HumanDuration;

use crate::{NetworkAccess, SandboxMode};

/// The settings for running commands. Sizes are in bytes.
///
/// ```
/// # use toolgate_tools::{NetworkAccess, ShellOptions};
/// let options: ShellOptions = serde_json::from_value(serde_json::json!({ "network": "loopback" }))?;
/// assert_eq!(options.network, NetworkAccess::Loopback);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShellOptions {
    /// The behavior if the kernel cannot enforce the sandbox.
    pub sandbox: SandboxMode,
    /// The network access of commands.
    pub network: NetworkAccess,
    /// True if commands may use UNIX sockets with a path. A daemon behind one may have any privilege.
    pub unix_sockets: bool,
    /// Paths that commands may read in addition to the system, the toolchains and the workspace;
    /// `~/` is the home directory.
    pub read: Vec<PathBuf>,
    /// Paths that commands may write in addition to the workspace.
    pub write: Vec<PathBuf>,
    /// Names of environment variables that are passed to commands in addition to the default ones.
    pub env: Vec<String>,
    /// The shell that runs commands.
    pub shell: PathBuf,
    /// The time limit of a command if the model sets none.
    pub timeout: HumanDuration,
    /// The longest time limit that the model can set.
    pub longest_timeout: HumanDuration,
    /// The time between asking a command to terminate and killing it.
    pub grace: HumanDuration,
    /// The amount of output that is returned: half from the beginning, half from the end.
    pub output_bytes: usize,
    /// The largest size of a file that a command writes.
    pub file_bytes: u64,
    /// The largest size of the temporary directory, where there are namespaces.
    pub temp_bytes: u64,
    /// The memory limit of each process; no limit by default.
    pub memory_bytes: Option<u64>,
    /// The most processes and threads at once, where there are namespaces.
    pub processes: u32,
}

impl Default for ShellOptions {
    fn default() -> Self {
        Self {
            sandbox: SandboxMode::default(),
            network: NetworkAccess::default(),
            unix_sockets: false,
            read: Vec::new(),
            write: Vec::new(),
            env: Vec::new(),
            shell: "/bin/sh".into(),
            timeout: HumanDuration::from_secs(110),
            longest_timeout: HumanDuration::from_secs(600),
            grace: HumanDuration::from_millis(500),
            output_bytes: 64 * 1024,
            file_bytes: 2 << 30,
            temp_bytes: 1 << 30,
            memory_bytes: None,
            processes: 2048,
        }
    }
}
