//! Where Receivers are called, and what of them an older version left.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_hub_store::{Key, Sealer, Store};
use roadstead_model::{Queue, ReplicaId, ResourceUid, Room};
use roadstead_tests::TestDatabase;
use sqlx::migrate::Migrator;
use uuid::Uuid;

/// The last migration before there were paths.
const BEFORE: i64 = 34;

async fn receivers(database: &TestDatabase) -> Result<[ResourceUid; 2]> {
    let mut connection = database.connect().await?;
    let mut made = [ResourceUid(Uuid::nil()); 2];
    for (index, uid) in made.iter_mut().enumerate() {
        *uid = ResourceUid(Uuid::new_v4());
        sqlx::query(
            "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
             VALUES ($1, 'Receiver', 'notification.toolkit.fluxcd.io', 'apps', $2, 1, $3, now(), $4)",
        )
        .bind(uid.0)
        .bind(format!("hook-{index}"))
        .bind(i64::try_from(index)? + 1)
        .bind(serde_json::json!({ "spec": { "type": "github", "secretRef": { "name": "token" }, "resources": [] } }))
        .execute(&mut connection)
        .await?;
    }
    Ok(made)
}

async fn open(database: &TestDatabase) -> Result<Store> {
    Ok(Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?)
}

#[tokio::test]
async fn a_path_is_one_receivers_and_goes_with_it() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = open(&database).await?;
    let [one, other] = receivers(&database).await?;
    let (first, second) = ([1; 32], [2; 32]);
    let set = async |uid, digest: Option<&[u8]>| -> Result<bool> {
        let mut tx = store.begin().await?;
        let is_its_own = tx.set_hook(uid, digest).await?;
        tx.commit().await?;
        Ok(is_its_own)
    };
    ensure!(set(one, Some(&first)).await? && set(one, Some(&first)).await?);
    ensure!(!set(other, Some(&first)).await?, "two have one path");
    ensure!(store.receiver_at(&first).await? == Some(one));
    // Another one in its place; the former is free.
    ensure!(set(one, Some(&second)).await? && set(other, Some(&first)).await?);
    ensure!(
        store.receiver_at(&first).await? == Some(other) && store.receiver_at(&second).await? == Some(one)
    );
    ensure!(set(one, None).await? && store.receiver_at(&second).await?.is_none());
    sqlx::query("DELETE FROM resource WHERE uid = $1")
        .bind(other.0)
        .execute(&mut database.connect().await?)
        .await?;
    ensure!(store.receiver_at(&first).await?.is_none(), "nobody is called there");
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn receivers_of_an_older_version_are_looked_at() -> Result<()> {
    let database = TestDatabase::new().await?;
    let mut connection = database.connect().await?;
    let all = sqlx::migrate!("../../migrations");
    let then = all.migrations.iter().filter(|one| one.version <= BEFORE).cloned().collect();
    Migrator { migrations: Cow::Owned(then), ..Migrator::DEFAULT }.run(&mut connection).await?;
    let mut made = receivers(&database).await?;
    let store = open(&database).await?;
    let now = store.now().await?;
    let due = store
        .claim_due(Queue::Receiver, ReplicaId::random(), now, Duration::from_secs(60), &Room::of(10, false))
        .await?;
    let mut claimed: Vec<ResourceUid> = due.claims.iter().map(|claim| claim.uid).collect();
    claimed.sort_unstable_by_key(|uid| uid.0);
    made.sort_unstable_by_key(|uid| uid.0);
    ensure!(claimed == made, "{claimed:?}");
    // So a change of the Secret leads to them.
    let users: Vec<String> =
        sqlx::query_scalar("SELECT DISTINCT unnest(refers_to) FROM resource WHERE kind = 'Receiver'")
            .fetch_all(&mut connection)
            .await
            .context("what they refer to")?;
    ensure!(users == ["Secret/apps/token"], "{users:?}");
    store.close().await;
    Ok(())
}
