//! Follows a run and shows it: on a terminal, as plain lines, or as JSON for programs.

mod answer;
pub(crate) mod display;
pub(crate) mod editor;
mod json;
mod plain;
mod prompt;
pub(crate) mod summary;
mod terminal;
mod terminal_writer;

use std::{sync::Arc, time::Duration};

use toolgate::{
    RunReport, Session,
    session::{RunHandle, RunInput, RunOptions},
    store::StoreHandle,
};

use crate::{
    CliError,
    env::signals::{self, StopSignal, StopSignals},
    show::{
        feed::{EventFeed, FeedItem},
        screen::SessionScreen,
        whole_texts::WholeTexts,
    },
};

pub(crate) use json::{JsonSink, report_json};
pub(crate) use plain::PlainSink;
pub(crate) use summary::{RunEnding, render_receipts, render_summary};
pub(crate) use terminal::TerminalFollower;

/// The time that the program has to print the end of a run that was stopped. A reader of the output
/// that has stalled must not keep the program from ending.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(3);

/// The time that a run has to save its progress after it was stopped.
const SAVE_PATIENCE: Duration = Duration::from_secs(30);

/// A run that is followed. It continues while the user considers an answer, and when nothing follows
/// it any more: then it is stopped, or ends with the process and can be resumed.
pub(crate) struct RunTask {
    pub(crate) feed: EventFeed,
    pub(crate) run: Arc<RunHandle>,
    /// The first request to stop the run, if there was one.
    pub(crate) stopped: Option<StopSignal>,
}

/// The way in which following a run ended.
pub(crate) enum FollowEnd {
    /// The run ended.
    Report(Box<RunReport>),
    /// Only pending approvals are left, and the user postponed them.
    Postponed,
    /// The user quit without waiting.
    Quit,
}

/// A destination for a run's events that cannot answer approval requests.
pub(crate) trait FeedSink {
    /// Receives an item of the feed.
    async fn receive(&mut self, fed: &FeedItem) -> Result<(), CliError>;

    /// Receives the news that the run was asked to stop.
    fn notify_stopping(&mut self) -> Result<(), CliError>;
}

impl RunTask {
    /// Starts a run with `input`, or resumes the last one. With an input, calls that are still
    /// undecided are given up: the user has written something else instead of deciding.
    pub(crate) fn start(session: &Session, feed: EventFeed, input: Option<RunInput>) -> Self {
        let run = match input {
            Some(input) => session.start_with(input, RunOptions::new().abandon_pending()),
            None => session.start_resumed(RunOptions::new()),
        };
        let run = Arc::new(run);
        tokio::spawn(stop_without_output(run.clone()));
        Self {
            feed,
            run,
            stopped: None,
        }
    }

    /// Stops what runs and leaves pending what waits. Returns true if the run was stopped before.
    pub(crate) fn suspend(&mut self, stop: StopSignal) -> bool {
        let again = self.stopped.is_some();
        self.stopped.get_or_insert(stop);
        self.run.suspend();
        again
    }

    /// Stops the run and cancels what waits.
    pub(crate) fn cancel(&mut self, stop: StopSignal) {
        self.stopped.get_or_insert(stop);
        self.run.interrupt();
    }

    /// Hands every item of the feed to `sink` until the run ends, with whole texts if they can be
    /// loaded.
    pub(crate) async fn follow(
        &mut self,
        stops: &mut StopSignals,
        whole: Option<WholeTexts<'_>>,
        sink: &mut impl FeedSink,
    ) -> Result<FollowEnd, CliError> {
        loop {
            tokio::select! {
                biased;
                // Signals first: a busy run must not delay Ctrl-C.
                stop = stops.next() => {
                    // The first signal lets the run save its progress; the second does not wait for
                    // that.
                    if self.suspend(stop) {
                        return Ok(FollowEnd::Quit);
                    }
                    sink.notify_stopping()?;
                }
                fed = self.feed.next() => match fed? {
                    Some(fed) => sink.receive(&complete_item(whole, fed).await?).await?,
                    None => return Err(CliError::new("the run ended without a report")),
                },
                report = self.run.report() => {
                    // The run may end before its last events were read from the bus.
                    for fed in self.feed.drain().await? {
                        sink.receive(&complete_item(whole, fed).await?).await?;
                    }
                    return Ok(FollowEnd::Report(Box::new(report?)));
                }
            }
        }
    }

    /// Stops what runs, leaves pending what waits, and returns the report once the progress is saved.
    pub(crate) async fn leave(&self) -> Result<RunReport, CliError> {
        self.run.suspend();
        Ok(self.run.report().await?)
    }
}

/// Returns the item with the whole text of its message.
async fn complete_item(whole: Option<WholeTexts<'_>>, fed: FeedItem) -> Result<FeedItem, CliError> {
    Ok(match (whole, fed) {
        (Some(whole), FeedItem::Event(event)) => FeedItem::Event(whole.complete(event).await?),
        (_, fed) => fed,
    })
}

/// Stops the run at the first signal, also while its display is blocked by a reader that has stalled,
/// and ends the program if the display stays blocked after the run was saved.
async fn stop_without_output(run: Arc<RunHandle>) {
    let stop = signals::first_stop().await;
    run.suspend();
    // An error of the run is reported by the display. A store that does not answer must not keep the
    // program from ending.
    let saved = tokio::time::timeout(SAVE_PATIENCE, run.report()).await;
    if saved.is_err() {
        signals::end_process(stop);
    }
    tokio::time::sleep(OUTPUT_PATIENCE).await;
    signals::end_process(stop)
}

/// Folds the events of a session so far, and subscribes from there on. Open calls of a session may
/// be agents; their sessions are folded too.
pub(crate) async fn catch_up(
    session: &Session,
    store: &StoreHandle,
) -> Result<(SessionScreen, EventFeed), CliError> {
    let mut screen = SessionScreen::new();
    // Subscribed before the log is read, so that no event is lost in between.
    let mut feed = EventFeed::new(session.bus(), store.clone());
    let mut sessions = vec![session.id()];
    while let Some(next) = sessions.pop() {
        for event in feed.read_session(next).await? {
            screen.apply(&event);
        }
        // Every open call, as if an agent worked on it: for any other call there is no session of
        // that id, and nothing is read.
        let agents = screen
            .open_calls()
            .filter(|call| call.invocation.turn.session == next);
        sessions.extend(agents.map(|call| call.invocation.id.agent_session()));
    }
    Ok((screen, feed))
}
