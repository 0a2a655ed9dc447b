//! The differences between what Flux's kustomize-controller tells of a Kustomization and what the hub tells of the same one, each with
//! why it is meant.

use crate::parity::Difference;
use crate::parity::difference::{holds, table};

/// All of them.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        at: "*",
        what: "events.source",
        flux: "kustomize-controller",
        hub: "roadstead-hub",
        why: "It is the one who reports.",
    },
    Difference {
        at: "*",
        what: "observedGeneration",
        flux: "-1",
        hub: "",
        why: "The CRD of Flux has -1 as the default until a reconciliation went through; a hub leaves it out until then.",
    },
    Difference {
        at: "*",
        what: "Reconciling.message",
        flux: "* for revision REVISION-* with a timeout of *",
        hub: "*",
        why: "Flux leaves the stage there at which it stopped. A hub says why it is tried again, or that it is under way.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "Normal ReconciliationSucceeded Reconciliation finished in DURATION, next run in 1h0m0s *",
        hub: "",
        why: "Flux tells of each reconciliation, also of one that found nothing to do, and how long it took, so that no two are alike. How long it took stands in the history.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "",
        hub: "Normal ReconciliationSucceeded Applied revision: REVISION-* *",
        why: "In place of that: one Event for each revision, with a count.",
    },
    Difference {
        at: "success/elsewhere",
        what: "Ready.passed",
        flux: "True ReconciliationSucceeded, Unknown Progressing",
        hub: "True ReconciliationSucceeded",
        why: "Nothing of the build is new, so nothing is applied: Ready stays True, and what depends on it does not stall.",
    },
    Difference {
        at: "broken/failed",
        what: "Ready.message",
        flux: "kustomize build failed: accumulating resources: *missing.yaml*",
        hub: "kustomization.yaml:1 in \"app\": resources[0]: no file or directory \"app/missing.yaml\"",
        why: "The hub's own build names the file, the line and the field, and no folder of a controller.",
    },
    Difference {
        at: "broken/*",
        what: "Event",
        flux: "Warning BuildFailed kustomize build failed: accumulating resources: *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "broken/*",
        what: "Event",
        flux: "",
        hub: "Warning BuildFailed kustomization.yaml:1 in *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "nowhere/missing",
        what: "Ready.message",
        flux: "kustomization path not found: stat *",
        hub: "kustomization path not found: no file or directory \"app\"",
        why: "No folder of a controller is named.",
    },
    Difference {
        at: "nowhere/*",
        what: "Event",
        flux: "Warning ArtifactFailed kustomization path not found: stat *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "nowhere/*",
        what: "Event",
        flux: "",
        hub: "Warning ArtifactFailed kustomization path not found: no file or directory *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "nowhere/missing",
        what: "lastAttemptedRevision",
        flux: "",
        hub: "REVISION-1",
        why: "This revision was tried, and has no such path.",
    },
    Difference {
        at: "refused/refused",
        what: "Ready",
        flux: "False ReconciliationFailed",
        hub: "False ValidationFailed",
        why: "The reason that v1alpha1 documents for objects that the API server refuses before anything is applied.",
    },
    Difference {
        at: "refused/*",
        what: "history[*]",
        flux: "build-* ReconciliationFailed REVISION-2",
        hub: "build-* ValidationFailed REVISION-2",
        why: "It has the reason of Ready.",
    },
    Difference {
        at: "refused/refused",
        what: "Ready.message",
        flux: "Service/NAMESPACE/refused dry-run failed (Invalid): Service \"refused\" is invalid: *",
        hub: "Service/NAMESPACE/refused is invalid: *",
        why: "The object is named once; the rest is the API server's.",
    },
    Difference {
        at: "refused/*",
        what: "Event",
        flux: "Warning ReconciliationFailed Service/NAMESPACE/refused dry-run failed (Invalid): *",
        hub: "",
        why: "It has the reason and the message of Ready.",
    },
    Difference {
        at: "refused/*",
        what: "Event",
        flux: "",
        hub: "Warning ValidationFailed Service/NAMESPACE/refused is invalid: *",
        why: "It has the reason and the message of Ready.",
    },
    Difference {
        at: "rightless/no-rights",
        what: "Ready.message",
        flux: "ConfigMap/NAMESPACE/rightless-one dry-run failed (Forbidden): configmaps \"rightless-one\" is forbidden: *",
        hub: "ConfigMap/NAMESPACE/rightless-one is forbidden: *",
        why: "The object is named once; the rest is the API server's.",
    },
    Difference {
        at: "rightless/*",
        what: "Event",
        flux: "Warning ReconciliationFailed ConfigMap/NAMESPACE/rightless-one dry-run failed (Forbidden): *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "rightless/*",
        what: "Event",
        flux: "",
        hub: "Warning ReconciliationFailed ConfigMap/NAMESPACE/rightless-one is forbidden: *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "sick/waiting",
        what: "Healthy.message",
        flux: "Running health checks for revision REVISION-2 with a timeout of 30s",
        hub: "Running health checks for revision REVISION-2 with a timeout of 30s: Deployment sick: *",
        why: "A hub says what is waited for.",
    },
    Difference {
        at: "sick/waiting",
        what: "Event",
        flux: "Normal Progressing Deployment/NAMESPACE/sick configured *",
        hub: "",
        why: "On a hub the change set comes with the end of the attempt, and so does its Event.",
    },
    Difference {
        at: "sick/failed",
        what: "Healthy.message",
        flux: "timeout waiting for: [*]",
        hub: "timed out waiting for: Deployment/NAMESPACE/sick status: 'InProgress' (*)",
        why: "A hub says what was missing.",
    },
    Difference {
        at: "sick/failed",
        what: "Ready.message",
        flux: "health check failed after DURATION: timeout waiting for: [*]",
        hub: "timed out waiting for: Deployment/NAMESPACE/sick status: 'InProgress' (*)",
        why: "A hub says what was missing; how long it was waited for is spec.timeout.",
    },
    Difference {
        at: "sick/*",
        what: "Event",
        flux: "Warning HealthCheckFailed health check failed after DURATION: *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "sick/*",
        what: "Event",
        flux: "",
        hub: "Warning HealthCheckFailed timed out waiting for: *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "depends/missing",
        what: "Ready.message",
        flux: "dependency 'NAMESPACE/first' not found: kustomizations.kustomize.toolkit.fluxcd.io \"first\" not found",
        hub: "dependency 'NAMESPACE/first' not found",
        why: "The rest says the same once more.",
    },
    Difference {
        at: "depends/*",
        what: "Event",
        flux: "Normal DependencyNotReady Dependencies do not meet ready condition, retrying in 5s *",
        hub: "",
        why: "Flux tells of each try, and not of what it waits for. A hub tries when the dependency changes.",
    },
    Difference {
        at: "depends/*",
        what: "Event",
        flux: "",
        hub: "Normal DependencyNotReady dependency 'NAMESPACE/first' *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "suspend/suspended",
        what: "Suspended*",
        flux: "",
        hub: "*",
        why: "A condition of a hub's own while spec.suspend is set. Ready stays as it is, as Flux has it.",
    },
    Difference {
        at: "suspend/suspended",
        what: "observedGeneration",
        flux: "2",
        hub: "1",
        why: "With Flux the change of spec.suspend counts as reconciled where Ready was True. A hub moves it by a success and by Stalled only.",
    },
    Difference {
        at: "unsourced/no-source",
        what: "Ready.message",
        flux: "GitRepository.source.toolkit.fluxcd.io \"unsourced\" not found",
        hub: "GitRepository 'NAMESPACE/unsourced' not found",
        why: "The namespace is named, which may be another one.",
    },
    Difference {
        at: "unsourced/no-artifact",
        what: "Ready.message",
        flux: "Source artifact not found, retrying in 5s",
        hub: "GitRepository 'NAMESPACE/unsourced' has no artifact: *",
        why: "A hub says why there is none. It tries when there is one.",
    },
    Difference {
        at: "unsourced/*",
        what: "Event",
        flux: "",
        hub: "Warning ArtifactFailed GitRepository 'NAMESPACE/unsourced' not found *",
        why: "Flux tells of it in the condition only.",
    },
    Difference {
        at: "unsourced/*",
        what: "Event",
        flux: "",
        hub: "Normal ArtifactFailed GitRepository 'NAMESPACE/unsourced' has no artifact: *",
        why: "Flux tells of it in the condition only. It is the source that fails.",
    },
    Difference {
        at: "variables/missing",
        what: "Ready.message",
        flux: "post build failed for 'ConfigMap.v1.[noGrp]/variables-one': substitute from 'ConfigMap/values' error: configmaps \"values\" not found",
        hub: "post build failed: substitute from 'ConfigMap/values' error: not found on the hub, nor in namespace 'NAMESPACE' of the cluster",
        why: "There are two places where a hub looks for it. It is looked up once, and not for each object.",
    },
    Difference {
        at: "variables/*",
        what: "Event",
        flux: "Warning BuildFailed post build failed for *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "variables/*",
        what: "Event",
        flux: "",
        hub: "Warning BuildFailed post build failed: substitute from *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "variables/*",
        what: "lookups",
        flux: "",
        hub: "*",
        why: "A field of a hub's own: where each of them was found.",
    },
    Difference {
        at: "deleted/*",
        what: "Event",
        flux: "Normal ReconciliationSucceeded ConfigMap/NAMESPACE/deleted-one deleted *",
        hub: "",
        why: "Flux takes the reason that Ready has; a hub's Ready says by then that it is being deleted.",
    },
    Difference {
        at: "deleted/*",
        what: "Event",
        flux: "",
        hub: "Normal Progressing ConfigMap/NAMESPACE/deleted-one deleted *",
        why: "The same Event with the reason of all changes.",
    },
    Difference {
        at: "expression/invalid",
        what: "Ready.message",
        flux: "Reconciliation failed terminally due to configuration error: failed to create custom status evaluator for healthchecks[0]: *",
        hub: "spec.healthCheckExprs[0].current: failed to parse the CEL expression 'data.word ==': *",
        why: "The field is named; that it is terminal is what Stalled says.",
    },
    Difference {
        at: "expression/invalid",
        what: "Stalled.message",
        flux: "Reconciliation failed terminally due to configuration error: *",
        hub: "spec.healthCheckExprs[0].current: *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "expression/*",
        what: "Event",
        flux: "Warning InvalidCELExpression Reconciliation failed terminally due to configuration error: *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "expression/*",
        what: "Event",
        flux: "",
        hub: "Warning InvalidCELExpression spec.healthCheckExprs[0].current: *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "expression/invalid",
        what: "lastAttemptedRevision",
        flux: "",
        hub: "REVISION-1",
        why: "It was tried at this revision; Flux looks at expressions before the source.",
    },
];

/// The list for people: `docs/flux-differences.md`.
fn document() -> String {
    let text = "# Differences from Flux\n\n\
        `tests/tests/e2e/flux_parity.rs` runs the same Kustomizations with the same content through Flux's own kustomize-controller and through a\n\
        hub, and compares what both report at each stage: conditions, `observedGeneration`, revisions, inventory, history, and Events with\n\
        their annotations. This is everything that differs. The list is the test's own (`flux_parity/differences.rs`); the test fails when anything else\n\
        differs, or when a listed difference is gone. `…` stands for any text; a stage is `SCENARIO/STAGE`.\n\n";
    text.to_owned() + &table(DIFFERENCES)
}

#[test]
fn the_document_lists_the_differences() -> anyhow::Result<()> {
    holds("flux-differences.md", &document())
}
