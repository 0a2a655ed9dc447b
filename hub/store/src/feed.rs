//! Watches: each replica reads the change log once and hands it to all its watchers.
//!
//! A watcher starts from the log, so that it may begin anywhere that is still kept and on any replica, and goes over to
//! what the reader hands out. The log is in commit order (see [`crate::Tx`]), so "above the last version seen" neither
//! misses nor repeats. A watcher that falls behind what the reader keeps in memory goes back to the log.
//!
//! What is kept has room of its own ([`Store::keep_watches_within`]): a change for which there is none is not handed out, so
//! that watchers read it from the log, and there each takes as much at once as it has room for, or one change at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use roadstead_api::KindId;
use roadstead_budget::{Pool, Reservation};
use roadstead_model::Topic;
use sqlx::{Postgres, QueryBuilder, Row};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OnceCell, broadcast};

use crate::counted::Connections;
use crate::restore::Newest;
use crate::stored::texts;
use crate::{Health, Sealer, Signals, Store, StoreError, Stored};

/// How many changes are kept in memory for watchers that are behind; one that is further behind reads the log itself.
const BEHIND: usize = 1024;
/// How much of the log the reader takes at once.
const PAGE: i64 = 500;
/// How much of the log a watcher takes at once: there are many of them, and each holds what it took.
const WATCHERS_PAGE: i64 = 100;
/// Bytes of objects, as text, that either takes at once; one object in any case.
const PAGE_BYTES: i64 = 8 << 20;
const WATCHERS_BYTES: i64 = 1 << 20;
/// What a byte of an object's text becomes in memory, its renderings included. An estimate.
const GROWTH: u64 = 5;
/// Signals are hints; the log is read this often without one.
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

impl EventType {
    /// As watches and the change log name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A change. Clones share it.
#[derive(Clone)]
pub struct Event {
    entry: Arc<LogEntry>,
    sealer: Arc<Sealer>,
}

impl Event {
    /// How the object changed.
    #[must_use]
    pub fn type_(&self) -> EventType {
        self.entry.type_
    }

    /// The object after the change, before it where it is gone; without what is secret of it. Its version is the change's.
    #[must_use]
    pub fn object(&self) -> &Stored {
        &self.entry.object
    }

    /// The labels before the change; none where the object is new.
    #[must_use]
    pub fn labels_before(&self) -> Option<&BTreeMap<String, String>> {
        self.entry.labels_before.as_ref()
    }

    /// The object with what is secret of it.
    ///
    /// # Errors
    /// Where a Secret cannot be opened.
    pub fn open(&self) -> Result<Stored, StoreError> {
        let mut object = self.entry.object.clone();
        object.open(&self.sealer, self.entry.sealed.as_deref())?;
        Ok(object)
    }

    /// The change in the form `key`, made once for all watchers of this replica that want it so. A Secret is made again
    /// each time: its plain text is not kept.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn rendered<E>(&self, key: RenderKey, make: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        if self.entry.sealed.is_some() {
            return make();
        }
        // Held while it is made, so that a thousand watchers which wake together do not all make it. A panic in `make`
        // leaves the list as it was.
        let mut known = self.entry.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = known.iter().find(|(present, _)| *present == key) {
            return Ok(bytes.clone());
        }
        let bytes = make()?;
        known.push((key, bytes.clone()));
        Ok(bytes)
    }
}

/// In which form a change is rendered: version, form, and what the change is to the watcher.
pub type RenderKey = (&'static str, &'static str, EventType);

struct LogEntry {
    /// Room for it, while it is handed out.
    _room: Option<Reservation>,
    type_: EventType,
    object: Stored,
    labels_before: Option<BTreeMap<String, String>>,
    sealed: Option<Vec<u8>>,
    rendered: Mutex<Vec<(RenderKey, Bytes)>>,
}

/// What the reader hands out.
#[derive(Clone)]
enum Message {
    Change(Arc<LogEntry>),
    /// The change of this version is not one that this version of the hub can read.
    Passed(i64),
    /// What was not read was compacted, or belongs to another history: each watcher has to look where it stands.
    Gap,
}

/// The reader of the log, one per replica.
#[derive(Clone)]
pub(crate) struct Feed {
    /// Set when the first watcher comes.
    sender: Arc<OnceCell<broadcast::Sender<Message>>>,
    /// For what is kept; unbounded as long as nobody has set it.
    room: Arc<OnceLock<Pool>>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self { sender: Arc::default(), room: Arc::default() }
    }

    async fn subscribe(&self, store: &Store) -> Result<broadcast::Receiver<Message>, StoreError> {
        let sender = self
            .sender
            .get_or_try_init(|| async {
                let (position, _) = positions(&store.pool).await?;
                let (sender, _) = broadcast::channel(BEHIND);
                let (pool, signals, health) =
                    (store.pool.clone(), store.signals.clone(), store.health.clone());
                let (room, newest) = (Arc::clone(&self.room), store.newest.clone());
                tokio::spawn(read(pool, signals, health, (room, newest), sender.downgrade(), position));
                Ok::<_, StoreError>(sender)
            })
            .await?;
        Ok(sender.subscribe())
    }
}

