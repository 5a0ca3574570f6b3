//! Shared by the tests of the stores: events to write, and databases to write them to.

#![allow(dead_code, reason = "each test binary uses the part it needs")]

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod proxy;

use std::sync::Arc;

use serde_json::json;
use toolgate_core::{
    ApprovalId, ApprovalRequest, CallId, Event, Invocation, Json, LedgerDraft, LedgerName,
    RecordKey, SessionId, StoreRecord, Timestamp, ToolEvent, TurnEvent, TurnId, TurnInfo,
    WriteBatch,
};
use toolgate_testkit::call_with;
use uuid::Uuid;

#[cfg(feature = "postgres")]
pub(crate) use {
    postgres::TestDatabase,
    proxy::{CommitLoss, LossyProxy},
};

pub(crate) fn session(n: u128) -> SessionId {
    SessionId::new(Uuid::from_u128(0x5e55_0000_0000 + n))
}

pub(crate) fn turn_id(n: u128) -> TurnId {
    TurnId::new(Uuid::from_u128(0x7042_0000_0000 + n))
}

pub(crate) fn call_id(n: u128) -> CallId {
    CallId::new(Uuid::from_u128(0xca11_0000_0000 + n))
}

pub(crate) fn key(name: &str) -> RecordKey {
    RecordKey::Other(name.into())
}

pub(crate) fn note(text: &str) -> StoreRecord {
    StoreRecord::Json(Json::from(text))
}

/// Returns an event about a turn, at a time derived from its number.
pub(crate) fn turn_event(
    session: SessionId,
    sequence: u64,
    turn: TurnId,
    event: TurnEvent,
) -> Arc<Event> {
    let at = Timestamp::from_micros(1_000_000 * sequence as i64);
    let info = Arc::new(TurnInfo::new(session, turn));
    Arc::new(Event::for_turn(sequence, at, info, event).expect("a valid event"))
}

pub(crate) fn opened(session: SessionId, sequence: u64, turn: TurnId) -> Arc<Event> {
    turn_event(
        session,
        sequence,
        turn,
        TurnEvent::TurnOpened {
            size: 1,
            after: None,
        },
    )
}

/// Returns an event about a call.
pub(crate) fn tool_event(
    session: SessionId,
    sequence: u64,
    call: CallId,
    event: ToolEvent,
) -> Arc<Event> {
    let at = Timestamp::from_micros(1_000_000 * sequence as i64);
    let turn = Arc::new(TurnInfo::new(session, turn_id(1)));
    let head = Invocation {
        id: call,
        call_id: "c".into(),
        tool: "write".into(),
        emit_order: 0,
        turn,
    };
    Arc::new(Event::for_invocation(sequence, at, Arc::new(head), event).expect("a valid event"))
}

/// Returns an approval request for a call: its event and its record.
pub(crate) fn approval_request(session: SessionId, sequence: u64, call: CallId) -> WriteBatch {
    let mut request = ApprovalRequest::for_call(&call_with("write", json!({ "path": "a.txt" })));
    request.approval_id = ApprovalId::for_call(call);
    let record = StoreRecord::Question(Arc::new(request.clone()));
    let event = tool_event(
        session,
        sequence,
        call,
        ToolEvent::ToolApprovalRequested(Box::new(request.clone())),
    );
    let records = vec![(RecordKey::Question(call, request.generation), record)];
    WriteBatch {
        events: vec![event],
        records,
        ..WriteBatch::default()
    }
}

pub(crate) fn draft(ledger: &str, n: u64) -> LedgerDraft {
    let ledger: LedgerName = ledger.parse().expect("a plain name");
    LedgerDraft {
        ledger,
        body: format!("{{\"n\":{n}}}").into(),
    }
}
