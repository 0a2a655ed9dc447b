//! Gathers what a decision about one Kustomization depends on.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;
use roadstead_api::kustomization::{DeletionPolicy, MAX_DEPENDENCIES, SourceKind, SourceReference};
use roadstead_api::{
    AnySource, Cluster, ClusterDeletionPolicy, Condition, ConditionStatus, KindId, Kustomization,
    KustomizationSpec, PipelineRole,
};
use roadstead_hub_plan::{
    AgentLink, AttemptState, Attempted, Dependency, DependencyState, Gate, Owned, Situation, Source, Target,
};
use roadstead_hub_store::{DependencyRow, Reach, ReachedDependency, StoreError, Stored};
use roadstead_model::{Generation, KustomizationUid, Reason};

use crate::HubError;
use crate::delivery::Delivery;
use crate::identity::access::Standing;
use crate::objects::conditions::{self, READY};
use crate::objects::triggers;

/// Dependencies are followed to this many Kustomizations in search of a cycle.
const MAX_REACHED: usize = 1_000;

impl Delivery {
    pub(crate) async fn situation(
        &self,
        stored: &Stored,
        kustomization: &Kustomization,
    ) -> Result<(Situation, Standing), HubError> {
        let spec = &kustomization.spec;
        let uid = KustomizationUid::from(stored.uid);
        // Each asks for something of its own.
        let (last, owns_on, (target, cluster)) = tokio::try_join!(
            self.store.newest_reconciliation(uid),
            self.store.clusters_with_inventory(uid),
            self.target(stored, spec),
        )?;
        let last = last.map(|last| Attempted {
            generation: last.inputs.generation,
            cluster: last.inputs.cluster,
            revision: last.inputs.revision,
            artifact: last.inputs.artifact,
            request: last.inputs.request,
            deletes: last.inputs.deletes,
            state: match last.finished {
                None => AttemptState::Open { deadline: last.deadline },
                Some((at, reason)) => {
                    AttemptState::Finished { at, succeeded: reason == Reason::ReconciliationSucceeded }
                }
            },
        });
        let well =
            matches!(&last, Some(Attempted { state: AttemptState::Finished { succeeded: true, .. }, .. }));
        let chosen = cluster.as_ref().map(|cluster| cluster.name.as_str());
        let standing = self.access.standing(stored, spec, chosen).await?;
        let mut gates = self.access.access_gates(&standing, cluster.as_ref()).await?;
        let names = if spec.depends_on.len() > MAX_DEPENDENCIES {
            gates.push(too_many_dependencies(spec.depends_on.len()));
            Vec::new()
        } else {
            depends_on(stored, spec)
        };
        for name in names.iter().filter(|name| name.0 != stored.namespace) {
            let to = (name.0.as_str(), name.1.as_str());
            if let Err(why) = self.access.may_refer_to(stored, &standing, stored.kind, to).await? {
                let message = format!("{} '{}/{}' of spec.dependsOn {why}", stored.kind, name.0, name.1);
                gates.push(Gate { reason: Reason::AccessDenied, message });
            }
        }
        let (dependencies, cycle, source) = tokio::try_join!(
            self.dependencies(stored, spec, &names),
            self.cycle(stored, &names),
            self.source(stored, spec, &standing),
        )?;
        let deleting = stored.deletion_timestamp.is_some();
        let situation = Situation {
            uid,
            generation: Generation(stored.generation),
            deleting,
            suspended: spec.suspend,
            prune: if deleting { prunes_on_deletion(spec) } else { spec.prune },
            interval: spec.interval.0,
            retry_interval: spec.retry_interval.unwrap_or(spec.interval).0,
            request: triggers::request(stored),
            unsupported: unsupported(spec),
            gates,
            dependencies,
            cycle,
            target,
            source,
            last,
            held: is_held(kustomization),
            late: late_since(kustomization).filter(|_| well),
            owns_on: owns_on.into_iter().map(|(cluster, exists)| Owned { cluster, exists }).collect(),
        };
        Ok((situation, standing))
    }

