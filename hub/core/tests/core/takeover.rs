//! Who may take over what a person made, and as whom it then acts: by names, by annotations, by what is left behind.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::KindId;
use roadstead_hub_core::clusters::{ManagementJob, ManagementWatch, OnboardingPlan, StepEvidence};
use roadstead_hub_core::sources::FetchPlan;
use roadstead_hub_core::{Hub, HubError, ManagementStep};
use roadstead_model::{Digest, ManagedCluster, ResourceUid};
use serde_json::{Value, json};

use crate::support::{
    FLEET, Site, child, config_map, file, git_repository, is_denied, kustomization, team_a, web,
};

const K: KindId = KindId::Kustomization;
const GIT: KindId = KindId::GitRepository;
const ADOPTED_BY: &str = "fleet.roadstead.dev/adopted-by";
const GIT_NAMESPACE: &str = "fleet.roadstead.dev/git-namespace";

/// A revision that holds nothing of what was there before.
async fn emptied(site: &Site) -> Result<()> {
    site.fetched("team-a", "fleet", &[file("root/none.yaml", &[config_map("web", "none")])]).await?;
    for _ in 0..3 {
        site.process("team-a", "app").await?;
        site.succeed("team-a", "app").await?;
    }
    Ok(())
}

async fn token(site: &Site) -> Result<()> {
    site.apply(
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "team-a", "name": "token" },
        "stringData": { "username": "u", "password": "p" } }),
    )
    .await?;
    Ok(())
}

fn with_token(mut source: Value) -> Value {
    source["spec"]["secretRef"] = json!({ "name": "token" });
    source
}

/// Whether a source is fetched with a credential.
async fn sends(site: &Site, name: &str) -> Result<bool> {
    let uid = site.stored(GIT, "team-a", name).await?.uid;
    Ok(
        matches!(site.hub.sources.plan_fetch(uid).await?, FetchPlan::Fetch(job) if job.source.has_credentials()),
    )
}

#[tokio::test]
async fn a_name_that_git_asked_for_first_is_a_persons_once_a_person_makes_it() -> Result<()> {
    let evil = "https://evil.test/x.git";
    let platform = |more: Value| {
        let mut source = git_repository("flux-system", "platform", evil);
        for (key, value) in more.as_object().into_iter().flatten() {
            source["spec"][key] = value.clone();
        }
        file("root/all.yaml", &[source])
    };
    // Git's is not written, for what is wrong with it.
    let site = team_a(json!({}), &[platform(json!({ "bogus": true }))]).await?;
    site.process("team-a", "app").await?;
    ensure!(!site.exists(GIT, "team-a", "platform").await?);
    let good = "https://git.example.com/platform.git";
    site.apply(git_repository("team-a", "platform", good)).await?;
    site.fetched("team-a", "fleet", &[platform(json!({}))]).await?;
    is_denied(&site, "app", &["GitRepository team-a/platform was made by no Kustomization", ADOPTED_BY])
        .await?;
    ensure!(site.stored(GIT, "team-a", "platform").await?.object["spec"]["url"] == good);
    emptied(&site).await?;
    ensure!(site.exists(GIT, "team-a", "platform").await?, "what a person made was pruned");
    Ok(())
}

