//! Objects that go from one Kustomization to another: nothing of them is deleted in between.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{Fleet, HubSetup, PATIENCE, config_map, eventually, git_repository, kustomization};
use serde_json::Value;

const RETRY: &str = "retryInterval: 5s";

/// The ConfigMaps of a namespace: uid and owner's uid, by name.
async fn maps(fleet: &Fleet, ns: &str) -> Result<BTreeMap<String, (String, String)>> {
    let listed = fleet.cluster.kubectl().get(&["configmaps", "--namespace", ns]).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = listed["items"].as_array().into_iter().flatten().map(|map| {
        let metadata = &map["metadata"];
        let owner = text(&metadata["labels"]["fleet.roadstead.dev/owner"]);
        (text(&metadata["name"]), (text(&metadata["uid"]), owner))
    });
    Ok(all.filter(|(name, _)| name != "kube-root-ca.crt").collect())
}

async fn uid(fleet: &Fleet, kustomization: &str) -> Result<String> {
    let object = fleet.get(&format!("kustomization/{kustomization}")).await?;
    Ok(object["metadata"]["uid"].as_str().context("a uid")?.to_owned())
}

/// What a Kustomization's history says that went, or came: `handedOver map Kustomization apps/two`.
async fn history(fleet: &Fleet, namespace: &str, kustomization: &str) -> Result<Vec<String>> {
    let path = format!("/fleet/v1/namespaces/{namespace}/kustomizations/{kustomization}/reconciliations");
    let attempts: Value = serde_json::from_str(&fleet.kubectl().run(&["get", "--raw", &path]).await?)?;
    let attempts = attempts["items"].as_array().context("items")?;
    let changes = attempts.iter().flat_map(|attempt| attempt["changeSet"].as_array().into_iter().flatten());
    let moved = changes.filter(|change| change["other"].is_string());
    let line = |change: &Value| {
        format!("{} {} {}", change["action"], change["object"]["name"], change["other"]).replace('"', "")
    };
    Ok(moved.map(line).collect())
}

async fn pushed(fleet: &Fleet, repository: &Repository, source: &str, files: Commit) -> Result<String> {
    let revision = repository.commit("main", "Another", &files.remove("."))?;
    fleet.fetch(source).await?;
    Ok(revision)
}

#[tokio::test]
async fn what_a_commit_moves_changes_its_owner_and_nothing_else() -> Result<()> {
    let fleet = Fleet::start("handover").await?;
    let space = fleet.cluster.namespace("handover").await?;
    let ns = space.name();
    // Twelve objects go back and forth, each time with what only changes; so both orders come up.
    let some = |folder: &str, word: &str, count: usize| {
        (0..count)
            .fold(Commit::new(), |files, number| {
                let map = config_map(ns, &format!("map-{number}"), word);
                files.file(&format!("{folder}/map-{number}.yaml"), map)
            })
            .file("one/own.yaml", config_map(ns, "one", word))
            .file("two/own.yaml", config_map(ns, "two", word))
    };
    let files = |folder: &str, word: &str| some(folder, word, 12);
    let repository = fleet.repository("app", &files("one", "first")).await?;
    // The second waits for the first in one direction, so that it cannot come before it.
    fleet.apply(&kustomization("one", "app", "./one", &[RETRY])).await?;
    fleet.ready("kustomization/one").await?;
    fleet.apply(&kustomization("two", "app", "./two", &[RETRY, "dependsOn: [{name: one}]"])).await?;
    fleet.ready("kustomization/two").await?;
    let before = maps(&fleet, ns).await?;
    ensure!(before.len() == 14, "{before:?}");

    for (turn, folder) in ["two", "one", "two", "one"].iter().enumerate() {
        let word = format!("turn-{turn}");
        let head = pushed(&fleet, &repository, "app", files(folder, &word)).await?;
        fleet.applied("one", &head).await?;
        fleet.applied("two", &head).await?;
        let owner = uid(&fleet, folder).await?;
        eventually("all are applied by their new owner", PATIENCE, || async {
            let now = maps(&fleet, ns).await?;
            for (name, (uid, _)) in &before {
                let (is, by) = now.get(name).with_context(|| format!("{name} is gone"))?;
                ensure!(is == uid, "{name} was deleted and made again");
                ensure!(!name.starts_with("map-") || *by == owner, "{name} bears {by}, not {owner}");
            }
            Ok(())
        })
        .await?;
        fleet.cluster.has_word(ns, "map-11", Some(&word)).await?;
    }
    let (gave, took) = (history(&fleet, "apps", "one").await?, history(&fleet, "apps", "two").await?);
    ensure!(gave.contains(&"handedOver map-3 Kustomization apps/two".to_owned()), "{gave:?}");
    ensure!(took.contains(&"takenOver map-3 Kustomization apps/one".to_owned()), "{took:?}");
    ensure!(gave.contains(&"takenOver map-3 Kustomization apps/two".to_owned()), "{gave:?}");
    let events = fleet.run(&["events", "--for", "kustomization/one"]).await?;
    ensure!(
        events.contains("ConfigMap") && events.contains("handed over to Kustomization apps/two"),
        "{events}"
    );

    // And what leaves both is deleted by the one that had it last.
    let head = pushed(&fleet, &repository, "app", some("one", "last", 7)).await?;
    fleet.applied("one", &head).await?;
    fleet.cluster.has_word(ns, "map-11", None).await?;
    fleet.cluster.has_word(ns, "map-6", Some("last")).await
}

