//! The registry of kinds: everything that serves, stores or checks an object goes by it.

use crate::kind::{ChildRule, Kind, KindId, NameRule, PipelineRole, Scope, Version};
use crate::schema::generate;
use crate::{
    Alert, ArtifactGenerator, Bucket, Cluster, ClusterRole, ConfigMap, Event, EventV1, ExternalArtifact,
    GitRepository, HelmChart, HelmRepository, Kustomization, ManagementCluster, Namespace, OciRepository,
    Provider, Receiver, ReferenceGrant, ResourceQuota, Role, RoleBinding, Secret, ServiceAccount, Silence,
    columns, rbac, references,
};

const CORE: &str = "";
const EVENTS: &str = "events.k8s.io";
const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io";
const SOURCE: &str = "source.toolkit.fluxcd.io";
const SOURCE_EXTENSIONS: &str = "source.extensions.fluxcd.io";
const NOTIFICATION: &str = "notification.toolkit.fluxcd.io";
const FLEET: &str = "fleet.roadstead.dev";

/// All kinds, in the order of [`KindId`], in which they are listed.
pub static KINDS: &[&Kind] = &[
    &NAMESPACE,
    &SECRET,
    &CONFIG_MAP,
    &SERVICE_ACCOUNT,
    &RESOURCE_QUOTA,
    &EVENT,
    &ROLE,
    &ROLE_BINDING,
    &CLUSTER_ROLE,
    &CLUSTER_ROLE_BINDING,
    &KUSTOMIZATION,
    &GIT_REPOSITORY,
    &BUCKET,
    &OCI_REPOSITORY,
    &HELM_REPOSITORY,
    &HELM_CHART,
    &EXTERNAL_ARTIFACT,
    &ARTIFACT_GENERATOR,
    &PROVIDER,
    &ALERT,
    &RECEIVER,
    &CLUSTER,
    &MANAGEMENT_CLUSTER,
    &REFERENCE_GRANT,
    &SILENCE,
    #[cfg(debug_assertions)]
    &REHEARSAL,
];

static NAMESPACE: Kind = Kind {
    id: KindId::Namespace,
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    categories: &[],
    scope: Scope::Cluster,
    names: NameRule::Label,
    status: true,
    builtin: true,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::NAMESPACE,
    versions: &[Version::only(CORE, "v1", generate::<Namespace>)],
};

static SECRET: Kind = Kind {
    id: KindId::Secret,
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: false,
    builtin: true,
    child: ChildRule::Referred,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::SECRET,
    versions: &[Version::only(CORE, "v1", generate::<Secret>)],
};

static CONFIG_MAP: Kind = Kind {
    id: KindId::ConfigMap,
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: false,
    builtin: true,
    child: ChildRule::Referred,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::CONFIG_MAP,
    versions: &[Version::only(CORE, "v1", generate::<ConfigMap>)],
};

static SERVICE_ACCOUNT: Kind = Kind {
    id: KindId::ServiceAccount,
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: false,
    builtin: true,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::SERVICE_ACCOUNT,
    versions: &[Version::only(CORE, "v1", generate::<ServiceAccount>)],
};

static RESOURCE_QUOTA: Kind = Kind {
    id: KindId::ResourceQuota,
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: true,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::BARE,
    versions: &[Version::only(CORE, "v1", generate::<ResourceQuota>)],
};

static EVENT: Kind = Kind {
    id: KindId::Event,
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: false,
    builtin: true,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::EVENT,
    versions: &[
        Version::only(CORE, "v1", generate::<Event>),
        Version {
            group: EVENTS,
            name: "v1",
            storage: false,
            schema: generate::<EventV1>,
            hidden: &[],
            required: &[],
        },
    ],
};

static ROLE: Kind = Kind {
    id: KindId::Role,
    kind: "Role",
    plural: "roles",
    singular: "role",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::PathSegment,
    status: false,
    builtin: true,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::ROLE,
    versions: &[Version::only(rbac::GROUP, "v1", generate::<Role>)],
};

static ROLE_BINDING: Kind = Kind {
    id: KindId::RoleBinding,
    kind: "RoleBinding",
    plural: "rolebindings",
    singular: "rolebinding",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::PathSegment,
    status: false,
    builtin: true,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::ROLE_BINDING,
    versions: &[Version::only(rbac::GROUP, "v1", generate::<RoleBinding>)],
};

static CLUSTER_ROLE: Kind = Kind {
    id: KindId::ClusterRole,
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    names: NameRule::PathSegment,
    status: false,
    builtin: true,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::ROLE,
    versions: &[Version::only(rbac::GROUP, "v1", generate::<ClusterRole>)],
};