/// (last version, compacted)
async fn positions(pool: &Connections) -> Result<(i64, i64), StoreError> {
    sqlx::query_as("SELECT last_version, compacted FROM hub_state")
        .fetch_one(pool)
        .await
        .map_err(StoreError::query("read the change log's position"))
}

/// Hands out what the log gets, until the last clone of the store is gone.
async fn read(
    pool: Connections,
    signals: Signals,
    health: Health,
    (room, newest): (Arc<OnceLock<Pool>>, Newest),
    sender: broadcast::WeakSender<Message>,
    mut position: i64,
) {
    let mut woken = signals.subscribe(Topic::Resources);
    drop(signals);
    loop {
        let Some(strong) = sender.upgrade() else { return };
        let page = tokio::select! {
            page = page(&pool, position, None, (PAGE, PAGE_BYTES), room.get()) => page,
            _ = health.lost() => {
                drop(strong);
                health.back().await;
                continue;
            }
        };
        match page {
            Ok(page) => {
                newest.saw(page.last);
                if !page.follows(position) {
                    // An error says that nobody listens, here as below.
                    let _ = strong.send(Message::Gap);
                    position = page.compacted.max(position.min(page.last));
                    continue;
                }
                let more = page.entries.last().is_some_and(|(last, _)| *last < page.last);
                for (version, entry) in page.entries {
                    position = version;
                    let _ = strong.send(match entry {
                        Entry::Read(entry) => Message::Change(entry),
                        // Each watcher reads it for itself.
                        Entry::NoRoom => Message::Gap,
                        Entry::Newer => Message::Passed(version),
                    });
                }
                if more {
                    continue;
                }
            }
            Err(_) if pool.is_closed() => return,
            Err(error) => health.note("watches are not progressing", &error).await,
        }
        drop(strong);
        // Either way the next read follows.
        let _ = tokio::time::timeout(POLL, woken.changed()).await;
    }
}

/// What became of a row of the log that was read.
enum Entry {
    Read(Arc<LogEntry>),
    /// There was no room for it.
    NoRoom,
    /// It is of a kind that only a newer version knows.
    Newer,
}

/// A piece of the log, and where the log stood at that moment.
struct LogPage {
    /// By version.
    entries: Vec<(i64, Entry)>,
    compacted: i64,
    last: i64,
}

impl LogPage {
    /// Whether nothing is missing between `after`, from where it was read, and its first entry.
    fn follows(&self, after: i64) -> bool {
        (self.compacted..=self.last).contains(&after)
    }
}

