//! Where a command cannot be kept in its place, it does not run, and everybody is told what they need to know.

use serde_json::json;
use toolgate_core::{ErrorCategory, Status};
use toolgate_tools::{
    Kernel, Namespaces, Network, Sandbox, SandboxError, SandboxMode, ShellOptions,
};

use crate::support::{Bench, report};

fn lacking(change: impl FnOnce(&mut Kernel)) -> Kernel {
    let mut kernel = Sandbox::check().clone();
    change(&mut kernel);
    kernel
}

#[tokio::test]
async fn a_kernel_that_lacks_something_runs_nothing_and_the_operator_learns_what() {
    let none = Namespaces::None;
    for (kernel, word) in [
        (lacking(|kernel| kernel.landlock = 2), "Landlock 3"),
        (lacking(|kernel| kernel.seccomp = false), "seccomp"),
        (
            lacking(|kernel| (kernel.namespaces, kernel.landlock) = (none, 5)),
            "signals",
        ),
        (
            lacking(|kernel| (kernel.namespaces, kernel.children) = (none, false)),
            "leaves behind",
        ),
        (Kernel::NOTHING, "Landlock 3"),
    ] {
        let bench = Bench::on(kernel, ShellOptions::default());
        let settled = bench.call(json!({ "command": "touch ran" })).await;
        assert!(!bench.work().join("ran").exists());
        let error = settled.error.expect("refused");
        assert_eq!(
            (settled.status, error.category),
            (Status::ExecutorError, ErrorCategory::Permission)
        );
        let operator = error.operator.expect("told");
        assert!(
            operator.contains(word) && operator.contains("best-effort"),
            "{operator}"
        );
        assert!(
            !error.model.contains(word),
            "the model can do nothing about it"
        );
    }
}

#[tokio::test]
async fn best_effort_runs_with_what_there_is_and_says_what_is_missing() {
    let options = ShellOptions {
        sandbox: SandboxMode::BestEffort,
        ..ShellOptions::default()
    };
    let bench = Bench::on(lacking(|kernel| kernel.landlock = 2), options);
    let report = report(&bench.call(json!({ "command": "echo ran" })).await);
    assert_eq!(report["output"], "ran\n");
    assert_eq!(report["sandbox"]["missing"], json!(["files"]));
    assert_eq!(report["sandbox"]["mode"], "best-effort");
}

#[tokio::test]
async fn a_network_of_its_own_needs_namespaces() {
    let kernel = lacking(|kernel| kernel.namespaces = Namespaces::None);
    let options = ShellOptions {
        network: Network::Loopback,
        ..ShellOptions::default()
    };
    let settled = Bench::on(kernel, options)
        .call(json!({ "command": "true" }))
        .await;
    assert!(
        settled
            .error
            .expect("refused")
            .operator
            .expect("told")
            .contains("network of its own")
    );
}

#[test]
fn a_workspace_that_is_none_is_refused() {
    let options = ShellOptions::default();
    for path in ["/", "/no/such/place", "/etc/passwd"] {
        let error = Sandbox::new(path, &options).expect_err("no workspace");
        assert!(matches!(error, SandboxError::Workspace { .. }), "{error}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let options = ShellOptions {
        read: vec!["/no/such/place".into()],
        ..options
    };
    let error = Sandbox::new(dir.path(), &options).expect_err("no path");
    assert!(error.to_string().contains("/no/such/place"), "{error}");
}

#[tokio::test]
async fn a_shell_that_is_not_there_is_named_to_the_operator_only() {
    let options = ShellOptions {
        shell: "/no/such/shell".into(),
        ..ShellOptions::default()
    };
    let settled = Bench::new(options).call(json!({ "command": "true" })).await;
    let error = settled.error.expect("not started");
    assert_eq!(error.model, "the command could not be started");
    assert!(error.operator.expect("told").contains("No such file"));
}

#[test]
fn an_option_that_does_not_exist_is_refused() {
    let read = |value| serde_json::from_value::<ShellOptions>(value);
    assert!(read(json!({ "sandbox": "best-effort", "network": "on" })).is_ok());
    assert!(read(json!({ "sandbox": "sometimes" })).is_err());
    assert!(read(json!({ "sandboxed": true })).is_err());
}
