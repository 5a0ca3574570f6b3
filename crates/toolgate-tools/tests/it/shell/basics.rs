//! Tests of the result of ordinary commands.

use std::sync::{Arc, Mutex};

use serde_json::json;
use toolgate_core::{
    Annotations, Call, CallSeed, ErrorCategory, LogLevel, Probe, Progress, Resource, SideEffect,
    StartPermit, Tool, ToolKind,
};
use toolgate_tools::{NetworkAccess, RunShell, SandboxMode, ShellOptions};

use crate::shell::support::{ShellBench, expect_report, kernels};

#[tokio::test]
async fn a_command_runs_in_the_workspace_and_its_output_is_in_order() {
    for kernel in kernels() {
        let bench = ShellBench::with_kernel(kernel, ShellOptions::default());
        let report = bench
            .run("pwd; echo err >&2; echo $((6*7)); echo made > file")
            .await;
        assert_eq!(
            report["output"],
            format!("{}\nerr\n42\n", bench.workspace_dir().display()),
            "{report}"
        );
        assert_eq!(report["exit_code"], 0);
        assert_eq!(
            std::fs::read_to_string(bench.workspace_dir().join("file")).expect("written"),
            "made\n"
        );
    }
}

#[tokio::test]
async fn a_command_that_fails_is_a_result_with_its_exit_code() {
    let bench = ShellBench::new(ShellOptions::default());
    let settled = bench.call(json!({ "command": "echo no; exit 3" })).await;
    assert!(settled.error.is_none());
    assert_eq!(settled.value.as_value()["exit_code"], 3);
    assert_eq!(&*settled.model_text(), "no\n[exit code 3]");
}

#[tokio::test]
async fn standard_input_is_empty_unless_given() {
    let bench = ShellBench::new(ShellOptions::default());
    assert_eq!(bench.run("cat; echo end").await["output"], "end\n");
    let given = bench
        .call(json!({ "command": "cat; echo end", "stdin": "hello\n" }))
        .await;
    assert_eq!(expect_report(&given)["output"], "hello\nend\n");
    let long = "x".repeat(1 << 20);
    let unread = bench
        .call(json!({ "command": "head -c 3", "stdin": long }))
        .await;
    assert_eq!(expect_report(&unread)["output"], "xxx");
}

#[tokio::test]
async fn output_that_is_not_utf8_is_reported() {
    let bench = ShellBench::new(ShellOptions::default());
    let settled = bench.call(json!({ "command": "printf 'a\\377b'" })).await;
    assert_eq!(expect_report(&settled)["output"], "a\u{fffd}b");
    assert!(
        settled.model_text().contains("not UTF-8"),
        "{}",
        settled.model_text()
    );
}

#[tokio::test]
async fn the_directory_is_below_the_workspace() {
    let bench = ShellBench::new(ShellOptions::default());
    std::fs::create_dir(bench.workspace_dir().join("sub")).expect("created");
    std::fs::write(bench.workspace_dir().join("file"), "").expect("created");
    std::os::unix::fs::symlink(bench.outside_dir(), bench.workspace_dir().join("link"))
        .expect("created");
    let inside = bench.call(json!({ "command": "pwd", "cwd": "sub" })).await;
    assert_eq!(
        expect_report(&inside)["output"],
        format!("{}\n", bench.workspace_dir().join("sub").display())
    );
    for cwd in ["..", "link", "/etc", "sub/../..", "nowhere", "file"] {
        let error = bench
            .call(json!({ "command": "pwd", "cwd": cwd }))
            .await
            .error
            .expect("rejected");
        assert_eq!(error.category, ErrorCategory::InvalidInput, "{cwd}");
        assert!(error.model.contains(cwd), "{}", error.model);
    }
}

#[tokio::test]
async fn a_private_home_and_temporary_directory_are_writable() {
    for kernel in kernels() {
        let bench = ShellBench::with_kernel(kernel, ShellOptions::default());
        let report = bench
            .run("echo a > $HOME/x && echo b > $TMPDIR/y && cat $HOME/x $TMPDIR/y; mktemp")
            .await;
        assert!(
            report["output"]
                .as_str()
                .expect("text")
                .starts_with("a\nb\n"),
            "{report}"
        );
        assert_eq!(report["exit_code"], 0, "{report}");
    }
}

