//! Kinds that run Pods.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::Health;
use crate::fields::{Condition, Fields, bounded};

/// How long a Pod may be unschedulable before it counts as stuck (kstatus' own figure).
const SCHEDULE_WINDOW: SignedDuration = SignedDuration::from_secs(15);

/// `spec.replicas`, which the apiserver defaults to one.
fn wanted(fields: &Fields<'_>) -> i64 {
    fields.integer("/spec/replicas").unwrap_or(1)
}

/// `wanted` of something must be reached by `have`: else what is waited for, as `Replicas: 1/3`.
fn short(what: &str, have: i64, wanted: i64) -> Option<Health> {
    (wanted > have).then(|| Health::in_progress(format!("{what}: {have}/{wanted}")))
}

pub(crate) fn deployment(fields: &Fields<'_>) -> Health {
    let progressing = fields.condition("Progressing");
    if let Some(condition) = &progressing
        && condition.reason == "ProgressDeadlineExceeded"
    {
        return Health::failed(condition.explain());
    }
    let wanted = wanted(fields);
    let replicas = fields.count("/status/replicas");
    let updated = fields.count("/status/updatedReplicas");
    let available = fields.count("/status/availableReplicas");
    let ready = fields.count("/status/readyReplicas");
    let waits = short("Replicas", replicas, wanted)
        .or_else(|| short("Updated", updated, wanted))
        .or_else(|| {
            (replicas > wanted)
                .then(|| Health::in_progress(format!("Pending termination: {}", replicas - wanted)))
        })
        .or_else(|| short("Available", available, updated))
        .or_else(|| short("Ready", ready, wanted));
    if let Some(health) = waits {
        return health;
    }
    // Without a deadline the controller writes no Progressing condition at all.
    let rolled_out = fields.at("/spec/progressDeadlineSeconds").is_none_or(Value::is_null)
        || progressing
            .is_some_and(|condition| condition.is_true() && condition.reason == "NewReplicaSetAvailable");
    if !rolled_out {
        return Health::in_progress("ReplicaSet not Available");
    }
    if !fields.condition("Available").is_some_and(|condition| condition.is_true()) {
        return Health::in_progress("Deployment not Available");
    }
    Health::current(format!("Deployment is available. Replicas: {replicas}"))
}

pub(crate) fn stateful_set(fields: &Fields<'_>) -> Health {
    if fields.text("/spec/updateStrategy/type") == "OnDelete" {
        return Health::current("StatefulSet is using the OnDelete update strategy");
    }
    let wanted = wanted(fields);
    let replicas = fields.count("/status/replicas");
    let ready = fields.count("/status/readyReplicas");
    let current = fields.count("/status/currentReplicas");
    let updated = fields.count("/status/updatedReplicas");
    let waits = short("Replicas", replicas, wanted).or_else(|| short("Ready", ready, wanted)).or_else(|| {
        (replicas > wanted)
            .then(|| Health::in_progress(format!("Pending termination: {}", replicas - wanted)))
    });
    if let Some(health) = waits {
        return health;
    }
    if let Some(partition) = fields.integer("/spec/updateStrategy/rollingUpdate/partition").filter(|p| *p > 0)
    {
        let due = wanted.saturating_sub(partition);
        return short("Updated", updated, due)
            .unwrap_or_else(|| Health::current(format!("Partition rollout complete. Updated: {updated}")));
    }
    if let Some(health) = short("Current", current, wanted) {
        return health;
    }
    let (now, next) = (fields.text("/status/currentRevision"), fields.text("/status/updateRevision"));
    if now != next {
        return Health::in_progress("Waiting for updated revision to match current");
    }
    Health::current(format!("All replicas scheduled as expected. Replicas: {replicas}"))
}

pub(crate) fn daemon_set(fields: &Fields<'_>) -> Health {
    if fields.integer("/metadata/generation").is_none()
        || fields.integer("/status/observedGeneration").is_none()
    {
        return Health::in_progress("Missing .metadata.generation or .status.observedGeneration");
    }
    let Some(desired) = fields.integer("/status/desiredNumberScheduled") else {
        return Health::in_progress("Missing .status.desiredNumberScheduled");
    };
    short("Current", fields.count("/status/currentNumberScheduled"), desired)
        .or_else(|| short("Updated", fields.count("/status/updatedNumberScheduled"), desired))
        .or_else(|| short("Available", fields.count("/status/numberAvailable"), desired))
        .or_else(|| short("Ready", fields.count("/status/numberReady"), desired))
        .unwrap_or_else(|| {
            Health::current(format!("All replicas scheduled as expected. Replicas: {desired}"))
        })
}

