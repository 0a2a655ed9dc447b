//! What is installed in a workload cluster: the manifests of `deploy/agent/agent.yaml`, the one source for the hub's own
//! installation, for `roadstead cluster join` and for `kubectl apply -f`; and the Secret by which the agent joins.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_kustomize::Limits;
use roadstead_kustomize::yaml::read_strict;
use serde_json::{Value, json};

const AGENT: &str = include_str!("../../../deploy/agent/agent.yaml");

/// The namespace that the manifests are written for.
pub const NAMESPACE: &str = "roadstead-system";
/// The agent's Deployment, ServiceAccount, Roles and bindings.
pub const AGENT_NAME: &str = "roadstead-agent";
/// The join Secret.
pub const JOIN_NAME: &str = "roadstead-join";
/// The `type` of the join Secret.
pub const JOIN_TYPE: &str = "fleet.roadstead.dev/join";

/// The image that is run where none is named.
pub const DEFAULT_IMAGE: &str = concat!("roadstead-agent:", env!("CARGO_PKG_VERSION"));

/// Where and how the agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its namespace.
    pub namespace: String,
    /// Its image.
    pub image: String,
    /// Whether it runs elsewhere, with a kubeconfig: then there is all but the Deployment.
    pub hosted: bool,
}

impl Default for Agent {
    fn default() -> Self {
        Self { namespace: NAMESPACE.to_owned(), image: DEFAULT_IMAGE.to_owned(), hosted: false }
    }
}

impl Agent {
    /// The objects, in the order in which they can be applied. In another namespace than [`NAMESPACE`] the
    /// cluster-scoped ones have its name as a suffix, so that two agents (of two hubs) can be in one cluster.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        // Of our own making: `the_manifests_are_what_the_agent_needs` reads them.
        let (documents, _) = read_strict(AGENT.as_bytes(), &Limits::default()).unwrap_or_default();
        let objects = documents.iter().map(|document| document.value.to_json());
        objects
            .filter(|object| !(self.hosted && object["kind"] == "Deployment"))
            .map(|object| self.adapted(object))
            .collect()
    }

    fn adapted(&self, mut object: Value) -> Value {
        if object["kind"] == "Deployment" {
            object["spec"]["template"]["spec"]["containers"][0]["image"] = self.image.as_str().into();
        }
        if self.namespace == NAMESPACE {
            return object;
        }
        let everywhere = object["metadata"]["namespace"].is_null() && object["kind"] != "Namespace";
        rename(&mut object, NAMESPACE, &self.namespace);
        if object["kind"] == "ClusterRole" {
            self.rename_cluster_scoped(&mut object);
        }
        if everywhere {
            for place in ["/metadata/name", "/roleRef/name"] {
                if let Some(name) = object.pointer_mut(place)
                    && let Some(text) = name.as_str().filter(|text| text.starts_with(AGENT_NAME))
                {
                    *name = format!("{text}-{}", self.namespace).into();
                }
            }
        }
        object
    }

    /// In the rules that are about the agent's own cluster-scoped objects.
    fn rename_cluster_scoped(&self, role: &mut Value) {
        let rules = role["rules"].as_array_mut().into_iter().flatten();
        let own = rules.filter(|rule| rule["apiGroups"][0] == "rbac.authorization.k8s.io");
        for name in own.filter_map(|rule| rule["resourceNames"].as_array_mut()).flatten() {
            if let Some(text) = name.as_str() {
                *name = format!("{text}-{}", self.namespace).into();
            }
        }
    }
}

fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => to.clone_into(text),
        Value::String(text) if text.strip_prefix("--namespace=") == Some(from) => {
            *text = format!("--namespace={to}");
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|value| rename(value, from, to)),
        _ => {}
    }
}

/// What an agent needs to find its hub, to trust it, and to be let in once. Does not print its token.
#[derive(Clone, Copy)]
pub struct Join<'a> {
    /// The name of the Cluster on the hub.
    pub cluster: &'a str,
    /// Lets one agent in.
    pub token: &'a str,
    /// After this the token is worth nothing, as RFC 3339.
    pub expires: &'a str,
    /// The hub's API port, as `https://host:port`.
    pub hub: &'a str,
    /// The hub's link port, as `host:port`.
    pub link: &'a str,
    /// The CA of both, PEM.
    pub ca_pem: &'a str,
}

