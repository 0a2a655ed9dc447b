//! Turns of builds in a namespace with a quota: never more than it allows, in the order in which they were asked for, and free again
//! however they end.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use roadstead_hub_store::{BuildTurn, Key, Sealer, Store, TurnOf};
use roadstead_model::{Queue, ReplicaId, ResourceUid};
use roadstead_tests::TestDatabase;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(600);
const KEPT: Duration = Duration::from_secs(40);

struct Site {
    database: TestDatabase,
    store: Store,
    /// The same database, as another replica has it.
    other: Store,
    replica: ReplicaId,
    now: Timestamp,
}

impl Site {
    async fn new() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let key = *Key::generate()?.expose();
        let open = async || Store::open(database.url(), Sealer::new(&Key::new(key))?, 8).await;
        let (store, other) = (open().await?, open().await?);
        let (replica, now) = (ReplicaId::random(), store.now().await?);
        store.replica_seen(replica, now).await?;
        Ok(Self { database, store, other, replica, now })
    }

    /// Kustomizations of a namespace that are not due.
    async fn appliers(&self, namespace: &str, count: i32) -> Result<Vec<ResourceUid>> {
        let made: Vec<Uuid> = sqlx::query_scalar(
            "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
             SELECT gen_random_uuid(), 'Kustomization', 'test', $1, 'app-' || number, 1, 1, now(), '{}'
             FROM generate_series(1, $2) AS number RETURNING uid",
        )
        .bind(namespace)
        .bind(count)
        .fetch_all(&mut self.database.connect().await?)
        .await
        .context("make Kustomizations")?;
        Ok(made.into_iter().map(ResourceUid).collect())
    }

    async fn take(&self, applier: ResourceUid, limit: i64) -> Result<BuildTurn> {
        self.take_at(&self.store, self.replica, applier, limit, self.now).await
    }

    async fn take_at(
        &self,
        store: &Store,
        replica: ReplicaId,
        applier: ResourceUid,
        limit: i64,
        now: Timestamp,
    ) -> Result<BuildTurn> {
        let of = TurnOf { applier, namespace: "team-a", replica };
        Ok(store.take_build_turn(of, limit, now, LEASE, |_| KEPT).await?)
    }

    /// Takes a turn, which there is.
    async fn has(&self, applier: ResourceUid, limit: i64) -> Result<Uuid> {
        match self.take(applier, limit).await? {
            BuildTurn::Runs(id) => Ok(id),
            BuildTurn::Waits(before) => bail!("{applier} waits behind {before}"),
        }
    }

    /// Asks for a turn, which there is not.
    async fn waits(&self, applier: ResourceUid, limit: i64) -> Result<i64> {
        match self.take(applier, limit).await? {
            BuildTurn::Runs(_) => bail!("{applier} has a turn"),
            BuildTurn::Waits(before) => Ok(before),
        }
    }

    async fn end(&self, turn: Uuid) -> Result<()> {
        Ok(self.store.end_build_turn("team-a", Some(turn), None).await?)
    }

    /// Those that were woken since the last call.
    async fn woken(&self) -> Result<BTreeSet<Uuid>> {
        let woken: Vec<Uuid> = sqlx::query_scalar("DELETE FROM schedule WHERE kind = $1 RETURNING uid")
            .bind(Queue::Applier.as_str())
            .fetch_all(&mut self.database.connect().await?)
            .await?;
        Ok(woken.into_iter().collect())
    }

    async fn running(&self) -> Result<i64> {
        Ok(self.store.running_builds("team-a", self.now).await?)
    }
}

#[tokio::test]
async fn no_more_have_a_turn_than_the_quota_allows_however_many_ask() -> Result<()> {
    let site = Site::new().await?;
    let all = site.appliers("team-a", 30).await?;
    let other = ReplicaId::random();
    site.other.replica_seen(other, site.now).await?;
    let asked = all.iter().enumerate().map(|(number, applier)| {
        let (store, replica) =
            if number % 2 == 0 { (&site.store, site.replica) } else { (&site.other, other) };
        site.take_at(store, replica, *applier, 3, site.now)
    });
    let asked = futures::future::try_join_all(asked).await?;
    let runs: Vec<Uuid> = asked
        .iter()
        .filter_map(|turn| match turn {
            BuildTurn::Runs(id) => Some(*id),
            BuildTurn::Waits(_) => None,
        })
        .collect();
    ensure!(runs.len() == 3 && site.running().await? == 3, "{asked:?}");
    // Each of the others has a place of its own in the line.
    let places: BTreeSet<i64> = asked
        .iter()
        .filter_map(|turn| match turn {
            BuildTurn::Runs(_) => None,
            BuildTurn::Waits(before) => Some(*before),
        })
        .collect();
    ensure!(places == (0..27).collect(), "{places:?}");
    // Another namespace has nothing to do with it.
    let unrelated = site.appliers("team-b", 1).await?[0];
    let of = TurnOf { applier: unrelated, namespace: "team-b", replica: site.replica };
    let turn = site.store.take_build_turn(of, 1, site.now, LEASE, |_| KEPT).await?;
    ensure!(matches!(turn, BuildTurn::Runs(_)), "{turn:?}");
    Ok(())
}

