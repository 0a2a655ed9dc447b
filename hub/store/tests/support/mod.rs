//! An attempt at a Kustomization of one build, as several tests open one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_store::{AttemptInputs, StoreError, Tx};
use roadstead_model::{
    ApplierRef, ApplierUid, Attempt, AttemptKind, ChangeSet, ClusterUid, Digest, DispatchSpec, DriftMode,
    Generation, Group, Offline, Purpose, StepKind,
};

/// What applies `build` for a Kustomization of this name.
pub(crate) fn dispatch(name: &str, build: Digest) -> DispatchSpec {
    DispatchSpec {
        applier: ApplierRef::kustomization("default", name),
        purpose: Purpose::Reconcile,
        full: false,
        drift: DriftMode::Correct,
        observe: false,
        cluster_events: false,
        warnings: Vec::new(),
        decrypted_with: Vec::new(),
        offline: Offline::default(),
        health: Vec::new(),
        guard: None,
        default_namespace: None,
        service_account: None,
        timeout: Duration::from_secs(60),
        groups: vec![Group::of(build)],
        steps: vec![StepKind::Apply { group: 0 }.into()],
    }
}

/// Opens an attempt that dispatches this.
pub(crate) async fn open(
    tx: &mut Tx,
    cluster: ClusterUid,
    applier: ApplierUid,
    spec: &DispatchSpec,
    now: Timestamp,
) -> Result<Attempt, StoreError> {
    let inputs = AttemptInputs {
        applier,
        cluster: Some(cluster),
        generation: Generation(1),
        revision: None,
        artifact: None,
        build: spec.groups.first().map(|group| group.objects),
        request: None,
        kind: AttemptKind::Apply,
        trigger: None,
        rendered_by: BTreeMap::default(),
        started: now,
    };
    tx.open_reconciliation(&inputs, spec, now + spec.timeout, &ChangeSet::new()).await
}
