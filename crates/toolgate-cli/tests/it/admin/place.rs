//! An isolated home and workspace for each test, and the program with a clean environment.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// Directories that are deleted with the test.
pub(crate) struct AdminPlace {
    dir: TempDir,
    variables: Vec<(&'static str, String)>,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandRun {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl AdminPlace {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("work")).expect("a workspace");
        Self {
            dir,
            variables: Vec::new(),
        }
    }

    /// Adds an environment variable.
    pub(crate) fn with_variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("it is there")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.home().join("toolgate.db")
    }

    /// Writes a file of the workspace.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    /// Writes a file beside the workspace, where no tool can reach it.
    pub(crate) fn write_outside(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().with_file_name(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    /// Writes the configuration of the project, and trusts it.
    pub(crate) fn configured(self, text: &str) -> Self {
        self.write("toolgate.toml", text);
        let ran = self.run(["config", "trust", "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        self
    }

    pub(crate) fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> CommandRun {
        self.run_with(arguments, "")
    }

    /// Runs the program with `input` at its standard input.
    pub(crate) fn run_with<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
        input: &str,
    ) -> CommandRun {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
        command.args(arguments).current_dir(self.work()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("HOME", self.root())
            .env("TOOLGATE_HOME", self.home())
            .env("TOOLGATE_USER", "ann");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        // A program that does not read its input may have exited already.
        let _ = child
            .stdin
            .take()
            .expect("piped")
            .write_all(input.as_bytes());
        let done = child.wait_with_output().expect("the program ends");
        let text = |bytes: &[u8]| self.normalize(&String::from_utf8_lossy(bytes));
        CommandRun {
            code: done.status.code().unwrap_or(-1),
            out: text(&done.stdout),
            err: text(&done.stderr),
        }
    }

    /// Replaces the directory of the test, so that snapshots are the same everywhere.
    fn normalize(&self, text: &str) -> String {
        let bare = self.dir.path().to_owned();
        let shown = |path: &Path| path.display().to_string();
        text.replace(&shown(&self.root()), "DIR")
            .replace(&shown(&bare), "DIR")
    }
}

impl CommandRun {
    /// Parses the lines of the output as JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}")))
            .collect()
    }

    /// Returns what the user sees after a mistake.
    pub(crate) fn mistake(&self) -> String {
        assert_eq!(self.out, "", "an error is printed to the error output");
        format!("exit {}\n{}", self.code, self.err)
    }
}
