//! Which artifact a source had at which revision, and which ones appliers that are pinned wish for.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{Digest, ResourceUid, Revision};

use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// Wishes of one source that wait at once: whoever changes a pin over and over does not fill the table.
const MOST_WISHES: i64 = 64;
/// How much later than it was used last an artifact is used "again": its time of use need not be exact.
const USED: Duration = Duration::from_secs(3600);

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

impl Store {
    /// The artifact of a source at a revision. None where nobody has asked for it, or it is not stored any more.
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
        .bind(to_sql(now - USED))
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

    /// The revision of this source that has been wanted for longest, as the pin says it.
    ///
    /// # Errors
    /// Where the database refuses, or it is none.
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

    /// Drops wishes and failures that are older than `before`: who still wants it wishes again.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn drop_old_wishes(&self, before: Timestamp) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM source_artifact WHERE digest IS NULL AND since < $1")
            .bind(to_sql(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("drop old wishes for revisions"))?;
        Ok(())
    }
}

impl Tx {
    /// Wishes for a source's artifact at a revision, again where it could not be fetched before. False where it is wanted already, or too
    /// many are.
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
        .bind(MOST_WISHES)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("wish for a revision of a source"))?;
        Ok(wanted.rows_affected() > 0)
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
            "INSERT INTO source_artifact (source, revision, asked, digest, failure, since)
             SELECT uid, $2, $3, $4, $5, $6 FROM resource WHERE uid = $1
             ON CONFLICT (source, revision) DO UPDATE SET digest = $4, failure = $5, since = $6",
        )
        .bind(source.0)
        .bind(key(revision))
        .bind(revision.to_string())
        .bind(artifact.ok().map(|digest| digest.as_bytes().to_vec()))
        .bind(artifact.err())
        .bind(to_sql(now))
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("keep the artifact of a revision"))?;
        Ok(())
    }
}

/// What names a revision whatever the name by which it was found.
fn key(revision: &Revision) -> String {
    revision.content().map_or_else(|| revision.to_string(), str::to_owned)
}
