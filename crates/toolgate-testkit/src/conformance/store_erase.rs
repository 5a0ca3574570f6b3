//! What every store keeps: hidden sessions are whole, erased ones are gone, and nothing else is.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::json;
use toolgate_core::{
    AccountKey, AccountRow, ApprovalFilter, ApprovalId, ApprovalRequest, Batch, BudgetScope,
    BudgetUnit, CallId, Charge, ChargeFilter, ChargeId, ChargeLine, Event, Hidden, IdSource,
    Invocation, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName, Message, Movement,
    Position, Post, Record, RecordKey, Said, SessionFilter, SessionId, SessionRow, Settled, Status,
    StoreError, StoreHandle, Timestamp, ToolEvent, TurnEvent, TurnFilter, TurnId, TurnInfo,
};

use super::{
    ensure,
    store::{StoreRule, note, text},
};
use crate::fakes::call_with;

pub(super) const RULES: [(&str, StoreRule); 11] = [
    ("a_hidden_session_is_listed_only_when_asked_for", |s, i| {
        Box::pin(hidden(s, i))
    }),
    (
        "a_session_that_only_others_spoke_of_is_not_hidden",
        |s, i| Box::pin(only_spoken_of(s, i)),
    ),
    ("a_session_is_brought_back_whole", |s, i| {
        Box::pin(brought_back(s, i))
    }),
    ("an_erased_session_is_gone_and_others_are_whole", |s, i| {
        Box::pin(erased(s, i))
    }),
    ("the_sessions_of_agents_go_along", |s, i| {
        Box::pin(agents(s, i))
    }),
    ("a_session_that_is_driven_is_not_erased", |s, i| {
        Box::pin(driven(s, i))
    }),
    (
        "of_one_who_drives_and_one_who_erases_one_comes_first",
        |s, i| Box::pin(one_first(s, i)),
    ),
    (
        "whoever_drove_an_erased_session_cannot_write_to_it",
        |s, i| Box::pin(fenced(s, i)),
    ),
    (
        "what_is_set_aside_for_an_erased_session_is_booked",
        |s, i| Box::pin(booked(s, i)),
    ),
    ("the_chains_of_an_erased_session_stay_whole", |s, i| {
        Box::pin(chains(s, i))
    }),
    ("erasing_twice_or_nothing_is_fine", |s, i| {
        Box::pin(twice(s, i))
    }),
];

const NOW: Timestamp = Timestamp::from_micros(50_000_000);

/// A session with something of every kind that is kept for it.
struct Life<'a> {
    store: &'a StoreHandle,
    session: SessionId,
    turn: TurnId,
    call: CallId,
    keys: Vec<RecordKey>,
}

impl<'a> Life<'a> {
    async fn new(store: &'a StoreHandle, ids: &dyn IdSource) -> Result<Self, String> {
        Self::of(store, ids, SessionId::from_source(ids)).await
    }

    async fn of(
        store: &'a StoreHandle,
        ids: &dyn IdSource,
        session: SessionId,
    ) -> Result<Self, String> {
        let (turn, call) = (TurnId::from_source(ids), CallId::from_source(ids));
        let records = records(session, turn, call);
        let keys = records.iter().map(|(key, _)| key.clone()).collect();
        let life = Self {
            store,
            session,
            turn,
            call,
            keys,
        };
        let events = vec![life.opened(1), life.asked(2)];
        let batch = Batch {
            events,
            records,
            ..Batch::default()
        };
        store
            .append(session, Position::unleased(0), batch)
            .await
            .map_err(text)?;
        for reason in ["enough", "really"] {
            let post = Post::Interrupt {
                turn,
                reason: reason.into(),
            };
            store.post(session, post, Vec::new()).await.map_err(text)?;
        }
        Ok(life)
    }

    fn opened(&self, sequence: u64) -> Arc<Event> {
        let info = Arc::new(TurnInfo::new(self.session, self.turn));
        let event = TurnEvent::TurnOpened {
            size: 1,
            after: None,
        };
        Arc::new(Event::turn(sequence, NOW, info, event).expect("a valid event"))
    }

