//! What a run says at its end, and what lists say about it: once, and only what is true.

use crate::run::world::{RunWorld, has_escape_codes, path_text, to_text};

const WRITES: &str = r#"
[[reply]]
calls = [{ tool = "write_file", arguments = { path = "new.txt", content = "made" } }]
[[reply]]
text = "It is made."
"#;

#[test]
fn a_request_that_a_mode_decides_is_not_called_pending() {
    for mode in ["yes", "never"] {
        let world = RunWorld::new(WRITES);
        let ran = world.run_plain(&["write it", "--approve", mode]);
        let said = to_text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{said}");
        assert!(said.contains("write_file new.txt"), "{said}");
        assert!(!said.contains("pending"), "{mode}: {said}");
    }
}

#[test]
fn the_line_about_receipts_counts_this_run() {
    let world = RunWorld::new(WRITES);
    for whole in 1..=2 {
        let ran = world.run_plain(&["write it", "--approve", "yes"]);
        let said = to_text(&ran.stderr);
        let expected = format!("receipts 1 of this run, verified and signed; {whole} in the chain");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn the_summary_is_wrapped_between_words_at_the_width_of_the_terminal() {
    let world = RunWorld::new(WRITES);
    let mut terminal = world
        .terminal(&["write it", "--approve", "yes"])
        .size(60, 30)
        .spawn();
    assert_eq!(terminal.wait_exit(), 0);
    let screen = terminal.screen();
    let rows = screen.rows();
    let at = |text: &str| rows.iter().position(|row| row.trim_end() == text);
    let receipts = at("receipts 1 of this run, verified and signed; 1 in the chain");
    assert!(receipts.is_some(), "{screen}");
    // The command is in one piece, and what it does below it.
    let command = rows.iter().position(|row| row.contains("run --resume"));
    let below = &rows[command.expect("is suggested") + 1];
    assert_eq!(below.trim(), "continue the conversation", "{screen}");
    assert!(
        rows.iter().any(|row| row.trim() == "messages and calls"),
        "{screen}"
    );
}

#[test]
fn a_dumb_terminal_gets_no_escape_codes() {
    let world = RunWorld::new(WRITES);
    let mut terminal = world
        .terminal(&["write it", "--approve", "yes"])
        .env("TERM", "dumb")
        .spawn();
    assert_eq!(terminal.wait_exit(), 0);
    let printed = to_text(&terminal.log());
    assert!(printed.contains("It is made."), "{printed}");
    assert!(!has_escape_codes(&printed), "{printed:?}");
}

#[test]
fn a_list_in_a_pipe_is_whole_and_names_the_directory_and_the_zone() {
    let world = RunWorld::new(WRITES);
    let task =
        "write a file, and then tell me in many words that go beyond any column what is in it";
    world.run_plain(&[task]);
    let listed = world.run_text(&["sessions", "list"]);
    assert!(listed.contains(task), "{listed}");
    let directory = world.work().canonicalize().expect("is there");
    assert!(listed.contains(&path_text(&directory)), "{listed}");
    assert!(
        listed.contains("last used (") && listed.contains("directory"),
        "{listed}"
    );
    let row = &world.run_json(&["sessions", "list"])[0];
    assert_eq!(row["directory"], path_text(&directory).as_str());
    let mut elsewhere = RunWorld::new("");
    elsewhere.set_variable("TZ", "Asia/Tokyo");
    elsewhere.run_other(&["tools", "call", "list_dir"]);
    let listed = elsewhere.run_text(&["sessions", "list"]);
    assert!(listed.contains("last used (JST)"), "{listed}");
}

#[test]
fn a_request_says_how_long_it_can_be_decided() {
    let world = RunWorld::new(WRITES);
    world.write(
        "toolgate.toml",
        "[layers.approval]\nexpires_after = \"8h\"\n",
    );
    world.run_other(&["config", "trust", "--yes"]);
    world.run_plain(&["write it"]);
    let rows = world.run_json(&["approvals", "list"]);
    let id = rows[0]["approval_id"].as_str().expect("an id").to_owned();
    let shown = world.run_text(&["approvals", "show", &id]);
    assert!(shown.contains("expires: in 8 h ("), "{shown}");
}

#[test]
fn an_agent_is_listed_among_the_tools_and_shows_its_own_time() {
    let world = RunWorld::new(
        "[[reply]]\ncalls = [{ tool = 'helper', arguments = { task = 'look' } }]\n[[reply]]\ntext = 'Done.'",
    );
    let script = world.path_beside("helper.toml");
    let replies = "delay = '60ms'\n[[reply]]\ntext = 'Found.'";
    std::fs::write(&script, replies).expect("written");
    let config = format!(
        "[[agent]]\nname = 'helper'\ndescription = 'Helps with files.'\nmodel = 'script:{}'\n",
        script.display()
    );
    world.write("toolgate.toml", &config);
    world.run_other(&["config", "trust", "--yes"]);
    let listed = world.run_text(&["tools", "list"]);
    let row = listed.lines().find(|line| line.starts_with("helper"));
    let row = row.expect("is listed");
    assert!(
        row.contains("agent") && row.contains("Helps with files."),
        "{row}"
    );
    let ran = world.run_plain(&["delegate"]);
    let said = to_text(&ran.stderr);
    let line = said.lines().find(|line| line.starts_with("✓ helper look"));
    let took = line.and_then(|line| line.rsplit("  ").next()?.strip_suffix(" ms"));
    // It waits that long before it replies, so it cannot take less.
    let took: Option<u64> = took.and_then(|took| took.parse().ok());
    assert!(
        took.is_none_or(|took| took >= 60) && line.is_some(),
        "{said}"
    );
}
