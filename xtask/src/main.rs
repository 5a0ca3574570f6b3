//! The project's chores. `cargo xtask` lists them.

mod cli_page;
mod generated;
mod peers;
mod picture;
mod postgres;

use postgres::Postgres;
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

/// One thing that can be done, and what it is for.
const TASKS: [(&str, &str); 6] = [
    (
        "test",
        "format, lints, all tests, examples and docs: everything that has to be green",
    ),
    (
        "generate",
        "write what is made from the code: schemas of events and configuration, pages of layers and commands",
    ),
    (
        "picture",
        "draw docs/demo.svg: the demo in a real terminal, as it was on the screen",
    ),
    (
        "postgres",
        "run the PostgreSQL that the tests use, for trying things out, until Ctrl-C",
    ),
    (
        "peers",
        "set up the Python with the model providers' official clients, and print how tests find it",
    ),
    ("help", "this list"),
];

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_else(|| "help".to_owned());
    let done = match task.as_str() {
        "test" => test(),
        "generate" => generated::write(&root()),
        "picture" => picture::draw(&root(), cargo(&[])),
        "postgres" => postgres::run_until_stopped(),
        "peers" => peers::print(&root()),
        "help" | "--help" | "-h" => {
            help();
            Ok(())
        }
        other => Err(format!(
            "there is no task named {other}\nhint: `cargo xtask help` lists them"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn help() {
    println!("usage: cargo xtask <task>\n");
    for (name, what) in TASKS {
        println!("  {name:<8} {what}");
    }
}

/// Runs everything that has to be green, in the order in which a mistake shows soonest.
fn test() -> Result<(), String> {
    let start = Instant::now();
    let postgres = Postgres::given_or_started()?;
    let python = peers::given_or_made(&root())?;
    let cargo = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        command
            .env(postgres::VARIABLE, postgres.url())
            .env(peers::VARIABLE, &python);
        command
    };
    step(
        "format",
        cargo(&["fmt", "--all", "--check"]),
        "`cargo fmt --all` mends it",
    )?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    step("lints", cargo(&clippy), "clippy says what to change")?;
    generated::check(&root())?;
    run_tests(&cargo)?;
    step(
        "doc tests",
        cargo(&["test", "--workspace", "--all-features", "--locked", "--doc"]),
        "a snippet does not work",
    )?;
    let mut docs = cargo(&[
        "doc",
        "--workspace",
        "--all-features",
        "--no-deps",
        "--locked",
    ]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    step("docs", docs, "rustdoc says which link or item")?;
    for example in [
        "parallel-tools",
        "captain",
        "approve-and-resume",
        "recursive-strategy",
        "record-and-replay",
        "budget-refusal",
    ] {
        let run = cargo(&["run", "--quiet", "--locked", "-p", example]);
        step(
            &format!("example {example}"),
            run,
            "the README promises that it runs",
        )?;
    }
    outside_the_workspace(&cargo)?;
    println!(
        "\neverything is green after {} s",
        start.elapsed().as_secs()
    );
    Ok(())
}

/// Checks the example that is built by itself, because it brings features of its own into shared crates.
fn outside_the_workspace(cargo: &dyn Fn(&[&str]) -> Command) -> Result<(), String> {
    let manifest = "examples/arm-rig/Cargo.toml";
    let target = root().join("target/arm-rig");
    let on = |arguments: &[&str]| {
        let mut command = cargo(&[arguments, &["--manifest-path", manifest][..]].concat());
        command.env("CARGO_TARGET_DIR", &target);
        command
    };
    step(
        "format of arm-rig",
        on(&["fmt", "--check"]),
        "`cargo fmt` in its directory mends it",
    )?;
    step(
        "tests of arm-rig",
        on(&["test", "--locked"]),
        "a rule does not hold",
    )?;
    step(
        "example arm-rig",
        on(&["run", "--quiet", "--locked"]),
        "the README promises that it runs",
    )
}

/// Runs unit, property, scenario and compile-fail tests: with nextest where it is installed, else with cargo.
fn run_tests(cargo: &dyn Fn(&[&str]) -> Command) -> Result<(), String> {
    let nextest = cargo(&["nextest", "--version"])
        .output()
        .is_ok_and(|found| found.status.success());
    let runner: &[&str] = if nextest {
        &["nextest", "run"]
    } else {
        &["test", "--tests", "--lib"]
    };
    let common = [
        "--workspace",
        "--all-features",
        "--locked",
        "--no-fail-fast",
    ];
    step(
        "tests",
        cargo(&[runner, &common[..]].concat()),
        "a rule does not hold",
    )
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(arguments).current_dir(root());
    command
}

fn step(name: &str, mut command: Command, hint: &str) -> Result<(), String> {
    println!("\n== {name}");
    let start = Instant::now();
    let status = command
        .status()
        .map_err(|error| format!("{name} could not be started: {error}"))?;
    if !status.success() {
        return Err(format!("{name} failed\nhint: {hint}"));
    }
    println!("== {name}: fine ({} s)", start.elapsed().as_secs());
    Ok(())
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .map_or_else(|| here.to_owned(), Path::to_owned)
}
