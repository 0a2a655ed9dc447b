//! Incidents: failures with one cause, what was told of them, and when they are looked at again.

use jiff::Timestamp;
use roadstead_model::{IncidentFilter, ResourceUid, Visible};
use serde_json::Value;
use uuid::Uuid;

use crate::news::MOST_WAITING;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// Incidents of one Alert that are open at most: a failure that would open another one is counted, and left out.
pub(crate) const MOST_OPEN: i64 = 500;
/// Objects of one incident at most: more are counted as left out. A pass holds the names of those in other namespaces, some 400 bytes each.
const MOST_MEMBERS: i64 = 5_000;
/// Characters of a message that a list shows: it has up to 500 of them.
pub(crate) const MAX_SHOWN: i32 = 2_000;
/// Objects that are named of one incident.
const MOST_NAMED: i64 = 20;

type Moment = ::time::OffsetDateTime;

/// Which incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct IncidentId(Uuid);

impl std::str::FromStr for IncidentId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl std::fmt::Display for IncidentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An object that fails, or is well again.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Its kind's group, by which it is found.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The condition that says so.
    pub condition: &'a str,
    /// The cluster that it is about, if it is about one.
    pub cluster: Option<&'a str>,
}

/// Objects of an incident that count as over although nobody said that they are well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lapsed {
    /// They were deleted, or their Clusters.
    pub gone: i64,
    /// The Alert does not listen to them any more.
    pub left: i64,
    /// They are suspended.
    pub suspended: i64,
    /// Their health is not checked any more.
    pub unchecked: i64,
    /// They are on clusters, and nothing was heard of them for long.
    pub unheard: i64,
    /// None of these was heard of since then.
    pub unheard_since: Option<Timestamp>,
}

impl Lapsed {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> i64 {
        self.gone + self.left + self.suspended + self.unchecked + self.unheard
    }
}

/// What is known of an incident.
#[derive(Debug, Clone)]
pub struct OpenIncident {
    /// Which one.
    pub id: IncidentId,
    /// The first failure, as the Alert tells it.
    pub first: Value,
    /// When that was.
    pub opened_at: Timestamp,
    /// When it was last told.
    pub told_at: Option<Timestamp>,
    /// How many objects had failed by then.
    pub told: i64,
    /// When the last object was well again; none while one fails.
    pub well_since: Option<Timestamp>,
    /// Objects that fail.
    pub failing: i64,
    /// Objects that fail, or failed.
    pub failed: i64,
    /// Objects that fail for another cause by now.
    pub elsewhere: i64,
    /// Objects that count as over although nobody said that they are well.
    pub lapsed: Lapsed,
    /// The clusters of those that fail.
    pub failing_clusters: i64,
    /// The clusters of all.
    pub clusters: i64,
    /// The first of those that fail, or of all if none does: by cluster where they have one.
    pub names: Vec<String>,
}

/// An incident, for people.
#[derive(Debug, Clone)]
pub struct FleetIncident {
    /// The Alert's namespace.
    pub namespace: String,
    /// And its name.
    pub alert: String,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
    /// What is known of it.
    pub incident: OpenIncident,
}

#[derive(sqlx::FromRow)]
struct ListedRow {
    alert_namespace: String,
    alert_name: String,
    ended_at: Option<Moment>,
    #[sqlx(flatten)]
    row: Row,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: IncidentId,
    first: Value,
    opened_at: Moment,
    told_at: Option<Moment>,
    told: i64,
    well_since: Option<Moment>,
    failing: i64,
    failed: i64,
    elsewhere: i64,
    gone: i64,
    left_alone: i64,
    suspended: i64,
    unchecked: i64,
    unheard: i64,
    unheard_since: Option<Moment>,
    failing_clusters: i64,
    clusters: i64,
    names: Vec<String>,
}

impl Row {
    fn read(self, what: &'static str) -> Result<OpenIncident, StoreError> {
        let moment = |at: Option<Moment>| at.map(|at| from_sql(what, at)).transpose();
        Ok(OpenIncident {
            id: self.id,
            first: self.first,
            opened_at: from_sql(what, self.opened_at)?,
            told_at: moment(self.told_at)?,
            told: self.told,
            well_since: moment(self.well_since)?,
            failing: self.failing,
            failed: self.failed,
            elsewhere: self.elsewhere,
            lapsed: Lapsed {
                gone: self.gone,
                left: self.left_alone,
                suspended: self.suspended,
                unchecked: self.unchecked,
                unheard: self.unheard,
                unheard_since: moment(self.unheard_since)?,
            },
            failing_clusters: self.failing_clusters,
            clusters: self.clusters,
            names: self.names,
        })
    }
}

