//! The audit log: who did, read or was refused what. It never holds an object's content.
//!
//! Each entry bears a MAC from the moment when it is written, and entries are sealed in batches about once a minute: a batch's
//! MAC is over its entries' MACs and over the batch before. So what was changed, added or taken out by somebody without the
//! key file shows, apart from what is younger than the newest batch, and from newest batches that were taken out whole,
//! which shows to whoever remembers the newest batch.

use aws_lc_rs::digest::{Context, SHA256};
use jiff::Timestamp;
use roadstead_api::KindId;
use sqlx::{FromRow, PgConnection};
use time::OffsetDateTime;
use tokio_stream::StreamExt as _;
use uuid::Uuid;

use crate::mac::Row;
use crate::time::{from_sql, to_sql};
use crate::{Sealer, Store, StoreError, Tx};

/// One replica at a time seals and trims.
const LOCK: i64 = 0x726f_6164_6175_6469;
/// Entries of a batch: what one statement reads.
const BATCH: i64 = 10_000;

/// What came of what was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuditOutcome {
    /// It was done.
    #[default]
    Ok,
    /// It was refused.
    Refused,
}

impl AuditOutcome {
    /// As it is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
        }
    }
}

/// An entry to be written.
#[derive(Debug, Clone, Default)]
pub struct AuditEntry {
    /// Who.
    pub username: String,
    /// What: a verb of the API, or `login`, `enrol`, ….
    pub verb: String,
    /// API group of what it was about.
    pub group: String,
    /// Its kind, or what else it is (`AccessToken`, `JoinToken`, `Path`).
    pub kind: String,
    /// Its namespace; empty where it has none.
    pub namespace: String,
    /// Its name; empty for all.
    pub name: String,
    /// What came of it.
    pub outcome: AuditOutcome,
    /// What else is to be known, for people.
    pub detail: String,
}

/// An entry of the log.
#[derive(Debug, Clone)]
pub struct AuditRecord {
    /// Its number; later entries have higher ones.
    pub id: i64,
    /// When it was written.
    pub at: Timestamp,
    /// What it says.
    pub entry: AuditEntry,
    /// The batch in which it is sealed, if it is yet; 0 for what a version wrote that sealed nothing.
    pub batch: Option<i64>,
    /// Whether it is what a hub with this key wrote.
    pub signed: bool,
}

/// Which entries are asked for.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Above this number.
    pub after: i64,
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Older than this.
    pub until: Option<Timestamp>,
    /// Of this user; empty for all.
    pub username: String,
}

/// What a check of the whole log found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditCheck {
    /// Batches that are there.
    pub batches: i64,
    /// The newest of them, which is to be remembered elsewhere.
    pub newest: i64,
    /// Entries in them.
    pub entries: i64,
    /// Entries that are in no batch yet.
    pub pending: i64,
    /// Entries from before the log was sealed.
    pub unsealed: i64,
    /// What is wrong, the first few.
    pub problems: Vec<String>,
}

#[derive(FromRow)]
struct Stored {
    id: i64,
    at: OffsetDateTime,
    username: String,
    verb: String,
    api_group: String,
    kind: String,
    namespace: String,
    name: String,
    entry: Uuid,
    outcome: String,
    detail: String,
    mac: Option<Vec<u8>>,
    batch: Option<i64>,
}

const COLUMNS: &str =
    "id, at, username, verb, api_group, kind, namespace, name, entry, outcome, detail, mac, batch";

fn row(entry: &AuditEntry, uid: Uuid, at: OffsetDateTime) -> Row {
    Row::of("audit")
        .bytes(uid.as_bytes())
        .time(at)
        .text(&entry.username)
        .text(&entry.verb)
        .text(&entry.group)
        .text(&entry.kind)
        .text(&entry.namespace)
        .text(&entry.name)
        .text(entry.outcome.as_str())
        .text(&entry.detail)
}

