//! What lies in another namespace than its root acts by the root's rights: whoever may write that namespace gets none of them so.

use anyhow::{Result, ensure};
use roadstead_api::KindId;
use roadstead_body::Patch;
use roadstead_hub_core::Address;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::objects::{DeleteOptions, WriteOptions};
use serde_json::{Value, json};

use crate::support::{FLUX, Site, file, git_repository, kustomization, web};

const K: KindId = KindId::Kustomization;
const ADOPTED_BY: &str = "fleet.roadstead.dev/adopted-by";
const REFUSED: &str = "it is Kustomization platform/app's, by whose rights it acts";

/// The platform's Kustomization `app` on cluster `staging` as `restricted`, which may put objects of Git's namespace `apps` into that of team a. Team a
/// may deploy nowhere by itself.
async fn platform(files: &[(String, String)]) -> Result<(Site, Identity)> {
    let site = Site::new().await?;
    for namespace in ["platform", "team-a"] {
        site.namespace(namespace).await?;
    }
    site.cluster("staging", json!([{ "namespace": "platform", "agentRights": true }])).await?;
    site.source("platform", "fleet", files).await?;
    let spec = json!({ "clusterRef": { "name": "staging" }, "serviceAccountName": "restricted",
        "delegation": { "namespaces": { "apps": "team-a" }, "secrets": ["vars"] } });
    site.apply(kustomization("platform", "app", "./root", spec)).await?;
    let who = site.member("team-a").await?;
    Ok((site, who))
}

/// A Kustomization of Git's namespace `apps`, of the platform's source.
fn child(name: &str, more: Value) -> Value {
    let mut object = kustomization("apps", name, "./web", more);
    object["spec"]["sourceRef"]["namespace"] = json!("platform");
    object
}

fn address(kind: KindId, name: &str) -> Address {
    let version = kind.get().storage_version();
    Address { kind, version, namespace: "team-a".to_owned(), name: name.to_owned() }
}

async fn patch(site: &Site, who: &Identity, kind: KindId, name: &str, patch: Value) -> Result<()> {
    let options = WriteOptions { manager: "kubectl-edit".to_owned(), ..WriteOptions::default() };
    site.hub.objects.patch(who, &address(kind, name), &Patch::Merge(patch), options).await?;
    Ok(())
}

fn is_refused(done: Result<()>, what: &str) -> Result<()> {
    let Err(error) = done else { anyhow::bail!("{what} was written") };
    ensure!(format!("{error:#}").contains(REFUSED), "{what}: {error:#}");
    Ok(())
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    json!({ "metadata": { "annotations": { key: value.into() } } })
}

async fn spec(site: &Site, name: &str) -> Result<Value> {
    Ok(site.stored(K, "team-a", name).await?.object["spec"].clone())
}

