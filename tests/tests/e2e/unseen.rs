//! A cluster whose apiserver does not answer its agent: the hub hears the agent, and nobody sees what is on the cluster.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, PATIENCE, TestCluster, config_map, eventually, kustomization,
};

/// Within which the hub says so.
const SAID_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test]
async fn what_cannot_be_seen_is_not_shown_as_healthy() -> Result<()> {
    let setup = HubSetup::new("unseen").await?;
    let hub = HubProcess::start(&setup).await?;
    let cluster = TestCluster::first()?;
    let (proxied, apiserver) = cluster.through_proxy().await?;
    let agent = AgentProcess::join(&hub, "edge", &proxied).await?;
    let space = cluster.namespace("unseen").await?;
    let fleet = Fleet::of(setup, hub, cluster, agent).await?;
    let ns = space.name();
    let files = |word: &str| Commit::new().file("map.yaml", config_map(ns, "map", word));
    let repository = fleet.repository("app", &files("one")).await?;
    fleet.apply(&kustomization("checked", "app", "./", &["wait: true"])).await?;
    fleet.ready("kustomization/checked").await?;
    let healthy = |status: &'static str, reason: &'static str| {
        let fleet = &fleet;
        eventually("Healthy of the Kustomization", PATIENCE, move || async move {
            let (is, why, message) = fleet.condition("kustomization/checked", "Healthy").await?;
            ensure!(is == status && why == reason, "{is} {why}: {message}");
            Ok(message)
        })
    };
    healthy("True", "Succeeded").await?;
    for freeze in [true, false] {
        let began = Instant::now();
        if freeze {
            apiserver.freeze();
        } else {
            apiserver.cut();
        }
        let why = eventually("the Cluster is not Ready", PATIENCE, || async {
            let (is, why, message) = fleet.condition("cluster/edge", "Ready").await?;
            ensure!(is == "False" && why == "ClusterUnreachable", "{is} {why}: {message}");
            Ok(message)
        })
        .await?;
        let took = began.elapsed();
        println!(
            "measured: said {took:?} after the apiserver was {}",
            if freeze { "frozen" } else { "cut off" }
        );
        ensure!(took < SAID_WITHIN, "it took {took:?}");
        ensure!(why.starts_with("the API server does not answer the agent: "), "{why}");
        let told = healthy("Unknown", "ClusterUnreachable").await?;
        ensure!(told.contains("the API server of cluster edge does not answer its agent"), "{told}");
        // What was applied has not failed by that.
        let (ready, ..) = fleet.condition("kustomization/checked", "Ready").await?;
        ensure!(ready == "True", "{ready}");

        // What is new is not tried in vain.
        let commit = repository.commit("main", "Meanwhile", &files(if freeze { "two" } else { "three" }))?;
        fleet.fetch("app").await?;
        let parts = ["the API server of cluster edge does not answer its agent", "reconciled once it does"];
        fleet.fails("kustomization/checked", "ClusterUnreachable", &parts).await?;

        apiserver.open();
        fleet.applied("checked", &commit).await?;
        healthy("True", "Succeeded").await?;
        fleet.ready("cluster/edge").await?;
    }
    Ok(())
}
