//! Sessions are found by what was said in them, renamed, and listed with filters.

use std::{fs, sync::Arc};

use toolgate::{
    Event,
    event::SessionEvent,
    stack::TurnInfo,
    store::{LogPosition, WriteBatch},
    value::{SessionId, TimeOrderedIds, Timestamp, TurnId},
};

use crate::history::HistoryPlace;

/// Stores a session with messages of the user, a second apart.
async fn say(place: &HistoryPlace, texts: &[&str]) -> String {
    place.ends(0, &["sessions", "list"]);
    let session = SessionId::from_source(&TimeOrderedIds);
    let info = Arc::new(TurnInfo::new(session, TurnId::from_source(&TimeOrderedIds)));
    let events = (1..).zip(texts).map(|(n, text)| {
        let event = SessionEvent::UserMessage {
            message: n,
            text: Some((*text).to_owned()),
            text_bytes: None,
            steering: false,
        };
        let at = Timestamp::from_micros(i64::try_from(n).expect("few") * 1_000_000);
        Arc::new(Event::for_run(n, at, info.clone(), event).expect("a valid event"))
    });
    let batch = WriteBatch {
        events: events.collect(),
        ..WriteBatch::default()
    };
    let appended = place
        .store()
        .await
        .append(session, LogPosition::unleased(0), batch)
        .await;
    appended.expect("appends");
    session.to_string()
}

#[tokio::test]
async fn what_was_said_is_found_with_its_session() {
    let place = HistoryPlace::new();
    let id = say(&place, &["please deploy the walrus", "and the otter"]).await;
    let found = place.ends(0, &["search", "walrus", "--mode", "text"]);
    assert!(found.out.contains("deploy the walrus"), "{}", found.out);
    assert!(found.out.contains(&id[id.len() - 8..]), "{}", found.out);
    assert!(!found.out.contains('\u{1b}'), "no styles in a pipe");
    let json: serde_json::Value =
        serde_json::from_str(&place.ends(0, &["search", "walrus", "--json"]).out).expect("JSON");
    let hit = &json["hits"][0];
    assert_eq!(hit["session"], id.as_str());
    assert_eq!(hit["kind"], "user");
    let start = hit["snippet"]["matches"][0]["start"]
        .as_u64()
        .expect("a range");
    assert_eq!(start, "please deploy the ".len() as u64);
    // By the end of an id, as lists show it.
    let short = format!("--session={}", &id[id.len() - 8..]);
    let found = place.ends(0, &["search", "otter", &short, "--mode", "text", "--json"]);
    assert!(found.out.contains("and the otter"), "{}", found.out);
}

#[tokio::test]
async fn a_search_without_hits_gives_a_hint_and_any_text_is_safe() {
    let place = HistoryPlace::new();
    say(&place, &["hello"]).await;
    for query in ["zebra", "\"", "(", "AND", "", "tool:shell", "it's \"", "*"] {
        let found = place.ends(0, &["search", "--mode", "text", "--", query]);
        assert!(found.err.contains("hint: "), "{query}: {}", found.err);
    }
    let bad = place.ends(2, &["search", "x", "--role", "robot"]);
    assert!(bad.err.contains("assistant"), "{}", bad.err);
    let bad = place.ends(1, &["search", "x", "--cursor", "nonsense"]);
    assert!(bad.err.contains("hint: "), "{}", bad.err);
}

#[tokio::test]
async fn pages_continue_with_the_cursor_of_the_json() {
    let place = HistoryPlace::new();
    say(&place, &["lemur 1", "lemur 2", "lemur 3"]).await;
    let page = |cursor: Option<&str>| {
        let mut args = vec![
            "search", "lemur", "--mode", "text", "--limit", "2", "--json",
        ];
        args.extend(cursor.map(|_| "--cursor"));
        args.extend(cursor);
        serde_json::from_str::<serde_json::Value>(&place.ends(0, &args).out).expect("JSON")
    };
    let first = page(None);
    let second = page(first["next"].as_str());
    let sequences = |page: &serde_json::Value| {
        let hits = page["hits"].as_array().expect("hits").clone();
        hits.iter()
            .map(|hit| hit["sequence"].as_u64())
            .collect::<Vec<_>>()
    };
    let mut all = [sequences(&first), sequences(&second)].concat();
    all.sort_unstable();
    assert_eq!(all, [Some(1), Some(2), Some(3)]);
    assert!(second["next"].is_null());
}

#[tokio::test]
async fn the_index_is_rebuilt_and_its_state_is_shown() {
    let place = HistoryPlace::new();
    say(&place, &["walrus"]).await;
    let status = place.ends(0, &["search", "status", "--json"]).out;
    assert!(status.contains("\"stale_events\":1"), "{status}");
    let done = place.ends(0, &["search", "reindex", "--json"]).out;
    assert!(
        done.contains("\"documents\":1") && done.contains("\"complete\":true"),
        "{done}"
    );
    let status = place.ends(0, &["search", "status"]).out;
    assert!(status.contains("documents      1"), "{status}");
    place.ends(0, &["search", "reindex", "--continue"]);
}

#[tokio::test]
async fn a_session_is_renamed_found_by_its_title_and_listed_with_filters() {
    let place = HistoryPlace::new();
    let id = say(&place, &["first words"]).await;
    let other = say(&place, &["other words"]).await;
    let renamed = place.ends(0, &["sessions", "rename", &id, "Puffin", "colony"]);
    assert!(renamed.out.contains("Puffin colony"), "{}", renamed.out);
    let found = place.ends(
        0,
        &["search", "puffin role:title", "--mode", "text", "--json"],
    );
    assert!(found.out.contains(&id), "{}", found.out);
    let listed = |args: &[&str]| {
        let args: Vec<&str> = ["sessions", "list", "--json"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        place.ends(0, &args).out
    };
    let by_title = listed(&["--title", "puffin"]);
    assert!(
        by_title.contains(&id) && !by_title.contains(&other),
        "{by_title}"
    );
    // The events are of the first seconds of 1970.
    assert!(listed(&["--after", "3d"]).is_empty());
    assert!(listed(&["--before", "1971-01-01"]).contains(&other));
    assert!(listed(&["--project", "/nowhere"]).is_empty());
    assert!(listed(&["--status", "running"]).is_empty());
    place.ends(2, &["sessions", "list", "--after", "soon"]);
    place.ends(2, &["sessions", "rename", &id, " "]);
}

#[tokio::test]
async fn a_secret_in_a_title_is_stored_nowhere() {
    let place = HistoryPlace::new();
    let id = say(&place, &["first words"]).await;
    let secret = format!("sk-ant-api03-{}-AAAAAAAA", "A".repeat(84));
    let title = format!("puffin {secret}");
    let renamed = place.ends(0, &["sessions", "rename", &id, &title]);
    assert!(renamed.out.contains("puffin [redacted"), "{renamed:?}");
    let found = place.ends(0, &["search", "puffin role:title", "--mode", "text"]);
    assert!(found.out.contains("[redacted"), "{found:?}");
    for file in fs::read_dir(place.dir.path().join("home")).expect("lists") {
        let file = file.expect("lists").path();
        let bytes = fs::read(&file).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(&secret), "{}", file.display());
    }
}

#[tokio::test]
async fn text_of_others_cannot_control_the_terminal() {
    let place = HistoryPlace::new();
    say(&place, &["walrus \u{1b}[2J\u{7}\u{202e}evil"]).await;
    let found = place.ends(0, &["search", "walrus", "--mode", "text"]);
    assert!(
        !found.out.contains(['\u{1b}', '\u{7}', '\u{202e}']),
        "{:?}",
        found.out
    );
}
