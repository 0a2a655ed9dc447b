//! The dashboard in a real browser: a fleet with what goes well and what does not, and `web/e2e` looking at it in Chromium.
//!
//! The browser's tests are in `web/e2e`, since that is where those who write the pages look for them. What they need is set
//! up here, and told in their environment. Their screenshots are in `target/dashboard`.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{
    AgentProcess, Fleet, PATIENCE, TestCluster, chromium, config_map, eventually, kustomization,
};

/// Stands in a Secret on the hub, and must be nowhere in a page.
const SECRET: &str = "hush-7f3a1c";

fn deployment(namespace: &str, name: &str, never_ready: bool) -> String {
    let annotation =
        if never_ready { "{devcluster.roadstead.dev/never-ready: ImagePullBackOff}" } else { "{}" };
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}\n\
         spec:\n  replicas: 1\n  selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata:\n      labels: {{app: \
         {name}}}\n      annotations: {annotation}\n    spec:\n      containers: [{{name: web, image: registry.example/web:1}}]\n"
    )
}

fn service(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{ports: [{{port: 80}}]}}\n"
    )
}

/// Clusters with labels, one of which no agent ever came for.
const CLUSTERS: &str = "
apiVersion: fleet.roadstead.dev/v1alpha1
kind: Cluster
metadata: {name: edge, labels: {region: north, stage: production}}
spec: {access: [{namespace: '*', agentRights: true}]}
---
apiVersion: fleet.roadstead.dev/v1alpha1
kind: Cluster
metadata: {name: edge-2, labels: {region: south, stage: staging}}
spec: {access: [{namespace: '*', agentRights: true}]}
---
apiVersion: fleet.roadstead.dev/v1alpha1
kind: Cluster
metadata: {name: edge-3, labels: {region: south, stage: production}}
spec: {access: [{namespace: '*', agentRights: true}]}
";

/// An applier of a kind of which the dashboard has no file, with two sources and several steps.
const REHEARSAL: &str = "
apiVersion: fleet.roadstead.dev/v1alpha1
kind: Rehearsal
metadata: {name: rehearsed}
spec:
  interval: 1h
  timeout: 1m
  prune: true
  targetNamespace: NAMESPACE
  clusterRef: {name: edge}
  firstSourceRef: {kind: GitRepository, name: first}
  secondSourceRef: {kind: GitRepository, name: second}
";