#[tokio::test]
async fn what_a_person_makes_in_the_place_of_what_git_made_is_the_persons() -> Result<()> {
    let files = [file("root/web.yaml", &[child("web", json!({}))]), web()];
    let site = team_a(json!({}), &files).await?;
    site.process("team-a", "app").await?;
    let made = site.uid("team-a", "web").await?;
    site.delete(K, "team-a", "web").await?;
    site.hub.delivery.process_applier(made).await?;
    ensure!(!site.exists(K, "team-a", "web").await?);
    let mine = json!({ "clusterRef": { "name": "prod" } });
    site.apply(kustomization("team-a", "web", "./mine", mine)).await?;
    site.fetched(
        "team-a",
        "fleet",
        &[&files[..], &[file("root/more.yaml", &[config_map("a", "a")])]].concat(),
    )
    .await?;
    is_denied(&site, "app", &["Kustomization team-a/web was made by no Kustomization"]).await?;
    ensure!(site.stored(K, "team-a", "web").await?.object["spec"]["path"] == "./mine");
    emptied(&site).await?;
    ensure!(site.exists(K, "team-a", "web").await?, "what a person made was pruned");
    // What Git made itself goes, and comes again.
    let site = team_a(json!({}), &files).await?;
    site.process("team-a", "app").await?;
    let made = site.uid("team-a", "web").await?;
    site.delete(K, "team-a", "web").await?;
    site.hub.delivery.process_applier(made).await?;
    site.fetched(
        "team-a",
        "fleet",
        &[&files[..], &[file("root/more.yaml", &[config_map("a", "a")])]].concat(),
    )
    .await?;
    site.process("team-a", "app").await?;
    ensure!(site.exists(K, "team-a", "web").await?, "it was not made again");
    emptied(&site).await?;
    let gone = site.stored(K, "team-a", "web").await.is_ok_and(|web| web.deletion_timestamp.is_none());
    ensure!(!gone, "what Git made stayed");
    Ok(())
}

#[tokio::test]
async fn a_root_that_holds_itself_keeps_the_namespace_of_its_account() -> Result<()> {
    let own = |namespace: &str| {
        let mut own = child("app", json!({ "path": "./root", "serviceAccountName": "restricted" }));
        own["metadata"]["namespace"] = json!(namespace);
        file("root/app.yaml", &[own])
    };
    let site = team_a(json!({}), &[own("kube-system")]).await?;
    site.process("team-a", "app").await?;
    site.succeed("team-a", "app").await?;
    site.ask("team-a", "app").await?;
    site.process("team-a", "app").await?;
    let (_, account) = site.dispatched("team-a", "app").await?;
    ensure!(account == "team-a/restricted", "{account}");
    // What a person wrote there stays too.
    site.annotate(K, "team-a", "app", GIT_NAMESPACE, "flux-system").await?;
    for round in 0..2 {
        site.fetched(
            "team-a",
            "fleet",
            &[own("kube-system"), file("more", &[config_map("a", &round.to_string())])],
        )
        .await?;
        site.process("team-a", "app").await?;
    }
    let (_, account) = site.dispatched("team-a", "app").await?;
    ensure!(account == "flux-system/restricted", "{account}");
    let stored = site.stored(K, "team-a", "app").await?;
    ensure!(stored.object["metadata"]["annotations"][GIT_NAMESPACE] == "flux-system", "{stored}");
    // It is Git's to say where a person says so.
    site.annotate(K, "team-a", "app", ADOPTED_BY, "team-a/app").await?;
    for _ in 0..2 {
        site.ask("team-a", "app").await?;
        site.process("team-a", "app").await?;
    }
    ensure!(site.dispatched("team-a", "app").await?.1 == "kube-system/restricted");
    Ok(())
}

