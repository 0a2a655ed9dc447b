//! Ignored fields, objects that are ignored as a whole, and health by expressions, against a real apiserver.

#[cfg(test)]
#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use roadstead_apply::{Event, HealthRules, Run};
use roadstead_model::{Action, HealthExpr, IgnoreRule, IgnoreTarget};
use serde_json::{Value, json};
use support::{Fixture, annotated, config_map, deployment, only_action};
use tokio::time::Instant;

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn replicas() -> Vec<IgnoreRule> {
    let target = IgnoreTarget { kind: Some("Deployment".to_owned()), ..IgnoreTarget::default() };
    vec![IgnoreRule { paths: vec!["/spec/replicas".to_owned()], target: Some(target) }]
}

fn web(fixture: &Fixture) -> String {
    format!("/apis/apps/v1/namespaces/{}/deployments/web", fixture.namespace)
}

/// Who applies a Deployment's replicas.
fn owners_of_replicas(live: &Value) -> Vec<&str> {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .filter(|entry| entry["operation"] == "Apply")
        .filter(|entry| entry["fieldsV1"]["f:spec"].get("f:replicas").is_some())
        .filter_map(|entry| entry["manager"].as_str())
        .collect()
}

#[tokio::test]
async fn an_ignored_field_is_applied_once_and_then_left_as_it_is() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (path, rules) = (web(&fixture), replicas());
    let created = fixture.apply_ignoring(&rules, &[], &[deployment("web", 2, &json!({}))]).await;
    assert_eq!(only_action(&created), Action::Created);
    assert_eq!(fixture.get(&path).await?["spec"]["replicas"], 2);
    fixture.until(&path, "/metadata/annotations/deployment.kubernetes.io~1revision").await?;

    let scaled = json!({"spec": {"replicas": 5}});
    fixture.request_as("PATCH", &path, MERGE, Some(&scaled)).await?;
    let same = fixture.apply_ignoring(&rules, &created.inventory, &[deployment("web", 2, &json!({}))]).await;
    assert_eq!(only_action(&same), Action::Unchanged);
    assert_eq!(fixture.get(&path).await?["spec"]["replicas"], 5);

    // Another difference is written, and the field stays; also if somebody scales just before the write.
    fixture.meddling.lock().unwrap().push((path.clone(), json!({"spec": {"replicas": 7}})));
    let changed = [deployment("web", 2, &json!({"a": "1"}))];
    let outcome = fixture.apply_ignoring(&rules, &created.inventory, &changed).await;
    assert_eq!(only_action(&outcome), Action::Configured);
    let live = fixture.get(&path).await?;
    assert_eq!(live["spec"]["replicas"], 7);
    assert_eq!(live["spec"]["template"]["metadata"]["annotations"]["a"], "1");

    // Without the rule it is drift.
    let outcome = fixture.apply_after(&created.inventory, &changed).await;
    assert_eq!(only_action(&outcome), Action::Configured);
    assert_eq!(fixture.get(&path).await?["spec"]["replicas"], 2);
    Ok(())
}

#[tokio::test]
async fn an_ignored_field_that_another_applies_is_no_longer_ours() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (path, rules) = (web(&fixture), replicas());
    let created = fixture.apply_ignoring(&rules, &[], &[deployment("web", 2, &json!({}))]).await;
    fixture.until(&path, "/metadata/annotations/deployment.kubernetes.io~1revision").await?;
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 4}});
    fixture
        .request_as("PATCH", &format!("{path}?fieldManager=scaler&force=true"), APPLY, Some(&other))
        .await?;

    let changed = [deployment("web", 2, &json!({"a": "1"}))];
    let outcome = fixture.apply_ignoring(&rules, &created.inventory, &changed).await;
    assert_eq!(only_action(&outcome), Action::Configured);
    let live = fixture.get(&path).await?;
    assert_eq!(live["spec"]["replicas"], 4);
    assert_eq!(owners_of_replicas(&live), ["scaler"]);
    Ok(())
}

