//! Incidents: what an Alert that groups is told of failures, which have one cause where they say the same but for names, times and ids.

use jiff::Timestamp;
use roadstead_api::{AlertGroup, AlertSpec};
use roadstead_hub_store::{IncidentId, Member, OpenIncident, Stored, Tx};
use roadstead_model::{Digest, ResourceUid};
use roadstead_notify::{Cause, Event, Incident, Pace, Stage, Step};
use serde_json::json;

use crate::HubError;
use crate::notify::{LOGGER, Notifier};

/// Incidents that are looked at in one unit of work: each has an event of 30 KiB at most, held twice.
const BATCH: i64 = 50;

/// An event that an Alert which groups hears of.
pub(super) struct Heard<'a> {
    pub(super) event: &'a Event,
    pub(super) cluster: Option<&'a str>,
}

impl<'a> Heard<'a> {
    fn member(&self) -> Member<'a> {
        let object = &self.event.involved_object;
        Member { kind: &object.kind, namespace: &object.namespace, name: &object.name, cluster: self.cluster }
    }

    /// Notes a failure, as the Alert tells it; false where there was no room for it.
    pub(super) async fn fails(
        &self,
        tx: &mut Tx,
        alert: ResourceUid,
        spec: &AlertSpec,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let told = self.event.told_by(spec, self.cluster);
        let cause = Cause::of(self.event, self.cluster);
        Ok(tx.join_incident(alert, cause.digest.as_bytes(), self.member(), &json!(told), now).await?)
    }

    /// Notes that the object is well; true where it failed.
    pub(super) async fn is_well(
        &self,
        tx: &mut Tx,
        alert: ResourceUid,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        Ok(tx.recover(alert, self.member(), now).await?)
    }
}

impl Notifier {
    /// Makes deliveries of the incidents that are to be told, and says when the next one is to be looked at.
    pub(super) async fn tell_incidents(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
        group: &AlertGroup,
    ) -> Result<Option<Timestamp>, HubError> {
        let pace = Pace::from(group);
        // Labels are not looked at where clusters are counted.
        let counts_clusters = spec.event_sources.iter().all(|source| source.match_labels.is_empty());
        loop {
            let now = self.clock.now();
            let mut tx = self.store.begin().await?;
            tx.hold_incidents(alert.uid).await?;
            tx.recover_gone(alert.uid, now).await?;
            let due = tx.due_incidents(alert.uid, now, BATCH).await?;
            let mut is_done = i64::try_from(due.len()).is_ok_and(|count| count < BATCH);
            for open in due {
                let id = open.id;
                let Some(mut incident) = read(open).filter(|incident| incident.failed > 0) else {
                    tx.end_incident(id, now).await?;
                    continue;
                };
                if !matches!(incident.next(&pace, now), Step::Wait(_))
                    && !self.still_hears_of(&mut tx, alert, id, &incident, now).await?
                {
                    is_done = false;
                    continue;
                }
                if counts_clusters && incident.clusters > 0 {
                    let of = tx.clusters_heard_of(alert.uid, &incident.first.involved_object.kind).await?;
                    incident.of_clusters = u64::try_from(of).ok();
                }
                step(&mut tx, id, &incident, &pace, now).await?;
            }
            let next = tx.next_look(alert.uid).await?;
            tx.commit().await?;
            if is_done {
                return Ok(next);
            }
        }
    }

    /// Whether an Alert may still be told of all that an incident names: leave may have been withdrawn. What it may not hear of is taken out, and
    /// all of it is forgotten where that is what its messages say.
    async fn still_hears_of(
        &self,
        tx: &mut Tx,
        alert: &Stored,
        id: IncidentId,
        incident: &Incident,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let mut hears = true;
        for (kind, namespace, name) in tx.members_elsewhere(id, &alert.namespace).await? {
            if self.may_be_told_of(alert, &kind, &namespace, &name).await? {
                continue;
            }
            hears = false;
            let first = &incident.first.involved_object;
            if (&first.kind, &first.namespace, &first.name) == (&kind, &namespace, &name) {
                tx.end_incident(id, now).await?;
                return Ok(false);
            }
            let member = Member { kind: &kind, namespace: &namespace, name: &name, cluster: None };
            tx.forget_member(id, member, now).await?;
        }
        Ok(hears)
    }

    /// Forgets the incidents of an Alert that does not group any more, or is suspended.
    pub(super) async fn forget_incidents(&self, alert: ResourceUid) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        tx.forget_incidents(alert).await?;
        tx.commit().await?;
        Ok(())
    }
}

async fn step(
    tx: &mut Tx,
    id: IncidentId,
    incident: &Incident,
    pace: &Pace,
    now: Timestamp,
) -> Result<(), HubError> {
    let key = Digest::of(format!("incident/{id}").as_bytes());
    let stage = match incident.next(pace, now) {
        Step::Wait(until) => return Ok(tx.look_again(id, until).await?),
        Step::Forget => return Ok(tx.end_incident(id, now).await?),
        Step::Tell(stage) => stage,
        Step::Resolve => Stage::Resolved,
    };
    tx.tell_incident(id, &json!(incident.told(stage, now)), key.as_bytes(), now).await?;
    if stage == Stage::Resolved {
        return Ok(tx.end_incident(id, now).await?);
    }
    let told = Incident { told_at: Some(now), told: incident.failed, ..incident.clone() };
    if let Step::Wait(until) = told.next(pace, now) {
        tx.look_again(id, until).await?;
    }
    Ok(())
}

fn read(open: OpenIncident) -> Option<Incident> {
    let first = serde_json::from_value(open.first).inspect_err(|error| {
        tracing::error!(target: LOGGER, %error, "an incident cannot be read, and is not told");
    });
    let count = |count: i64| u64::try_from(count).unwrap_or_default();
    Some(Incident {
        id: open.id.to_string(),
        first: first.ok()?,
        opened_at: open.opened_at,
        told_at: open.told_at,
        told: count(open.told),
        failing: count(open.failing),
        failed: count(open.failed),
        elsewhere: count(open.elsewhere),
        failing_clusters: count(open.failing_clusters),
        clusters: count(open.clusters),
        of_clusters: None,
        names: open.names,
        well_since: open.well_since,
    })
}