    fn asked(&self, sequence: u64) -> Arc<Event> {
        let turn = Arc::new(TurnInfo::new(self.session, self.turn));
        let head = Invocation {
            id: self.call,
            call_id: "c".into(),
            tool: "write".into(),
            emit_order: 0,
            turn,
        };
        let event = ToolEvent::ToolApprovalRequested(Box::new(question(self.call)));
        Arc::new(Event::tool(sequence, NOW, Arc::new(head), event).expect("a valid event"))
    }

    /// Everything about it that can be asked, as text.
    async fn seen(&self) -> Result<String, String> {
        let (store, session) = (self.store, self.session);
        let events = store.events(session, 0, 100).await.map_err(text)?;
        let messages = store.messages(session, u64::MAX, 100).await.map_err(text)?;
        let posts = store.posts(session, 0, 100).await.map_err(text)?;
        let turns = store
            .turns(TurnFilter {
                open: false,
                ..TurnFilter::open(session)
            })
            .await
            .map_err(text)?;
        let of = ApprovalFilter {
            session: Some(session),
            pending: false,
            ..ApprovalFilter::default()
        };
        let approvals = store.approvals(of).await.map_err(text)?;
        let mut records = Vec::new();
        for key in &self.keys {
            records.extend(
                store
                    .record(key)
                    .await
                    .map_err(text)?
                    .map(|record| (key, record)),
            );
        }
        let listed = store
            .list(&format!("output/{session}/"), None, 100)
            .await
            .map_err(text)?;
        let revision = store.revision(session).await.map_err(text)?;
        Ok(format!(
            "{revision} {events:?} {messages:?} {posts:?} {turns:?} {approvals:?} {records:?} {listed:?}"
        ))
    }

    async fn is_gone(&self) -> Result<(), String> {
        let seen = self.seen().await?;
        ensure(
            seen == "0 [] [] [] [] [] [] []",
            format!("of {} there is left: {seen}", self.session),
        )?;
        ensure(
            row(self.store, self.session).await?.is_none(),
            "it is listed",
        )?;
        let approval = self
            .store
            .approvals(ApprovalFilter::of(self.call))
            .await
            .map_err(text)?;
        ensure(approval.is_empty(), "its approval is listed")
    }

    async fn lease(&self, holder: &str, until: i64) -> Result<Lease, String> {
        let (session, holder, now) = (self.session, holder.into(), Timestamp::EPOCH);
        let until = Timestamp::from_micros(until * 1_000_000);
        self.store
            .lease(LeaseRequest {
                session,
                holder,
                now,
                until,
                instead_of: None,
            })
            .await
            .map_err(text)
    }
}

fn question(call: CallId) -> ApprovalRequest {
    let mut request = ApprovalRequest::about(&call_with("write", json!({})));
    request.approval_id = ApprovalId::of(call);
    request
}

/// Records of every kind. Nothing but their names has to be right for a store.
fn records(session: SessionId, turn: TurnId, call: CallId) -> Vec<(RecordKey, Record)> {
    let other = |name: String| (RecordKey::Other(name.into()), note("other"));
    let said = |n: u64| {
        Arc::new(Said::new(
            turn,
            0,
            0,
            Arc::new(Message::user(format!("message {n}"))),
        ))
    };
    vec![
        (
            RecordKey::Outcome(call),
            Record::Outcome(Arc::new(Settled::new(Status::Ok))),
        ),
        (RecordKey::Requests(turn), note("requests")),
        (RecordKey::Ended(turn), Record::Turn(turn)),
        (RecordKey::Successor(turn), Record::Turn(turn)),
        (
            RecordKey::Question(call, 0),
            Record::Question(Arc::new(question(call))),
        ),
        (RecordKey::Answer(call, 0), note("answer")),
        (RecordKey::Result(call, 1), note("result")),
        (RecordKey::Layer(call, "a/\u{10ffff}".into()), note("layer")),
        (RecordKey::Message(session, 0), Record::Message(said(0))),
        (RecordKey::Message(session, 1), Record::Message(said(1))),
        other(format!("output/{session}/sha256:00")),
        other(format!("skill/{session}/pdf")),
        other(format!("vote/{}/0/ann", ApprovalId::of(call))),
        other(format!("undo/{call}")),
    ]
}