#[tokio::test]
async fn a_source_that_git_took_over_sends_no_credential_to_a_server_of_gits_choice() -> Result<()> {
    let evil = "https://evil.test/x.git";
    let files = [file(
        "root/sources.yaml",
        &[
            with_token(git_repository("flux-system", "adopted", evil)),
            with_token(git_repository("flux-system", "other", evil)),
        ],
    )];
    let site = team_a(json!({}), &files).await?;
    token(&site).await?;
    let good = "https://git.example.com/private.git";
    site.apply(with_token(git_repository("team-a", "adopted", good))).await?;
    ensure!(sends(&site, "adopted").await?);
    site.annotate(GIT, "team-a", "adopted", ADOPTED_BY, "team-a/app").await?;
    site.process("team-a", "app").await?;
    ensure!(site.stored(GIT, "team-a", "adopted").await?.object["spec"]["url"] == evil);
    for name in ["adopted", "other"] {
        ensure!(!sends(&site, name).await?, "{name} is fetched with the credential");
        let (reason, message) = site.ready(GIT, "team-a", name).await?;
        ensure!(reason == "AccessDenied" && message.contains("allowed-hosts"), "{reason}: {message}");
    }
    // Nor does it by the annotation that a person takes off again.
    let mut bare = site.stored(GIT, "team-a", "adopted").await?.object;
    bare["metadata"]["annotations"] = json!({});
    site.replace(bare).await?;
    ensure!(!sends(&site, "adopted").await?, "it is fetched with the credential");
    site.annotate(KindId::Secret, "team-a", "token", "fleet.roadstead.dev/allowed-hosts", "evil.test")
        .await?;
    ensure!(sends(&site, "adopted").await?);
    Ok(())
}

#[tokio::test]
async fn a_secret_that_git_was_let_change_is_not_gits_to_send() -> Result<()> {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": "flux-system", "name": "token" }, "stringData": { "more": "x" } });
    let files = [file(
        "root/all.yaml",
        &[secret, with_token(git_repository("flux-system", "evil", "https://evil.test/x.git"))],
    )];
    let site = team_a(json!({}), &files).await?;
    token(&site).await?;
    site.annotate(KindId::Secret, "team-a", "token", ADOPTED_BY, "team-a/app").await?;
    site.process("team-a", "app").await?;
    site.stored(GIT, "team-a", "evil").await?;
    ensure!(!sends(&site, "evil").await?, "it is fetched with the credential");
    Ok(())
}

#[tokio::test]
async fn what_git_took_over_keeps_its_account_when_that_is_over() -> Result<()> {
    let files = [
        file("root/infra.yaml", &[child("infra", json!({ "path": "./evil" }))]),
        file("evil/map.yaml", &[config_map("web", "web")]),
    ];
    for taken_back in [false, true] {
        let site = team_a(json!({ "prune": false }), &files).await?;
        let mine = json!({ "clusterRef": { "name": "staging" } });
        site.apply(kustomization("team-a", "infra", "./infra", mine)).await?;
        site.annotate(K, "team-a", "infra", ADOPTED_BY, "team-a/app").await?;
        site.process("team-a", "app").await?;
        site.process("team-a", "infra").await?;
        ensure!(site.dispatched("team-a", "infra").await?.1 == "team-a/restricted");
        if taken_back {
            let mut bare = site.stored(K, "team-a", "infra").await?.object;
            bare["metadata"]["annotations"] = json!({});
            site.replace(bare).await?;
        } else {
            site.delete(K, "team-a", "app").await?;
            site.hub.delivery.process_applier(site.uid("team-a", "app").await?).await?;
            ensure!(!site.exists(K, "team-a", "app").await?);
        }
        site.ask("team-a", "infra").await?;
        site.process("team-a", "infra").await?;
        let (_, account) = site.dispatched("team-a", "infra").await?;
        ensure!(account == "team-a/restricted", "taken back {taken_back}: as '{account}'");
        // Until a person says as whom.
        let named = json!({ "clusterRef": { "name": "staging" }, "serviceAccountName": "deployer", "path": "./evil" });
        site.apply(kustomization("team-a", "infra", "./evil", named)).await?;
        site.process("team-a", "infra").await?;
        let (_, account) = site.dispatched("team-a", "infra").await?;
        ensure!(account.ends_with("/deployer"), "as '{account}'");
    }
    Ok(())
}

