//! Artifacts in an object store of the operator's. Their rows stay in the database, and say where the bytes are.
//!
//! An object is uploaded under a name of its own before its row is written, and is never written again: so no row names bytes that were not
//! there, and nobody who removes a leftover can meet somebody who puts the same artifact there once more. Its bytes are encrypted with a key
//! of its own, which lies in the row, sealed with the hub's: the store learns nothing, and a change of the hub's keys moves no object. What comes
//! back is decrypted and held against the digest, so whoever writes to the store can withhold an artifact and not change it.
//!
//! An object that is lost or is another one takes its row with it: everything then goes as with an artifact that is not kept any more, and its
//! source is fetched again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use jiff::Timestamp;
use roadstead_model::{Digest, Queue, ResourceUid};
use roadstead_s3::Bucket;
use uuid::Uuid;

use crate::seal::{Key, Sealer};
use crate::time::to_sql;
use crate::{AtRest, Store, StoreError};

/// Objects that are removed at once.
const REMOVED_AT_ONCE: usize = 4;
/// Objects that are removed right after their rows; the rest is left to the next search for leftovers.
const MOST_REMOVED: usize = 1_000;
/// How long an object without a row is left alone: whoever uploads it has long written the row, or never will. Replicas tell the time by their own
/// clocks; one whose clock is wrong by more may remove what another one stores just then, which is fetched again like all that is lost.
const LEFT_ALONE: Duration = Duration::from_secs(3600);
/// How often leftovers are looked for, by one replica: it lists the whole store.
const SWEEP_EVERY: Duration = Duration::from_secs(15 * 60);
/// The label that names who makes an ExternalArtifact, where an ArtifactGenerator does.
const GENERATOR: &str = "source.extensions.fluxcd.io/generator";
/// Pages of a list: of a thousand names each.
const MOST_PAGES: usize = 10_000;

/// Where artifacts are besides the database.
#[derive(Clone, Debug)]
pub struct ArtifactStore {
    bucket: Arc<Bucket>,
    /// Whether new ones are stored there, too; else those that are there are read.
    is_for_new: bool,
    /// Of this database.
    id: Uuid,
}

/// An object and what opens it.
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) key: Vec<u8>,
}

impl ArtifactStore {
    fn name(&self, object: &str) -> String {
        format!("{}/{object}", self.id)
    }

    /// Why it is unavailable; none while it works.
    #[must_use]
    pub fn outage(&self) -> Option<String> {
        self.bucket.outage()
    }
}

/// A name that nothing has had before; it says when it was made.
fn fresh_name(digest: Digest, now: Timestamp) -> String {
    format!("{}-{}-{}", digest.hex(), now.as_second().max(0), Uuid::new_v4().simple())
}

/// When a name was made; none of what is not such a name.
fn made_at(object: &str) -> Option<Timestamp> {
    let mut parts = object.split('-');
    let (digest, time, random) = (parts.next()?, parts.next()?, parts.next()?);
    let is_hex =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
    if parts.next().is_some() || !is_hex(digest, 64) || !is_hex(random, 32) {
        return None;
    }
    Timestamp::from_second(time.parse().ok()?).ok()
}

/// What an object's key is sealed for: `rekey/sealed.rs` makes the same.
fn place(digest: Digest, object: &str) -> Vec<u8> {
    [b"artifact\0", digest.as_bytes().as_slice(), object.as_bytes()].concat()
}

fn failed(error: roadstead_s3::BucketError) -> StoreError {
    StoreError::ArtifactStore(error)
}

