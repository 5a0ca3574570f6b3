//! `doctor`: finds problems, suggests fixes, and changes nothing.

use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;
use serde_json::Value;

use crate::admin::AdminPlace;

fn findings_of(place: &AdminPlace, check: &str) -> (i32, Vec<Value>) {
    let ran = place.run(["doctor", "--json"]);
    (
        ran.code,
        ran.json()
            .into_iter()
            .filter(|finding| finding["check"] == check)
            .collect(),
    )
}

fn broken_finding(place: &AdminPlace, check: &str) -> Value {
    let (code, findings) = findings_of(place, check);
    let found = findings
        .into_iter()
        .find(|finding| finding["state"] == "broken");
    assert_eq!(code, 1);
    found.unwrap_or_else(|| panic!("{check} is not broken"))
}

/// Creates a place whose home and database exist.
fn used_place() -> AdminPlace {
    let place = AdminPlace::new();
    assert_eq!(place.run(["tools", "call", "list_dir"]).code, 0);
    place
}

#[test]
fn a_fresh_place_has_no_problems_and_nothing_is_created() {
    let place = AdminPlace::new();
    let ran = place.run(["doctor"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!place.home().exists());
    let place = used_place();
    let ran = place.run(["doctor", "--deep"]);
    assert!(
        ran.code == 0 && ran.out.contains("every chain is intact"),
        "{ran:?}"
    );
}

#[test]
fn a_locked_database_is_found() {
    let place = used_place();
    let holder = Connection::open(place.database()).expect("opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("alone");
    let found = broken_finding(&place, "database");
    assert!(
        found["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("fuser")),
        "{found}"
    );
}

#[test]
fn a_damaged_database_is_found() {
    let place = used_place();
    let mut bytes = std::fs::read(place.database()).expect("reads");
    bytes[100..4096].fill(0xff);
    std::fs::write(place.database(), bytes).expect("written");
    assert!(broken_finding(&place, "database")["fix"].is_string());
}

#[test]
fn a_changed_receipt_is_found_by_the_deep_check() {
    let place = used_place();
    let database = Connection::open(place.database()).expect("opens");
    database
        .execute_batch("UPDATE entries SET body = replace(body, 'list_dir', 'list_bin')")
        .expect("changed");
    drop(database);
    assert_eq!(findings_of(&place, "database").0, 0);
    let ran = place.run(["doctor", "--deep"]);
    assert!(
        ran.code == 1 && ran.out.contains("broken at entry 1"),
        "{ran:?}"
    );
}

#[test]
fn keys_that_others_can_read_are_found() {
    let place = used_place();
    let keys = place.home().join("keys");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o644)).expect("changed");
    let found = broken_finding(&place, "keys");
    assert_eq!(found["fix"], "chmod 600 DIR/home/keys");
}

#[test]
fn a_home_that_cannot_be_created_is_found() {
    let place = AdminPlace::new();
    let file = place.write("file", "");
    let place = place.with_variable("TOOLGATE_HOME", file.join("home").display().to_string());
    assert!(
        broken_finding(&place, "home")["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("TOOLGATE_HOME"))
    );
}

#[test]
fn an_untrusted_or_invalid_configuration_is_found() {
    let place = AdminPlace::new();
    place.write("toolgate.toml", "[run]\n");
    assert!(
        broken_finding(&place, "configuration")["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("config trust"))
    );
    place.write("toolgate.toml", "[runs]\n");
    let (_, found) = findings_of(&place, "configuration");
    assert!(found.iter().any(|finding| {
        finding["detail"]
            .as_str()
            .is_some_and(|text| text.contains("nearest"))
    }));
}

#[test]
fn keys_of_providers_are_named_and_never_shown() {
    let place = AdminPlace::new();
    let (code, found) = findings_of(&place, "models");
    assert_eq!((code, found[0]["state"].as_str()), (0, Some("unusual")));
    let place = place.with_variable("ANTHROPIC_API_KEY", "sk-ant-hunter2");
    let ran = place.run(["doctor"]);
    assert!(
        ran.out.contains("ANTHROPIC_API_KEY") && !ran.out.contains("hunter2"),
        "{ran:?}"
    );
    let place = AdminPlace::new().configured("[run]\nmodel = \"openai:gpt-5\"\n");
    assert!(
        broken_finding(&place, "models")["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains("OPENAI_API_KEY"))
    );
}

#[test]
fn the_model_of_the_variable_is_checked_before_that_of_the_configuration() {
    let place = AdminPlace::new()
        .configured("[run]\nmodel = \"ollama:llama3\"\n")
        .with_variable("TOOLGATE_MODEL", "anthropic:claude-sonnet-4-5");
    let (_, found) = findings_of(&place, "models");
    let said = found[0].to_string();
    assert!(said.contains("ANTHROPIC_API_KEY"), "{said}");
    let place = place.with_variable("TOOLGATE_MODEL", "ollama:other");
    let (_, found) = findings_of(&place, "models");
    let said = found[0].to_string();
    assert!(said.contains("ollama:other, from TOOLGATE_MODEL"), "{said}");
}
