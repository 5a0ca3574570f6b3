//! `tools`, `explain` and `stack`: listing, explaining and calling tools by hand.

use crate::admin::AdminPlace;

#[test]
fn a_call_by_hand_prints_its_result_and_leaves_a_receipt() {
    let place = AdminPlace::new();
    place.write("a.txt", "hello\n");
    let ran = place.run(["tools", "call", "read_file", "path=a.txt"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.out.contains("hello") && ran.err.contains("session"),
        "{ran:?}"
    );
    let receipts: i64 = rusqlite::Connection::open(place.database())
        .and_then(|database| {
            database.query_row("SELECT count(*) FROM entries", [], |row| row.get(0))
        })
        .expect("counts");
    assert_eq!(receipts, 1);
}

#[test]
fn a_call_that_needs_an_approval_stays_pending() {
    let place = AdminPlace::new();
    let arguments = [
        "tools",
        "call",
        "write_file",
        r#"{"path":"b.txt","content":"x"}"#,
        "--json",
    ];
    let ran = place.run(arguments);
    let said = &ran.json()[0];
    assert_eq!(
        (ran.code, said["status"].as_str()),
        (3, Some("suspended")),
        "{ran:?}"
    );
    assert!(
        said["approval"]
            .as_str()
            .is_some_and(|id| id.starts_with("approval_")),
        "{said}"
    );
    assert!(!place.work().join("b.txt").exists());
    let ran = place.run(arguments[..4].iter().copied());
    assert!(
        ran.code == 3 && ran.err.contains("toolgate approvals approve "),
        "{ran:?}"
    );
}

#[test]
fn a_call_that_is_approved_on_the_command_line_runs() {
    let place = AdminPlace::new();
    let arguments = [
        "tools",
        "call",
        "write_file",
        "path=b.txt",
        "content=@-",
        "--approve",
        "yes",
        "--json",
    ];
    let ran = place.run_with(arguments, "from the input");
    assert_eq!(
        (ran.code, ran.json()[0]["status"].as_str()),
        (0, Some("ok")),
        "{ran:?}"
    );
    assert_eq!(
        std::fs::read_to_string(place.work().join("b.txt")).expect("written"),
        "from the input"
    );
}

#[test]
fn a_blocked_call_exits_with_five_and_a_misspelt_one_with_two() {
    let place = AdminPlace::new();
    let ran = place.run(["tools", "call", "list_dir", "--deny", "list_dir"]);
    assert!(
        ran.code == 5 && ran.err.contains("blocked by policy") && ran.err.contains("hint:"),
        "{ran:?}"
    );
    let ran = place.run(["tools", "call", "list_dirs"]);
    assert!(
        ran.code == 2 && ran.err.contains("list_dir") && ran.out.is_empty(),
        "{ran:?}"
    );
    let ran = place.run(["tools", "call", "read_file", "path=1", "nonsense=1"]);
    assert!(
        ran.code == 2 && ran.err.contains("toolgate tools show"),
        "{ran:?}"
    );
}

#[test]
fn explain_exits_as_the_call_would() {
    let place = AdminPlace::new();
    place.write("a.txt", "hello\n");
    for (arguments, code) in [
        (&["read_file", "path=a.txt"][..], 0),
        (&["write_file", "path=a.txt", "content=x"], 3),
        (
            &["write_file", "path=a.txt", "content=x", "--approve", "yes"],
            0,
        ),
        (
            &[
                "write_file",
                "path=a.txt",
                "content=x",
                "--approve",
                "never",
            ],
            5,
        ),
        (
            &[
                "write_file",
                "path=a.txt",
                "content=x",
                "--approve",
                "auto-edit",
            ],
            0,
        ),
        (
            &["read_file", "path=a.txt", "--deny", "read_file(*.txt)"],
            5,
        ),
        (&["read_file", "path=.env"], 5),
        (&["read_file", "path=/etc/passwd"], 1),
        (&["read_file", "path=missing.txt"], 1),
        (&["read_file"], 2),
        (&["nothing"], 2),
    ] {
        let ran = place.run(["explain"].into_iter().chain(arguments.iter().copied()));
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
    }
}

#[test]
fn explain_says_what_the_tool_itself_would_answer() {
    let place = AdminPlace::new();
    let file = place.write("a.txt", "hello\n");
    for (tool, arguments) in [
        ("read_file", r#"{"path":"/etc/passwd"}"#),
        (
            "edit_file",
            r#"{"path":"a.txt","edits":[{"old":"bye","new":"x"}]}"#,
        ),
        ("run_shell", r#"{"command":"true","cwd":"missing"}"#),
        ("apply_patch", r#"{"patch":"no patch"}"#),
    ] {
        let explained = place.run(["explain", tool, arguments, "--json"]);
        let said = &explained.json()[0];
        assert_eq!(said["verdict"], "fails", "{said}");
        assert_eq!(said["status"], "executor_error", "{said}");
        let real = place.run(["tools", "call", tool, arguments, "--approve", "yes"]);
        assert_eq!(real.code, explained.code, "{real:?}");
        let text = said["text"].as_str().expect("a text");
        let first = text.lines().next().unwrap_or_default();
        assert!(
            format!("{}{}", real.out, real.err).contains(first),
            "{real:?}"
        );
    }
    assert_eq!(std::fs::read(file).expect("readable"), b"hello\n");
}

#[test]
fn explaining_names_the_layer_and_its_reason_and_leaves_no_trace() {
    let place = AdminPlace::new();
    let ran = place.run(["explain", "read_file", "path=.env", "--json"]);
    let said = &ran.json()[0];
    assert_eq!(
        (said["verdict"].as_str(), said["status"].as_str()),
        (Some("settles"), Some("policy_blocked"))
    );
    let layers = said["layers"].as_array().expect("layers");
    let policy = layers
        .iter()
        .find(|layer| layer["layer"] == "policy")
        .expect("it decides");
    assert!(
        policy["verdict"] == "settles"
            && policy["reason"].is_string()
            && policy["took_us"].is_u64(),
        "{policy}"
    );
    let database = rusqlite::Connection::open(place.database()).expect("opens");
    for table in [
        "sessions",
        "events",
        "entries",
        "leases",
        "keyed_records",
        "approvals",
    ] {
        let rows = database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
            row.get::<_, i64>(0)
        });
        assert!(matches!(rows, Ok(0) | Err(_)), "{table}: {rows:?}");
    }
}

#[test]
fn tools_are_listed_and_shown_as_the_model_sees_them() {
    let place = AdminPlace::new().configured("[layers.require_reason]\n");
    let listed = place.run(["tools", "list", "--json"]).json();
    let read = listed
        .iter()
        .find(|tool| tool["name"] == "read_file")
        .expect("it is there");
    assert_eq!(read["effect"], "read_only");
    let shown = place.run(["tools", "show", "read_file"]);
    assert!(
        shown.out.contains("required by the layer require_reason"),
        "{shown:?}"
    );
    let shown = &place.run(["tools", "show", "read_file", "--json"]).json()[0];
    assert!(shown["input"]["properties"]["path"].is_object(), "{shown}");
}

#[test]
fn the_stack_is_shown_with_reasons_and_nothing_is_opened_for_it() {
    let place = AdminPlace::new();
    let on = place.run(["stack", "show", "--json"]).json();
    assert_eq!(on[0]["name"], "receipts");
    assert!(
        on.iter()
            .all(|layer| layer["on"] == true && layer["why"].is_string())
    );
    let all = place.run(["stack", "show", "--all", "--json"]).json();
    assert!(all.len() > on.len() && all.iter().any(|layer| layer["on"] == false));
    assert!(!place.home().exists());
}

#[test]
fn the_linter_is_silent_about_a_good_stack_and_fails_on_a_bad_one() {
    let ran = AdminPlace::new().run(["stack", "lint"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    let slow = AdminPlace::new()
        .configured("[stack]\nturn_deadline = \"1s\"\n[layers.timeout]\nmax = \"5s\"\n");
    let ran = slow.run(["stack", "lint"]);
    assert!(
        ran.code == 1 && ran.out.contains("limit-beyond-turn"),
        "{ran:?}"
    );
    let unfit = AdminPlace::new()
        .configured("[layers.x]\nuse = \"scope\"\nallowed_tools = [\"*\"]\non = [\"no_such_*\"]\n");
    let ran = unfit.run(["stack", "lint", "--json"]);
    assert_eq!(
        (ran.code, ran.json()[0]["rule"].as_str()),
        (1, Some("fits-no-tool")),
        "{ran:?}"
    );
}
