//! News that says the same of many objects, gathered for a while to be told in one message.

use std::collections::BTreeMap;

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
    /// And the text of that.
    pub shared: &'a str,
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

/// News that is due to be told.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct DueNews {
    /// What its objects' news has in common.
    pub cause: Vec<u8>,
    /// The first of it, as the Alert tells it.
    pub first: Value,
}

/// An object of such news.
#[derive(Debug, Clone)]
pub struct NewsObject {
    /// Which one.
    pub object: MemberKey,
    /// The cluster that it is about, if it is about one.
    pub cluster: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether the Alert has told that it fails, and not yet that this is over.
    pub is_told: bool,
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
    /// The text that all of it has in common, but for names.
    pub shared: Option<String>,
    /// What the first comes of, where traces are made.
    pub trace: Option<String>,
    /// The objects.
    pub objects: i64,
    /// Their clusters.
    pub clusters: i64,
    /// The first of these, or of the objects where they are about none.
    pub names: Vec<String>,
    /// The same for the same objects.
    pub of_whom: String,
    /// Whether the first one's object is among them.
    pub has_first: bool,
    /// One of them: namespace, name, cluster and uid, which are empty where there is none.
    pub one: Vec<String>,
}

type ObjectRow = (String, String, String, Option<String>, Value, bool);

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
                  opened AS (INSERT INTO news_group (alert, cause, first, news, trace, opened_at, due_at, key, shared)
                             SELECT $1, $2, $3, $4, $5, $6, $7, $14, $15
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
        .bind(news.shared)
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query("gather news that many have"))
    }

    /// What was gathered of an Alert and is due, the oldest first; also what was gathered later than `latest`: the clock was put back.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn due_news_groups(
        &mut self,
        alert: ResourceUid,
        due: Timestamp,
        latest: Timestamp,
        most: i64,
    ) -> Result<Vec<DueNews>, StoreError> {
        sqlx::query_as(
            "SELECT cause, first FROM news_group WHERE alert = $1 AND (due_at <= $2 OR opened_at > $3) ORDER BY news LIMIT $4",
        )
        .bind(alert.0)
        .bind(to_sql(due))
        .bind(to_sql(latest))
        .bind(most)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("read news that many have"))
    }

    /// The objects of such news that are not in this namespace.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn news_elsewhere(
        &mut self,
        alert: ResourceUid,
        cause: &[u8],
        namespace: &str,
    ) -> Result<Vec<MemberKey>, StoreError> {
        sqlx::query_as(
            "SELECT kind, namespace, name FROM news_group_object WHERE alert = $1 AND cause = $2 AND namespace <> $3 ORDER BY 1, 2, 3",
        )
        .bind(alert.0)
        .bind(cause)
        .bind(namespace)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("read whose news many have"))
    }

    /// The objects of such news, of kinds of this group, from behind that one on.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn news_objects(
        &mut self,
        (alert, cause): (ResourceUid, &[u8]),
        group: &str,
        after: Option<&MemberKey>,
        most: i64,
    ) -> Result<Vec<NewsObject>, StoreError> {
        let (kind, namespace, name) = after.cloned().unwrap_or_default();
        let rows: Vec<ObjectRow> = sqlx::query_as(
            "SELECT whose.kind, whose.namespace, whose.name, whose.cluster, coalesce(object #> '{metadata,labels}', '{}'),
                    EXISTS (SELECT FROM alert_failing AS failing WHERE failing.alert = $1 AND failing.kind = whose.kind
                            AND failing.namespace = whose.namespace AND failing.name = whose.name)
             FROM news_group_object AS whose
             LEFT JOIN resource ON resource.api_group = $3 AND resource.kind = whose.kind AND resource.namespace = whose.namespace
                               AND resource.name = whose.name
             WHERE whose.alert = $1 AND whose.cause = $2 AND (whose.kind, whose.namespace, whose.name) > ($4, $5, $6)
             ORDER BY 1, 2, 3 LIMIT $7",
        )
        .bind(alert.0)
        .bind(cause)
        .bind(group)
        .bind(kind)
        .bind(namespace)
        .bind(name)
        .bind(most)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("read whose news many have"))?;
        let read = |(kind, namespace, name, cluster, labels, is_told): ObjectRow| NewsObject {
            object: (kind, namespace, name),
            cluster,
            labels: serde_json::from_value(labels).unwrap_or_default(),
            is_told,
        };
        Ok(rows.into_iter().map(read).collect())
    }

    /// Takes objects out of such news.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn leave_out_of_news(
        &mut self,
        alert: ResourceUid,
        cause: &[u8],
        objects: &[MemberKey],
    ) -> Result<(), StoreError> {
        if objects.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "DELETE FROM news_group_object WHERE alert = $1 AND cause = $2
               AND (kind, namespace, name) IN (SELECT * FROM unnest($3::text[], $4::text[], $5::text[]))",
        )
        .bind(alert.0)
        .bind(cause)
        .bind(objects.iter().map(|(kind, ..)| kind).collect::<Vec<_>>())
        .bind(objects.iter().map(|(_, namespace, _)| namespace).collect::<Vec<_>>())
        .bind(objects.iter().map(|(.., name)| name).collect::<Vec<_>>())
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("take objects out of news that many have"))?;
        Ok(())
    }

    /// Takes what was gathered of an Alert with these in common; nothing of what is left of no object.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_news_groups(
        &mut self,
        alert: ResourceUid,
        causes: &[Vec<u8>],
    ) -> Result<Vec<NewsGroup>, StoreError> {
        let what = "take news that many have";
        if causes.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<NewsGroup> = sqlx::query_as(
            "SELECT chosen.cause, first, news, key, shared, trace, object.count AS objects, object.clusters, object.of_whom, object.has_first,
                    ARRAY(SELECT DISTINCT coalesce(cluster, namespace || '/' || name) FROM news_group_object
                          WHERE alert = $1 AND cause = chosen.cause ORDER BY 1 LIMIT $3) AS names,
                    (SELECT ARRAY[whose.namespace, whose.name, coalesce(whose.cluster, ''),
                                  coalesce((SELECT uid::text FROM resource WHERE api_group = split_part(chosen.first #>> '{involvedObject,apiVersion}', '/', 1)
                                            AND resource.kind = whose.kind AND resource.namespace = whose.namespace AND resource.name = whose.name), '')]
                     FROM news_group_object AS whose WHERE alert = $1 AND cause = chosen.cause
                     ORDER BY kind, namespace, name LIMIT 1) AS one
             FROM (SELECT * FROM news_group WHERE alert = $1 AND cause = ANY($2)) AS chosen,
                  LATERAL (SELECT count(*) AS count, count(DISTINCT cluster) AS clusters,
                                  md5(coalesce(string_agg(concat_ws('/', kind, namespace, name), ',' ORDER BY kind, namespace, name), ''))
                                      AS of_whom,
                                  coalesce(bool_or(kind = chosen.first #>> '{involvedObject,kind}' AND name = chosen.first #>> '{involvedObject,name}'
                                      AND namespace = concat_ws('/', chosen.first ->> 'relayedFrom', chosen.first #>> '{involvedObject,namespace}')),
                                      false) AS has_first
                           FROM news_group_object WHERE alert = $1 AND cause = chosen.cause) AS object
             WHERE object.count > 0 ORDER BY news",
        )
        .bind(alert.0)
        .bind(causes)
        .bind(MOST_NAMED)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query("DELETE FROM news_group WHERE alert = $1 AND cause = ANY($2)")
            .bind(alert.0)
            .bind(causes)
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
