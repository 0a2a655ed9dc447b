//! The rules of every kind, row by row.

use jiff::Timestamp;
use roadstead_kstatus::Status::{Current, Failed, InProgress, Terminating};
use roadstead_kstatus::{Health, MAX_MESSAGE, Status, compute, compute_for_kustomization};
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:01:00Z";

#[expect(clippy::expect_used, reason = "the test's own constant")]
fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

/// An object of `kind` with what `rest` says of metadata, spec and status.
fn object(api_version: &str, kind: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    for (key, value) in rest.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

/// Each row: what the object says, the status, and its message.
fn check(api_version: &str, kind: &str, rows: &[(Value, Status, &str)]) {
    for (rest, status, message) in rows {
        let health = compute(&object(api_version, kind, rest), now());
        assert_eq!((health.status, health.message.as_str()), (*status, *message), "{kind} {rest}");
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

#[test]
fn every_kind_first() {
    let stalled = condition("Stalled", "True", "Broken", "cannot go on");
    let reconciling = condition("Reconciling", "True", "Busy", "");
    for (api_version, kind) in [("v1", "ConfigMap"), ("apps/v1", "Deployment"), ("example.com/v1", "Widget")]
    {
        check(
            api_version,
            kind,
            &[
                (
                    json!({"metadata": {"deletionTimestamp": NOW, "generation": 2}, "status": {"observedGeneration": 1}}),
                    Terminating,
                    "Resource scheduled for deletion",
                ),
                (
                    json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": [stalled]}}),
                    InProgress,
                    "Generation: observed 1, latest 2",
                ),
                (json!({"status": {"conditions": [stalled, reconciling]}}), InProgress, "Busy"),
                (json!({"status": {"conditions": [stalled]}}), Failed, "cannot go on"),
            ],
        );
    }
}

#[test]
fn kinds_that_are_always_ready() {
    for (api_version, kind) in
        [("v1", "Secret"), ("v1", "ConfigMap"), ("batch/v1", "CronJob"), ("policy/v1", "PodDisruptionBudget")]
    {
        let not_ready = json!({"status": {"conditions": [condition("Ready", "False", "", "")]}});
        check(
            api_version,
            kind,
            &[
                (json!({}), Current, "Resource is always ready"),
                (not_ready, Current, "Resource is always ready"),
            ],
        );
    }
}

#[test]
fn deployment() {
    let available = condition("Available", "True", "MinimumReplicasAvailable", "");
    let rolled_out = condition("Progressing", "True", "NewReplicaSetAvailable", "");
    let rolling = condition("Progressing", "True", "ReplicaSetUpdated", "");
    let late = condition("Progressing", "False", "ProgressDeadlineExceeded", "timed out progressing");
    let status = |replicas: i64, updated: i64, available: i64, ready: i64, conditions: Value| {
        json!({"spec": {"replicas": 3, "progressDeadlineSeconds": 600}, "status": {
            "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available, "readyReplicas": ready,
            "conditions": conditions}})
    };
    check(
        "apps/v1",
        "Deployment",
        &[
            (status(3, 3, 3, 3, json!([late, available])), Failed, "timed out progressing"),
            (json!({}), InProgress, "Replicas: 0/1"),
            (status(1, 3, 3, 3, json!([])), InProgress, "Replicas: 1/3"),
            (status(3, 2, 3, 3, json!([])), InProgress, "Updated: 2/3"),
            (status(4, 3, 3, 3, json!([])), InProgress, "Pending termination: 1"),
            (status(3, 3, 1, 3, json!([])), InProgress, "Available: 1/3"),
            (status(3, 3, 3, 2, json!([])), InProgress, "Ready: 2/3"),
            (status(3, 3, 3, 3, json!([available])), InProgress, "ReplicaSet not Available"),
            (status(3, 3, 3, 3, json!([available, rolling])), InProgress, "ReplicaSet not Available"),
            (status(3, 3, 3, 3, json!([rolled_out])), InProgress, "Deployment not Available"),
            (
                status(3, 3, 3, 3, json!([rolled_out, available])),
                Current,
                "Deployment is available. Replicas: 3",
            ),
            // Without a deadline there is no Progressing condition to wait for.
            (
                json!({"spec": {"replicas": 0}, "status": {"conditions": [available]}}),
                Current,
                "Deployment is available. Replicas: 0",
            ),
        ],
    );
}

#[test]
fn stateful_set() {
    let row = |spec: Value, status: Value| json!({"spec": spec, "status": status});
    let three = json!({"replicas": 3});
    let full = json!({"replicas": 3, "readyReplicas": 3, "currentReplicas": 3, "updatedReplicas": 3,
        "currentRevision": "a", "updateRevision": "a"});
    let with = |key: &str, value: Value| {
        let mut status = full.clone();
        status[key] = value;
        status
    };
    let partition = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
    check(
        "apps/v1",
        "StatefulSet",
        &[
            (
                row(json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}}), json!({})),
                Current,
                "StatefulSet is using the OnDelete update strategy",
            ),
            (row(three.clone(), json!({})), InProgress, "Replicas: 0/3"),
            (row(three.clone(), with("readyReplicas", json!(2))), InProgress, "Ready: 2/3"),
            (row(three.clone(), with("replicas", json!(5))), InProgress, "Pending termination: 2"),
            (row(partition.clone(), with("updatedReplicas", json!(0))), InProgress, "Updated: 0/1"),
            (
                row(partition, with("updatedReplicas", json!(1))),
                Current,
                "Partition rollout complete. Updated: 1",
            ),
            (row(three.clone(), with("currentReplicas", json!(1))), InProgress, "Current: 1/3"),
            (
                row(three.clone(), with("updateRevision", json!("b"))),
                InProgress,
                "Waiting for updated revision to match current",
            ),
            (row(three, full.clone()), Current, "All replicas scheduled as expected. Replicas: 3"),
        ],
    );
}

