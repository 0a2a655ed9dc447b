//! Content-addressed bytes in chunks: artifacts and builds.

use jiff::Timestamp;
use roadstead_model::Digest;
use sqlx::AssertSqlSafe;

use crate::artifact_store::Object;
use crate::time::to_sql;
use crate::{Store, StoreError};

/// What nothing refers to: no open reconciliation, no status of a source, no remote resource, and no applier that is pinned to a revision.
const UNUSED: &str = "blob.digest NOT IN (SELECT build_digest FROM reconciliation
                        WHERE build_digest IS NOT NULL AND finished_at IS NULL)
    AND blob.digest NOT IN (SELECT artifact_digest FROM reconciliation
                            WHERE artifact_digest IS NOT NULL AND finished_at IS NULL)
    AND 'sha256:' || encode(blob.digest, 'hex') NOT IN
        (SELECT of_dispatch ->> 'objects'
         FROM reconciliation, jsonb_array_elements(dispatch -> 'groups') AS of_dispatch
         WHERE finished_at IS NULL)
    AND 'sha256:' || encode(blob.digest, 'hex') NOT IN
        (SELECT object #>> '{status,artifact,digest}' FROM resource
         WHERE object #>> '{status,artifact,digest}' IS NOT NULL)
    AND blob.digest NOT IN (SELECT digest FROM remote_resource WHERE digest IS NOT NULL)
    AND blob.digest NOT IN
        (SELECT kept.digest FROM resource applier
         JOIN resource source ON applier.refers_to @> ARRAY[source.kind || '/' || source.namespace || '/' || source.name]
         JOIN source_artifact kept ON kept.source = source.uid
           AND kept.revision = regexp_replace(coalesce(applier.object #>> '{spec,pin,revision}',
               applier.object #>> '{metadata,annotations,fleet.roadstead.dev/pin}'), '^.*:', '')
         WHERE applier.pinned AND kept.digest IS NOT NULL)";

/// Builds that an applier's history is compared by: its newest two. So an application that changes once a year shows what changed then.
const COMPARED: &str = "SELECT build_digest FROM (
        SELECT build_digest, row_number() OVER (PARTITION BY applier ORDER BY max(attempt) DESC) AS place
        FROM reconciliation WHERE build_digest IS NOT NULL GROUP BY applier, build_digest) AS built
    WHERE place <= 2";

/// Small enough that a row is quick to read and to vacuum, large enough that a whole artifact is few rows.
const CHUNK: usize = 512 * 1024;
/// Chunks that are read at once.
const READ_AT_ONCE: usize = 8;

/// Whether a blob is encrypted at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtRest {
    /// It holds no Secret's value.
    Plain,
    /// It may hold Secrets' values.
    Sealed,
}

/// How a blob is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobHead {
    /// Bytes as stored; of a sealed one some more than it has.
    pub bytes: usize,
    /// It is encrypted at rest, as a whole.
    pub sealed: bool,
}

impl Store {
    /// The most bytes of a part of a blob.
    pub const BLOB_PART: usize = CHUNK;

