//! What a change of one object makes worth a pass elsewhere. Called within the change's own unit of work, so that the
//! look can neither be forgotten nor come too early.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use roadstead_api::{
    AgentRemoval, Alert, AnyApplierStatus, ChildRule, Cluster, ClusterDeletionPolicy, ClusterStatus,
    ConditionStatus, KindId, ObjectMeta, PipelineRole, ReferenceGrant, reconcile_requested,
};
use roadstead_hub_store::{AlertSource, ClosedIncident, RelayedSource, Store, StoreError, Stored, Tx};
use roadstead_model::{ClusterUid, Queue, Reason, ResourceUid};
use roadstead_notify::ClosingReason;
use serde_json::Value;

use crate::identity::access::{ADOPTED_BY, GIT_NAMESPACE};
use crate::objects::{conditions, kubeconfigs, managers};

/// The finalizer by which a Kustomization, or a Cluster with `deletionPolicy: Prune`, waits until what is owned has been
/// pruned; and a Cluster with `agent.removal: Remove` until its agent has begun to remove itself.
pub const FINALIZER: &str = "finalizers.fluxcd.io";

/// The finalizer by which an ArtifactGenerator waits until what it made is gone.
pub(crate) const GENERATOR_FINALIZER: &str = "source.extensions.fluxcd.io/finalizer";
/// The annotation by which an ArtifactGenerator is left alone.
const DISABLED: &str = "source.extensions.fluxcd.io/reconcile";
/// Of an ExternalArtifact: the uid of the ArtifactGenerator that makes it.
pub(crate) const GENERATOR: &str = "source.extensions.fluxcd.io/generator";

/// What stays as it is while a Kustomization is suspended.
pub(crate) const UNTOUCHED: &str = "what is on the cluster";

/// Completes a new object before it is written.
///
/// # Errors
/// Where the object's status cannot be written, which no valid object's can.
pub fn on_create(stored: &mut Stored, now: Timestamp) -> Result<(), StoreError> {
    match stored.kind {
        kind if kind.is_applier() => {
            let sent = stored.clone();
            stored.add_finalizer(FINALIZER);
            managers::note_hub(Some(&sent), stored, now);
            if is_suspended(stored) {
                let mut status = AnyApplierStatus::default();
                conditions::set_suspended(&mut status.applier.conditions, UNTOUCHED, stored.generation, now);
                managers::set_status(stored, &status, now)?;
            }
        }
        KindId::ArtifactGenerator => {
            let sent = stored.clone();
            stored.add_finalizer(GENERATOR_FINALIZER);
            managers::note_hub(Some(&sent), stored, now);
        }
        KindId::Cluster => {
            let mut status = ClusterStatus::default();
            let message = match stored.decode::<Cluster>()?.spec.kube_config {
                Some(config) => format!(
                    "the agent will be installed with the kubeconfig in Secret {}/{}",
                    config.secret_ref.namespace, config.secret_ref.name
                ),
                None => format!(
                    "no agent has joined yet; install one with the output of: roadstead cluster join {}",
                    stored.name
                ),
            };
            conditions::set(
                &mut status.conditions,
                conditions::READY,
                ConditionStatus::False,
                Reason::AwaitingAgent,
                &message,
                stored.generation,
                now,
            );
            managers::set_status(stored, &status, now)?;
        }
        _ => {}
    }
    Ok(())
}

/// Puts on what an object that is to be deleted waits for.
///
/// # Errors
/// Where it was stored by something that this version does not know.
pub fn on_delete(stored: &mut Stored) -> Result<(), StoreError> {
    if stored.kind == KindId::Cluster && stored.deletion_timestamp.is_none() {
        let spec = stored.decode::<Cluster>()?.spec;
        let removal = spec.agent.and_then(|agent| agent.removal);
        if spec.deletion_policy == Some(ClusterDeletionPolicy::Prune) || removal == Some(AgentRemoval::Remove)
        {
            stored.add_finalizer(FINALIZER);
        }
    }
    Ok(())
}

