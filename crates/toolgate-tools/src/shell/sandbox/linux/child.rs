//! Starts a command in the sandbox, and waits until all of its processes have ended.

use std::{
    ffi::CString,
    io::{self, PipeReader, Read},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Command, ExitStatus},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use seccompiler::BpfProgram;
use tokio::sync::oneshot;

use super::{
    super::{SandboxError, acting_files::ActingFiles},
    guard::{self, REPORT_BYTES},
    mounts::{MountLayout, NamespaceMode, NamespaceSetup},
    rules::LandlockRules,
    sys::{self, ForkSide},
};

/// The setup of a child before it runs its program, built before the fork.
pub(super) struct ChildPlan {
    pub(super) namespaces: Option<NamespaceSetup>,
    pub(super) rules: Option<LandlockRules>,
    pub(super) filters: Vec<BpfProgram>,
    pub(super) limits: Vec<(sys::RlimitResource, u64)>,
    /// The capabilities that are kept; `None` keeps all of them.
    pub(super) capabilities: Option<u64>,
    pub(super) cwd: CString,
    /// A directory that is deleted when the command has ended.
    pub(super) temp: Option<tempfile::TempDir>,
}

/// A step of the setup, to report which one failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum SetupStep {
    Guard = 1,
    Namespaces,
    Mounts,
    Directory,
    Limits,
    Landlock,
    Filters,
}

impl SetupStep {
    const ALL: [Self; 7] = [
        Self::Guard,
        Self::Namespaces,
        Self::Mounts,
        Self::Directory,
        Self::Limits,
        Self::Landlock,
        Self::Filters,
    ];

    const fn description(self) -> &'static str {
        match self {
            Self::Guard => "the guard process",
            Self::Namespaces => "creating namespaces",
            Self::Mounts => "mounting everything else read-only",
            Self::Directory => "changing the directory",
            Self::Limits => "setting limits",
            Self::Landlock => "the Landlock rules",
            Self::Filters => "the system call filters",
        }
    }
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct StartedCommand {
    /// The handle that stops it.
    pub(crate) leash: CommandHandle,
    /// Completes when none of its processes is left.
    pub(crate) ended: oneshot::Receiver<CommandEnd>,
}

/// The end of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandEnd {
    /// The exit status of the shell; `None` if it was killed together with the guard.
    pub(crate) status: Option<ExitStatus>,
    /// The number of processes it left behind, which were killed.
    pub(crate) left: u32,
}

/// The handle that stops a command with all its processes. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct CommandHandle(Arc<OwnedFd>);

impl CommandHandle {
    /// Asks all processes to terminate.
    pub(crate) fn terminate(&self) {
        // Fails if it has ended, which is fine. A pidfd never names another process.
        let _ = pidfd_send_signal(&self.0, Signal::TERM);
    }

    /// Kills all processes. The last one is gone when [`StartedCommand::ended`] completes.
    pub(crate) fn kill(&self) {
        // Not SIGKILL, which would end the guard first and could leave its processes behind.
        let _ = pidfd_send_signal(&self.0, Signal::QUIT);
    }

