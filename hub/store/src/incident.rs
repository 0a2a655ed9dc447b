//! Incidents: which objects fail for one cause, what was told of that, and when it is looked at again.

use jiff::Timestamp;
use roadstead_model::{IncidentFilter, ResourceUid, Visible};
use serde_json::Value;
use uuid::Uuid;

use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// Incidents of one Alert that are open at most: a failure that would open another one is counted, and left out.
const MOST_OPEN: i64 = 500;
/// Objects of one incident at most: more are not counted in it.
const MOST_MEMBERS: i64 = 10_000;
/// Objects that are named of one incident.
const MOST_NAMED: i64 = 20;

type Moment = ::time::OffsetDateTime;

/// Which incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct IncidentId(Uuid);

impl std::fmt::Display for IncidentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An object that fails, or is well again.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The cluster that it is about, if it is about one.
    pub cluster: Option<&'a str>,
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
            failing_clusters: self.failing_clusters,
            clusters: self.clusters,
            names: self.names,
        })
    }
}

/// What is counted of an incident, and who is named of it.
const COUNTED: &str = "id, first, opened_at, told_at, told, well_since, member.failing, member.failed, member.elsewhere,
    member.failing_clusters, member.clusters,
    ARRAY(SELECT DISTINCT coalesce(cluster, namespace || '/' || name) FROM incident_member
          WHERE incident = chosen.id AND (fails OR chosen.well_since IS NOT NULL) ORDER BY 1 LIMIT $1) AS names";
const MEMBERS: &str = "LATERAL (SELECT count(*) FILTER (WHERE fails) AS failing, count(*) AS failed,
        count(*) FILTER (WHERE elsewhere) AS elsewhere, count(DISTINCT cluster) FILTER (WHERE fails) AS failing_clusters,
        count(DISTINCT cluster) AS clusters
    FROM incident_member WHERE incident = chosen.id) AS member";