#[tokio::test]
async fn what_one_took_over_and_another_takes_over_has_the_others_rights() -> Result<()> {
    let files = [
        file("root/infra.yaml", &[child("infra", json!({ "path": "./web" }))]),
        file("other/infra.yaml", &[child("infra", json!({ "path": "./evil" }))]),
        file("evil/map.yaml", &[config_map("web", "evil")]),
        web(),
    ];
    let site = team_a(json!({}), &files).await?;
    let on = |account: &str| json!({ "clusterRef": { "name": "staging" }, "serviceAccountName": account });
    site.apply(kustomization("team-a", "other", "./other", on("less"))).await?;
    site.apply(kustomization("team-a", "infra", "./infra", json!({ "clusterRef": { "name": "staging" } })))
        .await?;
    for (by, account) in [("app", "team-a/restricted"), ("other", "team-a/less")] {
        site.annotate(K, "team-a", "infra", ADOPTED_BY, &format!("team-a/{by}")).await?;
        site.process("team-a", by).await?;
        site.ask("team-a", "infra").await?;
        site.process("team-a", "infra").await?;
        let (_, was) = site.dispatched("team-a", "infra").await?;
        ensure!(was == account, "by {by}: as '{was}'");
    }
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_does_not_come_from_a_build_whatever_its_secrets_type() -> Result<()> {
    let files = |secret: &str| {
        let made = json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "namespace": "flux-system", "name": secret },
            "data": { "value": STANDARD.encode(NOWHERE) } });
        let user = child(
            "web",
            json!({ "suspend": true,
            "decryption": { "provider": "sops", "secretRef": { "name": secret } } }),
        );
        [file("root/all.yaml", &[made, user]), web()]
    };
    let site = team_a(json!({}), &files("edge-2-kubeconfig")).await?;
    let on_board = async |name: &str, secret: &str| -> Result<ResourceUid> {
        site.apply(json!({ "apiVersion": FLEET, "kind": "Cluster", "metadata": { "name": name },
            "spec": { "kubeConfig": { "secretRef": { "namespace": "team-a", "name": secret } } } }))
            .await?;
        Ok(site.stored(KindId::Cluster, "", name).await?.uid)
    };
    on_board("edge-2", "edge-2-kubeconfig").await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(
        reason == "ReconciliationFailed" && message.contains("kubeconfig of a cluster does not go"),
        "{reason}: {message}"
    );
    ensure!(!site.exists(KindId::Secret, "team-a", "edge-2-kubeconfig").await?);
    // Nor by a name that no kubeconfig has, but that a person's Cluster, or ManagementCluster, asks for.
    let edge = on_board("edge-3", "edge-3").await?;
    site.fetched("team-a", "fleet", &files("edge-3")).await?;
    site.process("team-a", "app").await?;
    ensure!(matches!(site.hub.onboarding.plan(edge).await?, OnboardingPlan::Nothing(_)), "it is reached");
    let (reason, message) = site.ready(KindId::Cluster, "", "edge-3").await?;
    ensure!(reason == "KubeConfigRefused" && message.contains("a Kustomization"), "{reason}: {message}");
    let management = management(&site, "capi", "edge-3").await?;
    ensure!(matches!(site.hub.management.plan(management).await?, ManagementWatch::Nothing(_)), "it is read");
    Ok(())
}

