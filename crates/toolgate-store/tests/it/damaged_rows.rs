//! A flipped bit in any table is found by the check, or harms nothing; a damaged row that resuming or
//! paying relies on is not used.

use std::{fs, path::Path};

use rusqlite::{Connection, types::Value};
use toolgate_core::{
    AccountStore, Charge, ChargeId, LeaseRequest, LeaseTerm, MailboxItem, StoreError, StoreHandle,
    Timestamp,
};
use toolgate_store::{IntegrityProblem, SqliteStore};

use crate::{
    memories::fill_memories,
    migrations::fill_7,
    support::{call_id, session, turn_id},
};

/// The columns in which a wrong value harms nothing, and why. `docs/reference/promises.md` lists
/// them too.
const HARMLESS: [(&str, &str); 12] = [
    // Whether a holder may be replaced; the fence keeps two writers apart.
    ("sessions", "lease_until"),
    // The order of lists.
    ("sessions", "last_use"),
    // Only shown, and not in the log if the session was renamed.
    ("sessions", "title"),
    // Only shown.
    ("toolgate_schema", "name"),
    ("toolgate_schema", "applied_at"),
    // A number without a meaning.
    ("blob_pieces", "id"),
    // What is in the search index, which `toolgate search reindex` rebuilds.
    ("sessions", "indexed"),
    ("sessions", "indexed_title"),
    ("sessions", "is_retitled"),
    ("sessions", "is_behind"),
    // The order of what is recalled; made again from the text.
    ("memories", "embedder"),
    ("memories", "vector"),
];

/// A value in the database: its table, the number of its row, and its column.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    table: String,
    row: i64,
    column: String,
}

fn names(database: &Connection, sql: &str) -> Vec<String> {
    let mut statement = database.prepare(sql).expect("is valid");
    let rows = statement.query_map([], |row| row.get(0)).expect("reads");
    rows.map(|name| name.expect("a name")).collect()
}

/// Lists all values of all tables but those of the search index, which is a projection of the others
/// and can be rebuilt at any time.
fn list_cells(database: &Connection) -> Vec<Cell> {
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
                  AND name NOT LIKE 'search_%'";
    let mut cells = Vec::new();
    for table in names(database, tables) {
        let columns = format!("SELECT name FROM pragma_table_info('{table}')");
        let columns = names(database, &columns);
        let count = format!("SELECT count(*) FROM {table}");
        let count: i64 = database
            .query_row(&count, [], |row| row.get(0))
            .expect("counts");
        assert!(count > 0, "{table} has a row");
        for row in 0..count {
            cells.extend(columns.iter().map(|column| Cell {
                table: table.clone(),
                row,
                column: column.clone(),
            }));
        }
    }
    cells
}

/// Returns values that differ from this one in one bit: one near each end.
fn flipped_values(value: &Value) -> Vec<Value> {
    let flip = |bytes: &[u8], place: usize| {
        let mut bytes = bytes.to_vec();
        bytes[place] ^= 1;
        bytes
    };
    let both = |bytes: &[u8]| [flip(bytes, 0), flip(bytes, bytes.len() - 1)];
    match value {
        Value::Integer(number) => vec![
            Value::Integer(number ^ 1),
            Value::Integer(number ^ (1 << 40)),
        ],
        Value::Text(text) if !text.is_empty() => both(text.as_bytes())
            .map(|bytes| Value::Text(String::from_utf8(bytes).expect("ASCII stays ASCII")))
            .to_vec(),
        Value::Blob(bytes) if !bytes.is_empty() => both(bytes).map(Value::Blob).to_vec(),
        Value::Text(_) | Value::Blob(_) | Value::Null | Value::Real(_) => Vec::new(),
    }
}

/// Returns the columns that identify a row of a table.
fn key_columns(database: &Connection, table: &str) -> String {
    let keys = format!("SELECT name FROM pragma_table_info('{table}') WHERE pk > 0");
    names(database, &keys).join(", ")
}