    async fn target(
        &self,
        stored: &Stored,
        spec: &KustomizationSpec,
    ) -> Result<(Target, Option<Stored>), StoreError> {
        let not_found = |why: String| Ok((Target::NotFound(why), None));
        let secret = spec.kube_config.as_ref().and_then(|config| config.secret_ref.as_ref());
        let cluster = if let Some(secret) = secret {
            let (namespace, name) = (&stored.namespace, &secret.name);
            let clusters = self.store.clusters_of_secret(namespace, name).await?;
            let Some(uid) = clusters.first() else {
                return not_found(format!(
                    "no cluster was onboarded by Secret {namespace}/{name}, which spec.kubeConfig.secretRef names: see \
                     the Secret's events, and kubectl get clusters"
                ));
            };
            self.store.get_by_uid(*uid).await?
        } else if let Some(reference) = &spec.cluster_ref {
            let cluster = self.store.get(KindId::Cluster, "", &reference.name).await?;
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
                    Ok((Target::Leaving { uid, name: cluster.name.clone() }, Some(cluster)))
                }
                Some(ClusterDeletionPolicy::Abandon) | None => {
                    not_found(format!("cluster '{}' is being deleted: choose another one", cluster.name))
                }
            };
        }
        let agent = match self.store.session(uid).await? {
            None => AgentLink::Never,
            Some(session) => session.disconnected.map_or(AgentLink::Connected, AgentLink::Lost),
        };
        Ok((Target::Cluster { uid, name: cluster.name.clone(), agent }, Some(cluster)))
    }

    async fn source(
        &self,
        stored: &Stored,
        spec: &KustomizationSpec,
        standing: &Standing,
    ) -> Result<Source, HubError> {
        let reference = &spec.source_ref;
        let namespace = reference.namespace.as_deref().unwrap_or(&stored.namespace);
        let Some(kind) = reference.kind.served() else {
            return Ok(Source::NoArtifact("its kind is not served by the hub".to_owned()));
        };
        let full = format!("{kind} '{namespace}/{}'", reference.name);
        let to = (namespace, reference.name.as_str());
        if let Err(why) = self.access.may_refer_to(stored, standing, kind, to).await? {
            return Ok(Source::NoArtifact(format!("{full} {why}")));
        }
        let Some(source) = self.store.get(kind, namespace, &reference.name).await? else {
            return Ok(Source::NoArtifact(format!("{full} not found")));
        };
        let status = source.decode::<AnySource>()?.status.unwrap_or_default().source;
        let Some(artifact) = status.artifact else {
            let why = conditions::ready(&status.conditions)
                .map_or("it has not been fetched yet", |ready| ready.message.as_str());
            return Ok(Source::NoArtifact(format!("{full} has no artifact: {why}")));
        };
        let (Ok(revision), Ok(digest)) = (artifact.revision.parse(), artifact.digest.parse()) else {
            return Ok(Source::NoArtifact(format!(
                "{full} has an artifact, but its status cannot be parsed"
            )));
        };
        Ok(Source::Artifact { revision, digest })
    }

    /// The dependencies' states, in the order of `spec.dependsOn`.
    async fn dependencies(
        &self,
        stored: &Stored,
        spec: &KustomizationSpec,
        names: &[Name],
    ) -> Result<Vec<Dependency>, HubError> {
        let mut found: HashMap<Name, DependencyState> = HashMap::with_capacity(names.len());
        for row in self.store.dependencies(stored.kind, names).await? {
            let state = dependency_state(stored, spec, &row)?;
            found.insert((row.namespace, row.name), state);
        }
        Ok(names
            .iter()
            .map(|name| Dependency {
                state: found.get(name).cloned().unwrap_or(DependencyState::Missing),
                name: format!("{}/{}", name.0, name.1),
            })
            .collect())
    }

    /// The names along a cycle of dependencies that leads back to `stored`.
    async fn cycle(&self, stored: &Stored, names: &[Name]) -> Result<Option<Vec<String>>, HubError> {
        let start = (stored.namespace.clone(), stored.name.clone());
        let reach = Reach { kustomizations: MAX_REACHED, entries: MAX_DEPENDENCIES };
        let reached = self.store.reached_dependencies(stored.kind, &start, names, reach).await?;
        Ok(cycle(&start, names, &reached))
    }
}

/// Namespace and name.
type Name = (String, String);

/// The Kustomizations that `spec.dependsOn` names.
fn depends_on(stored: &Stored, spec: &KustomizationSpec) -> Vec<Name> {
    spec.depends_on
        .iter()
        .map(|reference| {
            let namespace = reference.namespace.clone().unwrap_or_else(|| stored.namespace.clone());
            (namespace, reference.name.clone())
        })
        .collect()
}

