//! The program to run in a terminal, and its settings.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Child,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::process::Pid;

use super::{SharedTerminal, Terminal};

/// A program to run in a terminal. Its environment has only a few plain variables and those that
/// are named here.
#[derive(Debug, Clone)]
pub struct TerminalBuilder {
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
    size: (u16, u16),
    patience: Duration,
}

impl TerminalBuilder {
    pub(super) fn new(program: &OsStr) -> Self {
        let path =
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let variables = [
            ("PATH", path),
            ("TERM", "xterm-256color".into()),
            ("LANG", "C.UTF-8".into()),
        ];
        Self {
            program: program.to_owned(),
            arguments: Vec::new(),
            variables: variables
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
            dir: None,
            size: (80, 24),
            patience: Duration::from_secs(60),
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the directory in which the program starts; by default the current one.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets the size of the terminal; by default 80 columns and 24 rows.
    pub fn size(mut self, columns: u16, rows: u16) -> Self {
        self.size = (columns, rows);
        self
    }

    /// Sets how long to wait for something before the test fails; by default a minute.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts the program.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[track_caller]
    pub fn spawn(self) -> Terminal {
        let (columns, rows) = self.size;
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system()
            .openpty(size)
            .expect("a pseudo terminal is available");
        let started = pair.slave.spawn_command(self.build_command());
        let child = started.unwrap_or_else(|error| {
            panic!("{} cannot be started: {error}", self.program.display())
        });
        // While this side is open, the end of the program is not visible to the reader.
        drop(pair.slave);
        let child: Box<dyn portable_pty::Child> = child;
        let child = child
            .downcast::<Child>()
            .expect("on Unix it is a child of the standard library");
        let pid = Pid::from_child(&child);
        let shared = Arc::new(SharedTerminal::new(columns, rows));
        let reader = pair
            .master
            .try_clone_reader()
            .expect("a fresh terminal can be read");
        let writer = pair
            .master
            .take_writer()
            .expect("a fresh terminal can be written to");
        let typing = Arc::new(Mutex::new(writer));
        let reading = shared.clone();
        let answering = typing.clone();
        let waiting = shared.clone();
        thread::spawn(move || reading.read_output(reader, &answering));
        thread::spawn(move || waiting.wait_for_exit(*child, pid));
        Terminal {
            shared,
            master: pair.master,
            typing,
            pid,
            patience: self.patience,
        }
    }

    fn build_command(&self) -> CommandBuilder {
        let mut command = CommandBuilder::new(&self.program);
        command.args(&self.arguments);
        // Settings of the developer's own shell must not change a test.
        command.env_clear();
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        let here = || std::env::current_dir().expect("the current directory exists");
        command.cwd(self.dir.clone().unwrap_or_else(here));
        command
    }
}
