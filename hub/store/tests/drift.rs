//! Objects that differ, or differed, from what was applied.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_hub_store::{CorrectedDrift, FleetDrift, Key, Sealer, Store};
use roadstead_model::{
    ApplierUid, ClusterUid, Digest, DriftFilter, DriftState, DriftedObject, FieldDrift, FieldValues,
    ObjectRef,
};
use roadstead_tests::TestDatabase;
use uuid::Uuid;

struct Site {
    database: TestDatabase,
    store: Store,
    applier: ApplierUid,
    cluster: ClusterUid,
}

async fn site() -> Result<Site> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let (applier, cluster) = (Uuid::new_v4(), Uuid::new_v4());
    for (uid, kind, namespace, name) in
        [(applier, "Kustomization", "apps", "app"), (cluster, "Cluster", "", "edge")]
    {
        sqlx::query(
            "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
             VALUES ($1, $2, 'test', $3, $4, 1, 1, now(), '{}')",
        )
        .bind(uid)
        .bind(kind)
        .bind(namespace)
        .bind(name)
        .execute(&mut database.connect().await?)
        .await?;
    }
    Ok(Site { database, store, applier: ApplierUid(applier), cluster: ClusterUid(cluster) })
}

fn object(name: &str) -> ObjectRef {
    ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "dev".to_owned(),
        name: name.to_owned(),
    }
}

fn field(live: &str) -> Vec<FieldDrift> {
    let values = FieldValues { live: Some(live.to_owned()), desired: Some("git".to_owned()) };
    vec![FieldDrift { path: "/data/word".to_owned(), values: Some(values) }]
}

fn drifted(name: &str, state: DriftState) -> DriftedObject {
    DriftedObject {
        object: object(name),
        state,
        missing: false,
        managers: vec!["kubectl-edit".to_owned()],
        fields: field("by hand"),
        corrected: if state == DriftState::Contended { 5 } else { 0 },
        message: String::new(),
    }
}

