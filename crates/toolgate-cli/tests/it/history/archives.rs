//! Sessions leave a store and enter another one: archives, pages, and the sessions of other agents.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::Value;

use crate::history::HistoryPlace;

const CLAUDE: &str = include_str!("../../../../toolgate-archive/fixtures/claude.jsonl");
const CODEX: &str = include_str!("../../../../toolgate-archive/fixtures/codex.jsonl");
const GEMINI: &str = include_str!("../../../../toolgate-archive/fixtures/gemini.jsonl");
const QWEN: &str = include_str!("../../../../toolgate-archive/fixtures/qwen.jsonl");
const CLINE: &str = include_str!("../../../../toolgate-archive/fixtures/cline.json");

/// A secret that the default redactor knows.
const SECRET: &str = "sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-AAAAAAAA";

/// Makes a session with a call, and returns its id.
fn session_with_call(place: &HistoryPlace) -> String {
    place.write("a.txt", "hello");
    let listed = place.json(&["sessions", "list"]);
    listed[0]["session"].as_str().expect("an id").to_owned()
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("is made");
    fs::write(path, text).expect("writes");
}

#[test]
fn a_raw_archive_moves_a_session_and_its_receipts_to_another_store() {
    let place = HistoryPlace::new();
    let session = session_with_call(&place);
    let raw = ["--format", "json", "--raw", "--output", "one.jsonl"];
    let said = place.ends(0, &[&["export", session.as_str()][..], &raw].concat());
    assert!(said.err.contains("not redacted"), "{said:?}");
    let other = HistoryPlace::new();
    let file = place.work().join("one.jsonl");
    let file = file.to_str().expect("text");
    let said = other.ends(0, &["import", file]);
    assert!(said.out.contains("sessions: 1 added"), "{said:?}");
    let listed = other.json(&["sessions", "list"]);
    assert_eq!(listed[0]["session"], session.as_str());
    assert_eq!(listed[0]["imported_from"], "toolgate");
    let shown = other.ends(0, &["sessions", "show", &session]);
    assert!(shown.err.contains("1 receipts came with it"), "{shown:?}");
    other.ends(0, &[&["export", session.as_str()][..], &raw].concat());
    let again = fs::read(other.work().join("one.jsonl")).expect("reads");
    assert!(
        again == fs::read(file).expect("reads"),
        "the archive is the same"
    );
    let repeated = other.json(&["import", file]);
    assert_eq!(repeated[0]["state"], "unchanged");
    assert!(
        other.json(&["receipts", "list"]).is_empty(),
        "none enters our ledger"
    );
}

#[test]
fn hits_of_an_imported_session_say_so() {
    let place = HistoryPlace::new();
    let session = session_with_call(&place);
    let raw = ["--format", "json", "--raw", "--output", "one.jsonl"];
    place.ends(0, &[&["export", session.as_str()][..], &raw].concat());
    let other = HistoryPlace::new();
    let file = place.work().join("one.jsonl");
    other.ends(0, &["import", file.to_str().expect("text")]);
    let search = ["search", "hello", "--mode", "text"];
    let found = other.ends(0, &search).out;
    assert!(found.contains("imported from toolgate"), "{found}");
    let json = other.json(&search);
    assert_eq!(json[0]["hits"][0]["imported_from"], "toolgate", "{json:?}");
    let found = place.ends(0, &search).out;
    assert!(
        found.contains("hello") && !found.contains("imported"),
        "{found}"
    );
    let json = place.json(&search);
    assert!(json[0]["hits"][0]["imported_from"].is_null(), "{json:?}");
}

#[test]
fn a_changed_archive_is_refused_with_the_line_and_a_hint() {
    let place = HistoryPlace::new();
    let session = session_with_call(&place);
    place.ends(
        0,
        &[
            "export",
            &session,
            "--format",
            "json",
            "--raw",
            "-o",
            "one.jsonl",
        ],
    );
    let path = place.work().join("one.jsonl");
    let text = fs::read_to_string(&path)
        .expect("reads")
        .replace("hello", "hullo");
    fs::write(&path, text).expect("writes");
    let other = HistoryPlace::new();
    let said = other.ends(1, &["import", path.to_str().expect("text")]);
    assert!(
        said.err.contains("line ") && said.err.contains("hint:"),
        "{said:?}"
    );
    assert!(other.json(&["sessions", "list"]).is_empty());
}

