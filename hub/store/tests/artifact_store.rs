//! Artifacts in an object store: their rows say where they are, what comes back is what was stored, and what is lost is fetched again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::{ArtifactStore, AtRest, Key, RekeyOptions, Sealer, Store, StoreError};
use roadstead_model::{Digest, ResourceUid, Revision};
use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_s3::{Bucket, BucketOptions, Credential, CredentialFile, Limits};
use roadstead_test_gitserver::install_crypto;
use roadstead_tests::{FakeS3, S3Fault, TestDatabase};
use serde_json::json;

struct Site {
    database: TestDatabase,
    server: FakeS3,
    credentials: PathBuf,
    key: [u8; 32],
    now: Timestamp,
    _folder: tempfile::TempDir,
}

/// How a hub is started.
#[derive(Clone, Copy)]
enum Flag {
    /// Without the object store.
    No,
    /// With it, for what is there.
    ReadOnly,
    /// With it.
    Yes,
}

impl Site {
    async fn new() -> Result<Self> {
        install_crypto();
        let folder = tempfile::tempdir()?;
        let credentials = folder.path().join("credentials");
        std::fs::write(&credentials, "aws_access_key_id=A\naws_secret_access_key=s\n")?;
        let (database, server) = (TestDatabase::new().await?, FakeS3::start().await?);
        let (key, now) = (*Key::generate()?.expose(), "2026-11-26T12:00:00Z".parse()?);
        Ok(Self { database, server, credentials, key, now, _folder: folder })
    }

    fn bucket(&self) -> Result<Arc<Bucket>> {
        let options = BucketOptions {
            bucket: "artifacts".to_owned(),
            prefix: String::new(),
            endpoint: Some(self.server.url().parse()?),
            region: None,
            ca: None,
            credential: Credential::File(CredentialFile::new(self.credentials.clone())),
            limits: Limits { request: Duration::from_secs(2), ..Limits::default() },
        };
        let rule = self.server.url().replace("http://", "").parse().context("a rule")?;
        let guard = Guard::new(Arc::new(Policy::new(vec![rule])), Purpose::Bucket);
        Ok(Arc::new(Bucket::new(options, guard)?))
    }

    async fn open(&self, flag: Flag) -> Result<Store> {
        self.open_with(&[self.key], flag).await
    }

    async fn open_with(&self, keys: &[[u8; 32]], flag: Flag) -> Result<Store> {
        let keys: Vec<Key> = keys.iter().copied().map(Key::new).collect();
        let store = Store::open(self.database.url(), Sealer::with_keys(&keys)?, 4).await?;
        Ok(match flag {
            Flag::No => store,
            Flag::ReadOnly => store.with_artifacts_in(self.bucket()?, false).await?,
            Flag::Yes => store.with_artifacts_in(self.bucket()?, true).await?,
        })
    }

    async fn count(&self, sql: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(sql).fetch_one(&mut self.database.connect().await?).await?)
    }

    /// Parts of blobs in the database.
    async fn chunks(&self) -> Result<i64> {
        self.count("SELECT count(*) FROM blob_chunk").await
    }

    /// A source that has this artifact, as its status names it.
    async fn source(&self, store: &Store, digest: Digest) -> Result<ResourceUid> {
        let uid = uuid::Uuid::new_v4();
        let object = json!({ "status": { "artifact": { "digest": digest.to_string() } } });
        sqlx::query(
            "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object, \
             refers_to) VALUES ($1, $2, $3, 'apps', $4, 1, 1, now(), $5, '{}')",
        )
        .bind(uid)
        .bind(KindId::GitRepository.get().kind)
        .bind(KindId::GitRepository.get().group())
        .bind(uid.to_string())
        .bind(object)
        .execute(&mut self.database.connect().await?)
        .await?;
        let mut tx = store.begin().await?;
        tx.keep_artifact(ResourceUid(uid), &revision()?, Ok(digest), self.now).await?;
        tx.commit().await?;
        Ok(ResourceUid(uid))
    }
}

fn revision() -> Result<Revision> {
    Ok(format!("main@sha1:{:040x}", 1).parse()?)
}

/// As large as two parts of a blob in the database.
fn artifact(word: &str) -> (Digest, Vec<u8>) {
    let bytes = word.repeat(Store::BLOB_PART * 2 / word.len()).into_bytes();
    (Digest::of(&bytes), bytes)
}

