//! Facts about Kubernetes' own types, as of 1.21: which kinds have no namespace, and which lists a strategic merge joins
//! by key. Lists that are not named here, and all lists of custom resources, are replaced whole.

/// How one field of a type merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// As in [`super::Field`].
    pub(super) merge_keys: Option<&'static [&'static str]>,
    /// The type of the field, or of the elements of the list.
    pub(super) of: Type,
}

/// A type, as far as merging is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// Nothing below merges by key.
    Plain,
    /// A Kubernetes object whose `spec` is of this type, with this kind.
    Object(Spec),
    /// `spec` or `template` of a workload.
    Spec(Spec),
    /// `ObjectMeta`.
    Meta,
    /// `PodTemplateSpec`.
    PodTemplate,
    /// `JobTemplateSpec`.
    JobTemplate,
    /// `PodSpec`.
    Pod,
    /// `Container`.
    Container,
    /// `EphemeralContainer`.
    EphemeralContainer,
    /// `Volume`.
    Volume,
    /// `EphemeralVolumeSource`.
    EphemeralVolume,
    /// `PersistentVolumeClaimTemplate`.
    ClaimTemplate,
    /// Any status: conditions merge by type.
    Status,
    /// `NodeStatus`.
    NodeStatus,
    /// `PodStatus`.
    PodStatus,
}

/// The shapes that a `spec` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spec {
    /// Nothing in it merges by key.
    None,
    /// `status.conditions` merge, nothing in `spec` does.
    Conditions,
    /// A pod.
    Pod,
    /// A pod template stands at the top.
    PodTemplate,
    /// A workload: `spec.template`.
    Workload,
    /// `spec.jobTemplate`.
    CronJob,
    /// Ports merge by port and protocol.
    Service,
    /// `secrets` merge by name.
    ServiceAccount,
    /// `webhooks` merge by name.
    Webhooks,
    /// `spec.podCIDRs` is a set.
    Node,
    /// `spec.drivers` merge by name.
    CsiNode,
}

