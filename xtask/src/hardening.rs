//! Checks that need tools beside the compiler, or more minutes than the test command has: the
//! dependencies, undefined behaviour in the core, and breaking changes of the public API.
//!
//! A check whose tool or data is missing is skipped, and the summary says so: "not checked" is never
//! reported as "passed". With `--strict` a skipped check fails.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{cargo, root};

/// The variable that names the git revision to compare the public API with.
const BASELINE: &str = "TOOLGATE_SEMVER_BASELINE";

/// The parts of the core that miri runs: those that read bytes from outside. Property tests and the
/// stack would take hours in an interpreter.
const MIRI_TESTS: [&str; 4] = ["ledger::", "approval::", "patch::", "value::"];

/// The result of one check.
#[derive(Debug, PartialEq, Eq)]
enum CheckResult {
    Passed,
    Failed,
    /// Not checked, for this reason.
    Skipped(String),
}

struct Check {
    name: &'static str,
    run: fn() -> CheckResult,
}

const CHECKS: [Check; 4] = [
    Check {
        name: "licences, bans, sources",
        run: check_dependencies,
    },
    Check {
        name: "advisories",
        run: check_advisories,
    },
    Check {
        name: "miri",
        run: check_miri,
    },
    Check {
        name: "semver",
        run: check_semver,
    },
];

/// Runs all checks and prints what each found and how long it took.
pub(crate) fn run() -> Result<(), String> {
    let strict = std::env::args().any(|argument| argument == "--strict");
    let mut results = Vec::new();
    for Check { name, run } in CHECKS {
        println!("── {name}");
        let began = Instant::now();
        results.push((name, run(), began.elapsed()));
    }
    println!();
    for (name, result, took) in &results {
        println!("{}", summary_line(name, result, *took));
    }
    judge(
        results.iter().map(|(name, result, _)| (*name, result)),
        strict,
    )
}

fn summary_line(name: &str, result: &CheckResult, took: Duration) -> String {
    let seconds = took.as_secs();
    match result {
        CheckResult::Passed => format!("{seconds:>5} s  {name}: passed"),
        CheckResult::Failed => format!("{seconds:>5} s  {name}: FAILED"),
        CheckResult::Skipped(why) => format!("{seconds:>5} s  {name}: not checked: {why}"),
    }
}

fn judge<'a>(
    results: impl Iterator<Item = (&'a str, &'a CheckResult)>,
    strict: bool,
) -> Result<(), String> {
    let is_bad = |result: &CheckResult| match result {
        CheckResult::Passed => false,
        CheckResult::Failed => true,
        CheckResult::Skipped(_) => strict,
    };
    let bad: Vec<&str> = results
        .filter(|(_, result)| is_bad(result))
        .map(|(name, _)| name)
        .collect();
    if bad.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "{}\nhint: the lines above give the reasons",
            bad.join(", ")
        ))
    }
}

/// Checks `deny.toml` as far as it needs no network.
fn check_dependencies() -> CheckResult {
    match find_tool(&["deny", "--version"], "cargo install --locked cargo-deny") {
        Some(skipped) => skipped,
        None => run_to_end(cargo(&[
            "deny",
            "--offline",
            "check",
            "licenses",
            "bans",
            "sources",
        ])),
    }
}

/// Checks for known vulnerabilities. The database is fetched first: an old one would miss the new
/// ones, and no network must not look like no vulnerability.
fn check_advisories() -> CheckResult {
    if let Some(skipped) = find_tool(&["deny", "--version"], "cargo install --locked cargo-deny") {
        return skipped;
    }
    if run_to_end(cargo(&["deny", "fetch", "db"])) != CheckResult::Passed {
        return CheckResult::Skipped("the advisory database could not be fetched".to_owned());
    }
    run_to_end(cargo(&["deny", "check", "--disable-fetch", "advisories"]))
}

fn check_miri() -> CheckResult {
    let version = ["+nightly", "miri", "--version"];
    if !succeeds(rustup_cargo(&version)) {
        let how = "rustup component add --toolchain nightly miri rust-src";
        return CheckResult::Skipped(format!("there is no miri; `{how}` installs it"));
    }
    let mut command = rustup_cargo(&[
        "+nightly",
        "miri",
        "test",
        "--locked",
        "-p",
        "toolgate-core",
    ]);
    command
        .args(["--lib", "--"])
        .args(MIRI_TESTS)
        // An interpreter is about a thousand times slower: few cases, and no files of past failures.
        .env("PROPTEST_CASES", "2")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .env("MIRIFLAGS", "-Zmiri-disable-isolation");
    run_to_end(command)
}

/// Compares the public API with that of a release: the revision that the variable names, or the
/// newest tag of a version.
fn check_semver() -> CheckResult {
    let install = "cargo install --locked cargo-semver-checks";
    if let Some(skipped) = find_tool(&["semver-checks", "--version"], install) {
        return skipped;
    }
    let Some(baseline) = std::env::var(BASELINE).ok().or_else(newest_version_tag) else {
        let why = format!("there is no release to compare with; {BASELINE} names a revision");
        return CheckResult::Skipped(why);
    };
    run_to_end(cargo(&[
        "semver-checks",
        "--workspace",
        "--baseline-rev",
        &baseline,
    ]))
}

fn newest_version_tag() -> Option<String> {
    let tags = Command::new("git")
        .args(["tag", "--list", "v*", "--sort=-version:refname"])
        .current_dir(root())
        .output()
        .ok()?;
    let tags = String::from_utf8(tags.stdout).ok()?;
    tags.lines().next().map(str::to_owned)
}

/// Returns the reason to skip a check if cargo does not have the tool.
fn find_tool(version: &[&str], install: &str) -> Option<CheckResult> {
    let missing = || CheckResult::Skipped(format!("the tool is missing; `{install}` installs it"));
    (!succeeds(cargo(version))).then(missing)
}

/// Returns cargo through rustup, which understands `+nightly`. The cargo that runs this program does
/// not.
fn rustup_cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(arguments)
        .current_dir(root())
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn succeeds(mut command: Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn run_to_end(mut command: Command) -> CheckResult {
    match command.status() {
        Ok(status) if status.success() => CheckResult::Passed,
        Ok(_) => CheckResult::Failed,
        Err(error) => CheckResult::Skipped(format!("it could not be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_check_never_counts_as_passed() {
        let skipped = CheckResult::Skipped("no network".to_owned());
        let line = summary_line("advisories", &skipped, Duration::from_secs(2));
        assert_eq!(line, "    2 s  advisories: not checked: no network");
        let judged = |results: &[&CheckResult], strict| {
            judge(results.iter().map(|result| ("a", *result)), strict).is_ok()
        };
        let passed = &CheckResult::Passed;
        let failed = &CheckResult::Failed;
        for (results, strict, fine) in [
            (&[passed, passed][..], true, true),
            (&[passed, &skipped], false, true),
            (&[passed, &skipped], true, false),
            (&[passed, failed], false, false),
            (&[failed, &skipped], true, false),
            (&[], true, true),
        ] {
            assert_eq!(judged(results, strict), fine, "{results:?} {strict}");
        }
    }
}
