//! What a kind is: its names, its versions, where its objects live. The kinds themselves are in [`crate::registry`].

use std::fmt;

use roadstead_model::ObjectRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::columns::Column;
use crate::references::References;
use crate::registry::KINDS;

/// A kind that the hub serves. The order is that of [`KINDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KindId {
    /// `v1 Namespace`
    Namespace,
    /// `v1 Secret`
    Secret,
    /// `v1 ConfigMap`
    ConfigMap,
    /// `v1 ServiceAccount`
    ServiceAccount,
    /// `v1 ResourceQuota`
    ResourceQuota,
    /// `v1 Event`, and `events.k8s.io/v1 Event`: the same objects
    Event,
    /// `rbac.authorization.k8s.io Role`
    Role,
    /// `rbac.authorization.k8s.io RoleBinding`
    RoleBinding,
    /// `rbac.authorization.k8s.io ClusterRole`
    ClusterRole,
    /// `rbac.authorization.k8s.io ClusterRoleBinding`
    ClusterRoleBinding,
    /// `kustomize.toolkit.fluxcd.io Kustomization`
    Kustomization,
    /// `source.toolkit.fluxcd.io GitRepository`
    GitRepository,
    /// `source.toolkit.fluxcd.io Bucket`
    Bucket,
    /// `source.toolkit.fluxcd.io OCIRepository`
    OciRepository,
    /// `source.toolkit.fluxcd.io HelmRepository`
    HelmRepository,
    /// `source.toolkit.fluxcd.io HelmChart`
    HelmChart,
    /// `source.toolkit.fluxcd.io ExternalArtifact`
    ExternalArtifact,
    /// `source.extensions.fluxcd.io ArtifactGenerator`
    ArtifactGenerator,
    /// `notification.toolkit.fluxcd.io Provider`
    Provider,
    /// `notification.toolkit.fluxcd.io Alert`
    Alert,
    /// `notification.toolkit.fluxcd.io Receiver`
    Receiver,
    /// `fleet.roadstead.dev Cluster`
    Cluster,
    /// `fleet.roadstead.dev ManagementCluster`
    ManagementCluster,
    /// `fleet.roadstead.dev ReferenceGrant`
    ReferenceGrant,
    /// `fleet.roadstead.dev Silence`
    Silence,
    /// `fleet.roadstead.dev Rehearsal`, for tests
    #[cfg(debug_assertions)]
    Rehearsal,
}

impl KindId {
    /// What is known about the kind.
    #[must_use]
    pub fn get(self) -> &'static Kind {
        // As many entries as variants, in their order: a test holds it.
        KINDS[self as usize]
    }

    /// Whether objects of the kind that a build holds go to the hub.
    #[must_use]
    pub fn is_child(self) -> bool {
        self.get().child == ChildRule::Always
    }

    /// The kind of that name among those that may go to the hub.
    #[must_use]
    pub fn child(kind: &str) -> Option<Self> {
        Self::named(kind).filter(|kind| kind.get().child != ChildRule::Never)
    }

    /// Whether it is a source: artifacts are made of it, which others deploy.
    #[must_use]
    pub fn is_source(self) -> bool {
        self.get().role == PipelineRole::Source
    }

    /// Whether it deploys.
    #[must_use]
    pub fn is_applier(self) -> bool {
        self.get().role == PipelineRole::Applier
    }

    /// Whether it is a source or deploys: others wait for objects of such a kind.
    #[must_use]
    pub fn is_in_pipeline(self) -> bool {
        self.get().role != PipelineRole::Other
    }

    /// The kind of source of that name.
    #[must_use]
    pub fn source(kind: &str) -> Option<Self> {
        Self::named(kind).filter(|kind| kind.is_source())
    }

    /// All kinds of a role, in their order.
    pub fn of_role(role: PipelineRole) -> impl Iterator<Item = Self> {
        KINDS.iter().filter(move |known| known.role == role).map(|known| known.id)
    }

    /// The kind of that name, of which there is one, whatever its group.
    #[must_use]
    pub fn named(kind: &str) -> Option<Self> {
        KINDS.iter().find(|known| known.kind == kind).map(|known| known.id)
    }

    /// The kind that a reference means: by its group, where the reference has an API version.
    #[must_use]
    pub fn referred(api_version: Option<&str>, kind: &str) -> Option<Self> {
        match api_version.map(ObjectRef::split_api_version) {
            Some((group, _)) => Self::parse(group, kind),
            None => Self::named(kind),
        }
    }

    /// The kind of that group and name.
    #[must_use]
    pub fn parse(group: &str, kind: &str) -> Option<Self> {
        KINDS.iter().find(|known| known.group() == group && known.kind == kind).map(|known| known.id)
    }
}

