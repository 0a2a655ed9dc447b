//! Events that Alerts listen to: written with the state that they tell of, and sorted to the Alerts that they are for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::{ResourceUid, Topic};
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::time::to_sql;
use crate::{StoreError, Tx};

/// Deliveries of one Alert that wait at most: what comes beyond that is counted, and left out.
pub(crate) const MOST_WAITING: i64 = 1_000;

/// The lock of who sorts news.
const SORTING: i64 = 0x6e65_7773;

/// What an Alert listens to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertSource {
    /// The kind.
    pub kind: String,
    /// The namespace; `*` for all.
    pub namespace: String,
    /// The name; `*` for all.
    pub name: String,
}

/// An event, as it is written with what it tells of.
#[derive(Debug, Clone)]
pub struct NewsItem {
    /// The object's kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it tells of a failure.
    pub is_error: bool,
    /// The condition that says so, or that it is over; none where it is about something else.
    pub condition: Option<&'static str>,
    /// The event.
    pub event: Value,
    /// The object's labels.
    pub labels: BTreeMap<String, String>,
    /// The cluster that it is about.
    pub cluster: Option<String>,
}

/// An event that waits to be sorted.
#[derive(Debug, Clone)]
pub struct WaitingNews {
    /// Which one.
    pub id: i64,
    /// The event.
    pub event: Value,
    /// The object's labels, when it happened.
    pub labels: BTreeMap<String, String>,
    /// The cluster that it is about.
    pub cluster: Option<String>,
    /// The condition whose news it is.
    pub condition: Option<String>,
    /// The Alerts that listen to it.
    pub alerts: Vec<ResourceUid>,
    /// What it comes of, where traces are made.
    pub trace: Option<String>,
}

/// Labels of objects, by their names.
pub type LabelsByName = BTreeMap<String, BTreeMap<String, String>>;

/// An event that an Alert is to send.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    /// The Alert.
    pub alert: ResourceUid,
    /// Of which news it is.
    pub news: i64,
    /// What the same news has in common.
    pub key: [u8; 32],
    /// The event, as the Alert tells it.
    pub event: Value,
    /// What it comes of, where traces are made.
    pub trace: Option<String>,
}

type Row =
    (i64, Value, Json<BTreeMap<String, String>>, Option<String>, Option<String>, Vec<Uuid>, Option<String>);

impl Tx {
    /// Writes an event for those who listen to it, with this unit of work.
    pub fn tell(&mut self, news: NewsItem) {
        self.news.push(news);
    }

