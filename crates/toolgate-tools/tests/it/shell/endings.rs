//! Tests that no process of a command outlives the call, however the call ends.

use std::{io::Read, time::Duration};

use serde_json::json;
use toolgate_core::{Call, HumanDuration, Status};
use toolgate_tools::{Sandbox, SandboxMode, ShellOptions};

use crate::shell::{
    host::{host_command, kill_and_wait},
    support::{ShellBench, count_running, expect_report, kernels, unique_mark, wait_until},
};

/// Returns a command that forks twice and starts its own session, as daemons do.
fn daemon_command(mark: &str) -> String {
    format!(
        "(setsid sh -c 'trap \"\" TERM HUP; (sleep {mark} &) ; exec sleep {mark}' </dev/null >/dev/null 2>&1 &)"
    )
}

fn benches_for_all_sandboxes(options: ShellOptions) -> Vec<ShellBench> {
    let mut benches: Vec<_> = kernels()
        .into_iter()
        .map(|kernel| ShellBench::with_kernel(kernel, options.clone()))
        .collect();
    let free = ShellOptions {
        sandbox: SandboxMode::Off,
        ..options
    };
    benches.push(ShellBench::with_kernel(Sandbox::check().clone(), free));
    benches
}

#[tokio::test]
async fn a_daemon_ends_with_the_command_that_started_it() {
    for bench in benches_for_all_sandboxes(ShellOptions::default()) {
        let mark = unique_mark();
        // Counts the commands that have the mark as a separate word; the search itself does not.
        let sleeping = format!(
            "grep -lzx '[6]{}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l",
            &mark[1..]
        );
        let wait = format!("while [ $({sleeping}) -lt 2 ]; do sleep 0.01; done");
        let report = bench
            .run(&format!("{}; {wait}; echo started", daemon_command(&mark)))
            .await;
        assert_eq!(
            (&report["output"], &report["left_running"]),
            (&json!("started\n"), &json!(2)),
            "{report}"
        );
        assert_eq!(count_running(&mark), 0);
    }
}

#[tokio::test]
async fn a_child_that_keeps_the_pipes_open_does_not_block_the_call() {
    for bench in benches_for_all_sandboxes(ShellOptions::default()) {
        let mark = unique_mark();
        let report = bench.run(&format!("sleep {mark} & echo started")).await;
        assert_eq!(
            (&report["exit_code"], &report["left_running"]),
            (&json!(0), &json!(1)),
            "{report}"
        );
        assert_eq!(report["output"], "started\n");
        assert_eq!(count_running(&mark), 0);
    }
}

#[tokio::test]
async fn a_command_that_closes_its_pipes_is_still_waited_for() {
    for bench in benches_for_all_sandboxes(ShellOptions::default()) {
        let report = bench
            .run("exec >&- 2>&-; sleep 0.3; /bin/echo done > file; exit 5")
            .await;
        assert_eq!(report["exit_code"], 5);
        assert!(bench.workspace_dir().join("file").exists());
    }
}

