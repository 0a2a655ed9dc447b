//! Use cases of the hub and who may do them: what the API, the link and the tasks call. None of those knows the store.

mod address;
mod clock;
pub mod clusters;
mod context;
pub mod delivery;
mod error;
pub mod hooks;
pub mod identity;
mod jobs;
mod log;
pub mod meters;
pub mod notify;
pub mod objects;
mod outbound;
mod publisher;
mod quarantine;
pub mod readiness;
pub mod remotes;
mod schedule;
mod schemas;
pub mod sources;
mod upkeep;
pub mod views;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use roadstead_budget::{MemoryBudget, PoolName};
use roadstead_hub_store::{Health, Signals, Store};
use roadstead_kubeconfig::Allowed;
use roadstead_model::ReplicaId;
use roadstead_oidc::Configuration;
use roadstead_outbound::{Guard, ListedHost, Purpose};

use clusters::pki::Pki;
use clusters::{Agents, Enrolments, ImageSignature, Management, Onboarding, Sessions};
use context::Context;
use delivery::{Builds, Delivery, SopsMac};
use hooks::Hooks;
use identity::tokens::Tokens;
use identity::{AccessRules, AuditLog, Authenticator, SignIn};
use meters::Meters;
use notify::Notifier;
use objects::Objects;
use quarantine::Quarantine;
use readiness::Readiness;
use remotes::Remotes;
use sources::{Clouds, Generators, Sources};
use views::{Metrics, Profiles, Views};

pub use address::{Address, NextPage};
pub use clock::{Clock, PutBack, SystemClock};
pub use error::HubError;
pub use jobs::{WORKER_ARGUMENT, be_a_worker};
pub use outbound::Outbound;
pub use roadstead_hub_plan::{ManagementPlan, ManagementStep, Pace, Tolerance};
pub use schedule::Schedule;
pub use upkeep::UPKEEP_PERIOD;
pub use workers::{Workers, workers, workers_of};

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
    /// What tokens of service accounts say to be from: new ones the first, and those of the others are taken, too. Where none is given it
    /// is the URL of the API's listener.
    pub account_issuers: Vec<String>,
    /// The issuers of tokens that are trusted besides the hub's own.
    pub authentication: Arc<Configuration>,
    /// Where people sign in to the dashboard, and for how long.
    pub sign_in: identity::SignInOptions,
    /// What users may have the hub connect to.
    pub outbound: Outbound,
    /// The hosts that kustomizations may name remote resources of.
    pub remote_bases: Vec<ListedHost>,
    /// The agent's image; without it the one of this version's name is installed, and no agent is told to run another.
    pub agent_image: Option<String>,
    /// Signatures of agents' images, which are passed on to agents.
    pub agent_signatures: Vec<ImageSignature>,
    /// How agents come to run another image.
    pub pace: Pace,
    /// Whether references across namespaces are off altogether, dependencies included.
    pub no_cross_namespace_refs: bool,
    /// Whether variables of `postBuild` that are not set and have no default are empty instead of an error.
    pub lenient_substitutions: bool,
    /// What happens to encrypted files whose MACs do not fit.
    pub sops_mac: SopsMac,
    /// Whether `spec.decryption.serviceAccountName`, and `spec.serviceAccountName` of sources, are allowed.
    pub object_level_workload_identity: bool,
    /// Identities of clouds for sources.
    pub clouds: sources::CloudOptions,
    /// Where Vaults take tokens of such accounts: the path of a login.
    pub decryption_vault_login: Option<String>,
    /// The key services that credentials of decryption Secrets may go to, besides the clouds' own.
    pub key_services: roadstead_kms::Allowed,
    /// What an agent sees to stand as it was applied is looked at by a reconciliation once in so long all the same.
    pub full_reconcile_interval: Duration,
    /// How much a reconciliation deletes without a person's confirmation, whatever a spec says; none: only what specs say.
    pub guard: Option<roadstead_model::Guard>,
    /// The cluster of Kustomizations that name none when they are made, in namespaces that have no default of their own.
    pub default_cluster: Option<String>,
    /// Names of Clusters that only some namespaces may give.
    pub reserved_clusters: Vec<clusters::ReservedName>,
    /// The service account of Kustomizations that name none, in their own namespace of the cluster. None: the agent itself.
    pub default_service_account: Option<String>,
    /// The worker processes that read what servers sent, unpack and build; without them nothing is fetched or built.
    pub workers: Option<Workers>,
    /// The process's memory, shared out.
    pub budget: Arc<MemoryBudget>,
    /// How long the audit log's entries are kept; none for ever.
    pub audit_retention: Option<Duration>,
    /// Which attempts of an applier are kept.
    pub kept_attempts: KeptAttempts,
    /// Which artifacts of a source are kept.
    pub kept_artifacts: KeptArtifacts,
    /// For how long it is tried to send an event that an Alert is for.
    pub give_up_notifications: Duration,
    /// After so long without an event of it, an object that failed by a cluster's Flux counts as failing no more.
    pub relayed_failure_timeout: Duration,
    /// Whether profiles of the process can be made.
    pub profiling: bool,
}

