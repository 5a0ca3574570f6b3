//! Nothing a command has started outlives the call, however it ends.

use std::{io::Read, time::Duration};

use serde_json::json;
use toolgate_core::{Call, Status};
use toolgate_tools::{Sandbox, SandboxMode, ShellOptions};

use crate::{
    host::{host, kill},
    support::{Bench, kernels, mark, report, running, until},
};

/// Forks twice and begins a session of its own, as daemons do.
fn daemon(mark: &str) -> String {
    format!(
        "(setsid sh -c 'trap \"\" TERM HUP; (sleep {mark} &) ; exec sleep {mark}' </dev/null >/dev/null 2>&1 &)"
    )
}

fn everywhere(options: ShellOptions) -> Vec<Bench> {
    let mut benches: Vec<_> = kernels()
        .into_iter()
        .map(|kernel| Bench::on(kernel, options.clone()))
        .collect();
    let free = ShellOptions {
        sandbox: SandboxMode::Off,
        ..options
    };
    benches.push(Bench::on(Sandbox::check().clone(), free));
    benches
}

#[tokio::test]
async fn a_daemon_ends_with_the_command_that_started_it() {
    for bench in everywhere(ShellOptions::default()) {
        let mark = mark();
        // Counts the commands that have the mark as a word of their own, which the search itself does not.
        let sleeping = format!(
            "grep -lzx '[6]{}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l",
            &mark[1..]
        );
        let wait = format!("while [ $({sleeping}) -lt 2 ]; do sleep 0.01; done");
        let report = bench
            .run(&format!("{}; {wait}; echo started", daemon(&mark)))
            .await;
        assert_eq!(
            (&report["output"], &report["left_running"]),
            (&json!("started\n"), &json!(2)),
            "{report}"
        );
        assert_eq!(running(&mark), 0);
    }
}

#[tokio::test]
async fn a_child_that_holds_the_pipes_does_not_hold_up_the_call() {
    for bench in everywhere(ShellOptions::default()) {
        let mark = mark();
        let report = bench.run(&format!("sleep {mark} & echo started")).await;
        assert_eq!(
            (&report["exit_code"], &report["left_running"]),
            (&json!(0), &json!(1)),
            "{report}"
        );
        assert_eq!(report["output"], "started\n");
        assert_eq!(running(&mark), 0);
    }
}

#[tokio::test]
async fn a_command_that_closes_its_pipes_is_still_waited_for() {
    for bench in everywhere(ShellOptions::default()) {
        let report = bench
            .run("exec >&- 2>&-; sleep 0.3; /bin/echo done > file; exit 5")
            .await;
        assert_eq!(report["exit_code"], 5);
        assert!(bench.work().join("file").exists());
    }
}