#[tokio::test]
async fn artifacts_are_in_the_object_store_and_nothing_of_them_in_the_database() -> Result<()> {
    let site = Site::new().await?;
    let store = site.open(Flag::Yes).await?;
    let (digest, bytes) = artifact("a secret");
    store.put_artifact(digest, &bytes, site.now).await?;
    ensure!(site.chunks().await? == 0, "the database has bytes of it");
    let keys = site.server.keys();
    ensure!(keys.len() == 1 && keys[0].contains(&digest.hex()), "{keys:?}");
    let object = site.server.object(&keys[0]).context("the object")?;
    ensure!(!object.windows(8).any(|window| window == b"a secret"), "the object store can read it");
    ensure!(store.blob(digest).await? == Some(bytes.clone()) && store.has_blob(digest).await?);
    ensure!(store.blob_size(digest).await? == Some(object.len() as u64));
    // The same once more is there already, for other replicas, too.
    let _ = site.server.seen();
    let other = site.open(Flag::Yes).await?;
    other.put_artifact(digest, &bytes, site.now).await?;
    ensure!(site.server.seen().is_empty(), "it was uploaded again");
    ensure!(other.blob(digest).await? == Some(bytes));
    // Builds stay in the database.
    store.put_blob(Digest::of(b"a build"), b"a build", AtRest::Sealed, site.now).await?;
    ensure!(site.chunks().await? == 1 && site.server.keys().len() == 1);

    // Two at once: one of both is kept, and it is whole.
    let (digest, bytes) = artifact("at once ");
    let (one, two) = tokio::join!(
        store.put_artifact(digest, &bytes, site.now),
        other.put_artifact(digest, &bytes, site.now)
    );
    one.and(two)?;
    ensure!(site.server.keys().len() == 2, "{:?}", site.server.keys());
    ensure!(store.blob(digest).await? == Some(bytes));
    Ok(())
}

