//! Objects that go from one applier to another, as the inventory and the attempts of both know it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_hub_store::{AttemptInputs, Key, Sealer, Store};
use roadstead_model::{
    Action, ApplierRef, ApplierUid, Attempt, AttemptKind, ChangeSet, ClusterUid, Digest, DispatchSpec,
    DriftMode, Generation, Group, ObjectRef, ObjectResult, Offline, Purpose, StepKind,
};
use roadstead_tests::TestDatabase;

fn map(name: &str) -> ObjectRef {
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "apps".to_owned(),
        name: name.to_owned(),
    }
}

/// Opens another attempt of an applier.
async fn opened(store: &Store, applier: ApplierUid, cluster: ClusterUid) -> Result<Attempt> {
    let now = store.now().await?;
    let build = Digest::of(b"build");
    let inputs = AttemptInputs {
        applier,
        cluster: Some(cluster),
        generation: Generation(1),
        revision: None,
        artifact: None,
        build: Some(build),
        request: None,
        kind: AttemptKind::Apply,
        trigger: None,
        rendered_by: Default::default(),
        started: now,
    };
    let spec = DispatchSpec {
        applier: ApplierRef::kustomization("apps", "new"),
        purpose: Purpose::Reconcile,
        full: false,
        drift: DriftMode::Correct,
        observe: false,
        offline: Offline::default(),
        health: Vec::new(),
        guard: None,
        default_namespace: None,
        service_account: None,
        timeout: Duration::from_secs(60),
        groups: vec![Group::of(build)],
        steps: vec![StepKind::Apply { group: 0 }.into()],
    };
    let mut tx = store.begin().await?;
    let attempt = tx.open_reconciliation(&inputs, &spec, now, &ChangeSet::new()).await?;
    tx.commit().await?;
    Ok(attempt)
}

#[tokio::test]
async fn an_attempt_that_did_not_know_of_it_does_not_settle_what_was_handed_over() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let (old, new, cluster) = (ApplierUid::random(), ApplierUid::random(), ClusterUid::random());
    let mut tx = store.begin().await?;
    ensure!(tx.announce(cluster, old, &[map("stays"), map("goes")]).await?.is_empty());
    tx.commit().await?;
    let first = opened(&store, new, cluster).await?;

    let mut tx = store.begin().await?;
    let went =
        tx.hand_over(cluster, (old, "Kustomization apps/old"), new, &[map("goes"), map("none")]).await?;
    tx.commit().await?;
    ensure!(went == [map("goes")], "{went:?}");
    ensure!(store.inventory(cluster, old).await? == [map("stays")]);
    ensure!(store.holdings(new).await?.handed && !store.holdings(old).await?.handed);
    // Nothing goes twice.
    let mut tx = store.begin().await?;
    let again = tx.hand_over(cluster, (old, "Kustomization apps/old"), new, &[map("goes")]).await?;
    ensure!(again.is_empty(), "{again:?}");
    // The attempt that was under way owned nothing of it, and ends.
    tx.settle(cluster, new, first, &[]).await?;
    tx.commit().await?;
    ensure!(store.inventory(cluster, new).await? == [map("goes")], "it would be nobody's");

    // The next one knows of it, and says so.
    let second = opened(&store, new, cluster).await?;
    ensure!(!store.holdings(new).await?.handed);
    let history = store.history(new, 1).await?;
    let newest = history.first().context("an attempt")?;
    let other = Some("Kustomization apps/old".to_owned());
    let told = [ObjectResult { object: map("goes"), action: Action::TakenOver, other }];
    ensure!(newest.change_set == told, "{:?}", newest.change_set);
    let mut tx = store.begin().await?;
    tx.settle(cluster, new, second, &[map("goes")]).await?;
    tx.commit().await?;
    ensure!(store.inventory(cluster, new).await? == [map("goes")]);
    // From now on it is like any other.
    let third = opened(&store, new, cluster).await?;
    ensure!(store.history(new, 1).await?.first().is_some_and(|newest| newest.change_set.is_empty()));
    let mut tx = store.begin().await?;
    tx.settle(cluster, new, third, &[]).await?;
    tx.commit().await?;
    ensure!(store.inventory(cluster, new).await?.is_empty());
    Ok(())
}