async fn row(store: &StoreHandle, session: SessionId) -> Result<Option<SessionRow>, String> {
    Ok(store
        .sessions(SessionFilter::of(session))
        .await
        .map_err(text)?
        .pop())
}

/// The sessions from `first` on that a filter lists.
async fn listed(
    store: &StoreHandle,
    first: SessionId,
    hidden: Hidden,
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
        .map_err(text)?
        .into_iter()
        .map(|row| row.session)
        .collect())
}

async fn hidden(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (one, two) = (Life::new(store, ids).await?, Life::new(store, ids).await?);
    store.hide(one.session, Some(NOW)).await.map_err(text)?;
    let both = [one.session, two.session];
    for (hidden, expected) in [
        (Hidden::LeftOut, &both[1..]),
        (Hidden::Included, &both[..]),
        (Hidden::Only, &both[..1]),
    ] {
        let found = listed(store, one.session, hidden).await?;
        ensure(found == expected, format!("{hidden:?}: {found:?}"))?;
    }
    let since = row(store, one.session).await?.and_then(|row| row.hidden_at);
    ensure(since == Some(NOW), format!("it is hidden since {since:?}"))?;
    let other = row(store, two.session).await?;
    ensure(
        other.is_some_and(|row| row.hidden_at.is_none()),
        "another one is hidden or gone",
    )?;
    let nobody = SessionId::from_source(ids);
    store.hide(nobody, Some(NOW)).await.map_err(text)?;
    ensure(
        row(store, nobody).await?.is_none(),
        "hiding one that is not there made it",
    )
}

/// Asking for a session that is not there does not make it, so there is nothing to hide yet.
async fn only_spoken_of(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let waits = store.posted(session, 0).now_or_never();
    ensure(waits.is_none(), "a post came out of nothing")?;
    let lease = Lease {
        session,
        fence: 0,
        revision: 0,
    };
    let renewed = store.renew(&lease, NOW).await;
    ensure(
        matches!(renewed, Err(StoreError::Fenced { found: 0, .. })),
        format!("renewing answered {renewed:?}"),
    )?;
    store.release(&lease).await.map_err(text)?;
    let late = store
        .append(session, Position::unleased(7), Batch::default())
        .await;
    ensure(
        late.is_err(),
        "an append at revision 7 of nothing was accepted",
    )?;
    store.hide(session, Some(NOW)).await.map_err(text)?;
    Life::of(store, ids, session).await?;
    let since = row(store, session).await?.map(|row| row.hidden_at);
    ensure(
        since == Some(None),
        format!("it was hidden before it was there: {since:?}"),
    )
}

async fn brought_back(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = Life::new(store, ids).await?;
    let agent = Life::of(store, ids, SessionId::new(life.call.uuid())).await?;
    let (seen, shown) = (life.seen().await?, row(store, life.session).await?);
    store.hide(life.session, Some(NOW)).await.map_err(text)?;
    let found = listed(store, life.session, Hidden::LeftOut).await?;
    ensure(
        found.is_empty(),
        format!("it and its agent are hidden, but there are {found:?}"),
    )?;
    ensure(life.seen().await? == seen, "hiding changed it")?;
    // Whoever drives it may go on.
    let batch = Batch {
        events: vec![life.opened(3)],
        ..Batch::default()
    };
    store
        .append(life.session, Position::unleased(2), batch)
        .await
        .map_err(text)?;
    ensure(
        listed(store, life.session, Hidden::LeftOut)
            .await?
            .is_empty(),
        "an event brought it back",
    )?;
    store.hide(life.session, None).await.map_err(text)?;
    let expected = shown.map(|row| SessionRow { revision: 3, ..row });
    let found = row(store, life.session).await?;
    ensure(found == expected, format!("{found:?}, not {expected:?}"))?;
    let found = listed(store, life.session, Hidden::LeftOut).await?;
    ensure(
        found == [life.session, agent.session],
        format!("there are {found:?}"),
    )
}

