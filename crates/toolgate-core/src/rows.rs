//! The lists a store keeps beside its logs, and how events change them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    ApprovalId, ApprovalRequest, CallId, Event, EventBody, SessionId, Status, Timestamp, ToolEvent,
    ToolName, TurnEvent, TurnId,
};

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Which session.
    pub session: SessionId,
    /// The number of its last event.
    pub revision: u64,
    /// When its first event happened.
    pub created_at: Timestamp,
    /// When its last event happened.
    pub updated_at: Timestamp,
    /// Who drives it and until when, if somebody does.
    pub held: Option<(Arc<str>, Timestamp)>,
    /// Since when it is hidden, if it is.
    pub hidden_at: Option<Timestamp>,
}

/// Which sessions are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only this one.
    pub session: Option<SessionId>,
    /// Only those behind this one.
    pub after: Option<SessionId>,
    /// Only those with a turn that is not settled.
    pub with_open_turns: bool,
    /// What is done with hidden ones.
    pub hidden: Hidden,
    /// At most this many.
    pub limit: usize,
}

/// What a list does with sessions that are hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Hidden {
    /// They are left out.
    #[default]
    LeftOut,
    /// They are listed like all others.
    Included,
    /// Nothing else is listed.
    Only,
}

/// One turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// Which turn.
    pub turn: TurnId,
    /// In which session.
    pub session: SessionId,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When everything in it was settled, if it is.
    pub settled_at: Option<Timestamp>,
}

/// Which turns are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnFilter {
    /// Only those of this session.
    pub session: SessionId,
    /// Only those behind this one.
    pub after: Option<TurnId>,
    /// Only those that are not settled.
    pub open: bool,
    /// At most this many.
    pub limit: usize,
}

/// One approval: the newest question about a call, as people may see it.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRow {
    /// The question, redacted.
    pub request: Arc<ApprovalRequest>,
    /// In which session.
    pub session: SessionId,
    /// In which turn.
    pub turn: TurnId,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// How far it has come.
    pub state: ApprovalState,
}

/// How far an approval has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has answered.
    Pending,
    /// Somebody has answered; the call has not settled yet.
    Answered,
    /// The call is settled, and how.
    Settled(Status),
}

/// Which approvals are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only the approval of this call.
    pub call: Option<CallId>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those about this tool.
    pub tool: Option<ToolName>,
    /// Only those that nobody has answered.
    pub pending: bool,
    /// Only those behind this one.
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
            hidden: Hidden::LeftOut,
            limit: 100,
        }
    }
}

impl SessionFilter {
    /// One session, hidden or not.
    pub fn of(session: SessionId) -> Self {
        Self {
            session: Some(session),
            hidden: Hidden::Included,
            limit: 1,
            ..Self::default()
        }
    }
}

impl Hidden {
    /// Whether a session that is hidden or not is listed.
    pub const fn lists(self, is_hidden: bool) -> bool {
        match self {
            Self::LeftOut => !is_hidden,
            Self::Included => true,
            Self::Only => is_hidden,
        }
    }
}

impl TurnFilter {
    /// The turns of a session that are not settled.
    pub fn open(session: SessionId) -> Self {
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
    /// The approval of one call, whatever has become of it.
    pub fn of(call: CallId) -> Self {
        Self {
            call: Some(call),
            pending: false,
            limit: 1,
            ..Self::default()
        }
    }

    /// Whether a row is wanted. The store sees to the order and the limit.
    pub fn wants(&self, row: &ApprovalRow) -> bool {
        let call = row.request.approval_id.call();
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

/// What an event changes in the lists.
#[derive(Debug, Clone, PartialEq)]
pub enum RowChange {
    /// There is a new turn.
    TurnOpened(TurnRow),
    /// A turn is settled.
    TurnSettled(TurnId, Timestamp),
    /// A question is asked, for the first time or anew.
    Asked(Box<ApprovalRow>),
    /// The question about a call is answered.
    Answered(CallId),
    /// A call is settled; if there is an approval, it is over.
    Settled(CallId, Status),
}

impl RowChange {
    /// What `event` changes, if anything.
    pub fn of(event: &Event) -> Option<Self> {
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
            EventBody::Turn(
                _,
                TurnEvent::TurnInterrupted { .. } | TurnEvent::PostRefused { .. },
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
            EventBody::Tool(invocation, event) => event
                .terminal()
                .map(|status| Self::Settled(invocation.id, status)),
        }
    }
}
