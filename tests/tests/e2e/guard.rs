//! The guard: deletions beyond the bounds wait for a person's confirmation, and all else goes on.

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{
    AgentProcess, Fleet, HubSetup, PATIENCE, TestCluster, binary, config_map, eventually, kustomization,
};
use serde_json::{Value, json};

const HELD: &str = "DeletionHeld";

/// The command that confirms, as the condition's message has it.
fn line(message: &str) -> Result<Vec<&str>> {
    let (_, line) = message.split_once("roadstead ").context("no command in the message")?;
    Ok(line.split(' ').collect())
}

/// Runs a line of `roadstead` against the hub.
async fn roadstead(fleet: &Fleet, args: &[&str]) -> Result<std::process::Output> {
    let mut command = tokio::process::Command::new(binary("roadstead")?);
    command.args(args).arg("--kubeconfig").arg(fleet.kubectl().kubeconfig());
    command.output().await.context("run roadstead")
}

/// Confirms what a condition's message is about.
pub(crate) async fn confirm(fleet: &Fleet, message: &str) -> Result<String> {
    let output = roadstead(fleet, &line(message)?).await?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{out}{err}");
    Ok(out.into_owned())
}

fn maps(
    commit: Commit,
    namespace: &str,
    folder: &str,
    numbers: std::ops::Range<usize>,
    word: &str,
) -> Commit {
    numbers.fold(commit, |commit, number| {
        let map = config_map(namespace, &format!("map-{number}"), word);
        commit.file(&format!("{folder}/map-{number}.yaml"), map)
    })
}

async fn is_there(fleet: &Fleet, args: &[&str]) -> Result<bool> {
    let found = fleet.cluster.kubectl().run(&[&["get"], args, &["--ignore-not-found"]].concat()).await?;
    Ok(!found.trim().is_empty())
}

/// Commits these files, and no others.
async fn pushed(fleet: &Fleet, repository: &Repository, source: &str, files: Commit) -> Result<String> {
    let revision = repository.commit("main", "Another", &files.remove("."))?;
    fleet.fetch(source).await?;
    Ok(revision)
}

