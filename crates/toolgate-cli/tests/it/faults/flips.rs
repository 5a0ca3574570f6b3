//! A flipped bit in the database: every command ends in order, and the damage is found.

use rusqlite::{Connection, types::Value};

use super::exit_code;
use crate::run::world::{RunWorld, to_text};

const WORK: &str = r#"
    [[reply]]
    text = "I look first."
    calls = [{ tool = "read_file", arguments = { path = "a.txt" } }]
    [[reply]]
    repeat = "always"
    text = "That is all."
"#;

/// The columns in which a wrong value harms nothing; `docs/reference/promises.md` says why.
const HARMLESS: [&str; 3] = [
    "sessions.title",
    "sessions.indexed_title",
    "toolgate_schema.name",
];

/// The column of the search index that is checked: it says whose words erasing a session deletes.
const CHECKED_OF_SEARCH: &str = "search_documents.session";

/// A value of a column, before and after a bit of it was flipped.
struct FlippedCell {
    table: String,
    column: String,
    before: Value,
    after: Value,
}

impl FlippedCell {
    fn place(&self) -> String {
        format!("{}.{}", self.table, self.column)
    }

    /// Checks whether a wrong value harms nothing: the search index can be rebuilt at any time.
    fn is_harmless(&self) -> bool {
        let place = self.place();
        let is_search = self.table.starts_with("search_");
        HARMLESS.contains(&&*place) || (is_search && place != CHECKED_OF_SEARCH)
    }

    fn replace(&self, database: &Connection, from: &Value, to: &Value) {
        let Self { table, column, .. } = self;
        // A value that breaks a constraint cannot be stored: that is a way to find it.
        let _ = database.execute(
            &format!("UPDATE \"{table}\" SET \"{column}\" = ?1 WHERE \"{column}\" = ?2"),
            (to, from),
        );
    }
}

/// Lists the longest value of each column of each table, with a flipped bit.
fn flipped_cells(database: &Connection) -> Vec<FlippedCell> {
    let names = |sql: &str| -> Vec<String> {
        let mut statement = database.prepare(sql).expect("is valid");
        let rows = statement.query_map([], |row| row.get(0)).expect("reads");
        rows.map(|name| name.expect("a name")).collect()
    };
    let mut cells = Vec::new();
    for table in
        names("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    {
        for column in names(&format!("SELECT name FROM pragma_table_info('{table}')")) {
            let longest = format!(
                "SELECT \"{column}\" FROM \"{table}\" WHERE typeof(\"{column}\") IN ('text', 'blob')
                 AND length(\"{column}\") > 0 ORDER BY length(\"{column}\") DESC LIMIT 1"
            );
            // A column without text has nothing to flip here.
            if let Ok(before) = database.query_row(&longest, [], |row| row.get::<_, Value>(0)) {
                let after = flip_bit(&before);
                cells.push(FlippedCell {
                    table: table.clone(),
                    column,
                    before,
                    after,
                });
            }
        }
    }
    cells
}

/// Flips the lowest bit in the middle of a value.
fn flip_bit(value: &Value) -> Value {
    let flipped = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bytes
    };
    match value {
        Value::Blob(bytes) => Value::Blob(flipped(bytes)),
        Value::Text(text) => {
            Value::Text(String::from_utf8_lossy(&flipped(text.as_bytes())).into_owned())
        }
        other => panic!("{other:?} has no bytes"),
    }
}

#[test]
fn a_flipped_bit_is_found_or_does_no_harm() {
    let world = RunWorld::new(WORK);
    assert_eq!(exit_code(world.run_plain(&["look"]).status), 0);
    // A run may or may not have been indexed in the background when it ends.
    assert_eq!(world.toolgate_status(&["search", "look"]), 0);
    let database = Connection::open(world.home().join("toolgate.db")).expect("opens");
    let cells = flipped_cells(&database);
    assert!(cells.len() >= 10, "{}", cells.len());
    let is_checked = |cell: &FlippedCell| cell.place() == CHECKED_OF_SEARCH;
    assert!(cells.iter().any(is_checked), "there are documents");
    for cell in cells {
        cell.replace(&database, &cell.before, &cell.after);
        let place = cell.place();
        let checked = world.run_other(&["doctor", "--deep"]);
        if !cell.is_harmless() {
            assert_ne!(
                exit_code(checked.status),
                0,
                "{place}: {}",
                to_text(&checked.stdout)
            );
        }
        let output = world.run_plain(&["--resume", "last", "again", "-q"]);
        let stderr = to_text(&output.stderr);
        let code = exit_code(output.status);
        // Done, or an error with its own message. Nothing else: no panic, no signal.
        assert!(
            matches!(code, 0 | 1 | 2 | 7 | 10),
            "{place}: {code}: {stderr}"
        );
        assert!(!stderr.contains("panicked"), "{place}: {stderr}");
        assert_eq!(code == 0, stderr.is_empty(), "{place}: {code}: {stderr}");
        if cell.table == "entries" && cell.column != "ledger" {
            let verified = world.toolgate_status(&["receipts", "verify"]);
            assert_ne!(verified, 0, "{place} is part of the evidence");
        }
        cell.replace(&database, &cell.after, &cell.before);
    }
}
