//! Taking objects over from a Flux in the cluster.

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, TestCluster, config_map, kustomization};
use serde_json::Value;

/// Applies as Flux's kustomize-controller does.
async fn as_flux(cluster: &TestCluster, manifest: &str) -> Result<()> {
    let args =
        ["apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", "-"];
    cluster.kubectl().run_with(&args, manifest).await.map(drop)
}

fn of_flux(ns: &str, name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {ns}\n  labels:\n    \
         kustomize.toolkit.fluxcd.io/name: apps\n    kustomize.toolkit.fluxcd.io/namespace: flux-system\n\
         data:\n  word: flux\n  left: from an older commit\n"
    )
}

async fn object(fleet: &Fleet, ns: &str, name: &str) -> Result<Value> {
    let object = format!("configmap/{name}");
    fleet.cluster.kubectl().get(&[&object, "--namespace", ns, "--show-managed-fields"]).await
}

fn managers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["manager"].as_str()).collect()
}

#[tokio::test]
async fn what_flux_keeps_is_taken_over_where_that_is_asked_for() -> Result<()> {
    let fleet = Fleet::start("adoption").await?;
    let space = fleet.cluster.namespace("adoption").await?;
    let ns = space.name();
    for name in ["one", "other"] {
        as_flux(&fleet.cluster, &of_flux(ns, name)).await?;
    }
    let files = Commit::new()
        .file("one/one.yaml", config_map(ns, "one", "flux"))
        .file("other/other.yaml", config_map(ns, "other", "git"));
    fleet.repository("app", &files).await?;
    fleet.apply(&kustomization("one", "app", "./one", &["retryInterval: 5s"])).await?;

    // Nobody asked for it: nothing is written, and the condition says what to do.
    let parts = ["owned by Kustomization flux-system/apps of the Flux", "spec.adopt: [Flux]"];
    fleet.fails("kustomization/one", "ValidationFailed", &parts).await?;
    let before = object(&fleet, ns, "one").await?;
    ensure!(before["metadata"]["labels"]["fleet.roadstead.dev/owner"].is_null(), "{before:#}");

    let adopt = ["patch", "kustomization/one", "--type=merge", "-p", r#"{"spec":{"adopt":["Flux"]}}"#];
    fleet.run(&adopt).await?;
    fleet.ready("kustomization/one").await?;
    let after = object(&fleet, ns, "one").await?;
    let labels = after["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let of_flux = labels.keys().find(|label| label.contains("fluxcd"));
    ensure!(of_flux.is_none() && labels.contains_key("fleet.roadstead.dev/owner"), "{labels:?}");
    ensure!(after["metadata"]["uid"] == before["metadata"]["uid"], "it is another object");
    ensure!(
        after["data"] == serde_json::json!({ "word": "flux" }),
        "what Git does not have goes: {}",
        after["data"]
    );
    ensure!(managers(&after) == ["roadstead"], "{:?}", managers(&after));
    let attempts = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/reconciliations?cluster=edge"]).await?;
    ensure!(attempts.contains("\"adopted\""), "{attempts}");

    // For a whole cluster, with the fields of a manager that its operator lists.
    let more = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: other, namespace: {ns}}}\ndata: {{extra: of a script}}\n"
    );
    let by_script = ["apply", "--server-side", "--field-manager=our-script", "-f", "-"];
    fleet.cluster.kubectl().run_with(&by_script, &more).await?;
    let spec = r#"{"spec":{"adopt":["Flux"],"adoptManagers":["our-script"]}}"#;
    fleet.kubectl().run(&["patch", "cluster/edge", "--type=merge", "-p", spec]).await?;
    fleet.apply(&kustomization("other", "app", "./other", &[])).await?;
    fleet.ready("kustomization/other").await?;
    let after = object(&fleet, ns, "other").await?;
    ensure!(after["data"] == serde_json::json!({ "word": "git" }), "{}", after["data"]);
    ensure!(managers(&after) == ["roadstead"], "{:?}", managers(&after));

    // A Flux that still runs writes again what it wants: that is drift, and is taken over once more.
    as_flux(&fleet.cluster, &self::of_flux(ns, "one")).await?;
    roadstead_tests::eventually("it is taken over again", roadstead_tests::PATIENCE, || async {
        let now = object(&fleet, ns, "one").await?;
        let labels = now["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        ensure!(!labels.keys().any(|label| label.contains("fluxcd")), "{labels:?}");
        ensure!(now["data"] == serde_json::json!({ "word": "flux" }), "{}", now["data"]);
        Ok(())
    })
    .await
}