#[tokio::test]
async fn what_is_lost_or_changed_is_dropped_and_its_source_looked_at() -> Result<()> {
    let site = Site::new().await?;
    let store = site.open(Flag::Yes).await?;
    for (round, word) in ["missing ", "changed ", "longer! "].into_iter().enumerate() {
        let (digest, bytes) = artifact(word);
        store.put_artifact(digest, &bytes, site.now).await?;
        let uid = site.source(&store, digest).await?;
        ensure!(store.source_artifact_of(uid, digest).await?.is_some());
        match round {
            0 => site.server.remove(&site.server.keys()[0]),
            1 => site.server.fault(S3Fault::Changes),
            _ => site.server.fault(S3Fault::Longer),
        }
        ensure!(store.blob(digest).await?.is_none(), "{word}: it was read");
        site.server.fault(S3Fault::None);
        ensure!(!store.has_blob(digest).await?, "{word}: it counts as stored");
        ensure!(store.source_artifact_of(uid, digest).await?.is_none());
        let due: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM schedule WHERE uid = $1)")
            .bind(uid.0)
            .fetch_one(&mut site.database.connect().await?)
            .await?;
        ensure!(due, "{word}: its source is not looked at");
        // And it comes back.
        store.put_artifact(digest, &bytes, site.now).await?;
        ensure!(store.blob(digest).await? == Some(bytes), "{word}");
        store.sweep_artifacts(site.now + Duration::from_secs(7 * 3600)).await?;
        for key in site.server.keys() {
            site.server.remove(&key);
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_object_store_that_is_away_loses_nothing() -> Result<()> {
    let site = Site::new().await?;
    let store = site.open(Flag::Yes).await?;
    let (digest, bytes) = artifact("here    ");
    store.put_artifact(digest, &bytes, site.now).await?;
    for fault in
        [S3Fault::Refuses(503, "SlowDown"), S3Fault::Refuses(404, "NoSuchBucket"), S3Fault::BreaksOff]
    {
        site.server.fault(fault.clone());
        let read = store.blob(digest).await;
        ensure!(matches!(read, Err(StoreError::ArtifactStore(_))), "{fault:?}: {read:?}");
        ensure!(store.has_blob(digest).await?, "{fault:?}");
    }
    site.server.fault(S3Fault::Refuses(503, "SlowDown"));
    let (other, more) = artifact("new     ");
    let put = store.put_artifact(other, &more, site.now).await;
    ensure!(matches!(put, Err(StoreError::ArtifactStore(_))), "{put:?}");
    ensure!(!store.has_blob(other).await?, "a row names what is not there");
    ensure!(store.sweep_artifacts(site.now).await? == 0);
    let outage = |store: &Store| store.artifact_store().and_then(ArtifactStore::outage);
    ensure!(outage(&store).is_some());
    site.server.fault(S3Fault::None);
    store.sweep_artifacts(site.now).await?;
    ensure!(outage(&store).is_none() && store.blob(digest).await? == Some(bytes));
    Ok(())
}

#[tokio::test]
async fn there_and_back() -> Result<()> {
    let site = Site::new().await?;
    let (old, old_bytes) = artifact("old     ");
    let (small, small_bytes) = (Digest::of(b"small"), b"small".to_vec());
    let (new, new_bytes) = artifact("new     ");
    let plain = site.open(Flag::No).await?;
    plain.put_artifact(old, &old_bytes, site.now).await?;
    ensure!(site.server.keys().is_empty() && site.chunks().await? == 3);
    // With the flag: what the database has is read from there.
    let store = site.open(Flag::Yes).await?;
    ensure!(store.blob(old).await? == Some(old_bytes.clone()));
    store.put_artifact(new, &new_bytes, site.now).await?;
    store.put_artifact(small, &small_bytes, site.now).await?;
    ensure!(site.server.keys().len() == 2 && site.chunks().await? == 3);
    let uid = site.source(&store, new).await?;
    // The way back: what is there is read, and new ones are in the database.
    let back = site.open(Flag::ReadOnly).await?;
    ensure!(back.blob(new).await? == Some(new_bytes.clone()));
    let (next, next_bytes) = artifact("next    ");
    back.put_artifact(next, &next_bytes, site.now).await?;
    back.put_artifact(new, &new_bytes, site.now).await?;
    ensure!(site.server.keys().len() == 2 && back.blob(next).await? == Some(next_bytes));
    ensure!(back.blob(new).await? == Some(new_bytes.clone()));
    // Without the flag, what is there is as if it were not, and what is fetched again is in the database.
    let chunks = site.chunks().await?;
    ensure!(plain.blob(new).await?.is_none() && !plain.has_blob(new).await?);
    ensure!(plain.source_artifact_of(uid, new).await?.is_none());
    ensure!(store.has_blob(new).await?, "it was dropped");
    plain.put_artifact(new, &new_bytes, site.now).await?;
    plain.put_artifact(small, &small_bytes, site.now).await?;
    ensure!(site.chunks().await? == chunks + 4);
    for store in [&plain, &store] {
        ensure!(store.blob(new).await? == Some(new_bytes.clone()));
        ensure!(store.blob(small).await? == Some(small_bytes.clone()));
        ensure!(store.source_artifact_of(uid, new).await?.is_some());
    }
    Ok(())
}

#[tokio::test]
async fn what_nobody_needs_is_removed_and_leftovers_are() -> Result<()> {
    let site = Site::new().await?;
    let store = site.open(Flag::Yes).await?;
    let (used, used_bytes) = artifact("used    ");
    let (unused, unused_bytes) = artifact("unused  ");
    store.put_artifact(used, &used_bytes, site.now).await?;
    store.put_artifact(unused, &unused_bytes, site.now).await?;
    site.source(&store, used).await?;
    let hours = |count: u64| site.now + Duration::from_secs(count * 3600);
    ensure!(store.drop_unused_blobs(hours(1), hours(1)).await? == 1);
    let keys = site.server.keys();
    ensure!(keys.len() == 1 && keys[0].contains(&used.hex()), "{keys:?}");

    // What a hub has uploaded that ended before it wrote the row; what does not belong to a hub; and what is another hub's.
    let leftover = keys[0].replace(&used.hex(), &unused.hex());
    let other = leftover.replacen("artifacts/", "artifacts/7b3ad0a4-1d0b-4b5e-9d3c-2f8f3f4f5a6b/", 1);
    let note = format!("{}/readme.txt", leftover.rsplit_once('/').context("a key")?.0);
    for key in [&leftover, &other, &note] {
        site.server.put(key, b"x");
    }
    site.server.page(1);
    // Whoever has just uploaded it may be about to write the row.
    store.sweep_artifacts(site.now + Duration::from_secs(1800)).await?;
    ensure!(site.server.keys().len() == 4, "{:?}", site.server.keys());
    // One replica looks for all.
    let _ = site.server.seen();
    let again = site.open(Flag::Yes).await?;
    again.sweep_artifacts(site.now + Duration::from_secs(1801)).await?;
    ensure!(site.server.seen().len() == 1, "it looked again");
    ensure!(again.sweep_artifacts(hours(2)).await? == 1);
    let left = site.server.keys();
    ensure!(left.len() == 3 && !left.contains(&leftover), "{left:?}");
    ensure!(store.blob(used).await? == Some(used_bytes));
    Ok(())
}

#[tokio::test]
async fn a_new_key_of_the_hub_moves_no_object() -> Result<()> {
    let site = Site::new().await?;
    let store = site.open(Flag::Yes).await?;
    let (digest, bytes) = artifact("kept    ");
    store.put_artifact(digest, &bytes, site.now).await?;
    store.close().await;
    let new = *Key::generate()?.expose();
    let store = site.open_with(&[new, site.key], Flag::Yes).await?;
    store.tend_keys().await?;
    let at_once = RekeyOptions { settle: Duration::ZERO, patience: Duration::ZERO };
    let _ = site.server.seen();
    let done = store.rekey(at_once, &mut |_| {}).await?;
    ensure!(done.fresh.get("keys of artifacts in the artifact store") == Some(&1), "{done:?}");
    ensure!(site.server.seen().is_empty(), "an object was moved");
    store.close().await;
    let store = site.open_with(&[new], Flag::Yes).await?;
    ensure!(store.blob(digest).await? == Some(bytes));
    Ok(())
}
