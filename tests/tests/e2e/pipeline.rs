//! The pipeline of a Kustomization, from a commit to objects on a real cluster and back to its status.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{
    AgentProcess, Fleet, PATIENCE, TestCluster, config_map, eventually, kustomization, unique,
};
use serde_json::Value;

/// The kind in the form of Flux's v1alpha1.
const LEGACY: &str = "kustomizations.v1alpha1.kustomize.toolkit.fluxcd.io";

fn head(repository: &Repository) -> Result<String> {
    repository.git(["rev-parse", "main"], &[], b"")
}

fn deployment(namespace: &str, name: &str, never_ready: bool) -> String {
    let annotation = "annotations: {devcluster.roadstead.dev/never-ready: ImagePullBackOff}";
    let annotation = if never_ready { annotation } else { "annotations: {}" };
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n  replicas: 1\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata:\n      labels: {{app: {name}}}\n      \
         {annotation}\n    spec:\n      containers: [{{name: web, image: registry.example/web:1}}]\n"
    )
}

/// What `status` says of revisions and generations.
fn ensure_status(object: &Value, revision: &str) -> Result<()> {
    let status = &object["status"];
    let ready = status["conditions"].as_array().into_iter().flatten().find(|found| found["type"] == "Ready");
    let ready = ready.context("no condition Ready")?;
    ensure!(ready["reason"] == "ReconciliationSucceeded", "{ready}");
    ensure!(ready["message"] == format!("Applied revision: {revision}"), "{ready}");
    ensure!(status["lastAppliedRevision"] == revision, "{status:#}");
    ensure!(status["lastAttemptedRevision"] == revision, "{status:#}");
    ensure!(status["observedGeneration"] == object["metadata"]["generation"], "{object:#}");
    // As Flux has them, these are there only while they are true.
    for lapsed in ["Reconciling", "Stalled"] {
        ensure!(condition(object, lapsed).is_none(), "{lapsed}: {object:#}");
    }
    Ok(())
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// The condition Healthy where health is asked for, the history, and v1alpha1's form of the inventory.
async fn ensure_told_as_by_flux(fleet: &Fleet, namespace: &str, revision: &str) -> Result<()> {
    let object = fleet.get("kustomization/backend").await?;
    let healthy = condition(&object, "Healthy").context("no condition Healthy")?;
    ensure!(healthy["status"] == "True" && healthy["reason"] == "Succeeded", "{healthy}");
    let message = healthy["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("Health check passed in "), "{healthy}");
    ensure!(condition(&fleet.get("kustomization/legacy").await?, "Healthy").is_none(), "nobody asks for it");
    let newest = &object["status"]["history"][0];
    ensure!(newest["metadata"]["revision"] == format!("main@sha1:{revision}"), "{newest}");
    ensure!(newest["lastReconciledStatus"] == "ReconciliationSucceeded", "{newest}");
    ensure!(newest["totalReconciliations"].as_i64().is_some_and(|total| total >= 1), "{newest}");
    let legacy = fleet.get(&format!("{LEGACY}/backend")).await?;
    let snapshot = &legacy["status"]["snapshot"];
    ensure!(snapshot["checksum"] == newest["digest"], "{snapshot:#}");
    let entries = snapshot["entries"].as_array().context("entries")?;
    let entry = entries.iter().find(|entry| entry["namespace"] == namespace).context("an entry")?;
    ensure!(entry["kinds"]["apps/v1, Kind=Deployment"] == "Deployment", "{entry:#}");
    ensure!(entry["kinds"]["v1, Kind=ConfigMap"] == "ConfigMap", "{entry:#}");
    ensure!(legacy["status"]["inventory"].is_null() && object["status"]["snapshot"].is_null());
    Ok(())
}

/// Whether `text` is a duration as Go prints it: `1.436096591s`, `12.5ms`, `1m0.2s`.
fn is_go_duration(text: &str) -> bool {
    let Some(text) = text.strip_suffix('s') else { return false };
    let seconds = match text.strip_suffix(['m', 'µ', 'n']) {
        Some(fraction_of_a_second) => fraction_of_a_second,
        None => text.rsplit(['m', 'h']).next().unwrap_or_default(),
    };
    seconds.parse::<f64>().is_ok()
        && !seconds.ends_with('.')
        && !(seconds.contains('.') && seconds.ends_with('0'))
}

fn keys(line: &Value) -> Vec<&str> {
    line.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

#[tokio::test]
async fn a_commit_becomes_objects_and_the_next_ones_follow() -> Result<()> {
    let fleet = Fleet::start("commit").await?;
    let space = fleet.cluster.namespace("commit").await?;
    let ns = space.name();
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: backend, namespace: {ns}}}\nspec: {{ports: [{{port: 80}}]}}\n"
    );
    let files = Commit::new()
        .file("webapp/backend/config.yaml", config_map(ns, "backend", "one"))
        .file("webapp/backend/service.yaml", service)
        .file("webapp/backend/deployment.yaml", deployment(ns, "backend", false))
        .file("legacy/config.yaml", config_map(ns, "legacy", "one"));
    let repository = fleet.repository("webapp", &files).await?;
    let first = head(&repository)?;
    fleet.apply(&kustomization("backend", "webapp", "./webapp/backend/", &["wait: true"])).await?;
    fleet
        .apply(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1alpha1\nkind: Kustomization\nmetadata: {name: legacy}\nspec:\n  \
             interval: 5m\n  path: ./legacy/\n  prune: true\n  sourceRef: {kind: GitRepository, name: webapp}\n  clusterRef: \
             {name: edge}\n  validation: client\n",
        )
        .await?;
    // The seed's own line.
    for name in ["kustomization/backend", "kustomization/legacy"] {
        fleet.run(&["wait", name, "--for=condition=ready", "--timeout=60s"]).await?;
        ensure_status(&fleet.get(name).await?, &format!("main@sha1:{first}"))?;
    }
    for name in ["backend", "legacy"] {
        let object = fleet.get(&format!("{LEGACY}/{name}")).await?;
        ensure!(object["apiVersion"] == "kustomize.toolkit.fluxcd.io/v1alpha1", "{object:#}");
        ensure_status(&object, &format!("main/{first}"))?;
        fleet.cluster.has_word(ns, name, Some("one")).await?;
    }
    ensure_applied_line(&fleet, "apps/backend", ns).await?;
    ensure_told_as_by_flux(&fleet, ns, &first).await?;

    // The source is looked at once an hour: the second commit arrives because someone asks.
    let changed = Commit::new().file("webapp/backend/config.yaml", config_map(ns, "backend", "two"));
    let second = repository.commit("main", "Second", &changed)?;
    fleet.fetch("webapp").await?;
    fleet.applied("backend", &second).await?;
    ensure_status(&fleet.get("kustomization/backend").await?, &format!("main@sha1:{second}"))?;
    fleet.cluster.has_word(ns, "backend", Some("two")).await?;

    what_happened_is_told(&fleet, &second).await?;
    seeds_annotation_reconciles_at_once(&fleet, ns).await?;
    a_failure_is_logged_and_the_last_applied_revision_stays(&fleet, &repository, &second).await
}

