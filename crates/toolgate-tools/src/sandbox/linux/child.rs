//! Starts a command in its place, and knows when all of it is over.

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
    super::SandboxError,
    guard::{self, REPORT},
    mounts::{Layout, Namespaces, Way},
    rules::Rules,
    sys::{self, Fork},
};

/// All that a child does before it runs its program, put together before the fork.
pub(super) struct Plan {
    pub(super) namespaces: Option<Namespaces>,
    pub(super) rules: Option<Rules>,
    pub(super) filters: Vec<BpfProgram>,
    pub(super) limits: Vec<(sys::Resource, u64)>,
    /// The capabilities that are kept; all of them if nothing is said.
    pub(super) capabilities: Option<u64>,
    pub(super) cwd: CString,
    /// A directory that goes when the command has ended.
    pub(super) temp: Option<tempfile::TempDir>,
}

/// A step on the way, to say which one failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Step {
    Guard = 1,
    Namespaces,
    Mounts,
    Directory,
    Limits,
    Landlock,
    Filters,
}

impl Step {
    const ALL: [Self; 7] = [
        Self::Guard,
        Self::Namespaces,
        Self::Mounts,
        Self::Directory,
        Self::Limits,
        Self::Landlock,
        Self::Filters,
    ];

    const fn words(self) -> &'static str {
        match self {
            Self::Guard => "the guard process",
            Self::Namespaces => "making namespaces",
            Self::Mounts => "mounting everything else read-only",
            Self::Directory => "changing the directory",
            Self::Limits => "setting limits",
            Self::Landlock => "the Landlock rules",
            Self::Filters => "the filters of system calls",
        }
    }
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Started {
    /// The way to end it.
    pub(crate) leash: Leash,
    /// Completes when nothing of it is left.
    pub(crate) ended: oneshot::Receiver<Ended>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// How the shell ended, if it was not killed with all the rest.
    pub(crate) status: Option<ExitStatus>,
    /// How many processes it had left behind, which were ended.
    pub(crate) left: u32,
}

/// The way to end a command with all that it has started. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Leash(Arc<OwnedFd>);

impl Leash {
    /// Asks everything to end.
    pub(crate) fn ask(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.0, Signal::TERM);
    }

    /// Ends everything. The last of it is gone when [`Started::ended`] completes.
    pub(crate) fn end(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::QUIT);
    }

    /// Ends everything and waits until nothing is left; false if that takes longer than `most`.
    pub(crate) fn end_and_wait(&self, most: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        self.end();
        let until = Instant::now() + most;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let span = rustix::event::Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], span.as_ref()) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// Starts a program under a plan.
///
/// A thread of its own starts it and stays with it: the guard is told to end when the thread that started it does.
pub(super) async fn start(command: Command, plan: Plan) -> Result<Started, SandboxError> {
    let (tell_started, started) = oneshot::channel();
    let (tell_ended, ended) = oneshot::channel();
    let watch = move || match launch(command, plan) {
        Ok(launched) => {
            let _ = tell_started.send(Ok(Unclaimed(Some(launched.leash.clone()))));
            let _ = tell_ended.send(launched.wait());
        }
        Err(error) => {
            let _ = tell_started.send(Err(error));
        }
    };
    thread::Builder::new()
        .name("run_shell".to_owned())
        .spawn(watch)
        .map_err(SandboxError::Start)?;
    let lost =
        |_| SandboxError::Start(io::Error::other("the thread that starts commands was lost"));
    let mut unclaimed: Unclaimed = started.await.map_err(lost)??;
    let leash = unclaimed.0.take().expect("it is claimed once");
    Ok(Started { leash, ended })
}

/// A command on its way to whoever asked for it. If nobody is there any more, it ends.
struct Unclaimed(Option<Leash>);

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(leash) = &self.0 {
            leash.end();
        }
    }
}

/// A running guard.
struct Launched {
    child: std::process::Child,
    leash: Leash,
    report: PipeReader,
    temp: Option<tempfile::TempDir>,
}

impl Launched {
    fn wait(mut self) -> Ended {
        // Only an unreaped child can be waited for, and this is the only place that does.
        let _ = self.child.wait();
        let mut bytes = [0; REPORT];
        let told = self.report.read_exact(&mut bytes).is_ok();
        drop(self.temp);
        let [a, b, c, d, e, f, g, h] = bytes;
        let status = told.then(|| ExitStatus::from_raw(i32::from_ne_bytes([a, b, c, d])));
        Ended {
            status,
            left: u32::from_ne_bytes([e, f, g, h]),
        }
    }
}

