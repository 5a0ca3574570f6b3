//! The queries for memories.

use rusqlite::types::Value;
use toolgate_core::{ExpiryFilter, MemoryFilter, MemoryOwner};

use crate::{encoded::limit_to_db, memory_rows::owner_column};

/// Returns the query for memories with their vectors, newest first.
pub(super) fn select_memories(filter: &MemoryFilter) -> (String, Vec<Value>) {
    let (conditions, values) = conditions(filter);
    // The vector is not read where it is not wanted: it is larger than the text.
    let vector = if filter.embedder.is_some() {
        "embedder, vector"
    } else {
        "NULL, NULL"
    };
    let limit = limit_to_db(filter.limit);
    let sql = format!(
        "SELECT id, body, checksum, {vector} FROM memories WHERE {conditions} ORDER BY id DESC LIMIT {limit}"
    );
    (sql, values)
}

/// Returns the query for the ids of all memories that the filter selects.
pub(super) fn select_ids(filter: &MemoryFilter) -> (String, Vec<Value>) {
    let (conditions, values) = conditions(filter);
    let sql = format!("SELECT id FROM memories WHERE {conditions} ORDER BY id DESC");
    (sql, values)
}

fn conditions(filter: &MemoryFilter) -> (String, Vec<Value>) {
    let mut sql = String::from("1");
    let mut values = Vec::new();
    let mut add = |condition: String, more: Vec<Value>| {
        sql.push_str(" AND ");
        sql.push_str(&condition);
        values.extend(more);
    };
    match &filter.owner {
        MemoryOwner::Any => {}
        MemoryOwner::Only(owner) => add(
            "owner = ?".into(),
            vec![Value::from(owner_column(owner.as_ref()))],
        ),
    }
    if !filter.scopes.is_empty() {
        let scopes = filter
            .scopes
            .iter()
            .map(|scope| Value::from(scope.to_key()));
        let list = placeholders(filter.scopes.len());
        add(format!("scope IN ({list})"), scopes.collect());
    }
    if !filter.ids.is_empty() {
        let ids = filter.ids.iter().map(|id| blob(id.uuid()));
        let list = placeholders(filter.ids.len());
        add(format!("id IN ({list})"), ids.collect());
    }
    if let Some(kind) = filter.kind {
        add(
            "kind = ?".into(),
            vec![Value::from(kind.as_str().to_owned())],
        );
    }
    if let Some(session) = filter.session {
        add("session = ?".into(), vec![blob(session.uuid())]);
    }
    if let Some(before) = filter.before {
        add("id < ?".into(), vec![blob(before.uuid())]);
    }
    match filter.expiry {
        ExpiryFilter::Any => {}
        ExpiryFilter::Current(now) => add(
            "(expires_at IS NULL OR expires_at > ?)".into(),
            vec![Value::from(now.as_micros())],
        ),
        ExpiryFilter::Expired(now) => {
            add("expires_at <= ?".into(), vec![Value::from(now.as_micros())])
        }
    }
    (sql, values)
}

fn blob(id: uuid::Uuid) -> Value {
    Value::from(id.into_bytes().to_vec())
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}
