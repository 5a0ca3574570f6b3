//! Suspending for an approval and resuming from a database, written by hand: three commits.

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::LAYERS;
use crate::floors::BoxedChain;

/// A database with the runs that wait, and the decisions about them.
pub(super) struct LeastCycle {
    first: Connection,
    second: Connection,
    chain: std::sync::Arc<BoxedChain>,
    next: std::cell::Cell<i64>,
}

impl LeastCycle {
    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        let connect = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            Ok(connection)
        };
        let first = connect()?;
        first.execute_batch(
            "CREATE TABLE runs (id INTEGER PRIMARY KEY, state TEXT);
             CREATE TABLE decisions (id INTEGER PRIMARY KEY, decision TEXT);
             CREATE TABLE results (id INTEGER PRIMARY KEY, result TEXT)",
        )?;
        Ok(Self {
            first,
            second: connect()?,
            chain: BoxedChain::new(LAYERS, None),
            next: std::cell::Cell::new(0),
        })
    }

    /// Suspends, decides and resumes once.
    pub(super) async fn run(&self) -> rusqlite::Result<()> {
        let id = self.next.replace(self.next.get() + 1);
        let state = json!({
            "said": [{ "role": "user", "content": "go" }, { "role": "assistant", "call": "c0_0" }],
            "pending": { "id": "c0_0", "tool": "echo", "arguments": { "text": "t0-0" } },
        });
        let sql = "INSERT INTO runs VALUES (?1, ?2)";
        self.first
            .prepare_cached(sql)?
            .execute((id, state.to_string()))?;
        let sql = "INSERT INTO decisions VALUES (?1, ?2)";
        let decision = json!({ "by": "ann", "decision": "approve" });
        self.second
            .prepare_cached(sql)?
            .execute((id, decision.to_string()))?;
        let sql = "SELECT state, decision FROM runs JOIN decisions USING (id) WHERE id = ?1";
        let (state, decision): (String, String) = self
            .second
            .prepare_cached(sql)?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let state: Value = serde_json::from_str(&state).expect("is JSON");
        let decision: Value = serde_json::from_str(&decision).expect("is JSON");
        assert_eq!(decision["decision"], "approve");
        let text = state["pending"]["arguments"].to_string();
        assert_eq!(self.chain.turn(|_| text.clone(), 1, 1).await, 1);
        let result = json!({ "said": state["said"], "result": "t0-0", "answer": "done" });
        let sql = "INSERT INTO results VALUES (?1, ?2)";
        self.second
            .prepare_cached(sql)?
            .execute((id, result.to_string()))?;
        Ok(())
    }
}
