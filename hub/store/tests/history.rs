//! Which attempts are kept.

use anyhow::{Result, ensure};
use roadstead_hub_store::{Key, Sealer, Store};
use roadstead_model::ApplierUid;
use roadstead_tests::TestDatabase;

/// Attempts of an applier, each so many minutes old; `true`: it went well.
async fn store_with(attempts: &[(i32, bool)]) -> Result<(TestDatabase, Store, ApplierUid)> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let applier = ApplierUid::random();
    let mut connection = database.connect().await?;
    for (number, (minutes, well)) in (1_i64..).zip(attempts) {
        sqlx::query(
            "INSERT INTO reconciliation (applier, attempt, epoch, generation, deletes, started_at, deadline, finished_at, reason)
             SELECT $1, $2, 1, 1, false, at, at, at, $4 FROM (SELECT now() - make_interval(mins => $3) AS at) t",
        )
        .bind(applier.0)
        .bind(number)
        .bind(minutes)
        .bind(if *well { "ReconciliationSucceeded" } else { "BuildFailed" })
        .execute(&mut connection)
        .await?;
    }
    Ok((database, store, applier))
}

async fn left(store: &Store, applier: ApplierUid) -> Result<Vec<i64>> {
    let history = store.history(applier, None, 100).await?;
    Ok(history.iter().map(|one| one.reconciliation.attempt.0).collect())
}

#[tokio::test]
async fn so_many_and_for_so_long() -> Result<()> {
    let attempts = [(50, true), (40, true), (30, false), (20, false), (10, false)];
    let (_database, store, applier) = store_with(&attempts).await?;
    let now = store.now().await?;
    ensure!(store.trim_reconciliations(4, None).await? == 1);
    ensure!(left(&store, applier).await? == [5, 4, 3, 2]);
    let minutes = |count: i64| Some(now - jiff::SignedDuration::from_mins(count));
    ensure!(store.trim_reconciliations(4, minutes(25)).await? == 1);
    ensure!(left(&store, applier).await? == [5, 4, 2], "the newest that went well stays");
    ensure!(store.trim_reconciliations(4, minutes(1)).await? == 1);
    ensure!(left(&store, applier).await? == [5, 2], "and so does the newest");
    // The number holds whatever they are.
    ensure!(store.trim_reconciliations(1, minutes(1)).await? == 1);
    ensure!(left(&store, applier).await? == [5]);
    Ok(())
}
