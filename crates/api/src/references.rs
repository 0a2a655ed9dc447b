//! Which other objects of the hub an object refers to, so that a change of one of them leads to those that use it.
//!
//! Each kind says so in its row of the [registry](crate::registry). The keys are stored with an object: a kind that refers to more
//! than it did needs a migration that writes the keys of what is stored.

use serde_json::Value;

use crate::KindId;
use crate::annotated;
use crate::kind::Scope;

/// At most so many references are taken of one object, its sources first. A change of what the others name does not lead to it; it is
/// reconciled at its interval all the same.
pub const MAX_REFERENCES: usize = 1_000;
/// The longest name and namespace that an object may have.
const MAX_NAME: usize = 253;

/// An object of the hub that another one refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace; empty for a kind without one.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Reference {
    /// As it is stored: `Kind/namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }

    /// The one that was stored so; none where the kind is not served any more.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        let (kind, rest) = key.split_once('/')?;
        let (namespace, name) = rest.split_once('/')?;
        let kind = KindId::named(kind)?;
        Some(Self { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl KindId {
    /// What an object of this kind, in `namespace`, refers to: each once, in order.
    #[must_use]
    pub fn references(self, object: &Value, namespace: &str) -> Vec<Reference> {
        let mut found = References { namespace, found: Vec::new() };
        found.all(self, object);
        let mut found = found.found;
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl KindId {
    /// What an object of this kind names in other namespaces than its own, `namespace`, and so needs somebody's leave for: what it
    /// refers to, what a Receiver has reconciled and whose events an Alert sends (a name of `*` is for all, and so is a namespace; a Cluster
    /// stands for what its Flux tells), and the appliers whose objects an applier takes over.
    /// Each once, in order.
    #[must_use]
    pub fn references_across(self, object: &Value, namespace: &str) -> Vec<Reference> {
        let mut found = References { namespace, found: Vec::new() };
        found.all(self, object);
        let mut of_clusters = References { namespace, found: Vec::new() };
        let named = match self {
            Self::Receiver => "resources",
            Self::Alert => "eventSources",
            _ => "",
        };
        if !named.is_empty() {
            for resource in items(&object["spec"][named]) {
                if self == Self::Alert && resource["cluster"].is_string() {
                    of_clusters.add(Self::Cluster, &"".into(), &resource["cluster"]);
                    continue;
                }
                let kind = resource["kind"].as_str();
                let kind = kind.and_then(|kind| Self::referred(resource["apiVersion"].as_str(), kind));
                if let Some(kind) = kind {
                    found.add(kind, &resource["namespace"], &resource["name"]);
                }
            }
        }
        if self.is_applier() {
            for (namespace, name) in annotated::takes_over(object).unwrap_or_default() {
                found.add(self, &namespace.into(), &name.into());
            }
        }
        let mut found = found.found;
        let is_across =
            |one: &Reference| one.kind.get().scope == Scope::Namespaced && one.namespace != namespace;
        found.retain(is_across);
        found.extend(of_clusters.found);
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Collects what one object refers to.
#[derive(Debug)]
pub struct References<'a> {
    /// Of the object itself.
    namespace: &'a str,
    found: Vec<Reference>,
}

impl References<'_> {
    /// Adds what an object of this kind says in its spec and, for that, in annotations.
    fn all(&mut self, kind: KindId, object: &Value) {
        (kind.get().references)(&object["spec"], self);
        if kind.is_applier() {
            annotated::depends_on(object).iter().for_each(|one| self.dependency(kind, one));
        }
    }

    /// Adds an object of the same namespace, if `name` is a name.
    fn local(&mut self, kind: KindId, name: &Value) {
        self.add(kind, &Value::Null, name);
    }

    /// Adds an object; of the same namespace where none is given.
    fn add(&mut self, kind: KindId, namespace: &Value, name: &Value) {
        let namespace = namespace.as_str().unwrap_or(self.namespace);
        let Some(name) = name.as_str() else { return };
        // Nothing can have a longer one.
        if self.found.len() < MAX_REFERENCES && name.len() <= MAX_NAME && namespace.len() <= MAX_NAME {
            self.found.push(Reference { kind, namespace: namespace.to_owned(), name: name.to_owned() });
        }
    }

    /// Adds what an entry of `dependsOn` names: of the kind `own` where it names none.
    fn dependency(&mut self, own: KindId, dependency: &Value) {
        let kind = match dependency["kind"].as_str() {
            None => Some(own),
            Some(kind) => KindId::referred(dependency["apiVersion"].as_str(), kind),
        };
        let Some(kind) = kind else { return };
        let none = Value::String(String::new());
        let namespace = if kind.get().scope == Scope::Namespaced { &dependency["namespace"] } else { &none };
        self.add(kind, namespace, &dependency["name"]);
    }

    /// Adds the source that a `sourceRef` names.
    fn source(&mut self, reference: &Value) {
        let kind = reference["kind"].as_str().and_then(KindId::source);
        if let Some(kind) = kind {
            self.add(kind, &reference["namespace"], &reference["name"]);
        }
    }
}

/// Of a kind that refers to nothing, or of which nobody follows it.
pub(crate) fn none(_: &Value, _: &mut References<'_>) {}

/// Of a Kustomization.
pub(crate) fn kustomization(spec: &Value, found: &mut References<'_>) {
    found.source(&spec["sourceRef"]);
    for dependency in items(&spec["dependsOn"]) {
        found.dependency(KindId::Kustomization, dependency);
    }
    found.local(KindId::ConfigMap, &spec["kubeConfig"]["configMapRef"]["name"]);
    found.local(KindId::Secret, &spec["decryption"]["secretRef"]["name"]);
    found.local(KindId::ServiceAccount, &spec["decryption"]["serviceAccountName"]);
    for from in items(&spec["postBuild"]["substituteFrom"]) {
        let kind = if from["kind"] == "ConfigMap" { KindId::ConfigMap } else { KindId::Secret };
        found.local(kind, &from["name"]);
    }
}

/// Of a Rehearsal.
#[cfg(debug_assertions)]
pub(crate) fn rehearsal(spec: &Value, found: &mut References<'_>) {
    found.source(&spec["firstSourceRef"]);
    found.source(&spec["secondSourceRef"]);
    for dependency in items(&spec["dependsOn"]) {
        found.dependency(KindId::Rehearsal, dependency);
    }
    found.local(KindId::Secret, &spec["secretRef"]["name"]);
}

/// Of a source of any kind.
pub(crate) fn source(spec: &Value, found: &mut References<'_>) {
    // Of a chart.
    found.source(&spec["sourceRef"]);
    for field in ["secretRef", "certSecretRef", "proxySecretRef"] {
        found.local(KindId::Secret, &spec[field]["name"]);
    }
    found.local(KindId::ServiceAccount, &spec["serviceAccountName"]);
    found.local(KindId::Secret, &spec["verify"]["secretRef"]["name"]);
    found.local(KindId::Secret, &spec["verify"]["trustedRootSecretRef"]["name"]);
    for field in ["secretRef", "certSecretRef"] {
        found.local(KindId::Secret, &spec["sts"][field]["name"]);
    }
    for include in items(&spec["include"]) {
        let repository = &include["repository"];
        found.add(KindId::GitRepository, &repository["namespace"], &repository["name"]);
    }
}

/// Of an ArtifactGenerator: the sources whose files it copies.
pub(crate) fn generator(spec: &Value, found: &mut References<'_>) {
    for source in items(&spec["sources"]) {
        found.source(source);
    }
}

/// Of a Provider: the Secrets that it is reached with, and as whom it sends.
pub(crate) fn provider(spec: &Value, found: &mut References<'_>) {
    for field in ["secretRef", "certSecretRef", "proxySecretRef"] {
        found.local(KindId::Secret, &spec[field]["name"]);
    }
    found.local(KindId::ServiceAccount, &spec["serviceAccountName"]);
}

/// Of an Alert. Whose events it sends is none of it: a change of those is nothing to the Alert.
pub(crate) fn alert(spec: &Value, found: &mut References<'_>) {
    found.local(KindId::Provider, &spec["providerRef"]["name"]);
}

/// Of a Receiver. What it has reconciled is none of it: a change of that is nothing to the Receiver.
pub(crate) fn receiver(spec: &Value, found: &mut References<'_>) {
    found.local(KindId::Secret, &spec["secretRef"]["name"]);
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{KindId, MAX_REFERENCES};
    use serde_json::{Value, json};

    fn keys(kind: KindId, spec: &Value) -> Vec<String> {
        kind.references(&json!({ "spec": spec }), "dev").iter().map(super::Reference::key).collect()
    }

    #[test]
    fn a_kustomization_refers_to_its_source_what_it_depends_on_and_what_it_is_made_with() {
        let spec = json!({
            "sourceRef": { "kind": "OCIRepository", "name": "app", "namespace": "sources" },
            "dependsOn": [{ "name": "b" }, { "name": "a", "namespace": "infra" }, { "name": "b", "namespace": "dev" }],
            "decryption": { "provider": "sops", "secretRef": { "name": "keys" } },
            "postBuild": { "substituteFrom": [{ "kind": "ConfigMap", "name": "vars" }, { "kind": "Secret", "name": "vars" }] },
            // By these it gets its rights: they are followed elsewhere.
            "clusterRef": { "name": "prod" }, "kubeConfig": { "secretRef": { "name": "kubeconfig" } },
        });
        let expected = [
            "Secret/dev/keys",
            "Secret/dev/vars",
            "ConfigMap/dev/vars",
            "Kustomization/dev/b",
            "Kustomization/infra/a",
            "OCIRepository/sources/app",
        ];
        assert_eq!(keys(KindId::Kustomization, &spec), expected);
    }

    #[test]
    fn a_source_refers_to_its_secrets_and_to_other_sources() {
        let spec = json!({
            "secretRef": { "name": "login" }, "certSecretRef": { "name": "ca" }, "proxySecretRef": { "name": "login" },
            "verify": { "secretRef": { "name": "signers" }, "trustedRootSecretRef": { "name": "root" } },
            "include": [{ "repository": { "name": "shared" } }, { "repository": { "name": "base", "namespace": "ops" } }],
        });
        let expected = [
            "Secret/dev/ca",
            "Secret/dev/login",
            "Secret/dev/root",
            "Secret/dev/signers",
            "GitRepository/dev/shared",
            "GitRepository/ops/base",
        ];
        assert_eq!(keys(KindId::GitRepository, &spec), expected);
        let chart = json!({ "chart": "app", "sourceRef": { "kind": "HelmRepository", "name": "charts" } });
        assert_eq!(keys(KindId::HelmChart, &chart), ["HelmRepository/dev/charts"]);
    }

    #[test]
    fn what_lies_in_other_namespaces_needs_leave() {
        let across = |kind: KindId, object: &Value| {
            let found = kind.references_across(object, "dev");
            found.iter().map(super::Reference::key).collect::<Vec<_>>()
        };
        let object = json!({
            "metadata": { "annotations": { "fleet.roadstead.dev/takes-over": "ops/old,dev/own" } },
            "spec": {
                "sourceRef": { "kind": "GitRepository", "name": "app", "namespace": "sources" },
                "dependsOn": [{ "name": "b" }, { "name": "a", "namespace": "infra" }, { "name": "c", "namespace": "dev" },
                    { "kind": "Cluster", "name": "edge", "namespace": "x" }],
            },
        });
        let expected = ["Kustomization/infra/a", "Kustomization/ops/old", "GitRepository/sources/app"];
        assert_eq!(across(KindId::Kustomization, &object), expected);
        let include = json!([{ "repository": { "name": "own" } }, { "repository": { "name": "base", "namespace": "ops" } }]);
        let object = json!({ "spec": { "include": include } });
        assert_eq!(across(KindId::GitRepository, &object), ["GitRepository/ops/base"]);
        let resources = json!([{ "kind": "GitRepository", "name": "*", "namespace": "ops" },
            { "kind": "GitRepository", "name": "own" }, { "kind": "Deployment", "name": "x", "namespace": "ops" }]);
        let object = json!({ "spec": { "resources": resources } });
        assert_eq!(across(KindId::Receiver, &object), ["GitRepository/ops/*"]);
        let sources = json!([{ "kind": "GitRepository", "name": "*", "namespace": "*" }, { "kind": "Bucket", "name": "own" }]);
        let object = json!({ "spec": { "providerRef": { "name": "chat" }, "eventSources": sources } });
        assert_eq!(across(KindId::Alert, &object), ["GitRepository/*/*"]);
        assert_eq!(keys(KindId::Alert, &object["spec"]), ["Provider/dev/chat"]);
        assert_eq!(
            keys(KindId::Provider, &json!({ "secretRef": { "name": "token" } })),
            ["Secret/dev/token"]
        );
        assert_eq!(across(KindId::Secret, &object), Vec::<String>::new());
    }

    #[test]
    fn a_key_says_all() {
        for (kind, namespace) in [(KindId::GitRepository, "dev"), (KindId::Cluster, "")] {
            let reference =
                super::Reference { kind, namespace: namespace.to_owned(), name: "a.b".to_owned() };
            assert_eq!(super::Reference::from_key(&reference.key()), Some(reference));
        }
        assert_eq!(super::Reference::from_key("Deployment/dev/a"), None);
    }

    #[test]
    fn what_cannot_be_a_reference_is_passed_over_and_there_is_an_end_of_them() {
        let spec = json!({
            "sourceRef": { "kind": "HelmRelease", "name": "app" },
            "dependsOn": [{ "name": 1 }, {}, "b", { "name": "x".repeat(254) }],
            "decryption": "sops", "postBuild": [],
        });
        assert_eq!(keys(KindId::Kustomization, &spec), Vec::<String>::new());
        let many: Vec<Value> = (0..2 * MAX_REFERENCES).map(|n| json!({ "name": n.to_string() })).collect();
        let spec = json!({ "postBuild": { "substituteFrom": many }, "sourceRef": { "kind": "Bucket", "name": "b" } });
        let found = keys(KindId::Kustomization, &spec);
        assert_eq!(found.len(), MAX_REFERENCES);
        assert!(found.contains(&"Bucket/dev/b".to_owned()), "its source is not among them");
        assert_eq!(keys(KindId::Secret, &json!({ "sourceRef": { "kind": "Bucket", "name": "b" } })).len(), 0);
    }
}
