use toolgate::{
    Event,
    event::TurnEvent,
    stack::TurnInfo,
    store::{LogPosition, MemoryStore, WriteBatch},
    value::{SessionId, Timestamp, TurnId},
};
use toolgate_testkit::ReadCount;
use uuid::Uuid;

use super::*;

/// Returns the arguments of a plain list with a limit.
fn list_args(limit: usize) -> SessionsListArgs {
    SessionsListArgs {
        all: false,
        unfinished: false,
        principal: None,
        labels: Vec::new(),
        model: None,
        project: None,
        after: None,
        before: None,
        status: None,
        title: None,
        limit,
    }
}

async fn add_session(store: &StoreHandle, number: u128) {
    let session = SessionId::new(Uuid::from_u128(number));
    let turn = Arc::new(TurnInfo::new(session, TurnId::new(Uuid::from_u128(number))));
    let opened = TurnEvent::TurnOpened {
        size: 0,
        after: None,
    };
    let event = Event::for_turn(1, Timestamp::EPOCH, turn, opened).expect("is valid");
    let batch = WriteBatch {
        events: vec![Arc::new(event)],
        ..WriteBatch::default()
    };
    let position = LogPosition::unleased(0);
    let written = store.append(session, position, batch).await;
    written.expect("is written");
}

#[tokio::test]
async fn a_list_is_one_read_however_many_sessions_there_are() {
    let (store, count) = ReadCount::of(MemoryStore::new());
    let mut with_status = list_args(usize::MAX);
    with_status.status = Some("interrupted".into());
    let mut known = 0;
    for sessions in [1, 10, 1_000] {
        while known < sessions {
            known += 1;
            add_session(&store, known).await;
        }
        for args in [&list_args(usize::MAX), &with_status] {
            let before = count.reads();
            let rows = load_sessions(&store, args).await.expect("loads");
            let entries: Vec<_> = rows.into_iter().map(SessionEntry::new).collect();
            assert_eq!(entries.len() as u128, sessions);
            assert_eq!(count.reads() - before, 1, "{sessions} sessions");
        }
    }
    let newest = load_sessions(&store, &list_args(2)).await.expect("loads");
    let newest: Vec<_> = newest.iter().map(|row| row.session.uuid()).collect();
    assert_eq!(newest, [1_000, 999].map(Uuid::from_u128));
}
