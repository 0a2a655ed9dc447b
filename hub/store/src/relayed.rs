//! Events that controllers of Flux in clusters tell, and that Alerts listen to: kept apart from the hub's own, and sorted with them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::{ClusterUid, Digest, ResourceUid, Topic};
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::news::MOST_WAITING;
use crate::stored::time;
use crate::{Store, StoreError, Tx, WaitingNews};

/// Events of all clusters that wait to be sorted, some KiB each. Beyond that, each cluster has room for a few only, so that those that report
/// little are heard.
const MOST_OF_ALL: i64 = 20_000;
const MOST_THEN: i64 = 10;

/// Events of one cluster that the stream has, about a KiB each.
const MOST_IN_STREAM: i64 = 250;
/// How much of a message the stream has, in bytes, as of an Event's.
const MOST_OF_MESSAGE: usize = 1024;

/// What an Alert listens to of clusters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayedSource {
    /// The Cluster; `*` for all.
    pub cluster: String,
    /// The kind.
    pub kind: String,
    /// The namespace there; `*` for all.
    pub namespace: String,
    /// The name; `*` for all.
    pub name: String,
}

/// An event of a cluster.
#[derive(Debug, Clone)]
pub struct RelayedItem {
    /// The object's kind.
    pub kind: String,
    /// Its namespace there.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What happened, in one word.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// Whether it tells of a failure.
    pub is_error: bool,
    /// The condition that says so, or that it is over; none where it is about something else.
    pub condition: Option<&'static str>,
    /// The event.
    pub event: Value,
}

/// What became of events of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayedCount {
    /// Somebody listens to them.
    pub heard: u64,
    /// Of these there was no room for so many: too many wait to be sorted.
    pub left_out: u64,
}

type Row = (i64, String, Value, Option<String>, Vec<Uuid>);

impl Store {
    /// Whether a Cluster lets Alerts of a namespace be told of what is relayed from it, whoever wrote them.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn reads_events_of(&self, namespace: &str, cluster: &str) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM resource WHERE api_group = $1 AND kind = $2 AND namespace = '' AND name = $3
                            AND object #> '{spec,eventReaders}' ?| ARRAY[$4, '*'])",
        )
        .bind(KindId::Cluster.get().group())
        .bind(KindId::Cluster.get().kind)
        .bind(cluster)
        .bind(namespace)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look who may be told of a cluster's events"))
    }

    /// Drops what the stream of events has of clusters from before then.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_old_relayed(&self, before: Timestamp) -> Result<(), StoreError> {
        // One that is told again at this moment is not old.
        sqlx::query(
            "DELETE FROM relayed_event
             WHERE uid IN (SELECT uid FROM relayed_event WHERE last_seen < $1 FOR UPDATE SKIP LOCKED)",
        )
        .bind(time(before))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("drop old events of clusters"))?;
        Ok(())
    }
}

/// The same event, told once or more.
#[derive(Debug)]
struct Told<'a> {
    item: &'a RelayedItem,
    message: &'a str,
    count: i64,
}

/// What is told, each once, by a digest of all that makes it the same.
fn told(cluster: ClusterUid, events: &[RelayedItem]) -> BTreeMap<Digest, Told<'_>> {
    let (cluster, mut told) = (cluster.to_string(), BTreeMap::new());
    for item in events {
        let message = &item.message[..item.message.floor_char_boundary(MOST_OF_MESSAGE)];
        let error = if item.is_error { "1" } else { "" };
        let key =
            [&cluster, &item.kind, &item.namespace, &item.name, error, &item.reason, message].join("\0");
        told.entry(Digest::of(key.as_bytes())).or_insert(Told { item, message, count: 0 }).count += 1;
    }
    told
}

