//! How the schema is brought up to date, and what that waits for: some migrations would break the statements of replicas of older
//! versions, and are not made while one lives.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::migrate::{MigrateError, Migrator};

use crate::{MIGRATOR, StoreError};

/// The newest migration that older replicas cannot live with. It says so in `hub_state.oldest_replica`, too, for replicas that are started later.
const BREAKING: i64 = 25;
/// A replica that was not heard of for so long has ended. Hubs say that they live every two seconds.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(10);
/// So long is the end of older replicas waited for: of one that was killed longer than it takes to be taken for dead.
const PATIENCE: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Makes the migrations that the database lacks. One that a newer version has made besides is left as it is: most migrations keep what the
/// version before uses, so that a replica of it goes on beside newer ones, also where it starts again. Where one does not, the schema says so.
///
/// # Errors
/// [`StoreError::OtherMigrations`] where the database was made by other migrations than this version's; [`StoreError::NewerSchema`] where it
/// needs a newer version; else where the database refuses.
pub(crate) async fn migrate(
    pool: &PgPool,
    explained: impl Fn(MigrateError) -> StoreError,
) -> Result<(), StoreError> {
    let newest = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or_default();
    let unknown = unknown_migrations(pool).await.map_err(|error| explained(MigrateError::Execute(error)))?;
    if let Some(other) = unknown.iter().find(|version| **version < newest) {
        return Err(StoreError::OtherMigrations(*other));
    }
    if !unknown.is_empty() {
        let needed = oldest_replica(pool).await.map_err(|error| explained(MigrateError::Execute(error)))?;
        if needed > newest {
            return Err(StoreError::NewerSchema { needed, known: newest });
        }
    }
    let mut migrator = Migrator::with_migrations(MIGRATOR.iter().cloned().collect());
    migrator.set_ignore_missing(true);
    match migrator.run(pool).await {
        Err(MigrateError::VersionMismatch(version)) => return Err(StoreError::OtherMigrations(version)),
        done => done.map_err(explained)?,
    }
    if let Some(last) = unknown.last() {
        tracing::warn!(
            schema = last,
            known = newest,
            "the database's schema is of a newer version of the hub: this replica uses what it knows of it, and leaves to newer replicas \
             what it cannot read. Use the newer version for all replicas soon: only one version back is supported"
        );
    }
    Ok(())
}

/// The migrations that the database has and this version does not, in their order.
async fn unknown_migrations(pool: &PgPool) -> Result<Vec<i64>, sqlx::Error> {
    if is_new(pool).await? {
        return Ok(Vec::new());
    }
    let known: Vec<i64> = MIGRATOR.iter().map(|migration| migration.version).collect();
    sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE version <> ALL ($1) ORDER BY version")
        .bind(known)
        .fetch_all(pool)
        .await
}

/// The newest migration that a replica has to know to work with the schema, as a newer version says that made some.
async fn oldest_replica(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT oldest_replica FROM hub_state").fetch_one(pool).await
}

/// Whether no migration was ever made.
async fn is_new(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NULL").fetch_one(pool).await
}

/// Waits until no replica of a version before the newest breaking migration lives. `explained` says what is wrong with the
/// database, which is asked for the first time here.
///
/// # Errors
/// [`StoreError::OlderReplicas`] where one still does after some time; else where the database refuses.
pub(crate) async fn wait_for_older_replicas(
    pool: &PgPool,
    explained: impl Fn(sqlx::Error) -> StoreError,
) -> Result<(), StoreError> {
    let began = tokio::time::Instant::now();
    let mut said = false;
    loop {
        let living = older_replicas(pool).await.map_err(&explained)?;
        if living == 0 {
            return Ok(());
        }
        if began.elapsed() >= PATIENCE {
            return Err(StoreError::OlderReplicas(living));
        }
        if !std::mem::replace(&mut said, true) {
            tracing::info!(replicas = living, "waiting until replicas of an older version have ended");
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// How many replicas live on a database whose schema is older than the newest breaking migration.
async fn older_replicas(pool: &PgPool) -> Result<i64, sqlx::Error> {
    if is_new(pool).await? {
        return Ok(0);
    }
    let present: Option<i64> =
        sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success").fetch_one(pool).await?;
    // Without one the first start was cut short: there is no table of replicas yet.
    if present.is_none_or(|version| version >= BREAKING) {
        return Ok(0);
    }
    sqlx::query_scalar(
        "SELECT count(*) FROM hub_replica WHERE last_seen > clock_timestamp() - make_interval(secs => $1)",
    )
    .bind(DEAD_AFTER.as_secs_f64())
    .fetch_one(pool)
    .await
}
