//! The store rules for lists: sessions, turns and approvals follow the events.

use std::sync::Arc;

use serde_json::json;
use toolgate_core::{
    ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalRow, ApprovalState, CallId, Cost, Event,
    IdSource, Invocation, Labels, LastRun, LeaseRequest, LogPosition, MailboxItem, RecordKey,
    RunEnd, RunState, SessionEvent, SessionFilter, SessionId, SessionOrder, SessionRow,
    SessionTitle, SettledOutcome, Status, StoreHandle, StoreRecord, Timestamp, ToolEvent, ToolName,
    TurnEvent, TurnFilter, TurnId, TurnInfo, Usage,
};

use super::{
    ENDED_TERM, LONG_TERM, StoreRule, ensure, error_text, event_batch, lease_request,
    leased_position, sample_events,
};
use crate::fakes::call_with;

pub(super) const RULES: [(&str, StoreRule); 10] = [
    ("sessions_are_listed_as_their_logs_say", |s, i| {
        Box::pin(lists_sessions(s, i))
    }),
    ("the_session_of_an_agent_keeps_its_parent", |s, i| {
        Box::pin(keeps_the_parent(s, i))
    }),
    (
        "a_session_has_the_title_of_its_first_message_until_it_is_renamed",
        |s, i| Box::pin(keeps_the_title(s, i)),
    ),
    (
        "a_session_keeps_the_directory_of_its_first_lease",
        |s, i| Box::pin(keeps_the_directory(s, i)),
    ),
    (
        "sessions_are_ordered_by_use_whatever_the_clock_says",
        |s, i| Box::pin(orders_by_use(s, i)),
    ),
    ("the_last_run_follows_the_events", |s, i| {
        Box::pin(follows_the_last_run(s, i))
    }),
    ("sessions_are_found_by_run_principal_and_labels", |s, i| {
        Box::pin(filters_sessions(s, i))
    }),
    ("turns_are_listed_until_they_settle", |s, i| {
        Box::pin(lists_turns(s, i))
    }),
    ("approvals_follow_the_events", |s, i| {
        Box::pin(lists_approvals(s, i))
    }),
    ("approvals_are_found_by_their_filters", |s, i| {
        Box::pin(filters_approvals(s, i))
    }),
];

/// A session that a rule writes, event by event.
pub(super) struct SessionScript<'a> {
    store: &'a StoreHandle,
    ids: &'a dyn IdSource,
    pub(super) session: SessionId,
    revision: u64,
    fence: u64,
}

impl<'a> SessionScript<'a> {
    pub(super) fn new(store: &'a StoreHandle, ids: &'a dyn IdSource) -> Self {
        Self {
            store,
            ids,
            session: SessionId::from_source(ids),
            revision: 0,
            fence: 0,
        }
    }

    /// Writes under a lease that the session was given.
    pub(super) fn set_fence(&mut self, fence: u64) {
        self.fence = fence;
    }

    fn position(&self) -> LogPosition {
        LogPosition {
            fence: self.fence,
            ..LogPosition::unleased(self.revision)
        }
    }

    pub(super) async fn settle_turn(&mut self, turn: TurnId) -> Result<(), String> {
        self.add_turn_event(turn, TurnEvent::TurnSettled).await
    }

    fn next_time(&self) -> Timestamp {
        Timestamp::from_micros(1_000 + self.revision as i64 + 1)
    }

    async fn append_event(&mut self, event: Event) -> Result<(), String> {
        let at = self.position();
        self.revision = self
            .store
            .append(self.session, at, event_batch(vec![Arc::new(event)]))
            .await
            .map_err(error_text)?;
        Ok(())
    }

    async fn add_turn_event(&mut self, turn: TurnId, event: TurnEvent) -> Result<(), String> {
        let info = Arc::new(TurnInfo::new(self.session, turn));
        self.append_event(
            Event::for_turn(self.revision + 1, self.next_time(), info, event)
                .expect("a valid event"),
        )
        .await
    }

    pub(super) async fn open_turn(&mut self) -> Result<TurnId, String> {
        let turn = TurnId::from_source(self.ids);
        self.add_turn_event(
            turn,
            TurnEvent::TurnOpened {
                size: 1,
                after: None,
            },
        )
        .await?;
        Ok(turn)
    }

