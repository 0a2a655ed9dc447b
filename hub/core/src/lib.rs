//! Use cases of the hub and who may do them: what the API, the link and the tasks call. None of those knows the store.

mod access;
mod account;
mod apply;
mod audit;
mod auth;
mod build;
mod children;
mod clock;
mod conditions;
mod credentials;
mod delivery;
mod enrol;
mod error;
mod events;
mod fetch;
mod fields;
mod fleet;
mod fleet_lists;
mod log;
mod management;
mod managers;
mod objects;
mod onboard;
mod outbound;
pub mod pki;
mod placing;
mod progress;
mod quarantine;
mod reads;
mod reconcile;
mod resources;
mod retire;
mod rollout;
mod selector;
mod session;
mod situation;
mod source;
mod source_notes;
mod tokens;
pub mod triggers;
mod upkeep;
mod views;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use roadstead_budget::{MemoryBudget, PoolName};
use roadstead_kubeconfig::Allowed;
use roadstead_model::ReplicaId;
use roadstead_places::Places;

use tokio::sync::Semaphore;

use audit::Refusals;
use build::{BuildPlaces, BuildsUnderWay, fair_places};
use fetch::KnownServers;
use pki::Pki;
use progress::Followed;
use tokens::Tokens;

pub use account::{AccountToken, account_user};
pub use audit::{AuditItem, AuditReport, REFUSALS_PERIOD, query_time};
pub use auth::{Access, Identity, MASTERS, Rules};
pub use clock::{Clock, SystemClock};
pub use credentials::{MadeToken, TokenItem, TokenOrder};
pub use delivery::BuildReader;
pub use enrol::{Enrolled, Enrolment, Invitation};
pub use error::HubError;
pub use fleet::{
    AttemptItem, ClusterItem, FleetChange, FleetPage, FleetWatch, InventoryItem, MAX_ITEMS, MAX_NAMES,
    NamespacedName, ReadyState,
};
pub use fleet_lists::{EventItem, KustomizationItem, ObjectName};
pub use management::{MANAGEMENT_READ, ManagementJob, ManagementOutcome, ManagementWatch, StepEvidence};
pub use objects::{FieldValidation, Part};
pub use onboard::{Failed, OnboardingJob, OnboardingPlan};
pub use outbound::Outbound;
pub use progress::Progress;
pub use reads::{AtVersion, ListEnd, ListOptions, NextPage, ObjectEvent, ObjectList, ObjectWatch, WatchFrom};
pub use resources::{Address, DeleteOptions, Deleted, NAMESPACES, WriteOptions, Written};
pub use roadstead_hub_plan::{ManagementPlan, ManagementStep, Pace, Tolerance};
pub use roadstead_hub_store::{
    AgentOrder, AttemptFilter, AttemptInputs, AuditEntry, AuditFilter, Claim, Committed, Due, EventFilter,
    EventType, Health, HealthCount, InventoryFilter, InventoryKey, Key, KustomizationFilter, OrderKind,
    OrderState, Queue, Sealer, SecretData, Signals, Store, StoreError, Stored, TokenText, Topic, Transport,
    Tx,
};
pub use rollout::{ImageSignature, UpgradeReport};
pub use selector::Selector;
pub use session::{DispatchFailure, DispatchResult, Greeting, NOT_CURRENT, Session};
pub use source::{FetchJob, FetchPlan};
pub use tokens::LookUp;
pub use upkeep::UPKEEP_PERIOD;
pub use views::{ReconciliationView, Reconciliations, ReconciliationsOptions};
pub use workers::{WORKER_ARGUMENT, Workers, be_a_worker, workers, workers_of};

