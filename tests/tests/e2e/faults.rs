//! Clusters in trouble: what an apiserver cannot serve, what stands in the way of a write, and data that were put back. Afterwards all
//! is as if nothing had been, and the inventory is what bears the owner's label.
//!
//! Each test has a cluster of its own where others would notice.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{
    Component, Fleet, HubSetup, OwnCluster, PATIENCE, TestCluster, config_map, eventually, kustomization,
};
use serde_json::{Value, json};

/// Goes by itself again soon after a failure.
const SOON: &str = "retryInterval: 2s";

/// The kinds of these tests.
const KINDS: &str = "configmaps,buoys.faults.example.com";

/// A server that is not there.
const NOWHERE: &str = "https://127.0.0.1:9/";

async fn fleet_on(own: &OwnCluster, name: &str) -> Result<Fleet> {
    let cluster = own.as_test_cluster()?;
    Fleet::start_in(HubSetup::new(name).await?, cluster.clone(), &cluster).await
}

/// The kind of these tests, served in the given versions, of which the first is stored.
fn buoys(versions: &[(&str, bool)], conversion: &str) -> String {
    let version = |(index, (name, served)): (usize, &(&str, bool))| {
        format!(
            "  - name: {name}\n    served: {served}\n    storage: {}\n    schema: {{openAPIV3Schema: {{type: object, properties: \
             {{spec: {{type: object, properties: {{size: {{type: integer}}}}}}}}}}}}\n",
            index == 0
        )
    };
    let versions: String = versions.iter().enumerate().map(version).collect();
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: buoys.faults.example.com}}\nspec:\n  \
         group: faults.example.com\n  scope: Namespaced\n  names: {{plural: buoys, singular: buoy, kind: Buoy}}\n  conversion: \
         {conversion}\n  versions:\n{versions}"
    )
}

fn buoy(version: &str, namespace: &str, name: &str, size: u32) -> String {
    format!(
        "apiVersion: faults.example.com/{version}\nkind: Buoy\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{size: \
         {size}}}\n"
    )
}

/// Waits until `path` is served, or is not.
async fn serves(fleet: &Fleet, path: &str, wanted: bool) -> Result<()> {
    eventually(&format!("{path} served: {wanted}"), PATIENCE, || async {
        let got = fleet.cluster.kubectl().run(&["get", "--raw", path]).await;
        ensure!(got.is_ok() == wanted, "{got:?}");
        Ok(())
    })
    .await
}

