//! The display in tmux, a terminal that wraps lines anew when it is resized and keeps what scrolls away.
//!
//! The emulator of the other tests ignores the code that switches wrapping off, so a frame for the size
//! before can leave rows behind there that no real terminal shows.

use std::process::{Command, Output};

use toolgate_testkit::terminal::{Key, Terminal};

use crate::run::world::{RunWorld, path_text, to_text};

const WRITES: &str = r#"
    [[reply]]
    text = "日本語のテキストはとても長いので、端末の幅で折り返されます。 And 👩‍👩‍👧 goes on **in English** for a while."
    calls = [{ tool = "write_file", arguments = { path = "a_file_with_quite_a_long_name_for_a_narrow_terminal.txt", content = "界\n" } }]
    [[reply]]
    text = "Done."
"#;

const WRITTEN: &str = "a_file_with_quite_a_long_name_for_a_narrow_terminal.txt";

/// A run of the program in tmux. Dropping it ends the tmux server.
struct TmuxRun<'a> {
    world: &'a RunWorld,
    terminal: Terminal,
}

impl<'a> TmuxRun<'a> {
    /// Starts a run in tmux; `None` if tmux is not installed.
    fn start(world: &'a RunWorld, columns: u16, rows: u16) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("skipped: tmux is not installed");
            return None;
        }
        let run = format!("{} write", world.run_line());
        let terminal = world
            .surrounded_terminal("tmux")
            .args(["-S", &socket(world), "-f", "/dev/null", "-u"])
            .args(["new-session", &run, ";", "set", "-g", "status", "off"])
            .size(columns, rows)
            .spawn();
        Some(Self { world, terminal })
    }

    /// Returns everything that tmux shows and has scrolled away.
    fn whole_text(&self) -> String {
        to_text(&run_tmux(self.world, &["capture-pane", "-p", "-S", "-"]).stdout)
    }
}

impl Drop for TmuxRun<'_> {
    fn drop(&mut self) {
        run_tmux(self.world, &["kill-server"]);
    }
}

fn socket(world: &RunWorld) -> String {
    path_text(&world.path_beside("tmux.sock"))
}

fn run_tmux(world: &RunWorld, arguments: &[&str]) -> Output {
    let mut command = Command::new("tmux");
    command.args(["-S", &socket(world), "-u"]).args(arguments);
    world.surround(&mut command);
    command.output().expect("tmux runs")
}

/// Returns the rows that contain a text.
fn rows_with(rows: &[&str], text: &str) -> Vec<usize> {
    let found = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.contains(text));
    found.map(|(at, _)| at).collect()
}

#[test]
fn resizing_leaves_one_question_on_the_screen_and_in_the_scrollback() {
    let world = RunWorld::new(WRITES);
    let Some(mut run) = TmuxRun::start(&world, 120, 30) else {
        return;
    };
    run.terminal.wait_for("s later");
    let sizes = [(60, 20), (80, 24), (120, 40), (40, 12)];
    for (columns, height) in [sizes, sizes, sizes].concat() {
        // Keys are pressed while tmux and the program still learn of the new size.
        run.terminal.resize(columns, height);
        run.terminal.press_key(Key::Char('n'));
        run.terminal.wait_for("Why not?");
        run.terminal.press_key(Key::Escape);
        run.terminal.wait_until("the question alone", |screen| {
            screen.contains("s later") && !screen.contains("Why not?")
        });
        let text = run.whole_text();
        let rows: Vec<&str> = text.lines().collect();
        let questions = rows_with(&rows, "Run write_file?");
        let [question] = questions[..] else {
            panic!("{columns}×{height}: {questions:?} in\n{text}");
        };
        assert_eq!(
            rows_with(&rows, "y approve"),
            [question + 1],
            "{columns}×{height}:\n{text}"
        );
        assert!(rows_with(&rows, "Why not?").is_empty(), "{text}");
    }
    run.terminal.press_key(Key::Char('y'));
    assert_eq!(run.terminal.wait_exit(), 0);
    assert_eq!(world.read(WRITTEN), "界\n");
}
