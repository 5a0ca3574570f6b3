//! The test command: everything that has to be green, stage by stage, with the time each stage took.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    browser, cargo, dist, features, fuzz, house, oldest_rust, peers, pgvector, postgres,
    postgres::Postgres, root, target_directory,
};

/// The examples that the README names, each a program of the workspace.
const EXAMPLES: [&str; 11] = [
    "refund-agent",
    "axum-service",
    "tenant-layer",
    "host-driven-loop",
    "agents-and-skills",
    "parallel-tools",
    "captain",
    "approve-and-resume",
    "recursive-strategy",
    "record-and-replay",
    "budget-refusal",
];

/// The example that is built by itself, because it brings features of its own into shared crates.
const ARM_RIG: &str = "examples/arm-rig/Cargo.toml";

const WORKSPACE: [&str; 3] = ["--workspace", "--all-features", "--locked"];

/// Disk space that a run from cold needs, in bytes, with some to spare.
const NEEDED_SPACE: u64 = 14_000_000_000;

/// Runs all stages, in the order in which a mistake shows soonest, and prints how long each took.
pub(crate) fn run() -> Result<(), String> {
    let mut stages = Stages::default();
    let result = run_stages(&mut stages);
    stages.print();
    result?;
    println!("\neverything is green after {} s", stages.total().as_secs());
    Ok(())
}

fn run_stages(stages: &mut Stages) -> Result<(), String> {
    check_free_space(&target_directory())?;
    let postgres = stages.time("set up PostgreSQL", Postgres::given_or_started)?;
    let pgvector = stages.time("set up pgvector", || {
        Ok(pgvector::given_or_started(&target_directory()))
    })?;
    let python = stages.time("set up official clients", || peers::given_or_made(&root()))?;
    let browser = stages.time("set up a browser", || {
        Ok(browser::given_or_made(&target_directory()))
    })?;
    let cargo = |arguments: &[&[&str]]| {
        let mut command = cargo(&arguments.concat());
        command
            .env(postgres::VARIABLE, postgres.url())
            .env(peers::VARIABLE, &python);
        if let Some(pgvector) = &pgvector {
            command.env(pgvector::VARIABLE, pgvector.url());
        }
        if let Some(browser) = &browser {
            command.env(browser::VARIABLE, browser);
        }
        if std::env::var_os("CI").is_some() {
            // A build server compiles once: the files for the next build only cost time and space.
            command.env("CARGO_INCREMENTAL", "0");
        }
        command
    };
    stages.run(
        "format",
        cargo(&[&["fmt", "--all", "--check"]]),
        "`cargo fmt --all` fixes it",
    )?;
    stages.time("lock files", || check_lock_files(&cargo))?;
    stages.time("house rules", || house::check(&root()))?;
    stages.time("oldest Rust", || oldest_rust::check(&root()))?;
    let clippy = cargo(&[
        &["clippy", "--all-targets"],
        &WORKSPACE,
        &["--", "-D", "warnings"],
    ]);
    stages.run("lints", clippy, "clippy says what to change")?;
    run_tests(stages, &cargo)?;
    stages.run(
        "doc tests",
        cargo(&[&["test", "--doc"], &WORKSPACE]),
        "a snippet does not work",
    )?;
    let mut docs = cargo(&[&["doc", "--no-deps"], &WORKSPACE]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    stages.run("docs", docs, "rustdoc says which link or item")?;
    check_features(stages, &cargo)?;
    run_examples(stages, &cargo)?;
    stages.time("archive", check_archive)?;
    stages.run(
        "fuzz targets",
        fuzz::stage_command(&target_directory().join("debug/toolgate-fuzz")),
        "the lines above name the target and the file with the input",
    )?;
    run_example_outside_the_workspace(stages, &cargo)
}

/// Checks that every lock file fits its manifests. The builds outside the workspace come last, and a dependency
/// that is missing in their lock file would only show then.
fn check_lock_files(cargo: &dyn Fn(&[&[&str]]) -> Command) -> Result<(), String> {
    ["Cargo.toml", ARM_RIG]
        .into_iter()
        .try_for_each(|manifest| {
            let mut metadata = cargo(&[
                &["metadata", "--locked", "--format-version", "1"],
                &["--manifest-path", manifest],
            ]);
            run_command(
                manifest,
                metadata.stdout(Stdio::null()),
                "`cargo metadata` in its directory writes the lock file anew",
            )
        })
}

/// Checks that the build fits on the disk, because a full disk half-way looks like a broken build.
fn check_free_space(target: &Path) -> Result<(), String> {
    let disk = rustix::fs::statvfs(target)
        .map_err(|error| format!("the free disk space is not known: {error}"))?;
    let free = disk.f_bavail * disk.f_frsize;
    let missing = NEEDED_SPACE.saturating_sub(compiled_size(target));
    if free < missing {
        return Err(format!(
            "{} MB are free on the disk of {}, and the build needs about {}\n\
             hint: free some space, or set CARGO_TARGET_DIR to a directory on another disk",
            free / 1_000_000,
            target.display(),
            missing / 1_000_000,
        ));
    }
    Ok(())
}

/// Returns the size of what earlier runs compiled and this one reuses.
fn compiled_size(target: &Path) -> u64 {
    let files = std::fs::read_dir(target.join("debug/deps"));
    let entries = files.into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

/// Runs unit, property, scenario and compile-fail tests: with nextest where it is installed, else with cargo.
fn run_tests(stages: &mut Stages, cargo: &dyn Fn(&[&[&str]]) -> Command) -> Result<(), String> {
    let nextest = cargo(&[&["nextest", "--version"]])
        .output()
        .is_ok_and(|found| found.status.success());
    let runner: &[&str] = if nextest {
        &["nextest", "run"]
    } else {
        &["test", "--tests", "--lib"]
    };
    stages.run(
        "build tests",
        cargo(&[runner, &WORKSPACE, &["--no-run"]]),
        "a test does not compile",
    )?;
    stages.run(
        "tests",
        cargo(&[runner, &WORKSPACE, &["--no-fail-fast"]]),
        "a rule does not hold",
    )
}

/// Checks every feature alone, and every crate without any.
fn check_features(
    stages: &mut Stages,
    cargo: &dyn Fn(&[&[&str]]) -> Command,
) -> Result<(), String> {
    let metadata = cargo(&[&["metadata", "--no-deps", "--format-version", "1", "--locked"]]);
    stages.time("features", || {
        features::list_choices(metadata)?
            .iter()
            .try_for_each(|choice| {
                let name = choice.describe();
                println!("{name}");
                let mut check = cargo(&[&choice.arguments()]);
                run_command(&name, &mut check, "another feature provides what it needs")
            })
    })
}

/// Packs the program of the tests and checks the archive; only `cargo xtask dist` builds the one that is distributed.
fn check_archive() -> Result<(), String> {
    let out = target_directory().join("test-archive");
    dist::pack(&target_directory().join("debug/toolgate"), &out)?;
    dist::check(&out)?;
    std::fs::remove_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))
}

