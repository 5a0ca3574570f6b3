//! What every store keeps: lists of sessions, turns and approvals that follow the events.

use std::sync::Arc;

use serde_json::json;
use toolgate_core::{
    ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalRow, ApprovalState, CallId, Event,
    IdSource, Invocation, LeaseRequest, Position, Post, Record, RecordKey, SessionFilter,
    SessionId, Settled, Status, StoreHandle, Timestamp, ToolEvent, ToolName, TurnEvent, TurnFilter,
    TurnId, TurnInfo,
};

use super::{
    ensure,
    store::{StoreRule, events, text},
};
use crate::fakes::call_with;

pub(super) const RULES: [(&str, StoreRule); 4] = [
    ("sessions_are_listed_as_their_logs_stand", |s, i| {
        Box::pin(sessions(s, i))
    }),
    ("turns_are_listed_until_they_settle", |s, i| {
        Box::pin(turns(s, i))
    }),
    ("approvals_follow_the_events", |s, i| {
        Box::pin(approvals(s, i))
    }),
    ("approvals_are_found_by_what_they_are_about", |s, i| {
        Box::pin(filters(s, i))
    }),
];

/// A session that a rule writes, event by event.
struct Script<'a> {
    store: &'a StoreHandle,
    ids: &'a dyn IdSource,
    session: SessionId,
    revision: u64,
}

impl<'a> Script<'a> {
    fn new(store: &'a StoreHandle, ids: &'a dyn IdSource) -> Self {
        Self {
            store,
            ids,
            session: SessionId::from_source(ids),
            revision: 0,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000 + self.revision as i64 + 1)
    }

    async fn add(&mut self, event: Event) -> Result<(), String> {
        let at = Position::unleased(self.revision);
        self.revision = self
            .store
            .append(self.session, at, events(vec![Arc::new(event)]))
            .await
            .map_err(text)?;
        Ok(())
    }

    async fn turn(&mut self, turn: TurnId, event: TurnEvent) -> Result<(), String> {
        let info = Arc::new(TurnInfo::new(self.session, turn));
        self.add(Event::turn(self.revision + 1, self.now(), info, event).expect("a valid event"))
            .await
    }

    async fn open(&mut self) -> Result<TurnId, String> {
        let turn = TurnId::from_source(self.ids);
        self.turn(
            turn,
            TurnEvent::TurnOpened {
                size: 1,
                after: None,
            },
        )
        .await?;
        Ok(turn)
    }

    async fn tool(
        &mut self,
        turn: TurnId,
        call: CallId,
        tool: &str,
        event: ToolEvent,
    ) -> Result<(), String> {
        let turn = Arc::new(TurnInfo::new(self.session, turn));
        let head = Invocation {
            id: call,
            call_id: "c".into(),
            tool: tool.into(),
            emit_order: 0,
            turn,
        };
        self.add(
            Event::tool(self.revision + 1, self.now(), Arc::new(head), event)
                .expect("a valid event"),
        )
        .await
    }

    /// Asks about a new call, and says how the approval should be listed.
    async fn ask(
        &mut self,
        turn: TurnId,
        call: CallId,
        tool: &str,
        generation: u32,
    ) -> Result<ApprovalRow, String> {
        let mut request = ApprovalRequest::about(&call_with(tool, json!({ "n": generation })));
        (request.approval_id, request.generation) = (ApprovalId::of(call), generation);
        let (session, asked_at) = (self.session, self.now());
        // The runtime keeps the question itself beside the event that shows it.
        let question = (
            RecordKey::Question(call, generation),
            Record::Question(Arc::new(request.clone())),
        );
        store_record(self.store, question).await?;
        self.tool(
            turn,
            call,
            tool,
            ToolEvent::ToolApprovalRequested(Box::new(request.clone())),
        )
        .await?;
        let (request, state) = (Arc::new(request), ApprovalState::Pending);
        Ok(ApprovalRow {
            request,
            session,
            turn,
            asked_at,
            state,
        })
    }
}

async fn store_record(
    store: &StoreHandle,
    (key, record): (RecordKey, Record),
) -> Result<(), String> {
    store.once(key, record).await.map(drop).map_err(text)
}

async fn sessions(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut first = Script::new(store, ids);
    let mut second = Script::new(store, ids);
    // Leased and posted to, but without events: not listed.
    let until = Timestamp::from_micros(99);
    let request = |session| LeaseRequest {
        session,
        holder: "a".into(),
        now: until,
        until,
        instead_of: None,
    };
    store
        .lease(request(SessionId::from_source(ids)))
        .await
        .map_err(text)?;
    let turn = first.open().await?;
    first.turn(turn, TurnEvent::TurnSettled).await?;
    second.open().await?;
    store.lease(request(second.session)).await.map_err(text)?;
    let before = SessionId::new(uuid::Uuid::from_u128(first.session.uuid().as_u128() - 1));
    let filter = SessionFilter {
        after: Some(before),
        ..SessionFilter::default()
    };
    let rows = store.sessions(filter.clone()).await.map_err(text)?;
    ensure(rows.len() == 2, format!("{rows:?}"))?;
    let (row, other) = (&rows[0], &rows[1]);
    let times = (row.created_at.as_micros(), row.updated_at.as_micros());
    let right = (row.session, row.revision, times) == (first.session, 2, (1_001, 1_002))
        && row.held.is_none();
    ensure(right, format!("{row:?}"))?;
    ensure(
        other.session == second.session && other.held == Some(("a".into(), until)),
        format!("{other:?}"),
    )?;
    let open = store
        .sessions(SessionFilter {
            with_open_turns: true,
            ..filter.clone()
        })
        .await
        .map_err(text)?;
    ensure(open == rows[1..], format!("with open turns: {open:?}"))?;
    let page = store
        .sessions(SessionFilter { limit: 1, ..filter })
        .await
        .map_err(text)?;
    ensure(page == rows[..1], format!("the first page: {page:?}"))
}

