//! What agents tell of health after a dispatch has ended well, and of what it waits for until then: it becomes the condition
//! Healthy, where health is asked for, and what views show of the objects. Ready stays as it is, and whoever goes by it is left alone.

use jiff::Timestamp;
use roadstead_api::{AnyApplier, ApplierSpec, ApplierStatus, ConditionStatus};
use roadstead_hub_store::{ReportedAttempt, ReportedHealth};
use roadstead_model::{DispatchKey, ObjectRef, Reason};

use crate::HubError;
use crate::clusters::Session;
use crate::delivery::reconcile::write_status;
use crate::delivery::{Delivery, history};
use crate::objects::conditions::{self, HEALTHY};
use crate::objects::events;

/// How many bytes of an object's health are kept.
const MAX_HEALTH: usize = 1024;

/// What an agent tells of health.
#[derive(Debug, Clone)]
pub struct HealthReport {
    /// The dispatch that waits, or has waited.
    pub key: DispatchKey,
    /// How all objects are together.
    pub state: HealthState,
    /// Names objects and why; empty where all are healthy.
    pub message: String,
    /// They are healthy again.
    pub recovered: bool,
    /// Objects whose health has changed, with it in words.
    pub objects: Vec<(ObjectRef, String)>,
}

/// How all objects are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// The dispatch still waits for them.
    Waiting,
    /// They are healthy.
    Healthy,
    /// Some are on their way.
    Progressing,
    /// Some are not healthy, and not on their way either.
    Failing,
}

/// What is to be told of a change of Healthy.
struct Told {
    type_: &'static str,
    reason: Reason,
    message: String,
}

impl Delivery {
    /// Records what the session's agent tells of health. What is not about what was sent last to its cluster is passed over.
    ///
    /// # Errors
    /// `Conflict` where this is not the cluster's session any more; else where the database fails. It is to be told again then.
    pub async fn health_reported(&self, session: &Session, report: &HealthReport) -> Result<(), HubError> {
        self.sessions.must_be_current(session).await?;
        let now = self.clock.now();
        let key = &report.key;
        let mut tx = self.store.begin().await?;
        // Always the object first, as the end of a dispatch does.
        let Some(mut stored) = tx.get_by_uid(key.applier.into()).await? else { return Ok(()) };
        let Some(attempt) = tx.reported_attempt(key, session.cluster).await? else { return Ok(()) };
        let is_meant = if report.state == HealthState::Waiting {
            attempt.is_open
        } else {
            !attempt.is_open && attempt.has_succeeded
        };
        if !is_meant || stored.deletion_timestamp.is_some() {
            return Ok(());
        }
        let applier: AnyApplier = stored.decode()?;
        let spec = &applier.spec;
        if report.state != HealthState::Waiting && !report.objects.is_empty() {
            let told: Vec<ReportedHealth<'_>> =
                report.objects.iter().map(|(object, health)| reported(spec, object, health)).collect();
            tx.note_health(key, session.cluster, attempt.attempt, &told).await?;
        }
        let mut told = None;
        if history::asks(spec) {
            let generation = key.generation.0;
            write_status(&mut tx, &mut stored, spec.suspend, now, |status, _| {
                told = note(status, spec, report, &attempt, generation, now);
            })
            .await?;
        }
        if let Some(Told { type_, reason, message }) = &told {
            let told = (*type_, reason.as_str(), message.as_str());
            events::note_condition(&mut tx, &stored, Some(HEALTHY), told, now).await?;
        }
        tx.commit().await?;
        if let Some(Told { message, .. }) = told {
            tracing::info!(applier = %stored, cluster = session.name, message, "health has changed");
        }
        Ok(())
    }
}

fn reported<'a>(spec: &ApplierSpec, object: &'a ObjectRef, health: &str) -> ReportedHealth<'a> {
    let is_named = spec.health_checks.iter().any(|check| {
        (check.kind.as_str(), check.name.as_str()) == (object.kind.as_str(), object.name.as_str())
    });
    let health = health[..health.floor_char_boundary(MAX_HEALTH)].to_owned();
    ReportedHealth { object, health, is_named }
}