#[tokio::test]
async fn ordinary_work_is_possible() {
    let bench = ShellBench::new(ShellOptions::default());
    let work = "mkdir -p a/b && echo x > a/b/c && chmod 755 a/b/c && ln -s c a/b/d && mv a/b/c a/e && rm -r a && \
                sh -c 'exit 0' && (echo piped | tee t | cat) && cp t u && touch -d 2001-01-01 u && cat /proc/self/comm";
    let report = bench.run(work).await;
    assert_eq!(
        (&report["exit_code"], &report["output"]),
        (&json!(0), &json!("piped\ncat\n")),
        "{report}"
    );
    let git = bench.run(
        "git init -q . && git add t && git -c user.name=a -c user.email=b commit -qm c && git log --oneline | wc -l",
    );
    if std::path::Path::new("/usr/bin/git").exists() {
        let report = git.await;
        assert_eq!(report["output"], "1\n", "{report}");
    }
}

#[tokio::test]
async fn a_private_loopback_network_works_for_tests_that_listen() {
    let bench = ShellBench::new(ShellOptions {
        network: NetworkAccess::Loopback,
        ..ShellOptions::default()
    });
    if !std::path::Path::new("/usr/bin/perl").exists() {
        return;
    }
    let perl = r#"perl -MIO::Socket::INET -e '
        $l = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die "listen: $!";
        $c = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $l->sockport) or die "connect: $!";
        $s = $l->accept; print $s "hello\n"; close $s; print <$c>;'"#;
    assert_eq!(bench.run(perl).await["output"], "hello\n");
}

/// Records the reported progress.
#[derive(Default)]
struct RecordedProgress(Mutex<Vec<Progress>>);

impl Probe for RecordedProgress {
    fn before_start(&self, _: &Call, _: bool) -> StartPermit {
        StartPermit::Now(Ok(()))
    }
    fn report_progress(&self, _: &Call, progress: Progress) {
        self.0.lock().expect("not poisoned").push(progress);
    }
    fn write_log(&self, _: &Call, _: LogLevel, _: &str) {}
}

#[tokio::test]
async fn the_last_line_is_reported_as_progress_at_intervals() {
    let bench = ShellBench::new(ShellOptions::default());
    let seen = Arc::new(RecordedProgress::default());
    let seed =
        bench.call_seed(json!({ "command": "echo first line; seq 100000; sleep 0.3; printf 'last \\033[1mline\\n'" }));
    let env = seed.env.with_probe(seen.clone());
    bench.stack.run(Call::new(CallSeed { env, ..seed })).await;
    let seen = seen.0.lock().expect("not poisoned");
    assert_eq!(
        seen.last()
            .and_then(|progress| progress.message.clone())
            .as_deref(),
        Some("last [1mline")
    );
    assert!((2..1000).contains(&seen.len()), "{}", seen.len());
}

#[test]
fn the_annotations_follow_the_options() {
    let dir = tempfile::tempdir().expect("a directory");
    let annotations = |options: ShellOptions| -> Annotations {
        RunShell::new(dir.path(), options)
            .expect("a workspace")
            .spec()
            .annotations
    };
    let usual = annotations(ShellOptions::default());
    assert_eq!(
        (usual.kind, usual.strongest_effect()),
        (Some(ToolKind::Execute), SideEffect::ProcessExec)
    );
    assert!(usual.may_write() && !usual.may_repeat() && usual.long_running.is_some());
    assert!(
        usual.resources.iter().any(Resource::is_workspace),
        "it may touch any file"
    );
    for open in [
        ShellOptions {
            network: NetworkAccess::On,
            ..ShellOptions::default()
        },
        ShellOptions {
            sandbox: SandboxMode::Off,
            ..ShellOptions::default()
        },
        ShellOptions {
            sandbox: SandboxMode::BestEffort,
            ..ShellOptions::default()
        },
    ] {
        assert_eq!(annotations(open).strongest_effect(), SideEffect::Network);
    }
}
