//! The store rules for hiding and erasing: hidden sessions stay whole, erased ones are gone, and
//! nothing else is.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::json;
use toolgate_core::{
    AccountKey, AccountMovement, AccountRow, ApprovalFilter, ApprovalId, ApprovalRequest,
    BudgetScope, BudgetUnit, CallId, Charge, ChargeFilter, ChargeId, ChargeLine, Event,
    HiddenSessions, IdSource, Invocation, Lease, LeaseTerm, LedgerDraft, LedgerHead, LedgerName,
    LogPosition, MailboxItem, Message, MessageRecord, RecordKey, SessionFilter, SessionId,
    SessionRow, SettledOutcome, Status, StoreError, StoreHandle, StoreRecord, Timestamp, ToolEvent,
    TurnEvent, TurnFilter, TurnId, TurnInfo, WriteBatch,
};

use super::{ENDED_TERM, LONG_TERM, StoreRule, ensure, error_text, json_record, lease_request};
use crate::fakes::call_with;

pub(super) const RULES: [(&str, StoreRule); 11] = [
    ("a_hidden_session_is_listed_only_on_request", |s, i| {
        Box::pin(lists_hidden_on_request(s, i))
    }),
    ("a_session_that_does_not_exist_yet_is_not_hidden", |s, i| {
        Box::pin(does_not_hide_unknown(s, i))
    }),
    ("an_unhidden_session_is_whole", |s, i| {
        Box::pin(unhides_a_session(s, i))
    }),
    ("an_erased_session_is_gone_and_others_are_whole", |s, i| {
        Box::pin(erases_a_session(s, i))
    }),
    ("the_sessions_of_agents_are_erased_too", |s, i| {
        Box::pin(erases_agent_sessions(s, i))
    }),
    ("a_session_that_is_driven_is_not_erased", |s, i| {
        Box::pin(keeps_a_leased_session(s, i))
    }),
    ("of_a_concurrent_lease_and_erase_one_comes_first", |s, i| {
        Box::pin(orders_lease_and_erase(s, i))
    }),
    (
        "the_driver_of_an_erased_session_cannot_write_to_it",
        |s, i| Box::pin(fences_the_old_driver(s, i)),
    ),
    ("reservations_of_an_erased_session_are_charged", |s, i| {
        Box::pin(charges_reservations(s, i))
    }),
    ("the_ledgers_of_an_erased_session_stay_whole", |s, i| {
        Box::pin(keeps_ledgers_whole(s, i))
    }),
    ("erasing_twice_or_nothing_is_fine", |s, i| {
        Box::pin(erases_twice(s, i))
    }),
];

const NOW: Timestamp = Timestamp::from_micros(50_000_000);

/// A session with every kind of data that is stored for one.
struct StoredSession<'a> {
    store: &'a StoreHandle,
    session: SessionId,
    turn: TurnId,
    call: CallId,
    keys: Vec<RecordKey>,
}

impl<'a> StoredSession<'a> {
    async fn new(store: &'a StoreHandle, ids: &dyn IdSource) -> Result<Self, String> {
        Self::with_id(store, ids, SessionId::from_source(ids)).await
    }

    async fn with_id(
        store: &'a StoreHandle,
        ids: &dyn IdSource,
        session: SessionId,
    ) -> Result<Self, String> {
        let turn = TurnId::from_source(ids);
        let call = CallId::from_source(ids);
        let records = sample_records(session, turn, call);
        let keys = records.iter().map(|(key, _)| key.clone()).collect();
        let life = Self {
            store,
            session,
            turn,
            call,
            keys,
        };
        let events = vec![life.opened_event(1), life.approval_event(2)];
        let batch = WriteBatch {
            events,
            records,
            ..WriteBatch::default()
        };
        store
            .append(session, LogPosition::unleased(0), batch)
            .await
            .map_err(error_text)?;
        for reason in ["enough", "really"] {
            let post = MailboxItem::Interrupt {
                turn,
                reason: reason.into(),
            };
            store
                .post_item(session, post, Vec::new())
                .await
                .map_err(error_text)?;
        }
        Ok(life)
    }

