//! The agent as a whole: its cluster, its identity, its Lease, its link, and their order at start and end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Uri};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use roadstead_agent_policy::Signature;
use roadstead_apply::{Engine, HashKey, Options};
use roadstead_budget::{detect, show_size};
use roadstead_model::KubeSystemUid;
use roadstead_outbound::Rule;
use roadstead_proto::AgentState;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequestLayer;

use crate::backoff::Backoff;
use crate::cluster::Guarded;
use crate::enrol::{EnrolError, enrol};
use crate::home::{Home, HomeError, JOIN_SECRET, Kept};
use crate::identity::{Identity, IdentityError, PrivateKey};
use crate::join::{Join, JoinError};
use crate::keep::Keep;
use crate::keys::KeyServices;
use crate::lease::{Lease, RENEW_EVERY, Standing};
use crate::link::{Facts, Keeper, Link};
use crate::memory::BuildMemory;
use crate::metrics::{self, CountRequests, Meters};
use crate::outbox::{Outbox, Relayed};
use crate::proxy::{Proxy, UnusableProxy};
use crate::ready::Readiness;
use crate::relay::{self, TokenError, TokenFile};
use crate::removal;
use crate::runner::Runner;
use crate::upgrade::{Report, Upgrades};
use crate::warden::Warden;

/// How long an agent that goes down waits for what is under way.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a join Secret that is not there yet is looked for, and an agent that stands by looks at the Lease.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often keeping a renewed certificate is tried.
const KEEP_TRIES: u32 = 8;

/// What an agent is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The join manifest; without it, the join Secret in the agent's namespace.
    pub join: Option<PathBuf>,
    /// How to reach the cluster; without it, as a pod in it.
    pub kubeconfig: Option<PathBuf>,
    /// The agent's namespace.
    pub namespace: String,
    /// The file that says that the agent is ready.
    pub ready_file: Option<PathBuf>,
    /// Whether no policy is read: the agent then does what its hub says.
    pub no_policy: bool,
    /// Networks, besides the public internet, in which key services may be asked.
    pub networks: Vec<Rule>,
    /// Where the agent's metrics are served; without it, nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where events from Flux's controllers are accepted, and the file with the token for that; without it, nowhere.
    pub events: Option<(SocketAddr, PathBuf)>,
    /// Bytes of memory that the process may use; without it, what its surroundings say.
    pub memory: Option<u64>,
}

