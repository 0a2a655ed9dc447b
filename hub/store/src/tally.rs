//! What became of what Alerts send, of each Alert and each Provider: counted as it happens, and told once in a while.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::ResourceUid;
use uuid::Uuid;

use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Stored, Tx};

type Moment = ::time::OffsetDateTime;

/// What became of what an Alert, or all that send to a Provider, had to send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// What waits to be sent.
    pub waiting: i64,
    /// What arrived.
    pub sent: i64,
    /// What was not taken, or was given up.
    pub failed: i64,
    /// When something last arrived.
    pub sent_at: Option<Timestamp>,
    /// When an attempt last failed.
    pub failed_at: Option<Timestamp>,
    /// And why.
    pub error: String,
}

type Row = (i64, i64, Option<Moment>, Option<Moment>, String);

impl Store {
    /// Of whom something else was counted than was told, and not within `pause`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn untold_tallies(
        &self,
        now: Timestamp,
        pause: Duration,
        most: i64,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let found: Vec<Uuid> = sqlx::query_scalar(
            "SELECT uid FROM delivery_count WHERE is_news AND (told_at IS NULL OR told_at <= $1 OR told_at > $3)
             ORDER BY told_at NULLS FIRST LIMIT $2",
        )
        .bind(to_sql(now - pause))
        .bind(most)
        // The clock was put back.
        .bind(to_sql(now + pause))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look whose deliveries were counted"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }
}

impl Tx {
    /// Takes what was counted to be told; none where another replica has told it meanwhile.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_tally(
        &mut self,
        uid: ResourceUid,
        now: Timestamp,
        pause: Duration,
    ) -> Result<Option<Tally>, StoreError> {
        let what = "read what became of deliveries";
        let row: Option<Row> = sqlx::query_as(
            "UPDATE delivery_count SET is_news = false, told_at = $2
             WHERE uid = $1 AND is_news AND (told_at IS NULL OR told_at <= $3 OR told_at > $4)
             RETURNING sent, failed, sent_at, failed_at, error",
        )
        .bind(uid.0)
        .bind(to_sql(now))
        .bind(to_sql(now - pause))
        .bind(to_sql(now + pause))
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        let Some((sent, failed, sent_at, failed_at, error)) = row else { return Ok(None) };
        let time = |at: Option<Moment>| at.map(|at| from_sql(what, at)).transpose();
        Ok(Some(Tally {
            waiting: 0,
            sent,
            failed,
            sent_at: time(sent_at)?,
            failed_at: time(failed_at)?,
            error,
        }))
    }

    /// How much an Alert, or those that send to a Provider, have still to send.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn waiting_of(&mut self, stored: &Stored) -> Result<i64, StoreError> {
        let refers = format!("{}/{}/{}", stored.kind, stored.namespace, stored.name);
        sqlx::query_scalar(
            "SELECT count(*) FROM delivery WHERE state = 'waiting'
             AND (alert = $1 OR $2 AND alert IN (SELECT uid FROM resource WHERE kind = 'Alert' AND refers_to @> ARRAY[$3]))",
        )
        .bind(stored.uid.0)
        .bind(stored.kind == KindId::Provider)
        .bind(refers)
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query("count what waits to be sent"))
    }
}