    /// Adds an event of the run 3 in one write with an event that changes no list.
    pub(super) async fn add_run_event(
        &mut self,
        info: &TurnInfo,
        event: SessionEvent,
    ) -> Result<Timestamp, String> {
        let mut info = info.clone();
        info.session = self.session;
        info.run = Some(3);
        let info = Arc::new(info);
        let at = self.next_time();
        let skipped = SessionEvent::HistoryCompacted {
            skipped: 1,
            kept: 1,
        };
        let after = Timestamp::from_micros(at.as_micros() + 1);
        let events = [(1, at, event), (2, after, skipped)].map(|(n, at, event)| {
            let event = Event::for_run(self.revision + n, at, info.clone(), event);
            Arc::new(event.expect("a valid event"))
        });
        let position = self.position();
        self.revision = self
            .store
            .append(self.session, position, event_batch(events.into()))
            .await
            .map_err(error_text)?;
        Ok(at)
    }

    pub(super) async fn row(&self) -> Result<SessionRow, String> {
        let found = self
            .store
            .sessions(SessionFilter::for_session(self.session))
            .await;
        let row = found.map_err(error_text)?.pop();
        row.ok_or_else(|| "the session is not listed".to_owned())
    }

    pub(super) async fn add_tool_event(
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
        self.append_event(
            Event::for_invocation(self.revision + 1, self.next_time(), Arc::new(head), event)
                .expect("a valid event"),
        )
        .await
    }

    /// Adds an approval request for a new call, and returns the row that should be listed.
    pub(super) async fn request_approval(
        &mut self,
        turn: TurnId,
        call: CallId,
        tool: &str,
        generation: u32,
    ) -> Result<ApprovalRow, String> {
        let mut request = ApprovalRequest::for_call(&call_with(tool, json!({ "n": generation })));
        request.approval_id = ApprovalId::for_call(call);
        request.generation = generation;
        let session = self.session;
        let asked_at = self.next_time();
        // The runtime stores the request itself beside the event that shows it.
        let key = RecordKey::Question(call, generation);
        let question = StoreRecord::Question(Arc::new(request.clone()));
        store_record(self.store, key, question).await?;
        self.add_tool_event(
            turn,
            call,
            tool,
            ToolEvent::ToolApprovalRequested(Box::new(request.clone())),
        )
        .await?;
        let request = Arc::new(request);
        let state = ApprovalState::Pending;
        Ok(ApprovalRow {
            request,
            session,
            turn,
            asked_at,
            state,
        })
    }
}

/// Returns the event that a call was approved.
pub(super) fn approved() -> ToolEvent {
    ToolEvent::ToolApproved {
        approver: "a".into(),
        established: Default::default(),
        claimed_as: None,
        reason: None,
        edited: false,
        unseen: false,
        with: Vec::new(),
    }
}

pub(super) async fn store_record(
    store: &StoreHandle,
    key: RecordKey,
    record: StoreRecord,
) -> Result<(), String> {
    store
        .put_record_once(key, record)
        .await
        .map(drop)
        .map_err(error_text)
}

async fn lists_sessions(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut first = SessionScript::new(store, ids);
    let mut second = SessionScript::new(store, ids);
    // With a lease but without events: not listed.
    let request = |session| lease_request(session, "a", LONG_TERM);
    store
        .acquire_lease(request(SessionId::from_source(ids)))
        .await
        .map_err(error_text)?;
    let turn = first.open_turn().await?;
    first.add_turn_event(turn, TurnEvent::TurnSettled).await?;
    second.open_turn().await?;
    store
        .acquire_lease(request(second.session))
        .await
        .map_err(error_text)?;
    let before = SessionId::new(uuid::Uuid::from_u128(first.session.uuid().as_u128() - 1));
    let filter = SessionFilter {
        after: Some(before),
        ..SessionFilter::default()
    };
    let rows = store.sessions(filter.clone()).await.map_err(error_text)?;
    ensure(rows.len() == 2, format!("{rows:?}"))?;
    let row = &rows[0];
    let other = &rows[1];
    let times = (row.created_at.as_micros(), row.updated_at.as_micros());
    let right = (row.session, row.revision, times) == (first.session, 2, (1_001, 1_002))
        && row.held.is_none();
    ensure(right, format!("{row:?}"))?;
    ensure(
        other.session == second.session
            && other
                .held
                .as_ref()
                .is_some_and(|(holder, _)| **holder == *"a"),
        format!("{other:?}"),
    )?;
    let open = store
        .sessions(SessionFilter {
            with_open_turns: true,
            ..filter.clone()
        })
        .await
        .map_err(error_text)?;
    ensure(open == rows[1..], format!("with open turns: {open:?}"))?;
    let page = store
        .sessions(SessionFilter { limit: 1, ..filter })
        .await
        .map_err(error_text)?;
    ensure(page == rows[..1], format!("the first page: {page:?}"))
}

