//! Who may deploy where, and what a build may do on the hub: each test is an attack by somebody who can push to one repository.

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_core::sources::FetchPlan;
use roadstead_sources::{AttemptError, FetchError, GitError};
use serde_json::{Value, json};

use crate::support::{
    FLEET, FLUX, SOURCE, Site, child, config_map, file, git_repository, is_denied, kustomization, team_a, web,
};

const K: KindId = KindId::Kustomization;

#[tokio::test]
async fn a_child_cannot_choose_another_cluster() -> Result<()> {
    let prod = json!({ "clusterRef": { "name": "prod" } });
    let site = team_a(json!({}), &[file("root/web.yaml", &[child("web", prod)]), web()]).await?;
    is_denied(
        &site,
        "app",
        &["Kustomization team-a/web", "'prod'", "spec.delegation.clusters of Kustomization team-a/app"],
    )
    .await?;
    ensure!(!site.exists(K, "team-a", "web").await?);
    // What a person delegates, it may; and it has its parent's account there, too.
    let delegation = json!({ "clusterRef": { "name": "staging" }, "serviceAccountName": "restricted",
        "delegation": { "clusters": ["prod"] } });
    site.apply(kustomization("team-a", "app", "./root", delegation)).await?;
    site.process("team-a", "app").await?;
    site.process("team-a", "web").await?;
    let (cluster, account) = site.dispatched("team-a", "web").await?;
    ensure!(cluster.0 == site.stored(KindId::Cluster, "", "prod").await?.uid.0);
    ensure!(account == "team-a/restricted", "{account}");
    Ok(())
}

#[tokio::test]
async fn a_child_cannot_choose_another_cluster_by_an_annotation() -> Result<()> {
    let annotated = |cluster: &str| {
        let mut object = child("web", json!({}));
        object["metadata"]["annotations"] = json!({ "fleet.roadstead.dev/cluster": cluster });
        object
    };
    let site = team_a(json!({}), &[file("root/web.yaml", &[annotated("prod")]), web()]).await?;
    is_denied(&site, "app", &["Kustomization team-a/web", "'prod'", "spec.delegation.clusters"]).await?;
    ensure!(!site.exists(K, "team-a", "web").await?);
    let site = team_a(json!({}), &[file("root/web.yaml", &[annotated("No Name")]), web()]).await?;
    let (_, message) = site.process("team-a", "app").await?;
    ensure!(
        message.contains("fleet.roadstead.dev/cluster") && message.contains("name of a Cluster"),
        "{message}"
    );
    Ok(())
}

#[tokio::test]
async fn a_child_cannot_choose_another_cluster_by_its_kubeconfig() -> Result<()> {
    let by_secret = json!({ "kubeConfig": { "secretRef": { "name": "other-kubeconfig" } } });
    let site = team_a(json!({}), &[file("root/web.yaml", &[child("web", by_secret)]), web()]).await?;
    // Before that cluster is on board nothing can be said of it.
    site.process("team-a", "app").await?;
    let (reason, _) = site.process("team-a", "web").await?;
    ensure!(reason == "ClusterNotFound", "{reason}");
    let other = site
        .apply(json!({ "apiVersion": FLEET, "kind": "Cluster", "metadata": { "name": "other" },
            "spec": { "kubeConfig": { "secretRef": { "namespace": "team-a", "name": "other-kubeconfig" } } } }))
        .await?;
    site.connect(other["metadata"]["uid"].as_str().context("a uid")?.parse()?).await?;
    is_denied(&site, "web", &["'other'", "spec.delegation.clusters of Kustomization team-a/app"]).await?;
    site.nothing_dispatched("team-a", "web").await
}

#[tokio::test]
async fn a_child_acts_as_its_parents_account_whatever_its_version() -> Result<()> {
    for (version, spec) in [
        ("v1", json!({ "serviceAccountName": "other" })),
        (
            "v1alpha1",
            json!({ "serviceAccount": { "name": "clusterrole-aggregation-controller", "namespace": "kube-system" } }),
        ),
        ("v1alpha1", json!({ "serviceAccount": { "name": "restricted" } })),
        ("v1beta1", json!({ "serviceAccountName": "other" })),
        ("v1beta2", json!({ "serviceAccountName": "restricted" })),
    ] {
        let mut web_child = child("web", spec);
        web_child["apiVersion"] = json!(format!("kustomize.toolkit.fluxcd.io/{version}"));
        let site = team_a(json!({}), &[file("root/web.yaml", &[web_child]), web()]).await?;
        // Also one of the same name: it is another namespace's, the one that Git names.
        is_denied(&site, "app", &["spec.delegation.serviceAccounts of Kustomization team-a/app"]).await?;
        site.nothing_dispatched("team-a", "web").await?;
    }
    let site = team_a(json!({}), &[file("root/web.yaml", &[child("web", json!({}))]), web()]).await?;
    site.process("team-a", "app").await?;
    site.process("team-a", "web").await?;
    ensure!(site.dispatched("team-a", "web").await?.1 == "team-a/restricted");
    // With a delegation, the account is the one of the namespace that Git names.
    let named = json!({ "serviceAccountName": "deployer" });
    let root = json!({ "delegation": { "serviceAccounts": ["flux-system/*"] } });
    let site = team_a(root, &[file("root/web.yaml", &[child("web", named)]), web()]).await?;
    site.process("team-a", "app").await?;
    site.process("team-a", "web").await?;
    ensure!(site.dispatched("team-a", "web").await?.1 == "flux-system/deployer");
    Ok(())
}

