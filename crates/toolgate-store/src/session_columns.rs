//! The columns of a session that a list shows beside those that its writes depend on: totals of its
//! events, what is not settled, and whether it was imported.

use std::sync::Arc;

use toolgate_core::{Cost, ImportOrigin, SessionTotals, ToolName, UnsettledWork};

use crate::encoded::{decode_record, from_db, to_db};

/// The SQL condition for sessions that are not those of agents.
pub(crate) fn agents_condition(without_agents: bool) -> &'static str {
    if without_agents {
        "AND parent IS NULL"
    } else {
        ""
    }
}

/// Counts of what is not settled, as columns of a list of sessions.
pub(crate) const UNSETTLED_COLUMNS: &str =
    "(SELECT count(*) FROM approvals WHERE session = sessions.id AND state = 'pending'),
    (SELECT count(*) FROM approvals WHERE session = sessions.id AND state = 'answered'),
    (SELECT count(*) FROM approvals WHERE session = sessions.id AND state = 'running'),
    EXISTS (SELECT 1 FROM turns WHERE session = sessions.id AND settled_at IS NULL)";

/// A cost that is not known, as it is stored. Unknown is not zero, and not the same as none.
const UNKNOWN_COST: i64 = -1;

/// The totals of a session as its columns have them.
pub(crate) struct TotalColumns<'a> {
    /// Null if the events of an older version could not be counted.
    pub(crate) calls: Option<i64>,
    pub(crate) cost: Option<i64>,
    pub(crate) model: Option<&'a str>,
    pub(crate) provider: Option<&'a str>,
    pub(crate) first_tool: Option<&'a str>,
}

impl TotalColumns<'_> {
    /// Returns the totals, if they are known.
    pub(crate) fn decode(self) -> Option<SessionTotals> {
        Some(SessionTotals {
            calls: from_db(self.calls?),
            cost: self.cost.map(decode_cost),
            model: self.model.map(Arc::from),
            provider: self.provider.map(Arc::from),
            first_tool: self.first_tool.map(ToolName::from),
        })
    }
}

/// Encodes a cost for its column.
pub(crate) fn encode_cost(cost: Cost) -> i64 {
    match cost {
        Cost::Unknown => UNKNOWN_COST,
        Cost::NanoUsd(nano) => to_db(nano),
    }
}

fn decode_cost(column: i64) -> Cost {
    u64::try_from(column).map_or(Cost::Unknown, Cost::NanoUsd)
}

/// Returns the SQL for the sum of a stored cost and more, either of which may be null or unknown.
pub(crate) fn cost_sum(stored: &str, more: &str) -> String {
    format!(
        "CASE WHEN {more} IS NULL THEN {stored} WHEN {stored} IS NULL THEN {more}
              WHEN {stored} < 0 OR {more} < 0 THEN {UNKNOWN_COST} ELSE {stored} + {more} END"
    )
}

/// Builds the counts of what is not settled.
pub(crate) fn decode_unsettled(counts: [i64; 3], has_open_turn: bool) -> UnsettledWork {
    let [pending, answered, running] = counts.map(from_db);
    UnsettledWork {
        pending,
        answered,
        running,
        has_open_turn,
    }
}

/// Returns the origin of a session from the record of its mark: name, body and checksum.
pub(crate) fn decode_origin(
    name: Option<&str>,
    body: Option<&str>,
    checksum: Option<i64>,
) -> Option<ImportOrigin> {
    let record = decode_record(name?, body?, checksum);
    Some(ImportOrigin::from_record(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_survives_encoding_and_unknown_is_not_zero() {
        for cost in [Cost::Unknown, Cost::NanoUsd(0), Cost::NanoUsd(7)] {
            assert_eq!(decode_cost(encode_cost(cost)), cost);
        }
    }
}
