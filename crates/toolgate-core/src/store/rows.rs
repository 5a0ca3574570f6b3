//! The lists that a store derives from its logs, and how events change them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    ApprovalId, ApprovalRequest, CallId, Event, EventBody, SessionId, Status, Timestamp, ToolEvent,
    ToolName, TurnEvent, TurnId,
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
    /// The treatment of hidden ones.
    pub hidden: HiddenSessions,
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
    /// There is a decision; the call has not settled yet.
    Answered,
    /// The call has settled with this status.
    Settled(Status),
}

impl ApprovalState {
    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "answered",
            Self::Settled(status) => status.as_str(),
        }
    }

    /// Returns the text that people read.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "decided, not executed yet",
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
            hidden: HiddenSessions::Excluded,
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

/// A change of the lists by an event.
#[derive(Debug, Clone, PartialEq)]
pub enum RowChange {
    /// There is a new turn.
    TurnOpened(TurnRow),
    /// A turn is settled.
    TurnSettled(TurnId, Timestamp),
    /// Approval is requested, for the first time or again.
    Asked(Box<ApprovalRow>),
    /// The approval request for a call is decided.
    Answered(CallId),
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
                Some(Self::TurnSettled(info.turn, event.at()))
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
            // Also for calls without an approval: a store ignores those.
            EventBody::Tool(invocation, event) => event
                .terminal_status()
                .map(|status| Self::Settled(invocation.id, status)),
        }
    }
}
