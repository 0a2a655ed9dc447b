//! A hub with an agent of another version.

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, kustomization, landed_agent};
use serde_json::Value;

/// Whoever upgrades a hub has agents of the version before until each was upgraded, or for good.
#[tokio::test]
async fn an_agent_of_the_last_landed_version_carries_out_what_this_hub_dispatches() -> Result<()> {
    let mut fleet = Fleet::start("versions").await?;
    fleet.agent.kill9().await?;
    fleet.agent.restart_as(Some(landed_agent()?))?;
    let space = fleet.cluster.namespace("versions").await?;
    let ns = space.name();
    let files = Commit::new()
        .file("app/first.yaml", config_map(ns, "first", "one"))
        .file("app/second.yaml", config_map(ns, "second", "one"));
    let repository = fleet.repository("app", &files).await?;
    fleet.apply(&kustomization("app", "app", "./app/", &["wait: true", "force: true"])).await?;
    fleet.applied("app", &repository.git(["rev-parse", "main"], &[], b"")?).await?;
    fleet.cluster.has_word(ns, "second", Some("one")).await?;
    // It tells of all stages, by step, as the one of this version does.
    let told = [
        (Some(0), "finish"),
        (Some(0), "validate"),
        (Some(0), "apply"),
        (Some(1), "prune"),
        (Some(2), "wait"),
    ];
    let last = last_attempt(&fleet).await?;
    ensure!(stages(&last) == told, "{last:#}");

    let changed =
        Commit::new().file("app/first.yaml", config_map(ns, "first", "two")).remove("app/second.yaml");
    let second = repository.commit("main", "Second", &changed)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(ns, "first", Some("two")).await?;
    fleet.cluster.has_word(ns, "second", None).await?;

    // What it corrects it tells without values; and what it would not do is not sent to it.
    let by_hand = r#"{"data":{"word":"by hand"}}"#;
    let args = ["patch", "configmap/first", "--namespace", ns, "--type=merge", "-p", by_hand];
    fleet.cluster.kubectl().run(&args).await?;
    fleet.cluster.has_word(ns, "first", Some("two")).await?;
    eventually("the correction is told", PATIENCE, || async {
        let told = fleet.run(&["get", "--raw", "/fleet/v1/drift/objects?applier=app"]).await?;
        let told: Value = serde_json::from_str(&told)?;
        let field = &told["items"][0]["fields"][0];
        ensure!(field["path"] == "/data/word" && field["told"] == false, "{told:#}");
        Ok(())
    })
    .await?;
    fleet.apply(&kustomization("reports", "app", "./app/", &["drift: Report"])).await?;
    fleet.fails("kustomization/reports", "AgentTooOld", &["drift-reports"]).await?;
    fleet.run(&["delete", "kustomization/reports", "--timeout=60s"]).await?;

    // It is upgraded, and goes on.
    fleet.agent.kill9().await?;
    fleet.agent.restart_as(None)?;
    let changed = Commit::new().file("app/first.yaml", config_map(ns, "first", "three"));
    let third = repository.commit("main", "Third", &changed)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &third).await?;
    fleet.cluster.has_word(ns, "first", Some("three")).await?;
    let last = last_attempt(&fleet).await?;
    ensure!(stages(&last) == told, "{last:#}");

    // And back: what it deletes, it deletes as the older one.
    fleet.agent.kill9().await?;
    fleet.agent.restart_as(Some(landed_agent()?))?;
    fleet.run(&["delete", "kustomization/app", "--timeout=60s"]).await?;
    fleet.cluster.has_word(ns, "first", None).await
}

/// The newest attempt, as the fleet views have it.
async fn last_attempt(fleet: &Fleet) -> Result<Value> {
    let path = "/fleet/v1/appliers/Kustomization/apps/app/reconciliations";
    let text = fleet.run(&["get", "--raw", path]).await?;
    let told: Value = serde_json::from_str(&text).context("read the reconciliations")?;
    Ok(told["items"][0].clone())
}

/// The stages of an attempt with the indices of their steps, in the order in which they were told.
fn stages(attempt: &Value) -> Vec<(Option<u64>, &str)> {
    let timings = attempt["timings"].as_array().into_iter().flatten();
    timings.map(|timing| (timing["step"].as_u64(), timing["stage"].as_str().unwrap_or_default())).collect()
}