    fn opened_event(&self, sequence: u64) -> Arc<Event> {
        let info = Arc::new(TurnInfo::new(self.session, self.turn));
        let event = TurnEvent::TurnOpened {
            size: 1,
            after: None,
        };
        Arc::new(Event::for_turn(sequence, NOW, info, event).expect("a valid event"))
    }

    fn approval_event(&self, sequence: u64) -> Arc<Event> {
        let turn = Arc::new(TurnInfo::new(self.session, self.turn));
        let head = Invocation {
            id: self.call,
            call_id: "c".into(),
            tool: "write".into(),
            emit_order: 0,
            turn,
        };
        let event = ToolEvent::ToolApprovalRequested(Box::new(approval_request(self.call)));
        Arc::new(
            Event::for_invocation(sequence, NOW, Arc::new(head), event).expect("a valid event"),
        )
    }

    /// Returns everything that the store knows about it, as text.
    async fn dump_text(&self) -> Result<String, String> {
        let store = self.store;
        let session = self.session;
        let events = store.events(session, 0, 100).await.map_err(error_text)?;
        let messages = store
            .messages(session, u64::MAX, 100)
            .await
            .map_err(error_text)?;
        let posts = store.posts(session, 0, 100).await.map_err(error_text)?;
        let turns = store
            .turns(TurnFilter {
                open: false,
                ..TurnFilter::open_in(session)
            })
            .await
            .map_err(error_text)?;
        let of = ApprovalFilter {
            session: Some(session),
            pending: false,
            ..ApprovalFilter::default()
        };
        let approvals = store.approvals(of).await.map_err(error_text)?;
        let mut records = Vec::new();
        for key in &self.keys {
            records.extend(
                store
                    .load_record(key)
                    .await
                    .map_err(error_text)?
                    .map(|record| (key, record)),
            );
        }
        let listed = store
            .list_records(&format!("output/{session}/"), None, 100)
            .await
            .map_err(error_text)?;
        let revision = store.revision(session).await.map_err(error_text)?;
        Ok(format!(
            "{revision} {events:?} {messages:?} {posts:?} {turns:?} {approvals:?} {records:?} {listed:?}"
        ))
    }

    async fn check_gone(&self) -> Result<(), String> {
        let seen = self.dump_text().await?;
        ensure(
            seen == "0 [] [] [] [] [] [] []",
            format!("data of {} is left: {seen}", self.session),
        )?;
        ensure(
            session_row(self.store, self.session).await?.is_none(),
            "it is listed",
        )?;
        let approval = self
            .store
            .approvals(ApprovalFilter::for_call(self.call))
            .await
            .map_err(error_text)?;
        ensure(approval.is_empty(), "its approval is listed")
    }

    async fn take_lease(&self, holder: &str, term: LeaseTerm) -> Result<Lease, String> {
        self.store
            .acquire_lease(lease_request(self.session, holder, term))
            .await
            .map_err(error_text)
    }
}

fn approval_request(call: CallId) -> ApprovalRequest {
    let mut request = ApprovalRequest::for_call(&call_with("write", json!({})));
    request.approval_id = ApprovalId::for_call(call);
    request
}

