//! Closing messages of incidents whose Alerts no longer report them where they were reported, and the deleted Alerts and Providers that these messages still need.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::ResourceUid;
use serde_json::Value;
use uuid::Uuid;

use crate::delivery::{Attempted, MAX_ERROR};
use crate::incident::IncidentId;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Stored, Tx};

/// A delivery takes a minute at most: so long after an attempt began that has not ended it has arrived, or never will.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(75);

type Moment = ::time::OffsetDateTime;

/// An incident that is no longer reported where it was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedIncident {
    /// Which one.
    pub incident: IncidentId,
    /// Whether it goes on.
    pub is_open: bool,
}

/// The last message of an incident, which is to be sent.
#[derive(Debug, Clone)]
pub struct Closing {
    /// The incident.
    pub incident: IncidentId,
    /// Whose it was.
    pub alert: ResourceUid,
    /// The Provider that it was reported to.
    pub provider: ResourceUid,
    /// Why it is no longer reported there.
    pub why: String,
    /// The first failure, as the Alert told it.
    pub first: Value,
    /// When that was.
    pub opened_at: Timestamp,
    /// Objects that failed when this was noted.
    pub failing: i64,
    /// Objects that failed at any time.
    pub failed: i64,
    /// Their clusters.
    pub clusters: i64,
    /// What the service calls the first message.
    pub thread: Option<String>,
    /// The message, where it was made before.
    pub event: Option<Value>,
    /// Since when it is tried.
    pub since: Timestamp,
    /// How often it was tried, this time counted.
    pub attempts: i32,
    /// Whether an attempt began of which nothing is known: it may have arrived.
    pub is_repeat: bool,
}

/// A deleted Alert or Provider.
#[derive(Debug, Clone)]
pub struct DeletedObject {
    /// As it was last.
    pub stored: Stored,
    /// What it referred to.
    pub uses: Vec<ResourceUid>,
    /// Whether a Kustomization had made it, or taken it over.
    pub by_git: bool,
}

#[derive(sqlx::FromRow)]
struct Row {
    incident: IncidentId,
    alert: Uuid,
    provider: Uuid,
    why: String,
    first: Value,
    opened_at: Moment,
    failing: i64,
    failed: i64,
    clusters: i64,
    thread: Option<String>,
    event: Option<Value>,
    since: Moment,
    attempts: i32,
    is_repeat: bool,
}