impl Stored {
    fn read(self, sealer: &Sealer) -> Result<AuditRecord, StoreError> {
        let outcome = if self.outcome == "ok" { AuditOutcome::Ok } else { AuditOutcome::Refused };
        let entry = AuditEntry {
            username: self.username,
            verb: self.verb,
            group: self.api_group,
            kind: self.kind,
            namespace: self.namespace,
            name: self.name,
            outcome,
            detail: self.detail,
        };
        let signed = sealer.bears(&row(&entry, self.entry, self.at), self.mac.as_deref());
        let at = from_sql("read the audit log", self.at)?;
        Ok(AuditRecord { id: self.id, at, entry, batch: self.batch, signed })
    }
}

async fn write(connection: &mut PgConnection, sealer: &Sealer, entry: &AuditEntry) -> Result<(), StoreError> {
    // When it is written, not what a test's clock says.
    let (uid, at) = (Uuid::new_v4(), to_sql(Timestamp::now()));
    sqlx::query(
        "INSERT INTO audit (entry, at, username, verb, api_group, kind, namespace, name, outcome, detail, mac) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(uid)
    .bind(at)
    .bind(&entry.username)
    .bind(&entry.verb)
    .bind(&entry.group)
    .bind(&entry.kind)
    .bind(&entry.namespace)
    .bind(&entry.name)
    .bind(entry.outcome.as_str())
    .bind(&entry.detail)
    .bind(sealer.sign(&row(entry, uid, at)))
    .execute(connection)
    .await
    .map_err(StoreError::query("write the audit log"))?;
    Ok(())
}

impl Tx {
    /// Notes who changed what, in the same unit of work.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn audit(
        &mut self,
        username: &str,
        verb: &str,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<(), StoreError> {
        let kind = kind.get();
        self.note(&AuditEntry {
            username: username.to_owned(),
            verb: verb.to_owned(),
            group: kind.group().to_owned(),
            kind: kind.kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..AuditEntry::default()
        })
        .await
    }

    /// Writes an entry of the audit log, in the same unit of work.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn note(&mut self, entry: &AuditEntry) -> Result<(), StoreError> {
        write(&mut self.inner, &self.sealer, entry).await
    }
}