    /// Kills all processes and waits until none is left; returns false after `most`.
    pub(crate) fn kill_and_wait(&self, most: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        self.kill();
        let until = Instant::now() + most;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let span = rustix::event::Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], span.as_ref()) {
                // A pidfd becomes readable when its process has ended, and the guard ends last.
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// Starts a program with the setup of a plan.
///
/// # Cancel safety
///
/// If the future is dropped, the command is killed.
pub(super) async fn start_command(
    command: Command,
    plan: ChildPlan,
) -> Result<StartedCommand, SandboxError> {
    let (tell_started, started) = oneshot::channel();
    let (tell_ended, ended) = oneshot::channel();
    let watch = move || match launch_guard(command, plan) {
        Ok(launched) => {
            let _ = tell_started.send(Ok(UnclaimedCommand(Some(launched.leash.clone()))));
            let _ = tell_ended.send(launched.wait_for_end());
        }
        Err(error) => {
            let _ = tell_started.send(Err(error));
        }
    };
    // A thread of its own that lives as long as the command: the guard dies with the thread that
    // started it (`PR_SET_PDEATHSIG`), and a thread of the runtime's pool may end at any time.
    thread::Builder::new()
        .name("run_shell".to_owned())
        .spawn(watch)
        .map_err(SandboxError::Start)?;
    let lost =
        |_| SandboxError::Start(io::Error::other("the thread that starts commands panicked"));
    let mut unclaimed: UnclaimedCommand = started.await.map_err(lost)??;
    let leash = unclaimed.0.take().expect("it is claimed once");
    Ok(StartedCommand { leash, ended })
}

/// A started command that the caller has not received yet. Dropping it kills the command.
struct UnclaimedCommand(Option<CommandHandle>);

impl Drop for UnclaimedCommand {
    fn drop(&mut self) {
        if let Some(leash) = &self.0 {
            leash.kill();
        }
    }
}

/// A running guard.
struct LaunchedGuard {
    child: std::process::Child,
    leash: CommandHandle,
    report: PipeReader,
    temp: Option<tempfile::TempDir>,
}

impl LaunchedGuard {
    fn wait_for_end(mut self) -> CommandEnd {
        // The only place that waits for the child: once it is reaped, its number may be reused.
        let _ = self.child.wait();
        let mut bytes = [0; REPORT_BYTES];
        let told = self.report.read_exact(&mut bytes).is_ok();
        // Only now: a process that still ran could create files in it while it is deleted.
        drop(self.temp);
        let [a, b, c, d, e, f, g, h] = bytes;
        let status = told.then(|| ExitStatus::from_raw(i32::from_ne_bytes([a, b, c, d])));
        CommandEnd {
            status,
            left: u32::from_ne_bytes([e, f, g, h]),
        }
    }
}

fn launch_guard(mut command: Command, mut plan: ChildPlan) -> Result<LaunchedGuard, SandboxError> {
    let (mut report, tell) = io::pipe().map_err(SandboxError::Start)?;
    // Not captured by the closure, which is dropped with `command`: that would delete the directory.
    let temp = plan.temp.take();
    let fd = tell.as_raw_fd();
    let us = rustix::process::getpid().as_raw_nonzero().get();
    // Allocated here because the child must not allocate between fork and exec.
    let mut trees = vec![
        -1;
        plan.namespaces
            .as_ref()
            .map_or(0, NamespaceSetup::tree_count)
    ];
    let own_texts = sys::argument_areas();
    let enter = move || {
        // The guards never run another program, so their command line would stay ours: a command
        // could read our arguments in `/proc/1/cmdline`.
        sys::erase_areas(own_texts);
        enter_sandbox(&plan, us, fd, &mut trees).map_err(|(step, error)| {
            let _ = sys::write(fd, &[step as u8]);
            error
        })
    };
    #[expect(
        unsafe_code,
        reason = "a child can only be confined between fork and exec"
    )]
    // SAFETY: `enter` only makes system calls; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(enter);
    }
    let spawned = command.spawn();
    // Closes our copies of the pipe ends of the child; otherwise our reads would never end.
    drop((command, tell));
    let child = spawned.map_err(|source| start_error(&mut report, source))?;
    let pid = Pid::from_child(&child);
    let guard =
        pidfd_open(pid, PidfdFlags::empty()).map_err(|error| SandboxError::Start(error.into()));
    let leash = match guard {
        Ok(guard) => CommandHandle(Arc::new(guard)),
        Err(error) => {
            // It is not reaped yet, so the number cannot belong to another process.
            let _ = rustix::process::kill_process(pid, Signal::QUIT);
            return Err(error);
        }
    };
    Ok(LaunchedGuard {
        child,
        leash,
        report,
        temp,
    })
}

/// Returns the failed step, if the child reported one; otherwise the program could not be run.
fn start_error(report: &mut PipeReader, source: io::Error) -> SandboxError {
    let mut step = [0];
    let told = report.read_exact(&mut step).ok();
    match told.and_then(|()| {
        SetupStep::ALL
            .into_iter()
            .find(|known| *known as u8 == step[0])
    }) {
        Some(step) => SandboxError::Step {
            step: step.description(),
            source,
        },
        None => SandboxError::Start(source),
    }
}

type SetupResult = Result<(), (SetupStep, io::Error)>;

/// Runs in the child. The guard processes never return from here; only the process that is to run
/// the program does.
fn enter_sandbox(plan: &ChildPlan, parent: i32, report: RawFd, trees: &mut [RawFd]) -> SetupResult {
    // The guards read signals with `sigwaitinfo`, which needs them blocked.
    at_step(SetupStep::Guard, sys::block_signals())?;
    match &plan.namespaces {
        Some(namespaces) => enter_namespaces(namespaces, parent, report, trees)?,
        None => {
            at_step(SetupStep::Guard, sys::adopt_orphans())?;
            at_step(
                SetupStep::Guard,
                sys::die_with_parent(parent, guard::PARENT_ENDED),
            )?;
            if let ForkSide::Parent(command) = at_step(SetupStep::Guard, sys::fork())? {
                guard::run_reaper(command, report);
            }
        }
    }
    confine_command(plan)
}

