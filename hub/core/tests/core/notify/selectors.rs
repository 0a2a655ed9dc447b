//! Sources that select namespaces and clusters by their labels.

use anyhow::{Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_store::NewsItem;
use roadstead_tests::eventually;
use serde_json::{Value, json};

use super::{Alerted, alert, news, pass, provider};

/// Labels an object without namespace, in the place of those that it had.
async fn label(alerted: &Alerted, kind: &str, name: &str, labels: Value) -> Result<()> {
    sqlx::query(
        "UPDATE resource SET object = jsonb_set(object, '{metadata,labels}', $3)
         WHERE kind = $1 AND namespace = '' AND name = $2",
    )
    .bind(kind)
    .bind(name)
    .bind(labels)
    .execute(&mut alerted.site.database.connect().await?)
    .await?;
    Ok(())
}

async fn tell(alerted: &Alerted, items: &[(&str, Option<&str>)]) -> Result<()> {
    let mut tx = alerted.site.store.begin().await?;
    for (namespace, cluster) in items {
        let message = format!("{namespace} on {}", cluster.unwrap_or("none"));
        let cluster = cluster.map(str::to_owned);
        tx.tell(NewsItem { cluster, ..news(namespace, "web", &message, "error") });
    }
    tx.commit().await?;
    alerted.pass().await?;
    Ok(())
}

#[tokio::test]
async fn an_alert_for_all_namespaces_hears_of_those_with_a_label_as_it_is_now() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.namespace("shop").await?;
    site.namespace("other").await?;
    label(&alerted, "Namespace", "shop", json!({ "team": "blue", "size": "large" })).await?;
    let source = json!({ "kind": "Kustomization", "name": "*", "namespace": "*",
        "namespaceSelector": { "matchLabels": { "team": "blue" } } });
    site.apply(alert("apps", json!({ "eventSources": [source] }))).await?;
    let all = [("shop", None), ("other", None), ("apps", None), ("not-there", None)];
    tell(&alerted, &all).await?;
    ensure!(alerted.sink.messages() == ["shop on none"], "{:?}", alerted.sink.messages());
    // The label goes to another one.
    label(&alerted, "Namespace", "shop", json!({})).await?;
    label(&alerted, "Namespace", "other", json!({ "team": "blue" })).await?;
    tell(&alerted, &all).await?;
    ensure!(alerted.sink.messages()[1..] == ["other on none"], "{:?}", alerted.sink.messages());
    // The label that is a namespace's name needs nobody who writes it.
    let named = json!({ "kind": "Kustomization", "name": "*", "namespace": "*", "namespaceSelector":
        { "matchExpressions": [{ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["shop", "other"] }] } });
    site.apply(alert("apps", json!({ "eventSources": [named] }))).await?;
    tell(&alerted, &all).await?;
    ensure!(alerted.sink.messages()[2..] == ["apps on none"], "{:?}", alerted.sink.messages());
    Ok(())
}

#[tokio::test]
async fn an_alert_hears_of_clusters_with_a_label_only() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    for cluster in ["edge-1", "edge-2"] {
        site.cluster(cluster, json!([{ "namespace": "apps", "agentRights": true }])).await?;
    }
    label(&alerted, "Cluster", "edge-2", json!({ "env": "production" })).await?;
    let of = |operator: &str| {
        json!({ "eventSources": [{ "kind": "Kustomization", "name": "*", "clusterSelector":
            { "matchExpressions": [{ "key": "env", "operator": operator }] } }] })
    };
    site.apply(alert("apps", of("Exists"))).await?;
    let all = [("apps", Some("edge-1")), ("apps", Some("edge-2")), ("apps", Some("gone")), ("apps", None)];
    tell(&alerted, &all).await?;
    ensure!(alerted.sink.messages() == ["apps on edge-2"], "{:?}", alerted.sink.messages());
    // What is about no cluster has no labels to be without.
    site.apply(alert("apps", of("DoesNotExist"))).await?;
    tell(&alerted, &all).await?;
    ensure!(alerted.sink.messages()[1..] == ["apps on edge-1"], "{:?}", alerted.sink.messages());
    Ok(())
}

