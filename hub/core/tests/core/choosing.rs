//! Which cluster `spec.kubeConfig.configMapRef` chooses, and as whom is acted there by default.

use anyhow::{Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::HubOptions;
use serde_json::{Value, json};

use crate::support::{Site, config_map, file, kustomization};

fn settings(data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "team-a", "name": "edge" }, "data": data })
}

#[tokio::test]
async fn a_config_map_chooses_a_cluster_by_its_name_or_address() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    let access = || json!([{ "namespace": "team-a", "agentRights": true }]);
    site.cluster("edge-1", access()).await?;
    site.cluster("edge-2", access()).await?;
    site.cluster("edge-3", json!([])).await?;
    let mut database = site.database.connect().await?;
    for (name, server) in [("edge-1", "https://a.example:6443"), ("edge-2", "https://b.example:6443")] {
        sqlx::query(
            "UPDATE resource SET object = jsonb_set(object, '{status}', jsonb_build_object('kubeConfig',
               jsonb_build_object('digest', 'x', 'server', $2::text))) WHERE kind = 'Cluster' AND name = $1",
        )
        .bind(name)
        .bind(server)
        .execute(&mut database)
        .await?;
    }
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    let spec = json!({ "kubeConfig": { "configMapRef": { "name": "edge" } } });
    site.apply(kustomization("team-a", "app", "./app", spec)).await?;
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "ClusterNotFound", "{reason}: {message}");
    ensure!(message.contains("ConfigMap team-a/edge of spec.kubeConfig.configMapRef not found"), "{message}");

    for (data, chosen) in [
        (json!({ "provider": "aws", "cluster": "arn:aws:eks:eu-north-1:1234:cluster/edge-1" }), "edge-1"),
        (json!({ "provider": "generic", "address": "https://b.example:6443/" }), "edge-2"),
        // The address is what the kubeconfig of a cluster said; a name is only that.
        (json!({ "cluster": "somewhere/edge-2", "address": "https://a.example:6443" }), "edge-1"),
    ] {
        site.apply(settings(&data)).await?;
        let (reason, message) = site.process("team-a", "app").await?;
        ensure!(reason == "Progressing", "{data}: {reason}: {message}");
        let uid = site.uid("team-a", "app").await?;
        let attempt = site.store.newest_reconciliation(uid.into()).await?;
        let on = attempt.and_then(|attempt| attempt.inputs.cluster).map(|cluster| cluster.0);
        let wanted = site.stored(KindId::Cluster, "", chosen).await?.uid.0;
        ensure!(on == Some(wanted), "{data} is not on {chosen}");
        site.succeed("team-a", "app").await?;
    }
    for (data, reason, part) in [
        (json!({ "cluster": "edge-9" }), "ClusterNotFound", "is not onboarded as Cluster 'edge-9'"),
        (json!({ "provider": "gcp" }), "ClusterNotFound", "has neither 'cluster' nor 'address'"),
        (json!({ "address": "https://c.example" }), "ClusterNotFound", "which no onboarded Cluster has"),
        // Whoever may write a ConfigMap may not deploy everywhere.
        (json!({ "cluster": "edge-3" }), "AccessDenied", "edge-3"),
    ] {
        site.apply(settings(&data)).await?;
        let (seen, message) = site.process("team-a", "app").await?;
        ensure!(seen == reason && message.contains(part), "{data}: {seen}: {message}");
    }
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn who_names_no_account_acts_as_the_one_that_the_operator_says() -> Result<()> {
    let options =
        HubOptions { default_service_account: Some("deployer".to_owned()), ..HubOptions::default() };
    let site = Site::with(options).await?;
    site.namespace("team-a").await?;
    let access = json!([{ "namespace": "team-a", "serviceAccounts": ["team-a/*", "ops/*"] }]);
    site.cluster("edge-1", access).await?;
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    let spec = json!({ "clusterRef": { "name": "edge-1" } });
    site.apply(kustomization("team-a", "app", "./app", spec.clone())).await?;
    site.process("team-a", "app").await?;
    ensure!(site.dispatched("team-a", "app").await?.1 == "team-a/deployer");
    // What one names itself counts.
    let mut named = spec;
    named["serviceAccountName"] = json!("mine");
    site.apply(kustomization("team-a", "app", "./app", named)).await?;
    site.process("team-a", "app").await?;
    ensure!(site.dispatched("team-a", "app").await?.1 == "team-a/mine");
    // The cluster's own default goes before the hub's.
    site.apply(json!({ "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": "edge-1" },
        "spec": { "defaultServiceAccount": "ops/limited",
                  "access": [{ "namespace": "team-a", "serviceAccounts": ["team-a/*", "ops/*"] }] } }))
        .await?;
    let spec = json!({ "clusterRef": { "name": "edge-1" } });
    site.apply(kustomization("team-a", "app", "./app", spec)).await?;
    site.process("team-a", "app").await?;
    ensure!(site.dispatched("team-a", "app").await?.1 == "ops/limited");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_secret_of_any_type_and_key_brings_a_cluster_on_board_where_a_person_names_it() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    let secret = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "team-a", "name": name },
            "stringData": { "config": "kubeconfig" } })
    };
    site.apply(secret("edge-7")).await?;
    let uid = site.stored(KindId::Secret, "team-a", "edge-7").await?.uid;
    site.hub.onboarding.process_kubeconfig(uid).await?;
    ensure!(!site.exists(KindId::Cluster, "", "edge-7").await?, "nobody names it");
    let spec = json!({ "kubeConfig": { "secretRef": { "name": "edge-7", "key": "config" } } });
    site.apply(kustomization("team-a", "app", "./app", spec)).await?;
    site.hub.onboarding.process_kubeconfig(uid).await?;
    let made = site.stored(KindId::Cluster, "", "edge-7").await?.object;
    let wanted = json!({ "secretRef": { "namespace": "team-a", "name": "edge-7" }, "key": "config" });
    ensure!(made["spec"]["kubeConfig"] == wanted, "{made:#}");
    // Another key of the Secret is another kubeconfig, which is perhaps another cluster's.
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    for (name, key, refused) in
        [("same", json!("config"), false), ("any", json!(null), false), ("other", json!("stage"), true)]
    {
        let spec = json!({ "kubeConfig": { "secretRef": { "name": "edge-7", "key": key } } });
        site.apply(kustomization("team-a", name, "./app", spec)).await?;
        let (_, message) = site.process("team-a", name).await?;
        let said = message.contains("names key 'stage' of Secret team-a/edge-7")
            && message.contains("Cluster 'edge-7' was onboarded by another key");
        ensure!(said == refused, "{name}: {message}");
    }
    // What is read is what is under that key: here it is not a kubeconfig.
    let cluster = site.stored(KindId::Cluster, "", "edge-7").await?.uid;
    site.hub.onboarding.plan(cluster).await?;
    let stored = site.stored(KindId::Cluster, "", "edge-7").await?.object;
    let conditions = stored["status"]["conditions"].to_string();
    ensure!(conditions.contains("KubeConfigRefused") && !conditions.contains("has no key"), "{conditions}");
    site.close().await;
    Ok(())
}

