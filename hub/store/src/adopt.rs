//! The one time when rows without a MAC are signed: the first start over a database of a version that signed none.
//!
//! That it is the first start is told by the authorities' keys, which were sealed in another form then. Nobody without the
//! key file can bring that form back, so that nobody can have rows of their own making signed by taking their MACs away. What
//! is left is a copy of the authorities' rows from before the upgrade: whoever has one, and may write the database, can.

use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::authority::{older_place, place};
use crate::mac::Row;
use crate::{Sealer, StoreError, agent, cluster, dispatched, token};

/// One replica at a time.
const LOCK: i64 = 0x726f_6164_6d61_6373;
const WHAT: &str = "sign what an older version stored";

type Connection = sqlx::PgConnection;

/// Signs what an older version stored, where the authorities say that it was one.
pub(crate) async fn sign_what_is_older(pool: &PgPool, sealer: &Sealer) -> Result<(), StoreError> {
    let mut tx = pool.begin().await.map_err(StoreError::query(WHAT))?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query(WHAT))?;
    if !reseal_authorities(&mut tx, sealer).await? {
        return Ok(());
    }
    let access = access_tokens(&mut tx, sealer).await?;
    let join = join_tokens(&mut tx, sealer).await?;
    let orders = agent_orders(&mut tx, sealer).await?;
    let dispatches = dispatches(&mut tx, sealer).await?;
    tx.commit().await.map_err(StoreError::query(WHAT))?;
    tracing::info!(
        access_tokens = access,
        join_tokens = join,
        agent_orders = orders,
        dispatches,
        "rows stored by an older version were signed, which happens once: from now on only signed rows are trusted"
    );
    Ok(())
}

/// Seals the authorities' keys again, together with their certificates; false where that was done before.
async fn reseal_authorities(tx: &mut Connection, sealer: &Sealer) -> Result<bool, StoreError> {
    let rows: Vec<(String, String, Vec<u8>)> =
        sqlx::query_as("SELECT name, certificate_pem, key_sealed FROM authority ORDER BY name FOR UPDATE")
            .fetch_all(&mut *tx)
            .await
            .map_err(StoreError::query(WHAT))?;
    let mut older = false;
    for (name, certificate, sealed) in rows {
        let place = place(&name, &certificate);
        // What opens in neither form is told of by whoever needs it.
        if sealer.open(WHAT, &place, &sealed).is_ok() {
            continue;
        }
        let Ok(key) = sealer.open(WHAT, older_place(&name), &sealed) else { continue };
        older = true;
        sqlx::query("UPDATE authority SET key_sealed = $2 WHERE name = $1")
            .bind(&name)
            .bind(sealer.seal(WHAT, &place, &key)?)
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(WHAT))?;
    }
    Ok(older)
}

async fn access_tokens(tx: &mut Connection, sealer: &Sealer) -> Result<usize, StoreError> {
    type Token = (Uuid, Vec<u8>, String, Vec<String>, Option<OffsetDateTime>, Option<Uuid>);
    let rows: Vec<Token> = sqlx::query_as(
        "SELECT id, hash, username, groups, expires_at, account_uid FROM access_token WHERE mac IS NULL FOR UPDATE",
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(StoreError::query(WHAT))?;
    for (id, hash, username, groups, expires, account) in &rows {
        let row = token::row(*id, hash, username, groups, *expires, *account);
        sign(tx, sealer, "UPDATE access_token SET mac = $2 WHERE id = $1", *id, &row).await?;
    }
    Ok(rows.len())
}

async fn join_tokens(tx: &mut Connection, sealer: &Sealer) -> Result<usize, StoreError> {
    let rows: Vec<(Uuid, Vec<u8>, Uuid, OffsetDateTime)> = sqlx::query_as(
        "SELECT id, hash, cluster_uid, expires_at FROM join_token WHERE mac IS NULL FOR UPDATE",
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(StoreError::query(WHAT))?;
    for (id, hash, cluster, expires) in &rows {
        let row = cluster::join_row(*id, hash, *cluster, *expires);
        sign(tx, sealer, "UPDATE join_token SET mac = $2 WHERE id = $1", *id, &row).await?;
    }
    Ok(rows.len())
}

async fn agent_orders(tx: &mut Connection, sealer: &Sealer) -> Result<usize, StoreError> {
    let rows: Vec<(Uuid, Option<String>, Option<String>, OffsetDateTime)> = sqlx::query_as(
        "SELECT cluster_uid, image, request, given_at FROM agent_order WHERE mac IS NULL FOR UPDATE",
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(StoreError::query(WHAT))?;
    for (cluster, image, request, given) in &rows {
        let row = agent::order_row(*cluster, image.as_deref(), request.as_deref(), *given);
        sign(tx, sealer, "UPDATE agent_order SET mac = $2 WHERE cluster_uid = $1", *cluster, &row).await?;
    }
    Ok(rows.len())
}

async fn dispatches(tx: &mut Connection, sealer: &Sealer) -> Result<usize, StoreError> {
    let rows: Vec<dispatched::Dispatched> = sqlx::query_as(
        "SELECT applier, attempt, cluster_uid, epoch, generation, build_digest, dispatch_format, dispatch, \
         mac FROM reconciliation \
         WHERE finished_at IS NULL AND dispatch IS NOT NULL AND cluster_uid IS NOT NULL AND mac IS NULL FOR UPDATE",
    )
    .fetch_all(&mut *tx)
    .await
    .map_err(StoreError::query(WHAT))?;
    for dispatched in &rows {
        let sql = "UPDATE reconciliation SET mac = $2 WHERE applier = $1 AND finished_at IS NULL";
        sign(tx, sealer, sql, dispatched.applier, &dispatched.row()).await?;
    }
    Ok(rows.len())
}

async fn sign(
    tx: &mut Connection,
    sealer: &Sealer,
    sql: &'static str,
    key: Uuid,
    row: &Row,
) -> Result<(), StoreError> {
    let signed = sqlx::query(sql).bind(key).bind(sealer.sign(row)).execute(&mut *tx).await;
    signed.map(drop).map_err(StoreError::query(WHAT))
}
