//! Runs targets as processes of their own, so that no input can end the run without a name.

use std::{
    io,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

use crate::{
    FuzzTarget,
    harness::{
        FuzzFolders,
        single::{self, RunPlan, UNDER_WAY},
    },
};

/// The status of a process that has reported a failure itself.
pub const FAILURE_REPORTED: u8 = 3;

/// The time without a new input after which the watchdog ends a process.
const PATIENCE: Duration = Duration::from_secs(120);

/// Ends this process if one input never ends. The supervisor then reports the input.
pub fn start_watchdog() {
    thread::spawn(|| {
        let mut before = UNDER_WAY.load(Ordering::Relaxed);
        loop {
            thread::sleep(PATIENCE);
            let now = UNDER_WAY.load(Ordering::Relaxed);
            if now == before {
                eprintln!("no input has ended for {} s", PATIENCE.as_secs());
                std::process::abort();
            }
            before = now;
        }
    });
}

/// Runs the targets, `jobs` at a time, and shares `plan.time` among them. Returns the names of
/// those that failed.
///
/// # Errors
///
/// Fails if a process cannot be started.
pub fn run_targets(
    targets: &[&'static FuzzTarget],
    plan: &RunPlan,
    jobs: usize,
    folders: &FuzzFolders,
) -> io::Result<Vec<&'static str>> {
    let share = plan.time * u32::try_from(jobs.min(targets.len())).unwrap_or(1)
        / u32::try_from(targets.len().max(1)).unwrap_or(1);
    let mut waiting = targets.iter().copied();
    let mut running: Vec<(&'static FuzzTarget, Child)> = Vec::new();
    let mut failed = Vec::new();
    loop {
        while running.len() < jobs.max(1)
            && let Some(target) = waiting.next()
        {
            let plan = RunPlan {
                time: share,
                ..plan.clone()
            };
            running.push((target, start_process(target, &plan)?));
        }
        if running.is_empty() {
            return Ok(failed);
        }
        let (target, mut child) = running.remove(0);
        let status = child.wait()?;
        if !status.success() {
            failed.push(target.name);
            report_ended(target, folders, status)?;
        }
    }
}

fn start_process(target: &FuzzTarget, plan: &RunPlan) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["one", target.name])
        .args(["--seed", &plan.seed.to_string()])
        .args(["--milliseconds", &plan.time.as_millis().to_string()])
        .stdin(Stdio::null());
    if plan.grow {
        command.arg("--grow");
    }
    command.spawn()
}

/// Reports a process that ended without a report of its own.
fn report_ended(target: &FuzzTarget, folders: &FuzzFolders, status: ExitStatus) -> io::Result<()> {
    if status.code() == Some(i32::from(FAILURE_REPORTED)) {
        return Ok(());
    }
    let name = target.name;
    match single::read_current(target, folders) {
        Some(input) => {
            let file = single::write_failure(target, folders, &input)?;
            let file = file.display();
            eprintln!("{name}: an input ended the process ({status})\n  input: {file}");
        }
        None => eprintln!("{name}: the process ended ({status}) and left no input"),
    }
    Ok(())
}
