//! What agents tell of health: what the hub makes of it, and of what it passes over.

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use anyhow::{Context as _, Result};
use roadstead_model::{Attempt, ChangeSet, DispatchKey, InventoryFilter};
use roadstead_proto::v1;
use roadstead_proto::v1::agent_message::Body as Said;
use roadstead_proto::v1::hub_message::Body as Say;
use serde_json::Value;

use support::{PATIENCE, Session, Site, spec_of};

fn config_map(name: &str) -> v1::ObjectRef {
    v1::ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// The agent owns `one`, and has not ended yet.
async fn begun(session: &mut Session, key: &DispatchKey) -> Result<()> {
    session.expect(|body| matches!(body, Say::Dispatch(_)).then_some(())).await?;
    let (key, objects) = (Some(key.clone().into()), vec![config_map("one")]);
    session.send(Said::InventoryIntent(v1::InventoryIntent { key, objects })).await?;
    session.expect(|body| matches!(body, Say::InventoryAck(_)).then_some(())).await
}

async fn ended(session: &mut Session, key: &DispatchKey) -> Result<()> {
    let (key, inventory) = (Some(key.clone().into()), vec![config_map("one")]);
    session.send(Said::Finished(v1::Finished { key, inventory, ..v1::Finished::default() })).await?;
    session.handled().await
}

async fn tell(session: &mut Session, key: &DispatchKey, state: v1::HealthState, message: &str) -> Result<()> {
    let health = |name: &str| v1::ObjectHealth {
        object: Some(config_map(name)),
        status: "Failed".to_owned(),
        message: message.to_owned(),
    };
    let report = v1::HealthReport {
        key: Some(key.clone().into()),
        state: state.into(),
        message: message.to_owned(),
        recovered: false,
        objects: vec![health("one"), health("elsewhere")],
    };
    session.send(Said::HealthReport(report)).await?;
    session.handled().await
}

/// The condition Healthy, as `False HealthCheckFailed: why`, and the version of the object.
async fn healthy(site: &Site, key: &DispatchKey) -> Result<(String, i64)> {
    let stored = site.store.get_by_uid(key.applier.into()).await?.context("it is there")?;
    let conditions = stored.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let found = conditions.iter().find(|condition| condition["type"] == "Healthy").map(|healthy| {
        format!("{} {}: {}", text(healthy, "status"), text(healthy, "reason"), text(healthy, "message"))
    });
    Ok((found.unwrap_or_default(), stored.resource_version))
}

/// What views show of the objects.
async fn shown(site: &Site) -> Result<Vec<(String, String)>> {
    let filter = InventoryFilter::default();
    let found = site.store.search_inventory(&filter, None, None, 100).await?;
    Ok(found.into_iter().map(|owned| (owned.object.name, owned.health.unwrap_or_default())).collect())
}

#[tokio::test]
async fn health_is_taken_of_what_was_sent_last_and_by_whom_it_was_sent_to() -> Result<()> {
    use v1::HealthState::{Failing, Healthy, Progressing, Waiting};
    let site = Site::new().await?;
    let (agent, other) = (site.joined("a").await?, site.joined("b").await?);
    let mut session = site.session(&agent).await?;
    let key = site.dispatch(agent.cluster, "waits-for-health", &["one"]).await?;
    begun(&mut session, &key).await?;

    // While it waits, what it waits for; and nothing of what comes after.
    tell(&mut session, &key, Failing, "too early").await?;
    assert_eq!(healthy(&site, &key).await?.0, "");
    tell(&mut session, &key, Waiting, "ConfigMap one: soon").await?;
    let (waits, _) = healthy(&site, &key).await?;
    assert!(waits.starts_with("Unknown Progressing: Running health checks for revision "), "{waits}");
    assert!(waits.ends_with(": ConfigMap one: soon"), "{waits}");
    ended(&mut session, &key).await?;
    assert!(healthy(&site, &key).await?.0.starts_with("True Succeeded: Health check passed in "));
    tell(&mut session, &key, Waiting, "too late").await?;
    assert!(healthy(&site, &key).await?.0.starts_with("True "));

    // After it, what has become of it.
    tell(&mut session, &key, Failing, "ConfigMap one has failed: x").await?;
    let (failed, version) = healthy(&site, &key).await?;
    assert_eq!(failed, "False HealthCheckFailed: ConfigMap one has failed: x");
    let views = [("one".to_owned(), "Failed: ConfigMap one has failed: x".to_owned())];
    assert_eq!(shown(&site).await?, views, "of what it does not own nothing is shown");
    tell(&mut session, &key, Failing, "ConfigMap one has failed: x").await?;
    assert_eq!(healthy(&site, &key).await?.1, version, "the same once more costs no write");

    // By another cluster's agent, of another attempt or another dispatch of its number, of another epoch.
    let mut foreign = site.session(&other).await?;
    tell(&mut foreign, &key, Healthy, "").await?;
    let older = DispatchKey { attempt: Attempt(key.attempt.0 - 1), digest: None, ..key.clone() };
    tell(&mut session, &older, Healthy, "").await?;
    let restored =
        DispatchKey { epoch: roadstead_model::HubEpoch(key.epoch.0 + 1), digest: None, ..key.clone() };
    tell(&mut session, &restored, Healthy, "").await?;
    assert_eq!(healthy(&site, &key).await?, (failed, version));

    // A newer one takes its place.
    let newest = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?;
    let (spec, now) = (spec_of("waits-for-health", newest.inputs.build.context("a build")?), site.hub.now());
    let inputs = roadstead_hub_store::AttemptInputs { started: now, ..newest.inputs };
    let mut tx = site.store.begin().await?;
    tx.open_reconciliation(&inputs, &spec, now + PATIENCE, &ChangeSet::new()).await?;
    tx.commit().await?;
    tell(&mut session, &key, Progressing, "of the older one").await?;
    assert_eq!(healthy(&site, &key).await?.1, version);
    Ok(())
}

#[tokio::test]
async fn where_nobody_asks_for_health_views_show_it_and_no_condition_does() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let mut session = site.session(&agent).await?;
    let key = site.dispatch(agent.cluster, "web", &["one"]).await?;
    begun(&mut session, &key).await?;
    ended(&mut session, &key).await?;
    let before = healthy(&site, &key).await?;
    tell(&mut session, &key, v1::HealthState::Failing, "x").await?;
    assert_eq!(healthy(&site, &key).await?, before);
    assert_eq!(shown(&site).await?, [("one".to_owned(), "Failed: x".to_owned())]);
    Ok(())
}
