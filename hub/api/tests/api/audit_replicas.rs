//! The audit log is one chain, whoever writes: what replicas write at once, while each of them seals, is whole for whoever verifies it at any of them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use reqwest::{Method, StatusCode};
use roadstead_hub_core::identity::Identity;
use roadstead_tests::eventually;
use serde_json::json;

use crate::audit::{CONFIGS, ask};
use crate::lasting::PATIENCE;
use crate::support::{Replica, Site};

/// Objects that each replica writes, by so many writers at once.
const WRITES: usize = 24;
const WRITERS: usize = 4;

async fn writes(replica: &Replica, by: &str, writer: usize) -> Result<()> {
    for number in (writer..WRITES).step_by(WRITERS) {
        let object = json!({ "metadata": { "name": format!("{by}-{number}") } });
        let (code, _, answer) = ask(replica, (Method::POST, CONFIGS), &replica.token, &[], &object).await?;
        ensure!(code == StatusCode::CREATED, "{answer}");
    }
    Ok(())
}

/// Seals as a replica's loop does, without the time between.
async fn seals(replica: &Replica, done: &AtomicBool) -> Result<()> {
    while !done.load(Ordering::Relaxed) {
        replica.hub.audit.seal().await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[tokio::test]
async fn what_replicas_write_at_once_is_one_chain() -> Result<()> {
    let site = Site::new().await?;
    let (one, other) = (site.replica().await?, site.replica().await?);
    let done = AtomicBool::new(false);
    let written = async {
        let all = [(&one, "one"), (&other, "other")].into_iter();
        let all = all.flat_map(|(replica, by)| (0..WRITERS).map(move |writer| writes(replica, by, writer)));
        let written = try_join_all(all).await;
        done.store(true, Ordering::Relaxed);
        written
    };
    let (written, first, second) = tokio::join!(written, seals(&one, &done), seals(&other, &done));
    written?;
    first?;
    second?;
    one.hub.audit.write_counted(true).await?;
    other.hub.audit.write_counted(true).await?;
    // Whoever writes last may have its entries sealed by the other.
    eventually("all is sealed", PATIENCE, || async {
        one.hub.audit.seal().await?;
        other.hub.audit.seal().await?;
        ensure!(one.hub.audit.check(&Identity::hub()).await?.pending == 0);
        Ok(())
    })
    .await?;
    let mut connection = site.database.connect().await?;
    let sealed: Vec<(i64, String)> = sqlx::query_as(
        "SELECT batch, name FROM audit WHERE kind = 'ConfigMap' AND verb = 'create' ORDER BY id",
    )
    .fetch_all(&mut connection)
    .await?;
    let names: BTreeSet<&str> = sealed.iter().map(|(_, name)| name.as_str()).collect();
    ensure!(sealed.len() == 2 * WRITES && names.len() == sealed.len(), "{sealed:?}");
    let batches: BTreeSet<i64> = sealed.iter().map(|(batch, _)| *batch).collect();
    ensure!(batches.len() > 1, "all was sealed at once: {sealed:?}");
    let found =
        [one.hub.audit.check(&Identity::hub()).await?, other.hub.audit.check(&Identity::hub()).await?];
    for found in &found {
        ensure!(found.sound && found.problems.is_empty(), "{found:?}");
        ensure!(found.newest_batch == found.batches, "a batch is missing: {found:?}");
    }
    ensure!(found[0].batches == found[1].batches && found[0].entries == found[1].entries, "{found:?}");

    // One entry that the other replica wrote: whoever takes it away is found out at both.
    let (batch, name) = sealed.iter().find(|(_, name)| name.starts_with("other")).context("an entry")?;
    let taken = sqlx::query("DELETE FROM audit WHERE batch = $1 AND name = $2")
        .bind(batch)
        .bind(name)
        .execute(&mut connection)
        .await?;
    ensure!(taken.rows_affected() == 1);
    for replica in [&one, &other] {
        let found = replica.hub.audit.check(&Identity::hub()).await?;
        ensure!(!found.sound && !found.problems.is_empty(), "{found:?}");
    }
    Ok(())
}
