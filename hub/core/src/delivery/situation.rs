//! Gathers what a decision about one applier depends on.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::kustomization::{Adopt, DeletionPolicy, EventsIn, LookedUp};
use roadstead_api::{
    AnyApplier, AnySource, ApplierSpec, Cluster, ClusterDeletionPolicy, ClusterOffline, Condition,
    ConditionStatus, DriftPolicy, KindId, Lookup, Pin, Reference, annotated,
};
use roadstead_hub_plan::{AgentLink, AttemptState, Attempted, Owned, Situation, Source, Target, Tended};
use roadstead_hub_store::{HeldDeletion, Holdings, StoreError, Stored, TendedState};
use roadstead_model::{
    ApplierUid, AttemptKind, Capability, Digest, Generation, Guard, Offline, OfflinePolicy, Reason,
};

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::applier::Applier;
use crate::delivery::history;
use crate::delivery::holds;
use crate::delivery::pins::WantedRevision;
use crate::delivery::render;
use crate::delivery::restored;
use crate::identity::access::Standing;
use crate::objects::conditions;
use crate::objects::triggers;

/// How long the hub is away before an agent does something else about drift, where nothing is said.
const DEFAULT_AFTER: Duration = Duration::from_secs(300);

/// What a pass goes by.
pub(crate) struct Gathered {
    pub(crate) situation: Situation,
    /// Whence the applier has its rights.
    pub(crate) standing: Standing,
    /// The artifacts of its sources, in their order.
    pub(crate) artifacts: Vec<Digest>,
    /// The revision that is to be fetched for it.
    pub(crate) wanted: Option<WantedRevision>,
    /// It owns something on the hub.
    pub(crate) has_children: bool,
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
    /// When the first of the remote resources that it was rendered by is to be checked again.
    pub(crate) check_remotes_at: Option<Timestamp>,
}

/// The cluster that a spec chooses.
struct Chosen {
    target: Target,
    cluster: Option<Stored>,
    /// Its agent tells how what was waited for is since.
    sees_health: bool,
}

/// What the references lead to.
struct Found {
    /// In the order of the references.
    sources: Vec<Source>,
    wanted: Option<WantedRevision>,
    /// The first source that is suspended.
    suspended: Option<Reference>,
}

