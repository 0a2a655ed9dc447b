//! Sources that select namespaces and clusters by their labels.

use anyhow::{Result, ensure};
use roadstead_hub_store::NewsItem;
use serde_json::{Value, json};

use super::{Alerted, alert, news};

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
