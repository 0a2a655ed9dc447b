//! What claiming costs where much is scheduled: it reads what it claims, and not all that waits.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use roadstead_hub_store::{Key, Sealer, Store};
use roadstead_model::{Due, Queue, ReplicaId, Room};
use roadstead_tests::{PATIENCE, TestDatabase, eventually};

const LEASE: Duration = Duration::from_secs(60);

struct Site {
    database: TestDatabase,
    store: Store,
    replica: ReplicaId,
    now: Timestamp,
}

impl Site {
    async fn new() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
        let now = store.now().await?;
        let replica = ReplicaId::random();
        store.replica_seen(replica, now).await?;
        Ok(Self { database, store, replica, now })
    }

    /// Kustomizations of a namespace, `count` of them, that are due so many seconds from the time of the site: on a slow
    /// machine, the server's has gone on since.
    async fn schedule(&self, namespace: &str, count: i32, due: i32) -> Result<()> {
        let mut connection = self.database.connect().await?;
        sqlx::query(
            "WITH made AS (
                 INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
                 SELECT gen_random_uuid(), 'Kustomization', 'test', $1, 'app-' || number, 1, 1, now(), '{}'
                 FROM generate_series(1, $2) AS number RETURNING uid, namespace)
             INSERT INTO schedule (uid, kind, due_at) SELECT uid, $3, to_timestamp($5) + $4 * interval '1 second' FROM made",
        )
        .bind(namespace)
        .bind(count)
        .bind(Queue::Applier.as_str())
        .bind(due)
        .bind(self.now.as_second())
        .execute(&mut connection)
        .await
        .context("schedule")?;
        Ok(())
    }

    /// What the server knows of the tables, as it finds out by itself in production.
    async fn analyze(&self) -> Result<()> {
        sqlx::query("ANALYZE").execute(&mut self.database.connect().await?).await?;
        Ok(())
    }

    async fn claim(&self, room: &Room) -> Result<Due> {
        Ok(self.store.claim_due(Queue::Applier, self.replica, self.now, LEASE, room).await?)
    }

    /// Rows of the schedule and of objects that were read so far, by transactions that have ended.
    async fn read(&self) -> Result<i64> {
        let query = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables
                     WHERE relname IN ('schedule', 'resource')";
        Ok(sqlx::query_scalar(query).fetch_one(&mut self.database.connect().await?).await?)
    }

    /// What `claims` read, once the server says so.
    async fn cost(&self, claims: usize, room: &Room) -> Result<(Vec<String>, i64)> {
        let before = self.read().await?;
        let mut namespaces = Vec::new();
        for _ in 0..claims {
            namespaces.extend(self.claim(room).await?.namespaces);
        }
        // Statistics are told when a connection ends.
        self.store.close().await;
        let read = eventually("the statistics are told", PATIENCE, || async {
            let read = self.read().await? - before;
            ensure!(read > 0, "nothing was read");
            Ok(read)
        })
        .await?;
        Ok((namespaces, read))
    }
}

#[tokio::test]
async fn a_claim_reads_what_is_due_and_not_all_that_is_scheduled() -> Result<()> {
    let site = Site::new().await?;
    site.schedule("later", 10_000, 3600).await?;
    site.schedule("due", 20, -1).await?;
    site.analyze().await?;
    let (namespaces, read) = site.cost(10, &Room::of(5, false)).await?;
    ensure!(namespaces == ["due"; 20], "{namespaces:?}");
    println!("measured: ten claims among 10,000 read {read} rows");
    ensure!(read < 500, "ten claims read {read} rows");
    Ok(())
}

#[tokio::test]
async fn what_waits_for_a_namespace_without_places_is_not_read() -> Result<()> {
    let site = Site::new().await?;
    site.schedule("greedy", 10_000, -3600).await?;
    for namespace in ["a", "honest", "z"] {
        site.schedule(namespace, 30, 3600).await?;
        site.schedule(&format!("{namespace}-now"), 4, -1).await?;
    }
    site.analyze().await?;
    let room = Room { of_one: 6, held: BTreeMap::from([("greedy".to_owned(), 6)]), ..Room::of(2, false) };
    let (mut namespaces, read) = site.cost(10, &room).await?;
    namespaces.sort();
    let expected = ["a-now", "honest-now", "z-now"].map(|namespace| [namespace; 4]).concat();
    ensure!(namespaces == expected, "{namespaces:?}");
    println!("measured: ten claims beside 10,000 that wait read {read} rows");
    ensure!(read < 1_000, "ten claims read {read} rows");
    Ok(())
}

#[tokio::test]
async fn claims_of_replicas_that_are_gone_are_found_without_reading_all() -> Result<()> {
    let site = Site::new().await?;
    site.schedule("later", 10_000, 3600).await?;
    site.schedule("due", 5, -1).await?;
    site.analyze().await?;
    ensure!(site.claim(&Room::of(5, false)).await?.claims.len() == 5);
    let before = site.read().await?;
    for _ in 0..10 {
        ensure!(site.store.release_claims_of_dead_replicas(site.now).await? == 0, "it is alive");
    }
    site.store.replica_gone(site.replica).await?;
    site.store.close().await;
    let read = eventually("the statistics are told", PATIENCE, || async {
        let read = site.read().await? - before;
        ensure!(read > 0, "nothing was read");
        Ok(read)
    })
    .await?;
    ensure!(read < 500, "{read} rows were read");
    Ok(())
}
