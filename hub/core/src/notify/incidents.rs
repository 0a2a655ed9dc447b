//! Incidents: what an Alert that groups is told of failures, which have one cause where they say the same but for names, times and ids.
//!
//! What a condition says makes an object a member of one, and ends that, by news of the condition or, at the next pass over the Alert, by how
//! the object is then.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use roadstead_api::{AlertGroup, AlertSpec, CrossNamespaceObjectReference, SilencedObject};
use roadstead_hub_store::{FailingMember, IncidentId, Member, MemberKey, OpenIncident, Stored, Tx};
use roadstead_model::{Digest, ResourceUid};
use roadstead_notify::{Cause, Event, Incident, Involved, Lapsed, Listened, Pace, Stage, Step, listens_to};
use serde_json::json;

use crate::HubError;
use crate::clock::MOST_APART;
use crate::notify::gather::{Gathering, in_force};
use crate::notify::selected::Selected;
use crate::notify::{LOGGER, Notifier};

/// Incidents that are looked at in one unit of work: each has an event of 30 KiB at most, held three times, and there are 16 passes at once, which
/// makes 14 MiB.
const BATCH: i64 = 10;
/// Objects of an incident that are read at once with their labels, of some KiB each.
const MEMBERS: i64 = 100;

/// News of a condition that an Alert which groups hears of.
pub(super) struct Heard<'a> {
    event: &'a Event,
    cluster: Option<&'a str>,
    condition: &'a str,
    /// Where the object is ([`of_place`]).
    place: Cow<'a, str>,
}

impl<'a> Heard<'a> {
    pub(super) fn of(event: &'a Event, cluster: Option<&'a str>, condition: &'a str) -> Self {
        let namespace = event.involved_object.namespace.as_str();
        let place = match &event.relayed_from {
            Some(cluster) => Cow::Owned(place_in(cluster, namespace)),
            None => Cow::Borrowed(namespace),
        };
        Self { event, cluster, condition, place }
    }

    pub(super) fn member(&self) -> Member<'_> {
        let object = &self.event.involved_object;
        let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
        let Involved { kind, name, .. } = object;
        let (condition, cluster) = (self.condition, self.cluster);
        Member { group, kind, namespace: &self.place, name, condition, cluster }
    }

    /// Notes a failure, as the Alert tells it. Where there is no room for it, that is counted.
    pub(super) async fn fails(
        &self,
        tx: &mut Tx,
        alert: ResourceUid,
        spec: &AlertSpec,
        now: Timestamp,
    ) -> Result<(), HubError> {
        let told = self.event.told_by(spec, self.cluster);
        let cause = Cause::of(self.event, self.cluster);
        tx.join_incident(alert, cause.digest.as_bytes(), self.member(), &json!(told), now).await?;
        Ok(())
    }

    /// Notes that the condition is met; true where the object failed.
    pub(super) async fn is_well(
        &self,
        tx: &mut Tx,
        alert: ResourceUid,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        Ok(tx.recover(alert, self.member(), now).await?)
    }
}

/// The namespace where an object is, and the cluster if it is one of a cluster's Flux: it is kept as `CLUSTER/NAMESPACE`.
pub(super) fn of_place(place: &str) -> (Option<&str>, &str) {
    place.split_once('/').map_or((None, place), |(cluster, namespace)| (Some(cluster), namespace))
}

/// Where an object of a cluster's Flux is.
pub(super) fn place_in(cluster: &str, namespace: &str) -> String {
    format!("{cluster}/{namespace}")
}

/// A pass over the incidents of an Alert.
struct Pass<'a> {
    alert: &'a Stored,
    spec: &'a AlertSpec,
    pace: Pace,
    /// Whether sources choose by labels, which only this pass knows.
    selects: bool,
    /// Whether the Alert's spec is another one than at the last pass, or labels are by which its sources may choose.
    is_changed: bool,
    /// Whether it can be said of how many clusters an incident is on so many: not where sources are chosen by labels, or in other
    /// namespaces.
    counts_clusters: bool,
    /// Of which objects of other namespaces the Alert may hear, as far as that was asked.
    may: BTreeMap<MemberKey, bool>,
    /// Those of which it is to be asked.
    unknown: BTreeSet<MemberKey>,
}

