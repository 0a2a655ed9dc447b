//! The registry of kinds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind that the hub serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KindId {
    /// `v1 Namespace`
    Namespace,
    /// `v1 Secret`
    Secret,
    /// `kustomize.toolkit.fluxcd.io Kustomization`
    Kustomization,
    /// `source.toolkit.fluxcd.io GitRepository`
    GitRepository,
    /// `fleet.roadstead.dev Cluster`
    Cluster,
}

impl KindId {
    /// What is known about the kind.
    #[must_use]
    pub fn get(self) -> &'static Kind {
        match self {
            Self::Namespace => &NAMESPACE,
            Self::Secret => &SECRET,
            Self::Kustomization => &KUSTOMIZATION,
            Self::GitRepository => &GIT_REPOSITORY,
            Self::Cluster => &CLUSTER,
        }
    }

    /// The kind of that group and name.
    #[must_use]
    pub fn parse(group: &str, kind: &str) -> Option<Self> {
        KINDS.iter().find(|known| known.group == group && known.kind == kind).map(|known| known.id)
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

/// A kind and all that is known about it.
#[derive(Debug)]
pub struct Kind {
    /// Its typed name.
    pub id: KindId,
    /// API group; empty for the core group.
    pub group: &'static str,
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
    /// Whether there is a `status` subresource, and with it a generation that counts changes of the spec.
    pub status: bool,
    /// The versions, the preferred one first.
    pub versions: &'static [Version],
}

/// A version of a kind.
#[derive(Debug)]
pub struct Version {
    /// Its name, as `v1`.
    pub name: &'static str,
    /// Whether it is the one that objects are stored in. Stored objects hold the superset of all versions.
    pub storage: bool,
    /// Fields of the storage form that this version does not have, as `spec.dependsOn[].readyExpr`.
    pub hidden: &'static [&'static str],
    /// Fields that this version requires beyond what the storage form does.
    pub required: &'static [&'static str],
}

impl Kind {
    /// The version of that name.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&'static Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The version that objects are stored in.
    #[must_use]
    pub fn storage_version(&self) -> &'static Version {
        self.versions.iter().find(|version| version.storage).unwrap_or(&self.versions[0])
    }

    /// `apiVersion` of a version of this kind.
    #[must_use]
    pub fn api_version(&self, version: &Version) -> String {
        if self.group.is_empty() {
            version.name.to_owned()
        } else {
            format!("{}/{}", self.group, version.name)
        }
    }

    /// The resource with its group, as in `kustomizations.kustomize.toolkit.fluxcd.io`.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether objects live in a namespace.
    #[must_use]
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}

/// All kinds, in the order in which they are listed.
pub static KINDS: [&Kind; 5] = [&NAMESPACE, &SECRET, &KUSTOMIZATION, &GIT_REPOSITORY, &CLUSTER];

static NAMESPACE: Kind = Kind {
    id: KindId::Namespace,
    group: "",
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    categories: &[],
    scope: Scope::Cluster,
    status: true,
    versions: &[Version { name: "v1", storage: true, hidden: &[], required: &[] }],
};

static SECRET: Kind = Kind {
    id: KindId::Secret,
    group: "",
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    status: false,
    versions: &[Version { name: "v1", storage: true, hidden: &[], required: &[] }],
};

static KUSTOMIZATION: Kind = Kind {
    id: KindId::Kustomization,
    group: "kustomize.toolkit.fluxcd.io",
    kind: "Kustomization",
    plural: "kustomizations",
    singular: "kustomization",
    short_names: &["ks"],
    categories: &["all"],
    scope: Scope::Namespaced,
    status: true,
    versions: &[
        Version {
            name: "v1",
            storage: true,
            hidden: &["spec.serviceAccount", "spec.validation"],
            required: &["spec.prune"],
        },
        Version {
            name: "v1alpha1",
            storage: false,
            hidden: &[
                "spec.buildMetadata",
                "spec.commonMetadata",
                "spec.components",
                "spec.decryption.serviceAccountName",
                "spec.deletionPolicy",
                "spec.dependsOn[].readyExpr",
                "spec.force",
                "spec.healthCheckExprs",
                "spec.ignore",
                "spec.ignoreMissingComponents",
                "spec.images",
                "spec.kubeConfig.configMapRef",
                "spec.kubeConfig.secretRef.key",
                "spec.namePrefix",
                "spec.nameSuffix",
                "spec.patches",
                "spec.postBuild",
                "spec.retryInterval",
                "spec.serviceAccountName",
                "spec.sourceRef.apiVersion",
                "spec.wait",
                "status.history",
                "status.inventory",
                "status.lastAppliedOriginRevision",
            ],
            required: &["spec.path"],
        },
    ],
};

static GIT_REPOSITORY: Kind = Kind {
    id: KindId::GitRepository,
    group: "source.toolkit.fluxcd.io",
    kind: "GitRepository",
    plural: "gitrepositories",
    singular: "gitrepository",
    short_names: &["gitrepo"],
    categories: &["all"],
    scope: Scope::Namespaced,
    status: true,
    versions: &[Version { name: "v1", storage: true, hidden: &[], required: &[] }],
};

static CLUSTER: Kind = Kind {
    id: KindId::Cluster,
    group: "fleet.roadstead.dev",
    kind: "Cluster",
    plural: "clusters",
    singular: "cluster",
    short_names: &[],
    categories: &["all"],
    scope: Scope::Cluster,
    status: true,
    versions: &[Version { name: "v1alpha1", storage: true, hidden: &[], required: &[] }],
};
