//! The queries for memories.

use sqlx::{Arguments, AssertSqlSafe, error::BoxDynError, postgres::PgArguments};
use toolgate_core::{ExpiryFilter, MemoryFilter, MemoryOwner};

use crate::{
    encoded::limit_to_db,
    memory_rows::owner_column,
    postgres::{id::PgUuid, read::PgQuery},
};

/// Returns the query for memories with their vectors, newest first.
pub(super) fn select_memories(filter: &MemoryFilter) -> Result<PgQuery<'static>, BoxDynError> {
    let (conditions, mut arguments) = conditions(filter)?;
    // The vector is not read where it is not wanted: it is larger than the text.
    let vector = if filter.embedder.is_some() {
        "embedder, vector"
    } else {
        "NULL::text, NULL::bytea"
    };
    arguments.add(limit_to_db(filter.limit))?;
    let sql = format!(
        "SELECT id, body, checksum, {vector} FROM memories WHERE {conditions} ORDER BY id DESC LIMIT ${}",
        arguments.len()
    );
    Ok(sqlx::query_with(AssertSqlSafe(sql), arguments))
}

/// Returns the statement that deletes all memories that the filter selects.
pub(super) fn delete_memories(filter: &MemoryFilter) -> Result<PgQuery<'static>, BoxDynError> {
    let (conditions, arguments) = conditions(filter)?;
    let sql = format!(
        "WITH gone AS (DELETE FROM memories WHERE {conditions} RETURNING id)
         SELECT id FROM gone ORDER BY id DESC"
    );
    Ok(sqlx::query_with(AssertSqlSafe(sql), arguments))
}

fn conditions(filter: &MemoryFilter) -> Result<(String, PgArguments), BoxDynError> {
    let mut sql = String::from("true");
    let mut arguments = PgArguments::default();
    if let MemoryOwner::Only(owner) = &filter.owner {
        arguments.add(owner_column(owner.as_ref()).into_bytes())?;
        sql.push_str(&format!(" AND owner = ${}", arguments.len()));
    }
    if !filter.scopes.is_empty() {
        let scopes = filter
            .scopes
            .iter()
            .map(|scope| scope.to_key().into_bytes());
        arguments.add(scopes.collect::<Vec<_>>())?;
        sql.push_str(&format!(" AND scope = ANY(${})", arguments.len()));
    }
    if !filter.ids.is_empty() {
        let ids = filter.ids.iter().map(|id| PgUuid(id.uuid()));
        arguments.add(ids.collect::<Vec<_>>())?;
        sql.push_str(&format!(" AND id = ANY(${})", arguments.len()));
    }
    if let Some(kind) = filter.kind {
        arguments.add(kind.as_str())?;
        sql.push_str(&format!(" AND kind = ${}", arguments.len()));
    }
    let session = filter.session.map(|session| session.uuid());
    let before = filter.before.map(|before| before.uuid());
    for (condition, id) in [(" AND session =", session), (" AND id <", before)] {
        if let Some(id) = id {
            arguments.add(PgUuid(id))?;
            sql.push_str(&format!("{condition} ${}", arguments.len()));
        }
    }
    match filter.expiry {
        ExpiryFilter::Any => {}
        ExpiryFilter::Current(now) => {
            arguments.add(now.as_micros())?;
            let condition = "(expires_at IS NULL OR expires_at >";
            sql.push_str(&format!(" AND {condition} ${})", arguments.len()));
        }
        ExpiryFilter::Expired(now) => {
            arguments.add(now.as_micros())?;
            sql.push_str(&format!(" AND expires_at <= ${}", arguments.len()));
        }
    }
    Ok((sql, arguments))
}
