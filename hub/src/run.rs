//! The hub's life: database, listeners, tasks, drain.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use roadstead_budget::MemoryBudget;
use roadstead_hub_api::ApiOptions;
use roadstead_hub_core::identity::ADMIN_LIFE;
use roadstead_hub_core::{Hub, HubOptions, SystemClock, Workers, workers};
use roadstead_hub_store::{Sealer, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::args::Args;
use crate::dev::DevState;
use crate::keyfile::KeyFile;
use crate::kubeconfig::Token;
use crate::network::Own;
use crate::unwrapping::Unwrapping;
use crate::{authentication, database, dev, keyfile, kubeconfig, limits};

/// So long may requests, sessions and passes take to end after SIGTERM.
const DRAIN: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A kubeconfig of the hub's own gets a new token once the one in it lasts no longer than this.
const RENEWED: Duration = Duration::from_secs(12 * 3600);
/// Nor is one kept in it that lasts longer than those which are made now: an older version made it.
const TOO_LONG: Duration = ADMIN_LIFE.saturating_add(Duration::from_secs(3600));
/// How often it is looked whether it does.
const RENEWAL: Duration = Duration::from_secs(3600);

/// Runs until SIGTERM or SIGINT.
pub(crate) async fn run(args: Args) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    if args.print_admin_kubeconfig {
        return print_admin_kubeconfig(&args).await;
    }
    let url = database::url(&args.database)?;
    match (args.dev, &url) {
        (true, Some(_)) => {
            bail!("--dev brings its own database: remove --database-url or --dev")
        }
        (false, None) => bail!(
            "no database: give --database-url postgres://… or --database-url-file FILE, or start with --dev to have a \
             private Postgres"
        ),
        (true, None) => check_dev_listeners(&args)?,
        (false, Some(_)) => {}
    }
    // Before all that takes long: a port that is taken is told at once.
    let listeners = Listeners::open(&args).await?;
    let dev = if args.dev { Some(dev::start(args.state_dir.clone()).await?) } else { None };
    let url = match (&dev, url) {
        (Some(dev), _) => Zeroizing::new(dev.url.clone()),
        (None, url) => url.unwrap_or_default(),
    };
    let served = serve(&args, listeners, &url, dev.as_ref(), async {
        let given_up = async {
            match &dev {
                Some(dev) => dev.given_up().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => Ok("SIGTERM"),
            _ = interrupt.recv() => Ok("SIGINT"),
            error = given_up => Err(error),
        }
    })
    .await;
    let stopped = match dev {
        Some(dev) => dev.stop().await,
        None => Ok(()),
    };
    served.and(stopped)
}

/// What --dev allows is for one machine.
fn check_dev_listeners(args: &Args) -> Result<()> {
    let hooks = args.hook_listen.map(|address| ("--hook-listen", address));
    let all = [("--listen", args.listen), ("--link-listen", args.link_listen)].into_iter().chain(hooks);
    for (flag, address) in all {
        if !address.ip().is_loopback() && !args.allow_dev_listen_anywhere {
            bail!(
                "{flag} {address}: a hub started with --dev lets sources read this machine's files, so it listens on \
                 loopback addresses only; to make it listen there anyway, add --allow-dev-listen-anywhere"
            );
        }
    }
    Ok(())
}

/// Where the hub is reached.
struct Listeners {
    api: TcpListener,
    link: TcpListener,
    /// Where Receivers are called, if not where the API is.
    hooks: Option<TcpListener>,
}

impl Listeners {
    async fn open(args: &Args) -> Result<Self> {
        let open = async |flag, address| {
            TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} ({flag})"))
        };
        Ok(Self {
            api: open("--listen", args.listen).await?,
            link: open("--link-listen", args.link_listen).await?,
            hooks: match args.hook_listen {
                Some(address) => Some(open("--hook-listen", address).await?),
                None => None,
            },
        })
    }

    /// Where they listen.
    fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let all = [Some(&self.api), Some(&self.link), self.hooks.as_ref()];
        all.into_iter().flatten().map(|listener| Ok(listener.local_addr()?)).collect()
    }
}