async fn erased(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (before, life) = (Life::new(store, ids).await?, Life::new(store, ids).await?);
    let after = Life::new(store, ids).await?;
    // Named like a record of the call, but it is not one.
    let beside = RecordKey::Other(format!("undo/{}0", life.call).into());
    store
        .once(beside.clone(), note("beside"))
        .await
        .map_err(text)?;
    let others = (before.seen().await?, after.seen().await?);
    let gone = store.erase(life.session, NOW).await.map_err(text)?;
    ensure(
        gone.sessions == [life.session] && gone.booked.is_empty(),
        format!("{gone:?}"),
    )?;
    life.is_gone().await?;
    ensure(
        (before.seen().await?, after.seen().await?) == others,
        "something of another session is gone",
    )?;
    ensure(
        store.record(&beside).await.map_err(text)?.is_some(),
        "a record that only starts alike is gone",
    )
}

async fn agents(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let above = Life::new(store, ids).await?;
    let life = Life::of(store, ids, SessionId::new(above.call.uuid())).await?;
    let agent = Life::of(store, ids, SessionId::new(life.call.uuid())).await?;
    let below = Life::of(store, ids, SessionId::new(agent.call.uuid())).await?;
    let seen = above.seen().await?;
    let gone = store.erase(life.session, NOW).await.map_err(text)?;
    ensure(
        gone.sessions == [life.session, agent.session, below.session],
        format!("{gone:?}"),
    )?;
    for life in [&life, &agent, &below] {
        life.is_gone().await?;
    }
    ensure(
        above.seen().await? == seen,
        "something of the session above is gone",
    )
}

async fn driven(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = Life::new(store, ids).await?;
    let agent = Life::of(store, ids, SessionId::new(life.call.uuid())).await?;
    let lease = agent.lease("ann", 51).await?;
    let seen = (life.seen().await?, agent.seen().await?);
    match store.erase(life.session, NOW).await {
        Err(StoreError::Held {
            session,
            holder,
            until,
            fence,
        }) => {
            let right = session == agent.session && *holder == *"ann" && fence == lease.fence;
            ensure(
                right && until.as_micros() == 51_000_000,
                format!("held by {holder} until {until}"),
            )?;
        }
        other => return Err(format!("{other:?}")),
    }
    ensure(
        (life.seen().await?, agent.seen().await?) == seen,
        "something of it is gone",
    )?;
    // A lease that has run out protects nothing.
    store
        .erase(life.session, Timestamp::from_micros(51_000_000))
        .await
        .map_err(text)?;
    life.is_gone().await?;
    agent.is_gone().await
}

async fn one_first(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    for _ in 0..8 {
        let life = Life::new(store, ids).await?;
        let (lease, gone) = futures::join!(life.lease("ann", 99), store.erase(life.session, NOW));
        let (lease, left) = (lease?, store.revision(life.session).await.map_err(text)?);
        let right = match gone {
            Ok(_) => (lease.revision, left) == (0, 0),
            Err(StoreError::Held { .. }) => (lease.revision, left) == (2, 2),
            Err(error) => return Err(text(error)),
        };
        ensure(
            right,
            format!(
                "{left} events are left, and it is driven from {} on",
                lease.revision
            ),
        )?;
    }
    Ok(())
}

async fn fenced(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (unleased, leased) = (Life::new(store, ids).await?, Life::new(store, ids).await?);
    let lease = leased.lease("ann", 10).await?;
    for (life, fence) in [(&unleased, 0), (&leased, lease.fence)] {
        store.erase(life.session, NOW).await.map_err(text)?;
        for revision in [0, 2] {
            let batch = Batch {
                events: vec![life.opened(revision + 1)],
                ..Batch::default()
            };
            let late = store
                .append(
                    life.session,
                    Position {
                        revision,
                        fence,
                        lease_until: None,
                    },
                    batch,
                )
                .await;
            ensure(
                matches!(late, Err(StoreError::Fenced { .. })),
                format!("a late write: {late:?}"),
            )?;
        }
        life.is_gone().await?;
    }
    let late = store.renew(&lease, NOW).await;
    ensure(
        matches!(late, Err(StoreError::Fenced { .. })),
        format!("a late renewal: {late:?}"),
    )?;
    let anew = leased.lease("ben", 99).await?;
    ensure(
        anew.fence > lease.fence && anew.revision == 0,
        format!("begun anew: {anew:?}"),
    )
}

