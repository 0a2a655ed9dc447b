//! Which artifact a source had at each revision, and the revisions that pinned appliers are waiting for.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{Digest, ResourceUid, Revision};

use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// Revisions of one source that may wait to be fetched: changing a pin over and over does not fill the table.
const MAX_WAITING: i64 = 64;
/// An artifact's time of use is renewed at most this often.
const RENEW_AFTER: Duration = Duration::from_secs(3600);

/// What is known of a source at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptArtifact {
    /// It is stored.
    Stored(Digest),
    /// It is to be fetched.
    Wanted,
    /// It could not be fetched: why, and when that was.
    Failed(String, Timestamp),
}

/// An artifact of a source that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceArtifact {
    /// Its digest.
    pub digest: Digest,
    /// The revision that it was made of.
    pub revision: String,
    /// When it was stored.
    pub stored: Timestamp,
    /// Bytes as they are stored, which are a few more than it has.
    pub bytes: u64,
}

type Row = (Vec<u8>, String, time::OffsetDateTime, i64);

/// What is read of one, whose bytes are where this hub looks.
const ARTIFACT: &str = "a.digest, a.asked, a.since, b.size FROM source_artifact a JOIN blob b USING (digest)
     WHERE a.source = $1 AND b.size > 0 AND (b.object_name IS NULL OR $3)";

fn source_artifact(what: &'static str, row: Option<Row>) -> Result<Option<SourceArtifact>, StoreError> {
    let Some((digest, revision, stored, bytes)) = row else { return Ok(None) };
    Ok(Some(SourceArtifact {
        digest: crate::blob::digest(what, &digest)?,
        revision,
        stored: from_sql(what, stored)?,
        bytes: u64::try_from(bytes).unwrap_or_default(),
    }))
}

impl Store {
    /// Bytes of the artifacts that the sources of a namespace have now, but for one of them; as they are stored, which is a few more than they have.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn artifact_bytes(
        &self,
        namespace: &str,
        but_for: Option<ResourceUid>,
    ) -> Result<u64, StoreError> {
        artifact_bytes(&self.pool, namespace, but_for).await
    }

    /// The artifact of a source that has this digest; none where it has none, or that is no longer stored.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn source_artifact_of(
        &self,
        source: ResourceUid,
        digest: Digest,
    ) -> Result<Option<SourceArtifact>, StoreError> {
        let what = "look up an artifact by its digest";
        let sql = format!("SELECT {ARTIFACT} AND a.digest = $2 ORDER BY a.since DESC LIMIT 1");
        let query =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(source.0).bind(digest.as_bytes().as_slice());
        let query = query.bind(self.artifacts.is_some());
        source_artifact(what, query.fetch_optional(&self.pool).await.map_err(StoreError::query(what))?)
    }

    /// The artifact of a source at a revision, whatever branch or tag that was found by.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn source_artifact_at(
        &self,
        source: ResourceUid,
        revision: &Revision,
    ) -> Result<Option<SourceArtifact>, StoreError> {
        let what = "look up an artifact by its revision";
        let sql = format!("SELECT {ARTIFACT} AND a.revision = $2");
        let query = sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(source.0).bind(key(revision));
        let query = query.bind(self.artifacts.is_some());
        source_artifact(what, query.fetch_optional(&self.pool).await.map_err(StoreError::query(what))?)
    }

    /// The artifact of a source that was its newest at a time.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn source_artifact_before(
        &self,
        source: ResourceUid,
        at: Timestamp,
    ) -> Result<Option<SourceArtifact>, StoreError> {
        let what = "look up an artifact by its time";
        let sql = format!("SELECT {ARTIFACT} AND a.since <= $2 ORDER BY a.since DESC LIMIT 1");
        let query = sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(source.0).bind(to_sql(at));
        let query = query.bind(self.artifacts.is_some());
        source_artifact(what, query.fetch_optional(&self.pool).await.map_err(StoreError::query(what))?)
    }

    /// The artifact of a source at a revision. None where nobody has asked for it, or it is no longer stored.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn kept_artifact(
        &self,
        source: ResourceUid,
        revision: &Revision,
        now: Timestamp,
    ) -> Result<Option<KeptArtifact>, StoreError> {
        type Found = (Option<Vec<u8>>, Option<String>, time::OffsetDateTime);
        let what = "look up the artifact of a revision";
        let found: Option<Found> = sqlx::query_as(
            "WITH found AS (SELECT digest, failure, since FROM source_artifact WHERE source = $1 AND revision = $2),
                  used AS (UPDATE blob SET used_at = $3 FROM found WHERE blob.digest = found.digest AND used_at < $4)
             SELECT * FROM found",
        )
        .bind(source.0)
        .bind(key(revision))
        .bind(to_sql(now))
        .bind(to_sql(now - RENEW_AFTER))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let Some((digest, failure, since)) = found else { return Ok(None) };
        Ok(Some(match (digest, failure) {
            (Some(digest), _) => KeptArtifact::Stored(crate::blob::digest(what, &digest)?),
            (None, Some(failure)) => KeptArtifact::Failed(failure, from_sql(what, since)?),
            (None, None) => KeptArtifact::Wanted,
        }))
    }

    /// The revision of this source that has been waited for longest, as the pin gives it.
    ///
    /// # Errors
    /// Where the database refuses, or what is stored is not a revision.
    pub async fn wanted_artifact(&self, source: ResourceUid) -> Result<Option<Revision>, StoreError> {
        let what = "look for wanted revisions of a source";
        let asked: Option<String> = sqlx::query_scalar(
            "SELECT asked FROM source_artifact WHERE source = $1 AND digest IS NULL AND failure IS NULL
             ORDER BY since LIMIT 1",
        )
        .bind(source.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let parse = |asked: String| {
            asked.parse().map_err(|_| StoreError::Corrupt { what, why: format!("{asked} is not a revision") })
        };
        asked.map(parse).transpose()
    }

    /// Drops requests and failures that are older than `before`: an applier that still needs the revision asks again.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn drop_old_requests(&self, before: Timestamp) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM source_artifact WHERE digest IS NULL AND since < $1")
            .bind(to_sql(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("drop old requests for revisions"))?;
        Ok(())
    }
}

