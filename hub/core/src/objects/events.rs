//! Events: what happened to an object, where `kubectl describe` and `flux events` show it.
//!
//! An event is written in the unit of work that changes the object's Ready condition, so that one cannot be without the
//! other. The same news of the same object is one Event with a count.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::{
    Condition, ConditionStatus, Event as EventObject, EventSource, KindId, ObjectMeta, ObjectReference, Time,
};
use roadstead_hub_store::{Child, HeldNamespace, NewsItem, StoreError, Stored, Tx};
use roadstead_model::{Action, AuditEntry, AuditOutcome, Digest, ObjectResult, Reason};
use roadstead_notify::{Event as Told, Involved, Level};

use crate::HubError;
use crate::identity::{Identity, audit};
use crate::objects::conditions::{READY, SUSPENDED, find, ready, shortened};
use crate::objects::{Objects, managers, triggers};

/// The type of Events that want attention.
const WARNING: &str = "Warning";
/// Who reports.
const COMPONENT: &str = "roadstead-hub";
/// Events of objects in no namespace are here, as in Kubernetes.
const DEFAULT_NAMESPACE: &str = "default";
/// Annotations of an object that are for its events.
const EVENT_METADATA: &str = "event.toolkit.fluxcd.io/";
/// Bytes of those that an event has: there is an event for each change.
const MAX_EVENT_METADATA: usize = 4 << 10;
/// Changed objects that an event lists.
const MAX_CHANGES: usize = 50;
/// Objects of one build that are put on record one by one as refused.
const MAX_DENIED: usize = 100;
/// So much of an object's name stands in its events' names.
const NAME: usize = 200;
/// Events that are dropped in one unit of work.
const BATCH: i64 = 500;

/// Notes what the Ready condition says now, where that is news. Progress is none: it would be half of all events. An object that `waits`
/// for another one does not fail by not being Ready. Gives whether it was not said before, as far as Events are kept.
pub(crate) async fn on_ready(
    tx: &mut Tx,
    about: &Stored,
    (before, after): (&[Condition], &[Condition]),
    waits: bool,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Some(is) = ready(after) else { return Ok(false) };
    let same = ready(before)
        .is_some_and(|was| (&was.status, &was.reason, &was.message) == (&is.status, &is.reason, &is.message));
    if same && !fails_once_resumed(before, after) || is.reason == Reason::Progressing.as_str() {
        return Ok(false);
    }
    // As in Flux: whoever waits for others is not what is wrong.
    let waits = waits || is_waiting(about.kind, &is.reason);
    let type_ = if is.status == ConditionStatus::False && !waits { WARNING } else { "Normal" };
    // What nobody knows neither fails nor is over.
    let condition = Some(READY).filter(|_| is.status != ConditionStatus::Unknown);
    note_condition(tx, about, condition, (type_, &is.reason, &is.message), now).await
}

/// Whether an object that was suspended was tried again, and fails as before: Alerts took its failure to be over meanwhile.
fn fails_once_resumed(before: &[Condition], after: &[Condition]) -> bool {
    let (Some(was), Some(is)) = (ready(before), ready(after)) else { return false };
    let resumed = find(before, SUSPENDED).is_some() && find(after, SUSPENDED).is_none();
    resumed && is.status == ConditionStatus::False && is.observed_generation != was.observed_generation
}

/// Whether an object of this kind waits for another one where its Ready has this reason.
fn is_waiting(kind: KindId, reason: &str) -> bool {
    let reasons: &[Reason] = match kind {
        KindId::GitRepository => &[Reason::NotFound, Reason::NoArtifact],
        KindId::HelmChart => &[Reason::NoSourceArtifact],
        _ => &[Reason::DependencyNotReady],
    };
    reasons.iter().any(|one| one.as_str() == reason)
}

/// Notes an event about an object, or that it happened again.
pub(crate) async fn note(
    tx: &mut Tx,
    about: &Stored,
    type_: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    note_condition(tx, about, None, (type_, reason, message), now).await.map(drop)
}

