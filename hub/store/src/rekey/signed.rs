//! Rows that bear MACs, and signing them again. The audit log's are not among them: its MACs stay as they were written.

use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::{StoredTrimmed, TRIMMED};
use crate::mac::Row;
use crate::{KeyId, Sealer, Store, StoreError, agent, cluster, dispatched, token};

const WHAT: &str = "sign rows again";

/// A table of signed rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Access,
    Join,
    Orders,
    Dispatches,
    Trimmed,
}

/// A row, what of it is signed, and its MAC.
type Signed = (Uuid, Row, Option<Vec<u8>>);

impl Table {
    pub(super) const ALL: [Self; 5] =
        [Self::Access, Self::Join, Self::Orders, Self::Dispatches, Self::Trimmed];

    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Access => "tokens",
            Self::Join => "join tokens",
            Self::Orders => "orders to agents",
            Self::Dispatches => "open dispatches",
            Self::Trimmed => "marks in the audit log",
        }
    }

    /// Writes a row's MAC (`$3`), where it still has the one that was read (`$2`) and so says what was read.
    fn update(self) -> &'static str {
        match self {
            Self::Access => "UPDATE access_token SET mac = $3 WHERE id = $1 AND mac = $2",
            Self::Join => "UPDATE join_token SET mac = $3 WHERE id = $1 AND mac = $2",
            Self::Orders => "UPDATE agent_order SET mac = $3 WHERE cluster_uid = $1 AND mac = $2",
            Self::Dispatches => {
                "UPDATE reconciliation SET mac = $3 WHERE applier = $1 AND finished_at IS NULL AND mac = $2"
            }
            Self::Trimmed => "UPDATE audit_trimmed SET mac = $3 WHERE $1::uuid IS NOT NULL AND mac = $2",
        }
    }

    /// Rows behind `after`.
    async fn rows(
        self,
        pool: &PgPool,
        sealer: &Sealer,
        after: Uuid,
        most: i64,
    ) -> Result<Vec<Signed>, StoreError> {
        match self {
            Self::Access => access_tokens(pool, after, most).await,
            Self::Join => join_tokens(pool, after, most).await,
            Self::Orders => orders(pool, after, most).await,
            Self::Dispatches => dispatches(pool, after, most).await,
            Self::Trimmed if after.is_nil() => trimmed(pool, sealer).await,
            Self::Trimmed => Ok(Vec::new()),
        }
        .map_err(StoreError::query(WHAT))
    }
}

async fn access_tokens(pool: &PgPool, after: Uuid, most: i64) -> Result<Vec<Signed>, sqlx::Error> {
    type Token = (Uuid, Vec<u8>, String, Vec<String>, Option<OffsetDateTime>, Option<Uuid>, Option<Vec<u8>>);
    let rows: Vec<Token> = sqlx::query_as(
        "SELECT id, hash, username, groups, expires_at, account_uid, mac FROM access_token WHERE id > $1 \
         ORDER BY id LIMIT $2",
    )
    .bind(after)
    .bind(most)
    .fetch_all(pool)
    .await?;
    let signed = |(id, hash, username, groups, expires, account, mac): Token| {
        (id, token::row(id, &hash, &username, &groups, expires, account), mac)
    };
    Ok(rows.into_iter().map(signed).collect())
}

async fn join_tokens(pool: &PgPool, after: Uuid, most: i64) -> Result<Vec<Signed>, sqlx::Error> {
    type Token = (Uuid, Vec<u8>, Uuid, OffsetDateTime, Option<Vec<u8>>);
    let rows: Vec<Token> = sqlx::query_as(
        "SELECT id, hash, cluster_uid, expires_at, mac FROM join_token WHERE id > $1 \
         ORDER BY id LIMIT $2",
    )
    .bind(after)
    .bind(most)
    .fetch_all(pool)
    .await?;
    let signed =
        |(id, hash, cluster, expires, mac): Token| (id, cluster::join_row(id, &hash, cluster, expires), mac);
    Ok(rows.into_iter().map(signed).collect())
}

