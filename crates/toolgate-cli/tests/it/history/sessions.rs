//! Sessions are listed and shown, changes are undone, and sessions are hidden or erased.

use std::{fs, process::Command, sync::Arc, time::Duration};

use toolgate::{
    Event, Registry, Session, ToolError,
    event::SessionEvent,
    layers::SecretScanner,
    model::ScriptedModel,
    stack::TurnInfo,
    store::{LogPosition, SessionFilter, StoreHandle, WriteBatch},
    tool_fn,
    value::{Labels, SessionId, TimeOrderedIds, Timestamp, TurnId},
};

use crate::history::HistoryPlace;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Runs a conversation with one call, and returns the session, whose driver is still alive.
async fn run_driven_session(store: StoreHandle, words: &str) -> Session {
    let registry = Registry::new();
    registry
        .register(tool_fn("look", "Looks.", async |_: Nothing, _| {
            Ok::<_, ToolError>("seen")
        }))
        .expect("free");
    let script = "[[reply]]\ncalls = [{ tool = 'look', arguments = {} }]\n[[reply]]\ntext = 'It is **done**.'";
    let model = ScriptedModel::from_toml(script).expect("a scenario");
    let long = Duration::from_secs(3_600);
    let builder = Session::ungated(model, registry);
    let session = builder
        .dispatcher(move |builder| builder.store(store).lease(long))
        .build()
        .await;
    let session = session.expect("builds");
    session.run(words).await.expect("runs");
    session
}

/// Runs the same conversation in the database of a place, and waits until its lease is released.
async fn run_session(place: &HistoryPlace, words: &str) -> String {
    place.ends(0, &["sessions", "list"]);
    let store = place.store().await;
    let session = run_driven_session(store.clone(), words).await;
    let id = session.id();
    drop(session);
    // Dropping the session releases the lease in the background.
    while store
        .sessions(SessionFilter::for_session(id))
        .await
        .expect("reads")
        .pop()
        .expect("is there")
        .held
        .is_some()
    {
        tokio::task::yield_now().await;
    }
    id.to_string()
}

fn subjects(rows: &[serde_json::Value]) -> Vec<&str> {
    rows.iter()
        .map(|row| row["words"].as_str().expect("words"))
        .collect()
}

#[tokio::test]
async fn sessions_are_listed_with_their_status_and_shown_with_their_messages() {
    let place = HistoryPlace::new();
    assert!(
        place
            .ends(0, &["sessions", "list"])
            .err
            .contains("no sessions yet")
    );
    let id = run_session(&place, "please look\ninto it").await;
    place.request_approval("a.txt");
    let rows = place.json(&["sessions", "list"]);
    assert_eq!(subjects(&rows), ["please look into it", "write_file"]);
    let states: Vec<_> = rows
        .iter()
        .map(|row| row["state"].as_str().expect("a word"))
        .collect();
    assert_eq!(states, ["done", "waiting"]);
    assert_eq!(
        (rows[0]["session"].as_str(), rows[0]["calls"].as_u64()),
        (Some(&*id), Some(1))
    );
    assert_eq!(
        subjects(&place.json(&["sessions", "list", "--limit", "1"])),
        ["write_file"],
        "the newest"
    );
    let shown = place
        .ends(0, &["sessions", "show", &id[id.len() - 8..]])
        .out;
    for part in ["> please look", "✓ look", "It is done.", "(done)"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let events = place.json(&["sessions", "show", &id]);
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(n, event)| event["sequence"] == n as u64 + 1),
        "{events:?}"
    );
    assert!(
        place
            .ends(0, &["sessions", "show", &id, "--events"])
            .out
            .contains("tool_execution_succeeded")
    );
}

