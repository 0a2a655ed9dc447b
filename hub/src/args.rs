//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use roadstead_hub_core::clusters::ReservedName;
use roadstead_hub_core::delivery::SopsMac;
use roadstead_hub_core::identity::AuditSink;
use roadstead_hub_core::{KeptArtifacts, KeptAttempts};
use roadstead_model::guard::DEFAULT_MAX_PERCENT;
use roadstead_model::{GoDuration, Guard, GuardMode};
use url::Url;

use crate::artifacts::ArtifactArgs;
use crate::clouds::CloudArgs;
use crate::clusters::ClusterArgs;
use crate::limits::LimitArgs;
use crate::network::{AllowArgs, NetworkArgs};
use crate::otlp::OtlpArgs;
use crate::unwrapping::WrappingArgs;
use crate::wrap::WrapKeyArgs;

/// Roadstead's hub: keeps a fleet of Kubernetes clusters on what Git says.
///
/// Needs a Postgres and nothing else. With --dev it brings a private one up and needs nothing at all.
#[derive(Debug, Parser)]
#[command(name = "roadstead-hub", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Start with nothing configured: private Postgres, keys, admin kubeconfig, all in the state folder
    #[arg(long)]
    pub(crate) dev: bool,

    /// Where --dev keeps its state [default: /var/lib/roadstead as root, else ~/.local/state/roadstead]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Let --dev listen on addresses that other machines reach. Its sources may read this machine's files, and its private
    /// network: for networks in which everybody is trusted
    #[arg(long, requires = "dev")]
    pub(crate) allow_dev_listen_anywhere: bool,

    /// Where the API listens (HTTPS); port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7443", env = "ROADSTEAD_LISTEN")]
    pub(crate) listen: SocketAddr,

    /// Where agents' links are taken (mTLS); port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7444", env = "ROADSTEAD_LINK_LISTEN")]
    pub(crate) link_listen: SocketAddr,

    /// Where Receivers are called by webhooks (HTTPS), apart from the API: nothing else is served there, and then they are not called
    /// where the API listens; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", env = "ROADSTEAD_HOOK_LISTEN")]
    pub(crate) hook_listen: Option<SocketAddr>,

    /// The name or address by which kubectl and agents reach the hub [default: the address that it listens on]
    #[arg(long, value_name = "HOST", env = "ROADSTEAD_PUBLIC_HOST")]
    pub(crate) public_host: Option<String>,

    /// What tokens of service accounts say to be from and for (an https:// URL, at which whoever else verifies them finds
    /// /.well-known/openid-configuration of the hub); all replicas need the same. Given more than once, new tokens are of the first, and
    /// those of the others are taken, too [default: the API's address, by --public-host]
    #[arg(long, value_name = "URL", env = "ROADSTEAD_SERVICE_ACCOUNT_ISSUER", value_parser = issuer_url, value_delimiter = ',')]
    pub(crate) service_account_issuer: Vec<String>,

    /// Which issuers of OpenID Connect are trusted, and how their tokens become users: the file that kube-apiserver takes under the
    /// same name (apiserver.config.k8s.io/v1, AuthenticationConfiguration), read at start
    #[arg(long, value_name = "FILE", env = "ROADSTEAD_AUTHENTICATION_CONFIG")]
    pub(crate) authentication_config: Option<PathBuf>,

    /// Where people sign in to the dashboard and by `roadstead login`: providers among the issuers of --authentication-config
    /// (fleet.roadstead.dev/v1alpha1, SignInConfiguration), read at start
    #[arg(long, value_name = "FILE", env = "ROADSTEAD_SIGN_IN_CONFIG", requires = "authentication_config")]
    pub(crate) sign_in_config: Option<PathBuf>,

    /// A session in the dashboard ends after so long without use, such as 8h
    #[arg(long, value_name = "DURATION", default_value = "8h", value_parser = positive)]
    pub(crate) session_idle: Duration,

    /// A session in the dashboard ends after so long in any case, such as 24h
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = positive)]
    pub(crate) session_lasts: Duration,

    /// For when nobody can sign in otherwise: the authorities (PEM) whose client certificates are taken by the API, with the common name
    /// as the user and organizations as groups; names that begin with system: are refused. Each use is on record. Read at start
    #[arg(long, value_name = "FILE", env = "ROADSTEAD_CLIENT_CA_FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,

    /// Take certificates of --client-ca-file with the organization system:masters, whose users may do everything
    #[arg(long, requires = "client_ca_file")]
    pub(crate) client_ca_masters: bool,

    #[command(flatten)]
    pub(crate) network: NetworkArgs,

    #[command(flatten)]
    pub(crate) clouds: CloudArgs,

    #[command(flatten)]
    pub(crate) artifacts: ArtifactArgs,

    #[command(flatten)]
    pub(crate) wrapping: WrappingArgs,

    #[command(flatten)]
    pub(crate) clusters: ClusterArgs,

    /// Write a kubeconfig with a new administrator's token there once the hub serves
    /// [default with --dev: admin.kubeconfig in the state folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_kubeconfig: Option<PathBuf>,

    /// Print a kubeconfig with a new administrator's token, and end: for a container that has no shell and no disk. Beside a
    /// running hub, with the same environment
    #[arg(long, conflicts_with_all = ["dev", "restored", "admin_kubeconfig"])]
    pub(crate) print_admin_kubeconfig: bool,

    /// Connections to the database
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=1000))]
    pub(crate) database_connections: u32,

    /// The database was restored in a way that the hub cannot notice by itself (its rows were replaced): trust nothing that was known
    /// before. To be given once, at the first start after it, with all other replicas down
    #[arg(long)]
    pub(crate) restored: bool,

    /// Turn references across namespaces off altogether, whoever writes them and whatever ReferenceGrants allow
    #[arg(long)]
    pub(crate) no_cross_namespace_refs: bool,

    /// Send the hub's own events to this notification-controller of Flux, in the form of Flux' controllers, by the Provider and the Alert
    /// roadstead-system/events-addr. Without this flag these two are removed. An address that is not public also needs
    /// --allow-network=notify=NETWORK
    #[arg(
        long,
        value_name = "URL",
        env = "ROADSTEAD_EVENTS_ADDR",
        conflicts_with = "no_cross_namespace_refs"
    )]
    pub(crate) events_addr: Option<String>,

    /// Treat variables of spec.postBuild that are not set and have no default as empty; without this flag they are an error
    #[arg(long)]
    pub(crate) lenient_substitutions: bool,

    /// What happens to encrypted files whose MACs show that they were changed, where spec.decryption.mac does not say: verify refuses
    /// them, warn decrypts them, enforce refuses them and Kustomizations that say otherwise
    #[arg(long, value_enum, default_value_t = SopsMacArg::Verify)]
    pub(crate) sops_mac: SopsMacArg,

    /// Allow spec.decryption.serviceAccountName, by which a Kustomization has AWS, Azure, Google or Vault asked for its keys as a service account
    /// of its namespace on the hub, and spec.serviceAccountName, by which sources are fetched as one from the first three: whoever may write
    /// them there may use the identity of each account. Those services have to trust --service-account-issuer
    #[arg(long, env = "ROADSTEAD_OBJECT_LEVEL_WORKLOAD_IDENTITY")]
    pub(crate) object_level_workload_identity: bool,

    /// Where the Vaults of --allow-key-service and VAULT_ADDR take tokens of such service accounts, for the role NAMESPACE_NAME, such as
    /// auth/jwt/login; without this flag they are not asked by them
    #[arg(long, value_name = "PATH", requires = "object_level_workload_identity")]
    pub(crate) decryption_vault_login: Option<String>,

    /// After which time what an agent sees to stand as it was applied is reconciled all the same, such as 24h; each a little sooner or
    /// later, and none sooner than its own interval
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = positive)]
    pub(crate) full_reconcile_interval: Duration,

    /// For how long it is tried to send an event to a Provider that does not take it, such as 6h; after that it is given up
    #[arg(long, value_name = "DURATION", default_value = "6h", value_parser = positive)]
    pub(crate) give_up_notifications: Duration,

    /// After which time without an event of an object that failed, as a Flux in a cluster reported, its incident ends, and says that nothing
    /// was heard since: longer than the longest retry interval there, such as 24h
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = positive)]
    pub(crate) relayed_failure_timeout: Duration,

    /// How many reconciliations of each Kustomization are kept, of those that have ended; 4 to 100
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(4..=100))]
    pub(crate) keep_reconciliations: u16,

    /// For how long reconciliations are kept, such as 720h; the newest and the newest that went well stay. Without this flag only their
    /// number counts
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    pub(crate) keep_reconciliations_for: Option<Duration>,

    /// How many artifacts of each source are kept, the newest first; 1 to 1000. The one that a source's status names and those that a
    /// spec.pin names are kept in any case
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) keep_artifacts: u16,

    /// For how long artifacts of sources are kept after they were used last, such as 720h; no less than 15m
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = positive)]
    pub(crate) keep_artifacts_for: Duration,

    /// What waits where a reconciliation would delete more than it may without a person's confirmation: its deletions, or everything
    /// (stop); with off, only what specs say of it waits
    #[arg(long, value_enum, default_value_t = GuardArg::Deletions)]
    pub(crate) guard: GuardArg,

    /// The share of an inventory of ten objects or more that a reconciliation deletes without confirmation, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_MAX_PERCENT, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) guard_max_percent: u8,

    /// How many objects a reconciliation deletes without confirmation; without this flag as many as the share allows
    #[arg(long, value_name = "COUNT")]
    pub(crate) guard_max_deletions: Option<u32>,

    /// Cluster for Kustomizations that name none when they are made, in namespaces without the annotation
    /// fleet.roadstead.dev/default-cluster
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) default_cluster: Option<String>,

    /// Service account for Kustomizations that name none, in their own namespace of the cluster; without this flag they act as the agent
    /// itself
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) default_service_account: Option<String>,

    /// Lets only kubeconfig Secrets and ManagementClusters of this namespace make Clusters of that name, which may end in *; can be repeated
    #[arg(long, value_name = "NAME=NAMESPACE")]
    pub(crate) reserve_cluster: Vec<ReservedName>,

    /// Days for which entries of the audit log are kept; 0 for ever
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(0..=36_500))]
    pub(crate) audit_retention: u32,

    /// Writes what this replica adds to the audit log as lines of JSON to this file as well, or to standard output where it is -
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log_path: Option<PathBuf>,

    /// MiB at which that file is renamed to FILE.1
    #[arg(long, value_name = "MIB", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) audit_log_maxsize: u32,

    /// How many such files from before are kept
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) audit_log_maxbackup: u32,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) otlp: OtlpArgs,

    /// Let members of system:masters make profiles of this process's CPU time, at /debug/pprof/profile
    #[arg(long)]
    pub(crate) profiling: bool,

    /// How log lines are written
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub(crate) log_format: LogFormat,
}