/// Lets an object go that waited with [`FINALIZER`]: it is no more, unless it waits for others too.
///
/// # Errors
/// Where the database refuses.
pub(crate) async fn let_go(tx: &mut Tx, before: &Stored, now: Timestamp) -> Result<(), StoreError> {
    let_go_of(tx, before, FINALIZER, now).await
}

/// The same of one that waited with this finalizer.
///
/// # Errors
/// Where the database refuses.
pub(crate) async fn let_go_of(
    tx: &mut Tx,
    before: &Stored,
    finalizer: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut stored = before.clone();
    stored.remove_finalizer(finalizer);
    if stored.finalizers().next().is_none() {
        on_change(tx, Some(before), None).await?;
        return tx.remove(before.uid).await;
    }
    managers::note_hub(Some(before), &mut stored, now);
    tx.put(stored).await
}

/// Keeps what is still to be said of an object that is about to be removed. To be called before its row is, with which all goes that refers to it.
///
/// # Errors
/// Where the database refuses.
pub(crate) async fn on_removal(tx: &mut Tx, before: &Stored) -> Result<(), StoreError> {
    match before.kind {
        KindId::Alert => close_for_deleted_alert(tx, before).await.map(drop),
        KindId::Provider => tx.note_deleted(before).await,
        _ => Ok(()),
    }
}

/// Has the incidents of an Alert that goes be told for the last time where they were told.
async fn close_for_deleted_alert(tx: &mut Tx, alert: &Stored) -> Result<Vec<ClosedIncident>, StoreError> {
    tx.hold_incidents(alert.uid).await?;
    let closed = tx.close_elsewhere(alert.uid, None, [ClosingReason::AlertDeleted.as_str(); 2]).await?;
    if !closed.is_empty() {
        // Their last messages are in its words.
        tx.note_deleted(alert).await?;
    }
    Ok(closed)
}

