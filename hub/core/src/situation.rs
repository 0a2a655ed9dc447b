//! Gathers what a decision about one Kustomization depends on.

use std::collections::HashSet;

use jiff::Timestamp;
use roadstead_api::kustomization::{DeletionPolicy, SourceKind};
use roadstead_api::{
    Cluster, ClusterDeletionPolicy, Condition, ConditionStatus, GitRepository, KindId, Kustomization,
    KustomizationSpec,
};
use roadstead_hub_plan::{
    AgentLink, AttemptState, Attempted, Dependency, DependencyState, Owned, Situation, Source, Target,
};
use roadstead_hub_store::{StoreError, Stored};
use roadstead_model::{Generation, KustomizationUid, Reason};

use crate::conditions::{self, READY};
use crate::{Hub, HubError, triggers};

/// Dependencies are followed this far in search of a circle.
const MAX_DEPENDENCIES: usize = 1_000;

impl Hub {
    pub(crate) async fn situation(
        &self,
        stored: &Stored,
        kustomization: &Kustomization,
    ) -> Result<Situation, HubError> {
        let spec = &kustomization.spec;
        let uid = KustomizationUid::from(stored.uid);
        let last = self.store.newest_reconciliation(uid).await?.map(|last| Attempted {
            generation: last.aim.generation,
            cluster: last.aim.cluster,
            revision: last.aim.revision,
            artifact: last.aim.artifact,
            request: last.aim.request,
            deletes: last.aim.deletes,
            state: match last.finished {
                None => AttemptState::Open { deadline: last.deadline },
                Some((at, reason)) => {
                    AttemptState::Finished { at, succeeded: reason == Reason::ReconciliationSucceeded }
                }
            },
        });
        let well =
            matches!(&last, Some(Attempted { state: AttemptState::Finished { succeeded: true, .. }, .. }));
        let owns_on = self.store.clusters_with_inventory(uid).await?;
        let deleting = stored.deletion_timestamp.is_some();
        Ok(Situation {
            uid,
            generation: Generation(stored.generation),
            deleting,
            suspended: spec.suspend,
            prune: if deleting { prunes_on_deletion(spec) } else { spec.prune },
            interval: spec.interval.0,
            retry_interval: spec.retry_interval.unwrap_or(spec.interval).0,
            request: triggers::request(stored),
            unsupported: unsupported(spec),
            dependencies: self.dependencies(stored, spec).await?,
            cycle: self.cycle(stored, spec).await?,
            target: self.target(stored, spec).await?,
            source: self.source(stored, spec).await?,
            last,
            held: is_held(kustomization),
            late: late_since(kustomization).filter(|_| well),
            owns_on: owns_on.into_iter().map(|(cluster, exists)| Owned { cluster, exists }).collect(),
        })
    }

    async fn target(&self, stored: &Stored, spec: &KustomizationSpec) -> Result<Target, StoreError> {
        let secret = spec.kube_config.as_ref().and_then(|config| config.secret_ref.as_ref());
        let cluster = if let Some(secret) = secret {
            let (namespace, name) = (&stored.namespace, &secret.name);
            let clusters = self.store.clusters_of_secret(namespace, name).await?;
            let Some(uid) = clusters.first() else {
                return Ok(Target::NotFound(format!(
                    "no cluster is on board by Secret {namespace}/{name}, which spec.kubeConfig.secretRef names: see \
                     the Secret's events, and kubectl get clusters"
                )));
            };
            self.store.get_by_uid(*uid).await?
        } else if let Some(reference) = &spec.cluster_ref {
            let cluster = self.store.get(KindId::Cluster, "", &reference.name).await?;
            if cluster.is_none() {
                return Ok(Target::NotFound(format!(
                    "cluster '{}' not found: there is no such Cluster on the hub",
                    reference.name
                )));
            }
            cluster
        } else {
            None
        };
        let Some(cluster) = cluster else {
            return Ok(Target::NotFound(
                "neither spec.clusterRef nor spec.kubeConfig is set, so no cluster is chosen; name one of: \
                 kubectl get clusters"
                    .to_owned(),
            ));
        };
        let uid = cluster.uid.into();
        if cluster.deletion_timestamp.is_some() {
            let policy = cluster.decode::<Cluster>()?.spec.deletion_policy;
            return Ok(match policy {
                Some(ClusterDeletionPolicy::Prune) => Target::Leaving { uid, name: cluster.name },
                Some(ClusterDeletionPolicy::Abandon) | None => Target::NotFound(format!(
                    "cluster '{}' is being deleted: choose another one",
                    cluster.name
                )),
            });
        }
        let agent = match self.store.session(uid).await? {
            None => AgentLink::Never,
            Some(session) => session.disconnected.map_or(AgentLink::Connected, AgentLink::Lost),
        };
        Ok(Target::Cluster { uid, name: cluster.name, agent })
    }

