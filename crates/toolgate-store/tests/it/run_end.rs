//! The hook at the end of a run has its effect at most once, wherever its process is killed.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream, stream::BoxStream};
use toolgate_core::{
    Delta, Message, Model, ModelError, ModelName, ModelRequest, Registry, Reply, StoreHandle,
};
use toolgate_runtime::{
    CapturedRun, Memory, MemoryExtraction, MemoryExtractor, RunEndError, RunEndHook, RunEndState,
    Session, run_end_state,
};
use toolgate_store::open_store;
use toolgate_testkit::{FaultyStore, StoreFault};

use crate::support::session;

/// The variable that tells the child what to do: address, file of effects, write, before or after.
const ROLE: &str = "TOOLGATE_RUN_END_CHILD";

/// The number of the effect: the file of effects is the world outside, which a crash does not undo.
struct Effect(PathBuf);

impl RunEndHook for Effect {
    fn name(&self) -> &str {
        "effect"
    }

    fn run_ended<'a>(&'a self, run: &'a CapturedRun) -> BoxFuture<'a, Result<(), RunEndError>> {
        async move {
            let file = OpenOptions::new().append(true).create(true).open(&self.0);
            writeln!(file.expect("opens"), "run {}", run.run).expect("writes");
            Ok(())
        }
        .boxed()
    }
}

struct Parrot(ModelName);

impl Model for Parrot {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, _: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let reply = Reply::new(Message::assistant("We decided to use make."));
        stream::once(async { Ok(Delta::Done(Box::new(reply))) }).boxed()
    }
}

/// Opens the session and completes its first run; later starts begin the next one.
async fn drive(store: StoreHandle, effects: &Path) -> Session {
    let memory = MemoryExtraction::new(Memory::new(store.clone()), MemoryExtractor::standard());
    let builder = Session::ungated(Parrot(ModelName::new("test", "parrot")), Registry::new())
        .dispatcher(move |dispatcher| dispatcher.store(store).session(session(1)).take_over())
        .on_run_end(Effect(effects.to_owned()))
        .on_run_end(memory);
    let session = builder.build().await.expect("opens");
    session.run("I prefer small commits.").await.expect("runs");
    assert!(session.wait_for_hooks(Duration::from_secs(60)).await);
    session
}

/// Runs as the process that is killed: this test binary again, controlled by its environment.
#[tokio::test]
async fn a_child_runs_a_session_with_hooks() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let parts: Vec<&str> = role.split('|').collect();
    let [address, effects, number, moment] = parts[..] else {
        panic!("{role}");
    };
    let number: u64 = number.parse().expect("a number");
    let is_before = moment == "before";
    let plan = move |_, write| match write {
        _ if write != number => StoreFault::Pass,
        _ if is_before => StoreFault::KillBefore,
        _ => StoreFault::KillAfter,
    };
    let path = address.strip_prefix("sqlite:").expect("a file");
    let inner = toolgate_store::SqliteStore::open(path).expect("opens");
    let store = StoreHandle::new(FaultyStore::new(inner, plan));
    drive(store, Path::new(effects)).await;
}

fn start_child(role: String) -> bool {
    let status = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "run_end::a_child_runs_a_session_with_hooks"])
        .env(ROLE, role)
        .output()
        .expect("starts")
        .status;
    status.success()
}

/// Counts the lines about a run.
fn count_effects(effects: &Path, run: u64) -> usize {
    let text = fs::read_to_string(effects).unwrap_or_default();
    text.lines()
        .filter(|line| *line == format!("run {run}"))
        .count()
}

#[tokio::test]
async fn wherever_a_process_is_killed_a_hook_has_its_effect_at_most_once() {
    let every = [
        RunEndState::Unclaimed,
        RunEndState::Claimed,
        RunEndState::Done,
    ];
    let mut states = Vec::new();
    // Two hooks write at the same time, so the same number is not always the same write.
    for _ in 0..5 {
        states.extend(kill_at_every_write().await);
        if every.iter().all(|state| states.contains(state)) {
            return;
        }
    }
    panic!("not every state was met, so this shows nothing: {states:?}");
}

/// Kills a process at every write in turn; returns the states of the hook that were found.
async fn kill_at_every_write() -> Vec<RunEndState> {
    let mut states = Vec::new();
    'writes: for number in 1.. {
        for moment in ["before", "after"] {
            let directory = tempfile::tempdir().expect("a directory");
            let database = directory.path().join("a.db");
            let address = format!("sqlite:{}", database.display());
            let effects = directory.path().join("effects");
            let role = format!("{address}|{}|{number}|{moment}", effects.display());
            if start_child(role) {
                // It ended before this write.
                break 'writes;
            }
            let store = open_store(&address).await.expect("opens");
            let state = run_end_state(&store, session(1), 0, "effect").await;
            let state = state.expect("reads");
            let before = count_effects(&effects, 0);
            assert!(before <= 1, "write {number}, {moment}");
            // The next process completes what is left, and begins a run of its own.
            drive(store.clone(), &effects).await;
            let after = count_effects(&effects, 0);
            let has_message = !store
                .messages(session(1), u64::MAX, 9)
                .await
                .expect("reads")
                .is_empty();
            assert!(has_message);
            match state {
                // Nothing had begun: the next process sees the run, unless it never began.
                RunEndState::Unclaimed => {
                    assert_eq!((before, after), (0, 1), "write {number}, {moment}")
                }
                RunEndState::Claimed => assert_eq!(after, before, "write {number}, {moment}"),
                RunEndState::Done => {
                    assert_eq!((before, after), (1, 1), "write {number}, {moment}")
                }
            }
            let memories = Memory::new(store.clone()).list(Default::default()).await;
            assert!(
                memories.expect("lists").len() <= 2,
                "a memory is stored twice"
            );
            states.push(state);
        }
    }
    states
}