/// Schedules what the change from `before` to `after` (either may be absent) makes worth a pass.
///
/// # Errors
/// Where the database refuses.
pub async fn on_change(
    tx: &mut Tx,
    before: Option<&Stored>,
    after: Option<&Stored>,
) -> Result<(), StoreError> {
    let Some(object) = after.or(before) else { return Ok(()) };
    if after.is_none() && object.kind.get().child != ChildRule::Never {
        tx.forget_maker(object.kind, &object.namespace, &object.name, object.uid).await?;
    }
    let asks = asks_for_more(before, after);
    if object.kind.get().child != ChildRule::Never {
        look_at_adopters(tx, before, after).await?;
    }
    // What has it as its source, or depends on it, may go on, or no longer.
    if object.kind.is_in_pipeline() && (before.is_none() || after.is_none()) {
        let appliers = users(tx, object, PipelineRole::Applier).await?;
        tx.enqueue(Queue::Applier, &appliers).await?;
        // So may what includes it.
        if object.kind.is_source() {
            let sources = users(tx, object, PipelineRole::Source).await?;
            tx.enqueue(Queue::Source, &sources).await?;
            let generators = users(tx, object, PipelineRole::Other).await?;
            tx.enqueue(Queue::Generator, &generators).await?;
        }
    }
    if object.kind == KindId::ExternalArtifact {
        wake_maker(tx, before, after).await?;
    }
    wake_failing(tx, before, after).await?;
    match object.kind {
        kind if kind.is_applier() => {
            // A new one that is suspended says so already, and there is nothing else to do for it.
            let idle = |after: &Stored| before.is_none() && is_suspended(after);
            let changed = before.is_some_and(|before| after.is_some_and(|after| !same_rights(before, after)));
            if let Some(after) = after.filter(|after| (asks || changed) && !idle(after)) {
                if before.is_some_and(|before| !changed && only_asks(before, after)) {
                    tx.enqueue_paced(Queue::Applier, after.uid).await?;
                } else {
                    tx.enqueue(Queue::Applier, &[after.uid]).await?;
                }
            }
            wake_kubeconfig(tx, before, after).await?;
            // What it made acts by its rights.
            if changed {
                let made = tx.descendants(object.uid).await?;
                tx.enqueue(Queue::Applier, &made).await?;
            }
        }
        kind if kind.is_source() && asks && after.is_some() && kind.get().reconciled => {
            tx.enqueue(Queue::Source, &[object.uid]).await?;
            if kind == KindId::HelmRepository {
                // Its charts are fetched from where it says.
                let charts = users(tx, object, PipelineRole::Source).await?;
                tx.enqueue(Queue::Source, &charts).await?;
                wake_charts_without_dependencies(tx, &object.namespace).await?;
            }
        }
        KindId::ConfigMap => {
            wake_rendered(tx, object).await?;
            // It may say which cluster is meant.
            let users = users(tx, object, PipelineRole::Applier).await?;
            tx.enqueue(Queue::Applier, &users).await?;
        }
        // By whose identities keys are unwrapped, events are sent, and sources are fetched, also by the Secrets that it pulls with.
        KindId::ServiceAccount => {
            wake_rendered(tx, object).await?;
            let sources = users(tx, object, PipelineRole::Source).await?;
            tx.enqueue(Queue::Source, &sources).await?;
            let providers =
                tx.users_of_kind(object.kind, &object.namespace, &object.name, KindId::Provider).await?;
            tx.enqueue(Queue::Provider, &providers).await?;
        }
        KindId::Secret => {
            wake_rendered(tx, object).await?;
            // Whether it is one, and for whom, is looked at then.
            if before.is_none() || after.is_some_and(kubeconfigs::is_kubeconfig) {
                tx.enqueue(Queue::KubeConfig, &[object.uid]).await?;
            }
            let clusters = tx.clusters_of_secret(&object.namespace, &object.name).await?;
            tx.enqueue(Queue::Cluster, &clusters).await?;
            let managing = tx.management_clusters_of_secret(&object.namespace, &object.name).await?;
            tx.enqueue(Queue::ManagementCluster, &managing).await?;
            let sources = users(tx, object, PipelineRole::Source).await?;
            tx.enqueue(Queue::Source, &sources).await?;
            let charts = tx.sources_by_sources(object.kind, &object.namespace, &object.name).await?;
            tx.enqueue(Queue::Source, &charts).await?;
            let pulled = tx.sources_by_pull_secret(&object.namespace, &object.name).await?;
            tx.enqueue(Queue::Source, &pulled).await?;
            if !sources.is_empty() {
                wake_charts_without_dependencies(tx, &object.namespace).await?;
            }
            // Their paths and credentials follow it.
            for (kind, queue) in [(KindId::Receiver, Queue::Receiver), (KindId::Provider, Queue::Provider)] {
                let users = tx.users_of_kind(object.kind, &object.namespace, &object.name, kind).await?;
                tx.enqueue(queue, &users).await?;
            }
        }
        KindId::Namespace
            if asks && after.is_some_and(|namespace| namespace.deletion_timestamp.is_some()) =>
        {
            tx.enqueue(Queue::Namespace, &[object.uid]).await?;
        }
        KindId::Cluster => {
            if asks && after.is_some() {
                tx.enqueue(Queue::Cluster, &[object.uid]).await?;
            }
            on_cluster_change(tx, before, after, object).await?;
        }
        KindId::ArtifactGenerator
            if after.is_some_and(|after| asks || before.is_some_and(is_disabled) && !is_disabled(after)) =>
        {
            tx.enqueue(Queue::Generator, &[object.uid]).await?;
        }
        KindId::Receiver if asks && after.is_some() => {
            tx.enqueue(Queue::Receiver, &[object.uid]).await?;
        }
        KindId::Provider if asks => {
            if after.is_some() {
                tx.enqueue(Queue::Provider, &[object.uid]).await?;
            }
            wake_alerts(tx, object).await?;
        }
        KindId::Alert if asks => {
            if let Some(after) = after {
                listen(tx, after).await?;
                tx.enqueue(Queue::Alert, &[after.uid]).await?;
                // It waits for somebody's finalizer, and tells nothing any more.
                if let Some(at) = after.deletion_timestamp {
                    for one in close_for_deleted_alert(tx, after).await? {
                        tx.end_incident(one.incident, at).await?;
                    }
                }
            }
        }
        KindId::ReferenceGrant => wake_granted(tx, before, after).await?,
        // More builds may run at once now, or any number.
        KindId::ResourceQuota if asks => tx.wake_waiting_builds(&object.namespace).await?,
        KindId::Silence => {
            let alerts = tx.alerts_of(&object.namespace).await?;
            tx.enqueue(Queue::Alert, &alerts).await?;
        }
        KindId::ManagementCluster if asks && after.is_some() => {
            tx.enqueue(Queue::ManagementCluster, &[object.uid]).await?;
        }
        _ => {}
    }
    Ok(())
}

