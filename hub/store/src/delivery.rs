//! What Alerts send, and what came of it.

use jiff::Timestamp;
use roadstead_model::{DeliveryFilter, ResourceUid, TraceContext, Visible};
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::gathered::MOST_KEPT;
use crate::incident::{MAX_SHOWN, MOST_OPEN};
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError};

/// The longest text that is kept of why an attempt failed, in characters.
pub(crate) const MAX_ERROR: usize = 1_000;

/// The part of a statement that counts what `came (alert, provider, sent, failed, sent_at, failed_at, error)` says, a provider being the name of
/// one in the Alert's namespace.
const COUNTED: &str = "counted AS (
    INSERT INTO delivery_count AS known (uid, sent, failed, sent_at, failed_at, error)
    SELECT whose.uid, sum(came.sent), sum(came.failed), max(came.sent_at), max(came.failed_at), max(came.error)
    FROM came, LATERAL (SELECT came.alert AS uid
                        UNION ALL
                        SELECT provider.uid FROM resource AS alert
                        JOIN resource AS provider ON provider.kind = 'Provider' AND provider.namespace = alert.namespace
                                                 AND provider.name = came.provider
                        WHERE alert.uid = came.alert) AS whose
    GROUP BY whose.uid
    ON CONFLICT (uid) DO UPDATE SET is_news = true,
        sent = known.sent + excluded.sent, failed = known.failed + excluded.failed,
        sent_at = coalesce(excluded.sent_at, known.sent_at), failed_at = coalesce(excluded.failed_at, known.failed_at),
        error = CASE WHEN excluded.failed_at IS NULL THEN known.error ELSE excluded.error END)";

type Moment = ::time::OffsetDateTime;

