//! `config`: trusts a file, checks it, and shows the options in effect.

use serde_json::Value;

use crate::admin::AdminPlace;

#[test]
fn a_file_applies_only_while_it_is_trusted() {
    let place = AdminPlace::new().configured("[run]\nmax_tokens = 7\n");
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
fn a_named_file_in_the_workspace_needs_trust_with_all_that_it_names() {
    let place = AdminPlace::new();
    std::fs::create_dir_all(place.work().join("skills/a")).expect("created");
    let skill = "---\nname: a\ndescription: Does it.\n---\nDo it.\n";
    place.write("skills/a/SKILL.md", skill);
    place.write("other.toml", "[run]\nskills = [\"skills\"]\n");
    let show = ["stack", "show", "--config", "other.toml"];
    let ran = place.run(show);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err.contains("toolgate config trust other.toml"),
        "{ran:?}"
    );
    assert_eq!(
        place.run(["config", "trust", "other.toml", "--yes"]).code,
        0
    );
    assert_eq!(place.run(show).code, 0);
    place.write("skills/a/SKILL.md", skill.replace("Do it", "Do more"));
    let ran = place.run(show);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.err.contains("has changed since it was trusted"),
        "{ran:?}"
    );
}

#[test]
fn trust_without_a_terminal_needs_the_yes_option() {
    let place = AdminPlace::new();
    place.write("toolgate.toml", "[run]\n");
    let ran = place.run_with(["config", "trust"], "y\n");
    assert!(ran.code == 2 && ran.err.contains("--yes"), "{ran:?}");
    assert_eq!(place.run(["stack", "show"]).code, 2);
}

#[test]
fn an_invalid_file_is_not_trusted() {
    let place = AdminPlace::new();
    place.write("toolgate.toml", "[runs]\n");
    let ran = place.run(["config", "trust", "--yes"]);
    assert!(
        ran.code == 2 && ran.err.contains("the nearest is `run`"),
        "{ran:?}"
    );
}

#[test]
fn options_in_effect_are_shown_with_their_sources() {
    let place = AdminPlace::new()
        .configured("[run]\nmax_tokens = 7\n[layers.telemetry]\nsink = \"noop\"\n");
    let place = place.with_variable("TOOLGATE_LAYERS__TIMEOUT__MAX", "1234ms");
    let entries = place.run(["config", "show", "--json"]).json();
    let find = |path: &str| {
        entries
            .iter()
            .find(|entry| entry["path"] == path)
            .unwrap_or_else(|| panic!("{path}"))
    };
    assert_eq!(find("run.max_tokens")["from"], "file");
    let timeout = find("layers.timeout.max");
    assert_eq!(
        (&timeout["value"], timeout["from"].as_str()),
        (&Value::from("1234ms"), Some("variable"))
    );
    assert_eq!(find("layers.policy.default")["from"], "default");
    let changed = place.run(["config", "show", "--changed"]);
    insta::assert_snapshot!("show_changed", changed.out);
}

#[test]
fn the_shown_options_are_a_valid_file() {
    let place = AdminPlace::new()
        .configured("[layers.policy]\nrules = [{ effect = \"deny\", command = [\"git push\"] }]\n");
    let shown = place.run(["config", "show"]).out;
    let copy = place.write("copy.toml", shown);
    let ran = place.run(["config", "check", &copy.display().to_string()]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn the_schema_knows_the_sections_of_the_command_line() {
    let ran = AdminPlace::new().run(["config", "schema"]);
    let schema: Value = serde_json::from_str(&ran.out).expect("JSON");
    for section in ["run", "tools", "agent", "layers", "budget", "stack"] {
        assert!(schema["properties"][section].is_object(), "{section}");
    }
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let place = AdminPlace::new();
    let to = place.root().join("man").display().to_string();
    let ran = place.run(["man", "--to", &to]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for page in ["toolgate.1", "toolgate-config-check.1", "toolgate-doctor.1"] {
        assert!(std::path::Path::new(&to).join(page).is_file(), "{page}");
    }
    assert!(place.run(["man"]).out.contains(".TH toolgate"));
}