/// Replaces the value of a cell; returns false if a constraint forbids it.
fn replace_value(database: &Connection, cell: &Cell, value: &Value) -> bool {
    let Cell { table, row, column } = cell;
    let keys = key_columns(database, table);
    let sql = format!(
        "UPDATE {table} SET {column} = ?1
         WHERE ({keys}) IN (SELECT {keys} FROM {table} ORDER BY {keys} LIMIT 1 OFFSET {row})"
    );
    database
        .execute(&sql, [value])
        .is_ok_and(|changed| changed == 1)
}

fn read_value(database: &Connection, cell: &Cell) -> Value {
    let Cell { table, row, column } = cell;
    let keys = key_columns(database, table);
    let sql = format!("SELECT {column} FROM {table} ORDER BY {keys} LIMIT 1 OFFSET {row}");
    database
        .query_row(&sql, [], |row| row.get(0))
        .expect("reads")
}

/// Checks whether a problem is about a table.
fn is_about(problem: &IntegrityProblem, table: &str) -> bool {
    match problem {
        IntegrityProblem::Row {
            table: found, row, ..
        } => *found == table && !row.is_empty() || (table == "blob_pieces" && *found == "blobs"),
        IntegrityProblem::Log { .. } => matches!(table, "sessions" | "events"),
        IntegrityProblem::Unreadable { .. } => {
            matches!(table, "events" | "records" | "keyed_records" | "approvals")
        }
        IntegrityProblem::MissingRequest { .. } => {
            matches!(table, "records" | "keyed_records" | "approvals")
        }
        IntegrityProblem::Chain { .. } | IntegrityProblem::ChainEnd { .. } => {
            matches!(table, "ledgers" | "entries")
        }
        _ => false,
    }
}

/// Opens a copy of a database with one changed value, and returns whether that is noticed.
fn is_noticed(path: &Path, cell: &Cell, value: &Value) -> Option<bool> {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("flipped.db");
    fs::copy(path, &copy).expect("copies");
    let database = Connection::open(&copy).expect("opens");
    if !replace_value(&database, cell, value) {
        return None;
    }
    drop(database);
    let Ok(store) = SqliteStore::open(&copy) else {
        return Some(cell.table == "toolgate_schema");
    };
    let Ok(problems) = store.check() else {
        return Some(true);
    };
    Some(
        problems
            .iter()
            .any(|problem| is_about(problem, &cell.table)),
    )
}

#[tokio::test]
async fn a_flipped_bit_in_any_table_is_found_or_harms_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("whole.db");
    let store = SqliteStore::open(&path).expect("opens");
    let handle = StoreHandle::new(store.clone());
    fill_7(&handle).await;
    fill_memories(&handle).await;
    assert_eq!(store.check().expect("checks"), []);
    drop(handle);
    drop(store);
    let database = Connection::open(&path).expect("opens");
    database
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .expect("writes everything to the file");
    let cells = list_cells(&database);
    assert!(cells.len() > 200, "{}", cells.len());
    for cell in cells {
        let is_harmless = HARMLESS.contains(&(&*cell.table, &*cell.column));
        for value in flipped_values(&read_value(&database, &cell)) {
            let noticed = is_noticed(&path, &cell, &value);
            assert!(
                noticed.unwrap_or(true) || is_harmless,
                "{cell:?}: {value:?}"
            );
        }
    }
}

fn lease_request() -> LeaseRequest {
    LeaseRequest {
        session: session(1),
        holder: "next".into(),
        term: LeaseTerm {
            now: Timestamp::from_micros(1_000_000_000),
            span: std::time::Duration::from_secs(5),
        },
        instead_of: None,
        parent: None,
        directory: None,
    }
}

/// The changes of one row in each table with checksums. The amounts and ids are those of the filled
/// database.
const DAMAGE: [&str; 4] = [
    "UPDATE accounts SET spent = spent + 1",
    "UPDATE charges SET body = replace(body, '\"amount\":2', '\"amount\":3')",
    "UPDATE posts SET body = replace(body, '\"generation\":0', '\"generation\":1')",
    "UPDATE sessions SET fence = fence + 16",
];

