//! A turn, and a whole run with a model, can be suspended for an approval, lose its process at any
//! instant, and resume with every effect exactly once.
//!
//! On SQLite, and on the PostgreSQL that `TOOLGATE_TEST_POSTGRES` names; `cargo xtask test` starts
//! one. `TOOLGATE_CRASH_KILLS` sets the number of killed processes (default 520),
//! `TOOLGATE_CRASH_SEED` repeats one case.
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

use toolgate_testkit::crash::{
    CaseReport, ChildEnd, ChildMishap, CrashChild, CrashTable, KillPoint, MishapPlan, ScenarioFacts,
};
use worlds::{CrashWorlds, open_in_child};

/// The number of killed processes in a normal run.
const KILLS: u64 = 520;

/// The number of cases with a failing store in a normal run.
const TROUBLES: u64 = 64;

/// The number of cases that run at the same time.
const WORKERS: usize = 2;

/// Runs in the child processes of the other tests. By itself it does nothing.
#[test]
fn child() {
    let Some(child) = CrashChild::from_env() else {
        return;
    };
    let ended = in_runtime(async {
        let store = open_in_child(&child).await?;
        scenarios::drive_session(&child, store).await
    });
    let ended = ended.unwrap_or_else(|error| ChildEnd::Stopped(with_causes(&*error)));
    child.exit_with(ended);
}

#[test]
fn nothing_is_lost_or_done_twice_wherever_the_process_is_killed() {
    let wanted = number_from_env("TOOLGATE_CRASH_KILLS").unwrap_or(KILLS);
    let killed = AtomicU64::new(0);
    let enough = move |_: u64, report: Option<&CaseReport>| {
        let kills = report.map_or(0, |report| {
            report.kills.iter().copied().map(u64::from).sum()
        });
        killed.fetch_add(kills, Ordering::SeqCst) + kills >= wanted
    };
    let table = run_cases(&MishapPlan::plan_kills, &enough, &|facts| facts);
    println!("{table}");
    assert_eq!(
        table.violation_count(),
        0,
        "the violations and how to repeat them are printed above"
    );
    assert!(number_from_env("TOOLGATE_CRASH_SEED").is_some() || table.kill_count() >= wanted);
}

#[test]
fn nothing_is_lost_or_done_twice_when_the_store_fails_and_recovers() {
    let enough = |case: u64, _: Option<&CaseReport>| case >= TROUBLES;
    let table = run_cases(&MishapPlan::plan_troubles, &enough, &|facts| {
        facts.allow_second_request().allow_budget_rejections()
    });
    println!("{table}");
    assert_eq!(
        table.violation_count(),
        0,
        "the violations and how to repeat them are printed above"
    );
}

#[test]
fn a_forbidden_second_execution_is_detected() {
    let report = in_runtime(async {
        // Without facts about the tools, none of them may be retried.
        let mut worlds = CrashWorlds::new()
            .await?
            .judging_by(|_| ScenarioFacts::default());
        // The last effect is that of a tool that is retried.
        let killed = MishapPlan(vec![Some(ChildMishap::Kill(KillPoint::AfterEffect(3)))]);
        worlds.run_one("retries", &killed).await
    });
    let violations = report.expect("the stores can be opened").violations;
    let found = |violation: &String| violation.contains("(flaky) had the effects");
    assert!(
        !violations.is_empty() && violations.iter().all(found),
        "{violations:?}"
    );
}

type CasePlan = dyn Fn(u64, u64, &[toolgate_testkit::crash::ProcessExtent]) -> MishapPlan + Sync;
type StopCondition = dyn Fn(u64, Option<&CaseReport>) -> bool + Sync;

/// Runs cases with consecutive seeds, some at a time, until there are enough of them.
fn run_cases(
    plan: &CasePlan,
    enough: &StopCondition,
    allow: &(dyn Fn(ScenarioFacts) -> ScenarioFacts + Sync),
) -> CrashTable {
    let only = number_from_env("TOOLGATE_CRASH_SEED");
    let next = AtomicU64::new(only.unwrap_or(0));
    let work = || {
        in_runtime(async {
            let mut worlds = CrashWorlds::new().await?.judging_by(allow);
            let mut table = CrashTable::default();
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if only.is_some_and(|only| seed > only) || enough(seed, None) {
                    break;
                }
                let report = worlds.run_case(seed, plan, &mut table).await?;
                enough(seed, Some(&report));
            }
            worlds.close().await?;
            Ok(table)
        })
        .expect("the stores can be opened")
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        let mut table = CrashTable::default();
        workers
            .into_iter()
            .for_each(|worker| table.merge_table(worker.join().expect("a worker does not panic")));
        table
    })
}

/// Returns this test program, restricted to the child.
fn child_command() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a path"));
    command.args(["--exact", "crash::child", "--nocapture", "--test-threads=1"]);
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

fn number_from_env(variable: &str) -> Option<u64> {
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
