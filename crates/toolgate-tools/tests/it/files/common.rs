//! A workspace in a temporary directory, with all file tools.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::Value;
use toolgate_core::{
    Call, CallId, CallSeed, MemoryStore, Registry, SettledOutcome, Stack, Status, StoreHandle, View,
};
use toolgate_testkit::seed_for;
use toolgate_tools::{FileLimits, ToolboxOptions, Workspace, register_all};

/// A workspace inside a temporary directory, so that there are files outside of it.
pub(crate) struct TestSpace {
    dir: tempfile::TempDir,
    pub(crate) store: StoreHandle,
    pub(crate) workspace: Workspace,
    pub(crate) registry: Registry,
    view: View,
    stack: Stack,
    calls: AtomicU64,
}

impl TestSpace {
    pub(crate) fn new() -> Self {
        Self::with_workspace(|workspace| workspace)
    }

    /// Creates a workspace with small limits.
    pub(crate) fn with_limits(limits: FileLimits) -> Self {
        Self::with_workspace(|workspace| workspace.with_limits(limits))
    }

    fn with_workspace(change: impl FnOnce(Workspace) -> Workspace) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("work")).expect("created");
        fs::write(dir.path().join("secret"), "hunter2\n").expect("written");
        let store = StoreHandle::new(MemoryStore::new());
        let workspace = Workspace::open(dir.path().join("work"))
            .expect("a workspace")
            .with_undo_store(store.clone());
        let workspace = change(workspace);
        let registry = Registry::new();
        let mut options = ToolboxOptions::default();
        options.undo = true;
        register_all(&registry, &workspace, &options).expect("new names");
        let view = toolgate_testkit::plain_view(&registry);
        let stack = Stack::over(registry.clone()).build().expect("no layers");
        Self {
            dir,
            store,
            workspace,
            registry,
            view,
            stack,
            calls: AtomicU64::new(1),
        }
    }

    /// Returns a path in the workspace.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// Returns a path outside the workspace.
    pub(crate) fn outside_path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write_file(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("created");
        fs::write(path, content).expect("written");
    }

    pub(crate) fn read_bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("readable")
    }

    pub(crate) fn read_text(&self, name: &str) -> String {
        String::from_utf8(self.read_bytes(name)).expect("text")
    }

    pub(crate) fn new_call(&self, tool: &str, arguments: Value) -> Call {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let id = CallId::new(uuid::Uuid::from_u128(u128::from(number)));
        Call::new(CallSeed {
            id,
            ..seed_for(&self.view, tool, arguments)
        })
    }

    /// Rehearses a call: nothing runs, and the outcome says what the tool would answer.
    pub(crate) async fn rehearse(&self, tool: &str, arguments: Value) -> SettledOutcome {
        let call = Call::new(CallSeed {
            rehearsal: true,
            ..seed_for(&self.view, tool, arguments)
        });
        self.run_call(call).await
    }

    pub(crate) async fn run(&self, tool: &str, arguments: Value) -> SettledOutcome {
        self.run_call(self.new_call(tool, arguments)).await
    }

    pub(crate) async fn run_call(&self, call: Call) -> SettledOutcome {
        self.stack
            .run(call)
            .await
            .settled()
            .expect("settled")
            .clone()
    }

    /// Runs a call that must succeed, and returns its result.
    pub(crate) async fn run_ok(&self, tool: &str, arguments: Value) -> SettledOutcome {
        let settled = self.run(tool, arguments).await;
        assert_eq!(settled.status, Status::Ok, "{}", settled.model_text());
        settled
    }

    /// Runs a call that must fail, and returns the message for the model.
    pub(crate) async fn run_error(&self, tool: &str, arguments: Value) -> String {
        let settled = self.run(tool, arguments).await;
        assert_ne!(settled.status, Status::Ok, "{}", settled.model_text());
        settled.model_text().into_owned()
    }

    /// Returns the names of everything in the workspace, to check that nothing was left behind.
    pub(crate) fn list_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut open = vec![self.path("")];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).expect("readable") {
                let path = entry.expect("an entry").path();
                if path.is_dir() && !path.is_symlink() {
                    open.push(path.clone());
                }
                names.push(
                    path.strip_prefix(self.path(""))
                        .expect("inside")
                        .to_string_lossy()
                        .into_owned(),
                );
            }
        }
        names.sort();
        names
    }
}