#[tokio::test]
async fn a_child_that_names_its_parent_gives_it_no_rights() -> Result<()> {
    for (change, field) in [
        (json!({ "clusterRef": { "name": "prod" } }), "spec.clusterRef"),
        (json!({ "serviceAccountName": "other" }), "spec.serviceAccount"),
        (json!({ "delegation": { "clusters": ["*"] } }), "spec.delegation"),
        (json!({ "decryption": { "provider": "sops", "secretRef": { "name": "keys" } } }), "spec.decryption"),
    ] {
        let site = team_a(json!({}), &[file("root/app.yaml", &[child("app", change)]), web()]).await?;
        let before = site.stored(K, "team-a", "app").await?.object["spec"].clone();
        is_denied(&site, "app", &["a person made it", field]).await?;
        ensure!(site.stored(K, "team-a", "app").await?.object["spec"] == before);
    }
    // What gives no rights is Git's to say, as `flux bootstrap` has it.
    let own = child("app", json!({ "path": "./root", "interval": "5m", "serviceAccountName": "restricted" }));
    let site = team_a(json!({}), &[file("root/app.yaml", &[own])]).await?;
    site.process("team-a", "app").await?;
    ensure!(site.stored(K, "team-a", "app").await?.object["spec"]["interval"] == "5m");
    // The child of a child has no say in what is above it.
    let files = [
        file("root/web.yaml", &[child("web", json!({}))]),
        file("web/app.yaml", &[child("app", json!({ "path": "./evil" }))]),
    ];
    let site = team_a(json!({}), &files).await?;
    site.process("team-a", "app").await?;
    is_denied(&site, "web", &["Kustomization team-a/app was made by no Kustomization"]).await?;
    ensure!(site.stored(K, "team-a", "app").await?.object["spec"]["path"] == "./root");
    Ok(())
}

#[tokio::test]
async fn what_a_person_made_is_not_taken_over_and_never_deleted() -> Result<()> {
    let infra = json!({ "path": "./evil" });
    let files = [
        file(
            "root/infra.yaml",
            &[child("infra", infra), git_repository("flux-system", "other", "https://evil.test/x")],
        ),
        web(),
    ];
    let site = team_a(json!({}), &files).await?;
    let mine = json!({ "clusterRef": { "name": "prod" }, "suspend": true });
    site.apply(kustomization("team-a", "infra", "./infra", mine)).await?;
    site.apply(git_repository("team-a", "other", "https://git.example.com/other.git")).await?;
    is_denied(
        &site,
        "app",
        &[
            "Kustomization team-a/infra was made by no Kustomization",
            "GitRepository team-a/other was made by no Kustomization",
            "fleet.roadstead.dev/adopted-by=team-a/app",
        ],
    )
    .await?;
    ensure!(site.stored(K, "team-a", "infra").await?.object["spec"]["path"] == "./infra");

    // A person may hand it over; then it is within the rights of whom it is handed to, and still nobody's to delete.
    site.delete(KindId::GitRepository, "team-a", "other").await?;
    site.annotate(K, "team-a", "infra", "fleet.roadstead.dev/adopted-by", "team-a/app").await?;
    site.ask("team-a", "app").await?;
    site.process("team-a", "app").await?;
    let infra = site.stored(K, "team-a", "infra").await?;
    ensure!(
        infra.object["spec"]["path"] == "./evil" && infra.object["spec"]["clusterRef"]["name"] == "staging",
        "{infra}"
    );
    site.succeed("team-a", "app").await?;
    site.fetched("team-a", "fleet", &[file("root/none.yaml", &[config_map("web", "none")])]).await?;
    for _ in 0..3 {
        site.process("team-a", "app").await?;
        site.succeed("team-a", "app").await?;
    }
    ensure!(site.exists(K, "team-a", "infra").await?, "what a person made was deleted");
    ensure!(!site.exists(KindId::GitRepository, "team-a", "other").await?, "what Git made stayed");
    Ok(())
}

#[tokio::test]
async fn a_root_that_holds_its_source_neither_moves_nor_deletes_it() -> Result<()> {
    let at = |url: &str, more: Value| {
        let mut source = git_repository("flux-system", "fleet", url);
        for (key, value) in more.as_object().into_iter().flatten() {
            source["spec"][key] = value.clone();
        }
        file("root/source.yaml", &[source])
    };
    let good = "https://git.example.com/renamed.git";
    let site = team_a(json!({}), &[at(good, json!({ "interval": "3m" }))]).await?;
    site.process("team-a", "app").await?;
    let source = site.stored(KindId::GitRepository, "team-a", "fleet").await?;
    ensure!(source.object["spec"]["interval"] == "3m" && source.object["spec"]["url"] == good, "{source}");
    for (url, more, field) in [
        ("https://evil.test/x", json!({}), "spec.url to another server"),
        ("http://git.example.com/x", json!({}), "spec.url to another server"),
        (good, json!({ "secretRef": { "name": "other" } }), "spec.secretRef"),
    ] {
        site.fetched("team-a", "fleet", &[at(url, more)]).await?;
        is_denied(&site, "app", &["GitRepository team-a/fleet", field]).await?;
    }
    site.fetched("team-a", "fleet", &[file("root/none.yaml", &[config_map("web", "none")])]).await?;
    for _ in 0..3 {
        site.process("team-a", "app").await?;
        site.succeed("team-a", "app").await?;
    }
    ensure!(site.exists(KindId::GitRepository, "team-a", "fleet").await?, "its own source was deleted");
    Ok(())
}

