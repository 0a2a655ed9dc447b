//! References to other namespaces: by whose leave they are, and when that is over.

use anyhow::{Context as _, Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::HubOptions;
use roadstead_hub_core::identity::Identity;
use serde_json::{Value, json};

use crate::support::{FLEET, Site, child, file, is_denied, kustomization, team_a, team_a_with, web};

const K: KindId = KindId::Kustomization;

/// Two teams with a repository each, on a cluster that both may deploy to; and team a's admin.
async fn teams(options: HubOptions) -> Result<(Site, Identity)> {
    let site = Site::with(options).await?;
    for namespace in ["team-a", "team-b"] {
        site.namespace(namespace).await?;
        site.source(namespace, "fleet", &[web()]).await?;
    }
    site.cluster("edge", json!([{ "namespace": "*", "agentRights": true }])).await?;
    let member = site.member("team-a").await?;
    Ok((site, member))
}

/// A Kustomization of team a that deploys from this namespace's repository.
fn of(namespace: &str, name: &str, more: &Value) -> Value {
    let mut object = kustomization("team-a", name, "./web", json!({ "clusterRef": { "name": "edge" } }));
    object["spec"]["sourceRef"]["namespace"] = json!(namespace);
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

fn grant(from: (&str, &str), to: &Value) -> Value {
    let group = match from.0 {
        "Receiver" => "notification.toolkit.fluxcd.io",
        "ArtifactGenerator" => "source.extensions.fluxcd.io",
        _ => "kustomize.toolkit.fluxcd.io",
    };
    json!({ "apiVersion": FLEET, "kind": "ReferenceGrant", "metadata": { "namespace": "team-b", "name": "for-a" },
        "spec": { "from": [{ "group": group, "kind": from.0, "namespace": from.1 }], "to": [to] } })
}

fn repositories() -> Value {
    json!({ "group": "source.toolkit.fluxcd.io", "kind": "GitRepository", "name": "fleet" })
}

/// Nothing is due any more.
async fn not_due(site: &Site) -> Result<()> {
    sqlx::query("UPDATE schedule SET due_at = 'infinity'")
        .execute(&mut site.database.connect().await?)
        .await?;
    Ok(())
}

async fn is_due(site: &Site, name: &str) -> Result<bool> {
    let due = sqlx::query_scalar("SELECT due_at < 'infinity' FROM schedule WHERE uid = $1");
    let uid = site.uid("team-a", name).await?;
    Ok(due.bind(uid.0).fetch_one(&mut site.database.connect().await?).await?)
}

fn forbidden<T>(what: Result<T>) -> Result<String> {
    let error = what.err().context("it is not refused")?.to_string();
    ensure!(error.contains("forbidden"), "{error}");
    Ok(error)
}

#[tokio::test]
async fn a_source_of_another_namespace_is_used_where_its_writer_may_get_it() -> Result<()> {
    let (site, member) = teams(HubOptions::default()).await?;
    site.apply_as(&member, of("team-b", "app", &json!({}))).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(
        reason == "ArtifactFailed" && message.contains("ReferenceGrant in namespace 'team-b'"),
        "{reason}: {message}"
    );
    // Nor does it get there by what somebody with more rights does to it besides.
    site.annotate(K, "team-a", "app", "reconcile.fluxcd.io/requestedAt", "now").await?;
    site.apply(of("team-b", "app", &json!({ "suspend": true }))).await?;
    site.apply(of("team-b", "app", &json!({ "suspend": false }))).await?;
    site.process("team-a", "app").await?;
    site.nothing_dispatched("team-a", "app").await?;
    // Whoever may get the repository writes it.
    site.apply(of("team-b", "app", &json!({ "timeout": "1m" }))).await?;
    site.process("team-a", "app").await?;
    site.dispatched("team-a", "app").await?;
    // From then on it is not the team's to have it deploy something else from there; to stop it and to go on is.
    for more in [json!({ "path": "./secrets" }), json!({ "targetNamespace": "mine" })] {
        let error = forbidden(site.apply_as(&member, of("team-b", "app", &more)).await)?;
        ensure!(error.contains("GitRepository team-b/fleet"), "{error}");
    }
    site.apply_as(&member, of("team-b", "app", &json!({ "timeout": "1m", "suspend": true }))).await?;
    site.apply_as(&member, of("team-b", "app", &json!({ "timeout": "1m", "suspend": false }))).await?;
    site.annotate(K, "team-a", "app", "team", "a").await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "Progressing", "{reason}: {message}");
    // Taken out, the leave is gone.
    site.apply_as(&member, of("team-a", "app", &json!({}))).await?;
    site.apply_as(&member, of("team-b", "app", &json!({}))).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "ArtifactFailed" && message.contains("ReferenceGrant"), "{reason}: {message}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_reference_grant_gives_leave_and_takes_it() -> Result<()> {
    let (site, member) = teams(HubOptions::default()).await?;
    site.apply_as(&member, of("team-b", "app", &json!({}))).await?;
    for wrong in [
        grant(("Kustomization", "team-c"), &repositories()),
        grant(("Receiver", "team-a"), &repositories()),
        grant(
            ("Kustomization", "team-a"),
            &json!({ "group": "source.toolkit.fluxcd.io", "kind": "GitRepository", "name": "other" }),
        ),
        grant(("Kustomization", "team-a"), &json!({ "group": "source.toolkit.fluxcd.io", "kind": "Bucket" })),
    ] {
        site.apply(wrong.clone()).await?;
        let (reason, message) = site.process("team-a", "app").await?;
        ensure!(reason == "ArtifactFailed", "{wrong}: {reason}: {message}");
    }
    site.nothing_dispatched("team-a", "app").await?;
    // It is the other namespace's to give.
    let right = grant(("Kustomization", "team-a"), &repositories());
    not_due(&site).await?;
    forbidden(site.apply_as(&member, right.clone()).await)?;
    let other = site.member("team-b").await?;
    site.apply_as(&other, right).await?;
    ensure!(is_due(&site, "app").await?, "the grant wakes nobody");
    not_due(&site).await?;
    site.process("team-a", "app").await?;
    site.dispatched("team-a", "app").await?;
    site.delete(KindId::ReferenceGrant, "team-b", "for-a").await?;
    ensure!(is_due(&site, "app").await?, "its end wakes nobody");
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "ArtifactFailed", "{reason}: {message}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn references_across_namespaces_can_be_turned_off() -> Result<()> {
    let (site, member) = teams(HubOptions { no_cross_namespace_refs: true, ..HubOptions::default() }).await?;
    let depends = json!({ "dependsOn": [{ "name": "other", "namespace": "team-b" }] });
    site.apply(grant(("Kustomization", "team-a"), &repositories())).await?;
    site.apply(of("team-a", "app", &depends)).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "AccessDenied" && message.contains("--no-cross-namespace-refs"), "{reason}: {message}");
    for who in [&member, &Identity::hub()] {
        site.apply_as(who, of("team-b", "thief", &json!({}))).await?;
        let (reason, message) = site.process("team-a", "thief").await?;
        ensure!(
            reason == "ArtifactFailed" && message.contains("--no-cross-namespace-refs"),
            "{reason}: {message}"
        );
    }
    site.nothing_dispatched("team-a", "thief").await?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn turned_off_they_are_for_families_too() -> Result<()> {
    let mut other = child("there", json!({}));
    other["metadata"]["namespace"] = json!("apps");
    other["spec"]["sourceRef"]["namespace"] = json!("flux-system");
    let files = [file("root/both.yaml", &[child("here", json!({})), other]), web()];
    let delegation = json!({ "delegation": { "namespaces": { "apps": "team-b" } } });
    for off in [false, true] {
        let options = HubOptions { no_cross_namespace_refs: off, ..HubOptions::default() };
        let site = team_a_with(options, delegation.clone(), &files).await?;
        site.cluster("staging", json!([{ "namespace": "*", "agentRights": true }])).await?;
        site.process("team-a", "app").await?;
        // Each has the source beside the root: for one of them that is in another namespace.
        for (namespace, name) in [("team-a", "here"), ("team-b", "there")] {
            let (reason, message) = site.process(namespace, name).await?;
            if off && name == "there" {
                ensure!(message.contains("--no-cross-namespace-refs"), "{reason}: {message}");
                site.nothing_dispatched(namespace, name).await?;
            } else {
                site.dispatched(namespace, name).await.with_context(|| format!("{reason}: {message}"))?;
            }
        }
        site.close().await;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_denied_again_and_again_is_on_record_once() -> Result<()> {
    let (site, member) = teams(HubOptions::default()).await?;
    let count = || async {
        let count = sqlx::query_scalar("SELECT count(*) FROM audit WHERE outcome = 'refused'");
        Ok::<i64, anyhow::Error>(count.fetch_one(&mut site.database.connect().await?).await?)
    };
    let other = json!({ "dependsOn": [{ "name": "other", "namespace": "team-b" }] });
    for (number, depends) in [&other, &json!({}), &other].into_iter().enumerate() {
        site.apply_as(&member, of("team-a", "app", depends)).await?;
        for _ in 0..3 {
            let (reason, message) = site.process("team-a", "app").await?;
            ensure!((reason == "AccessDenied") == (depends == &other), "{reason}: {message}");
        }
        ensure!(count().await? == 1, "after round {number}: {}", count().await?);
    }
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_dependency_in_another_namespace_needs_leave_and_keeps_it() -> Result<()> {
    let (site, member) = teams(HubOptions::default()).await?;
    let depends = json!({ "dependsOn": [{ "name": "other", "namespace": "team-b" }] });
    site.apply_as(&member, of("team-a", "app", &depends)).await?;
    is_denied(&site, "app", &["Kustomization 'team-b/other' of spec.dependsOn", "ReferenceGrant"]).await?;
    // An expression would tell what is in it.
    let secret = json!({ "dependsOn": [{ "apiVersion": "v1", "kind": "Secret", "name": "keys", "namespace": "team-b",
        "readyExpr": "dep.data.key == 'QQ=='" }] });
    for who in [&member, &Identity::hub()] {
        site.apply_as(who, of("team-a", "spy", &secret)).await?;
        is_denied(&site, "spy", &["Secret 'team-b/keys' of spec.dependsOn", "ReferenceGrant"]).await?;
    }
    site.apply(grant(("Kustomization", "team-a"), &json!({ "group": "", "kind": "Secret", "name": "keys" })))
        .await?;
    let (reason, message) = site.process("team-a", "spy").await?;
    ensure!(reason == "DependencyNotReady", "{reason}: {message}");

    site.apply(of("team-a", "app", &json!({}))).await?;
    site.apply(of("team-a", "app", &depends)).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "DependencyNotReady", "{reason}: {message}");
    // Of a dependency nothing is used but whether it is Ready: the team goes on changing the rest.
    let mut more = depends.clone();
    more["path"] = json!("./other");
    site.apply_as(&member, of("team-a", "app", &more)).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "DependencyNotReady", "{reason}: {message}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_a_build_holds_refers_to_what_its_root_may() -> Result<()> {
    let mut from_b = child("web", json!({}));
    from_b["spec"]["sourceRef"] = json!({ "kind": "GitRepository", "name": "shared", "namespace": "team-b" });
    let site = team_a(json!({}), &[file("root/web.yaml", &[from_b]), web()]).await?;
    site.source("team-b", "shared", &[web()]).await?;
    site.process("team-a", "app").await?;
    let (reason, message) = site.process("team-a", "web").await?;
    ensure!(reason == "ArtifactFailed" && message.contains("team-b"), "{reason}: {message}");
    site.nothing_dispatched("team-a", "web").await?;
    // The root itself gets it: whoever wrote that may get the repository, or team b says so.
    let other = site.member("team-b").await?;
    site.apply_as(
        &other,
        grant(
            ("Kustomization", "team-a"),
            &json!({ "group": "source.toolkit.fluxcd.io", "kind": "GitRepository" }),
        ),
    )
    .await?;
    site.process("team-a", "web").await?;
    site.dispatched("team-a", "web").await?;
    site.close().await;
    Ok(())
}