    /// One statement for all events of a unit of work, and none while there is no Alert; it leaves nothing behind of those that nobody
    /// listens to.
    pub(crate) async fn write_news(&mut self) -> Result<(), StoreError> {
        let news = std::mem::take(&mut self.news);
        if news.is_empty() || !self.is_listened_to {
            return Ok(());
        }
        let texts = |of: fn(&NewsItem) -> &str| news.iter().map(of).map(str::to_owned).collect::<Vec<_>>();
        let written = sqlx::query(
            "INSERT INTO news (event, labels, cluster, condition, trace)
             SELECT told.event, told.labels, told.cluster, told.condition, $9
             FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::jsonb[], $6::jsonb[], $7::text[], $8::text[])
                  WITH ORDINALITY AS told (kind, namespace, name, is_error, event, labels, cluster, condition, place)
             WHERE EXISTS (SELECT FROM alert_source AS source
                           WHERE source.kind = told.kind AND source.namespace IN (told.namespace, '*')
                             AND source.name IN (told.name, '*') AND (told.is_error OR NOT source.only_errors))
             ORDER BY told.place",
        )
        .bind(texts(|one| &one.kind))
        .bind(texts(|one| &one.namespace))
        .bind(texts(|one| &one.name))
        .bind(news.iter().map(|one| one.is_error).collect::<Vec<_>>())
        .bind(news.iter().map(|one| Json(&one.event)).collect::<Vec<_>>())
        .bind(news.iter().map(|one| Json(&one.labels)).collect::<Vec<_>>())
        .bind(news.iter().map(|one| one.cluster.clone()).collect::<Vec<_>>())
        .bind(news.iter().map(|one| one.condition).collect::<Vec<_>>())
        .bind(roadstead_trace::carry().map(|trace| trace.to_string()))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("write news"))?;
        if written.rows_affected() > 0 {
            self.wake(Topic::News);
        }
        Ok(())
    }

    /// Notes what an Alert listens to, in the place of what it did.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn listen(
        &mut self,
        alert: ResourceUid,
        sources: &[AlertSource],
        only_errors: bool,
    ) -> Result<(), StoreError> {
        let what = "note what an Alert listens to";
        let texts =
            |of: fn(&AlertSource) -> &str| sources.iter().map(of).map(str::to_owned).collect::<Vec<_>>();
        let (kinds, namespaces) = (texts(|one| &one.kind), texts(|one| &one.namespace));
        let names = texts(|one| &one.name);
        sqlx::query(
            "DELETE FROM alert_source WHERE alert = $1 AND (kind, namespace, name) NOT IN
                 (SELECT * FROM unnest($2::text[], $3::text[], $4::text[]))",
        )
        .bind(alert.0)
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query(
            "INSERT INTO alert_source (alert, kind, namespace, name, only_errors)
             SELECT DISTINCT $1::uuid, kind, namespace, name, $5::boolean
             FROM unnest($2::text[], $3::text[], $4::text[]) AS wanted (kind, namespace, name)
             ON CONFLICT (alert, kind, namespace, name) DO UPDATE SET only_errors = excluded.only_errors",
        )
        .bind(alert.0)
        .bind(&kinds)
        .bind(&namespaces)
        .bind(&names)
        .bind(only_errors)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// Those of the given labels that objects of a kind without namespaces have: of each that is there.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn labels_of(
        &mut self,
        kind: KindId,
        names: &BTreeSet<String>,
        keys: &[String],
    ) -> Result<LabelsByName, StoreError> {
        let rows: Vec<(String, Json<BTreeMap<String, String>>)> = sqlx::query_as(
            "SELECT name, coalesce((SELECT jsonb_object_agg(key, value)
                                    FROM jsonb_each_text(coalesce(object #> '{metadata,labels}', '{}'))
                                    WHERE key = ANY($4)), '{}')
             FROM resource WHERE api_group = $1 AND kind = $2 AND namespace = '' AND name = ANY($3)",
        )
        .bind(kind.get().group())
        .bind(kind.get().kind)
        .bind(names.iter().collect::<Vec<_>>())
        .bind(keys)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("read labels"))?;
        Ok(rows.into_iter().map(|(name, Json(labels))| (name, labels)).collect())
    }

    /// Takes the oldest events that wait to be sorted, each with who listens to it: they are gone with this unit of work. None while another
    /// unit of work sorts: what happens to one object would change its order.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_news(&mut self, most: i64) -> Result<Option<Vec<WaitingNews>>, StoreError> {
        let is_alone: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
            .bind(SORTING)
            .fetch_one(self.written().await?)
            .await
            .map_err(StoreError::query("look whether news is being sorted"))?;
        if !is_alone {
            return Ok(None);
        }
        let rows: Vec<Row> = sqlx::query_as(
            "WITH taken AS (DELETE FROM news WHERE id IN (SELECT id FROM news ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
                            RETURNING id, event, labels, cluster, condition, trace)
             SELECT id, event, labels,
                    coalesce(cluster, (SELECT named.name FROM resource AS about
                                       JOIN resource AS named ON named.kind = 'Cluster' AND named.kubeconfig = about.kubeconfig
                                       WHERE about.api_group = split_part(taken.event #>> '{involvedObject,apiVersion}', '/', 1)
                                         AND about.kind = taken.event #>> '{involvedObject,kind}'
                                         AND about.namespace = taken.event #>> '{involvedObject,namespace}'
                                         AND about.name = taken.event #>> '{involvedObject,name}' LIMIT 1)),
                    condition,
                    ARRAY(SELECT DISTINCT alert FROM alert_source AS source
                          WHERE source.kind = taken.event #>> '{involvedObject,kind}'
                            AND source.namespace IN (taken.event #>> '{involvedObject,namespace}', '*')
                            AND source.name IN (taken.event #>> '{involvedObject,name}', '*')
                            AND (taken.event ->> 'severity' = 'error' OR NOT source.only_errors)),
                    trace
             FROM taken ORDER BY id",
        )
        .bind(most)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("take news"))?;
        let read = |(id, event, Json(labels), cluster, condition, alerts, trace): Row| WaitingNews {
            id,
            event,
            labels,
            cluster,
            condition,
            alerts: alerts.into_iter().map(ResourceUid).collect(),
            trace,
        };
        Ok(Some(rows.into_iter().map(read).collect()))
    }

    async fn leave_out(&mut self, alert: ResourceUid, count: i64, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO delivery_left_out (alert, since, count) SELECT $1, $2, $3::bigint WHERE $3::bigint > 0
             ON CONFLICT (alert) DO UPDATE SET count = delivery_left_out.count + $3::bigint",
        )
        .bind(alert.0)
        .bind(to_sql(now))
        .bind(count)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("count what is left out"))?;
        Ok(())
    }

    /// Adds what an Alert is to send, in this order, and says how much of it was not known yet. The same news again within `again` is none (also
    /// where the clock was put back), unless it failed to arrive, or the object had news of another severity since. Beyond what may wait it is left out, which is
    /// counted.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn add_deliveries(
        &mut self,
        alert: ResourceUid,
        deliveries: &[NewDelivery],
        again: Duration,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let what = "add deliveries";
        let mut added = 0;
        for (index, delivery) in deliveries.iter().enumerate() {
            let row: (bool, bool) = sqlx::query_as(
                "WITH same AS (SELECT max(id) AS id FROM delivery
                               WHERE alert = $1 AND key = $3 AND made_at > $5 AND made_at < $9 AND state <> 'failed'),
                      other AS (SELECT max(delivery.id) AS id FROM delivery, same
                                WHERE alert = $1 AND delivery.id > same.id
                                  AND delivery.event -> 'involvedObject' = $4::jsonb -> 'involvedObject'
                                  AND delivery.event -> 'relayedFrom' IS NOT DISTINCT FROM $4::jsonb -> 'relayedFrom'
                                  AND delivery.event ->> 'severity' <> $4::jsonb ->> 'severity'),
                      room AS (SELECT count(*) < $7 AS is_there FROM
                                   (SELECT FROM delivery WHERE alert = $1 AND state = 'waiting' LIMIT $7) AS waiting),
                      is_new AS (SELECT (same.id IS NULL OR other.id IS NOT NULL) AS it FROM same, other),
                      added AS (INSERT INTO delivery (alert, news, key, event, made_at, trace)
                                SELECT $1, $2, $3, $4, $6, $8 FROM is_new, room WHERE is_new.it AND room.is_there
                                ON CONFLICT (alert, news) DO NOTHING RETURNING id),
                      left_out AS (INSERT INTO delivery_left_out (alert, since, count)
                                   SELECT $1, $6, 1 FROM is_new, room WHERE is_new.it AND NOT room.is_there
                                   ON CONFLICT (alert) DO UPDATE SET count = delivery_left_out.count + 1)
                 SELECT EXISTS (SELECT FROM added), (SELECT is_there FROM room)",
            )
            .bind(alert.0)
            .bind(delivery.news)
            .bind(delivery.key.as_slice())
            .bind(&delivery.event)
            .bind(to_sql(now - again))
            .bind(to_sql(now))
            .bind(MOST_WAITING)
            .bind(&delivery.trace)
            .bind(to_sql(now + again))
            .fetch_one(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
            added += u64::from(row.0);
            if !row.1 {
                // Nor is there room for the rest, whatever of it would have been news.
                let rest = deliveries.len() - index - 1;
                self.leave_out(alert, i64::try_from(rest).unwrap_or(i64::MAX), now).await?;
                break;
            }
        }
        Ok(added)
    }
}
