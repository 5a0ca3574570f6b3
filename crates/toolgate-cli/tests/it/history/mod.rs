//! The commands about the past, with the real program: approvals, sessions, receipts, budgets.

mod approvals;
mod archives;
mod budgets;
mod confirmations;
mod evidence;
mod older;
mod quorum;
mod receipts;
mod rules;
mod search;
mod sessions;
mod shown;
mod widths;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use toolgate::store::StoreHandle;

/// An isolated home and workspace for each test.
struct HistoryPlace {
    dir: tempfile::TempDir,
}

/// The output and the exit code of a command.
#[derive(Debug)]
struct CommandResult {
    code: i32,
    out: String,
    err: String,
}

impl HistoryPlace {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("work")).expect("is made");
        Self { dir }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("home/toolgate.db")
    }

    /// Runs the program without a terminal.
    fn run(&self, args: &[&str]) -> CommandResult {
        self.run_in(Command::new(env!("CARGO_BIN_EXE_toolgate")), args)
    }

    /// Runs a command that starts the program, with the variables of this place.
    fn run_in(&self, mut command: Command, args: &[&str]) -> CommandResult {
        let given: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        let kept = std::env::vars_os().filter(|(name, _)| name == "PATH");
        command
            .env_clear()
            .envs(kept)
            .env("HOME", self.dir.path())
            .env("TOOLGATE_HOME", self.dir.path().join("home"));
        command
            .env("TOOLGATE_USER", "ann")
            .env("TZ", "UTC")
            .current_dir(self.work())
            .stdin(Stdio::null())
            .envs(given);
        let done = command.args(args).output().expect("the program runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        CommandResult {
            code: done.status.code().expect("it ended by itself"),
            out: text(done.stdout),
            err: text(done.stderr),
        }
    }

    /// Runs the program, which has to exit with this code.
    fn ends(&self, code: i32, args: &[&str]) -> CommandResult {
        let said = self.run(args);
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        said
    }

    /// Runs a command and parses the lines of JSON that it prints.
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let said = self.ends(0, &[&["--json"], args].concat());
        said.out
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Writes a configuration and trusts it.
    fn configure(&self, text: &str) {
        fs::write(self.work().join("toolgate.toml"), text).expect("writes");
        self.ends(0, &["config", "trust", "--yes"]);
    }

    /// Writes a file with a call that is approved by `--approve yes`.
    fn write(&self, name: &str, content: &str) {
        let path = format!("path={name}");
        let content = format!("content={content}");
        self.ends(
            0,
            &[
                "tools",
                "call",
                "write_file",
                &path,
                &content,
                "--approve",
                "yes",
            ],
        );
    }

    /// Makes a call that needs an approval, and returns the id of the request.
    fn request_approval(&self, name: &str) -> String {
        let said = self.ends(
            3,
            &[
                "tools",
                "call",
                "write_file",
                &format!("path={name}"),
                "content=new",
                "--json",
            ],
        );
        let said: Value = serde_json::from_str(said.out.trim()).expect("JSON");
        said["approval"].as_str().expect("an approval").to_owned()
    }

    async fn store(&self) -> StoreHandle {
        toolgate::store::open_store(self.database().to_str().expect("text"))
            .await
            .expect("opens")
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work().join(name)).ok()
    }
}