impl Store {
    /// Whether incidents of an Alert were told elsewhere than to this Provider, where more would have to be told.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn tells_others(
        &self,
        alert: ResourceUid,
        provider: Option<ResourceUid>,
    ) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM incident WHERE alert = $1 AND ended_at IS NULL AND told_to IS NOT NULL
                            AND told_to IS DISTINCT FROM $2::uuid)
                 OR EXISTS (SELECT FROM delivery JOIN incident ON incident.id = (delivery.event #>> '{incident,id}')::uuid
                            WHERE delivery.alert = $1 AND state = 'waiting' AND delivery.event #>> '{incident,stage}' = 'resolved'
                              AND told_to IS NOT NULL AND told_to IS DISTINCT FROM $2::uuid)",
        )
        .bind(alert.0)
        .bind(provider.map(|provider| provider.0))
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look whether incidents were told elsewhere"))
    }

    /// Takes last messages that are due, for `lease`: one of each Provider, and of those that nobody tries. What was tried later than `latest`, or is
    /// taken for longer than that, is free: the clock was put back.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn claim_closings(
        &self,
        most: i64,
        now: Timestamp,
        lease: Duration,
        latest: Timestamp,
    ) -> Result<Vec<Closing>, StoreError> {
        let what = "take the last messages of incidents";
        // Who has claimed a row says so in the row that is locked: whoever comes second sees it there.
        let rows: Vec<Row> = sqlx::query_as(
            "WITH free AS (SELECT incident, provider, due_at FROM incident_closing
                           WHERE (due_at <= $1 OR tried_at > $4)
                             AND (claimed_until IS NULL OR claimed_until <= $1 OR claimed_until > $5)),
                  oldest AS (SELECT DISTINCT ON (provider) incident, due_at FROM free
                             WHERE NOT EXISTS (SELECT FROM incident_closing AS other WHERE other.provider = free.provider
                                               AND other.claimed_until > $1 AND other.claimed_until <= $5)
                             ORDER BY provider, due_at, incident),
                  taken AS (SELECT incident, began_at FROM incident_closing
                            WHERE incident IN (SELECT incident FROM oldest ORDER BY due_at LIMIT $3)
                              AND (claimed_until IS NULL OR claimed_until <= $1 OR claimed_until > $5)
                            FOR UPDATE SKIP LOCKED)
             UPDATE incident_closing SET claimed_until = $2, began_at = $1, attempts = attempts + 1, since = least(coalesce(since, $1), $1)
             FROM taken WHERE incident_closing.incident = taken.incident
             RETURNING incident_closing.incident, alert, provider, why, first, opened_at, failing, failed, clusters, thread, event, since, attempts,
                       taken.began_at IS NOT NULL AS is_repeat",
        )
        .bind(to_sql(now))
        .bind(to_sql(now + lease))
        .bind(most)
        .bind(to_sql(latest))
        .bind(to_sql(latest + lease))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let read = |row: Row| {
            Ok(Closing {
                incident: row.incident,
                alert: ResourceUid(row.alert),
                provider: ResourceUid(row.provider),
                why: row.why,
                first: row.first,
                opened_at: from_sql(what, row.opened_at)?,
                failing: row.failing,
                failed: row.failed,
                clusters: row.clusters,
                thread: row.thread,
                event: row.event,
                since: from_sql(what, row.since)?,
                attempts: row.attempts,
                is_repeat: row.is_repeat,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Notes what came of a last message: one that is not tried again is forgotten. Where it is, the Provider's others wait as long. It is counted with what the Provider
    /// is sent.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn end_closing(
        &self,
        incident: IncidentId,
        came: &Attempted,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (state, why, due) = match came {
            Attempted::Sent => ("sent", "", None),
            Attempted::Again { why, at } => ("waiting", why.as_str(), Some(to_sql(*at))),
            Attempted::Failed { why } => ("failed", why.as_str(), None),
        };
        let why: String = why.chars().take(MAX_ERROR).collect();
        sqlx::query(
            "WITH ended AS (SELECT provider FROM incident_closing WHERE incident = $1),
                  gone AS (DELETE FROM incident_closing WHERE incident = $1 AND $2 <> 'waiting'),
                  again AS (UPDATE incident_closing SET claimed_until = NULL, began_at = NULL, tried_at = $4, error = $3, due_at = $5
                            WHERE incident = $1 AND $2 = 'waiting'),
                  others AS (UPDATE incident_closing SET due_at = $5, tried_at = $4 FROM ended
                             WHERE incident_closing.provider = ended.provider AND incident <> $1 AND $2 = 'waiting' AND incident_closing.due_at < $5)
             INSERT INTO delivery_count AS known (uid, sent, failed, sent_at, failed_at, error)
             SELECT ended.provider, ($2 = 'sent')::int, ($2 = 'failed')::int, CASE WHEN $2 = 'sent' THEN $4::timestamptz END,
                    CASE WHEN $2 <> 'sent' THEN $4::timestamptz END, $3
             FROM ended WHERE EXISTS (SELECT FROM resource WHERE resource.uid = ended.provider)
             ON CONFLICT (uid) DO UPDATE SET is_news = true,
                 sent = known.sent + excluded.sent, failed = known.failed + excluded.failed,
                 sent_at = coalesce(excluded.sent_at, known.sent_at), failed_at = coalesce(excluded.failed_at, known.failed_at),
                 error = CASE WHEN excluded.failed_at IS NULL THEN known.error ELSE excluded.error END",
        )
        .bind(incident)
        .bind(state)
        .bind(why)
        .bind(to_sql(now))
        .bind(due)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("note what came of the last message of an incident"))?;
        Ok(())
    }

    /// A deleted Alert or Provider, as long as it is remembered.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn deleted(&self, uid: ResourceUid) -> Result<Option<DeletedObject>, StoreError> {
        type Row = (String, String, String, Moment, Value, Vec<Uuid>, bool);
        let what = "read a deleted object";
        let row: Option<Row> = sqlx::query_as(
            "SELECT kind, namespace, name, created_at, object, uses, by_git FROM deleted_object WHERE uid = $1",
        )
        .bind(uid.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let Some((kind, namespace, name, created_at, object, uses, by_git)) = row else { return Ok(None) };
        let Some(kind) = KindId::named(&kind) else { return Ok(None) };
        let mut stored = Stored::new(kind, &namespace, &name, from_sql(what, created_at)?, object);
        stored.uid = uid;
        Ok(Some(DeletedObject { stored, uses: uses.into_iter().map(ResourceUid).collect(), by_git }))
    }
}

