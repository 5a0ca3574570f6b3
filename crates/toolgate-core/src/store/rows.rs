//! The lists that a store derives from its logs, and how events change them.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    ApprovalId, ApprovalRequest, CallId, Event, EventBody, ImportOrigin, Labels, Principal, RunEnd,
    SessionEvent, SessionId, SessionTotals, Status, Timestamp, ToolEvent, ToolName, TurnEvent,
    TurnId, TurnInfo, UnsettledWork,
};

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// The session.
    pub session: SessionId,
    /// The number of its last event.
    pub revision: u64,
    /// The time of its first event.
    pub created_at: Timestamp,
    /// The time of its last event.
    pub updated_at: Timestamp,
    /// The lease holder and the time its lease expires, if there is a lease.
    pub held: Option<(Arc<str>, Timestamp)>,
    /// The time it was hidden, if it is.
    pub hidden_at: Option<Timestamp>,
    /// The session whose call started this one, if it is the session of an agent.
    pub parent: Option<SessionId>,
    /// The principal on whose behalf it works.
    pub principal: Option<Principal>,
    /// The labels of the session and its last run.
    pub labels: Labels,
    /// Its last run, if it has one.
    pub last_run: Option<LastRun>,
    /// Its title: the first message of the user, or the name that it was given.
    pub title: Option<SessionTitle>,
    /// The directory that it works in.
    pub directory: Option<Arc<str>>,
    /// The number of its last use: higher than that of every session that was used earlier, whatever
    /// the clock says. Only the order counts. A session that is used twice in a row may keep its
    /// number.
    pub last_use: u64,
    /// What its events add up to. A session that an older version wrote has none if one of its
    /// events could not be read when they were counted.
    pub totals: Option<SessionTotals>,
    /// What is not settled.
    pub unsettled: UnsettledWork,
    /// Its origin, if it was imported.
    pub imported: Option<ImportOrigin>,
}

/// The last run of a session, as its events say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRun {
    /// The number of the message that began it.
    pub run: u64,
    /// The state of the run.
    pub state: RunState,
    /// The time of the event that says so.
    pub at: Timestamp,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    /// It has not ended. If no process holds the lease of its session, its process was lost.
    Running,
    /// Calls wait for a decision or an external result.
    Suspended,
    /// It has ended.
    Ended(RunEnd),
}

/// A filter for the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only this one.
    pub session: Option<SessionId>,
    /// Only those after this one.
    pub after: Option<SessionId>,
    /// Only those with a turn that is not settled.
    pub with_open_turns: bool,
    /// Only those whose last run has not ended: it runs, is suspended, or its process was lost.
    pub unfinished: bool,
    /// Only those of this principal.
    pub principal: Option<Principal>,
    /// Only those with all of these labels.
    pub labels: Labels,
    /// Only those that work in this directory.
    pub directory: Option<Arc<str>>,
    /// Only those whose last reply came from this model, as `provider:name` or only the name.
    pub model: Option<Arc<str>>,
    /// Only those that are not sessions of agents.
    pub without_agents: bool,
    /// The treatment of hidden ones.
    pub hidden: HiddenSessions,
    /// The order of the list.
    pub order: SessionOrder,
    /// At most this many.
    pub limit: usize,
}

/// The treatment of hidden sessions in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HiddenSessions {
    /// They are excluded.
    #[default]
    Excluded,
    /// They are listed like all others.
    Included,
    /// Only they are listed.
    Only,
}

/// The order of a list of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SessionOrder {
    /// By id: the oldest comes first, as far as the clock was right.
    #[default]
    Id,
    /// By use: the one that was used last comes first.
    LastUse,
}

/// A turn in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// The turn.
    pub turn: TurnId,
    /// Its session.
    pub session: SessionId,
    /// The time it was opened.
    pub opened_at: Timestamp,
    /// The time its last invocation settled, if all have.
    pub settled_at: Option<Timestamp>,
}

/// A filter for the list of turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnFilter {
    /// Only those of this session.
    pub session: SessionId,
    /// Only those after this one.
    pub after: Option<TurnId>,
    /// Only those that are not settled.
    pub open: bool,
    /// At most this many.
    pub limit: usize,
}