#[tokio::test]
async fn a_command_out_of_time_is_asked_first() {
    for bench in everywhere(ShellOptions {
        grace_ms: 20_000,
        ..ShellOptions::default()
    }) {
        let command = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
        let settled = bench
            .call(json!({ "command": command, "timeout_ms": 500 }))
            .await;
        let report = report(&settled);
        assert_eq!(report["timed_out"], true);
        let output = report["output"].as_str().expect("text");
        assert!(
            output.starts_with("ready\n") && output.ends_with("bye\n"),
            "{output}"
        );
        assert_eq!(settled.status, Status::Ok);
        assert!(
            settled
                .model_text()
                .contains("took longer than its time limit"),
            "{}",
            settled.model_text()
        );
    }
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_is_ended() {
    for bench in everywhere(ShellOptions {
        grace_ms: 100,
        ..ShellOptions::default()
    }) {
        let mark = mark();
        let command = format!(
            "trap '' TERM; {}; echo ready; while :; do sleep {mark}; done",
            daemon(&mark)
        );
        let settled = bench
            .call(json!({ "command": command, "timeout_ms": 500 }))
            .await;
        let report = report(&settled);
        assert_eq!(
            (&report["timed_out"], &report["exit_code"]),
            (&json!(true), &json!(null)),
            "{report}"
        );
        assert_eq!(report["output"], "ready\n");
        assert_eq!(running(&mark), 0);
    }
}

#[tokio::test]
async fn a_cancelled_command_is_gone_when_the_call_settles() {
    for bench in everywhere(ShellOptions {
        grace_ms: 100,
        ..ShellOptions::default()
    }) {
        let mark = mark();
        let command = format!(
            "trap '' TERM; {}; echo halfway; sleep {mark}",
            daemon(&mark)
        );
        let call = Call::new(bench.seed(json!({ "command": command })));
        let cancel = call.cancel.clone();
        let run = tokio::spawn(bench.stack.run(call));
        until(|| running(&mark) == 3).await;
        cancel.cancel();
        let settled = run
            .await
            .expect("no panic")
            .settled()
            .cloned()
            .expect("settled");
        assert_eq!(settled.status, Status::Cancelled);
        assert!(
            settled.model_text().contains("halfway"),
            "{}",
            settled.model_text()
        );
        assert_eq!(running(&mark), 0);
    }
}

#[tokio::test]
async fn a_command_whose_call_is_dropped_is_ended() {
    for bench in everywhere(ShellOptions::default()) {
        let mark = mark();
        let command = format!("trap '' TERM; {}; sleep {mark}", daemon(&mark));
        let run = tokio::spawn(
            bench
                .stack
                .run(Call::new(bench.seed(json!({ "command": command })))),
        );
        until(|| running(&mark) == 3).await;
        run.abort();
        until(|| running(&mark) == 0).await;
    }
}

#[tokio::test]
async fn a_command_does_not_outlive_our_own_process() {
    for namespaces in [true, false] {
        // It is killed before it can remove anything.
        let (mark, temp) = (mark(), tempfile::tempdir().expect("a directory"));
        let mut host = host(
            &format!("trap '' TERM; {}; sleep {mark}", daemon(&mark)),
            namespaces,
        );
        let mut host = host.env("TMPDIR", temp.path()).spawn().expect("run");
        until(|| running(&mark) == 3).await;
        kill(&mut host);
        until(|| running(&mark) == 0).await;
    }
}

#[tokio::test]
async fn a_command_cannot_kill_its_guard() {
    for kernel in kernels() {
        let bench = Bench::on(kernel, ShellOptions::default());
        let mark = mark();
        let command = format!(
            "kill -9 $PPID; kill -TERM $PPID; kill -9 1; {}; kill -9 $$",
            daemon(&mark)
        );
        let report = bench.run(&command).await;
        assert_eq!(
            (&report["exit_code"], &report["signal"]),
            (&json!(null), &json!(9)),
            "{report}"
        );
        assert_eq!(running(&mark), 0);
    }
}

#[tokio::test]
async fn signals_of_a_command_are_its_own() {
    for bench in everywhere(ShellOptions::default()) {
        let report = bench.run("kill -TERM $$").await;
        assert_eq!(
            (&report["exit_code"], &report["signal"]),
            (&json!(null), &json!(15)),
            "{report}"
        );
        let report = bench
            .run("yes | head -1; sh -c 'kill -INT $$'; echo $?")
            .await;
        assert_eq!(report["output"], "y\n130\n");
    }
}

#[tokio::test]
async fn keys_of_our_environment_stay_with_us() {
    let mut host = host("env", true);
    host.env("OPENAI_API_KEY", "CANARY-KEY")
        .env("SSH_AUTH_SOCK", "/run/CANARY")
        .env("LC_TIME", "C")
        .env("TZ", "UTC");
    let mut child = host.spawn().expect("run");
    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut text)
        .expect("text");
    assert!(child.wait().expect("ours").success());
    assert!(
        text.contains("LC_TIME=C") && text.contains("TZ=UTC") && text.contains("PATH="),
        "{text}"
    );
    assert!(
        !text.contains("CANARY") && !text.contains("HOST_COMMAND"),
        "{text}"
    );
}

#[tokio::test]
async fn many_commands_at_once_do_not_hold_each_other_up() {
    let bench = Bench::new(ShellOptions::default());
    let run =
        |n: u64| bench.call(json!({ "command": format!("echo {n}; sleep 0.0{n}; exit {n}") }));
    let all = tokio::time::timeout(
        Duration::from_secs(120),
        futures::future::join_all((0..10).map(run)),
    )
    .await;
    for (n, settled) in all.expect("in time").iter().enumerate() {
        let report = report(settled);
        assert_eq!(
            (&report["exit_code"], &report["output"]),
            (&json!(n), &json!(format!("{n}\n")))
        );
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_while_its_command_starts_leaves_nothing_running() {
    let bench = Bench::new(ShellOptions::default());
    let mark = mark();
    for patience in 0..40 {
        let call = Call::new(bench.seed(json!({ "command": format!("sleep {mark}") })));
        let run = tokio::spawn(bench.stack.run(call));
        tokio::time::sleep(Duration::from_micros(patience * 100)).await;
        run.abort();
    }
    // Each command has a thread that watches over it to its end.
    let is_watcher = |entry: std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("comm"))
            .is_ok_and(|name| name.trim() == "run_shell")
    };
    let watchers = || {
        std::fs::read_dir("/proc/self/task")
            .expect("linux")
            .flatten()
    };
    until(|| !watchers().any(is_watcher)).await;
    assert_eq!(running(&mark), 0);
}
