//! Objects of incidents: who fails, and who fails no more.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_model::ResourceUid;
use serde_json::Value;
use uuid::Uuid;

use crate::incident::{IncidentId, Member};
use crate::time::to_sql;
use crate::{Store, StoreError, Tx};

/// Notes that an Alert is to look again that are taken at once: more are taken by its next pass.
const MOST_NOTES: i64 = 1_000;

/// An object of an incident: kind, namespace and name.
pub type MemberKey = (String, String, String);

/// An object that fails in an incident.
#[derive(Debug, Clone)]
pub struct FailingMember {
    /// Which one.
    pub object: MemberKey,
    /// Its kind's group.
    pub group: String,
    /// The cluster that it is about, if it is about one.
    pub cluster: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

fn alerts(found: Result<Vec<Uuid>, sqlx::Error>) -> Result<Vec<ResourceUid>, StoreError> {
    let found = found.map_err(StoreError::query("look up which Alerts tell of a failure"))?;
    Ok(found.into_iter().map(ResourceUid).collect())
}

type FailingRow = (String, String, String, String, Option<String>, Value);

impl Store {
    /// Forgets that an Alert was to look again, as far as it did: notes of these numbers.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_relabelled(&self, noted: &[i64]) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM reselection WHERE id = ANY($1)")
            .bind(noted)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget that labels changed"))?;
        Ok(())
    }
}

impl Tx {
    /// Notes that an object's condition is met; true where it failed in any way, which is then looked at again.
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

