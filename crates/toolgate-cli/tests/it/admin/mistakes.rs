//! Errors that newcomers meet: each is one sentence, with a hint that fixes it.

use rusqlite::Connection;

use crate::admin::AdminPlace;

#[test]
fn a_model_that_cannot_be_opened() {
    let place = AdminPlace::new();
    let run = |model: &str| place.run(["run", "hello", "--model", model]).mistake();
    insta::assert_snapshot!("no_model", place.run(["run", "hello"]).mistake());
    insta::assert_snapshot!("no_key", run("anthropic:claude-sonnet-4-5"));
    insta::assert_snapshot!("unknown_provider", run("antropic:claude-sonnet-4-5"));
    insta::assert_snapshot!("no_provider", run("claude"));
    insta::assert_snapshot!("model_without_provider", run("claude-sonnet-4-5"));
    insta::assert_snapshot!("local_model_without_provider", run("llama3"));
    insta::assert_snapshot!("missing_script", run("script:nope.toml"));
}

#[test]
fn a_misspelt_option_or_command() {
    let place = AdminPlace::new();
    insta::assert_snapshot!(
        "misspelt_option",
        place.run(["stack", "show", "--al"]).mistake()
    );
    insta::assert_snapshot!("misspelt_command", place.run(["confg", "check"]).mistake());
}