#[test]
fn daemon_set() {
    let with = |key: &str, value: i64| {
        let mut status = json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
            "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2});
        status[key] = json!(value);
        json!({"metadata": {"generation": 1}, "status": status})
    };
    check(
        "apps/v1",
        "DaemonSet",
        &[
            (json!({}), InProgress, "Missing .metadata.generation or .status.observedGeneration"),
            (
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}),
                InProgress,
                "Missing .status.desiredNumberScheduled",
            ),
            (with("currentNumberScheduled", 1), InProgress, "Current: 1/2"),
            (with("updatedNumberScheduled", 1), InProgress, "Updated: 1/2"),
            (with("numberAvailable", 0), InProgress, "Available: 0/2"),
            (with("numberReady", 1), InProgress, "Ready: 1/2"),
            (with("numberReady", 2), Current, "All replicas scheduled as expected. Replicas: 2"),
        ],
    );
}

#[test]
fn replica_set() {
    let row = |replicas: i64, labelled: i64, available: i64, ready: i64| {
        json!({"spec": {"replicas": 2}, "status": {"replicas": replicas, "fullyLabeledReplicas": labelled,
            "availableReplicas": available, "readyReplicas": ready}})
    };
    let failure =
        json!({"status": {"conditions": [condition("ReplicaFailure", "True", "FailedCreate", "quota")]}});
    check(
        "apps/v1",
        "ReplicaSet",
        &[
            (failure, InProgress, "quota"),
            (row(2, 1, 2, 2), InProgress, "Labelled: 1/2"),
            (row(2, 2, 1, 2), InProgress, "Available: 1/2"),
            (row(2, 2, 2, 1), InProgress, "Ready: 1/2"),
            (row(3, 2, 2, 2), InProgress, "Pending termination: 1"),
            (row(2, 2, 2, 2), Current, "ReplicaSet is available. Replicas: 2"),
        ],
    );
}

