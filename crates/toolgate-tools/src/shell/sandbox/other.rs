//! Runs a command on systems without a sandbox: without restrictions, as a process group.

use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitStatus},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::oneshot;

use super::{Sandbox, SandboxError};

/// A command that was started.
#[derive(Debug)]
pub(crate) struct StartedCommand {
    /// The handle that stops it.
    pub(crate) leash: CommandHandle,
    /// Completes when it has ended.
    pub(crate) ended: oneshot::Receiver<CommandEnd>,
}

/// The end of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandEnd {
    /// The exit status of the shell.
    pub(crate) status: Option<ExitStatus>,
    /// The number of processes it left behind; not counted here.
    pub(crate) left: u32,
}

/// The handle that stops a command with its process group. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct CommandHandle(Arc<(Mutex<Option<Pid>>, Condvar)>);

impl CommandHandle {
    /// Asks all processes to terminate.
    pub(crate) fn terminate(&self) {
        self.send_signal(Signal::TERM);
    }

    /// Kills all processes.
    pub(crate) fn kill(&self) {
        self.send_signal(Signal::KILL);
    }

    /// Kills all processes and waits until the shell has ended; returns false after `most`.
    pub(crate) fn kill_and_wait(&self, most: Duration) -> bool {
        self.kill();
        let group = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .0
            .1
            .wait_timeout_while(group, most, |group| group.is_some());
        waited.is_ok_and(|(group, _)| group.is_none())
    }

    fn send_signal(&self, signal: Signal) {
        if let Some(group) = *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Sandbox {
    /// Starts a command. Its directory and its program must be absolute paths.
    ///
    /// # Errors
    ///
    /// Fails if the mode requires a sandbox, or if the program cannot be started.
    pub(crate) async fn start(
        &self,
        mut command: Command,
        cwd: &Path,
        _acting: &super::acting_files::ActingFiles,
    ) -> Result<StartedCommand, SandboxError> {
        self.enforcement()?;
        let temp = tempfile::Builder::new()
            .prefix("toolgate-")
            .tempdir()
            .map_err(SandboxError::Start)?;
        command
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
            .env("TMPDIR", temp.path())
            .current_dir(cwd)
            .process_group(0);
        if let Some(home) = std::env::var_os("HOME") {
            command.env("HOME", home);
        }
        let mut child = command.spawn().map_err(SandboxError::Start)?;
        drop(command);
        let leash = CommandHandle(Arc::new((
            Mutex::new(Some(Pid::from_child(&child))),
            Condvar::new(),
        )));
        let (tell, ended) = oneshot::channel();
        let watched = leash.clone();
        let watch = move || {
            let status = child.wait().ok();
            // The shell has ended; processes of its group may still run.
            watched.kill();
            // Cleared so that no later signal hits another group that reuses the number.
            *watched.0.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
            watched.0.1.notify_all();
            drop(temp);
            let _ = tell.send(CommandEnd { status, left: 0 });
        };
        let watching = thread::Builder::new()
            .name("run_shell".to_owned())
            .spawn(watch);
        watching.map_err(|error: io::Error| {
            leash.kill();
            SandboxError::Start(error)
        })?;
        Ok(StartedCommand { leash, ended })
    }
}
