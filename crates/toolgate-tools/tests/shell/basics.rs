//! What a model gets back from an ordinary command.

use std::sync::{Arc, Mutex};

use serde_json::json;
use toolgate_core::{
    Annotations, Call, CallSeed, ErrorCategory, Kind, LogLevel, Probe, Progress, Resource,
    SideEffect, Starting, Tool,
};
use toolgate_tools::{Network, RunShell, SandboxMode, ShellOptions};

use crate::support::{Bench, kernels, report};

#[tokio::test]
async fn a_command_is_run_in_the_workspace_and_its_output_comes_in_order() {
    for kernel in kernels() {
        let bench = Bench::on(kernel, ShellOptions::default());
        let report = bench
            .run("pwd; echo err >&2; echo $((6*7)); echo made > file")
            .await;
        assert_eq!(
            report["output"],
            format!("{}\nerr\n42\n", bench.work().display()),
            "{report}"
        );
        assert_eq!(report["exit_code"], 0);
        assert_eq!(
            std::fs::read_to_string(bench.work().join("file")).expect("written"),
            "made\n"
        );
    }
}

#[tokio::test]
async fn a_command_that_fails_is_a_result_with_its_exit_code() {
    let bench = Bench::new(ShellOptions::default());
    let settled = bench.call(json!({ "command": "echo no; exit 3" })).await;
    assert!(settled.error.is_none());
    assert_eq!(settled.value.as_value()["exit_code"], 3);
    assert_eq!(&*settled.model_text(), "no\n[exit code 3]");
}

#[tokio::test]
async fn nobody_answers_questions_but_what_was_given_is_read() {
    let bench = Bench::new(ShellOptions::default());
    assert_eq!(bench.run("cat; echo end").await["output"], "end\n");
    let given = bench
        .call(json!({ "command": "cat; echo end", "stdin": "hello\n" }))
        .await;
    assert_eq!(report(&given)["output"], "hello\nend\n");
    let long = "x".repeat(1 << 20);
    let unread = bench
        .call(json!({ "command": "head -c 3", "stdin": long }))
        .await;
    assert_eq!(report(&unread)["output"], "xxx");
}

#[tokio::test]
async fn output_that_is_no_text_is_said() {
    let bench = Bench::new(ShellOptions::default());
    let settled = bench.call(json!({ "command": "printf 'a\\377b'" })).await;
    assert_eq!(report(&settled)["output"], "a\u{fffd}b");
    assert!(
        settled.model_text().contains("not UTF-8"),
        "{}",
        settled.model_text()
    );
}

#[tokio::test]
async fn the_directory_is_below_the_workspace() {
    let bench = Bench::new(ShellOptions::default());
    std::fs::create_dir(bench.work().join("sub")).expect("made");
    std::fs::write(bench.work().join("file"), "").expect("made");
    std::os::unix::fs::symlink(bench.outside(), bench.work().join("link")).expect("made");
    let inside = bench.call(json!({ "command": "pwd", "cwd": "sub" })).await;
    assert_eq!(
        report(&inside)["output"],
        format!("{}\n", bench.work().join("sub").display())
    );
    for cwd in ["..", "link", "/etc", "sub/../..", "nowhere", "file"] {
        let error = bench
            .call(json!({ "command": "pwd", "cwd": cwd }))
            .await
            .error
            .expect("refused");
        assert_eq!(error.category, ErrorCategory::InvalidInput, "{cwd}");
        assert!(error.model.contains(cwd), "{}", error.model);
    }
}

#[tokio::test]
async fn a_home_and_a_temporary_directory_of_its_own_are_writable() {
    for kernel in kernels() {
        let bench = Bench::on(kernel, ShellOptions::default());
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
    let bench = Bench::new(ShellOptions::default());
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
async fn a_loopback_of_its_own_carries_tests_that_listen() {
    let bench = Bench::new(ShellOptions {
        network: Network::Loopback,
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

/// Remembers what was reported.
#[derive(Default)]
struct Seen(Mutex<Vec<Progress>>);

impl Probe for Seen {
    fn starting(&self, _: &Call, _: bool) -> Starting {
        Starting::Now(Ok(()))
    }
    fn progress(&self, _: &Call, progress: Progress) {
        self.0.lock().expect("whole").push(progress);
    }
    fn log(&self, _: &Call, _: LogLevel, _: &str) {}
}

#[tokio::test]
async fn the_last_line_is_shown_while_it_runs_but_not_every_one() {
    let bench = Bench::new(ShellOptions::default());
    let seen = Arc::new(Seen::default());
    let seed =
        bench.seed(json!({ "command": "echo first line; seq 100000; sleep 0.3; printf 'last \\033[1mline\\n'" }));
    let env = seed.env.with_probe(seen.clone());
    bench.stack.run(Call::new(CallSeed { env, ..seed })).await;
    let seen = seen.0.lock().expect("whole");
    assert_eq!(
        seen.last()
            .and_then(|progress| progress.message.clone())
            .as_deref(),
        Some("last [1mline")
    );
    assert!((2..1000).contains(&seen.len()), "{}", seen.len());
}

#[test]
fn it_is_known_for_what_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let annotations = |options: ShellOptions| -> Annotations {
        RunShell::new(dir.path(), options)
            .expect("a workspace")
            .spec()
            .annotations
    };
    let usual = annotations(ShellOptions::default());
    assert_eq!(
        (usual.kind, usual.effect()),
        (Some(Kind::Execute), SideEffect::ProcessExec)
    );
    assert!(usual.may_write() && !usual.may_repeat() && usual.long_running.is_some());
    assert!(
        usual.resources.iter().any(Resource::is_workspace),
        "it may touch any file"
    );
    for open in [
        ShellOptions {
            network: Network::On,
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
        assert_eq!(annotations(open).effect(), SideEffect::Network);
    }
}