async fn serve(
    args: &Args,
    listeners: Listeners,
    url: &str,
    dev: Option<&DevState>,
    ended: impl Future<Output = Result<&'static str>>,
) -> Result<()> {
    let path = key_file(args, dev)?;
    if dev.is_some() {
        keyfile::make_where_missing(&path)?;
    }
    // A key service may take its time.
    let mut ended = std::pin::pin!(ended);
    let (key_file, keys) = tokio::select! {
        opened = KeyFile::open(&path, unwrapping(args)) => opened?,
        ended = &mut ended => return ended.map(|signal| tracing::info!(signal, "stopped before the hub had its keys")),
    };
    let (budget, files) = (
        limits::share_memory(&args.limits, if args.profiling { roadstead_profile::MEMORY } else { 0 }),
        limits::share_files(),
    );
    let sealer = Sealer::with_keys(&keys).context("use the key file's keys")?;
    drop(keys);
    let store = Store::open_over(url, database::transport(&args.database), sealer, args.database_connections)
        .await
        .context("open the database")?;
    let store = args.artifacts.open(store, &args.network.allow).await?;
    if args.restored {
        store.begin_epoch().await.context("begin a new epoch of the restored database")?;
        tracing::info!("the database counts as restored: watches and pages from before are refused");
    }
    let addresses = listeners.addresses()?;
    let Listeners { api, link, hooks } = listeners;
    let (api_address, link_address) = (api.local_addr()?, link.local_addr()?);
    let host = args.public_host.clone().unwrap_or_else(|| api_address.ip().to_string());
    let own = Own { listeners: addresses.clone(), public_host: &host, database_url: url };
    let outbound = args.network.outbound(&own, args.dev)?;
    let authentication = authentication::read(args.authentication_config.as_deref(), &outbound)?;
    let options = HubOptions {
        api_url: format!("https://{}", address(&host, api_address.port())),
        link_address: address(&host, link_address.port()),
        allow_file_sources: args.dev,
        kubeconfigs: args.clusters.allowed(),
        account_issuers: args.service_account_issuer.clone(),
        sign_in: authentication::sign_in(args, &authentication)?,
        authentication,
        outbound,
        remote_bases: args.network.remote_bases(),
        agent_image: args.clusters.agent_image.clone(),
        agent_signatures: args.clusters.signatures()?,
        pace: args.clusters.pace(),
        workers: Some(start_workers(&budget).await?),
        budget,
        no_cross_namespace_refs: args.no_cross_namespace_refs,
        lenient_substitutions: args.lenient_substitutions,
        sops_mac: args.sops_mac.into(),
        object_level_workload_identity: args.object_level_workload_identity,
        clouds: args.clouds.options()?,
        decryption_vault_login: args.decryption_vault_login.clone(),
        key_services: args.network.allow.allowed_key_services()?,
        full_reconcile_interval: args.full_reconcile_interval,
        guard: args.guard(),
        default_cluster: args.default_cluster.clone(),
        profiling: args.profiling,
        default_service_account: args.default_service_account.clone(),
        reserved_clusters: args.reserve_cluster.clone(),
        kept_attempts: args.kept_attempts(),
        kept_artifacts: args.kept_artifacts(),
        give_up_notifications: args.give_up_notifications,
        relayed_failure_timeout: args.relayed_failure_timeout,
        audit_retention: (args.audit_retention > 0).then(|| DAY * args.audit_retention),
    };
    options.check_issuers().map_err(anyhow::Error::msg)?;
    args.clusters.warn_of_tags();
    let api_url = options.api_url.clone();
    let hub = Hub::open(store.clone(), Arc::new(SystemClock), options).await.context("open the hub")?;
    if let Some(sink) = args.audit_sink() {
        hub.audit.stream_to(&sink).context("open the stream of the audit log (--audit-log-path)")?;
    }
    let replica = hub.sessions.replica().to_string();
    let audit = args.otlp.start_audit(&replica, &hub.audit).await?;
    hub.objects.bootstrap().await.context("make the first objects")?;
    let events = args.events_addr.as_deref().filter(|address| !address.is_empty());
    hub.notify.forward(events).await.context("keep the Provider and the Alert of --events-addr")?;
    hub.identity.end_endless_tokens().await.context("give tokens without an end one")?;
    let hosts: Vec<String> =
        [host].into_iter().chain(addresses.iter().map(|address| address.ip().to_string())).collect();
    let identity = hub.pki().serving_identity(&hosts, hub.now()).context("make a serving certificate")?;

    let stop = CancellationToken::new();
    // Before the loops begin, and after them it is sent what they still noted.
    let traces = args.otlp.start_traces(&replica).await?;
    let tasks = roadstead_hub_tasks::start(&hub, &stop);
    let mut servers = JoinSet::new();
    {
        let (hub, stop, identity) = (hub.clone(), stop.clone(), identity.clone());
        let client_ca = authentication::client_ca(args.client_ca_file.as_deref(), args.client_ca_masters)?;
        let limits = args.limits.api(files, hub.budget());
        let options = ApiOptions { hooks: hooks.is_none(), client_ca, ..limits };
        servers.spawn(async move {
            roadstead_hub_api::serve(hub, api, &identity, options, stop).await.context("serve the API")
        });
    }
    if let Some(listener) = hooks {
        let (hub, stop, identity) = (hub.clone(), stop.clone(), identity.clone());
        let options = args.limits.api(files, hub.budget());
        tracing::info!(address = %listener.local_addr()?, "Receivers are called there");
        servers.spawn(async move {
            let served = roadstead_hub_api::serve_hooks(hub, listener, &identity, options, stop);
            served.await.context("serve the hooks")
        });
    }
    {
        let (hub, stop) = (hub.clone(), stop.clone());
        let options = args.limits.link(files, hub.budget());
        servers.spawn(async move {
            roadstead_hub_link::serve(hub, link, &identity, options, stop).await.context("serve the link")
        });
    }
    servers.spawn(key_file.watch(store, stop.clone()));
    if let Some(path) = kubeconfig_path(args, dev) {
        let token = admin_token(&hub, &path).await.context("make an administrator's token")?;
        kubeconfig::write(&path, &api_url, hub.pki().server_ca_pem(), &token)?;
        tracing::info!(
            kubeconfig = %path.display(),
            expires = %token.expires,
            "wrote the administrator's kubeconfig: its token is short-lived, and this hub renews it in the file"
        );
        servers.spawn(renew(hub.clone(), path, api_url.clone(), stop.clone()));
    }
    for access in hub.onboarding.access_before().await.context("look up who deployed before an upgrade")? {
        tracing::warn!("{access}");
    }
    tracing::info!(api = api_url, link = %link_address, replica = %hub.sessions.replica(), "the hub serves");

    let outcome = tokio::select! {
        ended = ended => ended.map(|signal| tracing::info!(signal, "draining")),
        Some(server) = servers.join_next() => match server {
            Ok(Ok(())) => Err(anyhow::anyhow!("a listener stopped unexpectedly")),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(error.into()),
        },
    };
    stop.cancel();
    drain(&hub, servers, tasks).await;
    for sending in [traces, audit].into_iter().flatten() {
        sending.end().await;
    }
    outcome
}

