//! Counts what durable shapes ask the system for: syncs, and bytes written.

use std::process::Command;

use crate::measure::{CostGoal, CostRow};

/// The system calls of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct DiskUse {
    syncs: f64,
    bytes: f64,
}

/// Returns syncs and written bytes of durable turns and of an approval cycle, where `strace` runs.
pub(super) fn rows() -> Vec<CostRow> {
    let shapes = [
        (
            "durable",
            "K: a durable turn, the default stack",
            1.05,
            Some(60.0),
        ),
        (
            "durable-write",
            "K: a durable turn, a tool that may write",
            2.05,
            None,
        ),
        (
            "durable-minimum",
            "K: a durable turn, hand-written",
            1.05,
            None,
        ),
        ("cycle", "C: suspend, decide and resume", 3.05, None),
    ];
    let mut rows = Vec::new();
    for (shape, name, syncs, kilobytes) in shapes {
        let Some(used) = each(shape, 20, 120) else {
            eprintln!("syncs are not counted: strace is not installed or does not run here");
            return Vec::new();
        };
        rows.push(
            CostRow::new(format!("{name}: syncs"), used.syncs, "syncs", None, "")
                .aiming(CostGoal::ValueAtMost(syncs)),
        );
        let written = CostRow::new(format!("{name}: written"), used.bytes / 1e3, "kB", None, "");
        rows.push(match kilobytes {
            Some(most) => written.aiming(CostGoal::ValueAtMost(most)),
            None => written,
        });
    }
    rows
}

/// The difference of two runs, so that opening and closing cancel out.
fn each(shape: &str, few: usize, many: usize) -> Option<DiskUse> {
    let low = trace(shape, few)?;
    let high = trace(shape, many)?;
    let count = (many - few) as f64;
    Some(DiskUse {
        syncs: (high.syncs - low.syncs) / count,
        bytes: (high.bytes - low.bytes) / count,
    })
}

fn trace(shape: &str, times: usize) -> Option<DiskUse> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=fsync,fdatasync,pwrite64"])
        .arg(program)
        .args(["count", shape, &times.to_string()])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(read_trace(&String::from_utf8_lossy(&output.stderr)))
}

fn read_trace(text: &str) -> DiskUse {
    let mut used = DiskUse::default();
    for line in text.lines() {
        // A call that another thread interrupted has its result on a line of its own.
        if line.contains("<unfinished") {
            continue;
        }
        if line.contains("sync(") || line.contains("sync resumed") {
            used.syncs += 1.0;
        } else if line.contains("pwrite64") {
            let written = line
                .rsplit_once("= ")
                .and_then(|(_, n)| n.parse::<f64>().ok());
            used.bytes += written.unwrap_or_default();
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_once_even_if_it_was_interrupted() {
        let text = "[pid 7] fdatasync(5 <unfinished ...>\n\
                    [pid 8] pwrite64(5, \"\"..., 4096, 0) = 4096\n\
                    [pid 7] <... fdatasync resumed>) = 0\n\
                    fsync(4) = 0\n\
                    [pid 8] <... pwrite64 resumed>) = 100\n";
        let used = read_trace(text);
        assert_eq!((used.syncs, used.bytes), (2.0, 4_196.0));
    }
}
