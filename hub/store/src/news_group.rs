//! News that says the same of many objects, gathered for a while to be told in one message.

use jiff::Timestamp;
use roadstead_model::ResourceUid;
use serde_json::Value;

use crate::incident_member::MemberKey;
use crate::time::to_sql;
use crate::{Store, StoreError, Tx};

/// Groups of one Alert that are gathered at once, each with an event of 30 KiB at most: what would be another one is told by itself.
const MOST_GROUPS: i64 = 100;
/// Objects of one of them: more are told by themselves.
const MOST_OBJECTS: i64 = 5_000;
/// Clusters or objects that are named of one.
const MOST_NAMED: i64 = 20;

/// News of an object, which others may have as well.
#[derive(Debug, Clone, Copy)]
pub struct SharedNews<'a> {
    /// What it has in common with that of others.
    pub cause: &'a [u8; 32],
    /// The object.
    pub object: &'a MemberKey,
    /// The cluster that it is about, if it is about one.
    pub cluster: Option<&'a str>,
    /// Of which news it is.
    pub news: i64,
    /// What the same news of the same object has in common.
    pub key: &'a [u8; 32],
    /// The event, as the Alert tells it.
    pub event: &'a Value,
    /// What it comes of, where traces are made.
    pub trace: Option<&'a str>,
}

/// News of so many objects.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct NewsGroup {
    /// What its objects' news has in common.
    pub cause: Vec<u8>,
    /// The first of it, as the Alert tells it.
    pub first: Value,
    /// Of which news that is.
    pub news: i64,
    /// What the same news of its object has in common.
    pub key: Vec<u8>,
    /// What that comes of, where traces are made.
    pub trace: Option<String>,
    /// The objects.
    pub objects: i64,
    /// Their clusters.
    pub clusters: i64,
    /// The first of these, or of the objects where they are about none.
    pub names: Vec<String>,
    /// The same for the same objects.
    pub of_whom: String,
}

impl Store {
    /// Whether news of an Alert is gathered.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn gathers_news(&self, alert: ResourceUid) -> Result<bool, StoreError> {
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM news_group WHERE alert = $1)")
            .bind(alert.0)
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query("look whether news is gathered"))
    }
}

impl Tx {
    /// Gathers news of an object until `until`, or with what is gathered of the same already. False where there is no room for it.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn gather_news(
        &mut self,
        alert: ResourceUid,
        news: SharedNews<'_>,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (kind, namespace, name) = news.object;
        sqlx::query_scalar(
            "WITH known AS (SELECT FROM news_group WHERE alert = $1 AND cause = $2),
                  opened AS (INSERT INTO news_group (alert, cause, first, news, trace, opened_at, due_at, key)
                             SELECT $1, $2, $3, $4, $5, $6, $7, $14
                             WHERE NOT EXISTS (SELECT FROM known)
                               AND (SELECT count(*) FROM news_group WHERE alert = $1) < $12
                             RETURNING cause),
                  room AS (SELECT EXISTS (SELECT FROM opened)
                                  OR EXISTS (SELECT FROM known)
                                     AND (SELECT count(*) FROM news_group_object WHERE alert = $1 AND cause = $2) < $13 AS is_there),
                  joined AS (INSERT INTO news_group_object (alert, cause, kind, namespace, name, cluster)
                             SELECT $1, $2, $8, $9, $10, $11 FROM room WHERE is_there
                             ON CONFLICT DO NOTHING)
             SELECT is_there FROM room",
        )
        .bind(alert.0)
        .bind(news.cause.as_slice())
        .bind(news.event)
        .bind(news.news)
        .bind(news.trace)
        .bind(to_sql(now))
        .bind(to_sql(until))
        .bind(kind)
        .bind(namespace)
        .bind(name)
        .bind(news.cluster)
        .bind(MOST_GROUPS)
        .bind(MOST_OBJECTS)
        .bind(news.key.as_slice())
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query("gather news that many have"))
    }

    /// Takes what was gathered of an Alert and is due, the oldest first; also what was gathered later than `latest`: the clock was put back.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_news_groups(
        &mut self,
        alert: ResourceUid,
        due: Timestamp,
        latest: Timestamp,
        most: i64,
    ) -> Result<Vec<NewsGroup>, StoreError> {
        let what = "take news that many have";
        let found: Vec<NewsGroup> = sqlx::query_as(
            "SELECT chosen.cause, first, news, key, trace, object.count AS objects, object.clusters, object.of_whom,
                    ARRAY(SELECT DISTINCT coalesce(cluster, namespace || '/' || name) FROM news_group_object
                          WHERE alert = $1 AND cause = chosen.cause ORDER BY 1 LIMIT $5) AS names
             FROM (SELECT * FROM news_group WHERE alert = $1 AND (due_at <= $2 OR opened_at > $3)
                   ORDER BY news LIMIT $4 FOR UPDATE) AS chosen,
                  LATERAL (SELECT count(*) AS count, count(DISTINCT cluster) AS clusters,
                                  md5(coalesce(string_agg(concat_ws('/', kind, namespace, name), ',' ORDER BY kind, namespace, name), ''))
                                      AS of_whom
                           FROM news_group_object WHERE alert = $1 AND cause = chosen.cause) AS object
             ORDER BY news",
        )
        .bind(alert.0)
        .bind(to_sql(due))
        .bind(to_sql(latest))
        .bind(most)
        .bind(MOST_NAMED)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query("DELETE FROM news_group WHERE alert = $1 AND cause = ANY($2)")
            .bind(alert.0)
            .bind(found.iter().map(|one| one.cause.clone()).collect::<Vec<_>>())
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        Ok(found)
    }

    /// When the next of what was gathered of an Alert is due.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn next_news_group(&mut self, alert: ResourceUid) -> Result<Option<Timestamp>, StoreError> {
        let what = "read when news that many have is due";
        let next: Option<::time::OffsetDateTime> =
            sqlx::query_scalar("SELECT min(due_at) FROM news_group WHERE alert = $1")
                .bind(alert.0)
                .fetch_one(self.written().await?)
                .await
                .map_err(StoreError::query(what))?;
        next.map(|at| crate::time::from_sql(what, at)).transpose()
    }
}