impl Site {
    async fn correct(&self, name: &str, at: Timestamp) -> Result<()> {
        let (object, managers, fields) = (object(name), vec!["kubectl-edit".to_owned()], field("by hand"));
        let corrected =
            CorrectedDrift { object: &object, missing: false, managers: &managers, fields: &fields };
        let mut tx = self.store.begin().await?;
        tx.note_corrected(self.applier, self.cluster, &[corrected], at, at).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn tell(&self, drifted: &DriftedObject, at: Timestamp) -> Result<bool> {
        let mut tx = self.store.begin().await?;
        let news = tx.note_drifted(self.applier, self.cluster, &[drifted], at).await?;
        tx.commit().await?;
        Ok(news == [0])
    }

    async fn settle(&self, goes_on: &[ObjectRef], at: Timestamp) -> Result<bool> {
        let mut tx = self.store.begin().await?;
        let any = tx.settle_drift(self.applier, goes_on, at).await?;
        tx.commit().await?;
        Ok(any)
    }

    async fn all(&self) -> Result<Vec<FleetDrift>> {
        Ok(self.store.drift(&DriftFilter::default(), None, 100).await?)
    }
}

#[tokio::test]
async fn what_is_corrected_again_within_a_while_is_one_row() -> Result<()> {
    let site = site().await?;
    let now = site.store.now().await?;
    site.correct("map", now).await?;
    site.correct("map", now + Duration::from_secs(30)).await?;
    site.correct("other", now).await?;
    let all = site.all().await?;
    let map = all.iter().find(|drift| drift.object.name == "map");
    ensure!(all.len() == 2 && map.is_some_and(|map| map.corrections == 2 && map.ended.is_some()), "{all:#?}");
    // And then it turns out that somebody fights.
    let later = now + Duration::from_secs(60);
    ensure!(site.tell(&drifted("map", DriftState::Contended), later).await?);
    ensure!(!site.tell(&drifted("map", DriftState::Contended), later).await?, "it was known");
    site.correct("map", later + Duration::from_secs(30)).await?;
    let all = site.all().await?;
    let map = all.iter().find(|drift| drift.object.name == "map");
    let is_it = |map: &FleetDrift| {
        map.state.as_deref() == Some("contended")
            && map.ended.is_none()
            && map.corrections == 6
            && map.first_seen == now
    };
    ensure!(all.len() == 2 && map.is_some_and(is_it), "{all:#?}");
    // Long after it is something new.
    ensure!(site.settle(&[], later).await?);
    site.correct("map", now + Duration::from_secs(3_600)).await?;
    ensure!(site.all().await?.len() == 3);
    ensure!(site.store.trim_drift(1).await? == 2);
    let left = site.all().await?;
    ensure!(left.len() == 1 && left[0].corrections == 1 && left[0].object.name == "map", "{left:#?}");
    Ok(())
}

#[tokio::test]
async fn what_is_reported_goes_on_until_it_is_settled() -> Result<()> {
    let site = site().await?;
    let now = site.store.now().await?;
    for name in ["one", "two"] {
        ensure!(site.tell(&drifted(name, DriftState::Reported), now).await?, "{name}");
    }
    ensure!(!site.tell(&drifted("one", DriftState::Reported), now + Duration::from_secs(9)).await?);
    ensure!(
        site.tell(&drifted("one", DriftState::Failed), now + Duration::from_secs(9)).await?,
        "another reason"
    );
    // Several at once: only what is new among them is news.
    let (known, new) = (drifted("one", DriftState::Failed), drifted("three", DriftState::Reported));
    let mut tx = site.store.begin().await?;
    let news = tx.note_drifted(site.applier, site.cluster, &[&known, &new], now).await?;
    ensure!(news == [1], "{news:?}");
    drop(tx);
    let ongoing =
        |cluster: &str| DriftFilter { ongoing: true, cluster: cluster.to_owned(), ..DriftFilter::default() };
    ensure!(site.store.drift(&ongoing(""), None, 100).await?.len() == 2);
    ensure!(site.settle(&[object("two")], now).await?);
    let left = site.store.drift(&ongoing("edge"), None, 100).await?;
    ensure!(
        left.len() == 1 && left[0].object == object("two") && left[0].fields == field("by hand"),
        "{left:#?}"
    );
    ensure!(site.store.drift(&ongoing("another"), None, 100).await?.is_empty());
    ensure!(site.store.trim_drift(0).await? == 1, "what goes on is not forgotten");
    // With its applier it goes.
    sqlx::query("DELETE FROM resource WHERE name = 'app'")
        .execute(&mut site.database.connect().await?)
        .await?;
    ensure!(site.all().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_dispatch_was_applied_where_nothing_else_was_since() -> Result<()> {
    let site = site().await?;
    let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
    let was = async |digest: Digest| site.store.was_applied(site.applier, site.cluster, &digest).await;
    let mut attempt = 0;
    let mut record = async |digest: Option<Digest>, observe: bool, reason: &str| -> Result<()> {
        attempt += 1;
        sqlx::query(
            "INSERT INTO reconciliation (applier, attempt, cluster_uid, epoch, generation, deletes, started_at, deadline, finished_at,
                                         reason, dispatch_digest, dispatch)
             VALUES ($1, $2, $3, 1, 1, false, now(), now(), now(), $4, $5, jsonb_build_object('observe', $6::boolean))",
        )
        .bind(site.applier.0)
        .bind(attempt)
        .bind(site.cluster.0)
        .bind(reason)
        .bind(digest.map(|digest| digest.as_bytes().to_vec()))
        .bind(observe)
        .execute(&mut site.database.connect().await?)
        .await?;
        Ok(())
    };
    ensure!(!was(one).await?);
    record(Some(one), false, "ValidationFailed").await?;
    ensure!(!was(one).await?, "nothing was applied");
    record(Some(one), false, "ReconciliationSucceeded").await?;
    ensure!(was(one).await? && !was(two).await?);
    record(None, false, "BuildFailed").await?;
    record(Some(one), true, "ValidationFailed").await?;
    ensure!(was(one).await?, "nothing was to be written");
    record(Some(one), false, "ValidationFailed").await?;
    ensure!(!was(one).await?, "somebody asked for it to be applied again, and that is not done");
    record(Some(one), false, "ReconciliationSucceeded").await?;
    ensure!(was(one).await?);
    record(Some(two), false, "ReconciliationFailed").await?;
    ensure!(!was(one).await? && !was(two).await?, "some of the other may have been applied");
    record(Some(two), false, "HealthCheckFailed").await?;
    ensure!(was(two).await?, "all of it was applied before it was waited for");
    Ok(())
}