impl Delivery {
    pub(crate) async fn situation(
        &self,
        stored: &Stored,
        kind: &dyn Applier,
        applier: &AnyApplier,
    ) -> Result<Gathered, HubError> {
        let spec = &applier.spec;
        let uid = ApplierUid::from(stored.uid);
        // Each asks for something of its own.
        let (last, holdings, Chosen { target, cluster, sees_health }) = tokio::try_join!(
            self.store.newest_reconciliation(uid),
            self.store.holdings(uid),
            self.target(stored, spec),
        )?;
        let on = cluster.as_ref().map(Stored::decode::<Cluster>).transpose()?;
        let offline =
            on.as_ref().and_then(|cluster| cluster.spec.offline.as_ref()).map(offline).unwrap_or_default();
        let (outdated, check_remotes_at) = match &last {
            Some(last) => {
                let by = &last.inputs.rendered_by;
                // What only reads has nothing to do with it.
                let is_other =
                    last.inputs.kind == AttemptKind::Apply && render::is_other_offline(by, offline);
                let of_remotes = self.remotes_of(stored, spec, by).await?;
                (is_other || of_remotes.0 || self.is_outdated(by).await?, of_remotes.1)
            }
            None => (false, None),
        };
        let began = last.as_ref().map(|last| last.inputs.started);
        let asked_for = last.as_ref().map(|last| last.asked_for.clone()).unwrap_or_default();
        // Where nothing was tried since the database was restored, what it says is not to be relied on yet.
        let is_unsure = last.as_ref().is_none_or(|last| last.is_past);
        let last = last.map(|last| Attempted {
            generation: last.inputs.generation,
            cluster: last.inputs.cluster,
            revision: last.inputs.revision,
            artifact: last.inputs.artifact,
            request: last.inputs.request,
            kind: last.inputs.kind,
            outdated,
            is_past: last.is_past,
            dispatch: last.dispatch,
            state: match last.finished {
                None => AttemptState::Open { deadline: last.deadline },
                Some((ended, reason)) => {
                    let at = last.checked.unwrap_or(ended);
                    AttemptState::Finished { at, succeeded: reason == Reason::ReconciliationSucceeded }
                }
            },
        });
        let well =
            matches!(&last, Some(Attempted { state: AttemptState::Finished { succeeded: true, .. }, .. }));
        let standing = self.access.standing(stored, spec, cluster.as_ref()).await?;
        let mut denials = self.access.denials_of(&standing, cluster.as_ref()).await?;
        denials.extend(self.gated(kind.decryption(stored, &standing.home)?));
        let names = self.depends_on(stored, &standing, spec, &mut denials).await?;
        let references = kind.sources(stored)?;
        let (dependencies, cycle, sources) = tokio::try_join!(
            // Of those that share a source one that is pinned goes its own way.
            self.dependencies(stored, references.first().filter(|_| spec.pin.is_none()), &names),
            self.cycle(stored, &names),
            self.sources(stored, &standing, spec.pin.as_ref(), &references, is_unsure),
        )?;
        let Found { sources, wanted, suspended } = sources;
        let older_than_applied = match &target {
            Target::Cluster { uid: cluster, name, .. } if is_unsure => {
                let lost = self.store.lost_attempt(uid, *cluster).await?;
                lost.and_then(|lost| restored::older_than_applied(stored, &lost, suspended.as_ref(), name))
            }
            _ => None,
        };
        let deleting = stored.deletion_timestamp.is_some();
        let sees = matches!(&target, Target::Cluster { agent: AgentLink::Connected, .. });
        let tended = tended(applier, &holdings, &target, sees_health);
        let guard = holds::bounds(spec, on.as_ref(), self.guard.as_ref());
        let events = spec.events.or(on.as_ref().and_then(|cluster| cluster.spec.events));
        let cluster_events = events == Some(EventsIn::Cluster);
        let adopts = on.iter().flat_map(|cluster| &cluster.spec.adopt).chain(&spec.adopt);
        let adopts_flux = adopts.into_iter().any(|from| *from == Adopt::Flux);
        let managers = on.iter().flat_map(|cluster| &cluster.spec.adopt_managers);
        let adopt_managers = managers.filter(|_| adopts_flux).cloned().collect();
        // Checked when it was written. Who asks for it wants it done, whatever else a deletion would do.
        let gives_back = deleting && annotated::gives_back(&stored.object).unwrap_or_default();
        let failed = last
            .as_ref()
            .is_some_and(|last| matches!(last.state, AttemptState::Finished { succeeded: false, .. }));
        let held = if failed { self.store.held_deletion(uid).await? } else { None };
        let situation = Situation {
            uid,
            generation: Generation(stored.generation),
            deleting,
            suspended: spec.suspend && !gives_back,
            prune: if deleting { gives_back || prunes_on_deletion(spec) } else { spec.prune },
            interval: spec.interval.0,
            full_interval: self.full_interval,
            retry_interval: spec.retry_interval().0,
            request: triggers::request(stored),
            unsupported: kind.unsupported(stored)?,
            denials,
            dependencies,
            cycle,
            target,
            source: combined(&sources),
            last,
            held: is_held(applier) || sees && history::is_unseen(applier),
            late: late_since(applier).filter(|_| well),
            tended,
            asked_for,
            handed: holdings.handed,
            older_than_applied,
            confirmed: holds::is_confirmed_since(held.as_ref(), began),
            owns_on: holdings
                .clusters
                .into_iter()
                .map(|(cluster, exists)| Owned { cluster, exists })
                .collect(),
        };
        let artifacts = sources.into_iter().filter_map(|source| match source {
            Source::Artifact { digest, .. } => Some(digest),
            _ => None,
        });
        let artifacts = artifacts.collect();
        let has_children = holdings.on_hub;
        Ok(Gathered {
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
        })
    }

    /// Whether one of the remote resources that it was rendered by is another one now, and when they are to be checked again.
    async fn remotes_of(
        &self,
        stored: &Stored,
        spec: &ApplierSpec,
        by: &BTreeMap<String, String>,
    ) -> Result<(bool, Option<Timestamp>), HubError> {
        if spec.suspend || stored.deletion_timestamp.is_some() {
            return Ok((false, None));
        }
        self.remotes.is_outdated(by, &stored.namespace, spec.interval.0).await
    }