#[tokio::test]
async fn what_a_root_kept_up_to_date_before_there_were_rules_goes_on_as_it_is() -> Result<()> {
    let good = "https://git.example.com/other.git";
    let files = |url: &str, path: &str, more: Value| {
        let mut infra = child("infra", json!({ "path": path }));
        for (key, value) in more.as_object().into_iter().flatten() {
            infra["spec"][key] = value.clone();
        }
        [file("root/all.yaml", &[git_repository("flux-system", "other", url), infra])]
    };
    let site = team_a(json!({}), &files(good, "./infra", json!({}))).await?;
    site.apply(git_repository("team-a", "other", good)).await?;
    site.apply(kustomization(
        "team-a",
        "infra",
        "./infra",
        json!({ "clusterRef": { "name": "staging" }, "suspend": true }),
    ))
    .await?;
    is_denied(&site, "app", &["was made by no Kustomization"]).await?;
    // As the migration marks what a person had applied before the root took it up.
    let app = site.uid("team-a", "app").await?;
    let mut connection = site.database.connect().await?;
    for (kind, name) in [("GitRepository", "other"), ("Kustomization", "infra")] {
        sqlx::query(
            "INSERT INTO child (kind, namespace, name, parent, wanted, origin, kept, object)
             SELECT kind, namespace, name, $3, true, 'team-a/app', true, uid FROM resource
             WHERE kind = $1 AND namespace = 'team-a' AND name = $2",
        )
        .bind(kind)
        .bind(name)
        .bind(app.0)
        .execute(&mut connection)
        .await?;
    }
    site.ask("team-a", "app").await?;
    site.process("team-a", "app").await?;
    site.dispatched("team-a", "app").await?;
    // Of one that deploys from the root's own source, Git says what it deploys anyway.
    site.fetched("team-a", "fleet", &files(good, "./elsewhere", json!({}))).await?;
    site.process("team-a", "app").await?;
    ensure!(site.stored(K, "team-a", "infra").await?.object["spec"]["path"] == "./elsewhere");
    for (url, more, part) in [
        (good, json!({ "serviceAccountName": "other" }), "spec.serviceAccount"),
        (good, json!({ "clusterRef": { "name": "prod" } }), "spec.clusterRef"),
        ("https://git.example.com/evil.git", json!({}), "spec.url"),
    ] {
        site.fetched("team-a", "fleet", &files(url, "./elsewhere", more)).await?;
        is_denied(&site, "app", &["a person made it", part, ADOPTED_BY]).await?;
    }
    // Of one that deploys from another source it does not.
    let theirs = json!({ "sourceRef": { "kind": "GitRepository", "name": "other" } });
    site.apply(kustomization(
        "team-a",
        "infra",
        "./elsewhere",
        json!({ "clusterRef": { "name": "staging" },
        "sourceRef": theirs["sourceRef"] }),
    ))
    .await?;
    site.fetched("team-a", "fleet", &files(good, "./evil", theirs)).await?;
    is_denied(&site, "app", &["a person made it", "spec.path"]).await?;
    emptied(&site).await?;
    ensure!(site.exists(K, "team-a", "infra").await? && site.exists(GIT, "team-a", "other").await?);
    Ok(())
}

#[tokio::test]
async fn what_names_no_namespace_stays_in_a_clusters_inventory_too() -> Result<()> {
    for (annotation, settled) in [(None, "default"), (Some("flux-system"), "flux-system")] {
        let mut web_child = child("web", json!({}));
        web_child["metadata"].as_object_mut().map(|metadata| metadata.remove("namespace"));
        let site = team_a(json!({}), &[file("root/web.yaml", &[web_child]), web()]).await?;
        if let Some(namespace) = annotation {
            site.annotate(K, "team-a", "app", GIT_NAMESPACE, namespace).await?;
        }
        let staging = site.stored(KindId::Cluster, "", "staging").await?.uid;
        let mut connection = site.database.connect().await?;
        sqlx::query(
            "INSERT INTO inventory (cluster_uid, api_group, version, kind, namespace, name, applier, intended)
             VALUES ($1, 'kustomize.toolkit.fluxcd.io', 'v1', 'Kustomization', $3, 'web', $2, false)",
        )
        .bind(staging.0)
        .bind(site.uid("team-a", "app").await?.0)
        .bind(settled)
        .execute(&mut connection)
        .await?;
        site.process("team-a", "app").await?;
        site.dispatched("team-a", "app").await?;
        ensure!(
            !site.exists(K, "team-a", "web").await?,
            "it was handed over from {settled} without being asked for"
        );
    }
    Ok(())
}

