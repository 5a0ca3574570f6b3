//! The store suite, one file for each trait of a store; hiding and erasing have a file of their own.

mod accounts;
mod catalogue;
mod erasure;
mod events;
mod ledgers;
mod mailbox;
mod memories;
mod records;
mod search;
mod session_list;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use toolgate_core::{
    Event, IdSource, Json, Lease, LeaseRequest, LeaseTerm, LogPosition, SessionId, Store,
    StoreError, StoreHandle, StoreRecord, Timestamp, TurnEvent, TurnId, TurnInfo, WriteBatch,
};

use super::{ConformanceReport, ensure};

type StoreRule = for<'a> fn(&'a StoreHandle, &'a dyn IdSource) -> BoxFuture<'a, Result<(), String>>;

/// Runs the store suite. The store may hold anything already; every rule uses fresh ids from `ids`.
pub async fn check_store(store: impl Store, ids: &dyn IdSource) -> ConformanceReport {
    let store = StoreHandle::new(store);
    let rules = events::RULES.into_iter().chain(records::RULES);
    let rules = rules.chain(mailbox::RULES).chain(ledgers::RULES);
    let rules = rules.chain(accounts::RULES).chain(catalogue::RULES);
    let search_rules = search::RULES.into_iter().chain(search::MEANING_RULES);
    let mut report = ConformanceReport::default();
    let rules = rules.chain(erasure::RULES).chain(memories::RULES);
    let rules = rules.chain(search_rules).chain(session_list::RULES);
    for (name, rule) in rules {
        report.add_result(name, rule(&store, ids).await);
    }
    report
}

fn error_text(error: StoreError) -> String {
    error.to_string()
}

/// Returns `count` events of a new turn in `session`, numbered from `first`.
fn sample_events(
    session: SessionId,
    ids: &dyn IdSource,
    first: u64,
    count: u64,
) -> Vec<Arc<Event>> {
    let turn = Arc::new(TurnInfo::new(session, TurnId::from_source(ids)));
    let event = |n| {
        Event::for_turn(
            n,
            Timestamp::EPOCH,
            turn.clone(),
            TurnEvent::TurnOpened {
                size: 0,
                after: None,
            },
        )
    };
    (first..first + count)
        .map(|n| Arc::new(event(n).expect("a valid event")))
        .collect()
}

fn event_batch(events: Vec<Arc<Event>>) -> WriteBatch {
    WriteBatch {
        events,
        ..WriteBatch::default()
    }
}

fn json_record(text: &str) -> StoreRecord {
    StoreRecord::Json(Json::from(text))
}

/// A term that does not end while a rule is checked, by any clock.
const LONG_TERM: LeaseTerm = LeaseTerm {
    now: Timestamp::from_micros(50_000_000),
    span: Duration::from_secs(3_600),
};

/// A term that has ended when it begins, by any clock.
const ENDED_TERM: LeaseTerm = LeaseTerm {
    span: Duration::ZERO,
    ..LONG_TERM
};

fn lease_request(session: SessionId, holder: &str, term: LeaseTerm) -> LeaseRequest {
    LeaseRequest {
        session,
        holder: holder.into(),
        term,
        instead_of: None,
        parent: None,
        directory: None,
    }
}

fn leased_position(lease: &Lease, revision: u64) -> LogPosition {
    LogPosition {
        revision,
        fence: lease.fence,
        lease_term: None,
    }
}