    async fn target(&self, stored: &Stored, spec: &ApplierSpec) -> Result<Chosen, StoreError> {
        let chosen = |target, cluster| Ok(Chosen { target, cluster, sees_health: false });
        let not_found = |why: String| chosen(Target::NotFound(why), None);
        let cluster = if let Some(config) = &spec.kube_config {
            match self.access.chosen_cluster(&stored.namespace, config).await? {
                Ok(cluster) => Some(cluster),
                Err(why) => return not_found(why),
            }
        } else if let Some(reference) = &spec.cluster_ref {
            let cluster = self.store.get_for_pass(KindId::Cluster, "", &reference.name).await?;
            if cluster.is_none() {
                return not_found(format!("cluster '{}' not found on the hub", reference.name));
            }
            cluster
        } else {
            None
        };
        let Some(cluster) = cluster else {
            return not_found(
                "neither spec.clusterRef nor spec.kubeConfig is set, so no cluster is chosen; see: kubectl get clusters"
                    .to_owned(),
            );
        };
        let uid = cluster.uid.into();
        if cluster.deletion_timestamp.is_some() {
            let policy = cluster.decode::<Cluster>()?.spec.deletion_policy;
            return match policy {
                Some(ClusterDeletionPolicy::Prune) => {
                    chosen(Target::Leaving { uid, name: cluster.name.clone() }, Some(cluster))
                }
                Some(ClusterDeletionPolicy::Abandon) | None => {
                    not_found(format!("cluster '{}' is being deleted: choose another one", cluster.name))
                }
            };
        }
        let mut sees_health = false;
        let agent = match self.store.session(uid).await? {
            None => AgentLink::Never,
            Some(session) => {
                sees_health = session.capabilities.has(Capability::HealthAfterReady);
                match (session.disconnected, session.unreachable) {
                    (Some(at), _) => AgentLink::Lost(at),
                    (None, Some(why)) => AgentLink::Blind(why),
                    (None, None) => AgentLink::Connected,
                }
            }
        };
        let target = Target::Cluster { uid, name: cluster.name.clone(), agent };
        Ok(Chosen { target, cluster: Some(cluster), sees_health })
    }

    /// The sources that an applier refers to, in their order; the first one at the revision to which it is pinned. Where `is_unsure`, each is
    /// waited for until somebody has looked at it since the database was restored.
    async fn sources(
        &self,
        stored: &Stored,
        standing: &Standing,
        pin: Option<&Pin>,
        references: &[Reference],
        is_unsure: bool,
    ) -> Result<Found, HubError> {
        let (mut sources, mut wanted, mut suspended) = (Vec::with_capacity(references.len()), None, None);
        for (index, reference) in references.iter().enumerate() {
            sources.push(match self.source(stored, standing, reference).await? {
                Err(missing) => missing,
                Ok(found) => match pin.filter(|_| index == 0) {
                    None if is_unsure && triggers::is_suspended(&found) => {
                        suspended.get_or_insert_with(|| reference.clone());
                        self.newest_of(reference, &found).await?
                    }
                    None if is_unsure && self.store.is_unseen(found.uid).await? => {
                        Source::Fetching(restored::waits_for(reference))
                    }
                    None => self.newest_of(reference, &found).await?,
                    Some(pin) => {
                        let (source, to_fetch) = self.pinned(reference, &found, &pin.revision).await?;
                        wanted = to_fetch;
                        source
                    }
                },
            });
        }
        Ok(Found { sources, wanted, suspended })
    }

    /// What a source has now. What an ExternalArtifact's status names, which others may write, is to be its own: the digest of an
    /// artifact of another source is of no use to whoever knows it.
    async fn newest_of(&self, reference: &Reference, source: &Stored) -> Result<Source, HubError> {
        let found = newest(reference, source)?;
        if source.kind == KindId::ExternalArtifact
            && let Source::Artifact { digest, .. } = &found
            && self.store.source_artifact_of(source.uid, *digest).await?.is_none()
        {
            let full = shown(reference);
            return Ok(Source::Unusable(format!(
                "{full}: artifact {digest} is not stored, or no longer stored"
            )));
        }
        Ok(found)
    }

    /// A source, or why there is none for this applier.
    async fn source(
        &self,
        stored: &Stored,
        standing: &Standing,
        reference: &Reference,
    ) -> Result<Result<Stored, Source>, HubError> {
        let Reference { kind, namespace, name } = reference;
        if let Err(why) = self.access.may_refer_to(stored, standing, *kind, (namespace, name)).await? {
            return Ok(Err(Source::Unusable(format!("{} {why}", shown(reference)))));
        }
        let source = self.store.get_for_pass(*kind, namespace, name).await?;
        Ok(source.ok_or_else(|| Source::NotFound(format!("{} not found", shown(reference)))))
    }
}

fn offline(spec: &ClusterOffline) -> Offline {
    let policy = match spec.policy {
        Some(DriftPolicy::Report) => OfflinePolicy::Report,
        Some(DriftPolicy::Stop) => OfflinePolicy::Stop,
        Some(DriftPolicy::Correct) | None => OfflinePolicy::Correct,
    };
    let after = spec.after.map_or(DEFAULT_AFTER, |after| after.0);
    // Without another policy it does not matter when that would begin.
    let after = if policy == OfflinePolicy::Correct { Duration::ZERO } else { after };
    Offline { policy, after, keep_secrets: spec.keep_secrets }
}