static CLUSTER_ROLE_BINDING: Kind = Kind {
    id: KindId::ClusterRoleBinding,
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    short_names: &[],
    categories: &[],
    scope: Scope::Cluster,
    names: NameRule::PathSegment,
    status: false,
    builtin: true,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::ROLE_BINDING,
    versions: &[Version::only(rbac::GROUP, "v1", generate::<RoleBinding>)],
};

static KUSTOMIZATION: Kind = Kind {
    id: KindId::Kustomization,
    kind: "Kustomization",
    plural: "kustomizations",
    singular: "kustomization",
    short_names: &["ks"],
    categories: &["all", "fluxcd", "fluxcd-appliers"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Applier,
    reconciled: true,
    references: references::kustomization,
    columns: &columns::KUSTOMIZATION,
    versions: &[
        Version {
            group: KUSTOMIZE,
            name: "v1",
            storage: true,
            schema: generate::<Kustomization>,
            hidden: &["spec.serviceAccount", "spec.validation", "status.snapshot"],
            required: &["spec.prune"],
        },
        Version {
            group: KUSTOMIZE,
            name: "v1alpha1",
            storage: false,
            schema: generate::<Kustomization>,
            hidden: &[
                "spec.adopt",
                "spec.buildMetadata",
                "spec.commonMetadata",
                "spec.components",
                "spec.decryption.serviceAccountName",
                "spec.deletionPolicy",
                "spec.dependsOn[].readyExpr",
                "spec.drift",
                "spec.events",
                "spec.force",
                "spec.guard",
                "spec.healthCheckExprs",
                "spec.ignore",
                "spec.ignoreMissingComponents",
                "spec.images",
                "spec.kubeConfig.configMapRef",
                "spec.kubeConfig.secretRef.key",
                "spec.namePrefix",
                "spec.nameSuffix",
                "spec.patches",
                "spec.pin",
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
    kind: "GitRepository",
    plural: "gitrepositories",
    singular: "gitrepository",
    short_names: &["gitrepo"],
    categories: &["all", "fluxcd", "fluxcd-sources"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Source,
    reconciled: true,
    references: references::source,
    columns: &columns::GIT_REPOSITORY,
    versions: &[Version::only(SOURCE, "v1", generate::<GitRepository>)],
};

static BUCKET: Kind = Kind {
    id: KindId::Bucket,
    kind: "Bucket",
    plural: "buckets",
    singular: "bucket",
    short_names: &[],
    categories: &["all", "fluxcd", "fluxcd-sources"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Source,
    reconciled: true,
    references: references::source,
    columns: &columns::BUCKET,
    versions: &[Version::only(SOURCE, "v1", generate::<Bucket>)],
};

static OCI_REPOSITORY: Kind = Kind {
    id: KindId::OciRepository,
    kind: "OCIRepository",
    plural: "ocirepositories",
    singular: "ocirepository",
    short_names: &["ocirepo"],
    categories: &["all", "fluxcd", "fluxcd-sources"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Source,
    reconciled: true,
    references: references::source,
    columns: &columns::OCI_REPOSITORY,
    versions: &[Version::only(SOURCE, "v1", generate::<OciRepository>)],
};

static HELM_REPOSITORY: Kind = Kind {
    id: KindId::HelmRepository,
    kind: "HelmRepository",
    plural: "helmrepositories",
    singular: "helmrepository",
    short_names: &["helmrepo"],
    categories: &["all", "fluxcd", "fluxcd-sources"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Source,
    reconciled: true,
    references: references::source,
    columns: &columns::HELM_REPOSITORY,
    versions: &[Version::only(SOURCE, "v1", generate::<HelmRepository>)],
};

static HELM_CHART: Kind = Kind {
    id: KindId::HelmChart,
    kind: "HelmChart",
    plural: "helmcharts",
    singular: "helmchart",
    short_names: &["hc"],
    categories: &["all", "fluxcd", "fluxcd-sources"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Source,
    reconciled: true,
    references: references::source,
    columns: &columns::HELM_CHART,
    versions: &[Version::only(SOURCE, "v1", generate::<HelmChart>)],
};

static EXTERNAL_ARTIFACT: Kind = Kind {
    id: KindId::ExternalArtifact,
    kind: "ExternalArtifact",
    plural: "externalartifacts",
    singular: "externalartifact",
    short_names: &["ea"],
    categories: &["all", "fluxcd", "fluxcd-sources"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Source,
    reconciled: true,
    references: references::none,
    columns: &columns::EXTERNAL_ARTIFACT,
    versions: &[Version::only(SOURCE, "v1", generate::<ExternalArtifact>)],
};

static ARTIFACT_GENERATOR: Kind = Kind {
    id: KindId::ArtifactGenerator,
    kind: "ArtifactGenerator",
    plural: "artifactgenerators",
    singular: "artifactgenerator",
    short_names: &["ag"],
    categories: &["all", "fluxcd", "fluxcd-sources"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Other,
    reconciled: true,
    references: references::generator,
    columns: &columns::PLAIN,
    versions: &[Version::only(SOURCE_EXTENSIONS, "v1beta1", generate::<ArtifactGenerator>)],
};

static PROVIDER: Kind = Kind {
    id: KindId::Provider,
    kind: "Provider",
    plural: "providers",
    singular: "provider",
    short_names: &[],
    categories: &["all", "fluxcd", "fluxcd-notifications"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Other,
    reconciled: true,
    references: references::provider,
    columns: &columns::PROVIDER,
    versions: &[
        Version::only(NOTIFICATION, "v1beta3", generate::<Provider>),
        Version { storage: false, ..Version::only(NOTIFICATION, "v1", generate::<Provider>) },
    ],
};

static ALERT: Kind = Kind {
    id: KindId::Alert,
    kind: "Alert",
    plural: "alerts",
    singular: "alert",
    short_names: &[],
    categories: &["all", "fluxcd", "fluxcd-notifications"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Other,
    reconciled: true,
    references: references::alert,
    columns: &columns::ALERT,
    versions: &[
        Version::only(NOTIFICATION, "v1beta3", generate::<Alert>),
        Version { storage: false, ..Version::only(NOTIFICATION, "v1", generate::<Alert>) },
    ],
};

static RECEIVER: Kind = Kind {
    id: KindId::Receiver,
    kind: "Receiver",
    plural: "receivers",
    singular: "receiver",
    short_names: &[],
    categories: &["all", "fluxcd", "fluxcd-notifications"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Other,
    reconciled: true,
    references: references::receiver,
    columns: &columns::PLAIN,
    versions: &[Version::only(NOTIFICATION, "v1", generate::<Receiver>)],
};

static CLUSTER: Kind = Kind {
    id: KindId::Cluster,
    kind: "Cluster",
    plural: "clusters",
    singular: "cluster",
    short_names: &[],
    categories: &["all"],
    scope: Scope::Cluster,
    names: NameRule::Label,
    status: true,
    builtin: false,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: true,
    references: references::none,
    columns: &columns::CLUSTER,
    versions: &[Version::only(FLEET, "v1alpha1", generate::<Cluster>)],
};

static MANAGEMENT_CLUSTER: Kind = Kind {
    id: KindId::ManagementCluster,
    kind: "ManagementCluster",
    plural: "managementclusters",
    singular: "managementcluster",
    short_names: &["mc"],
    categories: &["all"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: true,
    references: references::none,
    columns: &columns::MANAGEMENT_CLUSTER,
    versions: &[Version::only(FLEET, "v1alpha1", generate::<ManagementCluster>)],
};

static REFERENCE_GRANT: Kind = Kind {
    id: KindId::ReferenceGrant,
    kind: "ReferenceGrant",
    plural: "referencegrants",
    singular: "referencegrant",
    short_names: &["refgrant"],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: false,
    builtin: false,
    // It gives rights.
    child: ChildRule::Never,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::BARE,
    versions: &[Version::only(FLEET, "v1alpha1", generate::<ReferenceGrant>)],
};

static SILENCE: Kind = Kind {
    id: KindId::Silence,
    kind: "Silence",
    plural: "silences",
    singular: "silence",
    short_names: &[],
    categories: &["all"],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: false,
    builtin: false,
    child: ChildRule::Always,
    role: PipelineRole::Other,
    reconciled: false,
    references: references::none,
    columns: &columns::SILENCE,
    versions: &[Version::only(FLEET, "v1alpha1", generate::<Silence>)],
};

/// A kind for tests.
#[cfg(debug_assertions)]
static REHEARSAL: Kind = Kind {
    id: KindId::Rehearsal,
    kind: "Rehearsal",
    plural: "rehearsals",
    singular: "rehearsal",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    names: NameRule::Subdomain,
    status: true,
    builtin: false,
    child: ChildRule::Never,
    role: PipelineRole::Applier,
    reconciled: true,
    references: references::rehearsal,
    columns: &columns::KUSTOMIZATION,
    versions: &[Version::only(FLEET, "v1alpha1", generate::<crate::Rehearsal>)],
};

#[cfg(test)]
mod tests {
    use super::KINDS;

    #[test]
    fn the_registry_is_in_the_order_of_the_ids() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert_eq!(kind.id as usize, index, "{}", kind.kind);
            // Objects are found by the names of their kinds alone, where others refer to them.
            assert!(
                KINDS[..index].iter().all(|other| other.kind != kind.kind),
                "{} is there twice",
                kind.kind
            );
            assert_eq!(kind.versions.iter().filter(|version| version.storage).count(), 1, "{}", kind.kind);
        }
    }
}
