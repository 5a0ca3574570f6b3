//! Search over all sessions: the hits, what is near one, and how they are loaded.

use std::path::Path;

use toolgate::{
    Gate,
    search::{SearchAnswer, SearchDocument, SearchHit, SearchRequest, SearchSnippet},
    value::SessionId,
};

use crate::{
    CliError,
    env::{ids, times},
    show::hit_origins::HitOrigins,
};

/// The number of hits in the window.
const MAX_HITS: usize = 50;

/// The number of events before and after a hit that are shown with it.
const NEAR_EVENTS: u64 = 12;

/// The hits of a search over all sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionHits {
    /// The query.
    pub query: String,
    /// The hits, best first.
    pub hits: Vec<SessionHit>,
    /// Hints and notices, for the user.
    pub remarks: Vec<String>,
}

/// A message, call or result that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHit {
    /// The session.
    pub session: SessionId,
    /// The number of the event.
    pub sequence: u64,
    /// What it is: a message of the user, a call of a tool …
    pub what: String,
    /// The time, for people.
    pub at: String,
    /// The part of the text around the matches.
    pub snippet: SearchSnippet,
    /// The directory of its session, if that is another one than ours.
    pub elsewhere: Option<String>,
    /// The format from which its session was imported, if it was.
    pub imported_from: Option<String>,
}

impl SessionHit {
    /// Checks whether its session can only be read here: the tools of another directory would work on
    /// other files, and an imported session is history.
    pub(super) fn is_only_read(&self) -> bool {
        self.elsewhere.is_some() || self.imported_from.is_some()
    }
}

/// A hit with what is near it, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownHit {
    /// The title of the window.
    pub title: String,
    /// The messages, calls and results.
    pub text: String,
}

/// Searches all sessions.
///
/// # Errors
///
/// Fails if the store or the embedder fails.
pub(super) async fn search_sessions(
    gate: &Gate,
    workspace: &Path,
    query: &str,
) -> Result<SessionHits, CliError> {
    let request = SearchRequest::new(query).limit(MAX_HITS);
    let answer = gate.search().search(&request).await;
    let answer: SearchAnswer = answer.map_err(|error| CliError::from_error(&error))?;
    let origins = HitOrigins::load(gate.store(), &answer.hits).await?;
    let here = workspace.display().to_string();
    let hit = |hit: SearchHit| SessionHit {
        session: hit.session,
        sequence: hit.sequence,
        what: match &hit.tool {
            Some(tool) => format!("{} {tool}", hit.kind),
            None => hit.kind.to_string(),
        },
        at: times::format_time(hit.at),
        imported_from: origins
            .of_session(hit.session)
            .map(|origin| origin.format.to_string()),
        snippet: hit.snippet,
        elsewhere: hit
            .project
            .filter(|project| **project != *here)
            .map(|project| project.to_string()),
    };
    Ok(SessionHits {
        query: query.to_owned(),
        hits: answer.hits.into_iter().map(hit).collect(),
        remarks: answer.notices.into_iter().chain(answer.hints).collect(),
    })
}

/// Loads a hit and what is near it.
///
/// # Errors
///
/// Fails if the store cannot answer.
pub(super) async fn show_hit(gate: &Gate, hit: &SessionHit) -> Result<ShownHit, CliError> {
    let first = hit.sequence.saturating_sub(NEAR_EVENTS + 1);
    let count = usize::try_from(NEAR_EVENTS * 2 + 1).unwrap_or(usize::MAX);
    let events = gate.store().events(hit.session, first, count).await?;
    // Documents are derived from events, which are redacted.
    let documents = events
        .iter()
        .filter_map(|event| SearchDocument::from_event(event, None));
    let parts = documents.map(|document| {
        let mark = if document.sequence == hit.sequence {
            "▶ "
        } else {
            ""
        };
        let tool = document
            .tool
            .map(|tool| format!(" {tool}"))
            .unwrap_or_default();
        format!("{mark}{}{tool}\n{}", document.kind, document.text)
    });
    let id = ids::short_id(hit.session);
    let mut text: Vec<String> = parts.collect();
    if let Some(format) = &hit.imported_from {
        text.push(format!(
            "This session was imported from {format}. It is history and cannot be resumed."
        ));
    } else if let Some(directory) = &hit.elsewhere {
        let command = format!("toolgate -C {directory} sessions resume {id}");
        text.push(format!(
            "This session works in {directory}. To resume it:\n{command}"
        ));
    }
    Ok(ShownHit {
        title: format!("Session {id}"),
        text: text.join("\n\n"),
    })
}