async fn keeps_the_parent(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let parent = SessionId::from_source(ids);
    let session = CallId::from_source(ids).agent_session();
    let request = |parent| LeaseRequest {
        parent,
        ..lease_request(session, "a", ENDED_TERM)
    };
    store
        .acquire_lease(request(Some(parent)))
        .await
        .map_err(error_text)?;
    let other = SessionId::from_source(ids);
    // A later driver does not name it, or names another one.
    for (parent_again, revision) in [(None, 0), (Some(other), 1)] {
        let lease = store
            .acquire_lease(request(parent_again))
            .await
            .map_err(error_text)?;
        let events = event_batch(sample_events(session, ids, revision + 1, 1));
        store
            .append(session, leased_position(&lease, revision), events)
            .await
            .map_err(error_text)?;
        let row = store.sessions(SessionFilter::for_session(session)).await;
        let row = row.map_err(error_text)?.pop();
        let listed = row.and_then(|row| row.parent);
        ensure(
            listed == Some(parent),
            format!("the parent is {listed:?}, not {parent}"),
        )?;
        store.release_lease(&lease).await.map_err(error_text)?;
    }
    let erased = store.erase_session(session, LONG_TERM.now).await;
    erased.map_err(error_text)?;
    let lease = store
        .acquire_lease(request(None))
        .await
        .map_err(error_text)?;
    let events = event_batch(sample_events(session, ids, 1, 1));
    store
        .append(session, leased_position(&lease, 0), events)
        .await
        .map_err(error_text)?;
    let rows = store.sessions(SessionFilter::for_session(session)).await;
    ensure(
        rows.map_err(error_text)?
            .iter()
            .all(|row| row.parent.is_none()),
        "an erased session still has its parent",
    )
}

async fn keeps_the_title(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = SessionScript::new(store, ids);
    let info = TurnInfo::new(script.session, TurnId::from_source(ids));
    let title = |text: &str| SessionTitle::new(text);
    let name = title("a name").expect("a title");
    store
        .rename_session(script.session, name.clone())
        .await
        .map_err(error_text)?;
    script.open_turn().await?;
    let found = script.row().await?.title;
    ensure(found.is_none(), "renaming creates no session")?;
    let long = "fix\nthe bug ".repeat(100);
    for (text, steering, expected) in [
        (None, false, None),
        (Some("meanwhile"), true, None),
        (Some(long.as_str()), false, title(&long)),
        (Some("and this"), false, title(&long)),
    ] {
        let event = SessionEvent::UserMessage {
            message: 3,
            text: text.map(str::to_owned),
            text_bytes: None,
            steering,
        };
        script.add_run_event(&info, event).await?;
        let found = script.row().await?.title;
        ensure(found == expected, format!("after {text:?}: {found:?}"))?;
    }
    store
        .rename_session(script.session, name.clone())
        .await
        .map_err(error_text)?;
    script.add_run_event(&info, user_message()).await?;
    let found = script.row().await?.title;
    ensure(found == Some(name), format!("renamed: {found:?}"))?;
    let erased = store.erase_session(script.session, LONG_TERM.now).await;
    erased.map_err(error_text)?;
    let mut again = SessionScript {
        revision: 0,
        ..script
    };
    // The fence of a session that had no lease begins at 1 after it was erased.
    let lease = lease_request(again.session, "a", ENDED_TERM);
    let lease = store.acquire_lease(lease).await.map_err(error_text)?;
    let events = event_batch(sample_events(again.session, ids, 1, 1));
    again.revision = store
        .append(again.session, leased_position(&lease, 0), events)
        .await
        .map_err(error_text)?;
    let found = again.row().await?.title;
    ensure(found.is_none(), "an erased session still has its title")
}