#[tokio::test]
async fn a_child_source_sends_no_credential_to_a_server_that_nobody_used_it_for() -> Result<()> {
    let with_secret = |name: &str, url: &str| {
        let mut source = git_repository("flux-system", name, url);
        source["spec"]["secretRef"] = json!({ "name": "token" });
        source
    };
    let files = [file(
        "root/sources.yaml",
        &[
            with_secret("evil", "https://evil.test/x.git"),
            with_secret("plain", "http://git.example.com/x.git"),
            with_secret("good", "https://git.example.com/y.git"),
        ],
    )];
    let site = team_a(json!({}), &files).await?;
    site.apply(
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "team-a", "name": "token" },
        "stringData": { "username": "u", "password": "p" } }),
    )
    .await?;
    let mut used = git_repository("team-a", "used", "https://git.example.com/private.git");
    used["spec"]["secretRef"] = json!({ "name": "token" });
    site.apply(used).await?;
    site.process("team-a", "app").await?;
    let plan = async |name: &str| -> Result<bool> {
        let uid = site.stored(KindId::GitRepository, "team-a", name).await?.uid;
        Ok(
            matches!(site.hub.sources.plan_fetch(uid).await?, FetchPlan::Fetch(job) if job.source.has_credentials()),
        )
    };
    for name in ["evil", "plain"] {
        ensure!(!plan(name).await?, "{name} is fetched with the credential");
        let (reason, message) = site.ready(KindId::GitRepository, "team-a", name).await?;
        ensure!(
            reason == "AccessDenied" && message.contains("fleet.roadstead.dev/allowed-hosts"),
            "{reason}: {message}"
        );
    }
    ensure!(plan("good").await? && plan("used").await?, "what a person used it for is not fetched");
    site.annotate(KindId::Secret, "team-a", "token", "fleet.roadstead.dev/allowed-hosts", "evil.test")
        .await?;
    ensure!(plan("evil").await? && !plan("plain").await?);
    Ok(())
}

/// A chart is fetched with its repository's Secret, which is asked for by the repository's rights, also where that is a registry and does
/// nothing itself.
#[tokio::test]
async fn a_chart_is_sent_no_credential_that_its_repository_may_not_send() -> Result<()> {
    let repository = |space: &str, name: &str, url: &str, more: Value| {
        let mut object = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
            "metadata": { "namespace": space, "name": name },
            "spec": { "url": url, "secretRef": { "name": "login" } } });
        for (key, value) in more.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        object
    };
    let chart = |space: &str, name: &str| {
        json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
            "metadata": { "namespace": space, "name": name },
            "spec": { "interval": "1h", "chart": "app", "sourceRef": { "kind": "HelmRepository", "name": name } } })
    };
    let registry = || json!({ "type": "oci" });
    let files = [file(
        "root/sources.yaml",
        &[
            repository("flux-system", "evil", "oci://evil.test/charts", registry()),
            repository("flux-system", "good", "oci://charts.example.com/more", registry()),
            repository("flux-system", "index", "https://charts.example.com", json!({})),
            repository(
                "flux-system",
                "passes",
                "https://charts.example.com",
                json!({ "passCredentials": true }),
            ),
            chart("flux-system", "good"),
        ],
    )];
    let site = team_a(json!({}), &files).await?;
    let metadata = json!({ "namespace": "team-a", "name": "login" });
    let data = json!({ "username": "u", "password": "p" });
    site.apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data }))
        .await?;
    site.apply(repository("team-a", "used", "oci://charts.example.com/charts", registry())).await?;
    site.apply(repository("team-a", "http", "https://charts.example.com", json!({}))).await?;
    site.process("team-a", "app").await?;
    // A person's charts of what Git wrote, and Git's of that.
    for name in ["evil", "used"] {
        site.apply(chart("team-a", name)).await?;
    }
    let plan = async |kind: KindId, name: &str| -> Result<bool> {
        let uid = site.stored(kind, "team-a", name).await?.uid;
        let planned = site.hub.sources.plan_fetch(uid).await?;
        Ok(matches!(planned, FetchPlan::Fetch(job) if job.source.has_credentials()))
    };
    for (kind, name, allow) in [
        (KindId::HelmChart, "evil", "fleet.roadstead.dev/allowed-hosts=evil.test"),
        (KindId::HelmRepository, "passes", "fleet.roadstead.dev/allowed-hosts=*"),
    ] {
        ensure!(!plan(kind, name).await?, "{name} is fetched with the credential");
        let (reason, message) = site.ready(kind, "team-a", name).await?;
        ensure!(reason == "AccessDenied" && message.contains(allow), "{reason}: {message}");
    }
    for (kind, name) in [
        (KindId::HelmChart, "good"),
        (KindId::HelmChart, "used"),
        (KindId::HelmRepository, "index"),
        (KindId::HelmRepository, "http"),
    ] {
        ensure!(plan(kind, name).await?, "{name}: what a person used it for is not fetched");
    }
    site.annotate(KindId::Secret, "team-a", "login", "fleet.roadstead.dev/allowed-hosts", "*").await?;
    ensure!(plan(KindId::HelmChart, "evil").await? && plan(KindId::HelmRepository, "passes").await?);
    Ok(())
}

