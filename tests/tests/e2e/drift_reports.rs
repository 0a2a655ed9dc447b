//! Drift that is not simply corrected: it is only reported, it comes back each time, it cannot be corrected, or the hub is away.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubProcess, PATIENCE, config_map, eventually, kustomization};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kept::{kept_of, uid};

const BY_HAND: &str = r#"{"data":{"word":"by hand"}}"#;

async fn patch(fleet: &Fleet, ns: &str, object: &str, patch: &str) -> Result<()> {
    let args = ["patch", object, "--namespace", ns, "--type=merge", "-p", patch];
    fleet.cluster.kubectl().run(&args).await.map(drop)
}

/// What the agent says when it has no session any more, and when it goes on with what was kept.
const ALONE: &str = "no session with the hub";
const GOES_ON: &str = "going on with what was applied before this agent was started";

/// How often the agent has said this.
fn said(fleet: &Fleet, text: &str) -> usize {
    fleet.agent.logs().matches(text).count()
}

async fn says_again(fleet: &Fleet, text: &str, before: usize) -> Result<()> {
    eventually(&format!("the agent says once more: {text}"), PATIENCE, || async {
        ensure!(said(fleet, text) > before, "it has not");
        Ok(())
    })
    .await
}

/// What the hub knows of objects of `app` that differ, or differed.
async fn drift(fleet: &Fleet, query: &str) -> Result<Vec<Value>> {
    let path = format!("/fleet/v1/drift/objects?applier=app{query}");
    let view: Value = serde_json::from_str(&fleet.kubectl().run(&["get", "--raw", &path]).await?)?;
    Ok(view["items"].as_array().cloned().unwrap_or_default())
}

/// Waits until a condition is True, with all of these in its message.
async fn says(fleet: &Fleet, condition: &str, parts: &[&str]) -> Result<()> {
    eventually(&format!("{condition}: {parts:?}"), PATIENCE, || async {
        let (status, _, message) = fleet.condition("kustomization/app", condition).await?;
        ensure!(status == "True" && parts.iter().all(|part| message.contains(part)), "{status}: {message}");
        Ok(())
    })
    .await
}

/// Waits until there is no such condition.
async fn says_nothing(fleet: &Fleet, condition: &str) -> Result<()> {
    eventually(&format!("no condition {condition}"), PATIENCE, || async {
        let object = fleet.get("kustomization/app").await?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(conditions.iter().all(|one| one["type"] != condition), "{conditions:#?}");
        Ok(())
    })
    .await
}

/// Applies a Kustomization `app` with these fields, of one ConfigMap.
async fn applied(fleet: &Fleet, ns: &str, word: &str, fields: &[&str]) -> Result<()> {
    let files = Commit::new().file("map.yaml", config_map(ns, "map", word));
    let head = fleet.repository("app", &files).await?.git(["rev-parse", "main"], &[], b"")?;
    fleet.apply(&kustomization("app", "app", "./", fields)).await?;
    fleet.applied("app", &head).await.map(drop)
}

/// For so long a ConfigMap stays as it is. There is nothing to wait for but time.
async fn stays(fleet: &Fleet, ns: &str, name: &str, word: &str, long: Duration) -> Result<()> {
    let until = Instant::now() + long;
    loop {
        let now = fleet.cluster.word(ns, name).await?;
        ensure!(now.as_deref() == Some(word), "{name} is {now:?}");
        if Instant::now() >= until {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn secret(ns: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: key, namespace: {ns}}}\nstringData: {{password: from-git-1234}}\n"
    )
}

