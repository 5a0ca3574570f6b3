//! Tests of systems that cannot enforce the sandbox: the command does not run, and the model and the
//! operator each get their message.

use serde_json::{Value, json};
use toolgate_core::{Call, CallSeed, ErrorCategory, Status};
use toolgate_tools::{
    KernelFeatures, NamespaceSupport, NetworkAccess, Sandbox, SandboxError, SandboxMode,
    ShellOptions,
};

use crate::shell::support::{ShellBench, expect_report};

fn kernel_lacking(change: impl FnOnce(&mut KernelFeatures)) -> KernelFeatures {
    let mut kernel = Sandbox::check().clone();
    change(&mut kernel);
    kernel
}

#[tokio::test]
async fn a_kernel_that_lacks_a_feature_runs_nothing_and_the_operator_learns_which() {
    let none = NamespaceSupport::None;
    for (kernel, word) in [
        (kernel_lacking(|kernel| kernel.landlock = 2), "Landlock 3"),
        (kernel_lacking(|kernel| kernel.seccomp = false), "seccomp"),
        (
            kernel_lacking(|kernel| (kernel.namespaces, kernel.landlock) = (none, 5)),
            "signals",
        ),
        (
            kernel_lacking(|kernel| (kernel.namespaces, kernel.children) = (none, false)),
            "leaves behind",
        ),
        (KernelFeatures::NONE, "Landlock 3"),
    ] {
        let bench = ShellBench::with_kernel(kernel, ShellOptions::default());
        let settled = bench.call(json!({ "command": "touch ran" })).await;
        assert!(!bench.workspace_dir().join("ran").exists());
        let error = settled.error.expect("rejected");
        assert_eq!(
            (settled.status, error.category),
            (Status::ExecutorError, ErrorCategory::Permission)
        );
        let operator = error.operator.expect("an operator message");
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
async fn best_effort_runs_with_what_is_available_and_names_what_is_missing() {
    let options = ShellOptions {
        sandbox: SandboxMode::BestEffort,
        ..ShellOptions::default()
    };
    let bench = ShellBench::with_kernel(kernel_lacking(|kernel| kernel.landlock = 2), options);
    let report = expect_report(&bench.call(json!({ "command": "echo ran" })).await);
    assert_eq!(report["output"], "ran\n");
    assert_eq!(report["sandbox"]["missing"], json!(["files"]));
    assert_eq!(report["sandbox"]["mode"], "best-effort");
}

#[tokio::test]
async fn a_private_network_needs_namespaces() {
    let kernel = kernel_lacking(|kernel| kernel.namespaces = NamespaceSupport::None);
    let options = ShellOptions {
        network: NetworkAccess::Loopback,
        ..ShellOptions::default()
    };
    let settled = ShellBench::with_kernel(kernel, options)
        .call(json!({ "command": "true" }))
        .await;
    assert!(
        settled
            .error
            .expect("rejected")
            .operator
            .expect("an operator message")
            .contains("private loopback network")
    );
}

#[test]
fn an_invalid_workspace_is_rejected() {
    let options = ShellOptions::default();
    for path in ["/", "/no/such/place", "/etc/passwd"] {
        let error = Sandbox::new(path, &options).expect_err("not a workspace");
        assert!(matches!(error, SandboxError::Workspace { .. }), "{error}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let options = ShellOptions {
        read: vec!["/no/such/place".into()],
        ..options
    };
    let error = Sandbox::new(dir.path(), &options).expect_err("the path does not exist");
    assert!(error.to_string().contains("/no/such/place"), "{error}");
}

#[tokio::test]
async fn a_missing_shell_is_named_to_the_operator_only() {
    let options = ShellOptions {
        shell: "/no/such/shell".into(),
        ..ShellOptions::default()
    };
    let settled = ShellBench::new(options)
        .call(json!({ "command": "true" }))
        .await;
    let error = settled.error.expect("not started");
    assert_eq!(error.model, "the command could not be started");
    assert!(
        error
            .operator
            .expect("an operator message")
            .contains("No such file")
    );
}

#[test]
fn an_unknown_option_is_rejected() {
    let read = |value| serde_json::from_value::<ShellOptions>(value);
    assert!(read(json!({ "sandbox": "best-effort", "network": "on" })).is_ok());
    assert!(read(json!({ "sandbox": "sometimes" })).is_err());
    assert!(read(json!({ "sandboxed": true })).is_err());
}

#[tokio::test]
async fn a_rehearsed_command_is_refused_in_the_same_words_and_never_runs() {
    let rehearse = async |bench: &ShellBench, arguments: Value| {
        let seed = CallSeed {
            rehearsal: true,
            ..bench.call_seed(arguments)
        };
        let outcome = bench.stack.run(Call::new(seed)).await;
        outcome.settled().cloned().expect("settled")
    };
    let bench = ShellBench::new(ShellOptions::default());
    let unsafe_bench = ShellBench::with_kernel(KernelFeatures::NONE, ShellOptions::default());
    for (bench, arguments) in [
        (&bench, json!({ "command": "touch ran", "cwd": "missing" })),
        (
            &bench,
            json!({ "command": "touch ran", "cwd": "../outside" }),
        ),
        (
            &bench,
            json!({ "command": "touch ran", "unlock_files": ["a.txt"] }),
        ),
        (&unsafe_bench, json!({ "command": "touch ran" })),
    ] {
        let rehearsed = rehearse(bench, arguments.clone()).await;
        let real = bench.call(arguments.clone()).await;
        assert_eq!(real.status, Status::ExecutorError, "{arguments}");
        assert_eq!(
            (rehearsed.status, rehearsed.error),
            (real.status, real.error)
        );
    }
    let fine = rehearse(&bench, json!({ "command": "touch ran" })).await;
    assert_eq!(fine.status, Status::DryRun);
    assert!(!bench.workspace_dir().join("ran").exists());
}