/// A Bucket says in other words where it is, and may have a second Secret, for the server that changes it for keys.
#[tokio::test]
async fn a_child_bucket_sends_no_credential_to_a_server_that_nobody_used_it_for() -> Result<()> {
    let bucket = |space: &str, name: &str, spec: Value| {
        let mut object = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
            "metadata": { "namespace": space, "name": name },
            "spec": { "interval": "1h", "bucketName": "b", "endpoint": "s3.example.com" } });
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        object
    };
    let secret = || json!({ "name": "keys" });
    let sts =
        |endpoint: &str| json!({ "provider": "ldap", "endpoint": endpoint, "secretRef": { "name": "ldap" } });
    let files = [file(
        "root/sources.yaml",
        &[
            bucket("flux-system", "evil", json!({ "endpoint": "evil.test", "secretRef": secret() })),
            bucket("flux-system", "plain", json!({ "insecure": true, "secretRef": secret() })),
            bucket("flux-system", "elsewhere", json!({ "sts": sts("https://evil.test/sts") })),
            bucket(
                "flux-system",
                "good",
                json!({ "endpoint": "https://s3.example.com", "secretRef": secret() }),
            ),
            bucket(
                "flux-system",
                "fine",
                json!({ "endpoint": "other.test", "sts": sts("https://sts.example.com/") }),
            ),
        ],
    )];
    let site = team_a(json!({}), &files).await?;
    for (name, data) in [
        ("keys", json!({ "accesskey": "id", "secretkey": "k" })),
        ("ldap", json!({ "username": "u", "password": "p" })),
    ] {
        let metadata = json!({ "namespace": "team-a", "name": name });
        site.apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data }))
            .await?;
    }
    site.apply(bucket("team-a", "used", json!({ "secretRef": secret() }))).await?;
    site.apply(bucket("team-a", "session", json!({ "sts": sts("https://sts.example.com") }))).await?;
    site.process("team-a", "app").await?;
    let plan = async |name: &str| -> Result<bool> {
        let uid = site.stored(KindId::Bucket, "team-a", name).await?.uid;
        let planned = site.hub.sources.plan_fetch(uid).await?;
        Ok(matches!(planned, FetchPlan::Fetch(job) if job.source.has_credentials()))
    };
    for name in ["evil", "plain", "elsewhere"] {
        ensure!(!plan(name).await?, "{name} is fetched with the credential");
        let (reason, message) = site.ready(KindId::Bucket, "team-a", name).await?;
        let named = message.contains("fleet.roadstead.dev/allowed-hosts");
        ensure!(reason == "AccessDenied" && named, "{reason}: {message}");
    }
    for name in ["good", "fine", "used", "session"] {
        ensure!(plan(name).await?, "{name}: what a person used it for is not fetched");
    }
    Ok(())
}

#[tokio::test]
async fn each_object_of_a_build_that_is_refused_is_on_record_once() -> Result<()> {
    let names: Vec<String> = (0..8).map(|number| format!("web-{number}")).collect();
    let children: Vec<Value> = names.iter().map(|name| child(name, json!({}))).collect();
    let site = team_a(json!({}), &[file("root/web.yaml", &children), web()]).await?;
    // A person's, of the same names.
    for name in &names {
        site.apply(kustomization("team-a", name, "./web", json!({}))).await?;
    }
    for _ in 0..3 {
        is_denied(&site, "app", &["and 3 more"]).await?;
    }
    // It is still the same refusal once its Event is no longer kept.
    site.hub.objects.drop_old_events(Timestamp::MAX).await?;
    is_denied(&site, "app", &["and 3 more"]).await?;
    let said: Vec<(String, String)> = sqlx::query_as(
        "SELECT name, detail FROM audit WHERE outcome = 'refused' AND verb = 'patch' AND kind = 'Kustomization'
           AND namespace = 'team-a' AND username LIKE 'system:roadstead:kustomization:team-a:app@%' ORDER BY name",
    )
    .fetch_all(&mut site.database.connect().await?)
    .await?;
    ensure!(said.iter().map(|(name, _)| name).eq(&names), "{said:#?}");
    ensure!(said.iter().all(|(name, detail)| detail.contains(name.as_str())), "{said:#?}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn kinds_that_give_rights_on_the_hub_do_not_come_from_a_build() -> Result<()> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let objects = |annotations: Value| {
        let of = |api: &str, kind: &str, name: &str, more: Value| {
            let mut object = json!({ "apiVersion": api, "kind": kind,
                "metadata": { "namespace": "flux-system", "name": name, "annotations": annotations } });
            for (key, value) in more.as_object().into_iter().flatten() {
                object[key] = value.clone();
            }
            object
        };
        let subject = json!([{ "kind": "User", "name": "evil", "apiGroup": "rbac.authorization.k8s.io" }]);
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
        vec![
            of(
                FLEET,
                "Cluster",
                "evil",
                json!({ "spec": { "access": [{ "namespace": "*", "agentRights": true }] } }),
            ),
            of(
                FLEET,
                "ManagementCluster",
                "evil",
                json!({ "spec": { "kubeConfig": { "secretRef": { "name": "x" } } } }),
            ),
            of(rbac, "ClusterRoleBinding", "evil", json!({ "subjects": subject, "roleRef": role })),
            of("v1", "ServiceAccount", "evil", json!({})),
            of("v1", "Namespace", "evil", json!({})),
            of("v1", "Secret", "evil-kubeconfig", json!({ "type": "cluster.x-k8s.io/secret", "data": {} })),
        ]
    };
    let kinds = [
        (KindId::Cluster, "", "evil"),
        (KindId::ManagementCluster, "team-a", "evil"),
        (KindId::ClusterRoleBinding, "", "evil"),
        (KindId::ServiceAccount, "team-a", "evil"),
        (KindId::Namespace, "", "evil"),
        (KindId::Secret, "team-a", "evil-kubeconfig"),
    ];
    for target in ["Hub", "Both", "hub"] {
        let annotations = json!({ "fleet.roadstead.dev/target": target });
        let site = team_a(json!({}), &[file("root/all.yaml", &objects(annotations))]).await?;
        let (reason, message) = site.process("team-a", "app").await?;
        ensure!(
            reason == "ReconciliationFailed" && message.contains("fleet.roadstead.dev/target"),
            "{reason}: {message}"
        );
        for (kind, namespace, name) in kinds {
            ensure!(!site.exists(kind, namespace, name).await?, "{kind} came from a build");
        }
    }
    let site = team_a(json!({}), &[file("root/all.yaml", &objects(json!({})))]).await?;
    site.process("team-a", "app").await?;
    site.dispatched("team-a", "app").await?;
    for (kind, namespace, name) in kinds {
        ensure!(!site.exists(kind, namespace, name).await?, "{kind} came from a build");
    }
    Ok(())
}