#[tokio::test]
async fn a_child_that_is_renamed_keeps_what_it_applied() -> Result<()> {
    let fleet = Fleet::start("rename").await?;
    let space = fleet.cluster.namespace("rename").await?;
    let ns = space.name();
    let files = |child: &str, word: &str| {
        let manifest = kustomization(child, "fleet", "./app", &[RETRY]).replacen(
            "metadata:\n",
            "metadata:\n  namespace: apps\n",
            1,
        );
        (0..12)
            .fold(Commit::new(), |files, number| {
                let map = config_map(ns, &format!("map-{number}"), word);
                files.file(&format!("app/map-{number}.yaml"), map)
            })
            .file("root/child.yaml", manifest)
            .file("root/own.yaml", config_map(ns, "own", word))
    };
    let repository = fleet.repository("fleet", &files("old", "one")).await?;
    fleet.apply(&kustomization("root", "fleet", "./root", &[RETRY, "wait: true"])).await?;
    fleet.ready("kustomization/root").await?;
    fleet.ready("kustomization/old").await?;
    let before = maps(&fleet, ns).await?;

    let head = pushed(&fleet, &repository, "fleet", files("new", "two")).await?;
    // Nothing is held: nothing would be deleted.
    fleet.applied("root", &head).await?;
    fleet.applied("new", &head).await?;
    eventually("the old one is gone", PATIENCE, || async {
        let found = fleet.run(&["get", "kustomization/old", "--ignore-not-found"]).await?;
        ensure!(found.trim().is_empty(), "{found}");
        Ok(())
    })
    .await?;
    fleet.cluster.has_word(ns, "map-11", Some("two")).await?;
    let (now, owner) = (maps(&fleet, ns).await?, uid(&fleet, "new").await?);
    for (name, (uid, _)) in &before {
        let (is, by) = now.get(name).with_context(|| format!("{name} is gone"))?;
        ensure!(is == uid, "{name} was deleted and made again");
        ensure!(name == "own" || *by == owner, "{name} bears {by}, not {owner}");
    }
    let took = history(&fleet, "apps", "new").await?;
    ensure!(took.contains(&"takenOver map-0 Kustomization apps/old".to_owned()), "{took:?}");

    // By hand: the new one is made first, and refused what the old one has; then that is deleted.
    fleet.apply(&kustomization("other", "fleet", "./app", &[RETRY])).await?;
    fleet
        .fails("kustomization/other", "ReconciliationFailed", &["is owned by Kustomization apps/new"])
        .await?;
    fleet.suspend("root", true).await?;
    fleet.run(&["delete", "kustomization/new", "--timeout=60s"]).await?;
    fleet.ready("kustomization/other").await?;
    let owner = uid(&fleet, "other").await?;
    for (name, (uid, by)) in maps(&fleet, ns).await? {
        ensure!(before.get(&name).is_some_and(|(was, _)| *was == uid), "{name} was made again");
        ensure!(name == "own" || by == owner, "{name} bears {by}, not {owner}");
    }
    Ok(())
}

