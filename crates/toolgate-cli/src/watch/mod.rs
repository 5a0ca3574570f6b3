//! Watches a run and shows it: on a terminal, as plain lines, or as JSON for machines.

mod answer;
mod display;
pub(crate) mod editor;
mod json;
mod plain;
mod prompt;
mod rule;
mod stops;
mod summary;
mod terminal;

use tokio::task::{JoinError, JoinHandle};
use toolgate::{Input, RunOptions, RunReport, Session, SessionError, StoreHandle};

use crate::{
    CliError,
    feed::{Fed, Feed},
    screen::Screen,
};

pub(crate) use json::{JsonSink, report_json};
pub(crate) use plain::PlainSink;
pub(crate) use stops::Stops;
pub(crate) use summary::{Ending, summary};
pub(crate) use terminal::TerminalWatch;

/// A run that is under way in a task of its own, so that it goes on while somebody thinks about an answer.
pub(crate) struct Job {
    pub(crate) session: Session,
    pub(crate) feed: Feed,
    pub(crate) task: JoinHandle<Result<RunReport, SessionError>>,
}

/// How watching ended.
pub(crate) enum Ended {
    /// With the run.
    Report(Box<RunReport>),
    /// Everything that is left waits for decisions, and whoever was asked put them off.
    Left,
    /// Somebody wanted out at once.
    Quit,
}

/// Where what happens goes, if nobody can answer there.
pub(crate) trait Sink {
    /// Takes something that happened.
    fn fed(&mut self, fed: &Fed) -> Result<(), CliError>;

    /// The run is asked to stop.
    fn stopping(&mut self) -> Result<(), CliError>;
}

impl Job {
    /// Starts a run that begins with `input`, or takes up the last one.
    pub(crate) fn start(session: &Session, feed: Feed, input: Option<Input>) -> Self {
        let driven = session.clone();
        let task = tokio::spawn(async move {
            match input {
                Some(input) => driven.run(input).await,
                None => driven.resume_with(RunOptions::new()).await,
            }
        });
        Self {
            session: session.clone(),
            feed,
            task,
        }
    }

    /// Hands everything that happens to `sink` until the run ends.
    pub(crate) async fn follow(
        &mut self,
        stops: &mut Stops,
        sink: &mut impl Sink,
    ) -> Result<Ended, CliError> {
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                () = stops.next() => {
                    if std::mem::replace(&mut stopping, true) {
                        return Ok(Ended::Quit);
                    }
                    self.session.interrupt();
                    sink.stopping()?;
                }
                fed = self.feed.next() => match fed? {
                    Some(fed) => sink.fed(&fed)?,
                    None => return Err(CliError::new("the run ended without a report")),
                },
                report = &mut self.task => {
                    for event in self.feed.rest().await? {
                        sink.fed(&Fed::Event(event))?;
                    }
                    return Ok(Ended::Report(Box::new(joined(report)?)));
                }
            }
        }
    }

    /// Stops the run and waits until what it did is saved.
    pub(crate) async fn stop(&mut self) {
        self.session.interrupt();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What came of a task.
fn joined(
    report: Result<Result<RunReport, SessionError>, JoinError>,
) -> Result<RunReport, CliError> {
    match report {
        Ok(report) => Ok(report?),
        Err(error) => Err(CliError::of(&error).while_doing("the run broke off")),
    }
}

/// Folds what has happened in a session so far, and listens from there on. The open calls of a session may be agents;
/// what they have done is part of it.
pub(crate) async fn catch_up(
    session: &Session,
    store: &StoreHandle,
) -> Result<(Screen, Feed), CliError> {
    let mut screen = Screen::new();
    let mut feed = Feed::new(session.bus(), store.clone());
    let mut sessions = vec![session.id()];
    while let Some(next) = sessions.pop() {
        for event in feed.read(next).await? {
            screen.apply(&event);
        }
        let agents = screen
            .open_calls()
            .filter(|call| call.invocation.turn.session == next);
        sessions.extend(agents.map(|call| toolgate::SessionId::new(call.invocation.id.uuid())));
    }
    Ok((screen, feed))
}