/// Everything that a page can show: what is healthy, fails at a health check, at a build and at a source, waits, is suspended.
async fn furnish(fleet: &Fleet, ns: &str, second: &str) -> Result<()> {
    let mut files = Commit::new();
    for (path, namespace) in [("shop", ns), ("shop-2", second)] {
        for name in ["cart", "catalog", "checkout"] {
            files = files
                .file(&format!("{path}/{name}.yaml"), deployment(namespace, name, false))
                .file(&format!("{path}/{name}-service.yaml"), service(namespace, name))
                .file(
                    &format!("{path}/{name}-settings.yaml"),
                    config_map(namespace, &format!("{name}-settings"), "one"),
                );
        }
    }
    files = files
        .file("payments/deployment.yaml", deployment(ns, "payments", true))
        .file("payments/settings.yaml", config_map(ns, "payments-settings", "one"))
        .file("paused/settings.yaml", config_map(ns, "paused-settings", "one"))
        .file("broken/kustomization.yaml", "resources: [not-there.yaml]\n");
    fleet.repository("webapp", &files).await?;
    fleet.kubectl().apply(CLUSTERS).await?;
    let mut manifests = String::new();
    for (name, path, more) in [
        ("shop", "./shop", &["wait: true"][..]),
        ("shop-staging", "./shop-2", &["wait: true", "clusterRef: {name: edge-2}"]),
        ("payments", "./payments", &["wait: true", "timeout: 3s"]),
        ("reports", "./shop", &["dependsOn: [{name: payments}]"]),
        ("paused", "./paused", &["suspend: true"]),
        ("broken", "./broken", &[]),
        ("lonely", "./paused", &["clusterRef: {name: edge-3}"]),
    ] {
        manifests.push_str(&kustomization(name, "webapp", path, more));
    }
    fleet.apply(&manifests).await?;
    fleet
        .apply(&roadstead_tests::git_repository(
            "missing",
            &fleet.git.url("missing.git"),
            "secretRef: {name: git}",
        ))
        .await?;
    // Of a kind that the dashboard does not know.
    let first = Commit::new()
        .file("first/map.yaml", config_map(ns, "rehearsed-first", "one"))
        .file("hook/map.yaml", config_map(ns, "rehearsed-hook", "one"));
    fleet.repository("first", &first).await?;
    fleet
        .repository("second", &Commit::new().file("map.yaml", config_map(ns, "rehearsed-second", "one")))
        .await?;
    fleet.apply(&REHEARSAL.replace("NAMESPACE", ns)).await?;
    fleet.run(&["label", "kustomization", "shop", "team=web"]).await?;
    for link in
        ["docs.example/page=https://docs.example/shop", "docs.example/trap=javascript:document.title=1"]
    {
        fleet.run(&["annotate", "kustomization", "shop", link]).await?;
    }
    fleet.run(&["create", "secret", "generic", "hush", &format!("--from-literal=password={SECRET}")]).await?;
    fleet.ready("kustomization/shop").await?;
    fleet.ready("kustomization/shop-staging").await?;
    fleet.ready("rehearsal/rehearsed").await?;
    fleet.fails("kustomization/payments", "HealthCheckFailed", &[]).await?;
    fleet.fails("kustomization/broken", "BuildFailed", &[]).await?;
    fleet.fails("kustomization/reports", "DependencyNotReady", &[]).await?;
    Ok(())
}

#[tokio::test]
async fn a_browser_shows_the_fleet() -> Result<()> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web");
    let vitest = web.join("node_modules/vitest/vitest.mjs");
    ensure!(vitest.is_file(), "{} is not there: run `cargo xtask web`", vitest.display());
    let fleet = Fleet::start("dashboard").await?;
    let (space, clusters) = (fleet.cluster.namespace("dashboard").await?, TestCluster::second()?);
    let second = clusters.namespace("dashboard").await?;
    let _agent = AgentProcess::join(&fleet.hub, "edge-2", &clusters).await?;
    furnish(&fleet, space.name(), second.name()).await?;
    let answer = fleet.kubectl().run(&["config", "view", "--raw", "-o", "json"]).await?;
    let config: serde_json::Value = serde_json::from_str(&answer)?;
    let text = |pointer: &str| config.pointer(pointer).and_then(|value| value.as_str()).map(str::to_owned);
    let hub = text("/clusters/0/cluster/server").context("the hub's address")?;
    let token = text("/users/0/user/token").context("a token")?;
    fleet.run(&["create", "serviceaccount", "guest"]).await?;
    let guest = eventually("a token of a ServiceAccount", PATIENCE, || async {
        fleet.run(&["create", "token", "guest"]).await
    })
    .await?;
    let mut command = tokio::process::Command::new("node");
    command
        .current_dir(&web)
        .arg(&vitest)
        .args(["run", "--config", "vitest.e2e.config.ts"])
        .env("DASHBOARD_HUB", hub)
        .env("DASHBOARD_TOKEN", token)
        .env("DASHBOARD_GUEST_TOKEN", guest.trim())
        .env("DASHBOARD_SECRET", SECRET)
        .env("DASHBOARD_PICTURES", Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/dashboard"))
        .env("DASHBOARD_CHROMIUM", chromium()?)
        .env("NO_COLOR", "1")
        .kill_on_drop(true);
    let status = command.status().await.context("run the browser's tests by node")?;
    if !status.success() {
        bail!("the tests in web/e2e failed ({status}): what they say is above");
    }
    Ok(())
}