impl Tx {
    /// Keeps events of a Cluster of this name for the stream of events, the newest of them.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn keep_relayed(
        &mut self,
        (cluster, name): (ClusterUid, &str),
        events: &[RelayedItem],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let what = "keep events of a cluster";
        let told = told(cluster, events);
        let texts = |of: for<'a> fn(&'a Told<'a>) -> &'a str| {
            told.values().map(of).map(str::to_owned).collect::<Vec<_>>()
        };
        sqlx::query(
            "INSERT INTO relayed_event AS known (key, cluster_uid, cluster, kind, namespace, name, type, reason, message, count, first_seen,
                                               last_seen)
             SELECT key, $11, $1, kind, namespace, name, CASE WHEN is_error THEN 'Warning' ELSE 'Normal' END, reason, message, count,
                    $10::text, $10::text
             FROM unnest($2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::boolean[], $9::bigint[])
                      AS told (key, kind, namespace, name, reason, message, is_error, count)
             ON CONFLICT (key) DO UPDATE SET count = known.count + excluded.count, last_seen = excluded.last_seen",
        )
        .bind(name)
        .bind(told.keys().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>())
        .bind(texts(|one| &one.item.kind))
        .bind(texts(|one| &one.item.namespace))
        .bind(texts(|one| &one.item.name))
        .bind(texts(|one| &one.item.reason))
        .bind(texts(|one| one.message))
        .bind(told.values().map(|one| one.item.is_error).collect::<Vec<_>>())
        .bind(told.values().map(|one| one.count).collect::<Vec<_>>())
        .bind(time(now))
        .bind(cluster.0)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query(
            // What others tell of at this moment is not old, and those who wait for each other here would never end.
            "DELETE FROM relayed_event WHERE uid IN
                (SELECT uid FROM relayed_event
                 WHERE uid IN (SELECT uid FROM relayed_event WHERE cluster_uid = $1 ORDER BY last_seen DESC, uid DESC OFFSET $2)
                 FOR UPDATE SKIP LOCKED)",
        )
        .bind(cluster.0)
        .bind(MOST_IN_STREAM)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// Notes what an Alert listens to of clusters, in the place of what it did.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn listen_to_clusters(
        &mut self,
        alert: ResourceUid,
        sources: &[RelayedSource],
        only_errors: bool,
    ) -> Result<(), StoreError> {
        let what = "note what an Alert listens to of clusters";
        let texts =
            |of: fn(&RelayedSource) -> &str| sources.iter().map(of).map(str::to_owned).collect::<Vec<_>>();
        sqlx::query(
            "WITH wanted AS (SELECT DISTINCT * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[])
                                 AS wanted (cluster, kind, namespace, name)),
                  gone AS (DELETE FROM alert_relayed_source WHERE alert = $1
                               AND (cluster, kind, namespace, name) NOT IN (SELECT * FROM wanted))
             INSERT INTO alert_relayed_source (alert, cluster, kind, namespace, name, only_errors)
             SELECT $1::uuid, cluster, kind, namespace, name, $6::boolean FROM wanted
             ON CONFLICT (alert, cluster, kind, namespace, name) DO UPDATE SET only_errors = excluded.only_errors",
        )
        .bind(alert.0)
        .bind(texts(|one| &one.cluster))
        .bind(texts(|one| &one.kind))
        .bind(texts(|one| &one.namespace))
        .bind(texts(|one| &one.name))
        .bind(only_errors)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// Writes events of a cluster for those who listen to them, as long as there is room; it leaves nothing behind of those that nobody
    /// listens to.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn relay(&mut self, cluster: &str, events: &[RelayedItem]) -> Result<RelayedCount, StoreError> {
        let texts =
            |of: fn(&RelayedItem) -> &str| events.iter().map(of).map(str::to_owned).collect::<Vec<_>>();
        let (heard, kept): (i64, i64) = sqlx::query_as(
            "WITH heard AS (SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::boolean[], $6::jsonb[], $7::text[])
                                WITH ORDINALITY AS told (kind, namespace, name, is_error, event, condition, place)
                            WHERE EXISTS (SELECT FROM alert_relayed_source AS source
                                          WHERE source.kind = told.kind AND source.cluster IN ($1, '*')
                                            AND source.namespace IN (told.namespace, '*') AND source.name IN (told.name, '*')
                                            -- What ends a failure counts: it may be kept for later, and nothing else says how it is.
                                            AND (told.is_error OR told.condition IS NOT NULL OR NOT source.only_errors))),
                  all_waiting AS (SELECT count(*) AS count FROM (SELECT FROM relayed_news LIMIT $9::bigint) AS waiting),
                  room AS (SELECT greatest(most - (SELECT count(*) FROM (SELECT FROM relayed_news WHERE cluster = $1 LIMIT $8::bigint) AS own), 0)
                                  AS places
                           FROM (SELECT CASE WHEN count < $9::bigint THEN $8::bigint ELSE $10::bigint END AS most FROM all_waiting) AS bound),
                  kept AS (INSERT INTO relayed_news (cluster, event, condition)
                           SELECT $1, event, condition FROM heard
                           ORDER BY place LIMIT (SELECT places FROM room) RETURNING id)
             SELECT (SELECT count(*) FROM heard), (SELECT count(*) FROM kept)",
        )
        .bind(cluster)
        .bind(texts(|one| &one.kind))
        .bind(texts(|one| &one.namespace))
        .bind(texts(|one| &one.name))
        .bind(events.iter().map(|one| one.is_error).collect::<Vec<_>>())
        .bind(events.iter().map(|one| Json(&one.event)).collect::<Vec<_>>())
        .bind(events.iter().map(|one| one.condition).collect::<Vec<_>>())
        .bind(MOST_WAITING)
        .bind(MOST_OF_ALL)
        .bind(MOST_THEN)
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query("write events of a cluster"))?;
        if kept > 0 {
            self.wake(Topic::News);
        }
        let count = |count: i64| u64::try_from(count).unwrap_or_default();
        Ok(RelayedCount { heard: count(heard), left_out: count(heard - kept) })
    }

    /// Takes the oldest events of clusters that wait to be sorted, as [`Tx::take_news`] does, which holds who sorts.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_relayed(&mut self, most: i64) -> Result<Vec<WaitingNews>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "WITH taken AS (DELETE FROM relayed_news
                            WHERE id IN (SELECT id FROM relayed_news ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
                            RETURNING id, cluster, event, condition)
             SELECT id, cluster, event, condition,
                    ARRAY(SELECT DISTINCT alert FROM alert_relayed_source AS source
                          WHERE source.kind = taken.event #>> '{involvedObject,kind}' AND source.cluster IN (taken.cluster, '*')
                            AND source.namespace IN (taken.event #>> '{involvedObject,namespace}', '*')
                            AND source.name IN (taken.event #>> '{involvedObject,name}', '*')
                            AND (taken.event ->> 'severity' = 'error' OR taken.condition IS NOT NULL OR NOT source.only_errors))
             FROM taken ORDER BY id",
        )
        .bind(most)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("take events of clusters"))?;
        let read = |(id, cluster, event, condition, alerts): Row| WaitingNews {
            id,
            event,
            labels: BTreeMap::new(),
            cluster: Some(cluster),
            condition,
            alerts: alerts.into_iter().map(ResourceUid).collect(),
            trace: None,
        };
        Ok(rows.into_iter().map(read).collect())
    }
}