#[tokio::test]
async fn the_cause_of_a_failed_call_is_shown_to_operators_and_only_to_them() {
    let place = HistoryPlace::new();
    place.ends(0, &["sessions", "list"]);
    let registry = Registry::new();
    registry
        .register(tool_fn("look", "Looks.", async |_: Nothing, _| {
            let cause = "the index is locked\nat postgres://ann:hunter2@db/index";
            Err::<String, _>(ToolError::new("the tool failed").with_operator_detail(cause))
        }))
        .expect("free");
    let script =
        "[[reply]]\ncalls = [{ tool = 'look', arguments = {} }]\n[[reply]]\ntext = 'It failed.'";
    let model = ScriptedModel::from_toml(script).expect("a scenario");
    let store = place.store().await;
    let session = Session::ungated(model, registry)
        .dispatcher(move |builder| builder.store(store).redactor(SecretScanner::standard()))
        .build()
        .await
        .expect("builds");
    session.run("please look").await.expect("runs");
    let id = session.id().to_string();

    let shown = place.ends(0, &["sessions", "show", &id, "--operator"]).out;
    assert!(shown.contains("✗ look"), "{shown}");
    assert!(shown.contains("       the index is locked\n"), "{shown}");
    assert!(shown.contains("at postgres://"), "{shown}");
    let rows = place.json(&["sessions", "show", &id, "--operator"]);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["tool_name"], "look");
    assert_eq!(rows[0]["status"], "executor_error");
    let operator = rows[0]["operator"].as_str().expect("a text");
    assert!(operator.starts_with("the index is locked\n"), "{operator}");
    for text in [&shown, operator] {
        assert!(!text.contains("hunter2"), "it is redacted: {text}");
    }
    let others = [
        place.ends(0, &["sessions", "show", &id]).out,
        place.ends(0, &["--json", "sessions", "show", &id]).out,
    ];
    for text in others {
        assert!(!text.contains("index is locked"), "{text}");
    }
}

#[tokio::test]
async fn a_session_is_resumed_with_a_new_message() {
    let place = HistoryPlace::new();
    let id = run_session(&place, "first").await;
    // A script derives its position from the replies in the history.
    let script = ["one", "two", "And now that."]
        .map(|text| format!("[[reply]]\ntext = '{text}'\n"))
        .concat();
    fs::write(place.work().join("more.toml"), script).expect("writes");
    let said = place.ends(
        0,
        &[
            "sessions",
            "resume",
            &id,
            "and that",
            "--model",
            "script:more.toml",
        ],
    );
    assert!(said.out.contains("And now that."), "{said:?}");
    let shown = place.ends(0, &["sessions", "show", &id]).out;
    assert!(
        shown.contains("> first") && shown.contains("> and that"),
        "{shown}"
    );
    place.ends(2, &["sessions", "resume", "abcdef12"]);
}

#[tokio::test]
async fn a_deleted_session_is_hidden_and_restored_and_an_erased_one_is_gone() {
    let place = HistoryPlace::new();
    let one = run_session(&place, "first").await;
    let two = run_session(&place, "second").await;
    place.write("a.txt", "x");
    place.ends(0, &["sessions", "delete", &one]);
    assert_eq!(
        subjects(&place.json(&["sessions", "list"])),
        ["second", "write_file"]
    );
    assert_eq!(place.json(&["sessions", "list", "--all"]).len(), 3);
    place.ends(0, &["sessions", "restore", &one[one.len() - 8..]]);
    assert_eq!(place.json(&["sessions", "list"]).len(), 3);
    let asked = place.ends(2, &["sessions", "delete", &two, "--erase"]);
    assert!(
        asked.err.contains("--yes") && asked.out.contains("Receipts stay"),
        "{asked:?}"
    );
    assert_eq!(place.json(&["sessions", "list"]).len(), 3);
    let before = place.json(&["receipts", "verify"]);
    let erased = place.json(&["sessions", "delete", &two, "--erase", "--yes"]);
    assert_eq!(erased[0]["state"], "erased");
    assert_eq!(
        subjects(&place.json(&["sessions", "list", "--all"])),
        ["first", "write_file"]
    );
    let after = place.json(&["receipts", "verify"]);
    for field in ["intact", "receipts", "head", "signed"] {
        assert_eq!(after[0][field], before[0][field], "{field}");
    }
    let gone = place.ends(2, &["sessions", "show", &two]);
    assert!(
        gone.err.contains("there is no session") && gone.err.contains("hint:"),
        "{gone:?}"
    );
}

#[test]
fn a_damaged_session_is_listed_beside_the_others_and_found_when_it_is_read() {
    let place = HistoryPlace::new();
    place.ends(0, &["tools", "call", "list_dir"]);
    place.ends(0, &["tools", "call", "list_dir"]);
    let database = place.dir.path().join("home/toolgate.db");
    let connection = rusqlite::Connection::open(database).expect("a database");
    let changed = connection.execute(
        "UPDATE events SET body = replace(body, 'list_dir', 'list_dim')
         WHERE session = (SELECT min(id) FROM sessions)",
        [],
    );
    assert!(changed.expect("an update") > 0);
    // A list reads no events, so damage in one of them is found by what reads it.
    let listed = place.json(&["sessions", "list"]);
    assert_eq!(listed.len(), 2);
    let id = listed[0]["session"].as_str().expect("an id");
    let shown = place.ends(10, &["sessions", "show", id]);
    assert!(shown.err.contains("hint:"), "{shown:?}");
    let changed = connection.execute(
        "UPDATE sessions SET calls = NULL WHERE id = (SELECT min(id) FROM sessions)",
        [],
    );
    assert_eq!(changed.expect("an update"), 1);
    let listed = place.json(&["sessions", "list"]);
    let states: Vec<_> = listed.iter().map(|entry| &entry["state"]).collect();
    assert_eq!(states, ["damaged", "done"], "not counted when migrated");
}