#[tokio::test]
async fn a_command_that_times_out_is_asked_to_terminate_first() {
    for bench in benches_for_all_sandboxes(ShellOptions {
        grace: HumanDuration::from_secs(20),
        ..ShellOptions::default()
    }) {
        let command = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
        let settled = bench
            .call(json!({ "command": command, "timeout_ms": 500 }))
            .await;
        let report = expect_report(&settled);
        assert_eq!(report["timed_out"], true);
        let output = report["output"].as_str().expect("text");
        assert!(
            output.starts_with("ready\n") && output.ends_with("bye\n"),
            "{output}"
        );
        assert_eq!(settled.status, Status::Ok);
        assert!(
            settled.model_text().contains("the time limit was reached"),
            "{}",
            settled.model_text()
        );
    }
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_is_killed() {
    for bench in benches_for_all_sandboxes(ShellOptions {
        grace: HumanDuration::from_millis(100),
        ..ShellOptions::default()
    }) {
        let mark = unique_mark();
        let command = format!(
            "trap '' TERM; {}; echo ready; while :; do sleep {mark}; done",
            daemon_command(&mark)
        );
        let settled = bench
            .call(json!({ "command": command, "timeout_ms": 500 }))
            .await;
        let report = expect_report(&settled);
        assert_eq!(
            (&report["timed_out"], &report["exit_code"]),
            (&json!(true), &json!(null)),
            "{report}"
        );
        assert_eq!(report["output"], "ready\n");
        assert_eq!(count_running(&mark), 0);
    }
}

#[tokio::test]
async fn a_cancelled_command_is_gone_when_the_call_settles() {
    for bench in benches_for_all_sandboxes(ShellOptions {
        grace: HumanDuration::from_millis(100),
        ..ShellOptions::default()
    }) {
        let mark = unique_mark();
        let command = format!(
            "trap '' TERM; {}; echo halfway; sleep {mark}",
            daemon_command(&mark)
        );
        let call = Call::new(bench.call_seed(json!({ "command": command })));
        let cancel = call.cancel.clone();
        let run = tokio::spawn(bench.stack.run(call));
        wait_until(|| count_running(&mark) == 3).await;
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
        assert_eq!(count_running(&mark), 0);
    }
}

#[tokio::test]
async fn a_command_whose_call_is_dropped_is_killed() {
    for bench in benches_for_all_sandboxes(ShellOptions::default()) {
        let mark = unique_mark();
        let command = format!("trap '' TERM; {}; sleep {mark}", daemon_command(&mark));
        let run = tokio::spawn(
            bench
                .stack
                .run(Call::new(bench.call_seed(json!({ "command": command })))),
        );
        wait_until(|| count_running(&mark) == 3).await;
        run.abort();
        wait_until(|| count_running(&mark) == 0).await;
    }
}

#[tokio::test]
async fn a_command_does_not_outlive_our_own_process() {
    for namespaces in [true, false] {
        // It is killed before it can delete its temporary directory.
        let mark = unique_mark();
        let temp = tempfile::tempdir().expect("a directory");
        let mut host = host_command(
            &format!("trap '' TERM; {}; sleep {mark}", daemon_command(&mark)),
            namespaces,
        );
        let mut host = host.env("TMPDIR", temp.path()).spawn().expect("run");
        wait_until(|| count_running(&mark) == 3).await;
        kill_and_wait(&mut host);
        wait_until(|| count_running(&mark) == 0).await;
    }
}

#[tokio::test]
async fn a_command_cannot_kill_its_guard() {
    for kernel in kernels() {
        let bench = ShellBench::with_kernel(kernel, ShellOptions::default());
        let mark = unique_mark();
        let command = format!(
            "kill -9 $PPID; kill -TERM $PPID; kill -9 1; {}; kill -9 $$",
            daemon_command(&mark)
        );
        let report = bench.run(&command).await;
        assert_eq!(
            (&report["exit_code"], &report["signal"]),
            (&json!(null), &json!(9)),
            "{report}"
        );
        assert_eq!(count_running(&mark), 0);
    }
}

#[tokio::test]
async fn a_command_can_signal_itself() {
    for bench in benches_for_all_sandboxes(ShellOptions::default()) {
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
async fn keys_of_our_environment_are_not_passed_on() {
    let mut host = host_command("env", true);
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
    assert!(child.wait().expect("our child").success());
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
async fn many_commands_at_once_do_not_block_each_other() {
    let bench = ShellBench::new(ShellOptions::default());
    let run =
        |n: u64| bench.call(json!({ "command": format!("echo {n}; sleep 0.0{n}; exit {n}") }));
    let all = tokio::time::timeout(
        Duration::from_secs(120),
        futures::future::join_all((0..10).map(run)),
    )
    .await;
    for (n, settled) in all.expect("in time").iter().enumerate() {
        let report = expect_report(settled);
        assert_eq!(
            (&report["exit_code"], &report["output"]),
            (&json!(n), &json!(format!("{n}\n")))
        );
    }
}

#[tokio::test]
async fn a_call_dropped_while_its_command_starts_leaves_no_process() {
    let bench = ShellBench::new(ShellOptions::default());
    let mark = unique_mark();
    for patience in 0..40 {
        let call = Call::new(bench.call_seed(json!({ "command": format!("sleep {mark}") })));
        let run = tokio::spawn(bench.stack.run(call));
        tokio::time::sleep(Duration::from_micros(patience * 100)).await;
        run.abort();
    }
    // Each command has a thread that waits for its end.
    let is_watcher = |entry: std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("comm"))
            .is_ok_and(|name| name.trim() == "run_shell")
    };
    let watchers = || {
        std::fs::read_dir("/proc/self/task")
            .expect("linux")
            .flatten()
    };
    wait_until(|| !watchers().any(is_watcher)).await;
    assert_eq!(count_running(&mark), 0);
}
