//! Which index finds an object by its name, also where Postgres does not know yet that the table has grown.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::{Key, Reach, Sealer, Store, Stored};
use roadstead_tests::TestDatabase;
use serde_json::json;
use sqlx::{Executor as _, PgConnection};

/// After so many executions a connection keeps the plan that it has.
const EXECUTIONS: usize = 40;
const OBJECTS: i32 = 10_000;
/// Pages that reading or writing one object takes at most, with those of the indexes; all of them are some thousands.
const PAGES: f64 = 40.0;

/// Forgets what was counted of this database; others are somebody else's.
const RESET: &str =
    "SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = current_database()";

#[tokio::test]
async fn a_plan_from_when_the_table_was_empty_reads_no_more_when_it_is_full() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let mut connection = database.connect().await?;
    connection.execute("CREATE EXTENSION pg_stat_statements").await?;
    connection.execute("ALTER TABLE resource SET (autovacuum_enabled = off)").await?;
    let mut tx = store.begin().await?;
    for (kind, name, spec) in [
        (KindId::ConfigMap, "app", json!({})),
        (KindId::Kustomization, "front", json!({ "dependsOn": [{ "name": "back" }] })),
        (KindId::Kustomization, "back", json!({})),
    ] {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        tx.put(Stored::new(kind, "apps", name, Timestamp::now(), object)).await?;
    }
    tx.commit().await?;
    let app = |name: &str| ("apps".to_owned(), name.to_owned());
    let (kind, reach) = (KindId::Kustomization, Reach { appliers: 10, entries: 10 });
    let read = || async {
        for number in 0..EXECUTIONS {
            store.get(KindId::ConfigMap, "apps", "app").await?.context("it is there")?;
            ensure!(store.dependencies(kind, &[app("back")]).await?.len() == 1);
            ensure!(store.reached_dependencies(kind, &app("back"), &[app("front")], reach).await?.len() == 2);
            // Written with its version, and, with another generation, before that.
            for generation in [1, 2] {
                let mut tx = store.begin().await?;
                let held = tx.get(KindId::ConfigMap, "apps", "app").await?;
                let mut held = held.context("it is there, and held")?;
                held.object["data"] = json!({ "number": number, "generation": generation });
                held.generation += generation / 2;
                tx.put(held).await?;
                tx.commit().await?;
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    read().await?;
    for of in [KindId::ConfigMap, kind] {
        fill(&mut connection, of).await?;
    }
    connection.execute(RESET).await?;
    read().await?;
    let pages: Vec<(String, f64, i64)> = sqlx::query_as(
        "SELECT query, (shared_blks_hit + shared_blks_read)::float8 / calls, calls FROM pg_stat_statements
         WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND query LIKE '%resource%' AND calls >= $1",
    )
    .bind(EXECUTIONS as i64)
    .fetch_all(&mut connection)
    .await?;
    ensure!(pages.len() >= 7, "{pages:#?}");
    ensure!(pages.iter().all(|(_, pages, _)| *pages <= PAGES), "{pages:#?}");
    Ok(())
}

/// Puts many objects of a kind into the table, without its statistics.
async fn fill(connection: &mut PgConnection, kind: KindId) -> Result<()> {
    sqlx::query(
        "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
         SELECT gen_random_uuid(), $1, $2, 'bench', 'app-' || number, 1, 1, now(),
                jsonb_build_object('text', repeat(md5(number::text), 40))
         FROM generate_series(1, $3) AS number",
    )
    .bind(kind.get().kind)
    .bind(kind.get().group())
    .bind(OBJECTS)
    .execute(connection)
    .await?;
    Ok(())
}