impl fmt::Debug for Join<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").field("cluster", &self.cluster).field("hub", &self.hub).finish_non_exhaustive()
    }
}

impl Join<'_> {
    /// As a Secret in `namespace`.
    #[must_use]
    pub fn secret(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": JOIN_NAME,
                "namespace": namespace,
                "labels": { "app.kubernetes.io/part-of": "roadstead" },
                "annotations": { "fleet.roadstead.dev/expires": self.expires },
            },
            "type": JOIN_TYPE,
            "data": {
                "cluster": STANDARD.encode(self.cluster),
                "token": STANDARD.encode(self.token),
                "hub": STANDARD.encode(self.hub),
                "link": STANDARD.encode(self.link),
                "ca.crt": STANDARD.encode(self.ca_pem),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{AGENT, Agent, DEFAULT_IMAGE, Join, NAMESPACE};

    fn names(objects: &[Value]) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let name = |object: &Value| {
            format!(
                "{} {}/{}",
                text(&object["kind"]),
                text(&object["metadata"]["namespace"]),
                text(&object["metadata"]["name"])
            )
        };
        objects.iter().map(name).collect()
    }

    #[test]
    fn the_manifests_are_what_the_agent_needs() {
        let objects = Agent::default().objects();
        assert_eq!(
            names(&objects),
            [
                "Namespace -/roadstead-system",
                "ServiceAccount roadstead-system/roadstead-agent",
                "Role roadstead-system/roadstead-agent",
                "RoleBinding roadstead-system/roadstead-agent",
                "ClusterRole -/roadstead-agent",
                "ClusterRoleBinding -/roadstead-agent",
                "ClusterRoleBinding -/roadstead-agent-cluster-admin",
                "Deployment roadstead-system/roadstead-agent",
            ]
        );
        let container = &objects[7]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], DEFAULT_IMAGE);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    }

    #[test]
    fn another_namespace_and_no_deployment() {
        let agent = Agent { namespace: "fleet-a".to_owned(), hosted: true, ..Agent::default() };
        let objects = agent.objects();
        assert_eq!(
            names(&objects),
            [
                "Namespace -/fleet-a",
                "ServiceAccount fleet-a/roadstead-agent",
                "Role fleet-a/roadstead-agent",
                "RoleBinding fleet-a/roadstead-agent",
                "ClusterRole -/roadstead-agent-fleet-a",
                "ClusterRoleBinding -/roadstead-agent-fleet-a",
                "ClusterRoleBinding -/roadstead-agent-cluster-admin-fleet-a",
            ]
        );
        assert_eq!(objects[3]["roleRef"]["name"], "roadstead-agent", "a Role of its own namespace");
        assert_eq!(objects[5]["roleRef"]["name"], "roadstead-agent-fleet-a");
        assert_eq!(objects[6]["roleRef"]["name"], "cluster-admin");
        assert!(objects.iter().all(|object| !object.to_string().contains(NAMESPACE)));
        let own = objects[4]["rules"].as_array().into_iter().flatten();
        let own: Vec<&Value> = own.filter(|rule| rule["resources"][0] == "clusterroles").collect();
        assert_eq!(own[0]["resourceNames"][1], "roadstead-agent-cluster-admin-fleet-a");
        let agent = Agent { namespace: "fleet-a".to_owned(), ..Agent::default() };
        let args = agent.objects()[7]["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
        assert!(args.contains("\"--namespace=fleet-a\""), "{args}");
        assert!(AGENT.contains(NAMESPACE));
    }

    #[test]
    fn the_token_does_not_print() {
        let join = Join {
            cluster: "edge-1",
            token: "s3cret",
            expires: "2026-01-01T00:00:00Z",
            hub: "https://hub.example:7443",
            link: "hub.example:7444",
            ca_pem: "PEM",
        };
        assert!(!format!("{join:?}").contains("s3cret"));
        let secret = join.secret("fleet-a");
        assert_eq!(
            (&secret["metadata"]["namespace"], &secret["data"]["cluster"]),
            (&"fleet-a".into(), &"ZWRnZS0x".into())
        );
    }
}
