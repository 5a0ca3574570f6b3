//! What a program of its own has used: processor time and memory, as the program itself sees it at its end.
//!
//! What the system tells about a child that has ended is not it: the memory of the process that started it counts there
//! until the child's own program is loaded.

use std::process::Command;

use crate::measure::cpu_ns;

/// What a process has used since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) cpu_ns: u64,
    pub(crate) peak_kib: u64,
}

impl Used {
    /// By this process, so far.
    pub(crate) fn here() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            cpu_ns: cpu_ns(),
            peak_kib: peak_kib(&status).unwrap_or_default(),
        }
    }

    /// By this program, started anew with one word.
    pub(crate) fn by_program(word: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a name");
        let output = Command::new(program)
            .arg(word)
            .output()
            .expect("this program can be started again");
        assert!(output.status.success(), "the child ends by itself");
        let text = String::from_utf8_lossy(&output.stdout);
        Self::read(&text).expect("the child says what it has used")
    }

    /// As one line.
    pub(crate) fn line(self) -> String {
        format!("{} {}", self.cpu_ns, self.peak_kib)
    }

    fn read(line: &str) -> Option<Self> {
        let (cpu, peak) = line.trim().split_once(' ')?;
        Some(Self {
            cpu_ns: cpu.parse().ok()?,
            peak_kib: peak.parse().ok()?,
        })
    }
}

/// The most memory that was resident at a time.
fn peak_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_of_itself_is_read_back() {
        let used = Used {
            cpu_ns: 5_000_000,
            peak_kib: 7_096,
        };
        assert_eq!(Used::read(&(used.line() + "\n")), Some(used));
        assert_eq!(Used::read("nothing"), None);
    }

    #[test]
    fn memory_is_that_of_the_program_and_not_of_whoever_started_it() {
        assert_eq!(
            peak_kib("VmPeak:\t    9000 kB\nVmHWM:\t    7096 kB\nVmRSS:\t 5000 kB\n"),
            Some(7_096)
        );
        assert!(Used::here().peak_kib > 0);
    }
}