/// Returns records of every kind. Only their keys have to be correct for a store.
fn sample_records(session: SessionId, turn: TurnId, call: CallId) -> Vec<(RecordKey, StoreRecord)> {
    let other = |name: String| (RecordKey::Other(name.into()), json_record("other"));
    let said = |n: u64| {
        Arc::new(MessageRecord::new(
            turn,
            0,
            0,
            Arc::new(Message::user(format!("message {n}"))),
        ))
    };
    vec![
        (
            RecordKey::Outcome(call),
            StoreRecord::Outcome(Arc::new(SettledOutcome::new(Status::Ok))),
        ),
        (RecordKey::Requests(turn), json_record("requests")),
        (RecordKey::Ended(turn), StoreRecord::Turn(turn)),
        (RecordKey::Successor(turn), StoreRecord::Turn(turn)),
        (
            RecordKey::Question(call, 0),
            StoreRecord::Question(Arc::new(approval_request(call))),
        ),
        (RecordKey::Answer(call, 0), json_record("answer")),
        (RecordKey::Result(call, 1), json_record("result")),
        (
            RecordKey::Layer(call, "a/\u{10ffff}".into()),
            json_record("layer"),
        ),
        (
            RecordKey::Message(session, 0),
            StoreRecord::Message(said(0)),
        ),
        (
            RecordKey::Message(session, 1),
            StoreRecord::Message(said(1)),
        ),
        (RecordKey::Run(session, 0), StoreRecord::Run(Arc::default())),
        other(format!("output/{session}/sha256:00")),
        other(format!("skill/{session}/pdf")),
        other(format!("vote/{}/0/ann", ApprovalId::for_call(call))),
        other(format!("undo/{call}")),
    ]
}

async fn session_row(
    store: &StoreHandle,
    session: SessionId,
) -> Result<Option<SessionRow>, String> {
    Ok(store
        .sessions(SessionFilter::for_session(session))
        .await
        .map_err(error_text)?
        .pop())
}

/// Lists the sessions from `first` on that a filter accepts.
async fn list_sessions(
    store: &StoreHandle,
    first: SessionId,
    hidden: HiddenSessions,
) -> Result<Vec<SessionId>, String> {
    let before = SessionId::new(uuid::Uuid::from_u128(first.uuid().as_u128() - 1));
    let filter = SessionFilter {
        after: Some(before),
        hidden,
        ..SessionFilter::default()
    };
    Ok(store
        .sessions(filter)
        .await
        .map_err(error_text)?
        .into_iter()
        .map(|row| row.session)
        .collect())
}

async fn lists_hidden_on_request(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let one = StoredSession::new(store, ids).await?;
    let two = StoredSession::new(store, ids).await?;
    store
        .hide_session(one.session, Some(NOW))
        .await
        .map_err(error_text)?;
    let both = [one.session, two.session];
    for (hidden, expected) in [
        (HiddenSessions::Excluded, &both[1..]),
        (HiddenSessions::Included, &both[..]),
        (HiddenSessions::Only, &both[..1]),
    ] {
        let found = list_sessions(store, one.session, hidden).await?;
        ensure(found == expected, format!("{hidden:?}: {found:?}"))?;
    }
    let since = session_row(store, one.session)
        .await?
        .and_then(|row| row.hidden_at);
    ensure(since == Some(NOW), format!("it is hidden since {since:?}"))?;
    let other = session_row(store, two.session).await?;
    ensure(
        other.is_some_and(|row| row.hidden_at.is_none()),
        "another one is hidden or gone",
    )?;
    let unknown_session = SessionId::from_source(ids);
    store
        .hide_session(unknown_session, Some(NOW))
        .await
        .map_err(error_text)?;
    ensure(
        session_row(store, unknown_session).await?.is_none(),
        "hiding an unknown session created it",
    )
}

/// Checks that reading a session that does not exist does not create it, so there is nothing to
/// hide yet.
async fn does_not_hide_unknown(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let waits = store.wait_for_post(session, 0).now_or_never();
    ensure(waits.is_none(), "an unknown session has a post")?;
    let lease = Lease {
        session,
        fence: 0,
        revision: 0,
    };
    let renewed = store.renew_lease(&lease, LONG_TERM).await;
    ensure(
        matches!(renewed, Err(StoreError::Fenced { found: 0, .. })),
        format!("renewing answered {renewed:?}"),
    )?;
    store.release_lease(&lease).await.map_err(error_text)?;
    let late = store
        .append(session, LogPosition::unleased(7), WriteBatch::default())
        .await;
    ensure(
        late.is_err(),
        "an append at revision 7 of an unknown session was accepted",
    )?;
    store
        .hide_session(session, Some(NOW))
        .await
        .map_err(error_text)?;
    StoredSession::with_id(store, ids, session).await?;
    let since = session_row(store, session).await?.map(|row| row.hidden_at);
    ensure(
        since == Some(None),
        format!("it was hidden before it existed: {since:?}"),
    )
}