impl Tx {
    /// Asks for a source's artifact at a revision; once more where it could not be fetched. False where it is being waited for already,
    /// or too many are.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn want_artifact(
        &mut self,
        source: ResourceUid,
        revision: &Revision,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let wanted = sqlx::query(
            "INSERT INTO source_artifact (source, revision, asked, since)
             SELECT uid, $2, $3, $4 FROM resource
             WHERE uid = $1 AND $5 > (SELECT count(*) FROM source_artifact
                         WHERE source = $1 AND digest IS NULL AND failure IS NULL)
             ON CONFLICT (source, revision) DO UPDATE SET asked = $3, failure = NULL, since = $4
             WHERE source_artifact.digest IS NULL AND source_artifact.failure IS NOT NULL",
        )
        .bind(source.0)
        .bind(key(revision))
        .bind(revision.to_string())
        .bind(to_sql(now))
        .bind(MAX_WAITING)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("request a revision of a source"))?;
        Ok(wanted.rows_affected() > 0)
    }

    /// Bytes of the artifacts that the sources of a namespace have now, as [`Store::artifact_bytes`] counts them.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn artifact_bytes(
        &mut self,
        namespace: &str,
        but_for: Option<ResourceUid>,
    ) -> Result<u64, StoreError> {
        artifact_bytes(self.written().await?, namespace, but_for).await
    }

    /// Records what came of fetching a source at a revision: its artifact, which is stored, or why there is none. Nothing where the
    /// source is gone.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn keep_artifact(
        &mut self,
        source: ResourceUid,
        revision: &Revision,
        artifact: Result<Digest, &str>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query(
            // What it had until now is perhaps being built of: it is used until now.
            "WITH superseded AS (
                 UPDATE blob SET used_at = $6 FROM resource
                 WHERE resource.uid = $1 AND digest = CASE
                     WHEN object #>> '{status,artifact,digest}' ~ '^sha256:[0-9a-f]{64}$'
                     THEN decode(substr(object #>> '{status,artifact,digest}', 8), 'hex') END)
             INSERT INTO source_artifact (source, revision, asked, digest, failure, since)
             SELECT uid, $2, $3, $4, $5, $6 FROM resource WHERE uid = $1
             ON CONFLICT (source, revision) DO UPDATE SET digest = $4, failure = $5, since = $6",
        )
        .bind(source.0)
        .bind(key(revision))
        .bind(revision.to_string())
        .bind(artifact.ok().map(|digest| digest.as_bytes().to_vec()))
        .bind(artifact.err())
        .bind(to_sql(now))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("keep the artifact of a revision"))?;
        Ok(())
    }
}

async fn artifact_bytes(
    executor: impl sqlx::PgExecutor<'_>,
    namespace: &str,
    but_for: Option<ResourceUid>,
) -> Result<u64, StoreError> {
    let bytes: i64 = sqlx::query_scalar(
        "SELECT coalesce(sum(size), 0)::bigint FROM (
             SELECT DISTINCT ON (source) blob.size FROM source_artifact JOIN resource ON uid = source JOIN blob USING (digest)
             WHERE resource.namespace = $1 AND ($2::uuid IS NULL OR source <> $2) ORDER BY source, since DESC) AS latest",
    )
    .bind(namespace)
    .bind(but_for.map(|source| source.0))
    .fetch_one(executor)
    .await
    .map_err(StoreError::query("count the bytes of a namespace's artifacts"))?;
    Ok(u64::try_from(bytes).unwrap_or_default())
}

/// What identifies a revision, whatever branch or tag it was found by.
fn key(revision: &Revision) -> String {
    revision.content().map_or_else(|| revision.to_string(), str::to_owned)
}
