//! Readers of the output that go away or stall.

use crate::run::world::{RunWorld, to_text};

const WORK: &str = r#"
    [[reply]]
    text = "I look first."
    calls = [{ tool = "read_file", arguments = { path = "a.txt" } }]
    [[reply]]
    text = "Then I change it."
    calls = [{ tool = "run_shell", arguments = { command = "sleep 0.5; echo two > a.txt" } }]
    [[reply]]
    text = "It is changed."
"#;

#[test]
fn a_run_whose_reader_is_gone_is_stopped_and_is_no_success() {
    for line in [
        "RUN x --approve yes | head -1",
        "RUN x --approve yes --json | head -1",
    ] {
        let world = RunWorld::new(WORK);
        let output = world.run_in_shell(line);
        let stderr = to_text(&output.stderr);
        assert_eq!(output.status.code(), Some(141), "{line}: {stderr}");
        assert!(!stderr.contains("panicked"), "{line}: {stderr}");
        // It can be resumed, and nothing is lost.
        let output = world.run_plain(&["--resume", "--approve", "yes"]);
        assert_eq!(output.status.code(), Some(0), "{}", to_text(&output.stderr));
    }
}

#[test]
fn a_long_answer_is_printed_whole() {
    // Multi-byte characters at every place where a text could be cut.
    let answer = "Größe ".repeat(5_000) + "end";
    let world = RunWorld::new(&format!("[[reply]]\nrepeat = 'always'\ntext = '{answer}'"));
    let plain = world.run_plain(&["hi"]);
    assert_eq!(to_text(&plain.stdout), format!("{answer}\n"));
    // The event carries the beginning and says so.
    let json = to_text(&world.run_plain(&["hi", "--json"]).stdout);
    let finished = json
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .find(|event| event["type"] == "inference_finished")
        .expect("a reply");
    let shown = finished["text"].as_str().expect("text");
    assert_eq!(finished["text_bytes"], answer.len());
    assert!(shown.len() <= 16 * 1024 && answer.starts_with(shown));
    let session = finished["session_id"].as_str().expect("an id");
    let history = world.run_text(&["sessions", "show", session]);
    let words = history.matches("Größe").count();
    assert_eq!((words, history.contains("truncated")), (5_000, false));
    assert!(history.contains("end"));
}

#[test]
fn a_break_that_a_run_finds_gives_its_exit_code() {
    for options in [&[][..], &["-q"], &["--json"]] {
        let world = RunWorld::new(WORK);
        assert_eq!(
            world
                .run_plain(&["x", "--approve", "yes", "-q"])
                .status
                .code(),
            Some(0)
        );
        let database = rusqlite::Connection::open(world.home().join("toolgate.db")).expect("opens");
        let deleted = database.execute("DELETE FROM entries", []);
        assert!(deleted.expect("deletes") > 0, "the quiet run has receipts");
        database
            .execute("DELETE FROM ledgers", [])
            .expect("deletes");
        let output = world.run_plain(&[&["x", "--approve", "yes"], options].concat());
        let stderr = to_text(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{options:?}: {stderr}");
        assert!(stderr.to_lowercase().contains("verification"), "{stderr}");
    }
}