/// Reads so many changes, and bytes, of the log; with `room`, what does not fit there is left out.
async fn page(
    pool: &Connections,
    after: i64,
    kind: Option<KindId>,
    (limit, bytes): (i64, i64),
    room: Option<&Pool>,
) -> Result<LogPage, StoreError> {
    let what = "read the change log";
    // One statement, so one moment: a compaction before it shows in `compacted`.
    // Rows of versions that noted no size are measured, unless they are small as they are stored.
    let mut query = QueryBuilder::<Postgres>::new(
        "SELECT h.last_version, h.compacted, e.* FROM hub_state h LEFT JOIN LATERAL (SELECT *, \
         sum(size) OVER (ORDER BY resource_version) - size AS before FROM (SELECT resource_version, type, \
         uid, api_group, kind, namespace, name, generation, created_at, deletion_timestamp, object, sealed, \
         labels_before, shredded, CASE WHEN coalesce(size, pg_column_size(object)) < 500 THEN 500 \
         ELSE coalesce(size, octet_length(object::text)) END + coalesce(octet_length(sealed), 0) AS size FROM resource_event WHERE resource_version > ",
    );
    query.push_bind(after);
    // The kind is in the statement only where one is asked for: a plan for both cases does not use the index of versions as long as Postgres
    // has no statistics of the log.
    if let Some(kind) = kind {
        query.push(" AND kind = ").push_bind(kind.get().kind);
        query.push(" AND api_group = ").push_bind(kind.get().group());
    }
    query.push(" ORDER BY resource_version LIMIT ").push_bind(limit);
    query.push(") newer) e ON e.before < ").push_bind(bytes).push(" ORDER BY e.resource_version");
    let rows = query.build().fetch_all(pool).await.map_err(StoreError::query(what))?;
    let mut page = LogPage { entries: Vec::with_capacity(rows.len()), compacted: 0, last: 0 };
    for row in rows {
        page.last = row.try_get("last_version").map_err(StoreError::query(what))?;
        page.compacted = row.try_get("compacted").map_err(StoreError::query(what))?;
        let type_: Option<&str> = row.try_get("type").map_err(StoreError::query(what))?;
        let type_ = match type_ {
            // Nothing is above `after`.
            None => continue,
            Some("ADDED") => EventType::Added,
            Some("DELETED") => EventType::Deleted,
            Some(_) => EventType::Modified,
        };
        let version: i64 = row.try_get("resource_version").map_err(StoreError::query(what))?;
        let Some(kind) = Stored::kind_of(&row, what)? else {
            page.entries.push((version, Entry::Newer));
            continue;
        };
        let size: i32 = row.try_get("size").map_err(StoreError::query(what))?;
        let held = room.map(|room| room.try_reserve(u64::from(size.unsigned_abs()) * GROWTH)).transpose();
        let Ok(held) = held else {
            page.entries.push((version, Entry::NoRoom));
            continue;
        };
        let labels: Option<serde_json::Value> =
            row.try_get("labels_before").map_err(StoreError::query(what))?;
        let mut object = Stored::bare(kind, &row, what)?;
        if row.try_get("shredded").map_err(StoreError::query(what))? {
            object.mark_shredded();
        }
        let entry = LogEntry {
            _room: held,
            type_,
            object,
            labels_before: labels.as_ref().map(texts),
            sealed: row.try_get("sealed").map_err(StoreError::query(what))?,
            rendered: Mutex::default(),
        };
        page.entries.push((version, Entry::Read(Arc::new(entry))));
    }
    Ok(page)
}

/// Why a watch cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// It asks for changes that are no longer kept, or that belong to another history of this database.
    #[error("resource version {0} is no longer available: list again and watch from there")]
    Gone(i64),
    /// The hub is being closed.
    #[error("the hub is shutting down: watch again from the last version seen")]
    Closed,
    /// The database or the key failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A watch of one kind, or of all.
pub struct Watcher {
    kind: Option<KindId>,
    sealer: Arc<Sealer>,
    pool: Connections,
    health: Health,
    receiver: broadcast::Receiver<Message>,
    version: i64,
    /// By version; none for those that only a newer version can read.
    replay: VecDeque<(i64, Option<Arc<LogEntry>>)>,
    replaying: bool,
    /// For what is read of the log.
    room: Arc<OnceLock<Pool>>,
    /// Room for `replay`, where that is more than one change.
    replay_room: Option<Reservation>,
}

impl Store {
    /// Watches a kind: all changes above `version`, each once, in order.
    ///
    /// # Errors
    /// [`WatchError::Gone`] where `version` is no longer kept.
    pub async fn watch(&self, kind: KindId, version: i64) -> Result<Watcher, WatchError> {
        self.watch_some(Some(kind), version).await
    }

    /// Watches all kinds, as [`Store::watch`] does one.
    ///
    /// # Errors
    /// Those of [`Store::watch`].
    pub async fn watch_all(&self, version: i64) -> Result<Watcher, WatchError> {
        self.watch_some(None, version).await
    }

    async fn watch_some(&self, kind: Option<KindId>, version: i64) -> Result<Watcher, WatchError> {
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
            health: self.health.clone(),
            receiver,
            version,
            replay: VecDeque::new(),
            replaying: true,
            room: Arc::clone(&self.feed.room),
            replay_room: None,
        })
    }

    /// Keeps what watches hold of the log within `room`, from now on.
    pub fn keep_watches_within(&self, room: Pool) {
        // Set once; another process's part has nothing to say here.
        let _ = self.feed.room.set(room);
    }

    /// The last version that was given out.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn last_version(&self) -> Result<i64, StoreError> {
        Ok(positions(&self.pool).await?.0)
    }

    /// Forgets changes older than `age`, apart from the newest `keep`. Returns how many were forgotten.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn compact(&self, age: Duration, keep: i64) -> Result<u64, StoreError> {
        let what = "compact the change log";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        // From the oldest on, so that what stays is not read: up to the first that is young enough to stay, and not
        // beyond the newest that do in any case.
        let upto: Option<i64> = sqlx::query_scalar(
            "SELECT upto FROM hub_state, LATERAL (SELECT LEAST(\
                 COALESCE((SELECT resource_version - 1 FROM resource_event WHERE resource_version > compacted \
                     AND at >= now() - make_interval(secs => $1) ORDER BY resource_version LIMIT 1), last_version), \
                 COALESCE((SELECT resource_version FROM resource_event ORDER BY resource_version DESC OFFSET $2 LIMIT 1), \
                     0)) AS upto) AS u WHERE upto > compacted",
        )
        .bind(age.as_secs_f64())
        .bind(keep)
        .fetch_optional(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
        let Some(upto) = upto else { return Ok(0) };
        let forgotten = forget(&mut tx, upto).await?;
        // Last, as every change takes this row last too.
        sqlx::query("UPDATE hub_state SET compacted = GREATEST(compacted, $1)")
            .bind(upto)
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok(forgotten)
    }
}

