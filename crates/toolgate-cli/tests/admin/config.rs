//! `config`: writing a file to begin with, trusting it, checking it, and seeing what counts.

use serde_json::Value;

use crate::Place;

#[test]
fn a_file_to_begin_with_is_written_once_and_trusted() {
    let place = Place::new();
    let ran = place.run(["config", "init"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(place.run(["config", "check"]).code, 0);
    assert_eq!(place.run(["tools", "list"]).code, 0, "it is trusted");
    let path = place.write("toolgate.toml", "# mine\n");
    insta::assert_snapshot!("init_twice", place.run(["config", "init"]).mistake());
    assert_eq!(std::fs::read_to_string(&path).expect("reads"), "# mine\n");
    assert_eq!(place.run(["config", "init", "--force"]).code, 0);
    assert_ne!(std::fs::read_to_string(&path).expect("reads"), "# mine\n");
}

#[test]
fn a_file_of_the_user_counts_where_the_project_has_none() {
    let place = Place::new();
    assert_eq!(place.run(["config", "init", "--user"]).code, 0);
    let said = &place.run(["config", "path", "--json"]).json()[0];
    assert_eq!(
        (said["owner"].as_str(), &said["config"]),
        (Some("user"), &said["user_config"])
    );
    let place = place.configured("[run]\n");
    assert_eq!(
        place.run(["config", "path", "--json"]).json()[0]["owner"],
        "project"
    );
}

#[test]
fn a_file_counts_once_it_is_trusted_and_no_longer_when_it_is_not() {
    let place = Place::new().configured("[run]\nmax_tokens = 7\n");
    assert_eq!(place.run(["stack", "show"]).code, 0);
    assert_eq!(place.run(["config", "untrust"]).code, 0);
    assert_eq!(place.run(["stack", "show"]).code, 2);
    assert_eq!(
        place.run(["config", "check"]).code,
        0,
        "checking needs no trust"
    );
    let again = &place.run(["config", "untrust", "--json"]).json()[0];
    assert_eq!(again["was_trusted"], false);
}

#[test]
fn nobody_is_taken_to_agree_who_was_not_asked() {
    let place = Place::new();
    place.write("toolgate.toml", "[run]\n");
    let ran = place.run_with(["config", "trust"], "y\n");
    assert!(ran.code == 2 && ran.err.contains("--yes"), "{ran:?}");
    assert_eq!(place.run(["stack", "show"]).code, 2);
}

#[test]
fn a_file_that_is_wrong_is_not_trusted() {
    let place = Place::new();
    place.write("toolgate.toml", "[runs]\n");
    let ran = place.run(["config", "trust", "--yes"]);
    assert!(
        ran.code == 2 && ran.err.contains("the nearest is `run`"),
        "{ran:?}"
    );
}

#[test]
fn what_counts_is_shown_with_where_it_comes_from() {
    let place =
        Place::new().configured("[run]\nmax_tokens = 7\n[layers.telemetry]\nsink = \"noop\"\n");
    let place = place.with("TOOLGATE_LAYERS__TIMEOUT__MAX_MS", "1234");
    let entries = place.run(["config", "show", "--json"]).json();
    let find = |path: &str| {
        entries
            .iter()
            .find(|entry| entry["path"] == path)
            .unwrap_or_else(|| panic!("{path}"))
    };
    assert_eq!(find("run.max_tokens")["from"], "file");
    let timeout = find("layers.timeout.max_ms");
    assert_eq!(
        (&timeout["value"], timeout["from"].as_str()),
        (&Value::from(1234), Some("variable"))
    );
    assert_eq!(find("layers.policy.default")["from"], "default");
    let changed = place.run(["config", "show", "--changed"]);
    insta::assert_snapshot!("show_changed", changed.out);
}

#[test]
fn what_is_shown_is_a_file_that_says_the_same() {
    let place = Place::new()
        .configured("[layers.policy]\nrules = [{ effect = \"deny\", command = [\"git push\"] }]\n");
    let shown = place.run(["config", "show"]).out;
    let copy = place.write("copy.toml", shown);
    let ran = place.run(["config", "check", &copy.display().to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn the_schema_knows_the_sections_of_the_command_line() {
    let ran = Place::new().run(["config", "schema"]);
    let schema: Value = serde_json::from_str(&ran.out).expect("JSON");
    for section in ["run", "tools", "agent", "layers", "budget", "stack"] {
        assert!(schema["properties"][section].is_object(), "{section}");
    }
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let place = Place::new();
    let to = place.root().join("man").display().to_string();
    let ran = place.run(["man", "--to", &to]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for page in ["toolgate.1", "toolgate-config-check.1", "toolgate-doctor.1"] {
        assert!(std::path::Path::new(&to).join(page).is_file(), "{page}");
    }
    assert!(place.run(["man"]).out.contains(".TH toolgate"));
}
