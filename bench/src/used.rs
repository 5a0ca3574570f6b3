//! The resources that a separate program has used: processor time and memory, as the program itself
//! sees them at its end.
//!
//! What the system reports about a child that has ended is different: the memory of the process
//! that started it counts until the child's own program is loaded.

use std::process::Command;

use crate::measure::cpu_ns;

/// The resources that a process has used since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceUse {
    pub(crate) cpu_ns: u64,
    pub(crate) peak_kib: u64,
}

impl ResourceUse {
    /// Returns the use of this process so far.
    pub(crate) fn here() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            cpu_ns: cpu_ns(),
            peak_kib: peak_kib(&status).unwrap_or_default(),
        }
    }

    /// Starts this program with one argument, and returns its use.
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

    /// Formats it as one line.
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

/// Returns the largest resident memory.
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
        let used = ResourceUse {
            cpu_ns: 5_000_000,
            peak_kib: 7_096,
        };
        assert_eq!(ResourceUse::read(&(used.line() + "\n")), Some(used));
        assert_eq!(ResourceUse::read("nothing"), None);
    }

    #[test]
    fn memory_is_that_of_the_program_and_not_of_whoever_started_it() {
        assert_eq!(
            peak_kib("VmPeak:\t    9000 kB\nVmHWM:\t    7096 kB\nVmRSS:\t 5000 kB\n"),
            Some(7_096)
        );
        assert!(ResourceUse::here().peak_kib > 0);
    }
}
