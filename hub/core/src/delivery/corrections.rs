//! What agents correct by themselves: recorded as an attempt of its own, with who had changed what.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use roadstead_hub_store::{CorrectedDrift, RecordedCorrection};
use roadstead_model::{
    Action, ApplierUid, ChangeSet, DispatchKey, FieldDrift, ObjectRef, ObjectResult, Queue, ResourceUid,
    Stage, StepTiming,
};

use crate::HubError;
use crate::clusters::Session;
use crate::delivery::seen::SeenApplier;
use crate::delivery::{Delivery, drift};
use crate::objects::{conditions, events};

/// How many objects a message names.
const MAX_NAMED: usize = 5;

/// What an agent corrected.
#[derive(Debug, Clone)]
pub struct AgentCorrection {
    /// The dispatch that applied what was corrected.
    pub key: DispatchKey,
    /// How long ago it began.
    pub ago: Duration,
    /// How long it took.
    pub took: Duration,
    /// What was corrected.
    pub objects: Vec<CorrectedObject>,
    /// How many corrections before it, of any applier of the cluster, are not told.
    pub forgotten: u64,
}

/// An object that was corrected.
#[derive(Debug, Clone)]
pub struct CorrectedObject {
    /// The object.
    pub object: ObjectRef,
    /// What was done to it.
    pub action: Action,
    /// Who had changed it, as far as that is known.
    pub managers: Vec<String>,
    /// Where it differed.
    pub fields: Vec<FieldDrift>,
}

impl Delivery {
    /// Records what the session's agent corrected. What is not owned by the applier there is left out; where a newer attempt is under
    /// way, there are events only.
    ///
    /// # Errors
    /// `Conflict` where this is not the cluster's session any more; else where the database fails. It is to be told again then.
    pub async fn corrected(&self, session: &Session, correction: &AgentCorrection) -> Result<(), HubError> {
        self.sessions.must_be_current(session).await?;
        let AgentCorrection { key, ago, took, objects, forgotten } = correction;
        let now = self.clock.now();
        let owned: BTreeSet<ObjectRef> =
            self.store.inventory(session.cluster, key.applier).await?.into_iter().collect();
        let objects: Vec<&CorrectedObject> =
            objects.iter().filter(|corrected| owned.contains(&corrected.object)).collect();
        let changes: ChangeSet = objects
            .iter()
            .map(|corrected| ObjectResult::new(corrected.object.clone(), corrected.action))
            .collect();
        if changes.is_empty() {
            return Ok(());
        }
        let message = conditions::shortened(&format!("{}{}", told(&objects), not_told(*forgotten)));
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let (began, ended) = (now - *ago, now - ago.saturating_sub(*took));
        let timings = [StepTiming { step: None, label: None, stage: Stage::Apply, micros }];
        let mut tx = self.store.begin().await?;
        let Some(stored) = tx.get_by_uid(key.applier.into()).await? else { return Ok(()) };
        let recorded = tx
            .record_correction(&RecordedCorrection {
                key,
                cluster: session.cluster,
                changes: &changes,
                message: &message,
                timings: &timings,
                began,
                ended,
            })
            .await?;
        // Each once, whatever the agent says.
        let corrected: BTreeMap<&ObjectRef, CorrectedDrift<'_>> = objects
            .iter()
            .map(|CorrectedObject { object, action, managers, fields }| {
                let missing = *action == Action::Created;
                (object, CorrectedDrift { object, missing, managers, fields })
            })
            .collect();
        let corrected: Vec<CorrectedDrift<'_>> = corrected.into_values().collect();
        tx.note_corrected(key.applier, session.cluster, &corrected, began, now).await?;
        events::on_changes(&mut tx, &stored, &changes, now).await?;
        tx.commit().await?;
        tracing::info!(
            applier = %stored, cluster = session.name, attempt = recorded.map(|attempt| attempt.0), message,
            "an agent corrected what others had changed"
        );
        Ok(())
    }

    /// Records which appliers the session's agent tends from now on, and which it does not any more. A pass over those
    /// decides when they are looked at next.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tended(
        &self,
        session: &Session,
        begun: &[ApplierUid],
        ended: &[ApplierUid],
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let ended = tx.note_tended(session.cluster, session.id, begun, ended, now).await?;
        let mut ended: Vec<ResourceUid> = ended.into_iter().map(ResourceUid::from).collect();
        ended.sort();
        if !ended.is_empty() {
            tx.enqueue(Queue::Applier, &ended).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The appliers of which the session's agent is to correct nothing before their next dispatch, and was not told so yet; each with
    /// whether it goes on telling their health.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn take_resting(&self, session: &Session) -> Result<Vec<(ApplierUid, bool)>, HubError> {
        Ok(self.store.take_resting(session.cluster, session.id).await?)
    }

    /// Has the agent correct nothing of an applier before its next dispatch. One that is suspended is looked at all the same: who
    /// suspends it wants it left alone, and not unseen.
    pub(super) async fn rest(&self, seen: &SeenApplier) -> Result<(), HubError> {
        let Some(cluster) = seen.situation.last.as_ref().and_then(|last| last.cluster) else { return Ok(()) };
        let mut tx = self.store.begin().await?;
        let health_goes_on = seen.situation.suspended && !seen.situation.deleting;
        if seen.unchanged(&mut tx).await?.is_some()
            && tx.rest(seen.situation.uid, cluster, health_goes_on).await?
        {
            tx.commit().await?;
        }
        Ok(())
    }
}

/// What a message says of corrections that are not known; nothing where all are.
fn not_told(forgotten: u64) -> String {
    match forgotten {
        0 => String::new(),
        1 => "; 1 earlier correction in the cluster is not recorded: too many waited while the hub was away"
            .to_owned(),
        _ => format!(
            "; {forgotten} earlier corrections in the cluster are not recorded: too many waited while the hub was away"
        ),
    }
}

/// `corrected ConfigMap dev/web: /data/word (changed by kubectl-edit)`, and so on.
fn told(objects: &[&CorrectedObject]) -> String {
    let mut named: Vec<String> = objects
        .iter()
        .take(MAX_NAMED)
        .map(|CorrectedObject { object, action, managers, fields }| {
            let what = match action {
                Action::Created => "it had been deleted".to_owned(),
                _ if fields.is_empty() => action.as_str().to_owned(),
                _ => drift::paths(fields),
            };
            let by = if managers.is_empty() {
                String::new()
            } else {
                format!(" (changed by {})", managers.join(", "))
            };
            format!("{object}: {what}{by}")
        })
        .collect();
    if objects.len() > MAX_NAMED {
        named.push(format!("and {} more", objects.len() - MAX_NAMED));
    }
    format!("Corrected {}", named.join("; "))
}
