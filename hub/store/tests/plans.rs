//! Which index finds an object by its name, also where Postgres does not know yet that the table has grown.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::{Key, Sealer, Store, Stored};
use roadstead_tests::TestDatabase;
use serde_json::json;
use sqlx::Executor as _;

/// After so many executions a connection keeps the plan that it has.
const EXECUTIONS: usize = 40;
const OBJECTS: i32 = 10_000;
/// Pages that reading or writing one object takes at most, with those of the indexes; all of them are some thousands.
const PAGES: f64 = 40.0;

#[tokio::test]
async fn a_plan_from_when_the_table_was_empty_reads_no_more_when_it_is_full() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let mut connection = database.connect().await?;
    connection.execute("CREATE EXTENSION pg_stat_statements").await?;
    connection.execute("ALTER TABLE resource SET (autovacuum_enabled = off)").await?;
    let mut tx = store.begin().await?;
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "app" } });
    tx.put(Stored::new(KindId::ConfigMap, "apps", "app", Timestamp::now(), object)).await?;
    tx.commit().await?;
    let read = || async {
        for number in 0..EXECUTIONS {
            store.get(KindId::ConfigMap, "apps", "app").await?.context("it is there")?;
            let mut tx = store.begin().await?;
            let mut held =
                tx.get(KindId::ConfigMap, "apps", "app").await?.context("it is there, and held")?;
            held.object["data"] = json!({ "number": number });
            tx.put(held).await?;
            tx.commit().await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    read().await?;
    sqlx::query(
        "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
         SELECT gen_random_uuid(), 'ConfigMap', '', 'bench', 'app-' || number, 1, 1, now(),
                jsonb_build_object('text', repeat(md5(number::text), 40))
         FROM generate_series(1, $1) AS number",
    )
    .bind(OBJECTS)
    .execute(&mut connection)
    .await?;
    connection.execute("SELECT pg_stat_statements_reset()").await?;
    read().await?;
    let pages: Vec<(String, f64, i64)> = sqlx::query_as(
        "SELECT query, (shared_blks_hit + shared_blks_read)::float8 / calls, calls FROM pg_stat_statements
         WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND query LIKE '%resource%' AND calls >= $1",
    )
    .bind(EXECUTIONS as i64)
    .fetch_all(&mut connection)
    .await?;
    ensure!(pages.len() >= 4, "{pages:#?}");
    ensure!(pages.iter().all(|(_, pages, _)| *pages <= PAGES), "{pages:#?}");
    Ok(())
}
