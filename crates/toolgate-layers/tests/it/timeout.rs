//! The steps that stop a call, tested with tools that resist: they ignore cancellation, block the
//! thread, or start processes that ignore signals and have children.

use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::json;
use toolgate_core::{
    Annotations, Call, CallEnv, CallSeed, Clock, Context, ErrorCategory, MemoryStore, NoProbe,
    Outcome, Registry, SettledOutcome, Stack, Status, StopConfirmation, StoreHandle, Timestamp,
    ToolError, tool_fn,
};
use toolgate_layers::Timeout;
use toolgate_testkit::{TestClock, env_at, seed_for};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

const LIMIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);

fn short_timeout() -> Timeout {
    Timeout::after(LIMIT).grace(GRACE)
}

/// Returns a stack over one tool, and a call to it on the test's clock.
fn stack_of<F, Fut>(
    annotations: Annotations,
    layer: Timeout,
    tool: F,
    clock: &TestClock,
) -> (Stack, Call)
where
    F: Fn(Nothing, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let registry = Registry::new();
    registry
        .register(tool_fn("work", "Works.", tool).with_annotations(annotations))
        .expect("free");
    let view = toolgate_testkit::plain_view(&registry);
    let stack = Stack::over(registry)
        .layer(layer)
        .build()
        .expect("in order");
    let call = Call::new(CallSeed {
        env: env_at(clock),
        ..seed_for(&view, "work", json!({}))
    });
    (stack, call)
}

/// Runs a call in the background and advances the clock whenever every task sleeps.
async fn run_through(
    clock: &TestClock,
    stack: &Stack,
    call: Call,
    steps: &[Duration],
) -> SettledOutcome {
    let run = tokio::spawn(stack.run(call));
    for step in steps {
        while clock.sleeper_count() == 0 && !run.is_finished() {
            tokio::task::yield_now().await;
        }
        clock.advance(*step);
        // Lets woken tasks sleep again before the next step.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    run.await
        .expect("no panic")
        .settled()
        .cloned()
        .expect("settled")
}

fn writing_annotations() -> Annotations {
    Annotations::default()
}

#[tokio::test]
async fn a_tool_that_reacts_to_cancellation_settles_as_timeout_even_if_it_writes() {
    let clock = TestClock::new();
    let tool = async |_: Nothing, cx: Context| -> Result<String, ToolError> {
        cx.cancelled().await;
        Err(ToolError::cancelled())
    };
    let (stack, call) = stack_of(writing_annotations(), short_timeout(), tool, &clock);
    let settled = run_through(&clock, &stack, call, &[LIMIT]).await;
    assert_eq!(settled.status, Status::Timeout);
    assert!(
        settled.model_text().contains("30s"),
        "{}",
        settled.model_text()
    );
}

#[tokio::test]
async fn a_tool_that_ignores_cancellation_is_dropped_after_the_grace_and_its_outcome_is_unknown() {
    for (annotations, steps, status) in [
        (
            writing_annotations(),
            &[LIMIT, GRACE][..],
            Status::OutcomeUnknown,
        ),
        // What only reads is not waited for.
        (Annotations::read_only(), &[LIMIT], Status::Timeout),
    ] {
        let clock = TestClock::new();
        let dropped = Arc::new(AtomicBool::new(false));
        let seen = dropped.clone();
        let tool = move |_: Nothing, _: Context| {
            let guard = SetOnDrop(seen.clone());
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        };
        let (stack, call) = stack_of(annotations, short_timeout(), tool, &clock);
        let settled = run_through(&clock, &stack, call, steps).await;
        assert_eq!(settled.status, status);
        assert!(dropped.load(Ordering::SeqCst), "the future is gone");
        assert_eq!(clock.sleeper_count(), 0);
    }
}

#[tokio::test]
async fn a_tool_that_only_reads_settles_at_the_deadline_and_its_processes_are_stopped() {
    let clock = TestClock::new();
    let stopped = Arc::new(AtomicBool::new(false));
    let seen = stopped.clone();
    let tool = move |_: Nothing, cx: Context| {
        let seen = seen.clone();
        async move {
            cx.on_stop(move || {
                seen.store(true, Ordering::SeqCst);
                StopConfirmation::Confirmed
            });
            std::future::pending().await
        }
    };
    let (stack, call) = stack_of(Annotations::read_only(), short_timeout(), tool, &clock);
    let settled = run_through(&clock, &stack, call, &[LIMIT]).await;
    assert_eq!(settled.status, Status::Timeout);
    assert_eq!(settled.duration(), LIMIT, "not later");
    wait_until(|| stopped.load(Ordering::SeqCst)).await;
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_result_that_arrives_during_the_grace_counts() {
    let clock = TestClock::new();
    let tool = async |_: Nothing, cx: Context| {
        cx.cancelled().await;
        Ok("just in time".to_owned())
    };
    let (stack, call) = stack_of(writing_annotations(), short_timeout(), tool, &clock);
    let settled = run_through(&clock, &stack, call, &[LIMIT]).await;
    assert_eq!(
        (settled.status, &*settled.model_text()),
        (Status::Ok, "just in time")
    );
    assert_eq!(
        settled.notes.fields().expect("noted").metadata["timeout"]["finished_in_grace"],
        true
    );
}

/// A real-time clock, for tests in which something really blocks.
struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970");
        Timestamp::from_micros(i64::try_from(since.as_micros()).expect("before the year 290000"))
    }
    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(span))
    }
}