    pub(crate) async fn recover_except(
        &mut self,
        alert: ResourceUid,
        cause: Option<&[u8; 32]>,
        member: Member<'_>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let recovered: bool = sqlx::query_scalar(
            "WITH concerned AS (SELECT incident, condition = $7 AS is_of_condition FROM incident_member
                                JOIN incident ON incident.id = incident_member.incident
                                WHERE incident.alert = $1 AND ended_at IS NULL
                                  AND ($2::bytea IS NULL OR incident.cause <> $2)
                                  AND (fails OR (elsewhere OR lapsed IS NOT NULL) AND $2::bytea IS NULL)
                                  AND kind = $3 AND namespace = $4 AND name = $5),
                  recovered AS (UPDATE incident_member SET fails = false, elsewhere = $2::bytea IS NOT NULL, lapsed = NULL FROM concerned
                                WHERE incident_member.incident = concerned.incident AND is_of_condition
                                  AND kind = $3 AND namespace = $4 AND name = $5),
                  looked_at AS (UPDATE incident SET look_at = $6, well_since = CASE WHEN EXISTS (
                                        SELECT FROM incident_member AS other WHERE other.incident = incident.id AND other.fails
                                          AND ((other.kind, other.namespace, other.name) <> ($3, $4, $5) OR NOT is_of_condition))
                                    THEN NULL ELSE coalesce(well_since, $6::timestamptz) END
                                FROM concerned WHERE id = concerned.incident)
             SELECT EXISTS (SELECT FROM concerned)",
        )
        .bind(alert.0)
        .bind(cause.map(<[u8; 32]>::as_slice))
        .bind(member.kind)
        .bind(member.namespace)
        .bind(member.name)
        .bind(to_sql(now))
        .bind(member.condition)
        .fetch_one(self.written().await?)
        .await
        .map_err(StoreError::query("note that an object is well again"))?;
        Ok(recovered)
    }

    /// Notes of the objects in an Alert's incidents which of them fail no more, by how they are now: those whose condition is met, those that
    /// are gone or suspended or whose health is not checked any more, those that the Alert does not listen to any more, and those of clusters of which nothing was heard since
    /// `heard_since`. News says so sooner, but not in each case.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn settle_members(
        &mut self,
        alert: ResourceUid,
        heard_since: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let what = "look which objects of incidents fail no more";
        let changed: Vec<Uuid> = sqlx::query_scalar(
            "WITH ends AS (SELECT incident, member.kind, member.namespace, member.name,
                                  failure_over($1, api_group, member.kind, member.namespace, member.name, condition, heard_at,
                                               $2::timestamptz) AS why
                           FROM incident_member AS member JOIN incident ON incident.id = member.incident
                           WHERE incident.alert = $1 AND ended_at IS NULL AND fails)
             UPDATE incident_member AS member SET fails = false, lapsed = nullif(ends.why, 'well') FROM ends
             WHERE ends.why IS NOT NULL AND member.incident = ends.incident AND member.kind = ends.kind
               AND member.namespace = ends.namespace AND member.name = ends.name
             RETURNING member.incident",
        )
        .bind(alert.0)
        .bind(to_sql(heard_since))
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        self.note_well(&changed, now, what).await
    }

    /// Notes of objects of an incident that its Alert does not listen to them any more.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn leave_members(
        &mut self,
        incident: IncidentId,
        members: &[MemberKey],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let what = "note which objects an Alert does not listen to any more";
        let left: Vec<Uuid> = sqlx::query_scalar(
            "UPDATE incident_member SET fails = false, lapsed = 'left'
             WHERE incident = $1 AND fails
               AND (kind, namespace, name) IN (SELECT * FROM unnest($2::text[], $3::text[], $4::text[]))
             RETURNING incident",
        )
        .bind(incident)
        .bind(members.iter().map(|(kind, ..)| kind).collect::<Vec<_>>())
        .bind(members.iter().map(|(_, namespace, _)| namespace).collect::<Vec<_>>())
        .bind(members.iter().map(|(.., name)| name).collect::<Vec<_>>())
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        self.note_well(&left, now, what).await
    }

    /// Has incidents be looked at of which somebody fails no more, and notes since when nobody fails.
    async fn note_well(
        &mut self,
        incidents: &[Uuid],
        now: Timestamp,
        what: &'static str,
    ) -> Result<(), StoreError> {
        if incidents.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "UPDATE incident SET look_at = $2, well_since = CASE
                 WHEN EXISTS (SELECT FROM incident_member WHERE incident = incident.id AND fails) THEN well_since
                 ELSE coalesce(well_since, $2) END
             WHERE id = ANY($1)",
        )
        .bind(incidents)
        .bind(to_sql(now))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// Notes that something was heard of objects, whatever it was: those of an Alert's incidents, and those of which failures are kept.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hear_of(
        &mut self,
        alert: ResourceUid,
        objects: &[MemberKey],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if objects.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "WITH heard AS (SELECT DISTINCT * FROM unnest($3::text[], $4::text[], $5::text[]) AS heard (kind, namespace, name)),
                  kept AS (UPDATE gathered SET heard_at = $2 FROM heard
                           WHERE gathered.alert = $1 AND gathered.fails AND gathered.kind = heard.kind
                             AND gathered.namespace = heard.namespace AND gathered.name = heard.name)
             UPDATE incident_member AS member SET heard_at = $2 FROM incident, heard
             WHERE incident.id = member.incident AND incident.alert = $1 AND ended_at IS NULL AND member.fails
               AND member.kind = heard.kind AND member.namespace = heard.namespace AND member.name = heard.name",
        )
        .bind(alert.0)
        .bind(to_sql(now))
        .bind(objects.iter().map(|(kind, ..)| kind).collect::<Vec<_>>())
        .bind(objects.iter().map(|(_, namespace, _)| namespace).collect::<Vec<_>>())
        .bind(objects.iter().map(|(.., name)| name).collect::<Vec<_>>())
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("note of what something was heard"))?;
        Ok(())
    }

    /// The objects of an incident that are not in this namespace: kind, namespace and name.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn members_elsewhere(
        &mut self,
        incident: IncidentId,
        namespace: &str,
    ) -> Result<Vec<MemberKey>, StoreError> {
        sqlx::query_as(
            "SELECT kind, namespace, name FROM incident_member WHERE incident = $1 AND namespace <> $2 ORDER BY 1, 2, 3",
        )
        .bind(incident)
        .bind(namespace)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("read the objects of an incident"))
    }

    /// Objects that fail in an incident, by kind, namespace and name, from behind that one on.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn failing_members(
        &mut self,
        incident: IncidentId,
        after: Option<&MemberKey>,
        most: i64,
    ) -> Result<Vec<FailingMember>, StoreError> {
        let (kind, namespace, name) = after.cloned().unwrap_or_default();
        let rows: Vec<FailingRow> = sqlx::query_as(
            "SELECT member.kind, member.namespace, member.name, member.api_group, member.cluster,
                    coalesce(object #> '{metadata,labels}', '{}')
             FROM incident_member AS member
             LEFT JOIN resource ON resource.api_group = member.api_group AND resource.kind = member.kind
                               AND resource.namespace = member.namespace AND resource.name = member.name
             WHERE incident = $1 AND fails AND (member.kind, member.namespace, member.name) > ($2, $3, $4)
             ORDER BY 1, 2, 3 LIMIT $5",
        )
        .bind(incident)
        .bind(kind)
        .bind(namespace)
        .bind(name)
        .bind(most)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("read who fails in an incident"))?;
        let read = |(kind, namespace, name, group, cluster, labels): FailingRow| FailingMember {
            object: (kind, namespace, name),
            group,
            cluster,
            labels: serde_json::from_value(labels).unwrap_or_default(),
        };
        Ok(rows.into_iter().map(read).collect())
    }

    /// The Alerts in whose incidents this object fails.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn alerts_of_failing(
        &mut self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<ResourceUid>, StoreError> {
        let found = sqlx::query_scalar(
            "SELECT DISTINCT incident.alert FROM incident_member AS member JOIN incident ON incident.id = member.incident
             WHERE member.fails AND member.kind = $1 AND member.namespace = $2 AND member.name = $3 AND ended_at IS NULL ORDER BY 1",
        )
        .bind(kind)
        .bind(namespace)
        .bind(name)
        .fetch_all(self.written().await?)
        .await;
        alerts(found)
    }

    /// The Alerts in whose incidents objects fail that are in this namespace of the hub.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn alerts_of_failing_in(&mut self, namespace: &str) -> Result<Vec<ResourceUid>, StoreError> {
        let found = sqlx::query_scalar(
            "SELECT DISTINCT incident.alert FROM incident_member AS member JOIN incident ON incident.id = member.incident
             WHERE member.fails AND member.namespace = $1 AND ended_at IS NULL ORDER BY 1",
        )
        .bind(namespace)
        .fetch_all(self.written().await?)
        .await;
        alerts(found)
    }

    /// The Alerts in whose incidents objects fail that are about this cluster, or are of its Flux.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn alerts_of_failing_on(&mut self, cluster: &str) -> Result<Vec<ResourceUid>, StoreError> {
        let found = sqlx::query_scalar(
            "SELECT DISTINCT incident.alert FROM incident_member AS member JOIN incident ON incident.id = member.incident
             WHERE member.fails AND (member.cluster = $1 OR starts_with(member.namespace, $1 || '/')) AND ended_at IS NULL ORDER BY 1",
        )
        .bind(cluster)
        .fetch_all(self.written().await?)
        .await;
        alerts(found)
    }

    /// Notes that these Alerts are to look again which of the objects in their incidents they are for.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_relabelled(&mut self, alerts: &[ResourceUid]) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO reselection (alert) SELECT * FROM unnest($1::uuid[])")
            .bind(alerts.iter().map(|alert| alert.0).collect::<Vec<_>>())
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("note that labels changed"))?;
        Ok(())
    }

    /// The numbers of notes by which an Alert is to look again, the oldest first.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn relabelled(&mut self, alert: ResourceUid) -> Result<Vec<i64>, StoreError> {
        sqlx::query_scalar("SELECT id FROM reselection WHERE alert = $1 ORDER BY id LIMIT $2")
            .bind(alert.0)
            .bind(MOST_NOTES)
            .fetch_all(self.written().await?)
            .await
            .map_err(StoreError::query("look whether labels changed"))
    }

    /// Takes an object out of an incident, as if it had never failed, and out of what waits to be told of that.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_member(
        &mut self,
        incident: IncidentId,
        [kind, namespace, name]: [&str; 3],
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let what = "take an object out of an incident";
        sqlx::query(
            "DELETE FROM incident_member WHERE incident = $1 AND kind = $2 AND namespace = $3 AND name = $4",
        )
        .bind(incident)
        .bind(kind)
        .bind(namespace)
        .bind(name)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query(
            "WITH waiting AS (DELETE FROM delivery USING incident
                              WHERE incident.id = $1 AND delivery.alert = incident.alert AND key = $3 AND state = 'waiting')
             UPDATE incident SET look_at = $2, told = greatest(told - 1, 0), well_since = CASE
                 WHEN EXISTS (SELECT FROM incident_member WHERE incident = $1 AND fails) THEN well_since
                 ELSE coalesce(well_since, $2) END
             WHERE id = $1",
        )
        .bind(incident)
        .bind(to_sql(now))
        .bind(key.as_slice())
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }
}
