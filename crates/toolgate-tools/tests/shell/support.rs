//! A workspace, and commands that are run in it.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use toolgate_core::{Call, CallSeed, Registry, Settled, Stack, View};
use toolgate_testkit::seed_for;
use toolgate_tools::{Kernel, Namespaces, RunShell, Sandbox, ShellOptions};

/// A workspace with a shell tool over it, and a place beside it that is none of the tool's business.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) stack: Stack,
    view: View,
}

impl Bench {
    pub(crate) fn new(options: ShellOptions) -> Self {
        Self::on(Sandbox::check().clone(), options)
    }

    /// On a kernel that has no more than this.
    pub(crate) fn on(kernel: Kernel, options: ShellOptions) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("work")).expect("made");
        fs::create_dir(dir.path().join("outside")).expect("made");
        fs::write(dir.path().join("outside/secret"), "CANARY-OUTSIDE").expect("written");
        let sandbox = Sandbox::new(dir.path().join("work"), &options)
            .expect("a workspace")
            .on(kernel);
        let registry = Registry::new();
        registry
            .register(RunShell::within(sandbox, options))
            .expect("free");
        let view = View::of(&registry);
        let stack = Stack::over(registry).build().expect("in order");
        Self { dir, stack, view }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("there").join("work")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .expect("there")
            .join("outside")
    }

    pub(crate) fn seed(&self, arguments: Value) -> CallSeed {
        seed_for(&self.view, "run_shell", arguments)
    }

    pub(crate) async fn call(&self, arguments: Value) -> Settled {
        let outcome = self.stack.run(Call::new(self.seed(arguments))).await;
        outcome.settled().cloned().expect("settled")
    }

    /// Runs a command and returns its report.
    pub(crate) async fn run(&self, command: &str) -> Value {
        report(&self.call(json!({ "command": command })).await)
    }
}

pub(crate) fn report(settled: &Settled) -> Value {
    let operator = settled.error.as_ref().map(|error| error.operator.clone());
    assert!(settled.error.is_none(), "{:?} {operator:?}", settled.error);
    settled.value.as_value().clone()
}

/// The kernel we run on, and the same without namespaces.
pub(crate) fn kernels() -> [Kernel; 2] {
    let here = Sandbox::check().clone();
    let mut apart = here.clone();
    apart.namespaces = Namespaces::None;
    [here, apart]
}

/// How many processes are running with this word on their command line. A zombie is not running.
pub(crate) fn running(mark: &str) -> usize {
    let alive = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let status = fs::read_to_string(entry.path().join("stat")).ok()?;
        let zombie = status.rsplit(") ").next()?.starts_with('Z');
        (String::from_utf8_lossy(&line)
            .split('\0')
            .any(|word| word == mark)
            && !zombie)
            .then_some(())
    };
    fs::read_dir("/proc")
        .expect("linux")
        .flatten()
        .filter_map(alive)
        .count()
}

/// A number of seconds that nobody else sleeps for.
pub(crate) fn mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!(
        "600.{:07}{:03}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

pub(crate) async fn until(test: impl Fn() -> bool) {
    while !test() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
