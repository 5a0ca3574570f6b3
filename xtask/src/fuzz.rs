//! Fuzzing: on the stable compiler as a stage of the test command, and with libFuzzer on request.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The time of the stage of the test command, for all targets together.
const STAGE_SECONDS: &str = "180";

/// The largest input that is added to a corpus, in bytes: the corpus is part of the repository.
const MAX_ADDED_BYTES: u64 = 1024;

/// Runs all targets on the stable compiler. `program` is the compiled runner.
pub(crate) fn stage_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["run", "--seconds", STAGE_SECONDS]);
    command
}

/// Runs targets with libFuzzer, which needs a nightly compiler, and adds what it finds to the
/// corpora.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let FuzzRequest { target, minutes } = FuzzRequest::parse(arguments)?;
    check_tools(root)?;
    let targets = match target {
        Some(target) => vec![target],
        None => list_targets(root)?,
    };
    let seconds = (minutes * 60 / targets.len() as u64).max(1);
    for target in &targets {
        println!("\n== {target}: {seconds} s");
        run_target(root, target, seconds)?;
    }
    Ok(())
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct FuzzRequest {
    target: Option<String>,
    /// The time for all targets together.
    minutes: u64,
}

impl FuzzRequest {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let usage = "\nhint: `cargo xtask fuzz [TARGET] [--minutes N]`";
        let mut request = Self {
            target: None,
            minutes: 10,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--minutes" {
                let minutes = arguments.next().and_then(|text| text.parse().ok());
                request.minutes = minutes.ok_or(format!("--minutes needs a number{usage}"))?;
            } else if argument.starts_with('-') || request.target.is_some() {
                return Err(format!("{argument} is not expected{usage}"));
            } else {
                request.target = Some(argument.clone());
            }
        }
        Ok(request)
    }
}

/// Checks that a nightly compiler and `cargo-fuzz` are installed.
fn check_tools(root: &Path) -> Result<(), String> {
    let works = |arguments: &[&str]| {
        let mut command = nightly_cargo(root, arguments);
        command.output().is_ok_and(|output| output.status.success())
    };
    if !works(&["--version"]) {
        return Err("libFuzzer needs a nightly compiler\n\
             hint: `rustup toolchain install nightly` installs one; \
             `cargo run -p toolgate-fuzz -- run` needs none"
            .to_owned());
    }
    if !works(&["fuzz", "--version"]) {
        return Err("cargo-fuzz is not installed\n\
             hint: `cargo install cargo-fuzz` installs it; \
             `cargo run -p toolgate-fuzz -- run` does not need it"
            .to_owned());
    }
    Ok(())
}

fn list_targets(root: &Path) -> Result<Vec<String>, String> {
    let output = crate::cargo(&[
        "run",
        "--quiet",
        "--locked",
        "-p",
        "toolgate-fuzz",
        "--",
        "list",
    ])
    .current_dir(root)
    .output()
    .map_err(|error| format!("the targets could not be listed: {error}"))?;
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.lines().map(str::to_owned).collect())
}

fn run_target(root: &Path, target: &str, seconds: u64) -> Result<(), String> {
    let committed = root.join("fuzz/corpus").join(target);
    let found = root.join("target/fuzz/libfuzzer").join(target);
    for folder in [&committed, &found] {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let folders = [&found, &committed].map(|folder| folder.display().to_string());
    let time = format!("-max_total_time={seconds}");
    let status = nightly_cargo(
        root,
        &["fuzz", "run", "--fuzz-dir", "fuzz/libfuzzer", "any_target"],
    )
    .args(&folders)
    .args(["--", &time, "-timeout=10", "-rss_limit_mb=4096"])
    .env("TOOLGATE_FUZZ_TARGET", target)
    .status()
    .map_err(|error| format!("cargo-fuzz could not be started: {error}"))?;
    if !status.success() {
        return Err(format!(
            "a property of {target} does not hold\nhint: the lines above name the file with the input"
        ));
    }
    minimise(root, target, &found, &committed)
}

/// Adds the small inputs that reach new code to the committed corpus.
fn minimise(root: &Path, target: &str, found: &Path, committed: &Path) -> Result<(), String> {
    let too_large = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_ADDED_BYTES)
    };
    let files =
        std::fs::read_dir(found).map_err(|error| format!("{}: {error}", found.display()))?;
    for path in files.flatten().map(|entry| entry.path()).filter(too_large) {
        std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    // Merging adds only inputs that reach code which the committed ones do not reach.
    let folders = [committed, found].map(|folder| folder.display().to_string());
    let status = nightly_cargo(
        root,
        &["fuzz", "run", "--fuzz-dir", "fuzz/libfuzzer", "any_target"],
    )
    .args(&folders)
    .args(["--", "-merge=1"])
    .env("TOOLGATE_FUZZ_TARGET", target)
    .status()
    .map_err(|error| format!("cargo-fuzz could not be started: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the corpus of {target} could not be merged"))
    }
}

fn nightly_cargo(root: &Path, arguments: &[&str]) -> Command {
    // Not `crate::cargo`: `CARGO` names the compiler of this program, and only the wrapper of
    // rustup understands `+nightly`.
    let mut command = Command::new("cargo");
    command
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .arg("+nightly")
        .args(arguments)
        .current_dir(root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<FuzzRequest, String> {
        let owned: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        FuzzRequest::parse(&owned)
    }

    #[test]
    fn a_target_and_the_minutes_may_be_given_in_any_order() {
        let request = |target: Option<&str>, minutes| {
            let target = target.map(str::to_owned);
            Ok(FuzzRequest { target, minutes })
        };
        assert_eq!(parse(&[]), request(None, 10));
        assert_eq!(parse(&["shell"]), request(Some("shell"), 10));
        assert_eq!(
            parse(&["--minutes", "3", "shell"]),
            request(Some("shell"), 3)
        );
        assert_eq!(
            parse(&["shell", "--minutes", "3"]),
            request(Some("shell"), 3)
        );
        for bad in [
            &["--minutes"][..],
            &["--minutes", "x"],
            &["a", "b"],
            &["--fast"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
