//! Whole turns with a shell, through the default stack: interrupted and timed out, with no process
//! left behind.
#![cfg(target_os = "linux")]

use std::time::Duration;

use serde_json::{Value, json};
use toolgate::{
    Config, Resources, View, default_stack,
    prelude::*,
    session::{Dispatcher, TurnRequest, TurnRun},
    stack::ToolRequest,
    value::HumanDuration,
};
use toolgate_testkit::LifecycleChecker;
use toolgate_tools::{RunShell, ShellOptions};

/// A dispatcher over a shell, in a workspace.
struct ShellWorld {
    _dir: tempfile::TempDir,
    dispatcher: Dispatcher,
    view: View,
}

impl ShellWorld {
    async fn open(config: &str, options: ShellOptions) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let registry = Registry::new();
        registry
            .register(RunShell::new(dir.path(), options).expect("a workspace"))
            .expect("free");
        // The test has no approver.
        let rule =
            "[[layers.policy.rules]]\nname = \"shell\"\neffect = \"allow\"\ntool = [\"run_shell\"]";
        let config = format!("{config}\n{rule}\n");
        let layers = Config::parse(&config)
            .and_then(|config| default_stack(&config, &Resources::new()))
            .expect("valid");
        let stack = Stack::over(registry.clone())
            .any_layers(layers)
            .build()
            .expect("in order");
        let view = View::for_stack(&registry, &stack).expect("additive");
        let dispatcher = Dispatcher::builder(stack).build().await.expect("opens");
        Self {
            _dir: dir,
            dispatcher,
            view,
        }
    }

    async fn open_turn(&self, arguments: Value) -> TurnRun {
        let request = ToolRequest::from_json("call_1", "run_shell", arguments);
        self.dispatcher
            .open_turn(TurnRequest::new(self.view.clone(), vec![request]))
            .await
            .expect("opens")
    }

    /// Checks that the events of the session keep the lifecycle rules.
    async fn check_events(&self) {
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

/// Returns a command with a shell, a child and a daemon that ignore SIGTERM, and the unique
/// duration that marks them.
fn stubborn_command(name: &str) -> (String, String) {
    let mark = format!("600.{:07}{name}", std::process::id());
    let daemon =
        format!("(setsid sh -c 'trap \"\" TERM; exec sleep {mark}' </dev/null >/dev/null 2>&1 &)");
    (
        format!("trap '' TERM; {daemon}; sleep {mark} & echo working; sleep {mark}"),
        mark,
    )
}

fn count_running(mark: &str) -> usize {
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

async fn wait_until(test: impl Fn() -> bool) {
    while !test() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_interrupted_shell_is_cancelled_and_nothing_is_left_running() {
    let desk = ShellWorld::open(
        "",
        ShellOptions {
            grace: HumanDuration::from_millis(50),
            ..ShellOptions::default()
        },
    )
    .await;
    let (command, mark) = stubborn_command("1");
    let turn = desk.open_turn(json!({ "command": command })).await;
    let handle = turn.handle();
    let run = tokio::spawn(turn.run());
    wait_until(|| count_running(&mark) == 3).await;
    assert!(handle.interrupt("enough").await.expect("recorded"));
    let report = run.await.expect("no panic").expect("runs");
    assert_eq!(report.results[0].status(), Some(Status::Cancelled));
    assert_eq!(count_running(&mark), 0);
    desk.check_events().await;
}

#[tokio::test]
async fn a_shell_that_times_out_returns_its_output_before_the_timeout_layer_acts() {
    let config = "[layers.timeout]\nper_tool = { run_shell = '2s' }";
    let desk = ShellWorld::open(
        config,
        ShellOptions {
            grace: HumanDuration::from_millis(50),
            ..ShellOptions::default()
        },
    )
    .await;
    let (command, mark) = stubborn_command("2");
    let report = desk
        .open_turn(json!({ "command": command }))
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
    assert_eq!(count_running(&mark), 0);
    desk.check_events().await;
}

#[tokio::test]
async fn a_shell_that_does_not_exit_in_time_is_stopped_by_the_timeout_layer() {
    let config = "[layers.timeout]\nper_tool = { run_shell = '1s' }\ngrace = \"1s\"";
    let desk = ShellWorld::open(
        config,
        ShellOptions {
            grace: HumanDuration::from_secs(600),
            ..ShellOptions::default()
        },
    )
    .await;
    let (command, mark) = stubborn_command("3");
    let report = desk
        .open_turn(json!({ "command": command }))
        .await
        .run()
        .await
        .expect("runs");
    assert_eq!(
        report.results[0].status(),
        Some(Status::Timeout),
        "all its processes are known to be dead"
    );
    assert_eq!(count_running(&mark), 0);
    desk.check_events().await;
}
