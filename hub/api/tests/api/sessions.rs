//! Many agents at once over few connections to the database.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use roadstead_hub_core::clusters::Greeting;
use roadstead_hub_core::clusters::pki::AgentIdentity;
use roadstead_hub_core::{Hub, HubOptions, SystemClock};
use roadstead_model::{Capabilities, ClusterUid, KubeSystemUid};
use tokio::task::JoinSet;

use crate::support::Site;

const AGENTS: usize = 40;

#[tokio::test]
async fn more_agents_come_at_once_than_there_are_connections() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let clusters: String = (0..AGENTS)
        .map(|number| {
            format!("---\napiVersion: fleet.roadstead.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: edge-{number}}}\n")
        })
        .collect();
    replica.kubectl.apply(&clusters).await?;
    let store = site.store().await?;
    let hub = Hub::open(store.clone(), Arc::new(SystemClock), HubOptions::default()).await?;
    let mut agents = Vec::new();
    let listed = replica.kubectl.get(&["clusters"]).await?;
    for object in listed["items"].as_array().context("a list")? {
        let cluster: ClusterUid = object["metadata"]["uid"].as_str().context("a uid")?.parse()?;
        let (identity, kube_system) = (
            AgentIdentity { cluster, public_key: vec![1], expires: Timestamp::MAX },
            KubeSystemUid::random(),
        );
        let mut tx = store.begin().await?;
        tx.identify_cluster(cluster, kube_system, hub.now()).await?;
        tx.set_agent_key(cluster, &identity.public_key, hub.now()).await?;
        tx.commit().await?;
        let greeting = Greeting {
            agent_version: "0.1.0".to_owned(),
            kubernetes_version: "v1.36.0".to_owned(),
            kube_system_uid: kube_system.to_string(),
            image: None,
            upgrade: None,
            clock: None,
            capabilities: Capabilities::of_this_agent(),
            seen: Vec::new(),
        };
        agents.push((identity, greeting));
    }

    assert_eq!(agents.len(), AGENTS);
    let mut sessions = JoinSet::new();
    for (identity, greeting) in agents {
        let hub = hub.clone();
        sessions.spawn(async move { hub.sessions.begin(&identity, &greeting).await });
    }
    let begun = async {
        while let Some(session) = sessions.join_next().await {
            session??;
        }
        anyhow::Ok(())
    };
    // Those that wait for each other fail by themselves, when no connection to the database comes.
    tokio::time::timeout(Duration::from_secs(120), begun).await.context("sessions wait for each other")??;
    Ok(())
}
