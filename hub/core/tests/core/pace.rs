//! How often a Kustomization is reconciled because somebody asks for it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_store::Reconciliation;
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

async fn newest(site: &Site) -> Result<Reconciliation> {
    let uid = site.uid("team-a", "app").await?;
    site.store.newest_reconciliation(uid.into()).await?.context("an attempt")
}

/// A Kustomization that was asked for as often as is answered at once; and the newest attempt at it.
async fn asked_for_often() -> Result<(Site, Reconciliation)> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.cluster("staging", json!([{ "namespace": "team-a", "agentRights": true }])).await?;
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    site.apply(app("10m")).await?;
    passes(&site).await?;
    for number in 2..=4 {
        site.ask("team-a", "app").await?;
        ensure!(passes(&site).await? == 1 && newest(&site).await?.attempt.0 == number, "{number} waits");
    }
    let last = newest(&site).await?;
    site.ask("team-a", "app").await?;
    passes(&site).await?;
    ensure!(keeps_the_pace(&site, &last).await?, "one too many was made");
    Ok((site, last))
}

/// Whether no more attempts were made since this one than one in five seconds.
async fn keeps_the_pace(site: &Site, since: &Reconciliation) -> Result<bool> {
    let newest = newest(site).await?;
    let more = newest.attempt.0 - since.attempt.0;
    let passed = newest.inputs.started.duration_since(since.inputs.started);
    Ok(passed.as_secs() >= more * 5)
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
    let (site, last) = asked_for_often().await?;
    let free = last.inputs.started + Duration::from_secs(5);
    // Neither a request nor another spec leads to a pass now.
    for number in 0..5 {
        site.ask("team-a", "app").await?;
        site.apply(app(&format!("{}m", 11 + number))).await?;
        let made = passes(&site).await?;
        ensure!(made == 0 || site.hub.now() >= free, "a pass was made for request {number}");
    }
    // In the end all that was asked for is done, and not one by one.
    let stored = site.stored(KindId::Kustomization, "team-a", "app").await?;
    let asked = &stored.object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
    let began = Instant::now();
    loop {
        let newest = newest(&site).await?;
        let is_done = newest.inputs.request.as_deref() == asked.as_str()
            && newest.inputs.generation.0 == stored.generation;
        if is_done {
            break;
        }
        ensure!(began.elapsed() < Duration::from_secs(60), "what was asked for is not done: {newest:?}");
        passes(&site).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(keeps_the_pace(&site, &last).await?, "{:?} after {last:?}", newest(&site).await?);
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_nobody_asks_for_does_not_wait() -> Result<()> {
    let (site, _) = asked_for_often().await?;
    let before = newest(&site).await?.attempt.0;
    site.fetched("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "other")])]).await?;
    let uid = site.uid("team-a", "app").await?;
    let mut tx = site.store.begin().await?;
    tx.enqueue(Queue::Applier, &[uid]).await?;
    tx.commit().await?;
    ensure!(passes(&site).await? == 1 && newest(&site).await?.attempt.0 == before + 1, "a commit waits");
    site.ask("team-a", "app").await?;
    site.apply(kustomization(
        "team-a",
        "app",
        "./app",
        json!({ "clusterRef": { "name": "staging" }, "suspend": true }),
    ))
    .await?;
    ensure!(passes(&site).await? == 1, "suspending waits");
    site.delete(KindId::Kustomization, "team-a", "app").await?;
    ensure!(passes(&site).await? == 1, "a deletion waits");
    site.close().await;
    Ok(())
}