#[tokio::test]
async fn children_go_from_one_parent_to_another_as_they_are() -> Result<()> {
    let fleet = Fleet::start("children").await?;
    let space = fleet.cluster.namespace("children").await?;
    let ns = space.name();
    let child = |name: &str, path: &str, more: &[&str]| {
        kustomization(name, "fleet", path, &[&[RETRY], more].concat()).replacen(
            "metadata:\n",
            "metadata:\n  namespace: apps\n",
            1,
        )
    };
    // A root makes two Kustomizations, and one of these makes the one that applies twelve objects.
    let files = |names: [&str; 2], maker: &str, word: &str| {
        let files = (0..12).fold(Commit::new(), |files, number| {
            let map = config_map(ns, &format!("map-{number}"), word);
            files.file(&format!("app/map-{number}.yaml"), map)
        });
        let files = names.iter().zip(["left", "right"]).fold(files, |files, (name, path)| {
            files
                .file(&format!("root/{path}.yaml"), child(name, &format!("./{path}"), &["wait: true"]))
                .file(&format!("{path}/own.yaml"), config_map(ns, path, word))
        });
        files.file(&format!("{maker}/app.yaml"), child("app", "./app", &[]))
    };
    let repository = fleet.repository("fleet", &files(["left", "right"], "left", "first")).await?;
    fleet.apply(&kustomization("root", "fleet", "./root", &[RETRY, "wait: true"])).await?;
    fleet.ready("kustomization/root").await?;
    let (before, app) = (maps(&fleet, ns).await?, uid(&fleet, "app").await?);
    ensure!(before.len() == 14, "{before:?}");

    let mut turn = 0;
    for (names, maker) in [
        (["left", "right"], "right"),
        (["left", "right"], "left"),
        (["left", "right"], "right"),
        // The one that makes it is renamed.
        (["left", "other"], "right"),
        // And both at once: it goes from one that goes to one that comes.
        (["another", "right"], "left"),
    ] {
        turn += 1;
        let word = format!("turn-{turn}");
        let head = pushed(&fleet, &repository, "fleet", files(names, maker, &word)).await?;
        for kustomization in [&names[..], &["root", "app"]].concat() {
            fleet.applied(kustomization, &head).await?;
        }
        fleet.cluster.has_word(ns, "map-11", Some(&word)).await?;
        ensure!(uid(&fleet, "app").await? == app, "turn {turn}: the child was deleted and made again");
        let now = maps(&fleet, ns).await?;
        for (name, (uid, _)) in &before {
            let (is, _) = now.get(name).with_context(|| format!("turn {turn}: {name} is gone"))?;
            ensure!(is == uid, "turn {turn}: {name} was deleted and made again");
        }
        eventually("who was renamed is gone", PATIENCE, || async {
            let listed = fleet.run(&["get", "kustomizations", "-o", "name"]).await?;
            ensure!(listed.lines().count() == 4, "{listed}");
            Ok(())
        })
        .await?;
    }
    let gave = history(&fleet, "apps", "root").await?;
    ensure!(gave.is_empty(), "{gave:?}");
    let events = fleet.run(&["events", "--for", "kustomization/right"]).await?;
    ensure!(events.contains("Kustomization/apps/app taken over from Kustomization apps/"), "{events}");
    // Nobody builds it any more: now it goes, and takes with it what it owns.
    let none = files(["another", "right"], "elsewhere", "last");
    pushed(&fleet, &repository, "fleet", none).await?;
    let message = fleet.fails("kustomization/another", "DeletionHeld", &["13 of 14 objects"]).await?;
    crate::guard::confirm(&fleet, &message).await?;
    fleet.cluster.has_word(ns, "map-11", None).await
}

