//! The counts of many cases in one table.

use std::{collections::BTreeMap, fmt};

use toolgate_core::Status;

use super::{CaseReport, Kill};

/// Adds up cases by scenario and store.
///
/// ```
/// use toolgate_testkit::crash::Table;
/// assert_eq!((Table::default().kills(), Table::default().violations()), (0, 0));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Table(BTreeMap<(String, String), Row>);

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    cases: u64,
    kills: [u64; Kill::KINDS.len()],
    stops: u64,
    calls: u64,
    effects: u64,
    again: u64,
    unknown: u64,
    asked: u64,
    receipts: u64,
    violations: u64,
}

impl Table {
    /// Adds a case that ran in `store`.
    pub fn add(&mut self, store: &str, report: &CaseReport) {
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
            .sessions()
            .into_iter()
            .flat_map(|seen| seen.calls.iter().map(move |call| (seen, call)))
        {
            row.calls += 1;
            row.again += (seen.effects_of(call.id).len() as u64).saturating_sub(1);
            row.unknown += u64::from(call.status() == Some(Status::OutcomeUnknown));
            row.asked += call.asked() as u64;
            row.receipts += u64::from(seen.receipts.get(&call.id).copied().unwrap_or(0));
        }
    }

    /// Takes another table in.
    pub fn merge(&mut self, other: Self) {
        for (key, row) in other.0 {
            self.0.entry(key).or_default().add(&row);
        }
    }

    /// How many processes were killed.
    pub fn kills(&self) -> u64 {
        self.0
            .values()
            .map(|row| row.kills.iter().sum::<u64>())
            .sum()
    }

    /// How many rules were broken.
    pub fn violations(&self) -> u64 {
        self.0.values().map(|row| row.violations).sum()
    }
}

impl Row {
    fn add(&mut self, other: &Self) {
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

    fn line(&self, f: &mut fmt::Formatter<'_>, scenario: &str, store: &str) -> fmt::Result {
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

impl fmt::Display for Table {
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
        let mut all = Row::default();
        for ((scenario, store), row) in &self.0 {
            row.line(f, scenario, store)?;
            all.add(row);
        }
        all.line(f, "all", "")
    }
}