/// The events of a Kustomization and of its source, and what the fleet views say of both.
async fn what_happened_is_told(fleet: &Fleet, revision: &str) -> Result<()> {
    for (kind, name, reason, message) in [
        (
            "Kustomization",
            "backend",
            "ReconciliationSucceeded",
            format!("Applied revision: main@sha1:{revision}"),
        ),
        ("GitRepository", "webapp", "NewArtifact", "stored artifact for commit 'Second'".to_owned()),
        ("Cluster", "edge", "AgentConnected", "is connected".to_owned()),
        // What was changed, object by object.
        ("Kustomization", "backend", "Progressing", "/backend configured".to_owned()),
    ] {
        let selector =
            format!("involvedObject.kind={kind},involvedObject.name={name},type=Normal,reason={reason}");
        let found = fleet
            .run(&[
                "get",
                "events",
                "-A",
                "--show-managed-fields",
                "--field-selector",
                &selector,
                "-o",
                "json",
            ])
            .await?;
        let found: Value = serde_json::from_str(&found)?;
        let items = found["items"].as_array().context("items")?;
        let told = |event: &&Value| event["message"].as_str().is_some_and(|text| text.contains(&message));
        let event = items.iter().find(told).with_context(|| format!("{message} is not in {found:#}"))?;
        let managers = event["metadata"]["managedFields"].as_array().context("managers")?;
        ensure!(managers.len() == 1 && managers[0]["manager"] == "roadstead-hub", "{event:#}");
        ensure!(managers[0]["fieldsV1"]["f:count"].is_object(), "{event:#}");
    }
    let described = fleet.run(&["describe", "kustomization", "backend"]).await?;
    ensure!(described.contains("roadstead-hub"), "no events in {described}");
    let view = |path: &str| {
        let path = format!("/fleet/v1/{path}");
        async move { anyhow::Ok(serde_json::from_str::<Value>(&fleet.run(&["get", "--raw", &path]).await?)?) }
    };
    let clusters = view("clusters").await?;
    ensure!(clusters["items"][0]["objects"] == 4, "{clusters:#}");
    ensure!(clusters["items"][0]["appliers"]["True"] == 2, "{clusters:#}");
    let found = view("inventory?kind=Deployment&cluster=edge").await?;
    ensure!(found["items"][0]["applier"]["name"] == "backend", "{found:#}");
    let attempts = view("reconciliations?cluster=edge").await?;
    let of_backend = |item: &&Value| item["applier"]["name"] == "backend";
    let newest = attempts["items"].as_array().into_iter().flatten().find(of_backend).context("an attempt")?;
    ensure!(newest["counts"]["configured"] == 1, "{newest:#}");
    let drift = view("drift").await?;
    ensure!(drift["items"].as_array().is_some_and(Vec::is_empty), "nobody else wrote: {drift:#}");
    Ok(())
}

