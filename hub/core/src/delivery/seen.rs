//! An applier as a pass has seen it, and what a pass makes of it: what is dispatched, what is recorded of an attempt.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::kustomization::Drift;
use roadstead_api::{AnyApplier, ApplierStatus, annotated};
use roadstead_hub_plan::{AttemptState, Situation, Target};
use roadstead_hub_store::{AttemptInputs, Child, HeldDeletion, Stored, Tx};
use roadstead_model::{
    AttemptKind, ClusterUid, Digest, DispatchSpec, DriftMode, FluxKustomization, Generation, Group, Guard,
    Offline, Purpose, ResourceUid, Revision, ServiceAccount, Step, StepKind,
};

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::applier::{Applier, applier};
use crate::delivery::pins::WantedRevision;
use crate::delivery::reconcile::write_status;
use crate::delivery::situation::Gathered;
use crate::identity::access::Standing;
use crate::objects::status::WrittenStatus;

/// An applier, and what of its source is to be fetched for it.
pub(super) struct Sight {
    pub(super) seen: SeenApplier,
    pub(super) wanted: Option<WantedRevision>,
}

impl Delivery {
    /// What there is to know of an applier; none where there is none.
    pub(super) async fn look(&self, uid: ResourceUid) -> Result<Option<Sight>, HubError> {
        let Some(stored) = self.store.get_by_uid_for_pass(uid).await? else { return Ok(None) };
        let Some(kind) = applier(stored.kind) else { return Ok(None) };
        let applier: AnyApplier = stored.decode()?;
        let Gathered {
            situation,
            standing,
            artifacts,
            wanted,
            has_children,
            guard,
            held,
            adopts_flux,
            adopt_managers,
            cluster_events,
            offline,
            check_remotes_at,
        } = self.situation(&stored, kind, &applier).await?;
        let children = if has_children { self.store.children(situation.uid).await? } else { Vec::new() };
        let seen = SeenApplier {
            kind,
            stored,
            applier,
            situation,
            standing,
            artifacts,
            children,
            guard,
            held,
            adopts_flux,
            adopt_managers,
            cluster_events,
            offline,
            check_remotes_at,
        };
        Ok(Some(Sight { seen, wanted }))
    }

    /// An applier as a pass would see it.
    pub(super) async fn see(&self, uid: ResourceUid) -> Result<Option<SeenApplier>, HubError> {
        Ok(self.look(uid).await?.map(|sight| sight.seen))
    }
}

/// What is to be reconciled, where.
pub(super) struct ReconcileTarget {
    pub(super) cluster: ClusterUid,
    pub(super) revision: Revision,
    pub(super) artifact: Digest,
    pub(super) news: bool,
    /// The objects of the hub that it is rendered by.
    pub(super) rendered_by: BTreeMap<String, String>,
}

/// An applier as a pass has seen it.
pub(crate) struct SeenApplier {
    pub(crate) kind: &'static dyn Applier,
    pub(crate) stored: Stored,
    pub(crate) applier: AnyApplier,
    pub(crate) situation: Situation,
    /// Whence it has its rights.
    pub(crate) standing: Standing,
    /// The artifacts of its sources, in their order.
    pub(crate) artifacts: Vec<Digest>,
    /// What it owns on the hub.
    pub(crate) children: Vec<Child>,
    /// How much may be deleted without a person's confirmation; none: everything.
    pub(crate) guard: Option<Guard>,
    /// Deletions that wait.
    pub(crate) held: Option<HeldDeletion>,
    /// Whether objects of a Flux on the cluster are taken over.
    pub(crate) adopts_flux: bool,
    /// Managers whose fields are taken over with that.
    pub(crate) adopt_managers: Vec<String>,
    /// Whether what is changed is told in the cluster, too.
    pub(crate) cluster_events: bool,
    /// What the cluster's agent does about drift while the hub is away.
    pub(crate) offline: Offline,
    /// When the first of the remote resources that it was rendered by is to be looked at again.
    pub(super) check_remotes_at: Option<Timestamp>,
}

impl SeenApplier {
    /// The name of the chosen cluster.
    pub(crate) fn cluster(&self) -> &str {
        match &self.situation.target {
            Target::Cluster { name, .. } | Target::Leaving { name, .. } => name,
            Target::NotFound(_) => "",
        }
    }

    /// Whether an attempt is open that applies something.
    pub(super) fn is_applying(&self) -> bool {
        let last = self.situation.last.as_ref();
        last.is_some_and(|last| {
            last.kind != AttemptKind::Delete && matches!(last.state, AttemptState::Open { .. })
        })
    }

    /// Whether somebody asks for a reconciliation that was not tried yet.
    pub(crate) fn is_asked_for(&self) -> bool {
        let tried = self.situation.last.as_ref().and_then(|last| last.request.as_ref());
        self.situation.request.is_some() && self.situation.request.as_ref() != tried
    }

