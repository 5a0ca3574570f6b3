//! What can be set about running commands.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Network, SandboxMode};

/// What can be set about running commands. Sizes are in bytes, times in milliseconds.
///
/// ```
/// # use toolgate_tools::{Network, ShellOptions};
/// let options: ShellOptions = serde_json::from_value(serde_json::json!({ "network": "loopback" }))?;
/// assert_eq!(options.network, Network::Loopback);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShellOptions {
    /// What happens where the kernel cannot keep a command in its place.
    pub sandbox: SandboxMode,
    /// What commands can reach.
    pub network: Network,
    /// Whether commands may use UNIX sockets that are found by path. Behind one may be a daemon that does anything.
    pub unix_sockets: bool,
    /// What commands may read beside the system, the toolchains and the workspace; `~/` is the home.
    pub read: Vec<PathBuf>,
    /// What commands may write beside the workspace.
    pub write: Vec<PathBuf>,
    /// Names of variables that commands are given beside the usual ones.
    pub env: Vec<String>,
    /// The shell that reads commands.
    pub shell: PathBuf,
    /// How long a command may take if the model says nothing.
    pub timeout_ms: u64,
    /// How long a command may take at most, whatever the model says.
    pub longest_timeout_ms: u64,
    /// How long a command may take to end after it was asked to.
    pub grace_ms: u64,
    /// How much of the output is kept: half of it from the beginning, half from the end.
    pub output_bytes: usize,
    /// How large a file may become.
    pub file_bytes: u64,
    /// How large the temporary directory may become, where there are namespaces.
    pub temp_bytes: u64,
    /// How much memory each process may have; no limit if nothing is said.
    pub memory_bytes: Option<u64>,
    /// How many processes and threads there may be at once, where there are namespaces.
    pub processes: u32,
}

impl Default for ShellOptions {
    fn default() -> Self {
        Self {
            sandbox: SandboxMode::default(),
            network: Network::default(),
            unix_sockets: false,
            read: Vec::new(),
            write: Vec::new(),
            env: Vec::new(),
            shell: "/bin/sh".into(),
            timeout_ms: 110_000,
            longest_timeout_ms: 600_000,
            grace_ms: 500,
            output_bytes: 64 * 1024,
            file_bytes: 2 << 30,
            temp_bytes: 1 << 30,
            memory_bytes: None,
            processes: 2048,
        }
    }
}
