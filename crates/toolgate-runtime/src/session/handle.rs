//! A run in a task of its own: observed, awaited and stopped through a handle.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolgate_core::CallId;

use crate::{
    BusSubscription, JournalError, RunInput, RunOptions, RunReport, Session, SessionError,
    session::stream::RunStream,
};

/// The result of a run, shared by everything that waits for it.
pub(crate) type SharedRunResult = Result<RunReport, Arc<SessionError>>;

/// A run that was started with [`Session::start`]. It works in a task of its own.
///
/// Dropping the handle or a stream of updates leaves the run as it is: only [`RunHandle::stop`] and
/// [`Session::interrupt`] stop it. If the runtime of the process is shut down, the run ends as in a
/// crash and can be resumed.
pub struct RunHandle {
    session: Session,
    cancel: CancellationToken,
    ended: watch::Receiver<Option<SharedRunResult>>,
    /// Subscribed before the run began, for the first observer.
    events: Mutex<Option<BusSubscription>>,
}

impl RunHandle {
    /// Begins a run, or resumes the last one if there is no input.
    pub(crate) fn spawn(session: &Session, input: Option<RunInput>, options: RunOptions) -> Self {
        let events = session.bus().subscribe();
        let cancel = CancellationToken::new();
        let run = session.0.clone().begin_run(input, options, cancel.clone());
        let (tell, ended) = watch::channel(None);
        tokio::spawn(async move {
            let result = run.await.map_err(Arc::new);
            tell.send_replace(Some(result));
        });
        Self {
            session: session.clone(),
            cancel,
            ended,
            events: Mutex::new(Some(events)),
        }
    }

    /// Returns everything that happens in the run, as it happens. The first stream begins with the
    /// run, later ones with the next update.
    pub fn updates(&self) -> RunStream {
        let first = self
            .events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let events = first.unwrap_or_else(|| self.session.bus().subscribe());
        RunStream::new(self.session.id(), events, self.ended.clone())
    }

    /// Waits until the run has ended or is suspended, and returns its report.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::run`] does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn report(&self) -> Result<RunReport, Arc<SessionError>> {
        wait_for_end(&mut self.ended.clone()).await
    }

    /// Tells the run to stop, also if it has not begun yet. It ends as `cancelled`; finished results
    /// are kept.
    pub fn interrupt(&self) {
        self.session.0.keep_pending.store(false, Ordering::SeqCst);
        self.cancel.cancel();
    }

    /// Tells the run to stop what it does, and to leave pending what waits for a decision or an
    /// external result. It ends as `suspended` if a call waits, and as `cancelled` otherwise.
    /// Finished results are kept.
    pub fn suspend(&self) {
        self.session.0.keep_pending.store(true, Ordering::SeqCst);
        self.cancel.cancel();
    }

    /// Stops one call of the run; the others continue. Returns true if there was one, as
    /// [`TurnHandle::cancel_call`](crate::TurnHandle::cancel_call) does.
    pub fn cancel_call(&self, call: CallId) -> bool {
        self.session.cancel_call(call)
    }

    /// Stops the run and returns its report. Calls that have started are stopped in order and
    /// settled; finished results are kept.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::run`] does.
    pub async fn stop(&self) -> Result<RunReport, Arc<SessionError>> {
        self.interrupt();
        self.report().await
    }

    /// Checks whether the run has ended or is suspended.
    pub fn is_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }
}

/// Waits for the result of a run.
pub(crate) async fn wait_for_end(
    ended: &mut watch::Receiver<Option<SharedRunResult>>,
) -> SharedRunResult {
    match ended.wait_for(Option::is_some).await {
        Ok(result) => result.clone().expect("it was just seen"),
        // The task was dropped with its runtime.
        Err(_) => Err(Arc::new(JournalError::Stopped.into())),
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("session", &self.session.id())
            .field("ended", &self.is_ended())
            .finish_non_exhaustive()
    }
}