    /// Whether the newest attempt brought this cluster to just what is to be dispatched, and this one is for a new revision only:
    /// neither for its interval nor because someone asks.
    pub(super) fn has_all_of(
        &self,
        target: &ReconcileTarget,
        dispatch: &DispatchSpec,
        now: Timestamp,
    ) -> bool {
        let Some(last) = &self.situation.last else { return false };
        let AttemptState::Finished { at, succeeded: true } = last.state else { return false };
        let Situation { generation, request, interval, uid, held, late, .. } = &self.situation;
        let same = last.kind == AttemptKind::Apply
            && !last.is_past
            && last.generation == *generation
            && last.request == *request
            && last.cluster == Some(target.cluster)
            && last.dispatch == Some(dispatch.digest());
        let is_due = now >= at + roadstead_hub_plan::jittered(*interval, *uid);
        same && !*held
            && !self.situation.handed
            && late.is_none()
            && !is_due
            && last.revision.as_ref() != Some(&target.revision)
    }

    /// Whether the newest attempt applied just this on this cluster.
    pub(super) fn has_applied(&self, cluster: ClusterUid, dispatch: &DispatchSpec) -> bool {
        self.situation.last.as_ref().is_some_and(|last| {
            last.kind == AttemptKind::Apply
                && !last.is_past
                && last.cluster == Some(cluster)
                && last.dispatch == Some(dispatch.digest())
                && matches!(last.state, AttemptState::Finished { succeeded: true, .. })
        })
    }

    pub(crate) fn status(&self) -> ApplierStatus {
        self.applier.status.clone().unwrap_or_default().applier
    }

    /// The object, locked; none where what is wanted has changed since it was seen. Then another pass is due anyway.
    pub(crate) async fn unchanged(&self, tx: &mut Tx) -> Result<Option<Stored>, HubError> {
        let Some(stored) = tx.get_by_uid(self.stored.uid).await? else { return Ok(None) };
        let same = stored.generation == self.stored.generation
            && stored.deletion_timestamp == self.stored.deletion_timestamp;
        Ok(same.then_some(stored))
    }

    pub(super) async fn write_status(
        &self,
        tx: &mut Tx,
        stored: &mut Stored,
        now: Timestamp,
        change: impl FnOnce(&mut ApplierStatus, i64) + Send,
    ) -> Result<Option<WrittenStatus>, HubError> {
        write_status(tx, stored, self.situation.suspended, now, change).await
    }

    pub(super) fn dispatch(&self, groups: Vec<Group>, steps: Vec<Step>) -> DispatchSpec {
        let spec = &self.applier.spec;
        DispatchSpec {
            applier: self.stored.applier_ref(),
            purpose: Purpose::Reconcile,
            full: self.is_asked_for(),
            drift: match spec.drift {
                Some(Drift::Report) => DriftMode::Report,
                Some(Drift::Correct) | None => DriftMode::Correct,
            },
            offline: self.offline,
            observe: false,
            cluster_events: self.cluster_events,
            warnings: Vec::new(),
            decrypted_with: Vec::new(),
            health: Vec::new(),
            guard: None,
            default_namespace: self.standing.default_namespace.clone(),
            service_account: self.standing.account().map(|account| ServiceAccount {
                namespace: account.namespace.clone(),
                name: account.name.clone(),
            }),
            timeout: spec.timeout().0,
            groups,
            steps,
        }
    }

    /// What of its work has to do with a Flux on the cluster: what is taken over, and whose inventories are read in before anything is
    /// pruned.
    pub(super) fn adopt(&self, groups: &mut [Group], steps: &mut Vec<Step>) {
        if !self.adopts_flux {
            return;
        }
        for group in groups {
            group.adopt_flux = true;
            group.adopt_managers.clone_from(&self.adopt_managers);
        }
        // Checked when it was written.
        let named = annotated::adopt_inventory(&self.stored.object).unwrap_or_default();
        let named = named.into_iter().map(|(namespace, name)| FluxKustomization {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        let of: Vec<FluxKustomization> = named.collect();
        let prunes = steps.iter().position(|step| step.kind == StepKind::Prune);
        if let Some(prunes) = prunes.filter(|_| !of.is_empty()) {
            steps.insert(prunes, StepKind::AdoptInventory { of }.into());
        }
    }

    pub(super) fn attempt(
        &self,
        target: Option<&ReconcileTarget>,
        build: Option<Digest>,
        kind: AttemptKind,
        started: Timestamp,
    ) -> AttemptInputs {
        AttemptInputs {
            applier: self.situation.uid,
            cluster: target.map(|target| target.cluster),
            generation: Generation(self.stored.generation),
            revision: target.map(|target| target.revision.clone()),
            artifact: target.map(|target| target.artifact),
            build,
            request: self.situation.request.clone(),
            kind,
            trigger: Some(self.situation.trigger(kind, target.map(|target| target.cluster))),
            rendered_by: target.map(|target| target.rendered_by.clone()).unwrap_or_default(),
            started,
        }
    }
}
