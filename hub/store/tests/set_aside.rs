//! What is set aside stays so until its time, for all replicas.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_hub_store::{Key, Sealer, SetAside, Store};
use roadstead_model::Digest;
use roadstead_tests::TestDatabase;

#[tokio::test]
async fn what_is_set_aside_is_so_until_its_time_or_until_it_went_well() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?;
    let other = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?;
    let start: Timestamp = "2026-11-26T12:00:00Z".parse()?;
    let at = |second| start + Duration::from_secs(second);
    let aside = |why: &str, until| SetAside { why: why.to_owned(), since: start, until: at(until) };
    let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
    store.set_aside(one, &aside("it crashed", 60)).await?;
    store.set_aside(two, &aside("it crashed, too", 60)).await?;
    ensure!(other.is_set_aside(one, at(59)).await? == Some(aside("it crashed", 60)));
    ensure!(other.is_set_aside(one, at(60)).await?.is_none(), "its time is over");
    ensure!(other.is_set_aside(Digest::of(b"three"), start).await?.is_none());
    // It crashed again: for longer, and for another reason.
    other.set_aside(one, &aside("it hung", 120)).await?;
    ensure!(store.is_set_aside(one, at(60)).await? == Some(aside("it hung", 120)));
    // What is over is forgotten, and nothing else.
    store.forget_set_aside(at(60)).await?;
    ensure!(store.is_set_aside(two, start).await?.is_none());
    ensure!(store.is_set_aside(one, start).await?.is_some());
    store.take_back(one).await?;
    ensure!(store.is_set_aside(one, start).await?.is_none());
    Ok(())
}