/// An approval in a list: the newest request for a call, as people may see it.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRow {
    /// The request, redacted.
    pub request: Arc<ApprovalRequest>,
    /// Its session.
    pub session: SessionId,
    /// Its turn.
    pub turn: TurnId,
    /// The time of the request.
    pub asked_at: Timestamp,
    /// The state of the approval.
    pub state: ApprovalState,
}

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// There is no decision yet.
    Pending,
    /// There is a decision; the call has not started yet.
    Answered,
    /// There is a decision, and the call has started.
    Running,
    /// The call has settled with this status.
    Settled(Status),
}

impl ApprovalState {
    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "answered",
            Self::Running => "running",
            Self::Settled(status) => status.as_str(),
        }
    }

    /// Returns the text that people read.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "decided, not executed yet",
            Self::Running => "decided, started",
            Self::Settled(status) => status.text(),
        }
    }
}

/// A filter for the list of approvals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only the approval of this call.
    pub call: Option<CallId>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those about this tool.
    pub tool: Option<ToolName>,
    /// Only those without a decision.
    pub pending: bool,
    /// Only those after this one.
    pub after: Option<ApprovalId>,
    /// At most this many.
    pub limit: usize,
}

impl Default for SessionFilter {
    fn default() -> Self {
        Self {
            session: None,
            after: None,
            with_open_turns: false,
            unfinished: false,
            principal: None,
            labels: Labels::default(),
            directory: None,
            model: None,
            without_agents: false,
            hidden: HiddenSessions::Excluded,
            order: SessionOrder::Id,
            limit: 100,
        }
    }
}

impl SessionFilter {
    /// Creates a filter for one session, hidden or not.
    pub fn for_session(session: SessionId) -> Self {
        Self {
            session: Some(session),
            hidden: HiddenSessions::Included,
            limit: 1,
            ..Self::default()
        }
    }

    /// Checks whether principal, labels, directory, model, parent and the last run of a row pass the
    /// filter.
    pub(crate) fn matches_run(&self, row: &SessionRow) -> bool {
        let is_unfinished = row.last_run.is_some_and(|last| last.state.is_unfinished());
        let totals = row.totals.as_ref();
        let is_model = |wanted: &Arc<str>| totals.is_some_and(|totals| totals.has_model(wanted));
        (!self.unfinished || is_unfinished)
            && (!self.without_agents || row.parent.is_none())
            && self.model.as_ref().is_none_or(is_model)
            && (self.directory.is_none() || self.directory == row.directory)
            && (self.principal.is_none() || self.principal == row.principal)
            && row.labels.contains_all(&self.labels)
    }
}

impl RunState {
    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Suspended => RunEnd::Suspended.as_str(),
            Self::Ended(end) => end.as_str(),
        }
    }

    /// Returns the text that people read.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Suspended => RunEnd::Suspended.text(),
            Self::Ended(end) => end.text(),
        }
    }

    /// Returns the state with this wire name.
    pub fn from_word(word: &str) -> Option<Self> {
        if word == Self::Running.as_str() {
            return Some(Self::Running);
        }
        let mut ends = RunEnd::ALL.into_iter();
        ends.find(|end| end.as_str() == word).map(Self::from)
    }

    /// Checks whether the run can continue without a new message.
    pub const fn is_unfinished(self) -> bool {
        match self {
            Self::Running | Self::Suspended => true,
            Self::Ended(_) => false,
        }
    }
}

impl From<RunEnd> for RunState {
    fn from(end: RunEnd) -> Self {
        match end {
            RunEnd::Suspended => Self::Suspended,
            end => Self::Ended(end),
        }
    }
}

impl HiddenSessions {
    /// Checks whether a session is listed, given whether it is hidden.
    pub const fn includes(self, is_hidden: bool) -> bool {
        match self {
            Self::Excluded => !is_hidden,
            Self::Included => true,
            Self::Only => is_hidden,
        }
    }
}

impl TurnFilter {
    /// Creates a filter for the unsettled turns of a session.
    pub fn open_in(session: SessionId) -> Self {
        Self {
            session,
            after: None,
            open: true,
            limit: 100,
        }
    }
}