/// The line of the specification for what was applied.
async fn ensure_applied_line(fleet: &Fleet, name: &str, ns: &str) -> Result<()> {
    let line = fleet.log_line(name, |line| !line["output"].is_null()).await?;
    ensure!(line["level"] == "info", "{line:#}");
    ensure!(keys(&line) == ["kustomization", "level", "logger", "msg", "output", "ts"], "{line:#}");
    let took = line["msg"].as_str().and_then(|msg| msg.strip_prefix("Kustomization applied in "));
    ensure!(took.is_some_and(is_go_duration), "{line:#}");
    let expected = serde_json::json!({
        "configmap/backend": "created", "service/backend": "created", "deployment.apps/backend": "created",
    });
    ensure!(line["output"] == expected, "in {ns}: {line:#}");
    let ts = line["ts"].as_str().unwrap_or_default();
    ensure!(ts.len() == "2020-09-17T07:27:11.921Z".len() && ts.ends_with('Z'), "{line:#}");
    Ok(())
}

async fn seeds_annotation_reconciles_at_once(fleet: &Fleet, ns: &str) -> Result<()> {
    fleet.cluster.kubectl().run(&["delete", "configmap", "backend", "--namespace", ns]).await?;
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs().to_string();
    let annotation = format!("fluxcd.io/reconcileAt={at}");
    fleet.run(&["annotate", "--overwrite", "kustomization/backend", &annotation]).await?;
    eventually("the request is handled", PATIENCE, || async {
        let handled = fleet.get("kustomization/backend").await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == at, "the last one that was is {handled}");
        Ok(())
    })
    .await?;
    // Handled means done, not begun.
    ensure!(fleet.cluster.word(ns, "backend").await?.as_deref() == Some("two"), "the drift is still there");
    fleet.ready("kustomization/backend").await.map(|_| ())
}

async fn a_failure_is_logged_and_the_last_applied_revision_stays(
    fleet: &Fleet,
    repository: &Repository,
    good: &str,
) -> Result<()> {
    let bad = Commit::new().file("webapp/backend/config.yaml", "apiVersion: v1\nkind: [\n");
    let bad = repository.commit("main", "Bad", &bad)?;
    fleet.fetch("webapp").await?;
    let message =
        fleet.fails("kustomization/backend", "BuildFailed", &["webapp/backend/config.yaml"]).await?;
    let status = fleet.get("kustomization/backend").await?["status"].clone();
    ensure!(status["lastAppliedRevision"] == format!("main@sha1:{good}"), "{status:#}");
    ensure!(status["lastAttemptedRevision"] == format!("main@sha1:{bad}"), "{status:#}");
    let object = fleet.get("kustomization/backend").await?;
    let again = condition(&object, "Reconciling").context("no condition Reconciling")?;
    ensure!(again["status"] == "True" && again["reason"] == "ProgressingWithRetry", "{again}");
    let line = fleet.log_line("apps/backend", |line| line["error"] == message).await?;
    ensure!(keys(&line) == ["error", "kustomization", "level", "logger", "ts"], "{line:#}");
    ensure!(line["level"] == "error", "{line:#}");
    // The other Kustomization of the same source, whose files are as they were, goes on.
    fleet.applied("legacy", &bad).await
}

