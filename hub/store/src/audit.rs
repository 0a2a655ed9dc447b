//! The audit log: who did, read or was refused what. It never holds an object's content.
//!
//! Each entry bears a MAC from the moment when it is written, and entries are sealed in batches about once a second: a batch's
//! MAC is over its entries' MACs and over the batch before. So what was changed, added or taken out by somebody without the
//! key file shows, apart from what is younger than the newest batch, and from newest batches that were taken out whole,
//! which shows to whoever remembers the newest batch.

mod batches;
mod heads;

pub use batches::{SealedAudit, SeenBatch};
pub(crate) use batches::{StoredTrimmed, TRIMMED};
pub use heads::{AuditHead, ToldEntry};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use roadstead_model::{AuditEntry, AuditFilter, AuditOrigin, AuditOutcome};
use sqlx::{FromRow, PgConnection, Postgres, QueryBuilder};
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

/// An entry right after it was written.
#[derive(Debug, Clone)]
pub struct WrittenEntry {
    /// Its number.
    pub id: i64,
    /// When it was written.
    pub at: Timestamp,
    /// What it says.
    pub entry: AuditEntry,
    /// Its MAC.
    pub mac: Vec<u8>,
}

/// Who is told of each entry once it is written for good; must not wait.
pub type AuditListener = Arc<dyn Fn(WrittenEntry) + Send + Sync>;

/// What a store knows of the entries that it writes.
#[derive(Clone, Default)]
pub(crate) struct Written(Arc<WrittenState>);

#[derive(Default)]
struct WrittenState {
    listener: OnceLock<AuditListener>,
    /// Something was written since it was last sealed.
    unsealed: AtomicBool,
}

impl Written {
    /// To be called once entries are in the log for good; `told` is empty where nobody listens.
    pub(crate) fn are_there(&self, told: Vec<WrittenEntry>) {
        self.are_unsealed();
        if let Some(listener) = self.0.listener.get() {
            told.into_iter().for_each(|entry| listener(entry));
        }
    }

    /// To be called where there may be entries in no batch.
    fn are_unsealed(&self) {
        self.0.unsealed.store(true, Ordering::Release);
    }

    fn is_heard(&self) -> bool {
        self.0.listener.get().is_some()
    }
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
    impersonator: String,
    address: String,
    request: String,
    administrator: bool,
    times: i64,
    changes: Option<String>,
    impersonated: Option<String>,
    mac: Option<Vec<u8>>,
    batch: Option<i64>,
}

const COLUMNS: &str = "id, at, username, verb, api_group, kind, namespace, name, entry, outcome, detail, impersonator, \
                       address, request, administrator, times, changes, impersonated, mac, batch";

/// Entries are numbered in the order of their times, as far as the replicas' clocks agree: no further apart than this.
const SKEW: SignedDuration = SignedDuration::from_hours(24);

/// Subresources that stand behind a kind in the log.
const SUBRESOURCES: [&str; 5] = ["", "/status", "/token", "/jointoken", "/confirm"];

/// What an entry's MAC is over. What older versions know nothing of is in it only where it says something, so that they can check
/// entries that say no more than theirs.
fn row(entry: &AuditEntry, uid: Uuid, at: OffsetDateTime) -> Row {
    let AuditEntry { impersonator, impersonated, origin, times, changes, .. } = entry;
    let says_more = impersonated.is_some()
        || !impersonator.is_empty()
        || *origin != AuditOrigin::default()
        || (*times).max(1) != 1
        || changes.is_some();
    let form = match (impersonated, says_more) {
        (Some(_), _) => "audit, with its impersonation",
        (None, true) => "audit, with its origin",
        (None, false) => "audit",
    };
    let row = Row::of(form)
        .bytes(uid.as_bytes())
        .time(at)
        .text(&entry.username)
        .text(&entry.verb)
        .text(&entry.group)
        .text(&entry.kind)
        .text(&entry.namespace)
        .text(&entry.name)
        .text(entry.outcome.as_str())
        .text(&entry.detail);
    if !says_more {
        return row;
    }
    let row = row
        .text(impersonator)
        .text(&origin.address)
        .text(&origin.request)
        .number(i64::from(origin.administrator))
        .number((*times).max(1))
        .optional(changes.as_deref(), Row::text);
    match impersonated {
        Some(impersonated) => row.text(impersonated),
        None => row,
    }
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
            impersonator: self.impersonator,
            impersonated: self.impersonated,
            origin: AuditOrigin {
                address: self.address,
                request: self.request,
                administrator: self.administrator,
            },
            times: self.times,
            changes: self.changes,
        };
        let signed = sealer.bears_in(self.batch, &row(&entry, self.entry, self.at), self.mac.as_deref());
        let at = from_sql("read the audit log", self.at)?;
        Ok(AuditRecord { id: self.id, at, entry, batch: self.batch, signed })
    }
}