/// Notes something that people should know and that does not fail: a Warning for whoever looks at the object, and no failure for Alerts.
pub(crate) async fn warn(
    tx: &mut Tx,
    about: &Stored,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    write(tx, about, None, (WARNING, reason.as_str(), message), Level::Info, now).await.map(drop)
}

/// The same of something that may go on: where the Event is still there, it is counted, and Alerts hear nothing.
pub(crate) async fn warn_once(
    tx: &mut Tx,
    about: &Stored,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (namespace, name) = (namespace(about), name(about, WARNING, reason.as_str(), message));
    match tx.get(KindId::Event, namespace, &name).await? {
        Some(before) => count(tx, before, now).await,
        None => warn(tx, about, reason, message, now).await,
    }
}

/// Notes what a condition says now: that it is met ends failures of which this condition told, and nothing else does. Gives whether the
/// Event is new.
pub(crate) async fn note_condition(
    tx: &mut Tx,
    about: &Stored,
    condition: Option<&'static str>,
    told: (&str, &str, &str),
    now: Timestamp,
) -> Result<bool, StoreError> {
    let severity = if told.0 == WARNING { Level::Error } else { Level::Info };
    write(tx, about, condition, told, severity, now).await
}

async fn write(
    tx: &mut Tx,
    about: &Stored,
    condition: Option<&'static str>,
    (type_, reason, message): (&str, &str, &str),
    severity: Level,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let namespace = namespace(about);
    // Nothing new may come into a namespace that is being emptied.
    if tx.hold_namespace(namespace).await? != HeldNamespace::Open {
        return Ok(false);
    }
    if let Some(news) = news(about, severity, reason, message, now) {
        tx.tell(NewsItem { condition, ..news });
    }
    let name = name(about, type_, reason, message);
    let kind = about.kind.get();
    let event = EventObject {
        api_version: "v1".to_owned(),
        kind: "Event".to_owned(),
        metadata: ObjectMeta { annotations: annotations(about), ..ObjectMeta::default() },
        involved_object: ObjectReference {
            api_version: kind.versions[0].api_version(),
            kind: kind.kind.to_owned(),
            namespace: about.namespace.clone(),
            name: about.name.clone(),
            uid: about.uid.to_string(),
            ..ObjectReference::default()
        },
        reason: reason.to_owned(),
        message: message.to_owned(),
        source: Some(EventSource { component: COMPONENT.to_owned(), host: String::new() }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        type_: type_.to_owned(),
        reporting_component: COMPONENT.to_owned(),
        ..EventObject::default()
    };
    let object = serde_json::to_value(&event)
        .map_err(|error| StoreError::Corrupt { what: "write an event", why: error.to_string() })?;
    let mut first = Stored::new(KindId::Event, namespace, &name, now, object);
    managers::note_hub(None, &mut first, now);
    // Most are new.
    if tx.put_new(first).await? {
        // Once for as long as the Event is kept, however often it is tried again.
        if reason == Reason::AccessDenied.as_str() {
            tx.note(&refusal(about, message)).await?;
        }
        return Ok(true);
    }
    let Some(before) = tx.get(KindId::Event, namespace, &name).await? else { return Ok(false) };
    count(tx, before, now).await?;
    Ok(false)
}

/// Says of an Event that it has happened again.
async fn count(tx: &mut Tx, before: Stored, now: Timestamp) -> Result<(), StoreError> {
    let mut again = before.clone();
    let count = before.object["count"].as_i64().unwrap_or(1).saturating_add(1);
    again.object["count"] = count.into();
    again.object["lastTimestamp"] = Time(now).to_string().into();
    managers::note_hub(Some(&before), &mut again, now);
    tx.put(again).await?;
    Ok(())
}

/// Where the events of an object are.
fn namespace(about: &Stored) -> &str {
    if about.namespace.is_empty() { DEFAULT_NAMESPACE } else { about.namespace.as_str() }
}

/// An object of a build that its applier may not write on the hub.
pub(crate) struct DeniedChild {
    kind: KindId,
    namespace: String,
    name: String,
    why: String,
}

impl DeniedChild {
    pub(crate) fn of(child: &Child, why: &str) -> Self {
        let (namespace, name) = (child.namespace.clone(), child.name.clone());
        Self { kind: child.kind, namespace, name, why: why.to_owned() }
    }
}

/// Puts each object of its build that an applier may not write on the hub into the audit log, beside the entry for the applier itself,
/// which names the first of them. To be called where the Event that says so is new.
pub(crate) async fn on_denied_children(
    tx: &mut Tx,
    about: &Stored,
    denied: &[DeniedChild],
) -> Result<(), StoreError> {
    let who = reconciles_as(about);
    for child in denied.iter().take(MAX_DENIED) {
        let entry = audit::about(&who, "patch", child.kind, &child.namespace, &child.name);
        tx.note(&refused(entry, &child.why)).await?;
    }
    let more = denied.len().saturating_sub(MAX_DENIED);
    if more > 0 {
        let entry = audit::about(&who, "reconcile", about.kind, &about.namespace, &about.name);
        tx.note(&refused(entry, &format!("{more} more objects of its build were refused"))).await?;
    }
    Ok(())
}

/// The audit log's entry of an object that was refused something when the hub reconciled it. An applier is refused by the name by which it
/// writes, with the revision that it tried last; other objects are reconciled as the hub.
fn refusal(about: &Stored, message: &str) -> AuditEntry {
    let entry = audit::about(&reconciles_as(about), "reconcile", about.kind, &about.namespace, &about.name);
    refused(entry, message)
}

/// As whom an object is reconciled.
fn reconciles_as(about: &Stored) -> Identity {
    if !about.kind.is_applier() {
        return Identity::hub();
    }
    let revision =
        about.object.pointer("/status/lastAttemptedRevision").and_then(|revision| revision.as_str());
    Identity::applier(&about.applier_ref(), revision.unwrap_or_default())
}

fn refused(entry: AuditEntry, why: &str) -> AuditEntry {
    let mut entry = AuditEntry { outcome: AuditOutcome::Refused, detail: why.to_owned(), ..entry };
    audit::shorten(&mut entry);
    entry
}

/// The event for Alerts that listen to the object; none of kinds that no Alert can name.
fn news(about: &Stored, severity: Level, reason: &str, message: &str, now: Timestamp) -> Option<NewsItem> {
    if !triggers::is_told_of(about.kind) {
        return None;
    }
    let kind = about.kind.get();
    let mut metadata = annotations(about);
    if about.kind.is_applier() && reason == Reason::ReconciliationSucceeded.as_str() {
        // As Flux marks what closes a reconciliation: it is for commit statuses and programs, and chats hear of it after a failure.
        metadata.insert(format!("{}/commit_status", kind.group()), "update".to_owned());
    }
    let event = Told {
        involved_object: Involved {
            api_version: kind.versions[0].api_version(),
            kind: kind.kind.to_owned(),
            name: about.name.clone(),
            namespace: about.namespace.clone(),
            uid: about.uid.to_string(),
            resource_version: String::new(),
        },
        severity,
        timestamp: Time(now).to_string(),
        message: message.to_owned(),
        reason: reason.to_owned(),
        metadata,
        reporting_controller: COMPONENT.to_owned(),
        reporting_instance: String::new(),
        relayed_from: None,
        statuses_and_comments: false,
        incident: None,
        rollout: None,
    };
    Some(NewsItem {
        kind: kind.kind.to_owned(),
        namespace: about.namespace.clone(),
        name: about.name.clone(),
        is_error: severity == Level::Error,
        condition: None,
        event: serde_json::to_value(&event).ok()?,
        labels: about.labels(),
        cluster: about
            .object
            .pointer("/spec/clusterRef/name")
            .and_then(|name| name.as_str())
            .map(str::to_owned),
    })
}

/// What a reconciliation changed on its cluster and on the hub, as Flux tells it: `Deployment/apps/web configured`, and what it deleted in an
/// Event of its own.
pub(crate) async fn on_changes(
    tx: &mut Tx,
    about: &Stored,
    changes: &[ObjectResult],
    now: Timestamp,
) -> Result<(), StoreError> {
    let is_deleted = |result: &&ObjectResult| result.action == Action::Deleted;
    for changed in [
        changes.iter().filter(|result| result.action.wrote()).collect::<Vec<_>>(),
        changes.iter().filter(is_deleted).collect(),
    ] {
        if !changed.is_empty() {
            let message = listed(&changed);
            note(tx, about, "Normal", Reason::Progressing.as_str(), &message, now).await?;
        }
    }
    Ok(())
}

fn listed(changed: &[&ObjectResult]) -> String {
    // They are applied side by side: in the order of their ends, the same news would not have the same words.
    let mut changed = changed.to_vec();
    changed.sort_by(|one, other| one.object.cmp(&other.object));
    let line = |result: &&ObjectResult| format!("{} {}", result.object, result.action.as_str());
    let mut lines: Vec<String> = changed.iter().take(MAX_CHANGES).map(line).collect();
    if changed.len() > MAX_CHANGES {
        lines.push(format!("and {} more", changed.len() - MAX_CHANGES));
    }
    shortened(&lines.join("\n"))
}

/// What the object's own annotations add to its events, as far as there is room, and the revision that it was tried at; of a source
/// the digest of its artifact, too.
fn annotations(about: &Stored) -> BTreeMap<String, String> {
    let own = about.object["metadata"]["annotations"].as_object().into_iter().flatten();
    let added = own.filter(|(key, _)| key.starts_with(EVENT_METADATA));
    let mut room = MAX_EVENT_METADATA;
    let mut annotations = BTreeMap::new();
    for (key, value) in added {
        let Some(value) = value.as_str() else { continue };
        let Some(left) = room.checked_sub(key.len() + value.len()) else { continue };
        room = left;
        annotations.insert(key.clone(), value.to_owned());
    }
    let status = &about.object["status"];
    // What a source has stays while it fails, and is not what fails.
    let is_ready = |one: &serde_json::Value| one["type"] == READY && one["status"] == "True";
    let conditions = status["conditions"].as_array();
    let artifact = &status["artifact"];
    let artifact = Some(artifact).filter(|_| conditions.is_some_and(|all| all.iter().any(is_ready)));
    let of_artifact = |key: &str| artifact.and_then(|artifact| artifact[key].as_str());
    let revision = status["lastAttemptedRevision"].as_str().or_else(|| of_artifact("revision"));
    if let Some(revision) = revision {
        annotations.insert(format!("{}/revision", about.kind.get().group()), revision.to_owned());
    }
    if let Some(digest) = of_artifact("digest") {
        annotations.insert(format!("{}/digest", about.kind.get().group()), digest.to_owned());
    }
    annotations
}

/// The same news of the same object has the same name.
fn name(about: &Stored, type_: &str, reason: &str, message: &str) -> String {
    let digest = Digest::of(format!("{}\0{type_}\0{reason}\0{message}", about.uid).as_bytes()).hex();
    let cut = about.name.get(..NAME).unwrap_or(&about.name).trim_end_matches(['-', '.']);
    format!("{cut}.{}", &digest[..16])
}

impl Objects {
    /// Drops events that last happened before then, and those that were told of clusters.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_old_events(&self, before: Timestamp) -> Result<(), HubError> {
        self.store.drop_old_relayed(before).await?;
        loop {
            let old = self.store.old_events(before, BATCH).await?;
            let all = i64::try_from(old.len()).unwrap_or(i64::MAX) < BATCH;
            let mut tx = self.store.begin().await?;
            for uid in old {
                tx.remove(uid).await?;
            }
            tx.commit().await?;
            if all {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_api::{KindId, rules::is_dns_subdomain};
    use roadstead_hub_store::Stored;
    use serde_json::json;

    use super::name;

    #[test]
    fn names_are_names() {
        for long in ["a".to_owned(), "a".repeat(253), format!("{}-.b", "a".repeat(198))] {
            let about =
                Stored::new(KindId::Kustomization, "default", &long, Timestamp::UNIX_EPOCH, json!({}));
            let one = name(&about, "Normal", "Succeeded", "x");
            assert!(is_dns_subdomain(&one), "{one}");
            assert_eq!(one, name(&about, "Normal", "Succeeded", "x"));
            assert_ne!(one, name(&about, "Normal", "Succeeded", "y"));
        }
    }
}