/// Runs the examples from one build with the features of the tests, so that nothing is compiled a second time.
fn run_examples(stages: &mut Stages, cargo: &dyn Fn(&[&[&str]]) -> Command) -> Result<(), String> {
    stages.run(
        "build examples",
        cargo(&[&["build", "--bins"], &WORKSPACE]),
        "an example does not compile",
    )?;
    stages.time("examples", || {
        EXAMPLES.iter().try_for_each(|name| {
            println!("\n== example {name}");
            let mut program = Command::new(target_directory().join("debug").join(name));
            run_command(
                name,
                program.current_dir(root()),
                "the README promises that it runs",
            )
        })
    })
}

fn run_example_outside_the_workspace(
    stages: &mut Stages,
    cargo: &dyn Fn(&[&[&str]]) -> Command,
) -> Result<(), String> {
    let manifest = ["--manifest-path", ARM_RIG];
    stages.run(
        "format of arm-rig",
        cargo(&[&["fmt", "--check"], &manifest]),
        "`cargo fmt` in its directory fixes it",
    )?;
    let on = |arguments: &[&str]| {
        let mut command = cargo(&[arguments, &["--locked"], &manifest]);
        // The same directory: what both builds have in common is compiled once.
        command.env("CARGO_TARGET_DIR", target_directory());
        command
    };
    stages.run("tests of arm-rig", on(&["test"]), "a rule does not hold")?;
    stages.run(
        "example arm-rig",
        on(&["run", "--quiet"]),
        "the README promises that it runs",
    )
}

fn run_command(name: &str, command: &mut Command, hint: &str) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| format!("{name} could not be started: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name} failed\nhint: {hint}"))
    }
}

/// The stages that ran, with their times.
#[derive(Default)]
struct Stages(Vec<(&'static str, Duration)>);

impl Stages {
    /// Runs a command as a stage.
    fn run(&mut self, name: &'static str, mut command: Command, hint: &str) -> Result<(), String> {
        self.time(name, || run_command(name, &mut command, hint))
    }

    /// Runs a piece of work as a stage.
    fn time<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        println!("\n== {name}");
        let start = Instant::now();
        let result = work();
        self.0.push((name, start.elapsed()));
        result
    }

    fn total(&self) -> Duration {
        self.0.iter().map(|(_, time)| *time).sum()
    }

    fn print(&self) {
        println!("\n{:<24} {:>6}", "stage", "s");
        for (name, time) in &self.0 {
            println!("{name:<24} {:>6}", time.as_secs());
        }
        println!("{:<24} {:>6}", "total", self.total().as_secs());
    }
}