/// Has those charts of a namespace be tried again that lack charts which they depend on: which HelmRepository has them is known only once the
/// chart is read, so no reference leads to it.
///
/// # Errors
/// Where the database refuses.
pub(crate) async fn wake_charts_without_dependencies(tx: &mut Tx, namespace: &str) -> Result<(), StoreError> {
    let charts = tx.charts_without_dependencies(namespace).await?;
    tx.enqueue(Queue::Source, &charts).await
}

async fn users(tx: &mut Tx, used: &Stored, by: PipelineRole) -> Result<Vec<ResourceUid>, StoreError> {
    tx.users(used.kind, &used.namespace, &used.name, by).await
}

/// Schedules a pass over the Alerts that send to a Provider.
pub(crate) async fn wake_alerts(tx: &mut Tx, provider: &Stored) -> Result<(), StoreError> {
    let alerts = tx.users_of_kind(provider.kind, &provider.namespace, &provider.name, KindId::Alert).await?;
    tx.enqueue(Queue::Alert, &alerts).await
}

/// Schedules a pass over the Alerts that tell of failures which end with this change, of which there is no news: an object is gone or suspended, or is not selected by its
/// labels any more, or by those of its namespace or cluster.
async fn wake_failing(
    tx: &mut Tx,
    before: Option<&Stored>,
    after: Option<&Stored>,
) -> Result<(), StoreError> {
    let Some(object) = before else { return Ok(()) };
    let labels = |stored: &Stored| stored.object["metadata"]["labels"].clone();
    let is_relabelled = after.is_some_and(|after| labels(after) != labels(object));
    let is_over = after.is_none_or(|after| is_suspended(after) && !is_suspended(object));
    let alerts = match object.kind {
        kind if is_told_of(kind) && (is_over || is_relabelled) => {
            tx.alerts_of_failing(kind.get().kind, &object.namespace, &object.name).await?
        }
        KindId::Cluster if after.is_none() || is_relabelled => tx.alerts_of_failing_on(&object.name).await?,
        KindId::Namespace if is_relabelled => tx.alerts_of_failing_in(&object.name).await?,
        _ => return Ok(()),
    };
    if is_relabelled && !alerts.is_empty() {
        tx.note_relabelled(&alerts).await?;
    }
    tx.enqueue(Queue::Alert, &alerts).await
}

/// Whether Alerts can name objects of a kind.
pub(crate) fn is_told_of(kind: KindId) -> bool {
    kind.is_in_pipeline() || kind == KindId::ArtifactGenerator
}

/// Notes what an Alert listens to: nothing, while it is suspended or is going.
pub(crate) async fn listen(tx: &mut Tx, alert: &Stored) -> Result<(), StoreError> {
    let spec = alert.decode::<Alert>()?.spec;
    let is_deaf = spec.suspend || alert.deletion_timestamp.is_some();
    // What is told as incidents has an end, whatever the lowest severity is.
    let only_errors = spec.is_for_errors() && spec.group.is_none();
    let (mut sources, mut relayed) = (Vec::new(), Vec::new());
    for source in spec.event_sources.into_iter().filter(|_| !is_deaf) {
        let (kind, name) = (source.kind.as_str().to_owned(), source.name);
        let namespace = source.namespace.unwrap_or_else(|| alert.namespace.clone());
        match source.cluster {
            None => sources.push(AlertSource { kind, namespace, name }),
            Some(cluster) => relayed.push(RelayedSource { cluster, kind, namespace, name }),
        }
    }
    tx.listen_to_clusters(alert.uid, &relayed, only_errors).await?;
    tx.listen(alert.uid, &sources, only_errors).await
}