async fn unhides_a_session(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = StoredSession::new(store, ids).await?;
    let agent = StoredSession::with_id(store, ids, life.call.agent_session()).await?;
    let seen = life.dump_text().await?;
    let shown = session_row(store, life.session).await?;
    store
        .hide_session(life.session, Some(NOW))
        .await
        .map_err(error_text)?;
    let found = list_sessions(store, life.session, HiddenSessions::Excluded).await?;
    ensure(
        found.is_empty(),
        format!("it and its agent are hidden, but there are {found:?}"),
    )?;
    ensure(life.dump_text().await? == seen, "hiding changed it")?;
    // Hiding does not stop its driver.
    let batch = WriteBatch {
        events: vec![life.opened_event(3)],
        ..WriteBatch::default()
    };
    store
        .append(life.session, LogPosition::unleased(2), batch)
        .await
        .map_err(error_text)?;
    ensure(
        list_sessions(store, life.session, HiddenSessions::Excluded)
            .await?
            .is_empty(),
        "an event unhid it",
    )?;
    store
        .hide_session(life.session, None)
        .await
        .map_err(error_text)?;
    let found = session_row(store, life.session).await?;
    let expected = shown.map(|row| SessionRow {
        revision: 3,
        // The event was a use.
        last_use: found.as_ref().map_or(0, |found| found.last_use),
        ..row
    });
    ensure(found == expected, format!("{found:?}, not {expected:?}"))?;
    let found = list_sessions(store, life.session, HiddenSessions::Excluded).await?;
    ensure(
        found == [life.session, agent.session],
        format!("there are {found:?}"),
    )
}

async fn erases_a_session(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let before = StoredSession::new(store, ids).await?;
    let life = StoredSession::new(store, ids).await?;
    let after = StoredSession::new(store, ids).await?;
    // The key has the call's prefix, but it is not a record of the call.
    let beside = RecordKey::Other(format!("undo/{}0", life.call).into());
    store
        .put_record_once(beside.clone(), json_record("beside"))
        .await
        .map_err(error_text)?;
    let others = (before.dump_text().await?, after.dump_text().await?);
    let gone = store
        .erase_session(life.session, NOW)
        .await
        .map_err(error_text)?;
    ensure(
        gone.sessions == [life.session] && gone.booked.is_empty(),
        format!("{gone:?}"),
    )?;
    life.check_gone().await?;
    ensure(
        (before.dump_text().await?, after.dump_text().await?) == others,
        "something of another session is gone",
    )?;
    ensure(
        store
            .load_record(&beside)
            .await
            .map_err(error_text)?
            .is_some(),
        "a record that only shares the prefix is gone",
    )
}

async fn erases_agent_sessions(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let above = StoredSession::new(store, ids).await?;
    let life = StoredSession::with_id(store, ids, above.call.agent_session()).await?;
    let agent = StoredSession::with_id(store, ids, life.call.agent_session()).await?;
    let below = StoredSession::with_id(store, ids, agent.call.agent_session()).await?;
    let seen = above.dump_text().await?;
    let gone = store
        .erase_session(life.session, NOW)
        .await
        .map_err(error_text)?;
    ensure(
        gone.sessions == [life.session, agent.session, below.session],
        format!("{gone:?}"),
    )?;
    for life in [&life, &agent, &below] {
        life.check_gone().await?;
    }
    ensure(
        above.dump_text().await? == seen,
        "something of the session above is gone",
    )
}