/// The worker processes, of which one is started to see how confined they are.
async fn start_workers(budget: &MemoryBudget) -> Result<Workers> {
    let workers = workers(budget).context("set worker processes up")?;
    let protections = workers.protections().await.context("start a worker process")?;
    let told = protections.to_string();
    let mebibytes = |pool: &roadstead_worker::Pool| pool.settings().memory >> 20;
    let (builders, readers) = (workers.builders.settings().workers, workers.readers.settings().workers);
    let each = (mebibytes(&workers.builders), mebibytes(&workers.readers));
    if protections.all() {
        tracing::info!(
            builders,
            mebibytes_each_builder = each.0,
            readers,
            mebibytes_each_reader = each.1,
            protections = told,
            "worker processes are confined"
        );
    } else {
        tracing::warn!(
            builders,
            mebibytes_each_builder = each.0,
            readers,
            mebibytes_each_reader = each.1,
            protections = told,
            "worker processes are less confined than they can be: use a kernel with seccomp and Landlock (6.12 or later)"
        );
    }
    Ok(workers)
}

/// `host:port`, also for an IPv6 address.
fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Who has started this process, and where, for the record.
fn whoever_runs_this() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "an unknown host" } else { host.trim() };
    format!("by user id {} on {host}", rustix::process::getuid().as_raw())
}

