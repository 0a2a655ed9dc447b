//! The way to the database, counted: every statement of the hub goes through one of these, so that what it costs is known.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::{Registry, Unit};
use roadstead_meters::{QUICK, Table, Times, label};
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Error, Execute, Executor, PgConnection, PgPool, Postgres, SqlStr, Transaction};

label! {
    /// What is done at the database.
    pub(crate) enum Class of "class" {
        /// A question on its own, with the wait for a connection.
        Single = "single",
        /// A statement of a unit of work.
        Unit = "unit",
        /// The begin of a unit of work, with the wait for a connection.
        Begin = "begin",
        /// Its end.
        Commit = "commit",
    }
}

label! {
    /// How a statement failed.
    enum Failure of "reason" {
        /// The database cannot be reached, or is short of something.
        Unavailable = "unavailable",
        /// Somebody else was first: a deadlock, a lock, a row that is there already.
        Conflict = "conflict",
        /// All else.
        Other = "other",
    }
}

impl Failure {
    fn of(error: &Error) -> Self {
        if crate::health::reason(error).is_some() {
            return Self::Unavailable;
        }
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        match code.as_deref() {
            // Integrity, serialization and deadlock, and a lock that is not waited for.
            Some(code) if ["23", "40"].iter().any(|class| code.starts_with(class)) || code == "55P03" => {
                Self::Conflict
            }
            _ => Self::Other,
        }
    }
}

/// What this process has asked of the database. Clones share it.
#[derive(Debug, Clone)]
pub struct Statements(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    took: Table<Class, (), Times>,
    failed: Table<Failure, (), Counter>,
}

impl Default for Statements {
    fn default() -> Self {
        Self(Arc::new(Counts { took: Table::of(|| Times::new(QUICK)), failed: Table::default() }))
    }
}

impl Statements {
    /// Adds what is known now to what is read.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "roadstead_database_statement_duration",
            "How long this replica's statements took: single ones, those of units of work, and the begin and end of these",
            Unit::Seconds,
            self.0.took.clone(),
        );
        registry.register(
            "roadstead_database_errors",
            "Statements of this replica that failed",
            self.0.failed.clone(),
        );
    }

    fn start(&self, class: Class) -> Running {
        Running { counts: Arc::clone(&self.0), class, began: Instant::now() }
    }
}

/// A statement that goes on; counted when it is dropped, so also where whoever asked has gone.
struct Running {
    counts: Arc<Counts>,
    class: Class,
    began: Instant,
}

impl Running {
    fn note<T>(&self, outcome: &Result<T, Error>) {
        if let Err(error) = outcome {
            self.counts.failed.at(Failure::of(error), ()).inc();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.counts.took.at(self.class, ()).observe(self.began.elapsed());
    }
}

type Rows<'e> = BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>;
type Row<'e> = BoxFuture<'e, Result<Option<PgRow>, Error>>;

fn rows(running: Running, rows: Rows<'_>) -> Rows<'_> {
    rows.inspect(move |row| running.note(row)).boxed()
}

fn row(running: Running, row: Row<'_>) -> Row<'_> {
    row.inspect(move |row| running.note(row)).boxed()
}

/// Connections to the database. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    pool: PgPool,
    statements: Statements,
}

impl Connections {
    pub(crate) fn new(pool: PgPool, statements: &Statements) -> Self {
        Self(Arc::new(Counted { pool, statements: statements.clone() }))
    }

    /// What was asked by them, and by others that share the count.
    pub(crate) fn statements(&self) -> &Statements {
        &self.0.statements
    }

    /// Begins a unit of work.
    pub(crate) async fn begin(&self) -> Result<Box<Work>, Error> {
        let running = self.statements().start(Class::Begin);
        let begun = self.0.pool.begin().await;
        running.note(&begun);
        Ok(Box::new(Work { work: begun?, statements: self.statements().clone() }))
    }
}

/// For what needs the connections themselves.
impl Deref for Connections {
    type Target = PgPool;

    fn deref(&self) -> &PgPool {
        &self.0.pool
    }
}

impl<'p> Executor<'p> for &Connections {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> Rows<'e>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        rows(self.statements().start(Class::Single), self.0.pool.fetch_many(query))
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> Row<'e>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        row(self.statements().start(Class::Single), self.0.pool.fetch_optional(query))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'p: 'e,
    {
        self.0.pool.prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'p: 'e,
    {
        self.0.pool.describe(sql)
    }
}

/// A unit of work.
#[derive(Debug)]
pub(crate) struct Work {
    work: Transaction<'static, Postgres>,
    statements: Statements,
}

impl Work {
    pub(crate) async fn commit(self: Box<Self>) -> Result<(), Error> {
        let Self { work, statements } = *self;
        let running = statements.start(Class::Commit);
        let committed = work.commit().await;
        running.note(&committed);
        committed
    }
}

/// For what is also done outside of units of work.
impl Deref for Work {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.work
    }
}

impl DerefMut for Work {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.work
    }
}

impl<'c> Executor<'c> for &'c mut Work {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> Rows<'e>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let running = self.statements.start(Class::Unit);
        rows(running, (&mut *self.work).fetch_many(query))
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> Row<'e>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let running = self.statements.start(Class::Unit);
        row(running, (&mut *self.work).fetch_optional(query))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        (&mut *self.work).prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        (&mut *self.work).describe(sql)
    }
}
