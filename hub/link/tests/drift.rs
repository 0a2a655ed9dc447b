//! What agents tell of objects that go on differing, and of what they do not do: what the hub makes of it, and of what it passes over.

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use anyhow::{Context as _, Result};
use roadstead_model::{Attempt, DispatchKey, DriftFilter, ResourceUid};
use roadstead_proto::v1;
use roadstead_proto::v1::agent_message::Body as Said;
use roadstead_proto::v1::hub_message::Body as Say;

use support::{Session, Site};

fn config_map(name: &str) -> v1::ObjectRef {
    v1::ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// Applies `one` and `two` for a Kustomization.
async fn applied(session: &mut Session, key: &DispatchKey) -> Result<()> {
    session.expect(|body| matches!(body, Say::Dispatch(_)).then_some(())).await?;
    let objects = vec![config_map("one"), config_map("two")];
    let intent = v1::InventoryIntent { key: Some(key.clone().into()), objects: objects.clone() };
    session.send(Said::InventoryIntent(intent)).await?;
    session.expect(|body| matches!(body, Say::InventoryAck(_)).then_some(())).await?;
    let finished =
        v1::Finished { key: Some(key.clone().into()), inventory: objects, ..v1::Finished::default() };
    session.send(Said::Finished(finished)).await?;
    session.handled().await
}

async fn tell(session: &mut Session, key: &DispatchKey, names: &[&str], state: v1::DriftState) -> Result<()> {
    let field = v1::FieldDrift {
        path: "/data/word".to_owned(),
        told: true,
        live: Some("\"by hand\"".to_owned()),
        desired: None,
    };
    let object = |name: &&str| v1::DriftedObject {
        object: Some(config_map(name)),
        state: state.into(),
        missing: false,
        managers: vec!["kubectl-edit".to_owned()],
        fields: vec![field.clone()],
        corrected: 0,
        message: String::new(),
    };
    let objects: Vec<_> = names.iter().map(object).collect();
    let total = u64::try_from(objects.len())?;
    session
        .send(Said::DriftReport(v1::DriftReport { key: Some(key.clone().into()), objects, total }))
        .await?;
    session.handled().await
}

/// A condition's reason and message; none where it is not there.
async fn says(site: &Site, uid: ResourceUid, type_: &str) -> Result<Option<String>> {
    let stored = site.store.get_by_uid(uid).await?.context("it is there")?;
    let conditions = stored.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    Ok(found.map(|found| format!("{}: {}", text(&found["reason"]), text(&found["message"]))))
}

async fn ongoing(site: &Site) -> Result<Vec<String>> {
    let filter = DriftFilter { ongoing: true, ..DriftFilter::default() };
    let mut names: Vec<String> =
        site.store.drift(&filter, None, 100).await?.into_iter().map(|drift| drift.object.name).collect();
    names.sort();
    Ok(names)
}

#[tokio::test]
async fn drift_is_taken_of_what_was_sent_last_and_is_owned() -> Result<()> {
    use v1::DriftState::{Contended, Reported};
    let site = Site::new().await?;
    let (agent, other) = (site.joined("a").await?, site.joined("b").await?);
    let mut session = site.session(&agent).await?;
    let key = site.dispatch(agent.cluster, "web", &["one", "two"]).await?;
    applied(&mut session, &key).await?;
    let uid = ResourceUid::from(key.applier);

    tell(&mut session, &key, &["one", "elsewhere"], Reported).await?;
    let want = "DriftDetected: 1 object differs from what was applied, and is left as it is: ConfigMap/default/one: /data/word \
                (changed by kubectl-edit)";
    assert_eq!(says(&site, uid, "Drifted").await?.as_deref(), Some(want));
    assert_eq!(ongoing(&site).await?, ["one"], "of what it does not own nothing is kept");
    let ready = says(&site, uid, "Ready").await?;

    // By another cluster's agent, and of another attempt.
    let mut foreign = site.session(&other).await?;
    tell(&mut foreign, &key, &["two"], Reported).await?;
    let older = DispatchKey { attempt: Attempt(key.attempt.0 + 7), digest: None, ..key.clone() };
    tell(&mut session, &older, &["two"], Reported).await?;
    assert_eq!(ongoing(&site).await?, ["one"]);

    // The newest report says everything.
    tell(&mut session, &key, &["two"], Contended).await?;
    assert_eq!(says(&site, uid, "Drifted").await?, None);
    assert!(
        says(&site, uid, "Contended").await?.is_some_and(|said| said.contains("default/two: /data/word"))
    );
    assert_eq!(ongoing(&site).await?, ["two"]);
    assert_eq!(says(&site, uid, "Ready").await?, ready, "drift has nothing to do with it");
    tell(&mut session, &key, &[], Reported).await?;
    assert_eq!((says(&site, uid, "Contended").await?, ongoing(&site).await?.len()), (None, 0));
    Ok(())
}

#[tokio::test]
async fn a_cluster_says_what_its_agent_does_not_do_for_as_long_as_the_session_lasts() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let cluster = ResourceUid::from(agent.cluster);
    let mut session = site.session(&agent).await?;
    let unwatched = v1::Unwatched {
        what: "ConfigMap in dev".to_owned(),
        account: "dev/blind".to_owned(),
        why: "forbidden".to_owned(),
    };
    let state =
        v1::AgentState { paused: true, unwatched: vec![unwatched], total: 3, corrected: 4, watched: 2 };
    session.send(Said::AgentState(state)).await?;
    session.handled().await?;
    assert!(says(&site, cluster, "Paused").await?.is_some_and(|said| said.starts_with("PausedInCluster: ")));
    let watched = says(&site, cluster, "Watched").await?.unwrap_or_default();
    assert!(
        watched.ends_with("ConfigMap in dev as service account dev/blind (forbidden); and 2 more"),
        "{watched}"
    );
    let offline = async || -> Result<serde_json::Value> {
        let stored = site.store.get_by_uid(cluster).await?.context("it is there")?;
        Ok(stored.object["status"]["offline"].clone())
    };
    assert_eq!(offline().await?, serde_json::json!({"corrected": 4, "onlyWatched": 2}));
    session.send(Said::AgentState(v1::AgentState::default())).await?;
    session.handled().await?;
    assert!(offline().await?.is_null());
    assert_eq!((says(&site, cluster, "Paused").await?, says(&site, cluster, "Watched").await?), (None, None));

    // Another process may be another version, which says nothing of the kind.
    session.send(Said::AgentState(v1::AgentState { paused: true, ..v1::AgentState::default() })).await?;
    session.handled().await?;
    assert!(says(&site, cluster, "Paused").await?.is_some());
    drop(session);
    let _next = site.session(&agent).await?;
    assert_eq!(says(&site, cluster, "Paused").await?, None);
    Ok(())
}
