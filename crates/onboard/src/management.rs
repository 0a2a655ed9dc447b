//! What a management cluster of Cluster API shows: its Clusters, and where their kubeconfigs are.
//!
//! Secrets are listed without what is in them, and only kubeconfigs are then read: beside them Cluster API keeps the keys of
//! the clusters' authorities, which are nobody's business here.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use roadstead_model::ManagedCluster;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{Cluster, OnboardError, objects};

const GROUP: &str = "cluster.x-k8s.io";
/// The versions whose Clusters are understood, the preferred one first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// Which Cluster a Secret of Cluster API is of.
const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
const SUFFIX: &str = "-kubeconfig";
/// Items of one answer: Clusters with a topology are large.
const PAGE: usize = 100;
/// Clusters, and Secrets, that are taken of one management cluster.
const MAX_ITEMS: usize = 10_000;
/// Only names, labels and versions.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The same, of a watch.
const METADATA_OF_ONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const WHOLE: &str = "application/json";

/// What a management cluster shows at one moment.
#[derive(Debug, Default)]
pub struct Shown {
    /// Its Clusters, without their kubeconfigs.
    pub clusters: Vec<ManagedCluster>,
    /// `(namespace, name)` of the Clusters that have a kubeconfig, and which version of its Secret is there.
    pub kubeconfigs: BTreeMap<(String, String), String>,
    watches: Vec<String>,
}

impl Cluster {
    /// The Clusters in these namespaces; of none: in all.
    ///
    /// # Errors
    /// [`OnboardError`], with what was asked.
    pub async fn managed(&self, namespaces: &[String]) -> Result<Shown, OnboardError> {
        let version = self.cluster_api().await?;
        let mut places: Vec<String> = Vec::with_capacity(namespaces.len());
        for namespace in namespaces {
            if !objects::is_plain(namespace) {
                let why = format!("{namespace:?} is not a valid name of a namespace");
                return Err(OnboardError::Answer { what: "list Clusters".to_owned(), why });
            }
            places.push(format!("/namespaces/{namespace}"));
        }
        if places.is_empty() {
            places.push(String::new());
        }
        let mut shown = Shown::default();
        for place in places {
            let clusters = format!("/apis/{GROUP}/{version}{place}/clusters?");
            let secrets = format!(
                "/api/v1{place}/secrets?fieldSelector=type%3Dcluster.x-k8s.io%2Fsecret&labelSelector=cluster.x-k8s.io%2Fcluster-name&"
            );
            let read = |item: &Value| shown.clusters.extend(managed_cluster(item));
            shown.watches.push(self.each("list Clusters", &clusters, WHOLE, read).await?);
            let read = |item: &Value| shown.kubeconfigs.extend(kubeconfig_secret(item));
            shown.watches.push(self.each("list Secrets", &secrets, METADATA, read).await?);
        }
        Ok(shown)
    }