#[tokio::test]
async fn drift_is_mended_at_the_interval_and_not_while_suspended() -> Result<()> {
    let fleet = Fleet::start("interval").await?;
    let space = fleet.cluster.namespace("interval").await?;
    let ns = space.name();
    let files = Commit::new()
        .file("often/config.yaml", config_map(ns, "often", "one"))
        .file("held/config.yaml", config_map(ns, "held", "one"));
    let repository = fleet.repository("app", &files).await?;
    let often = kustomization("often", "app", "often", &["interval: 2s"]);
    let held = kustomization("held", "app", "held", &[]);
    fleet.apply(&format!("{often}{held}")).await?;
    for name in ["often", "held"] {
        fleet.ready(&format!("kustomization/{name}")).await?;
    }

    // Deleted by hand, changed by hand.
    let cluster = fleet.cluster.kubectl();
    cluster.run(&["delete", "configmap", "often", "--namespace", ns]).await?;
    fleet.cluster.has_word(ns, "often", Some("one")).await?;
    let patch = r#"{"data":{"word":"by hand"}}"#;
    cluster.run(&["patch", "configmap", "often", "--namespace", ns, "--type=merge", "-p", patch]).await?;
    fleet.cluster.has_word(ns, "often", Some("one")).await?;

    fleet.suspend("held", true).await?;
    eventually("it says that it is suspended", PATIENCE, || async {
        let (status, reason, _) = fleet.condition("kustomization/held", "Suspended").await?;
        ensure!((status.as_str(), reason.as_str()) == ("True", "Suspended"), "{status} {reason}");
        Ok(())
    })
    .await?;
    let (status, reason, _) = fleet.condition("kustomization/held", "Ready").await?;
    ensure!((status.as_str(), reason.as_str()) == ("True", "ReconciliationSucceeded"), "{status} {reason}");

    let first = head(&repository)?;
    let both = Commit::new()
        .file("often/config.yaml", config_map(ns, "often", "two"))
        .file("held/config.yaml", config_map(ns, "held", "two"));
    let second = repository.commit("main", "Second", &both)?;
    fleet.fetch("app").await?;
    // Also when asked for.
    fleet.run(&["annotate", "kustomization/held", "reconcile.fluxcd.io/requestedAt=now"]).await?;
    // The other one has it, and was reconciled once more after that.
    fleet.applied("often", &second).await?;
    cluster.run(&["delete", "configmap", "often", "--namespace", ns]).await?;
    fleet.cluster.has_word(ns, "often", Some("two")).await?;
    ensure!(fleet.cluster.word(ns, "held").await?.as_deref() == Some("one"), "applied while suspended");
    let status = fleet.get("kustomization/held").await?["status"].clone();
    ensure!(status["lastAttemptedRevision"] == format!("main@sha1:{first}"), "{status:#}");

    fleet.suspend("held", false).await?;
    fleet.applied("held", &second).await?;
    fleet.cluster.has_word(ns, "held", Some("two")).await?;
    let left = fleet.condition("kustomization/held", "Suspended").await;
    ensure!(left.is_err(), "it still has the condition Suspended: {left:?}");
    let handled = fleet.get("kustomization/held").await?["status"]["lastHandledReconcileAt"].clone();
    ensure!(handled == "now", "{handled}");
    Ok(())
}

#[tokio::test]
async fn what_leaves_git_leaves_the_cluster_where_prune_is_set() -> Result<()> {
    let fleet = Fleet::start("prune").await?;
    let space = fleet.cluster.namespace("prune").await?;
    let other = fleet.cluster.namespace("prune-target").await?;
    let (ns, target) = (space.name(), other.name());
    let named = |name: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{word: hi}}\n")
    };
    let files = Commit::new()
        .file("pruned/stays.yaml", config_map(ns, "pruned-stays", "hi"))
        .file("pruned/goes.yaml", config_map(ns, "pruned-goes", "hi"))
        .file("kept/stays.yaml", config_map(ns, "kept-stays", "hi"))
        .file("kept/goes.yaml", config_map(ns, "kept-goes", "hi"))
        .file("moved/without.yaml", named("without"))
        .file("moved/with.yaml", config_map(ns, "with", "hi"));
    let repository = fleet.repository("app", &files).await?;
    let target_namespace = format!("targetNamespace: {target}");
    for manifest in [
        kustomization("pruned", "app", "pruned", &[]),
        kustomization("kept", "app", "kept", &["prune: false"]),
        kustomization("moved", "app", "moved", &[&target_namespace]),
    ] {
        fleet.apply(&manifest).await?;
    }
    for name in ["pruned", "kept", "moved"] {
        fleet.ready(&format!("kustomization/{name}")).await?;
    }
    // targetNamespace sets the namespace, and overrides one.
    for name in ["without", "with"] {
        ensure!(fleet.cluster.word(target, name).await?.is_some(), "no ConfigMap {name} in {target}");
    }
    ensure!(fleet.cluster.word(ns, "with").await?.is_none(), "targetNamespace does not override");

    let fewer = Commit::new().remove("pruned/goes.yaml").remove("kept/goes.yaml");
    let fewer = repository.commit("main", "Fewer", &fewer)?;
    fleet.fetch("app").await?;
    for name in ["pruned", "kept"] {
        fleet.applied(name, &fewer).await?;
    }
    let there = async |name: &str| anyhow::Ok(fleet.cluster.word(ns, name).await?.is_some());
    ensure!(!there("pruned-goes").await?, "it was not pruned");
    for name in ["pruned-stays", "kept-stays", "kept-goes"] {
        ensure!(there(name).await?, "{name} is gone");
    }
    Ok(())
}

