//! All SQL of the hub, and only here. Rows become domain types here and never leave.
//!
//! [`Store`] reads; [`Tx`] changes. A [`Tx`] takes the resource-version counter last, when it commits, so that versions
//! become visible in their own order and no watcher can step over one.

mod account;
mod adopt;
mod agent;
mod artifact;
mod artifact_store;
mod audit;
mod authority;
mod blob;
mod build_cache;
mod build_turn;
mod built;
mod changes;
mod child;
mod closing;
mod cluster;
mod correction;
mod counted;
mod delivery;
mod dependencies;
mod descent;
mod dispatched;
mod drift;
mod error;
mod feed;
mod fleet;
mod gathered;
mod grace;
mod granted;
mod handover;
mod health;
mod held;
mod hook;
mod incident;
mod incident_member;
mod inventory;
mod issuer;
mod key_state;
mod lists;
mod mac;
mod metrics;
mod newer;
mod news;
mod news_group;
mod reconciliation;
mod references;
mod rekey;
mod relayed;
mod remote;
mod reported;
mod resource;
mod restore;
mod rollout;
mod schedule;
pub mod seal;
mod secret;
mod set_aside;
mod sign_in;
mod signal;
mod silence;
mod stored;
mod tally;
mod tended;
mod time;
mod together;
mod token;
mod token_check;
mod transport;
mod upgrade;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use roadstead_model::Topic;
use sqlx::Connection as _;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::Semaphore;

pub use account::{AccountKey, AccountStanding, ShownAccountToken};
pub use agent::FleetAgent;
pub use artifact::{KeptArtifact, SourceArtifact};
pub use artifact_store::ArtifactStore;
pub use audit::{
    AuditCheck, AuditHead, AuditListener, AuditRecord, SealedAudit, SeenBatch, ToldEntry, WrittenEntry,
};
pub use authority::KeyPair;
pub use blob::{AtRest, BlobHead};
pub use build_cache::{BuildReads, BuiltGroup, CachedBuild, FoundBuild, ReadOfBuild};
pub use build_turn::{BuildQuota, BuildTurn, TurnOf};
pub use built::ComparableBuild;
pub use changes::Committed;
pub use child::{Child, MadeBy, Parent, Present};
pub use closing::{ClosedIncident, Closing, DeletedObject};
pub use cluster::{AgentSession, JoinToken};
pub use correction::RecordedCorrection;
pub use counted::Statements;
pub use delivery::{Attempted, Delivery, FleetDelivery};
pub use dependencies::{DependencyRow, Reach, ReachedDependency};
pub use descent::{Ancestor, Descent, Root};
pub use dispatched::{OpenAttempt, TakenToSend, ToSend};
pub use drift::{CorrectedDrift, FleetDrift};
pub use error::StoreError;
pub use feed::{Event, EventType, RenderKey, WatchError, Watcher};
pub use fleet::{ConnectionTimes, FleetAttempt, HealthCount, OwnedObject};
pub use gathered::{Gathered, KeptFailure, NamedFailure, StillFailing, StoredSilence, Uncounted};
pub use grace::Grace;
pub use handover::{BuiltObjects, Moves, OldOwner, Relatives};
pub use health::Health;
pub use held::{Descendants, HeldDeletion};
pub use incident::{FleetIncident, IncidentId, Lapsed, Member, OpenIncident};
pub use incident_member::{FailingMember, MemberKey};
pub use inventory::{Contested, Holdings};
pub use issuer::IssuerAnswer;
pub use lists::{ApplierRow, SourceRow};
pub use metrics::{ObjectInfo, QueueDepth, WaitingDeliveries};
pub use news::{AlertSource, LabelsByName, NewDelivery, NewsItem, WaitingNews};
pub use news_group::{DueNews, NewsGroup, NewsObject, SharedNews};
pub use reconciliation::{AttemptInputs, Closed, History, Outcome, Reconciliation};
pub use references::{Concerned, Whom};
pub use rekey::{KeyCensus, RekeyOptions, RekeyStep, Rekeyed, Sealed};
pub use relayed::{RelayedCount, RelayedItem, RelayedSource};
pub use remote::{HeldRemote, RemoteResource};
pub use reported::{ReportedAttempt, ReportedHealth};
pub use resource::{Filter, HeldNamespace, Listed, Part};
pub use restore::{LostAttempt, SeenAttempt};
pub use rollout::{CountedAppliers, CountedSource, StoredRollout};
pub use seal::{Key, KeyId, Sealer};
pub use secret::{LAST_APPLIED, SecretData};
pub use set_aside::SetAside;
pub use sign_in::{NewSession, StoredSession};
pub use signal::Signals;
pub use silence::FleetSilence;
pub use stored::Stored;
pub use tally::Tally;
pub use tended::TendedState;
pub use token::{TokenHash, TokenInfo, TokenText, TokenUser};
pub use token_check::{Checked, TokenCheck, TokenKind};
pub use transport::Transport;