impl Default for ApprovalFilter {
    fn default() -> Self {
        Self {
            call: None,
            session: None,
            tool: None,
            pending: true,
            after: None,
            limit: 100,
        }
    }
}

impl ApprovalFilter {
    /// Creates a filter for the approval of one call in any state.
    pub fn for_call(call: CallId) -> Self {
        Self {
            call: Some(call),
            pending: false,
            limit: 1,
            ..Self::default()
        }
    }

    /// Checks whether a row passes the filter. The store handles the order and the limit.
    pub fn matches(&self, row: &ApprovalRow) -> bool {
        let call = row.request.approval_id.call_id();
        self.call.is_none_or(|wanted| wanted == call)
            && self.session.is_none_or(|wanted| wanted == row.session)
            && self
                .tool
                .as_ref()
                .is_none_or(|wanted| *wanted == row.request.tool)
            && (!self.pending || row.state == ApprovalState::Pending)
            && self
                .after
                .is_none_or(|after| after < row.request.approval_id)
    }
}

/// What events change in the row of their session, beside its revision and times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionUpdate {
    /// The principal. Without one, the row keeps what it has.
    pub principal: Option<Principal>,
    /// The labels.
    pub labels: Labels,
    /// The last run. Without one, the row keeps what it has.
    pub last_run: Option<LastRun>,
    /// The title. A row that has one keeps it.
    pub title: Option<SessionTitle>,
}

impl SessionUpdate {
    /// Returns what `events` change, if anything. The last of them counts; the title is that of the
    /// first.
    ///
    /// A session with an update is in use: its row gets a new number of the last use.
    pub fn from_events<'a>(
        events: impl DoubleEndedIterator<Item = &'a Arc<Event>> + Clone,
    ) -> Option<Self> {
        let title = events.clone().find_map(|event| title_of_message(event));
        let mut update: Option<Self> = None;
        for event in events.rev() {
            let Some((info, state)) = run_state_after(event) else {
                continue;
            };
            let update = update.get_or_insert_with(|| Self {
                principal: None,
                labels: info.labels.clone(),
                last_run: None,
                title: title.clone(),
            });
            update.principal = update.principal.take().or_else(|| info.principal.clone());
            update.last_run = update.last_run.or_else(|| {
                Some(LastRun {
                    run: info.run?,
                    state: state?,
                    at: event.at(),
                })
            });
            if update.principal.is_some() && update.last_run.is_some() {
                break;
            }
        }
        update
    }
}

/// The title of a session: one line, at most [`MAX_CHARS`](Self::MAX_CHARS) characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTitle(Arc<str>);

impl SessionTitle {
    /// The maximum number of characters.
    pub const MAX_CHARS: usize = 120;

