//! Objects that go from Flux's own kustomize-controller to Roadstead and back: nothing of them is deleted, and no Pod restarts.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, FluxController, PATIENCE, config_map, eventually, kustomization};
use serde_json::Value;

const RETRY: &str = "retryInterval: 5s";
const OWNER: &str = "fleet.roadstead.dev/owner";

fn deployment(ns: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {ns}}}\nspec:\n  replicas: 2\n  \
         selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      \
         containers: [{{name: web, image: \"registry.example/web:1\"}}]\n"
    )
}

async fn object(fleet: &Fleet, ns: &str, name: &str) -> Result<Value> {
    fleet.cluster.kubectl().get(&[name, "--namespace", ns, "--show-managed-fields"]).await
}

/// What runs: uid and restarts of each Pod and the uid of each ReplicaSet, by kind and name.
async fn running(fleet: &Fleet, ns: &str) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for kind in ["pods", "replicasets"] {
        let listed = fleet.cluster.kubectl().get(&[kind, "--namespace", ns]).await?;
        for one in listed["items"].as_array().into_iter().flatten() {
            let restarts = &one["status"]["containerStatuses"][0]["restartCount"];
            let (name, uid) = (&one["metadata"]["name"], &one["metadata"]["uid"]);
            all.insert(format!("{kind}/{name}"), format!("{uid} {restarts}"));
        }
    }
    Ok(all)
}

/// The Deployment's two Pods, once they are ready.
async fn ready_pods(fleet: &Fleet, ns: &str) -> Result<BTreeMap<String, String>> {
    eventually("two pods are ready", PATIENCE, || async {
        let web = object(fleet, ns, "deployment/web").await?;
        ensure!(web["status"]["readyReplicas"] == 2, "{}", web["status"]);
        Ok(())
    })
    .await?;
    let seen = running(fleet, ns).await?;
    ensure!(seen.len() == 3, "two Pods and a ReplicaSet: {seen:?}");
    Ok(seen)
}

fn managers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let applied = entries.filter(|entry| entry["subresource"].is_null());
    applied.filter_map(|entry| entry["manager"].as_str()).collect()
}

/// Whose an object is: whether Roadstead's label is on it, and whether Flux's are.
fn owners(object: &Value) -> (bool, bool) {
    let labels = object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    (labels.contains_key(OWNER), labels.keys().any(|label| label.contains("toolkit.fluxcd.io")))
}

/// Waits until Roadstead alone has an object.
async fn is_ours(fleet: &Fleet, ns: &str, name: &str) -> Result<Value> {
    eventually(&format!("{name} is Roadstead's"), PATIENCE, || async {
        let now = object(fleet, ns, name).await?;
        ensure!(owners(&now) == (true, false), "{:#}", now["metadata"]["labels"]);
        ensure!(!managers(&now).contains(&"kustomize-controller"), "{:?}", managers(&now));
        Ok(now)
    })
    .await
}

