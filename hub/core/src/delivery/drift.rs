//! What agents tell of objects that differ from what was applied, and go on doing so: it becomes the conditions Drifted and Contended, an
//! Event, and rows for views. Ready stays as it is.

use std::collections::BTreeSet;

use jiff::Timestamp;
use roadstead_api::{AnyApplier, ApplierStatus, ConditionStatus};
use roadstead_hub_store::Tx;
use roadstead_model::{
    Action, ApplierUid, ChangeSet, DispatchKey, DriftState, DriftedObject, FieldDrift, ObjectRef, Reason,
};

use crate::HubError;
use crate::clusters::Session;
use crate::delivery::Delivery;
use crate::delivery::reconcile::write_status;
use crate::objects::conditions::{self, CONTENDED, DRIFTED};
use crate::objects::events;

/// How many objects a message names, and of each how many fields.
const MAX_NAMED: usize = 5;

/// What an agent tells of drift.
#[derive(Debug, Clone)]
pub struct DriftReport {
    /// The dispatch that applied the objects.
    pub key: DispatchKey,
    /// The first of those that differ.
    pub objects: Vec<DriftedObject>,
    /// How many there are.
    pub total: usize,
}

impl Delivery {
    /// Records which objects the session's agent says go on differing. What is not about what was sent last to its cluster is passed
    /// over, and so is what the applier does not own there.
    ///
    /// # Errors
    /// `Conflict` where this is not the cluster's session any more; else where the database fails. It is to be told again then.
    pub async fn drift_reported(&self, session: &Session, report: &DriftReport) -> Result<(), HubError> {
        self.sessions.must_be_current(session).await?;
        let now = self.clock.now();
        let DriftReport { key, objects, total } = report;
        // Each counts once, whatever the agent says.
        let mut owned: BTreeSet<ObjectRef> =
            self.store.inventory(session.cluster, key.applier).await?.into_iter().collect();
        let is_whole = *total == objects.len();
        let objects: Vec<&DriftedObject> =
            objects.iter().filter(|drifted| owned.remove(&drifted.object)).collect();
        let mut tx = self.store.begin().await?;
        // Always the object first, as the end of a dispatch does.
        let Some(mut stored) = tx.get_by_uid(key.applier.into()).await? else { return Ok(()) };
        let Some(attempt) = tx.reported_attempt(key, session.cluster).await? else { return Ok(()) };
        if attempt.is_open || stored.deletion_timestamp.is_some() {
            return Ok(());
        }
        let news = tx.note_drifted(key.applier, session.cluster, &objects, now).await?;
        let news: Vec<&DriftedObject> =
            news.into_iter().filter_map(|place| objects.get(place).copied()).collect();
        if is_whole {
            let goes_on: Vec<ObjectRef> = objects.iter().map(|drifted| drifted.object.clone()).collect();
            tx.settle_drift(key.applier, &goes_on, now).await?;
        }
        let generation = key.generation.0;
        let suspended = stored.decode::<AnyApplier>()?.spec.suspend;
        let others = total - report.objects.len().min(*total);
        write_status(&mut tx, &mut stored, suspended, now, |status, _| {
            note(status, &objects, others, generation, now);
        })
        .await?;
        for state in [DriftState::Reported, DriftState::Contended, DriftState::Failed] {
            let those: Vec<&DriftedObject> =
                news.iter().copied().filter(|news| news.state == state).collect();
            if !those.is_empty() {
                let type_ = if state == DriftState::Reported { "Normal" } else { "Warning" };
                let message = conditions::shortened(&told(state, &those, 0));
                events::note(&mut tx, &stored, type_, reason(state).as_str(), &message, now).await?;
                tracing::info!(applier = %stored, cluster = session.name, message, "objects differ from what was applied");
            }
        }
        tx.commit().await?;
        Ok(())
    }
}

/// After an attempt that applied everything: what it left as it is goes on differing, and nothing else. If more does, the agent says so
/// again. `drifts` where anything did until then.
pub(super) async fn settle(
    tx: &mut Tx,
    applier: ApplierUid,
    drifts: bool,
    changes: &ChangeSet,
    now: Timestamp,
) -> Result<bool, HubError> {
    let drifted = changes.iter().filter(|result| result.action == Action::Drifted);
    let drifted: Vec<ObjectRef> = drifted.map(|result| result.object.clone()).collect();
    if drifts {
        tx.settle_drift(applier, &drifted, now).await?;
    }
    Ok(drifted.is_empty())
}

/// Nothing goes on differing.
pub(super) fn clear(status: &mut ApplierStatus) {
    status.conditions.retain(|condition| ![DRIFTED, CONTENDED].contains(&condition.type_.as_str()));
}

/// Sets the conditions, which are there only while there is something to say.
fn note(
    status: &mut ApplierStatus,
    objects: &[&DriftedObject],
    others: usize,
    generation: i64,
    now: Timestamp,
) {
    let of = |states: &[DriftState]| -> Vec<&DriftedObject> {
        objects.iter().copied().filter(|drifted| states.contains(&drifted.state)).collect()
    };
    let (failed, reported, contended) =
        (of(&[DriftState::Failed]), of(&[DriftState::Reported]), of(&[DriftState::Contended]));
    let mut said = Vec::new();
    if !failed.is_empty() {
        said.push(told(DriftState::Failed, &failed, 0));
    }
    if !reported.is_empty() {
        said.push(told(DriftState::Reported, &reported, others));
    }
    let why = if failed.is_empty() { DriftState::Reported } else { DriftState::Failed };
    let contended =
        if contended.is_empty() { None } else { Some(told(DriftState::Contended, &contended, 0)) };
    let drifted = if said.is_empty() { None } else { Some(said.join("; ")) };
    for (type_, state, message) in [(DRIFTED, why, drifted), (CONTENDED, DriftState::Contended, contended)] {
        match message {
            None => status.conditions.retain(|condition| condition.type_ != type_),
            Some(message) => {
                let is = ConditionStatus::True;
                conditions::set(&mut status.conditions, type_, is, reason(state), &message, generation, now);
            }
        }
    }
}

