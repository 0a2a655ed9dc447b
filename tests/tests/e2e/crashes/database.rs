//! The database goes away, or has no room, in the middle of an apply.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_devpostgres::create_state_parent;
use roadstead_tests::{HubSetup, PATIENCE, eventually, kill9, start_postgres};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::world::{Point, SLOWLY, World};

#[tokio::test]
async fn the_database_is_killed_in_the_middle_of_an_apply() -> Result<()> {
    let folder = roadstead_tests::folder()?;
    create_state_parent(folder.path())?;
    let state = folder.path().join("postgres");
    let mut server = start_postgres(&state).await?;
    let setup = HubSetup::new("kill-db").await?.at(server.url().to_owned());
    let database = PgConnection::connect(server.url()).await?;
    let mut world = World::on(setup, database, "kill-db").await?;
    for point in [Point::Dispatched, Point::Written(20), Point::Pruned(1)] {
        let before = world.counted.now().await?;
        world.apiserver.slow(SLOWLY);
        let commit = world.turn().await?;
        world.dispatched(&commit).await?;
        world.counted.reaches(before, point).await?;
        kill9(server.id())?;
        world.apiserver.open();
        // The agent goes on with what it was given; the hub says what is missing.
        eventually("requests are answered 503", PATIENCE, || async {
            let asked = world.fleet.run(&["get", "kustomizations"]).await;
            let answer = asked.err().map(|error| error.to_string()).unwrap_or_default();
            ensure!(answer.contains("database"), "{answer}");
            Ok(())
        })
        .await?;
        let began = Instant::now();
        // It holds the folder.
        drop(server);
        server = eventually("the server is started again", PATIENCE, || start_postgres(&state)).await?;
        world.database = PgConnection::connect(server.url()).await?;
        world.fleet.applied("app", &commit).await?;
        println!("measured: database killed at {point:?}: Ready {:?} after its start", began.elapsed());
        world.is_as_without(&commit).await.with_context(|| format!("killed at {point:?}"))?;
    }
    world.fleet.hub.kill9().await?;
    tokio::task::spawn_blocking(move || server.stop()).await??;
    Ok(())
}

/// A database that fails each write as one whose disk is full does: with that error, whatever is written.
struct FullDisk {
    tables: Vec<String>,
}

impl FullDisk {
    async fn fill(database: &mut PgConnection) -> Result<Self> {
        let refuse = "CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION \
                      'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$";
        database.execute(refuse).await?;
        let tables =
            "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE '\\_%'";
        let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *database).await?;
        for table in &tables {
            let trigger = format!(
                "CREATE TRIGGER disk_is_full BEFORE INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION \
                 disk_is_full()"
            );
            database.execute(AssertSqlSafe(trigger)).await.with_context(|| table.clone())?;
        }
        Ok(Self { tables })
    }

    async fn empty(self, database: &mut PgConnection) -> Result<()> {
        for table in &self.tables {
            database.execute(AssertSqlSafe(format!("DROP TRIGGER disk_is_full ON {table}"))).await?;
        }
        database.execute("DROP FUNCTION disk_is_full()").await?;
        Ok(())
    }
}

#[tokio::test]
async fn the_databases_disk_is_full_in_the_middle_of_an_apply() -> Result<()> {
    let mut world = World::new("full-db").await?;
    for point in [Point::Dispatched, Point::Written(20), Point::Pruned(1)] {
        let before = world.counted.now().await?;
        world.apiserver.slow(SLOWLY);
        let commit = world.turn().await?;
        world.dispatched(&commit).await?;
        world.counted.reaches(before, point).await?;
        let full = FullDisk::fill(&mut world.database).await?;
        world.apiserver.open();
        for _ in 0..3 {
            eventually("a write is refused, with the reason", PATIENCE, || async {
                let asked = world.fleet.run(&["create", "configmap", "more"]).await;
                let answer = asked.err().map(|error| error.to_string()).unwrap_or_default();
                ensure!(answer.contains("disk is full"), "{answer:?}");
                Ok(())
            })
            .await?;
            // Long enough for the end of the dispatch to be told, and not to be taken.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        full.empty(&mut world.database).await?;
        let began = Instant::now();
        world.fleet.applied("app", &commit).await?;
        println!("measured: disk full at {point:?}: Ready {:?} after there was room", began.elapsed());
        world.is_as_without(&commit).await.with_context(|| format!("full at {point:?}"))?;
    }
    Ok(())
}
