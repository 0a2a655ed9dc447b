//! Events that clusters tell, in the stream of events: kept from many messages at once.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::{Key, RelayedItem, Sealer, Store, Stored};
use roadstead_model::ClusterUid;
use roadstead_tests::TestDatabase;
use serde_json::json;

fn item(name: String) -> RelayedItem {
    RelayedItem {
        kind: "Kustomization".to_owned(),
        namespace: "flux-system".to_owned(),
        name,
        reason: "HealthCheckFailed".to_owned(),
        message: "m".to_owned(),
        is_error: true,
        condition: None,
        event: json!({}),
    }
}

#[tokio::test]
async fn messages_that_come_at_once_do_not_wait_for_each_other_in_a_circle() -> Result<()> {
    const TASKS: usize = 20;
    const EACH: usize = 20;
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 20).await?;
    let start: Timestamp = "2026-11-26T12:00:00Z".parse()?;
    let cluster = Stored::new(KindId::Cluster, "", "edge", start, json!({}));
    let uid = ClusterUid(cluster.uid.0);
    let mut tx = store.begin().await?;
    tx.put(cluster).await?;
    tx.commit().await?;

    // Together far more than the stream keeps.
    let told = (0..TASKS).map(|task| {
        let store = store.clone();
        async move {
            for message in 0..EACH {
                let own = (0..50).map(|number| item(format!("app-{task}-{message}-{number}")));
                let events: Vec<_> = own.collect();
                let mut tx = store.begin().await?;
                // Who is in time and who is late takes turns, so that none has the same to drop as another.
                let at = start + Duration::from_millis(((task * 7 + message * 5) % 97) as u64);
                tx.keep_relayed((uid, "edge"), &events, at).await?;
                tx.commit().await?;
            }
            anyhow::Ok(())
        }
    });
    futures::future::try_join_all(told.map(tokio::spawn)).await?.into_iter().collect::<Result<()>>()?;

    let mut tx = store.begin().await?;
    let later = start + Duration::from_secs(1);
    tx.keep_relayed((uid, "edge"), &[item("last".to_owned())], later).await?;
    tx.commit().await?;
    let mut connection = database.connect().await?;
    let (count, newest): (i64, bool) =
        sqlx::query_as("SELECT count(*), bool_or(name = 'last') FROM relayed_event")
            .fetch_one(&mut connection)
            .await?;
    ensure!(count == 250 && newest, "{count} are kept, the newest among them: {newest}");
    Ok(())
}
