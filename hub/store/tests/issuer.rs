//! What issuers said is believed again only as this hub has written it.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_hub_store::{IssuerAnswer, Key, Sealer, Store};
use roadstead_model::Digest;
use roadstead_tests::TestDatabase;

struct Site {
    database: TestDatabase,
    store: Store,
    start: Timestamp,
}

impl Site {
    async fn new() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?;
        Ok(Self { database, store, start: "2026-11-26T12:00:00Z".parse()? })
    }

    fn answer(&self, keys: &[u8], second: u64) -> IssuerAnswer {
        let received = self.start + Duration::from_secs(second);
        IssuerAnswer { configuration: b"{}".to_vec(), keys: keys.to_vec(), received }
    }

    async fn keep(&self, site: &str, answer: &IssuerAnswer, oldest: u64) -> Result<()> {
        let oldest = self.start + Duration::from_secs(oldest);
        Ok(self.store.keep_issuer_answer(Digest::of(site.as_bytes()), site, answer, oldest).await?)
    }

    async fn known(&self, site: &str) -> Result<Option<IssuerAnswer>> {
        Ok(self.store.issuer_answer(Digest::of(site.as_bytes())).await?)
    }
}

#[tokio::test]
async fn the_newest_answer_is_kept_and_old_ones_of_others_are_not() -> Result<()> {
    let site = Site::new().await?;
    ensure!(site.known("a").await?.is_none());
    let (first, second) = (site.answer(b"first", 10), site.answer(b"second", 20));
    site.keep("a", &second, 0).await?;
    // A replica that was slow.
    site.keep("a", &first, 0).await?;
    ensure!(site.known("a").await? == Some(second.clone()));
    // Too large a one takes no other's place.
    site.keep("a", &site.answer(&[b'x'; (64 << 10) + 1], 30), 0).await?;
    ensure!(site.known("a").await? == Some(second.clone()));
    // An issuer that nobody trusts any more is forgotten with the next answer of another; its own stays, however old.
    site.keep("b", &first, 20).await?;
    ensure!(site.known("a").await?.is_some() && site.known("b").await? == Some(first));
    site.keep("b", &site.answer(b"third", 40), 21).await?;
    ensure!(site.known("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn whoever_writes_the_database_gives_no_issuer_other_keys() -> Result<()> {
    for forge in [
        "UPDATE issuer_answer SET keys = 'theirs'",
        "UPDATE issuer_answer SET configuration = 'theirs'",
        "UPDATE issuer_answer SET received_at = received_at + interval '1 year'",
        "UPDATE issuer_answer SET mac = ''",
        "UPDATE issuer_answer SET keys = convert_to(repeat('x', 70000), 'UTF8')",
        // The row of another issuer, put in its place.
        "UPDATE issuer_answer SET site = (SELECT sha256('a'::bytea)) WHERE issuer = 'b'",
    ] {
        let site = Site::new().await?;
        let other = forge.contains("'b'");
        site.keep(if other { "b" } else { "a" }, &site.answer(b"ours", 10), 0).await?;
        ensure!(site.known("a").await?.is_some() != other);
        let forged = sqlx::query(forge).execute(&mut site.database.connect().await?).await?;
        ensure!(forged.rows_affected() == 1, "{forge}");
        ensure!(site.known("a").await?.is_none(), "{forge}");
    }
    Ok(())
}
