//! Quotas: what a namespace may have no more of, whoever makes it.

use anyhow::{Context as _, Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::identity::Identity;
use serde_json::{Value, json};

use crate::support::{Site, child, config_map, file, git_repository, kustomization, team_a, web};

const KUSTOMIZATIONS: &str = "count/kustomizations.kustomize.toolkit.fluxcd.io";
const SOURCES: &str = "count/sources.fleet.roadstead.dev";

fn quota(hard: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "namespace": "team-a", "name": "team" },
        "spec": { "hard": hard } })
}

fn exceeded<T>(what: Result<T>, parts: &[&str]) -> Result<()> {
    let error = what.err().context("it is taken")?.to_string();
    for part in ["forbidden: exceeded quota: team"].iter().chain(parts) {
        ensure!(error.contains(part), "no `{part}` in: {error}");
    }
    Ok(())
}

fn suspended(name: &str) -> Value {
    kustomization("team-a", name, "./web", json!({ "suspend": true }))
}

#[tokio::test]
async fn a_namespace_has_no_more_than_its_quota() -> Result<()> {
    let site = Site::new().await?;
    for namespace in ["team-a", "team-b"] {
        site.namespace(namespace).await?;
    }
    let member = site.member("team-a").await?;
    site.apply(quota(&json!({ KUSTOMIZATIONS: "2", SOURCES: "2", "configmaps": "0" }))).await?;
    for name in ["one", "two"] {
        site.apply_as(&member, suspended(name)).await?;
    }
    // Administrators, too; what is there may be changed.
    for who in [&member, &Identity::hub()] {
        let used = format!("used: {KUSTOMIZATIONS}=2, limited: {KUSTOMIZATIONS}=2");
        exceeded(site.apply_as(who, suspended("three")).await, &[&used])?;
    }
    site.apply_as(&member, kustomization("team-a", "one", "./other", json!({ "suspend": true }))).await?;
    exceeded(site.apply_as(&member, config_map("team-a", "none")).await, &["configmaps=0"])?;
    // Sources of all kinds together.
    site.apply_as(&member, git_repository("team-a", "git", "https://git.example.com/a.git")).await?;
    let mut bucket = git_repository("team-a", "bucket", "");
    bucket["kind"] = json!("Bucket");
    bucket["spec"] = json!({ "interval": "1m", "bucketName": "b", "endpoint": "s3.example.com" });
    site.apply_as(&member, bucket).await?;
    exceeded(
        site.apply_as(&member, git_repository("team-a", "more", "https://git.example.com/a.git")).await,
        &[SOURCES],
    )?;
    // Another namespace's are none of it.
    site.apply(config_map("team-b", "some")).await?;

    let read = site.get(KindId::ResourceQuota, "team-a", "team").await?;
    ensure!(read["status"]["hard"] == read["spec"]["hard"], "{read:#}");
    ensure!(
        read["status"]["used"] == json!({ KUSTOMIZATIONS: "2", SOURCES: "2", "configmaps": "0" }),
        "{read:#}"
    );
    // Nobody raises it for themselves.
    let raised = site.apply_as(&member, quota(&json!({ KUSTOMIZATIONS: "100" }))).await;
    ensure!(raised.err().context("it is raised")?.to_string().contains("forbidden"));
    site.apply(quota(&json!({ KUSTOMIZATIONS: "3" }))).await?;
    site.apply_as(&member, suspended("three")).await?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn those_who_come_at_once_do_not_all_have_the_last_place() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.apply(quota(&json!({ "count/configmaps": "5" }))).await?;
    let all = (0..16).map(|number| site.apply(config_map("team-a", &format!("map-{number}"))));
    let done = futures::future::join_all(all).await;
    ensure!(done.iter().filter(|one| one.is_ok()).count() == 5, "{done:?}");
    for refused in done.into_iter().filter(Result::is_err) {
        exceeded(refused, &["used: count/configmaps=5"])?;
    }
    // A place that is given back is another's.
    let kept = site.all(KindId::ConfigMap).await?;
    let gone = kept.iter().find(|map| map.namespace == "team-a").context("a ConfigMap")?;
    site.delete(KindId::ConfigMap, "team-a", &gone.name).await?;
    site.apply(config_map("team-a", "another")).await?;
    exceeded(site.apply(config_map("team-a", "more")).await, &[])?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_git_makes_is_counted_too() -> Result<()> {
    let children: Vec<Value> = (0..4).map(|number| child(&format!("web-{number}"), json!({}))).collect();
    let site = team_a(json!({}), &[file("root/web.yaml", &children), web()]).await?;
    site.apply(quota(&json!({ KUSTOMIZATIONS: "3" }))).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "AccessDenied" && message.contains("exceeded quota: team"), "{reason}: {message}");
    let made = site.all(KindId::Kustomization).await?.iter().filter(|one| one.namespace == "team-a").count();
    ensure!(made == 3, "{made} with the root");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_quota_that_would_count_nothing_is_refused() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    for (hard, why) in [
        (json!({ "pods": "1" }), "spec.hard[pods]"),
        (json!({ "count/deployments.apps": "1" }), "count/PLURAL.GROUP"),
        (json!({ "count/secrets": "-1" }), "must be a non-negative integer"),
        (json!({ "count/secrets": "1k" }), "must be a non-negative integer"),
        (
            json!({ "bytes/artifacts.fleet.roadstead.dev": "1.5Gi" }),
            "must be a non-negative whole number of bytes",
        ),
        (json!({ "running/builds.fleet.roadstead.dev": "1.5" }), "must be a non-negative integer"),
        (json!({ "running/fetches.fleet.roadstead.dev": "1" }), "running/builds.fleet.roadstead.dev"),
    ] {
        let error = site.apply(quota(&hard)).await.err().context("it is taken")?.to_string();
        ensure!(error.contains(why), "{error}");
    }
    site.close().await;
    Ok(())
}