impl Store {
    /// Writes entries of the audit log.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn note(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let what = "write the audit log";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        for entry in entries {
            write(&mut tx, &self.sealer, entry).await?;
        }
        tx.commit().await.map_err(StoreError::query(what))
    }

    /// Up to `limit` entries, the oldest first.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn audit_log(&self, filter: &AuditFilter, limit: i64) -> Result<Vec<AuditRecord>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM audit WHERE id > $1 AND ($2::timestamptz IS NULL OR at >= $2) \
             AND ($3::timestamptz IS NULL OR at < $3) AND ($4 = '' OR username = $4) ORDER BY id LIMIT $5"
        );
        let rows: Vec<Stored> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(filter.after)
            .bind(filter.since.map(to_sql))
            .bind(filter.until.map(to_sql))
            .bind(&filter.username)
            .bind(limit)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("read the audit log"))?;
        rows.into_iter().map(|row| row.read(&self.sealer)).collect()
    }

    /// Seals what is in no batch yet. Returns the newest batch; none where another replica is at it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn seal_audit(&self, now: Timestamp) -> Result<Option<i64>, StoreError> {
        let what = "seal the audit log";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        if !hold(&mut tx).await? {
            return Ok(None);
        }
        let last: Option<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT batch, mac FROM audit_batch ORDER BY batch DESC LIMIT 1")
                .fetch_optional(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
        let (last, before) = last.unwrap_or_default();
        let batch = last + 1;
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
            return Ok(Some(last));
        }
        let entries = i64::try_from(sealed.len()).unwrap_or(i64::MAX);
        let digest = digest_of(sealed);
        let sealed_at = to_sql(now);
        sqlx::query(
            "INSERT INTO audit_batch (batch, sealed_at, entries, digest, mac) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(batch)
        .bind(sealed_at)
        .bind(entries)
        .bind(&digest)
        .bind(self.sealer.sign(&batch_row(batch, sealed_at, entries, &digest, &before)))
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok(Some(batch))
    }

    /// Drops what was sealed before then. Returns how many entries.
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
        let upto: Option<i64> = sqlx::query_scalar("SELECT max(batch) FROM audit_batch WHERE sealed_at < $1")
            .bind(to_sql(before))
            .fetch_one(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        let mut dropped = 0;
        if let Some(upto) = upto {
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
                "INSERT INTO audit_trimmed (batch, mac) VALUES ($1, $2) ON CONFLICT (one) DO UPDATE SET batch = $1, mac = $2",
            )
            .bind(upto)
            .bind(self.sealer.sign(&trimmed_row(upto)))
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        }
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok(older + dropped)
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
        let trimmed: Option<(i64, Vec<u8>)> = sqlx::query_as("SELECT batch, mac FROM audit_trimmed")
            .fetch_optional(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        let mut check = AuditCheck::default();
        let trimmed = match trimmed {
            Some((batch, mac)) if self.sealer.bears(&trimmed_row(batch), Some(&mac)) => batch,
            Some((batch, _)) => {
                check.problem(format!("that batches up to {batch} were dropped for their age is not true"));
                0
            }
            None => 0,
        };
        self.check_batches(&mut tx, trimmed, &mut check).await?;
        self.check_entries(&mut tx, trimmed, &mut check).await?;
        Ok(check)
    }

    async fn check_batches(
        &self,
        tx: &mut PgConnection,
        trimmed: i64,
        check: &mut AuditCheck,
    ) -> Result<(), StoreError> {
        type Batch = (i64, OffsetDateTime, i64, Vec<u8>, Vec<u8>);
        let batches: Vec<Batch> =
            sqlx::query_as("SELECT batch, sealed_at, entries, digest, mac FROM audit_batch ORDER BY batch")
                .fetch_all(&mut *tx)
                .await
                .map_err(StoreError::query("check the audit log"))?;
        let (mut expected, mut before) = (1, Vec::new());
        for (batch, sealed_at, entries, digest, mac) in batches {
            if batch < trimmed {
                check.problem(format!("batch {batch} was dropped for its age and is there again"));
                continue;
            }
            if batch == trimmed {
                // Only its MAC counts: its entries are gone.
                (expected, before) = (batch + 1, mac);
                continue;
            }
            if batch != expected {
                check.problem(format!("batches {expected} to {} are missing", batch - 1));
            } else if !self.sealer.bears(&batch_row(batch, sealed_at, entries, &digest, &before), Some(&mac))
            {
                check.problem(format!("batch {batch} is not as it was sealed"));
            }
            let found: Vec<(i64, Option<Vec<u8>>)> =
                sqlx::query_as("SELECT id, mac FROM audit WHERE batch = $1")
                    .bind(batch)
                    .fetch_all(&mut *tx)
                    .await
                    .map_err(StoreError::query("check the audit log"))?;
            let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
            if count != entries {
                check.problem(format!("batch {batch} was sealed with {entries} entries and has {count}"));
            } else if digest_of(found) != digest {
                check.problem(format!("batch {batch} has other entries than it was sealed with"));
            }
            check.batches += 1;
            check.newest = batch;
            (expected, before) = (batch + 1, mac);
        }
        check.newest = check.newest.max(trimmed);
        Ok(())
    }

    async fn check_entries(
        &self,
        tx: &mut PgConnection,
        trimmed: i64,
        check: &mut AuditCheck,
    ) -> Result<(), StoreError> {
        let what = "check the audit log";
        let sql = format!("SELECT {COLUMNS} FROM audit ORDER BY id");
        let mut rows = sqlx::query_as::<_, Stored>(sqlx::AssertSqlSafe(sql)).fetch(&mut *tx);
        while let Some(row) = rows.next().await {
            let record = row.map_err(StoreError::query(what))?.read(&self.sealer)?;
            match record.batch {
                Some(0) => {
                    check.unsealed += 1;
                    continue;
                }
                None => check.pending += 1,
                Some(batch) if batch <= trimmed || batch > check.newest => {
                    check.problem(format!("entry {} is of batch {batch}, which there is not", record.id));
                }
                Some(_) => check.entries += 1,
            }
            if !record.signed {
                check.problem(format!("entry {} is not what a hub with this key wrote", record.id));
            }
        }
        Ok(())
    }
}

impl AuditCheck {
    /// As many as a reader takes in.
    const TOLD: usize = 20;

    fn problem(&mut self, what: String) {
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

fn trimmed_row(batch: i64) -> Row {
    Row::of("audit_trimmed").number(batch)
}