#[tokio::test]
async fn a_chain_of_children_gets_no_further_than_its_root() -> Result<()> {
    let at = |path: &str| json!({ "path": path });
    let mut files =
        vec![file("root/a.yaml", &[child("a", at("./a"))]), file("a/b.yaml", &[child("b", at("./b"))])];
    let evil = json!({ "path": "./web", "serviceAccountName": "other" });
    files.push(file("b/c.yaml", &[child("c", evil)]));
    files.push(web());
    let site = team_a(json!({}), &files).await?;
    for name in ["app", "a"] {
        site.process("team-a", name).await?;
    }
    is_denied(&site, "b", &["spec.delegation.serviceAccounts of Kustomization team-a/app"]).await?;
    ensure!(!site.exists(K, "team-a", "c").await?);
    // Nor does it get any deeper than so deep.
    let mut files = vec![file("root/0.yaml", &[child("k0", at("./d0"))])];
    for depth in 0..20 {
        let next = child(&format!("k{}", depth + 1), at(&format!("./d{}", depth + 1)));
        files.push(file(&format!("d{depth}/next.yaml"), &[next]));
    }
    let site = team_a(json!({}), &files).await?;
    site.process("team-a", "app").await?;
    for depth in 0..15 {
        site.process("team-a", &format!("k{depth}")).await?;
    }
    is_denied(&site, "k15", &["nested more than 16 Kustomizations deep"]).await?;
    ensure!(!site.exists(K, "team-a", "k16").await?);
    Ok(())
}

#[tokio::test]
async fn a_child_is_held_to_its_parents_rights_at_each_reconciliation() -> Result<()> {
    let named = json!({ "serviceAccountName": "deployer" });
    let files = [file("root/web.yaml", &[child("web", named)]), web()];
    // A parent without an account allows any of its cluster.
    let free = kustomization("team-a", "app", "./root", json!({ "clusterRef": { "name": "staging" } }));
    let site = team_a(json!({}), &files).await?;
    site.delete(K, "team-a", "app").await?;
    site.process("team-a", "app").await.ok();
    site.apply(free).await?;
    site.process("team-a", "app").await?;
    site.process("team-a", "web").await?;
    ensure!(site.dispatched("team-a", "web").await?.1 == "flux-system/deployer");
    // The parent is given one: at the next pass the child has no more than that.
    site.apply(json!({ "apiVersion": FLUX, "kind": "Kustomization", "metadata": { "namespace": "team-a", "name": "app" },
        "spec": { "interval": "10m", "prune": true, "path": "./root", "serviceAccountName": "restricted",
            "clusterRef": { "name": "staging" }, "sourceRef": { "kind": "GitRepository", "name": "fleet" } } }))
        .await?;
    is_denied(&site, "web", &["spec.delegation.serviceAccounts"]).await?;
    // Somebody changes the child by hand.
    site.apply(kustomization("team-a", "web", "./web", json!({ "clusterRef": { "name": "prod" } }))).await?;
    is_denied(&site, "web", &["spec.delegation.clusters"]).await?;
    let staging = site.stored(KindId::Cluster, "", "staging").await?.uid.0;
    ensure!(site.dispatched("team-a", "web").await?.0.0 == staging);
    Ok(())
}

#[tokio::test]
async fn a_delegation_from_git_counts_for_nothing() -> Result<()> {
    let all = json!({ "path": "./a", "delegation": { "clusters": ["*"], "serviceAccounts": ["*"] } });
    let evil = json!({ "path": "./web", "clusterRef": { "name": "prod" } });
    let files = [file("root/a.yaml", &[child("a", all)]), file("a/b.yaml", &[child("b", evil)]), web()];
    let site = team_a(json!({}), &files).await?;
    is_denied(
        &site,
        "app",
        &["Kustomization team-a/a", "spec.delegation.clusters has '*', which is not delegated to it"],
    )
    .await?;
    ensure!(!site.exists(K, "team-a", "a").await?);
    Ok(())
}

#[tokio::test]
async fn two_children_that_would_get_one_address_are_both_named() -> Result<()> {
    let mut other = child("web", json!({}));
    other["metadata"]["namespace"] = json!("apps");
    let files = [file("root/web.yaml", &[child("web", json!({})), other]), web()];
    let site = team_a(json!({}), &files).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "ReconciliationFailed", "{reason}");
    for part in ["apps/web", "flux-system/web", "spec.delegation.namespaces"] {
        ensure!(message.contains(part), "no `{part}` in: {message}");
    }
    ensure!(!site.exists(K, "team-a", "web").await?);
    // With a place of its own for one of them both come, each with the source beside the root.
    let root = json!({ "delegation": { "namespaces": { "apps": "team-b" } } });
    let site = team_a(root, &files).await?;
    site.process("team-a", "app").await?;
    let mapped = site.stored(K, "team-b", "web").await?;
    ensure!(
        mapped.object["metadata"]["annotations"]["fleet.roadstead.dev/git-namespace"] == "apps",
        "{mapped}"
    );
    site.process("team-a", "web").await?;
    site.dispatched("team-a", "web").await?;
    Ok(())
}