impl fmt::Display for KindId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get().kind)
    }
}

/// Where the objects of a kind live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In none.
    Cluster,
}

/// Whether objects of a kind that a build holds go to the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildRule {
    /// They go to the cluster, whatever they say: what they are on the hub gives rights there.
    Never,
    /// They go to the cluster, and to the hub too where a child of the same build refers to them, or where they say so.
    Referred,
    /// They go to the hub, unless they say otherwise.
    Always,
}

/// What objects of a kind are in the pipeline from a source to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelineRole {
    /// Artifacts are made of them, which appliers deploy.
    Source,
    /// They deploy.
    Applier,
    /// Neither.
    Other,
}

/// What the names of a kind's objects may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS label: at most 63 characters, no dots.
    Label,
    /// DNS labels with dots between.
    Subdomain,
    /// Anything that can stand in a URL's path: RBAC's kinds have such names, as `system:masters`.
    PathSegment,
}

/// A kind and all that is known about it.
#[derive(Debug)]
pub struct Kind {
    /// Its typed name.
    pub id: KindId,
    /// The kind, as in `kind: Kustomization`.
    pub kind: &'static str,
    /// The resource, as in a URL.
    pub plural: &'static str,
    /// One of it, in lower case.
    pub singular: &'static str,
    /// Abbreviations that kubectl takes.
    pub short_names: &'static [&'static str],
    /// Groups of resources that kubectl takes, as `all`.
    pub categories: &'static [&'static str],
    /// Where objects live.
    pub scope: Scope,
    /// What names are allowed.
    pub names: NameRule,
    /// Whether there is a `status` subresource, and with it a generation that counts changes of the spec.
    pub status: bool,
    /// Whether Kubernetes has the kind built in: its clients then patch it by strategic merge.
    pub builtin: bool,
    /// Whether objects that a build holds go to the hub. A kind for which this becomes `Always` leaves those where they are that
    /// are in a cluster's inventory by then.
    pub child: ChildRule,
    /// What objects are in the pipeline.
    pub role: PipelineRole,
    /// Whether the hub reconciles objects, and so says in `status` whether they are Ready. The others are only stored.
    pub reconciled: bool,
    /// Adds what an object with this `spec` refers to.
    pub references: fn(&Value, &mut References<'_>),
    /// The columns of `kubectl get`.
    pub columns: &'static [Column],
    /// The versions, the preferred one first.
    pub versions: &'static [Version],
}

/// A version of a kind.
#[derive(Debug)]
pub struct Version {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Its name, as `v1`.
    pub name: &'static str,
    /// Whether it is the one that objects are stored in. Stored objects hold the superset of all versions.
    pub storage: bool,
    /// The schema of its Rust type, before `hidden` and `required` are applied.
    pub(crate) schema: fn() -> Value,
    /// Fields of the storage form that this version does not have, as `spec.dependsOn[].readyExpr`.
    pub hidden: &'static [&'static str],
    /// Fields that this version requires beyond what the storage form does.
    pub required: &'static [&'static str],
}

impl Version {
    /// A kind's only version.
    pub(crate) const fn only(group: &'static str, name: &'static str, schema: fn() -> Value) -> Self {
        Self { group, name, storage: true, schema, hidden: &[], required: &[] }
    }

    /// The version with its group, as in `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.name.to_owned() } else { format!("{}/{}", self.group, self.name) }
    }
}

impl Kind {
    /// The version of that group and name.
    #[must_use]
    pub fn version(&self, group: &str, name: &str) -> Option<&'static Version> {
        self.versions.iter().find(|version| version.group == group && version.name == name)
    }

    /// The version that objects are stored in.
    #[must_use]
    pub fn storage_version(&self) -> &'static Version {
        self.versions.iter().find(|version| version.storage).unwrap_or(&self.versions[0])
    }

    /// The API group that objects are stored under; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &'static str {
        self.storage_version().group
    }

    /// The resource with its group, as in `kustomizations.kustomize.toolkit.fluxcd.io`.
    #[must_use]
    pub fn qualified(&self) -> String {
        let group = self.group();
        if group.is_empty() { self.plural.to_owned() } else { format!("{}.{group}", self.plural) }
    }

    /// Whether objects live in a namespace.
    #[must_use]
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}