impl Store {
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
             FROM (SELECT incident.*, alert.namespace AS alert_namespace, alert.name AS alert_name
                   FROM incident JOIN resource AS alert ON alert.uid = incident.alert
                   WHERE ($2 = '' OR alert.namespace = $2) AND ($3 = '' OR alert.name = $3)
                     AND (NOT $4 OR ended_at IS NULL) AND ($5::timestamptz IS NULL OR opened_at < $5)
                     AND ($6::text[] IS NULL OR 'Alert/' || alert.namespace = ANY($6))
                   ORDER BY opened_at DESC, id LIMIT $7) AS chosen, {MEMBERS}
             ORDER BY opened_at DESC, id"
        );
        let rows: Vec<ListedRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(MOST_NAMED)
            .bind(&filter.namespace)
            .bind(&filter.alert)
            .bind(filter.open)
            .bind(filter.before.map(to_sql))
            .bind(visible.map(|visible| visible.places.clone()))
            .bind(limit)
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
            .execute(&mut *self.inner)
            .await
            .map_err(StoreError::query("hold an Alert's incidents"))?;
        Ok(())
    }

    /// Notes that an object fails for a cause: in the Alert's open incident of it, or in a new one. It fails for no other cause any more. False
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
            "WITH known AS (UPDATE incident SET look_at = $4, well_since = NULL
                            WHERE alert = $1 AND cause = $2 AND ended_at IS NULL RETURNING id),
                  opened AS (INSERT INTO incident (alert, cause, first, opened_at, look_at)
                             SELECT $1, $2, $3, $4, $4
                             WHERE NOT EXISTS (SELECT FROM known)
                               AND (SELECT count(*) FROM incident WHERE alert = $1 AND ended_at IS NULL) < $9
                             RETURNING id),
                  joined AS (SELECT id FROM known UNION ALL SELECT id FROM opened),
                  member AS (INSERT INTO incident_member (incident, kind, namespace, name, cluster, fails)
                             SELECT id, $5, $6, $7, $8, true FROM joined
                             WHERE (SELECT count(*) FROM incident_member WHERE incident = joined.id) < $10
                                OR EXISTS (SELECT FROM incident_member AS before WHERE before.incident = joined.id
                                           AND (before.kind, before.namespace, before.name) = ($5, $6, $7))
                             ON CONFLICT (incident, kind, namespace, name)
                             DO UPDATE SET fails = true, elsewhere = false, cluster = excluded.cluster),
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
        .fetch_one(&mut *self.inner)
        .await
        .map_err(StoreError::query("note a failure with its incident"))?;
        Ok(joined)
    }

    /// Notes that an object is well; true where it failed.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn recover(
        &mut self,
        alert: ResourceUid,
        member: Member<'_>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.recover_except(alert, None, member, now).await
    }

    async fn recover_except(
        &mut self,
        alert: ResourceUid,
        cause: Option<&[u8; 32]>,
        member: Member<'_>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let recovered: bool = sqlx::query_scalar(
            "WITH recovered AS (UPDATE incident_member SET fails = false, elsewhere = $2::bytea IS NOT NULL
                                FROM incident
                                WHERE incident.id = incident_member.incident AND incident.alert = $1 AND ended_at IS NULL
                                  AND ($2::bytea IS NULL OR incident.cause <> $2) AND fails
                                  AND kind = $3 AND namespace = $4 AND name = $5
                                RETURNING incident),
                  looked_at AS (UPDATE incident SET look_at = $6, well_since = CASE WHEN EXISTS (
                                        SELECT FROM incident_member AS other WHERE other.incident = incident.id AND other.fails
                                          AND (other.kind, other.namespace, other.name) <> ($3, $4, $5))
                                    THEN NULL ELSE $6::timestamptz END
                                WHERE id IN (SELECT incident FROM recovered))
             SELECT EXISTS (SELECT FROM recovered)",
        )
        .bind(alert.0)
        .bind(cause.map(<[u8; 32]>::as_slice))
        .bind(member.kind)
        .bind(member.namespace)
        .bind(member.name)
        .bind(to_sql(now))
        .fetch_one(&mut *self.inner)
        .await
        .map_err(StoreError::query("note that an object is well again"))?;
        Ok(recovered)
    }

    /// Notes that objects of an Alert's incidents which are gone fail no more.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn recover_gone(&mut self, alert: ResourceUid, now: Timestamp) -> Result<(), StoreError> {
        let what = "note that objects of incidents are gone";
        let changed: Vec<Uuid> = sqlx::query_scalar(
            "UPDATE incident_member AS member SET fails = false FROM incident
             WHERE incident.id = member.incident AND incident.alert = $1 AND ended_at IS NULL AND fails
               AND NOT EXISTS (SELECT FROM resource WHERE resource.kind = member.kind
                               AND resource.namespace = member.namespace AND resource.name = member.name)
             RETURNING incident",
        )
        .bind(alert.0)
        .fetch_all(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        if changed.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "UPDATE incident SET look_at = $2, well_since = $2 WHERE id = ANY($1)
               AND NOT EXISTS (SELECT FROM incident_member WHERE incident = incident.id AND fails)",
        )
        .bind(changed)
        .bind(to_sql(now))
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
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
                   ORDER BY look_at, id LIMIT $4) AS chosen, {MEMBERS}"
        );
        let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(MOST_NAMED)
            .bind(alert.0)
            .bind(to_sql(now))
            .bind(most)
            .fetch_all(&mut *self.inner)
            .await
            .map_err(StoreError::query(what))?;
        rows.into_iter().map(|row| row.read(what)).collect()
    }

    /// The objects of an incident that are not in this namespace: kind, namespace and name.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn members_elsewhere(
        &mut self,
        incident: IncidentId,
        namespace: &str,
    ) -> Result<Vec<(String, String, String)>, StoreError> {
        sqlx::query_as(
            "SELECT kind, namespace, name FROM incident_member WHERE incident = $1 AND namespace <> $2 ORDER BY 1, 2, 3",
        )
        .bind(incident)
        .bind(namespace)
        .fetch_all(&mut *self.inner)
        .await
        .map_err(StoreError::query("read the objects of an incident"))
    }

    /// Takes an object out of an incident, as if it had never failed.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_member(
        &mut self,
        incident: IncidentId,
        member: Member<'_>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let what = "take an object out of an incident";
        sqlx::query(
            "DELETE FROM incident_member WHERE incident = $1 AND kind = $2 AND namespace = $3 AND name = $4",
        )
        .bind(incident)
        .bind(member.kind)
        .bind(member.namespace)
        .bind(member.name)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query(
            "UPDATE incident SET look_at = $2, well_since = coalesce(well_since, $2) WHERE id = $1
               AND NOT EXISTS (SELECT FROM incident_member WHERE incident = $1 AND fails)",
        )
        .bind(incident)
        .bind(to_sql(now))
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// How many clusters objects of a kind are about, of those in the Alert's own namespace that it listens to.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn clusters_heard_of(&mut self, alert: ResourceUid, kind: &str) -> Result<i64, StoreError> {
        sqlx::query_scalar(
            "SELECT count(DISTINCT heard.object #>> '{spec,clusterRef,name}')
             FROM resource AS alert JOIN alert_source AS source ON source.alert = alert.uid
                  JOIN resource AS heard ON heard.kind = source.kind AND heard.namespace = alert.namespace
             WHERE alert.uid = $1 AND source.kind = $2 AND source.namespace IN (alert.namespace, '*')
               AND source.name IN (heard.name, '*')",
        )
        .bind(alert.0)
        .bind(kind)
        .fetch_one(&mut *self.inner)
        .await
        .map_err(StoreError::query("count the clusters that an Alert hears of"))
    }

    /// Notes that an incident is looked at again then, and no earlier unless something happens.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn look_again(&mut self, incident: IncidentId, at: Timestamp) -> Result<(), StoreError> {
        sqlx::query("UPDATE incident SET look_at = $2 WHERE id = $1")
            .bind(incident)
            .bind(to_sql(at))
            .execute(&mut *self.inner)
            .await
            .map_err(StoreError::query("note when an incident is looked at again"))?;
        Ok(())
    }

    /// Adds a message of an incident to what its Alert sends, in the place of an earlier one that was not tried yet, and notes that it was told. It
    /// is looked at again at once.
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
                               WHERE delivery.alert = told.alert AND key = $3 AND state = 'waiting' AND began_at IS NULL)
             INSERT INTO delivery (alert, news, key, event, made_at)
             SELECT alert, -nextval('incident_message'), $3, $2, $4 FROM told",
        )
        .bind(incident)
        .bind(event)
        .bind(key.as_slice())
        .bind(to_sql(now))
        .execute(&mut *self.inner)
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
            .execute(&mut *self.inner)
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
                .fetch_one(&mut *self.inner)
                .await
                .map_err(StoreError::query(what))?;
        next.map(|at| from_sql(what, at)).transpose()
    }

    /// Forgets the open incidents of an Alert that does not group any more.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_incidents(&mut self, alert: ResourceUid) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM incident WHERE alert = $1 AND ended_at IS NULL")
            .bind(alert.0)
            .execute(&mut *self.inner)
            .await
            .map_err(StoreError::query("forget an Alert's incidents"))?;
        Ok(())
    }
}
