//! A new revision whose build is the one that the cluster has is recorded as applied, and nothing is sent.

use anyhow::{Context, Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_store::Reconciliation;
use serde_json::{Value, json};

use crate::support::{Site, config_map, file, kustomization};

const K: KindId = KindId::Kustomization;

/// A Kustomization that has been applied, of a repository with another folder beside it.
async fn applied() -> Result<Site> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.cluster("staging", json!([{ "namespace": "team-a", "agentRights": true }])).await?;
    site.source("team-a", "fleet", &files("one", "one")).await?;
    let spec = json!({ "clusterRef": { "name": "staging" } });
    site.apply(kustomization("team-a", "app", "./app", spec)).await?;
    site.process("team-a", "app").await?;
    site.succeed("team-a", "app").await?;
    ensure!(newest(&site).await?.attempt.0 == 1, "it was dispatched once");
    Ok(site)
}

fn files(app: &str, other: &str) -> Vec<(String, String)> {
    let map = |name: &str| config_map("web", name);
    vec![file("app/map.yaml", &[map(app)]), file("other/map.yaml", &[map(other)])]
}

async fn newest(site: &Site) -> Result<Reconciliation> {
    let uid = site.uid("team-a", "app").await?;
    site.store.newest_reconciliation(uid.into()).await?.context("an attempt")
}

async fn status(site: &Site) -> Result<Value> {
    Ok(site.stored(K, "team-a", "app").await?.object["status"].clone())
}

#[tokio::test]
async fn a_commit_elsewhere_in_the_repository_sends_nothing() -> Result<()> {
    let site = applied().await?;
    let first = newest(&site).await?;
    site.fetched("team-a", "fleet", &files("one", "two")).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    let second = newest(&site).await?;
    let revision = second.inputs.revision.as_ref().context("a revision")?.to_string();
    ensure!(second.attempt.0 == 2 && second.inputs.revision != first.inputs.revision, "{second:?}");
    ensure!(
        (reason.as_str(), message) == ("ReconciliationSucceeded", format!("Applied revision: {revision}"))
    );
    let status = status(&site).await?;
    for field in ["lastAppliedRevision", "lastAttemptedRevision"] {
        ensure!(status[field] == revision, "{field}: {status:#}");
    }
    ensure!(status["history"][0]["metadata"]["revision"] == revision, "{status:#}");
    // Nothing waits to be sent, and the cluster is looked at again when it would have been.
    ensure!(second.finished.is_some() && second.dispatch == first.dispatch, "{second:?}");
    ensure!(second.checked == first.checked, "{:?} and {:?}", second.checked, first.checked);
    site.process("team-a", "app").await?;
    ensure!(newest(&site).await?.attempt.0 == 2, "it is at rest");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_else_is_new_is_sent() -> Result<()> {
    // Someone asks.
    let site = applied().await?;
    site.fetched("team-a", "fleet", &files("one", "two")).await?;
    site.ask("team-a", "app").await?;
    site.process("team-a", "app").await?;
    ensure!(newest(&site).await?.finished.is_none(), "who asks wants the cluster looked at");
    site.close().await;

    // The build is another one.
    let site = applied().await?;
    site.fetched("team-a", "fleet", &files("two", "one")).await?;
    site.process("team-a", "app").await?;
    ensure!(newest(&site).await?.finished.is_none(), "another build is to be applied");
    site.close().await;

    // What is done with it is another thing.
    let site = applied().await?;
    let spec = json!({ "clusterRef": { "name": "staging" }, "wait": true });
    site.apply(kustomization("team-a", "app", "./app", spec)).await?;
    site.fetched("team-a", "fleet", &files("one", "two")).await?;
    site.process("team-a", "app").await?;
    ensure!(newest(&site).await?.finished.is_none(), "the spec has changed");
    site.close().await;
    Ok(())
}