/// An event that waits to be sent.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Which one.
    pub id: i64,
    /// The event.
    pub event: Value,
    /// When it was made.
    pub made_at: Timestamp,
    /// How often it was tried.
    pub attempts: i32,
    /// Not before then.
    pub due_at: Timestamp,
    /// When the last attempt ended, if one did.
    pub tried_at: Option<Timestamp>,
    /// Whether an attempt began of which nothing is known: it may have arrived.
    pub is_repeat: bool,
    /// Why the last attempt failed.
    pub error: String,
    /// What it comes of, where traces are made.
    pub trace: Option<TraceContext>,
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempted {
    /// It arrived.
    Sent,
    /// It did not, and is tried again then.
    Again {
        /// Why.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// It did not, and is not tried again.
    Failed {
        /// Why.
        why: String,
    },
}

/// A delivery, for people.
#[derive(Debug, Clone)]
pub struct FleetDelivery {
    /// Which one.
    pub id: i64,
    /// The Alert's namespace.
    pub namespace: String,
    /// And its name.
    pub alert: String,
    /// The Provider's name, once it was tried.
    pub provider: String,
    /// `waiting`, `sent` or `failed`.
    pub state: String,
    /// How often it was tried.
    pub attempts: i32,
    /// What lists show of the event: the object, severity, reason, and the beginning of the message.
    pub event: Value,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it arrived, or was given up.
    pub ended_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error: String,
}

type WaitingRow = (i64, Value, Moment, i32, Option<Moment>, Option<Moment>, bool, String, Option<String>);
type ListedRow = (i64, String, String, String, String, i32, Value, Moment, Option<Moment>, String);

impl Store {
    /// The oldest events that an Alert has still to send.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn waiting_deliveries(
        &self,
        alert: ResourceUid,
        most: i64,
    ) -> Result<Vec<Delivery>, StoreError> {
        let what = "read what an Alert has to send";
        let rows: Vec<WaitingRow> = sqlx::query_as(
            "SELECT id, event, made_at, attempts, CASE WHEN isfinite(due_at) THEN due_at END, tried_at,
                    began_at IS NOT NULL, error, trace
             FROM delivery WHERE alert = $1 AND state = 'waiting' ORDER BY id LIMIT $2",
        )
        .bind(alert.0)
        .bind(most)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let read = |(id, event, made_at, attempts, due_at, tried_at, is_repeat, error, trace): WaitingRow| {
            let due_at = due_at.map_or(Ok(Timestamp::MIN), |at| from_sql(what, at))?;
            let tried_at = tried_at.map(|at| from_sql(what, at)).transpose()?;
            let (made_at, trace) = (from_sql(what, made_at)?, trace.and_then(|trace| trace.parse().ok()));
            Ok(Delivery { id, event, made_at, attempts, due_at, tried_at, is_repeat, error, trace })
        };
        rows.into_iter().map(read).collect()
    }

    /// Notes that an attempt begins, at the Provider `to`; false where there is nothing to send any more. Where it is a message of an incident, that is told there from now on.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn begin_attempt(
        &self,
        id: i64,
        to: (&str, ResourceUid),
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (provider, uid) = to;
        sqlx::query_scalar(
            "WITH begun AS (UPDATE delivery SET began_at = $2, attempts = attempts + 1, provider = $3
                            WHERE id = $1 AND state = 'waiting' RETURNING (event #>> '{incident,id}')::uuid AS incident),
                  told AS (UPDATE incident SET told_to = $4 FROM begun
                           WHERE incident.id = begun.incident AND told_to IS DISTINCT FROM $4)
             SELECT EXISTS (SELECT FROM begun)",
        )
        .bind(id)
        .bind(to_sql(now))
        .bind(provider)
        .bind(uid.0)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("note that an event is sent"))
    }

    /// Forgets an event that is not for the Alert's Provider.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn drop_delivery(&self, id: i64) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM delivery WHERE id = $1 AND state = 'waiting'")
            .bind(id)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget an event that is not sent"))?;
        Ok(())
    }

    /// Whether an Alert has told that the object of an event failed, and not yet that this is over.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn told_of_failure(&self, alert: ResourceUid, event: &Value) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM alert_failing WHERE alert = $1 AND kind = $2::jsonb #>> '{involvedObject,kind}'
                            AND namespace = concat_ws('/', $2::jsonb ->> 'relayedFrom', $2::jsonb #>> '{involvedObject,namespace}')
                            AND name = $2::jsonb #>> '{involvedObject,name}')",
        )
        .bind(alert.0)
        .bind(event)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look whether an Alert told of a failure"))
    }

    /// Notes what came of an attempt.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn end_attempt(&self, id: i64, came: &Attempted, now: Timestamp) -> Result<(), StoreError> {
        let (state, why, due) = match came {
            Attempted::Sent => ("sent", "", None),
            Attempted::Again { why, at } => ("waiting", why.as_str(), Some(to_sql(*at))),
            Attempted::Failed { why } => ("failed", why.as_str(), None),
        };
        let why: String = why.chars().take(MAX_ERROR).collect();
        // Waiting for others is neither a failure nor the end of one.
        sqlx::query(AssertSqlSafe(format!(
            "WITH ended AS (UPDATE delivery SET state = $2, error = $3, due_at = coalesce($4, due_at), began_at = NULL, tried_at = $5,
                                ended_at = CASE WHEN $2 = 'waiting' THEN NULL ELSE $5::timestamptz END
                            WHERE id = $1 AND state = 'waiting' RETURNING alert, event, provider),
                  came AS (SELECT alert, provider, ($2 = 'sent')::int AS sent, ($2 = 'failed')::int AS failed,
                                CASE WHEN $2 = 'sent' THEN $5::timestamptz END AS sent_at,
                                CASE WHEN $2 <> 'sent' THEN $5::timestamptz END AS failed_at, $3 AS error FROM ended),
                  {COUNTED},
                  told AS (SELECT alert, event #>> '{{involvedObject,kind}}' AS kind,
                                  concat_ws('/', event ->> 'relayedFrom', event #>> '{{involvedObject,namespace}}') AS namespace,
                                  event #>> '{{involvedObject,name}}' AS name, event ->> 'severity' = 'error' AS fails
                           FROM ended WHERE $2 = 'sent' AND event ->> 'reason' NOT IN ('Progressing', 'DependencyNotReady')),
                  failing AS (INSERT INTO alert_failing (alert, kind, namespace, name, told_at)
                              SELECT alert, kind, namespace, name, $5 FROM told WHERE fails
                              ON CONFLICT (alert, kind, namespace, name) DO UPDATE SET told_at = excluded.told_at)
             DELETE FROM alert_failing USING told
             WHERE NOT told.fails AND alert_failing.alert = told.alert AND alert_failing.kind = told.kind
               AND alert_failing.namespace = told.namespace AND alert_failing.name = told.name",
        )))
        .bind(id)
        .bind(state)
        .bind(why)
        .bind(due)
        .bind(to_sql(now))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("note what came of an event that was sent"))?;
        Ok(())
    }

    /// Gives up what an Alert has been trying, or waiting, to send since before `since`; says how much that was. What was never tried is
    /// counted for the Provider that it was for.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn give_up_deliveries(
        &self,
        alert: ResourceUid,
        provider: &str,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        sqlx::query_scalar(AssertSqlSafe(format!(
            "WITH ended AS (UPDATE delivery SET state = 'failed', ended_at = $3, began_at = NULL,
                                error = left(concat_ws(': ', 'given up', nullif(error, '')), 1000)
                            WHERE alert = $1 AND state = 'waiting' AND made_at < $2 RETURNING alert, provider, error),
                  came AS (SELECT alert, coalesce(nullif(provider, ''), $4) AS provider, 0 AS sent, 1 AS failed,
                                NULL::timestamptz AS sent_at, $3::timestamptz AS failed_at, error FROM ended),
                  {COUNTED}
             SELECT count(*) FROM ended"
        )))
        .bind(alert.0)
        .bind(to_sql(since))
        .bind(to_sql(now))
        .bind(provider)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("give up what cannot be sent"))
    }

    /// How many events of an Alert were left out since too many were waiting, and since when; forgotten where nothing waits any more.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn left_out(&self, alert: ResourceUid) -> Result<Option<i64>, StoreError> {
        let what = "read what of an Alert was left out";
        sqlx::query(
            "DELETE FROM delivery_left_out WHERE alert = $1
             AND NOT EXISTS (SELECT FROM delivery WHERE delivery.alert = $1 AND state = 'waiting')
             AND (SELECT count(*) FROM incident WHERE incident.alert = $1 AND ended_at IS NULL) < $2
             AND (SELECT count(*) FROM gathered WHERE gathered.alert = $1) < $3",
        )
        .bind(alert.0)
        .bind(MOST_OPEN)
        .bind(MOST_KEPT)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query_scalar("SELECT count FROM delivery_left_out WHERE alert = $1")
            .bind(alert.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query(what))
    }

    /// Deliveries, the latest first.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        visible: Option<&Visible>,
        limit: i64,
    ) -> Result<Vec<FleetDelivery>, StoreError> {
        let what = "list deliveries";
        let rows: Vec<ListedRow> = sqlx::query_as(
            "SELECT delivery.id, alert.namespace, alert.name, provider, state, attempts,
                    jsonb_build_object('involvedObject', event -> 'involvedObject', 'severity', event -> 'severity',
                                       'reason', event -> 'reason', 'message', left(event ->> 'message', $7)),
                    made_at, ended_at, error
             FROM delivery JOIN resource AS alert ON alert.uid = delivery.alert
             WHERE ($1 = '' OR alert.namespace = $1) AND ($2 = '' OR alert.name = $2) AND ($3 = '' OR state = $3)
               AND ($4::bigint IS NULL OR delivery.id < $4)
               AND ($5::text[] IS NULL OR 'Alert/' || alert.namespace = ANY($5))
             ORDER BY delivery.id DESC LIMIT $6",
        )
        .bind(&filter.namespace)
        .bind(&filter.alert)
        .bind(&filter.state)
        .bind(filter.before)
        .bind(visible.map(|visible| visible.places.clone()))
        .bind(limit)
        .bind(MAX_SHOWN)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let read = |row: ListedRow| {
            let (id, namespace, alert, provider, state, attempts, event, made_at, ended_at, error) = row;
            let ended_at = ended_at.map(|at| from_sql(what, at)).transpose()?;
            let made_at = from_sql(what, made_at)?;
            Ok(FleetDelivery {
                id,
                namespace,
                alert,
                provider,
                state,
                attempts,
                event,
                made_at,
                ended_at,
                error,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Forgets deliveries and incidents that ended before then, of each Alert all but the newest deliveries, failures of objects that are
    /// gone, and Alerts and Providers that are gone and for which nothing has to be sent.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn trim_deliveries(&self, before: Timestamp, most: i64) -> Result<(), StoreError> {
        sqlx::query(
            "DELETE FROM delivery WHERE state <> 'waiting' AND (ended_at < $1 OR id IN (
                 SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY alert ORDER BY id DESC) AS place
                                 FROM delivery WHERE state <> 'waiting') AS ended WHERE place > $2))",
        )
        .bind(to_sql(before))
        .bind(most)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("forget old deliveries"))?;
        sqlx::query("DELETE FROM incident WHERE ended_at < $1")
            .bind(to_sql(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget old incidents"))?;
        // One that is told of again is asked for first, and not written where it is there.
        sqlx::query("DELETE FROM rollout WHERE told_at < $1 AND verdict <> 'pending'")
            .bind(to_sql(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget old rollouts"))?;
        sqlx::query("DELETE FROM delivery_count WHERE NOT EXISTS (SELECT FROM resource WHERE resource.uid = delivery_count.uid)")
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget the counts of what is gone"))?;
        sqlx::query(
            "DELETE FROM alert_failing AS failing
             WHERE NOT EXISTS (SELECT FROM resource WHERE resource.kind = failing.kind
                               AND resource.namespace = failing.namespace AND resource.name = failing.name)
               -- What a cluster's Flux told of is there as long as its Cluster is, and fails as long as it tells that again and again.
               AND NOT EXISTS (SELECT FROM resource WHERE strpos(failing.namespace, '/') > 0 AND resource.kind = 'Cluster'
                               AND resource.namespace = '' AND resource.name = split_part(failing.namespace, '/', 1)
                               AND failing.told_at >= $1)",
        )
        .bind(to_sql(before))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("forget failures of objects that are gone"))?;
        // An attempt that is under way may still have to be told to be over.
        sqlx::query(
            "DELETE FROM deleted_object WHERE left_at < now() - interval '1 hour'
               AND NOT EXISTS (SELECT FROM incident_closing WHERE deleted_object.uid IN (incident_closing.alert, incident_closing.provider))
               AND NOT EXISTS (SELECT FROM incident WHERE told_to = deleted_object.uid AND ended_at IS NULL)",
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("forget Alerts and Providers that are gone"))?;
        sqlx::query(
            "DELETE FROM reselection WHERE NOT EXISTS (SELECT FROM incident WHERE incident.alert = reselection.alert AND ended_at IS NULL)",
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("forget that labels changed"))?;
        Ok(())
    }
}
