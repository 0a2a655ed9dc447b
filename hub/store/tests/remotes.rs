//! What is known of remote resources, and for how long their bytes are kept.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use roadstead_hub_store::{AtRest, HeldRemote, Key, RemoteResource, Sealer, Store};
use roadstead_model::Digest;
use roadstead_tests::TestDatabase;

const KEY: &str = "git::https://git.example.com/org/repo//?ref=main";

struct Kit {
    store: Store,
    start: Timestamp,
    _database: TestDatabase,
}

impl Kit {
    async fn open() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?;
        Ok(Self { store, start: "2026-11-26T12:00:00Z".parse()?, _database: database })
    }

    fn at(&self, second: u64) -> Timestamp {
        self.start + Duration::from_secs(second)
    }

    /// A check that began then and ended a second later; false where a later one is recorded.
    async fn record(&self, second: u64, found: Result<&HeldRemote, &str>) -> Result<bool> {
        let (held, failure) = match found {
            Ok(held) => (Some(held.clone()), None),
            Err(why) => (None, Some(why.to_owned())),
        };
        let found =
            RemoteResource { began_at: self.at(second), ended_at: self.at(second + 1), failure, held };
        let mut tx = self.store.begin().await?;
        let recorded = tx.record_remote_resource(KEY, &found).await?.is_some();
        tx.commit().await?;
        Ok(recorded)
    }

    async fn known(&self) -> Result<RemoteResource> {
        self.store.remote_resources(&[KEY, "another"]).await?.remove(KEY).context("nothing is known")
    }

    async fn stored(&self, text: &str) -> Result<HeldRemote> {
        let digest = Digest::of(text.as_bytes());
        self.store.put_blob(digest, text.as_bytes(), AtRest::Sealed, self.start).await?;
        let (revision, bytes) = (format!("main@{text}"), text.len() as u64);
        Ok(HeldRemote { digest, is_file: false, revision, bytes })
    }
}

#[tokio::test]
async fn the_check_that_began_last_counts_and_a_failure_forgets_nothing() -> Result<()> {
    let kit = Kit::open().await?;
    ensure!(kit.store.remote_resources(&[KEY]).await?.is_empty(), "something is known");
    let (one, two) = (kit.stored("one").await?, kit.stored("two").await?);
    ensure!(kit.record(10, Ok(&two)).await?, "the first check was not recorded");
    // One that took long tells of what was there before.
    ensure!(!kit.record(5, Ok(&one)).await?, "an older check was recorded");
    ensure!(kit.known().await?.held == Some(two.clone()), "{:?}", kit.known().await?);
    ensure!(kit.record(20, Err("away")).await?, "the failure was not recorded");
    let known = kit.known().await?;
    ensure!(known.failure.as_deref() == Some("away") && known.held == Some(two), "{known:?}");
    ensure!((known.began_at, known.ended_at) == (kit.at(20), kit.at(21)), "{known:?}");
    ensure!(kit.record(30, Ok(&one)).await?, "the next check was not recorded");
    let known = kit.known().await?;
    ensure!(known.failure.is_none() && known.held == Some(one), "{known:?}");
    Ok(())
}

#[tokio::test]
async fn its_bytes_are_kept_as_long_as_it_is_known() -> Result<()> {
    let kit = Kit::open().await?;
    let held = kit.stored("held").await?;
    kit.record(10, Ok(&held)).await?;
    kit.store.drop_unused_blobs(kit.at(1_000_000), kit.at(1_000_000)).await?;
    ensure!(kit.known().await?.held == Some(held), "its bytes are gone");
    kit.store.forget_remote_resources(kit.at(10)).await?;
    kit.known().await?;
    kit.store.forget_remote_resources(kit.at(11)).await?;
    ensure!(kit.known().await.is_err(), "it is still known");
    kit.store.drop_unused_blobs(kit.at(1_000_000), kit.at(1_000_000)).await?;
    // What is known of one whose bytes are gone is that it is to be fetched.
    let gone =
        HeldRemote { digest: Digest::of(b"held"), is_file: true, revision: "etag x".to_owned(), bytes: 4 };
    kit.record(20, Ok(&gone)).await?;
    ensure!(kit.known().await?.held.is_none(), "bytes that are not stored are said to be held");
    Ok(())
}