fn launch(mut command: Command, mut plan: Plan) -> Result<Launched, SandboxError> {
    let (mut report, tell) = io::pipe().map_err(SandboxError::Start)?;
    let temp = plan.temp.take();
    let fd = tell.as_raw_fd();
    let us = rustix::process::getpid().as_raw_nonzero().get();
    let mut trees = vec![-1; plan.namespaces.as_ref().map_or(0, Namespaces::trees)];
    let enter = move || {
        enter(&plan, us, fd, &mut trees).map_err(|(step, error)| {
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
    // The ends of pipes that the child has.
    drop((command, tell));
    let child = spawned.map_err(|source| failed(&mut report, source))?;
    let pid = Pid::from_child(&child);
    let guard =
        pidfd_open(pid, PidfdFlags::empty()).map_err(|error| SandboxError::Start(error.into()));
    let leash = match guard {
        Ok(guard) => Leash(Arc::new(guard)),
        Err(error) => {
            // Not yet waited for, so the number is still its own.
            let _ = rustix::process::kill_process(pid, Signal::QUIT);
            return Err(error);
        }
    };
    Ok(Launched {
        child,
        leash,
        report,
        temp,
    })
}

/// Says which step failed, if one did; otherwise it is the program that could not be run.
fn failed(report: &mut PipeReader, source: io::Error) -> SandboxError {
    let mut step = [0];
    let told = report.read_exact(&mut step).ok();
    match told.and_then(|()| Step::ALL.into_iter().find(|known| *known as u8 == step[0])) {
        Some(step) => SandboxError::Step {
            step: step.words(),
            source,
        },
        None => SandboxError::Start(source),
    }
}

type Entered = Result<(), (Step, io::Error)>;

/// Runs in the child. The guards stay here for good; only what is to run the program returns.
fn enter(plan: &Plan, parent: i32, report: RawFd, trees: &mut [RawFd]) -> Entered {
    at(Step::Guard, sys::hold_signals())?;
    match &plan.namespaces {
        Some(namespaces) => enter_namespaces(namespaces, parent, report, trees)?,
        None => {
            at(Step::Guard, sys::adopt_orphans())?;
            at(
                Step::Guard,
                sys::die_with_parent(parent, guard::PARENT_ENDED),
            )?;
            if let Fork::Parent(command) = at(Step::Guard, sys::fork())? {
                guard::reaper(command, report);
            }
        }
    }
    confine(plan)
}

fn enter_namespaces(
    namespaces: &Namespaces,
    parent: i32,
    report: RawFd,
    trees: &mut [RawFd],
) -> Entered {
    at(Step::Namespaces, namespaces.enter())?;
    // Not before: a change of credentials takes it back.
    at(Step::Guard, sys::die_with_parent(parent, libc::SIGKILL))?;
    if let Fork::Parent(first) = at(Step::Namespaces, sys::fork())? {
        guard::outside(first);
    }
    at(Step::Guard, sys::die_with_parent(0, libc::SIGKILL))?;
    at(Step::Mounts, namespaces.arrange(trees))?;
    if let Fork::Parent(command) = at(Step::Guard, sys::fork())? {
        guard::first(command, report);
    }
    Ok(())
}

fn confine(plan: &Plan) -> Entered {
    at(Step::Guard, sys::new_session())?;
    at(Step::Directory, sys::chdir(&plan.cwd))?;
    for (resource, most) in &plan.limits {
        at(Step::Limits, sys::limit(*resource, *most))?;
    }
    if let Some(kept) = plan.capabilities {
        at(Step::Limits, sys::keep_capabilities(kept))?;
    }
    at(Step::Limits, sys::no_new_privileges())?;
    if let Some(Rules {
        set: Some(set),
        late,
    }) = &plan.rules
    {
        for (path, access) in late {
            let allowed = sys::landlock_allow(set.as_raw_fd(), path, *access);
            // What could not be mounted is not there to be used.
            at(
                Step::Landlock,
                allowed.or_else(|error| {
                    if is_absent(&error) {
                        Ok(())
                    } else {
                        Err(error)
                    }
                }),
            )?;
        }
        at(Step::Landlock, sys::landlock_restrict(set.as_raw_fd()))?;
    }
    sys::keep_only_standard_files();
    at(Step::Guard, sys::let_signals())?;
    for filter in &plan.filters {
        let refused = |_| (Step::Filters, io::Error::last_os_error());
        seccompiler::apply_filter(filter).map_err(refused)?;
    }
    Ok(())
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn at<T>(step: Step, result: io::Result<T>) -> Result<T, (Step, io::Error)> {
    result.map_err(|error| (step, error))
}

/// Makes namespaces for nothing, to see whether that is possible.
pub(super) fn try_namespaces(way: Way) -> Result<(), SandboxError> {
    let layout = Layout {
        writable: &[],
        readable: &[],
        temp: Path::new("/tmp"),
        temp_bytes: 1 << 20,
        processes: 1024,
        own_network: false,
    };
    let namespaces = Some(Namespaces::new(way, &layout)?);
    let (rules, filters, limits, capabilities, temp) = (None, Vec::new(), Vec::new(), None, None);
    let plan = Plan {
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
        launch(Command::new("/bin/true"), plan).map(|launched| launched.wait().status)
    });
    match tried
        .join()
        .unwrap_or_else(|_| Err(SandboxError::Start(io::Error::other("the trial was lost"))))?
    {
        Some(status) if status.success() => Ok(()),
        _ => Err(SandboxError::Start(io::Error::other(
            "the trial did not succeed",
        ))),
    }
}