/// Waits until the inventory of `app` is this, and so is what bears its label in the namespace.
async fn owns(fleet: &Fleet, namespace: &str, kinds: &str, wanted: &[&str]) -> Result<()> {
    let app = fleet.get("kustomization/app").await?;
    let selector = format!("fleet.roadstead.dev/owner={}", app["metadata"]["uid"].as_str().context("a uid")?);
    let wanted: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
    eventually("the inventory is what is owned", PATIENCE, || async {
        let listed = fleet.inventory("app").await?;
        ensure!(listed == wanted, "the inventory has {listed:?}");
        let line = [kinds, "-n", namespace, "-l", &selector];
        let list = fleet.cluster.kubectl().get(&line).await?;
        let name = |object: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
        };
        let there: BTreeSet<String> = list["items"].as_array().into_iter().flatten().map(name).collect();
        ensure!(there == wanted, "the cluster has {there:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_group_that_cannot_be_served_is_not_taken_for_gone() -> Result<()> {
    let own = OwnCluster::start("discovery").await?;
    let fleet = fleet_on(&own, "discovery").await?;
    let (kubectl, space) = (fleet.cluster.kubectl(), fleet.cluster.namespace("discovery").await?);
    let ns = space.name();
    kubectl.apply(&buoys(&[("v1", true)], "{strategy: None}")).await?;
    let path = "/apis/faults.example.com/v1";
    serves(&fleet, path, true).await?;
    let files = |word: &str, size: u32| {
        Commit::new()
            .file("app/map.yaml", config_map(ns, "map", word))
            .file("kept/buoy.yaml", buoy("v1", ns, "kept", size))
            .file("other/map.yaml", config_map(ns, "other", word))
    };
    let first = files("one", 1).file("app/left.yaml", buoy("v1", ns, "left", 1));
    let repository = fleet.repository("app", &first).await?;
    let names = ["app", "kept", "other"];
    fleet
        .apply(&names.map(|name| kustomization(name, "app", &format!("./{name}"), &[SOON])).concat())
        .await?;
    for name in names {
        fleet.ready(&format!("kustomization/{name}")).await?;
    }
    let kept = fleet.cluster.uid(ns, "buoy/kept").await?;

    // The group is led to a server that is not there.
    let led = r#"{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},"spec":{"insecureSkipTLSVerify":true,"service":{"name":"none","namespace":"default","port":443}}}"#;
    kubectl.run(&["patch", "apiservice", "v1.faults.example.com", "--type=merge", "-p", led]).await?;
    serves(&fleet, path, false).await?;
    let head = repository.commit("main", "Second", &files("two", 2).remove("app/left.yaml"))?;
    fleet.fetch("app").await?;
    fleet.applied("other", &head).await?;
    for (name, reason) in [("app", "PruneFailed"), ("kept", "ReconciliationFailed")] {
        let object = format!("kustomization/{name}");
        let message = fleet.fails(&object, reason, &["Buoy", "is not available"]).await?;
        ensure!(!message.contains("no matches for kind"), "{message}");
    }
    // They still know what they own.
    for (name, owned) in [("app", "Buoy/left"), ("kept", "Buoy/kept")] {
        let listed = fleet.inventory(name).await?;
        ensure!(listed.contains(owned), "{name}: {listed:?}");
    }

    // Who asks again finds it.
    kubectl.run(&["delete", "apiservice", "v1.faults.example.com"]).await?;
    serves(&fleet, path, true).await?;
    for name in names {
        fleet.applied(name, &head).await?;
    }
    owns(&fleet, ns, KINDS, &["ConfigMap/map"]).await?;
    ensure!(fleet.cluster.uid(ns, "buoy/kept").await? == kept, "it was created again");
    Ok(())
}

#[tokio::test]
async fn a_version_or_a_kind_that_goes_takes_nothing_else_along() -> Result<()> {
    let own = OwnCluster::start("versions").await?;
    let fleet = fleet_on(&own, "versions").await?;
    let (kubectl, space) = (fleet.cluster.kubectl(), fleet.cluster.namespace("versions").await?);
    let ns = space.name();
    kubectl.apply(&buoys(&[("v1", true), ("v1alpha1", true)], "{strategy: None}")).await?;
    serves(&fleet, "/apis/faults.example.com/v1alpha1", true).await?;
    let map = |word: &str| Commit::new().file("app/map.yaml", config_map(ns, "map", word));
    let first = map("one")
        .file("app/kept.yaml", buoy("v1alpha1", ns, "kept", 1))
        .file("app/left.yaml", buoy("v1alpha1", ns, "left", 1));
    let repository = fleet.repository("app", &first).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[SOON])).await?;
    fleet.ready("kustomization/app").await?;
    let kept = fleet.cluster.uid(ns, "buoy/kept").await?;

    // The version of the inventory is not served any more: what was applied by it goes by another one.
    kubectl.apply(&buoys(&[("v1", true), ("v1alpha1", false)], "{strategy: None}")).await?;
    serves(&fleet, "/apis/faults.example.com/v1alpha1", false).await?;
    let newer = map("two").file("app/kept.yaml", buoy("v1", ns, "kept", 2)).remove("app/left.yaml");
    let head = repository.commit("main", "Second", &newer)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    owns(&fleet, ns, KINDS, &["Buoy/kept", "ConfigMap/map"]).await?;
    ensure!(fleet.cluster.uid(ns, "buoy/kept").await? == kept, "it was created again");

    // The kind goes, with all there is of it: then nothing is left to delete.
    kubectl.run(&["delete", "customresourcedefinition", "buoys.faults.example.com"]).await?;
    fleet.request("kustomization/app").await?;
    fleet.fails("kustomization/app", "", &["Buoy", "faults.example.com"]).await?;
    let head = repository.commit("main", "Third", &map("three").remove("app/kept.yaml"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    owns(&fleet, ns, "configmaps", &["ConfigMap/map"]).await
}

#[tokio::test]
async fn a_webhook_that_is_away_stops_what_it_is_asked_about_and_nothing_else() -> Result<()> {
    let own = OwnCluster::start("webhooks").await?;
    let fleet = fleet_on(&own, "webhooks").await?;
    let (kubectl, space) = (fleet.cluster.kubectl(), fleet.cluster.namespace("webhooks").await?);
    let (ns, elsewhere) = (space.name(), fleet.cluster.namespace("elsewhere").await?);
    let versions = [("v1", true), ("v2", true)];
    kubectl.apply(&buoys(&versions, "{strategy: None}")).await?;
    serves(&fleet, "/apis/faults.example.com/v2", true).await?;
    let files = |word: &str| {
        Commit::new()
            .file("app/map.yaml", config_map(ns, "map", word))
            .file("app/kept.yaml", buoy("v2", ns, "kept", 1))
            .file("other/map.yaml", config_map(elsewhere.name(), "map", word))
    };
    let repository =
        fleet.repository("app", &files("one").file("app/left.yaml", buoy("v2", ns, "left", 1))).await?;
    let both =
        kustomization("app", "app", "./app", &[SOON]) + &kustomization("other", "app", "./other", &[SOON]);
    fleet.apply(&both).await?;
    fleet.ready("kustomization/app").await?;
    fleet.ready("kustomization/other").await?;

    // One that is asked about each ConfigMap of the namespace.
    let webhook = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: away}}\nwebhooks:\n- \
         name: away.example.com\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  clientConfig: {{url: '{NOWHERE}'}}\n  \
         namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {ns}}}}}\n  rules: [{{apiGroups: [''], apiVersions: [v1], \
         operations: ['*'], resources: [configmaps]}}]\n"
    );
    kubectl.apply(&webhook).await?;
    let refused = |word: &'static str| async move {
        let patch = format!(r#"{{"data":{{"tried":"{word}"}}}}"#);
        let line = ["patch", "configmap", "map", "-n", ns, "--type=merge", "-p", &patch, "--dry-run=server"];
        let tried = kubectl.run(&line).await;
        ensure!(tried.is_err() == (word == "away"), "{tried:?}");
        Ok(())
    };
    eventually("the webhook is asked", PATIENCE, || refused("away")).await?;
    let head = repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    fleet.applied("other", &head).await?;
    fleet.fails("kustomization/app", "ValidationFailed", &["away.example.com", "ConfigMap"]).await?;
    kubectl.run(&["delete", "validatingwebhookconfiguration", "away"]).await?;
    fleet.applied("app", &head).await?;

    // One that converts: no object can be read by the version that Git has, nor be deleted by it.
    let away = format!(
        "{{strategy: Webhook, webhook: {{conversionReviewVersions: [v1], clientConfig: {{url: '{NOWHERE}'}}}}}}"
    );
    kubectl.apply(&buoys(&versions, &away)).await?;
    serves(&fleet, &format!("/apis/faults.example.com/v2/namespaces/{ns}/buoys/kept"), false).await?;
    let head = repository.commit("main", "Third", &files("three").remove("app/left.yaml"))?;
    fleet.fetch("app").await?;
    fleet.applied("other", &head).await?;
    fleet.fails("kustomization/app", "", &["conversion webhook", "Buoy"]).await?;
    let listed = fleet.inventory("app").await?;
    ensure!(listed.contains("Buoy/left") && listed.contains("Buoy/kept"), "{listed:?}");
    kubectl.apply(&buoys(&versions, "{strategy: None}")).await?;
    fleet.applied("app", &head).await?;
    owns(&fleet, ns, KINDS, &["Buoy/kept", "ConfigMap/map"]).await
}

