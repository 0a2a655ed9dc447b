//! Kustomizations through a Kustomization: what of a build goes to the hub, and is waited for and pruned there.

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, kustomization};
use serde_json::Value;

/// As repositories of Flux have it, in the namespace where Flux lives; `lines` are further lines of the spec.
fn child(version: &str, name: &str, path: &str, lines: &[&str]) -> String {
    let mut spec = vec![
        "interval: 10m".to_owned(),
        "prune: true".to_owned(),
        format!("path: {path}"),
        "sourceRef: {kind: GitRepository, name: fleet, namespace: flux-system}".to_owned(),
    ];
    spec.extend(lines.iter().map(|&line| line.to_owned()));
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/{version}\nkind: Kustomization\nmetadata:\n  name: {name}\n  \
         namespace: flux-system\nspec:\n  {}\n",
        spec.join("\n  ")
    )
}

async fn gone(fleet: &Fleet, object: &str) -> Result<()> {
    eventually(&format!("{object} is gone"), PATIENCE, || async {
        let found = fleet.run(&["get", object, "--ignore-not-found"]).await?;
        ensure!(found.trim().is_empty(), "{found}");
        Ok(())
    })
    .await
}

/// A Kustomization's attempts at a revision, the newest first.
async fn attempts(fleet: &Fleet, kustomization: &str, revision: &str) -> Result<Vec<Value>> {
    let attempts = fleet.run(&["get", "--raw", "/fleet/v1/reconciliations?cluster=edge"]).await?;
    let mut attempts: Value = serde_json::from_str(&attempts)?;
    let mut items = std::mem::take(attempts["items"].as_array_mut().context("items")?);
    items.retain(|item| {
        item["applier"]["name"] == kustomization
            && item["revision"].as_str().is_some_and(|text| text.ends_with(revision))
    });
    Ok(items)
}

/// What of the newest of them is on the hub, as `created web`, in order.
async fn done_on_the_hub(fleet: &Fleet, kustomization: &str, revision: &str) -> Result<Vec<String>> {
    let attempts = attempts(fleet, kustomization, revision).await?;
    let changed = attempts.first().context("an attempt")?["changed"].as_array();
    let here = changed.into_iter().flatten().filter(|change| change["object"]["kind"] == "Kustomization");
    let mut here: Vec<String> = here
        .map(|change| format!("{} {}", change["action"], change["object"]["name"]).replace('"', ""))
        .collect();
    here.sort();
    Ok(here)
}

