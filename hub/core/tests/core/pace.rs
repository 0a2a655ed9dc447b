//! How often a Kustomization is reconciled because somebody asks for it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_model::{Queue, Room};
use serde_json::json;

use crate::support::{Site, config_map, file, kustomization};

/// Makes the passes that are due; gives how many there were.
async fn passes(site: &Site) -> Result<usize> {
    let due = site.hub.schedule.claim_due(Queue::Applier, &Room::of(10, false)).await?;
    let count = due.claims.len();
    for claim in due.claims {
        let next = site.hub.delivery.process_applier(claim.uid).await?;
        site.hub.schedule.release_claim(claim, next).await?;
    }
    Ok(count)
}

async fn attempts(site: &Site) -> Result<i64> {
    let uid = site.uid("team-a", "app").await?;
    Ok(site.store.newest_reconciliation(uid.into()).await?.context("an attempt")?.attempt.0)
}

/// A Kustomization that was asked for as often as is answered at once.
async fn asked_for_often() -> Result<Site> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.cluster("staging", json!([{ "namespace": "team-a", "agentRights": true }])).await?;
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    site.apply(app("10m")).await?;
    passes(&site).await?;
    for number in 2..=4 {
        site.ask("team-a", "app").await?;
        ensure!(passes(&site).await? == 1 && attempts(&site).await? == number, "request {number} waits");
    }
    site.ask("team-a", "app").await?;
    ensure!(passes(&site).await? == 1 && attempts(&site).await? == 4, "one too many was made");
    Ok(site)
}

fn app(interval: &str) -> serde_json::Value {
    kustomization(
        "team-a",
        "app",
        "./app",
        json!({ "clusterRef": { "name": "staging" }, "interval": interval }),
    )
}

#[tokio::test]
async fn who_never_stops_asking_gets_one_after_the_other() -> Result<()> {
    let began = Instant::now();
    let site = asked_for_often().await?;
    // Neither a request nor another spec leads to a pass now.
    for number in 0..20 {
        site.ask("team-a", "app").await?;
        site.apply(app(&format!("{}m", 11 + number))).await?;
        ensure!(passes(&site).await? == 0, "a pass was made for request {number}");
    }
    ensure!(began.elapsed() < Duration::from_secs(5), "this machine is too slow to see anything here");
    // In the end all that was asked for is done, once.
    while attempts(&site).await? == 4 {
        ensure!(began.elapsed() < Duration::from_secs(30), "what was asked for is not done");
        passes(&site).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let newest = site.store.newest_reconciliation(site.uid("team-a", "app").await?.into()).await?;
    let newest = newest.context("an attempt")?;
    let stored = site.stored(roadstead_api::KindId::Kustomization, "team-a", "app").await?;
    let asked = &stored.object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
    ensure!(newest.attempt.0 == 5 && newest.inputs.request.as_deref() == asked.as_str(), "{newest:?}");
    ensure!(newest.inputs.generation.0 == stored.generation, "{newest:?}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_nobody_asks_for_does_not_wait() -> Result<()> {
    let site = asked_for_often().await?;
    site.fetched("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "other")])]).await?;
    let uid = site.uid("team-a", "app").await?;
    let mut tx = site.store.begin().await?;
    tx.enqueue(Queue::Applier, &[uid]).await?;
    tx.commit().await?;
    ensure!(passes(&site).await? == 1 && attempts(&site).await? == 5, "a commit waits");
    site.ask("team-a", "app").await?;
    site.apply(kustomization(
        "team-a",
        "app",
        "./app",
        json!({ "clusterRef": { "name": "staging" }, "suspend": true }),
    ))
    .await?;
    ensure!(passes(&site).await? == 1, "suspending waits");
    site.delete(roadstead_api::KindId::Kustomization, "team-a", "app").await?;
    ensure!(passes(&site).await? == 1, "a deletion waits");
    site.close().await;
    Ok(())
}
