//! kustomize's legacy order of kinds.

/// Kinds that come first, in this order.
pub(crate) const FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
/// Kinds that come last, in this order.
pub(crate) const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Where a kind stands: below zero for the first, above for the last.
pub(crate) fn rank(kind: &str) -> i64 {
    let at =
        |list: &[&str]| list.iter().position(|known| *known == kind).and_then(|at| i64::try_from(at).ok());
    let count = i64::try_from(FIRST.len()).unwrap_or(i64::MAX);
    at(&FIRST).map(|at| at - count).or_else(|| at(&LAST).map(|at| at + 1)).unwrap_or(0)
}
