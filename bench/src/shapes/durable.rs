//! Shapes on an SQLite file that syncs: approvals, durable turns, many callers of one store.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    time::Instant,
};

use futures::future::join_all;
use tempfile::TempDir;
use toolgate::{
    Decision, RunEnd,
    approval::{ApprovalRequest, ApprovalRequestRef},
    store::{RecordKey, StoreHandle, StoreRecord},
    value::Json,
};

use super::{
    LAYERS, LoopSetup, PeerScript, StackKind, ToolBehaviour, floor_cycle::LeastCycle, minimum,
    sqlite_store,
};
use crate::{
    measure::{CostGoal, CostRow, cpu_ns, median},
    store_floors::{SyncedLog, write_grouped_records},
};

/// Wall and processor time of something that was done several times, in microseconds each.
#[derive(Default)]
struct SpentTimes {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl SpentTimes {
    /// Measures `work`, which does `count` things.
    async fn measure(&mut self, count: usize, work: impl Future<Output = ()>) {
        let start = Instant::now();
        let cpu = cpu_ns();
        work.await;
        let each = 1e-3 / count as f64;
        self.cpu.push((cpu_ns() - cpu) as f64 * each);
        self.wall.push(start.elapsed().as_nanos() as f64 * each);
    }

    /// Returns the medians, without the first round.
    fn medians(mut self) -> (f64, f64) {
        self.wall.remove(0);
        self.cpu.remove(0);
        (median(self.wall), median(self.cpu))
    }
}

/// Suspends at an approval, decides, and resumes from what is stored with another session.
async fn cycle(setup: &LoopSetup, first: &StoreHandle, second: &StoreHandle) {
    let open = |store: StoreHandle, from| {
        let builder = setup.session(PeerScript::new(1, 1, from));
        builder.dispatcher(move |dispatcher| dispatcher.store(store))
    };
    let session = open(first.clone(), 0).build().await.expect("opens");
    let report = session.run("go").await.expect("runs");
    assert_eq!(report.end, RunEnd::Suspended);
    drop(session);
    let id = report.session;
    let again = open(second.clone(), 1)
        .dispatcher(move |dispatcher| dispatcher.session(id).take_over())
        .build()
        .await
        .expect("opens again");
    let request: &ApprovalRequest = report.pending[0].question.as_ref().expect("asks");
    again
        .decide(ApprovalRequestRef::from(request), Decision::approve("ann"))
        .await
        .expect("is accepted");
    let report = again.resume().await.expect("resumes");
    assert_eq!(report.end, RunEnd::Completed);
    assert_eq!(report.text, "done");
}

fn asking() -> LoopSetup {
    LoopSetup::new(StackKind::Asking(LAYERS), ToolBehaviour::Reads)
}

/// Runs approval cycles in a file of their own, for counting system calls.
pub(super) async fn count_cycles(times: usize) {
    let directory = TempDir::new().expect("is made");
    let path = directory.path().join("cycles.db");
    let first = sqlite_store(&path);
    let second = sqlite_store(&path);
    let setup = asking();
    for _ in 0..times {
        cycle(&setup, &first, &second).await;
    }
}

/// C: suspend, decide and resume, stored.
pub(super) async fn approval(rounds: usize) -> Vec<CostRow> {
    const CYCLES: usize = 20;
    let directory = TempDir::new().expect("is made");
    let path = directory.path().join("ours.db");
    let first = sqlite_store(&path);
    let second = sqlite_store(&path);
    let setup = asking();
    let least = LeastCycle::open(&directory.path().join("least.db")).expect("opens");
    let mut ours = SpentTimes::default();
    let mut floor = SpentTimes::default();
    for _ in 0..=rounds {
        ours.measure(CYCLES, async {
            for _ in 0..CYCLES {
                cycle(&setup, &first, &second).await;
            }
        })
        .await;
        floor
            .measure(CYCLES, async {
                for _ in 0..CYCLES {
                    least.run().await.expect("runs");
                }
            })
            .await;
    }
    let (wall, cpu) = ours.medians();
    let (floor_wall, floor_cpu) = floor.medians();
    let note = "hand-written, three commits";
    let name = "C: suspend, decide and resume, SQLite";
    vec![
        CostRow::new(name, wall, "us", Some(floor_wall), note).aiming(CostGoal::RatioAtMost(2.5)),
        CostRow::new(
            format!("{name}, processor"),
            cpu,
            "us",
            Some(floor_cpu),
            note,
        )
        .aiming(CostGoal::RatioAtMost(4.0)),
    ]
}

/// The place of one durable run.
struct RunFile {
    directory: TempDir,
    path: PathBuf,
}

impl RunFile {
    fn new() -> Self {
        let directory = TempDir::new().expect("is made");
        let path = directory.path().join("run.db");
        Self { directory, path }
    }

    /// Returns the bytes of the file, with what is still in its log.
    fn bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.directory.path()).expect("is there");
        let sizes = files.filter_map(|file| file.ok()?.metadata().ok());
        sizes.map(|file| file.len()).sum()
    }
}

