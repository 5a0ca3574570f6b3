//! Running a command where there is no sandbox: only with all rights, and as a group of processes.

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
pub(crate) struct Started {
    /// The way to end it.
    pub(crate) leash: Leash,
    /// Completes when it has ended.
    pub(crate) ended: oneshot::Receiver<Ended>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// How the shell ended.
    pub(crate) status: Option<ExitStatus>,
    /// How many processes it had left behind; nobody counts them here.
    pub(crate) left: u32,
}

/// The way to end a command with its group. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Leash(Arc<(Mutex<Option<Pid>>, Condvar)>);

impl Leash {
    /// Asks everything to end.
    pub(crate) fn ask(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends everything.
    pub(crate) fn end(&self) {
        self.signal(Signal::KILL);
    }

    /// Ends everything and waits until the shell has ended; false if that takes longer than `most`.
    pub(crate) fn end_and_wait(&self, most: Duration) -> bool {
        self.end();
        let group = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .0
            .1
            .wait_timeout_while(group, most, |group| group.is_some());
        waited.is_ok_and(|(group, _)| group.is_none())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Sandbox {
    /// Starts a command. Its directory and the program have to be absolute.
    pub(crate) async fn start(
        &self,
        mut command: Command,
        cwd: &Path,
    ) -> Result<Started, SandboxError> {
        self.enforced()?;
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
        let leash = Leash(Arc::new((
            Mutex::new(Some(Pid::from_child(&child))),
            Condvar::new(),
        )));
        let (tell, ended) = oneshot::channel();
        let watched = leash.clone();
        let watch = move || {
            let status = child.wait().ok();
            watched.end();
            *watched.0.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
            watched.0.1.notify_all();
            drop(temp);
            let _ = tell.send(Ended { status, left: 0 });
        };
        let watching = thread::Builder::new()
            .name("run_shell".to_owned())
            .spawn(watch);
        watching.map_err(|error: io::Error| {
            leash.end();
            SandboxError::Start(error)
        })?;
        Ok(Started { leash, ended })
    }
}