async fn keeps_a_leased_session(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = StoredSession::new(store, ids).await?;
    let agent = StoredSession::with_id(store, ids, life.call.agent_session()).await?;
    let lease = agent.take_lease("ann", LONG_TERM).await?;
    let seen = (life.dump_text().await?, agent.dump_text().await?);
    match store.erase_session(life.session, NOW).await {
        Err(StoreError::LeaseHeld {
            session,
            holder,
            fence,
            ..
        }) => {
            let right = session == agent.session && *holder == *"ann" && fence == lease.fence;
            ensure(right, format!("held by {holder}"))?;
        }
        other => return Err(format!("{other:?}")),
    }
    ensure(
        (life.dump_text().await?, agent.dump_text().await?) == seen,
        "something of it is gone",
    )?;
    // An expired lease, too: its holder may be stopped and continue.
    store
        .renew_lease(&lease, ENDED_TERM)
        .await
        .map_err(error_text)?;
    let held = store.erase_session(life.session, NOW).await;
    let is_expired = matches!(
        held,
        Err(StoreError::LeaseHeld {
            is_expired: true,
            ..
        })
    );
    ensure(is_expired, format!("{held:?}"))?;
    store.release_lease(&lease).await.map_err(error_text)?;
    store
        .erase_session(life.session, NOW)
        .await
        .map_err(error_text)?;
    life.check_gone().await?;
    agent.check_gone().await
}

async fn orders_lease_and_erase(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    for _ in 0..8 {
        let life = StoredSession::new(store, ids).await?;
        let (lease, gone) = futures::join!(
            life.take_lease("ann", LONG_TERM),
            store.erase_session(life.session, NOW)
        );
        let lease = lease?;
        let left = store.revision(life.session).await.map_err(error_text)?;
        let right = match gone {
            Ok(_) => (lease.revision, left) == (0, 0),
            Err(StoreError::LeaseHeld { .. }) => (lease.revision, left) == (2, 2),
            Err(error) => return Err(error_text(error)),
        };
        ensure(
            right,
            format!(
                "{left} events are left, and the lease starts at {}",
                lease.revision
            ),
        )?;
    }
    Ok(())
}

async fn fences_the_old_driver(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let unleased = StoredSession::new(store, ids).await?;
    let leased = StoredSession::new(store, ids).await?;
    let lease = leased.take_lease("ann", LONG_TERM).await?;
    store.release_lease(&lease).await.map_err(error_text)?;
    for (life, fence) in [(&unleased, 0), (&leased, lease.fence)] {
        store
            .erase_session(life.session, NOW)
            .await
            .map_err(error_text)?;
        // The revision of an empty session and the one from before: both writers are too late.
        for revision in [0, 2] {
            let batch = WriteBatch {
                events: vec![life.opened_event(revision + 1)],
                ..WriteBatch::default()
            };
            let late = store
                .append(
                    life.session,
                    LogPosition {
                        revision,
                        fence,
                        lease_term: None,
                    },
                    batch,
                )
                .await;
            ensure(
                matches!(late, Err(StoreError::Fenced { .. })),
                format!("a late write: {late:?}"),
            )?;
        }
        life.check_gone().await?;
    }
    let late = store.renew_lease(&lease, LONG_TERM).await;
    ensure(
        matches!(late, Err(StoreError::Fenced { .. })),
        format!("a late renewal: {late:?}"),
    )?;
    let anew = leased.take_lease("ben", LONG_TERM).await?;
    ensure(
        anew.fence > lease.fence && anew.revision == 0,
        format!("the lease of the new session: {anew:?}"),
    )
}

