//! News that Alerts do not send now, since a Silence keeps it back or since its Provider tells digests, and what it sums up to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_model::ResourceUid;
use serde_json::Value;
use sqlx::types::Json;

use crate::incident::Member;
use crate::news::MOST_WAITING;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// Objects of one Alert that fail, and whose failures are kept, at most: more are counted as left out. Each has an event of some KiB.
pub(crate) const MOST_KEPT: i64 = 1_000;
/// Silences of a namespace that count, by their names: some KiB each.
const MOST_SILENCES: i64 = 100;
/// Objects that are named in a sum.
const MOST_NAMED: i64 = 20;
/// Characters of their messages.
const MAX_MESSAGE: i32 = 300;

type Moment = ::time::OffsetDateTime;

/// A Silence, as far as it says what is not sent.
#[derive(Debug, Clone)]
pub struct StoredSilence {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: Value,
}

/// The failure of an object.
#[derive(Debug, Clone)]
pub struct KeptFailure<'a> {
    /// The object, and the condition that says so.
    pub member: Member<'a>,
    /// The object's labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Of which news it is.
    pub news: i64,
    /// The event.
    pub event: &'a Value,
}

/// An object that failed last.
#[derive(Debug, Clone)]
pub struct StillFailing {
    /// The condition that says so.
    pub condition: String,
    /// The cluster that it is about.
    pub cluster: Option<String>,
    /// The object's labels.
    pub labels: BTreeMap<String, String>,
    /// Of which news it is.
    pub news: i64,
    /// The event.
    pub event: Value,
}

/// What happened that belongs to no object that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncounted {
    /// Something failed.
    Failure,
    /// Something differs from what was applied.
    Drift,
    /// Anything else.
    Other,
}

/// An object that still fails, as a sum names it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct NamedFailure {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The cluster that it is about.
    pub cluster: Option<String>,
    /// The beginning of the message.
    pub message: String,
}

/// What was gathered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    /// Since when.
    pub since: Timestamp,
    /// Failures.
    pub failed: i64,
    /// Objects that were well again.
    pub recovered: i64,
    /// Objects that count as over although nobody said that they are well: as of [`crate::Lapsed`].
    pub lapsed: i64,
    /// Differences from what was applied.
    pub drifted: i64,
    /// Other news.
    pub others: i64,
    /// Objects that still fail.
    pub failing: i64,
    /// The first of them.
    pub named: Vec<NamedFailure>,
}

#[derive(sqlx::FromRow)]
struct SumRow {
    since: Option<Moment>,
    failed: i64,
    recovered: i64,
    lapsed: i64,
    drifted: i64,
    others: i64,
    failing: i64,
}

type FailingRow = (String, Option<String>, Json<BTreeMap<String, String>>, i64, Value);

impl Store {
    /// Whether an Alert has told that the object of an event failed and not yet that this is over, or is about to.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn tells_of_failure(&self, alert: ResourceUid, event: &Value) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM alert_failing WHERE alert = $1 AND kind = $2::jsonb #>> '{involvedObject,kind}'
                            AND namespace = concat_ws('/', $2::jsonb ->> 'relayedFrom', $2::jsonb #>> '{involvedObject,namespace}')
                            AND name = $2::jsonb #>> '{involvedObject,name}')
                 OR EXISTS (SELECT FROM delivery WHERE alert = $1 AND state = 'waiting' AND event ->> 'severity' = 'error'
                            AND event ->> 'relayedFrom' IS NOT DISTINCT FROM $2::jsonb ->> 'relayedFrom'
                            AND event #>> '{involvedObject,kind}' = $2::jsonb #>> '{involvedObject,kind}'
                            AND event #>> '{involvedObject,namespace}' = $2::jsonb #>> '{involvedObject,namespace}'
                            AND event #>> '{involvedObject,name}' = $2::jsonb #>> '{involvedObject,name}')",
        )
        .bind(alert.0)
        .bind(event)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look whether an Alert tells of a failure"))
    }
}