fn real_time_call(mut seed: CallSeed) -> Call {
    seed.env = CallEnv::new(
        Arc::new(RealClock),
        StoreHandle::new(MemoryStore::new()),
        Arc::new(NoProbe),
    );
    Call::new(seed)
}

fn quick_timeout() -> Timeout {
    Timeout::after(Duration::from_millis(50)).grace(Duration::from_millis(50))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_stuck_in_blocking_code_does_not_block_its_caller() {
    let free = Arc::new(AtomicBool::new(false));
    let seen = free.clone();
    let registry = Registry::new();
    let tool = tool_fn("stuck", "Blocks.", move |_: Nothing, _| {
        let free = seen.clone();
        async move {
            // Until the test releases it, which it does only after the call has returned.
            while !free.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok::<_, ToolError>("late")
        }
    });
    registry.register(tool).expect("free");
    let view = toolgate_testkit::plain_view(&registry);
    let stack = Stack::over(registry)
        .layer(quick_timeout())
        .build()
        .expect("in order");
    let outcome = stack
        .run(real_time_call(seed_for(&view, "stuck", json!({}))))
        .await;
    free.store(true, Ordering::SeqCst);
    assert_eq!(
        outcome.status(),
        Some(Status::OutcomeUnknown),
        "a blocked tool may still have an effect"
    );
}

/// Starts a shell in its own process group that ignores SIGTERM and has a child that ignores it
/// too.
fn stubborn_family(cx: &Context, mark: &str) -> std::io::Result<std::process::Child> {
    use std::os::unix::process::CommandExt;
    let script = format!(
        "trap '' TERM; (trap '' TERM; exec -a {mark} sleep 600) & exec -a {mark} sleep 600"
    );
    let mut command = Command::new("bash");
    let child = command
        .args(["-c", &script])
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let group = rustix::process::Pid::from_child(&child);
    cx.on_stop(move || {
        match rustix::process::kill_process_group(group, rustix::process::Signal::KILL) {
            Ok(()) => StopConfirmation::Confirmed,
            Err(_) => StopConfirmation::Unconfirmed,
        }
    });
    let terminated = cx.cancel.clone();
    tokio::spawn(async move {
        terminated.cancelled().await;
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
    });
    Ok(child)
}

/// Returns the number of running processes with this name. A killed process that was not yet reaped
/// does not count.
fn count_running(mark: &str) -> usize {
    let alive = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let status = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let zombie = status.rsplit(") ").next()?.starts_with('Z');
        (String::from_utf8_lossy(&line).split('\0').next()? == mark && !zombie).then_some(())
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_grandchildren_that_ignores_sigterm_does_not_survive() {
    let mark = format!("toolgate-stubborn-{}", std::process::id());
    let started = Arc::new(AtomicU32::new(0));
    let name = mark.clone();
    let count = started.clone();
    let registry = Registry::new();
    let tool = tool_fn("shell", "Runs a shell.", move |_: Nothing, cx: Context| {
        let name = name.clone();
        let count = count.clone();
        async move {
            let mut child = stubborn_family(&cx, &name)?;
            wait_until(|| count_running(&name) == 2).await;
            count.store(2, Ordering::SeqCst);
            tokio::task::spawn_blocking(move || child.wait()).await??;
            std::future::pending::<Result<String, ToolError>>().await
        }
    });
    registry.register(tool).expect("free");
    let view = toolgate_testkit::plain_view(&registry);
    // Long enough for two processes to start and to be killed on a busy machine.
    let layer = Timeout::after(Duration::from_secs(3)).grace(Duration::from_secs(2));
    let stack = Stack::over(registry)
        .layer(layer)
        .build()
        .expect("in order");
    let outcome = stack
        .run(real_time_call(seed_for(&view, "shell", json!({}))))
        .await;
    assert_eq!(started.load(Ordering::SeqCst), 2, "both were running");
    assert_eq!(
        outcome.status(),
        Some(Status::Timeout),
        "killing the group confirms that it has stopped"
    );
    wait_until(|| count_running(&mark) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_call_kills_its_processes() {
    let mark = format!("toolgate-orphan-{}", std::process::id());
    let name = mark.clone();
    let registry = Registry::new();
    let tool = tool_fn("shell", "Runs a shell.", move |_: Nothing, cx: Context| {
        let name = name.clone();
        async move {
            let mut child = stubborn_family(&cx, &name)?;
            tokio::task::spawn_blocking(move || child.wait()).await??;
            Ok::<_, ToolError>(())
        }
    });
    registry.register(tool).expect("free");
    let view = toolgate_testkit::plain_view(&registry);
    let stack = Stack::over(registry)
        .layer(Timeout::after(Duration::from_secs(600)))
        .build()
        .expect("in order");
    let run = tokio::spawn(stack.run(real_time_call(seed_for(&view, "shell", json!({})))));
    wait_until(|| count_running(&mark) == 2).await;
    run.abort();
    wait_until(|| count_running(&mark) == 0).await;
}

#[tokio::test]
async fn a_shorter_limit_of_the_tool_applies_and_a_limit_by_name_overrides_all() {
    let own = Annotations::read_only().with_timeout(Duration::from_secs(10));
    let hangs = async |_: Nothing, cx: Context| -> Result<String, ToolError> {
        cx.cancelled().await;
        Err(ToolError::cancelled())
    };
    for (layer, limit) in [
        (short_timeout(), 10),
        (Timeout::after(Duration::from_secs(4)), 4),
        (short_timeout().tool("work", Duration::from_secs(60)), 60),
        (Timeout::after(Duration::ZERO), 10),
    ] {
        let clock = TestClock::new();
        let (stack, call) = stack_of(own.clone(), layer, hangs, &clock);
        let settled = run_through(&clock, &stack, call, &[Duration::from_secs(limit)]).await;
        assert_eq!(settled.status, Status::Timeout);
        assert_eq!(
            settled.ended_at.since(settled.started_at),
            Duration::from_secs(limit)
        );
    }
}

#[tokio::test]
async fn observing_only_labels_and_keeps_the_result() {
    let clock = TestClock::new();
    let slow = clock.clone();
    let tool = move |_: Nothing, _: Context| {
        let slow = slow.clone();
        async move {
            slow.sleep(LIMIT * 2).await;
            Ok("slow".to_owned())
        }
    };
    let (stack, call) = stack_of(
        writing_annotations(),
        short_timeout().observe(),
        tool,
        &clock,
    );
    let settled = run_through(&clock, &stack, call, &[LIMIT * 2]).await;
    assert_eq!(settled.status, Status::Ok);
    assert_eq!(
        settled.notes.fields().expect("noted").metadata["timeout"]["observed"],
        true
    );
}

#[tokio::test]
async fn zero_means_no_limit() {
    let clock = TestClock::new();
    let tool = async |_: Nothing, _: Context| Ok("done".to_owned());
    let (stack, call) = stack_of(
        writing_annotations(),
        Timeout::after(Duration::ZERO),
        tool,
        &clock,
    );
    let outcome: Outcome = stack.run(call).await;
    assert!(outcome.is_ok());
    assert_eq!(clock.sleeper_count(), 0);
}

fn real_stack<F, Fut>(annotations: Annotations, layer: Timeout, tool: F) -> (Stack, Call)
where
    F: Fn(Nothing, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let registry = Registry::new();
    registry
        .register(tool_fn("work", "Works.", tool).with_annotations(annotations))
        .expect("free");
    let view = toolgate_testkit::plain_view(&registry);
    (
        Stack::over(registry)
            .layer(layer)
            .build()
            .expect("in order"),
        real_time_call(seed_for(&view, "work", json!({}))),
    )
}

#[tokio::test]
async fn processes_of_a_tool_that_gives_up_are_stopped_and_its_outcome_counts() {
    for (word, status) in [
        (StopConfirmation::Confirmed, Status::Timeout),
        (StopConfirmation::Unconfirmed, Status::OutcomeUnknown),
    ] {
        let clock = TestClock::new();
        let killed = Arc::new(AtomicBool::new(false));
        let seen = killed.clone();
        let tool = move |_: Nothing, cx: Context| {
            let killed = seen.clone();
            async move {
                cx.on_stop(move || {
                    killed.store(true, Ordering::SeqCst);
                    word
                });
                cx.cancelled().await;
                Err(ToolError::cancelled())
            }
        };
        let (stack, call) = stack_of(writing_annotations(), short_timeout(), tool, &clock);
        let settled = run_through(&clock, &stack, call, &[LIMIT]).await;
        assert_eq!(settled.status, status);
        assert!(
            killed.load(Ordering::SeqCst),
            "no process survives a call that was stopped"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmed_stop_says_nothing_about_a_tool_that_continues_by_itself() {
    let free = Arc::new(AtomicBool::new(false));
    let seen = free.clone();
    let (stack, call) = real_stack(
        writing_annotations(),
        quick_timeout(),
        move |_: Nothing, cx: Context| {
            let free = seen.clone();
            async move {
                cx.on_stop(|| StopConfirmation::Confirmed);
                while !free.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                Ok("written".to_owned())
            }
        },
    );
    let outcome = stack.run(call).await;
    free.store(true, Ordering::SeqCst);
    assert_eq!(outcome.status(), Some(Status::OutcomeUnknown));
}

#[tokio::test]
async fn a_process_that_ended_before_the_limit_confirms_nothing() {
    let clock = TestClock::new();
    let tool = async |_: Nothing, cx: Context| {
        cx.on_stop(|| StopConfirmation::Confirmed).unregister();
        std::future::pending().await
    };
    let (stack, call) = stack_of(writing_annotations(), short_timeout(), tool, &clock);
    let settled = run_through(&clock, &stack, call, &[LIMIT, GRACE]).await;
    assert_eq!(settled.status, Status::OutcomeUnknown);
}

#[tokio::test]
async fn a_stop_action_that_blocks_does_not_block_the_caller() {
    let (free, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(Some(blocked)));
    let (stack, call) = real_stack(
        writing_annotations(),
        quick_timeout(),
        move |_: Nothing, cx: Context| {
            let blocked = blocked.lock().expect("whole").take().expect("one call");
            async move {
                // Until the test releases it, which it does only after the call has returned.
                cx.on_stop(move || match blocked.recv() {
                    Ok(()) | Err(_) => StopConfirmation::Confirmed,
                });
                std::future::pending().await
            }
        },
    );
    let outcome = stack.run(call).await;
    drop(free);
    assert_eq!(
        outcome.status(),
        Some(Status::OutcomeUnknown),
        "it has confirmed nothing in time"
    );
}

#[tokio::test]
async fn external_cancellation_takes_the_same_steps_and_settles_as_cancelled() {
    for (annotations, status) in [
        (writing_annotations(), Status::OutcomeUnknown),
        (Annotations::read_only(), Status::Cancelled),
    ] {
        let clock = TestClock::new();
        let tool = async |_: Nothing, _: Context| std::future::pending().await;
        let (stack, call) = stack_of(annotations, short_timeout(), tool, &clock);
        let cancel = call.cancel.clone();
        let run = tokio::spawn(stack.run(call));
        while clock.sleeper_count() == 0 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
        while !run.is_finished() {
            // Far less than the limit: only the grace passes.
            tokio::task::yield_now().await;
            clock.advance(GRACE / 100);
        }
        let settled = run
            .await
            .expect("no panic")
            .settled()
            .cloned()
            .expect("settled");
        assert_eq!(settled.status, status);
        assert!(
            settled.model_text().starts_with("the call was cancelled"),
            "{}",
            settled.model_text()
        );
        assert!(settled.ended_at.since(settled.started_at) < LIMIT);
    }
}

#[tokio::test]
async fn a_tool_that_reacts_to_external_cancellation_keeps_its_text_and_leaves_no_process() {
    let clock = TestClock::new();
    let killed = Arc::new(AtomicBool::new(false));
    let seen = killed.clone();
    let tool = move |_: Nothing, cx: Context| {
        let killed = seen.clone();
        async move {
            cx.on_stop(move || {
                killed.store(true, Ordering::SeqCst);
                StopConfirmation::Confirmed
            });
            cx.cancelled().await;
            Err(ToolError::new("half of it is done").with_category(ErrorCategory::Cancelled))
        }
    };
    let (stack, call) = stack_of(writing_annotations(), short_timeout(), tool, &clock);
    let cancel = call.cancel.clone();
    let run = tokio::spawn(stack.run(call));
    while clock.sleeper_count() == 0 {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    let settled = run
        .await
        .expect("no panic")
        .settled()
        .cloned()
        .expect("settled");
    assert_eq!(
        (settled.status, &*settled.model_text()),
        (Status::Cancelled, "half of it is done")
    );
    assert!(killed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_writing_tool_that_timed_out_itself_has_an_unknown_outcome() {
    for (annotations, status) in [
        (writing_annotations(), Status::OutcomeUnknown),
        (Annotations::read_only(), Status::Timeout),
    ] {
        for in_grace in [false, true] {
            let clock = TestClock::new();
            let tool = move |_: Nothing, cx: Context| async move {
                if in_grace {
                    cx.cancelled().await;
                }
                Err(ToolError::new("the request timed out").with_category(ErrorCategory::Timeout))
            };
            let (stack, call) = stack_of(annotations.clone(), short_timeout(), tool, &clock);
            let settled = run_through(&clock, &stack, call, &[LIMIT]).await;
            assert_eq!(settled.status, status, "in the grace: {in_grace}");
        }
    }
}
