//! Shapes of time: starting a program, late turns of a run, opening a long session.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use futures::stream::BoxStream;
use tempfile::TempDir;
use toolgate::{
    Model, RunEnd, Session,
    model::{Delta, ModelError, ModelName, ModelRequest},
    value::SessionId,
};

use super::{LoopSetup, PeerScript, StackKind, ToolBehaviour, memory_store, sqlite_store};
use crate::{
    measure::{CostGoal, CostRow, cpu_ns, median},
    used::HelloProgram,
};

/// D: a program that starts, makes one call and ends.
pub(super) fn start(rounds: usize) -> Vec<CostRow> {
    let program = match HelloProgram::build() {
        Ok(program) => program,
        Err(reason) => {
            eprintln!("the start of a program is not measured: {reason}");
            return Vec::new();
        }
    };
    let mut spent = Vec::new();
    let mut least = Vec::new();
    let mut resident = Vec::new();
    for _ in 0..rounds {
        let hello = program.measure(true);
        spent.push(hello.cpu_ns as f64 / 1e6);
        resident.push(hello.peak_kib as f64 * 1024.0 / 1e6);
        least.push(program.measure(false).cpu_ns as f64 / 1e6);
    }
    let floor = Some(median(least));
    vec![
        CostRow::new(
            "D: start, one call, end",
            median(spent),
            "ms",
            floor,
            "the same program without the call",
        )
        .aiming(CostGoal::ValueAtMost(3.0)),
        CostRow::new(
            "D: the most memory it had",
            median(resident),
            "MB",
            None,
            "",
        )
        .aiming(CostGoal::ValueAtMost(12.0)),
    ]
}

/// A script that notes the processor time of each request.
struct StampedScript {
    script: PeerScript,
    stamps: Arc<Mutex<Vec<u64>>>,
}

impl Model for StampedScript {
    fn name(&self) -> &ModelName {
        self.script.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        stamps.push(cpu_ns());
        drop(stamps);
        self.script.reply(request)
    }
}

/// E: whether a turn gets more expensive as the run grows.
pub(super) async fn history(rounds: usize) -> Vec<CostRow> {
    const LONG: usize = 10_000;
    const NEAR: usize = 40;
    let setup = LoopSetup::new(StackKind::Default, ToolBehaviour::Reads);
    let mut near: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        let stamps: Arc<Mutex<Vec<u64>>> = Arc::default();
        let model = StampedScript {
            script: PeerScript::new(LONG, 1, 0),
            stamps: stamps.clone(),
        };
        let builder = Session::ungated(model, setup.registry.clone())
            .stack(setup.stack.clone())
            .max_iterations(u32::MAX)
            .window_bytes(usize::MAX)
            .dispatcher(|dispatcher| dispatcher.store(memory_store()));
        let session = builder.build().await.expect("opens");
        let report = session.run("go").await.expect("runs");
        assert_eq!(report.end, RunEnd::Completed);
        let stamps = stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let turns: Vec<f64> = stamps
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / 1e3)
            .collect();
        for (found, end) in near.iter_mut().zip([10 + NEAR, 1_000, LONG]) {
            found.push(median(turns[end - NEAR..end].to_vec()));
        }
    }
    let [early, late, last] = near.map(median);
    let row = |turn: usize, value| {
        CostRow::new(
            format!("E: turn {turn} of a run, the default stack"),
            value,
            "us",
            Some(early),
            "turn 10 of the same run",
        )
        .aiming(CostGoal::RatioAtMost(1.05))
    };
    vec![row(1_000, late), row(LONG, last)]
}

/// Opens sessions of several lengths, as a new process does.
pub(super) async fn opening(rounds: usize) -> Vec<CostRow> {
    let directory = TempDir::new().expect("is made");
    let setup = LoopSetup::new(StackKind::Default, ToolBehaviour::Reads);
    let lengths = [50, 5_000];
    let mut sessions = Vec::new();
    for turns in lengths {
        let path = directory.path().join(format!("{turns}.db"));
        let store = sqlite_store(&path);
        let session = setup
            .session(PeerScript::new(turns, 1, 0))
            .dispatcher(move |dispatcher| dispatcher.store(store))
            .build()
            .await
            .expect("opens");
        let report = session.run("go").await.expect("runs");
        assert_eq!(report.end, RunEnd::Completed);
        sessions.push((path, session.id()));
    }
    let mut opened = [Vec::new(), Vec::new()];
    let mut answered = [Vec::new(), Vec::new()];
    for _ in 0..rounds * 4 {
        for (at, (path, id)) in sessions.iter().enumerate() {
            let start = Instant::now();
            let session = open_session(&setup, sqlite_store(path), *id).await;
            opened[at].push(start.elapsed().as_secs_f64() * 1e3);
            let start = Instant::now();
            let report = session.run("and now?").await.expect("runs");
            answered[at].push(start.elapsed().as_secs_f64() * 1e3);
            assert_eq!(report.end, RunEnd::Completed);
        }
    }
    let row = |name: &str, times: [Vec<f64>; 2]| {
        let [short, long] = times.map(median);
        CostRow::new(name, long, "ms", Some(short), "the same of 50 turns")
    };
    let name = "opening a session of 5,000 turns, SQLite";
    vec![
        row(name, opened.clone()).aiming(CostGoal::ValueAtMost(10.0)),
        row(name, opened).aiming(CostGoal::RatioAtMost(1.2)),
        row("its next run, which reads its 10,000 messages", answered),
    ]
}

async fn open_session(
    setup: &LoopSetup,
    store: toolgate::store::StoreHandle,
    id: SessionId,
) -> Session {
    setup
        .session(PeerScript::new(0, 1, 0))
        .window_bytes(400_000)
        .dispatcher(move |dispatcher| dispatcher.store(store).session(id).take_over())
        .build()
        .await
        .expect("opens again")
}
