//! What agents do by themselves between dispatches: what the hub records of it, and what it says to it.

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::time::Duration;

use anyhow::{Context as _, Result};
use roadstead_hub_store::{AttemptInputs, FleetAttempt, TendedState};
use roadstead_model::{AttemptFilter, ChangeSet, ClusterUid, Digest, DispatchKey};
use roadstead_proto::v1;
use roadstead_proto::v1::agent_message::Body as Said;
use roadstead_proto::v1::hub_message::Body as Say;
use tokio::time::{Instant, sleep};

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

/// Applies `one` and `two` for a Kustomization.
async fn applied(site: &Site, cluster: ClusterUid, name: &str, session: &mut Session) -> Result<DispatchKey> {
    let key = site.dispatch(cluster, name, &["one", "two"]).await?;
    session.expect(|body| matches!(body, Say::Dispatch(_)).then_some(())).await?;
    let objects = vec![config_map("one"), config_map("two")];
    let inventory = objects.clone();
    session
        .send(Said::InventoryIntent(v1::InventoryIntent { key: Some(key.clone().into()), objects }))
        .await?;
    session.expect(|body| matches!(body, Say::InventoryAck(_)).then_some(())).await?;
    let finished = v1::Finished { key: Some(key.clone().into()), inventory, ..v1::Finished::default() };
    session.send(Said::Finished(finished)).await?;
    session.handled().await?;
    Ok(key)
}

fn correction(key: &DispatchKey, names: &[&str]) -> Said {
    corrected(key, names, Duration::from_secs(1), 0)
}

/// What was corrected so long ago; so many before it are not told.
fn corrected(key: &DispatchKey, names: &[&str], ago: Duration, forgotten: u64) -> Said {
    let object = |name: &&str| v1::CorrectedObject {
        object: Some(config_map(name)),
        action: v1::Action::Configured.into(),
        managers: vec!["kubectl-edit".to_owned()],
        fields: vec!["/data/word".to_owned()],
        drift: Vec::new(),
    };
    Said::Correction(v1::Correction {
        key: Some(key.clone().into()),
        ago_millis: u64::try_from(ago.as_millis()).unwrap_or(u64::MAX),
        micros: 5_000,
        objects: names.iter().map(object).collect(),
        forgotten,
    })
}

async fn drift(site: &Site) -> Result<Vec<FleetAttempt>> {
    let filter = AttemptFilter {
        applier_kind: String::new(),
        applier_namespace: String::new(),
        applier: String::new(),
        cluster: String::new(),
        failed: false,
        drift: true,
        before: None,
    };
    Ok(site.store.attempts(&filter, None, 100).await?)
}

#[tokio::test]
async fn a_correction_is_recorded_of_what_is_owned_and_was_applied_last() -> Result<()> {
    let site = Site::new().await?;
    let (agent, other) = (site.joined("a").await?, site.joined("b").await?);
    let mut session = site.session(&agent).await?;
    let key = applied(&site, agent.cluster, "web", &mut session).await?;

    session.send(correction(&key, &["one", "elsewhere"])).await?;
    session.handled().await?;
    let recorded = drift(&site).await?;
    let [only] = recorded.as_slice() else { anyhow::bail!("{recorded:#?}") };
    assert_eq!(only.attempt, key.attempt.0 + 1);
    assert_eq!(only.message, "Corrected ConfigMap/default/one: /data/word (changed by kubectl-edit)");
    assert_eq!(only.change_set.len(), 1, "what it does not own is left out: {only:#?}");
    // What follows at once is added to it.
    session.send(correction(&key, &["two"])).await?;
    session.handled().await?;
    let recorded = drift(&site).await?;
    assert_eq!(recorded.len(), 1, "{recorded:#?}");
    assert_eq!(recorded[0].change_set.len(), 2, "{recorded:#?}");

    // Of something else than what was applied last, and by another cluster's agent, nothing is recorded.
    let unknown = DispatchKey {
        attempt: roadstead_model::Attempt(77),
        digest: Some(Digest::of(b"another")),
        ..key.clone()
    };
    session.send(correction(&unknown, &["one"])).await?;
    session.handled().await?;
    let mut foreign = site.session(&other).await?;
    foreign.send(correction(&key, &["one"])).await?;
    foreign.handled().await?;
    let after = drift(&site).await?;
    assert_eq!(after.len(), 1, "{after:#?}");
    assert_eq!(after[0].change_set.len(), 2, "{after:#?}");
    Ok(())
}