/// Sets Healthy by a report, and gives what is to be told of that: that it turned False, or True again.
fn note(
    status: &mut ApplierStatus,
    spec: &ApplierSpec,
    report: &HealthReport,
    attempt: &ReportedAttempt,
    generation: i64,
    now: Timestamp,
) -> Option<Told> {
    let before = conditions::find(&status.conditions, HEALTHY);
    let was = before.map(|healthy| healthy.status);
    let is_newer =
        before.and_then(|healthy| healthy.observed_generation).is_some_and(|seen| seen > generation);
    let is_unseen = before.is_some_and(|healthy| healthy.reason == Reason::ClusterUnreachable.as_str());
    // What is not seen is looked at by a reconciliation once it is seen again.
    if is_newer || is_unseen {
        return None;
    }
    let HealthReport { state, message, recovered, .. } = report;
    let (is, reason, message) = match state {
        // That it waits once more for what had failed tells nothing new; and of what was healthy stays how it came to that.
        HealthState::Waiting if was == Some(ConditionStatus::False) => return None,
        HealthState::Healthy if was == Some(ConditionStatus::True) => return None,
        HealthState::Waiting => {
            let running = history::running(&attempt.revision, spec);
            let message = if message.is_empty() { running } else { format!("{running}: {message}") };
            (ConditionStatus::Unknown, Reason::Progressing, message)
        }
        HealthState::Healthy => {
            let message = "All objects that were waited for are healthy".to_owned();
            (ConditionStatus::True, Reason::Succeeded, message)
        }
        HealthState::Progressing => (ConditionStatus::Unknown, Reason::Progressing, message.clone()),
        HealthState::Failing => (ConditionStatus::False, Reason::HealthCheckFailed, message.clone()),
    };
    conditions::set(&mut status.conditions, HEALTHY, is, reason, &message, generation, now);
    let (failed, well) = (ConditionStatus::False, ConditionStatus::True);
    let message = conditions::shortened(&message);
    if is == failed && was != Some(failed) {
        Some(Told { type_: "Warning", reason, message })
    } else if is == well && (was == Some(failed) || *recovered) {
        Some(Told { type_: "Normal", reason, message })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_api::{ApplierSpec, ApplierStatus, ConditionStatus};
    use roadstead_hub_store::ReportedAttempt;
    use roadstead_model::{ApplierUid, Attempt, DispatchKey, Generation, HubEpoch, Reason};
    use serde_json::json;

    use super::{HealthReport, HealthState, note};
    use crate::objects::conditions::{self, HEALTHY};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn spec() -> ApplierSpec {
        serde_json::from_value(json!({ "interval": "1h", "timeout": "5m", "prune": true, "wait": true }))
            .unwrap()
    }

    fn report(state: HealthState, message: &str, recovered: bool) -> HealthReport {
        let key = DispatchKey {
            epoch: HubEpoch(1),
            applier: ApplierUid(uuid::Uuid::nil()),
            generation: Generation(2),
            attempt: Attempt(7),
            digest: None,
        };
        HealthReport { key, state, message: message.to_owned(), recovered, objects: Vec::new() }
    }

    fn take(status: &mut ApplierStatus, report: &HealthReport) -> Option<(&'static str, String)> {
        let attempt = ReportedAttempt {
            attempt: Attempt(7),
            is_open: report.state == HealthState::Waiting,
            has_succeeded: report.state != HealthState::Waiting,
            revision: "main@sha1:1".to_owned(),
        };
        note(status, &spec(), report, &attempt, 2, NOW).map(|told| (told.type_, told.message))
    }

    fn healthy(status: &ApplierStatus) -> (ConditionStatus, String, String) {
        let healthy = conditions::find(&status.conditions, HEALTHY).unwrap();
        (healthy.status, healthy.reason.clone(), healthy.message.clone())
    }

    fn well() -> ApplierStatus {
        let mut status = ApplierStatus::default();
        let is = ConditionStatus::True;
        conditions::set(&mut status.conditions, HEALTHY, is, Reason::Succeeded, "passed in 1s", 2, NOW);
        status
    }

    #[test]
    fn false_and_true_again_are_events_and_progress_is_none() {
        let mut status = well();
        let sick = report(HealthState::Failing, "Deployment web has failed: x", false);
        assert_eq!(take(&mut status, &sick), Some(("Warning", "Deployment web has failed: x".to_owned())));
        let (is, reason, message) = healthy(&status);
        assert_eq!((is, reason.as_str()), (ConditionStatus::False, "HealthCheckFailed"));
        assert_eq!(message, "Deployment web has failed: x");
        assert_eq!(take(&mut status, &sick), None, "it is told once");
        let on_its_way = report(HealthState::Progressing, "Deployment web: 1 of 2 updated", false);
        assert_eq!(take(&mut status, &on_its_way), None);
        assert_eq!(healthy(&status).0, ConditionStatus::Unknown);
        let again = report(HealthState::Healthy, "", true);
        let told = take(&mut status, &again).unwrap();
        assert_eq!(told.0, "Normal");
        assert_eq!(healthy(&status).0, ConditionStatus::True);
        assert_eq!(take(&mut status, &again), None);
        // A rollout.
        assert_eq!(take(&mut status, &on_its_way), None);
        assert_eq!(take(&mut status, &report(HealthState::Healthy, "", false)), None);
        assert_eq!(healthy(&status).0, ConditionStatus::True);
    }

    #[test]
    fn what_is_waited_for_is_named_and_what_had_failed_stays_so_until_the_end() {
        let waits = report(HealthState::Waiting, "Deployment web: 2 of 3 updated", false);
        let mut status = ApplierStatus::default();
        assert_eq!(take(&mut status, &waits), None);
        let (is, reason, message) = healthy(&status);
        assert_eq!((is, reason.as_str()), (ConditionStatus::Unknown, "Progressing"));
        let want = "Running health checks for revision main@sha1:1 with a timeout of 5m0s: Deployment web: 2 of 3 updated";
        assert_eq!(message, want);
        let mut status = well();
        take(&mut status, &report(HealthState::Failing, "x", false));
        take(&mut status, &waits);
        assert_eq!(healthy(&status).0, ConditionStatus::False);
    }

    #[test]
    fn what_was_said_before_a_success_stays_and_so_does_what_is_newer_or_unseen() {
        let mut status = well();
        take(&mut status, &report(HealthState::Healthy, "", false));
        assert_eq!(healthy(&status).2, "passed in 1s");
        for (generation, reason) in [(3, Reason::Progressing), (2, Reason::ClusterUnreachable)] {
            let mut status = ApplierStatus::default();
            let is = ConditionStatus::Unknown;
            conditions::set(&mut status.conditions, HEALTHY, is, reason, "x", generation, NOW);
            assert_eq!(take(&mut status, &report(HealthState::Failing, "sick", false)), None);
            assert_eq!(healthy(&status).0, is);
        }
    }
}
