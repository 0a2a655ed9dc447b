//! Watches: each replica reads the change log once and hands it to all its watchers.
//!
//! A watcher starts from the log, so that it may begin anywhere that is still kept and on any replica, and goes over to
//! what the reader hands out. The log is in commit order (see [`crate::Tx`]), so "above the last version seen" neither
//! misses nor repeats. A watcher that falls too far behind is cut; it comes back with the last version that it saw.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use roadstead_api::KindId;
use sqlx::{PgPool, Row};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OnceCell, broadcast};

use crate::changes::event_row;
use crate::resource::texts;
use crate::{Sealer, Signals, Store, StoreError, Stored, Topic};

/// How many changes a watcher may fall behind before it is cut.
const BEHIND: usize = 4096;
/// How much of the log is read at once.
const PAGE: i64 = 500;
/// Signals are hints; the log is looked at this often without one.
const POLL: Duration = Duration::from_secs(1);

/// How an object changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// A change.
#[derive(Debug, Clone)]
pub struct Event {
    /// How the object changed.
    pub type_: EventType,
    /// The object after the change; before it, where it is gone. Its version is the change's.
    pub object: Stored,
    /// The labels before the change; none where the object is new.
    pub labels_before: Option<std::collections::BTreeMap<String, String>>,
}

struct LogEntry {
    event: Event,
    sealed: Option<Vec<u8>>,
}

/// The reader of the log, one per replica.
#[derive(Clone)]
pub(crate) struct Feed {
    /// Set when the first watcher comes.
    sender: Arc<OnceCell<broadcast::Sender<Arc<LogEntry>>>>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self { sender: Arc::new(OnceCell::new()) }
    }

    async fn subscribe(&self, store: &Store) -> Result<broadcast::Receiver<Arc<LogEntry>>, StoreError> {
        let sender = self
            .sender
            .get_or_try_init(|| async {
                let (position, _) = positions(&store.pool).await?;
                let (sender, _) = broadcast::channel(BEHIND);
                tokio::spawn(read(store.pool.clone(), store.signals.clone(), sender.downgrade(), position));
                Ok::<_, StoreError>(sender)
            })
            .await?;
        Ok(sender.subscribe())
    }
}

/// (last version, compacted)
async fn positions(pool: &PgPool) -> Result<(i64, i64), StoreError> {
    sqlx::query_as("SELECT last_version, compacted FROM hub_state")
        .fetch_one(pool)
        .await
        .map_err(StoreError::query("read the change log's position"))
}

/// Hands out what the log gets, until the last clone of the store is gone.
async fn read(
    pool: PgPool,
    signals: Signals,
    sender: broadcast::WeakSender<Arc<LogEntry>>,
    mut position: i64,
) {
    let mut woken = signals.subscribe(Topic::Resources);
    drop(signals);
    loop {
        let Some(strong) = sender.upgrade() else { return };
        match page(&pool, position, None).await {
            Ok(entries) => {
                let full = entries.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
                for entry in entries {
                    position = entry.event.object.resource_version;
                    // An error says that nobody listens.
                    let _ = strong.send(Arc::new(entry));
                }
                if full {
                    continue;
                }
            }
            Err(_) if pool.is_closed() => return,
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "watches stand still"),
        }
        drop(strong);
        // Either way the next look follows.
        let _ = tokio::time::timeout(POLL, woken.changed()).await;
    }
}

async fn page(pool: &PgPool, after: i64, kind: Option<KindId>) -> Result<Vec<LogEntry>, StoreError> {
    let what = "read the change log";
    let rows = sqlx::query(
        "SELECT resource_version, type, uid, api_group, kind, namespace, name, generation, created_at, \
         deletion_timestamp, object, sealed, labels_before FROM resource_event WHERE resource_version > $1 \
         AND ($2 = '' OR (kind = $2 AND api_group = $3)) ORDER BY resource_version LIMIT $4",
    )
    .bind(after)
    .bind(kind.map_or("", |kind| kind.get().kind))
    .bind(kind.map_or("", |kind| kind.get().group()))
    .bind(PAGE)
    .fetch_all(pool)
    .await
    .map_err(StoreError::query(what))?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        let type_ = match row.try_get::<&str, _>("type").map_err(StoreError::query(what))? {
            "ADDED" => EventType::Added,
            "DELETED" => EventType::Deleted,
            _ => EventType::Modified,
        };
        let labels: Option<serde_json::Value> =
            row.try_get("labels_before").map_err(StoreError::query(what))?;
        let sealed = row.try_get("sealed").map_err(StoreError::query(what))?;
        let event = Event { type_, object: event_row(&row)?, labels_before: labels.as_ref().map(texts) };
        entries.push(LogEntry { event, sealed });
    }
    Ok(entries)
}

