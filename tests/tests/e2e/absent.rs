//! An outage that lasts for minutes.
//!
//! Its name puts it first: tests begin in the order of their names, and this one mostly waits, which the others should not do
//! for it at their end.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::onboarding::{Installed, cluster, has, hub, kubeconfig, secret};
use roadstead_tests::{AgentProcess, Fleet, PATIENCE, TestCluster, config_map, eventually, kustomization};
use serde_json::json;

use crate::agents::fleet_through_proxy;

/// Each half of an outage: the other side does not answer, and then is not there.
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

/// ConfigMaps of one Kustomization.
const MAPS: usize = 40;

async fn words(fleet: &Fleet, namespace: &str) -> Result<Vec<String>> {
    let list = fleet.cluster.kubectl().get(&["configmaps", "-n", namespace]).await?;
    let items = list["items"].as_array().context("a list")?;
    Ok(items.iter().filter_map(|map| map["data"]["word"].as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn a_link_that_is_away_for_minutes_in_the_middle_of_an_apply_costs_nothing() -> Result<()> {
    let (fleet, link) = fleet_through_proxy("minutes-link").await?;
    let namespace = fleet.cluster.namespace("minutes-link").await?;
    let ns = namespace.name();
    let files = |word: &str| {
        let maps: Vec<String> = (0..MAPS).map(|map| config_map(ns, &format!("map-{map}"), word)).collect();
        Commit::new().file("app/maps.yaml", maps.join("---\n"))
    };
    let repository = fleet.repository("app", &files("first")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["timeout: 5m"])).await?;
    fleet.ready("kustomization/app").await?;
    for (is_cut, word) in [(true, "cut"), (false, "frozen")] {
        let commit = repository.commit("main", word, &files(word))?;
        fleet.request("gitrepository/app").await?;
        eventually("some of it is written", PATIENCE, || async {
            let words = words(&fleet, ns).await?;
            ensure!(words.iter().any(|is| is == word), "{words:?}");
            Ok(())
        })
        .await?;
        if is_cut {
            link.cut();
        } else {
            link.freeze();
        }
        let began = Instant::now();
        eventually("the agent goes on by itself", PATIENCE, || async {
            let words = words(&fleet, ns).await?;
            ensure!(words.iter().all(|is| is == word), "{words:?}");
            Ok(())
        })
        .await?;
        // So long the outage lasts. Half-way through it somebody changes something, which is corrected.
        tokio::time::sleep(HALF / 2).await;
        let patch = r#"{"data":{"word":"by hand"}}"#;
        let line = ["patch", "configmap", "map-0", "-n", ns, "--type=merge", "-p", patch];
        fleet.cluster.kubectl().run(&line).await?;
        fleet.cluster.has_word(ns, "map-0", Some(word)).await?;
        tokio::time::sleep(HALF.saturating_sub(began.elapsed())).await;
        let seen = fleet.condition("cluster/edge", "Ready").await?;
        ensure!(seen.0 == "False" && seen.1 == "AgentDisconnected", "{seen:?}");
        link.open();
        let began = Instant::now();
        fleet.ready("cluster/edge").await?;
        fleet.applied("app", &commit).await.with_context(|| word.to_owned())?;
        println!("measured: Ready {:?} after a link that was {word} for {HALF:?} was back", began.elapsed());
        let attempts = fleet.kubectl().run(&["get", "--raw", ATTEMPTS]).await?;
        let attempts: serde_json::Value = serde_json::from_str(&attempts)?;
        // What was done meanwhile is the attempt's result; nothing was applied again for it.
        let of_commit = attempts["items"].as_array().into_iter().flatten().filter(|attempt| {
            let is_correction = attempt["trigger"] == "Drift";
            !is_correction && attempt["revision"].as_str().is_some_and(|revision| revision.ends_with(&commit))
        });
        let reasons: Vec<_> = of_commit.map(|attempt| attempt["reason"].clone()).collect();
        ensure!(
            reasons.iter().filter(|reason| *reason == "ReconciliationSucceeded").count() == 1,
            "{attempts:#}"
        );
        eventually("the correction is told", PATIENCE, || async {
            let drift = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/drift"]).await?;
            ensure!(drift.contains("map-0"), "{drift}");
            Ok(())
        })
        .await?;
        let owned = fleet.inventory("app").await?;
        ensure!(owned.len() == MAPS, "{owned:?}");
    }
    Ok(())
}

const ATTEMPTS: &str = "/fleet/v1/appliers/Kustomization/apps/app/reconciliations";