pub(crate) fn replica_set(fields: &Fields<'_>) -> Health {
    if let Some(failure) = fields.condition("ReplicaFailure").filter(Condition::is_true) {
        return Health::in_progress(failure.explain());
    }
    let wanted = wanted(fields);
    let replicas = fields.count("/status/replicas");
    short("Labelled", fields.count("/status/fullyLabeledReplicas"), wanted)
        .or_else(|| short("Available", fields.count("/status/availableReplicas"), wanted))
        .or_else(|| short("Ready", fields.count("/status/readyReplicas"), wanted))
        .or_else(|| {
            (replicas > wanted)
                .then(|| Health::in_progress(format!("Pending termination: {}", replicas - wanted)))
        })
        .unwrap_or_else(|| Health::current(format!("ReplicaSet is available. Replicas: {replicas}")))
}

pub(crate) fn pod(fields: &Fields<'_>, now: Timestamp) -> Health {
    match fields.text("/status/phase") {
        "Succeeded" => Health::current("Pod has completed successfully"),
        "Failed" => Health::current("Pod has completed, but not successfully"),
        "Running" => {
            if fields.condition("Ready").is_some_and(|ready| ready.is_true()) {
                return Health::current("Pod is Ready");
            }
            crash_looping(fields).unwrap_or_else(|| Health::in_progress("Pod is running but is not Ready"))
        }
        "Pending" => unschedulable(fields, now)
            .or_else(|| crash_looping(fields))
            .unwrap_or_else(|| Health::in_progress("Pod is in the Pending phase")),
        "" => Health::in_progress("Pod phase not available"),
        phase => Health::in_progress(format!("Pod is in the phase {}", bounded(phase))),
    }
}

fn crash_looping(fields: &Fields<'_>) -> Option<Health> {
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = statuses.iter().filter_map(|at| fields.at(at)).filter_map(Value::as_array).flatten();
    let names: Vec<&str> = containers
        .filter(|status| {
            status.pointer("/state/waiting/reason").and_then(Value::as_str) == Some("CrashLoopBackOff")
        })
        .filter_map(|status| status.get("name").and_then(Value::as_str))
        .collect();
    (!names.is_empty())
        .then(|| Health::failed(bounded(&format!("Containers in CrashLoop state: {}", names.join(", ")))))
}

fn unschedulable(fields: &Fields<'_>, now: Timestamp) -> Option<Health> {
    let scheduled = fields.condition("PodScheduled")?;
    if !scheduled.is_false() || scheduled.reason != "Unschedulable" {
        return None;
    }
    let created: Option<Timestamp> = fields.text("/metadata/creationTimestamp").parse().ok();
    let overdue = created.is_some_and(|created| now.duration_since(created) > SCHEDULE_WINDOW);
    Some(if overdue {
        Health::failed(bounded(&format!("Pod could not be scheduled: {}", scheduled.explain())))
    } else {
        Health::in_progress("Pod has not been scheduled")
    })
}

pub(crate) fn job(fields: &Fields<'_>) -> Health {
    let (active, succeeded) = (fields.count("/status/active"), fields.count("/status/succeeded"));
    let failed = fields.count("/status/failed");
    for condition in fields.conditions().filter(Condition::is_true) {
        match condition.kind {
            "Complete" => return Health::current(format!("Job Completed. succeeded: {succeeded}")),
            "Failed" => {
                return Health::failed(format!("Job Failed. failed: {failed}: {}", condition.explain()));
            }
            "Suspended" => return Health::current("Job is suspended"),
            _ => {}
        }
    }
    if fields.text("/status/startTime").is_empty() {
        return Health::in_progress("Job not started");
    }
    Health::current(format!("Job in progress. active: {active}, succeeded: {succeeded}, failed: {failed}"))
}

/// Whether a Job has neither completed, nor failed, nor been suspended.
pub(crate) fn is_unfinished_job(fields: &Fields<'_>) -> bool {
    let ends = ["Complete", "Failed", "Suspended"];
    !fields.conditions().any(|condition| condition.is_true() && ends.contains(&condition.kind))
}