/// Otherwise `prod-kubeconfig` in a tenant's namespace would be Cluster `prod`, if it came first.
#[tokio::test]
async fn a_reserved_name_of_a_cluster_is_for_the_secrets_of_its_namespace() -> Result<()> {
    let reserved_clusters = vec!["prod*=platform".parse()?];
    let site = Site::with(HubOptions { reserved_clusters, ..HubOptions::default() }).await?;
    let secret = |namespace: &str, name: &str| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": namespace, "name": name },
            "type": "cluster.x-k8s.io/secret", "stringData": { "value": "kubeconfig" } })
    };
    for (namespace, name, made) in [
        ("team-a", "prod-kubeconfig", None),
        ("team-a", "edge-kubeconfig", Some("edge")),
        ("platform", "prod-kubeconfig", Some("prod")),
    ] {
        if !site.exists(KindId::Namespace, "", namespace).await? {
            site.namespace(namespace).await?;
        }
        site.apply(secret(namespace, name)).await?;
        let uid = site.stored(KindId::Secret, namespace, name).await?.uid;
        site.hub.onboarding.process_kubeconfig(uid).await?;
        let Some(made) = made else {
            ensure!(!site.exists(KindId::Cluster, "", "prod").await?, "it is reserved");
            let mut database = site.database.connect().await?;
            let told: String = sqlx::query_scalar(
                "SELECT object ->> 'message' FROM resource WHERE kind = 'Event' AND namespace = 'team-a'",
            )
            .fetch_one(&mut database)
            .await?;
            ensure!(
                told.contains("'prod' is reserved") && told.contains("--reserve-cluster prod*=platform"),
                "{told}"
            );
            continue;
        };
        let made = site.stored(KindId::Cluster, "", made).await?.object;
        let by = json!({ "namespace": namespace, "name": name });
        ensure!(made["spec"]["kubeConfig"]["secretRef"] == by, "{made:#}");
    }
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_names_no_cluster_gets_its_namespaces_default_or_the_hubs() -> Result<()> {
    let options = HubOptions { default_cluster: Some("edge-2".to_owned()), ..HubOptions::default() };
    let site = Site::with(options).await?;
    let namespace = |default: &str| {
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team-a",
            "annotations": { "fleet.roadstead.dev/default-cluster": default } } })
    };
    site.apply(namespace("edge-1")).await?;
    site.namespace("team-b").await?;
    let access = || json!([{ "namespace": "team-a", "agentRights": true }]);
    site.cluster("edge-1", access()).await?;
    site.cluster("edge-2", access()).await?;
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    let chosen = async |namespace: &str, name: &str| {
        let stored = site.stored(KindId::Kustomization, namespace, name).await?;
        anyhow::Ok(stored.object["spec"]["clusterRef"]["name"].as_str().unwrap_or_default().to_owned())
    };
    site.apply(kustomization("team-a", "app", "./app", json!({}))).await?;
    ensure!(chosen("team-a", "app").await? == "edge-1");
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "Progressing", "{reason}: {message}");
    // A default gives no right.
    site.apply(kustomization("team-b", "app", "./app", json!({}))).await?;
    ensure!(chosen("team-b", "app").await? == "edge-2");
    let (reason, message) = site.process("team-b", "app").await?;
    ensure!(reason == "AccessDenied", "{reason}: {message}");
    // Nothing moves when it changes, also when the same is applied again; what names one keeps that.
    site.apply(namespace("edge-2")).await?;
    site.apply(kustomization("team-a", "app", "./app", json!({ "prune": true }))).await?;
    ensure!(chosen("team-a", "app").await? == "edge-1");
    let whole = kustomization("team-a", "app", "./app", json!({ "prune": true }));
    let generation = site.stored(KindId::Kustomization, "team-a", "app").await?.generation;
    site.replace(whole).await?;
    let after = site.stored(KindId::Kustomization, "team-a", "app").await?;
    ensure!(chosen("team-a", "app").await? == "edge-1" && after.generation == generation, "{}", after.object);
    let spec = json!({ "kubeConfig": { "configMapRef": { "name": "edge" } } });
    site.apply(kustomization("team-a", "other", "./app", spec)).await?;
    ensure!(chosen("team-a", "other").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn an_annotation_chooses_a_cluster_where_the_spec_names_none() -> Result<()> {
    let options = HubOptions { default_cluster: Some("edge-9".to_owned()), ..HubOptions::default() };
    let site = Site::with(options).await?;
    site.namespace("team-a").await?;
    let access = || json!([{ "namespace": "team-a", "agentRights": true }]);
    for cluster in ["edge-1", "edge-2"] {
        site.cluster(cluster, access()).await?;
    }
    site.cluster("edge-3", json!([])).await?;
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    let annotated = |cluster: &str, spec: Value| {
        let mut object = kustomization("team-a", "app", "./app", spec);
        object["metadata"]["annotations"] = json!({ "fleet.roadstead.dev/cluster": cluster });
        object
    };
    let chosen = async || {
        let stored = site.stored(KindId::Kustomization, "team-a", "app").await?;
        anyhow::Ok(stored.object["spec"]["clusterRef"]["name"].as_str().unwrap_or_default().to_owned())
    };
    // It is followed, also where the same is applied again.
    for cluster in ["edge-1", "edge-2", "edge-2", "edge-1"] {
        site.apply(annotated(cluster, json!({}))).await?;
        ensure!(chosen().await? == cluster, "{} and not {cluster}", chosen().await?);
    }
    let (reason, message) = site.process("team-a", "app").await?;
    ensure!(reason == "Progressing", "{reason}: {message}");
    site.succeed("team-a", "app").await?;
    // What the spec says counts, and an annotation gives no right.
    site.apply(annotated("edge-1", json!({ "clusterRef": { "name": "edge-2" } }))).await?;
    ensure!(chosen().await? == "edge-2");
    site.apply(annotated("edge-3", json!({ "clusterRef": { "name": "edge-2" } }))).await?;
    ensure!(chosen().await? == "edge-2", "{}", chosen().await?);
    let mut other = annotated("edge-3", json!({}));
    other["metadata"]["name"] = json!("other");
    site.apply(other).await?;
    let (reason, message) = site.process("team-a", "other").await?;
    ensure!(reason == "AccessDenied", "{reason}: {message}");
    let refused = site.apply(annotated("Edge 1", json!({}))).await.err();
    let refused = refused.map(|error| error.to_string()).unwrap_or_default();
    ensure!(
        refused.contains("fleet.roadstead.dev/cluster") && refused.contains("name of a Cluster"),
        "{refused}"
    );
    Ok(())
}
