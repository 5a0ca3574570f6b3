//! A workspace for commands.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use toolgate_core::{Call, CallSeed, Registry, SettledOutcome, Stack, View};
use toolgate_testkit::seed_for;
use toolgate_tools::{KernelFeatures, NamespaceSupport, RunShell, Sandbox, ShellOptions};

/// A workspace with a shell tool, and a directory outside that the tool must not access.
pub(crate) struct ShellBench {
    dir: tempfile::TempDir,
    pub(crate) stack: Stack,
    view: View,
}

impl ShellBench {
    pub(crate) fn new(options: ShellOptions) -> Self {
        Self::with_kernel(Sandbox::check().clone(), options)
    }

    /// Creates a workspace for a kernel with only these features.
    pub(crate) fn with_kernel(kernel: KernelFeatures, options: ShellOptions) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("work")).expect("created");
        fs::create_dir(dir.path().join("outside")).expect("created");
        fs::write(dir.path().join("outside/secret"), "CANARY-OUTSIDE").expect("written");
        let sandbox = Sandbox::new(dir.path().join("work"), &options)
            .expect("a workspace")
            .assuming_kernel(kernel);
        let registry = Registry::new();
        registry
            .register(RunShell::with_sandbox(sandbox, options))
            .expect("a free name");
        let view = toolgate_testkit::plain_view(&registry);
        let stack = Stack::over(registry).build().expect("it builds");
        Self { dir, stack, view }
    }

    pub(crate) fn workspace_dir(&self) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .expect("it exists")
            .join("work")
    }

    pub(crate) fn outside_dir(&self) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .expect("it exists")
            .join("outside")
    }

    pub(crate) fn call_seed(&self, arguments: Value) -> CallSeed {
        seed_for(&self.view, "run_shell", arguments)
    }

    pub(crate) async fn call(&self, arguments: Value) -> SettledOutcome {
        let outcome = self.stack.run(Call::new(self.call_seed(arguments))).await;
        outcome.settled().cloned().expect("settled")
    }

    /// Runs a command and returns its report.
    pub(crate) async fn run(&self, command: &str) -> Value {
        expect_report(&self.call(json!({ "command": command })).await)
    }
}

pub(crate) fn expect_report(settled: &SettledOutcome) -> Value {
    let operator = settled.error.as_ref().map(|error| error.operator.clone());
    assert!(settled.error.is_none(), "{:?} {operator:?}", settled.error);
    settled.value.as_value().clone()
}

/// Returns the features of the running kernel, and the same without namespaces.
pub(crate) fn kernels() -> [KernelFeatures; 2] {
    let here = Sandbox::check().clone();
    let mut apart = here.clone();
    apart.namespaces = NamespaceSupport::None;
    [here, apart]
}

/// Counts the processes with this word on their command line. A zombie does not count.
pub(crate) fn count_running(mark: &str) -> usize {
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

/// Returns a number of seconds that no other process sleeps for.
pub(crate) fn unique_mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!(
        "600.{:07}{:03}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

pub(crate) async fn wait_until(test: impl Fn() -> bool) {
    while !test() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