/// Removes changes up to a version from the log, apart from the last of each object that was there then: lists of a later
/// moment show that. What earlier compactions left is read only where it was followed by something since.
pub(crate) async fn forget(connection: &mut sqlx::PgConnection, upto: i64) -> Result<u64, StoreError> {
    let forgotten = sqlx::query(
        "WITH past AS (SELECT resource_version, type, before_version FROM resource_event \
             WHERE resource_version > (SELECT compacted FROM hub_state) AND resource_version <= $1) \
         DELETE FROM resource_event WHERE resource_version = ANY (ARRAY \
             (SELECT before_version FROM past UNION ALL SELECT resource_version FROM past WHERE type = 'DELETED'))",
    )
    .bind(upto)
    .execute(connection)
    .await
    .map_err(StoreError::query("forget changes"))?;
    Ok(forgotten.rows_affected())
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
    /// [`WatchError::Gone`] where changes that were not read yet are no longer kept. Where the database fails.
    pub async fn next(&mut self) -> Result<Event, WatchError> {
        loop {
            if let Some(event) = self.advance().await? {
                return Ok(event);
            }
        }
    }

    /// The same; none where the next change is of a kind that only a newer version knows. Either way [`Self::version`] says up to
    /// where that was.
    ///
    /// # Errors
    /// Those of [`Self::next`].
    pub async fn advance(&mut self) -> Result<Option<Event>, WatchError> {
        loop {
            if self.replaying {
                if let Some((version, entry)) = self.replay.pop_front() {
                    self.version = version;
                    return Ok(entry.map(|entry| self.event(entry)));
                }
                let most = self.make_room();
                let page = tokio::select! {
                    page = page(&self.pool, self.version, self.kind, most, None) => page,
                    // A watch stays open over an outage: there is nothing to tell meanwhile, and nothing is missed.
                    _ = self.health.lost() => {
                        self.health.back().await;
                        continue;
                    }
                };
                let page = match page {
                    Ok(page) => page,
                    Err(error) if error.outage().is_some() && !self.pool.is_closed() => {
                        tokio::time::sleep(POLL).await;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                if !page.follows(self.version) {
                    return Err(WatchError::Gone(self.version));
                }
                if page.entries.is_empty() {
                    self.replay_room = None;
                    self.replaying = false;
                    self.version = page.last;
                }
                let of = |(version, entry)| match entry {
                    Entry::Read(entry) => Some((version, Some(entry))),
                    Entry::Newer => Some((version, None)),
                    // It was read without a bound.
                    Entry::NoRoom => None,
                };
                self.replay = page.entries.into_iter().filter_map(of).collect();
                continue;
            }
            let entry = match self.receiver.recv().await {
                Ok(Message::Change(entry)) => entry,
                Ok(Message::Passed(version)) => {
                    if version <= self.version {
                        continue;
                    }
                    self.version = version;
                    return Ok(None);
                }
                Ok(Message::Gap) | Err(RecvError::Lagged(_)) => {
                    self.replaying = true;
                    continue;
                }
                Err(RecvError::Closed) => return Err(WatchError::Closed),
            };
            let version = entry.object.resource_version;
            if version <= self.version {
                continue;
            }
            self.version = version;
            if self.kind.is_none_or(|kind| entry.object.kind == kind) {
                return Ok(Some(self.event(entry)));
            }
        }
    }

    /// How many changes, and bytes, of the log may be read at once.
    fn make_room(&mut self) -> (i64, i64) {
        self.replay_room = None;
        let Some(room) = self.room.get() else { return (WATCHERS_PAGE, WATCHERS_BYTES) };
        self.replay_room = room.try_reserve(WATCHERS_BYTES.unsigned_abs() * GROWTH).ok();
        if self.replay_room.is_some() { (WATCHERS_PAGE, WATCHERS_BYTES) } else { (1, 1) }
    }

    fn event(&self, entry: Arc<LogEntry>) -> Event {
        Event { entry, sealer: Arc::clone(&self.sealer) }
    }
}