/// Where the database is, and what opens it.
#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// The Postgres database, as postgres://user@host/database; a password shows in the process list here, and not in the
    /// variable or the file
    #[arg(long, value_name = "URL", env = "ROADSTEAD_DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,

    /// A file with the URL of the database, read at start; it comes before --database-url
    #[arg(long, value_name = "FILE", env = "ROADSTEAD_DATABASE_URL_FILE")]
    pub(crate) database_url_file: Option<PathBuf>,

    /// Take a connection to a database elsewhere as --database-url says it, also one that others on the way can read and
    /// change. Without this it is TLS with the server's certificate and name checked (sslmode=verify-full; sslrootcert=FILE in
    /// the URL where a private CA signed it)
    #[arg(long, env = "ROADSTEAD_ALLOW_INSECURE_DATABASE")]
    pub(crate) allow_insecure_database: bool,

    /// The file with the keys (each 32 bytes in base64, or an envelope that `roadstead-hub wrap-key` made of such a key; one in a line,
    /// the newest first) that secrets are encrypted with; all replicas need the same. It is read again when it changes, and on SIGHUP; a new key is used once all replicas have it, and
    /// `roadstead-hub rekey` says when an old one is not needed any more. Made with mode 0600 by --dev
    #[arg(long, value_name = "FILE", env = "ROADSTEAD_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// What else the program does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Encrypt and sign everything in the database with the newest key of the key file, while hubs run, and say which keys can be
    /// taken out of the file then
    ///
    /// All hubs need the new key first: put it into the first line of their key file, above the one from before, and wait until
    /// they have read it. May be stopped at any time and started again: it goes on with what is left.
    Rekey(Box<RekeyArgs>),

    /// Have a key service wrap the keys of a key file, or a new key, and print the key file to use, which holds no key that opens anything
    ///
    /// The key service unwraps them whenever a hub starts or reads its key file again. A hub takes the wrapped file in the place of
    /// the plain one while it runs: the keys in it are the same. Whoever has a copy of the plain file still has the keys: add --new
    /// to put a new key above them, and run `roadstead-hub rekey` then.
    #[command(after_help = "Examples:\n  \
        roadstead-hub wrap-key --aws-kms arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab > hub.key\n  \
        roadstead-hub wrap-key --vault-transit https://vault.example:8200/v1/transit/keys/roadstead --in hub.key --out hub.key\n  \
        roadstead-hub wrap-key --aws-kms arn:… --in hub.key --new --out hub.key && roadstead-hub rekey")]
    WrapKey(Box<WrapKeyArgs>),
}

