//! Sessions of other agents: stored as history, marked, redacted, and only what is new.

use toolgate_archive::{ExportFormat, ExportRedaction, ForeignFormat, ForeignSession, ImportState};
use toolgate_core::{EventBody, PartContent, SessionEvent, SessionFilter, StoreHandle};

use crate::support::{KeepAll, PRIVATE_FIELD, SECRET, empty_store, export, importer};

const FILES: [(ForeignFormat, &str); 5] = [
    (
        ForeignFormat::Claude,
        include_str!("../../fixtures/claude.jsonl"),
    ),
    (
        ForeignFormat::Codex,
        include_str!("../../fixtures/codex.jsonl"),
    ),
    (
        ForeignFormat::Gemini,
        include_str!("../../fixtures/gemini.jsonl"),
    ),
    (
        ForeignFormat::Qwen,
        include_str!("../../fixtures/qwen.jsonl"),
    ),
    (
        ForeignFormat::Cline,
        include_str!("../../fixtures/cline.json"),
    ),
];

fn block_on<T>(work: impl Future<Output = T>) -> T {
    futures::executor::block_on(work)
}

fn read(format: ForeignFormat, text: &str) -> ForeignSession {
    let mut sessions = format.read(text, "file").expect("reads");
    sessions.remove(0)
}

async fn event_names(store: &StoreHandle, session: toolgate_core::SessionId) -> Vec<&'static str> {
    let events = store.events(session, 0, 1_000).await.expect("reads");
    events.iter().map(|event| event.name()).collect()
}

#[test]
fn every_format_is_recognised_by_its_content() {
    for (format, text) in FILES {
        assert_eq!(ForeignFormat::detect(text), Some(format));
    }
    for text in ["", "x", "{}", "[]", "{\"type\":\"user\"}", "# Title\n"] {
        assert_eq!(ForeignFormat::detect(text), None, "{text}");
    }
}

#[test]
fn an_imported_session_is_marked_and_claims_no_execution() {
    block_on(async {
        for (format, text) in FILES {
            let store = empty_store();
            let foreign = read(format, text);
            let done = importer(&store)
                .import_foreign(&foreign)
                .await
                .expect("imports");
            assert_eq!(done.state, ImportState::Added);
            assert_eq!(done.message_count, foreign.messages.len() as u64);
            assert_eq!(done.warnings, foreign.warnings);
            let origin = store.load_import_origin(done.session).await.expect("reads");
            assert_eq!(&*origin.expect("a mark").format, format.as_str());
            let filter = SessionFilter::for_session(done.session);
            let row = store.sessions(filter).await.expect("lists").remove(0);
            assert_eq!(row.labels.get("imported_from"), Some(format.as_str()));
            assert_eq!(
                row.last_run, None,
                "it has no run of ours that could be resumed"
            );
            let names = event_names(&store, done.session).await;
            assert!(
                names
                    .iter()
                    .all(|name| !name.starts_with("tool_") && !name.starts_with("turn_"))
            );
            assert!(names.contains(&"imported_call") && names.contains(&"imported_result"));
            assert!(
                store.ledgers().await.expect("reads").is_empty(),
                "there is no receipt"
            );
        }
    });
}

#[test]
fn a_second_import_adds_only_what_is_new() {
    block_on(async {
        let (format, text) = FILES[0];
        let store = empty_store();
        let lines: Vec<_> = text.lines().collect();
        let mut session = None;
        let mut total = 0;
        for (count, state, new) in [
            (5, ImportState::Added, 2),
            (5, ImportState::Unchanged, 0),
            (7, ImportState::Grown, 2),
            (9, ImportState::Unchanged, 0),
        ] {
            let part = lines[..count].join("\n") + "\n";
            let done = importer(&store)
                .import_foreign(&read(format, &part))
                .await
                .expect("imports");
            assert_eq!(
                (done.state, done.message_count),
                (state, new),
                "{count} lines"
            );
            assert_eq!(*session.get_or_insert(done.session), done.session);
            total += new;
        }
        let session = session.expect("imported");
        let messages = store.messages(session, u64::MAX, 100).await.expect("reads");
        assert_eq!(messages.len() as u64, total);
        // The result belongs to the turn of the call, although it came with a later import.
        assert_eq!(messages[1].1.turn, messages[2].1.turn);
        let whole = empty_store();
        let done = importer(&whole)
            .import_foreign(&read(format, text))
            .await
            .expect("imports");
        assert_eq!(
            done.session, session,
            "the id depends only on the session of that program"
        );
        assert_eq!(
            event_names(&store, session).await,
            event_names(&whole, session).await
        );
    });
}

#[test]
fn a_file_whose_past_changed_is_not_mixed_with_what_was_imported() {
    block_on(async {
        let (format, text) = FILES[0];
        let store = empty_store();
        let done = importer(&store)
            .import_foreign(&read(format, text))
            .await
            .expect("imports");
        let before = event_names(&store, done.session).await;
        let changed = text.replace("Why does the test fail?", "Something else?");
        let done = importer(&store)
            .import_foreign(&read(format, &changed))
            .await
            .expect("answers");
        assert_eq!(done.state, ImportState::Diverged);
        assert_eq!(event_names(&store, done.session).await, before);
    });
}

