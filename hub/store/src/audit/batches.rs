//! Sealing the audit log in batches, dropping what is old, and checking the whole.

use aws_lc_rs::digest::{Context, SHA256};
use jiff::Timestamp;
use sqlx::{FromRow, PgConnection};
use time::OffsetDateTime;
use tokio_stream::StreamExt as _;

use super::{AuditCheck, COLUMNS, Stored};
use crate::mac::Row;
use crate::time::to_sql;
use crate::{Store, StoreError};

/// One replica at a time seals and trims.
const LOCK: i64 = 0x726f_6164_6175_6469;
/// Entries of a batch: what one statement reads.
const BATCH: i64 = 10_000;

/// A batch as it is stored.
#[derive(FromRow)]
struct Batch {
    batch: i64,
    sealed_at: OffsetDateTime,
    entries: i64,
    digest: Vec<u8>,
    mac: Vec<u8>,
}

/// A batch that somebody has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, FromRow)]
pub struct SeenBatch {
    /// Its number.
    pub batch: i64,
    /// Its MAC.
    pub mac: Vec<u8>,
}

/// What sealing came to.
#[derive(Debug)]
pub struct SealedAudit {
    /// The newest batch; its number is 0 where there is none.
    pub newest: SeenBatch,
    /// The batch that the caller has seen is as it was, or was dropped for its age.
    pub knows_before: bool,
    /// There may be more entries than one batch takes.
    full: bool,
}

/// The newest batch that was dropped for its age, and its MAC where that is known; 0 where none was.
#[derive(Default)]
pub(super) struct Trimmed {
    pub(super) batch: i64,
    mac: Option<Vec<u8>>,
    /// The highest number of an entry in it and in those before; none where an older version dropped them.
    pub(super) last: Option<i64>,
}

/// What was dropped for its age, as it is stored.
#[derive(FromRow)]
pub(crate) struct StoredTrimmed {
    pub(crate) batch: i64,
    pub(crate) batch_mac: Option<Vec<u8>>,
    pub(crate) last_entry: Option<i64>,
    pub(crate) mac: Vec<u8>,
}

impl StoredTrimmed {
    /// What its MAC may be over: a version that does not know of the last entry leaves what another one wrote there.
    pub(crate) fn rows(&self) -> [(Row, Option<i64>); 2] {
        let mac = self.batch_mac.as_deref();
        let last = self.last_entry;
        [(trimmed_row(self.batch, mac, last), last), (trimmed_row(self.batch, mac, None), None)]
    }
}

pub(crate) const TRIMMED: &str = "SELECT batch, batch_mac, last_entry, mac FROM audit_trimmed";

/// Batches that are read at once.
const PART: i64 = 1_000;

/// The first batches from this number on, in their order.
async fn batches(tx: &mut PgConnection, from: i64) -> Result<Vec<Batch>, StoreError> {
    sqlx::query_as(
        "SELECT batch, sealed_at, entries, digest, mac FROM audit_batch WHERE batch >= $1 ORDER BY batch LIMIT $2",
    )
    .bind(from)
    .bind(PART)
    .fetch_all(tx)
    .await
    .map_err(StoreError::query("read the audit log's batches"))
}