impl Tx {
    /// The Silences of a namespace that are not over for more than a day, the first by their names.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn silences(
        &mut self,
        namespace: &str,
        now: Timestamp,
    ) -> Result<Vec<StoredSilence>, StoreError> {
        let what = "read the Silences of a namespace";
        // As texts: what cannot be read as a time would fail the statement, and zones make less than a day.
        let day = now - jiff::SignedDuration::from_hours(24);
        let rows: Vec<(String, Value)> = sqlx::query_as(
            "SELECT name, object -> 'spec' FROM resource
             WHERE api_group = 'fleet.roadstead.dev' AND kind = 'Silence' AND namespace = $1 AND deletion_timestamp IS NULL
               AND coalesce(object #>> '{spec,until}' > $2, true)
             ORDER BY name COLLATE \"C\" LIMIT $3",
        )
        .bind(namespace)
        .bind(day.to_string())
        .bind(MOST_SILENCES)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(rows.into_iter().map(|(name, spec)| StoredSilence { name, spec }).collect())
    }

    /// The Alerts of a namespace.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn alerts_of(&mut self, namespace: &str) -> Result<Vec<ResourceUid>, StoreError> {
        let found: Vec<uuid::Uuid> = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE api_group = 'notification.toolkit.fluxcd.io' AND kind = 'Alert' AND namespace = $1",
        )
        .bind(namespace)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("list the Alerts of a namespace"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }

    /// All Alerts.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn all_alerts(&mut self) -> Result<Vec<ResourceUid>, StoreError> {
        let found: Vec<uuid::Uuid> = sqlx::query_scalar(
            "SELECT uid FROM resource WHERE api_group = 'notification.toolkit.fluxcd.io' AND kind = 'Alert' ORDER BY uid",
        )
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("list all Alerts"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }

    /// Those of these Alerts that listen to anything: not while they are suspended.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn listening(&mut self, alerts: &[ResourceUid]) -> Result<Vec<ResourceUid>, StoreError> {
        let uids: Vec<_> = alerts.iter().map(|alert| alert.0).collect();
        let found: Vec<uuid::Uuid> = sqlx::query_scalar(
            "SELECT alert FROM alert_source WHERE alert = ANY($1)
             UNION SELECT alert FROM alert_relayed_source WHERE alert = ANY($1) ORDER BY 1",
        )
        .bind(uids)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("look which Alerts listen"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }

    /// Why news of an Alert was gathered: the names of Silences, and an empty one for its Provider's digest.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn gathered_for(&mut self, alert: ResourceUid) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar("SELECT DISTINCT silence FROM gathered WHERE alert = $1 ORDER BY 1")
            .bind(alert.0)
            .fetch_all(self.written().await?)
            .await
            .map_err(StoreError::query("read why news is gathered"))
    }

    /// Keeps a failure of an object for later. Where there is no room for it, that is counted with the Alert's events that were left out.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn keep_failure(
        &mut self,
        alert: ResourceUid,
        silence: &str,
        failure: &KeptFailure<'_>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let member = failure.member;
        sqlx::query(
            "WITH room AS (SELECT EXISTS (SELECT FROM gathered WHERE alert = $1 AND silence = $2 AND kind = $4 AND namespace = $5
                                          AND name = $6)
                                  OR (SELECT count(*) FROM gathered WHERE alert = $1) < $13 AS is_there),
                  left_out AS (INSERT INTO delivery_left_out (alert, since, count)
                               SELECT $1, $12, 1 FROM room WHERE NOT is_there
                               ON CONFLICT (alert) DO UPDATE SET count = delivery_left_out.count + 1)
             INSERT INTO gathered (alert, silence, api_group, kind, namespace, name, condition, cluster, labels, news, event,
                                   fails, failed, since, heard_at)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, true, 1, $12, $12 FROM room WHERE is_there
             ON CONFLICT (alert, silence, kind, namespace, name)
             DO UPDATE SET condition = excluded.condition, cluster = excluded.cluster, labels = excluded.labels,
                           news = excluded.news, event = excluded.event, fails = true, failed = gathered.failed + 1,
                           heard_at = excluded.heard_at",
        )
        .bind(alert.0)
        .bind(silence)
        .bind(member.group)
        .bind(member.kind)
        .bind(member.namespace)
        .bind(member.name)
        .bind(member.condition)
        .bind(member.cluster)
        .bind(Json(failure.labels))
        .bind(failure.news)
        .bind(failure.event)
        .bind(to_sql(now))
        .bind(MOST_KEPT)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("keep a failure for later"))?;
        Ok(())
    }

    /// Counts so much news that belongs to no object that fails.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn count_gathered(
        &mut self,
        alert: ResourceUid,
        silence: &str,
        (what, count): (Uncounted, i64),
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let is = |one| if one == what { count } else { 0 };
        sqlx::query(
            "INSERT INTO gathered (alert, silence, api_group, kind, namespace, name, failed, drifted, others, since)
             VALUES ($1, $2, '', '', '', '', $3, $4, $5, $6)
             ON CONFLICT (alert, silence, kind, namespace, name)
             DO UPDATE SET failed = gathered.failed + excluded.failed, drifted = gathered.drifted + excluded.drifted,
                           others = gathered.others + excluded.others",
        )
        .bind(alert.0)
        .bind(silence)
        .bind(is(Uncounted::Failure))
        .bind(is(Uncounted::Drift))
        .bind(is(Uncounted::Other))
        .bind(to_sql(now))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("count news that is gathered"))?;
        Ok(())
    }

    /// Notes that an object's condition is met; true where a failure of that was kept.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn recover_gathered(
        &mut self,
        alert: ResourceUid,
        member: Member<'_>,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE gathered SET fails = false, recovered = recovered + 1
             WHERE alert = $1 AND kind = $2 AND namespace = $3 AND name = $4 AND condition = $5 AND fails",
        )
        .bind(alert.0)
        .bind(member.kind)
        .bind(member.namespace)
        .bind(member.name)
        .bind(member.condition)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("note that an object is well again"))?;
        Ok(done.rows_affected() > 0)
    }

    /// Has a Silence's news be told by the next digest.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn leave_to_digest(&mut self, alert: ResourceUid, silence: &str) -> Result<(), StoreError> {
        sqlx::query(
            "WITH moved AS (DELETE FROM gathered WHERE alert = $1 AND silence = $2 RETURNING *)
             INSERT INTO gathered (alert, silence, api_group, kind, namespace, name, condition, cluster, labels, news, event, fails,
                                   failed, recovered, lapsed, drifted, others, since, heard_at)
             SELECT alert, '', api_group, kind, namespace, name, condition, cluster, labels, news, event, fails,
                    failed, recovered, lapsed, drifted, others, since, heard_at FROM moved
             ON CONFLICT (alert, silence, kind, namespace, name)
             DO UPDATE SET condition = excluded.condition, cluster = excluded.cluster, labels = excluded.labels,
                           news = excluded.news, event = excluded.event, fails = excluded.fails,
                           failed = gathered.failed + excluded.failed, recovered = gathered.recovered + excluded.recovered,
                           lapsed = gathered.lapsed + excluded.lapsed, drifted = gathered.drifted + excluded.drifted,
                           others = gathered.others + excluded.others, heard_at = excluded.heard_at,
                           since = least(gathered.since, excluded.since)",
        )
        .bind(alert.0)
        .bind(silence)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("leave news to a digest"))?;
        Ok(())
    }

    /// Sums up what was gathered for these Alerts, and begins to count from 0: what is left is who still fails. None where nothing
    /// happened and nobody fails.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn sum_up(
        &mut self,
        alerts: &[ResourceUid],
        silence: &str,
        heard_since: Timestamp,
    ) -> Result<Option<Gathered>, StoreError> {
        let what = "sum up what was gathered";
        let uids: Vec<_> = alerts.iter().map(|alert| alert.0).collect();
        self.settle_gathered(&uids, silence, heard_since).await?;
        let row: SumRow = sqlx::query_as(
            // Several Alerts may have heard of the same of an object.
            "SELECT min(since) FILTER (WHERE failed + recovered + lapsed + drifted + others > 0) AS since,
                    coalesce(sum(failed), 0)::bigint AS failed, coalesce(sum(recovered), 0)::bigint AS recovered,
                    coalesce(sum(lapsed), 0)::bigint AS lapsed,
                    coalesce(sum(drifted), 0)::bigint AS drifted, coalesce(sum(others), 0)::bigint AS others,
                    count(*) FILTER (WHERE fails) AS failing
             FROM (SELECT min(since) AS since, bool_or(fails) AS fails,
                          CASE WHEN kind = '' THEN sum(failed) ELSE max(failed) END AS failed,
                          CASE WHEN kind = '' THEN sum(recovered) ELSE max(recovered) END AS recovered,
                          CASE WHEN bool_or(fails) THEN 0 ELSE max(lapsed) END AS lapsed,
                          CASE WHEN kind = '' THEN sum(drifted) ELSE max(drifted) END AS drifted,
                          CASE WHEN kind = '' THEN sum(others) ELSE max(others) END AS others
                   FROM gathered WHERE alert = ANY($1) AND silence = $2 GROUP BY kind, namespace, name) AS object",
        )
        .bind(&uids)
        .bind(silence)
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        let named = sqlx::query_as(
            "SELECT DISTINCT ON (kind, namespace, name) kind, namespace, name, cluster,
                    left(event ->> 'message', $3) AS message
             FROM gathered WHERE alert = ANY($1) AND silence = $2 AND fails ORDER BY kind, namespace, name, news DESC LIMIT $4",
        )
        .bind(&uids)
        .bind(silence)
        .bind(MAX_MESSAGE)
        .bind(MOST_NAMED)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        for statement in [
            "DELETE FROM gathered WHERE alert = ANY($1) AND silence = $2 AND NOT fails",
            "UPDATE gathered SET failed = 0, recovered = 0, lapsed = 0, drifted = 0, others = 0
             WHERE alert = ANY($1) AND silence = $2",
        ] {
            sqlx::query(statement)
                .bind(&uids)
                .bind(silence)
                .execute(self.written().await?)
                .await
                .map_err(StoreError::query(what))?;
        }
        if row.since.is_none() && row.failing == 0 {
            return Ok(None);
        }
        let since = row.since.map(|since| from_sql(what, since)).transpose()?;
        Ok(Some(Gathered {
            since: since.unwrap_or(Timestamp::UNIX_EPOCH),
            failed: row.failed,
            recovered: row.recovered,
            lapsed: row.lapsed,
            drifted: row.drifted,
            others: row.others,
            failing: row.failing,
            named,
        }))
    }

    /// Notes which objects fail no more by how they are now, as [`Tx::settle_members`] does: news says so, but an Alert need not hear of it.
    async fn settle_gathered(
        &mut self,
        alerts: &[uuid::Uuid],
        silence: &str,
        heard_since: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "WITH ends AS (SELECT alert, kind, namespace, name,
                                  failure_over(alert, api_group, kind, namespace, name, condition, heard_at, $3::timestamptz) AS why
                           FROM gathered WHERE alert = ANY($1) AND silence = $2 AND fails)
             UPDATE gathered SET fails = false, recovered = recovered + (ends.why = 'well')::int, lapsed = lapsed + (ends.why <> 'well')::int
             FROM ends
             WHERE ends.why IS NOT NULL AND gathered.silence = $2 AND gathered.alert = ends.alert AND gathered.kind = ends.kind
               AND gathered.namespace = ends.namespace AND gathered.name = ends.name",
        )
        .bind(alerts)
        .bind(silence)
        .bind(to_sql(heard_since))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("look which objects fail no more"))?;
        Ok(())
    }

    /// Takes failures that were kept, of objects that still fail, the oldest first.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_failures(
        &mut self,
        alert: ResourceUid,
        silence: &str,
        most: i64,
    ) -> Result<Vec<StillFailing>, StoreError> {
        let rows: Vec<FailingRow> = sqlx::query_as(
            "WITH taken AS (DELETE FROM gathered WHERE alert = $1 AND silence = $2 AND (kind, namespace, name) IN (
                                SELECT kind, namespace, name FROM gathered WHERE alert = $1 AND silence = $2 AND fails
                                ORDER BY news LIMIT $3)
                            RETURNING condition, cluster, labels, news, event)
             SELECT * FROM taken ORDER BY news",
        )
        .bind(alert.0)
        .bind(silence)
        .bind(most)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("take failures that were kept"))?;
        let read = |(condition, cluster, Json(labels), news, event): FailingRow| StillFailing {
            condition,
            cluster,
            labels,
            news,
            event,
        };
        Ok(rows.into_iter().map(read).collect())
    }

    /// Holds a Provider's digest until this unit of work ends, and says up to when it was told: where that was never, up to now.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hold_digest(
        &mut self,
        provider: ResourceUid,
        now: Timestamp,
    ) -> Result<Timestamp, StoreError> {
        let what = "read when a digest was told";
        sqlx::query("INSERT INTO digest (provider, told_at) VALUES ($1, $2) ON CONFLICT DO NOTHING")
            .bind(provider.0)
            .bind(to_sql(now))
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        let told_at: Moment = sqlx::query_scalar("SELECT told_at FROM digest WHERE provider = $1 FOR UPDATE")
            .bind(provider.0)
            .fetch_one(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        from_sql(what, told_at)
    }

    /// Notes that a Provider's digest was told.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn digest_told(&mut self, provider: ResourceUid, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query("UPDATE digest SET told_at = $2 WHERE provider = $1")
            .bind(provider.0)
            .bind(to_sql(now))
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("note that a digest was told"))?;
        Ok(())
    }

    /// Has an Alert send a message that is about more than one object. Left out where too many wait.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn add_message(
        &mut self,
        alert: ResourceUid,
        event: &Value,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "WITH room AS (SELECT count(*) < $5 AS is_there
                           FROM (SELECT FROM delivery WHERE alert = $1 AND state = 'waiting' LIMIT $5) AS waiting),
                  left_out AS (INSERT INTO delivery_left_out (alert, since, count)
                               SELECT $1, $4, 1 FROM room WHERE NOT is_there
                               ON CONFLICT (alert) DO UPDATE SET count = delivery_left_out.count + 1)
             INSERT INTO delivery (alert, news, key, event, made_at)
             SELECT $1, -nextval('incident_message'), $3, $2, $4 FROM room WHERE is_there",
        )
        .bind(alert.0)
        .bind(event)
        .bind(key.as_slice())
        .bind(to_sql(now))
        .bind(MOST_WAITING)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("have a message be sent"))?;
        Ok(())
    }
}