#[tokio::test]
async fn children_come_to_the_hub_are_waited_for_and_pruned() -> Result<()> {
    let fleet = Fleet::start("nested").await?;
    let place = fleet.cluster.namespace("nested").await?;
    let patch = format!(
        "patchesStrategicMerge: [{{apiVersion: v1, kind: ConfigMap, metadata: {{name: web, namespace: {}}}, data: {{word: patched}}}}]",
        place.name()
    );
    // One of an older version, one that depends on it, and beside them an object of the cluster.
    let files = Commit::new()
        .file("root/web.yaml", child("v1beta2", "web", "./web", &[&patch, "validation: client"]))
        .file(
            "root/db.yaml",
            child("v1", "db", "./db", &["dependsOn: [{name: web, namespace: flux-system}]"]),
        )
        .file("root/own.yaml", config_map(place.name(), "own", "here"))
        .file("web/map.yaml", config_map(place.name(), "web", "one"))
        .file("db/map.yaml", config_map(place.name(), "db", "two"));
    let repository = fleet.repository("fleet", &files).await?;
    fleet.apply(&kustomization("root", "fleet", "./root", &["wait: true"])).await?;
    fleet.ready("kustomization/root").await?;
    // The parent was not Ready before they were.
    for (name, word) in [("own", "here"), ("web", "patched"), ("db", "two")] {
        ensure!(fleet.cluster.word(place.name(), name).await?.as_deref() == Some(word), "{name}");
    }
    let web = fleet.get("kustomization/web").await?;
    ensure!(web["spec"]["clusterRef"]["name"] == "edge", "{web}");
    ensure!(web["spec"]["sourceRef"]["namespace"] == "apps", "{web}");
    ensure!(web["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] == "root", "{web}");
    let root = fleet.get("kustomization/root").await?;
    let entries = root["status"]["inventory"]["entries"].as_array().context("an inventory")?;
    let ids: Vec<&str> = entries.iter().filter_map(|entry| entry["id"].as_str()).collect();
    ensure!(ids.contains(&"apps_web_kustomize.toolkit.fluxcd.io_Kustomization"), "{ids:?}");
    let first = root["status"]["lastAppliedRevision"].as_str().context("a revision")?;
    ensure!(done_on_the_hub(&fleet, "root", first).await? == ["created db", "created web"]);
    let line = fleet.log_line("apps/root", |line| !line["output"].is_null()).await?;
    let output = &line["output"];
    ensure!(output["kustomization.kustomize.toolkit.fluxcd.io/web"] == "created", "{output:#}");
    ensure!(output["configmap/own"] == "created", "{output:#}");

    // What is changed on the hub is corrected, and what leaves the build goes, with what it had applied.
    fleet
        .run(&["patch", "kustomization", "web", "--type=merge", "-p", r#"{"spec":{"path":"./db"}}"#])
        .await?;
    let next = repository.commit("main", "Without db", &Commit::new().remove("root/db.yaml"))?;
    fleet.fetch("fleet").await?;
    fleet.applied("root", &next).await?;
    gone(&fleet, "kustomization/db").await?;
    fleet.cluster.has_word(place.name(), "db", None).await?;
    ensure!(fleet.get("kustomization/web").await?["spec"]["path"] == "./web");
    let done = done_on_the_hub(&fleet, "root", &next).await?;
    ensure!(done == ["configured web", "deleted db"], "{done:?}");

    // With the parent goes all.
    fleet.run(&["delete", "kustomization", "root"]).await?;
    gone(&fleet, "kustomization/web").await?;
    fleet.cluster.has_word(place.name(), "web", None).await?;
    fleet.cluster.has_word(place.name(), "own", None).await
}

#[tokio::test]
async fn a_child_that_cannot_be_is_named_and_nothing_is_lost() -> Result<()> {
    let fleet = Fleet::start("nested-bad").await?;
    let place = fleet.cluster.namespace("nested").await?;
    let files = Commit::new()
        .file("root/web.yaml", child("v1", "web", "./web", &[]))
        .file("root/self.yaml", child("v1", "root", "./root", &["timeout: 5s", "wait: true"]))
        .file("other/web.yaml", child("v1", "web", "./web", &[]))
        .file("web/map.yaml", config_map(place.name(), "web", "one"));
    let repository = fleet.repository("fleet", &files).await?;
    // One that holds itself, as `flux bootstrap` makes it.
    let root = kustomization("root", "fleet", "./root", &["timeout: 5s", "wait: true", "retryInterval: 3s"]);
    fleet.apply(&root).await?;
    fleet.ready("kustomization/root").await?;
    fleet.ready("kustomization/web").await?;

    // Another one has it too.
    fleet.apply(&kustomization("other", "fleet", "./other", &[])).await?;
    let parts = ["Kustomization apps/web is in the build", "owned by Kustomization apps/root"];
    fleet.fails("kustomization/other", "ReconciliationFailed", &parts).await?;
    fleet.run(&["delete", "kustomization", "other"]).await?;
    fleet.ready("kustomization/web").await?;

    // A field that is none, and a version that is none.
    for (file, named) in [
        (child("v1", "web", "./web", &["pruned: true"]), "spec.pruned"),
        (child("v2", "web", "./web", &[]), "use kustomize.toolkit.fluxcd.io/v1"),
    ] {
        repository.commit("main", "Bad", &Commit::new().file("root/web.yaml", file))?;
        fleet.fetch("fleet").await?;
        fleet.fails("kustomization/root", "ReconciliationFailed", &[named]).await?;
    }
    fleet.cluster.has_word(place.name(), "web", Some("one")).await?;

    // A child that does not get Ready is waited for as long as the timeout says.
    let nowhere = child("v1", "web", "./nowhere", &["retryInterval: 5s"]);
    let revision = repository.commit("main", "Nowhere", &Commit::new().file("root/web.yaml", nowhere))?;
    fleet.fetch("fleet").await?;
    let late = ["nowhere", "not Ready on the hub within 5 s", "Kustomization apps/web"];
    fleet.fails("kustomization/root", "HealthCheckFailed", &late).await?;
    eventually("it is tried again after the retry interval", PATIENCE, || async {
        let tried = attempts(&fleet, "root", &revision).await?.len();
        ensure!(tried >= 2, "{tried} attempts");
        Ok(())
    })
    .await?;
    // And when it does, that is seen.
    let files = Commit::new().file("nowhere/map.yaml", config_map(place.name(), "web", "found"));
    repository.commit("main", "Somewhere", &files)?;
    fleet.fetch("fleet").await?;
    fleet.ready("kustomization/root").await?;
    fleet.cluster.has_word(place.name(), "web", Some("found")).await
}

#[tokio::test]
async fn what_is_for_a_flux_in_the_cluster_goes_there() -> Result<()> {
    let fleet = Fleet::start("nested-flux").await?;
    let place = fleet.cluster.namespace("nested").await?;
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: alerts.notification.toolkit.fluxcd.io}\n\
        spec:\n  group: notification.toolkit.fluxcd.io\n  scope: Namespaced\n  names: {kind: Alert, plural: alerts, singular: alert}\n  \
        versions: [{name: v1beta3, served: true, storage: true, schema: {openAPIV3Schema: {type: object, \
        x-kubernetes-preserve-unknown-fields: true}}}]\n";
    let alert = |name: &str, target: &str| {
        format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: {name}, namespace: {}{target}}}\n\
             spec: {{providerRef: {{name: chat}}, eventSources: [{{kind: Kustomization, name: '*', namespace: {}}}]}}\n",
            place.name(),
            place.name()
        )
    };
    let files = Commit::new()
        .file("app/crd.yaml", definition)
        .file("app/there.yaml", alert("there", ", annotations: {fleet.roadstead.dev/target: Cluster}"))
        .file("app/here.yaml", alert("here", ""));
    fleet.repository("fleet", &files).await?;
    fleet.apply(&kustomization("app", "fleet", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;
    let there = fleet.cluster.kubectl().run(&["get", "alerts", "-n", place.name(), "-o", "name"]).await?;
    ensure!(there.trim() == "alert.notification.toolkit.fluxcd.io/there", "{there}");
    let here: Value = fleet.get("alert/here").await?;
    ensure!(here["spec"]["eventSources"][0]["namespace"] == "apps", "{here}");
    let not_here = fleet.run(&["get", "alert", "there", "--ignore-not-found"]).await?;
    ensure!(not_here.trim().is_empty(), "{not_here}");
    fleet.run(&["delete", "kustomization", "app"]).await?;
    gone(&fleet, "alert/here").await
}