/// Runs durable turns in a file of their own, for counting.
pub(super) async fn count(kind: StackKind, behaviour: ToolBehaviour, turns: usize) {
    let file = RunFile::new();
    let setup = LoopSetup::new(kind, behaviour);
    setup.run(sqlite_store(&file.path), turns, 1, 1).await;
}

/// Runs durable turns by hand, for counting.
pub(super) async fn count_minimum(turns: usize) {
    let file = RunFile::new();
    minimum::run(turns, Some(&file.path)).await;
}

/// K: durable turns of the default stack.
pub(super) async fn turns(rounds: usize) -> Vec<CostRow> {
    const TURNS: usize = 150;
    let reads = LoopSetup::new(StackKind::Default, ToolBehaviour::Reads);
    let writes = LoopSetup::new(StackKind::Default, ToolBehaviour::Writes);
    let mut spent: [SpentTimes; 3] = Default::default();
    let kept = RefCell::new([Vec::new(), Vec::new()]);
    let empty = empty_file_bytes(&reads).await;
    for _ in 0..=rounds {
        let [read, write, least] = &mut spent;
        for (at, (times, setup)) in [(read, &reads), (write, &writes)].into_iter().enumerate() {
            let file = RunFile::new();
            times
                .measure(TURNS, async {
                    setup.run(sqlite_store(&file.path), TURNS, 1, 1).await;
                })
                .await;
            close_database(&file.path);
            kept.borrow_mut()[at].push((file.bytes() as f64 - empty) / TURNS as f64);
        }
        let file = RunFile::new();
        least
            .measure(TURNS, minimum::run(TURNS, Some(&file.path)))
            .await;
    }
    let [(wall, cpu), (write_wall, _), (floor_wall, floor_cpu)] = spent.map(SpentTimes::medians);
    let [kept, _] = kept.into_inner();
    let note = "hand-written: one row and one sync a turn";
    let name = "K: a durable turn, the default stack";
    vec![
        CostRow::new(name, wall, "us", Some(floor_wall), note).aiming(CostGoal::RatioAtMost(1.8)),
        CostRow::new(
            format!("{name}, processor"),
            cpu,
            "us",
            Some(floor_cpu),
            note,
        )
        .aiming(CostGoal::RatioAtMost(3.0)),
        CostRow::new(
            format!("{name}, a tool that may write"),
            write_wall,
            "us",
            Some(floor_wall),
            note,
        ),
        CostRow::new(
            format!("{name}, kept"),
            median(kept) / 1e3,
            "kB",
            None,
            "without the file of a session of no turn",
        )
        .aiming(CostGoal::ValueAtMost(5.0)),
    ]
}

/// Returns the bytes of a file with a session of no turn: its tables and indexes, which are there once.
async fn empty_file_bytes(setup: &LoopSetup) -> f64 {
    let file = RunFile::new();
    setup.run(sqlite_store(&file.path), 0, 1, 1).await;
    close_database(&file.path);
    file.bytes() as f64
}

/// Moves the log of a closed store into its file and frees unused pages, so that bytes are counted
/// once.
fn close_database(path: &Path) {
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .expect("is moved");
}

/// F: many callers of one store, and one record alone.
pub(super) async fn records(rounds: usize) -> Vec<CostRow> {
    const WIDTH: usize = 64;
    const EACH: usize = 100;
    let directory = TempDir::new().expect("is made");
    let store = sqlite_store(&directory.path().join("ours.db"));
    let mut log = SyncedLog::create(&directory.path().join("log")).expect("is made");
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..=rounds {
        let record =
            |caller: usize, n: usize| RecordKey::Other(format!("f/{round}/{caller}/{n}").into());
        let write = async |key| {
            let text = Json::from("a record of ordinary size, written once");
            let written = store.put_record_once(key, StoreRecord::Json(text)).await;
            written.expect("is written");
        };
        let start = Instant::now();
        join_all((0..WIDTH).map(async |caller| {
            for n in 0..EACH {
                write(record(caller, n)).await;
            }
        }))
        .await;
        times[0].push((WIDTH * EACH) as f64 / start.elapsed().as_secs_f64());
        let floor = directory.path().join(format!("floor-{round}.db"));
        let seconds = write_grouped_records(&floor, EACH, WIDTH).expect("are written");
        times[1].push((WIDTH * EACH) as f64 / seconds);
        for n in 0..20 {
            let start = Instant::now();
            write(record(WIDTH, n)).await;
            times[2].push(start.elapsed().as_secs_f64() * 1e6);
            let start = Instant::now();
            log.sync().expect("syncs");
            times[3].push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    let [rows, floor_rows, lone, sync] = times.map(median);
    vec![
        CostRow::new(
            "F: records of 64 callers at a time",
            rows,
            "rows/s",
            Some(floor_rows),
            "raw commits of 64 rows",
        )
        .aiming(CostGoal::RatioAtLeast(0.5)),
        CostRow::new(
            "F: one record alone",
            lone,
            "us",
            Some(sync),
            "one append and sync",
        )
        .aiming(CostGoal::RatioAtMost(1.2)),
    ]
}