#[tokio::test]
async fn who_wrote_a_child_is_recorded() -> Result<()> {
    let site = team_a(json!({}), &[file("root/web.yaml", &[child("web", json!({}))]), web()]).await?;
    site.process("team-a", "app").await?;
    let mut connection = site.database.connect().await?;
    let actor: String =
        sqlx::query_scalar("SELECT username FROM audit WHERE kind = 'Kustomization' AND name = 'web'")
            .fetch_one(&mut connection)
            .await?;
    ensure!(actor.starts_with("system:roadstead:kustomization:team-a:app@main@sha1:"), "{actor}");
    let events = site.all(KindId::Event).await?;
    let said = |event: &Value| event["message"].as_str().is_some_and(|text| text.contains(&actor));
    ensure!(
        events.iter().any(|event| said(&event.object) && event.object["involvedObject"]["name"] == "web")
    );
    let web = site.stored(K, "team-a", "web").await?;
    ensure!(web.object["metadata"]["managedFields"].to_string().contains("kustomize-controller"), "{web}");
    Ok(())
}

#[tokio::test]
async fn what_a_parent_leaves_behind_keeps_its_account_and_is_taken_up_by_its_like_alone() -> Result<()> {
    let files = [file("root/web.yaml", &[child("web", json!({}))]), web()];
    let site = team_a(json!({ "prune": false }), &files).await?;
    site.process("team-a", "app").await?;
    site.delete(K, "team-a", "app").await?;
    site.hub.delivery.process_applier(site.uid("team-a", "app").await?).await?;
    ensure!(!site.exists(K, "team-a", "app").await?);
    site.process("team-a", "web").await?;
    ensure!(site.dispatched("team-a", "web").await?.1 == "team-a/restricted");
    let root = |name: &str| {
        kustomization(
            "team-a",
            name,
            "./root",
            json!({ "clusterRef": { "name": "staging" }, "serviceAccountName": "restricted" }),
        )
    };
    site.apply(root("thief")).await?;
    is_denied(&site, "thief", &["was made by Kustomization team-a/app, which is gone"]).await?;
    site.apply(root("app")).await?;
    site.process("team-a", "app").await?;
    site.dispatched("team-a", "app").await?;
    Ok(())
}