#[tokio::test]
async fn a_deployment_that_never_gets_ready_fails_the_health_check() -> Result<()> {
    let fleet = Fleet::start("health").await?;
    let space = fleet.cluster.namespace("health").await?;
    let ns = space.name();
    let files = Commit::new().file("web.yaml", deployment(ns, "web", false));
    let repository = fleet.repository("app", &files).await?;
    let good = head(&repository)?;
    let checks = format!("healthChecks: [{{kind: Deployment, name: web, namespace: {ns}}}]");
    fleet.apply(&kustomization("quick", "app", ".", &["timeout: 4s", &checks])).await?;
    fleet.ready("kustomization/quick").await?;

    let bad =
        repository.commit("main", "Bad", &Commit::new().file("web.yaml", deployment(ns, "web", true)))?;
    fleet.fetch("app").await?;
    let object = format!("Deployment/{ns}/web");
    fleet.fails("kustomization/quick", "HealthCheckFailed", &[&object, "timed out"]).await?;
    let status = fleet.get("kustomization/quick").await?["status"].clone();
    ensure!(status["lastAppliedRevision"] == format!("main@sha1:{good}"), "{status:#}");
    ensure!(status["lastAttemptedRevision"] == format!("main@sha1:{bad}"), "{status:#}");

    let mended = Commit::new().file("web.yaml", deployment(ns, "web", false));
    let mended = repository.commit("main", "Mended", &mended)?;
    fleet.fetch("app").await?;
    fleet.applied("quick", &mended).await?;

    // A commit that mends what is waited for is taken up before the timeout of the one before.
    fleet
        .run(&["patch", "kustomization/quick", "--type=merge", "-p", r#"{"spec":{"timeout":"30m"}}"#])
        .await?;
    fleet.ready("kustomization/quick").await?;
    repository.commit("main", "Bad", &Commit::new().file("web.yaml", deployment(ns, "web", true)))?;
    fleet.fetch("app").await?;
    eventually("the wait has begun", PATIENCE, || async {
        let pods = ["get", "pods", "--namespace", ns, "-o", "jsonpath={..waiting.reason}"];
        let waiting = fleet.cluster.kubectl().run(&pods).await?;
        ensure!(waiting.contains("ImagePullBackOff"), "{waiting}");
        Ok(())
    })
    .await?;
    let (_, reason, _) = fleet.condition("kustomization/quick", "Ready").await?;
    ensure!(reason == "Progressing", "{reason}");
    let again =
        repository.commit("main", "Good", &Commit::new().file("web.yaml", deployment(ns, "web", false)))?;
    fleet.fetch("app").await?;
    fleet.applied("quick", &again).await?;

    // Nor does a deletion wait for it.
    repository.commit("main", "Bad", &Commit::new().file("web.yaml", deployment(ns, "web", true)))?;
    fleet.fetch("app").await?;
    eventually("the wait has begun", PATIENCE, || async {
        let (_, reason, _) = fleet.condition("kustomization/quick", "Ready").await?;
        ensure!(reason == "Progressing", "{reason}");
        Ok(())
    })
    .await?;
    fleet.run(&["delete", "kustomization/quick", "--timeout=60s"]).await?;
    let args = ["get", "deployments", "--namespace", ns, "-o", "name"];
    let left = fleet.cluster.kubectl().run(&args).await?;
    ensure!(left.is_empty(), "the Kustomization went before its objects: {left}");
    Ok(())
}

#[tokio::test]
async fn dependencies_are_waited_for_and_cycles_named() -> Result<()> {
    let fleet = Fleet::start("depends").await?;
    let space = fleet.cluster.namespace("depends").await?;
    let ns = space.name();
    let files = Commit::new().file("front/config.yaml", config_map(ns, "front", "hi"));
    let repository = fleet.repository("app", &files).await?;
    let depends_on = "dependsOn: [{name: back}]";
    fleet.apply(&kustomization("front", "app", "front", &[depends_on])).await?;
    let reason = "DependencyNotReady";
    fleet.fails("kustomization/front", reason, &["'apps/back' not found"]).await?;
    // To wait is not an error.
    let says_so =
        |line: &Value| line["msg"].as_str().is_some_and(|msg| msg.contains("'apps/back' not found"));
    let line = fleet.log_line("apps/front", says_so).await?;
    ensure!(line["level"] == "info", "{line:#}");
    // A request is answered, though the answer is that it waits.
    fleet.run(&["annotate", "kustomization/front", "reconcile.fluxcd.io/requestedAt=asked"]).await?;
    eventually("the request is handled", PATIENCE, || async {
        let handled = fleet.get("kustomization/front").await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == "asked", "the last one that was is {handled}");
        Ok(())
    })
    .await?;
    // It exists, and fails: the path is not there.
    fleet.apply(&kustomization("back", "app", "back", &[])).await?;
    fleet.fails("kustomization/back", "ArtifactFailed", &["kustomization path not found", "back"]).await?;
    fleet.fails("kustomization/front", reason, &["'apps/back' is not ready"]).await?;
    ensure!(fleet.cluster.word(ns, "front").await?.is_none(), "it did not wait for its dependency");
    // Once the dependency is Ready, it follows by itself.
    let back = Commit::new().file("back/config.yaml", config_map(ns, "back", "hi"));
    let mended = repository.commit("main", "Back", &back)?;
    fleet.fetch("app").await?;
    fleet.applied("front", &mended).await?;
    ensure!(fleet.cluster.word(ns, "back").await?.is_some(), "the dependency was not applied before");

    // What depends on something that is reconciled once more stays Ready, or is so again at once.
    fleet.run(&["annotate", "kustomization/back", "reconcile.fluxcd.io/requestedAt=again"]).await?;
    eventually("the request is handled", PATIENCE, || async {
        let handled = fleet.get("kustomization/back").await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == "again", "the last one that was is {handled}");
        Ok(())
    })
    .await?;
    fleet.ready("kustomization/back").await?;
    fleet.ready("kustomization/front").await?;

    // A bad commit stops at the dependency; a good one goes through both.
    repository.commit("main", "Bad", &Commit::new().file("back/config.yaml", "kind: ["))?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/back", "BuildFailed", &["back/config.yaml"]).await?;
    fleet.fails("kustomization/front", reason, &["'apps/back'"]).await?;
    let good = repository.commit("main", "Good", &back)?;
    fleet.fetch("app").await?;
    fleet.applied("front", &good).await?;

    for (one, other) in [("left", "right"), ("right", "left")] {
        let depends_on = format!("dependsOn: [{{name: {other}}}]");
        fleet.apply(&kustomization(one, "app", "front", &["suspend: false", &depends_on])).await?;
    }
    for (one, cycle) in
        [("left", "apps/left -> apps/right -> apps/left"), ("right", "apps/right -> apps/left -> apps/right")]
    {
        fleet.fails(&format!("kustomization/{one}"), reason, &["cycle", cycle]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_deleted_kustomization_takes_its_objects_along() -> Result<()> {
    let fleet = Fleet::start("delete").await?;
    let space = fleet.cluster.namespace("delete").await?;
    let ns = space.name();
    let names = ["pruned", "suspended", "kept"];
    // What the policy says counts, whatever `prune` says; and whether the objects stay.
    let policies = [
        ("orphaned", ["prune: true", "deletionPolicy: Orphan"], true),
        ("deleted", ["prune: false", "deletionPolicy: Delete"], false),
        ("as-pruned", ["prune: true", "deletionPolicy: MirrorPrune"], false),
        ("as-kept", ["prune: false", "deletionPolicy: MirrorPrune"], true),
    ];
    let all = names.into_iter().chain(policies.iter().map(|(name, ..)| *name));
    let files = all.fold(Commit::new(), |commit, name| {
        commit.file(&format!("{name}/config.yaml"), config_map(ns, name, "hi"))
    });
    fleet.repository("app", &files).await?;
    fleet.apply(&kustomization("pruned", "app", "pruned", &[])).await?;
    fleet.apply(&kustomization("suspended", "app", "suspended", &[])).await?;
    fleet.apply(&kustomization("kept", "app", "kept", &["prune: false"])).await?;
    for name in names {
        fleet.ready(&format!("kustomization/{name}")).await?;
        let finalizers = fleet.get(&format!("kustomization/{name}")).await?["metadata"]["finalizers"].clone();
        ensure!(finalizers.as_array().is_some_and(|all| all.len() == 1), "{finalizers}");
    }
    fleet.suspend("suspended", true).await?;

    // kubectl comes back when the Kustomization is gone: by then the objects are.
    fleet.run(&["delete", "kustomization/pruned", "--timeout=60s"]).await?;
    ensure!(fleet.cluster.word(ns, "pruned").await?.is_none(), "the Kustomization went before its objects");
    fleet.log_line("apps/pruned", |line| line["output"]["configmap/pruned"] == "deleted").await?;
    for name in ["suspended", "kept"] {
        fleet.run(&["delete", &format!("kustomization/{name}"), "--timeout=60s"]).await?;
        ensure!(fleet.cluster.word(ns, name).await?.is_some(), "the objects of {name} are gone");
    }
    for (name, lines, stays) in &policies {
        fleet.apply(&kustomization(name, "app", name, lines)).await?;
        fleet.ready(&format!("kustomization/{name}")).await?;
        fleet.run(&["delete", &format!("kustomization/{name}"), "--timeout=60s"]).await?;
        ensure!(fleet.cluster.word(ns, name).await?.is_some() == *stays, "the objects of {name}: {lines:?}");
    }
    // What was left behind can be owned again.
    fleet.apply(&kustomization("heir", "app", "kept", &[])).await?;
    fleet.ready("kustomization/heir").await?;

    // With its agent away it waits, and says for what.
    let mut fleet = fleet;
    fleet.agent.kill9().await?;
    eventually("the link is seen to be cut", PATIENCE, || async {
        let (status, reason, _) = fleet.condition("cluster/edge", "Ready").await?;
        ensure!((status.as_str(), reason.as_str()) == ("False", "AgentDisconnected"), "{status} {reason}");
        Ok(())
    })
    .await?;
    fleet.run(&["delete", "kustomization/heir", "--wait=false"]).await?;
    fleet.fails("kustomization/heir", "ClusterUnreachable", &["agent"]).await?;
    ensure!(fleet.cluster.word(ns, "kept").await?.is_some(), "who deleted that?");
    fleet.agent.restart()?;
    fleet.run(&["wait", "kustomization/heir", "--for=delete", "--timeout=60s"]).await?;
    ensure!(fleet.cluster.word(ns, "kept").await?.is_none(), "the Kustomization went before its objects");
    Ok(())
}

#[tokio::test]
async fn a_kustomization_waits_for_its_cluster_and_moves_between_clusters() -> Result<()> {
    let fleet = Fleet::start("clusters").await?;
    let space = fleet.cluster.namespace("clusters").await?;
    let second = TestCluster::second()?;
    let like = second.namespace_like(&space).await?;
    let ns = space.name();
    let files = Commit::new()
        .file("early/config.yaml", config_map(ns, "early", "hi"))
        .file("moves/config.yaml", config_map(ns, "moves", "hi"));
    fleet.repository("app", &files).await?;
    fleet.apply(&kustomization("early", "app", "early", &["clusterRef: {name: later}"])).await?;
    fleet.apply(&kustomization("moves", "app", "moves", &[])).await?;
    fleet.fails("kustomization/early", "ClusterNotFound", &["'later'"]).await?;
    fleet.ready("kustomization/moves").await?;

    let _agent = AgentProcess::join(&fleet.hub, "later", &second).await?;
    fleet.ready("kustomization/early").await?;
    second.has_word(like.name(), "early", Some("hi")).await?;
    ensure!(fleet.cluster.word(ns, "early").await?.is_none(), "it went to both clusters");

    let moved = r#"{"spec":{"clusterRef":{"name":"later"}}}"#;
    fleet.run(&["patch", "kustomization/moves", "--type=merge", "-p", moved]).await?;
    // Nobody deleted it, and all that it owns would go: a person confirms that.
    let message = fleet.fails("kustomization/moves", "DeletionHeld", &["(1 object)"]).await?;
    crate::guard::confirm(&fleet, &message).await?;
    fleet.ready("kustomization/moves").await?;
    ensure!(second.word(ns, "moves").await?.is_some(), "it is Ready and not on the new cluster");
    ensure!(fleet.cluster.word(ns, "moves").await?.is_none(), "it is still on the old cluster");
    // And what it owns is on one cluster only: a deletion leaves nothing.
    fleet.run(&["delete", "kustomization/moves", "--timeout=60s"]).await?;
    ensure!(second.word(ns, "moves").await?.is_none(), "its objects stay");
    Ok(())
}

#[tokio::test]
async fn rights_are_the_service_accounts_and_objects_have_one_owner() -> Result<()> {
    let fleet = Fleet::start("rights").await?;
    let space = fleet.cluster.namespace("rights").await?;
    let ns = space.name();
    let files = Commit::new()
        .file("mine/config.yaml", config_map(ns, "mine", "hi"))
        .file("shared/config.yaml", config_map(ns, "shared", "hi"));
    fleet.repository("app", &files).await?;

    let nobody = unique("nobody");
    let account = format!("serviceAccountName: {nobody}");
    fleet.apply(&kustomization("mine", "app", "mine", &[&account])).await?;
    let who = format!("system:serviceaccount:apps:{nobody}");
    let object = format!("ConfigMap/{ns}/mine");
    fleet.fails("kustomization/mine", "ReconciliationFailed", &[&who, &object]).await?;
    ensure!(fleet.cluster.word(ns, "mine").await?.is_none(), "it was applied with other rights");

    // As Flux's v1alpha1 has it: an account with rights in one namespace.
    let rights = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: reconciler, namespace: {ns}}}\n---\napiVersion: \
         rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: reconciler, namespace: {ns}}}\nrules: [{{apiGroups: \
         ['*'], resources: ['*'], verbs: ['*']}}]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: \
         RoleBinding\nmetadata: {{name: reconciler, namespace: {ns}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, \
         kind: Role, name: reconciler}}\nsubjects: [{{kind: ServiceAccount, name: reconciler, namespace: {ns}}}]\n"
    );
    fleet.cluster.kubectl().apply(&rights).await?;
    let with_rights = |name: &str| {
        format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1alpha1\nkind: Kustomization\nmetadata: {{name: {name}}}\nspec:\n  \
             interval: 5m\n  path: ./mine/\n  prune: true\n  sourceRef: {{kind: GitRepository, name: app}}\n  clusterRef: \
             {{name: edge}}\n  serviceAccount: {{name: reconciler, namespace: {ns}}}\n"
        )
    };
    fleet.apply(&with_rights("mine")).await?;
    fleet.ready("kustomization/mine").await?;
    ensure!(fleet.cluster.word(ns, "mine").await?.is_some(), "it is Ready and not applied");
    // It may prune by its rights, too.
    fleet.run(&["delete", "kustomization/mine", "--timeout=60s"]).await?;
    ensure!(fleet.cluster.word(ns, "mine").await?.is_none(), "its objects stay");
    // Without the account nothing can be deleted on its behalf; that is told, and nobody waits for it.
    fleet.apply(&with_rights("bereft")).await?;
    fleet.ready("kustomization/bereft").await?;
    fleet.cluster.kubectl().run(&["delete", "serviceaccount/reconciler", "-n", ns]).await?;
    fleet.run(&["delete", "kustomization/bereft", "--timeout=60s"]).await?;
    ensure!(fleet.cluster.word(ns, "mine").await?.is_some(), "who deleted it, and with what rights?");
    let account = format!("{ns}/reconciler");
    let names_it = |line: &Value| line["error"].as_str().is_some_and(|error| error.contains(&account));
    fleet.log_line("apps/bereft", names_it).await.context("no error tells that the account is missing")?;

    fleet.apply(&kustomization("first", "app", "shared", &[])).await?;
    fleet.ready("kustomization/first").await?;
    fleet.apply(&kustomization("second", "app", "shared", &["retryInterval: 1s"])).await?;
    let object = format!("ConfigMap/{ns}/shared");
    fleet.fails("kustomization/second", "ReconciliationFailed", &[&object, "apps/first"]).await?;
    // The refused one owns nothing: its deletion, too, would leave the object alone.
    fleet.run(&["delete", "kustomization/second", "--timeout=60s"]).await?;
    ensure!(fleet.cluster.word(ns, "shared").await?.is_some(), "the second deleted what the first owns");
    fleet.apply(&kustomization("second", "app", "shared", &["retryInterval: 1s"])).await?;
    fleet.fails("kustomization/second", "ReconciliationFailed", &["apps/first"]).await?;
    // Once the first lets go, the second takes over.
    fleet.run(&["delete", "kustomization/first", "--timeout=60s"]).await?;
    fleet.ready("kustomization/second").await?;
    ensure!(fleet.cluster.word(ns, "shared").await?.is_some(), "it is Ready and not applied");
    Ok(())
}