impl HubOptions {
    /// Checks that no trusted issuer has the URL that the hub's own tokens say to be from: which keys count would not be clear.
    ///
    /// # Errors
    /// Which one has.
    pub fn check_issuers(&self) -> Result<(), String> {
        match self.account_issuers().iter().find(|own| self.authentication.issuer(own).is_some()) {
            Some(own) => Err(format!(
                "{own} is an issuer of --authentication-config, and tokens of the hub's own service accounts say to be from there \
                 (--service-account-issuer): remove it from one of them"
            )),
            None => Ok(()),
        }
    }

    /// What tokens of service accounts may say to be from, and for.
    fn account_issuers(&self) -> Vec<String> {
        match &self.account_issuers {
            none if none.is_empty() => vec![self.api_url.clone()],
            given => given.clone(),
        }
    }
}

/// Which attempts of an applier are kept: the newest, and the newest that went well, in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptAttempts {
    /// How many.
    pub most: u16,
    /// For how long after they ended; none for ever.
    pub age: Option<Duration>,
}

/// Which artifacts of a source are kept, besides the one that its status names and those that appliers are pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptArtifacts {
    /// How many, the newest first.
    pub most: u16,
    /// For how long after they were used last.
    pub age: Duration,
}

impl Default for KeptArtifacts {
    fn default() -> Self {
        Self { most: 20, age: Duration::from_secs(24 * 3600) }
    }
}

impl Default for KeptAttempts {
    fn default() -> Self {
        Self { most: 20, age: None }
    }
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            api_url: String::new(),
            link_address: String::new(),
            allow_file_sources: false,
            kubeconfigs: Allowed::default(),
            account_issuers: Vec::new(),
            authentication: Arc::default(),
            sign_in: identity::SignInOptions::default(),
            outbound: Outbound::default(),
            remote_bases: Vec::new(),
            agent_image: None,
            agent_signatures: Vec::new(),
            pace: Pace {
                soak: Duration::from_secs(60),
                timeout: Duration::from_secs(300),
                tolerance: Tolerance::Percent(10),
            },
            no_cross_namespace_refs: false,
            lenient_substitutions: false,
            sops_mac: SopsMac::default(),
            object_level_workload_identity: false,
            clouds: sources::CloudOptions::default(),
            decryption_vault_login: None,
            key_services: roadstead_kms::Allowed::default(),
            full_reconcile_interval: Duration::from_secs(24 * 3600),
            guard: Some(roadstead_model::Guard::default()),
            default_cluster: None,
            default_service_account: None,
            reserved_clusters: Vec::new(),
            workers: None,
            budget: Arc::default(),
            audit_retention: Some(Duration::from_secs(90 * 24 * 3600)),
            kept_attempts: KeptAttempts::default(),
            kept_artifacts: KeptArtifacts::default(),
            give_up_notifications: Duration::from_secs(6 * 3600),
            relayed_failure_timeout: Duration::from_secs(24 * 3600),
            profiling: false,
        }
    }
}