/// Why the agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The kubeconfig is not usable.
    #[error("read the kubeconfig {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },
    /// Not in a pod, and no kubeconfig.
    #[error("not running in a pod with a service account ({0}): give a kubeconfig with --kubeconfig")]
    NotInCluster(Box<kube::config::InClusterError>),
    /// The way to the apiserver leads through a proxy that is not spoken to.
    #[error(transparent)]
    Proxy(#[from] UnusableProxy),
    /// No client can be made.
    #[error("create a client for the cluster: {0}")]
    Client(Box<kube::Error>),
    /// The apiserver refused something that the agent cannot do without.
    #[error("{}", roadstead_model::chain(.0))]
    Home(#[from] HomeError),
    /// The join manifest is not usable.
    #[error("{}", roadstead_model::chain(.0))]
    Join(#[from] JoinError),
    /// The hub did not take the agent in.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// A port is not to be had.
    #[error("cannot listen on {address} ({flag}): {source}")]
    Listen {
        /// What it was given by.
        flag: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The token for the events port cannot be used.
    #[error("{}", roadstead_model::chain(.0))]
    EventsToken(#[from] TokenError),
    /// No key could be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The agent's User-Agent, by which it is found in an apiserver's audit log.
const AGENT: &str = concat!("roadstead-agent/", env!("CARGO_PKG_VERSION"));

/// The request without the `?` that kube's client ends a path with where it asks for nothing more: it would stand in audit
/// logs, and proxies that compare paths take it for another one.
fn without_empty_query(mut request: Request<Body>) -> Request<Body> {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    if let Some(path) = target.strip_suffix('?') {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = path.parse().ok();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<TcpListener, AgentError> {
    TcpListener::bind(address).await.map_err(|source| AgentError::Listen { flag, address, source })
}

/// Runs an agent until `stop`.
///
/// # Errors
/// [`AgentError`], where trying again would not help.
pub async fn run(settings: Settings, stop: CancellationToken) -> Result<(), AgentError> {
    let meters = Meters::default();
    if let Some(address) = settings.metrics {
        let listener = listen("--metrics-listen", address).await?;
        tracing::info!(address = %listener.local_addr().unwrap_or(address), "metrics are served there");
        tokio::spawn(metrics::serve(meters.clone(), listener, stop.child_token()));
    }
    let relayed = Arc::new(Relayed::default());
    if let Some((address, token)) = &settings.events {
        let token = TokenFile(token.clone());
        token.read().await?;
        let listener = listen("--events-listen", *address).await?;
        tracing::info!(address = %listener.local_addr().unwrap_or(*address), "events from Flux are accepted there");
        tokio::spawn(relay::serve(Arc::clone(&relayed), token, meters.clone(), listener, stop.child_token()));
    }
    let mut config = cluster_config(&settings).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    // Whoever asks retries by rules of its own.
    config.default_retry = false;
    let counted = CountRequests(meters.clone());
    let client = |config: kube::Config| {
        ClientBuilder::try_from(config).map_err(|error: kube::Error| AgentError::Client(error.into()))
    };
    let engine = Engine::new(client(config.clone())?.with_layer(&counted).build(), Options::default());
    let layers = (MapRequestLayer::new(without_empty_query), counted);
    let client = client(config)?.with_layer(&layers).build();
    let home = Home::new(client, settings.namespace.clone());
    let start = async {
        patiently(|| home.ensure_namespace()).await?;
        let kube_system = patiently(|| home.kube_system_uid()).await?;
        let kubernetes_version = patiently(|| home.kubernetes_version()).await?;
        let facts = Facts { kube_system, kubernetes_version };
        let identity = first_identity(&home, &settings, kube_system).await?;
        Ok::<_, AgentError>((facts, identity, Upgrades::find(&home).await))
    };
    let (facts, identity, upgrades) = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        started = start => started?,
    };
    let warden = Arc::new(Warden::new(home.clone(), settings.no_policy));
    tell_policy(&warden).await;
    let lease = Arc::new(Lease::new(&home));
    if upgrades.in_custody() {
        // The one that takes this one's place may be there already.
        lease.respect().await;
    }
    tokio::spawn(Arc::clone(&upgrades).watch(Arc::clone(&lease), stop.child_token()));
    let readiness = Arc::new(Readiness::default());
    let telling = settings.ready_file.clone().map(|file| tokio::spawn(Arc::clone(&readiness).keep(file)));
    let (telling_apiserver, apiserver) = watch::channel(None);
    let asking = tokio::spawn(crate::apiserver::watch(home.clone(), telling_apiserver));
    // The key outlives this process, as the identity does.
    let hashes = HashKey::of_secret(identity.key.expose().as_bytes());
    let engine = engine.hashing_with(&hashes);
    let identity = Arc::new(Mutex::new(Arc::new(identity)));
    while !stop.is_cancelled() {
        if !hold(&lease, &upgrades, &stop).await {
            break;
        }
        let term = stop.child_token();
        let renewing = tokio::spawn(renew(lease.clone(), Arc::clone(&upgrades), term.clone()));
        let guarded = Guarded::new(engine.clone(), Arc::clone(&warden));
        let keys = KeyServices::new(settings.networks.clone());
        let keep = Arc::new(Keep::new(home.clone(), &hashes));
        let (memory, origin) = detect::memory(settings.memory);
        tracing::info!(total = show_size(memory), %origin, "memory budget");
        let memory = BuildMemory::of(memory);
        let runner = Runner::with(
            guarded,
            Arc::new(Outbox::counting(meters.clone(), Arc::clone(&relayed))),
            keys,
            Arc::clone(&keep),
            memory,
        );
        let looked_at = runner.clone();
        meters.look_by(Some(Box::new(move || looked_at.load())));
        let (telling_state, state) = watch::channel(AgentState::default());
        let looking = tokio::spawn(crate::state::watch(home.clone(), runner.clone(), telling_state));
        let keeper = Arc::new(Holder {
            home: home.clone(),
            lease: lease.clone(),
            settings: settings.clone(),
            kube_system: facts.kube_system,
            identity: identity.clone(),
            upgrades: Arc::clone(&upgrades),
            warden: Arc::clone(&warden),
            readiness: Arc::clone(&readiness),
            meters: meters.clone(),
            apiserver: apiserver.clone(),
            state,
            term: term.clone(),
        });
        let tending = tokio::spawn({
            let runner = runner.clone();
            async move { runner.tend().await }
        });
        let keeping = tokio::spawn(go_on(runner.clone(), Arc::clone(&keep)));
        let link = Link { runner, facts: facts.clone() };
        link.keep(&keeper, &term).await;
        meters.look_by(None);
        tending.abort();
        looking.abort();
        link.runner.stop(PATIENCE).await;
        keeping.abort();
        let kept = async { tokio::join!(keep.finish(), keep.keep_corrections_now(link.runner.outbox())) };
        if tokio::time::timeout(PATIENCE, kept).await.is_err() {
            tracing::warn!("what was applied last could not be kept in the cluster");
        }
        renewing.abort();
    }
    asking.abort();
    if let Some(telling) = telling {
        telling.abort();
    }
    let released = tokio::time::timeout(PATIENCE, lease.release()).await;
    if !matches!(released, Ok(Ok(()))) {
        tracing::warn!("the Lease could not be released; it expires by itself");
    }
    tracing::info!("the agent has stopped");
    Ok(())
}

/// Goes on with what was kept by the agent before this one, and keeps what is applied from now on.
async fn go_on(runner: Runner<Guarded>, keep: Arc<Keep>) {
    let records = keep.read().await;
    keep.resume_corrections(runner.outbox());
    runner.resume(records);
    tokio::join!(keep.write(), runner.go_on_without_hub(), keep.keep_corrections(runner.outbox()));
}

/// Says at start where the policy stands; a malformed one is said again by whatever it refuses.
async fn tell_policy(warden: &Warden) {
    match warden.policy().await {
        Ok(policy) if policy.is_open() => {
            tracing::info!(
                "the agent's policy is `open`: it does what its hub says, except to its own namespace"
            );
        }
        Ok(_) => {
            tracing::info!(config_map = roadstead_agent_policy::CONFIG_MAP, "the agent enforces a policy");
        }
        Err(why) => tracing::error!(why, "the agent refuses everything"),
    }
}

async fn cluster_config(settings: &Settings) -> Result<kube::Config, AgentError> {
    let Some(path) = &settings.kubeconfig else {
        return kube::Config::incluster().map_err(|error| AgentError::NotInCluster(error.into()));
    };
    let bad = |source| AgentError::Kubeconfig { path: path.clone(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(bad)?;
    let proxied = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let proxied = proxied.filter_map(|cluster| cluster.proxy_url.as_ref()).any(|url| !url.is_empty());
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(bad)?;
    // The library takes HTTPS_PROXY for any apiserver, also for one that NO_PROXY names.
    if !proxied && Proxy::to(&config.cluster_url)?.is_none() {
        config.proxy_url = None;
    }
    Ok(config)
}

/// Tries again while the apiserver is away.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, HomeError>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T, HomeError> {
    let mut backoff = Backoff::default();
    loop {
        match ask().await {
            Err(error) if !error.is_refusal() => {
                let wait = backoff.draw();
                tracing::warn!(error = roadstead_model::chain(&error), retry_in = ?wait, "the apiserver is not available");
                tokio::time::sleep(wait).await;
            }
            answer => return answer,
        }
    }
}

/// The identity that was kept or, for a new agent, one from the hub.
async fn first_identity(
    home: &Home,
    settings: &Settings,
    kube_system: KubeSystemUid,
) -> Result<Identity, AgentError> {
    let key = match patiently(|| home.kept()).await? {
        Kept::Identity(identity) => {
            tracing::info!(cluster = identity.cluster_name, not_after = %identity.validity.not_after, "identity found");
            return Ok(*identity);
        }
        Kept::Key(key) => key,
        Kept::Nothing => {
            let key = PrivateKey::generate()?;
            patiently(|| home.keep_key(&key)).await?;
            key
        }
    };
    let mut is_told = false;
    let join = loop {
        if let Some(join) = find_join(home, settings).await? {
            break join;
        }
        if !is_told {
            let namespace = home.namespace();
            tracing::warn!(
                "Secret {namespace}/{JOIN_SECRET} not found: apply the join manifest from the hub"
            );
            is_told = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    let identity = enrol_patiently(&join, key, kube_system).await?;
    patiently(|| home.keep_identity(&identity)).await?;
    Ok(identity)
}

async fn find_join(home: &Home, settings: &Settings) -> Result<Option<Join>, AgentError> {
    match &settings.join {
        Some(path) => Ok(Some(Join::from_file(path)?)),
        None => Ok(patiently(|| home.join()).await?),
    }
}

async fn enrol_patiently(
    join: &Join,
    key: PrivateKey,
    kube_system: KubeSystemUid,
) -> Result<Identity, EnrolError> {
    let mut backoff = Backoff::default();
    loop {
        match enrol(join, key.clone(), kube_system).await {
            Err(error) if error.is_passing() => {
                let wait = backoff.draw();
                tracing::warn!(%error, retry_in = ?wait, "not enrolled yet");
                tokio::time::sleep(wait).await;
            }
            Ok(identity) => {
                tracing::info!(
                    cluster = identity.cluster_name, uid = %identity.cluster_uid,
                    not_after = %identity.validity.not_after, "enrolled"
                );
                return Ok(identity);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits until this process holds the Lease; false where the agent is to end before.
async fn hold(lease: &Lease, upgrades: &Upgrades, stop: &CancellationToken) -> bool {
    let mut is_told = false;
    loop {
        match lease.look().await {
            Ok(Standing::Holding) => return true,
            Ok(Standing::StandingBy { holder }) if upgrades.is_deserted() => {
                tracing::warn!(holder, "the new agent has no session: continuing without the Lease");
                return true;
            }
            Ok(Standing::StandingBy { holder }) => {
                if !is_told {
                    tracing::info!(holder, "another agent is active in this cluster: standing by");
                    is_told = true;
                }
            }
            Err(error) => {
                // An overlap is harmless; a cluster without an agent is not.
                tracing::warn!(
                    error = roadstead_model::chain(&error),
                    "could not read the Lease: continuing without it"
                );
                return true;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Renews the Lease, and ends the term when another process took it; but for the one that an upgrade brought: that is to
/// show first that it has a session, and then the hub ends this one's.
async fn renew(lease: Arc<Lease>, upgrades: Arc<Upgrades>, term: CancellationToken) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        match lease.look().await {
            Ok(Standing::Holding) => {}
            Ok(Standing::StandingBy { .. }) if upgrades.in_custody() => {}
            Ok(Standing::StandingBy { holder }) => {
                tracing::warn!(holder, "another agent took over");
                term.cancel();
                return;
            }
            Err(error) => tracing::warn!(error = roadstead_model::chain(&error), "could not renew the Lease"),
        }
    }
}

/// Keeps the identity in the cluster, and heeds the Lease.
struct Holder {
    home: Home,
    lease: Arc<Lease>,
    settings: Settings,
    kube_system: KubeSystemUid,
    identity: Arc<Mutex<Arc<Identity>>>,
    upgrades: Arc<Upgrades>,
    warden: Arc<Warden>,
    readiness: Arc<Readiness>,
    meters: Meters,
    /// Why the apiserver does not answer, while that is so.
    apiserver: watch::Receiver<Option<String>>,
    /// What the agent does not do.
    state: watch::Receiver<AgentState>,
    term: CancellationToken,
}

impl Holder {
    fn set(&self, identity: Identity) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(identity);
    }
}

impl Holder {
    /// The join manifest, where it is another than the one that this identity came by. An apiserver that is away for a
    /// moment does not keep the agent from its hub.
    async fn another_join(&self) -> Result<Option<Join>, AgentError> {
        let join = match &self.settings.join {
            Some(path) => Some(Join::from_file(path)?),
            None => match tokio::time::timeout(PATIENCE, self.home.join()).await {
                Ok(join) => join?,
                Err(_) => None,
            },
        };
        let known = self.identity().token;
        Ok(join.filter(|join| join.token.digest() != known))
    }

    /// One try: the loop that calls comes back, with its own waits.
    async fn enrol_again(&self, join: &Join) {
        let key = self.identity().key.clone();
        match enrol(join, key, self.kube_system).await {
            Ok(identity) => {
                tracing::info!(cluster = identity.cluster_name, hub = join.hub, "enrolled again");
                self.renewed(identity).await;
            }
            Err(error) => tracing::error!(%error, "could not enrol again"),
        }
    }
}

impl Keeper for Holder {
    fn identity(&self) -> Arc<Identity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn may_connect(&self) -> bool {
        self.meters.connects();
        match self.lease.look().await {
            Ok(Standing::Holding) => true,
            Ok(Standing::StandingBy { .. }) if self.upgrades.is_deserted() => true,
            Ok(Standing::StandingBy { holder }) => {
                tracing::warn!(holder, "another agent took over");
                self.term.cancel();
                false
            }
            Err(error) => {
                tracing::warn!(
                    error = roadstead_model::chain(&error),
                    "could not read the Lease: continuing without it"
                );
                true
            }
        }
    }

    async fn renewed(&self, identity: Identity) {
        self.set(identity.clone());
        let mut backoff = Backoff::default();
        for _ in 0..KEEP_TRIES {
            match self.home.keep_identity(&identity).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(
                        error = roadstead_model::chain(&error),
                        "the renewed certificate could not be stored yet"
                    );
                }
            }
            tokio::time::sleep(backoff.draw()).await;
        }
    }

    fn connected(&self, is_connected: bool) {
        self.readiness.set(is_connected);
        self.meters.connected(is_connected);
    }

    fn image(&self) -> String {
        self.upgrades.image().unwrap_or_default().to_owned()
    }

    fn apiserver(&self) -> watch::Receiver<Option<String>> {
        self.apiserver.clone()
    }

    fn state(&self) -> watch::Receiver<AgentState> {
        self.state.clone()
    }

    fn upgrade_reports(&self) -> watch::Receiver<Option<Report>> {
        self.upgrades.reports()
    }

    async fn upgrade(&self, image: String, timeout: Duration, signatures: Vec<Signature>) {
        self.upgrades.begin(&image, timeout, &signatures, &self.warden).await;
    }

    async fn remove(&self) -> Result<(), String> {
        tracing::info!("the hub asked this agent to remove itself");
        let removed = match self.warden.check_removal().await {
            Ok(()) => removal::remove(&self.home).await.map_err(|error| roadstead_model::chain(&error)),
            Err(why) => Err(why),
        };
        if let Err(why) = &removed {
            tracing::error!(why, "this agent cannot remove itself");
        }
        removed
    }

    async fn refused(&self) {
        match self.another_join().await {
            Ok(Some(join)) => self.enrol_again(&join).await,
            Ok(None) => tracing::error!(
                cluster = self.identity().cluster_name,
                "the hub rejected this agent's certificate: apply a new join manifest from the hub"
            ),
            Err(error) => tracing::warn!(%error, "no join manifest to enrol with again"),
        }
    }

    async fn unreachable(&self) {
        // The hub may have another address, or be another hub. Where nobody has said so, it is waited for.
        if let Ok(Some(join)) = self.another_join().await {
            self.enrol_again(&join).await;
        }
    }
}
