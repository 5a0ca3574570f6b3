//! Signatures of standing rules, with the real program and a real database.

use std::fs;

use serde_json::json;

use crate::history::HistoryPlace;

const WRITE: [&str; 5] = [
    "tools",
    "call",
    "write_file",
    "path=docs/a.txt",
    "content=x",
];

/// Adds a rule that allows the call of [`WRITE`].
fn add_rule(place: &HistoryPlace, id: &str) {
    let rule = ["write_file", "--arg", "path=docs/*", "--any", "content"];
    let add = ["approvals", "rules", "add", "--yes", "--id", id];
    place.ends(0, &[&add[..], &rule].concat());
}

fn change_database(place: &HistoryPlace, statement: &str) {
    let connection = rusqlite::Connection::open(place.database()).expect("a database");
    let changed = connection.execute(statement, []).expect("executed");
    assert!(changed > 0, "{statement}");
}

fn signature_of(place: &HistoryPlace) -> (String, bool) {
    let rule = place.json(&["approvals", "rules", "list"]).remove(0);
    let signature = rule["signature"].as_str().expect("a word").to_owned();
    (signature, rule["effective"].as_bool().expect("a flag"))
}

#[test]
fn a_rule_of_an_earlier_version_counts_after_it_was_shown_and_signed() {
    let place = HistoryPlace::new();
    add_rule(&place, "docs");
    place.ends(0, &WRITE);
    change_database(
        &place,
        "DELETE FROM keyed_records WHERE key LIKE 'other/rule-signature/%'",
    );
    place.ends(3, &WRITE);
    assert_eq!(signature_of(&place), ("unsigned".to_owned(), false));
    let listed = place.ends(0, &["approvals", "rules", "list"]);
    assert!(
        listed.out.contains("unsigned") && listed.err.contains("rules sign"),
        "{listed:?}"
    );
    let asked = place.ends(2, &["approvals", "rules", "sign"]);
    assert!(
        asked.out.contains("path matches docs/*") && asked.err.contains("--yes"),
        "{asked:?}"
    );
    place.ends(3, &WRITE);
    place.ends(2, &["approvals", "rules", "sign", "other", "--yes"]);
    let signed = place.json(&["approvals", "rules", "sign", "--yes"]);
    assert_eq!(
        (&signed[0]["id"], &signed[0]["signature"]),
        (&json!("docs"), &json!("own"))
    );
    assert_eq!(signature_of(&place), ("own".to_owned(), true));
    place.ends(0, &WRITE);
    assert!(
        place
            .json(&["approvals", "rules", "sign", "--yes"])
            .is_empty(),
        "there is none left"
    );
}

#[test]
fn a_rule_that_was_changed_in_the_database_allows_nothing() {
    for (from, to) in [
        ("docs/*", "**"),
        ("\"owner\":\"", "\"owner\":\"not "),
        ("write_file", "write_*"),
        (
            "\"scope\":\"project\"",
            "\"scope\":\"project\",\"project\":\"/\",\"x\":\"\"",
        ),
        ("\"glob\":\"docs/*\"", "\"equals\":\"docs/a.txt\""),
        (
            "\"created_at\"",
            "\"expires_at\":\"2999-01-01T00:00:00Z\",\"created_at\"",
        ),
    ] {
        let place = HistoryPlace::new();
        add_rule(&place, "docs");
        place.ends(0, &WRITE);
        let edit = format!(
            "UPDATE keyed_records SET body = replace(body, '{from}', '{to}'), checksum = NULL WHERE key LIKE 'other/rule/%'"
        );
        change_database(&place, &edit);
        let call = place.run(&WRITE);
        assert_eq!(call.code, 3, "{from} → {to}: {call:?}");
    }
}

#[test]
fn a_rule_that_denies_counts_without_a_signature() {
    let place = HistoryPlace::new();
    let deny = [
        "approvals",
        "rules",
        "add",
        "write_file",
        "--arg",
        "path=docs/*",
        "--deny",
        "--yes",
    ];
    place.ends(0, &deny);
    let denied = place.run(&WRITE);
    change_database(
        &place,
        "DELETE FROM keyed_records WHERE key LIKE 'other/rule-signature/%'",
    );
    assert_eq!(signature_of(&place), ("unsigned".to_owned(), true));
    let unsigned = place.run(&WRITE);
    assert_eq!(
        (denied.code, unsigned.code),
        (5, 5),
        "{denied:?} {unsigned:?}"
    );
    assert!(!place.work().join("docs").exists());
}