/// How the operator set this hub up.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// The URL of the API's listener, as agents reach it.
    pub api_url: String,
    /// `host:port` of the link's listener, as agents reach it.
    pub link_address: String,
    /// Whether sources may be `file://` URLs: for development only, since they read the hub's own disk.
    pub allow_file_sources: bool,
    /// What kubeconfigs of clusters may do.
    pub kubeconfigs: Allowed,
    /// What users may have the hub connect to.
    pub outbound: Outbound,
    /// The agent's image; without it the one of this version's name is installed, and no agent is told to run another.
    pub agent_image: Option<String>,
    /// Signatures of agents' images, which are passed on to agents.
    pub agent_signatures: Vec<ImageSignature>,
    /// How agents come to run another image.
    pub pace: Pace,
    /// Whether references across namespaces are off altogether, dependencies included.
    pub no_cross_namespace_refs: bool,
    /// The worker processes that read what servers sent, unpack and build; without them nothing is fetched or built.
    pub workers: Option<Workers>,
    /// The process's memory, shared out.
    pub budget: Arc<MemoryBudget>,
    /// How long the audit log's entries are kept; none for ever.
    pub audit_retention: Option<Duration>,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            api_url: String::new(),
            link_address: String::new(),
            allow_file_sources: false,
            kubeconfigs: Allowed::default(),
            outbound: Outbound::default(),
            agent_image: None,
            agent_signatures: Vec::new(),
            pace: Pace {
                soak: Duration::from_secs(60),
                timeout: Duration::from_secs(300),
                tolerance: Tolerance::Percent(10),
            },
            no_cross_namespace_refs: false,
            workers: None,
            budget: Arc::default(),
            audit_retention: Some(Duration::from_secs(90 * 24 * 3600)),
        }
    }
}

/// The hub's use cases over one database. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    store: Store,
    clock: Arc<dyn Clock>,
    replica: ReplicaId,
    pki: Arc<Pki>,
    options: Arc<HubOptions>,
    under_way: Arc<BuildsUnderWay>,
    build_places: Arc<BuildPlaces>,
    suspects: Arc<Semaphore>,
    /// For the workers that read what servers sent.
    read_places: Places,
    known_servers: Arc<KnownServers>,
    followed: Arc<Followed>,
    tokens: Arc<Tokens>,
    clock_is_off: Arc<AtomicBool>,
    refusals: Arc<Refusals>,
    /// The newest batch of the audit log that this process has seen.
    newest_batch: Arc<AtomicI64>,
}

impl Hub {
    /// Over this database, with this clock; makes the certificate authorities where this is the first replica.
    ///
    /// # Errors
    /// Where the database refuses, or the key file is not the one that the database was made with.
    pub async fn open(store: Store, clock: Arc<dyn Clock>, options: HubOptions) -> Result<Self, HubError> {
        let pki = Pki::load(&store, clock.now()).await?;
        let replica = ReplicaId::random();
        store.replica_seen(replica, store.now().await?).await?;
        let workers = options.workers.as_ref();
        let builders = workers.map_or(1, |workers| workers.builders.settings().workers);
        let readers = workers.map_or(1, |workers| workers.readers.settings().workers);
        store.keep_watches_within(options.budget.pool(PoolName::WatchCaches).clone());
        let followed = Followed::new(options.budget.pool(PoolName::Progress));
        let known_servers = KnownServers::new(&options.budget);
        Ok(Self {
            store,
            clock,
            replica,
            pki: Arc::new(pki),
            options: Arc::new(options),
            under_way: Arc::default(),
            build_places: Arc::new(BuildPlaces::new(builders)),
            suspects: Arc::new(Semaphore::new(1)),
            read_places: fair_places(readers),
            known_servers: Arc::new(known_servers),
            followed: Arc::new(followed),
            tokens: Arc::default(),
            clock_is_off: Arc::default(),
            refusals: Arc::default(),
            newest_batch: Arc::default(),
        })
    }

    /// The signals by which tasks, watches and links learn that a pass is worth while.
    #[must_use]
    pub fn signals(&self) -> &Signals {
        self.store.signals()
    }

    /// What time it is for this hub.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// Whether the database answers.
    #[must_use]
    pub fn database(&self) -> &Health {
        self.store.health()
    }

    /// Does something of a background task's own, which is done again later: nothing is begun while the database is away, and
    /// what waits for it when it goes is given up. A failure is logged, and so told that it need not be by each task.
    pub async fn attempt<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, HubError>>,
    ) -> Option<T> {
        self.database().back().await;
        let done = tokio::select! {
            done = work => done,
            _ = self.database().lost() => return None,
        };
        match done {
            Ok(done) => Some(done),
            Err(HubError::Store(error)) => {
                self.database().note(what, &error).await;
                None
            }
            Err(error) => {
                tracing::error!(error = roadstead_model::chain(&error), "{what}");
                None
            }
        }
    }

    /// The process's memory, shared out.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.options.budget
    }

    /// The hub's certificate authorities.
    #[must_use]
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Closes the database's connections.
    pub async fn close(&self) {
        self.store.close().await;
    }
}

/// Standard base64, as kubeconfigs and Secrets hold it.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}
