//! Kinds that deploy, of which a Kustomization is one: a Rehearsal, which debug builds of the hub have for this, goes through all that
//! the pipeline has for them.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, unique};
use serde_json::Value;

/// The first source: a group, and a hook.
fn first(namespace: &str, word: &str) -> Commit {
    Commit::new()
        .file("first/map.yaml", config_map(namespace, "first", word))
        .file("hook/map.yaml", config_map(namespace, "check", word))
}

/// The second source: a group, and a child that goes to the hub.
fn second(namespace: &str, word: &str) -> Commit {
    Commit::new().file("map.yaml", config_map(namespace, "second", word)).file(
        "child.yaml",
        "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {name: child}\nspec: {type: slack, \
         channel: general}\n",
    )
}

fn rehearsal(name: &str, namespace: &str, more: &[&str]) -> String {
    let target = format!("targetNamespace: {namespace}");
    let lines = [
        target.as_str(),
        "clusterRef: {name: edge}",
        "interval: 1h",
        "retryInterval: 1h",
        "timeout: 1m",
        "prune: true",
        "firstSourceRef: {kind: GitRepository, name: first}",
        "secondSourceRef: {kind: GitRepository, name: second}",
    ];
    let lines: Vec<&str> = lines.into_iter().chain(more.iter().copied()).collect();
    format!(
        "apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Rehearsal\nmetadata: {{name: {name}}}\nspec:\n  {}\n---\n",
        lines.join("\n  ")
    )
}

/// A ConfigMap of the cluster.
async fn map(fleet: &Fleet, namespace: &str, name: &str) -> Result<Value> {
    fleet.cluster.kubectl().get(&["configmap", name, "--namespace", namespace]).await
}

/// The newest attempts of a Rehearsal, the newest first.
async fn history(fleet: &Fleet, name: &str) -> Result<Vec<Value>> {
    let path = format!("/fleet/v1/appliers/Rehearsal/apps/{name}/reconciliations");
    let text = fleet.kubectl().run(&["get", "--raw", &path]).await?;
    let view: Value = serde_json::from_str(&text).context("read the history")?;
    Ok(view["items"].as_array().context("items")?.clone())
}

#[tokio::test]
async fn a_kind_with_two_sources_a_hook_a_secret_a_read_and_a_child_goes_through_the_whole_line() -> Result<()>
{
    let fleet = Fleet::start("applier").await?;
    let space = fleet.cluster.namespace("applier").await?;
    let ns = space.name();
    let one = fleet.repository("first", &first(ns, "one")).await?;
    fleet.repository("second", &second(ns, "one")).await?;
    let secret = unique("hush");
    fleet.run(&["create", "secret", "generic", "value", &format!("--from-literal=value={secret}")]).await?;
    fleet.run(&["create", "configmap", "settings", "--from-literal=setting=loud"]).await?;
    // On the cluster: it leads to the ConfigMap on the hub.
    let args = ["create", "configmap", "facts", "--namespace", ns, "--from-literal=configMap=settings"];
    fleet.cluster.kubectl().run(&args).await?;
    let read = format!("read: {{name: facts, namespace: {ns}}}");
    fleet.apply(&rehearsal("show", ns, &["secretRef: {name: value}", &read, "wait: true"])).await?;
    fleet.ready("rehearsal/show").await?;

    let base64 = |text: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    for name in ["first", "second"] {
        fleet.cluster.has_word(ns, name, Some("one")).await?;
    }
    let made = map(&fleet, ns, "rehearsed").await?;
    ensure!(made["data"]["settings"] == "loud" && made["data"]["secret"] == base64(&secret), "{made:#}");
    // The hook has run, and is gone; the child is on the hub, and labelled by its parent's kind.
    fleet.cluster.has_word(ns, "check", None).await?;
    let child = fleet.get("provider/child").await?;
    ensure!(child["metadata"]["labels"]["fleet.roadstead.dev/name"] == "show", "{child:#}");

    // First it read, and then it applied; each step is told by its label.
    let attempts = history(&fleet, "show").await?;
    let told = |at: usize| attempts.get(at).map(|attempt| attempt["message"].as_str().unwrap_or_default());
    ensure!(attempts.len() == 2, "{attempts:#?}");
    ensure!(told(1) == Some("read 1 objects of the cluster, to render by"), "{attempts:#?}");
    ensure!(told(0).is_some_and(|text| text.starts_with("Applied revision: main@sha1:")), "{attempts:#?}");
    let labels: Vec<&Value> =
        attempts[0]["timings"].as_array().into_iter().flatten().map(|timing| &timing["label"]).collect();
    for label in ["first", "first is healthy", "check", "second", "prune", "wait"] {
        ensure!(labels.iter().any(|one| *one == label), "no step '{label}' in {labels:?}");
    }
    ensure!(!serde_json::to_string(&attempts)?.contains(&secret), "the history holds the Secret's value");

    // What it was rendered by changes: the Secret of the first round, and the ConfigMap of the second.
    let other = unique("hush");
    let patch = format!("{{\"stringData\":{{\"value\":\"{other}\"}}}}");
    fleet.run(&["patch", "secret", "value", "--type=merge", "-p", &patch]).await?;
    rehearsed(&fleet, ns, "secret", &base64(&other)).await?;
    fleet
        .run(&["patch", "configmap", "settings", "--type=merge", "-p", "{\"data\":{\"setting\":\"soft\"}}"])
        .await?;
    rehearsed(&fleet, ns, "settings", "soft").await?;

    // A commit to the source whose revision it shows, and one to the other.
    one.commit("main", "Second", &first(ns, "two"))?;
    fleet.fetch("first").await?;
    fleet.cluster.has_word(ns, "first", Some("two")).await?;

    // It goes away with all that it owns.
    fleet.ready("rehearsal/show").await?;
    fleet.run(&["delete", "rehearsal", "show", "--timeout=60s"]).await?;
    for name in ["first", "second"] {
        fleet.cluster.has_word(ns, name, None).await?;
    }
    let left = fleet.run(&["get", "provider", "child", "--ignore-not-found"]).await?;
    ensure!(left.trim().is_empty(), "the child is still there: {left}");
    Ok(())
}