#[tokio::test]
async fn ignored_fields_of_lists_and_fields_that_are_no_longer_desired_stay() -> Result<()> {
    let fixture = Fixture::new().await?;
    let path = web(&fixture);
    let rules = [IgnoreRule {
        paths: vec![
            "/spec/template/spec/containers/0/image".to_owned(),
            "/metadata/annotations/note".to_owned(),
            "/metadata/labels/none".to_owned(),
        ],
        target: None,
    }];
    let mut desired = deployment("web", 1, &json!({}));
    desired["metadata"]["annotations"] = json!({"note": "ours"});
    let created = fixture.apply_ignoring(&rules, &[], &[desired]).await;
    assert_eq!(only_action(&created), Action::Created);
    fixture.until(&path, "/metadata/annotations/deployment.kubernetes.io~1revision").await?;

    let image =
        json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "web:9"}]);
    fixture.request_as("PATCH", &path, "application/json-patch+json", Some(&image)).await?;
    // The annotation is not desired any more.
    let desired = deployment("web", 1, &json!({}));
    let same = fixture.apply_ignoring(&rules, &created.inventory, &[desired]).await;
    assert_eq!(only_action(&same), Action::Unchanged);

    let changed = [deployment("web", 3, &json!({}))];
    let outcome = fixture.apply_ignoring(&rules, &created.inventory, &changed).await;
    assert_eq!(only_action(&outcome), Action::Configured);
    let live = fixture.get(&path).await?;
    assert_eq!(live["spec"]["replicas"], 3);
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "web:9");
    assert_eq!(live["metadata"]["annotations"]["note"], "ours");
    Ok(())
}

#[tokio::test]
async fn an_object_that_says_ignore_is_not_pruned() -> Result<()> {
    let fixture = Fixture::new().await?;
    let created = fixture.apply(&[config_map("a", "1"), config_map("b", "1")]).await;
    let marked = annotated(json!({"metadata": {}}), "ssa", "Ignore");
    fixture.request_as("PATCH", &fixture.core("configmaps", "a"), MERGE, Some(&marked)).await?;
    let outcome = fixture.prune(&created.inventory, &[]).await;
    assert_eq!(support::actions(&outcome), ["ConfigMap/a skipped", "ConfigMap/b deleted"]);
    assert_eq!(fixture.get(&fixture.core("configmaps", "a")).await?["data"]["k"], "1");
    Ok(())
}

#[tokio::test]
async fn waiting_asks_the_expressions() -> Result<()> {
    let mut fixture = Fixture::new().await?;
    let rules = HealthRules::new(&[HealthExpr {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        current: "data.k == 'ready'".to_owned(),
        failed: Some("data.k == 'broken'".to_owned()),
        in_progress: None,
    }])?;
    fixture.engine = fixture.engine.with_health(Arc::new(rules));
    let created = fixture.apply(&[config_map("a", "starting")]).await;
    let path = fixture.core("configmaps", "a");
    let waited = fixture.wait(&created.inventory, Duration::from_secs(1)).await;
    assert!(waited.error.is_some());

    // It becomes ready once it was seen that it is not.
    let (seen, sees) = tokio::sync::oneshot::channel();
    let turn = async {
        sees.await.expect("it was looked at");
        fixture.request_as("PATCH", &path, MERGE, Some(&json!({"data": {"k": "ready"}}))).await
    };
    let mut seen = Some(seen);
    let mut events = |event| {
        if matches!(event, Event::Health { .. })
            && let Some(seen) = seen.take()
        {
            seen.send(()).expect("it is waited for");
        }
    };
    let mut run = Run::new(Instant::now() + Duration::from_secs(30), fixture.cancel.clone(), &mut events);
    let (waited, turned) = tokio::join!(fixture.engine.wait(&created.inventory, &mut run), turn);
    turned?;
    assert_eq!(waited.error, None);

    fixture.request_as("PATCH", &path, MERGE, Some(&json!({"data": {"k": "broken"}}))).await?;
    let waited = fixture.wait(&created.inventory, Duration::from_secs(30)).await;
    let error = waited.error.expect("it failed").to_string();
    assert!(error.contains("status: 'Failed'"), "{error}");
    Ok(())
}