impl Store {
    /// Seals what is in no batch yet, and looks for the newest batch that the caller has seen. None where another replica is at it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn seal_audit(
        &self,
        now: Timestamp,
        seen: Option<&SeenBatch>,
    ) -> Result<Option<SealedAudit>, StoreError> {
        let sealed = self.seal_batch(now, seen).await;
        if !matches!(sealed, Ok(Some(SealedAudit { full: false, .. }))) {
            // Another replica may have looked before this one's entries were there.
            self.written.are_unsealed();
        }
        sealed
    }

    /// Whether a batch is as it was seen, where the newest one is known. One that was dropped for its age is missed by nobody.
    async fn is_as_seen(
        &self,
        tx: &mut PgConnection,
        seen: &SeenBatch,
        newest: &SeenBatch,
    ) -> Result<bool, StoreError> {
        if seen.batch == newest.batch {
            return Ok(seen == newest);
        }
        let found: Option<Vec<u8>> = sqlx::query_scalar("SELECT mac FROM audit_batch WHERE batch = $1")
            .bind(seen.batch)
            .fetch_optional(&mut *tx)
            .await
            .map_err(StoreError::query("look for a batch of the audit log"))?;
        match found {
            Some(mac) => Ok(mac == seen.mac),
            None => Ok(self.trimmed(tx, &mut AuditCheck::default()).await?.batch >= seen.batch),
        }
    }

    async fn seal_batch(
        &self,
        now: Timestamp,
        seen: Option<&SeenBatch>,
    ) -> Result<Option<SealedAudit>, StoreError> {
        let what = "seal the audit log";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        if !hold(&mut tx).await? {
            return Ok(None);
        }
        let last: Option<SeenBatch> =
            sqlx::query_as("SELECT batch, mac FROM audit_batch ORDER BY batch DESC LIMIT 1")
                .fetch_optional(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
        let last = last.unwrap_or_default();
        let knows_before = match seen {
            Some(seen) if seen.batch > 0 => self.is_as_seen(&mut tx, seen, &last).await?,
            _ => true,
        };
        let batch = last.batch + 1;
        let sealed: Vec<(i64, Option<Vec<u8>>)> = sqlx::query_as(
            "UPDATE audit SET batch = $1 WHERE id IN (SELECT id FROM audit WHERE batch IS NULL ORDER BY id LIMIT $2) \
             RETURNING id, mac",
        )
        .bind(batch)
        .bind(BATCH)
        .fetch_all(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
        if sealed.is_empty() {
            // The end is not left to the pool, which comes to it later: until then nobody else could seal.
            tx.commit().await.map_err(StoreError::query(what))?;
            return Ok(Some(SealedAudit { newest: last, knows_before, full: false }));
        }
        let entries = i64::try_from(sealed.len()).unwrap_or(i64::MAX);
        let digest = digest_of(sealed);
        let sealed_at = to_sql(now);
        let mac = self.sealer.sign(&batch_row(batch, sealed_at, entries, &digest, &last.mac));
        sqlx::query(
            "INSERT INTO audit_batch (batch, sealed_at, entries, digest, mac) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(batch)
        .bind(sealed_at)
        .bind(entries)
        .bind(&digest)
        .bind(&mac)
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok(Some(SealedAudit { newest: SeenBatch { batch, mac }, knows_before, full: entries >= BATCH }))
    }

    /// Drops what was sealed before then. Returns how many entries.
    ///
    /// A batch's age counts only while its MAC holds: what somebody without the key has dated back stays.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn trim_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        let what = "trim the audit log";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        if !hold(&mut tx).await? {
            return Ok(0);
        }
        let older = sqlx::query("DELETE FROM audit WHERE batch = 0 AND at < $1")
            .bind(to_sql(before))
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?
            .rows_affected();
        let mut dropped = 0;
        if let Some((upto, mac)) = self.batches_before(&mut tx, before).await? {
            let last: Option<i64> =
                sqlx::query_scalar("SELECT max(id) FROM audit WHERE batch > 0 AND batch <= $1")
                    .bind(upto)
                    .fetch_one(&mut *tx)
                    .await
                    .map_err(StoreError::query(what))?;
            // No lower than what was dropped before.
            let earlier = self.trimmed(&mut tx, &mut AuditCheck::default()).await?.last;
            let last = last.max(earlier);
            dropped = sqlx::query("DELETE FROM audit WHERE batch > 0 AND batch <= $1")
                .bind(upto)
                .execute(&mut *tx)
                .await
                .map_err(StoreError::query(what))?
                .rows_affected();
            // The last of them stays: the MAC of the next one is over its.
            sqlx::query("DELETE FROM audit_batch WHERE batch < $1")
                .bind(upto)
                .execute(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
            sqlx::query(
                "INSERT INTO audit_trimmed (batch, batch_mac, last_entry, mac) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (one) DO UPDATE SET batch = $1, batch_mac = $2, last_entry = $3, mac = $4",
            )
            .bind(upto)
            .bind(&mac)
            .bind(last)
            .bind(self.sealer.sign(&trimmed_row(upto, Some(&mac), last)))
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        }
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok(older + dropped)
    }

    /// Of the oldest batches the newest one that was sealed before then and is, as all before it are, as it was sealed; and its MAC.
    async fn batches_before(
        &self,
        tx: &mut PgConnection,
        before: Timestamp,
    ) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
        let mut check = AuditCheck::default();
        let trimmed = self.trimmed(tx, &mut check).await?;
        let (mut last, mut chain) = (trimmed.batch, trimmed.mac);
        let mut upto = None;
        for batch in batches(tx, last).await? {
            if batch.batch == last {
                chain.get_or_insert(batch.mac);
                continue;
            }
            if !check.problems.is_empty() || batch.batch != last + 1 || !self.is_as_sealed(&batch, &chain) {
                tracing::error!(
                    batch = batch.batch,
                    "the audit log is not trimmed: it was changed by someone without the key; see `roadstead audit verify`"
                );
                break;
            }
            if batch.sealed_at >= to_sql(before) {
                break;
            }
            last = batch.batch;
            chain = Some(batch.mac.clone());
            upto = Some((batch.batch, batch.mac));
        }
        Ok(upto)
    }

    /// Checks the whole log.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn check_audit(&self) -> Result<AuditCheck, StoreError> {
        let what = "check the audit log";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        // One moment: a batch that is sealed meanwhile would look like one without entries.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        let mut check = AuditCheck::default();
        let trimmed = self.trimmed(&mut tx, &mut check).await?;
        let upto = trimmed.batch;
        self.check_batches(&mut tx, trimmed, &mut check).await?;
        self.check_entries(&mut tx, upto, &mut check).await?;
        Ok(check)
    }

    /// What was dropped for its age; nothing where what is said of that is not true.
    pub(super) async fn trimmed(
        &self,
        tx: &mut PgConnection,
        check: &mut AuditCheck,
    ) -> Result<Trimmed, StoreError> {
        let said: Option<StoredTrimmed> = sqlx::query_as(TRIMMED)
            .fetch_optional(tx)
            .await
            .map_err(StoreError::query("read what was dropped of the audit log"))?;
        let Some(said) = said else { return Ok(Trimmed::default()) };
        for (row, last) in said.rows() {
            if self.sealer.bears(&row, Some(&said.mac)) {
                return Ok(Trimmed { batch: said.batch, mac: said.batch_mac, last });
            }
        }
        check.problem(format!(
            "the record that batches up to {} were dropped for their age was not written by a hub with this key",
            said.batch
        ));
        Ok(Trimmed::default())
    }

    fn is_as_sealed(&self, batch: &Batch, before: &Option<Vec<u8>>) -> bool {
        let before = before.as_deref().unwrap_or_default();
        let row = batch_row(batch.batch, batch.sealed_at, batch.entries, &batch.digest, before);
        self.sealer.bears_in(Some(batch.batch), &row, Some(&batch.mac))
    }

    async fn check_batches(
        &self,
        tx: &mut PgConnection,
        trimmed: Trimmed,
        check: &mut AuditCheck,
    ) -> Result<(), StoreError> {
        let (mut expected, mut before) = (trimmed.batch + 1, trimmed.mac);
        let mut part = batches(tx, 0).await?.into_iter();
        let mut last = 0;
        loop {
            let Some(batch) = part.next() else {
                part = batches(tx, last + 1).await?.into_iter();
                match part.len() {
                    0 => break,
                    _ => continue,
                }
            };
            last = batch.batch;
            let number = batch.batch;
            if number < trimmed.batch {
                check.problem(format!("batch {number} was dropped for its age and is there again"));
                continue;
            }
            if number == trimmed.batch {
                // Only its MAC counts: its entries are gone.
                if before.get_or_insert_with(|| batch.mac.clone()) != &batch.mac {
                    check.problem(format!("batch {number} is not as it was when it was dropped for its age"));
                }
                continue;
            }
            if number != expected {
                check.problem(format!("batches {expected} to {} are missing", number - 1));
            } else if !self.is_as_sealed(&batch, &before) {
                check.problem(format!("batch {number} is not as it was sealed"));
            }
            let found: Vec<(i64, Option<Vec<u8>>)> =
                sqlx::query_as("SELECT id, mac FROM audit WHERE batch = $1")
                    .bind(number)
                    .fetch_all(&mut *tx)
                    .await
                    .map_err(StoreError::query("check the audit log"))?;
            let (count, sealed) = (i64::try_from(found.len()).unwrap_or(i64::MAX), batch.entries);
            if count != sealed {
                check.problem(format!("batch {number} was sealed with {sealed} entries and has {count}"));
            } else if digest_of(found) != batch.digest {
                check.problem(format!("batch {number} has other entries than it was sealed with"));
            }
            check.batches += 1;
            check.newest = number;
            (expected, before) = (number + 1, Some(batch.mac));
        }
        check.newest = check.newest.max(trimmed.batch);
        Ok(())
    }

    async fn check_entries(
        &self,
        tx: &mut PgConnection,
        trimmed: i64,
        check: &mut AuditCheck,
    ) -> Result<(), StoreError> {
        let what = "check the audit log";
        let sealed_from: Option<i64> =
            sqlx::query_scalar("SELECT min(id) FROM audit WHERE batch IS DISTINCT FROM 0")
                .fetch_one(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
        let sql = format!("SELECT {COLUMNS} FROM audit ORDER BY id");
        let mut rows = sqlx::query_as::<_, Stored>(sqlx::AssertSqlSafe(sql)).fetch(&mut *tx);
        while let Some(row) = rows.next().await {
            let row = row.map_err(StoreError::query(what))?;
            let has_mac = row.mac.is_some();
            let record = row.read(&self.sealer)?;
            match record.batch {
                Some(0) => {
                    check.unsealed += 1;
                    // Versions that sealed nothing wrote no MACs, and everything that came after has a higher number.
                    if has_mac || sealed_from.is_some_and(|first| record.id > first) {
                        check.problem(format!("entry {} is not from before the log was sealed", record.id));
                    }
                    continue;
                }
                None => check.pending += 1,
                Some(batch) if batch <= trimmed || batch > check.newest => {
                    check.problem(format!("entry {} is of batch {batch}, which does not exist", record.id));
                }
                Some(_) => check.entries += 1,
            }
            if !record.signed {
                check.problem(format!("entry {} was not written by a hub with this key", record.id));
            }
        }
        Ok(())
    }
}