#[test]
fn pod() {
    let ready = |status: &str| condition("Ready", status, "", "");
    let crash = json!([{"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    let unschedulable = |created: &str| {
        json!({"metadata": {"creationTimestamp": created}, "status": {"phase": "Pending",
            "conditions": [condition("PodScheduled", "False", "Unschedulable", "no nodes")]}})
    };
    check(
        "v1",
        "Pod",
        &[
            (json!({}), InProgress, "Pod phase not available"),
            (json!({"status": {"phase": "Succeeded"}}), Current, "Pod has completed successfully"),
            (json!({"status": {"phase": "Failed"}}), Current, "Pod has completed, but not successfully"),
            (json!({"status": {"phase": "Running", "conditions": [ready("True")]}}), Current, "Pod is Ready"),
            (
                json!({"status": {"phase": "Running", "conditions": [ready("False")]}}),
                InProgress,
                "Pod is running but is not Ready",
            ),
            (
                json!({"status": {"phase": "Running", "containerStatuses": crash}}),
                Failed,
                "Containers in CrashLoop state: web",
            ),
            (
                json!({"status": {"phase": "Pending", "initContainerStatuses": crash}}),
                Failed,
                "Containers in CrashLoop state: web",
            ),
            (json!({"status": {"phase": "Pending"}}), InProgress, "Pod is in the Pending phase"),
            (unschedulable("2026-01-01T00:00:50Z"), InProgress, "Pod has not been scheduled"),
            (unschedulable("2026-01-01T00:00:44Z"), Failed, "Pod could not be scheduled: no nodes"),
            (json!({"status": {"phase": "Unknown"}}), InProgress, "Pod is in the phase Unknown"),
        ],
    );
}

#[test]
fn job_in_both_layers() {
    let rows = [
        (json!({}), InProgress, InProgress, "Job not started"),
        (
            json!({"status": {"startTime": NOW, "active": 1}}),
            Current,
            InProgress,
            "Job in progress. active: 1, succeeded: 0, failed: 0",
        ),
        (
            json!({"status": {"startTime": NOW, "succeeded": 1, "conditions": [condition("Complete", "True", "", "")]}}),
            Current,
            Current,
            "Job Completed. succeeded: 1",
        ),
        (
            json!({"status": {"failed": 4, "conditions": [condition("Failed", "True", "BackoffLimitExceeded", "")]}}),
            Failed,
            Failed,
            "Job Failed. failed: 4: BackoffLimitExceeded",
        ),
        (
            json!({"status": {"conditions": [condition("Suspended", "True", "", "")]}}),
            Current,
            Current,
            "Job is suspended",
        ),
    ];
    for (rest, plain, for_kustomization, message) in rows {
        let job = object("batch/v1", "Job", &rest);
        assert_eq!(compute(&job, now()), Health { status: plain, message: message.to_owned() });
        let health = compute_for_kustomization(&job, now());
        assert_eq!(health, Health { status: for_kustomization, message: message.to_owned() });
    }
    // Another group's Job is nothing that is known.
    let other = object("batch.example.com/v1", "Job", &json!({"status": {"startTime": NOW}}));
    assert_eq!(compute_for_kustomization(&other, now()).status, Current);
}

#[test]
fn claims_services_and_definitions() {
    check(
        "v1",
        "PersistentVolumeClaim",
        &[
            (json!({"status": {"phase": "Bound"}}), Current, "PVC is Bound"),
            (json!({"status": {"phase": "Pending"}}), InProgress, "PVC is not Bound, its phase is Pending"),
            (json!({}), InProgress, "PVC is not Bound, it has no phase yet"),
        ],
    );
    check(
        "v1",
        "Service",
        &[
            (
                json!({"spec": {"type": "LoadBalancer"}}),
                InProgress,
                "ClusterIP not set, Service type: LoadBalancer",
            ),
            (json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}}), Current, "Service is ready"),
            (json!({"spec": {"type": "ClusterIP"}}), Current, "Service is ready"),
        ],
    );
    let crd = |conditions: Value| json!({"status": {"conditions": conditions}});
    let established = |status: &str, reason: &str| condition("Established", status, reason, "");
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[
            (json!({}), InProgress, "Install in progress"),
            (crd(json!([condition("NamesAccepted", "False", "Conflict", "taken")])), Failed, "taken"),
            (crd(json!([established("False", "Installing")])), InProgress, "Install in progress"),
            (crd(json!([established("False", "NotAccepted")])), Failed, "NotAccepted"),
            (
                crd(json!([condition("NamesAccepted", "True", "", ""), established("True", "")])),
                Current,
                "CRD is established",
            ),
        ],
    );
}

#[test]
fn unknown_kinds_go_by_their_ready_condition() {
    let ready = |status: &str| json!({"status": {"conditions": [condition("Ready", status, "Why", "")]}});
    check(
        "example.com/v1",
        "Widget",
        &[
            (json!({}), Current, "Resource is current"),
            (json!({"status": {"conditions": []}}), Current, "Resource is current"),
            (ready("True"), Current, "Resource is Ready"),
            (ready("False"), InProgress, "Why"),
            (ready("Unknown"), InProgress, "Why"),
        ],
    );
}

#[test]
fn nonsense_does_not_panic_and_messages_are_bounded() {
    for value in [
        json!(null),
        json!([]),
        json!("x"),
        json!({"status": []}),
        json!({"status": {"conditions": {"a": 1}}}),
    ] {
        assert_eq!(compute(&value, now()).status, Current, "{value}");
    }
    let long = "ä".repeat(MAX_MESSAGE);
    let stalled = json!({"status": {"conditions": [condition("Stalled", "True", "", &long)]}});
    assert!(compute(&stalled, now()).message.len() <= MAX_MESSAGE);
}