#[test]
fn a_time_that_no_calendar_has_is_left_out_and_the_session_can_be_read() {
    block_on(async {
        for time in [
            "1772600000000000",
            "-99999999999999999",
            "9223372036854775807",
        ] {
            let text = format!(r#"[{{"role":"user","content":"hi","ts":{time}}}]"#);
            let store = empty_store();
            let foreign = read(ForeignFormat::Cline, &text);
            let done = importer(&store).import_foreign(&foreign).await;
            let done = done.expect("imports");
            let events = store.events(done.session, 0, 10).await.expect("reads");
            for event in events {
                let text = serde_json::to_string(&*event).expect("writes");
                assert!(
                    serde_json::from_str::<toolgate_core::Event>(&text).is_ok(),
                    "{text}"
                );
            }
        }
    });
}

#[test]
fn secrets_of_other_programs_are_redacted_before_they_are_stored() {
    block_on(async {
        for (format, text) in FILES {
            // In a text, in arguments and in a result.
            let text = text
                .replace("cargo test", SECRET)
                .replace("The price", SECRET)
                .replace("1 failed", SECRET)
                .replace("NOTES", SECRET)
                .replace("no such file", SECRET);
            let store = empty_store();
            let done = importer(&store)
                .import_foreign(&read(format, &text))
                .await
                .expect("imports");
            let events = store.events(done.session, 0, 1_000).await.expect("reads");
            let messages = store
                .messages(done.session, u64::MAX, 1_000)
                .await
                .expect("reads");
            let stored = format!("{events:?}{messages:?}");
            assert!(!stored.contains(SECRET), "{format}");
        }
    });
}

#[test]
fn a_field_that_is_redacted_by_its_name_is_also_redacted_inside_of_texts() {
    let planted = "1990-01-02";
    let person = serde_json::json!({ "people": [{ PRIVATE_FIELD: planted, "name": "Ann" }] });
    let quoted = serde_json::to_string(&person.to_string()).expect("text");
    // The result of the call, and the last reply.
    let text = FILES[0]
        .1
        .replace("\"test result: FAILED. 1 failed\"", &quoted)
        .replace("\"The price is rounded twice.\"", &quoted);
    block_on(async {
        let session = read(FILES[0].0, &text);
        let stored = empty_store();
        let done = importer(&stored).import_foreign(&session).await;
        let done = done.expect("imports");
        let messages = stored.messages(done.session, u64::MAX, 1_000).await;
        let messages = format!("{:?}", messages.expect("reads"));
        assert!(messages.contains("Ann") && !messages.contains(planted));
        let raw = empty_store();
        let done = importer(&raw)
            .redactor(std::sync::Arc::new(KeepAll))
            .import_foreign(&session)
            .await
            .expect("imports");
        for format in ExportFormat::ALL {
            let kept = export(&raw, &[done.session], format, ExportRedaction::Raw).await;
            assert!(kept.matches(planted).count() > 1, "{format}");
            let shown = export(&raw, &[done.session], format, ExportRedaction::Redact).await;
            assert!(
                shown.contains("Ann") && !shown.contains(planted),
                "{format}"
            );
        }
    });
}

#[test]
fn without_a_redactor_nothing_is_stored() {
    block_on(async {
        let store = empty_store();
        let importer =
            toolgate_archive::Importer::new(store.clone(), toolgate_core::Timestamp::EPOCH);
        assert!(
            importer
                .import_foreign(&read(FILES[0].0, FILES[0].1))
                .await
                .is_err()
        );
        let rows = store
            .sessions(SessionFilter::default())
            .await
            .expect("lists");
        assert!(rows.is_empty());
    });
}

#[test]
fn long_texts_are_whole_in_the_message_and_bounded_in_the_event() {
    block_on(async {
        let long = "ä".repeat(20_000);
        let text = format!(
            "{}\n",
            serde_json::json!({ "type": "user", "sessionId": "s", "message": { "content": long } })
        );
        let store = empty_store();
        let foreign = read(ForeignFormat::Claude, &text);
        let done = importer(&store)
            .import_foreign(&foreign)
            .await
            .expect("imports");
        let events = store.events(done.session, 0, 10).await.expect("reads");
        let EventBody::Loop(
            _,
            SessionEvent::UserMessage {
                text, text_bytes, ..
            },
        ) = events[0].body()
        else {
            panic!("a message");
        };
        assert!(text.as_ref().expect("text").len() <= 16 * 1024);
        assert_eq!(*text_bytes, Some(40_000));
        let messages = store
            .messages(done.session, u64::MAX, 10)
            .await
            .expect("reads");
        assert!(
            matches!(&messages[0].1.message.parts[0].content, PartContent::Text(text) if *text == long)
        );
    });
}

#[test]
fn an_imported_session_is_exported_and_moved_like_any_other() {
    block_on(async {
        let store = empty_store();
        let foreign = read(FILES[0].0, FILES[0].1);
        let done = importer(&store)
            .import_foreign(&foreign)
            .await
            .expect("imports");
        let file = toolgate_testkit::conformance::export_raw(&store, &[done.session])
            .await
            .expect("exports");
        let other = empty_store();
        crate::support::import(&other, &file)
            .await
            .expect("imports");
        let again = toolgate_testkit::conformance::export_raw(&other, &[done.session])
            .await
            .expect("exports");
        assert!(again == file);
        let origin = other
            .load_import_origin(done.session)
            .await
            .expect("reads")
            .expect("a mark");
        assert_eq!(&*origin.format, "claude", "its origin travels with it");
    });
}