async fn booked(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (life, other) = (Life::new(store, ids).await?, Life::new(store, ids).await?);
    let agent = Life::of(store, ids, SessionId::new(life.call.uuid())).await?;
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
        store.reserve(charge).await.map_err(text)?;
    }
    let gone = store.erase(life.session, NOW).await.map_err(text)?;
    let moved = |before, after| Movement {
        account: account.clone(),
        before,
        after,
    };
    ensure(
        gone.booked == [moved(0, 3), moved(3, 7)],
        format!("{gone:?}"),
    )?;
    let stands = store.account(&account).await.map_err(text)?;
    let expected = AccountRow {
        account: account.clone(),
        spent: 7,
        reserved: 5,
    };
    ensure(stands.as_ref() == Some(&expected), format!("{stands:?}"))?;
    let open = async |of: &Life<'_>| {
        let filter = ChargeFilter {
            session: Some(of.session),
            ..ChargeFilter::default()
        };
        store
            .charges(filter)
            .await
            .map(|open| open.len())
            .map_err(text)
    };
    let left = (open(&life).await?, open(&agent).await?, open(&other).await?);
    ensure(
        left == (0, 0, 1),
        format!("so many charges are open: {left:?}"),
    )
}

async fn chains(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = Life::new(store, ids).await?;
    let ledger: LedgerName = format!("suite/{}", life.call)
        .parse()
        .expect("a plain name");
    let entries = (0..3).map(|n| LedgerDraft {
        ledger: ledger.clone(),
        body: format!("{{\"n\":{n}}}").into(),
    });
    let batch = Batch {
        events: vec![life.opened(3)],
        entries: entries.collect(),
        ..Batch::default()
    };
    store
        .append(life.session, Position::unleased(2), batch)
        .await
        .map_err(text)?;
    store.erase(life.session, NOW).await.map_err(text)?;
    let entries = store.entries(&ledger, 0, 10).await.map_err(text)?;
    let mut head = LedgerHead::start(ledger);
    for entry in &entries {
        ensure(
            entry.follows(&head),
            format!("entry {} does not follow {}", entry.counter, head.counter),
        )?;
        head = entry.head();
    }
    let heads = store.ledgers().await.map_err(text)?;
    ensure(
        entries.len() == 3 && heads.contains(&head),
        format!("{} entries are left", entries.len()),
    )
}

async fn twice(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let life = Life::new(store, ids).await?;
    store.hide(life.session, Some(NOW)).await.map_err(text)?;
    store.erase(life.session, NOW).await.map_err(text)?;
    for session in [life.session, SessionId::from_source(ids)] {
        let again = store.erase(session, NOW).await.map_err(text)?;
        ensure(
            again == toolgate_core::Erased::default(),
            format!("{again:?}"),
        )?;
        let before = store.posts(session, 0, 10).await.map_err(text)?;
        ensure(before.is_empty(), format!("{before:?}"))?;
    }
    // A post that comes late is no session, and goes as well.
    store
        .post(
            life.session,
            Post::Interrupt {
                turn: life.turn,
                reason: "late".into(),
            },
            Vec::new(),
        )
        .await
        .map_err(text)?;
    let late = store.posts(life.session, 0, 10).await.map_err(text)?;
    ensure(
        matches!(late.as_slice(), [(3, _)]),
        format!("a number was given twice: {late:?}"),
    )?;
    store.erase(life.session, NOW).await.map_err(text)?;
    life.is_gone().await?;
    // A session that begins anew under the same name is not hidden.
    let lease = life.lease("ann", 1).await?;
    let batch = Batch {
        events: vec![life.opened(1)],
        ..Batch::default()
    };
    let at = Position {
        revision: 0,
        fence: lease.fence,
        lease_until: None,
    };
    store.append(life.session, at, batch).await.map_err(text)?;
    ensure(
        row(store, life.session)
            .await?
            .is_some_and(|row| row.hidden_at.is_none()),
        "it is still hidden",
    )
}
