//! A workspace, and commands that are run in it.

use serde_json::{Value, json};
use toolgate_core::{CallSeed, Outcome, Registry, Settled, Stack, View};
use toolgate_testkit::seed_for;
use toolgate_tools::{RunShell, Sandbox, ShellOptions};

/// A workspace with a shell tool over it, and a place beside it that is none of the tool's business.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) stack: Stack,
    view: View,
}

impl Bench {
    pub(crate) fn new(options: ShellOptions) -> Self {
        Self::on(options, |sandbox| sandbox)
    }

    /// With a sandbox that was changed, such as to another kernel.
    pub(crate) fn on(options: ShellOptions, change: impl FnOnce(Sandbox) -> Sandbox) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("work")).expect("made");
        std::fs::create_dir(dir.path().join("outside")).expect("made");
        std::fs::write(dir.path().join("outside/secret"), "CANARY-OUTSIDE").expect("written");
        let sandbox = Sandbox::new(dir.path().join("work"), &options).expect("a workspace");
        let registry = Registry::new();
        registry.register(RunShell::within(change(sandbox), options)).expect("free");
        let view = View::of(&registry);
        let stack = Stack::over(registry).build().expect("in order");
        Self { dir, stack, view }
    }

    pub(crate) fn work(&self) -> std::path::PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn outside(&self) -> std::path::PathBuf {
        self.dir.path().join("outside")
    }

    pub(crate) fn seed(&self, arguments: Value) -> CallSeed {
        seed_for(&self.view, "run_shell", arguments)
    }

    pub(crate) async fn call(&self, arguments: Value) -> Settled {
        let outcome: Outcome = self.stack.run(toolgate_core::Call::new(self.seed(arguments))).await;
        outcome.settled().cloned().expect("settled")
    }

    /// Runs a command and returns its report.
    pub(crate) async fn run(&self, command: &str) -> Value {
        let settled = self.call(json!({ "command": command })).await;
        report(&settled)
    }

    /// Whether anything but the canary is outside, or the canary has changed.
    pub(crate) fn is_outside_untouched(&self) -> bool {
        let names: Vec<_> =
            std::fs::read_dir(self.outside()).expect("there").flatten().map(|it| it.file_name()).collect();
        names == ["secret"] && std::fs::read(self.outside().join("secret")).expect("there") == b"CANARY-OUTSIDE"
    }
}

pub(crate) fn report(settled: &Settled) -> Value {
    assert!(settled.error.is_none(), "{:?} {:?}", settled.error, settled.error.as_ref().map(|e| e.operator.clone()));
    settled.value.as_value().clone()
}