async fn keeps_the_directory(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    // Names that no other rule uses: the store may hold anything already.
    let here: Arc<str> = format!("/it's/\"{session}\"").into();
    let mut revision = 0;
    for directory in [None, Some(here.clone()), Some("/there".into()), None] {
        let request = LeaseRequest {
            directory,
            ..lease_request(session, "a", ENDED_TERM)
        };
        let lease = store.acquire_lease(request).await.map_err(error_text)?;
        let events = event_batch(sample_events(session, ids, revision + 1, 1));
        revision = store
            .append(session, leased_position(&lease, revision), events)
            .await
            .map_err(error_text)?;
        store.release_lease(&lease).await.map_err(error_text)?;
    }
    let in_directory = |directory: &Arc<str>| SessionFilter {
        directory: Some(directory.clone()),
        ..SessionFilter::default()
    };
    let rows = store.sessions(in_directory(&here)).await;
    let rows = rows.map_err(error_text)?;
    let found: Vec<_> = rows.iter().map(|row| row.session).collect();
    ensure(found == [session], "a session is found by its directory")?;
    let listed = rows[0].directory.as_ref() == Some(&here);
    ensure(listed, format!("{:?}", rows[0].directory))?;
    let erased = store.erase_session(session, LONG_TERM.now).await;
    erased.map_err(error_text)?;
    let rows = store.sessions(in_directory(&here)).await;
    let is_gone = rows.map_err(error_text)?.is_empty();
    ensure(is_gone, "an erased session still has its directory")
}

async fn orders_by_use(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let principal = format!("ann {}", SessionId::from_source(ids));
    let info = labelled_turn(ids, &principal, "acme");
    let filter = SessionFilter {
        principal: Some(principal.as_str().into()),
        order: SessionOrder::LastUse,
        ..SessionFilter::default()
    };
    let mut first = SessionScript::new(store, ids);
    let mut second = SessionScript::new(store, ids);
    // The time of an event follows from its number here, so the session with more events is newer
    // by the clock.
    let mut expected = Vec::new();
    for is_first in [true, true, true, false, true, false] {
        let used = if is_first { &mut first } else { &mut second };
        used.add_run_event(&info, user_message()).await?;
        let session = used.session;
        expected.retain(|known| *known != session);
        expected.insert(0, session);
        let rows = store.sessions(filter.clone()).await.map_err(error_text)?;
        let found: Vec<_> = rows.iter().map(|row| row.session).collect();
        ensure(found == expected, format!("{found:?}, not {expected:?}"))?;
        let is_falling = rows.is_sorted_by(|a, b| a.last_use > b.last_use);
        ensure(is_falling, "each use has a number of its own")?;
    }
    let last = SessionFilter { limit: 1, ..filter };
    let rows = store.sessions(last).await.map_err(error_text)?;
    let is_last = rows.len() == 1 && rows[0].session == second.session;
    ensure(is_last, "the limit keeps the session that was used last")?;
    // What is no use leaves the order as it is.
    let before = rows[0].last_use;
    let lease = lease_request(first.session, "a", ENDED_TERM);
    store.acquire_lease(lease).await.map_err(error_text)?;
    let title = SessionTitle::new("a name").expect("a title");
    store
        .rename_session(first.session, title)
        .await
        .map_err(error_text)?;
    let is_behind = first.row().await?.last_use < before;
    ensure(is_behind, "a lease or a name is no use")
}

fn user_message() -> SessionEvent {
    SessionEvent::UserMessage {
        message: 3,
        text: None,
        text_bytes: None,
        steering: false,
    }
}

