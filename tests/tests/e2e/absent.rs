//! An outage that lasts for minutes.
//!
//! Its name puts it first: tests begin in the order of their names, and this one mostly waits, which the others should not do
//! for it at their end.

use std::time::{Duration, Instant};

use anyhow::Result;
use roadstead_tests::onboarding::{Installed, cluster, has, hub, kubeconfig, secret};
use roadstead_tests::{AgentProcess, TestCluster};
use serde_json::json;

/// Each half of an outage: the apiserver does not answer, and then is not there.
const HALF: Duration = Duration::from_secs(65);

#[tokio::test]
async fn an_apiserver_that_is_away_for_minutes_holds_up_nobody_else() -> Result<()> {
    let (_setup, hub) = hub("minutes").await?;
    let kubectl = hub.kubectl();
    let (target, other) = (TestCluster::second()?, TestCluster::first()?);
    let (away, proxy) = target.through_proxy().await?;
    let (home, others_home) = (target.later_namespace("agent"), other.later_namespace("agent"));
    let installed = Installed::in_namespace(&target, &home);
    let others = Installed::in_namespace(&other, &others_home);
    proxy.freeze();
    kubectl.apply(&cluster("edge-10", &home, &json!({}))).await?;
    kubectl.apply(&secret("default", "edge-10", &kubeconfig(&away).await?)).await?;
    kubectl.apply(&cluster("edge-11", &others_home, &json!({}))).await?;
    kubectl.apply(&secret("default", "edge-11", &kubeconfig(&other).await?)).await?;
    has(kubectl, "edge-11", "Installed", "True", "AgentInstalled").await?;
    // So long the outage lasts: nothing is waited for.
    tokio::time::sleep(HALF).await;
    let why = has(kubectl, "edge-10", "Ready", "False", "ClusterUnreachable").await?;
    println!("what the user reads after {HALF:?}: {why}");
    proxy.cut();
    tokio::time::sleep(HALF).await;
    has(kubectl, "edge-10", "Ready", "False", "ClusterUnreachable").await?;
    proxy.open();
    let began = Instant::now();
    has(kubectl, "edge-10", "Installed", "True", "AgentInstalled").await?;
    println!("measured: installed {:?} after the apiserver was there again", began.elapsed());
    let _agent = AgentProcess::installed(&hub, "edge-10", &target, home).await?;
    has(kubectl, "edge-10", "Ready", "True", "AgentConnected").await?;
    installed.remove().await?;
    others.remove().await
}