impl AuditCheck {
    /// As many as a reader takes in.
    const TOLD: usize = 20;

    pub(super) fn problem(&mut self, what: String) {
        if self.problems.len() < Self::TOLD {
            self.problems.push(what);
        }
    }
}

/// Whether this transaction is the one that seals or trims, until its end.
async fn hold(tx: &mut PgConnection) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(LOCK)
        .fetch_one(tx)
        .await
        .map_err(StoreError::query("take the audit log's lock"))
}

fn digest_of(mut entries: Vec<(i64, Option<Vec<u8>>)>) -> Vec<u8> {
    entries.sort_unstable_by_key(|(id, _)| *id);
    let mut context = Context::new(&SHA256);
    for (id, mac) in entries {
        context.update(&id.to_be_bytes());
        // A MAC is as long as any other; one that is missing is told of where its entry is checked.
        context.update(&mac.unwrap_or_default());
    }
    context.finish().as_ref().to_vec()
}

fn batch_row(batch: i64, sealed_at: OffsetDateTime, entries: i64, digest: &[u8], before: &[u8]) -> Row {
    Row::of("audit_batch").number(batch).time(sealed_at).number(entries).bytes(digest).bytes(before)
}

fn trimmed_row(batch: i64, batch_mac: Option<&[u8]>, last_entry: Option<i64>) -> Row {
    let row = Row::of("audit_trimmed").number(batch);
    // Versions that did not verify what they dropped signed the number alone.
    let row = match batch_mac {
        Some(mac) => row.bytes(mac),
        None => row,
    };
    match last_entry {
        Some(last) => row.number(last),
        None => row,
    }
}
