//! Random operations on the memory store and on a database get the same answers.

use std::time::Duration;

use crate::support::{
    approval_request, call_id, draft, key, note, opened, session, tool_event, turn_event, turn_id,
};
use proptest::{collection::vec, prelude::*};
use toolgate_core::{
    ApprovalFilter, HiddenSessions, Lease, LeaseRequest, LeaseTerm, LogPosition, MailboxItem,
    RecordKey, SessionFilter, SessionRow, SettledOutcome, Status, StoreError, StoreHandle,
    Timestamp, ToolEvent, TurnEvent, TurnFilter, WriteBatch,
};
use toolgate_store::{MemoryStore, SqliteStore};

/// One operation. The numbers are small, so that operations often meet the same rows.
#[derive(Debug, Clone)]
enum Step {
    Append {
        session: u8,
        off: i8,
        fence: u8,
        events: Vec<Kind>,
        records: Vec<u8>,
        entries: u8,
        taken: Option<u8>,
    },
    Once(u8),
    Lease {
        session: u8,
        holder: u8,
        /// True for a term that does not end during the test, by any clock.
        span: bool,
        instead_of: Option<u8>,
    },
    Renew {
        session: u8,
        fence: u8,
        span: bool,
    },
    Release {
        session: u8,
        fence: u8,
    },
    Post {
        session: u8,
        call: u8,
        answer: bool,
        records: Vec<u8>,
    },
    Seal(u8),
    Hide {
        session: u8,
        at: Option<u8>,
    },
    Erase {
        session: u8,
    },
}