impl Notifier {
    /// Makes deliveries of the incidents that are to be told, and says when the next one is to be looked at.
    pub(super) async fn tell_incidents(
        &self,
        alert: &Stored,
        spec: &AlertSpec,
        group: &AlertGroup,
    ) -> Result<Option<Timestamp>, HubError> {
        let mut pass = Pass::over(alert, spec, group);
        // Notes that labels have changed, once they were read.
        let mut noted: Option<Vec<i64>> = None;
        loop {
            let now = self.clock.now();
            let mut tx = self.store.begin().await?;
            tx.hold_incidents(alert.uid).await?;
            tx.mend_incidents(alert.uid, now + MOST_APART, now).await?;
            tx.settle_members(alert.uid, self.heard_since(now), now).await?;
            if noted.is_none() {
                let relabelled = tx.relabelled(alert.uid).await?;
                pass.is_changed |= !relabelled.is_empty();
                if pass.selects && pass.is_changed {
                    tx.look_at_all(alert.uid, now).await?;
                }
                noted = Some(relabelled);
            }
            let due = tx.due_incidents(alert.uid, now, BATCH).await?;
            let mut is_done = i64::try_from(due.len()).is_ok_and(|count| count < BATCH);
            let in_force = in_force(&mut tx, &alert.namespace, now).await?;
            let gathering = Gathering::of(&mut tx, alert, None, &in_force).await?;
            for open in due {
                is_done &= pass.look(&mut tx, open, &gathering, now).await?;
            }
            let next = tx.next_look(alert.uid).await?;
            tx.commit().await?;
            // Not while the Alert is held: others sort for it.
            for about in std::mem::take(&mut pass.unknown) {
                let may = self.may_be_told_of(alert, &about.0, &about.1, &about.2).await?;
                pass.may.insert(about, may);
                is_done = false;
            }
            if is_done {
                if let Some(noted) = noted.filter(|noted| !noted.is_empty()) {
                    self.store.forget_relabelled(&noted).await?;
                }
                return Ok(next);
            }
        }
    }