#[tokio::test]
async fn what_a_flux_that_runs_has_is_adopted_and_outlives_its_kustomization() -> Result<()> {
    let fleet = Fleet::start("flux-adopted").await?;
    let space = fleet.cluster.namespace("flux-adopted").await?;
    let ns = space.name();
    let flux = FluxController::start(&fleet.cluster, ns).await?;
    let files = [("web.yaml", deployment(ns)), ("map.yaml", config_map(ns, "map", "flux"))];
    let revision = flux.push(&files).await?;
    flux.kustomization("apps", &[]).await?;
    flux.applied("apps", &revision).await?;
    let before = ready_pods(&fleet, ns).await?;
    let uids = [object(&fleet, ns, "deployment/web").await?, object(&fleet, ns, "configmap/map").await?]
        .map(|object| object["metadata"]["uid"].clone());

    // Nobody asked for it: the condition names Flux's Kustomization.
    let commit =
        Commit::new().file("web.yaml", deployment(ns)).file("map.yaml", config_map(ns, "map", "roadstead"));
    fleet.repository("app", &commit).await?;
    fleet.apply(&kustomization("apps", "app", "./", &[RETRY])).await?;
    let named = format!("owned by Kustomization {ns}/apps of the Flux");
    fleet.fails("kustomization/apps", "ValidationFailed", &[&named, "spec.adopt: [Flux]"]).await?;
    ensure!(owners(&object(&fleet, ns, "deployment/web").await?) == (false, true));

    let adopt = ["patch", "kustomization/apps", "--type=merge", "-p", r#"{"spec":{"adopt":["Flux"]}}"#];
    fleet.run(&adopt).await?;
    fleet.ready("kustomization/apps").await?;
    is_ours(&fleet, ns, "deployment/web").await?;
    let map = is_ours(&fleet, ns, "configmap/map").await?;
    ensure!(map["data"]["word"] == "roadstead", "{map:#}");

    // The controller, which knows nothing of it, puts its labels on and is corrected, each time. Right after that it could prune.
    for _ in 0..2 {
        flux.reconcile("apps").await?;
        is_ours(&fleet, ns, "deployment/web").await?;
        is_ours(&fleet, ns, "configmap/map").await?;
        // Its labels go before its values do.
        fleet.cluster.has_word(ns, "map", Some("roadstead")).await?;
    }
    flux.reconcile("apps").await?;
    flux.delete("apps").await?;
    let map = is_ours(&fleet, ns, "configmap/map").await?;
    let web = is_ours(&fleet, ns, "deployment/web").await?;
    ensure!(uids == [&web, &map].map(|object| object["metadata"]["uid"].clone()), "one was made again");
    ensure!(running(&fleet, ns).await? == before, "a Pod was started again");

    // Without anything to adopt from, nothing is kept from pruning any more.
    let alone = ["patch", "kustomization/apps", "--type=merge", "-p", r#"{"spec":{"adopt":null}}"#];
    fleet.run(&alone).await?;
    fleet.ready("kustomization/apps").await?;
    let annotations = object(&fleet, ns, "configmap/map").await?["metadata"]["annotations"].clone();
    ensure!(annotations.as_object().is_none_or(serde_json::Map::is_empty), "{annotations}");
    ensure!(running(&fleet, ns).await? == before, "a Pod was started again");
    Ok(())
}

#[tokio::test]
async fn what_git_dropped_meanwhile_is_pruned_by_flux_inventory() -> Result<()> {
    let fleet = Fleet::start("flux-inventory").await?;
    let space = fleet.cluster.namespace("flux-inventory").await?;
    let ns = space.name();
    let flux = FluxController::start(&fleet.cluster, ns).await?;
    let kept = config_map(ns, "kept", "flux").replacen("\ndata:", "\n  annotations: {note: flux}\ndata:", 1);
    let never = config_map(ns, "never", "flux").replacen(
        "\ndata:",
        "\n  annotations: {kustomize.toolkit.fluxcd.io/prune: disabled}\ndata:",
        1,
    );
    let files = [
        ("kept.yaml", kept),
        ("dropped.yaml", config_map(ns, "dropped", "flux")),
        ("never.yaml", never),
        ("taken.yaml", config_map(ns, "taken", "flux")),
    ];
    let revision = flux.push(&files).await?;
    flux.kustomization("apps", &[]).await?;
    flux.applied("apps", &revision).await?;
    // Somebody has taken this one from Flux by hand.
    let labels = ["kustomize.toolkit.fluxcd.io/name-", "kustomize.toolkit.fluxcd.io/namespace-"];
    let label = ["label", "configmap/taken", labels[0], labels[1], "--namespace", ns];
    fleet.cluster.kubectl().run(&label).await?;

    fleet.repository("app", &Commit::new().file("kept.yaml", config_map(ns, "kept", "git"))).await?;
    let named = format!("metadata:\n  annotations: {{fleet.roadstead.dev/adopt-inventory: {ns}/apps}}\n");
    let apps = |more: &[&str]| {
        let more = [&["adopt: [Flux]", RETRY], more].concat();
        kustomization("apps", "app", "./", &more).replacen("metadata:\n", &named, 1)
    };
    // A Flux that goes on would create it again.
    fleet.apply(&apps(&[])).await?;
    let parts = [&format!("inventory of Flux's Kustomization {ns}/apps"), "it is not suspended"];
    fleet.fails("kustomization/apps", "PruneFailed", &parts.map(|part| part as &str)).await?;
    fleet.cluster.has_word(ns, "dropped", Some("flux")).await?;

    // Suspended, and within the guard's bounds.
    flux.suspend("apps", true).await?;
    fleet.apply(&apps(&["guard: {maxDeletions: 0}"])).await?;
    eventually("the deletion waits", PATIENCE, || async {
        let held = fleet.get("kustomization/apps").await?["status"].to_string();
        ensure!(held.contains("roadstead confirm"), "{held}");
        Ok(())
    })
    .await?;
    let held = object(&fleet, ns, "configmap/dropped").await?;
    ensure!(owners(&held) == (true, false), "it is Roadstead's until then: {held:#}");
    fleet.apply(&apps(&[])).await?;
    fleet.cluster.has_word(ns, "dropped", None).await?;
    fleet.ready("kustomization/apps").await?;
    for (name, word) in [("kept", "git"), ("never", "flux"), ("taken", "flux")] {
        fleet.cluster.has_word(ns, name, Some(word)).await?;
    }
    let inventory = fleet.get("kustomization/apps").await?["status"]["inventory"].to_string();
    ensure!(inventory.contains("kept") && !inventory.contains("dropped"), "{inventory}");
    let history = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/reconciliations?cluster=edge"]).await?;
    ensure!(history.contains("\"deleted\""), "{history}");
    // And its end is the end of nothing.
    flux.delete("apps").await?;
    fleet.cluster.has_word(ns, "kept", Some("git")).await
}

#[tokio::test]
async fn what_is_given_back_is_flux_again_with_all_its_fields() -> Result<()> {
    let fleet = Fleet::start("flux-back").await?;
    let space = fleet.cluster.namespace("flux-back").await?;
    let ns = space.name();
    let flux = FluxController::start(&fleet.cluster, ns).await?;
    let map = |more: &str| format!("{}{more}", config_map(ns, "map", "same"));
    let files = |more: &str| [("web.yaml", deployment(ns)), ("map.yaml", map(more))];
    let revision = flux.push(&files("  more: one\n")).await?;
    flux.kustomization("apps", &[]).await?;
    flux.applied("apps", &revision).await?;
    let before = ready_pods(&fleet, ns).await?;
    let uid = object(&fleet, ns, "configmap/map").await?["metadata"]["uid"].clone();
    flux.suspend("apps", true).await?;
    let commit = Commit::new().file("web.yaml", deployment(ns)).file("map.yaml", map("  more: two\n"));
    fleet.repository("app", &commit).await?;
    fleet.apply(&kustomization("apps", "app", "./", &["adopt: [Flux]"])).await?;
    fleet.ready("kustomization/apps").await?;
    is_ours(&fleet, ns, "configmap/map").await?;

    fleet.run(&["annotate", "kustomization/apps", "fleet.roadstead.dev/give-back=Flux"]).await?;
    fleet.run(&["delete", "kustomization/apps", "--timeout=60s"]).await?;
    for name in ["configmap/map", "deployment/web"] {
        let now = object(&fleet, ns, name).await?;
        ensure!(owners(&now) == (false, false), "{:#}", now["metadata"]);
        ensure!(
            managers(&now) == ["kustomize-controller"] || name == "deployment/web",
            "{:?}",
            managers(&now)
        );
        ensure!(!managers(&now).contains(&"roadstead"), "{:?}", managers(&now));
        let annotations = now["metadata"]["annotations"].to_string();
        ensure!(!annotations.contains("roadstead") && !annotations.contains("fluxcd"), "{annotations}");
    }
    let owned = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/inventory?cluster=edge"]).await?;
    ensure!(!owned.contains(ns), "nothing is owned there any more: {owned}");

    // Flux goes on, and what its Git does not have any more really goes, though Roadstead applied it last.
    flux.suspend("apps", false).await?;
    let revision = flux.push(&files("")).await?;
    flux.applied("apps", &revision).await?;
    let now = object(&fleet, ns, "configmap/map").await?;
    ensure!(owners(&now) == (false, true) && now["metadata"]["uid"] == uid, "{now:#}");
    ensure!(now["data"] == serde_json::json!({ "word": "same" }), "{}", now["data"]);
    ensure!(managers(&now) == ["kustomize-controller"], "{:?}", managers(&now));
    let web = object(&fleet, ns, "deployment/web").await?;
    ensure!(owners(&web) == (false, true), "{:#}", web["metadata"]["labels"]);
    ensure!(running(&fleet, ns).await? == before, "a Pod was started again");

    // Whoever is deleted now deletes.
    flux.delete("apps").await?;
    fleet.cluster.has_word(ns, "map", None).await.context("it is Flux's to prune")
}