fn enter_namespaces(
    namespaces: &NamespaceSetup,
    parent: i32,
    report: RawFd,
    trees: &mut [RawFd],
) -> SetupResult {
    at_step(SetupStep::Namespaces, namespaces.enter())?;
    // Not earlier: a change of credentials clears the parent-death signal.
    at_step(
        SetupStep::Guard,
        sys::die_with_parent(parent, libc::SIGKILL),
    )?;
    if let ForkSide::Parent(first) = at_step(SetupStep::Namespaces, sys::fork())? {
        guard::wait_outside(first);
    }
    at_step(SetupStep::Guard, sys::die_with_parent(0, libc::SIGKILL))?;
    at_step(SetupStep::Mounts, namespaces.arrange_mounts(trees))?;
    if let ForkSide::Parent(command) = at_step(SetupStep::Guard, sys::fork())? {
        guard::run_as_init(command, report);
    }
    Ok(())
}

fn confine_command(plan: &ChildPlan) -> SetupResult {
    // Without a terminal no prompt can reach the user. The guard signals the group that this
    // starts.
    at_step(SetupStep::Guard, sys::new_session())?;
    // After mounting: a directory that was entered before would still belong to the old mounts.
    at_step(SetupStep::Directory, sys::chdir(&plan.cwd))?;
    for (resource, most) in &plan.limits {
        at_step(SetupStep::Limits, sys::set_limit(*resource, *most))?;
    }
    if let Some(kept) = plan.capabilities {
        at_step(SetupStep::Limits, sys::keep_capabilities(kept))?;
    }
    // Unprivileged processes need this before Landlock and seccomp.
    at_step(SetupStep::Limits, sys::no_new_privileges())?;
    if let Some(LandlockRules {
        set: Some(set),
        late,
    }) = &plan.rules
    {
        for (path, access) in late {
            let allowed = sys::landlock_allow(set.as_raw_fd(), path, *access);
            // A path that could not be mounted does not exist and needs no rule.
            at_step(
                SetupStep::Landlock,
                allowed.or_else(|error| {
                    if is_not_found(&error) {
                        Ok(())
                    } else {
                        Err(error)
                    }
                }),
            )?;
        }
        at_step(SetupStep::Landlock, sys::landlock_restrict(set.as_raw_fd()))?;
    }
    // Only marked as close-on-exec: the parent still learns of a failed exec over one of these files.
    sys::keep_only_standard_files();
    // A signal mask survives exec: the command would never receive SIGTERM.
    at_step(SetupStep::Guard, sys::unblock_signals())?;
    // Last: the filters block calls that the setup itself makes, such as mounts.
    for filter in &plan.filters {
        let refused = |_| (SetupStep::Filters, io::Error::last_os_error());
        seccompiler::apply_filter(filter).map_err(refused)?;
    }
    Ok(())
}

fn is_not_found(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn at_step<T>(step: SetupStep, result: io::Result<T>) -> Result<T, (SetupStep, io::Error)> {
    result.map_err(|error| (step, error))
}

/// Creates namespaces for a trial command, to check whether that is possible.
pub(super) fn try_namespaces(way: NamespaceMode) -> Result<(), SandboxError> {
    let layout = MountLayout {
        writable: &[],
        readable: &[],
        acting: &ActingFiles::default(),
        blanked: &[],
        temp: Path::new("/tmp"),
        temp_bytes: 1 << 20,
        processes: 1024,
        own_network: false,
    };
    let namespaces = Some(NamespaceSetup::new(way, &layout)?);
    let rules = None;
    let filters = Vec::new();
    let limits = Vec::new();
    let capabilities = None;
    let temp = None;
    let plan = ChildPlan {
        namespaces,
        rules,
        filters,
        limits,
        capabilities,
        cwd: c"/".into(),
        temp,
    };
    // A thread of its own, for the same reason as in `start`.
    let tried = thread::spawn(move || {
        launch_guard(Command::new("/bin/true"), plan).map(|launched| launched.wait_for_end().status)
    });
    match tried
        .join()
        .unwrap_or_else(|_| Err(SandboxError::Start(io::Error::other("the trial panicked"))))?
    {
        Some(status) if status.success() => Ok(()),
        _ => Err(SandboxError::Start(io::Error::other(
            "the trial command failed",
        ))),
    }
}