#[tokio::test]
async fn what_acts_by_a_roots_rights_is_not_changed_by_who_may_write_its_namespace_alone() -> Result<()> {
    let vars = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "apps", "name": "vars" },
        "data": { "a": "b" } });
    let with_vars = json!({ "postBuild": { "substituteFrom": [{ "kind": "ConfigMap", "name": "vars" }] } });
    let source = git_repository("apps", "own", "https://git.example.com/own.git");
    let (site, who) =
        platform(&[file("root/all.yaml", &[child("web", with_vars), vars, source]), web()]).await?;
    site.process("platform", "app").await?;
    site.process("team-a", "web").await?;
    ensure!(site.dispatched("team-a", "web").await?.1 == "platform/restricted");

    let attempts = [
        (K, "web", json!({ "spec": { "path": "./evil" } })),
        (K, "web", json!({ "spec": { "sourceRef": { "name": "mine", "namespace": "team-a" } } })),
        (K, "web", json!({ "spec": { "patches": [{ "patch": "- op: remove\n  path: /data" }] } })),
        (K, "web", json!({ "spec": { "suspend": true, "force": true } })),
        (K, "web", annotated("fleet.roadstead.dev/drift", json!("Report"))),
        (KindId::GitRepository, "own", json!({ "spec": { "url": "https://evil.test/x.git" } })),
        (KindId::ConfigMap, "vars", json!({ "data": { "a": "evil" } })),
        (KindId::ConfigMap, "vars", json!({ "binaryData": { "b": "ZXZpbA==" } })),
    ];
    for (kind, name, change) in &attempts {
        is_refused(patch(&site, &who, *kind, name, change.clone()).await, &change.to_string())?;
    }
    // By the whole object and by an apply as well.
    let mut whole = site.stored(K, "team-a", "web").await?.object;
    whole["spec"]["path"] = json!("./evil");
    let options = WriteOptions::default();
    let updated = site.hub.objects.update(&who, &address(K, "web"), whole, options).await;
    is_refused(updated.map(drop).map_err(Into::into), "the whole object")?;
    let applied = json!({ "apiVersion": FLUX, "kind": "Kustomization",
        "metadata": { "namespace": "team-a", "name": "web" }, "spec": { "targetNamespace": "kube-system" } });
    is_refused(site.apply_as(&who, applied).await.map(drop), "an apply")?;

    // What gives nobody more than the namespace does.
    for (kind, name, change) in [
        (K, "web", json!({ "spec": { "suspend": true } })),
        (K, "web", json!({ "spec": { "suspend": false } })),
        (K, "web", annotated("reconcile.fluxcd.io/requestedAt", json!("now"))),
        (KindId::ConfigMap, "vars", json!({ "metadata": { "labels": { "mine": "yes" } } })),
    ] {
        patch(&site, &who, kind, name, change).await?;
    }
    // Whoever may change the root could have had the same written.
    let rights = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "namespace": "platform", "name": "guest" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": who.username }] });
    site.apply(rights.clone()).await?;
    let may = |verb: &str| who.authorize(verb, K.get(), "", "platform", "app");
    roadstead_tests::eventually("the rights are known", std::time::Duration::from_secs(10), async || {
        Ok(may("patch")?)
    })
    .await?;
    // That one delegates, which an editor may not.
    is_refused(patch(&site, &who, K, "web", json!({ "spec": { "path": "./evil" } })).await, "an editor's")?;
    let mut rights = rights;
    rights["metadata"]["name"] = json!("delegates");
    rights["roleRef"]["name"] = json!("fleet-admin");
    site.apply(rights).await?;
    roadstead_tests::eventually("the rights are known", std::time::Duration::from_secs(10), async || {
        Ok(may("delegate")?)
    })
    .await?;
    patch(&site, &who, K, "web", json!({ "spec": { "path": "./root" } })).await?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn nobody_puts_something_of_their_own_in_the_place_of_what_a_root_builds() -> Result<()> {
    let source = git_repository("apps", "own", "https://git.example.com/own.git");
    let (site, who) = platform(&[file("root/all.yaml", &[child("web", json!({})), source]), web()]).await?;
    site.process("platform", "app").await?;
    site.succeed("platform", "app").await?;
    let address = address(KindId::GitRepository, "own");
    site.hub.objects.delete(&who, &address, &DeleteOptions::default()).await?;
    let evil = |name: &str| git_repository("team-a", name, "https://evil.test/x.git");
    is_refused(site.apply_as(&who, evil("own")).await.map(drop), "a source")?;
    let made = site.hub.objects.create(&who, &address, evil("own"), WriteOptions::default()).await;
    is_refused(made.map(drop).map_err(Into::into), "a source")?;
    site.apply_as(&who, evil("other")).await?;
    site.ask("platform", "app").await?;
    site.process("platform", "app").await?;
    let own = site.stored(KindId::GitRepository, "team-a", "own").await?;
    ensure!(own.object["spec"]["url"] == "https://git.example.com/own.git", "{own}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_is_handed_over_acts_by_the_roots_rights_once_it_is_just_what_git_has() -> Result<()> {
    // What Git asks for is more than the root may: so it is not written yet.
    let files = |more: Value| [file("root/all.yaml", &[child("web", more)]), web()];
    let (site, who) = platform(&files(json!({ "serviceAccountName": "other" }))).await?;
    let mut mine = kustomization(
        "team-a",
        "web",
        "./evil",
        json!({ "clusterRef": { "name": "staging" },
        "targetNamespace": "kube-system", "suspend": false }),
    );
    mine["metadata"]["annotations"] =
        json!({ ADOPTED_BY: "platform/app", "fleet.roadstead.dev/drift": "Report" });
    site.apply_as(&who, git_repository("team-a", "fleet", "https://evil.test/x.git")).await?;
    site.fetched("team-a", "fleet", &[file("evil/map.yaml", &[crate::support::config_map("web", "evil")])])
        .await?;
    site.apply_as(&who, mine).await?;
    let (reason, message) = site.process("platform", "app").await?;
    ensure!(reason == "AccessDenied" && message.contains("spec.delegation.serviceAccounts"), "{message}");
    let (reason, message) = site.process("team-a", "web").await?;
    ensure!(
        reason == "AccessDenied"
            && message.contains("namespace 'team-a' may not deploy to cluster 'staging'"),
        "{reason}: {message}"
    );
    site.nothing_dispatched("team-a", "web").await?;

    // Once it may, nothing is left of what the person wrote.
    site.fetched("platform", "fleet", &files(json!({}))).await?;
    site.process("platform", "app").await?;
    let web = site.stored(K, "team-a", "web").await?;
    let expected = json!({ "interval": "10m", "prune": true, "path": "./web", "clusterRef": { "name": "staging" },
        "sourceRef": { "kind": "GitRepository", "namespace": "platform", "name": "fleet" }, "suspend": false });
    ensure!(web.object["spec"] == expected, "{web}");
    ensure!(web.object["metadata"]["annotations"]["fleet.roadstead.dev/drift"].is_null(), "{web}");
    site.process("team-a", "web").await?;
    ensure!(site.dispatched("team-a", "web").await?.1 == "platform/restricted");
    is_refused(patch(&site, &who, K, "web", json!({ "spec": { "path": "./evil" } })).await, "a change")?;

    // Who takes it back has it act by the namespace's own rights; then it is written freely, and not handed over again as it is.
    patch(&site, &who, K, "web", annotated(ADOPTED_BY, Value::Null)).await?;
    patch(&site, &who, K, "web", json!({ "spec": { "path": "./evil" } })).await?;
    is_refused(
        patch(&site, &who, K, "web", annotated(ADOPTED_BY, json!("platform/app"))).await,
        "the annotation",
    )?;
    let (reason, message) = site.process("team-a", "web").await?;
    ensure!(reason == "AccessDenied" && message.contains("namespace 'team-a'"), "{reason}: {message}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_others_had_added_to_a_child_of_another_namespace_goes_with_the_next_build() -> Result<()> {
    let (site, who) = platform(&[file("root/all.yaml", &[child("web", json!({}))]), web()]).await?;
    site.process("platform", "app").await?;
    site.succeed("platform", "app").await?;
    let before = spec(&site, "web").await?;
    // As it may have come into the database before that was asked for.
    let admin = Identity::hub();
    patch(&site, &admin, K, "web", json!({ "spec": { "force": true, "targetNamespace": "kube-system" } }))
        .await?;
    patch(
        &site,
        &who,
        K,
        "web",
        json!({ "spec": { "suspend": true }, "metadata": { "labels": { "mine": "yes" } } }),
    )
    .await?;
    let edited = site.stored(K, "team-a", "web").await?;
    site.ask("platform", "app").await?;
    site.process("platform", "app").await?;
    let web = site.stored(K, "team-a", "web").await?;
    let mut expected = before;
    expected["suspend"] = json!(true);
    ensure!(web.object["spec"] == expected, "{web}");
    ensure!(web.object["metadata"]["labels"]["mine"] == "yes", "{web}");
    ensure!(web.generation == edited.generation + 1, "{} after {}", web.generation, edited.generation);
    let managers = web.object["metadata"]["managedFields"].to_string();
    ensure!(managers.contains("f:suspend") && !managers.contains("f:targetNamespace"), "{managers}");
    // And then it is as it should be: nothing is written again.
    site.succeed("platform", "app").await?;
    site.ask("platform", "app").await?;
    site.process("platform", "app").await?;
    ensure!(site.stored(K, "team-a", "web").await?.resource_version == web.resource_version);
    site.close().await;
    Ok(())
}