/// Why a watch cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// It asks for changes that are no longer kept, or that belong to another history of this database.
    #[error("resource version {0} is no longer kept: list again and watch from there")]
    Gone(i64),
    /// It read too slowly.
    #[error("the watch fell too far behind: watch again from the last version seen")]
    TooSlow,
    /// The database or the key failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A watch of one kind.
pub struct Watcher {
    kind: KindId,
    sealer: Arc<Sealer>,
    pool: PgPool,
    receiver: broadcast::Receiver<Arc<LogEntry>>,
    version: i64,
    replay: VecDeque<LogEntry>,
    replaying: bool,
}

impl Store {
    /// Watches a kind: all changes above `version`, each once, in order.
    ///
    /// # Errors
    /// [`WatchError::Gone`] where `version` is no longer kept.
    pub async fn watch(&self, kind: KindId, version: i64) -> Result<Watcher, WatchError> {
        // First listen, then read the log: between the two nothing can be missed.
        let receiver = self.feed.subscribe(self).await?;
        let (last, compacted) = positions(&self.pool).await?;
        if version < compacted || version > last {
            return Err(WatchError::Gone(version));
        }
        Ok(Watcher {
            kind,
            sealer: Arc::clone(&self.sealer),
            pool: self.pool.clone(),
            receiver,
            version,
            replay: VecDeque::new(),
            replaying: true,
        })
    }

    /// Forgets changes older than `age`, apart from the newest `keep`. Returns how many were forgotten.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn compact(&self, age: Duration, keep: i64) -> Result<u64, StoreError> {
        let what = "compact the change log";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        let upto: Option<i64> = sqlx::query_scalar(
            "SELECT max(resource_version) FROM resource_event WHERE at < now() - make_interval(secs => $1) \
             AND resource_version <= COALESCE((SELECT resource_version FROM resource_event \
             ORDER BY resource_version DESC OFFSET $2 LIMIT 1), 0)",
        )
        .bind(age.as_secs_f64())
        .bind(keep)
        .fetch_one(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
        let Some(upto) = upto else { return Ok(0) };
        let gone = sqlx::query("DELETE FROM resource_event WHERE resource_version <= $1")
            .bind(upto)
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        // Last, as every change takes this row last too.
        sqlx::query("UPDATE hub_state SET compacted = GREATEST(compacted, $1)")
            .bind(upto)
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok(gone.rows_affected())
    }
}

impl Watcher {
    /// All changes up to this version have been given out.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The next change. May be dropped and called again without missing any.
    ///
    /// # Errors
    /// Where the watch was cut, or a Secret cannot be opened.
    pub async fn next(&mut self) -> Result<Event, WatchError> {
        loop {
            if self.replaying {
                if let Some(entry) = self.replay.pop_front() {
                    self.version = entry.event.object.resource_version;
                    return self.open(&entry);
                }
                let entries = page(&self.pool, self.version, Some(self.kind)).await?;
                self.replaying = !entries.is_empty();
                if self.replaying {
                    self.check_kept().await?;
                }
                self.replay = entries.into();
                continue;
            }
            let entry = match self.receiver.recv().await {
                Ok(entry) => entry,
                Err(RecvError::Lagged(_)) => return Err(WatchError::TooSlow),
                // The store is being closed.
                Err(RecvError::Closed) => return Err(WatchError::TooSlow),
            };
            let version = entry.event.object.resource_version;
            if version <= self.version {
                continue;
            }
            self.version = version;
            if entry.event.object.kind == self.kind {
                return self.open(&entry);
            }
        }
    }

    /// A compaction between two pages may have taken changes that were not read yet.
    async fn check_kept(&self) -> Result<(), WatchError> {
        let (_, compacted) = positions(&self.pool).await?;
        if self.version < compacted { Err(WatchError::Gone(self.version)) } else { Ok(()) }
    }

    fn open(&self, entry: &LogEntry) -> Result<Event, WatchError> {
        let mut event = entry.event.clone();
        event.object.open(&self.sealer, entry.sealed.as_deref())?;
        Ok(event)
    }
}
