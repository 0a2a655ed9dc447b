//! Above whom an object that a person is about to write lies, and from when on what was there before is an applier's own.

use roadstead_api::KindId;
use roadstead_model::{ApplierUid, ResourceUid};
use sqlx::{AssertSqlSafe, Row as _};

use super::{GIT_WROTE, PARENT};
use crate::{StoreError, Stored, Tx};

/// The applier by whose rights an object acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it has `spec.delegation`.
    pub delegates: bool,
}

impl Tx {
    /// The root by whose rights an object acts that is written now: `before` is what was there under this name, and `handed` whether what is
    /// written names an applier that it was handed over to. Of what is not there yet, the root that is about to make one of that name.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn root_of(
        &mut self,
        after: &Stored,
        before: Option<ResourceUid>,
        handed: bool,
        depth: usize,
    ) -> Result<Option<Root>, StoreError> {
        let what = "look up by whose rights an object acts";
        let row = sqlx::query(AssertSqlSafe(format!(
            "WITH RECURSIVE up AS (
               SELECT child.parent, 1 AS depth FROM child
               WHERE child.kind = $1 AND child.namespace = $2 AND child.name = $3
                 AND CASE WHEN $4::uuid IS NULL THEN child.wanted
                     ELSE child.object = $4 AND NOT child.handing_over AND (NOT child.kept OR child.adopted AND $5) END
               UNION ALL
               SELECT {PARENT}, up.depth + 1
               FROM up JOIN resource own ON own.uid = up.parent
               JOIN child ON child.kind = own.kind AND child.namespace = own.namespace
                 AND child.name = own.name AND child.object = own.uid
               WHERE up.depth < $6 AND {GIT_WROTE}
             )
             SELECT root.kind, root.namespace, root.name, root.object #> '{{spec,delegation}}' IS NOT NULL AS delegates
             FROM up JOIN resource root ON root.uid = up.parent ORDER BY up.depth DESC LIMIT 1"
        )))
        .bind(after.kind.get().kind)
        .bind(&after.namespace)
        .bind(&after.name)
        .bind(before.map(|uid| uid.0))
        .bind(handed)
        .bind(i32::try_from(depth).unwrap_or(i32::MAX))
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        let Some(row) = row else { return Ok(None) };
        let read = || -> Result<(String, Root), sqlx::Error> {
            let root = Root {
                kind: KindId::Kustomization,
                namespace: row.try_get("namespace")?,
                name: row.try_get("name")?,
                delegates: row.try_get("delegates")?,
            };
            Ok((row.try_get("kind")?, root))
        };
        let (kind, root) = read().map_err(StoreError::query(what))?;
        let kind = KindId::named(&kind)
            .ok_or_else(|| StoreError::Corrupt { what, why: format!("there is no kind '{kind}'") })?;
        Ok(Some(Root { kind, ..root }))
    }

    /// Notes that an applier writes an object that was there before, in the unit of work that writes it: from then on it acts by that one's
    /// rights. Whether it did not before.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_taken(&mut self, parent: ApplierUid, taken: &Stored) -> Result<bool, StoreError> {
        let noted = sqlx::query(
            "UPDATE child SET handing_over = false
             WHERE parent = $1 AND kind = $2 AND namespace = $3 AND name = $4 AND object = $5 AND handing_over",
        )
        .bind(parent.0)
        .bind(taken.kind.get().kind)
        .bind(&taken.namespace)
        .bind(&taken.name)
        .bind(taken.uid.0)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("note who writes an object"))?;
        Ok(noted.rows_affected() == 1)
    }
}