/// What happened while the hub was away stands in the history one by one, though all of it is told at the same moment.
#[tokio::test]
async fn what_is_told_late_is_recorded_as_of_when_it_happened() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let mut session = site.session(&agent).await?;
    let key = applied(&site, agent.cluster, "web", &mut session).await?;
    for (name, minutes, forgotten) in [("one", 60, 7), ("two", 30, 0)] {
        session.send(corrected(&key, &[name], Duration::from_secs(60 * minutes), forgotten)).await?;
        session.handled().await?;
    }
    let recorded = drift(&site).await?;
    let [later, earlier] = recorded.as_slice() else { anyhow::bail!("{recorded:#?}") };
    let begins =
        |attempt: &FleetAttempt, text: &str| assert!(attempt.message.starts_with(text), "{attempt:#?}");
    begins(later, "Corrected ConfigMap/default/two: ");
    begins(earlier, "Corrected ConfigMap/default/one: ");
    assert!(earlier.message.ends_with(
        "; 7 earlier corrections in the cluster are not recorded: too many waited while the hub was away"
    ));
    Ok(())
}

#[tokio::test]
async fn what_rests_is_told_in_each_session_until_it_is_dispatched_again() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let mut session = site.session(&agent).await?;
    let key = applied(&site, agent.cluster, "web", &mut session).await?;
    let mut tx = site.store.begin().await?;
    assert!(tx.rest(key.applier, agent.cluster, true).await?);
    assert!(!tx.rest(key.applier, agent.cluster, true).await?, "that is known");
    tx.commit().await?;
    let rests =
        |body| if let Say::Rest(rest) = body { Some((rest.applier_uid, rest.health_goes_on)) } else { None };
    assert_eq!(session.expect(rests).await?, (key.applier.to_string(), true));
    let mut session = site.session(&agent).await?;
    assert_eq!(session.expect(rests).await?, (key.applier.to_string(), true));
    // It is not suspended any more, but gone.
    let mut tx = site.store.begin().await?;
    assert!(tx.rest(key.applier, agent.cluster, false).await?);
    tx.commit().await?;
    assert_eq!(session.expect(rests).await?, (key.applier.to_string(), false));
    // The next dispatch has it tended again.
    let newest = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?;
    let (spec, now) = (spec_of("web", newest.inputs.build.context("a build")?), site.hub.now());
    let (inputs, deadline) = (AttemptInputs { started: now, ..newest.inputs }, now + PATIENCE);
    let mut tx = site.store.begin().await?;
    tx.open_reconciliation(&inputs, &spec, deadline, &ChangeSet::new()).await?;
    tx.commit().await?;
    session.expect(|body| matches!(body, Say::Dispatch(_)).then_some(())).await?;
    let mut session = site.session(&agent).await?;
    let first =
        session.expect(|body| matches!(body, Say::Dispatch(_) | Say::Rest(_)).then_some(body)).await?;
    assert!(matches!(first, Say::Dispatch(_)), "{first:?}");
    Ok(())
}

#[tokio::test]
async fn what_an_agent_tends_holds_for_its_session_and_its_cluster() -> Result<()> {
    let site = Site::new().await?;
    let (agent, other) = (site.joined("a").await?, site.joined("b").await?);
    let mut session = site.session(&agent).await?;
    let key = applied(&site, agent.cluster, "web", &mut session).await?;
    let uid = key.applier.to_string();
    let tended = |begun: &[&str], ended: &[&str]| {
        let texts = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect();
        Said::Tended(v1::Tended { begun: texts(begun), ended: texts(ended) })
    };
    let state = async || anyhow::Ok(site.store.holdings(key.applier).await?.tended);

    let mut foreign = site.session(&other).await?;
    foreign.send(tended(&[&uid], &[])).await?;
    foreign.handled().await?;
    assert_eq!(state().await?, None, "nothing was ever dispatched there");
    session.send(tended(&[&uid, &uuid::Uuid::nil().to_string()], &[])).await?;
    session.handled().await?;
    assert_eq!(state().await?, Some((agent.cluster, TendedState::Now)));
    foreign.send(tended(&[], &[&uid])).await?;
    foreign.handled().await?;
    assert_eq!(state().await?, Some((agent.cluster, TendedState::Now)), "another cluster's agent has no say");
    session.send(tended(&[], &[&uid])).await?;
    session.handled().await?;
    assert!(matches!(state().await?, Some((_, TendedState::Until(_)))));
    session.send(tended(&[&uid], &[])).await?;
    session.handled().await?;
    drop(session);
    let deadline = Instant::now() + PATIENCE;
    while !matches!(state().await?, Some((_, TendedState::UntilSessionEnded(_)))) {
        assert!(Instant::now() < deadline, "it ended with the session: {:?}", state().await?);
        sleep(Duration::from_millis(20)).await;
    }
    // The agent says it again; a text that is not a uid is refused.
    let mut session = site.session(&agent).await?;
    session.send(tended(&[&uid], &[])).await?;
    session.handled().await?;
    assert_eq!(state().await?, Some((agent.cluster, TendedState::Now)));
    session.send(tended(&["web"], &[])).await?;
    let refused = session.expect(|body| if let Say::Refused(refused) = body { Some(refused) } else { None });
    assert_eq!(refused.await?.what, "begun");
    Ok(())
}