/// Waits until what a Rehearsal made says this.
async fn rehearsed(fleet: &Fleet, namespace: &str, key: &str, value: &str) -> Result<()> {
    eventually(&format!("the ConfigMap says {key} {value}"), PATIENCE, || async {
        let made = map(fleet, namespace, "rehearsed").await?;
        ensure!(made["data"][key] == value, "it says {}", made["data"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_render_that_goes_wrong_is_told_and_harms_no_other() -> Result<()> {
    let fleet = Fleet::start("faults").await?;
    let space = fleet.cluster.namespace("faults").await?;
    let ns = space.name();
    fleet.repository("first", &first(ns, "one")).await?;
    fleet.repository("second", &second(ns, "one")).await?;
    let faults = [
        ("Fail", "BuildFailed", "it was told to fail"),
        ("Panic", "BuildFailed", "Set aside"),
        ("Nothing", "BuildFailed", "the render has 0 groups"),
        ("Endless", "BuildFailed", "its render is not done after 10 rounds"),
        ("Repeat", "BuildFailed", "its render asks for the same again"),
        ("Hang", "BuildFailed", "it needs more than 5 s of CPU time"),
        ("Twice", "ValidationFailed", "is in two groups, 'first' and 'second'"),
    ];
    let all = faults.map(|(fault, _, _)| rehearsal(&fault.to_lowercase(), ns, &[&format!("fault: {fault}")]));
    fleet.apply(&all.concat()).await?;
    for (fault, reason, part) in faults {
        fleet.fails(&format!("rehearsal/{}", fault.to_lowercase()), reason, &[part]).await?;
    }
    // Of that one the first group was applied, which it owns: another would be refused.
    fleet.run(&["delete", "rehearsal", "twice", "--timeout=60s"]).await?;
    // What it needs is not there, and comes.
    let read = format!("read: {{name: facts, namespace: {ns}}}");
    fleet.apply(&rehearsal("needs", ns, &["secretRef: {name: value}", &read])).await?;
    fleet.fails("rehearsal/needs", "BuildFailed", &["Secret 'value' of spec.secretRef not found"]).await?;
    let args = ["create", "configmap", "facts", "--namespace", ns, "--from-literal=configMap=settings"];
    fleet.cluster.kubectl().run(&args).await?;
    fleet.run(&["create", "configmap", "settings", "--from-literal=setting=loud"]).await?;
    fleet.run(&["create", "secret", "generic", "value", "--from-literal=value=hush"]).await?;
    fleet.ready("rehearsal/needs").await.map(|_| ())
}
