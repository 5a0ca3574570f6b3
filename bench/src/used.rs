//! The resources that the program `toolgate-bench-hello` uses: processor time and memory.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The program whose start is measured: it has only what it uses, as a program of a user has.
const PROGRAM: &str = "toolgate-bench-hello";

/// The resources that a process has used until its end, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceUse {
    pub(crate) cpu_ns: u64,
    pub(crate) peak_kib: u64,
}

/// The program whose start is measured, built with the profile of this one.
pub(crate) struct HelloProgram(PathBuf);

impl HelloProgram {
    /// Builds the program, unless it is up to date.
    pub(crate) fn build() -> Result<Self, String> {
        let bench = std::env::current_exe().map_err(|error| error.to_string())?;
        let directory = bench.parent().unwrap_or(Path::new("."));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", PROGRAM]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        // The folder of a profile lies in the target directory.
        if let Some(target) = directory.parent() {
            build.arg("--target-dir").arg(target);
        }
        let built = build
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .map_err(|error| format!("cargo could not be started: {error}"))?;
        if built.success() {
            Ok(Self(directory.join(PROGRAM)))
        } else {
            Err(format!("{PROGRAM} could not be built"))
        }
    }

    /// Runs the program and returns what it used: with a call, or without.
    pub(crate) fn measure(&self, with_call: bool) -> ResourceUse {
        let mut program = Command::new(&self.0);
        if !with_call {
            program.arg("nothing");
        }
        let output = program.output().expect("the program can be started");
        assert!(output.status.success(), "the program ends by itself");
        let text = String::from_utf8_lossy(&output.stdout);
        ResourceUse::read(&text).expect("the program says what it has used")
    }
}

impl ResourceUse {
    fn read(line: &str) -> Option<Self> {
        let (cpu, peak) = line.trim().split_once(' ')?;
        Some(Self {
            cpu_ns: cpu.parse().ok()?,
            peak_kib: peak.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_says_is_read() {
        let used = ResourceUse {
            cpu_ns: 5_000_000,
            peak_kib: 7_096,
        };
        assert_eq!(ResourceUse::read("5000000 7096\n"), Some(used));
        assert_eq!(ResourceUse::read("nothing"), None);
    }
}
