//! An isolated home, workspace and scripted model for each test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};

use serde_json::Value;
use toolgate::{
    Event, Status,
    event::ToolEvent,
    store::{SessionFilter, StoreHandle},
    value::CallId,
};
use toolgate_testkit::terminal::{Terminal, TerminalBuilder};

const PROGRAM: &str = env!("CARGO_BIN_EXE_toolgate");

/// A home, a workspace and a model.
pub(crate) struct RunWorld {
    dir: tempfile::TempDir,
    model: String,
    variables: Vec<(&'static str, PathBuf)>,
}

impl RunWorld {
    /// Creates a workspace with the file `a.txt` that contains `one`, and a model that plays
    /// `script`.
    pub(crate) fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["home", "work"] {
            fs::create_dir(dir.path().join(name)).expect("made");
        }
        let mut world = Self {
            dir,
            model: String::new(),
            variables: Vec::new(),
        };
        world.write("a.txt", "one\n");
        world.set_script(script);
        world
    }

    /// Sets the script of the model.
    pub(crate) fn set_script(&mut self, script: &str) {
        let path = self.dir.path().join("script.toml");
        fs::write(&path, script).expect("written");
        self.model = format!("script:{}", path.display());
    }

    /// Sets an environment variable of the program.
    pub(crate) fn set_variable(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.into()));
    }

    /// Sets the model.
    pub(crate) fn set_model(&mut self, model: &str) {
        self.model = model.to_owned();
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Returns a path outside the workspace.
    pub(crate) fn path_beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).expect("written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).expect("there")
    }

    /// Writes an executable program beside the workspace.
    pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path_beside(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        path
    }

    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        let nowhere = self.path_beside("nowhere");
        let usual = vec![
            ("TOOLGATE_HOME", self.home()),
            ("HOME", nowhere.clone()),
            ("XDG_CONFIG_HOME", nowhere),
            ("TOOLGATE_USER", PathBuf::from("ann")),
        ];
        [usual, self.variables.clone()].concat()
    }

    /// Builds `toolgate run` in a terminal.
    pub(crate) fn terminal(&self, arguments: &[&str]) -> TerminalBuilder {
        self.terminal_of("run", arguments)
    }

    /// Builds an interactive shell in a terminal, in which `$RUN` is `toolgate run` with the model.
    pub(crate) fn shell(&self) -> TerminalBuilder {
        self.surrounded_terminal("bash")
            .args(["--norc", "--noprofile", "-i"])
            .env("RUN", self.run_line())
    }

    /// Returns `toolgate run` with the model, as a line of a shell.
    pub(crate) fn run_line(&self) -> String {
        format!("{PROGRAM} run --model {}", self.model)
    }

    /// Builds a program in a terminal, with the workspace and the variables of this world.
    pub(crate) fn surrounded_terminal(&self, program: &str) -> TerminalBuilder {
        let builder = Terminal::builder(program).dir(self.work());
        self.variables()
            .into_iter()
            .fold(builder, |builder, (name, value)| builder.env(name, value))
    }

    /// Builds `toolgate chat` in a terminal.
    pub(crate) fn chat(&self, arguments: &[&str]) -> TerminalBuilder {
        self.terminal_of("chat", arguments)
    }

    fn terminal_of(&self, command: &str, arguments: &[&str]) -> TerminalBuilder {
        self.surrounded_terminal(PROGRAM)
            .args([command, "--model", &self.model])
            .args(arguments)
    }

    /// Builds `toolgate run` without a terminal.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.toolgate(&[&["run", "--model", &self.model], arguments].concat())
    }

    /// Runs another command, and returns what it prints as JSON.
    pub(crate) fn run_json(&self, arguments: &[&str]) -> Vec<Value> {
        let ran = self
            .toolgate(&[arguments, &["--json"]].concat())
            .output()
            .expect("runs");
        assert!(ran.status.success(), "{arguments:?}: {ran:?}");
        let lines = to_text(&ran.stdout);
        let parse = |line| serde_json::from_str(line).expect("JSON");
        lines.lines().map(parse).collect()
    }

    /// Runs another command and returns what it prints.
    pub(crate) fn run_text(&self, arguments: &[&str]) -> String {
        to_text(&self.toolgate(arguments).output().expect("runs").stdout)
    }

    /// Runs another command and returns its exit code.
    pub(crate) fn toolgate_status(&self, arguments: &[&str]) -> i32 {
        let ran = self.toolgate(arguments).output().expect("runs");
        ran.status.code().expect("it ends by itself")
    }

    fn toolgate(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        self.surround(&mut command);
        command
    }

    /// Gives a command the workspace and the variables of this world, and no input.
    pub(crate) fn surround(&self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .current_dir(self.work())
            .env_clear()
            .env("PATH", path)
            .envs(self.variables())
            .stdin(Stdio::null());
    }

    /// Runs another command than `run`.
    pub(crate) fn run_other(&self, arguments: &[&str]) -> Output {
        self.toolgate(arguments).output().expect("runs")
    }

    pub(crate) fn run_plain(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("runs")
    }

    /// Runs a shell command with `toolgate run` in place of `RUN`.
    pub(crate) fn run_in_shell(&self, line: &str) -> Output {
        let run = self.run_line();
        let mut command = Command::new("bash");
        command.args([
            "-c",
            &format!("set -o pipefail; {}", line.replace("RUN", &run)),
        ]);
        self.surround(&mut command);
        command.output().expect("runs")
    }

    /// Returns the name of the model.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// Uses the database of this world.
    pub(crate) fn with_store<T>(&self, work: impl AsyncFnOnce(StoreHandle) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let address = format!("sqlite:{}", self.home().join("toolgate.db").display());
            let store = toolgate::store::open_store(&address).await.expect("opens");
            work(store).await
        })
    }

    /// Loads all events, session by session.
    pub(crate) fn events(&self) -> Vec<Arc<Event>> {
        self.with_store(async |store| {
            let mut events = Vec::new();
            for row in store
                .sessions(SessionFilter::default())
                .await
                .expect("lists")
            {
                events.extend(store.events(row.session, 0, 10_000).await.expect("reads"));
            }
            events
        })
    }

    /// Returns the statuses of the calls of a tool, in the order in which they settled.
    pub(crate) fn statuses_of(&self, tool: &str) -> Vec<Status> {
        let ended = |event: &Arc<Event>| {
            let (invocation, happened) = event.as_tool()?;
            (invocation.tool.as_str() == tool)
                .then(|| status_of_event(happened))
                .flatten()
        };
        self.events().iter().filter_map(ended).collect()
    }

    /// Returns the paths of the approved calls, in the order of the approvals.
    pub(crate) fn approved_paths(&self) -> Vec<String> {
        let events = self.events();
        let path = |id: CallId| {
            events.iter().find_map(|event| match event.as_tool()? {
                (
                    invocation,
                    ToolEvent::ToolRequested {
                        arguments: Some(given),
                        ..
                    },
                ) if invocation.id == id => Some(given.as_value()["path"].as_str()?.to_owned()),
                _ => None,
            })
        };
        let approved = |event: &Arc<Event>| match event.as_tool()? {
            (invocation, ToolEvent::ToolApproved { .. }) => path(invocation.id),
            _ => None,
        };
        events.iter().filter_map(approved).collect()
    }
}

fn status_of_event(event: &ToolEvent) -> Option<Status> {
    match event {
        ToolEvent::ToolExecutionSucceeded { .. } => Some(Status::Ok),
        ToolEvent::ToolDenied { status, .. }
        | ToolEvent::ToolExecutionFailed { status, .. }
        | ToolEvent::ToolExecutionInterrupted { status, .. } => Some(*status),
        ToolEvent::ToolSkipped { .. } => Some(Status::DryRun),
        _ => None,
    }
}

/// Converts the output of a program to text.
pub(crate) fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns true if a text contains escape codes.
pub(crate) fn has_escape_codes(text: &str) -> bool {
    text.contains('\u{1b}')
}

/// Formats a path as an argument.
pub(crate) fn path_text(path: &Path) -> String {
    path.display().to_string()
}