/// Schedules a pass over those to whom a ReferenceGrant gives leave, or gave it.
async fn wake_granted(
    tx: &mut Tx,
    before: Option<&Stored>,
    after: Option<&Stored>,
) -> Result<(), StoreError> {
    let (Some(object), mut from) = (after.or(before), BTreeMap::<KindId, BTreeSet<String>>::new()) else {
        return Ok(());
    };
    for stored in [before, after].into_iter().flatten() {
        for entry in stored.decode::<ReferenceGrant>()?.spec.from {
            if let Some(kind) = KindId::parse(&entry.group, &entry.kind) {
                from.entry(kind).or_default().insert(entry.namespace);
            }
        }
    }
    for (kind, namespaces) in from {
        let queue = match kind {
            kind if kind.is_applier() => Queue::Applier,
            // By what it includes.
            KindId::GitRepository => Queue::Source,
            KindId::ArtifactGenerator => Queue::Generator,
            KindId::Receiver => Queue::Receiver,
            KindId::Alert => Queue::Alert,
            _ => continue,
        };
        let namespaces: Vec<&str> = namespaces.iter().map(String::as_str).collect();
        let found = tx.referring_to_namespace(kind, &namespaces, &object.namespace).await?;
        tx.enqueue(queue, &found).await?;
    }
    Ok(())
}

/// Schedules a pass over the Secret whose kubeconfig an applier names, where it did not name it before.
async fn wake_kubeconfig(
    tx: &mut Tx,
    before: Option<&Stored>,
    after: Option<&Stored>,
) -> Result<(), StoreError> {
    let named = |stored: &Stored| stored.object.pointer("/spec/kubeConfig/secretRef/name").cloned();
    let Some((object, Some(Value::String(name)))) = after.map(|after| (after, named(after))) else {
        return Ok(());
    };
    if before.is_some_and(|before| named(before).as_ref() == named(object).as_ref()) {
        return Ok(());
    }
    match tx.get(KindId::Secret, &object.namespace, &name).await? {
        Some(secret) => tx.enqueue(Queue::KubeConfig, &[secret.uid]).await,
        None => Ok(()),
    }
}

/// Schedules a pass over those that were rendered by this object.
async fn wake_rendered(tx: &mut Tx, object: &Stored) -> Result<(), StoreError> {
    let rendered = tx.rendered_by(object.kind, &object.namespace, &object.name).await?;
    tx.enqueue(Queue::Applier, &rendered).await
}

async fn on_cluster_change(
    tx: &mut Tx,
    before: Option<&Stored>,
    after: Option<&Stored>,
    object: &Stored,
) -> Result<(), StoreError> {
    if let (Some(before), Some(after)) = (before, after)
        && before.deletion_timestamp == after.deletion_timestamp
        && ["/spec/access", "/spec/offline"]
            .iter()
            .all(|path| before.object.pointer(path) == after.object.pointer(path))
    {
        return Ok(());
    }
    wake_cluster(tx, object.uid, &object.name).await?;
    if after.is_none() {
        // `deletionPolicy: Abandon`: what was applied there stays, and nothing here refers to it any more.
        tx.abandon_cluster(ClusterUid::from(object.uid)).await?;
    }
    Ok(())
}

/// Schedules a pass over all that is, or waits to be, on a cluster.
pub(crate) async fn wake_cluster(tx: &mut Tx, uid: ResourceUid, name: &str) -> Result<(), StoreError> {
    let users = tx.appliers_of_cluster(uid, name).await?;
    tx.enqueue(Queue::Applier, &users).await
}

