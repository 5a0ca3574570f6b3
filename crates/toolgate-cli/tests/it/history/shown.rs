//! What an approver sees is the stored request, complete and unchanged, or nothing.

use std::fs;

use serde_json::Value;
use toolgate_testkit::terminal::{Key, Terminal};

use crate::history::HistoryPlace;

/// Makes a call to `shell` that needs an approval, and returns the id of the request.
fn request_command(place: &HistoryPlace, command: &str) -> String {
    let call = format!("command={command}");
    let said = place.ends(3, &["tools", "call", "run_shell", &call, "--json"]);
    let said: Value = serde_json::from_str(said.out.trim()).expect("JSON");
    said["approval"].as_str().expect("an approval").to_owned()
}

/// Returns the lines of a request as an approver sees them, without the margins.
fn shown_command(place: &HistoryPlace, id: &str) -> String {
    let shown = place.json(&["approvals", "show", id]);
    let lines = shown[0]["rendered"].as_array().expect("lines");
    let text = |line: &Value| {
        line.as_str()
            .expect("text")
            .trim_start_matches("  │ ")
            .to_owned()
    };
    lines.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn code_is_never_hidden_as_a_secret() {
    let place = HistoryPlace::new();
    for command in [
        "echo Cookie: a=b; touch pwned",
        "PASSWORD=hunter2hunter2;touch pwned",
        "curl https://u:secret;touch pwned;@host",
        "echo -----BEGIN RSA PRIVATE KEY----- ; touch pwned ; echo -----END RSA PRIVATE KEY-----",
        "API_TOKEN='x' touch pwned",
        "export SECRET_KEY=$(touch pwned)",
    ] {
        let id = request_command(&place, command);
        let shown = shown_command(&place, &id).replace("⟨looks like a secret⟩", "");
        assert!(
            shown.contains(&format!("command: {command}")),
            "{command}: {shown}"
        );
        let printed = place.ends(0, &["approvals", "show", &id]).out;
        assert!(printed.contains("pwned"), "{printed}");
        place.ends(0, &["approvals", "deny", &id]);
    }
    let events = fs::read(place.database()).expect("the database");
    let events = String::from_utf8_lossy(&events);
    assert!(events.contains("[redacted:cookie]"), "events stay redacted");
}

#[test]
fn nothing_is_cut_and_every_character_is_visible() {
    let place = HistoryPlace::new();
    let long = |count: usize| {
        (0..count)
            .map(|n| format!("echo {n}"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    for (command, last) in [
        (
            format!("{}\ntouch pwned", long(41)),
            "touch pwned⟨no line end⟩",
        ),
        (
            format!("true {}; touch pwned", "x".repeat(66_000)),
            "; touch pwned",
        ),
        (
            format!("true{}; touch pwned", " ".repeat(500)),
            "⟨U+0020 ×500⟩; touch pwned",
        ),
        (
            "ls # \u{202e}x\rtouch pwned".to_owned(),
            "# ⟨U+202E⟩x⟨U+000D⟩touch pwned",
        ),
        (
            "ls\u{2028}touch\u{3164}pwned\u{e0041}".to_owned(),
            "ls⟨U+2028⟩touch⟨U+3164⟩pwned⟨U+E0041⟩",
        ),
    ] {
        let id = request_command(&place, &command);
        let shown = shown_command(&place, &id);
        assert!(
            shown.ends_with(last),
            "{}",
            &shown[shown.len().saturating_sub(300)..]
        );
        let printed = place.ends(0, &["approvals", "show", &id]).out;
        let printed: String = printed
            .lines()
            .map(|row| row.trim_start_matches("  ┆ "))
            .collect();
        assert!(
            printed.contains(last),
            "{}",
            &printed[printed.len().saturating_sub(300)..]
        );
        place.ends(0, &["approvals", "deny", &id]);
    }
}

#[test]
fn a_request_that_was_changed_in_the_store_is_neither_shown_nor_signed() {
    let changes = [
        "UPDATE approvals SET request = json_set(request, '$.arguments.path', 'b.txt')",
        "UPDATE approvals SET request = json_set(request, '$.tool', 'read_file')",
        "UPDATE approvals SET request = json_set(request, '$.risk', 'none')",
        "UPDATE keyed_records SET body = replace(body, 'a.txt', 'b.txt'), checksum = NULL WHERE body LIKE '%arguments_digest%'",
        "UPDATE keyed_records SET body = replace(body, 'write_file', 'read_file'), checksum = NULL WHERE body LIKE '%arguments_digest%'",
        "UPDATE keyed_records SET body = replace(body, '+new', '+old'), checksum = NULL WHERE body LIKE '%arguments_digest%'",
        "UPDATE keyed_records SET body = replace(body, '\"seal\":', '\"lost\":'), checksum = NULL WHERE body LIKE '%arguments_digest%'",
    ];
    for change in changes {
        let place = HistoryPlace::new();
        let id = place.request_approval("a.txt");
        let database = rusqlite::Connection::open(place.database()).expect("opens");
        let changed = database.execute(change, []).expect("changes");
        assert!(changed > 0, "{change}");
        let shown = place.ends(1, &["approvals", "show", &id]);
        assert!(
            shown.out.is_empty() && shown.err.contains("changed"),
            "{change}: {shown:?}"
        );
        let listed = place.ends(0, &["approvals", "list"]).out;
        assert!(
            listed.contains("not shown") && !listed.contains("b.txt") && !listed.contains("_file"),
            "{listed}"
        );
        let listed = place.json(&["approvals", "list"]);
        assert!(listed[0]["request"].is_null() && listed[0]["error"].is_string());
        for decision in [
            &["approve", &id][..],
            &["approve", &id, "--unseen"],
            &["approve", "--all", "--yes"],
        ] {
            let decided = place.ends(1, &[&["approvals"], decision].concat());
            assert!(
                decided.err.contains("changed") && !decided.out.contains("approved"),
                "{change}: {decided:?}"
            );
        }
        let answers: i64 = database
            .query_row(
                "SELECT count(*) FROM keyed_records WHERE substr(key, 17, 1) = x'06'",
                [],
                |row| row.get(0),
            )
            .expect("counts");
        assert_eq!(answers, 0, "{change}: nothing is signed");
    }
}

#[test]
fn approving_prints_what_is_approved_first() {
    let place = HistoryPlace::new();
    let one = request_command(&place, "echo one; touch pwned");
    let approved = place.ends(0, &["approvals", "approve", &one]).out;
    let printed = approved
        .find("command: echo one; touch pwned")
        .expect("it is printed");
    assert!(
        printed
            < approved
                .find("approved run_shell")
                .expect("then it is approved")
    );
    let commands = [
        "echo two",
        "echo Cookie: a=b; touch pwned",
        "true; touch pwned\u{200b}",
        "PASSWORD=hunter2hunter2;touch pwned",
        "printf three | sh",
    ];
    for command in commands {
        request_command(&place, command);
    }
    let asked = place.ends(2, &["approvals", "approve", "--all"]);
    let printed = asked.out.replace("⟨looks like a secret⟩", "");
    for command in commands {
        let command = command.replace('\u{200b}', "⟨U+200B⟩");
        assert!(
            printed.contains(&format!("command: {command}")),
            "{asked:?}"
        );
    }
    let all = place.json(&["approvals", "approve", "--all", "--yes"]);
    let rendered: Vec<&Value> = all
        .iter()
        .filter(|line| line["rendered"].is_array())
        .collect();
    assert_eq!((rendered.len(), all.len()), (5, 10), "{all:?}");
    let edited = request_command(&place, "echo four");
    let arguments = r#"{"command":"echo f\u200bive"}"#;
    let edited = place
        .ends(0, &["approvals", "approve", &edited, "--edit", arguments])
        .out;
    assert!(edited.contains("command: echo f⟨U+200B⟩ive"), "{edited}");
}

#[test]
fn an_approval_without_the_request_on_the_screen_is_recorded_as_such() {
    let place = HistoryPlace::new();
    let unseen = place.request_approval("a.txt");
    let approved = place
        .ends(0, &["approvals", "approve", &unseen, "--unseen"])
        .out;
    assert!(!approved.contains("content"), "{approved}");
    let seen = place.request_approval("b.txt");
    place.ends(0, &["approvals", "approve", &seen]);
    for session in place.json(&["sessions", "list"]) {
        let session = session["session"].as_str().expect("an id");
        place.run(&["run", "--resume", session, "--model", "script:none.toml"]);
    }
    let unseen = count_answers(&place, "%\"unseen\":true%");
    assert_eq!((unseen, count_answers(&place, "%")), (1, 2));
}

/// Returns the number of stored answers that are like this.
fn count_answers(place: &HistoryPlace, like: &str) -> i64 {
    let database = rusqlite::Connection::open(place.database()).expect("opens");
    let query = format!(
        "SELECT count(*) FROM keyed_records WHERE substr(key, 17, 1) = x'06' AND body LIKE '{like}'"
    );
    database
        .query_row(&query, [], |row| row.get(0))
        .expect("counts")
}

/// Approves a request at a terminal, with these answers, and returns the exit code and the output.
fn approve_at_terminal(place: &HistoryPlace, id: &str, answers: &[(&str, &str)]) -> (i32, String) {
    let mut terminal = Terminal::builder(env!("CARGO_BIN_EXE_toolgate"))
        .args(["approvals", "approve", id])
        .env("TOOLGATE_HOME", place.dir.path().join("home"))
        .env("HOME", place.dir.path())
        .dir(place.work())
        .spawn();
    for (question, answer) in answers {
        terminal.wait_for(question);
        terminal.send(answer);
        terminal.press_key(Key::Enter);
    }
    (terminal.wait_exit(), terminal.transcript())
}

#[test]
fn at_a_terminal_a_long_request_is_approved_page_by_page_or_as_not_read() {
    let place = HistoryPlace::new();
    let command: String = (0..1_100).map(|n| format!("echo {n}\n")).collect();
    let id = request_command(&place, &command);
    let more = "more rows are not shown yet";
    let (code, said) = approve_at_terminal(&place, &id, &[(more, "y")]);
    assert_eq!(code, 5, "y is no answer to a page: {said}");
    assert!(!said.contains("echo 1099"), "the second page is not shown");
    let (code, said) = approve_at_terminal(&place, &id, &[(more, "u"), ("Approve it?", "n")]);
    assert_eq!((code, count_answers(&place, "%")), (5, 0), "{said}");
    let (code, said) = approve_at_terminal(&place, &id, &[(more, "v"), ("Approve it?", "y")]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("│ echo 0\n") && said.contains("│ echo 1099"));
    assert_eq!(
        count_answers(&place, "%\"unseen\":true%"),
        0,
        "all was shown"
    );
    let id = request_command(&place, &command);
    let (code, said) = approve_at_terminal(&place, &id, &[(more, "u"), ("Approve it?", "y")]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(count_answers(&place, "%\"unseen\":true%"), 1, "is recorded");
}

#[test]
fn an_edited_call_is_shown_with_its_change_wherever_it_is_approved() {
    let place = HistoryPlace::new();
    place.write("a.txt", "old");
    let id = place.request_approval("a.txt");
    let elsewhere = tempfile::tempdir().expect("a directory");
    fs::write(elsewhere.path().join("a.txt"), "not this file").expect("writes");
    let other = elsewhere.path().display().to_string();
    let edit = r#"{"path":"a.txt","content":"edited"}"#;
    let approve = ["-C", &other, "approvals", "approve", &id, "--edit", edit];
    let said = place.ends(0, &approve).out;
    let workspace = fs::canonicalize(place.work()).expect("a directory");
    let workspace = format!("workspace: {}\n", workspace.display());
    let rows: String = said
        .lines()
        .map(|row| row.trim_start_matches("  ┆ "))
        .collect();
    assert!(rows.contains(workspace.trim_end()), "{said}");
    assert!(
        said.contains("│ -old") && said.contains("│ +edited"),
        "{said}"
    );
}

#[test]
fn a_suspended_run_names_its_pending_calls_by_the_stored_request() {
    let place = HistoryPlace::new();
    let command = "echo Cookie: a=b; touch pwned";
    let script = format!(
        "[[reply]]\ncalls = [{{ tool = \"run_shell\", arguments = {{ command = \"{command}\" }} }}]\n"
    );
    fs::write(place.work().join("model.toml"), script).expect("writes");
    let said = place.ends(3, &["run", "look", "--model", "script:model.toml"]);
    let printed = format!("{}{}", said.out, said.err);
    let about: Vec<&str> = { printed.lines() }
        .filter(|line| line.contains("run_shell"))
        .collect();
    assert_eq!(about.len(), 2, "when it came up, and at the end: {printed}");
    for line in about {
        let line = line.replace("⟨looks like a secret⟩", "");
        assert!(line.contains(command), "{printed}");
    }
    assert!(!printed.contains("[redacted"), "{printed}");
}

#[test]
fn errors_about_files_of_others_control_nothing() {
    let place = HistoryPlace::new();
    for (text, name) in [
        ("\"\u{1b}[31mred\u{1b}[0m\" = 1\n", "toolgate.toml"),
        ("[layers.\"x\u{9b}2Jy\"]\na = 1\n", "toolgate.toml"),
        ("approve = \"\\u001b]0;title\\u0007\"\n", "toolgate.toml"),
        ("\u{202e}approve = 1\n", "toolgate.toml"),
        ("a = \"\u{7f}\u{0}\"\n", "toolgate.toml"),
        ("broken = [", "tool\u{1b}[2Jgate.toml"),
    ] {
        fs::write(place.work().join(name), text).expect("written");
        for options in [&[][..], &["--json"]] {
            let said = place.run(&[options, &["config", "check", "--config", name]].concat());
            assert_ne!(said.code, 0, "{text:?}: {said:?}");
            let printed = format!("{}{}", said.out, said.err);
            let hidden = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!printed.contains(hidden), "{text:?}: {printed:?}");
        }
    }
}

#[test]
fn a_changed_list_cannot_make_an_approval_skip_what_it_approves() {
    let place = HistoryPlace::new();
    let id = request_command(&place, "touch pwned");
    let database = rusqlite::Connection::open(place.database()).expect("opens");
    for state in ["answered", "ok", "consent_denied"] {
        let change = "UPDATE approvals SET state = ?1";
        database.execute(change, [state]).expect("changes");
        let decided = place.run(&["approvals", "approve", &id]);
        assert!(
            decided.out.contains("command: touch pwned") || decided.code != 0,
            "{state}: {decided:?}"
        );
        assert!(
            decided.out.contains("command: touch pwned") || !decided.out.contains("approved"),
            "{state}: {decided:?}"
        );
    }
}

#[test]
fn the_row_of_one_call_cannot_stand_for_another() {
    let pwned = "LIKE '%pwned%'";
    let harmless = "LIKE '%harmless%'";
    let is_request = "body LIKE '%arguments_digest%'";
    let row = format!("(SELECT request FROM approvals WHERE request {pwned})");
    let record = format!("(SELECT body FROM keyed_records WHERE {is_request} AND body {pwned} LIMIT 1)");
    let swap_row = format!("UPDATE approvals SET request = {row} WHERE request {harmless};");
    let swap_record = format!(
        "UPDATE keyed_records SET body = {record}, checksum = NULL WHERE {is_request} AND body {harmless};"
    );
    let part = |path: &str| {
        format!(
            "UPDATE approvals SET request = json_set(request, '{path}', json_extract({row}, '{path}'))
             WHERE request {harmless};"
        )
    };
    for change in [
        swap_row.clone(),
        swap_record.clone(),
        format!("{swap_row} {swap_record}"),
        part("$.arguments"),
        format!("{}{}", part("$.arguments"), part("$.arguments_digest")),
        part("$.approval_id"),
    ] {
        let place = HistoryPlace::new();
        let first = request_command(&place, "echo harmless");
        request_command(&place, "touch pwned");
        let database = rusqlite::Connection::open(place.database()).expect("opens");
        database.execute_batch(&change).expect("changes");
        assert!(database.total_changes() > 0, "{change}");
        let decided = place.run(&["approvals", "approve", &first]);
        assert!(
            decided.code != 0 && !decided.out.contains("approved"),
            "{change}: {decided:?}"
        );
        assert_eq!(count_answers(&place, "%"), 0, "{change}: nothing is signed");
    }
}