#[tokio::test]
async fn a_session_with_a_driver_is_not_erased_even_after_its_lease_expired() {
    let place = HistoryPlace::new();
    place.ends(0, &["sessions", "list"]);
    let driving = run_driven_session(place.store().await, "first").await;
    let id = driving.id().to_string();
    let refuses_to_erase = || {
        let refused = place.ends(11, &["sessions", "delete", &id, "--erase", "--yes"]);
        assert!(
            refused.err.contains("driven by") && refused.err.contains("hint:"),
            "{refused:?}"
        );
        assert_eq!(place.json(&["sessions", "list"])[0]["state"], "running");
    };
    refuses_to_erase();
    // As if the driver had been stopped for longer than its lease.
    let connection = rusqlite::Connection::open(place.database()).expect("opens");
    let expired = connection.execute("UPDATE sessions SET lease_until = 0", []);
    assert_eq!(expired.expect("an update"), 1);
    refuses_to_erase();
    drop(driving);
}

#[tokio::test]
async fn a_session_with_a_living_driver_is_taken_over_only_after_asking() {
    let place = HistoryPlace::new();
    place.ends(0, &["sessions", "list"]);
    let driving = run_driven_session(place.store().await, "first").await;
    let id = driving.id().to_string();
    let script = place.work().join("more.toml");
    fs::write(script, "[[reply]]\ntext = 'More.'\n".repeat(3)).expect("writes");
    let resume = |code, more: &[&str]| {
        let mut args = vec![
            "run",
            "--resume",
            &id,
            "again",
            "--model",
            "script:more.toml",
        ];
        args.extend(more);
        place.ends(code, &args)
    };
    let process = format!("process {}", std::process::id());
    let refused = resume(11, &[]);
    assert!(
        refused.err.contains(&process) && refused.err.contains("--take-over"),
        "{refused:?}"
    );
    let unasked = resume(2, &["--take-over"]);
    assert!(unasked.err.contains("--yes"), "{unasked:?}");
    resume(0, &["--take-over", "--yes"]);
    let lost = driving.run("more").await.expect_err("it was taken over");
    assert!(lost.to_string().contains("taken over"), "{lost}");
}

/// Writes a session whose process was lost while the model was asked.
async fn write_lost_session(store: &StoreHandle) {
    let session = SessionId::from_source(&TimeOrderedIds);
    let mut info = TurnInfo::new(session, TurnId::from_source(&TimeOrderedIds));
    info.principal = Some("ann".into());
    info.labels = Labels::new([("tenant", "acme")]).expect("valid");
    info.run = Some(0);
    let message = SessionEvent::UserMessage {
        message: 0,
        text: Some("never answered".into()),
        text_bytes: None,
        steering: false,
    };
    let event = Event::for_run(
        1,
        Timestamp::from_micros(1_000_000),
        Arc::new(info),
        message,
    );
    let batch = WriteBatch {
        events: vec![Arc::new(event.expect("valid"))],
        ..WriteBatch::default()
    };
    let written = store.append(session, LogPosition::unleased(0), batch).await;
    written.expect("appends");
}

#[tokio::test]
async fn unfinished_sessions_are_listed_by_state_owner_and_labels() {
    let place = HistoryPlace::new();
    run_session(&place, "please look").await;
    write_lost_session(&place.store().await).await;
    let list = |more: &[&str]| {
        let mut args = vec!["sessions", "list"];
        args.extend(more);
        place.json(&args)
    };
    assert_eq!(list(&[]).len(), 2);
    for narrowed in [
        &["--unfinished"][..],
        &["--principal", "ann"],
        &["--label", "tenant=acme"],
        &[
            "--unfinished",
            "--principal",
            "ann",
            "--label",
            "tenant=acme",
        ],
    ] {
        assert_eq!(
            subjects(&list(narrowed)),
            ["never answered"],
            "{narrowed:?}"
        );
    }
    assert!(list(&["--label", "tenant=other"]).is_empty());
    let row = &list(&["--unfinished"])[0];
    let said = ["state", "principal"].map(|field| row[field].as_str().expect("a text"));
    assert_eq!(said, ["lost", "ann"]);
    assert_eq!(row["labels"]["tenant"], "acme");
    assert_eq!(row["last_run"]["state"], "running");
    let table = place.ends(0, &["sessions", "list"]).out;
    assert!(table.contains("process lost, can be resumed"), "{table}");
    let wrong = place.ends(2, &["sessions", "list", "--label", "tenant"]);
    assert!(wrong.err.contains("NAME=VALUE"), "{wrong:?}");
    let nothing = place.ends(0, &["sessions", "list", "--principal", "bob"]);
    assert!(nothing.err.contains("no session matches"), "{nothing:?}");
}