/// The hub's use cases over one database, in parts. Each part has what it needs of those above it, and knows none below: the
/// order here is that of their folders. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    context: Context,
    pki: Arc<Pki>,
    /// What was done and refused.
    pub audit: Arc<AuditLog>,
    /// Tokens, and whom they stand for.
    pub identity: Arc<Authenticator>,
    /// Sessions of people in the dashboard.
    pub sign_in: Arc<SignIn>,
    /// Objects, as the API reads and writes them.
    pub objects: Arc<Objects>,
    /// How agents join.
    pub enrolments: Arc<Enrolments>,
    /// The sessions of agents.
    pub sessions: Arc<Sessions>,
    /// What agents are told to do with themselves.
    pub agents: Arc<Agents>,
    /// How clusters come on board by their kubeconfigs.
    pub onboarding: Arc<Onboarding>,
    /// How the clusters of management clusters are followed.
    pub management: Arc<Management>,
    /// Sources, and what is fetched of them.
    pub sources: Arc<Sources>,
    /// ArtifactGenerators, and what is made of them.
    pub generators: Arc<Generators>,
    /// Remote resources of kustomizations.
    pub remotes: Arc<Remotes>,
    /// Builds, made once and sent to agents.
    pub builds: Arc<Builds>,
    /// What brings a Kustomization's objects to its cluster.
    pub delivery: Arc<Delivery>,
    /// Receivers, and calls of them.
    pub hooks: Arc<Hooks>,
    /// Providers and Alerts, and what is sent of events.
    pub notify: Arc<Notifier>,
    /// The fleet views.
    pub views: Arc<Views>,
    /// What is due.
    pub schedule: Arc<Schedule>,
    /// What monitoring reads.
    pub metrics: Arc<Metrics>,
    /// Where this process spends its time and memory.
    pub profiles: Arc<Profiles>,
    /// Which parts of this process work.
    pub readiness: Arc<Readiness>,
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
        // Once it is known which keys this replica has: from then on no other is used without it.
        store.tend_keys().await?;
        store.keep_watches_within(options.budget.pool(PoolName::WatchCaches).clone());
        let hub = Self::of_parts(
            Context {
                store,
                clock,
                replica,
                options: Arc::new(options),
                meters: Arc::default(),
                app_tokens: roadstead_github_app::Tokens::default(),
            },
            Arc::new(pki),
        );
        hub.identity.tend_account_keys().await?;
        Ok(hub)
    }

    /// Each part is made of the context and of parts that are there already, so none can know one below.
    fn of_parts(context: Context, pki: Arc<Pki>) -> Self {
        let tokens = Arc::<Tokens>::default();
        let audit = Arc::new(AuditLog::new(&context));
        let identity = Arc::new(Authenticator::new(&context, &tokens));
        let sign_in = Arc::new(SignIn::new(&context, &identity, &audit));
        let access = Arc::new(AccessRules::new(&context));
        let objects = Arc::new(Objects::new(&context, &audit));
        let enrolments = Arc::new(Enrolments::new(&context, &pki, &tokens, &audit));
        let sessions = Arc::new(Sessions::new(&context));
        let agents = Arc::new(Agents::new(&context));
        let onboarding = Arc::new(Onboarding::new(&context, &access, &objects, &enrolments, &agents));
        let management = Arc::new(Management::new(&context, &objects, &onboarding));
        let quarantine = Arc::new(Quarantine::new(&context));
        let clouds = Arc::new(Clouds::new(&identity, &context.options));
        let sources = Arc::new(Sources::new(&context, &clouds, &access, &quarantine));
        let generators = Arc::new(Generators::new(&context, &access, &objects, &sources));
        let remotes = Arc::new(Remotes::new(&context, &sources));
        let builds = Arc::new(Builds::new(&context, &quarantine));
        let delivery =
            Arc::new(Delivery::new(&context, &identity, &access, &objects, &sessions, &builds, &remotes));
        let hooks = Arc::new(Hooks::new(&context, &access, &audit));
        let notify = Arc::new(Notifier::new(&context, &clouds, &access, &objects, &sessions));
        let views = Arc::new(Views::new(&context, &sessions, &builds));
        let schedule = Arc::new(Schedule::new(&context, &quarantine));
        let metrics = Arc::new(Metrics::new(&context));
        let profiles = Arc::new(Profiles::new(&context));
        let readiness = Arc::new(Readiness::new(&context));
        Self {
            context,
            pki,
            audit,
            identity,
            sign_in,
            objects,
            enrolments,
            sessions,
            agents,
            onboarding,
            management,
            sources,
            generators,
            remotes,
            builds,
            delivery,
            hooks,
            notify,
            views,
            schedule,
            metrics,
            profiles,
            readiness,
        }
    }

    /// The signals by which tasks, watches and links learn that a pass is worth while.
    #[must_use]
    pub fn signals(&self) -> &Signals {
        self.context.store.signals()
    }

    /// What time it is for this hub.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        self.context.clock.now()
    }

    /// What this process counts of its work.
    #[must_use]
    pub fn meters(&self) -> &Meters {
        &self.context.meters
    }

    /// Whether the database answers.
    #[must_use]
    pub fn database(&self) -> &Health {
        self.context.store.health()
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
        &self.context.options.budget
    }

    /// The hub's certificate authorities.
    #[must_use]
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The way out to addresses that users chose.
    #[must_use]
    pub fn way_out(&self, purpose: Purpose) -> Guard {
        self.context.options.outbound.guard(purpose)
    }

    /// Closes the database's connections.
    pub async fn close(&self) {
        self.context.store.close().await;
    }
}

/// Standard base64, as kubeconfigs and Secrets hold it.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}