#[tokio::test]
async fn one_object_of_a_hundred_that_is_rejected_is_named_and_applied_later() -> Result<()> {
    let fleet = Fleet::start("rejected").await?;
    let (kubectl, space) = (fleet.cluster.kubectl(), fleet.cluster.namespace("rejected").await?);
    let ns = space.name();
    // A dry run is let pass: it is the write itself that fails, in the middle of the others.
    let policy = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: {ns}}}\nspec:\n  \
         failurePolicy: Fail\n  matchConstraints:\n    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {ns}}}}}\n    \
         resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}}]\n  \
         validations:\n  - expression: \"object.metadata.name != 'map-050' || request.dryRun\"\n    message: not this one\n---\n\
         apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {ns}}}\nspec: \
         {{policyName: {ns}, validationActions: [Deny]}}\n"
    );
    kubectl.apply(&policy).await?;
    eventually("the policy is in force", PATIENCE, || async {
        let name = config_map(ns, "map-050", "tried");
        let tried = kubectl.apply(&name).await;
        if tried.is_ok() {
            kubectl.run(&["delete", "configmap", "map-050", "-n", ns]).await?;
        }
        ensure!(tried.is_err(), "it was let pass");
        Ok(())
    })
    .await?;
    let names: Vec<String> = (0..100).map(|number| format!("map-{number:03}")).collect();
    let maps: Vec<String> = names.iter().map(|name| config_map(ns, name, "one")).collect();
    fleet.repository("app", &Commit::new().file("app/maps.yaml", maps.join("---\n"))).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[SOON])).await?;
    let message =
        fleet.fails("kustomization/app", "ReconciliationFailed", &["map-050", "not this one"]).await?;
    ensure!(!message.contains("map-051"), "{message}");
    kubectl.run(&["delete", "validatingadmissionpolicybinding", ns]).await?;
    kubectl.run(&["delete", "validatingadmissionpolicy", ns]).await?;
    fleet.ready("kustomization/app").await?;
    let names: Vec<String> = names.iter().map(|name| format!("ConfigMap/{name}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    owns(&fleet, ns, "configmaps", &names).await
}

#[tokio::test]
async fn a_namespace_that_does_not_go_away_is_waited_for() -> Result<()> {
    let fleet = Fleet::start("terminating").await?;
    let (kubectl, space) = (fleet.cluster.kubectl(), fleet.cluster.later_namespace("terminating"));
    let ns = space.name();
    let files = |word: &str| {
        Commit::new()
            .file(
                "app/namespace.yaml",
                format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {ns}}}\n"),
            )
            .file("app/map.yaml", config_map(ns, "map", word))
    };
    let repository = fleet.repository("app", &files("one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[SOON])).await?;
    fleet.ready("kustomization/app").await?;
    let before = fleet.cluster.uid(ns, "configmap/map").await?;
    // Somebody deletes it, and something in it does not go.
    let holds = r#"{"metadata":{"finalizers":["example.com/holds"]}}"#;
    kubectl.run(&["create", "configmap", "stays", "-n", ns]).await?;
    kubectl.run(&["patch", "configmap", "stays", "-n", ns, "--type=merge", "-p", holds]).await?;
    kubectl.run(&["delete", "namespace", ns, "--wait=false"]).await?;
    eventually("it is being emptied", PATIENCE, || async {
        let left =
            kubectl.run(&["get", "configmap", "map", "-n", ns, "--ignore-not-found", "-o", "name"]).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await?;
    let head = repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/app", "ValidationFailed", &[ns, "it is being deleted"]).await?;
    // It goes at last: all of it is there again.
    let lets_go = r#"{"metadata":{"finalizers":null}}"#;
    kubectl.run(&["patch", "configmap", "stays", "-n", ns, "--type=merge", "-p", lets_go]).await?;
    fleet.applied("app", &head).await?;
    fleet.cluster.has_word(ns, "map", Some("two")).await?;
    ensure!(fleet.cluster.uid(ns, "configmap/map").await? != before, "it was deleted in between");
    let listed = fleet.inventory("app").await?;
    ensure!(listed == [format!("Namespace/{ns}"), "ConfigMap/map".to_owned()].into(), "{listed:?}");
    Ok(())
}

#[tokio::test]
async fn a_cluster_whose_etcd_is_restored_is_brought_to_what_git_says() -> Result<()> {
    let own = OwnCluster::start("etcd").await?;
    let fleet = fleet_on(&own, "etcd").await?;
    let space = fleet.cluster.namespace("etcd").await?;
    let ns = space.name();
    let files = |word: &str| {
        Commit::new()
            .file("app/map.yaml", config_map(ns, "map", word))
            .file("app/same.yaml", config_map(ns, "same", "same"))
    };
    let repository =
        fleet.repository("app", &files("one").file("app/left.yaml", config_map(ns, "left", "one"))).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[SOON])).await?;
    fleet.ready("kustomization/app").await?;
    let backup = own.back_up().await?;
    fleet.ready("cluster/edge").await?;
    let newer = files("two").remove("app/left.yaml").file("app/fresh.yaml", config_map(ns, "fresh", "two"));
    let head = repository.commit("main", "Second", &newer)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    owns(&fleet, ns, "configmaps", &["ConfigMap/fresh", "ConfigMap/map", "ConfigMap/same"]).await?;

    own.restore(backup).await?;
    fleet.cluster.has_word(ns, "map", Some("two")).await?;
    fleet.cluster.has_word(ns, "fresh", Some("two")).await?;
    // What Git has dropped since is back, too. It goes with the next reconciliation, which the interval leads to, or somebody who asks.
    fleet.request("kustomization/app").await?;
    owns(&fleet, ns, "configmaps", &["ConfigMap/fresh", "ConfigMap/map", "ConfigMap/same"]).await?;
    fleet.ready("kustomization/app").await.map(|_| ())
}

#[tokio::test]
async fn etcd_and_the_apiserver_are_killed_in_the_middle_of_an_apply() -> Result<()> {
    let own = OwnCluster::start("killed").await?;
    let fleet = fleet_on(&own, "killed").await?;
    let space = fleet.cluster.namespace("killed").await?;
    let ns = space.name();
    let names: Vec<String> = (0..60).map(|number| format!("map-{number:03}")).collect();
    let all = |word: &str, from: usize| {
        let maps: Vec<String> = names[from..].iter().map(|name| config_map(ns, name, word)).collect();
        Commit::new().file("app/maps.yaml", maps.join("---\n"))
    };
    let repository = fleet.repository("app", &all("zero", 0)).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[SOON])).await?;
    fleet.ready("kustomization/app").await?;
    for (component, word, from) in [(Component::Apiserver, "one", 20), (Component::Etcd, "two", 0)] {
        let head = repository.commit("main", word, &all(word, from))?;
        fleet.fetch("app").await?;
        eventually("it is under way", PATIENCE, || async {
            let done = fleet.cluster.word(ns, "map-030").await?;
            ensure!(done.as_deref() == Some(word), "{done:?}");
            Ok(())
        })
        .await?;
        own.kill9(component)?;
        own.up().await?;
        fleet.applied("app", &head).await?;
        let wanted: Vec<String> = names[from..].iter().map(|name| format!("ConfigMap/{name}")).collect();
        owns(&fleet, ns, "configmaps", &wanted.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        for name in &names[from..] {
            fleet.cluster.has_word(ns, name, Some(word)).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn watches_that_the_apiserver_has_forgotten_are_begun_again() -> Result<()> {
    let own = OwnCluster::start("forgets").await?;
    let cluster = own.as_test_cluster()?;
    let (proxied, way) = cluster.through_proxy().await?;
    let fleet = Fleet::start_in(HubSetup::new("forgets").await?, cluster, &proxied).await?;
    let (kubectl, space) = (fleet.cluster.kubectl(), fleet.cluster.namespace("forgets").await?);
    let ns = space.name();
    let names = ["edited", "deleted", "same"];
    let maps: Vec<String> = names.iter().map(|name| config_map(ns, name, "git")).collect();
    let head = fleet.repository("app", &Commit::new().file("maps.yaml", maps.join("---\n"))).await?.git(
        ["rev-parse", "main"],
        &[],
        b"",
    )?;
    // Nothing but a watch tells of a change before the interval.
    fleet.apply(&kustomization("app", "app", "./", &["interval: 1h"])).await?;
    fleet.applied("app", &head).await?;
    let attempts =
        fleet.get("kustomization/app").await?["status"]["history"][0]["totalReconciliations"].clone();

    way.cut();
    let by_hand = r#"{"data":{"word":"by hand"}}"#;
    kubectl.run(&["patch", "configmap/edited", "-n", ns, "--type=merge", "-p", by_hand]).await?;
    kubectl.run(&["delete", "configmap/deleted", "-n", ns]).await?;
    // One that is started knows of nothing that was before: a watch from then on is answered 410.
    own.kill9(Component::Apiserver)?;
    own.up().await?;
    way.open();
    for name in names {
        fleet.cluster.has_word(ns, name, Some("git")).await?;
    }
    owns(&fleet, ns, "configmaps", &["ConfigMap/edited", "ConfigMap/deleted", "ConfigMap/same"]).await?;
    // It was the watch, and no reconciliation.
    let now = fleet.get("kustomization/app").await?["status"]["history"][0]["totalReconciliations"].clone();
    ensure!(now == attempts, "{attempts} reconciliations, then {now}");
    Ok(())
}

#[tokio::test]
async fn what_others_do_to_objects_while_they_are_applied_is_undone() -> Result<()> {
    let cluster = TestCluster::first()?;
    let (proxied, way) = cluster.through_proxy().await?;
    let fleet = Fleet::start_in(HubSetup::new("meddled").await?, cluster, &proxied).await?;
    let (kubectl, space) = (fleet.cluster.kubectl(), fleet.cluster.namespace("meddled").await?);
    let ns = space.name();
    let names: Vec<String> = (0..24).map(|number| format!("map-{number:03}")).collect();
    let all = |word: &str| {
        let maps: Vec<String> = names.iter().map(|name| config_map(ns, name, word)).collect();
        Commit::new().file("app/maps.yaml", maps.join("---\n"))
    };
    let repository = fleet.repository("app", &all("zero")).await?;
    // What was given to another owner is for the next reconciliation to settle.
    fleet.apply(&kustomization("app", "app", "./app", &[SOON, "interval: 5s"])).await?;
    fleet.ready("kustomization/app").await?;
    // Another owner, to whom some are given.
    fleet.repository("other", &Commit::new().file("map.yaml", config_map(ns, "other", "zero"))).await?;
    fleet.apply(&kustomization("other", "other", "./", &[SOON])).await?;
    fleet.ready("kustomization/other").await?;
    let other = fleet.get("kustomization/other").await?["metadata"]["uid"].clone();
    let given = json!({"metadata": {"labels": {"fleet.roadstead.dev/owner": other}}}).to_string();
    for word in ["one", "two"] {
        way.slow(Duration::from_millis(15));
        let head = repository.commit("main", word, &all(word))?;
        fleet.request("gitrepository/app").await?;
        // From before it begins until after it has ended, one after the other, whatever stage each of them meets.
        for (index, name) in names.iter().enumerate() {
            let object = format!("configmap/{name}");
            match index % 5 {
                0 => drop(kubectl.run(&["delete", &object, "-n", ns, "--ignore-not-found"]).await?),
                1 => {
                    let edit = r#"{"data":{"word":"by hand","more":"x"}}"#;
                    kubectl.run(&["patch", &object, "-n", ns, "--type=merge", "-p", edit]).await?;
                }
                2 => {
                    let bare = r#"{"metadata":{"labels":{"fleet.roadstead.dev/owner":null}}}"#;
                    kubectl.run(&["patch", &object, "-n", ns, "--type=merge", "-p", bare]).await?;
                }
                3 => drop(kubectl.run(&["patch", &object, "-n", ns, "--type=merge", "-p", &given]).await?),
                _ => {
                    kubectl.run(&["delete", &object, "-n", ns, "--ignore-not-found"]).await?;
                    // It may be back by then: that fails, or edits it.
                    let _ = kubectl.apply(&config_map(ns, name, "of another")).await;
                }
            }
        }
        way.open();
        fleet.applied("app", &head).await?;
        for name in &names {
            fleet.cluster.has_word(ns, name, Some(word)).await?;
        }
        let wanted: Vec<String> = names.iter().map(|name| format!("ConfigMap/{name}")).collect();
        owns(&fleet, ns, "configmaps", &wanted.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    }
    Ok(())
}