impl Store {
    /// Reads artifacts from this bucket as well; with `is_for_new` new ones are stored there, and not in the database.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn with_artifacts_in(
        mut self,
        bucket: Arc<Bucket>,
        is_for_new: bool,
    ) -> Result<Self, StoreError> {
        let what = "look up which hub's artifacts these are";
        let id = sqlx::query_scalar("SELECT id FROM artifact_store")
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        self.artifacts = Some(Arc::new(ArtifactStore { bucket, is_for_new, id }));
        Ok(self)
    }

    /// Where artifacts are besides the database, where that is so.
    #[must_use]
    pub fn artifact_store(&self) -> Option<&ArtifactStore> {
        self.artifacts.as_deref()
    }

    /// Stores an artifact under its digest: in the object store, where there is one for new ones. Storing the same again only renews its time
    /// of use.
    ///
    /// # Errors
    /// Where the database refuses, or the object store is unavailable: [`StoreError::ArtifactStore`].
    pub async fn put_artifact(&self, digest: Digest, bytes: &[u8], now: Timestamp) -> Result<(), StoreError> {
        let Some(store) = self.artifacts.as_ref().filter(|store| store.is_for_new) else {
            return self.put_blob(digest, bytes, AtRest::Sealed, now).await;
        };
        let known = sqlx::query("UPDATE blob SET used_at = $2 WHERE digest = $1 AND size > 0")
            .bind(digest.as_bytes().as_slice())
            .bind(to_sql(now))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("renew an artifact"))?;
        if known.rows_affected() > 0 {
            return Ok(());
        }
        // On the heap: it is at the bottom of all that fetches.
        Box::pin(self.upload(store, digest, bytes, now)).await
    }

    /// Puts an artifact into the object store, and writes then where it is.
    async fn upload(
        &self,
        store: &ArtifactStore,
        digest: Digest,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let what = "seal an artifact";
        let (key, object) = (Key::generate()?, fresh_name(digest, now));
        let sealed = Bytes::from(Sealer::new(&key)?.seal(what, digest.as_bytes(), bytes)?);
        let key = self.sealer.seal(what, &place(digest, &object), key.expose())?;
        let size = i64::try_from(sealed.len()).unwrap_or(i64::MAX);
        store.bucket.put(&store.name(&object), sealed).await.map_err(failed)?;
        let kept: Option<String> = sqlx::query_scalar(
            "INSERT INTO blob (digest, size, sealed, created_at, used_at, object_name, object_key) VALUES ($1, $2, true, $3, $3, $4, $5)
             ON CONFLICT (digest) DO UPDATE SET used_at = $3 RETURNING object_name",
        )
        .bind(digest.as_bytes().as_slice())
        .bind(size)
        .bind(to_sql(now))
        .bind(&object)
        .bind(key)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("store where an artifact is"))?;
        if kept.as_deref() != Some(&object) {
            // Another one was sooner.
            self.remove_objects(vec![object]).await;
        }
        Ok(())
    }

    /// The bytes of an artifact in the object store; none where they are lost, and with them the row.
    pub(crate) async fn read_object(
        &self,
        digest: Digest,
        bytes: u64,
        object: Object,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        // Nothing of it is of use to a hub that is not told where it is: as if it were not kept any more.
        let Some(store) = &self.artifacts else { return Ok(None) };
        let what = "open an artifact";
        let Object { name: object, key } = object;
        let key = self.sealer.open(what, &place(digest, &object), &key)?;
        let key: [u8; 32] = key.as_slice().try_into().map_err(|_| StoreError::Seal { what })?;
        let own = Sealer::new(&Key::new(key))?;
        let got = store.bucket.get(&store.name(&object), bytes).await.map_err(failed)?;
        let sealed = match got {
            Ok(sealed) => sealed,
            Err(bad) => return self.lose(store, digest, &object, &bad.to_string()).await,
        };
        let opened = tokio::task::spawn_blocking(move || {
            let plain = own.open_in_place(what, digest.as_bytes(), sealed).ok()?;
            (Digest::of(&plain) == digest).then_some(plain)
        });
        match opened.await {
            Ok(Some(plain)) => Ok(Some(plain)),
            Ok(None) => self.lose(store, digest, &object, "its bytes are not those that were stored").await,
            Err(error) => Err(StoreError::Corrupt { what, why: error.to_string() }),
        }
    }

    /// Drops an artifact whose object is lost, and has the sources fetched whose status names it.
    async fn lose(
        &self,
        store: &ArtifactStore,
        digest: Digest,
        object: &str,
        why: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let what = "drop an artifact that is lost";
        let mut tx = self.begin().await?;
        let gone = sqlx::query("DELETE FROM blob WHERE digest = $1 AND object_name = $2")
            .bind(digest.as_bytes().as_slice())
            .bind(object)
            .execute(tx.written().await?)
            .await
            .map_err(StoreError::query(what))?;
        if gone.rows_affected() == 0 {
            // Somebody else has found it before, or it is not kept any more.
            return Ok(None);
        }
        let users: Vec<(Uuid, Option<String>)> = sqlx::query_as(
            "SELECT uid, object #>> $2 FROM resource
             WHERE object #>> '{status,artifact,digest}' = $1",
        )
        .bind(digest.to_string())
        .bind(["metadata", "labels", GENERATOR].as_slice())
        .fetch_all(tx.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        for (uid, maker) in users {
            // Of what others have uploaded the pass can only say it.
            tx.enqueue(Queue::Source, &[ResourceUid(uid)]).await?;
            if let Some(maker) = maker.and_then(|maker| maker.parse().ok()) {
                tx.enqueue(Queue::Generator, &[ResourceUid(maker)]).await?;
            }
        }
        tx.commit().await?;
        tracing::error!(
            bucket = store.bucket.shown(),
            object,
            %digest,
            why,
            "the artifact store has lost an artifact: its source is fetched again"
        );
        Ok(None)
    }

    /// Removes objects whose rows are gone. What is left is removed by [`Store::sweep_artifacts`].
    pub(crate) async fn remove_objects(&self, objects: Vec<String>) {
        let Some(store) = &self.artifacts else { return };
        let removals = objects.into_iter().take(MOST_REMOVED).map(|object| async move {
            // Each would wait as long as the one that found it out.
            if store.outage().is_some() {
                return;
            }
            if let Err(error) = store.bucket.remove(&store.name(&object)).await {
                tracing::debug!(
                    object,
                    error = error.to_string(),
                    "an object could not be removed, and will be"
                );
            }
        });
        futures::stream::iter(removals).buffer_unordered(REMOVED_AT_ONCE).collect::<()>().await;
    }

    /// Sees whether the object store answers; and now and then removes objects from it that no row names, one replica for all. Gives how many
    /// it has removed.
    ///
    /// # Errors
    /// Where the database refuses. That the object store is unavailable is told by [`ArtifactStore::outage`] and in the log.
    pub async fn sweep_artifacts(&self, now: Timestamp) -> Result<u64, StoreError> {
        let Some(store) = &self.artifacts else { return Ok(0) };
        if store.bucket.probe().await.is_err() {
            return Ok(0);
        }
        let turn =
            sqlx::query("UPDATE artifact_store SET swept_at = $1 WHERE swept_at < $2 OR swept_at > $1")
                .bind(to_sql(now))
                .bind(to_sql(now - SWEEP_EVERY))
                .execute(&self.pool)
                .await
                .map_err(StoreError::query("take a turn to look for leftovers in the artifact store"))?;
        if turn.rows_affected() == 0 {
            return Ok(0);
        }
        let (mut next, mut removed) = (None, 0);
        for _ in 0..MOST_PAGES {
            let Ok(page) = store.bucket.names(&store.name(""), next.as_deref()).await else { break };
            removed += self.sweep(store, page.names, now).await?;
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        if removed > 0 {
            tracing::info!(
                removed,
                bucket = store.bucket.shown(),
                "removed leftovers from the artifact store"
            );
        }
        Ok(removed)
    }

    /// Removes of these names those that are old and that no row names.
    async fn sweep(
        &self,
        store: &ArtifactStore,
        names: Vec<String>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let own = store.name("");
        let is_old = |name: &str| made_at(name).is_some_and(|made| made < now - LEFT_ALONE);
        let old: Vec<String> = names
            .iter()
            .filter_map(|name| name.strip_prefix(&own))
            .filter(|name| is_old(name))
            .map(str::to_owned)
            .collect();
        let leftovers: Vec<String> = sqlx::query_scalar(
            "SELECT name FROM unnest($1::text[]) AS listed (name)
             WHERE NOT EXISTS (SELECT FROM blob WHERE object_name = listed.name)",
        )
        .bind(old)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for leftovers in the artifact store"))?;
        let removed = leftovers.len().min(MOST_REMOVED);
        self.remove_objects(leftovers).await;
        Ok(removed as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_when_they_were_made() {
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let name = fresh_name(Digest::of(b"a"), now);
        assert_eq!(made_at(&name), Some(now));
        assert_ne!(name, fresh_name(Digest::of(b"a"), now));
        for other in ["", "readme.txt", &name[1..], &format!("{name}-x"), "a-1-b", &name.replace("-1", "-x")]
        {
            assert_eq!(made_at(other), None, "{other}");
        }
    }
}