fn run_ended(end: RunEnd) -> SessionEvent {
    SessionEvent::RunEnded {
        end,
        error: None,
        iterations: 1,
        usage: Usage::default(),
        cost: Cost::Unknown,
    }
}

/// Returns a turn of a principal with a label.
fn labelled_turn(ids: &dyn IdSource, principal: &str, tenant: &str) -> TurnInfo {
    let nil = SessionId::from_source(ids);
    let mut info = TurnInfo::new(nil, TurnId::from_source(ids));
    info.principal = Some(principal.into());
    info.labels = Labels::new([("tenant.id", tenant), ("env", "it's \"a\" test")]).expect("valid");
    info
}

async fn follows_the_last_run(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = SessionScript::new(store, ids);
    let nobody = TurnInfo::new(script.session, TurnId::from_source(ids));
    let ann = labelled_turn(ids, "ann", "acme");
    let started = SessionEvent::InferenceStarted {
        attempt: 1,
        messages: 1,
        tools: 0,
    };
    let steps = [
        (user_message(), RunState::Running),
        (run_ended(RunEnd::Suspended), RunState::Suspended),
        (started, RunState::Running),
        (run_ended(RunEnd::Failed), RunState::Ended(RunEnd::Failed)),
    ];
    for (event, state) in steps {
        let at = script.add_run_event(&ann, event).await?;
        let row = script.row().await?;
        let last_run = Some(LastRun { run: 3, state, at });
        ensure(row.last_run == last_run, "the row has the last run")?;
        ensure(row.principal == ann.principal, "the row has the principal")?;
        ensure(row.labels == ann.labels, "the row has the labels")?;
    }
    let before = script.row().await?.last_run;
    script.open_turn().await?;
    let row = script.row().await?;
    ensure(
        row.last_run == before,
        "a turn without a run changes no run",
    )?;
    ensure(row.principal == ann.principal, "a principal stays")?;
    ensure(row.labels.is_empty(), "labels are those of the last turn")?;
    script.add_run_event(&nobody, user_message()).await?;
    let state = script.row().await?.last_run.map(|last| last.state);
    ensure(state == Some(RunState::Running), "another run began")
}

async fn filters_sessions(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    // Names that no other rule uses: the store may hold anything already.
    let tenants =
        [SessionId::from_source(ids), SessionId::from_source(ids)].map(|id| id.to_string());
    let ann = format!("ann {}", tenants[0]);
    let mut sessions = Vec::new();
    for (principal, tenant, end) in [
        (ann.as_str(), &tenants[0], None),
        (ann.as_str(), &tenants[1], Some(RunEnd::Suspended)),
        (ann.as_str(), &tenants[0], Some(RunEnd::Completed)),
        ("bob", &tenants[0], Some(RunEnd::Suspended)),
    ] {
        let mut script = SessionScript::new(store, ids);
        let info = labelled_turn(ids, principal, tenant);
        script.add_run_event(&info, user_message()).await?;
        if let Some(end) = end {
            script.add_run_event(&info, run_ended(end)).await?;
        }
        sessions.push(script.session);
    }
    let of_ann = SessionFilter {
        principal: Some(ann.as_str().into()),
        ..SessionFilter::default()
    };
    let of_tenant = SessionFilter {
        labels: Labels::new([
            ("tenant.id", tenants[0].as_str()),
            ("env", "it's \"a\" test"),
        ])
        .expect("valid"),
        ..SessionFilter::default()
    };
    let both = SessionFilter {
        unfinished: true,
        labels: of_tenant.labels.clone(),
        ..of_ann.clone()
    };
    let unfinished = SessionFilter {
        unfinished: true,
        ..of_ann.clone()
    };
    let other = SessionFilter {
        labels: Labels::new([("tenant", tenants[0].as_str())]).expect("valid"),
        ..SessionFilter::default()
    };
    let first = SessionFilter {
        limit: 1,
        ..of_tenant.clone()
    };
    for (filter, wanted, what) in [
        (of_ann, vec![0, 1, 2], "by principal"),
        (of_tenant, vec![0, 2, 3], "by labels"),
        (unfinished, vec![0, 1], "by unfinished runs"),
        (both, vec![0], "by all of them"),
        (other, vec![], "not by a label of another name"),
        (first, vec![0], "after the filter, up to the limit"),
    ] {
        let rows = store.sessions(filter).await.map_err(error_text)?;
        let found: Vec<_> = rows.iter().map(|row| row.session).collect();
        let wanted: Vec<SessionId> = wanted.into_iter().map(|at: usize| sessions[at]).collect();
        ensure(found == wanted, format!("sessions are found {what}"))?;
    }
    Ok(())
}