    /// The kubeconfig of a Cluster.
    ///
    /// # Errors
    /// [`OnboardError`], also where its Secret has none.
    pub async fn managed_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Zeroizing<Vec<u8>>, OnboardError> {
        let what = format!("read Secret {namespace}/{name}{SUFFIX}");
        let no = |why: &str| OnboardError::Answer { what: what.clone(), why: why.to_owned() };
        if !objects::is_plain(namespace) || !objects::is_plain(name) {
            return Err(no("the namespace or the name is not valid"));
        }
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}{SUFFIX}");
        let secret = self.ask(&what, Method::GET, &path, Vec::new()).await?;
        let value = secret["data"]["value"].as_str().ok_or_else(|| no("it has no key `value`"))?;
        let bytes = STANDARD.decode(value).map_err(|_| no("the value of `value` is not base64"))?;
        Ok(Zeroizing::new(bytes))
    }

    /// Waits until something of that changes, at most so long. Where it cannot be watched, that is waited for.
    pub async fn changed(&self, shown: &Shown, longest: Duration) {
        let mut watches: FuturesUnordered<_> =
            shown.watches.iter().map(|path| self.rings(path, longest)).collect();
        let rung = async {
            while let Some(rung) = watches.next().await {
                if rung {
                    return;
                }
            }
            // None of them can be watched, or all have ended in silence.
            std::future::pending::<()>().await;
        };
        // It is not a fault that nothing happens.
        let _nothing = tokio::time::timeout(longest, rung).await;
    }

    /// Whether the watch told of a change.
    async fn rings(&self, path: &str, longest: Duration) -> bool {
        let path = format!("{path}&watch=true&timeoutSeconds={}", longest.as_secs().max(1));
        let request = Request::get(path).header(header::ACCEPT, METADATA_OF_ONE).body(Body::empty());
        let Ok(request) = request else { return false };
        match self.client.send(request).await {
            Ok(answer) if answer.status().is_success() => {
                matches!(answer.into_body().frame().await, Some(Ok(frame)) if frame.is_data())
            }
            // It is listed again all the same, and that says what is wrong.
            Ok(_) | Err(_) => false,
        }
    }

    /// The version of Cluster API to ask for.
    async fn cluster_api(&self) -> Result<&'static str, OnboardError> {
        let what = format!("look for the API {GROUP}");
        let group = self.ask(&what, Method::GET, &format!("/apis/{GROUP}"), Vec::new()).await?;
        let served: Vec<&str> = group["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["version"].as_str())
            .collect();
        VERSIONS.into_iter().find(|version| served.contains(version)).ok_or_else(|| OnboardError::Answer {
            what,
            why: format!("it does not serve any of the versions {}", VERSIONS.join(", ")),
        })
    }

    /// Reads a list, page by page. Gives the path by which what comes after it is watched.
    async fn each(
        &self,
        what: &str,
        path: &str,
        accept: &str,
        mut read: impl FnMut(&Value) + Send,
    ) -> Result<String, OnboardError> {
        let mut after = String::new();
        let mut count = 0;
        loop {
            let page = self.ask_for(what, &format!("{path}limit={PAGE}{after}"), accept).await?;
            let items = page["items"].as_array().map_or(&[][..], Vec::as_slice);
            items.iter().for_each(&mut read);
            count += items.len();
            if count > MAX_ITEMS {
                let why = format!("there are more than {MAX_ITEMS}: choose some with spec.namespaces");
                return Err(OnboardError::Answer { what: what.to_owned(), why });
            }
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => {
                    let token: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
                    after = format!("&continue={token}");
                }
                _ => {
                    let version = page["metadata"]["resourceVersion"].as_str().unwrap_or("0");
                    let version: String = version.chars().filter(char::is_ascii_digit).collect();
                    return Ok(format!("{path}resourceVersion={version}"));
                }
            }
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// What an item says, if it says what each object says.
fn managed_cluster(item: &Value) -> Option<ManagedCluster> {
    let (metadata, spec, status) = (&item["metadata"], &item["spec"], &item["status"]);
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let condition = |type_: &str| {
        let conditions = status["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == type_ && one["status"] == "True")
    };
    Some(ManagedCluster {
        namespace: text(&metadata["namespace"])?,
        name: text(&metadata["name"])?,
        uid: text(&metadata["uid"])?,
        labels: labels.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect(),
        // As v1beta2 says it; v1beta1, whose `controlPlaneReady` is taken back when the control plane is away.
        initialized: status["initialization"]["controlPlaneInitialized"] == true
            || condition("ControlPlaneInitialized")
            || status["controlPlaneReady"] == true,
        paused: spec["paused"] == true,
        deleting: !metadata["deletionTimestamp"].is_null(),
        kubeconfig: None,
    })
}

/// Whose kubeconfig a Secret is, and its version.
fn kubeconfig_secret(item: &Value) -> Option<((String, String), String)> {
    let metadata = &item["metadata"];
    let name = metadata["name"].as_str()?.strip_suffix(SUFFIX)?;
    let cluster = &metadata["labels"][CLUSTER_NAME];
    let version = format!("{}/{}", metadata["uid"].as_str()?, metadata["resourceVersion"].as_str()?);
    (cluster == name).then(|| Some(((text(&metadata["namespace"])?, name.to_owned()), version)))?
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_versions_of_a_cluster_are_understood() {
        let metadata = json!({ "namespace": "fleet", "name": "edge", "uid": "u", "labels": { "a": "b" } });
        let new = json!({ "metadata": metadata, "spec": { "paused": true },
            "status": { "initialization": { "controlPlaneInitialized": true } } });
        let cluster = managed_cluster(&new).unwrap();
        assert!(cluster.initialized && cluster.paused && !cluster.deleting);
        assert_eq!(cluster.labels["a"], "b");
        for status in [
            json!({ "controlPlaneReady": true }),
            json!({ "conditions": [{ "type": "ControlPlaneInitialized", "status": "True" }] }),
        ] {
            assert!(managed_cluster(&json!({ "metadata": metadata, "status": status })).unwrap().initialized);
        }
        let waits =
            json!({ "metadata": metadata, "status": { "phase": "Provisioning", "conditions": "none" } });
        assert!(!managed_cluster(&waits).unwrap().initialized);
        assert!(managed_cluster(&json!({ "metadata": { "name": "edge" } })).is_none());
    }

    #[test]
    fn only_kubeconfigs_are_read() {
        let secret = |name: &str, cluster: &str| {
            json!({ "metadata": { "namespace": "fleet", "name": name, "uid": "u", "resourceVersion": "7",
                "labels": { "cluster.x-k8s.io/cluster-name": cluster } } })
        };
        let (whose, version) = kubeconfig_secret(&secret("edge-kubeconfig", "edge")).unwrap();
        assert_eq!((whose.1.as_str(), version.as_str()), ("edge", "u/7"));
        for (name, cluster) in [("edge-ca", "edge"), ("edge-kubeconfig", "other"), ("-kubeconfig", "edge")] {
            assert!(kubeconfig_secret(&secret(name, cluster)).is_none(), "{name}");
        }
    }
}
