//! At a terminal, erasing needs a confirmation, and only a yes confirms.

use toolgate_testkit::terminal::{Key, Terminal};

use crate::history::HistoryPlace;

fn erase_with_answer(place: &HistoryPlace, session: &str, answer: &str) -> (i32, String) {
    let mut terminal = Terminal::builder(env!("CARGO_BIN_EXE_toolgate"))
        .args(["sessions", "delete", session, "--erase"])
        .env("TOOLGATE_HOME", place.dir.path().join("home"))
        .env("HOME", place.dir.path())
        .dir(place.work())
        .spawn();
    terminal.wait_for("permanently? [y/N]");
    terminal.send(answer);
    terminal.press_key(Key::Enter);
    let code = terminal.wait_exit();
    (code, terminal.transcript())
}

#[test]
fn a_session_is_erased_only_after_a_yes() {
    let place = HistoryPlace::new();
    place.write("a.txt", "x");
    let rows = place.json(&["sessions", "list"]);
    let session = rows[0]["session"].as_str().expect("an id");
    for answer in ["", "n", "maybe"] {
        let (code, said) = erase_with_answer(&place, session, answer);
        assert_eq!(code, 5, "{answer:?}: {said}");
        assert!(
            said.contains("Receipts stay") && said.contains("nothing was done"),
            "{said}"
        );
        assert_eq!(place.json(&["sessions", "list"]).len(), 1);
    }
    let (code, said) = erase_with_answer(&place, session, "y");
    assert_eq!(code, 0, "{said}");
    assert!(place.json(&["sessions", "list", "--all"]).is_empty());
}
