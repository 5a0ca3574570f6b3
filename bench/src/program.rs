//! The cost of the program `toolgate`: its size, its start, and the demo.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{
    BenchOptions,
    measure::{CostGoal, CostRow, median},
};

/// The name of this part of the sheet.
pub(crate) const PART: &str = "program";

pub(crate) fn rows(options: &BenchOptions) -> Result<Vec<CostRow>, String> {
    if !options.wants(PART) {
        return Ok(Vec::new());
    }
    let program = std::env::current_exe()
        .ok()
        .and_then(|here| Some(here.parent()?.join("toolgate")));
    let program = program.filter(|program| program.is_file()).ok_or(
        "there is no program `toolgate` beside this one\nhint: cargo build --release -p toolgate-cli -p toolgate-bench",
    )?;
    let size = std::fs::metadata(&program)
        .map_err(|error| error.to_string())?
        .len() as f64
        / 1e6;
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let toolgate = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).env("TOOLGATE_HOME", home.path());
        command
    };
    let rounds = options.rounds;
    let nothing = spent(rounds, || Command::new("/bin/true"))?;
    let version = spent(rounds, || toolgate(&["--version"]))?;
    let demo = spent(rounds.min(7), || toolgate(&["demo", "--yes", "--json"]))?;
    let tests = tests_alone(rounds.min(7))?;
    Ok(vec![
        CostRow::new(
            "toolgate --version",
            version,
            "ms",
            Some(nothing),
            "/bin/true",
        )
        .aiming(CostGoal::ValueAtMost(5.0)),
        CostRow::new(
            "toolgate demo --yes, with the tools it runs",
            demo,
            "ms",
            Some(tests),
            "its two test runs alone",
        )
        .aiming(CostGoal::ValueAtMost(300.0)),
        CostRow::new("the program", size, "MB", None, "").aiming(CostGoal::ValueAtMost(40.0)),
    ])
}

/// Measures the two test runs of the demo without a terminal, in milliseconds.
fn tests_alone(rounds: usize) -> Result<f64, String> {
    let project: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "..",
        "crates/toolgate-cli/src/demo/project",
    ]
    .iter()
    .collect();
    let tests = || {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "./test.sh; ./test.sh; true"])
            .current_dir(&project);
        command
    };
    spent(rounds, tests)
}

/// Measures the processor time of a program and of all its children, in milliseconds.
fn spent(rounds: usize, command: impl Fn() -> Command) -> Result<f64, String> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let before = children_ms();
        let mut command = command();
        let ended = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let ended = ended.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        if !ended.success() {
            return Err(format!(
                "{:?} {:?} ended with {ended}",
                command.get_program(),
                command.get_args()
            ));
        }
        times.push(children_ms() - before);
    }
    Ok(median(times))
}

/// Returns the processor time of all children that have ended, in milliseconds.
#[expect(
    unsafe_code,
    reason = "the standard library does not tell what children have used"
)]
fn children_ms() -> f64 {
    // SAFETY: it is plain numbers, and zeroes are valid for them.
    let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
    // SAFETY: the place is valid, and the call only writes to it.
    let told = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    assert_eq!(told, 0, "a process may ask about its own children");
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}
