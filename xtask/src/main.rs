//! The project's chores. `cargo xtask` lists them.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

/// One thing that can be done, and what it is for.
const TASKS: [(&str, &str); 3] = [
    ("test", "format, lints, all tests, examples and docs: everything that has to be green"),
    ("schema", "write the JSON Schema of events to docs/reference/events.schema.json"),
    ("help", "this list"),
];

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_else(|| "help".to_owned());
    let done = match task.as_str() {
        "test" => test(),
        "schema" => write_schema(),
        "help" | "--help" | "-h" => {
            help();
            Ok(())
        }
        other => Err(format!("there is no task named {other}\nhint: `cargo xtask help` lists them")),
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
    step("format", cargo(&["fmt", "--all", "--check"]), "`cargo fmt --all` mends it")?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"];
    step("lints", cargo(&clippy), "clippy says what to change")?;
    schema_is_current()?;
    run_tests()?;
    step(
        "doc tests",
        cargo(&["test", "--workspace", "--all-features", "--locked", "--doc"]),
        "a snippet does not work",
    )?;
    let mut docs = cargo(&["doc", "--workspace", "--all-features", "--no-deps", "--locked"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    step("docs", docs, "rustdoc says which link or item")?;
    step(
        "first example",
        cargo(&["run", "--quiet", "--locked", "-p", "parallel-tools"]),
        "the README promises that it runs",
    )?;
    println!("\neverything is green after {} s", start.elapsed().as_secs());
    Ok(())
}

/// Runs unit, property, scenario and compile-fail tests: with nextest where it is installed, else with cargo.
fn run_tests() -> Result<(), String> {
    let nextest = cargo(&["nextest", "--version"]).output().is_ok_and(|found| found.status.success());
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test", "--tests", "--lib"] };
    let common = ["--workspace", "--all-features", "--locked"];
    step("tests", cargo(&[runner, &common[..]].concat()), "a rule does not hold")
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(arguments).current_dir(root());
    command
}

fn step(name: &str, mut command: Command, hint: &str) -> Result<(), String> {
    println!("\n== {name}");
    let start = Instant::now();
    let status = command.status().map_err(|error| format!("{name} could not be started: {error}"))?;
    if !status.success() {
        return Err(format!("{name} failed\nhint: {hint}"));
    }
    println!("== {name}: fine ({} s)", start.elapsed().as_secs());
    Ok(())
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_owned(), Path::to_owned)
}

const SCHEMA: &str = "docs/reference/events.schema.json";

fn schema() -> Result<String, String> {
    let text = serde_json::to_string_pretty(&toolgate_core::Event::json_schema());
    text.map(|text| text + "\n").map_err(|error| error.to_string())
}

fn write_schema() -> Result<(), String> {
    let path = root().join(SCHEMA);
    let folder = path.parent().map_or_else(root, Path::to_owned);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    std::fs::write(&path, schema()?).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {SCHEMA}");
    Ok(())
}

fn schema_is_current() -> Result<(), String> {
    let published = std::fs::read_to_string(root().join(SCHEMA)).unwrap_or_default();
    if published != schema()? {
        return Err(format!("{SCHEMA} is not what the code says\nhint: `cargo xtask schema` writes it anew"));
    }
    println!("\n== event schema: published as it is in the code");
    Ok(())
}