#[tokio::test]
async fn namespaces_that_may_deploy_are_selected_by_their_labels() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.source("team-a", "fleet", &[web()]).await?;
    let labelled = |labels: Value| {
        site.replace(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team-a", "labels": labels } }))
    };
    let selector = json!({ "matchLabels": { "env": "prod" }, "matchExpressions": [{ "key": "frozen", "operator": "DoesNotExist" }] });
    site.cluster("prod", json!([{ "namespaceSelector": selector }])).await?;
    let spec = json!({ "clusterRef": { "name": "prod" }, "serviceAccountName": "deployer" });
    site.apply(kustomization("team-a", "app", "./web", spec)).await?;
    let refused = ["namespace 'team-a' may not deploy to cluster 'prod'"];
    is_denied(&site, "app", &refused).await?;
    for labels in [json!({ "env": "test" }), json!({ "env": "prod", "frozen": "true" })] {
        labelled(labels).await?;
        is_denied(&site, "app", &refused).await?;
    }
    labelled(json!({ "env": "prod" })).await?;
    site.process("team-a", "app").await?;
    ensure!(site.dispatched("team-a", "app").await?.1 == "team-a/deployer");
    // By the selector it has the accounts of its own name, and no others.
    let other = json!({ "clusterRef": { "name": "prod" }, "serviceAccount": { "namespace": "kube-system", "name": "root" } });
    let mut other = kustomization("team-a", "other", "./web", other);
    // Only this version names an account of another namespace.
    other["apiVersion"] = json!("kustomize.toolkit.fluxcd.io/v1alpha1");
    site.apply(other).await?;
    is_denied(&site, "other", &["may not act as service account 'kube-system/root'"]).await?;
    // Its name is a label that nobody can put on another one; and who selects all does not mean anybody by name.
    let by_name = |name: &str| json!([{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } }]);
    site.cluster("named", by_name("team-b")).await?;
    site.cluster("all", json!([{ "namespaceSelector": {} }])).await?;
    labelled(json!({ "kubernetes.io/metadata.name": "team-b" })).await?;
    for cluster in ["named", "all"] {
        let spec = json!({ "clusterRef": { "name": cluster }, "serviceAccountName": "deployer" });
        site.apply(kustomization("team-a", cluster, "./web", spec)).await?;
        is_denied(&site, cluster, &["namespace 'team-a' may not"]).await?;
    }
    // Either a name or labels, and an operator that there is.
    for (grant, why) in [
        (
            json!({ "namespace": "team-a", "namespaceSelector": {} }),
            "may not be set beside namespaceSelector",
        ),
        (json!({ "agentRights": true }), "or set namespaceSelector"),
        (
            json!({ "namespaceSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } }),
            "not a valid selector operator",
        ),
    ] {
        let refused = site.cluster("refused", json!([grant])).await.expect_err("it is not valid");
        ensure!(format!("{refused:#}").contains(why), "{refused:#}");
    }
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_namespace_deploys_only_to_clusters_that_let_it() -> Result<()> {
    let site = Site::new().await?;
    for namespace in ["team-a", "team-b"] {
        site.namespace(namespace).await?;
        site.source(namespace, "fleet", &[web()]).await?;
    }
    // One that joined by a token has been onboarded by nobody.
    let token = site.cluster("token", Value::Null).await?;
    let on = |cluster: &str, more: Value| {
        let mut spec = json!({ "clusterRef": { "name": cluster } });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        kustomization("team-a", "app", "./web", spec)
    };
    site.apply(on("token", json!({}))).await?;
    is_denied(
        &site,
        "app",
        &["namespace 'team-a' may not deploy to cluster 'token'", "spec.access of Cluster token"],
    )
    .await?;
    // Those that deployed there before there was spec.access go on.
    let mut connection = site.database.connect().await?;
    sqlx::query("INSERT INTO cluster_access_before VALUES ($1, 'team-a')")
        .bind(token.0)
        .execute(&mut connection)
        .await?;
    site.process("team-a", "app").await?;
    site.dispatched("team-a", "app").await?;
    // The operator is told of them, with the line that says so in the Cluster.
    let before = site.hub.onboarding.access_before().await?;
    let [token_access] = &before[..] else { bail!("{before:?}") };
    let told = token_access.to_string();
    let line = "kubectl patch cluster token --type=merge -p \
                '{\"spec\":{\"access\":[{\"agentRights\":true,\"namespace\":\"team-a\",\"serviceAccounts\":[\"*\"]}]}}'";
    ensure!(told.contains("(team-a)") && told.ends_with(line), "{told}");
    // The namespace of the Secret has all rights, and no other has any.
    site.delete(K, "team-a", "app").await?;
    let made = site
        .apply(json!({ "apiVersion": FLEET, "kind": "Cluster", "metadata": { "name": "secret" },
            "spec": { "kubeConfig": { "secretRef": { "namespace": "team-b", "name": "secret-kubeconfig" } } } }))
        .await?;
    site.connect(made["metadata"]["uid"].as_str().context("a uid")?.parse()?).await?;
    let mut theirs = on("secret", json!({}));
    theirs["metadata"] = json!({ "namespace": "team-a", "name": "theirs" });
    site.apply(theirs.clone()).await?;
    is_denied(&site, "theirs", &["spec.access of Cluster secret"]).await?;
    theirs["metadata"] = json!({ "namespace": "team-b", "name": "theirs" });
    site.apply(theirs).await?;
    site.process("team-b", "theirs").await?;
    site.dispatched("team-b", "theirs").await?;
    Ok(())
}

#[tokio::test]
async fn a_service_account_of_another_namespace_is_granted_by_name_only() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.source("team-a", "fleet", &[web()]).await?;
    site.cluster("edge", json!([{ "namespace": "team-a" }])).await?;
    let as_account = |account: Value| {
        json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1alpha1", "kind": "Kustomization",
        "metadata": { "namespace": "team-a", "name": "app" },
        "spec": { "interval": "10m", "prune": true, "path": "./web", "clusterRef": { "name": "edge" },
            "sourceRef": { "kind": "GitRepository", "name": "fleet" }, "serviceAccount": account } })
    };
    site.apply(as_account(
        json!({ "name": "clusterrole-aggregation-controller", "namespace": "kube-system" }),
    ))
    .await?;
    let parts =
        ["kube-system/clusterrole-aggregation-controller", "serviceAccounts", "spec.access of Cluster edge"];
    is_denied(&site, "app", &parts).await?;
    // Nor by the annotation that says which namespace it bears.
    site.apply(as_account(json!({ "name": "deployer" }))).await?;
    site.annotate(K, "team-a", "app", "fleet.roadstead.dev/git-namespace", "kube-system").await?;
    is_denied(&site, "app", &["kube-system/deployer"]).await?;
    site.annotate(K, "team-a", "app", "fleet.roadstead.dev/git-namespace", "team-a").await?;
    site.process("team-a", "app").await?;
    ensure!(site.dispatched("team-a", "app").await?.1 == "team-a/deployer");
    // The grant goes: at the next pass it is over.
    site.apply(json!({ "apiVersion": FLEET, "kind": "Cluster", "metadata": { "name": "edge" }, "spec": { "access": [] } })).await?;
    is_denied(&site, "app", &["namespace 'team-a' may not deploy to cluster 'edge'"]).await
}

#[tokio::test]
async fn what_children_refer_to_comes_along_and_lies_sealed() -> Result<()> {
    let secret = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": "flux-system", "name": name }, "stringData": { "password": "very-secret-text" } })
    };
    let source = |name: &str, secret: &str| {
        let mut source = git_repository("flux-system", name, "https://other.test/x.git");
        source["spec"]["secretRef"] = json!({ "name": secret });
        source
    };
    let files = [file("root/all.yaml", &[secret("used"), secret("unused"), source("other", "used")])];
    let site = team_a(json!({}), &files).await?;
    site.process("team-a", "app").await?;
    let found = site.stored(KindId::Secret, "team-a", "used").await?;
    ensure!(found.secret.is_some() && !site.exists(KindId::Secret, "team-a", "unused").await?);
    // It is Git's own: where Git sends it is not a leak.
    let uid = site.stored(KindId::GitRepository, "team-a", "other").await?.uid;
    let (reason, message) = match site.hub.sources.plan_fetch(uid).await? {
        FetchPlan::Fetch(_) => (String::new(), String::new()),
        FetchPlan::Nothing(_) => site.ready(KindId::GitRepository, "team-a", "other").await?,
    };
    ensure!(reason != "AccessDenied", "{reason}: {message}");
    let mut connection = site.database.connect().await?;
    let kept: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT children FROM build_cache WHERE children IS NOT NULL")
            .fetch_all(&mut connection)
            .await?;
    ensure!(!kept.is_empty());
    ensure!(
        kept.iter().all(|bytes| !String::from_utf8_lossy(bytes).contains("very-secret-text")),
        "a Secret lies in plain text"
    );
    // A person's Secret of that name is not overwritten.
    let site = team_a(json!({}), &files).await?;
    site.apply(
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "team-a", "name": "used" },
        "stringData": { "password": "mine" } }),
    )
    .await?;
    is_denied(&site, "app", &["Secret team-a/used was made by no Kustomization"]).await
}