#[tokio::test]
async fn drift_is_only_reported_where_that_is_asked_for() -> Result<()> {
    let mut fleet = Fleet::start("reports").await?;
    let space = fleet.cluster.namespace("reports").await?;
    let ns = space.name().to_owned();
    let files = |word: &str| {
        Commit::new()
            .file("map.yaml", config_map(&ns, "map", word))
            .file("gone.yaml", config_map(&ns, "gone", word))
            .file("key.yaml", secret(&ns))
    };
    let repository = fleet.repository("app", &files("git")).await?;
    let head = repository.git(["rev-parse", "main"], &[], b"")?;
    fleet.apply(&kustomization("app", "app", "./", &["drift: Report", "interval: 3s"])).await?;
    fleet.applied("app", &head).await?;
    let cluster = fleet.cluster.kubectl();

    patch(&fleet, &ns, "configmap/map", BY_HAND).await?;
    cluster.run(&["delete", "configmap", "gone", "--namespace", &ns]).await?;
    patch(&fleet, &ns, "secret/key", r#"{"stringData":{"password":"by-hand-5678"}}"#).await?;
    let parts = [
        "3 objects differ",
        "left as they are",
        "/data/word (changed by kubectl-patch)",
        "it was deleted",
        "/data/password",
    ];
    says(&fleet, "Drifted", &parts).await?;
    let found = drift(&fleet, "&ongoing=true").await?;
    let of =
        |name: &str| found.iter().find(|item| item["name"] == name).with_context(|| format!("{found:#?}"));
    let map = of("map")?;
    ensure!(map["state"] == "reported" && map["managers"][0] == "kubectl-patch", "{map:#}");
    let field = &map["fields"][0];
    ensure!(
        field["path"] == "/data/word" && field["live"] == "\"by hand\"" && field["desired"] == "\"git\"",
        "{map:#}"
    );
    ensure!(of("gone")?["missing"] == true, "{found:#?}");
    let key = &of("key")?["fields"][0];
    let hash = |side: &str| key[side].as_str().is_some_and(|value| value.starts_with("hash:"));
    ensure!(hash("live") && hash("desired") && key["live"] != key["desired"], "{key:#}");
    eventually("there is an event", PATIENCE, || async {
        let events = fleet.run(&["get", "events", "-o", "json"]).await?;
        ensure!(events.contains("DriftDetected") && events.contains("/data/word"), "{events}");
        Ok(())
    })
    .await?;

    // Neither at the interval, nor by an agent that was started again; and all that was said stays so.
    stays(&fleet, &ns, "map", "by hand", Duration::from_secs(7)).await?;
    let before = said(&fleet, GOES_ON);
    fleet.agent.kill9().await?;
    fleet.agent.restart()?;
    says_again(&fleet, GOES_ON, before).await?;
    // Longer than it takes until it looks at all of that.
    stays(&fleet, &ns, "map", "by hand", Duration::from_secs(15)).await?;
    says(&fleet, "Drifted", &parts[..1]).await?;
    let ready = fleet.condition("kustomization/app", "Ready").await?;
    ensure!(ready.0 == "True", "drift has nothing to do with it: {ready:?}");

    // What is put back by hand does not differ any more.
    patch(&fleet, &ns, "configmap/map", r#"{"data":{"word":"git"}}"#).await?;
    says(&fleet, "Drifted", &["2 objects differ"]).await?;
    // Whoever asks for a reconciliation wants it corrected.
    patch(&fleet, &ns, "configmap/map", BY_HAND).await?;
    says(&fleet, "Drifted", &["3 objects differ"]).await?;
    fleet.run(&["annotate", "kustomization/app", "reconcile.fluxcd.io/requestedAt=now"]).await?;
    fleet.cluster.has_word(&ns, "map", Some("git")).await?;
    fleet.cluster.has_word(&ns, "gone", Some("git")).await?;
    says_nothing(&fleet, "Drifted").await?;
    ensure!(drift(&fleet, "&ongoing=true").await?.is_empty(), "it is over");
    ensure!(drift(&fleet, "").await?.len() >= 3, "and still known");
    // By an annotation, which a Flux and its schemas pass over, it is the same.
    let annotated =
        r#"{"metadata":{"annotations":{"fleet.roadstead.dev/drift":"Report"}},"spec":{"drift":null}}"#;
    fleet.run(&["patch", "kustomization/app", "--type=merge", "-p", annotated]).await?;
    let generation = fleet.get("kustomization/app").await?["metadata"]["generation"].clone();
    eventually("it is reconciled", PATIENCE, || async {
        let observed = fleet.get("kustomization/app").await?["status"]["observedGeneration"].clone();
        ensure!(observed == generation, "{observed} of {generation}");
        Ok(())
    })
    .await?;
    // So does another build.
    patch(&fleet, &ns, "configmap/map", BY_HAND).await?;
    says(&fleet, "Drifted", &["1 object differs"]).await?;
    let second = repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(&ns, "map", Some("two")).await?;
    says_nothing(&fleet, "Drifted").await
}

/// Changes `map` each time that it was corrected, which happens more and more slowly.
async fn fight(fleet: &Fleet, ns: &str) -> Result<()> {
    loop {
        fleet.cluster.has_word(ns, "map", Some("git")).await?;
        let manager = "--field-manager=other-controller";
        let args = ["patch", "configmap/map", "-n", ns, "--type=merge", manager, "-p", BY_HAND];
        fleet.cluster.kubectl().run(&args).await?;
    }
}

#[tokio::test]
async fn who_changes_an_object_again_and_again_is_named() -> Result<()> {
    let fleet = Fleet::start("fight").await?;
    let space = fleet.cluster.namespace("fight").await?;
    let ns = space.name().to_owned();
    applied(&fleet, &ns, "git", &[]).await?;
    let told = says(
        &fleet,
        "Contended",
        &["ConfigMap", "map", "/data/word (changed by other-controller)", "corrected"],
    );
    tokio::select! {
        ended = fight(&fleet, &ns) => ended?,
        told = told => told?,
    }
    let found = drift(&fleet, "&ongoing=true").await?;
    ensure!(found.len() == 1 && found[0]["state"] == "contended", "{found:#?}");
    ensure!(found[0]["corrections"].as_i64().is_some_and(|times| times >= 5), "{found:#?}");
    let ready = fleet.condition("kustomization/app", "Ready").await?;
    let object = fleet.get("kustomization/app").await?;
    let stalled =
        object["status"]["conditions"].as_array().into_iter().flatten().any(|one| one["type"] == "Stalled");
    ensure!(ready.0 == "True" && !stalled, "{object:#}");
    Ok(())
}

/// Sets what the cluster's agent does while the hub is away, and waits until it was told.
async fn offline(fleet: &Fleet, spec: &str) -> Result<()> {
    let newest = async || -> Result<i64> {
        let view = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/reconciliations?applier=app"]).await?;
        let view: Value = serde_json::from_str(&view)?;
        let ended = view["items"].as_array().into_iter().flatten().find(|item| item["took"].is_string());
        ended.and_then(|item| item["attempt"].as_i64()).with_context(|| format!("{view:#}"))
    };
    let before = newest().await?;
    let spec = format!(r#"{{"spec":{{"offline":{spec}}}}}"#);
    fleet.run(&["patch", "cluster/edge", "--type=merge", "-p", &spec]).await?;
    eventually("another attempt", PATIENCE, || async {
        let now = newest().await?;
        ensure!(now > before, "{before} to {now}");
        Ok(())
    })
    .await
}

/// How often an object was corrected, as the hub knows.
async fn corrections(fleet: &Fleet) -> Result<i64> {
    Ok(drift(fleet, "").await?.iter().filter_map(|item| item["corrections"].as_i64()).sum())
}

#[tokio::test]
async fn a_cluster_whose_hub_is_away_does_what_its_policy_says() -> Result<()> {
    let mut fleet = Fleet::start("alone").await?;
    let space = fleet.cluster.namespace("alone").await?;
    let ns = space.name().to_owned();
    applied(&fleet, &ns, "git", &[]).await?;
    for policy in ["Report", "Stop"] {
        offline(&fleet, &format!(r#"{{"policy":"{policy}","after":"1s"}}"#)).await?;
        let corrected = corrections(&fleet).await?;
        let before = said(&fleet, ALONE);
        fleet.hub.kill9().await?;
        says_again(&fleet, ALONE, before).await?;
        // What the policy says of time has no sign but time.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        patch(&fleet, &ns, "configmap/map", BY_HAND).await?;
        stays(&fleet, &ns, "map", "by hand", Duration::from_secs(4)).await?;
        let before = Instant::now();
        fleet.hub = HubProcess::start(&fleet.setup).await?;
        fleet.cluster.has_word(&ns, "map", Some("git")).await.with_context(|| policy.to_owned())?;
        println!("{policy}: corrected {:?} after the hub was started", before.elapsed());
        eventually("it is told", PATIENCE, || async {
            let now = corrections(&fleet).await?;
            ensure!(now > corrected, "{policy}: {now} after {corrected}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_the_hub_gave_is_kept_in_the_cluster_where_that_is_asked_for() -> Result<()> {
    let mut fleet = Fleet::start("keeps").await?;
    let space = fleet.cluster.namespace("keeps").await?;
    let ns = space.name().to_owned();
    fleet.run(&["create", "secret", "generic", "words", "--from-literal=word=given"]).await?;
    let from = "postBuild: {substituteFrom: [{kind: Secret, name: words}]}";
    applied(&fleet, &ns, "${word}", &[from]).await?;
    let uid = fleet.get("kustomization/app").await?["metadata"]["uid"].as_str().map(str::to_owned);
    let uid = uid.context("a uid")?;
    let kept = async || -> Result<bool> {
        let kept = kept_of(&fleet, &uid).await?;
        Ok(kept.contains("given") && kept.contains("builds"))
    };
    ensure!(!kept().await?, "values of the hub's are kept though nobody asked for it");
    offline(&fleet, r#"{"keepSecrets":true}"#).await?;
    eventually("it is kept", PATIENCE, || async {
        ensure!(kept().await?, "nothing is kept");
        Ok(())
    })
    .await?;
    // And taken back where it is not wanted any more.
    offline(&fleet, "null").await?;
    eventually("it is not kept any more", PATIENCE, || async {
        ensure!(!kept().await?, "it is still kept");
        Ok(())
    })
    .await?;
    offline(&fleet, r#"{"keepSecrets":true}"#).await?;
    eventually("it is kept again", PATIENCE, || async {
        ensure!(kept().await?, "nothing is kept");
        Ok(())
    })
    .await?;
    // What a Secret's variable became is told as a hash, in whatever kind of object it is.
    patch(&fleet, &ns, "configmap/map", BY_HAND).await?;
    fleet.cluster.has_word(&ns, "map", Some("given")).await?;
    eventually("the correction is told", PATIENCE, || async {
        let found = drift(&fleet, "").await?;
        let field = &found.first().context("no drift")?["fields"][0];
        let is_hash = |side: &str| field[side].as_str().is_some_and(|value| value.starts_with("hash:"));
        ensure!(is_hash("live") && is_hash("desired"), "{found:#?}");
        Ok(())
    })
    .await?;
    fleet.hub.kill9().await?;
    fleet.agent.kill9().await?;
    patch(&fleet, &ns, "configmap/map", BY_HAND).await?;
    fleet.agent.restart()?;
    fleet.cluster.has_word(&ns, "map", Some("given")).await.with_context(|| fleet.tails())
}

#[tokio::test]
async fn what_the_hub_gave_is_only_watched_by_an_agent_that_is_started_without_it() -> Result<()> {
    let mut fleet = Fleet::start("watches").await?;
    let space = fleet.cluster.namespace("watches").await?;
    let ns = space.name().to_owned();
    fleet.run(&["create", "secret", "generic", "words", "--from-literal=word=given"]).await?;
    let files = Commit::new()
        .file("map.yaml", config_map(&ns, "map", "${word}"))
        .file("other.yaml", config_map(&ns, "other", "${word}"))
        .file("same.yaml", config_map(&ns, "same", "${word}"));
    let head = fleet.repository("app", &files).await?.git(["rev-parse", "main"], &[], b"")?;
    let from = "postBuild: {substituteFrom: [{kind: Secret, name: words}]}";
    fleet.apply(&kustomization("app", "app", "./", &[from])).await?;
    fleet.applied("app", &head).await?;
    // One that needs nothing of the hub's.
    fleet.repository("own", &Commit::new().file("map.yaml", config_map(&ns, "own", "git"))).await?;
    fleet.apply(&kustomization("own", "own", "./", &[])).await?;
    eventually("the Cluster counts them", PATIENCE, || async {
        let offline = fleet.get("cluster/edge").await?["status"]["offline"].clone();
        ensure!(offline == json!({"corrected": 1, "onlyWatched": 1}), "{offline}");
        Ok(())
    })
    .await?;
    let (app, own) = (uid(&fleet, "app").await?, uid(&fleet, "own").await?);
    // The agent counts what it tends, and keeps it a moment later.
    eventually("how it stood is kept, without any value", PATIENCE, || async {
        let kept = kept_of(&fleet, &app).await?;
        ensure!(kept.contains("watched") && !kept.contains("builds") && !kept.contains("given"), "{kept}");
        let kept = kept_of(&fleet, &own).await?;
        ensure!(kept.contains("builds"), "{kept}");
        Ok(())
    })
    .await?;

    // While neither is there, and while the agent is there alone.
    fleet.hub.kill9().await?;
    fleet.agent.kill9().await?;
    patch(&fleet, &ns, "configmap/map", BY_HAND).await?;
    patch(&fleet, &ns, "configmap/own", BY_HAND).await?;
    let before = said(&fleet, GOES_ON);
    fleet.agent.restart()?;
    says_again(&fleet, GOES_ON, before).await?;
    fleet.cluster.has_word(&ns, "own", Some("git")).await?;
    fleet.cluster.kubectl().run(&["delete", "configmap", "other", "--namespace", &ns]).await?;
    stays(&fleet, &ns, "map", "by hand", Duration::from_secs(3)).await?;
    stays(&fleet, &ns, "same", "given", Duration::ZERO).await?;
    ensure!(fleet.cluster.word(&ns, "other").await?.is_none(), "it is there again");

    fleet.hub = HubProcess::start(&fleet.setup).await?;
    eventually("what differed is on record", PATIENCE, || async {
        let found = drift(&fleet, "").await?;
        let of = |name: &str| found.iter().find(|item| item["name"] == name).cloned();
        let (map, other) = (of("map").context("no drift of map")?, of("other").context("no drift of other")?);
        ensure!(map["managers"] == json!(["kubectl-patch"]) && other["missing"] == true, "{found:#?}");
        ensure!(found.len() == 2, "{found:#?}");
        Ok(())
    })
    .await
    .with_context(|| fleet.tails())?;
    for name in ["map", "other"] {
        fleet.cluster.has_word(&ns, name, Some("given")).await?;
    }
    eventually("nothing differs any more", PATIENCE, || async {
        let found = drift(&fleet, "&ongoing=true").await?;
        ensure!(found.is_empty(), "{found:#?}");
        Ok(())
    })
    .await?;
    says_nothing(&fleet, "Drifted").await
}

#[tokio::test]
async fn the_cluster_says_what_cannot_be_watched() -> Result<()> {
    let fleet = Fleet::start("unwatched").await?;
    let space = fleet.cluster.namespace("unwatched").await?;
    let ns = space.name();
    fleet.repository("app", &Commit::new().file("map.yaml", config_map(ns, "map", "git"))).await?;
    // An account that may do all that is needed but to list and to watch.
    let rights = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: blind, namespace: {ns}}}\n---\napiVersion: \
         rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: blind, namespace: {ns}}}\nrules: [{{apiGroups: [''], \
         resources: [configmaps], verbs: [get, create, patch, delete]}}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: \
         RoleBinding\nmetadata: {{name: blind, namespace: {ns}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, \
         name: blind}}\nsubjects: [{{kind: ServiceAccount, name: blind, namespace: {ns}}}]\n"
    );
    fleet.cluster.kubectl().apply(&rights).await?;
    let account = format!("serviceAccount: {{name: blind, namespace: {ns}}}");
    let app = kustomization("app", "app", "./", &[&account]).replace("/v1\n", "/v1alpha1\n");
    fleet.apply(&app).await?;
    fleet.ready("kustomization/app").await?;
    eventually("the Cluster says so", PATIENCE, || async {
        let (status, reason, message) = fleet.condition("cluster/edge", "Watched").await?;
        let parts = [
            "found at the interval only",
            "grant list and watch",
            &format!("as service account {ns}/blind"),
            "forbidden",
        ];
        ensure!(status == "False" && reason == "WatchForbidden", "{status} {reason}");
        ensure!(parts.iter().all(|part| message.contains(part)), "{message}");
        Ok(())
    })
    .await?;
    // Nor does it say so of a cluster where nothing of the kind is left.
    fleet.run(&["delete", "kustomization/app", "--timeout=60s"]).await?;
    eventually("it is over", PATIENCE, || async {
        let cluster = fleet.get("cluster/edge").await?;
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(conditions.iter().all(|condition| condition["type"] != "Watched"), "{conditions:#?}");
        Ok(())
    })
    .await
}
