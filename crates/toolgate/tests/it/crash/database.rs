//! A private PostgreSQL database on the server of the tests.

use std::error::Error;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// A database that exists until it is dropped with [`Database::remove`].
pub(crate) struct CrashDatabase {
    server: String,
    name: String,
    url: String,
}

impl CrashDatabase {
    /// Creates a database if the tests have a server.
    pub(crate) async fn create() -> Result<Option<Self>, Box<dyn Error>> {
        let Some(server) = std::env::var("TOOLGATE_TEST_POSTGRES")
            .ok()
            .filter(|url| !url.is_empty())
        else {
            println!("TOOLGATE_TEST_POSTGRES is not set, so PostgreSQL is left out");
            return Ok(None);
        };
        let name = format!(
            "crash_{}",
            toolgate::value::SessionId::from_source(&toolgate::value::TimeOrderedIds)
        )
        .replace('-', "_");
        run_statement(&server, format!("create database {name}")).await?;
        let url = with_database_name(&server, &name)?;
        Ok(Some(Self { server, name, url }))
    }

    /// Returns its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn drop_database(self) -> Result<(), Box<dyn Error>> {
        run_statement(
            &self.server,
            format!("drop database {} with (force)", self.name),
        )
        .await
    }
}

async fn run_statement(server: &str, statement: String) -> Result<(), Box<dyn Error>> {
    let mut connection = PgConnection::connect(server).await?;
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut connection)
        .await?;
    Ok(connection.close().await?)
}

/// Returns the address with another database name.
fn with_database_name(server: &str, name: &str) -> Result<String, Box<dyn Error>> {
    let (address, options) = server.split_once('?').unwrap_or((server, ""));
    let (host, _) = address
        .rsplit_once('/')
        .ok_or("the address of the server lacks a database name")?;
    Ok(format!("{host}/{name}?{options}"))
}