async fn charges_reservations(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = StoredSession::new(store, ids).await?;
    let other = StoredSession::new(store, ids).await?;
    let agent = StoredSession::with_id(store, ids, life.call.agent_session()).await?;
    let account = AccountKey {
        scope: BudgetScope::User,
        value: life.call.to_string().into(),
        unit: BudgetUnit::Usd,
        period: "total".into(),
    };
    for (life, amount) in [(&life, 3), (&agent, 4), (&other, 5)] {
        let lines = vec![ChargeLine {
            account: account.clone(),
            limit: 100,
            amount,
        }];
        let charge = Charge {
            id: ChargeId::Call(life.call),
            session: Some(life.session),
            at: NOW,
            lines,
        };
        store.reserve(charge).await.map_err(error_text)?;
    }
    let gone = store
        .erase_session(life.session, NOW)
        .await
        .map_err(error_text)?;
    let moved = |before, after| AccountMovement {
        account: account.clone(),
        before,
        after,
    };
    ensure(
        gone.booked == [moved(0, 3), moved(3, 7)],
        format!("{gone:?}"),
    )?;
    let stands = store.account(&account).await.map_err(error_text)?;
    let expected = AccountRow {
        account: account.clone(),
        spent: 7,
        reserved: 5,
    };
    ensure(stands.as_ref() == Some(&expected), format!("{stands:?}"))?;
    let open = async |of: &StoredSession<'_>| {
        let filter = ChargeFilter {
            session: Some(of.session),
            ..ChargeFilter::default()
        };
        store
            .charges(filter)
            .await
            .map(|open| open.len())
            .map_err(error_text)
    };
    let left = (open(&life).await?, open(&agent).await?, open(&other).await?);
    ensure(left == (0, 0, 1), format!("open charges: {left:?}"))
}

async fn keeps_ledgers_whole(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = StoredSession::new(store, ids).await?;
    let ledger: LedgerName = format!("suite/{}", life.call)
        .parse()
        .expect("a plain name");
    let entries = (0..3).map(|n| LedgerDraft {
        ledger: ledger.clone(),
        body: format!("{{\"n\":{n}}}").into(),
    });
    let batch = WriteBatch {
        events: vec![life.opened_event(3)],
        entries: entries.collect(),
        ..WriteBatch::default()
    };
    store
        .append(life.session, LogPosition::unleased(2), batch)
        .await
        .map_err(error_text)?;
    store
        .erase_session(life.session, NOW)
        .await
        .map_err(error_text)?;
    let entries = store.entries(&ledger, 0, 10).await.map_err(error_text)?;
    let mut head = LedgerHead::start_of(ledger);
    for entry in &entries {
        ensure(
            entry.follows(&head),
            format!("entry {} does not follow {}", entry.counter, head.counter),
        )?;
        head = entry.head();
    }
    let heads = store.ledgers().await.map_err(error_text)?;
    ensure(
        entries.len() == 3 && heads.contains(&head),
        format!("{} entries are left", entries.len()),
    )
}

async fn erases_twice(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = StoredSession::new(store, ids).await?;
    store
        .hide_session(life.session, Some(NOW))
        .await
        .map_err(error_text)?;
    store
        .erase_session(life.session, NOW)
        .await
        .map_err(error_text)?;
    for session in [life.session, SessionId::from_source(ids)] {
        let again = store
            .erase_session(session, NOW)
            .await
            .map_err(error_text)?;
        ensure(
            again == toolgate_core::ErasedSessions::default(),
            format!("{again:?}"),
        )?;
        let before = store.posts(session, 0, 10).await.map_err(error_text)?;
        ensure(before.is_empty(), format!("{before:?}"))?;
    }
    // A late post alone is not a session, and is erased as well.
    store
        .post_item(
            life.session,
            MailboxItem::Interrupt {
                turn: life.turn,
                reason: "late".into(),
            },
            Vec::new(),
        )
        .await
        .map_err(error_text)?;
    let late = store.posts(life.session, 0, 10).await.map_err(error_text)?;
    ensure(
        matches!(late.as_slice(), [(3, _)]),
        format!("a number was given twice: {late:?}"),
    )?;
    store
        .erase_session(life.session, NOW)
        .await
        .map_err(error_text)?;
    life.check_gone().await?;
    // A new session with the same id is not hidden.
    let lease = life.take_lease("ann", LONG_TERM).await?;
    let batch = WriteBatch {
        events: vec![life.opened_event(1)],
        ..WriteBatch::default()
    };
    let at = LogPosition {
        revision: 0,
        fence: lease.fence,
        lease_term: None,
    };
    store
        .append(life.session, at, batch)
        .await
        .map_err(error_text)?;
    ensure(
        session_row(store, life.session)
            .await?
            .is_some_and(|row| row.hidden_at.is_none()),
        "it is still hidden",
    )
}