    /// One part of a blob as stored, from 0; none where there are no more, or it is not stored any more.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn blob_part(&self, digest: Digest, part: i32) -> Result<Option<Vec<u8>>, StoreError> {
        sqlx::query_scalar("SELECT data FROM blob_chunk WHERE digest = $1 AND part = $2")
            .bind(digest.as_bytes().as_slice())
            .bind(part)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("read a part of a blob"))
    }

    /// Stores `bytes` under `digest`. Storing the same again only renews its time of use.
    ///
    /// `digest` is the caller's: a build is addressed by its uncompressed form.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn put_blob(
        &self,
        digest: Digest,
        bytes: &[u8],
        at_rest: AtRest,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let sealed;
        let stored = match at_rest {
            AtRest::Plain => bytes,
            AtRest::Sealed => {
                sealed = self.sealer.seal("seal a blob", digest.as_bytes(), bytes)?;
                &sealed
            }
        };
        if stored.len() <= CHUNK {
            return self.put_small_blob(digest, stored, at_rest, now).await;
        }
        let mut tx = self.pool.begin().await.map_err(StoreError::query("begin to store a blob"))?;
        let size = i64::try_from(stored.len()).unwrap_or(i64::MAX);
        let fresh = sqlx::query(
            "INSERT INTO blob (digest, size, sealed, created_at, used_at) VALUES ($1, $2, $3, $4, $4)
             ON CONFLICT (digest) DO UPDATE SET size = $2, sealed = $3, used_at = $4, object_name = NULL, object_key = NULL
             WHERE $5 AND blob.object_name IS NOT NULL",
        )
        .bind(digest.as_bytes().as_slice())
        .bind(size)
        .bind(at_rest == AtRest::Sealed)
        .bind(to_sql(now))
        .bind(self.artifacts.is_none())
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query("store a blob"))?
        .rows_affected();
        if fresh == 0 {
            sqlx::query("UPDATE blob SET used_at = $2 WHERE digest = $1")
                .bind(digest.as_bytes().as_slice())
                .bind(to_sql(now))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::query("renew a blob"))?;
        } else {
            for (part, data) in (0_i32..).zip(stored.chunks(CHUNK)) {
                sqlx::query("INSERT INTO blob_chunk (digest, part, data) VALUES ($1, $2, $3)")
                    .bind(digest.as_bytes().as_slice())
                    .bind(part)
                    .bind(data)
                    .execute(&mut *tx)
                    .await
                    .map_err(StoreError::query("store a part of a blob"))?;
            }
        }
        tx.commit().await.map_err(StoreError::query("commit a blob"))
    }

    /// As [`Store::put_blob`], of one chunk: most are, and one statement costs a quarter of what a transaction does.
    async fn put_small_blob(
        &self,
        digest: Digest,
        stored: &[u8],
        at_rest: AtRest,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // A blob that is there has its chunks, which were committed with it; unless it is in an object store that this hub is not told of.
        sqlx::query(
            "WITH kept AS (INSERT INTO blob (digest, size, sealed, created_at, used_at) VALUES ($1, $2, $3, $4, $4)
                           ON CONFLICT (digest) DO UPDATE SET used_at = $4,
                               size = CASE WHEN $6 AND blob.object_name IS NOT NULL THEN $2 ELSE blob.size END,
                               object_name = CASE WHEN $6 THEN NULL ELSE blob.object_name END,
                               object_key = CASE WHEN $6 THEN NULL ELSE blob.object_key END
                           RETURNING digest, size, sealed, object_name)
             INSERT INTO blob_chunk (digest, part, data)
                 SELECT digest, 0, $5 FROM kept WHERE size = $2 AND sealed = $3 AND object_name IS NULL
             ON CONFLICT (digest, part) DO NOTHING",
        )
        .bind(digest.as_bytes().as_slice())
        .bind(i64::try_from(stored.len()).unwrap_or(i64::MAX))
        .bind(at_rest == AtRest::Sealed)
        .bind(to_sql(now))
        .bind(stored)
        .bind(self.artifacts.is_none())
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("store a small blob"))?;
        Ok(())
    }

    /// Stores the name of a blob whose bytes are not to be stored, so that the rest can refer to it.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn put_name(&self, digest: Digest, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO blob (digest, size, sealed, created_at, used_at) VALUES ($1, 0, false, $2, $2)
             ON CONFLICT (digest) DO UPDATE SET used_at = $2",
        )
        .bind(digest.as_bytes().as_slice())
        .bind(to_sql(now))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("store a blob's name"))?;
        Ok(())
    }

    /// The bytes of a blob; none where it is not, or no longer, stored.
    ///
    /// # Errors
    /// Where the database refuses, or the stored bytes are not whole; [`StoreError::ArtifactStore`].
    pub async fn blob(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        // A rekey may have replaced it between two of its parts; it does so once for each key.
        match self.blob_at_once(digest).await {
            Err(StoreError::Corrupt { .. } | StoreError::Seal { .. } | StoreError::UnknownKey { .. }) => {
                self.blob_at_once(digest).await
            }
            read => read,
        }
    }

    async fn blob_at_once(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let what = "read a blob";
        type Head = (i64, bool, Option<String>, Option<Vec<u8>>);
        let head: Option<Head> =
            sqlx::query_as("SELECT size, sealed, object_name, object_key FROM blob WHERE digest = $1")
                .bind(digest.as_bytes().as_slice())
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::query(what))?;
        let Some((size, sealed, name, key)) = head else { return Ok(None) };
        if let (Some(name), Some(key)) = (name, key) {
            let bytes = u64::try_from(size).unwrap_or_default();
            return Box::pin(self.read_object(digest, bytes, Object { name, key })).await;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        // A few at a time: no more than one copy of it is ever in memory.
        for first in (0_i32..).step_by(READ_AT_ONCE) {
            let parts: Vec<Vec<u8>> = sqlx::query_scalar(
                "SELECT data FROM blob_chunk WHERE digest = $1 AND part >= $2 AND part < $2 + $3 ORDER BY part",
            )
            .bind(digest.as_bytes().as_slice())
            .bind(first)
            .bind(READ_AT_ONCE as i32)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            if parts.len() < READ_AT_ONCE {
                break;
            }
        }
        if i64::try_from(bytes.len()) != Ok(size) {
            let why = format!("{digest} has {} of {size} bytes", bytes.len());
            return Err(StoreError::Corrupt { what, why });
        }
        if sealed {
            return Ok(Some(self.sealer.open_in_place(what, digest.as_bytes(), bytes)?));
        }
        Ok(Some(bytes))
    }

    /// How many bytes a blob has as it is stored; none where it is not, or no longer.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn blob_size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        let size: Option<i64> = sqlx::query_scalar("SELECT size FROM blob WHERE digest = $1")
            .bind(digest.as_bytes().as_slice())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("look up a blob's size"))?;
        Ok(size.and_then(|size| u64::try_from(size).ok()))
    }

    /// Whether a blob is stored.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn has_blob(&self, digest: Digest) -> Result<bool, StoreError> {
        // What is where this hub does not look is not there.
        let sql =
            "SELECT EXISTS (SELECT FROM blob WHERE digest = $1 AND size > 0 AND (object_name IS NULL OR $2))";
        sqlx::query_scalar(sql)
            .bind(digest.as_bytes().as_slice())
            .bind(self.artifacts.is_some())
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query("look for a blob"))
    }

    /// Drops blobs that nothing refers to and that were last used before `before`, artifacts of sources before `artifacts`.
    ///
    /// Kept are the artifacts that a source's status names or that an applier is pinned to, what remote resources hold, the builds of open
    /// reconciliations and the newest two of each applier, however old.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn drop_unused_blobs(
        &self,
        before: Timestamp,
        artifacts: Timestamp,
    ) -> Result<u64, StoreError> {
        let dropped: Vec<Option<String>> = sqlx::query_scalar(AssertSqlSafe(format!(
            "WITH forgotten AS (DELETE FROM build_cache WHERE used_at < $1)
             DELETE FROM blob WHERE used_at < CASE
                 WHEN digest IN (SELECT digest FROM source_artifact WHERE digest IS NOT NULL) THEN $2 ELSE $1 END
               AND {UNUSED} AND digest NOT IN ({COMPARED}) RETURNING object_name"
        )))
        .bind(to_sql(before))
        .bind(to_sql(artifacts))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("drop unused blobs"))?;
        Ok(self.are_dropped(dropped).await)
    }

    /// Removes what dropped rows had in an object store. Gives how many rows there were.
    async fn are_dropped(&self, rows: Vec<Option<String>>) -> u64 {
        let count = rows.len() as u64;
        Box::pin(self.remove_objects(rows.into_iter().flatten().collect())).await;
        count
    }

    /// Drops the artifacts of sources beyond so many of each, the newest first, that were last used before `before`: who took one before it
    /// was superseded may be at it still. Kept are those that [`Self::drop_unused_blobs`] keeps.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn trim_artifacts(&self, most: i64, before: Timestamp) -> Result<u64, StoreError> {
        let dropped: Vec<Option<String>> = sqlx::query_scalar(AssertSqlSafe(format!(
            "WITH ranked AS (
                 SELECT digest, row_number() OVER (PARTITION BY source ORDER BY since DESC) AS place
                 FROM source_artifact WHERE digest IS NOT NULL),
             beyond AS (SELECT digest FROM ranked GROUP BY digest HAVING min(place) > $1)
             DELETE FROM blob USING beyond WHERE blob.digest = beyond.digest AND used_at < $2 AND {UNUSED} RETURNING blob.object_name"
        )))
        .bind(most)
        .bind(to_sql(before))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("drop artifacts that are too many"))?;
        Ok(self.are_dropped(dropped).await)
    }
}

pub(crate) fn digest(what: &'static str, bytes: &[u8]) -> Result<Digest, StoreError> {
    let bytes: [u8; 32] = bytes
        .try_into()
        .map_err(|_| StoreError::Corrupt { what, why: format!("a digest of {} bytes", bytes.len()) })?;
    Ok(Digest::from_bytes(bytes))
}