#[tokio::test]
async fn selectors_that_mean_nothing_are_refused() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let refused = async |source: Value| {
        let mut source = source;
        (source["kind"], source["name"]) = (json!("Kustomization"), json!("*"));
        let answer = alerted.site.apply(alert("apps", json!({ "eventSources": [source] }))).await;
        answer.err().map(|error| format!("{error:#}")).unwrap_or_default()
    };
    let selector = json!({ "matchLabels": { "team": "blue" } });
    let why = refused(json!({ "namespaceSelector": selector })).await;
    ensure!(
        why.contains("spec.eventSources[0].namespaceSelector") && why.contains("set namespace to '*'"),
        "{why}"
    );
    let bad = json!({ "matchExpressions": [{ "key": "a", "operator": "Like" }] });
    let why = refused(json!({ "clusterSelector": bad })).await;
    ensure!(why.contains("spec.eventSources[0].clusterSelector.matchExpressions[0].operator"), "{why}");
    let many: serde_json::Map<String, Value> =
        (0..51).map(|number| (format!("l{number}"), json!("x"))).collect();
    let why = refused(json!({ "clusterSelector": { "matchLabels": many } })).await;
    ensure!(why.contains("at most 50 labels in all"), "{why}");
    Ok(())
}

/// The two teams of the kustomize-controller's specification: one hears of all failures in a namespace, the other of one app wherever it is.
#[tokio::test]
async fn one_team_hears_of_a_namespace_and_another_of_an_app_no_matter_the_namespace() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    for namespace in ["prod", "staging", "team-frontend"] {
        site.namespace(namespace).await?;
    }
    let to = |namespace: &str, path: &str| {
        provider(namespace, json!({ "type": "generic", "address": format!("{}/{path}", alerted.sink.url) }))
    };
    site.apply(to("prod", "on-call")).await?;
    let all = json!([{ "kind": "Kustomization", "name": "*" }]);
    site.apply(alert("prod", json!({ "eventSources": all, "eventSeverity": "error" }))).await?;
    // The frontend team may get its app everywhere, and nothing else.
    let member = site.member("team-frontend").await?;
    let group = "rbac.authorization.k8s.io";
    let named = |kind: &str| json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": { "name": "frontend" } });
    let mut role = named("ClusterRole");
    role["rules"] = json!([{ "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"],
        "resourceNames": ["frontend"], "verbs": ["get"] }]);
    site.apply(role).await?;
    let mut binding = named("ClusterRoleBinding");
    binding["roleRef"] = json!({ "apiGroup": group, "kind": "ClusterRole", "name": "frontend" });
    binding["subjects"] = json!([{ "kind": "User", "apiGroup": group, "name": "admin-of-team-frontend" }]);
    site.apply(binding).await?;
    eventually("the right is known", std::time::Duration::from_secs(10), async || {
        Ok(member.authorize("get", KindId::Kustomization.get(), "", "prod", "frontend")?)
    })
    .await?;
    site.apply_as(&member, to("team-frontend", "frontend")).await?;
    let app = json!([{ "kind": "Kustomization", "name": "frontend", "namespace": "*" }]);
    site.apply_as(&member, alert("team-frontend", json!({ "eventSources": app }))).await?;
    let mut tx = site.store.begin().await?;
    for (namespace, name, severity) in [
        ("prod", "frontend", "error"),
        ("prod", "backend", "error"),
        ("prod", "backend", "info"),
        ("staging", "frontend", "info"),
        ("staging", "backend", "error"),
    ] {
        tx.tell(news(namespace, name, &format!("{namespace}/{name} {severity}"), severity));
    }
    tx.commit().await?;
    for namespace in ["prod", "team-frontend"] {
        pass(&alerted.hub, site, namespace).await?;
    }
    let heard = |path: &str| {
        let of =
            alerted.sink.got().into_iter().filter(|(head, _)| head.starts_with(&format!("post /{path} ")));
        of.map(|(_, event)| event["message"].clone()).collect::<Vec<Value>>()
    };
    ensure!(heard("on-call") == ["prod/frontend error", "prod/backend error"], "{:?}", heard("on-call"));
    ensure!(heard("frontend") == ["prod/frontend error", "staging/frontend info"], "{:?}", heard("frontend"));
    Ok(())
}