    /// Creates a title from a text: runs of white space become one blank, and a long text ends with
    /// an ellipsis. A text without a visible character gives none.
    pub fn new(text: &str) -> Option<Self> {
        // Words up to the limit are enough: a message may be megabytes long.
        let mut title = String::new();
        // A NUL counts as white space: PostgreSQL cannot store it in a text.
        let words = text.split(|letter: char| letter.is_whitespace() || letter == '\0');
        let words = words.filter(|word| !word.is_empty());
        for word in words.take(Self::MAX_CHARS) {
            if !title.is_empty() {
                title.push(' ');
            }
            title.extend(word.chars().take(Self::MAX_CHARS + 1));
        }
        if let Some((end, _)) = title.char_indices().nth(Self::MAX_CHARS) {
            let last = title[..end].char_indices().next_back();
            title.truncate(last.map_or(0, |(at, _)| at));
            title.push('…');
        }
        (!title.is_empty()).then(|| Self(title.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionTitle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the title that a message of the user gives its session. Events are redacted, so it is.
fn title_of_message(event: &Event) -> Option<SessionTitle> {
    match event.body() {
        EventBody::Loop(
            _,
            SessionEvent::UserMessage {
                text: Some(text),
                steering: false,
                ..
            },
        ) => SessionTitle::new(text),
        EventBody::Loop(..) | EventBody::Turn(..) | EventBody::Tool(..) => None,
    }
}

/// Returns the turn of an event that changes the row of its session, and the state of the run after
/// it.
fn run_state_after(event: &Event) -> Option<(&TurnInfo, Option<RunState>)> {
    match event.body() {
        EventBody::Loop(info, SessionEvent::RunEnded { end, .. }) => {
            Some((info, Some(RunState::from(*end))))
        }
        // The request, too: it is the first event of a run that was resumed.
        EventBody::Loop(
            info,
            SessionEvent::UserMessage { .. } | SessionEvent::InferenceStarted { .. },
        ) => Some((info, Some(RunState::Running))),
        // A turn of a run follows one of the events above.
        EventBody::Turn(info, TurnEvent::TurnOpened { .. }) if info.run.is_none() => {
            Some((info, None))
        }
        EventBody::Loop(..) | EventBody::Turn(..) | EventBody::Tool(..) => None,
    }
}

/// A change of the lists by an event.
#[derive(Debug, Clone, PartialEq)]
pub enum RowChange {
    /// There is a new turn.
    TurnOpened(TurnRow),
    /// A turn of a session is settled.
    TurnSettled(SessionId, TurnId, Timestamp),
    /// Approval is requested, for the first time or again.
    Asked(Box<ApprovalRow>),
    /// The approval request for a call is decided.
    Answered(CallId),
    /// A call that was approved, or needed no approval, has started.
    Started(CallId),
    /// A call is settled; its approval, if any, is closed.
    Settled(CallId, Status),
}

impl RowChange {
    /// Returns what `event` changes, if anything.
    pub fn from_event(event: &Event) -> Option<Self> {
        match event.body() {
            EventBody::Turn(info, TurnEvent::TurnOpened { .. }) => {
                Some(Self::TurnOpened(TurnRow {
                    turn: info.turn,
                    session: info.session,
                    opened_at: event.at(),
                    settled_at: None,
                }))
            }
            EventBody::Turn(info, TurnEvent::TurnSettled) => {
                Some(Self::TurnSettled(info.session, info.turn, event.at()))
            }
            // An interrupted turn stays open: its invocations still have to be settled.
            EventBody::Turn(
                _,
                TurnEvent::TurnInterrupted { .. } | TurnEvent::InputRejected { .. },
            )
            | EventBody::Loop(..) => None,
            EventBody::Tool(invocation, ToolEvent::ToolApprovalRequested(request)) => {
                Some(Self::Asked(Box::new(ApprovalRow {
                    request: Arc::new(ApprovalRequest::clone(request)),
                    session: invocation.turn.session,
                    turn: invocation.turn.turn,
                    asked_at: event.at(),
                    state: ApprovalState::Pending,
                })))
            }
            EventBody::Tool(invocation, ToolEvent::ToolApproved { .. }) => {
                Some(Self::Answered(invocation.id))
            }
            // A call that a host runs waits for its result; nothing of ours runs.
            EventBody::Tool(
                invocation,
                ToolEvent::ToolExecutionStarted {
                    external: false, ..
                },
            ) => Some(Self::Started(invocation.id)),
            // Also for calls without an approval: a store ignores those.
            EventBody::Tool(invocation, event) => event
                .terminal_status()
                .map(|status| Self::Settled(invocation.id, status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_of_bounded_length() {
        let title = |text: &str| SessionTitle::new(text).map(|title| title.to_string());
        assert_eq!(title(" fix\n\tthe   bug "), Some("fix the bug".into()));
        assert_eq!(title(" \n "), None);
        assert_eq!(title("a\0b \0"), Some("a b".into()));
        for text in ["ä".repeat(121), "ä ".repeat(500), "a".repeat(1_000_000)] {
            let short = title(&text).expect("a title");
            assert_eq!(short.chars().count(), SessionTitle::MAX_CHARS);
            assert!(short.ends_with('…'), "{short}");
            assert_eq!(title(&short).as_ref(), Some(&short), "is stable");
        }
        let exact = "ä".repeat(120);
        assert_eq!(title(&exact), Some(exact));
    }
}
