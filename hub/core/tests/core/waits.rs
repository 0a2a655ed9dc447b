//! What `spec.dependsOn` can name and say: other kinds, and expressions.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::{Site, config_map, file, kustomization};

async fn site() -> Result<Site> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.cluster("staging", json!([{ "namespace": "team-a", "agentRights": true }])).await?;
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    Ok(site)
}

/// Applies Kustomization `app` with this `dependsOn`, and gives reason and message of Ready after a pass.
async fn waits(site: &Site, depends_on: Value) -> Result<(String, String)> {
    let spec = json!({ "clusterRef": { "name": "staging" }, "dependsOn": depends_on });
    site.apply(kustomization("team-a", "app", "./app", spec)).await?;
    site.process("team-a", "app").await
}

#[tokio::test]
async fn a_dependency_can_be_of_another_kind() -> Result<()> {
    let site = site().await?;
    let flag = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "flag" }]);
    let (reason, message) = waits(&site, flag.clone()).await?;
    ensure!(reason == "DependencyNotReady", "{reason}: {message}");
    ensure!(message.contains("dependency 'ConfigMap/team-a/flag' not found"), "{message}");
    site.apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "team-a", "name": "flag" } }))
        .await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "Progressing", "{reason}: {message}");
    // A kind that the hub does not serve, and one of another namespace, whose writer may not get it.
    let (reason, message) = waits(&site, json!([{ "kind": "Deployment", "name": "web" }])).await?;
    ensure!(reason == "DependencyNotReady", "{reason}: {message}");
    ensure!(message == "spec.dependsOn[0].kind: Deployment is not served by the hub", "{message}");
    let elsewhere = json!([{ "kind": "ConfigMap", "name": "flag", "namespace": "team-b" }]);
    let spec = json!({ "clusterRef": { "name": "staging" }, "dependsOn": elsewhere });
    let member = site.member("team-a").await?;
    site.apply_as(&member, kustomization("team-a", "app", "./app", spec)).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "AccessDenied" && message.contains("team-b/flag"), "{reason}: {message}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn an_annotation_names_dependencies_of_other_kinds_too() -> Result<()> {
    let site = site().await?;
    let app = |names: &str| {
        let spec = json!({ "clusterRef": { "name": "staging" } });
        let mut app = kustomization("team-a", "app", "./app", spec);
        app["metadata"]["annotations"] = json!({ "fleet.roadstead.dev/depends-on": names });
        app
    };
    site.apply(app("ConfigMap/flag")).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "DependencyNotReady", "{reason}: {message}");
    ensure!(message.contains("dependency 'ConfigMap/team-a/flag' not found"), "{message}");
    site.apply(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "team-a", "name": "flag" } }))
        .await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "Progressing", "{reason}: {message}");
    // Of another namespace, whose writer may not get it.
    let member = site.member("team-a").await?;
    site.apply_as(&member, app("ConfigMap/team-b/flag")).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "AccessDenied" && message.contains("team-b/flag"), "{reason}: {message}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn an_expression_says_when_a_dependency_is_ready() -> Result<()> {
    let site = site().await?;
    let base = |phase: &str| {
        let spec = json!({ "clusterRef": { "name": "staging" }, "suspend": true });
        let mut base = kustomization("team-a", "base", "./app", spec);
        base["metadata"]["labels"] = json!({ "phase": phase });
        base
    };
    site.apply(base("one")).await?;
    let by = |expression: &str| json!([{ "name": "base", "readyExpr": expression }]);
    let same = "dep.metadata.labels['phase'] == 'two' && self.metadata.name == 'app'";
    let (reason, message) = waits(&site, by(same)).await?;
    ensure!(reason == "DependencyNotReady", "{reason}: {message}");
    ensure!(message == "dependency 'team-a/base' is not ready according to readyExpr", "{message}");
    // Nothing else counts, as in Flux: it is suspended, and was never applied.
    site.apply(base("two")).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "Progressing", "{reason}: {message}");
    let (reason, message) = waits(&site, by("dep.status.nothing")).await?;
    ensure!(
        reason == "DependencyNotReady" && message.contains("because its readyExpr failed: "),
        "{reason}: {message}"
    );
    let (reason, message) = waits(&site, by("dep.")).await?;
    ensure!(reason == "InvalidCELExpression", "{reason}: {message}");
    ensure!(message.starts_with("spec.dependsOn[0].readyExpr: "), "{message}");
    site.close().await;
    Ok(())
}
