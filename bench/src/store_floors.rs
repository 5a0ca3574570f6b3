//! The lowest cost of durability: raw commits and raw syncs, without Toolgate.

use std::{
    fs::File,
    io::{Seek, Write},
    path::Path,
    time::Instant,
};

use rusqlite::{Connection, params};
use sqlx::{Connection as _, Executor, PgConnection};

/// The rows that some work left in a database.
#[derive(Default, Clone)]
pub(crate) struct StoredRows {
    /// Bodies of events.
    pub(crate) events: Vec<String>,
    /// Keys and bodies of records.
    pub(crate) records: Vec<(String, String)>,
}

impl StoredRows {
    /// Reads the content of a file that a store has written.
    pub(crate) fn read(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        let mut events =
            connection.prepare("SELECT body FROM events ORDER BY session, sequence")?;
        let events = events
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let mut records = connection.prepare("SELECT hex(key), body FROM keyed_records")?;
        let records = records
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        Ok(Self { events, records })
    }

    /// Splits the rows into a number of parts.
    fn parts(&self, count: usize) -> impl Iterator<Item = (usize, &[String], &[(String, String)])> {
        let events = self.events.len().div_ceil(count);
        let records = self.records.len().div_ceil(count);
        let cut =
            |at: usize, step: usize, len: usize| (at * step).min(len)..((at + 1) * step).min(len);
        (0..count).map(move |at| {
            let range = cut(at, events, self.events.len());
            (
                range.start,
                &self.events[range],
                &self.records[cut(at, records, self.records.len())],
            )
        })
    }

    /// Writes the rows to a new file in so many commits and returns the seconds it took.
    pub(crate) fn write_sqlite(&self, path: &Path, commits: usize) -> rusqlite::Result<f64> {
        let connection = raw_file(path)?;
        let start = Instant::now();
        for (first, events, records) in self.parts(commits) {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let mut event =
                connection.prepare_cached("INSERT INTO events VALUES (x'00', ?1, ?2)")?;
            for (n, body) in (first as i64..).zip(events) {
                event.execute(params![n, body])?;
            }
            let mut record = connection.prepare_cached("INSERT INTO records VALUES (?1, ?2)")?;
            for (key, body) in records {
                record.execute(params![key, body])?;
            }
            connection.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Writes the rows to a new table in so many commits and returns the seconds it took.
    pub(crate) async fn write_postgres(
        &self,
        url: &str,
        commits: usize,
    ) -> Result<f64, sqlx::Error> {
        let mut connection = PgConnection::connect(url).await?;
        let tables = "DROP TABLE IF EXISTS raw_events, raw_records;
                      CREATE TABLE raw_events (session uuid, sequence bigint, body text, PRIMARY KEY (session, sequence));
                      CREATE TABLE raw_records (key bytea PRIMARY KEY, body text)";
        connection.execute(sqlx::raw_sql(tables)).await?;
        let start = Instant::now();
        for (first, events, records) in self.parts(commits) {
            connection.execute("BEGIN").await?;
            let sql = "INSERT INTO raw_events SELECT '00000000-0000-0000-0000-000000000000', $1 + place, body
                       FROM UNNEST($2::text[]) WITH ORDINALITY AS new (body, place)";
            sqlx::query(sql)
                .bind(first as i64)
                .bind(events)
                .execute(&mut connection)
                .await?;
            let (keys, bodies): (Vec<&[u8]>, Vec<&str>) = records
                .iter()
                .map(|(key, body)| (key.as_bytes(), body.as_str()))
                .unzip();
            let sql = "INSERT INTO raw_records SELECT * FROM UNNEST($1::bytea[], $2::text[])";
            sqlx::query(sql)
                .bind(keys)
                .bind(bodies)
                .execute(&mut connection)
                .await?;
            connection.execute("COMMIT").await?;
        }
        let spent = start.elapsed().as_secs_f64();
        connection.close().await?;
        Ok(spent)
    }
}

/// A file with two tables, synced like a store syncs.
fn raw_file(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(
        "CREATE TABLE events (session BLOB, sequence INTEGER, body TEXT, PRIMARY KEY (session, sequence)) WITHOUT ROWID;
         CREATE TABLE records (key TEXT PRIMARY KEY, body TEXT) WITHOUT ROWID;
         INSERT INTO records VALUES ('', '')",
    )?;
    Ok(connection)
}

/// A file that is appended to and synced, as a log is.
pub(crate) struct SyncedLog(File);

impl SyncedLog {
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        File::create(path).map(Self)
    }

    /// Appends two pages and waits until they are on the disk.
    pub(crate) fn sync(&mut self) -> std::io::Result<()> {
        const PAGES: [u8; 8_240] = [7; 8_240];
        if self.0.stream_position()? > 4 << 20 {
            self.0.rewind()?;
        }
        self.0.write_all(&PAGES)?;
        self.0.sync_data()
    }
}

/// A PostgreSQL database for one measurement.
pub(crate) struct TestDatabase {
    server: String,
    name: String,
    pub(crate) url: String,
}

impl TestDatabase {
    pub(crate) async fn create(server: &str) -> Result<Self, sqlx::Error> {
        let name = format!("toolgate_bench_{}", std::process::id());
        // postgres://user@host/postgres?host=…
        let (before, query) = server.split_once('?').unwrap_or((server, ""));
        let host = before.rsplit_once('/').map_or(before, |(host, _)| host);
        let database = Self {
            url: format!("{host}/{name}?{query}"),
            server: server.to_owned(),
            name,
        };
        database
            .on_server(format!("CREATE DATABASE {}", database.name))
            .await?;
        Ok(database)
    }

    pub(crate) async fn drop(self) -> Result<(), sqlx::Error> {
        self.on_server(format!("DROP DATABASE {} WITH (FORCE)", self.name))
            .await
    }

    /// Removes dead rows and counts values, as the server does by itself within a minute or so.
    pub(crate) async fn vacuum(&self) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect(&self.url).await?;
        connection.execute("VACUUM (ANALYZE)").await?;
        connection.close().await
    }

    async fn on_server(&self, sql: String) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect(&self.server).await?;
        connection.execute(sqlx::AssertSqlSafe(sql)).await?;
        connection.close().await
    }
}

/// Writes records of the size that a store writes, in `commits` commits of `width` rows, and returns
/// the seconds it took.
pub(crate) fn write_grouped_records(
    path: &Path,
    commits: usize,
    width: usize,
) -> rusqlite::Result<f64> {
    let connection = raw_file(path)?;
    let start = Instant::now();
    for commit in 0..commits {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut record = connection.prepare_cached("INSERT INTO records VALUES (?1, ?2)")?;
        for caller in 0..width {
            let key = format!("other/f/0/{caller}/{commit}");
            let body = "{\"json\":\"a record of ordinary size, written once\"}";
            record.execute(params![key, body])?;
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
    }
    Ok(start.elapsed().as_secs_f64())
}
