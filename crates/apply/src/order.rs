//! What is applied before what, and so what is deleted after what.

use roadstead_model::{GroupKind, ObjectRef};

/// A part of an apply: validated as a whole, then written, before the next one is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// What other objects need to exist at all: CRDs, namespaces, cluster roles.
    Definitions,
    /// Kinds whose name ends with `Class`.
    Classes,
    /// Kinds that the engine's user named.
    Custom,
    /// Everything else.
    Rest,
}

/// Kinds in the order in which they are applied within a part. What is not listed comes after those that are, and
/// before the webhooks.
const KINDS: [&str; 31] = [
    "CustomResourceDefinition",
    "Namespace",
    "ClusterRole",
    "ResourceQuota",
    "LimitRange",
    "PriorityClass",
    "StorageClass",
    "NetworkPolicy",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Endpoints",
    "EndpointSlice",
    "Service",
    "PodDisruptionBudget",
    "PodTemplate",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "Job",
    "CronJob",
    "HorizontalPodAutoscaler",
    "Ingress",
];

/// An object's place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) part: Part,
    rank: usize,
}

impl Place {
    /// Whether everything else of its part must be there before it: a webhook that is registered before what serves
    /// it refuses what comes after.
    pub(crate) fn is_last(self) -> bool {
        self.rank > KINDS.len()
    }
}

/// Where `object` stands; `custom` are the kinds of [`Part::Custom`].
pub(crate) fn place(object: &ObjectRef, custom: &[GroupKind]) -> Place {
    let (group, kind) = (object.group.as_str(), object.kind.as_str());
    let part = match (group, kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition")
        | ("", "Namespace")
        | ("rbac.authorization.k8s.io", "ClusterRole") => Part::Definitions,
        _ if kind.ends_with("Class") => Part::Classes,
        _ if custom.iter().any(|named| named.group == group && named.kind == kind) => Part::Custom,
        _ => Part::Rest,
    };
    let rank = if group == "admissionregistration.k8s.io" {
        KINDS.len() + 1
    } else {
        KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len())
    };
    Place { part, rank }
}

/// `objects` in the order in which they are deleted, in groups: each is gone from the API before the next begins.
pub(crate) fn for_deletion(mut objects: Vec<ObjectRef>, custom: &[GroupKind]) -> Vec<Vec<ObjectRef>> {
    objects.sort_by(|a, b| (place(b, custom), b).cmp(&(place(a, custom), a)));
    let mut groups: Vec<Vec<ObjectRef>> = Vec::new();
    let mut last = None;
    for object in objects {
        let place = place(&object, custom);
        let group = Some((place.part, place.is_last()));
        match groups.last_mut() {
            Some(current) if last == group => current.push(object),
            _ => groups.push(vec![object]),
        }
        last = group;
    }
    groups
}

#[cfg(test)]
mod tests {
    use roadstead_model::{GroupKind, ObjectRef};

    use super::{Part, for_deletion, place};

    fn object(api_version: &str, kind: &str) -> ObjectRef {
        let (group, version) = ObjectRef::split_api_version(api_version);
        ObjectRef {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: String::new(),
            name: "x".to_owned(),
        }
    }

    #[test]
    fn parts() {
        let custom = [GroupKind { group: "cert-manager.io".to_owned(), kind: "ClusterIssuer".to_owned() }];
        for (api_version, kind, part) in [
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", Part::Definitions),
            ("v1", "Namespace", Part::Definitions),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", Part::Definitions),
            ("example.com/v1", "Namespace", Part::Rest),
            ("storage.k8s.io/v1", "StorageClass", Part::Classes),
            ("gateway.networking.k8s.io/v1", "GatewayClass", Part::Classes),
            ("cert-manager.io/v1", "ClusterIssuer", Part::Custom),
            ("cert-manager.io/v1", "Issuer", Part::Rest),
            ("apps/v1", "Deployment", Part::Rest),
        ] {
            assert_eq!(place(&object(api_version, kind), &custom).part, part, "{api_version} {kind}");
        }
    }

    #[test]
    fn deletion_is_the_reverse_of_applying() {
        let objects = [
            ("v1", "Namespace"),
            ("apps/v1", "Deployment"),
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            ("v1", "ConfigMap"),
            ("storage.k8s.io/v1", "StorageClass"),
            ("example.com/v1", "Widget"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ];
        let groups = for_deletion(objects.iter().map(|(v, k)| object(v, k)).collect(), &[]);
        let kinds: Vec<Vec<&str>> =
            groups.iter().map(|group| group.iter().map(|object| object.kind.as_str()).collect()).collect();
        assert_eq!(
            kinds,
            [
                vec!["ValidatingWebhookConfiguration"],
                vec!["Widget", "Deployment", "ConfigMap"],
                vec!["StorageClass"],
                vec!["Namespace", "CustomResourceDefinition"],
            ]
        );
    }
}
