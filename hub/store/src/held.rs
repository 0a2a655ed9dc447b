//! Deletions that wait for a person's confirmation.

use jiff::Timestamp;
use roadstead_model::{ApplierUid, Digest, ResourceUid};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// What waits of an applier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldDeletion {
    /// What is confirmed: one digest for all parts.
    pub digest: Digest,
    /// The digests of what goes together, and of what goes on the hub.
    pub parts: Vec<Digest>,
    /// Of the dispatch in which it was found.
    pub dispatch: Digest,
    /// How many objects there are.
    pub total: usize,
    /// When a person confirmed it.
    pub confirmed: Option<Timestamp>,
}

/// What goes with objects of the hub that deploy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Descendants {
    /// Objects on clusters that they own; those on the hub, and what these own.
    pub objects: usize,
    /// Whether there are volumes, or claims on some, among these.
    pub has_volumes: bool,
}

type Row = (Vec<u8>, Vec<Vec<u8>>, Vec<u8>, i64, Option<OffsetDateTime>);

fn digest(bytes: Vec<u8>) -> Result<Digest, StoreError> {
    let corrupt = |_| StoreError::Corrupt { what: "read held deletions", why: "not a digest".to_owned() };
    Ok(Digest::from_bytes(bytes.try_into().map_err(corrupt)?))
}

impl Store {
    /// What waits of an applier; none where nothing does.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn held_deletion(&self, applier: ApplierUid) -> Result<Option<HeldDeletion>, StoreError> {
        let row: Option<Row> = sqlx::query_as(
            "SELECT digest, parts, dispatch, total, confirmed_at FROM held_deletion WHERE applier = $1",
        )
        .bind(applier.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("read held deletions"))?;
        let Some((of_all, parts, dispatch, total, confirmed)) = row else { return Ok(None) };
        Ok(Some(HeldDeletion {
            digest: digest(of_all)?,
            parts: parts.into_iter().map(digest).collect::<Result<_, _>>()?,
            dispatch: digest(dispatch)?,
            total: usize::try_from(total).unwrap_or_default(),
            confirmed: confirmed.map(|at| from_sql("read held deletions", at)).transpose()?,
        }))
    }

    /// What goes with each of these objects of the hub: what it owns on clusters, and what those own that it owns on the hub. In their
    /// order.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn descendants(&self, roots: &[ResourceUid]) -> Result<Vec<Descendants>, StoreError> {
        let uids: Vec<Uuid> = roots.iter().map(|root| root.0).collect();
        let rows: Vec<(i64, i64, bool)> = sqlx::query_as(
            "WITH RECURSIVE below (root, uid) AS (
                 SELECT ordinality, uid FROM unnest($1::uuid[]) WITH ORDINALITY AS roots (uid, ordinality)
                 UNION
                 SELECT below.root, child.object FROM below JOIN child ON child.parent = below.uid
                 WHERE child.object IS NOT NULL AND NOT child.kept
             )
             SELECT below.root, count(i.name) + count(DISTINCT below.uid) - 1,
                    coalesce(bool_or(i.api_group = '' AND i.kind IN ('PersistentVolume', 'PersistentVolumeClaim')), false)
             FROM below LEFT JOIN inventory i ON i.applier = below.uid
             GROUP BY below.root",
        )
        .bind(uids)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("count what goes with objects of the hub"))?;
        let mut below = vec![Descendants::default(); roots.len()];
        for (root, objects, has_volumes) in rows {
            let index = usize::try_from(root - 1).unwrap_or(usize::MAX);
            if let Some(one) = below.get_mut(index) {
                *one = Descendants { objects: usize::try_from(objects).unwrap_or_default(), has_volumes };
            }
        }
        Ok(below)
    }
}

impl Tx {
    /// Records what waits of an applier, in the place of what did before. A confirmation of the same stays: it came while
    /// the attempt was under way, which therefore went without it.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hold_deletion(
        &mut self,
        applier: ApplierUid,
        held: &HeldDeletion,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let parts: Vec<&[u8]> = held.parts.iter().map(|part| part.as_bytes().as_slice()).collect();
        sqlx::query(
            "INSERT INTO held_deletion AS h (applier, digest, parts, dispatch, total, since)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (applier) DO UPDATE
             SET digest = $2, parts = $3, dispatch = $4, total = $5,
                 since = CASE WHEN h.digest = $2 THEN h.since ELSE $6 END,
                 confirmed_at = CASE WHEN h.digest = $2 AND h.dispatch = $4 THEN h.confirmed_at END,
                 confirmed_by = CASE WHEN h.digest = $2 AND h.dispatch = $4 THEN h.confirmed_by END",
        )
        .bind(applier.0)
        .bind(held.digest.as_bytes().as_slice())
        .bind(parts)
        .bind(held.dispatch.as_bytes().as_slice())
        .bind(i64::try_from(held.total).unwrap_or(i64::MAX))
        .bind(to_sql(now))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("record held deletions"))?;
        Ok(())
    }

    /// Records that a person confirms what waits of an applier; false where something else waits by now, or nothing.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn confirm_deletion(
        &mut self,
        applier: ApplierUid,
        digest: Digest,
        by: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE held_deletion SET confirmed_at = $3, confirmed_by = $4 WHERE applier = $1 AND digest = $2",
        )
        .bind(applier.0)
        .bind(digest.as_bytes().as_slice())
        .bind(to_sql(now))
        .bind(by)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("confirm held deletions"))?;
        Ok(done.rows_affected() > 0)
    }
}