    async fn source(&self, stored: &Stored, spec: &KustomizationSpec) -> Result<Source, HubError> {
        let reference = &spec.source_ref;
        let namespace = reference.namespace.as_deref().unwrap_or(&stored.namespace);
        let full = format!("GitRepository '{namespace}/{}'", reference.name);
        if namespace != stored.namespace {
            return Ok(Source::NoArtifact(format!(
                "{full} is in another namespace; references across namespaces are off on this hub"
            )));
        }
        let Some(source) = self.store.get(KindId::GitRepository, namespace, &reference.name).await? else {
            return Ok(Source::NoArtifact(format!("{full} not found")));
        };
        let source: GitRepository = source.decode()?;
        let status = source.status.unwrap_or_default();
        let Some(artifact) = status.artifact else {
            let why = conditions::ready(&status.conditions)
                .map_or("it has not been fetched yet", |ready| ready.message.as_str());
            return Ok(Source::NoArtifact(format!("{full} has no artifact: {why}")));
        };
        let (Ok(revision), Ok(digest)) = (artifact.revision.parse(), artifact.digest.parse()) else {
            return Ok(Source::NoArtifact(format!("{full} has an artifact whose status is not readable")));
        };
        Ok(Source::Artifact { revision, digest })
    }

    async fn dependencies(
        &self,
        stored: &Stored,
        spec: &KustomizationSpec,
    ) -> Result<Vec<Dependency>, HubError> {
        let mut dependencies = Vec::with_capacity(spec.depends_on.len());
        for reference in &spec.depends_on {
            let namespace = reference.namespace.as_deref().unwrap_or(&stored.namespace);
            let found = self.store.get(KindId::Kustomization, namespace, &reference.name).await?;
            let state = match found {
                None => DependencyState::Missing,
                Some(found) => dependency_state(stored, spec, &found)?,
            };
            dependencies.push(Dependency { name: format!("{namespace}/{}", reference.name), state });
        }
        Ok(dependencies)
    }

    /// The names along a circle of dependencies that leads back to `stored`.
    async fn cycle(
        &self,
        stored: &Stored,
        spec: &KustomizationSpec,
    ) -> Result<Option<Vec<String>>, HubError> {
        let start = (stored.namespace.clone(), stored.name.clone());
        let mut seen: HashSet<(String, String)> = HashSet::new();
        // Depth first; each entry is a name and the way to it.
        let mut ahead: Vec<((String, String), Vec<String>)> = next_of(&start, spec, &[]);
        while let Some((name, way)) = ahead.pop() {
            if name == start {
                let mut way = way;
                way.push(format!("{}/{}", name.0, name.1));
                return Ok(Some(way));
            }
            if seen.len() >= MAX_DEPENDENCIES || !seen.insert(name.clone()) {
                continue;
            }
            if let Some(found) = self.store.get(KindId::Kustomization, &name.0, &name.1).await? {
                let found: Kustomization = found.decode()?;
                ahead.extend(next_of(&name, &found.spec, &way));
            }
        }
        Ok(None)
    }
}

