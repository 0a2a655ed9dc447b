//! What an upgrade of the schema waits for: some migrations would break the statements of replicas of older versions, and are
//! not made while one lives.

use std::time::Duration;

use sqlx::PgPool;

use crate::StoreError;

/// The newest migration that older replicas cannot live with.
const BREAKING: i64 = 25;
/// A replica that was not heard of for so long has ended. Hubs say that they live every two seconds.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(10);
/// So long is the end of older replicas waited for: of one that was killed longer than it takes to be taken for dead.
const PATIENCE: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_millis(500);

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
    let is_new: bool =
        sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NULL").fetch_one(pool).await?;
    if is_new {
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