#[tokio::test]
async fn a_kustomization_that_comes_while_its_source_is_recorded_does_not_wait_for_the_timer() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.cluster("edge", json!([{ "namespace": "team-a", "agentRights": true }])).await?;
    let mut source = git_repository("team-a", "fleet", "https://git.example.com/x.git");
    source["spec"]["timeout"] = json!("5s");
    site.apply(source).await?;
    let on_edge = json!({ "clusterRef": { "name": "edge" } });
    site.apply(kustomization("team-a", "first", "./web", on_edge.clone())).await?;
    let uid = site.stored(KindId::GitRepository, "team-a", "fleet").await?.uid;
    let FetchPlan::Fetch(job) = site.hub.sources.plan_fetch(uid).await? else {
        anyhow::bail!("nothing to fetch")
    };

    // The source's unit of work has looked its users up, and waits for the first one's row.
    let first = site.uid("team-a", "first").await?;
    let mut connection = site.database.connect().await?;
    let mut held = sqlx::Connection::begin(&mut connection).await?;
    sqlx::query("SELECT FROM schedule WHERE uid = $1 FOR UPDATE").bind(first.0).execute(&mut *held).await?;
    let hub = site.hub.clone();
    let record = tokio::spawn(async move {
        let error = GitError::Attempt(AttemptError::Cancelled { url: "x".to_owned() });
        hub.sources.record_fetch(&job, Err(FetchError::from(error).into())).await
    });
    let mut watching = site.database.connect().await?;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(&mut watching)
        .await?;
        if waiting > 0 {
            break;
        }
        ensure!(std::time::Instant::now() < until, "nothing waits");
        tokio::task::yield_now().await;
    }
    // Another user comes, looks at the source as it still is, and puts itself off.
    site.apply(kustomization("team-a", "second", "./web", on_edge)).await?;
    site.process("team-a", "second").await?;
    let second = site.uid("team-a", "second").await?;
    sqlx::query("UPDATE schedule SET due_at = now() + interval '30 s', claimed_by = NULL WHERE uid = $1")
        .bind(second.0)
        .execute(&mut watching)
        .await?;
    held.rollback().await?;
    record.await??;
    let due: bool =
        sqlx::query_scalar("SELECT due_at <= now() + interval '5 s' FROM schedule WHERE uid = $1")
            .bind(second.0)
            .fetch_one(&mut watching)
            .await?;
    ensure!(due, "the second one waits for its timer");
    Ok(())
}

#[tokio::test]
async fn what_stands_in_a_clusters_inventory_stays_there_until_it_is_asked_for() -> Result<()> {
    let files = |annotations: Value| {
        let mut web_child = child("web", json!({}));
        web_child["metadata"]["annotations"] = annotations;
        [file("root/web.yaml", &[web_child, config_map("web", "beside")]), web()]
    };
    let site = team_a(json!({}), &files(json!({}))).await?;
    // As if the kind had not been served when it was applied.
    let (app, staging) =
        (site.uid("team-a", "app").await?, site.stored(KindId::Cluster, "", "staging").await?.uid);
    let mut connection = site.database.connect().await?;
    sqlx::query(
        "INSERT INTO inventory (cluster_uid, api_group, version, kind, namespace, name, applier, intended)
         VALUES ($1, 'kustomize.toolkit.fluxcd.io', 'v1', 'Kustomization', 'flux-system', 'web', $2, false)",
    )
    .bind(staging.0)
    .bind(app.0)
    .execute(&mut connection)
    .await?;
    site.process("team-a", "app").await?;
    site.dispatched("team-a", "app").await?;
    ensure!(!site.exists(K, "team-a", "web").await?, "it was handed over without being asked for");
    site.succeed("team-a", "app").await?;
    site.fetched("team-a", "fleet", &files(json!({ "fleet.roadstead.dev/target": "Hub" }))).await?;
    site.process("team-a", "app").await?;
    ensure!(site.exists(K, "team-a", "web").await?);
    Ok(())
}

#[tokio::test]
async fn older_sources_and_alerts_of_a_build_lie_beside_their_root() -> Result<()> {
    let alert = json!({ "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert",
        "metadata": { "namespace": "flux-system", "name": "chat" },
        "spec": { "providerRef": { "name": "chat" }, "eventSources": [{ "kind": "Kustomization", "name": "*", "namespace": "flux-system" }] } });
    let mut old = git_repository("flux-system", "old", "https://git.example.com/old.git");
    old["apiVersion"] = json!("source.toolkit.fluxcd.io/v1beta2");
    let site = team_a(json!({}), &[file("root/all.yaml", &[alert, old])]).await?;
    site.process("team-a", "app").await?;
    let alert = site.stored(KindId::Alert, "team-a", "chat").await?;
    ensure!(alert.object["spec"]["eventSources"][0]["namespace"] == "team-a", "{alert}");
    let old = site.stored(KindId::GitRepository, "team-a", "old").await?;
    ensure!(old.object["apiVersion"] == SOURCE, "{old}");
    Ok(())
}
