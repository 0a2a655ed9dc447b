//! An object of each kind, for the matrix to ask for, and what is sent along a route.

use roadstead_api::{Kind, KindId};
use roadstead_hub_api::Route;
use serde_json::{Value, json};

/// The namespace that the paths name. All that lies there has this in its name or its data.
pub(super) const NAMESPACE: &str = "apps";
/// The objects' name.
pub(super) const NAME: &str = "one-of-apps";
/// What the Secret holds, as answers write it: `only-in-the-secret`.
pub(super) const SECRET: &str = "b25seS1pbi10aGUtc2VjcmV0";

/// The name of the object that the paths name.
pub(super) fn name_of(kind: KindId) -> &'static str {
    if kind == KindId::Namespace { NAMESPACE } else { NAME }
}

/// An object of this kind.
pub(super) fn object(kind: &Kind, name: &str) -> Value {
    let mut object = content(kind.id);
    object["metadata"] = json!({ "name": name });
    object
}

fn content(kind: KindId) -> Value {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let git = json!({ "kind": "GitRepository", "name": NAME });
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }]);
    let bound = json!({
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": "nobody" }],
    });
    let spec = match kind {
        KindId::Namespace | KindId::ServiceAccount => return json!({}),
        KindId::Secret => return json!({ "data": { "password": SECRET } }),
        KindId::ConfigMap => return json!({ "data": { "place": NAMESPACE } }),
        KindId::Event => {
            return json!({
                "involvedObject": { "kind": "ConfigMap", "namespace": NAMESPACE, "name": NAME },
                "reason": "Tried", "message": "It was tried.", "type": "Normal",
                "lastTimestamp": "2026-01-02T03:04:05Z",
            });
        }
        KindId::Role | KindId::ClusterRole => return json!({ "rules": rules }),
        KindId::RoleBinding | KindId::ClusterRoleBinding => return bound,
        KindId::Kustomization => {
            json!({ "interval": "5m", "path": "./", "prune": true, "sourceRef": git })
        }
        KindId::GitRepository => json!({ "interval": "5m", "url": "https://git.example.com/one" }),
        KindId::Bucket => {
            json!({ "interval": "5m", "bucketName": "one", "endpoint": "s3.example.com", "provider": "aws" })
        }
        KindId::OciRepository => json!({ "interval": "5m", "url": "oci://registry.example.com/one" }),
        KindId::HelmRepository => json!({ "interval": "5m", "url": "https://charts.example.com" }),
        KindId::HelmChart => {
            let repository = json!({ "kind": "HelmRepository", "name": NAME });
            json!({ "interval": "5m", "chart": "one", "version": "1.x", "sourceRef": repository })
        }
        KindId::ExternalArtifact => json!({}),
        KindId::ArtifactGenerator => json!({
            "sources": [{ "alias": "one", "kind": "GitRepository", "name": NAME }],
            "artifacts": [{ "name": "made", "copy": [{ "from": "@one/**", "to": "@artifact/" }] }],
        }),
        KindId::Provider => json!({ "type": "slack", "channel": "general", "secretRef": { "name": NAME } }),
        KindId::Alert => json!({
            "providerRef": { "name": NAME }, "eventSeverity": "error",
            "eventSources": [{ "kind": "Kustomization", "name": "*" }],
        }),
        KindId::Receiver => {
            json!({ "type": "github", "secretRef": { "name": NAME }, "resources": [git] })
        }
        KindId::Cluster => json!({}),
        KindId::ResourceQuota => json!({ "hard": { "count/secrets": "10" } }),
        KindId::ReferenceGrant => json!({
            "from": [{ "group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "namespace": NAMESPACE }],
            "to": [{ "group": "source.toolkit.fluxcd.io", "kind": "GitRepository", "name": NAME }],
        }),
        KindId::Silence => json!({ "reason": "maintenance", "until": "2100-01-01T00:00:00Z" }),
        KindId::ManagementCluster => json!({ "kubeConfig": { "secretRef": { "name": NAME } } }),
        #[cfg(debug_assertions)]
        KindId::Rehearsal => json!({
            "interval": "5m", "targetNamespace": "default", "firstSourceRef": git, "secondSourceRef": git,
        }),
    };
    json!({ "spec": spec })
}

/// The path of a route, with the names of what is there. An artifact is one of what is uploaded.
pub(super) fn path_of(route: &Route) -> String {
    let kind = if route.path.contains("/sources/") { "ExternalArtifact" } else { "Kustomization" };
    let name = route.objects.map_or(NAME, |objects| name_of(objects.kind));
    route
        .path
        .replace("{namespace}", NAMESPACE)
        .replace("{name}", name)
        .replace("{kind}", kind)
        .replace("{id}", "none")
        .replace("{part}", "ping")
        .replace("{digest}", &"0".repeat(64))
        .replace("{*path}", "some/page")
}

/// What is sent: the query, the body's media type and the body. Nothing of it is kept, but for tokens that are made. `current` is the
/// object that the path names, as it is stored.
pub(super) fn sent(route: &Route, current: &Value) -> (&'static str, &'static str, Value) {
    const JSON: &str = "application/json";
    const DRY: &str = "?dryRun=All";
    let Some(objects) = route.objects else {
        return ("", JSON, question(&route.path));
    };
    let kind = objects.kind.get();
    match (objects.verb, objects.subresource) {
        ("watch", _) => ("?watch=true", JSON, Value::Null),
        ("create", "") => (DRY, JSON, object(kind, "two")),
        ("create", "confirm") => ("", JSON, json!({ "digest": "none" })),
        ("create", _) => ("", JSON, json!({})),
        ("update", _) => (DRY, JSON, current.clone()),
        ("patch", _) => {
            let note = json!({ "metadata": { "annotations": { "example.com/note": "one" } } });
            (DRY, "application/merge-patch+json", note)
        }
        // Some Namespaces cannot be deleted.
        ("deletecollection", _) if objects.kind == KindId::Namespace => {
            ("?dryRun=All&labelSelector=kubernetes.io/metadata.name%3Dapps", JSON, Value::Null)
        }
        ("delete" | "deletecollection", _) => (DRY, JSON, Value::Null),
        _ => ("", JSON, Value::Null),
    }
}

/// The body of what is asked without an object.
fn question(path: &str) -> Value {
    let attributes = json!({ "verb": "get", "resource": "configmaps", "namespace": NAMESPACE });
    match path.rsplit('/').next().unwrap_or_default() {
        "selfsubjectaccessreviews" => json!({ "spec": { "resourceAttributes": attributes } }),
        "selfsubjectrulesreviews" => json!({ "spec": { "namespace": NAMESPACE } }),
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            json!({ "spec": { "user": "nobody", "resourceAttributes": attributes } })
        }
        "tokenreviews" => json!({ "spec": { "token": "made-up" } }),
        "tokens" => json!({ "username": "nobody" }),
        "selfsubjectreviews" | "enrol" => json!({}),
        _ => Value::Null,
    }
}