#[test]
fn the_provider_of_a_scenario_is_named_as_it_is_given() {
    let place = AdminPlace::new();
    let said = place.run(["run", "--model", "scripted:demo.toml", "look"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(
        said.err
            .contains("hint: a scenario in a file is named script:FILE"),
        "{said:?}"
    );
}

#[test]
fn a_configuration_with_an_unknown_key() {
    let place = AdminPlace::new().configured("");
    place.write("toolgate.toml", "[run]\nmodle = \"ollama:m\"\n");
    insta::assert_snapshot!("unknown_key", place.run(["config", "check"]).mistake());
}

#[test]
fn a_configuration_with_a_wrong_type() {
    let place = AdminPlace::new();
    place.write("toolgate.toml", "[layers.timeout]\nmax = \"soon\"\n");
    insta::assert_snapshot!("wrong_type", place.run(["config", "check"]).mistake());
}

#[test]
fn a_configuration_that_is_not_text() {
    let place = AdminPlace::new();
    place.write("toolgate.toml", b"[run]\n# caf\xe9\n");
    insta::assert_snapshot!("not_utf8", place.run(["config", "check"]).mistake());
}

#[test]
fn a_configuration_that_is_far_too_large() {
    let place = AdminPlace::new();
    place.write("toolgate.toml", "#".repeat(2 << 20));
    insta::assert_snapshot!("too_large", place.run(["stack", "show"]).mistake());
}

#[test]
fn a_configuration_that_is_not_trusted() {
    let place = AdminPlace::new();
    place.write("toolgate.toml", "[layers.policy]\ndefault = \"allow\"\n");
    insta::assert_snapshot!("untrusted", place.run(["tools", "list"]).mistake());
}

#[test]
fn a_configuration_that_has_changed_since() {
    let place = AdminPlace::new().configured("[run]\n");
    place.write("toolgate.toml", "[layers.policy]\ndefault = \"allow\"\n");
    insta::assert_snapshot!("changed_since", place.run(["tools", "list"]).mistake());
}

#[test]
fn a_variable_that_overrides_nothing() {
    let place = AdminPlace::new().with_variable("TOOLGATE_LAYERS__TIMEOUT__MAXX", "5s");
    insta::assert_snapshot!("misspelt_variable", place.run(["stack", "show"]).mistake());
}

#[test]
fn a_missing_file() {
    let place = AdminPlace::new();
    insta::assert_snapshot!(
        "missing_config",
        place
            .run(["stack", "show", "--config", "nope.toml"])
            .mistake()
    );
    insta::assert_snapshot!(
        "missing_arguments",
        place
            .run(["tools", "call", "read_file", "@nope.json"])
            .mistake()
    );
}

#[test]
fn a_workspace_that_is_not_a_directory() {
    let place = AdminPlace::new();
    place.write("file", "");
    insta::assert_snapshot!(
        "not_a_directory",
        place.run(["-C", "file", "stack", "show"]).mistake()
    );
    insta::assert_snapshot!(
        "no_such_directory",
        place.run(["-C", "nope", "stack", "show"]).mistake()
    );
}

#[test]
fn a_home_that_cannot_be_created() {
    let place = AdminPlace::new();
    let file = place.write_outside("file", "");
    let place = place.with_variable("TOOLGATE_HOME", file.join("home").display().to_string());
    insta::assert_snapshot!(
        "no_home",
        place.run(["tools", "call", "list_dir"]).mistake()
    );
}

#[test]
fn an_unknown_tool() {
    let place = AdminPlace::new();
    insta::assert_snapshot!(
        "unknown_tool",
        place.run(["tools", "show", "read_fil"]).mistake()
    );
}

#[test]
fn malformed_arguments() {
    let place = AdminPlace::new();
    insta::assert_snapshot!(
        "bad_arguments",
        place
            .run(["tools", "call", "read_file", "README.md"])
            .mistake()
    );
}

/// Creates a place whose database exists.
fn used_place() -> AdminPlace {
    let place = AdminPlace::new();
    let ran = place.run(["tools", "call", "list_dir"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    place
}

#[test]
fn a_database_that_another_process_has_locked() {
    let place = used_place().with_variable("TOOLGATE_DB_PATIENCE", "500ms");
    let holder = Connection::open(place.database()).expect("opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("alone");
    insta::assert_snapshot!("locked", place.run(["tools", "call", "list_dir"]).mistake());
    holder.execute_batch("ROLLBACK").expect("ends");
    assert_eq!(place.run(["tools", "call", "list_dir"]).code, 0);
}

#[test]
fn a_database_of_a_newer_version() {
    let place = used_place();
    let future = "INSERT INTO toolgate_schema (version, name, checksum, applied_at) VALUES (999, 'x', '', 0)";
    Connection::open(place.database())
        .and_then(|database| database.execute_batch(future))
        .expect("written");
    insta::assert_snapshot!(
        "newer",
        without_newest_version(&place.run(["tools", "call", "list_dir"]).mistake())
    );
}

/// Replaces the newest schema version, which grows, with `N`.
fn without_newest_version(text: &str) -> String {
    let (before, after) = text
        .split_once("versions up to ")
        .expect("it names the version");
    format!(
        "{before}versions up to N{}",
        after.trim_start_matches(|c: char| c.is_ascii_digit())
    )
}

#[test]
fn a_database_that_is_damaged() {
    let place = used_place();
    let mut bytes = std::fs::read(place.database()).expect("reads");
    bytes[100..4096].fill(0xff);
    std::fs::write(place.database(), bytes).expect("written");
    insta::assert_snapshot!(
        "damaged",
        place.run(["tools", "call", "list_dir"]).mistake()
    );
}

#[test]
fn a_database_that_is_something_else() {
    let place = AdminPlace::new();
    let file = place.write_outside(
        "notes.txt",
        "these are notes, and they are long enough to be looked at as a database".repeat(9),
    );
    let address = file.display().to_string();
    insta::assert_snapshot!(
        "not_a_database",
        place
            .run(["tools", "call", "list_dir", "--db", &address])
            .mistake()
    );
    insta::assert_snapshot!(
        "unknown_address",
        place
            .run([
                "tools",
                "call",
                "list_dir",
                "--db",
                "mysql://me:hunter2@h/d"
            ])
            .mistake()
    );
}

#[test]
fn an_error_is_json_where_json_was_asked_for() {
    let ran = AdminPlace::new().run(["stack", "show", "--config", "nope.toml", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&ran.err).expect("JSON");
    assert_eq!((ran.code, &said["exit"]), (2, &2.into()));
    assert!(
        said["error"].is_string() && said["hint"].is_string(),
        "{said}"
    );
}