async fn turns(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = Script::new(store, ids);
    let first = script.open().await?;
    let second = script.open().await?;
    script.turn(first, TurnEvent::TurnSettled).await?;
    let all = TurnFilter {
        open: false,
        ..TurnFilter::open(script.session)
    };
    let rows = store.turns(all.clone()).await.map_err(text)?;
    let listed: Vec<_> = rows
        .iter()
        .map(|row| (row.turn, row.settled_at.map(Timestamp::as_micros)))
        .collect();
    ensure(
        listed == [(first, Some(1_003)), (second, None)],
        format!("{rows:?}"),
    )?;
    let opened = rows.iter().all(|row| row.session == script.session)
        && rows[1].opened_at.as_micros() == 1_002;
    ensure(opened, format!("{rows:?}"))?;
    let open = store
        .turns(TurnFilter::open(script.session))
        .await
        .map_err(text)?;
    ensure(open == rows[1..], format!("open: {open:?}"))?;
    let behind = store
        .turns(TurnFilter {
            after: Some(first),
            ..all.clone()
        })
        .await
        .map_err(text)?;
    ensure(behind == rows[1..], format!("behind the first: {behind:?}"))?;
    ensure(
        store
            .turns(TurnFilter { limit: 1, ..all })
            .await
            .map_err(text)?
            == rows[..1],
        "a page is wrong",
    )
}

async fn approvals(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = Script::new(store, ids);
    let (turn, call) = (script.open().await?, CallId::from_source(ids));
    let listed = async |expected: &ApprovalRow| {
        let rows = store
            .approvals(ApprovalFilter::of(call))
            .await
            .map_err(text)?;
        ensure(
            rows == [expected.clone()],
            format!("{rows:?}, not {expected:?}"),
        )
    };
    let mut row = script.ask(turn, call, "write", 1).await?;
    listed(&row).await?;
    store
        .post(
            script.session,
            Post::Answer {
                turn,
                call,
                generation: 1,
            },
            Vec::new(),
        )
        .await
        .map_err(text)?;
    row.state = ApprovalState::Answered;
    listed(&row).await?;
    row = script.ask(turn, call, "write", 2).await?;
    listed(&row).await?;
    script
        .tool(
            turn,
            call,
            "write",
            ToolEvent::ToolApproved {
                approver: "a".into(),
                reason: None,
                edited: false,
            },
        )
        .await?;
    row.state = ApprovalState::Answered;
    listed(&row).await?;
    let settled = ToolEvent::settling(&Settled::new(Status::Timeout), true, None, None);
    script.tool(turn, call, "write", settled.clone()).await?;
    row.state = ApprovalState::Settled(Status::Timeout);
    listed(&row).await?;
    let other = CallId::from_source(ids);
    script.tool(turn, other, "write", settled).await?;
    let none = store
        .approvals(ApprovalFilter::of(other))
        .await
        .map_err(text)?;
    ensure(
        none.is_empty(),
        "a call that was never asked about has an approval",
    )
}

async fn filters(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = Script::new(store, ids);
    let mut other = Script::new(store, ids);
    let turn = script.open().await?;
    let calls: Vec<CallId> = (0..4).map(|_| CallId::from_source(ids)).collect();
    let mut rows = Vec::new();
    for (call, tool) in calls.iter().zip(["read", "write", "read", "write"]) {
        rows.push(script.ask(turn, *call, tool, 1).await?);
    }
    let elsewhere = other.ask(turn, CallId::from_source(ids), "read", 1).await?;
    script
        .tool(
            turn,
            calls[2],
            "read",
            ToolEvent::ToolSkipped { reason: None },
        )
        .await?;
    rows[2].state = ApprovalState::Settled(Status::DryRun);
    let all = ApprovalFilter {
        session: Some(script.session),
        pending: false,
        ..ApprovalFilter::default()
    };
    let pending = ApprovalFilter {
        pending: true,
        ..all.clone()
    };
    let read = Some(ToolName::from("read"));
    let first = Some(ApprovalId::of(calls[0]));
    let row = |n: usize| rows[n].clone();
    for (filter, expected) in [
        (all.clone(), rows.clone()),
        (pending.clone(), vec![row(0), row(1), row(3)]),
        (
            ApprovalFilter {
                tool: read.clone(),
                ..all.clone()
            },
            vec![row(0), row(2)],
        ),
        (
            ApprovalFilter {
                tool: read.clone(),
                ..pending.clone()
            },
            vec![row(0)],
        ),
        (
            ApprovalFilter {
                after: first,
                ..pending.clone()
            },
            vec![row(1), row(3)],
        ),
        (
            ApprovalFilter {
                limit: 2,
                ..all.clone()
            },
            vec![row(0), row(1)],
        ),
        (
            ApprovalFilter {
                call: Some(calls[3]),
                ..all
            },
            vec![row(3)],
        ),
        (
            ApprovalFilter {
                session: None,
                tool: read,
                after: first,
                ..pending
            },
            vec![elsewhere],
        ),
    ] {
        let found = store.approvals(filter.clone()).await.map_err(text)?;
        // Without a session others may be listed too: every rule uses the same store.
        let found: Vec<_> = found
            .into_iter()
            .filter(|row| [script.session, other.session].contains(&row.session))
            .collect();
        ensure(found == expected, format!("{filter:?}: {found:?}"))?;
    }
    Ok(())
}
