//! The counts of many cases in one table.

use std::{collections::BTreeMap, fmt};

use toolgate_core::Status;

use super::{CaseReport, KillPoint};

/// Adds up cases by scenario and store.
///
/// ```
/// use toolgate_testkit::crash::CrashTable;
/// assert_eq!((CrashTable::default().kill_count(), CrashTable::default().violation_count()), (0, 0));
/// ```
#[derive(Debug, Clone, Default)]
pub struct CrashTable(BTreeMap<(String, String), CrashRow>);

#[derive(Debug, Clone, Copy, Default)]
struct CrashRow {
    cases: u64,
    kills: [u64; KillPoint::KINDS.len()],
    stops: u64,
    calls: u64,
    effects: u64,
    again: u64,
    unknown: u64,
    asked: u64,
    receipts: u64,
    violations: u64,
}

impl CrashTable {
    /// Adds a case that ran in `store`.
    pub fn add_case(&mut self, store: &str, report: &CaseReport) {
        let row = self
            .0
            .entry((report.scenario.clone(), store.to_owned()))
            .or_default();
        let seen = &report.seen;
        row.cases += 1;
        row.kills
            .iter_mut()
            .zip(report.kills)
            .for_each(|(sum, kills)| *sum += u64::from(kills));
        row.stops += report.stops.len() as u64;
        row.violations += report.violations.len() as u64;
        row.effects += seen.effects.len() as u64;
        for (seen, call) in seen
            .all_sessions()
            .into_iter()
            .flat_map(|seen| seen.calls.iter().map(move |call| (seen, call)))
        {
            row.calls += 1;
            row.again += (seen.effects_of(call.id).len() as u64).saturating_sub(1);
            row.unknown += u64::from(call.status() == Some(Status::OutcomeUnknown));
            row.asked += call.approval_request_count() as u64;
            row.receipts += u64::from(seen.receipts.get(&call.id).copied().unwrap_or(0));
        }
    }

    /// Adds the rows of another table.
    pub fn merge_table(&mut self, other: Self) {
        for (key, row) in other.0 {
            self.0.entry(key).or_default().add_row(&row);
        }
    }

    /// Returns how many processes were killed.
    pub fn kill_count(&self) -> u64 {
        self.0
            .values()
            .map(|row| row.kills.iter().sum::<u64>())
            .sum()
    }

    /// Returns how many rules were broken.
    pub fn violation_count(&self) -> u64 {
        self.0.values().map(|row| row.violations).sum()
    }
}

impl CrashRow {
    fn add_row(&mut self, other: &Self) {
        self.cases += other.cases;
        self.kills
            .iter_mut()
            .zip(other.kills)
            .for_each(|(sum, kills)| *sum += kills);
        self.stops += other.stops;
        self.calls += other.calls;
        self.effects += other.effects;
        self.again += other.again;
        self.unknown += other.unknown;
        self.asked += other.asked;
        self.receipts += other.receipts;
        self.violations += other.violations;
    }

    fn write_line(&self, f: &mut fmt::Formatter<'_>, scenario: &str, store: &str) -> fmt::Result {
        write!(f, "{scenario:<18} {store:<10} {:>6}", self.cases)?;
        for kills in self.kills {
            write!(f, " {kills:>8}")?;
        }
        let Self {
            stops,
            calls,
            effects,
            again,
            unknown,
            asked,
            receipts,
            violations,
            ..
        } = self;
        writeln!(
            f,
            " {stops:>6} {calls:>7} {effects:>8} {again:>6} {unknown:>8} {asked:>6} {receipts:>9} {violations:>11}"
        )
    }
}

impl fmt::Display for CrashTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<18} {:<10} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7} {:>8} {:>6} {:>8} {:>6} {:>9} {:>11}",
            "scenario",
            "store",
            "cases",
            "<write",
            "write>",
            "<effect",
            "effect>",
            "any",
            "stops",
            "calls",
            "effects",
            "again",
            "unknown",
            "asked",
            "receipts",
            "violations"
        )?;
        let mut all = CrashRow::default();
        for ((scenario, store), row) in &self.0 {
            row.write_line(f, scenario, store)?;
            all.add_row(row);
        }
        all.write_line(f, "all", "")
    }
}
