//! Sessions of people who are signed in: each begins once, ends in time, and is renewed by one.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use roadstead_hub_store::{Key, NewSession, Sealer, Store, TokenHash};
use roadstead_tests::TestDatabase;

const HOUR: Duration = Duration::from_secs(3600);

async fn begin(
    store: &Store,
    owner: &str,
    kept: &[u8],
    sign_in: Option<&[u8]>,
    begins: Timestamp,
) -> Result<Option<TokenHash>> {
    let sign_in = sign_in.map(|state| (state, begins + HOUR));
    let new = NewSession { owner, most: 2, kept, sign_in, begins, ends: begins + HOUR };
    let mut tx = store.begin().await?;
    let begun = tx.begin_sign_in_session(&new).await?;
    tx.commit().await?;
    Ok(begun.map(|(_, text)| TokenHash::of(text.expose())))
}

#[tokio::test]
async fn sessions_begin_once_and_end() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let now = store.now().await?;
    let found = async |hash: &TokenHash, at: Timestamp| store.sign_in_session(hash, at, at - HOUR / 2).await;
    let first = begin(&store, "jane", b"one", Some(b"state"), now).await?.context("it begins")?;
    ensure!(begin(&store, "jane", b"one", Some(b"state"), now).await?.is_none(), "its sign-in leads to two");
    let stored = found(&first, now).await?.context("it is there")?;
    ensure!(*stored.kept == *b"one" && stored.version == 0 && !format!("{stored:?}").contains("kept"));
    ensure!(found(&first, now + HOUR / 2).await?.is_none(), "it was not used");
    ensure!(found(&first, now + HOUR / 3).await?.is_some());
    ensure!(found(&first, now + HOUR / 3 * 2).await?.is_some(), "its use counts");
    ensure!(found(&first, now + HOUR).await?.is_none(), "it has ended");

    // Two of one owner, and the newest stay.
    let second = begin(&store, "jane", b"two", None, now + HOUR / 9).await?.context("it begins")?;
    let other = begin(&store, "joe", b"x", None, now).await?.context("it begins")?;
    let third = begin(&store, "jane", b"three", None, now + HOUR / 8).await?.context("it begins")?;
    let at = now + HOUR / 7;
    ensure!(found(&first, at).await?.is_none(), "there are three");
    for there in [&second, &other, &third] {
        ensure!(found(there, at).await?.is_some());
    }

    // One of all renews it, and only what it has seen.
    let until = at + Duration::from_secs(20);
    ensure!(store.may_renew_sign_in_session(&second, 0, at, until).await?);
    ensure!(!store.may_renew_sign_in_session(&second, 0, at, until).await?, "two renew it");
    ensure!(store.renew_sign_in_session(&second, 0, b"renewed").await?);
    ensure!(!store.renew_sign_in_session(&second, 0, b"late").await?);
    ensure!(!store.may_renew_sign_in_session(&second, 0, until, until).await?, "it is renewed already");
    let stored = found(&second, at).await?.context("it is there")?;
    ensure!(*stored.kept == *b"renewed" && stored.version == 1);
    ensure!(store.may_renew_sign_in_session(&third, 0, at, until).await?);
    ensure!(store.may_renew_sign_in_session(&third, 0, until, until + HOUR).await?, "who began it is gone");
    ensure!(!store.may_renew_sign_in_session(&third, 0, at, until).await?);
    store.release_sign_in_session(&third, 0).await?;
    ensure!(store.may_renew_sign_in_session(&third, 0, at, until).await?, "who could not keeps it");

    let mut tx = store.begin().await?;
    ensure!(
        tx.end_sign_in_session(&second).await?.is_some() && tx.end_sign_in_session(&second).await?.is_none()
    );
    tx.commit().await?;
    ensure!(found(&second, at).await?.is_none());
    ensure!(store.drop_ended_sessions(now + HOUR * 2, now).await? == 2);
    ensure!(
        begin(&store, "jane", b"one", Some(b"state"), now).await?.is_some(),
        "what is used is kept for ever"
    );
    Ok(())
}
