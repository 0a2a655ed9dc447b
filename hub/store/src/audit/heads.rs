//! Heads of the audit log: what the newest batch was, told to somebody who keeps it elsewhere, and held against the log later on. So
//! what was cut off the end shows, too, and what was changed before it was sealed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use sqlx::FromRow;
use time::OffsetDateTime;

use super::AuditCheck;
use super::batches::Trimmed;
use crate::mac::Row;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError};

/// What the log's newest batch was at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHead {
    /// Its number; 0 where there was none.
    pub batch: i64,
    /// Its MAC, which is over its entries and the batch before.
    pub mac: Vec<u8>,
    /// When that was.
    pub at: Timestamp,
    /// The MAC of all this: a hub with this key has said so.
    pub signature: Vec<u8>,
}

/// What was told of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldEntry {
    /// Its number.
    pub id: i64,
    /// When it was written.
    pub at: Timestamp,
    /// Its MAC.
    pub mac: Vec<u8>,
}

/// Replicas' clocks differ by no more.
const SKEW: SignedDuration = SignedDuration::from_hours(24);

fn head_row(batch: i64, mac: &[u8], at: OffsetDateTime) -> Row {
    Row::of("audit_head").number(batch).bytes(mac).time(at)
}

#[derive(FromRow)]
struct Kept {
    batch: i64,
    sealed_at: OffsetDateTime,
    mac: Vec<u8>,
}

impl Store {
    /// The newest batch.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn audit_head(&self) -> Result<AuditHead, StoreError> {
        let newest: Option<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT batch, mac FROM audit_batch ORDER BY batch DESC LIMIT 1")
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::query("read the audit log's newest batch"))?;
        let (batch, mac) = newest.unwrap_or_default();
        let at = Timestamp::now();
        let signature = self.sealer.sign(&head_row(batch, &mac, to_sql(at)));
        Ok(AuditHead { batch, mac, at, signature })
    }

    /// What does not fit of what was told of the log before; the first few.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn compare_audit(
        &self,
        heads: &[AuditHead],
        entries: &[ToldEntry],
    ) -> Result<Vec<String>, StoreError> {
        let what = "compare the audit log";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        // One moment: what is trimmed meanwhile would look like what was removed.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        let mut check = AuditCheck::default();
        let Trimmed { batch: trimmed, last: dropped, .. } = self.trimmed(&mut tx, &mut check).await?;
        let newest: Option<i64> = sqlx::query_scalar("SELECT max(batch) FROM audit_batch")
            .fetch_one(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        let mut numbers: Vec<i64> = heads.iter().map(|head| head.batch).collect();
        numbers.push(trimmed);
        let found: Vec<Kept> =
            sqlx::query_as("SELECT batch, sealed_at, mac FROM audit_batch WHERE batch = ANY($1)")
                .bind(numbers)
                .fetch_all(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
        let dropped_until = found.iter().find(|kept| kept.batch == trimmed).map(|kept| kept.sealed_at);
        let found: BTreeMap<i64, Kept> = found.into_iter().map(|kept| (kept.batch, kept)).collect();
        for head in heads {
            self.compare_head(head, found.get(&head.batch), (trimmed, newest.unwrap_or(0)), &mut check);
        }
        let ids: Vec<i64> = entries.iter().map(|entry| entry.id).collect();
        let present: Vec<(i64, Option<Vec<u8>>)> =
            sqlx::query_as("SELECT id, mac FROM audit WHERE id = ANY($1)")
                .bind(ids)
                .fetch_all(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
        let present: BTreeMap<i64, Option<Vec<u8>>> = present.into_iter().collect();
        let dropped_until = dropped_until
            .map(|at| from_sql(what, at))
            .transpose()?
            .map(|at| at.saturating_add(SKEW).unwrap_or(at));
        let mut told = BTreeSet::new();
        for entry in entries.iter().filter(|entry| told.insert(entry.id)) {
            let ToldEntry { id, at, mac } = entry;
            match present.get(id) {
                Some(found) if found.as_ref() == Some(mac) => {}
                Some(_) => check.problem(format!("entry {id} of {at} is another one than was told")),
                // What was dropped for its age is not missed: the batches that it was in are checked by their numbers. Where an older
                // version dropped it, it is only known until when.
                None if dropped.is_some_and(|last| *id <= last) => {}
                None if dropped.is_none() && dropped_until.is_some_and(|until| *at <= until) => {}
                None => check.problem(format!("entry {id} of {at} is missing")),
            }
        }
        Ok(check.problems)
    }

    fn compare_head(
        &self,
        head: &AuditHead,
        found: Option<&Kept>,
        (trimmed, newest): (i64, i64),
        check: &mut AuditCheck,
    ) {
        let AuditHead { batch, mac, at, signature } = head;
        let row = head_row(*batch, mac, to_sql(*at));
        if !self.sealer.bears_in(Some(*batch), &row, Some(signature)) {
            check.problem(format!(
                "the head of {at} with batch {batch} was not written by a hub with this key"
            ));
            return;
        }
        match found {
            Some(kept) if kept.mac == *mac => {}
            Some(_) => check.problem(format!("batch {batch} is another one than it was at {at}")),
            None if *batch <= trimmed => {}
            None if *batch > newest => check.problem(format!(
                "the log ends with batch {newest}, and went on to batch {batch} at {at}: its end was cut off"
            )),
            None => check.problem(format!("batch {batch}, which was there at {at}, is missing")),
        }
    }
}
