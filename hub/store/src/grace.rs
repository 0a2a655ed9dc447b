//! Sources that were there before the hub checked the addresses that it connects to.

use jiff::Timestamp;
use roadstead_model::ResourceUid;
use uuid::Uuid;

use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError};

/// The most that are listed.
const MOST: i64 = 1_000;

/// A source that goes on for a while although its address would be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grace {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The URL that it is for, and no other.
    pub url: String,
    /// When it ends.
    pub until: Timestamp,
}

impl Store {
    /// Until when a source with this URL goes on wherever it leads, if it does at `now`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn source_grace(
        &self,
        source: ResourceUid,
        url: &str,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let what = "look up a source's grace";
        let until: Option<time::OffsetDateTime> = sqlx::query_scalar(
            "SELECT until FROM source_grace WHERE source = $1 AND url = $2 AND until > $3",
        )
        .bind(source.0)
        .bind(url)
        .bind(to_sql(now))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        until.map(|until| from_sql(what, until)).transpose()
    }

    /// Ends a source's grace.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn end_source_grace(&self, source: ResourceUid) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM source_grace WHERE source = $1")
            .bind(source.0)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("end a source's grace"))?;
        Ok(())
    }

    /// The sources whose grace lasts at `now`, at most a thousand.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn source_graces(&self, now: Timestamp) -> Result<Vec<Grace>, StoreError> {
        let what = "list sources' graces";
        let rows: Vec<(String, String, String, time::OffsetDateTime)> = sqlx::query_as(
            "SELECT namespace, name, url, until FROM source_grace JOIN resource ON resource.uid = source \
             WHERE until > $1 AND url = object #>> '{spec,url}' ORDER BY namespace, name LIMIT $2",
        )
        .bind(to_sql(now))
        .bind(MOST)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.into_iter()
            .map(|(namespace, name, url, until)| {
                Ok(Grace { namespace, name, url, until: from_sql(what, until)? })
            })
            .collect()
    }

    /// The generation of a resource that is not being deleted.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn live_generation(&self, uid: ResourceUid) -> Result<Option<i64>, StoreError> {
        let uid: Uuid = uid.0;
        sqlx::query_scalar("SELECT generation FROM resource WHERE uid = $1 AND deletion_timestamp IS NULL")
            .bind(uid)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("read a resource's generation"))
    }
}