async fn write(
    connection: &mut PgConnection,
    sealer: &Sealer,
    entry: &AuditEntry,
) -> Result<WrittenEntry, StoreError> {
    // When it is written, not what a test's clock says.
    let now = Timestamp::now();
    let (uid, at) = (Uuid::new_v4(), to_sql(now));
    let mac = sealer.sign(&row(entry, uid, at));
    let id = sqlx::query_scalar(
        "INSERT INTO audit (entry, at, username, verb, api_group, kind, namespace, name, outcome, detail, mac, \
                            impersonator, address, request, administrator, times, changes, impersonated) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) RETURNING id",
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
    .bind(&mac)
    .bind(&entry.impersonator)
    .bind(&entry.origin.address)
    .bind(&entry.origin.request)
    .bind(entry.origin.administrator)
    .bind(entry.times.max(1))
    .bind(&entry.changes)
    .bind(&entry.impersonated)
    .fetch_one(connection)
    .await
    .map_err(StoreError::query("write the audit log"))?;
    Ok(WrittenEntry { id, at: now, entry: entry.clone(), mac })
}

impl Tx {
    /// Writes an entry of the audit log, in the same unit of work.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn note(&mut self, entry: &AuditEntry) -> Result<(), StoreError> {
        let written = write(&mut self.inner, &self.sealer, entry).await?;
        let noted = self.noted.get_or_insert_default();
        if self.written.is_heard() {
            noted.push(written);
        }
        Ok(())
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
        let mut noted = Vec::with_capacity(entries.len());
        for entry in entries {
            noted.push(write(&mut tx, &self.sealer, entry).await?);
        }
        tx.commit().await.map_err(StoreError::query(what))?;
        self.written.are_there(noted);
        Ok(())
    }

    /// Whether this process has written entries since it was last asked, or could not seal what there was.
    #[must_use]
    pub fn take_unsealed(&self) -> bool {
        self.written.0.unsealed.swap(false, Ordering::AcqRel)
    }

    /// Has all that this process writes into the log told to somebody, who is the only one.
    pub fn listen_to_audit(&self, listener: AuditListener) {
        if self.written.0.listener.set(listener).is_err() {
            tracing::error!("the audit log is streamed already");
        }
    }

    /// Up to `limit` entries, in the order of their numbers.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn audit_log(&self, filter: &AuditFilter, limit: i64) -> Result<Vec<AuditRecord>, StoreError> {
        let mut query = asked(filter);
        query.push(if filter.newest_first { " ORDER BY id DESC LIMIT " } else { " ORDER BY id LIMIT " });
        let rows: Vec<Stored> = query
            .push_bind(limit)
            .build_query_as()
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("read the audit log"))?;
        rows.into_iter().map(|row| row.read(&self.sealer)).collect()
    }
}

/// The question for entries, with no more conditions than are asked for: so each is answered by an index.
fn asked(filter: &AuditFilter) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(format!("SELECT {COLUMNS} FROM audit WHERE "));
    match (filter.newest_first, filter.after) {
        (true, 0) => query.push("true"),
        (true, before) => query.push("id < ").push_bind(before),
        (false, after) => query.push("id > ").push_bind(after),
    };
    if let Some(since) = filter.since {
        query.push(" AND at >= ").push_bind(to_sql(since));
        query.push(" AND id >= COALESCE((SELECT id FROM audit WHERE at >= ");
        query.push_bind(to_sql(since.saturating_sub(SKEW).unwrap_or(since)));
        query.push(" ORDER BY at, id LIMIT 1), 0)");
    }
    if let Some(until) = filter.until {
        query.push(" AND at < ").push_bind(to_sql(until));
        query.push(" AND id <= COALESCE((SELECT id FROM audit WHERE at < ");
        query.push_bind(to_sql(until.saturating_add(SKEW).unwrap_or(until)));
        query.push(" ORDER BY at DESC, id DESC LIMIT 1), 0)");
    }
    if !filter.username.is_empty() {
        query.push(" AND (username = ").push_bind(filter.username.clone());
        query
            .push(" OR (impersonator <> '' AND impersonator = ")
            .push_bind(filter.username.clone())
            .push("))");
    }
    if !filter.kind.is_empty() {
        let kinds: Vec<String> = SUBRESOURCES.iter().map(|sub| format!("{}{sub}", filter.kind)).collect();
        query.push(" AND kind = ANY(").push_bind(kinds).push(")");
    }
    if !filter.request.is_empty() {
        query.push(" AND request <> '' AND request = ").push_bind(filter.request.clone());
    }
    let texts = [("verb", &filter.verb), ("namespace", &filter.namespace), ("name", &filter.name)];
    for (column, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        query.push(" AND ").push(column).push(" = ").push_bind(text.clone());
    }
    match filter.outcome {
        Some(AuditOutcome::Refused) => query.push(" AND outcome = 'refused'"),
        Some(AuditOutcome::Ok) => query.push(" AND outcome = 'ok'"),
        None => &mut query,
    };
    if filter.administrator {
        query.push(" AND administrator");
    }
    query
}
