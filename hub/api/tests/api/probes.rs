//! `/livez`, `/readyz` and `/healthz`: which part does not work, told to anybody, and asked of the database once in a while only.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reqwest::StatusCode;
use roadstead_hub_core::readiness::CONTROLLERS;
use roadstead_tests::eventually;

use crate::support::{Replica, Site, client};

/// More than the schema is taken to be known for.
const PATIENCE: Duration = Duration::from_secs(30);

async fn ask(hub: &Replica, path: &str) -> Result<(StatusCode, String)> {
    let answer = client(hub)?.get(format!("{}{path}", hub.url)).send().await?;
    Ok((answer.status(), answer.text().await?))
}

#[tokio::test]
async fn probes_say_which_part_does_not_work() -> Result<()> {
    let site = Site::new().await?;
    let hub = site.replica().await?;
    let well =
        "[+]ping ok\n[+]database ok\n[+]schema ok\n[+]workers ok\n[+]shutdown ok\nreadyz check passed\n";
    ensure!(ask(&hub, "/readyz?verbose").await? == (StatusCode::OK, well.to_owned()));
    ensure!(ask(&hub, "/livez?verbose").await?.1 == "[+]ping ok\nlivez check passed\n");
    ensure!(ask(&hub, "/readyz/schema").await? == (StatusCode::OK, "ok".to_owned()));
    ensure!(ask(&hub, "/readyz/no").await?.0 == StatusCode::NOT_FOUND);
    // Readiness is nothing that keeps a process alive.
    ensure!(ask(&hub, "/livez/database").await?.0 == StatusCode::NOT_FOUND);

    let running = hub.hub.readiness.runs(CONTROLLERS, "applier");
    ensure!(ask(&hub, "/livez/controllers").await?.0 == StatusCode::OK);
    drop(running);
    let failed = "[-]controllers failed: applier has ended\n";
    for probe in ["livez", "healthz", "readyz"] {
        let told = ask(&hub, &format!("/{probe}")).await?;
        ensure!(
            told == (StatusCode::SERVICE_UNAVAILABLE, format!("{failed}{probe} check failed\n")),
            "{probe}: {told:?}"
        );
    }
    ensure!(ask(&hub, "/readyz?exclude=controllers").await? == (StatusCode::OK, "ok".to_owned()));
    // Of another life, which goes on well.
    hub.hub.readiness.runs(CONTROLLERS, "applier").stopped();
    ensure!(ask(&hub, "/livez").await?.0 == StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn probes_ask_the_database_once_in_a_while() -> Result<()> {
    let site = Site::new().await?;
    let hub = site.replica().await?;
    let mut database = site.database.connect().await?;
    ensure!(ask(&hub, "/readyz").await?.0 == StatusCode::OK);
    let asked = Instant::now();
    let gone = sqlx::query("DELETE FROM _sqlx_migrations WHERE version = 58").execute(&mut database).await?;
    ensure!(gone.rows_affected() == 1);
    for _ in 0..20 {
        let (status, text) = ask(&hub, "/readyz").await?;
        // Where this machine is slow it may have been asked again.
        ensure!(status == StatusCode::OK || asked.elapsed() > Duration::from_secs(9), "{text}");
    }
    eventually("it is found out", PATIENCE, || async {
        let told = ask(&hub, "/readyz").await?;
        let failed = "[-]schema failed: 1 migrations of this version are not applied\nreadyz check failed\n"
            .to_owned();
        ensure!(told == (StatusCode::SERVICE_UNAVAILABLE, failed), "{told:?}");
        Ok(())
    })
    .await?;
    ensure!(ask(&hub, "/livez").await?.0 == StatusCode::OK, "a new process would not help");
    Ok(())
}