/// How a rekey is done.
#[derive(Debug, clap::Args)]
pub(crate) struct RekeyArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    #[command(flatten)]
    pub(crate) wrapping: WrappingArgs,

    #[command(flatten)]
    pub(crate) allow: AllowArgs,

    /// Only say how much each key still has; the exit code is 1 while the key file needs an older key
    #[arg(long)]
    pub(crate) check: bool,

    /// Seconds after which everything is written that a hub encrypted before it used the newest key
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(crate) settle: u64,
}

/// What happens to encrypted files whose MACs do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SopsMacArg {
    /// They are refused, unless spec.decryption.mac of the Kustomization is Warn
    Verify,
    /// They are decrypted, unless spec.decryption.mac of the Kustomization is Verify
    Warn,
    /// They are refused, and so are Kustomizations whose spec.decryption.mac is Warn
    Enforce,
}

/// What waits where too much would be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum GuardArg {
    Deletions,
    Stop,
    Off,
}

impl Args {
    /// How much may be deleted without a person's confirmation.
    /// Which reconciliations are kept.
    pub(crate) fn kept_attempts(&self) -> KeptAttempts {
        KeptAttempts { most: self.keep_reconciliations, age: self.keep_reconciliations_for }
    }

    /// Which artifacts are kept.
    pub(crate) fn kept_artifacts(&self) -> KeptArtifacts {
        KeptArtifacts { most: self.keep_artifacts, age: self.keep_artifacts_for }
    }

