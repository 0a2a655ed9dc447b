//! The change log: how large its reader takes a change to be, and who waits for whom to write it.

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_budget::Pool;
use roadstead_hub_store::{Key, Sealer, Store, Stored};
use roadstead_tests::{PATIENCE, TestDatabase, eventually};
use serde_json::json;
use sqlx::Connection as _;

/// Numbers of which each is five bytes long as it is sent, and 301 as Postgres gives it back.
const NUMBERS: usize = 2_000;
const LENGTH: u64 = 301 * NUMBERS as u64;

#[tokio::test]
async fn a_change_is_as_large_as_the_database_gives_it_whichever_version_wrote_it() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let room = Pool::new("watches", 256 << 20);
    store.keep_watches_within(room.clone());
    // It reads nothing, so what is read of the log is held for it.
    let watcher = store.watch(KindId::ConfigMap, store.last_version().await?).await?;
    let mut tx = store.begin().await?;
    let object = json!({ "data": { "numbers": vec![1e300; NUMBERS] } });
    tx.put(Stored::new(KindId::ConfigMap, "apps", "numbers", Timestamp::now(), object)).await?;
    tx.commit().await?;
    held(&room, LENGTH).await?;

    // Versions before this one noted no size.
    let mut connection = database.connect().await?;
    let mut older = connection.begin().await?;
    sqlx::query(
        "INSERT INTO resource_event (resource_version, type, uid, api_group, kind, namespace, name, generation, created_at, object)
         SELECT resource_version + 1, 'MODIFIED', uid, api_group, kind, namespace, name, generation, created_at, object
         FROM resource_event",
    )
    .execute(&mut *older)
    .await?;
    sqlx::query("UPDATE hub_state SET last_version = last_version + 1").execute(&mut *older).await?;
    older.commit().await?;
    held(&room, 2 * LENGTH).await?;
    drop(watcher);
    Ok(())
}

/// How many transactions wait in the database.
async fn waiting(connection: &mut sqlx::PgConnection, count: i64) -> Result<()> {
    let connection = tokio::sync::Mutex::new(connection);
    eventually("they wait in the database", PATIENCE, || async {
        let found: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(&mut **connection.lock().await)
        .await?;
        ensure!(found == count, "{found} of {count} wait");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_commit_that_hangs_keeps_no_other_from_the_database() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 8).await?;
    let mut holder = database.connect().await?;
    let mut hold = holder.begin().await?;
    sqlx::query("SELECT FROM hub_state FOR UPDATE").execute(&mut *hold).await?;
    let mut commits = tokio::task::JoinSet::new();
    for name in ["one", "two", "three"] {
        let store = store.clone();
        commits.spawn(async move {
            let mut tx = store.begin().await?;
            tx.put(Stored::new(KindId::ConfigMap, "apps", name, Timestamp::now(), json!({}))).await?;
            tx.commit().await
        });
    }
    // More than have a turn at once.
    waiting(&mut database.connect().await?, 3).await?;
    hold.rollback().await?;
    while let Some(commit) = commits.join_next().await {
        commit??;
    }
    Ok(())
}

/// Waits until at least so many bytes are held.
async fn held(room: &Pool, bytes: u64) -> Result<()> {
    eventually("the change is held", PATIENCE, || async {
        ensure!(room.used() >= bytes, "{} bytes are held", room.used());
        Ok(())
    })
    .await
}