type Name = (String, String);

fn next_of(name: &Name, spec: &KustomizationSpec, way: &[String]) -> Vec<(Name, Vec<String>)> {
    let mut way = way.to_vec();
    way.push(format!("{}/{}", name.0, name.1));
    spec.depends_on
        .iter()
        .map(|reference| {
            let namespace = reference.namespace.clone().unwrap_or_else(|| name.0.clone());
            ((namespace, reference.name.clone()), way.clone())
        })
        .collect()
}

fn dependency_state(
    stored: &Stored,
    spec: &KustomizationSpec,
    dependency: &Stored,
) -> Result<DependencyState, HubError> {
    let found: Kustomization = dependency.decode()?;
    let status = found.status.unwrap_or_default();
    if dependency.deletion_timestamp.is_some()
        || !conditions::is_true(&status.conditions, READY, dependency.generation)
    {
        return Ok(DependencyState::NotReady);
    }
    let source = |of: &Stored, spec: &KustomizationSpec| {
        let reference = &spec.source_ref;
        (
            reference.kind,
            reference.namespace.clone().unwrap_or_else(|| of.namespace.clone()),
            reference.name.clone(),
        )
    };
    if source(stored, spec) != source(dependency, &found.spec) {
        return Ok(DependencyState::Ready);
    }
    Ok(DependencyState::ReadyAt(status.last_applied_revision.and_then(|text| text.parse().ok())))
}

/// Whether Ready says what stands in the way, by a reason that no attempt ends with.
fn is_held(kustomization: &Kustomization) -> bool {
    let holds = [
        Reason::DependencyNotReady,
        Reason::ArtifactFailed,
        Reason::ClusterNotFound,
        Reason::ClusterUnreachable,
    ];
    ready(kustomization).is_some_and(|ready| holds.iter().any(|reason| ready.reason == reason.as_str()))
}

/// Since when Ready says that what was applied did not get healthy.
fn late_since(kustomization: &Kustomization) -> Option<Timestamp> {
    let ready = ready(kustomization)?;
    let late = ready.status == ConditionStatus::False && ready.reason == Reason::HealthCheckFailed.as_str();
    late.then_some(ready.last_transition_time.0)
}

fn ready(kustomization: &Kustomization) -> Option<&Condition> {
    conditions::ready(&kustomization.status.as_ref()?.conditions)
}

fn prunes_on_deletion(spec: &KustomizationSpec) -> bool {
    match spec.deletion_policy {
        None | Some(DeletionPolicy::MirrorPrune) => spec.prune,
        Some(DeletionPolicy::Delete | DeletionPolicy::WaitForTermination) => true,
        Some(DeletionPolicy::Orphan) => false,
    }
}

/// A field that this version cannot act on. To pass over it would apply something other than what was asked for.
fn unsupported(spec: &KustomizationSpec) -> Option<String> {
    let fields = [
        ("spec.decryption", spec.decryption.is_some()),
        ("spec.postBuild", spec.post_build.is_some()),
        (
            "spec.kubeConfig.configMapRef",
            spec.kube_config.as_ref().is_some_and(|config| config.config_map_ref.is_some()),
        ),
        ("spec.healthCheckExprs", !spec.health_check_exprs.is_empty()),
        (
            "spec.dependsOn[].readyExpr",
            spec.depends_on.iter().any(|reference| reference.ready_expr.is_some()),
        ),
        ("spec.ignore", !spec.ignore.is_empty()),
        (
            "spec.deletionPolicy: WaitForTermination",
            spec.deletion_policy == Some(DeletionPolicy::WaitForTermination),
        ),
        ("spec.sourceRef.kind other than GitRepository", spec.source_ref.kind != SourceKind::GitRepository),
    ];
    let (field, _) = fields.into_iter().find(|(_, set)| *set)?;
    Some(format!(
        "{field} is not supported by this version of Roadstead; nothing was applied. Remove it to go on"
    ))
}
