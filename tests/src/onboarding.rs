//! Clusters that come on board by their kubeconfigs, for the tests that need one.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::{TestCluster, TestNamespace};
use crate::fleet::PATIENCE;
use crate::hub::{HubProcess, HubSetup};
use crate::kubectl::Kubectl;
use crate::wait::eventually;

/// A hub that may reach the development clusters, which are on this machine.
///
/// # Errors
/// When it does not start.
pub async fn hub(name: &str) -> Result<(HubSetup, HubProcess)> {
    hub_with(name, &[]).await
}

/// The same with these arguments, too.
///
/// # Errors
/// When it does not start.
pub async fn hub_with(name: &str, args: &[&str]) -> Result<(HubSetup, HubProcess)> {
    let setup = HubSetup::new(name).await?.arg("--allow-cluster-network=127.0.0.0/8");
    let setup = args.iter().fold(setup, |setup, arg| setup.arg(arg));
    let hub = HubProcess::start(&setup).await?;
    Ok((setup, hub))
}

/// The administrator's kubeconfig of a cluster, as Cluster API would write it: everything inline.
///
/// # Errors
/// When it cannot be read.
pub async fn kubeconfig(cluster: &TestCluster) -> Result<String> {
    cluster.inline_kubeconfig("yaml").await
}

/// A Secret of Cluster API's form, which brings Cluster `name` on board.
#[must_use]
pub fn secret(namespace: &str, name: &str, kubeconfig: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": { "name": format!("{name}-kubeconfig"), "namespace": namespace,
            "labels": { "cluster.x-k8s.io/cluster-name": name } },
        "data": { "value": STANDARD.encode(kubeconfig) },
    })
    .to_string()
}

/// A Cluster whose agent gets a namespace of this test's own.
#[must_use]
pub fn cluster(name: &str, namespace: &TestNamespace, more: &Value) -> String {
    let mut object = json!({
        "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
        "spec": {
            "kubeConfig": { "secretRef": { "namespace": "default", "name": format!("{name}-kubeconfig") } },
            "agent": { "namespace": namespace.name() },
        },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        for (key, value) in value.as_object().into_iter().flatten() {
            object["spec"][field][key] = value.clone();
        }
    }
    object.to_string()
}

/// Waits until a condition of a Cluster has this status and reason, and gives the message.
///
/// # Errors
/// When it has not in time, with what it has.
pub async fn has(
    kubectl: &Kubectl,
    name: &str,
    condition: &str,
    status: &str,
    reason: &str,
) -> Result<String> {
    eventually(&format!("Cluster {name} has {condition} {status} {reason}"), PATIENCE, || async {
        let seen = kubectl.condition(&["cluster", name], condition).await?;
        ensure!((seen.0.as_str(), seen.1.as_str()) == (status, reason), "it has {seen:?}");
        Ok(seen.2)
    })
    .await
}

/// Removes what is installed for the whole cluster when a test is over.
pub struct Installed<'a> {
    cluster: &'a TestCluster,
    suffix: String,
}

impl<'a> Installed<'a> {
    /// What belongs to an agent in a namespace of the test's own.
    #[must_use]
    pub fn in_namespace(cluster: &'a TestCluster, namespace: &TestNamespace) -> Self {
        Self { cluster, suffix: format!("-{}", namespace.name()) }
    }

    /// What belongs to the agent in the usual namespace.
    #[must_use]
    pub fn in_the_usual(cluster: &'a TestCluster) -> Self {
        Self { cluster, suffix: String::new() }
    }

    /// Removes it.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn remove(self) -> Result<()> {
        let names: Vec<String> = ["roadstead-agent", "roadstead-agent-cluster-admin"]
            .iter()
            .map(|name| format!("{name}{}", self.suffix))
            .collect();
        let [agent, admin] = names.as_slice() else { return Ok(()) };
        self.cluster
            .kubectl()
            .run(&["delete", "--ignore-not-found", "clusterrole,clusterrolebinding", agent, admin])
            .await
            .map(drop)
    }
}
