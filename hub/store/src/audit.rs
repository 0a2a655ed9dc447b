//! The audit log: who did, read or was refused what. It never holds an object's content.
//!
//! Each entry bears a MAC from the moment when it is written, and entries are sealed in batches about once a minute: a batch's
//! MAC is over its entries' MACs and over the batch before. So what was changed, added or taken out by somebody without the
//! key file shows, apart from what is younger than the newest batch, and from newest batches that were taken out whole,
//! which shows to whoever remembers the newest batch.

mod batches;

pub(crate) use batches::trimmed_row;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::{AuditEntry, AuditFilter, AuditOutcome};
use sqlx::{FromRow, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::mac::Row;
use crate::time::{from_sql, to_sql};
use crate::{Sealer, Store, StoreError, Tx};

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
        let signed = sealer.bears_in(self.batch, &row(&entry, self.entry, self.at), self.mac.as_deref());
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
}