#[test]
fn an_export_is_redacted_by_default_and_not_importable() {
    let place = HistoryPlace::new();
    place.write("a.txt", SECRET);
    let listed = place.json(&["sessions", "list"]);
    let session = listed[0]["session"].as_str().expect("an id");
    for format in ["markdown", "html", "json"] {
        let said = place.ends(0, &["export", session, "--format", format, "--metadata"]);
        assert!(!said.out.contains(SECRET), "{format}");
        assert!(
            said.out.contains("edacted"),
            "{format} says so: {}",
            said.out
        );
    }
    place.ends(
        0,
        &["export", session, "--format", "json", "-o", "shared.jsonl"],
    );
    let said = place.ends(1, &["import", "shared.jsonl"]);
    assert!(said.err.contains("--raw"), "{said:?}");
}

#[test]
fn an_export_replaces_no_file_and_follows_no_link() {
    let place = HistoryPlace::new();
    let session = session_with_call(&place);
    let target = place.work().join("precious.txt");
    fs::write(&target, "precious").expect("writes");
    symlink(&target, place.work().join("link.md")).expect("links");
    symlink(
        place.work().join("nowhere"),
        place.work().join("dangling.md"),
    )
    .expect("links");
    for name in ["precious.txt", "link.md", "dangling.md"] {
        let said = place.ends(2, &["export", &session, "--output", name]);
        assert!(said.err.contains("--force"), "{said:?}");
    }
    assert_eq!(place.read("precious.txt").as_deref(), Some("precious"));
    assert!(!place.work().join("nowhere").exists());
    let done = place.json(&["export", &session, "--output", "link.md", "--force"]);
    assert_eq!(done[0]["redacted"], true);
    assert_eq!(
        place.read("precious.txt").as_deref(),
        Some("precious"),
        "the link was replaced"
    );
    assert!(
        place
            .read("link.md")
            .expect("is there")
            .contains("write_file")
    );
}

/// Stops a program as soon as the directory has a hidden file.
const STOP_IN_THE_MIDDLE: &str = r#"
"$@" &
while kill -0 $! 2>/dev/null && ! ls -A | grep -q '^[.]'; do :; done
kill -TERM $! 2>/dev/null
wait $!
"#;

#[test]
fn an_export_that_is_stopped_leaves_no_part_of_it_behind() {
    let place = HistoryPlace::new();
    let line = |n: usize| {
        let at = format!("2026-03-01T10:{:02}:{:02}.000Z", n / 60 % 60, n % 60);
        let message = serde_json::json!({ "content": format!("message {n}") });
        serde_json::json!({ "type": "user", "sessionId": "s", "timestamp": at, "message": message })
    };
    let text: String = (0..3_000).map(|n| format!("{}\n", line(n))).collect();
    let file = place.dir.path().join("long.jsonl");
    put(&file, &text);
    let file = file.to_str().expect("text");
    let done = place.json(&["import", "--from", "claude", file]);
    let session = done[0]["session"].as_str().expect("an id");
    let mut shell = Command::new("sh");
    shell.args(["-c", STOP_IN_THE_MIDDLE, "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_toolgate"));
    let export = [
        "export",
        session,
        "--format",
        "html",
        "--output",
        "page.html",
    ];
    let said = place.run_in(shell, &export);
    let files = fs::read_dir(place.work()).expect("lists");
    let files: Vec<_> = files.map(|file| file.expect("lists").file_name()).collect();
    // A fast machine may have been done before it was stopped.
    match said.code {
        0 => assert_eq!(files, ["page.html"], "{said:?}"),
        143 => assert_eq!(files, [""; 0], "{said:?}"),
        other => panic!("it ended with {other}: {said:?}"),
    }
}

