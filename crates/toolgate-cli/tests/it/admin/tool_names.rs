//! A misspelt tool is rejected in an option and reported in a configuration.

use crate::admin::AdminPlace;

/// A configuration that names tools which do not exist, in every place that can name one.
const MISSPELT: &str = r#"
[run]
tool_choice = { named = "list_dri" }

[layers.policy]
[[layers.policy.rules]]
name = "no-writes"
effect = "deny"
tool = ["write_fle", "edit_file"]
[[layers.policy.rules]]
effect = "allow"
tool = "mcp_*"

[layers.approval]
tools = ["run_shel"]

[[hooks.pre]]
tool = "read_fil"
command = "true"

[[agent]]
name = "helper"
description = "Helps."
tools = ["serch_text"]
"#;

#[test]
fn an_option_for_a_misspelt_tool_is_rejected() {
    let place = AdminPlace::new();
    let call = |option: &str, value: &str| {
        let ran = place.run(["tools", "call", "list_dir", option, value]);
        assert_eq!(ran.code, 2, "{ran:?}");
        ran.err
    };
    let said = call("--deny", "write_fle");
    let expected = "--deny write_fle: there is no tool named \"write_fle\", so this protects nothing; the nearest is write_file";
    assert!(said.contains(expected), "{said}");
    let said = call("--allow", "run_shel(cargo test)");
    let expected = "there is no tool named \"run_shel\"; the nearest is run_shell";
    assert!(said.contains(expected), "{said}");
    call("--allow", "nothing_*");
    for fine in ["write_file", "*_file(src/**)"] {
        let ran = place.run(["tools", "call", "list_dir", "--deny", fine]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[test]
fn config_check_lists_every_tool_that_does_not_exist() {
    let place = AdminPlace::new().configured(MISSPELT);
    let ran = place.run(["config", "check"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for expected in [
        "layers.policy, rule \"no-writes\": there is no tool named \"write_fle\", so this protects nothing; the nearest is write_file",
        "layers.policy, rule 2: there is no tool named \"mcp_*\"",
        "layers.approval.tools: there is no tool named \"run_shel\", so this protects nothing",
        "hooks.pre, entry 1: there is no tool named \"read_fil\", so this protects nothing",
        "run.tool_choice: there is no tool named \"list_dri\"; the nearest is list_dir",
        "agent \"helper\", tools: there is no tool named \"serch_text\"; the nearest is search_text",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    assert!(!ran.err.contains("\"edit_file\""), "{}", ran.err);
    let checked = &place.run(["config", "check", "--json"]).json()[0];
    let listed = checked["unknown_tools"].as_array().expect("a list");
    assert_eq!(listed.len(), 6, "{checked}");
}

#[test]
fn a_call_warns_about_the_misspelt_tools_of_the_configuration() {
    let place = AdminPlace::new().configured(MISSPELT);
    let ran = place.run(["tools", "call", "list_dir"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("warning: layers.policy, rule"), "{ran:?}");
    let quiet = place.run(["tools", "call", "list_dir", "--quiet"]);
    assert!(!quiet.err.contains("warning"), "{quiet:?}");
}
