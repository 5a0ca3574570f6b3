//! Follows a run and shows it: on a terminal, as plain lines, or as JSON for programs.

mod answer;
mod display;
pub(crate) mod editor;
mod json;
mod plain;
mod prompt;
mod stops;
pub(crate) mod summary;
mod terminal;

use toolgate::{
    RunReport, Session,
    session::{RunHandle, RunInput, RunOptions},
    store::StoreHandle,
};

use crate::{
    CliError,
    show::{
        feed::{EventFeed, FeedItem},
        screen::SessionScreen,
    },
};

pub(crate) use json::{JsonSink, report_json};
pub(crate) use plain::PlainSink;
pub(crate) use stops::StopSignals;
pub(crate) use summary::{RunEnding, render_summary};
pub(crate) use terminal::TerminalFollower;

/// A run that is followed. It continues while the user considers an answer, and when nothing follows
/// it any more: then it is stopped, or ends with the process and can be resumed.
pub(crate) struct RunTask {
    pub(crate) feed: EventFeed,
    pub(crate) run: RunHandle,
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
    fn receive(&mut self, fed: &FeedItem) -> Result<(), CliError>;

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
        Self { feed, run }
    }

    /// Hands every item of the feed to `sink` until the run ends.
    pub(crate) async fn follow(
        &mut self,
        stops: &mut StopSignals,
        sink: &mut impl FeedSink,
    ) -> Result<FollowEnd, CliError> {
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                // Signals first: a busy run must not delay Ctrl-C.
                () = stops.next() => {
                    // The first signal lets the run save its progress; the second does not wait for
                    // that.
                    if std::mem::replace(&mut stopping, true) {
                        return Ok(FollowEnd::Quit);
                    }
                    self.run.interrupt();
                    sink.notify_stopping()?;
                }
                fed = self.feed.next() => match fed? {
                    Some(fed) => sink.receive(&fed)?,
                    None => return Err(CliError::new("the run ended without a report")),
                },
                report = self.run.report() => {
                    // The run may end before its last events were read from the bus.
                    for event in self.feed.drain_events().await? {
                        sink.receive(&FeedItem::Event(event))?;
                    }
                    return Ok(FollowEnd::Report(Box::new(report?)));
                }
            }
        }
    }

    /// Stops the run and waits until its progress is saved.
    pub(crate) async fn stop(&self) {
        // The error that ended the run is the one that is reported.
        let _ = self.run.stop().await;
    }
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
