//! What `spec.dependsOn` costs. A program of its own: it measures its memory.

mod support;

use anyhow::{Context as _, Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_store::Stored;
use serde_json::{Value, json};
use support::{Site, kustomization};

/// The most memory that this process has had, in KiB.
fn peak() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("VmHWM")?;
    Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
}

/// As one that a version without bounds has stored.
async fn put(site: &Site, name: &str, depends_on: &[String]) -> Result<()> {
    let depends_on: Vec<Value> = depends_on.iter().map(|name| json!({ "name": name })).collect();
    let object = kustomization(
        "default",
        name,
        "./",
        json!({ "dependsOn": depends_on, "clusterRef": { "name": "edge" } }),
    );
    let mut tx = site.store.begin().await?;
    tx.put(Stored::new(KindId::Kustomization, "default", name, site.hub.now(), object)).await?;
    tx.commit().await?;
    Ok(())
}

#[tokio::test]
async fn dependencies_cost_memory_for_each_kustomization_and_not_for_each_way() -> Result<()> {
    let site = Site::new().await?;
    // Each depends on a hundred of the others.
    let names: Vec<String> = (0..148).map(|number| format!("k{number:03}-{}", "x".repeat(200))).collect();
    for (at, name) in names.iter().enumerate() {
        let others: Vec<String> = (1..=100).map(|step| names[(at + step) % names.len()].clone()).collect();
        put(&site, name, &others).await?;
    }
    // One that is in no cycle, above them all; and one of a time before there was a bound.
    put(&site, "above", &names[..100]).await?;
    let many: Vec<String> = (0..2_000).map(|number| format!("none-{number}")).collect();
    put(&site, "many", &many).await?;

    let before = peak()?;
    let (reason, message) = site.process("default", &names[0]).await?;
    ensure!(
        reason == "DependencyNotReady" && message.contains("dependsOn forms a cycle"),
        "{reason} {message}"
    );
    let way = message.split(": ").nth(1).context("a way")?.split(';').next().context("a way")?;
    let way: Vec<&str> = way.split(" -> ").collect();
    ensure!(way.len() == 3 && way[0] == way[2], "not the shortest cycle: {way:?}");
    let (_, message) = site.process("default", "above").await?;
    ensure!(!message.contains("cycle"), "{message}");
    let grown = peak()?.saturating_sub(before);
    ensure!(grown < 64 << 10, "two looks took {grown} KiB");
    let (reason, message) = site.process("default", "many").await?;
    ensure!(reason == "DependencyNotReady", "{reason} {message}");
    ensure!(message.contains("spec.dependsOn has 2000 entries, and at most 100 are followed"), "{message}");

    // Nobody writes such a one any more, but who has one can make it smaller.
    let too_many = |count: usize| {
        let names: Vec<Value> = (0..count).map(|number| json!({ "name": format!("n{number}") })).collect();
        kustomization("default", "new", "./", json!({ "dependsOn": names }))
    };
    let refused = site.apply(too_many(101)).await.err().context("too many")?.to_string();
    ensure!(
        refused.contains("spec.dependsOn") && refused.contains("must have at most 100 items"),
        "{refused}"
    );
    site.apply(too_many(100)).await?;
    Ok(())
}