impl Tx {
    /// Has the incidents of an Alert that were told to others than the Provider `keeps` be told there for the last time, and forgets what waits to be sent of them: that
    /// would be sent elsewhere. `why` says why where the Provider is still there, and where it is gone. They stay open as long as nothing else says so.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn close_elsewhere(
        &mut self,
        alert: ResourceUid,
        keeps: Option<ResourceUid>,
        why: [&str; 2],
    ) -> Result<Vec<ClosedIncident>, StoreError> {
        let what = "end incidents where they were told";
        // An attempt that is about to begin is seen below, or finds that there is nothing to send.
        sqlx::query("SELECT FROM delivery WHERE alert = $1 AND state = 'waiting' ORDER BY id FOR UPDATE")
            .bind(alert.0)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        let [there, gone] = why;
        let closed: Vec<(IncidentId, bool)> = sqlx::query_as(
            "WITH message AS (SELECT (event #>> '{incident,id}')::uuid AS incident, max(began_at) AS began_at,
                                     (array_agg(event ORDER BY id DESC) FILTER (WHERE event #>> '{incident,stage}' = 'resolved'))[1] AS last_event
                              FROM delivery WHERE alert = $1 AND state = 'waiting' AND event #>> '{incident,id}' IS NOT NULL GROUP BY 1),
                  closed AS (SELECT incident.*, message.began_at, message.last_event
                              FROM incident LEFT JOIN message ON message.incident = incident.id
                              WHERE incident.alert = $1 AND told_to IS NOT NULL AND told_to IS DISTINCT FROM $2::uuid
                                AND (ended_at IS NULL OR last_event IS NOT NULL)),
                  kept AS (INSERT INTO incident_closing (incident, alert, provider, why, first, opened_at, failing, failed, clusters, thread, event, due_at,
                                                 tried_at)
                           SELECT closed.id, $1, told_to,
                                  CASE WHEN EXISTS (SELECT FROM resource WHERE resource.uid = told_to) THEN $3::text ELSE $4::text END,
                                  first, opened_at, member.failing, member.failed, member.clusters, thread, last_event,
                                  coalesce(began_at + make_interval(secs => $5), '-infinity'), began_at
                           FROM closed, LATERAL (SELECT count(*) FILTER (WHERE fails) AS failing, count(*) AS failed,
                                                         count(DISTINCT cluster) AS clusters
                                                  FROM incident_member WHERE incident_member.incident = closed.id) AS member
                           ON CONFLICT (incident) DO NOTHING),
                  outdated AS (DELETE FROM delivery USING closed
                               WHERE delivery.alert = $1 AND state = 'waiting' AND (delivery.event #>> '{incident,id}')::uuid = closed.id)
             SELECT id, ended_at IS NULL FROM closed ORDER BY number",
        )
        .bind(alert.0)
        .bind(keeps.map(|provider| provider.0))
        .bind(there)
        .bind(gone)
        .bind(LONGEST_ATTEMPT.as_secs_f64())
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(closed.into_iter().map(|(incident, is_open)| ClosedIncident { incident, is_open }).collect())
    }

    /// Ends incidents, and opens others in their place which nobody was told of: by another id, so that the end of the one is not that of the other where both are told
    /// to the same service.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn open_again(&mut self, incidents: &[IncidentId], now: Timestamp) -> Result<(), StoreError> {
        let what = "open incidents for another Provider";
        if incidents.is_empty() {
            return Ok(());
        }
        // Of a cause one is open at a time, so the others come after that.
        for statement in [
            "UPDATE incident SET look_at = NULL, ended_at = $2::timestamptz WHERE id = ANY($1::uuid[])",
            "WITH opened AS (INSERT INTO incident (alert, cause, first, opened_at, well_since, look_at)
                             SELECT alert, cause, first, opened_at, well_since, $2::timestamptz FROM incident
                             WHERE id = ANY($1::uuid[]) ORDER BY number RETURNING id, alert, cause)
             INSERT INTO incident_member (incident, api_group, kind, namespace, name, condition, cluster, fails, elsewhere, heard_at, lapsed)
             SELECT opened.id, api_group, kind, namespace, name, condition, cluster, fails, elsewhere, heard_at, lapsed
             FROM opened JOIN incident AS before ON before.id = ANY($1::uuid[]) AND (before.alert, before.cause) = (opened.alert, opened.cause)
                         JOIN incident_member AS member ON member.incident = before.id",
        ] {
            sqlx::query(statement)
                .bind(incidents)
                .bind(to_sql(now))
                .execute(self.written().await?)
                .await
                .map_err(StoreError::query(what))?;
        }
        Ok(())
    }

    /// Keeps what has to be known of an object that is about to be removed, until the last messages of its incidents have arrived.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_deleted(&mut self, stored: &Stored) -> Result<(), StoreError> {
        let references = stored.kind.references(&stored.object, &stored.namespace);
        let of =
            |part: fn(&roadstead_api::Reference) -> &str| references.iter().map(part).collect::<Vec<_>>();
        sqlx::query(
            "INSERT INTO deleted_object (uid, kind, namespace, name, created_at, object, uses, by_git)
             SELECT $1::uuid, $2::text, $3::text, $4::text, $5::timestamptz, $6::jsonb,
                    ARRAY(SELECT resource.uid FROM unnest($7::text[], $8::text[], $9::text[], $10::text[]) AS used (g, k, ns, n)
                          JOIN resource ON api_group = used.g AND resource.kind = used.k AND resource.namespace = used.ns
                                       AND resource.name = used.n),
                    EXISTS (SELECT FROM child WHERE child.kind = $2 AND child.namespace = $3 AND child.name = $4 AND child.object = $1
                            AND (NOT child.kept OR child.adopted))
             ON CONFLICT (uid) DO UPDATE SET object = excluded.object, uses = excluded.uses, by_git = excluded.by_git, left_at = now()",
        )
        .bind(stored.uid.0)
        .bind(stored.kind.get().kind)
        .bind(&stored.namespace)
        .bind(&stored.name)
        .bind(to_sql(stored.created_at))
        .bind(stored.column())
        .bind(of(|one| one.kind.get().group()))
        .bind(of(|one| one.kind.get().kind))
        .bind(of(|one| one.namespace.as_str()))
        .bind(of(|one| one.name.as_str()))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("keep what is known of an object that is removed"))?;
        Ok(())
    }
}