async fn lists_turns(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = SessionScript::new(store, ids);
    let first = script.open_turn().await?;
    let second = script.open_turn().await?;
    script.add_turn_event(first, TurnEvent::TurnSettled).await?;
    let all = TurnFilter {
        open: false,
        ..TurnFilter::open_in(script.session)
    };
    let rows = store.turns(all.clone()).await.map_err(error_text)?;
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
        .turns(TurnFilter::open_in(script.session))
        .await
        .map_err(error_text)?;
    ensure(open == rows[1..], format!("open: {open:?}"))?;
    let behind = store
        .turns(TurnFilter {
            after: Some(first),
            ..all.clone()
        })
        .await
        .map_err(error_text)?;
    ensure(behind == rows[1..], format!("behind the first: {behind:?}"))?;
    ensure(
        store
            .turns(TurnFilter { limit: 1, ..all })
            .await
            .map_err(error_text)?
            == rows[..1],
        "a page is wrong",
    )
}

async fn lists_approvals(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = SessionScript::new(store, ids);
    let turn = script.open_turn().await?;
    let call = CallId::from_source(ids);
    let listed = async |expected: &ApprovalRow| {
        let rows = store
            .approvals(ApprovalFilter::for_call(call))
            .await
            .map_err(error_text)?;
        ensure(
            rows == [expected.clone()],
            format!("{rows:?}, not {expected:?}"),
        )
    };
    let mut row = script.request_approval(turn, call, "write", 1).await?;
    listed(&row).await?;
    store
        .post_item(
            script.session,
            MailboxItem::Answer {
                turn,
                call,
                generation: 1,
            },
            Vec::new(),
        )
        .await
        .map_err(error_text)?;
    row.state = ApprovalState::Answered;
    listed(&row).await?;
    row = script.request_approval(turn, call, "write", 2).await?;
    listed(&row).await?;
    script
        .add_tool_event(turn, call, "write", approved())
        .await?;
    row.state = ApprovalState::Answered;
    listed(&row).await?;
    let settled = ToolEvent::from_settled(&SettledOutcome::new(Status::Timeout), true, None, None);
    script
        .add_tool_event(turn, call, "write", settled.clone())
        .await?;
    row.state = ApprovalState::Settled(Status::Timeout);
    listed(&row).await?;
    let other = CallId::from_source(ids);
    script.add_tool_event(turn, other, "write", settled).await?;
    let none = store
        .approvals(ApprovalFilter::for_call(other))
        .await
        .map_err(error_text)?;
    ensure(
        none.is_empty(),
        "a call without an approval request has an approval",
    )
}

async fn filters_approvals(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let mut script = SessionScript::new(store, ids);
    let mut other = SessionScript::new(store, ids);
    let turn = script.open_turn().await?;
    let calls: Vec<CallId> = (0..4).map(|_| CallId::from_source(ids)).collect();
    let mut rows = Vec::new();
    for (call, tool) in calls.iter().zip(["read", "write", "read", "write"]) {
        rows.push(script.request_approval(turn, *call, tool, 1).await?);
    }
    let elsewhere = other
        .request_approval(turn, CallId::from_source(ids), "read", 1)
        .await?;
    script
        .add_tool_event(
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
    let first = Some(ApprovalId::for_call(calls[0]));
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
        let found = store.approvals(filter.clone()).await.map_err(error_text)?;
        // Without a session filter others may be listed too: every rule uses the same store.
        let found: Vec<_> = found
            .into_iter()
            .filter(|row| [script.session, other.session].contains(&row.session))
            .collect();
        ensure(found == expected, format!("{filter:?}: {found:?}"))?;
    }
    Ok(())
}