    /// Ends the incidents of an Alert that does not group any more: what was told is told to be over as an incident, and what was not yet
    /// is told as it is.
    pub(super) async fn end_grouping(&self, alert: ResourceUid) -> Result<(), HubError> {
        while self.store.has_open_incidents(alert).await? {
            let now = self.clock.now();
            let mut tx = self.store.begin().await?;
            tx.hold_incidents(alert).await?;
            for open in tx.due_incidents(alert, Timestamp::MAX, BATCH).await? {
                let id = open.id;
                if let Some(incident) = read(open) {
                    let told =
                        if incident.told_at.is_some() { incident.ungrouped(now) } else { incident.first };
                    tx.tell_incident(id, &json!(told), &key(id), now).await?;
                }
                tx.end_incident(id, now).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }
}

impl<'a> Pass<'a> {
    fn over(alert: &'a Stored, spec: &'a AlertSpec, group: &AlertGroup) -> Self {
        let is_own =
            |namespace: &Option<String>| namespace.as_ref().is_none_or(|one| *one == alert.namespace);
        let counts = |source: &CrossNamespaceObjectReference| {
            let of_own = source.cluster.is_none() && is_own(&source.namespace);
            source.match_labels.is_empty() && source.cluster_selector.is_none() && of_own
        };
        let selects = |source: &CrossNamespaceObjectReference| {
            let by_place = source.namespace_selector.is_some() || source.cluster_selector.is_some();
            by_place || !source.match_labels.is_empty()
        };
        Self {
            alert,
            spec,
            pace: Pace::from(group),
            selects: spec.event_sources.iter().any(selects),
            is_changed: alert.object["status"]["observedGeneration"] != alert.generation,
            counts_clusters: spec.event_sources.iter().all(counts),
            may: BTreeMap::new(),
            unknown: BTreeSet::new(),
        }
    }

    /// Does what is due for an incident; false where it is to be looked at once more in this pass.
    async fn look(
        &mut self,
        tx: &mut Tx,
        open: OpenIncident,
        gathering: &Gathering,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let id = open.id;
        let Some(mut incident) = read(open).filter(|incident| incident.failed > 0) else {
            tx.forget_incident(id, &key(id)).await?;
            return Ok(true);
        };
        let step = incident.next(&self.pace, now);
        let tells = matches!(step, Step::Tell(_));
        if self.selects && (tells || self.is_changed) && self.leave(tx, id, now).await? {
            return Ok(false);
        }
        if let Step::Wait(until) = step {
            tx.look_again(id, until).await?;
            return Ok(true);
        }
        if tells && let Some(until) = silenced(tx, id, gathering).await? {
            tx.look_again(id, until).await?;
            return Ok(true);
        }
        if !self.still_hears_of(tx, id, &incident, now).await? {
            return Ok(false);
        }
        if self.counts_clusters && incident.clusters > 0 {
            let of = tx.clusters_heard_of(self.alert.uid, &incident.first.involved_object.kind).await?;
            incident.of_clusters = u64::try_from(of).ok();
        }
        self.step(tx, id, &incident, now).await?;
        Ok(true)
    }

    /// Takes those for failing no more whom no source chooses any more by how labels are now: true where there are any.
    async fn leave(&self, tx: &mut Tx, id: IncidentId, now: Timestamp) -> Result<bool, HubError> {
        let (mut has_left, mut after) = (false, None);
        loop {
            let members = tx.failing_members(id, after.as_ref(), MEMBERS).await?;
            let about =
                members.iter().map(|member| (of_place(&member.object.1).1, member.cluster.as_deref()));
            let selected = Selected::read(tx, self.spec, about).await?;
            let has_gone = |member: &&FailingMember| {
                let (kind, place, name) = &member.object;
                let (relayed_from, namespace) = of_place(place);
                let object = Listened { group: &member.group, kind, namespace, name, relayed_from };
                let labels = selected.labels(&member.labels, namespace, member.cluster.as_deref());
                !listens_to(self.spec, &self.alert.namespace, object, labels)
            };
            let left: Vec<_> = members.iter().filter(has_gone).map(|member| member.object.clone()).collect();
            if !left.is_empty() {
                tx.leave_members(id, &left, now).await?;
                has_left = true;
            }
            match members.into_iter().next_back() {
                Some(last) => after = Some(last.object),
                None => return Ok(has_left),
            }
        }
    }

    /// Whether an Alert may still be told of all that an incident names: leave may have been withdrawn. What it may not hear of is taken out, and
    /// all of it is forgotten where that is what its messages say.
    async fn still_hears_of(
        &mut self,
        tx: &mut Tx,
        id: IncidentId,
        incident: &Incident,
        now: Timestamp,
    ) -> Result<bool, HubError> {
        let elsewhere = tx.members_elsewhere(id, &self.alert.namespace).await?;
        let unknown = elsewhere.iter().filter(|about| !self.may.contains_key(*about));
        let unknown: Vec<MemberKey> = unknown.cloned().collect();
        if !unknown.is_empty() {
            self.unknown.extend(unknown);
            return Ok(false);
        }
        let mut hears = true;
        for about in elsewhere.iter().filter(|about| self.may.get(*about) == Some(&false)) {
            hears = false;
            let (kind, namespace, name) = about;
            let first = &incident.first.involved_object;
            // Of a cluster's, one that has the same names in another cluster's counts for it, which tells too little and not too much.
            let is_first = (first.kind.as_str(), first.namespace.as_str(), first.name.as_str())
                == (kind, of_place(namespace).1, name);
            if !is_first {
                tx.forget_member(id, [kind, namespace, name], &key(id), now).await?;
                continue;
            }
            if incident.told_at.is_none() {
                tx.forget_incident(id, &key(id)).await?;
            } else {
                // It says nothing that was not told before.
                tx.tell_incident(id, &json!(incident.withdrawn(now)), &key(id), now).await?;
                tx.forget_told(id).await?;
            }
            break;
        }
        Ok(hears)
    }

    async fn step(
        &self,
        tx: &mut Tx,
        id: IncidentId,
        incident: &Incident,
        now: Timestamp,
    ) -> Result<(), HubError> {
        let stage = match incident.next(&self.pace, now) {
            Step::Wait(until) => return Ok(tx.look_again(id, until).await?),
            Step::Forget => return Ok(tx.end_incident(id, now).await?),
            Step::Tell(stage) => stage,
            Step::Resolve => Stage::Resolved,
        };
        let told = incident.told(stage, &self.pace, now);
        tx.tell_incident(id, &json!(told), &key(id), now).await?;
        if stage == Stage::Resolved {
            return Ok(tx.end_incident(id, now).await?);
        }
        let told = Incident { told_at: Some(now), told: incident.failed, ..incident.clone() };
        if let Step::Wait(until) = told.next(&self.pace, now) {
            tx.look_again(id, until).await?;
        }
        Ok(())
    }
}

/// Until when Silences are for all who fail in an incident, if they are: then it is not told, but for its end.
async fn silenced(tx: &mut Tx, id: IncidentId, gathering: &Gathering) -> Result<Option<Timestamp>, HubError> {
    let (mut until, mut after) = (None, None);
    if gathering.is_idle() {
        return Ok(until);
    }
    loop {
        let members = tx.failing_members(id, after.as_ref(), MEMBERS).await?;
        for member in &members {
            let (kind, place, name) = &member.object;
            let (_, namespace) = of_place(place);
            let (cluster, labels) = (member.cluster.as_deref(), &member.labels);
            let object = SilencedObject { kind, namespace, name, cluster, labels };
            let Some(place) = gathering.keeps(object) else { return Ok(None) };
            until = until.into_iter().chain([place.until]).min();
        }
        match members.into_iter().next_back() {
            Some(last) => after = Some(last.object),
            None => return Ok(until),
        }
    }
}

/// What the messages of an incident have in common.
fn key(id: IncidentId) -> [u8; 32] {
    *Digest::of(format!("incident/{id}").as_bytes()).as_bytes()
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
        lapsed: Lapsed {
            gone: count(open.lapsed.gone),
            left: count(open.lapsed.left),
            suspended: count(open.lapsed.suspended),
            unchecked: count(open.lapsed.unchecked),
            unheard: count(open.lapsed.unheard),
            unheard_since: open.lapsed.unheard_since,
        },
        failing_clusters: count(open.failing_clusters),
        clusters: count(open.clusters),
        of_clusters: None,
        names: open.names,
        well_since: open.well_since,
    })
}