/// Whether the cluster's agent sees for itself that what was applied stands, and is healthy where that is asked for. It does not see what
/// variables come from, nor what was applied to the hub, and one of an older version does not see health: where there is any of that,
/// each interval is a reason to look.
fn tended(applier: &AnyApplier, holdings: &Holdings, target: &Target, sees_health: bool) -> Tended {
    let Target::Cluster { uid, agent, .. } = target else { return Tended::Unknown };
    let Some((_, state)) = holdings.tended.filter(|(cluster, _)| cluster == uid) else {
        return Tended::Unknown;
    };
    let lookups = applier.status.iter().flat_map(|status| &status.applier.lookups);
    let on_hub_only = |lookup: &LookedUp| lookup.location == Some(Lookup::Hub);
    let sees_all = !holdings.on_hub
        && (sees_health || !history::asks(&applier.spec))
        && lookups.into_iter().all(on_hub_only);
    match state {
        TendedState::Now if sees_all => Tended::Now,
        TendedState::Until(until) if sees_all => Tended::Until(until),
        TendedState::UntilSessionEnded(since) if *agent == AgentLink::Connected => Tended::Unclaimed(since),
        TendedState::UntilSessionEnded(since) if sees_all => Tended::Until(since),
        _ => Tended::Unknown,
    }
}

/// For people.
pub(super) fn shown(reference: &Reference) -> String {
    let Reference { kind, namespace, name } = reference;
    format!("{kind} '{namespace}/{name}'")
}

/// What a source has now.
fn newest(reference: &Reference, source: &Stored) -> Result<Source, HubError> {
    let full = shown(reference);
    let status = source.decode::<AnySource>()?.status.unwrap_or_default().source;
    let Some(artifact) = status.artifact else {
        let why = conditions::ready(&status.conditions)
            .map_or("it has not been fetched yet", |ready| ready.message.as_str());
        return Ok(Source::NoArtifact(format!("{full} has no artifact: {why}")));
    };
    let (Ok(revision), Ok(digest)) = (artifact.revision.parse(), artifact.digest.parse()) else {
        return Ok(Source::Unusable(format!("{full} has an artifact, but its status cannot be parsed")));
    };
    Ok(Source::Artifact { revision, digest })
}

/// What the planner has to know of several sources: the revision of the first one, and a digest that changes with each of them.
fn combined(sources: &[Source]) -> Source {
    let missing = sources.iter().find(|source| !matches!(source, Source::Artifact { .. }));
    if let Some(missing) = missing {
        return missing.clone();
    }
    let mut digests = String::new();
    for source in sources {
        if let Source::Artifact { digest, .. } = source {
            digests.push_str(&digest.to_string());
        }
    }
    match sources {
        [] => Source::Unusable("it names no source of a kind that the hub serves".to_owned()),
        [only] => only.clone(),
        [first, ..] => match first {
            Source::Artifact { revision, .. } => {
                Source::Artifact { revision: revision.clone(), digest: Digest::of(digests.as_bytes()) }
            }
            missing => missing.clone(),
        },
    }
}

/// Whether Ready says what stands in the way, by a reason that is not of an attempt: it is tried when it is processed. An attempt
/// ends with one of these where others deny it what it is to write on the hub (`AccessDenied`), or where another agent has come
/// meanwhile that cannot carry it out (`AgentTooOld`).
pub(crate) fn is_held(applier: &AnyApplier) -> bool {
    let holds = [
        Reason::AccessDenied,
        Reason::DependencyNotReady,
        Reason::ArtifactFailed,
        Reason::ClusterNotFound,
        Reason::ClusterUnreachable,
        Reason::AgentTooOld,
        Reason::DatabaseRestored,
    ];
    ready(applier).is_some_and(|ready| holds.iter().any(|reason| ready.reason == reason.as_str()))
}

/// Since when Ready says that what was applied did not get healthy.
fn late_since(applier: &AnyApplier) -> Option<Timestamp> {
    let ready = ready(applier)?;
    let late = ready.status == ConditionStatus::False && ready.reason == Reason::HealthCheckFailed.as_str();
    late.then_some(ready.last_transition_time.0)
}

fn ready(applier: &AnyApplier) -> Option<&Condition> {
    conditions::ready(&applier.status.as_ref()?.applier.conditions)
}

fn prunes_on_deletion(spec: &ApplierSpec) -> bool {
    match spec.deletion_policy {
        None | Some(DeletionPolicy::MirrorPrune) => spec.prune,
        Some(DeletionPolicy::Delete | DeletionPolicy::WaitForTermination) => true,
        Some(DeletionPolicy::Orphan) => false,
    }
}