#[test]
fn the_sessions_of_other_agents_are_found_and_only_news_are_imported() {
    let place = HistoryPlace::new();
    let home = place.dir.path();
    let claude = home.join(".claude/projects/-home-ann-shop/3f1c.jsonl");
    put(&claude, CLAUDE);
    put(
        &home.join(".codex/sessions/2026/03/02/rollout-1.jsonl"),
        CODEX,
    );
    put(&home.join(".gemini/tmp/9a/chats/session-1.jsonl"), GEMINI);
    put(&home.join(".qwen/projects/shop/chats/qwen-1.jsonl"), QWEN);
    put(&home.join(".cline/data/sessions/7/7.messages.json"), CLINE);
    for from in ["claude", "codex", "gemini", "qwen", "cline"] {
        let done = place.json(&["import", "--from", from]);
        assert_eq!(done.len(), 1, "{from}");
        assert_eq!(done[0]["state"], "added", "{from}: {done:?}");
        assert_eq!(
            place.json(&["import", "--from", from]),
            [] as [Value; 0],
            "{from}"
        );
    }
    let more = CLAUDE
        .lines()
        .nth(2)
        .expect("a line")
        .replace("Why does the test fail?", "And now?");
    put(&claude, &format!("{}\n{more}\n", CLAUDE.trim_end()));
    let done = place.json(&["import", "--from", "claude"]);
    assert_eq!(done[0]["state"], "grown", "{done:?}");
    assert_eq!(done[0]["messages"], 1);
    let listed = place.json(&["sessions", "list"]);
    assert_eq!(listed.len(), 5);
    let ours = place.json(&["sessions", "list", "--label", "imported_from=claude"]);
    assert_eq!(ours[0]["title"], "Fix the failing test");
    let session = ours[0]["session"].as_str().expect("an id");
    for (query, kind) in [
        ("rounded twice", "assistant"),
        ("tool:Bash role:call cargo", "call"),
        ("tool:Bash role:result failed", "result"),
    ] {
        let found = place.json(&["search", query, "--mode", "text"]);
        let hits = found[0]["hits"].as_array().expect("a list");
        let is_there = |hit: &Value| hit["session"] == session && hit["kind"] == kind;
        assert!(hits.iter().any(is_there), "{query}: {found:?}");
    }
    let shown = place.ends(0, &["sessions", "show", session]);
    assert!(
        shown.out.contains("The price is rounded twice."),
        "{shown:?}"
    );
    assert!(
        shown.out.contains("cargo test") && shown.out.contains("1 failed"),
        "{shown:?}"
    );
    assert!(shown.err.contains("cannot be resumed"), "{shown:?}");
}

#[test]
fn a_file_that_has_only_bookkeeping_is_passed_over_and_named_only_if_it_was_asked_for() {
    let place = HistoryPlace::new();
    let home = place.dir.path();
    let file = home.join(".claude/projects/-home-ann-shop/4d2e.jsonl");
    put(&file, "{\"type\":\"summary\",\"summary\":\"Nothing\"}\n");
    for _ in 0..2 {
        let said = place.ends(0, &["import", "--from", "claude"]);
        assert!(said.err.is_empty(), "{said:?}");
        assert!(said.out.contains("0 added"), "{said:?}");
    }
    let path = file.display().to_string();
    let said = place.ends(1, &["import", "--from", "claude", &path]);
    assert!(said.err.contains("no messages of Claude Code"), "{said:?}");
}

#[test]
fn a_file_that_fails_is_named_in_the_json_of_a_search_for_files() {
    let place = HistoryPlace::new();
    let root = place.dir.path().join(".local/share/opencode");
    put(&root.join("opencode.db"), "no database");
    let said = place.run(&["import", "--from", "opencode", "--json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let line: Value = serde_json::from_str(said.out.trim()).expect("one line of JSON");
    assert!(
        line["file"]
            .as_str()
            .expect("a path")
            .ends_with("opencode.db")
    );
    assert!(line["error"].is_string(), "{said:?}");
}

/// Creates the database of opencode with one session.
fn opencode_database(place: &HistoryPlace) -> (std::path::PathBuf, rusqlite::Connection) {
    let path = place.dir.path().join(".local/share/opencode/opencode.db");
    put(&path, "");
    let database = rusqlite::Connection::open(&path).expect("opens");
    let sql = r#"
        CREATE TABLE session (id text PRIMARY KEY, title text, directory text);
        CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, data text);
        CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, data text);
        INSERT INTO session VALUES ('ses_1', 'Tidy up', '/home/ann');
        INSERT INTO message VALUES ('msg_1', 'ses_1', 1772600000000, '{"role":"user"}');
        INSERT INTO message VALUES ('msg_2', 'ses_1', 1772600001000, '{"role":"assistant","modelID":"m"}');
        INSERT INTO part VALUES ('prt_1', 'msg_1', 'ses_1', '{"type":"text","text":"Tidy up."}');
        INSERT INTO part VALUES ('prt_2', 'msg_2', 'ses_1', '{"type":"tool","callID":"c1","tool":"bash","state":{"status":"completed","input":{"command":"ls"},"output":"a"}}');
    "#;
    database.execute_batch(sql).expect("creates");
    (path, database)
}