/// Makes an administrator's token and prints a kubeconfig with it; beside a hub that serves.
async fn print_admin_kubeconfig(args: &Args) -> Result<()> {
    let url = database::url(&args.database)?.context("no database: give --database-url postgres://…")?;
    let (_, keys) = KeyFile::open(&key_file(args, None)?, unwrapping(args)).await?;
    let sealer = Sealer::with_keys(&keys).context("use the key file's keys")?;
    let store =
        Store::open_over(&url, database::transport(&args.database), sealer, args.database_connections)
            .await
            .context("open the database")?;
    let host = args.public_host.clone().unwrap_or_else(|| args.listen.ip().to_string());
    let server = format!("https://{}", address(&host, args.listen.port()));
    let hub = Hub::open(store, Arc::new(SystemClock), HubOptions::default()).await.context("open the hub")?;
    let why = format!("printed by --print-admin-kubeconfig, {}", whoever_runs_this());
    let made = hub.identity.create_admin_token(&why).await;
    let (text, expires) = made.context("make an administrator's token")?;
    let token = Token { text, expires };
    let text = kubeconfig::text(&server, hub.pki().server_ca_pem(), &token)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&text).and_then(|()| out.write_all(b"\n")).context("print the kubeconfig")?;
    drop(out);
    eprintln!("the token in it is taken until {expires}");
    hub.sessions.leave().await.context("say that this process is gone")?;
    hub.close().await;
    Ok(())
}

async fn drain(hub: &Hub, mut servers: JoinSet<Result<()>>, mut tasks: JoinSet<()>) {
    let ended = async {
        while let Some(server) = servers.join_next().await {
            if let Ok(Err(error)) = server {
                tracing::error!(error = format!("{error:#}"), "a listener failed");
            }
        }
        while tasks.join_next().await.is_some() {}
    };
    if tokio::time::timeout(DRAIN, ended).await.is_err() {
        tracing::warn!("not everything stopped in time; interrupted work continues at the next start");
    }
    if let Err(error) = hub.sessions.leave().await {
        tracing::warn!(%error, "could not record that this replica has stopped; other replicas find out by themselves");
    }
    hub.close().await;
    tracing::info!("drained");
}

/// The token that the file holds already, where this hub takes it for some time to come; else a new one, also in place of
/// one that never ends.
async fn admin_token(hub: &Hub, path: &Path) -> Result<Token> {
    let lasts = hub.now() + RENEWED..hub.now() + TOO_LONG;
    if let Some(text) = kubeconfig::token(path)
        && let Some(Some(expires)) = hub.identity.token_end(&text).await?
        && lasts.contains(&expires)
    {
        return Ok(Token { text: Zeroizing::new(text), expires });
    }
    let (text, expires) = hub.identity.create_admin_token("for the administrator's kubeconfig").await?;
    Ok(Token { text, expires })
}

/// Puts a new token into the administrator's kubeconfig before the one in it ends.
async fn renew(hub: Hub, path: PathBuf, api_url: String, stop: CancellationToken) -> Result<()> {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RENEWAL) => {}
            () = stop.cancelled() => return Ok(()),
        }
        let renewed = async {
            let token = admin_token(&hub, &path).await?;
            if kubeconfig::token(&path).as_deref() != Some(token.text.as_str()) {
                kubeconfig::write(&path, &api_url, hub.pki().server_ca_pem(), &token)?;
                tracing::info!(
                    kubeconfig = %path.display(),
                    expires = %token.expires,
                    "the administrator's kubeconfig has a new token"
                );
            }
            anyhow::Ok(())
        };
        if let Err(error) = renewed.await {
            tracing::warn!(
                error = format!("{error:#}"),
                "the administrator's kubeconfig could not be renewed"
            );
        }
    }
}

fn unwrapping(args: &Args) -> Unwrapping {
    Unwrapping::new(&args.wrapping, &args.network.allow)
}

fn key_file(args: &Args, dev: Option<&DevState>) -> Result<PathBuf> {
    match (&args.database.key_file, dev) {
        (Some(path), _) => Ok(path.clone()),
        (None, Some(dev)) => Ok(dev.folder.join("hub.key")),
        (None, None) => {
            bail!("--database-url needs --key-file: the keys that the database's secrets are encrypted with")
        }
    }
}

fn kubeconfig_path(args: &Args, dev: Option<&DevState>) -> Option<PathBuf> {
    args.admin_kubeconfig.clone().or_else(|| dev.map(|dev| dev.folder.join("admin.kubeconfig")))
}