    pub(crate) fn audit_sink(&self) -> Option<AuditSink> {
        let path = self.audit_log_path.clone()?;
        if path.as_os_str() == "-" {
            return Some(AuditSink::Stdout);
        }
        Some(AuditSink::File {
            path,
            max_bytes: u64::from(self.audit_log_maxsize) << 20,
            kept: self.audit_log_maxbackup,
        })
    }

    pub(crate) fn guard(&self) -> Option<Guard> {
        let mode = match self.guard {
            GuardArg::Off => return None,
            GuardArg::Deletions => GuardMode::Deletions,
            GuardArg::Stop => GuardMode::Stop,
        };
        let (max_percent, max_deletions) = (self.guard_max_percent, self.guard_max_deletions);
        Some(Guard { mode, max_percent, max_deletions, ..Guard::default() })
    }
}

impl From<SopsMacArg> for SopsMac {
    fn from(arg: SopsMacArg) -> Self {
        match arg {
            SopsMacArg::Verify => Self::Verify,
            SopsMacArg::Warn => Self::Warn,
            SopsMacArg::Enforce => Self::Enforce,
        }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object per line
    Json,
    /// For reading in a terminal
    Text,
}

/// A duration as Kubernetes writes it, such as 1h30m.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    let GoDuration(duration) = text.parse::<GoDuration>().map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be longer than 0s".to_owned()) } else { Ok(duration) }
}

/// The URL of an issuer of tokens.
fn issuer_url(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    let is_issuer = url.scheme() == "https" && url.host_str().is_some() && url.password().is_none() && plain;
    if is_issuer && text.len() <= 1024 {
        Ok(text.to_owned())
    } else {
        Err("must be an https:// URL without user, query and fragment, of at most 1024 bytes".to_owned())
    }
}

/// The name of an object.
fn object_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if text.is_empty() || text.len() > 253 || !text.chars().all(is_plain) {
        return Err("must be a name, without a namespace".to_owned());
    }
    Ok(text.to_owned())
}