#[tokio::test]
async fn elsewhere_the_new_owner_asks_for_it_and_the_old_one_has_to_let_go() -> Result<()> {
    let fleet = Fleet::start("takes-over").await?;
    let space = fleet.cluster.namespace("takes").await?;
    let ns = space.name();
    let files = |word: &str| {
        Commit::new()
            .file("map.yaml", config_map(ns, "map", word))
            .file("other.yaml", config_map(ns, "other", word))
    };
    let old = fleet.repository("old", &files("old")).await?;
    fleet.apply(&kustomization("old", "old", "./", &[RETRY])).await?;
    fleet.ready("kustomization/old").await?;
    let before = maps(&fleet, ns).await?;

    // The same namespace, but another source: by itself nothing goes from one to the other.
    fleet.repository("new", &Commit::new().file("map.yaml", config_map(ns, "map", "new"))).await?;
    fleet.apply(&kustomization("new", "new", "./", &[RETRY])).await?;
    let owned = ["is owned by Kustomization apps/old"];
    fleet.fails("kustomization/new", "ReconciliationFailed", &owned).await?;
    let wrong = ["annotate", "kustomization/new", "fleet.roadstead.dev/takes-over=old"];
    let refused = fleet.run(&wrong).await.err().context("it was taken")?;
    ensure!(format!("{refused:#}").contains("want namespace/name"), "{refused:#}");
    fleet.run(&["annotate", "kustomization/new", "fleet.roadstead.dev/takes-over=apps/old"]).await?;
    // It still builds it.
    fleet.fails("kustomization/new", "ReconciliationFailed", &owned).await?;
    fleet.cluster.has_word(ns, "map", Some("old")).await?;

    old.commit("main", "Let go", &Commit::new().remove("map.yaml"))?;
    fleet.fetch("old").await?;
    fleet.ready("kustomization/new").await?;
    fleet.cluster.has_word(ns, "map", Some("new")).await?;
    let after = maps(&fleet, ns).await?;
    ensure!(after["map"].0 == before["map"].0, "it was deleted and made again");
    ensure!(after["map"].1 == uid(&fleet, "new").await?, "{after:?}");
    ensure!(after["other"].1 == uid(&fleet, "old").await?, "what is still built stays: {after:?}");
    let gave = history(&fleet, "apps", "old").await?;
    ensure!(gave == ["handedOver map Kustomization apps/new"], "{gave:?}");

    // Without the annotation what leaves one build goes, and comes back with the other's next attempt.
    fleet.run(&["annotate", "kustomization/new", "fleet.roadstead.dev/takes-over-"]).await?;
    fleet.ready("kustomization/new").await.map(drop)
}

#[tokio::test]
async fn who_may_not_refer_to_another_namespace_takes_nothing_over_from_it() -> Result<()> {
    for (name, argument, goes) in [("alone", "--no-cross-namespace-refs", false), ("open", "", true)] {
        let setup = HubSetup::new(name).await?;
        let setup = if argument.is_empty() { setup } else { setup.arg(argument) };
        let fleet = Fleet::start_on(setup).await?;
        let space = fleet.cluster.namespace(name).await?;
        let ns = space.name();
        let files = Commit::new()
            .file("map.yaml", config_map(ns, "map", "old"))
            .file("other.yaml", config_map(ns, "other", "old"));
        let old = fleet.repository("old", &files).await?;
        fleet.apply(&kustomization("old", "old", "./", &[RETRY])).await?;
        fleet.ready("kustomization/old").await?;
        let before = maps(&fleet, ns).await?;
        // Another team, with a repository of its own.
        let theirs = fleet.git.add_repository("theirs.git")?;
        theirs.commit("main", "First", &Commit::new().file("map.yaml", config_map(ns, "map", "new")))?;
        fleet.kubectl().run(&["create", "namespace", "team"]).await?;
        let secret = fleet.get("secret/git").await?;
        let secret = serde_json::json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": "git", "namespace": "team" }, "data": secret["data"] });
        let source = git_repository("theirs", &fleet.git.url("theirs.git"), "secretRef: {name: git}");
        let new = kustomization("new", "theirs", "./", &[RETRY]).replacen(
            "metadata:\n",
            "metadata:\n  annotations: {fleet.roadstead.dev/takes-over: apps/old}\n",
            1,
        );
        let manifest = format!("{secret}\n---\n{source}---\n{new}");
        fleet.kubectl().run_with(&["apply", "--namespace", "team", "-f", "-"], &manifest).await?;
        eventually("it is refused what the other still has", PATIENCE, || async {
            let (_, _, message) =
                fleet.kubectl().condition(&["kustomization/new", "--namespace", "team"], "Ready").await?;
            ensure!(message.contains("is owned by Kustomization apps/old"), "{message}");
            Ok(())
        })
        .await?;
        old.commit("main", "Let go", &Commit::new().remove("map.yaml"))?;
        fleet.fetch("old").await?;
        // Where it may not, the object goes with its owner's next attempt, and is made again.
        fleet.cluster.has_word(ns, "map", Some("new")).await?;
        let after = maps(&fleet, ns).await?;
        ensure!((after["map"].0 == before["map"].0) == goes, "{name}: {before:?}, {after:?}");
    }
    Ok(())
}
