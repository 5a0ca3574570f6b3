//! Whole turns with a shell, through the default stack: stopped from outside and out of time, with nothing left behind.
#![cfg(target_os = "linux")]

use std::time::Duration;

use serde_json::{Value, json};
use toolgate::{Config, Parts, TurnRun, default_stack, prelude::*};
use toolgate_testkit::LifecycleChecker;
use toolgate_tools::{RunShell, ShellOptions};

/// A dispatcher over a shell, in a workspace.
struct Desk {
    _dir: tempfile::TempDir,
    dispatcher: Dispatcher,
    view: View,
}

impl Desk {
    async fn open(config: &str, options: ShellOptions) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::new();
        registry
            .register(RunShell::new(dir.path(), options).expect("a workspace"))
            .expect("free");
        // Nobody is there to be asked.
        let rule =
            "[[layers.policy.rules]]\nname = \"shell\"\neffect = \"allow\"\ntool = [\"run_shell\"]";
        let config = format!("{config}\n{rule}\n");
        let layers = Config::parse(&config)
            .and_then(|config| default_stack(&config, &Parts::new()))
            .expect("valid");
        let stack = Stack::over(registry.clone())
            .any_layers(layers)
            .build()
            .expect("in order");
        let view = View::under(&registry, &stack).expect("additive");
        let dispatcher = Dispatcher::builder(stack).build().await.expect("opens");
        Self {
            _dir: dir,
            dispatcher,
            view,
        }
    }

    async fn turn(&self, arguments: Value) -> TurnRun {
        let request = ToolRequest::json("call_1", "run_shell", arguments);
        self.dispatcher
            .open(TurnRequest::new(self.view.clone(), vec![request]))
            .await
            .expect("opens")
    }

    /// Every event of the session, which has to keep the rules.
    async fn check(&self) {
        let mut checker = LifecycleChecker::new();
        for event in self
            .dispatcher
            .store()
            .events(self.dispatcher.session(), 0, 1000)
            .await
            .expect("reads")
        {
            checker.check(&event).expect("legal");
        }
        assert!(checker.finish().expect("complete").open.is_empty());
    }
}

/// A shell, a child and a daemon, none of which heeds SIGTERM, all sleeping for as long as nobody else does.
fn stubborn(name: &str) -> (String, String) {
    let mark = format!("600.{:07}{name}", std::process::id());
    let daemon =
        format!("(setsid sh -c 'trap \"\" TERM; exec sleep {mark}' </dev/null >/dev/null 2>&1 &)");
    (
        format!("trap '' TERM; {daemon}; sleep {mark} & echo working; sleep {mark}"),
        mark,
    )
}

fn running(mark: &str) -> usize {
    let alive = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let status = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let zombie = status.rsplit(") ").next()?.starts_with('Z');
        (String::from_utf8_lossy(&line)
            .split('\0')
            .any(|word| word == mark)
            && !zombie)
            .then_some(())
    };
    std::fs::read_dir("/proc")
        .expect("linux")
        .flatten()
        .filter_map(alive)
        .count()
}

async fn until(test: impl Fn() -> bool) {
    while !test() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_interrupted_shell_is_cancelled_and_nothing_is_left_running() {
    let desk = Desk::open(
        "",
        ShellOptions {
            grace_ms: 50,
            ..ShellOptions::default()
        },
    )
    .await;
    let (command, mark) = stubborn("1");
    let turn = desk.turn(json!({ "command": command })).await;
    let handle = turn.handle();
    let run = tokio::spawn(turn.run());
    until(|| running(&mark) == 3).await;
    assert!(handle.interrupt("enough").await.expect("recorded"));
    let report = run.await.expect("no panic").expect("runs");
    assert_eq!(report.results[0].status(), Some(Status::Cancelled));
    assert_eq!(running(&mark), 0);
    desk.check().await;
}

#[tokio::test]
async fn a_shell_out_of_time_tells_what_it_had_printed_before_the_layer_gives_up() {
    let config = "[layers.timeout]\nper_tool = { run_shell = 2000 }";
    let desk = Desk::open(
        config,
        ShellOptions {
            grace_ms: 50,
            ..ShellOptions::default()
        },
    )
    .await;
    let (command, mark) = stubborn("2");
    let report = desk
        .turn(json!({ "command": command }))
        .await
        .run()
        .await
        .expect("runs");
    let settled = report.results[0].outcome.clone().expect("settled");
    let value = settled.value.as_value();
    assert_eq!(
        (settled.status, &value["timed_out"], &value["output"]),
        (Status::Ok, &json!(true), &json!("working\n"))
    );
    assert_eq!(running(&mark), 0);
    desk.check().await;
}

#[tokio::test]
async fn a_shell_that_takes_too_long_to_end_is_ended_by_the_layer_and_the_status_is_honest() {
    let config = "[layers.timeout]\nper_tool = { run_shell = 1000 }\ngrace = \"1s\"";
    let desk = Desk::open(
        config,
        ShellOptions {
            grace_ms: 600_000,
            ..ShellOptions::default()
        },
    )
    .await;
    let (command, mark) = stubborn("3");
    let report = desk
        .turn(json!({ "command": command }))
        .await
        .run()
        .await
        .expect("runs");
    assert_eq!(
        report.results[0].status(),
        Some(Status::Timeout),
        "all it had started is known to be dead"
    );
    assert_eq!(running(&mark), 0);
    desk.check().await;
}
