//! A database for one test.

use std::path::Path;

use anyhow::{Context, Result};
use roadstead_devpostgres::{Options, PrivatePostgres};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::given::variable;
use crate::unique::unique;

/// Starts a Postgres of one test, whose data are in `state`.
///
/// # Errors
/// When it does not start.
pub async fn start_postgres(state: &Path) -> Result<PrivatePostgres> {
    let (state, options) = (state.to_owned(), Options { fsync: false, ..Options::default() });
    Ok(tokio::task::spawn_blocking(move || PrivatePostgres::start(&state, &options)).await??)
}

/// A fresh, empty database, dropped with everything that still uses it when the value is dropped.
#[derive(Debug)]
pub struct TestDatabase {
    admin: String,
    name: String,
    url: String,
}

impl TestDatabase {
    /// Makes it.
    ///
    /// # Errors
    /// When the run's Postgres cannot be reached.
    pub async fn new() -> Result<Self> {
        let admin = variable("ROADSTEAD_TEST_DATABASE_URL")?;
        let name = unique("test").replace('-', "_");
        execute(&admin, &format!("CREATE DATABASE {name}")).await?;
        let url = with_database(&admin, &name);
        Ok(Self { admin, name, url })
    }

    /// Where a hub finds it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Backs it up. Nobody may be connected to it.
    ///
    /// # Errors
    /// When somebody is, or Postgres cannot be reached.
    pub async fn back_up(&self) -> Result<Backup> {
        let name = format!("{}_backup", self.name);
        execute(&self.admin, &format!("CREATE DATABASE {name} TEMPLATE {}", self.name)).await?;
        Ok(Backup { name })
    }

    /// Puts a backup in its place. Whoever is connected to it is cut off.
    ///
    /// # Errors
    /// When Postgres cannot be reached.
    pub async fn restore(&self, backup: Backup) -> Result<()> {
        execute(&self.admin, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).await?;
        execute(&self.admin, &format!("ALTER DATABASE {} RENAME TO {}", backup.name, self.name)).await
    }

    /// Loses all that is in it. Whoever is connected to it is cut off.
    ///
    /// # Errors
    /// When Postgres cannot be reached.
    pub async fn lose(&self) -> Result<()> {
        execute(&self.admin, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).await?;
        execute(&self.admin, &format!("CREATE DATABASE {}", self.name)).await
    }

    /// A connection to it, to look or to break something.
    ///
    /// # Errors
    /// When Postgres cannot be reached.
    pub async fn connect(&self) -> Result<PgConnection> {
        PgConnection::connect(&self.url).await.context("connect to the test's database")
    }
}

/// What a database held at some time. It is gone with the run's Postgres where it is not put back.
#[derive(Debug)]
pub struct Backup {
    name: String,
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // On a thread of its own, since a test's runtime cannot be waited for inside it. Best effort: the run's Postgres
        // goes away as a whole.
        let (admin, statement) =
            (self.admin.clone(), format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        let dropped = std::thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(execute(&admin, &statement))
        });
        if let Ok(Err(error)) = dropped.join() {
            eprintln!("the test's database {} stays: {error:#}", self.name);
        }
    }
}

async fn execute(url: &str, statement: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await.context("connect to the run's Postgres")?;
    // The only variable part is a name made by `unique`.
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut connection)
        .await
        .with_context(|| statement.to_owned())?;
    connection.close().await.context("close the connection")
}

/// `url` with another database in its path.
fn with_database(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let authority = base.find("://").map_or(0, |at| at + 3);
    let server = base[authority..].find('/').map_or(base, |at| &base[..authority + at]);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{server}/{name}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_the_database_and_nothing_else() {
        for (url, expected) in [
            ("postgres://u@localhost/a?host=/s/d", "postgres://u@localhost/b?host=/s/d"),
            ("postgres://u:p%2F@h:1/a", "postgres://u:p%2F@h:1/b"),
            ("postgres://h", "postgres://h/b"),
        ] {
            assert_eq!(with_database(url, "b"), expected);
        }
    }
}
