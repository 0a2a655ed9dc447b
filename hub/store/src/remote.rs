//! Remote resources of kustomizations: what each held when it was last checked.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_model::{Digest, ResourceUid};
use uuid::Uuid;

use crate::blob::digest;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// What is known of a remote resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteResource {
    /// When the newest check of it began.
    pub began_at: Timestamp,
    /// When that ended.
    pub ended_at: Timestamp,
    /// Why that failed, for people.
    pub failure: Option<String>,
    /// What it held when it was last had; none where that is not stored, or not any more.
    pub held: Option<HeldRemote>,
}

/// What a remote resource held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRemote {
    /// Of its artifact, or of the file.
    pub digest: Digest,
    /// Whether it is a single file, which is stored as it is.
    pub is_file: bool,
    /// By which the next check asks whether it is still the same.
    pub revision: String,
    /// Bytes of its files.
    pub bytes: u64,
}

type Moment = ::time::OffsetDateTime;
type Row = (String, Moment, Moment, Option<String>, Option<Vec<u8>>, bool, String, i64);

fn read(what: &'static str, row: Row) -> Result<(String, RemoteResource), StoreError> {
    let (key, began_at, ended_at, failure, held, is_file, revision, bytes) = row;
    let held = match held {
        None => None,
        Some(held) => Some(HeldRemote {
            digest: digest(what, &held)?,
            is_file,
            revision,
            bytes: u64::try_from(bytes).unwrap_or_default(),
        }),
    };
    let (began_at, ended_at) = (from_sql(what, began_at)?, from_sql(what, ended_at)?);
    Ok((key, RemoteResource { began_at, ended_at, failure, held }))
}

impl Store {
    /// What is known of these remote resources, by their keys.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn remote_resources(
        &self,
        keys: &[&str],
    ) -> Result<BTreeMap<String, RemoteResource>, StoreError> {
        let what = "read remote resources";
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT key, began_at, ended_at, failure, blob.digest, is_file, revision, bytes
             FROM remote_resource LEFT JOIN blob ON blob.digest = remote_resource.digest WHERE key = ANY($1)",
        )
        .bind(keys)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.into_iter().map(|row| read(what, row)).collect()
    }

    /// Forgets what nobody has checked since `before`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_remote_resources(&self, before: Timestamp) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM remote_resource WHERE began_at < $1")
            .bind(to_sql(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget remote resources"))?;
        Ok(())
    }
}

impl Tx {
    /// Records what a check of a remote resource came to, and gives what was known before; the outer none where a check that began later is
    /// recorded already (but for one that began after this one's end: the clock was put back). Of one that failed what it held before stays.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn record_remote_resource(
        &mut self,
        key: &str,
        found: &RemoteResource,
    ) -> Result<Option<Option<RemoteResource>>, StoreError> {
        let what = "record a remote resource";
        let before: Option<Row> = sqlx::query_as(
            "SELECT key, began_at, ended_at, failure, digest, is_file, revision, bytes FROM remote_resource WHERE key = $1
             FOR UPDATE",
        )
        .bind(key)
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        let before = before.map(|row| read(what, row)).transpose()?.map(|(_, before)| before);
        let held = found.held.as_ref();
        let written = sqlx::query(
            "WITH used AS (UPDATE blob SET used_at = $2 WHERE digest = $4)
             INSERT INTO remote_resource (key, began_at, failure, digest, is_file, revision, bytes, ended_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (key) DO UPDATE SET began_at = $2, ended_at = $8, failure = $3,
                 digest = coalesce($4, remote_resource.digest),
                 is_file = CASE WHEN $4::bytea IS NULL THEN remote_resource.is_file ELSE $5 END,
                 revision = CASE WHEN $4::bytea IS NULL THEN remote_resource.revision ELSE $6 END,
                 bytes = CASE WHEN $4::bytea IS NULL THEN remote_resource.bytes ELSE $7 END
             WHERE remote_resource.began_at < $2 OR remote_resource.began_at > $8::timestamptz + interval '1 minute'",
        )
        .bind(key)
        .bind(to_sql(found.began_at))
        .bind(&found.failure)
        .bind(held.map(|held| held.digest.as_bytes().as_slice()))
        .bind(held.is_some_and(|held| held.is_file))
        .bind(held.map_or("", |held| held.revision.as_str()))
        .bind(held.map_or(0, |held| i64::try_from(held.bytes).unwrap_or(i64::MAX)))
        .bind(to_sql(found.ended_at))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        Ok((written.rows_affected() > 0).then_some(before))
    }

    /// The appliers whose attempts were rendered by something that they note under this name.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn rendered_by_name(&mut self, name: &str) -> Result<Vec<ResourceUid>, StoreError> {
        let found: Vec<Uuid> = sqlx::query_scalar(
            "SELECT DISTINCT applier FROM reconciliation WHERE rendered_by IS NOT NULL AND rendered_by ? $1",
        )
        .bind(name)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("find who was rendered by something"))?;
        Ok(found.into_iter().map(ResourceUid).collect())
    }
}