/// Checks that no row that [`DAMAGE`] has changed is used.
async fn check_damage_is_refused(store: &StoreHandle, open: Charge) {
    let is_damaged = |error: StoreError, table: &str| {
        let text = error.to_string();
        let named = text.contains(&format!("of the table {table}"));
        assert!(
            matches!(error, StoreError::Damaged { .. }) && named,
            "{text}"
        );
    };
    let mut new = open.clone();
    new.id = ChargeId::Call(call_id(9));
    is_damaged(store.reserve(new).await.expect_err("damaged"), "accounts");
    let account = open.lines[0].account.clone();
    is_damaged(
        store.account(&account).await.expect_err("damaged"),
        "accounts",
    );
    is_damaged(
        store
            .settle_charge(open, Vec::new())
            .await
            .expect_err("damaged"),
        "charges",
    );
    let posts = store.posts(session(1), 0, 10).await.expect("reads");
    let about = Some((turn_id(1), call_id(2)));
    assert_eq!(posts, [(1, MailboxItem::Unreadable { about })]);
    let lease = store.acquire_lease(lease_request()).await;
    is_damaged(lease.expect_err("damaged"), "sessions");
    let post = MailboxItem::Interrupt {
        turn: turn_id(1),
        reason: "enough".into(),
    };
    let posted = store.post_item(session(1), post, Vec::new()).await;
    is_damaged(posted.expect_err("damaged"), "sessions");
    // Neither hiding nor anything else makes the damage look right.
    store
        .hide_session(session(1), Some(Timestamp::EPOCH))
        .await
        .expect("hides");
    let lease = store.acquire_lease(lease_request()).await;
    is_damaged(lease.expect_err("damaged"), "sessions");
}

/// Returns the tables that the problems name.
fn damaged_tables(problems: &[IntegrityProblem]) -> Vec<&'static str> {
    let table = |problem: &IntegrityProblem| match problem {
        IntegrityProblem::Row { table, .. } => Some(*table),
        _ => None,
    };
    let mut tables: Vec<_> = problems.iter().filter_map(table).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

#[tokio::test]
async fn a_damaged_row_is_not_used_for_resuming_or_paying() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("damaged.db");
    let store = SqliteStore::open(&path).expect("opens");
    let handle = StoreHandle::new(store.clone());
    fill_7(&handle).await;
    let open = store
        .charges(Default::default())
        .await
        .expect("lists")
        .remove(0);
    let database = Connection::open(&path).expect("opens");
    for sql in DAMAGE {
        assert!(database.execute(sql, []).expect("changes") > 0, "{sql}");
    }
    check_damage_is_refused(&handle, open).await;
    let problems = store.check().expect("checks");
    assert_eq!(
        damaged_tables(&problems),
        ["accounts", "charges", "posts", "sessions"],
        "{problems:?}"
    );
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use crate::support::TestDatabase;
    use toolgate_store::PostgresStore;

    /// More damage, which only the check finds: rows that follow from the log, and a blob.
    const FOUND_BY_CHECK: [&str; 3] = [
        "UPDATE turns SET opened_at = opened_at + 1",
        "UPDATE approvals SET tool = 'read'",
        "UPDATE blob_pieces SET bytes = set_byte(bytes, 0, 7)",
    ];

    #[tokio::test]
    async fn a_damaged_row_is_not_used_for_resuming_or_paying() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let store = PostgresStore::connect(&database.url())
            .await
            .expect("connects");
        let handle = StoreHandle::new(store.clone());
        fill_7(&handle).await;
        assert_eq!(store.check().await.expect("checks"), []);
        let open = handle
            .charges(Default::default())
            .await
            .expect("lists")
            .remove(0);
        for sql in DAMAGE {
            database.run(sql).await;
        }
        check_damage_is_refused(&handle, open).await;
        for sql in FOUND_BY_CHECK {
            database.run(sql).await;
        }
        let problems = store.check().await.expect("checks");
        assert_eq!(
            damaged_tables(&problems),
            [
                "accounts",
                "approvals",
                "blobs",
                "charges",
                "posts",
                "sessions",
                "turns"
            ],
            "{problems:?}"
        );
        drop(handle);
        drop(store);
        database.drop().await;
    }
}