/// The shortest way from `start` by one of `first` back to it. One pointer for each Kustomization, to the one by which it was
/// reached: memory is linear in their number.
fn cycle(start: &Name, first: &[Name], reached: &[ReachedDependency]) -> Option<Vec<String>> {
    let end = reached.iter().position(|one| one.name == *start)?;
    let mut from: Vec<Option<usize>> = vec![None; reached.len()];
    let mut seen: Vec<bool> = reached.iter().map(|one| first.contains(&one.name)).collect();
    let mut ahead: VecDeque<usize> = (0..reached.len()).filter(|at| seen[*at]).collect();
    while let Some(at) = ahead.pop_front() {
        if at == end {
            break;
        }
        for next in reached[at].next.iter().copied().filter(|next| *next < reached.len()) {
            if !std::mem::replace(&mut seen[next], true) {
                from[next] = Some(at);
                ahead.push_back(next);
            }
        }
    }
    let shown = |name: &Name| format!("{}/{}", name.0, name.1);
    let mut way = vec![shown(start)];
    let mut at = from[end];
    while let Some(before) = at {
        way.push(shown(&reached[before].name));
        at = from[before];
    }
    way.push(shown(start));
    way.reverse();
    Some(way)
}

fn dependency_state(
    stored: &Stored,
    spec: &KustomizationSpec,
    dependency: &DependencyRow,
) -> Result<DependencyState, HubError> {
    let unreadable = |error: serde_json::Error| {
        HubError::Internal(format!("Kustomization {}/{}: {error}", dependency.namespace, dependency.name))
    };
    let conditions: Option<Vec<Condition>> =
        serde_json::from_value(dependency.conditions.clone()).map_err(unreadable)?;
    if dependency.deleting
        || !conditions::is_true(&conditions.unwrap_or_default(), READY, dependency.generation)
    {
        return Ok(DependencyState::NotReady);
    }
    let other: SourceReference = serde_json::from_value(dependency.source_ref.clone()).map_err(unreadable)?;
    let source = |reference: &SourceReference, own: &str| {
        (
            reference.kind,
            reference.namespace.clone().unwrap_or_else(|| own.to_owned()),
            reference.name.clone(),
        )
    };
    if source(&spec.source_ref, &stored.namespace) != source(&other, &dependency.namespace) {
        return Ok(DependencyState::Ready);
    }
    let revision = dependency.last_applied_revision.as_deref();
    Ok(DependencyState::ReadyAt(revision.and_then(|text| text.parse().ok())))
}

/// Whether Ready says what stands in the way, by a reason that is not of an attempt: it is tried when it is processed. An attempt
/// ends with one of these where others deny it what it is to write on the hub (`AccessDenied`), or where another agent has come
/// meanwhile that cannot carry it out (`AgentTooOld`).
pub(crate) fn is_held(kustomization: &Kustomization) -> bool {
    let holds = [
        Reason::AccessDenied,
        Reason::DependencyNotReady,
        Reason::ArtifactFailed,
        Reason::ClusterNotFound,
        Reason::ClusterUnreachable,
        Reason::AgentTooOld,
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

/// One that was stored by a version that had no bound.
fn too_many_dependencies(count: usize) -> Gate {
    let message = format!(
        "spec.dependsOn has {count} entries, and at most {MAX_DEPENDENCIES} are followed: remove some"
    );
    Gate { reason: Reason::DependencyNotReady, message }
}

/// A field that this version cannot act on. To pass over it would apply something other than what was asked for.
fn unsupported(spec: &KustomizationSpec) -> Option<String> {
    let fetched = KindId::of_role(PipelineRole::Source).filter(|kind| kind.get().reconciled);
    let fetched = fetched.map(|kind| kind.get().kind).collect::<Vec<_>>().join(" and ");
    let of_other_sources = format!("spec.sourceRef.kind other than {fetched}");
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
        (of_other_sources.as_str(), !is_fetched(spec.source_ref.kind)),
    ];
    let (field, _) = fields.into_iter().find(|(_, set)| *set)?;
    Some(format!(
        "{field} is not supported by this version of Roadstead; nothing was applied. Remove it to go on"
    ))
}

fn is_fetched(kind: SourceKind) -> bool {
    kind.served().is_some_and(|kind| kind.get().reconciled)
}
