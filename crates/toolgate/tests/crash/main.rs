//! A turn, and a whole run of turns with a model, can stop for a person, lose its process at any instant, and go on
//! exactly once.
//!
//! On SQLite, and on the PostgreSQL that `TOOLGATE_TEST_POSTGRES` names; `cargo xtask test` starts one.
//! `TOOLGATE_CRASH_KILLS` says how many processes are killed (520 unless said), `TOOLGATE_CRASH_SEED` repeats one case.
#![allow(missing_docs, reason = "a test has no public items")]

mod database;
mod runs;
mod scenarios;
mod tools;
mod worlds;

use std::{
    error::Error,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

use toolgate_testkit::crash::{CaseReport, CrashChild, Ended, Facts, Kill, Mishap, Mishaps, Table};
use worlds::{Worlds, open_in_child};

/// How many processes are killed in a normal run.
const KILLS: u64 = 520;

/// How many cases with a failing store there are in a normal run.
const TROUBLES: u64 = 64;

/// How many cases run at the same time.
const AT_ONCE: usize = 2;

/// What the child processes of the other tests run. By itself it does nothing.
#[test]
fn child() {
    let Some(child) = CrashChild::from_env() else {
        return;
    };
    let ended = in_runtime(async {
        let store = open_in_child(&child).await?;
        scenarios::drive(&child, store).await
    });
    let ended = ended.unwrap_or_else(|error| Ended::Stopped(with_causes(&*error)));
    child.end(ended);
}

#[test]
fn nothing_is_lost_and_nothing_happens_twice_wherever_the_process_is_killed() {
    let wanted = number("TOOLGATE_CRASH_KILLS").unwrap_or(KILLS);
    let killed = AtomicU64::new(0);
    let enough = move |_: u64, report: Option<&CaseReport>| {
        let kills = report.map_or(0, |report| {
            report.kills.iter().copied().map(u64::from).sum()
        });
        killed.fetch_add(kills, Ordering::SeqCst) + kills >= wanted
    };
    let table = run_cases(&Mishaps::kills, &enough, &|facts| facts);
    println!("{table}");
    assert_eq!(
        table.violations(),
        0,
        "what was broken and how to repeat it is said above"
    );
    assert!(number("TOOLGATE_CRASH_SEED").is_some() || table.kills() >= wanted);
}

#[test]
fn a_store_that_fails_stops_the_run_or_not_and_once_repaired_nothing_is_lost_or_done_twice() {
    let enough = |case: u64, _: Option<&CaseReport>| case >= TROUBLES;
    let table = run_cases(&Mishaps::troubles, &enough, &|facts| {
        facts.asking_again().refusing_what_cannot_be_paid()
    });
    println!("{table}");
    assert_eq!(
        table.violations(),
        0,
        "what was broken and how to repeat it is said above"
    );
}

#[test]
fn a_tool_that_runs_twice_without_leave_is_found() {
    let report = in_runtime(async {
        // Nothing is known about the tools here, so none of them may repeat.
        let mut worlds = Worlds::new().await?.judging_by(|_| Facts::default());
        // The last effect is that of a tool that is run again.
        let killed = Mishaps(vec![Some(Mishap::Kill(Kill::AfterEffect(3)))]);
        worlds.run_one("retries", &killed).await
    });
    let violations = report.expect("the stores can be opened").violations;
    let found = |violation: &String| violation.contains("(flaky) had the effects");
    assert!(
        !violations.is_empty() && violations.iter().all(found),
        "{violations:?}"
    );
}

type Plan = dyn Fn(u64, u64, &[toolgate_testkit::crash::Extent]) -> Mishaps + Sync;
type Enough = dyn Fn(u64, Option<&CaseReport>) -> bool + Sync;

/// Runs cases with consecutive seeds, some at a time, until there are enough of them.
fn run_cases(plan: &Plan, enough: &Enough, allow: &(dyn Fn(Facts) -> Facts + Sync)) -> Table {
    let only = number("TOOLGATE_CRASH_SEED");
    let next = AtomicU64::new(only.unwrap_or(0));
    let work = || {
        in_runtime(async {
            let mut worlds = Worlds::new().await?.judging_by(allow);
            let mut table = Table::default();
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if only.is_some_and(|only| seed > only) || enough(seed, None) {
                    break;
                }
                let report = worlds.run(seed, plan, &mut table).await?;
                enough(seed, Some(&report));
            }
            worlds.close().await?;
            Ok(table)
        })
        .expect("the stores can be opened")
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let mut table = Table::default();
        workers
            .into_iter()
            .for_each(|worker| table.merge(worker.join().expect("a worker does not panic")));
        table
    })
}

/// This very program, told to run nothing but the child.
fn child_command() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command
}

fn in_runtime<T>(
    work: impl Future<Output = Result<T, Box<dyn Error>>>,
) -> Result<T, Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} has to be a number")),
    )
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}
