//! Reads the SQLite file of opencode, without changing it.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};
use toolgate::archive::{ForeignFormat, ForeignSession, OpencodeRow};

use crate::CliError;

/// A query over a table of opencode.
struct TableQuery {
    sql: &'static str,
    /// Turns a row into one for the reader.
    read: fn(&Row<'_>) -> rusqlite::Result<OpencodeRow>,
    /// The column with the id of the session or message that a row belongs to.
    owner: usize,
}

/// The tables and columns that are read, in the order in which the reader needs them.
const QUERIES: [TableQuery; 3] = [
    TableQuery {
        sql: "SELECT id, title, directory FROM session ORDER BY id",
        read: read_session,
        owner: 0,
    },
    TableQuery {
        sql: "SELECT id, session_id, time_created, data FROM message ORDER BY session_id, time_created, id",
        read: read_message,
        owner: 1,
    },
    TableQuery {
        sql: "SELECT message_id, data FROM part ORDER BY message_id, id",
        read: read_part,
        owner: 0,
    },
];

/// Reads all sessions of a database.
pub(super) fn read_database(path: &Path) -> Result<Vec<ForeignSession>, CliError> {
    let failed = |error: rusqlite::Error| {
        CliError::new(format!("the database cannot be read: {error}"))
            .with_hint("it has to be the file opencode.db of opencode")
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    // A foreign schema must not run functions or write through views and triggers.
    connection
        .pragma_update(None, "trusted_schema", false)
        .map_err(failed)?;
    connection
        .pragma_update(None, "query_only", true)
        .map_err(failed)?;
    check_tables(&connection).map_err(failed)?;
    let mut rows = Vec::new();
    for TableQuery { sql, read, owner } in QUERIES {
        let mut statement = connection.prepare(sql).map_err(failed)?;
        let mut found = statement.query([]).map_err(failed)?;
        while let Some(row) = found.next().map_err(failed)? {
            // A column of another type belongs to one row, and does not keep the others from being read.
            rows.push(read(row).unwrap_or_else(|_| OpencodeRow::Unreadable {
                owner: row.get(owner).ok(),
            }));
        }
    }
    let mut sessions = ForeignFormat::read_rows(rows);
    sessions.retain(|session| !session.messages.is_empty() || !session.warnings.is_empty());
    Ok(sessions)
}

/// Checks that what is read are tables: a view could be a query that never ends.
fn check_tables(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM sqlite_schema
               WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name IN ('session', 'message', 'part')";
    match connection.query_row(sql, [], |row| row.get::<_, i64>(0))? {
        3 => Ok(()),
        _ => Err(rusqlite::Error::InvalidQuery),
    }
}

fn read_session(row: &Row<'_>) -> rusqlite::Result<OpencodeRow> {
    Ok(OpencodeRow::Session {
        id: row.get(0)?,
        title: row.get(1)?,
        directory: row.get(2)?,
    })
}

fn read_message(row: &Row<'_>) -> rusqlite::Result<OpencodeRow> {
    Ok(OpencodeRow::Message {
        id: row.get(0)?,
        session: row.get(1)?,
        created: row.get(2)?,
        data: row.get(3)?,
    })
}

fn read_part(row: &Row<'_>) -> rusqlite::Result<OpencodeRow> {
    Ok(OpencodeRow::Part {
        message: row.get(0)?,
        data: row.get(1)?,
    })
}
