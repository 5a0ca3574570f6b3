//! A PostgreSQL database of one's own on the server that the tests are given.

use std::error::Error;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// A database that exists until it is removed.
pub(crate) struct Database {
    server: String,
    name: String,
    url: String,
}

impl Database {
    /// Creates one, if the tests are given a server.
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
            toolgate::SessionId::from_source(&toolgate::TimeOrderedIds)
        )
        .replace('-', "_");
        run(&server, format!("create database {name}")).await?;
        let url = renamed(&server, &name)?;
        Ok(Some(Self { server, name, url }))
    }

    /// How to reach it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn remove(self) -> Result<(), Box<dyn Error>> {
        run(
            &self.server,
            format!("drop database {} with (force)", self.name),
        )
        .await
    }
}

async fn run(server: &str, statement: String) -> Result<(), Box<dyn Error>> {
    let mut connection = PgConnection::connect(server).await?;
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut connection)
        .await?;
    Ok(connection.close().await?)
}

/// The same server with another database.
fn renamed(server: &str, name: &str) -> Result<String, Box<dyn Error>> {
    let (address, options) = server.split_once('?').unwrap_or((server, ""));
    let (host, _) = address
        .rsplit_once('/')
        .ok_or("the address of the server names no database")?;
    Ok(format!("{host}/{name}?{options}"))
}