#[tokio::test]
async fn what_a_child_refers_to_comes_along_where_one_of_them_names_the_namespace() -> Result<()> {
    let secret = |name: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "password": "x" } });
    let source = |namespace: &str, name: &str, of: &str| {
        let mut source = git_repository(namespace, name, "https://other.test/x.git");
        source["spec"]["secretRef"] = json!({ "name": of });
        source
    };
    let files = [file(
        "root/all.yaml",
        &[
            secret("used"),
            secret("elsewhere"),
            source("flux-system", "one", "used"),
            source("apps", "two", "elsewhere"),
        ],
    )];
    let site = team_a(json!({}), &files).await?;
    site.annotate(K, "team-a", "app", GIT_NAMESPACE, "flux-system").await?;
    site.process("team-a", "app").await?;
    ensure!(site.exists(KindId::Secret, "team-a", "used").await?, "it does not come along");
    ensure!(
        !site.exists(KindId::Secret, "team-a", "elsewhere").await?,
        "one of another namespace comes along"
    );
    Ok(())
}

async fn is_due(site: &Site, name: &str) -> Result<bool> {
    let uid = site.uid("team-a", name).await?;
    let mut connection = site.database.connect().await?;
    Ok(sqlx::query_scalar("SELECT due_at <= now() FROM schedule WHERE uid = $1")
        .bind(uid.0)
        .fetch_one(&mut connection)
        .await?)
}

async fn put_off(site: &Site) -> Result<()> {
    let mut connection = site.database.connect().await?;
    sqlx::query("UPDATE schedule SET due_at = now() + interval '1 hour'").execute(&mut connection).await?;
    Ok(())
}

#[tokio::test]
async fn annotations_that_say_whose_something_is_are_looked_at_when_they_come() -> Result<()> {
    let files = [
        file(
            "root/all.yaml",
            &[child("web", json!({})), git_repository("flux-system", "other", "https://evil.test/x")],
        ),
        web(),
    ];
    let site = team_a(json!({}), &files).await?;
    site.apply(git_repository("team-a", "other", "https://git.example.com/other.git")).await?;
    is_denied(&site, "app", &["GitRepository team-a/other was made by no Kustomization"]).await?;
    put_off(&site).await?;
    site.annotate(GIT, "team-a", "other", "mine", "yes").await?;
    ensure!(!is_due(&site, "app").await?);
    site.annotate(GIT, "team-a", "other", ADOPTED_BY, "team-a/app").await?;
    ensure!(is_due(&site, "app").await?, "the one that is named is not looked at");
    // And then it is tried again.
    site.process("team-a", "app").await?;
    ensure!(site.exists(K, "team-a", "web").await?, "it was not tried again");
    put_off(&site).await?;
    let mut bare = site.stored(GIT, "team-a", "other").await?.object;
    bare["metadata"]["annotations"] = json!({});
    site.replace(bare).await?;
    ensure!(is_due(&site, "app").await?, "the one that was named is not looked at");
    put_off(&site).await?;
    site.annotate(K, "team-a", "app", GIT_NAMESPACE, "flux-system").await?;
    for name in ["app", "web"] {
        ensure!(is_due(&site, name).await?, "{name} is not looked at");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_refused_is_not_tried_again_before_its_time() -> Result<()> {
    let site = team_a(
        json!({}),
        &[file("root/web.yaml", &[child("web", json!({ "serviceAccountName": "other" }))])],
    )
    .await?;
    is_denied(&site, "app", &["spec.delegation.serviceAccounts"]).await?;
    let next = site.hub.delivery.process_applier(site.uid("team-a", "app").await?).await?;
    let wait = next.duration_since(site.hub.now());
    ensure!(wait.as_secs() > 10, "it is looked at again in {wait:?}");
    Ok(())
}

#[tokio::test]
async fn a_health_check_without_a_namespace_is_of_the_one_that_git_names() -> Result<()> {
    let checks =
        json!({ "healthChecks": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }] });
    let site = team_a(checks, &[file("root/map.yaml", &[config_map("web", "web")])]).await?;
    site.annotate(K, "team-a", "app", GIT_NAMESPACE, "flux-system").await?;
    site.process("team-a", "app").await?;
    let uid = site.uid("team-a", "app").await?;
    let mut connection = site.database.connect().await?;
    let plan: sqlx::types::Json<Value> =
        sqlx::query_scalar("SELECT dispatch FROM reconciliation WHERE applier = $1")
            .bind(uid.0)
            .fetch_one(&mut connection)
            .await?;
    let text = plan.0["steps"].to_string();
    ensure!(text.contains("flux-system") && !text.contains("team-a"), "{text}");
    Ok(())
}