/// A connection that was used within this time is taken to be alive.
const TRUSTED: Duration = Duration::from_secs(1);

/// How long a connection is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection that was not used for a while may take to say that it lives.
const PING: Duration = Duration::from_secs(1);
/// Units of work of this process that hold the counter of versions, or wait for it in the database.
const TURNS: usize = 2;
/// One that takes longer than this no longer counts as one of them.
const LONGEST_TURN: Duration = Duration::from_millis(500);

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// The hub's database.
#[derive(Clone)]
pub struct Store {
    /// For single questions: they wait for nothing else while they hold a connection.
    pool: counted::Connections,
    /// For units of work, which may ask such a question in between. Out of one pool, as many of them as it has connections
    /// would each hold one and wait for another.
    units: counted::Connections,
    sealer: Arc<Sealer>,
    signals: Signals,
    feed: feed::Feed,
    health: Health,
    newest: restore::Newest,
    written: audit::Written,
    artifacts: Option<Arc<ArtifactStore>>,
    together: together::Questions,
    /// For units of work that are about to take the counter of versions.
    turns: Arc<Semaphore>,
}

impl Store {
    /// Connects by at most `max_connections` (4 or more), brings the schema up to date, and starts to listen for other
    /// replicas' signals.
    ///
    /// Several replicas may do so at once: the migrator takes an advisory lock. A database that a newer version has brought up to date is
    /// used as it is.
    ///
    /// # Errors
    /// Where the database cannot be reached, or its schema is not what this version's migrations make.
    pub async fn open(url: &str, sealer: Sealer, max_connections: u32) -> Result<Self, StoreError> {
        Self::open_over(url, Transport::Verified, sealer, max_connections).await
    }

    /// The same; `transport` says what the way to a database that is not on this machine is to be.
    ///
    /// # Errors
    /// As [`Store::open`]; [`StoreError::Insecure`] where the way is not what it is to be.
    pub async fn open_over(
        url: &str,
        transport: Transport,
        sealer: Sealer,
        max_connections: u32,
    ) -> Result<Self, StoreError> {
        let options: PgConnectOptions = url.parse().map_err(StoreError::Url)?;
        let options = transport.secured(options)?.application_name("roadstead-hub");
        let health = Health::start(options.clone());
        let newest = restore::Newest::default();
        let pool = |connections| {
            let (taking, giving) = (health.clone(), health.clone());
            let newest = newest.clone();
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(PATIENCE)
                // A ping before each use would be a second question for each that is asked.
                .test_before_acquire(false)
                .after_connect(move |connection, _| {
                    let newest = newest.clone();
                    Box::pin(async move { restore::check(connection, &newest).await.map(drop) })
                })
                .before_acquire(move |connection, metadata| {
                    let health = taking.clone();
                    Box::pin(async move {
                        if health.was_away_within(metadata.age) {
                            return Ok(false);
                        }
                        if metadata.idle_for <= TRUSTED {
                            return Ok(true);
                        }
                        // The other side may be gone without a word.
                        Ok(matches!(tokio::time::timeout(PING, connection.ping()).await, Ok(Ok(()))))
                    })
                })
                .after_release(move |_, _| {
                    // While the database is away a ping, which would follow, may never end.
                    let away = giving.outage().is_some();
                    Box::pin(async move { Ok(!away) })
                })
                .connect_lazy_with(options.clone())
        };
        // One of the first is the listener's for good.
        let (units, pool) = (pool(max_connections / 2), pool(max_connections - max_connections / 2));
        let explained = |error| transport.explained(&options, MigrateError::Execute(error));
        upgrade::wait_for_older_replicas(&pool, explained).await?;
        upgrade::migrate(&pool, |error| transport.explained(&options, error)).await?;
        restore::record(&pool, &newest).await?;
        key_state::settle(&pool, &sealer).await?;
        adopt::sign_what_is_older(&pool, &sealer).await?;
        let signals = Signals::start(pool.clone(), health.clone());
        let (sealer, feed) = (Arc::new(sealer), feed::Feed::new());
        let written = audit::Written::default();
        let statements = Statements::default();
        let (pool, units) =
            (counted::Connections::new(pool, &statements), counted::Connections::new(units, &statements));
        Ok(Self {
            pool,
            units,
            sealer,
            signals,
            feed,
            health,
            newest,
            written,
            artifacts: None,
            together: together::Questions::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
        })
    }