/// The variable with the child's database address; without it the child's test does nothing.
const ROLE: &str = "TOOLGATE_TALK_AND_DIE";

/// Runs in a child process of this test binary, which dies while it drives a session.
#[tokio::test]
async fn a_child_talks_and_dies() {
    let Ok(address) = std::env::var(ROLE) else {
        return;
    };
    let _driving = run_driven_session(
        toolgate::store::open_store(&address).await.expect("opens"),
        "last words",
    )
    .await;
    toolgate_testkit::kill_this_process();
}

#[test]
fn the_lease_of_a_dead_process_does_not_block_erasing() {
    let place = HistoryPlace::new();
    place.ends(0, &["sessions", "list"]);
    let died = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "history::sessions::a_child_talks_and_dies"])
        .env(ROLE, place.database())
        .output()
        .expect("runs");
    assert!(!died.status.success(), "it was killed");
    let rows = place.json(&["sessions", "list"]);
    assert_eq!(
        (subjects(&rows), rows[0]["state"].as_str()),
        (vec!["last words"], Some("done")),
        "its process is gone, whatever its lease says"
    );
    let id = rows[0]["session"].as_str().expect("an id");
    place.ends(0, &["sessions", "delete", id, "--erase", "--yes"]);
    assert!(place.json(&["sessions", "list", "--all"]).is_empty());
}

pub(super) fn last_session_id(place: &HistoryPlace) -> String {
    let rows = place.json(&["sessions", "list"]);
    rows.last()
        .and_then(|row| row["session"].as_str())
        .expect("a session")
        .to_owned()
}

#[test]
fn the_changes_of_a_session_are_undone_through_the_gate_and_once() {
    let place = HistoryPlace::new();
    fs::write(place.work().join("a.txt"), "old\n").expect("writes");
    place.write("a.txt", "new");
    let session = last_session_id(&place);
    let shown = place
        .ends(0, &["sessions", "undo", &session, "--dry-run"])
        .out;
    assert!(shown.contains("-old") && shown.contains("+new"), "{shown}");
    assert_eq!(place.read("a.txt").as_deref(), Some("new"));
    let asked = place.ends(2, &["sessions", "undo", &session]);
    assert!(asked.err.contains("--yes"), "{asked:?}");
    place.ends(0, &["sessions", "undo", &session, "--yes"]);
    assert_eq!(place.read("a.txt").as_deref(), Some("old\n"));
    let receipts = place.json(&[
        "receipts",
        "list",
        "--tool",
        "undo_changes",
        "--approver",
        &crate::account_name(),
    ]);
    assert_eq!(
        receipts[0]["receipt"]["session_id"].as_str(),
        Some(&*session),
        "{receipts:?}"
    );
    assert!(
        place
            .ends(0, &["sessions", "undo", &session, "--yes"])
            .err
            .contains("nothing to undo")
    );
}

#[test]
fn a_file_that_was_changed_since_is_left_alone_unless_forced() {
    let place = HistoryPlace::new();
    place.write("a.txt", "new");
    let session = last_session_id(&place);
    fs::write(place.work().join("a.txt"), "mine").expect("writes");
    let refused = place.ends(1, &["sessions", "undo", &session, "--yes"]);
    assert!(
        refused.err.contains("changed since") && refused.err.contains("--force"),
        "{refused:?}"
    );
    assert_eq!(place.read("a.txt").as_deref(), Some("mine"));
    place.ends(0, &["sessions", "undo", &session, "--yes", "--force"]);
    assert_eq!(place.read("a.txt"), None);
}

#[test]
fn changes_in_another_directory_are_not_undone_from_here() {
    let place = HistoryPlace::new();
    place.write("a.txt", "new");
    let session = last_session_id(&place);
    let elsewhere = place.dir.path().to_str().expect("text");
    let said = place.ends(2, &["-C", elsewhere, "sessions", "undo", &session, "--yes"]);
    assert!(
        said.err.contains("the session worked in") && said.err.contains("-C "),
        "{said:?}"
    );
    assert_eq!(place.read("a.txt").as_deref(), Some("new"));
}