/// What is counted of an incident, and who is named of it.
const COUNTED: &str = "id, first, opened_at, told_at, told, well_since, member.failing, member.failed, member.elsewhere,
    member.gone, member.left_alone, member.suspended, member.unchecked, member.unheard, member.unheard_since,
    member.failing_clusters, member.clusters,
    ARRAY(SELECT DISTINCT coalesce(cluster, namespace || '/' || name) FROM incident_member
          WHERE incident = chosen.id AND (fails OR chosen.well_since IS NOT NULL) ORDER BY 1 LIMIT $1) AS names";
const MEMBERS: &str = "LATERAL (SELECT count(*) FILTER (WHERE fails) AS failing, count(*) AS failed,
        count(*) FILTER (WHERE elsewhere) AS elsewhere, count(*) FILTER (WHERE lapsed = 'gone') AS gone,
        count(*) FILTER (WHERE lapsed = 'left') AS left_alone, count(*) FILTER (WHERE lapsed = 'suspended') AS suspended,
        count(*) FILTER (WHERE lapsed = 'unchecked') AS unchecked,
        count(*) FILTER (WHERE lapsed = 'unheard') AS unheard, max(heard_at) FILTER (WHERE lapsed = 'unheard') AS unheard_since,
        count(DISTINCT cluster) FILTER (WHERE fails) AS failing_clusters,
        count(DISTINCT cluster) AS clusters
    FROM incident_member WHERE incident = chosen.id) AS member";

impl Store {
    /// What the service calls the first message of an incident that was told.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn incident_thread(&self, incident: IncidentId) -> Result<Option<String>, StoreError> {
        let found: Option<Option<String>> = sqlx::query_scalar("SELECT thread FROM incident WHERE id = $1")
            .bind(incident)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("read the thread of an incident"))?;
        Ok(found.flatten())
    }

    /// Notes what the service calls the first message of an incident.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn keep_incident_thread(&self, incident: IncidentId, thread: &str) -> Result<(), StoreError> {
        sqlx::query("UPDATE incident SET thread = $2 WHERE id = $1")
            .bind(incident)
            .bind(thread)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("keep the thread of an incident"))?;
        Ok(())
    }

    /// Whether an Alert has open incidents.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn has_open_incidents(&self, alert: ResourceUid) -> Result<bool, StoreError> {
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM incident WHERE alert = $1 AND ended_at IS NULL)")
            .bind(alert.0)
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query("look for incidents"))
    }

    /// Incidents, the latest first.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn incidents(
        &self,
        filter: &IncidentFilter,
        visible: Option<&Visible>,
        limit: i64,
    ) -> Result<Vec<FleetIncident>, StoreError> {
        let what = "list incidents";
        let sql = format!(
            "SELECT alert_namespace, alert_name, ended_at, {COUNTED}
             FROM (SELECT incident.id, number, opened_at, told_at, told, well_since, ended_at,
                          alert.namespace AS alert_namespace, alert.name AS alert_name,
                          jsonb_build_object('involvedObject', first -> 'involvedObject', 'reason', first -> 'reason',
                                             'message', left(first ->> 'message', $8)) AS first
                   FROM incident JOIN resource AS alert ON alert.uid = incident.alert
                   WHERE ($2 = '' OR alert.namespace = $2) AND ($3 = '' OR alert.name = $3)
                     AND (NOT $4 OR ended_at IS NULL) AND ($5::timestamptz IS NULL OR opened_at < $5)
                     AND ($6::text[] IS NULL OR 'Alert/' || alert.namespace = ANY($6))
                   ORDER BY opened_at DESC, number DESC LIMIT $7) AS chosen, {MEMBERS}
             ORDER BY opened_at DESC, number DESC"
        );
        let rows: Vec<ListedRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(MOST_NAMED)
            .bind(&filter.namespace)
            .bind(&filter.alert)
            .bind(filter.open)
            .bind(filter.before.map(to_sql))
            .bind(visible.map(|visible| visible.places.clone()))
            .bind(limit)
            .bind(MAX_SHOWN)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        let read = |row: ListedRow| {
            Ok(FleetIncident {
                namespace: row.alert_namespace,
                alert: row.alert_name,
                ended_at: row.ended_at.map(|at| from_sql(what, at)).transpose()?,
                incident: row.row.read(what)?,
            })
        };
        rows.into_iter().map(read).collect()
    }
}