    /// Whether the database answers.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// What this process has asked of the database.
    #[must_use]
    pub fn statements(&self) -> &Statements {
        self.pool.statements()
    }

    /// How many migrations of this version the database does not have.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn lacks_migrations(&self) -> Result<i64, StoreError> {
        let versions: Vec<i64> = MIGRATOR.iter().map(|migration| migration.version).collect();
        sqlx::query_scalar(
            "SELECT count(*) FROM unnest($1::bigint[]) AS known (version)
             WHERE NOT EXISTS (SELECT FROM _sqlx_migrations applied WHERE applied.version = known.version AND applied.success)",
        )
        .bind(versions)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look up the schema's version"))
    }

    /// Host and port of the database at this URL; none for a socket of this machine.
    ///
    /// # Errors
    /// Where it is not a URL of a database.
    pub fn endpoint(url: &str) -> Result<Option<(String, u16)>, StoreError> {
        let options: PgConnectOptions = url.parse().map_err(StoreError::Url)?;
        let host = options.get_host();
        let tcp = options.get_socket().is_none() && !host.starts_with('/');
        Ok(tcp.then(|| (host.to_owned(), options.get_port())))
    }

    /// The signals that this database's replicas send each other.
    #[must_use]
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Begins a unit of work. Dropping it undoes it.
    ///
    /// # Errors
    /// Where the database cannot be reached.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        let inner = self.units.begin().await.map_err(StoreError::query("begin a transaction"))?;
        Ok(Tx {
            inner,
            sealer: Arc::clone(&self.sealer),
            signals: self.signals.clone(),
            wake: Vec::new(),
            enqueued: Vec::new(),
            news: Vec::new(),
            is_listened_to: true,
            changes: changes::Changes::default(),
            held_namespaces: BTreeSet::new(),
            turns: Arc::clone(&self.turns),
            newest: self.newest.clone(),
            written: self.written.clone(),
            noted: None,
        })
    }

    /// Closes the pool; waits for connections that are in use.
    pub async fn close(&self) {
        self.units.close().await;
        self.pool.close().await;
    }
}

/// A unit of work: it happens whole, at [`Tx::commit`], or not at all.
pub struct Tx {
    inner: Box<counted::Work>,
    sealer: Arc<Sealer>,
    signals: Signals,
    wake: Vec<Topic>,
    enqueued: Vec<schedule::Enqueued>,
    /// Events for those who listen to them.
    news: Vec<NewsItem>,
    /// False once it is known that no Alert listens to anything.
    is_listened_to: bool,
    changes: changes::Changes,
    /// Namespaces that this unit of work has locked against their end.
    held_namespaces: BTreeSet<String>,
    turns: Arc<Semaphore>,
    newest: restore::Newest,
    written: audit::Written,
    /// Where something was noted in the audit log, what is told of once it is there.
    noted: Option<Vec<WrittenEntry>>,
}

impl Tx {
    /// Sends `topic` to all replicas once this has been committed.
    pub fn wake(&mut self, topic: Topic) {
        if !self.wake.contains(&topic) {
            self.wake.push(topic);
        }
    }

    /// Makes the changes visible and wakes whoever waits for them.
    ///
    /// # Errors
    /// Where the database refuses; then nothing has happened.
    pub async fn commit(mut self) -> Result<Committed, StoreError> {
        self.write_news().await?;
        self.write_enqueued().await?;
        let events = self.gather_events().await?;
        // A transaction that waits for the counter's row in the database costs more than what it writes. So it waits here: one of this process
        // has the row, and the next one waits for it in the database, so that it is taken as soon as it is free. From here on a transaction waits
        // for no other row.
        let turns = Arc::clone(&self.turns);
        let turn = if events.is_empty() { None } else { turns.acquire().await.ok() };
        let committed = self.commit_events(events);
        tokio::pin!(committed);
        tokio::select! {
            committed = &mut committed => committed,
            // Its connection may be dead, which others' need not be.
            () = tokio::time::sleep(LONGEST_TURN) => {
                drop(turn);
                committed.await
            }
        }
    }

    async fn commit_events(mut self, events: changes::Events) -> Result<Committed, StoreError> {
        // Last, since it takes the counter that all writers share.
        let committed = self.write_events(events).await?;
        self.inner.commit().await.map_err(StoreError::query("commit"))?;
        self.newest.saw(committed.newest());
        if let Some(noted) = self.noted {
            self.written.are_there(noted);
        }
        for topic in self.wake {
            self.signals.send(topic);
        }
        Ok(committed)
    }
}
