//! Runs the fuzz targets on the stable compiler.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use toolgate_fuzz::{
    FuzzTarget, TARGETS, find_target,
    harness::{
        FuzzFolders,
        allocator::CountingAllocator,
        single::{RunPlan, TargetRun},
        supervise::{self, FAILURE_REPORTED},
    },
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Replays the corpora of the fuzz targets and runs seeded mutations of them.
#[derive(Parser)]
#[command(name = "toolgate-fuzz")]
struct FuzzArgs {
    #[command(subcommand)]
    command: FuzzCommand,
}

#[derive(Subcommand)]
enum FuzzCommand {
    /// Lists the targets.
    List,
    /// Runs targets, each in a process of its own.
    Run {
        /// The targets; all of them by default.
        targets: Vec<String>,
        /// The time for all of them together.
        #[arg(long, default_value_t = 180)]
        seconds: u64,
        /// The number of processes at a time.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        #[command(flatten)]
        mutations: MutationArgs,
    },
    /// Runs one target in this process.
    #[command(hide = true)]
    One {
        target: String,
        #[arg(long)]
        milliseconds: u64,
        #[command(flatten)]
        mutations: MutationArgs,
    },
    /// Runs a target on the inputs in files, and lets a panic through.
    Replay { target: String, files: Vec<PathBuf> },
}

#[derive(clap::Args)]
struct MutationArgs {
    /// The seed of the mutations: the same one makes the same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Adds small inputs that did something new to the corpus.
    #[arg(long)]
    grow: bool,
}

fn main() -> ExitCode {
    match run(FuzzArgs::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: FuzzCommand) -> Result<ExitCode, String> {
    let folders = FuzzFolders::of_repository();
    match command {
        FuzzCommand::List => TARGETS
            .iter()
            .for_each(|target| println!("{}", target.name)),
        FuzzCommand::Run {
            targets,
            seconds,
            jobs,
            mutations,
        } => {
            let plan = mutations.plan(Duration::from_secs(seconds));
            let targets = named_targets(&targets)?;
            let failed = supervise::run_targets(&targets, &plan, jobs, &folders)
                .map_err(|error| format!("a process could not be started: {error}"))?;
            if !failed.is_empty() {
                return Err(format!("properties do not hold: {}", failed.join(", ")));
            }
        }
        FuzzCommand::One {
            target,
            milliseconds,
            mutations,
        } => {
            supervise::start_watchdog();
            let plan = mutations.plan(Duration::from_millis(milliseconds));
            return run_one(named_target(&target)?, &plan, &folders)
                .map_err(|error| format!("{target}: {error}"));
        }
        FuzzCommand::Replay { target, files } => {
            let target = named_target(&target)?;
            for file in files {
                let input =
                    std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                (target.run)(&input);
                println!("{}: every property holds", file.display());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_one(
    target: &FuzzTarget,
    plan: &RunPlan,
    folders: &FuzzFolders,
) -> std::io::Result<ExitCode> {
    let name = target.name;
    println!("{name:<16} starts with seed {}", plan.seed);
    match TargetRun::new(target, folders)?.run(plan)? {
        Ok(totals) => {
            println!("{name:<16} {totals}");
            if plan.grow {
                println!("{name:<16} {} inputs added to the corpus", totals.added);
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let file = failure.file.display();
            eprintln!("{name}: a property does not hold: {}", failure.problem);
            eprintln!(
                "  seed {}, execution {}\n  input: {file}",
                plan.seed, failure.execution
            );
            eprintln!("  hint: `cargo run -p toolgate-fuzz -- replay {name} {file}` repeats it");
            Ok(ExitCode::from(FAILURE_REPORTED))
        }
    }
}

impl MutationArgs {
    fn plan(&self, time: Duration) -> RunPlan {
        RunPlan {
            seed: self.seed,
            time,
            grow: self.grow,
        }
    }
}

fn named_target(name: &str) -> Result<&'static FuzzTarget, String> {
    find_target(name).ok_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        format!(
            "there is no target named {name}\nhint: the targets are {}",
            names.join(", ")
        )
    })
}

fn named_targets(names: &[String]) -> Result<Vec<&'static FuzzTarget>, String> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    names.iter().map(|name| named_target(name)).collect()
}
