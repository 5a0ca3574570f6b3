//! A home, a workspace and a model that plays a script, for each test its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
};

use toolgate::{CallId, Event, SessionFilter, Status, ToolEvent};
use toolgate_testkit::terminal::{Terminal, TerminalBuilder};

const PROGRAM: &str = env!("CARGO_BIN_EXE_toolgate");

/// A home, a workspace and a model.
pub(crate) struct World {
    dir: tempfile::TempDir,
    model: String,
}

impl World {
    /// A workspace with the file `a.txt` that says `one`, and a model that plays `script`.
    pub(crate) fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["home", "work"] {
            fs::create_dir(dir.path().join(name)).expect("made");
        }
        let mut world = Self {
            dir,
            model: String::new(),
        };
        world.write("a.txt", "one\n");
        world.play(script);
        world
    }

    /// Lets the model play another script from now on.
    pub(crate) fn play(&mut self, script: &str) {
        let path = self.dir.path().join("script.toml");
        fs::write(&path, script).expect("written");
        self.model = format!("script:{}", path.display());
    }

    /// Asks another model from now on.
    pub(crate) fn ask(&mut self, model: &str) {
        self.model = model.to_owned();
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// A place outside of the workspace.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).expect("written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.work().join(name)).expect("there")
    }

    /// A program that can be run, beside the workspace.
    pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.beside(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        path
    }

    fn variables(&self) -> [(&'static str, PathBuf); 4] {
        let nowhere = self.beside("nowhere");
        [
            ("TOOLGATE_HOME", self.home()),
            ("HOME", nowhere.clone()),
            ("XDG_CONFIG_HOME", nowhere),
            ("TOOLGATE_USER", PathBuf::from("ann")),
        ]
    }

    /// `toolgate run` in a terminal.
    pub(crate) fn terminal(&self, arguments: &[&str]) -> TerminalBuilder {
        let builder = Terminal::builder(PROGRAM)
            .args(["run", "--model", &self.model])
            .args(arguments)
            .dir(self.work());
        self.variables()
            .into_iter()
            .fold(builder, |builder, (name, value)| builder.env(name, value))
    }

    /// `toolgate run` without a terminal.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(["run", "--model", &self.model])
            .args(arguments)
            .current_dir(self.work());
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", path)
            .envs(self.variables())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn plain(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("runs")
    }

    /// A line of a shell with `toolgate run` in the place of `RUN`.
    pub(crate) fn shell(&self, line: &str) -> Output {
        let run = format!("{PROGRAM} run --model {}", self.model);
        let mut command = Command::new("bash");
        command
            .args([
                "-c",
                &format!("set -o pipefail; {}", line.replace("RUN", &run)),
            ])
            .current_dir(self.work());
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .env_clear()
            .env("PATH", path)
            .envs(self.variables())
            .stdin(Stdio::null());
        command.output().expect("runs")
    }

    /// Everything that happened, session by session.
    pub(crate) fn events(&self) -> Vec<Arc<Event>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let address = format!("sqlite:{}", self.home().join("toolgate.db").display());
            let store = toolgate::store::open(&address).await.expect("opens");
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

    /// How the calls of a tool ended, in the order in which they did.
    pub(crate) fn ended(&self, tool: &str) -> Vec<Status> {
        let ended = |event: &Arc<Event>| {
            let (invocation, happened) = event.as_tool()?;
            (invocation.tool.as_str() == tool)
                .then(|| status(happened))
                .flatten()
        };
        self.events().iter().filter_map(ended).collect()
    }

    /// The calls that somebody approved, in the order in which they did, with the path they are about.
    pub(crate) fn approved(&self) -> Vec<String> {
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

fn status(event: &ToolEvent) -> Option<Status> {
    match event {
        ToolEvent::ToolExecutionSucceeded { .. } => Some(Status::Ok),
        ToolEvent::ToolDenied { status, .. }
        | ToolEvent::ToolExecutionFailed { status, .. }
        | ToolEvent::ToolExecutionInterrupted { status, .. } => Some(*status),
        ToolEvent::ToolSkipped { .. } => Some(Status::DryRun),
        _ => None,
    }
}

/// What a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether something is written that a terminal takes for a command.
pub(crate) fn is_steering(text: &str) -> bool {
    text.contains('\u{1b}')
}

/// A path as an argument.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
