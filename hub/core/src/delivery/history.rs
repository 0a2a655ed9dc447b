//! What a status says beyond the outcome of the newest attempt, as Flux has it: `status.history`, and the condition Healthy.
//!
//! Neither changes with every attempt, so that an object at rest causes no change for its watchers.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::kustomization::HistoryEntry;
use roadstead_api::{AnyApplier, ApplierSpec, ApplierStatus, ConditionStatus, Time};
use roadstead_hub_store::{AttemptInputs, Outcome};
use roadstead_model::{AttemptKind, GoDuration, Reason, Stage};

use crate::objects::conditions::{self, HEALTHY};

/// How many outcomes are kept.
const MAX_HISTORY: usize = 5;

/// Whether the spec asks for health checks.
pub(super) fn asks(spec: &ApplierSpec) -> bool {
    spec.wait || !spec.health_checks.is_empty()
}

/// Sets Healthy to Unknown before health is checked, or removes it if nobody asks.
pub(super) fn health_is_checked(
    status: &mut ApplierStatus,
    spec: &ApplierSpec,
    generation: i64,
    now: Timestamp,
) {
    if !asks(spec) {
        status.conditions.retain(|condition| condition.type_ != HEALTHY);
        return;
    }
    let message = running(status.last_attempted_revision.as_deref().unwrap_or_default(), spec);
    let conditions = &mut status.conditions;
    let reason = Reason::Progressing;
    conditions::set(conditions, HEALTHY, ConditionStatus::Unknown, reason, &message, generation, now);
}

/// What Healthy says while health is checked.
pub(super) fn running(revision: &str, spec: &ApplierSpec) -> String {
    format!("Running health checks for revision {revision} with a timeout of {}", spec.timeout())
}

/// Whether health is unknown since the cluster could not be seen: then it is checked again once that is over.
pub(super) fn is_unseen(applier: &AnyApplier) -> bool {
    let healthy = applier
        .status
        .as_ref()
        .and_then(|status| status.applier.conditions.iter().find(|condition| condition.type_ == HEALTHY));
    healthy.is_some_and(|healthy| healthy.reason == Reason::ClusterUnreachable.as_str())
}

/// Sets Healthy to Unknown where it was checked and the cluster cannot be seen any more.
pub(super) fn health_is_unseen(status: &mut ApplierStatus, cluster: &str, generation: i64, now: Timestamp) {
    let conditions = &mut status.conditions;
    if conditions.iter().any(|condition| condition.type_ == HEALTHY) {
        let message = format!(
            "what is healthy is not known: the API server of cluster {cluster} does not answer its agent"
        );
        let (unknown, reason) = (ConditionStatus::Unknown, Reason::ClusterUnreachable);
        conditions::set(conditions, HEALTHY, unknown, reason, &message, generation, now);
    }
}

/// Records the result of the health checks; gives what is told of it where they have passed, and had not before.
pub(super) fn note_health(
    status: &mut ApplierStatus,
    spec: &ApplierSpec,
    outcome: &Outcome,
    generation: i64,
    now: Timestamp,
) -> Option<String> {
    let conditions = &mut status.conditions;
    if !asks(spec) {
        conditions.retain(|condition| condition.type_ != HEALTHY);
        return None;
    }
    let (healthy, reason, message) = match outcome.reason {
        // It was healthy before: how long it took this time does not matter.
        Reason::ReconciliationSucceeded if conditions::is_true(conditions, HEALTHY, generation) => {
            return None;
        }
        Reason::ReconciliationSucceeded => {
            let waits = outcome.timings.iter().filter(|timing| timing.stage == Stage::Wait);
            let took = GoDuration(Duration::from_micros(waits.map(|timing| timing.micros).sum()));
            (ConditionStatus::True, Reason::Succeeded, format!("Health check passed in {took}"))
        }
        Reason::HealthCheckFailed => {
            (ConditionStatus::False, Reason::HealthCheckFailed, outcome.message.clone())
        }
        // It did not get that far.
        _ => {
            conditions.retain(|condition| condition.type_ != HEALTHY);
            return None;
        }
    };
    conditions::set(conditions, HEALTHY, healthy, reason, &message, generation, now);
    (healthy == ConditionStatus::True).then_some(message)
}