/// Schedules a pass over the ArtifactGenerator whose ExternalArtifact was removed, or is not any more what it was made to be.
async fn wake_maker(tx: &mut Tx, before: Option<&Stored>, after: Option<&Stored>) -> Result<(), StoreError> {
    let Some(before) = before else { return Ok(()) };
    let of = |stored: &Stored| {
        let metadata = &stored.object["metadata"];
        (metadata["labels"].clone(), metadata["annotations"].clone(), stored.object["spec"].clone())
    };
    if after.is_some_and(|after| of(after) == of(before)) {
        return Ok(());
    }
    let Some(maker) = generator_of(before) else { return Ok(()) };
    match tx.get_by_uid(maker).await? {
        Some(maker) if maker.kind == KindId::ArtifactGenerator => {
            tx.enqueue(Queue::Generator, &[maker.uid]).await
        }
        _ => Ok(()),
    }
}

/// The ArtifactGenerator that makes an ExternalArtifact, as its label names it.
pub(crate) fn generator_of(external: &Stored) -> Option<ResourceUid> {
    external.object["metadata"]["labels"][GENERATOR].as_str()?.parse().ok().map(ResourceUid)
}

/// What a person hands over, or takes back, is worth a pass over whom they name.
async fn look_at_adopters(
    tx: &mut Tx,
    before: Option<&Stored>,
    after: Option<&Stored>,
) -> Result<(), StoreError> {
    let named = [before, after].map(|stored| stored.and_then(|stored| annotation(stored, ADOPTED_BY)));
    if named[0] != named[1] {
        let names: Vec<&str> = named.into_iter().flatten().collect();
        let adopters = tx.appliers_named(&names).await?;
        tx.enqueue(Queue::Applier, &adopters).await?;
    }
    Ok(())
}

fn annotation<'a>(stored: &'a Stored, key: &str) -> Option<&'a str> {
    stored.object["metadata"]["annotations"][key].as_str()
}

/// Whether an ArtifactGenerator is left alone.
pub(crate) fn is_disabled(stored: &Stored) -> bool {
    annotation(stored, DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("disabled"))
}

pub(crate) fn is_suspended(stored: &Stored) -> bool {
    stored.object.pointer("/spec/suspend") == Some(&true.into())
}

/// Whether a Kustomization has the same rights, to pass on, after a change.
fn same_rights(before: &Stored, after: &Stored) -> bool {
    const FIELDS: [&str; 5] = [
        "/spec/clusterRef",
        "/spec/kubeConfig",
        "/spec/serviceAccount",
        "/spec/serviceAccountName",
        "/spec/delegation",
    ];
    FIELDS.iter().all(|field| before.object.pointer(field) == after.object.pointer(field))
        && [ADOPTED_BY, GIT_NAMESPACE].iter().all(|key| annotation(before, key) == annotation(after, key))
}

/// Whether the change is one of what is wanted: of the spec, of a request to reconcile, or a deletion.
fn asks_for_more(before: Option<&Stored>, after: Option<&Stored>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return true };
    before.generation != after.generation
        || before.deletion_timestamp != after.deletion_timestamp
        || request(before) != request(after)
}

/// Whether a change of an applier may wait where one follows the other: it neither deletes, suspends nor resumes it.
fn only_asks(before: &Stored, after: &Stored) -> bool {
    before.deletion_timestamp == after.deletion_timestamp && is_suspended(before) == is_suspended(after)
}

/// The value of the annotation that asks for a reconciliation.
pub(crate) fn request(stored: &Stored) -> Option<String> {
    let metadata: ObjectMeta =
        stored.object.get("metadata").and_then(|meta| serde_json::from_value(meta.clone()).ok())?;
    reconcile_requested(&metadata)
}

/// The name of the cluster with this uid, where the hub knows it.
///
/// # Errors
/// Where the database refuses.
pub(crate) async fn cluster(store: &Store, uid: ClusterUid) -> Result<Option<(Stored, Cluster)>, StoreError> {
    let Some(stored) = store.get_by_uid(uid.into()).await? else { return Ok(None) };
    let cluster = stored.decode()?;
    Ok(Some((stored, cluster)))
}
