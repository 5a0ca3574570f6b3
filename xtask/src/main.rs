//! The project's chores. `cargo xtask` lists them.

mod browser;
mod dist;
mod features;
mod fuzz;
mod hardening;
mod house;
mod oldest_rust;
mod peers;
mod pgvector;
mod postgres;
mod test_run;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use crate::postgres::Postgres;

/// One thing that can be done, and what it is for.
const TASKS: [(&str, &str); 11] = [
    (
        "test",
        "format, lints, all tests, examples and docs: everything that has to be green",
    ),
    (
        "fuzz",
        "run fuzz targets with libFuzzer: `fuzz [TARGET] [--minutes N]`; needs a nightly compiler",
    ),
    (
        "hardening",
        "check dependencies, undefined behaviour and breaking changes, as far as the tools are there",
    ),
    (
        "generate",
        "write what is made from the code: schemas of events and configuration, pages of layers and commands",
    ),
    (
        "dist",
        "build the program, pack it with all that belongs to it, and check the archive: `dist [--binary FILE] [--out DIR]`",
    ),
    (
        "house",
        "print numbers about folders, names and words, each beside the one to aim for",
    ),
    (
        "picture",
        "draw docs/demo.svg: the demo with a lost process, in a real terminal, as it moved on the screen",
    ),
    (
        "postgres",
        "run the PostgreSQL that the tests use, for trying things out, until Ctrl-C",
    ),
    (
        "pgvector",
        "the same with a PostgreSQL that has the extension `vector`",
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
        "test" => test_run::run(),
        "fuzz" => fuzz::run(&root(), &std::env::args().skip(2).collect::<Vec<_>>()),
        "hardening" => hardening::run(),
        "generate" => docgen("pages"),
        "dist" => dist::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "house" => house::print(&root()),
        "picture" => docgen("picture"),
        "postgres" => {
            Postgres::start().map(|server| postgres::run_until_stopped(postgres::VARIABLE, &server))
        }
        "pgvector" => pgvector::start(&target_directory())
            .map(|server| postgres::run_until_stopped(pgvector::VARIABLE, &server)),
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
        println!("  {name:<9} {what}");
    }
}

/// Runs the program that writes docs from the code. It contains the whole command line, and this program does not.
fn docgen(task: &str) -> Result<(), String> {
    let mut command = cargo(&[
        "run",
        "--quiet",
        "--locked",
        "-p",
        "toolgate-docgen",
        "--",
        task,
    ]);
    let status = command
        .status()
        .map_err(|error| format!("the docs could not be written: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the docs could not be written\nhint: the lines above give the reason".to_owned())
    }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(arguments).current_dir(root());
    command
}

/// Returns the directory of compiled files.
fn target_directory() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(named.as_deref().unwrap_or(Path::new("target")))
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .map_or_else(|| here.to_owned(), Path::to_owned)
}