fn reason(state: DriftState) -> Reason {
    match state {
        DriftState::Reported => Reason::DriftDetected,
        DriftState::Contended => Reason::Contended,
        DriftState::Failed => Reason::CorrectionFailed,
    }
}

/// `1 object differs from what was applied, and is left as it is: ConfigMap dev/web: /data/word (changed by kubectl-edit)`, and so on.
fn told(state: DriftState, objects: &[&DriftedObject], others: usize) -> String {
    let total = objects.len() + others;
    let (noun, differs) = if total == 1 { ("object", "differs") } else { ("objects", "differ") };
    let (is, its) = if total == 1 { ("is", "it is") } else { ("are", "they are") };
    let what = match state {
        DriftState::Reported => {
            format!("{total} {noun} {differs} from what was applied, and {is} left as {its}")
        }
        DriftState::Contended => format!("{total} {noun} {is} changed again each time {its} corrected"),
        DriftState::Failed => {
            format!("{total} {noun} {differs} from what was applied, and cannot be corrected")
        }
    };
    let mut named: Vec<String> = objects.iter().take(MAX_NAMED).map(|drifted| named(drifted)).collect();
    if total > named.len() {
        named.push(format!("and {} more", total - named.len()));
    }
    format!("{what}: {}", named.join("; "))
}

fn named(drifted: &DriftedObject) -> String {
    let DriftedObject { object, state, missing, managers, fields, corrected, message } = drifted;
    let mut text = object.to_string();
    if *missing {
        text.push_str(": it was deleted");
    } else if !fields.is_empty() {
        text.push_str(&format!(": {}", paths(fields)));
    }
    if !managers.is_empty() {
        text.push_str(&format!(" (changed by {})", managers.join(", ")));
    }
    if *state == DriftState::Contended {
        text.push_str(&format!(", corrected {corrected} times"));
    }
    if !message.is_empty() {
        text.push_str(&format!(": {message}"));
    }
    text
}

/// The first fields that differ, as JSON pointers.
pub(super) fn paths(fields: &[FieldDrift]) -> String {
    let mut paths: Vec<&str> = fields.iter().take(MAX_NAMED).map(|field| field.path.as_str()).collect();
    if fields.len() > MAX_NAMED {
        paths.push("and more");
    }
    paths.join(", ")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_api::ApplierStatus;
    use roadstead_model::{DriftState, DriftedObject, FieldDrift, ObjectRef};

    use super::{clear, note};
    use crate::objects::conditions::{self, CONTENDED, DRIFTED};

    fn drifted(name: &str, state: DriftState) -> DriftedObject {
        let object = ObjectRef {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "dev".to_owned(),
            name: name.to_owned(),
        };
        let fields = vec![FieldDrift { path: "/data/word".to_owned(), values: None }];
        let (managers, message) = (vec!["kubectl-edit".to_owned()], String::new());
        DriftedObject { object, state, missing: false, managers, fields, corrected: 5, message }
    }

    fn said(status: &ApplierStatus, type_: &str) -> Option<(String, String)> {
        let condition = conditions::find(&status.conditions, type_)?;
        Some((condition.reason.clone(), condition.message.clone()))
    }

    #[test]
    fn conditions_say_what_differs_for_as_long_as_it_does() {
        let mut status = ApplierStatus::default();
        let take = |status: &mut ApplierStatus, objects: &[DriftedObject], others| {
            let objects: Vec<&DriftedObject> = objects.iter().collect();
            note(status, &objects, others, 1, Timestamp::UNIX_EPOCH);
        };
        take(&mut status, &[drifted("web", DriftState::Reported)], 0);
        let want = "1 object differs from what was applied, and is left as it is: ConfigMap/dev/web: /data/word (changed by kubectl-edit)";
        assert_eq!(said(&status, DRIFTED), Some(("DriftDetected".to_owned(), want.to_owned())));
        let missing =
            DriftedObject { missing: true, fields: Vec::new(), ..drifted("db", DriftState::Reported) };
        take(&mut status, &[missing, drifted("fight", DriftState::Contended)], 7);
        let want = "8 objects differ from what was applied, and are left as they are: ConfigMap/dev/db: it was deleted (changed by \
                    kubectl-edit); and 7 more";
        assert_eq!(said(&status, DRIFTED).map(|said| said.1).as_deref(), Some(want));
        let want = "1 object is changed again each time it is corrected: ConfigMap/dev/fight: /data/word (changed by kubectl-edit), \
                    corrected 5 times";
        assert_eq!(said(&status, CONTENDED), Some(("Contended".to_owned(), want.to_owned())));
        let failed =
            DriftedObject { message: "denied by a webhook".to_owned(), ..drifted("web", DriftState::Failed) };
        take(&mut status, &[failed], 0);
        let (reason, message) = said(&status, DRIFTED).unwrap();
        assert!(
            reason == "CorrectionFailed"
                && message.ends_with("(changed by kubectl-edit): denied by a webhook"),
            "{message}"
        );
        assert_eq!(said(&status, CONTENDED), None);
        clear(&mut status);
        assert_eq!(said(&status, DRIFTED), None);
    }
}