/// The content of an event.
#[derive(Debug, Clone)]
enum Kind {
    Opened(u8),
    Settled(u8),
    Asked(u8),
    Approved(u8),
    Ended(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let small = 0..3_u8;
    let records = || vec(0..6_u8, 0..3);
    let append = (
        small.clone(),
        prop_oneof![8 => Just(0_i8), 1 => -1..=1_i8],
        0..3_u8,
        vec(kind(), 0..4),
        records(),
        0..3_u8,
        proptest::option::weighted(0.2, 0..4_u8),
    );
    prop_oneof![
        6 => append.prop_map(|(session, off, fence, events, records, entries, taken)| {
            Step::Append { session, off, fence, events, records, entries, taken }
        }),
        2 => (0..6_u8).prop_map(Step::Once),
        1 => (small.clone(), 0..2_u8, any::<bool>(), proptest::option::of(0..3_u8)).prop_map(
            |(session, holder, span, instead_of)| Step::Lease { session, holder, span, instead_of }
        ),
        1 => (small.clone(), 0..3_u8, any::<bool>())
            .prop_map(|(session, fence, span)| Step::Renew { session, fence, span }),
        1 => (small.clone(), 0..3_u8).prop_map(|(session, fence)| Step::Release { session, fence }),
        2 => (small.clone(), 0..4_u8, any::<bool>(), records())
            .prop_map(|(session, call, answer, records)| Step::Post { session, call, answer, records }),
        1 => (0..3_u8).prop_map(Step::Seal),
        1 => (small.clone(), proptest::option::of(0..20_u8)).prop_map(|(session, at)| Step::Hide { session, at }),
        1 => small.prop_map(|session| Step::Erase { session }),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (0..4_u8).prop_map(Kind::Opened),
        (0..4_u8).prop_map(Kind::Settled),
        (0..4_u8).prop_map(Kind::Asked),
        (0..4_u8).prop_map(Kind::Approved),
        (0..4_u8).prop_map(Kind::Ended),
    ]
}

fn time(seconds: u8) -> Timestamp {
    Timestamp::from_micros(i64::from(seconds) * 1_000_000)
}

/// The time of the processes; a server has another one.
const NOW: Timestamp = Timestamp::from_micros(50_000_000);

/// Returns a term that has ended when it begins, or one that does not end during the test.
fn term(is_long: bool) -> LeaseTerm {
    let span = Duration::from_secs(if is_long { 3_600 } else { 0 });
    LeaseTerm { now: NOW, span }
}

/// Removes the time at which a lease expires, which depends on the clock of the store.
fn without_time(error: StoreError) -> StoreError {
    match error {
        StoreError::LeaseHeld {
            session,
            holder,
            is_expired,
            fence,
            ..
        } => StoreError::LeaseHeld {
            session,
            holder,
            until: NOW,
            is_expired,
            fence,
        },
        other => other,
    }
}

/// Returns the records with these numbers, each once: a batch cannot hold the same one twice.
fn records(numbers: &[u8]) -> Vec<(RecordKey, toolgate_core::StoreRecord)> {
    let numbers: std::collections::BTreeSet<_> = numbers.iter().collect();
    numbers
        .into_iter()
        .map(|n| (key(&n.to_string()), note("r")))
        .collect()
}

fn batch(
    of: u8,
    first: u64,
    kinds: &[Kind],
    numbers: &[u8],
    entries: u8,
    taken: Option<u8>,
) -> WriteBatch {
    let of = session(of.into());
    let event = |(n, kind): (u64, &Kind)| match *kind {
        Kind::Opened(turn) => opened(of, n, turn_id(turn.into())),
        Kind::Settled(turn) => turn_event(of, n, turn_id(turn.into()), TurnEvent::TurnSettled),
        Kind::Asked(call) => approval_request(of, n, call_id(call.into()))
            .events
            .remove(0),
        Kind::Approved(call) => {
            let approved = ToolEvent::ToolApproved {
                approver: "ann".into(),
                established: Default::default(),
                claimed_as: None,
                reason: None,
                edited: false,
                unseen: false,
                with: Vec::new(),
            };
            tool_event(of, n, call_id(call.into()), approved)
        }
        Kind::Ended(call) => {
            let ended =
                ToolEvent::from_settled(&SettledOutcome::new(Status::Timeout), true, None, None);
            tool_event(of, n, call_id(call.into()), ended)
        }
    };
    WriteBatch {
        events: (first..).zip(kinds).map(event).collect(),
        records: records(numbers),
        entries: (0..entries)
            .map(|n| draft(["a", "b"][usize::from(n % 2)], n.into()))
            .collect(),
        taken_posts: taken.map(Into::into),
    }
}

/// Runs a step and returns its answer as text.
async fn apply(store: &StoreHandle, step: &Step) -> String {
    match step {
        Step::Append {
            session: of,
            off,
            fence,
            events,
            records,
            entries,
            taken,
        } => {
            let known = store.revision(session((*of).into())).await.expect("reads");
            let revision = known.saturating_add_signed((*off).into());
            let batch = batch(*of, revision + 1, events, records, *entries, *taken);
            let lease_term = taken.map(|taken| term(taken > 1));
            let at = LogPosition {
                revision,
                fence: u64::from(*fence),
                lease_term,
            };
            format!("{:?}", store.append(session((*of).into()), at, batch).await)
        }
        Step::Once(n) => format!(
            "{:?}",
            store
                .put_record_once(key(&n.to_string()), note(&n.to_string()))
                .await
        ),
        Step::Lease {
            session: of,
            holder,
            span,
            instead_of,
        } => {
            let holder = holder.to_string().into();
            let instead_of = instead_of.map(Into::into);
            let request = LeaseRequest {
                session: session((*of).into()),
                holder,
                term: term(*span),
                instead_of,
                parent: instead_of.map(|fence: u64| session(fence.into())),
                directory: None,
            };
            format!(
                "{:?}",
                store.acquire_lease(request).await.map_err(without_time)
            )
        }
        Step::Renew {
            session: of,
            fence,
            span,
        } => {
            let lease = Lease {
                session: session((*of).into()),
                fence: (*fence).into(),
                revision: 0,
            };
            format!("{:?}", store.renew_lease(&lease, term(*span)).await)
        }
        Step::Release { session: of, fence } => {
            let lease = Lease {
                session: session((*of).into()),
                fence: (*fence).into(),
                revision: 0,
            };
            format!("{:?}", store.release_lease(&lease).await)
        }
        Step::Post {
            session: of,
            call,
            answer,
            records: numbers,
        } => {
            let turn = turn_id(1);
            let call = call_id((*call).into());
            let post = if *answer {
                MailboxItem::Answer {
                    turn,
                    call,
                    generation: 0,
                }
            } else {
                MailboxItem::Interrupt {
                    turn,
                    reason: "enough".into(),
                }
            };
            format!(
                "{:?}",
                store
                    .post_item(session((*of).into()), post, records(numbers))
                    .await
            )
        }
        Step::Hide { session: of, at } => {
            format!(
                "{:?}",
                store
                    .hide_session(session((*of).into()), at.map(time))
                    .await
            )
        }
        Step::Erase { session: of } => {
            format!(
                "{:?}",
                store
                    .erase_session(session((*of).into()), NOW)
                    .await
                    .map_err(without_time)
            )
        }
        Step::Seal(n) => format!(
            "{:?}",
            store
                .seal_entries(vec![draft("a", (*n).into()), draft("c", (*n).into())])
                .await
        ),
    }
}

/// Returns the answers to all queries, as text.
async fn everything(store: &StoreHandle) -> String {
    let mut all = String::new();
    for n in 0..3 {
        let session = session(n);
        all += &format!(
            "{:?}",
            store.events(session, 0, 1_000).await.expect("reads")
        );
        all += &format!("{:?}", store.posts(session, 0, 1_000).await.expect("reads"));
        for open in [true, false] {
            all += &format!(
                "{:?}",
                store
                    .turns(TurnFilter {
                        open,
                        ..TurnFilter::open_in(session)
                    })
                    .await
                    .expect("reads")
            );
        }
    }
    let lists = [
        (true, HiddenSessions::Excluded),
        (false, HiddenSessions::Excluded),
        (false, HiddenSessions::Included),
        (true, HiddenSessions::Only),
    ];
    for (with_open_turns, hidden) in lists {
        let filter = SessionFilter {
            with_open_turns,
            hidden,
            ..SessionFilter::default()
        };
        let mut rows = store.sessions(filter).await.expect("reads");
        // The time at which a lease expires depends on the clock of the store.
        rows.iter_mut()
            .filter_map(|row| row.held.as_mut())
            .for_each(|held| held.1 = NOW);
        number_by_last_use(&mut rows);
        all += &format!("{rows:?}");
    }
    for pending in [true, false] {
        let filter = ApprovalFilter {
            pending,
            ..ApprovalFilter::default()
        };
        all += &format!("{:?}", store.approvals(filter).await.expect("reads"));
    }
    all += &format!(
        "{:?}",
        store.list_records("", None, 1_000).await.expect("reads")
    );
    for head in store.ledgers().await.expect("reads") {
        all += &format!(
            "{head:?} {:?}",
            store.entries(&head.ledger, 0, 1_000).await.expect("reads")
        );
    }
    all
}

/// Replaces the numbers of last uses by places: only their order is the same in all stores.
fn number_by_last_use(rows: &mut [SessionRow]) {
    let mut numbers: Vec<u64> = rows.iter().map(|row| row.last_use).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for row in rows {
        let place = numbers.binary_search(&row.last_use);
        row.last_use = place.expect("is one of them") as u64;
    }
}

async fn compare(store: &StoreHandle, steps: &[Step]) -> Result<(), TestCaseError> {
    let memory = StoreHandle::new(MemoryStore::new());
    for step in steps {
        prop_assert_eq!(
            apply(&memory, step).await,
            apply(store, step).await,
            "{:?}",
            step
        );
    }
    prop_assert_eq!(everything(&memory).await, everything(store).await);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sqlite_store_answers_like_the_one_in_memory(steps in vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        let store = StoreHandle::new(SqliteStore::open(directory.path().join("a.db")).expect("opens"));
        runtime.block_on(compare(&store, &steps))?;
    }
}

#[cfg(feature = "postgres")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_postgres_store_answers_like_the_one_in_memory(steps in vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let Some(database) = crate::support::TestDatabase::create().await else { return Ok(()) };
            let store = toolgate_store::open_store(&database.url()).await.expect("opens");
            let same = compare(&store, &steps).await;
            drop(store);
            database.drop().await;
            same
        })?;
    }
}