#[tokio::test]
async fn more_than_half_waits_until_just_that_is_confirmed() -> Result<()> {
    let fleet = Fleet::start("guard").await?;
    let space = fleet.cluster.namespace("guard").await?;
    let ns = space.name();
    let repository = fleet.repository("app", &maps(Commit::new(), ns, "app", 0..12, "one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["retryInterval: 5s"])).await?;
    fleet.ready("kustomization/app").await?;

    // Seven of twelve leave, the rest changes.
    let few = pushed(&fleet, &repository, "app", maps(Commit::new(), ns, "app", 0..5, "two")).await?;
    let parts =
        ["7 of 12 objects would be deleted, more than 50 percent", "ConfigMap", "all else was applied"];
    let message = fleet.fails("kustomization/app", HELD, &parts).await?;
    fleet.cluster.has_word(ns, "map-0", Some("two")).await?;
    for number in 5..12 {
        fleet.cluster.has_word(ns, &format!("map-{number}"), Some("one")).await?;
    }
    let status = fleet.get("kustomization/app").await?["status"].clone();
    let entries = status["inventory"]["entries"].as_array().map(Vec::len);
    ensure!(entries == Some(12), "what was not deleted is owned: {entries:?}");
    let stalled = fleet.condition("kustomization/app", "Stalled").await;
    ensure!(stalled.is_err(), "{stalled:?}");
    let events = fleet.run(&["events", "--for", "kustomization/app", "-o", "json"]).await?;
    let events: Value = serde_json::from_str(&events)?;
    let held = events["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == HELD);
    ensure!(held.count() == 1, "one event: {events:#}");

    // Another digest, too short a one, and another object.
    let mut words: Vec<&str> = line(&message)?;
    let right = words.pop().context("a digest")?;
    for (digest, why) in [("0123456789abcdef", "other deletions are held"), (&right[..8], "at least 16")] {
        let output = roadstead(&fleet, &[words.as_slice(), &[digest]].concat()).await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains(why), "{digest}: {said}");
    }
    // Git cannot confirm, whatever it says of the object; a change of it takes the word back.
    let said = confirm(&fleet, &message).await?;
    ensure!(said.contains("confirmed: 7 objects will be deleted"), "{said}");
    fleet.applied("app", &few).await?;
    for number in 5..12 {
        fleet.cluster.has_word(ns, &format!("map-{number}"), None).await?;
    }
    let audit = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/audit?limit=500"]).await?;
    ensure!(audit.contains("Kustomization/confirm"), "{audit}");

    // It was good once: nothing waits now, and the next time is another one.
    let again = roadstead(&fleet, &line(&message)?).await?;
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    ensure!(!again.status.success() && said.contains("no deletions of it are held"), "{said}");
    pushed(&fleet, &repository, "app", maps(Commit::new(), ns, "app", 0..12, "three")).await?;
    fleet.cluster.has_word(ns, "map-11", Some("three")).await?;
    fleet.ready("kustomization/app").await?;
    pushed(&fleet, &repository, "app", maps(Commit::new(), ns, "app", 0..5, "two")).await?;
    let message = fleet.fails("kustomization/app", HELD, &["7 of 12"]).await?;
    // What comes back needs no word any more, and one that comes late is refused.
    let back = pushed(&fleet, &repository, "app", maps(Commit::new(), ns, "app", 0..12, "four")).await?;
    fleet.applied("app", &back).await?;
    ensure!(confirm(&fleet, &message).await.is_err(), "a word for what is over");

    // A person deletes it: that is a word.
    fleet.run(&["delete", "kustomization/app", "--timeout=60s"]).await?;
    fleet.cluster.has_word(ns, "map-0", None).await
}

#[tokio::test]
async fn everything_waits_where_nobody_deleted_the_kustomization() -> Result<()> {
    let fleet = Fleet::start("guard-all").await?;
    let space = fleet.cluster.namespace("all").await?;
    let ns = space.name();
    let generated = "configMapGenerator: [{name: env, literals: [WORD]}]\n";
    let files = |word: &str| {
        let maps = maps(Commit::new(), ns, "app", 0..3, "one");
        maps.file("other/other.yaml", config_map(ns, "other", "one"))
            .file("env/kustomization.yaml", format!("namespace: {ns}\n{}", generated.replace("WORD", word)))
    };
    let repository = fleet.repository("app", &files("a=1")).await?;
    let app = kustomization("app", "app", "./app", &["retryInterval: 5s"]);
    let env = kustomization("env", "app", "./env", &["retryInterval: 5s"]);
    fleet.apply(&(app.clone() + &env)).await?;
    fleet.ready("kustomization/app").await?;
    fleet.ready("kustomization/env").await?;

    // Another path: what is there comes, what was there stays.
    let path = |path: &str| format!("{{\"spec\":{{\"path\":\"{path}\"}}}}");
    let patch = ["patch", "kustomization/app", "--type=merge", "-p"];
    fleet.run(&[&patch[..], &[&path("./other")]].concat()).await?;
    fleet.fails("kustomization/app", HELD, &["everything that it owns would be deleted (3 objects)"]).await?;
    fleet.cluster.has_word(ns, "other", Some("one")).await?;
    fleet.cluster.has_word(ns, "map-2", Some("one")).await?;
    fleet.run(&[&patch[..], &[&path("./app")]].concat()).await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(ns, "other", None).await?;

    // What is generated again takes the place of what was.
    let env = pushed(&fleet, &repository, "app", files("a=2")).await?;
    fleet.applied("env", &env).await?;

    // Nothing is applied where the Kustomization wants all to wait.
    let stop = "{\"spec\":{\"path\":\"./other\",\"guard\":{\"mode\":\"Stop\"}}}";
    fleet.run(&[&patch[..], &[stop]].concat()).await?;
    let message = fleet.fails("kustomization/app", HELD, &["Nothing was applied or deleted"]).await?;
    fleet.cluster.has_word(ns, "other", None).await?;
    confirm(&fleet, &message).await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(ns, "other", Some("one")).await?;
    fleet.cluster.has_word(ns, "map-2", None).await
}

#[tokio::test]
async fn what_nobody_applies_again_waits_whatever_the_count() -> Result<()> {
    let fleet = Fleet::start("guard-risks").await?;
    let space = fleet.cluster.namespace("risks").await?;
    let ns = space.name();
    let other = fleet.cluster.later_namespace("risks-other");
    let kind = format!("thing{}", ns.replace('-', ""));
    let crd = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {kind}s.example.com}}\nspec:\n  \
         group: example.com\n  scope: Namespaced\n  names: {{kind: {kind}, plural: {kind}s}}\n  versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}\n"
    );
    let claim = |class: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data, namespace: {ns}}}\nspec:\n  \
             accessModes: [ReadWriteOnce]\n  storageClassName: {class}\n  resources: {{requests: {{storage: 1Gi}}}}\n"
        )
    };
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {}}}\n", other.name());
    let files = |with: &[(&str, &str)]| {
        let maps = maps(Commit::new(), ns, "app", 0..6, "one");
        with.iter().fold(maps, |commit, (name, text)| commit.file(&format!("app/{name}.yaml"), text))
    };
    let first = claim("first");
    let all = [("crd", crd.as_str()), ("claim", &first), ("namespace", &namespace)];
    let repository = fleet.repository("app", &files(&all)).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["retryInterval: 5s", "force: true"])).await?;
    fleet.ready("kustomization/app").await?;
    let kubectl = fleet.cluster.kubectl();
    let thing =
        format!("apiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: mine, namespace: {ns}}}\n");
    kubectl.apply(&thing).await?;
    kubectl.run(&["create", "configmap", "mine", "-n", other.name()]).await?;
    let bound = "{\"status\":{\"phase\":\"Bound\"}}";
    let set = ["patch", "pvc/data", "-n", ns, "--subresource=status", "--type=merge", "-p", bound];
    kubectl.run(&set).await?;

    // A claim that would have to be recreated stays as it is, and all else is applied.
    let second = claim("second");
    let changed = [("crd", crd.as_str()), ("claim", &second), ("namespace", &namespace)];
    let more = files(&changed).file("app/more.yaml", config_map(ns, "more", "here"));
    pushed(&fleet, &repository, "app", more).await?;
    let uid = ["get", "pvc/data", "-n", ns, "-o", "jsonpath={.metadata.uid}"];
    let before = kubectl.run(&uid).await?;
    fleet.fails("kustomization/app", HELD, &["would be deleted to be recreated: it is bound"]).await?;
    fleet.cluster.has_word(ns, "more", Some("here")).await?;
    ensure!(kubectl.run(&uid).await? == before, "the claim is another one");

    // Where all is to wait for it, all does.
    let mode = async |mode: &str| {
        let spec = json!({"spec": {"guard": {"mode": mode}}}).to_string();
        fleet.run(&["patch", "kustomization/app", "--type=merge", "-p", &spec]).await
    };
    mode("Stop").await?;
    let more = files(&changed).file("app/more.yaml", config_map(ns, "more", "there"));
    pushed(&fleet, &repository, "app", more).await?;
    let parts = ["Nothing was applied or deleted", "would be deleted to be recreated: it is bound"];
    fleet.fails("kustomization/app", HELD, &parts).await?;
    fleet.cluster.has_word(ns, "more", Some("here")).await?;
    mode("Deletions").await?;

    // All three leave.
    pushed(&fleet, &repository, "app", files(&[])).await?;
    let parts = [
        &format!("has objects that would be deleted with it, such as {kind}/{ns}/mine"),
        "is bound, and its data may be lost",
        &format!("such as ConfigMap/{}/mine", other.name()),
    ];
    let message = fleet.fails("kustomization/app", HELD, &parts).await?;
    ensure!(is_there(&fleet, &["crd", &format!("{kind}s.example.com")]).await?, "the definition is gone");
    ensure!(is_there(&fleet, &["pvc", "data", "-n", ns]).await?, "the claim is gone");
    ensure!(
        is_there(&fleet, &["configmap", "mine", "-n", other.name()]).await?,
        "a namespace's object is gone"
    );

    // Without what else was there only the claim waits, by another digest.
    kubectl.run(&["delete", &kind, "mine", "-n", ns]).await?;
    kubectl.run(&["delete", "configmap", "mine", "-n", other.name()]).await?;
    let refreshed = eventually("only the claim is held for a reason", PATIENCE, || async {
        let (_, reason, message) = fleet.condition("kustomization/app", "Ready").await?;
        ensure!(reason == HELD && !message.contains("such as"), "{reason}: {message}");
        Ok(message)
    })
    .await?;
    ensure!(line(&refreshed)?.last() == line(&message)?.last(), "the same three would go");
    confirm(&fleet, &refreshed).await?;
    fleet.ready("kustomization/app").await?;
    eventually("the definition and the namespace are gone", PATIENCE, || async {
        ensure!(!is_there(&fleet, &["crd", &format!("{kind}s.example.com")]).await?);
        ensure!(!is_there(&fleet, &["namespace", other.name()]).await?);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_child_that_is_dropped_waits_with_all_that_it_owns() -> Result<()> {
    let fleet = Fleet::start("guard-child").await?;
    let space = fleet.cluster.namespace("child").await?;
    let ns = space.name();
    let child = |name: &str| {
        let child = kustomization(name, "fleet", &format!("./{name}"), &["retryInterval: 5s"]);
        child.replacen("metadata:\n", "metadata:\n  namespace: apps\n", 1)
    };
    let files = |children: &[&str]| {
        let maps = maps(Commit::new(), ns, "big", 0..12, "one")
            .file("small/map.yaml", config_map(ns, "small", "one"))
            .file("root/own.yaml", config_map(ns, "own", "one"));
        children.iter().fold(maps, |commit, name| commit.file(&format!("root/{name}.yaml"), child(name)))
    };
    let repository = fleet.repository("fleet", &files(&["big", "small"])).await?;
    fleet.apply(&kustomization("root", "fleet", "./root", &["wait: true", "retryInterval: 5s"])).await?;
    fleet.ready("kustomization/root").await?;
    fleet.cluster.has_word(ns, "map-11", Some("one")).await?;

    // The small one may go, the big one not without a word: neither it nor what it owns.
    pushed(&fleet, &repository, "fleet", files(&["big"])).await?;
    eventually("the small child is gone", PATIENCE, || async {
        let found = fleet.run(&["get", "kustomization/small", "--ignore-not-found"]).await?;
        ensure!(found.trim().is_empty(), "{found}");
        Ok(())
    })
    .await?;
    fleet.cluster.has_word(ns, "small", None).await?;
    let none = pushed(&fleet, &repository, "fleet", files(&[])).await?;
    let parts = ["13 of 14 objects would be deleted", "Kustomization/apps/big"];
    let message = fleet.fails("kustomization/root", HELD, &parts).await?;
    fleet.ready("kustomization/big").await?;
    fleet.cluster.has_word(ns, "map-0", Some("one")).await?;
    confirm(&fleet, &message).await?;
    fleet.applied("root", &none).await?;
    for number in 0..12 {
        fleet.cluster.has_word(ns, &format!("map-{number}"), None).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_move_to_another_cluster_waits_and_the_bounds_are_the_strictest() -> Result<()> {
    let setup = HubSetup::new("guard-move").await?.arg("--guard-max-percent=90");
    let fleet = Fleet::start_on(setup).await?;
    let space = fleet.cluster.namespace("move").await?;
    let ns = space.name();
    let second = TestCluster::second()?;
    let _there = second.namespace_like(&space).await?;
    let _agent = AgentProcess::join(&fleet.hub, "other", &second).await?;
    fleet.ready("cluster/other").await?;
    let repository = fleet.repository("app", &maps(Commit::new(), ns, "app", 0..12, "one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["retryInterval: 5s"])).await?;
    fleet.ready("kustomization/app").await?;

    // Of twelve ten may go by the hub, and two by the cluster.
    fleet
        .kubectl()
        .run(&["patch", "cluster/edge", "--type=merge", "-p", "{\"spec\":{\"guard\":{\"maxDeletions\":2}}}"])
        .await?;
    let fewer = pushed(&fleet, &repository, "app", maps(Commit::new(), ns, "app", 0..10, "one")).await?;
    fleet.applied("app", &fewer).await?;
    pushed(&fleet, &repository, "app", maps(Commit::new(), ns, "app", 0..7, "one")).await?;
    fleet.fails("kustomization/app", HELD, &["3 of 10 objects would be deleted, more than 2"]).await?;
    fleet
        .kubectl()
        .run(&["patch", "cluster/edge", "--type=merge", "-p", "{\"spec\":{\"guard\":null}}"])
        .await?;
    fleet.ready("kustomization/app").await?;

    let moved = "{\"spec\":{\"clusterRef\":{\"name\":\"other\"}}}";
    fleet.run(&["patch", "kustomization/app", "--type=merge", "-p", moved]).await?;
    let parts =
        ["everything that it owns would be deleted (7 objects)", "nothing is applied to the new cluster"];
    let message = fleet.fails("kustomization/app", HELD, &parts).await?;
    fleet.cluster.has_word(ns, "map-0", Some("one")).await?;
    second.has_word(ns, "map-0", None).await?;
    confirm(&fleet, &message).await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(ns, "map-0", None).await?;
    second.has_word(ns, "map-0", Some("one")).await
}