#[test]
fn the_database_of_opencode_is_read_and_not_changed() {
    let place = HistoryPlace::new();
    let (path, database) = opencode_database(&place);
    drop(database);
    let before = fs::read(&path).expect("reads");
    let done = place.json(&["import", "--from", "opencode"]);
    assert_eq!(done[0]["messages"], 3, "{done:?}");
    assert!(fs::read(&path).expect("reads") == before);
}

#[test]
fn a_row_of_opencode_that_cannot_be_read_is_a_warning() {
    let place = HistoryPlace::new();
    let (_, database) = opencode_database(&place);
    let sql = "INSERT INTO message VALUES ('msg_3', 'ses_1', 'yesterday', '{}');
               INSERT INTO part VALUES ('prt_3', 'msg_2', 'ses_1', x'ff00');
               INSERT INTO part VALUES ('prt_4', x'ff', 'ses_1', '{}')";
    database.execute_batch(sql).expect("inserts");
    drop(database);
    let done = place.json(&["import", "--from", "opencode"]);
    assert_eq!(done[0]["messages"], 3, "{done:?}");
    let warnings = done[0]["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 3, "{done:?}");
}

#[test]
fn a_view_in_the_place_of_a_table_of_opencode_is_not_read() {
    let place = HistoryPlace::new();
    let (_, database) = opencode_database(&place);
    // A query without an end: reading it would never return.
    let sql = "DROP TABLE part;
               CREATE VIEW part AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n)
                   SELECT id, 'msg_1' AS message_id, '{}' AS data FROM n";
    database.execute_batch(sql).expect("creates");
    drop(database);
    let said = place.run(&["import", "--from", "opencode"]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(said.err.contains("cannot be read"), "{said:?}");
}

#[test]
fn an_imported_session_cannot_be_resumed() {
    let place = HistoryPlace::new();
    fs::write(place.work().join("claude.jsonl"), CLAUDE).expect("writes");
    let done = place.json(&["import", "claude.jsonl"]);
    let session = done[0]["session"].as_str().expect("an id");
    let script = "[[reply]]\ntext = 'no'";
    fs::write(place.work().join("s.toml"), script).expect("writes");
    let said = place.run(&[
        "run",
        "go on",
        "--resume",
        session,
        "--model",
        "scripted:s.toml",
    ]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(
        said.err
            .contains("was imported (claude) and cannot be resumed"),
        "{said:?}"
    );
    assert!(said.err.contains("hint:"), "{said:?}");
}

#[test]
fn the_text_of_other_agents_is_redacted_before_it_is_stored() {
    let place = HistoryPlace::new();
    let text = CLAUDE
        .replace("The price", SECRET)
        .replace("cargo test", SECRET);
    fs::write(place.work().join("claude.jsonl"), text).expect("writes");
    place.ends(0, &["import", "claude.jsonl"]);
    let stored = fs::read(place.database()).expect("reads");
    let wal = fs::read(place.database().with_extension("db-wal")).unwrap_or_default();
    for bytes in [stored, wal] {
        assert!(!String::from_utf8_lossy(&bytes).contains(SECRET));
    }
}

#[test]
fn a_file_that_is_no_session_is_named_with_a_hint() {
    let place = HistoryPlace::new();
    fs::write(place.work().join("x.txt"), "hello").expect("writes");
    let said = place.ends(1, &["import", "x.txt"]);
    assert!(
        said.err.contains("x.txt") && said.err.contains("--from"),
        "{said:?}"
    );
    place.ends(1, &["import", "missing.jsonl"]);
    let said = place.ends(2, &["import", "--from", "claude"]);
    assert!(said.err.contains("--path"), "{said:?}");
}

#[test]
fn markdown_is_imported_again_as_history() {
    let place = HistoryPlace::new();
    fs::write(place.work().join("claude.jsonl"), CLAUDE).expect("writes");
    let done = place.json(&["import", "claude.jsonl"]);
    let session = done[0]["session"].as_str().expect("an id");
    place.ends(0, &["export", session, "--output", "page.md"]);
    let done = place.json(&["import", "page.md"]);
    assert_eq!(done[0]["format"], "markdown");
    assert_eq!(done[0]["messages"], 4);
}
