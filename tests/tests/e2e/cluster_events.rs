//! Events in the cluster of what a reconciliation changed there.

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, kustomization};
use serde_json::Value;

/// The Events about a Kustomization in a namespace of the cluster: their messages.
async fn told(fleet: &Fleet, ns: &str, name: &str) -> Result<Vec<String>> {
    let events = fleet.cluster.kubectl().get(&["events", "--namespace", ns]).await?;
    let about = |event: &&Value| {
        event["involvedObject"]["kind"] == "Kustomization" && event["involvedObject"]["name"] == name
    };
    let mut events: Vec<Value> =
        events["items"].as_array().into_iter().flatten().filter(about).cloned().collect();
    events.sort_by_key(|event| event["metadata"]["resourceVersion"].as_str().map(str::to_owned));
    for event in &events {
        ensure!(event["source"]["component"] == "roadstead-agent", "{event:#}");
        ensure!(event["type"] == "Normal" && event["reason"] == "Progressing", "{event:#}");
        let applier = format!("apps/{name}");
        ensure!(event["metadata"]["annotations"]["fleet.roadstead.dev/applier"] == applier, "{event:#}");
    }
    let message = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
    Ok(events.iter().map(message).collect())
}

fn account(ns: &str, resources: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: reconciler, namespace: {ns}}}\n---\napiVersion: \
         rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: reconciler, namespace: {ns}}}\nrules: [{{apiGroups: [''], \
         resources: [{resources}], verbs: ['*']}}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: \
         {{name: reconciler, namespace: {ns}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: \
         reconciler}}\nsubjects: [{{kind: ServiceAccount, name: reconciler, namespace: {ns}}}]\n"
    )
}

#[tokio::test]
async fn what_an_attempt_changed_is_told_in_the_cluster_where_that_is_asked_for() -> Result<()> {
    let fleet = Fleet::start("cluster-events").await?;
    let space = fleet.cluster.namespace("cluster-events").await?;
    let ns = space.name();
    let map = |name: &str, word: &str| config_map(ns, name, word);
    let files = Commit::new()
        .file("app/one.yaml", map("one", "first"))
        .file("app/two.yaml", map("two", "first"))
        .file("quiet/quiet.yaml", map("quiet", "first"));
    let repository = fleet.repository("app", &files).await?;
    fleet.cluster.kubectl().apply(&account(ns, "configmaps")).await?;
    // v1alpha1's own form of an account names its namespace.
    let with = |name: &str, events: &str| {
        let account = format!("serviceAccount: {{name: reconciler, namespace: {ns}}}");
        kustomization(name, "app", name, &[&account]).replacen("/v1\n", "/v1alpha1\n", 1).replacen(
            "metadata:\n",
            &format!("metadata:\n  annotations: {{{events}}}\n"),
            1,
        )
    };
    fleet.apply(&with("quiet", "")).await?;
    fleet.apply(&with("app", "fleet.roadstead.dev/events: Cluster")).await?;
    for name in ["quiet", "app"] {
        fleet.ready(&format!("kustomization/{name}")).await?;
    }
    // Its account may not write Events: it went well without one, and the agent says why.
    ensure!(told(&fleet, ns, "app").await?.is_empty(), "it was told by other rights");
    eventually("the agent says so", PATIENCE, || async {
        let logs = fleet.agent.logs();
        let is_it = |line: &&str| line.contains("could not tell in the cluster") && line.contains("apps/app");
        let line = logs.lines().find(is_it).map(str::to_owned);
        ensure!(line.is_some_and(|line| line.contains("forbidden")), "no line says so");
        Ok(())
    })
    .await?;

    // With the right it does, once for each attempt that changed something.
    fleet.cluster.kubectl().apply(&account(ns, "configmaps, events")).await?;
    let changed = Commit::new().file("app/one.yaml", map("one", "second")).remove("app/two.yaml");
    let changed = repository.commit("main", "Second", &changed)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &changed).await?;
    let first = format!("ConfigMap/{ns}/one configured\nConfigMap/{ns}/two deleted");
    let seen = told(&fleet, ns, "app").await?;
    ensure!(seen == [first.clone()], "{seen:?}");
    fleet.run(&["annotate", "kustomization/app", "reconcile.fluxcd.io/requestedAt=again"]).await?;
    eventually("the request is handled", PATIENCE, || async {
        let handled = fleet.get("kustomization/app").await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == "again", "the last one that was is {handled}");
        Ok(())
    })
    .await?;
    let seen = told(&fleet, ns, "app").await?;
    ensure!(seen == [first.clone()], "nothing was changed: {seen:?}");

    // For a whole cluster, but for those that say otherwise themselves.
    let all = ["patch", "cluster/edge", "--type=merge", "-p", r#"{"spec":{"events":"Cluster"}}"#];
    fleet.kubectl().run(&all).await?;
    let only = [
        "patch",
        "kustomization/app",
        "--type=merge",
        "-p",
        r#"{"metadata":{"annotations":{"fleet.roadstead.dev/events":null}},"spec":{"events":"Hub"}}"#,
    ];
    fleet.run(&only).await?;
    let third = Commit::new()
        .file("app/one.yaml", map("one", "third"))
        .file("quiet/quiet.yaml", map("quiet", "third"));
    let third = repository.commit("main", "Third", &third)?;
    fleet.fetch("app").await?;
    for name in ["quiet", "app"] {
        fleet.applied(name, &third).await?;
    }
    let seen = told(&fleet, ns, "quiet").await?;
    ensure!(seen == [format!("ConfigMap/{ns}/quiet configured")], "{seen:?}");
    let seen = told(&fleet, ns, "app").await?;
    ensure!(seen == [first], "{seen:?}");
    Ok(())
}
