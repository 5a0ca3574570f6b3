//! A separate PostgreSQL database for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// A database that exists for one test.
pub(crate) struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// Creates a database on the server that `TOOLGATE_TEST_POSTGRES` names; returns `None` if it
    /// is not set.
    pub(crate) async fn create() -> Option<Self> {
        Self::create_on("TOOLGATE_TEST_POSTGRES", "PostgreSQL").await
    }

    /// Creates a database on the server with the extension `vector` that `TOOLGATE_TEST_PGVECTOR`
    /// names; returns `None` if it is not set.
    pub(crate) async fn create_with_pgvector() -> Option<Self> {
        Self::create_on("TOOLGATE_TEST_PGVECTOR", "PostgreSQL with pgvector").await
    }

    async fn create_on(variable: &str, what: &str) -> Option<Self> {
        let Ok(server) = std::env::var(variable) else {
            println!("{variable} is not set: nothing is tested on {what}");
            return None;
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "toolgate_{}_{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let database = Self { server, name };
        database
            .on_server(&format!("CREATE DATABASE {}", database.name))
            .await;
        Some(database)
    }

    /// Returns the address of the database.
    pub(crate) fn url(&self) -> String {
        // postgres://user@host/postgres?host=…
        let (before, query) = self.server.split_once('?').unwrap_or((&self.server, ""));
        let (server, _) = before.rsplit_once('/').expect("an address with a database");
        format!("{server}/{}?{query}", self.name)
    }

    /// Runs a statement in the database.
    pub(crate) async fn run(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.url()).await.expect("connects");
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned())))
            .await
            .expect("runs");
        connection.close().await.expect("closes");
    }

    /// Returns the number that a query selects.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        use sqlx::Row;
        let mut connection = PgConnection::connect(&self.url()).await.expect("connects");
        let row = sqlx::query(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut connection)
            .await;
        let count = row.expect("reads").get(0);
        connection.close().await.expect("closes");
        count
    }

    /// Runs a statement on the server, outside the database.
    pub(crate) async fn on_server(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.server)
            .await
            .expect("the test server runs");
        connection
            .execute(AssertSqlSafe(sql.to_owned()))
            .await
            .expect("runs");
        connection.close().await.expect("closes");
    }

    /// Deletes the database, even if there are connections to it.
    pub(crate) async fn drop(self) {
        self.on_server(&format!("DROP DATABASE {} WITH (FORCE)", self.name))
            .await;
    }
}