impl Tx {
    /// Keeps other units of work from changing an Alert's incidents until this one ends. Whoever holds several takes them by uid.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hold_incidents(&mut self, alert: ResourceUid) -> Result<(), StoreError> {
        sqlx::query("SELECT FROM resource WHERE uid = $1 FOR NO KEY UPDATE")
            .bind(alert.0)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("hold an Alert's incidents"))?;
        Ok(())
    }

    /// Notes that an object fails for a cause: in the Alert's open incident of it, or in a new one. Its condition tells of no other cause any more. False
    /// where there is no room for it, which is counted with the Alert's events that were left out.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn join_incident(
        &mut self,
        alert: ResourceUid,
        cause: &[u8; 32],
        member: Member<'_>,
        event: &Value,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.recover_except(alert, Some(cause), member, now).await?;
        let joined: bool = sqlx::query_scalar(
            "WITH open AS (SELECT id FROM incident WHERE alert = $1 AND cause = $2 AND ended_at IS NULL),
                  known AS (UPDATE incident SET look_at = $4, well_since = NULL FROM open
                            WHERE incident.id = open.id
                              AND ((SELECT count(*) FROM incident_member WHERE incident = open.id) < $10
                                   OR EXISTS (SELECT FROM incident_member AS before WHERE before.incident = open.id
                                              AND (before.kind, before.namespace, before.name) = ($5, $6, $7)))
                            RETURNING incident.id),
                  opened AS (INSERT INTO incident (alert, cause, first, opened_at, look_at)
                             SELECT $1, $2, $3, $4, $4
                             WHERE NOT EXISTS (SELECT FROM open)
                               AND (SELECT count(*) FROM incident WHERE alert = $1 AND ended_at IS NULL) < $9
                             RETURNING id),
                  joined AS (SELECT id FROM known UNION ALL SELECT id FROM opened),
                  member AS (INSERT INTO incident_member (incident, api_group, kind, namespace, name, condition, cluster, fails, heard_at)
                             SELECT id, $11, $5, $6, $7, $12, $8, true, $4 FROM joined
                             ON CONFLICT (incident, kind, namespace, name)
                             DO UPDATE SET fails = true, elsewhere = false, lapsed = NULL, condition = excluded.condition,
                                           cluster = excluded.cluster, heard_at = excluded.heard_at),
                  left_out AS (INSERT INTO delivery_left_out (alert, since, count)
                               SELECT $1, $4, 1 WHERE NOT EXISTS (SELECT FROM joined)
                               ON CONFLICT (alert) DO UPDATE SET count = delivery_left_out.count + 1)
             SELECT EXISTS (SELECT FROM joined)",
        )
        .bind(alert.0)
        .bind(cause.as_slice())
        .bind(event)
        .bind(to_sql(now))
        .bind(member.kind)
        .bind(member.namespace)
        .bind(member.name)
        .bind(member.cluster)
        .bind(MOST_OPEN)
        .bind(MOST_MEMBERS)
        .bind(member.group)
        .bind(member.condition)
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query("note a failure with its incident"))?;
        Ok(joined)
    }

    /// The incidents of an Alert that are to be looked at.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn due_incidents(
        &mut self,
        alert: ResourceUid,
        now: Timestamp,
        most: i64,
    ) -> Result<Vec<OpenIncident>, StoreError> {
        let what = "read incidents";
        let sql = format!(
            "SELECT {COUNTED}
             FROM (SELECT * FROM incident WHERE alert = $2 AND ended_at IS NULL AND look_at <= $3
                   ORDER BY look_at, number LIMIT $4) AS chosen, {MEMBERS}
             ORDER BY look_at, number"
        );
        let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(MOST_NAMED)
            .bind(alert.0)
            .bind(to_sql(now))
            .bind(most)
            .fetch_all(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        rows.into_iter().map(|row| row.read(what)).collect()
    }

    /// Forgets an incident; what waits to be told of it is told.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_told(&mut self, incident: IncidentId) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM incident WHERE id = $1")
            .bind(incident)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("forget an incident"))?;
        Ok(())
    }

    /// Forgets an incident, and what waits to be told of it.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_incident(&mut self, incident: IncidentId, key: &[u8; 32]) -> Result<(), StoreError> {
        sqlx::query(
            "WITH gone AS (DELETE FROM incident WHERE id = $1 RETURNING alert)
             DELETE FROM delivery USING gone WHERE delivery.alert = gone.alert AND key = $2 AND state = 'waiting'",
        )
        .bind(incident)
        .bind(key.as_slice())
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("forget an incident"))?;
        Ok(())
    }

    /// How many clusters objects of a kind are about, of those in the Alert's own namespace that it listens to.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn clusters_heard_of(&mut self, alert: ResourceUid, kind: &str) -> Result<i64, StoreError> {
        sqlx::query_scalar(
            "SELECT count(DISTINCT coalesce(named.name, heard.cluster_ref))
             FROM resource AS alert JOIN alert_source AS source ON source.alert = alert.uid
                  JOIN resource AS heard ON heard.kind = source.kind AND heard.namespace = alert.namespace
                  LEFT JOIN resource AS named ON named.kind = 'Cluster' AND named.kubeconfig = heard.kubeconfig
             WHERE alert.uid = $1 AND source.kind = $2 AND source.namespace IN (alert.namespace, '*')
               AND source.name IN (heard.name, '*')",
        )
        .bind(alert.0)
        .bind(kind)
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query("count the clusters that an Alert hears of"))
    }

    /// Takes what is noted of an Alert's incidents to have been now where it is later than `latest`: the clock was put back, and would hold them
    /// up.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn mend_incidents(
        &mut self,
        alert: ResourceUid,
        latest: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE incident SET look_at = $3, opened_at = least(opened_at, $3),
                                 told_at = CASE WHEN told_at IS NOT NULL THEN least(told_at, $3) END,
                                 well_since = CASE WHEN well_since IS NOT NULL THEN least(well_since, $3) END
             WHERE alert = $1 AND ended_at IS NULL AND greatest(opened_at, told_at, well_since) > $2",
        )
        .bind(alert.0)
        .bind(to_sql(latest))
        .bind(to_sql(now))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("mend when incidents were told"))?;
        Ok(())
    }

    /// Has all incidents of an Alert be looked at.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn look_at_all(&mut self, alert: ResourceUid, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query("UPDATE incident SET look_at = $2 WHERE alert = $1 AND ended_at IS NULL")
            .bind(alert.0)
            .bind(to_sql(now))
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("have incidents be looked at"))?;
        Ok(())
    }

    /// Notes that an incident is looked at again then, and no earlier unless something happens.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn look_again(&mut self, incident: IncidentId, at: Timestamp) -> Result<(), StoreError> {
        sqlx::query("UPDATE incident SET look_at = $2 WHERE id = $1")
            .bind(incident)
            .bind(to_sql(at))
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("note when an incident is looked at again"))?;
        Ok(())
    }

    /// Adds a message of an incident to what its Alert sends, in the place of an earlier one that has not arrived, which was tried so often and is
    /// due again then; and notes that it was told. It is looked at again at once. Where as much waits as may, it is counted and left out.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn tell_incident(
        &mut self,
        incident: IncidentId,
        event: &Value,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "WITH told AS (UPDATE incident SET told_at = $4, look_at = $4,
                               told = (SELECT count(*) FROM incident_member WHERE incident = $1)
                           WHERE id = $1 RETURNING alert),
                  outdated AS (DELETE FROM delivery USING told
                               WHERE delivery.alert = told.alert AND key = $3 AND state = 'waiting' AND began_at IS NULL
                               RETURNING attempts, due_at, tried_at, made_at, error),
                  room AS (SELECT told.alert, EXISTS (SELECT FROM outdated)
                                  OR (SELECT count(*) FROM (SELECT FROM delivery WHERE delivery.alert = told.alert
                                                            AND state = 'waiting' LIMIT $5) AS waiting) < $5 AS is_there
                           FROM told),
                  left_out AS (INSERT INTO delivery_left_out (alert, since, count)
                               SELECT alert, $4, 1 FROM room WHERE NOT is_there
                               ON CONFLICT (alert) DO UPDATE SET count = delivery_left_out.count + 1)
             INSERT INTO delivery (alert, news, key, event, made_at, attempts, due_at, tried_at, error)
             SELECT alert, -nextval('incident_message'), $3, $2, coalesce((SELECT min(made_at) FROM outdated), $4),
                    coalesce((SELECT max(attempts) FROM outdated), 0),
                    coalesce((SELECT max(due_at) FROM outdated), '-infinity'), (SELECT max(tried_at) FROM outdated),
                    coalesce((SELECT max(error) FROM outdated), '')
             FROM room WHERE is_there",
        )
        .bind(incident)
        .bind(event)
        .bind(key.as_slice())
        .bind(to_sql(now))
        .bind(MOST_WAITING)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("tell an incident"))?;
        Ok(())
    }

    /// Notes that an incident is over.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn end_incident(&mut self, incident: IncidentId, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query("UPDATE incident SET look_at = NULL, ended_at = $2 WHERE id = $1")
            .bind(incident)
            .bind(to_sql(now))
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("note that an incident is over"))?;
        Ok(())
    }

    /// When an Alert's next incident is to be looked at.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn next_look(&mut self, alert: ResourceUid) -> Result<Option<Timestamp>, StoreError> {
        let what = "read when an incident is looked at again";
        let next: Option<Moment> =
            sqlx::query_scalar("SELECT min(look_at) FROM incident WHERE alert = $1 AND ended_at IS NULL")
                .bind(alert.0)
                .fetch_one(self.written().await?)
                .await
                .map_err(StoreError::query(what))?;
        next.map(|at| from_sql(what, at)).transpose()
    }
}