async fn orders(pool: &PgPool, after: Uuid, most: i64) -> Result<Vec<Signed>, sqlx::Error> {
    type Order = (Uuid, Option<String>, Option<String>, OffsetDateTime, Option<Vec<u8>>);
    let rows: Vec<Order> = sqlx::query_as(
        "SELECT cluster_uid, image, request, given_at, mac FROM agent_order WHERE cluster_uid > $1 \
         ORDER BY cluster_uid LIMIT $2",
    )
    .bind(after)
    .bind(most)
    .fetch_all(pool)
    .await?;
    let signed = |(cluster, image, request, given, mac): Order| {
        (cluster, agent::order_row(cluster, image.as_deref(), request.as_deref(), given), mac)
    };
    Ok(rows.into_iter().map(signed).collect())
}

/// Only of open attempts a MAC is asked for.
async fn dispatches(pool: &PgPool, after: Uuid, most: i64) -> Result<Vec<Signed>, sqlx::Error> {
    let rows: Vec<dispatched::Dispatched> = sqlx::query_as(
        "SELECT applier, attempt, cluster_uid, epoch, generation, build_digest, dispatch_format, dispatch, mac \
         FROM reconciliation \
         WHERE finished_at IS NULL AND dispatch IS NOT NULL AND cluster_uid IS NOT NULL AND applier > $1 \
         ORDER BY applier LIMIT $2",
    )
    .bind(after)
    .bind(most)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.applier, row.row(), row.mac)).collect())
}

async fn trimmed(pool: &PgPool, sealer: &Sealer) -> Result<Vec<Signed>, sqlx::Error> {
    let row: Option<StoredTrimmed> = sqlx::query_as(TRIMMED).fetch_optional(pool).await?;
    let Some(row) = row else { return Ok(Vec::new()) };
    let [(whole, _), (older, _)] = row.rows();
    let said = if sealer.bears(&older, Some(&row.mac)) { older } else { whole };
    // The only row: any number that is behind the first does.
    Ok(vec![(Uuid::max(), said, Some(row.mac))])
}

impl Store {
    /// Signs some rows again, from behind `after` on. Gives how many, and the row that it ended with; none where there was
    /// nothing. A row that bears no MAC of the file's keys stays as it is: it is ignored.
    ///
    /// Each row is a statement of its own, so that no lock is waited for while another one is held.
    pub(super) async fn resign(
        &self,
        table: Table,
        after: Uuid,
        most: i64,
    ) -> Result<(u64, Option<Uuid>), StoreError> {
        let rows = table.rows(&self.pool, &self.sealer, after, most).await?;
        let Some(last) = rows.last().map(|(id, ..)| *id) else { return Ok((0, None)) };
        let (writer, mut fresh) = (self.sealer.writer(), 0);
        for (id, row, mac) in rows {
            let signer = self.sealer.signer_of(&row, mac.as_deref());
            if signer.is_none_or(|signer| signer == writer) {
                continue;
            }
            let update = sqlx::query(table.update()).bind(id).bind(mac).bind(self.sealer.sign(&row));
            fresh += update.execute(&self.pool).await.map_err(StoreError::query(WHAT))?.rows_affected();
        }
        Ok((fresh, Some(last)))
    }

    /// Which key of the file has signed each row; none for what no key has.
    pub(super) async fn signers(&self, table: Table, most: i64) -> Result<Vec<Option<KeyId>>, StoreError> {
        let (mut after, mut signers) = (Uuid::nil(), Vec::new());
        loop {
            let rows = table.rows(&self.pool, &self.sealer, after, most).await?;
            let Some(last) = rows.last().map(|(id, ..)| *id) else { return Ok(signers) };
            after = last;
            let signer = |(_, row, mac): Signed| self.sealer.signer_of(&row, mac.as_deref());
            signers.extend(rows.into_iter().map(signer));
        }
    }
}
