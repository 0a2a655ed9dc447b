//! Events and what Alerts send, and what of them an older version left.

use std::borrow::Cow;

use anyhow::{Result, ensure};
use roadstead_hub_store::{Key, Sealer, Store};
use roadstead_tests::TestDatabase;
use serde_json::{Value, json};
use sqlx::migrate::Migrator;
use uuid::Uuid;

/// The last migration before Alerts listened.
const BEFORE: i64 = 55;

async fn put(
    connection: &mut sqlx::PgConnection,
    kind: &str,
    name: &str,
    version: i64,
    spec: Value,
) -> Result<Uuid> {
    let uid = Uuid::new_v4();
    sqlx::query(
        "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
         VALUES ($1, $2, 'notification.toolkit.fluxcd.io', 'apps', $3, 1, $4, now(), $5)",
    )
    .bind(uid)
    .bind(kind)
    .bind(name)
    .bind(version)
    .bind(json!({ "spec": spec }))
    .execute(connection)
    .await?;
    Ok(uid)
}

#[tokio::test]
async fn alerts_and_providers_of_an_older_version_listen_and_are_looked_at() -> Result<()> {
    let database = TestDatabase::new().await?;
    let mut connection = database.connect().await?;
    let all = sqlx::migrate!("../../migrations");
    let then = all.migrations.iter().filter(|one| one.version <= BEFORE).cloned().collect();
    Migrator { migrations: Cow::Owned(then), ..Migrator::DEFAULT }.run(&mut connection).await?;
    let secrets = json!({ "type": "slack", "secretRef": { "name": "a" }, "certSecretRef": { "name": "b" } });
    let provider = put(&mut connection, "Provider", "chat", 1, secrets).await?;
    put(&mut connection, "Provider", "bare", 2, json!({ "type": "generic" })).await?;
    let sources = json!([{ "kind": "Kustomization", "name": "*" }, { "kind": "Bucket", "name": "b", "namespace": "ops" }]);
    let alert =
        json!({ "providerRef": { "name": "chat" }, "eventSeverity": "error", "eventSources": sources });
    let heard = put(&mut connection, "Alert", "one", 3, alert).await?;
    let suspended = json!({ "providerRef": { "name": "chat" }, "suspend": true, "eventSources": sources });
    put(&mut connection, "Alert", "two", 4, suspended).await?;
    put(&mut connection, "Alert", "odd", 5, json!({ "eventSources": "none" })).await?;

    let store = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?;
    let listens: Vec<(Uuid, String, String, String, bool)> =
        sqlx::query_as("SELECT alert, kind, namespace, name, only_errors FROM alert_source ORDER BY kind")
            .fetch_all(&mut connection)
            .await?;
    let of = |kind: &str, namespace: &str, name: &str| {
        (heard, kind.to_owned(), namespace.to_owned(), name.to_owned(), true)
    };
    ensure!(listens == [of("Bucket", "ops", "b"), of("Kustomization", "apps", "*")], "{listens:?}");
    let refers: Vec<(String, Option<Vec<String>>)> = sqlx::query_as(
        "SELECT name, refers_to FROM resource WHERE kind IN ('Alert', 'Provider') ORDER BY resource_version",
    )
    .fetch_all(&mut connection)
    .await?;
    ensure!(refers[0].1 == Some(vec!["Secret/apps/a".to_owned(), "Secret/apps/b".to_owned()]), "{refers:?}");
    ensure!(refers[1].1.is_none() && refers[4].1.is_none(), "{refers:?}");
    ensure!(refers[2].1 == Some(vec!["Provider/apps/chat".to_owned()]), "{refers:?}");
    let due: Vec<(Uuid, String)> = sqlx::query_as("SELECT uid, kind FROM schedule ORDER BY kind, uid")
        .fetch_all(&mut connection)
        .await?;
    ensure!(due.len() == 5 && due.contains(&(provider, "provider".to_owned())), "{due:?}");
    ensure!(due.contains(&(heard, "alert".to_owned())), "{due:?}");
    store.close().await;
    Ok(())
}