const NOWHERE: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1:1'}}]\n\
    contexts: [{name: c, context: {cluster: c, user: c}}]\nusers: [{name: c, user: {token: hunter2}}]\n";

/// A ManagementCluster of team a, reached by this Secret.
async fn management(site: &Site, name: &str, secret: &str) -> Result<ResourceUid> {
    site.apply(json!({ "apiVersion": FLEET, "kind": "ManagementCluster",
        "metadata": { "namespace": "team-a", "name": name },
        "spec": { "kubeConfig": { "secretRef": { "name": secret } } } }))
        .await?;
    Ok(site.stored(KindId::ManagementCluster, "team-a", name).await?.uid)
}

async fn job(hub: &Hub, uid: ResourceUid) -> Result<Box<ManagementJob>> {
    match hub.management.plan(uid).await? {
        ManagementWatch::Read(job) => Ok(job),
        ManagementWatch::Nothing(_) => bail!("it is not read"),
    }
}

#[tokio::test]
async fn a_cluster_that_came_by_another_management_cluster_meanwhile_is_not_taken_over() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    let mut jobs = BTreeMap::new();
    for name in ["first", "second", "gone"] {
        site.apply(
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "team-a", "name": name },
            "stringData": { "value": NOWHERE } }),
        )
        .await?;
        let uid = management(&site, name, name).await?;
        jobs.insert(name, job(&site.hub, uid).await?);
    }
    let shown = |name: &str| ManagedCluster {
        namespace: "fleet".to_owned(),
        name: name.to_owned(),
        uid: "1".to_owned(),
        initialized: true,
        kubeconfig: Some(Digest::of(b"x")),
        ..ManagedCluster::default()
    };
    let apply = async |by: &str, name: &str| {
        let step = ManagementStep::Apply(shown(name));
        site.hub.management.carry_out(&jobs[by], &step, StepEvidence::default()).await
    };
    let whose = async |name: &str| -> Result<Value> {
        let stored = site.stored(KindId::Cluster, "", name).await?;
        Ok(stored.object["spec"]["clusterApi"]["managementClusterRef"]["name"].clone())
    };
    // Both have seen that there is none of the name.
    apply("first", "prod").await?;
    let refused = apply("second", "prod").await;
    ensure!(matches!(refused, Err(HubError::Conflict { .. })), "{refused:?}");
    ensure!(whose("prod").await? == "first");
    // Its own goes on.
    apply("first", "prod").await?;
    // A person makes one meanwhile.
    site.cluster("own", Value::Null).await?;
    let refused = apply("second", "own").await;
    ensure!(matches!(refused, Err(HubError::Conflict { .. })), "{refused:?}");
    // So does a move that a person no longer allows.
    let step = ManagementStep::Move(shown("prod"));
    let refused = site.hub.management.carry_out(&jobs["second"], &step, StepEvidence::default()).await;
    ensure!(matches!(refused, Err(HubError::Conflict { .. })), "{refused:?}");
    ensure!(whose("prod").await? == "first");
    // Also of one whose management cluster is gone.
    apply("gone", "left").await?;
    site.delete(KindId::ManagementCluster, "team-a", "gone").await?;
    let refused = apply("second", "left").await;
    ensure!(matches!(refused, Err(HubError::Conflict { .. })), "{refused:?}");
    ensure!(whose("left").await? == "gone");
    Ok(())
}