#[tokio::test]
async fn who_came_first_goes_first_and_is_told_when() -> Result<()> {
    let site = Site::new().await?;
    let all = site.appliers("team-a", 4).await?;
    let turn = site.has(all[0], 1).await?;
    for (before, applier) in (0..).zip(&all[1..]) {
        ensure!(site.waits(*applier, 1).await? == before, "{applier}");
    }
    // To ask again neither loses nor gains a place.
    ensure!(site.waits(all[1], 1).await? == 0 && site.waits(all[3], 1).await? == 2);
    ensure!(site.woken().await?.is_empty());
    site.end(turn).await?;
    let woken = site.woken().await?;
    ensure!(woken.contains(&all[1].0) && !woken.contains(&all[3].0), "{woken:?}");
    // Whoever comes before the one whose turn it is waits for it, newcomers too.
    ensure!(site.waits(all[3], 1).await? == 2 && site.waits(all[0], 1).await? == 3);
    let turn = site.has(all[1], 1).await?;
    // Who needs none any more leaves, and holds up nobody.
    site.store.end_build_turn("team-a", None, Some(all[2])).await?;
    site.end(turn).await?;
    ensure!(site.woken().await?.contains(&all[3].0));
    site.has(all[3], 1).await?;
    // A higher quota is known to who asks next; a lower one ends nothing that runs.
    site.has(all[0], 2).await?;
    ensure!(site.waits(all[1], 1).await? == 0 && site.running().await? == 2);
    let mut tx = site.store.begin().await?;
    tx.wake_waiting_builds("team-a").await?;
    tx.commit().await?;
    ensure!(site.woken().await? == BTreeSet::from([all[1].0]));
    ensure!(site.waits(all[1], 0).await? == 0);
    Ok(())
}

#[tokio::test]
async fn what_is_left_behind_is_free_again() -> Result<()> {
    let site = Site::new().await?;
    let all = site.appliers("team-a", 4).await?;
    // Of a replica that is no more, as soon as that is known.
    let gone = ReplicaId::random();
    let turn = site.take_at(&site.other, gone, all[0], 1, site.now).await?;
    ensure!(matches!(turn, BuildTurn::Runs(_)), "{turn:?}");
    site.waits(all[1], 1).await?;
    site.store.end_build_turns_of_dead_replicas(site.now).await?;
    ensure!(site.woken().await? == BTreeSet::from([all[1].0]));
    let turn = site.has(all[1], 1).await?;
    site.store.end_build_turns_of_dead_replicas(site.now).await?;
    ensure!(site.running().await? == 1, "it is alive");
    // Who waited and does not come any more is not waited for.
    site.waits(all[2], 1).await?;
    site.end(turn).await?;
    ensure!(site.waits(all[3], 1).await? == 1);
    let later = site.now + KEPT + Duration::from_secs(1);
    let asked = site.take_at(&site.store, site.replica, all[0], 1, later).await?;
    ensure!(matches!(asked, BuildTurn::Runs(_)), "{asked:?}");
    // One that comes too late goes to the end of the line.
    let asked = site.take_at(&site.store, site.replica, all[3], 1, later).await?;
    ensure!(asked == BuildTurn::Waits(0), "{asked:?}");
    let asked = site.take_at(&site.store, site.replica, all[2], 1, later + Duration::from_secs(1)).await?;
    ensure!(asked == BuildTurn::Waits(1), "{asked:?}");
    // And a turn that nobody ended has an end.
    let end = later + LEASE + Duration::from_secs(1);
    let asked = site.take_at(&site.store, site.replica, all[1], 1, end).await?;
    ensure!(matches!(asked, BuildTurn::Runs(_)), "{asked:?}");
    site.store.forget_build_turns(end + LEASE + Duration::from_secs(1)).await?;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM build_turn")
        .fetch_one(&mut site.database.connect().await?)
        .await?;
    ensure!(left == 0, "{left} are left");
    Ok(())
}
