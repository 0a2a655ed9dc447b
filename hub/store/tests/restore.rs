//! A database that is another one than before: a new epoch begins by itself, and what agents have seen counts.

mod support;

use anyhow::{Context as _, Result, ensure};
use roadstead_hub_store::{Key, Sealer, SeenAttempt, Store};
use roadstead_model::{ApplierUid, Attempt, ClusterUid, Digest, Generation, HubEpoch};
use roadstead_tests::TestDatabase;
use serde_json::json;

/// A database with a cluster and a Kustomization, of which it knows an attempt.
struct Site {
    key: Key,
    store: Store,
    database: TestDatabase,
    cluster: ClusterUid,
    applier: ApplierUid,
}

const REQUESTS: [&str; 2] = ["test/first", "test/second"];

impl Site {
    async fn new() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let key = Key::generate()?;
        let store = Store::open(database.url(), Sealer::new(&key)?, 4).await?;
        let site =
            Self { key, store, database, cluster: ClusterUid::random(), applier: ApplierUid::random() };
        let mut connection = site.database.connect().await?;
        for (uid, kind) in [(site.cluster.0, "Cluster"), (site.applier.0, "Kustomization")] {
            sqlx::query(
                "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, object)
                 VALUES ($1, $2, 'test', '', 'one', 3, 1, $3)",
            )
            .bind(uid)
            .bind(kind)
            .bind(json!({ "metadata": { "name": "one", "annotations": { "test/second": "2", "test/first": "1" } } }))
            .execute(&mut connection)
            .await?;
        }
        Ok(site)
    }

    /// As another replica.
    async fn reopened(&self) -> Result<Store> {
        Ok(Store::open(self.database.url(), Sealer::new(&self.key)?, 4).await?)
    }

    async fn open(&self) -> Result<Attempt> {
        let spec = support::dispatch("one", Digest::of(b"one"));
        let mut tx = self.store.begin().await?;
        let now = self.store.now().await?;
        let attempt = support::open(&mut tx, self.cluster, self.applier, &spec, now).await?;
        tx.commit().await?;
        Ok(attempt)
    }

    /// The agent has seen this; gives whom the database does not know.
    async fn seen(&self, applier: ApplierUid, epoch: i64, attempt: i64) -> Result<Vec<ApplierUid>> {
        let seen = SeenAttempt {
            applier,
            epoch: HubEpoch(epoch),
            attempt: Attempt(attempt),
            generation: Generation(5),
        };
        let mut tx = self.store.begin().await?;
        let unknown = tx.note_seen_attempts(self.cluster, &[seen], &REQUESTS).await?;
        tx.commit().await?;
        Ok(unknown)
    }

    async fn is_past(&self) -> Result<bool> {
        let newest = self.store.newest_reconciliation(self.applier).await?;
        Ok(newest.context("an attempt")?.is_past)
    }
}

#[tokio::test]
async fn a_new_epoch_begins_in_another_database_once() -> Result<()> {
    let site = Site::new().await?;
    ensure!(site.open().await? == Attempt(1));
    ensure!(site.store.epoch().await? == HubEpoch(1));
    ensure!(site.reopened().await?.epoch().await? == HubEpoch(1), "it is the same database");
    let mut connection = site.database.connect().await?;
    sqlx::query("UPDATE hub_state SET identity = 'another'").execute(&mut connection).await?;
    // Connections that are there lead to where they led; whoever makes new ones notices, of several one.
    let (one, two) = tokio::join!(site.reopened(), site.reopened());
    let (one, _two) = (one?, two?);
    ensure!(one.epoch().await? == HubEpoch(2));
    ensure!(site.is_past().await?);
    let newest = site.store.newest_reconciliation(site.applier).await?.context("an attempt")?;
    ensure!(newest.finished.is_some(), "what was under way is over");
    ensure!(site.open().await? == Attempt(2));
    ensure!(!site.is_past().await?);
    Ok(())
}

#[tokio::test]
async fn a_lost_attempt_is_overtaken() -> Result<()> {
    let site = Site::new().await?;
    site.open().await?;
    let unknown = ApplierUid::random();
    ensure!(site.seen(unknown, 1, 1).await? == [unknown]);
    ensure!(site.seen(site.applier, 1, 1).await?.is_empty());
    ensure!(site.store.lost_attempt(site.applier, site.cluster).await?.is_none(), "it is known");
    ensure!(!site.is_past().await?);
    for (epoch, attempt) in [(4, 9), (4, 7), (1, 2)] {
        site.seen(site.applier, epoch, attempt).await?;
    }
    let lost = site.store.lost_attempt(site.applier, site.cluster).await?.context("it was lost")?;
    ensure!((lost.generation, lost.found_generation) == (Generation(5), Generation(3)), "{lost:?}");
    ensure!(lost.found_request.as_deref() == Some("1 2"), "{lost:?}");
    ensure!(site.is_past().await?);
    ensure!(site.open().await? == Attempt(10));
    ensure!(site.store.lost_attempt(site.applier, site.cluster).await?.is_none());
    let mut connection = site.database.connect().await?;
    let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM reconciliation WHERE attempt = 10")
        .fetch_one(&mut connection)
        .await?;
    ensure!(epoch == 4, "the agent takes it for newer");
    ensure!(!site.is_past().await?);
    Ok(())
}
