//! Signals: from the first instruction of the program to its end, a thread of its own receives them.
//!
//! A signal to stop ends the program at once, unless a run is under way that has to be saved: then
//! the first one stops the run, the second one ends the program after `QUIT_PATIENCE` at the
//! latest, and a third one at once. The thread depends on nothing else: a blocked write or a store
//! that does not answer cannot keep it from ending the program.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicBool},
    thread,
    time::Duration,
};

use crossterm::terminal::disable_raw_mode;
use rustix::process::{Pid, Signal, getpid, getppid, getsid, kill_current_process_group};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGSTOP, SIGTERM, SIGTSTP, SIGXFSZ},
    iterator::Signals,
    low_level,
};
use tokio::sync::watch;
use toolgate::store::hold_commits;

use crate::{CliError, Exit};

/// The time that a program has to end in order after the second signal to stop.
pub(crate) const QUIT_PATIENCE: Duration = Duration::from_secs(1);

/// The longest wait for a commit that is under way when the program is suspended with Ctrl-Z.
pub(crate) const COMMIT_PATIENCE: Duration = Duration::from_secs(2);

/// A request to stop the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// The system ends the program.
    Terminate,
    /// The terminal was closed.
    HangUp,
}

impl StopSignal {
    fn from_number(number: i32) -> Option<Self> {
        match number {
            SIGINT => Some(Self::Interrupt),
            SIGTERM => Some(Self::Terminate),
            SIGHUP => Some(Self::HangUp),
            _ => None,
        }
    }

    /// Returns the exit code of a program that was stopped by the signal.
    pub(crate) fn exit_status(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
            Self::HangUp => Exit::HungUp,
        }
    }
}

/// The signals so far.
#[derive(Debug, Clone, Copy, Default)]
struct SignalState {
    /// The number of requests to stop.
    stops: u32,
    last_stop: Option<StopSignal>,
    /// The number of requests to suspend the program.
    suspends: u32,
    /// True while a run is under way that the first request to stop has to save.
    run_listens: bool,
    /// True while a display owns the terminal and has to restore it before the program is suspended.
    display_listens: bool,
}

fn state() -> &'static watch::Sender<SignalState> {
    static STATE: OnceLock<watch::Sender<SignalState>> = OnceLock::new();
    STATE.get_or_init(|| watch::Sender::new(SignalState::default()))
}

/// Starts to receive signals. Called before anything else.
///
/// # Errors
///
/// Fails if the system allows no handlers or threads.
pub fn install_handlers() -> Result<(), CliError> {
    let ignored = ignored_signals();
    // `nohup` ignores hang-ups on purpose, and a shell interrupts in background jobs.
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGTSTP]
        .into_iter()
        .filter(|number| ignored & (1 << (number - 1)) == 0);
    let mut signals = Signals::new(wanted)?;
    // With a handler, a write beyond the file size limit fails with its own error instead of ending
    // the program. Not ignored: commands would inherit that. The standard library ignores SIGPIPE.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    let thread = thread::Builder::new().name("toolgate-signals".into());
    thread.spawn(move || {
        for number in signals.forever() {
            match StopSignal::from_number(number) {
                Some(stop) => handle_stop(stop),
                None => handle_suspend(),
            }
        }
    })?;
    Ok(())
}

/// Returns the mask of the signals that were ignored when the program started, where the system
/// reports it.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn handle_stop(stop: StopSignal) {
    let mut now = SignalState::default();
    state().send_modify(|state| {
        state.stops += 1;
        state.last_stop = Some(stop);
        now = *state;
    });
    match now.stops {
        1 if now.run_listens => {}
        2 if now.run_listens => {
            // Not in this thread: it waits for the third signal.
            let patience = thread::Builder::new().spawn(move || {
                thread::sleep(QUIT_PATIENCE);
                end_process(stop);
            });
            if patience.is_err() {
                end_process(stop);
            }
        }
        _ => end_process(stop),
    }
}

/// Ends the program at once. What is stored stays; everything else ends as in a crash.
pub(crate) fn end_process(stop: StopSignal) -> ! {
    // Nothing that could block: neither locks of the output nor destructors.
    let _ = disable_raw_mode();
    low_level::exit(stop.exit_status().code().into())
}

fn handle_suspend() {
    let mut listens = false;
    state().send_modify(|state| {
        state.suspends += 1;
        listens = state.display_listens;
    });
    if !listens {
        suspend_process();
    }
}

/// Suspends the program until it is continued. A commit that is under way is finished first, and no
/// other one begins: a suspended program holds no lock of the store.
pub(crate) fn suspend_process() {
    let hold = hold_commits(COMMIT_PATIENCE);
    // SIGSTOP, because the handler has replaced the default action of SIGTSTP.
    let _ = low_level::raise(SIGSTOP);
    drop(hold);
}

/// Suspends the program, and what else runs in its job, as Ctrl-Z does where the terminal raises
/// signals. Does nothing if there is no shell that could continue it.
pub(crate) fn raise_suspend() {
    let session = |pid: Option<Pid>| pid.and_then(|pid| getsid(Some(pid)).ok());
    let shell = session(getppid());
    if shell.is_some() && shell == session(Some(getpid())) {
        let _ = kill_current_process_group(Signal::TSTP);
    }
}

/// Receives the signals for a run. While it exists, the first request to stop does not end the
/// program.
pub(crate) struct StopSignals {
    state: watch::Receiver<SignalState>,
    seen: u32,
}

impl StopSignals {
    /// Listens from now on. A request to stop that came earlier has ended the program.
    pub(crate) fn listen() -> Self {
        state().send_modify(|state| state.run_listens = true);
        let state = state().subscribe();
        Self { state, seen: 0 }
    }

    /// Waits for the next request to stop.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    pub(crate) async fn next(&mut self) -> StopSignal {
        let seen = self.seen;
        match self.state.wait_for(|state| state.stops > seen).await {
            Ok(state) => {
                self.seen += 1;
                state.last_stop.unwrap_or(StopSignal::Terminate)
            }
            // The sender is static.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        state().send_modify(|state| state.run_listens = false);
    }
}

/// Waits for the first request to stop, without keeping the program from ending.
pub(crate) async fn first_stop() -> StopSignal {
    let mut state = state().subscribe();
    // Copied, so that the guard is not held across an await.
    let stopped = state
        .wait_for(|state| state.stops > 0)
        .await
        .map(|state| *state);
    match stopped {
        Ok(state) => state.last_stop.unwrap_or(StopSignal::Terminate),
        Err(_) => std::future::pending().await,
    }
}

/// Receives the requests to suspend the program for a display that owns the terminal.
pub(crate) struct SuspendSignals {
    state: watch::Receiver<SignalState>,
    seen: u32,
}

impl SuspendSignals {
    /// Listens from now on: the display calls [`suspend_process`] after each request.
    pub(crate) fn listen() -> Self {
        let mut seen = 0;
        state().send_modify(|state| {
            state.display_listens = true;
            seen = state.suspends;
        });
        let state = state().subscribe();
        Self { state, seen }
    }

    /// Waits for the next request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no request.
    pub(crate) async fn next(&mut self) {
        let seen = self.seen;
        match self.state.wait_for(|state| state.suspends > seen).await {
            // Several requests before the first was served are one.
            Ok(state) => self.seen = state.suspends,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for SuspendSignals {
    fn drop(&mut self) {
        state().send_modify(|state| state.display_listens = false);
    }
}
