//! Sources from before the guard of addresses go on for a while, for the URL that they had then.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use roadstead_api::KindId;
use roadstead_hub_store::{Key, Sealer, Store, Stored};
use roadstead_tests::TestDatabase;
use serde_json::json;

#[tokio::test]
async fn a_grace_is_for_one_url_and_ends() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?;
    let now: Timestamp = "2026-11-26T12:00:00Z".parse()?;
    let until = now + SignedDuration::from_hours(1);
    let mut connection = database.connect().await?;
    let mut sources = Vec::new();
    // The second one has another URL by now.
    for (name, url) in [("one", "http://10.0.0.1/one"), ("two", "http://10.0.0.1/other")] {
        let object = json!({ "spec": { "url": url } });
        let stored = Stored::new(KindId::GitRepository, "apps", name, now, object);
        let (uid, mut tx) = (stored.uid, store.begin().await?);
        tx.put(stored).await?;
        tx.commit().await?;
        sqlx::query("INSERT INTO source_grace (source, url, until) VALUES ($1, 'http://10.0.0.1/' || $2, to_timestamp($3))")
            .bind(uid.0)
            .bind(name)
            .bind(until.as_second())
            .execute(&mut connection)
            .await?;
        sources.push(uid);
    }
    ensure!(store.source_grace(sources[0], "http://10.0.0.1/one", now).await? == Some(until));
    ensure!(store.source_grace(sources[0], "http://10.0.0.1/other", now).await?.is_none(), "of another URL");
    ensure!(store.source_grace(sources[0], "http://10.0.0.1/one", until).await?.is_none(), "it is over");
    let listed = store.source_graces(now).await?;
    ensure!(listed.len() == 1 && (listed[0].name.as_str(), listed[0].until) == ("one", until), "{listed:?}");
    ensure!(store.source_graces(until).await?.is_empty());

    store.end_source_grace(sources[0]).await?;
    ensure!(store.source_grace(sources[0], "http://10.0.0.1/one", now).await?.is_none());
    ensure!(store.source_graces(now).await?.is_empty());

    ensure!(store.live_generation(sources[0]).await? == Some(1));
    let mut tx = store.begin().await?;
    if let Some(mut going) = tx.get_by_uid(sources[0]).await? {
        going.deletion_timestamp = Some(now);
        tx.put(going).await?;
    }
    tx.commit().await?;
    ensure!(store.live_generation(sources[0]).await?.is_none(), "it is being deleted");
    Ok(())
}
