//! What the history says of each reconciliation: what led to it, and who.

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, kustomization};
use serde_json::{Value, json};

/// What led to each attempt, the oldest first, with who did.
async fn triggers(fleet: &Fleet, kustomization: &str) -> Result<Vec<(Value, Value)>> {
    let path = format!("/fleet/v1/namespaces/apps/kustomizations/{kustomization}/reconciliations");
    let attempts: Value = serde_json::from_str(&fleet.kubectl().run(&["get", "--raw", &path]).await?)?;
    let attempts = attempts["items"].as_array().context("items")?;
    Ok(attempts.iter().rev().map(|one| (one["trigger"].clone(), one["actor"].clone())).collect())
}

/// Waits until the newest attempt was led to by this.
async fn led_to_by(fleet: &Fleet, kustomization: &str, trigger: &str, by_somebody: bool) -> Result<Value> {
    eventually(&format!("{kustomization} was reconciled by {trigger}"), PATIENCE, || async {
        let triggers = triggers(fleet, kustomization).await?;
        let (newest, actor) = triggers.last().context("an attempt")?;
        ensure!(newest == trigger && actor.is_string() == by_somebody, "{triggers:?}");
        Ok(actor.clone())
    })
    .await
}

#[tokio::test]
async fn each_reconciliation_has_what_led_to_it_and_who() -> Result<()> {
    let fleet = Fleet::start("history").await?;
    let space = fleet.cluster.namespace("history").await?;
    let ns = space.name();
    let child = kustomization("child", "app", "./child", &[]).replacen(
        "metadata:\n",
        "metadata:\n  namespace: apps\n",
        1,
    );
    let files = |word: &str| {
        Commit::new()
            .file("app/map.yaml", config_map(ns, "map", word))
            .file("app/child.yaml", child.clone())
            .file("child/map.yaml", config_map(ns, "child", word))
            .file("words/map.yaml", config_map(ns, "words", "${word}"))
    };
    let repository = fleet.repository("app", &files("one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["retryInterval: 2s"])).await?;
    fleet.ready("kustomization/app").await?;
    let me = led_to_by(&fleet, "app", "Spec", true).await?;
    let audit = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/audit?limit=500"]).await?;
    ensure!(audit.contains(&format!("\"user\":{me}")), "{me}: {audit}");

    // Git wrote the child, by its parent, at a revision.
    let head = repository.git(["rev-parse", "main"], &[], b"")?;
    let parent = eventually("the child was tried", PATIENCE, || async {
        let triggers = triggers(&fleet, "child").await?;
        let (first, actor) = triggers.first().context("an attempt")?;
        ensure!(first == "Spec", "{triggers:?}");
        Ok(actor.as_str().unwrap_or_default().to_owned())
    })
    .await?;
    ensure!(parent.contains("apps:app") && parent.contains(&head), "{parent}");

    fleet.run(&["annotate", "kustomization/app", "reconcile.fluxcd.io/requestedAt=now"]).await?;
    let asked = led_to_by(&fleet, "app", "Request", true).await?;
    ensure!(asked == me, "{asked}");

    repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    led_to_by(&fleet, "app", "Revision", false).await?;
    fleet.ready("kustomization/app").await?;

    let drifted = json!({ "data": { "word": "by hand" } }).to_string();
    let patch = ["patch", "configmap", "map", "--namespace", ns, "--type=merge", "-p", &drifted];
    fleet.cluster.kubectl().run(&patch).await?;
    led_to_by(&fleet, "app", "Drift", false).await?;

    let values = "postBuild: {substituteFrom: [{kind: ConfigMap, name: words}]}";
    fleet.run(&["create", "configmap", "words", "--from-literal=word=first"]).await?;
    fleet.apply(&kustomization("words", "app", "./words", &[values])).await?;
    fleet.ready("kustomization/words").await?;
    let other = json!({ "data": { "word": "second" } }).to_string();
    fleet.run(&["patch", "configmap", "words", "--type=merge", "-p", &other]).await?;
    led_to_by(&fleet, "words", "Inputs", false).await?;
    fleet.cluster.has_word(ns, "words", Some("second")).await?;
    let changed = json!({ "spec": { "interval": "30m" } }).to_string();
    fleet.run(&["patch", "kustomization/words", "--type=merge", "-p", &changed]).await?;
    led_to_by(&fleet, "words", "Spec", true).await?;

    repository.commit("main", "Broken", &Commit::new().file("app/map.yaml", "apiVersion: [\n"))?;
    fleet.fetch("app").await?;
    led_to_by(&fleet, "app", "Retry", false).await?;

    // The view of the whole fleet says the same.
    let of_all = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/reconciliations?applier=words"]).await?;
    let of_all: Value = serde_json::from_str(&of_all)?;
    let of_all = of_all["items"].as_array().context("items")?;
    let of_all: Vec<_> =
        of_all.iter().rev().map(|one| (one["trigger"].clone(), one["actor"].clone())).collect();
    ensure!(of_all == triggers(&fleet, "words").await?, "{of_all:?}");
    Ok(())
}