/// Adds an outcome to the history. One that is in it already, with the same status, is counted there and comes to the front, as Flux has
/// it; unless it is the newest and nobody asked: what is reconciled at each interval would change the object each time.
pub(super) fn note(status: &mut ApplierStatus, inputs: &AttemptInputs, reason: Reason, now: Timestamp) {
    let (AttemptKind::Apply, Some(digest)) = (inputs.kind, inputs.build) else { return };
    // Of a build that was not finished there is no outcome.
    if reason == Reason::BuildFailed {
        return;
    }
    let revision = inputs.revision.as_ref().map_or_else(String::new, ToString::to_string);
    let metadata = BTreeMap::from([("revision".to_owned(), revision)]);
    let took = Duration::try_from(now.duration_since(inputs.started)).unwrap_or_default();
    let entry = HistoryEntry {
        digest: digest.to_string(),
        first_reconciled: Time(now),
        last_reconciled: Time(now),
        last_reconciled_duration: GoDuration(took),
        last_reconciled_status: reason.as_str().to_owned(),
        total_reconciliations: 1,
        metadata,
    };
    let is_same = |known: &HistoryEntry| {
        known.digest == entry.digest && known.last_reconciled_status == entry.last_reconciled_status
    };
    match status.history.iter().position(is_same) {
        Some(0) if status.history[0].metadata == entry.metadata && inputs.request.is_none() => {}
        Some(index) => {
            let mut known = status.history.remove(index);
            known.last_reconciled = entry.last_reconciled;
            known.last_reconciled_duration = entry.last_reconciled_duration;
            known.metadata = entry.metadata;
            known.total_reconciliations += 1;
            status.history.insert(0, known);
        }
        None => {
            status.history.insert(0, entry);
            status.history.truncate(MAX_HISTORY);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_api::ApplierStatus;
    use roadstead_hub_store::AttemptInputs;
    use roadstead_model::{ApplierUid, AttemptKind, Digest, Generation, Reason};

    use super::note;

    fn inputs(build: &[u8], revision: &str, request: Option<&str>) -> AttemptInputs {
        AttemptInputs {
            applier: ApplierUid::random(),
            cluster: None,
            generation: Generation(1),
            revision: revision.parse().ok(),
            artifact: None,
            build: Some(Digest::of(build)),
            request: request.map(str::to_owned),
            kind: AttemptKind::Apply,
            trigger: None,
            rendered_by: Default::default(),
            started: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_outcome_that_comes_again_comes_to_the_front_and_is_counted() {
        let (one, two) = (
            "main@sha1:0d27ef211864b632e7576147f5111bab8a2be737",
            "main@sha1:1d27ef211864b632e7576147f5111bab8a2be737",
        );
        let (well, sick) = (Reason::ReconciliationSucceeded, Reason::HealthCheckFailed);
        let mut status = ApplierStatus::default();
        let mut take = |inputs: &AttemptInputs, reason| {
            note(&mut status, inputs, reason, Timestamp::UNIX_EPOCH);
            let entries = status.history.iter();
            entries
                .map(|entry| (entry.last_reconciled_status.clone(), entry.total_reconciliations))
                .collect::<Vec<_>>()
        };
        let entry = |reason: Reason, total| (reason.as_str().to_owned(), total);
        assert_eq!(take(&inputs(b"a", one, None), well), [entry(well, 1)]);
        // At its interval.
        assert_eq!(take(&inputs(b"a", one, None), well), [entry(well, 1)]);
        assert_eq!(take(&inputs(b"a", one, Some("now")), well), [entry(well, 2)]);
        assert_eq!(take(&inputs(b"b", two, None), sick), [entry(sick, 1), entry(well, 2)]);
        assert_eq!(take(&inputs(b"a", one, None), well), [entry(well, 3), entry(sick, 1)]);
        // There was no build.
        assert_eq!(take(&inputs(b"c", two, None), Reason::BuildFailed), [entry(well, 3), entry(sick, 1)]);
    }
}