impl Type {
    /// The type of an object; `Plain` for kinds that Kubernetes 1.21 does not have.
    pub(super) fn of_object(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let spec = match (group, version, kind) {
            ("", "v1", "Pod") => Spec::Pod,
            ("", "v1", "PodTemplate") => Spec::PodTemplate,
            ("", "v1", "ReplicationController")
            | ("apps", "v1", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet")
            | ("batch", "v1", "Job") => Spec::Workload,
            ("batch", "v1" | "v1beta1", "CronJob") => Spec::CronJob,
            ("", "v1", "Service") => Spec::Service,
            ("", "v1", "ServiceAccount") => Spec::ServiceAccount,
            ("", "v1", "Node") => Spec::Node,
            (
                "admissionregistration.k8s.io",
                "v1" | "v1beta1",
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
            ) => Spec::Webhooks,
            ("storage.k8s.io", "v1" | "v1beta1", "CSINode") => Spec::CsiNode,
            ("", "v1", "ComponentStatus" | "Namespace" | "PersistentVolumeClaim")
            | ("apiregistration.k8s.io", "v1" | "v1beta1", "APIService")
            | ("policy", "v1" | "v1beta1", "PodDisruptionBudget") => Spec::Conditions,
            _ if is_known(group, version, kind) => Spec::None,
            _ => return Self::Plain,
        };
        Self::Object(spec)
    }

    /// The type with a name as `io.k8s.api.core.v1.PodSpec`; `Plain` for those in which nothing merges.
    pub(super) fn of_definition(name: &str) -> Self {
        const PACKAGES: [(&str, &str); 5] = [
            ("io.k8s.api.core.", ""),
            ("io.k8s.api.apps.", "apps/"),
            ("io.k8s.api.batch.", "batch/"),
            ("io.k8s.api.policy.", "policy/"),
            ("io.k8s.api.admissionregistration.", "admissionregistration.k8s.io/"),
        ];
        if name == "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" {
            return Self::Meta;
        }
        let found = PACKAGES.iter().find_map(|(package, group)| Some((name.strip_prefix(package)?, group)));
        let Some((rest, group)) = found else { return Self::Plain };
        let Some((version, kind)) = rest.split_once('.') else { return Self::Plain };
        match (*group, kind) {
            ("", "PodTemplateSpec") => return Self::PodTemplate,
            ("", "PodSpec") => return Self::Pod,
            ("", "Container") => return Self::Container,
            ("", "EphemeralContainer") => return Self::EphemeralContainer,
            ("", "Volume") => return Self::Volume,
            ("", "EphemeralVolumeSource") => return Self::EphemeralVolume,
            ("", "PersistentVolumeClaimTemplate") => return Self::ClaimTemplate,
            ("", "PodStatus") => return Self::PodStatus,
            ("", "NodeStatus") => return Self::NodeStatus,
            ("batch/", "JobTemplateSpec") => return Self::JobTemplate,
            _ => {}
        }
        let object = |kind: &str| Self::of_object(&format!("{group}{version}"), kind);
        match (object(kind), kind.strip_suffix("Spec").map(object)) {
            (Self::Plain, Some(Self::Object(spec))) => Self::Spec(spec),
            (of, _) => of,
        }
    }

    /// How a field of this type merges.
    pub(super) fn field(self, name: &str) -> Field {
        const NAME: Option<&[&str]> = Some(&["name"]);
        const TYPE: Option<&[&str]> = Some(&["type"]);
        let plain = |of| Field { merge_keys: None, of };
        let list = |merge_keys, of| Field { merge_keys, of };
        match (self, name) {
            (Self::Object(_) | Self::PodTemplate | Self::JobTemplate | Self::ClaimTemplate, "metadata") => {
                plain(Self::Meta)
            }
            (Self::Object(Spec::ServiceAccount), "secrets")
            | (Self::Object(Spec::Webhooks), "webhooks")
            | (Self::Spec(Spec::CsiNode), "drivers") => list(NAME, Self::Plain),
            (Self::Object(Spec::PodTemplate), "template") => plain(Self::PodTemplate),
            (Self::Object(Spec::Pod), "spec") | (Self::PodTemplate, "spec") => plain(Self::Pod),
            (Self::Object(Spec::Pod), "status") => plain(Self::PodStatus),
            (Self::Object(Spec::Node), "status") => plain(Self::NodeStatus),
            (Self::Object(spec), "spec") => plain(Self::Spec(spec)),
            (Self::Object(spec), "status") if !matches!(spec, Spec::None | Spec::CronJob) => {
                plain(Self::Status)
            }
            (Self::Object(Spec::Conditions), "conditions") => list(TYPE, Self::Plain),
            (Self::Spec(Spec::Workload), "template") => plain(Self::PodTemplate),
            (Self::Spec(Spec::CronJob), "jobTemplate") => plain(Self::JobTemplate),
            (Self::JobTemplate, "spec") => plain(Self::Spec(Spec::Workload)),
            (Self::Spec(Spec::Service), "ports") => list(Some(&["port", "protocol"]), Self::Plain),
            (Self::Spec(Spec::Node), "podCIDRs") | (Self::Meta, "finalizers") => list(Some(&[]), Self::Plain),
            (Self::Meta, "ownerReferences") => list(Some(&["uid"]), Self::Plain),
            (Self::Pod, "containers" | "initContainers") => list(NAME, Self::Container),
            (Self::Pod, "ephemeralContainers") => list(NAME, Self::EphemeralContainer),
            (Self::Pod, "volumes") => list(NAME, Self::Volume),
            (Self::Pod, "imagePullSecrets") => list(NAME, Self::Plain),
            (Self::Pod, "hostAliases") => list(Some(&["ip"]), Self::Plain),
            (Self::Pod, "topologySpreadConstraints") => {
                list(Some(&["topologyKey", "whenUnsatisfiable"]), Self::Plain)
            }
            (Self::Container | Self::EphemeralContainer, "env") => list(NAME, Self::Plain),
            (Self::Container | Self::EphemeralContainer, "volumeMounts") => {
                list(Some(&["mountPath"]), Self::Plain)
            }
            (Self::Container | Self::EphemeralContainer, "volumeDevices") => {
                list(Some(&["devicePath"]), Self::Plain)
            }
            (Self::Container, "ports") => list(Some(&["containerPort", "protocol"]), Self::Plain),
            (Self::Volume, "ephemeral") => plain(Self::EphemeralVolume),
            (Self::EphemeralVolume, "volumeClaimTemplate") => plain(Self::ClaimTemplate),
            (Self::Status | Self::NodeStatus | Self::PodStatus, "conditions") => list(TYPE, Self::Plain),
            (Self::NodeStatus, "addresses") => list(TYPE, Self::Plain),
            (Self::PodStatus, "podIPs") => list(Some(&["ip"]), Self::Plain),
            _ => plain(Self::Plain),
        }
    }
}

/// Kinds of Kubernetes 1.21 that have metadata and nothing else that merges by key.
fn is_known(group: &str, version: &str, kind: &str) -> bool {
    match (group, version) {
        ("", "v1") => matches!(
            kind,
            "Binding"
                | "ConfigMap"
                | "Endpoints"
                | "Event"
                | "LimitRange"
                | "PersistentVolume"
                | "ResourceQuota"
                | "Secret"
        ),
        ("apps", "v1") => kind == "ControllerRevision",
        ("apiextensions.k8s.io", "v1" | "v1beta1") => kind == "CustomResourceDefinition",
        ("authentication.k8s.io", "v1") => matches!(kind, "TokenRequest" | "TokenReview"),
        ("authentication.k8s.io", "v1beta1") => kind == "TokenReview",
        ("authorization.k8s.io", "v1" | "v1beta1") => kind.ends_with("Review"),
        ("autoscaling", "v1" | "v2beta1" | "v2beta2") => {
            kind == "HorizontalPodAutoscaler" || (kind == "Scale" && version == "v1")
        }
        ("certificates.k8s.io", "v1" | "v1beta1") => kind == "CertificateSigningRequest",
        ("coordination.k8s.io", "v1" | "v1beta1") => kind == "Lease",
        ("discovery.k8s.io", "v1" | "v1beta1") => kind == "EndpointSlice",
        ("events.k8s.io", "v1" | "v1beta1") => kind == "Event",
        ("extensions", "v1beta1") => kind == "Ingress",
        ("flowcontrol.apiserver.k8s.io", "v1beta1") => {
            matches!(kind, "FlowSchema" | "PriorityLevelConfiguration")
        }
        ("networking.k8s.io", "v1" | "v1beta1") => {
            matches!(kind, "Ingress" | "IngressClass") || (kind == "NetworkPolicy" && version == "v1")
        }
        ("node.k8s.io", "v1" | "v1beta1") => kind == "RuntimeClass",
        ("policy", "v1beta1") => matches!(kind, "Eviction" | "PodSecurityPolicy"),
        ("rbac.authorization.k8s.io", "v1" | "v1beta1") => {
            matches!(kind, "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding")
        }
        ("scheduling.k8s.io", "v1" | "v1beta1") => kind == "PriorityClass",
        ("storage.k8s.io", "v1" | "v1beta1") => {
            matches!(kind, "CSIDriver" | "StorageClass" | "VolumeAttachment") || kind == "CSIStorageCapacity"
        }
        _ => false,
    }
}

/// Does kustomize know that this kind has no namespace? Kinds that it does not know count as namespaced.
pub(super) fn is_cluster_scoped(group: &str, version: &str, kind: &str) -> bool {
    let kinds: &[&str] = match (group, version) {
        ("", "v1") => &["ComponentStatus", "Namespace", "Node", "NodeProxyOptions", "PersistentVolume"],
        ("admissionregistration.k8s.io", "v1" | "v1beta1") => {
            &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
        }
        ("apiextensions.k8s.io", "v1" | "v1beta1") => &["CustomResourceDefinition"],
        ("apiregistration.k8s.io", "v1" | "v1beta1") => &["APIService"],
        ("certificates.k8s.io", "v1" | "v1beta1") => &["CertificateSigningRequest"],
        ("flowcontrol.apiserver.k8s.io", "v1beta1") => &["FlowSchema", "PriorityLevelConfiguration"],
        ("networking.k8s.io", "v1" | "v1beta1") => &["IngressClass"],
        ("node.k8s.io", "v1" | "v1beta1") => &["RuntimeClass"],
        ("policy", "v1beta1") => &["PodSecurityPolicy"],
        ("rbac.authorization.k8s.io", "v1" | "v1beta1") => &["ClusterRole", "ClusterRoleBinding"],
        ("scheduling.k8s.io", "v1" | "v1beta1") => &["PriorityClass"],
        ("storage.k8s.io", "v1" | "v1beta1") => &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"],
        _ => &[],
    };
    kinds.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_container_of_a_cron_job() {
        let mut of = Type::of_object("batch/v1", "CronJob");
        for name in ["spec", "jobTemplate", "spec", "template", "spec"] {
            of = of.field(name).of;
        }
        assert_eq!(of.field("containers").merge_keys, Some(&["name"][..]));
        assert_eq!(
            of.field("containers").of.field("ports").merge_keys,
            Some(&["containerPort", "protocol"][..])
        );
        assert_eq!(of.field("tolerations").merge_keys, None);
    }

    #[test]
    fn custom_resources_merge_nothing_by_key() {
        let of = Type::of_object("example.com/v1", "Deployment");
        assert_eq!(of.field("metadata").of.field("finalizers").merge_keys, None);
    }
}
