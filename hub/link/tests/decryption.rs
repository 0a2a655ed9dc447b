//! What agents tell of what they decrypted: files whose MACs do not fit, and keys of the cluster that have changed.

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use anyhow::{Context as _, Result};
use roadstead_api::KindId;
use roadstead_hub_store::AttemptInputs;
use roadstead_model::{Attempt, ChangeSet, DispatchKey, ResourceUid};
use roadstead_proto::v1;
use roadstead_proto::v1::agent_message::Body as Said;
use roadstead_proto::v1::hub_message::Body as Say;

use support::{Session, Site, spec_of};

const WARNING: &str = "Secret/default/settings, value 'settings.json': MAC mismatch: restore the file";

/// Applies nothing for a Kustomization, and tells this.
async fn applied(session: &mut Session, key: &DispatchKey, warnings: &[&str]) -> Result<()> {
    session.expect(|body| matches!(body, Say::Dispatch(_)).then_some(())).await?;
    finished(session, key, warnings).await
}

async fn finished(session: &mut Session, key: &DispatchKey, warnings: &[&str]) -> Result<()> {
    let warnings = warnings.iter().map(|&warning| warning.to_owned()).collect();
    let finished = v1::Finished { key: Some(key.clone().into()), warnings, ..v1::Finished::default() };
    session.send(Said::Finished(finished)).await?;
    session.handled().await
}

/// Another attempt at the same.
async fn again(site: &Site, key: &DispatchKey, name: &str) -> Result<DispatchKey> {
    let newest = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?;
    let spec = spec_of(name, newest.inputs.build.context("a build")?);
    let now = site.hub.now();
    let inputs = AttemptInputs { started: now, ..newest.inputs };
    let mut tx = site.store.begin().await?;
    let deadline = now + std::time::Duration::from_secs(600);
    let attempt = tx.open_reconciliation(&inputs, &spec, deadline, &ChangeSet::new()).await?;
    tx.commit().await?;
    Ok(DispatchKey { attempt, digest: Some(spec.digest()), ..key.clone() })
}

/// The message of a condition; nothing where there is none.
async fn said(site: &Site, key: &DispatchKey, type_: &str) -> Result<String> {
    let stored = site.store.get_by_uid(ResourceUid::from(key.applier)).await?.context("it is there")?;
    let conditions = stored.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_);
    Ok(found.map_or_else(String::new, |found| found["message"].as_str().unwrap_or_default().to_owned()))
}

/// The Events of one reason: type, message and count.
async fn events(site: &Site, reason: &str) -> Result<Vec<(String, String, i64)>> {
    let all = site.store.begin().await?.list(KindId::Event, "default").await?;
    let of_reason = all.into_iter().map(|event| event.object).filter(|event| event["reason"] == reason);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let told = of_reason.map(|event| {
        (text(&event["type"]), text(&event["message"]), event["count"].as_i64().unwrap_or_default())
    });
    Ok(told.collect())
}

#[tokio::test]
async fn what_does_not_fit_its_mac_is_told_by_a_warning() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let mut session = site.session(&agent).await?;
    let fine = site.dispatch(agent.cluster, "fine", &[]).await?;
    applied(&mut session, &fine, &[]).await?;
    assert_eq!(events(&site, "MacNotVerified").await?, []);

    let key = site.dispatch(agent.cluster, "web", &[]).await?;
    applied(&mut session, &key, &[WARNING]).await?;
    let ready = said(&site, &key, "Ready").await?;
    assert!(ready.starts_with("Applied revision: ") && !ready.contains("MAC"), "{ready}");
    let unverified = said(&site, &key, "MacNotVerified").await?;
    assert!(unverified.contains(WARNING), "{unverified}");
    let told = events(&site, "MacNotVerified").await?;
    let [(kind, message, 1)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(kind, "Warning");
    assert!(message.contains(WARNING) && message.contains("spec.decryption.mac"), "{message}");

    // The same of the next attempt is the same Event, and something else is another one.
    let key = again(&site, &key, "web").await?;
    applied(&mut session, &key, &[WARNING]).await?;
    let told = events(&site, "MacNotVerified").await?;
    assert!(matches!(told.as_slice(), [(_, _, 2)]), "{told:?}");
    let key = again(&site, &key, "web").await?;
    applied(&mut session, &key, &[WARNING, "another"]).await?;
    let told = events(&site, "MacNotVerified").await?;
    assert!(told.len() == 2 && told.iter().any(|(_, message, _)| message.contains("; another")), "{told:?}");
    // Once all files are whole, nothing is said of it.
    let key = again(&site, &key, "web").await?;
    applied(&mut session, &key, &[]).await?;
    assert_eq!(said(&site, &key, "MacNotVerified").await?, "");
    Ok(())
}

#[tokio::test]
async fn changed_keys_of_the_cluster_make_the_newest_attempt_one_of_the_past() -> Result<()> {
    let site = Site::new().await?;
    let (agent, other) = (site.joined("a").await?, site.joined("b").await?);
    let mut session = site.session(&agent).await?;
    let key = site.dispatch(agent.cluster, "web", &[]).await?;
    let tell = |key: &DispatchKey| Said::KeysChanged(v1::KeysChanged { key: Some(key.clone().into()) });
    let is_outdated = async || {
        let newest = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?;
        anyhow::Ok(newest.inputs.rendered_by.contains_key("cluster-keys"))
    };
    // Of an attempt that is under way, and by another cluster's agent, it says nothing.
    session.expect(|body| matches!(body, Say::Dispatch(_)).then_some(())).await?;
    session.send(tell(&key)).await?;
    session.handled().await?;
    assert!(!is_outdated().await?);
    finished(&mut session, &key, &[]).await?;
    let mut foreign = site.session(&other).await?;
    foreign.send(tell(&key)).await?;
    foreign.handled().await?;
    let older = DispatchKey { attempt: Attempt(key.attempt.0 - 1), digest: None, ..key.clone() };
    session.send(tell(&older)).await?;
    session.handled().await?;
    assert!(!is_outdated().await?);
    // It is said again in each session.
    for _ in 0..2 {
        session.send(tell(&key)).await?;
        session.handled().await?;
        assert!(is_outdated().await?);
    }
    Ok(())
}