#[test]
fn the_key_of_another_user_counts_only_by_the_users_own_configuration() {
    let ours = HistoryPlace::new();
    ours.ends(3, &WRITE);
    let theirs = HistoryPlace::new();
    let database = format!("sqlite:{}", ours.database().display());
    let work = ours.work().display().to_string();
    let elsewhere = ["--db", &database, "-C", &work];
    let add = [
        "approvals",
        "rules",
        "add",
        "--yes",
        "write_file",
        "--arg",
        "path=docs/*",
        "--any",
        "content",
    ];
    theirs.ends(0, &[&elsewhere[..], &add].concat());
    assert_eq!(signature_of(&ours), ("foreign".to_owned(), false));
    ours.ends(3, &WRITE);

    let key = theirs.json(&["approvals", "rules", "key"]).remove(0)["key"].clone();
    let section = format!("[standing_rules]\ntrusted_keys = [{key}]\n");
    let project = ours.work().join("toolgate.toml");
    fs::write(&project, &section).expect("written");
    for command in [
        &["config", "check"][..],
        &["config", "trust", "--yes"],
        &WRITE,
    ] {
        let rejected = ours.run(command);
        assert!(
            rejected.code != 0 && rejected.code != 3,
            "{command:?}: {rejected:?}"
        );
    }
    let outside = ours.dir.path().join("named.toml");
    fs::write(&outside, &section).expect("written");
    let outside = outside.display().to_string();
    let named = ours.run(&[&["--config", &outside][..], &WRITE].concat());
    assert!(
        named.err.contains("only the user's own configuration"),
        "{named:?}"
    );

    fs::write(&project, "[run]\nmax_iterations = 5\n").expect("written");
    ours.ends(0, &["config", "trust", "--yes"]);
    let user = ours.dir.path().join(".config/toolgate/toolgate.toml");
    fs::create_dir_all(user.parent().expect("a parent")).expect("created");
    fs::write(&user, &section).expect("written");
    assert_eq!(
        signature_of(&ours),
        ("trusted".to_owned(), true),
        "beside the project's file"
    );
    ours.ends(0, &WRITE);
    fs::write(&user, "[standing_rules]\ntrusted_keys = [\"ann\"]\n").expect("written");
    let misread = ours.run(&WRITE);
    assert!(misread.err.contains("trusted_keys"), "{misread:?}");
}

#[test]
fn an_exact_value_has_the_type_that_the_schema_names() {
    let place = HistoryPlace::new();
    let add = |id: &str, args: &[&str]| {
        let add = ["approvals", "rules", "add", "--yes", "--id", id];
        place.run(&[&add[..], args].concat())
    };
    for (id, args) in [
        ("a", &["run_shell", "--exact", "command=true"][..]),
        ("b", &["run_shell", "--exact", "command=007"]),
        (
            "c",
            &["read_file", "--exact", "path=5", "--exact", "limit=5"],
        ),
        ("d", &["someones_tool", "--exact", "n=5"]),
        ("e", &["someones_tool", "--exact-json", "n=5"]),
    ] {
        let added = add(id, args);
        assert_eq!(added.code, 0, "{added:?}");
    }
    let rules = place.json(&["approvals", "rules", "list"]);
    let patterns: Vec<_> = rules.iter().map(|rule| rule["arguments"].clone()).collect();
    assert_eq!(
        patterns,
        [
            json!({ "/command": { "equals": "true" } }),
            json!({ "/command": { "equals": "007" } }),
            json!({ "/path": { "equals": "5" }, "/limit": { "equals": 5 } }),
            json!({ "/n": { "equals": "5" } }),
            json!({ "/n": { "equals": 5 } }),
        ]
    );
    for wrong in [["--exact", "limit=many"], ["--exact-json", "path=x"]] {
        let rejected = add("f", &[&["read_file"][..], &wrong].concat());
        assert!(
            rejected.code == 2 && rejected.err.contains("is not JSON"),
            "{rejected:?}"
        );
    }
}

#[test]
fn a_rule_that_cannot_be_read_is_listed_asked_about_and_can_be_revoked() {
    let place = HistoryPlace::new();
    add_rule(&place, "docs");
    place.ends(0, &WRITE);
    add_rule(&place, "odd");
    change_database(
        &place,
        "UPDATE keyed_records SET body = replace(body, 'allow', 'forbid'), checksum = NULL WHERE key LIKE '%rule/odd'",
    );
    let listed = place.ends(0, &["approvals", "rules", "list"]);
    assert!(listed.out.contains("unreadable"), "{listed:?}");
    let rules = place.json(&["approvals", "rules", "list"]);
    assert_eq!(
        (&rules[1]["id"], &rules[1]["unreadable"]),
        (&json!("odd"), &json!(true))
    );
    let signed = place.ends(0, &["approvals", "rules", "sign", "--yes"]);
    assert!(signed.err.contains("odd is unreadable"), "{signed:?}");
    place.ends(2, &["approvals", "rules", "sign", "odd", "--yes"]);
    // It may deny the call, so neither another rule nor `--approve yes` lets it run.
    place.ends(3, &WRITE);
    place.ends(3, &[&WRITE[..], &["--approve", "yes"]].concat());
    let read = [
        "tools",
        "call",
        "read_file",
        "path=docs/a.txt",
        "--approve",
        "yes",
    ];
    place.ends(3, &read);
    place.ends(0, &["approvals", "rules", "revoke", "odd"]);
    place.ends(0, &WRITE);
    place.ends(0, &read);
}
