//! The key services that unwrap the hub's own keys: which one is asked, with what, and for how long when one cannot be reached.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use roadstead_hub_store::Key;
use roadstead_kms::{
    Entry, Environment, KeyWrappers, TokenSource, VaultCredential, VaultProof, WrappingError, WrappingKey,
};
use roadstead_outbound::Purpose;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::args::positive;
use crate::network::{AllowArgs, own_ways};

/// Before a key service that could not be reached is asked again; it doubles, up to the longest.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the hub shows to a key service that has wrapped its keys, besides what AWS and Vault clients take of the environment.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Key files whose keys a key service has wrapped")]
pub(crate) struct WrappingArgs {
    /// Have Vault give out a token for this role in exchange for the token in --key-vault-jwt, where VAULT_TOKEN is not set
    #[arg(long, value_name = "ROLE", env = "ROADSTEAD_KEY_VAULT_ROLE")]
    key_vault_role: Option<String>,

    /// Where Vault does that: the path of a login of its Kubernetes or JWT method
    #[arg(
        long,
        value_name = "PATH",
        env = "ROADSTEAD_KEY_VAULT_LOGIN",
        default_value = "auth/kubernetes/login"
    )]
    key_vault_login: String,

    /// The file with the token for that login, read each time: one that Kubernetes gives this process, with Vault as its audience
    #[arg(
        long,
        value_name = "FILE",
        env = "ROADSTEAD_KEY_VAULT_JWT",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    )]
    key_vault_jwt: PathBuf,

    /// For how long a key service that cannot be reached is asked again at start, before the program gives up
    #[arg(
        long,
        value_name = "DURATION",
        env = "ROADSTEAD_KEY_SERVICE_PATIENCE",
        default_value = "1m",
        value_parser = positive
    )]
    key_service_patience: Duration,
}

/// What unwraps the entries of a key file. Nothing is read of the environment before an entry needs it.
pub(crate) struct Unwrapping {
    args: WrappingArgs,
    allow: AllowArgs,
    wrappers: OnceCell<KeyWrappers>,
}

impl Unwrapping {
    /// By these options.
    pub(crate) fn new(args: &WrappingArgs, allow: &AllowArgs) -> Self {
        Self { args: args.clone(), allow: allow.clone(), wrappers: OnceCell::new() }
    }

    /// The key services. Credentials may be sent to the one that somebody has typed.
    pub(crate) async fn wrappers(&self, typed: Option<&WrappingKey>) -> Result<&KeyWrappers> {
        self.wrappers.get_or_try_init(|| std::future::ready(self.open(typed))).await
    }

    fn open(&self, typed: Option<&WrappingKey>) -> Result<KeyWrappers> {
        let get = |name: &str| std::env::var(name).ok();
        let environment = Environment::new(&get);
        let mut credentials = environment.wrapping()?;
        if let (None, Some(role)) = (&credentials.vault, &self.args.key_vault_role) {
            let (path, jwt) = (self.args.key_vault_login.clone(), self.args.key_vault_jwt.clone());
            let proof = VaultProof::Login { path, role: role.clone(), jwt: TokenSource::File(jwt) };
            let namespace = environment.vault_namespace();
            credentials.vault = Some(VaultCredential { proof, addresses: Vec::new(), namespace });
        }
        let mut allowed = self.allow.allowed_key_services()?;
        let typed = typed.and_then(WrappingKey::address).cloned();
        if let Some(address) = &typed {
            allowed.add(address.clone());
        }
        let servers = environment.named()?;
        let servers = servers.iter().chain(&self.allow.key_services).chain(&typed);
        let [aws, vault] = own_ways(&self.allow, Purpose::Kms, servers, environment.authorities()?);
        Ok(KeyWrappers::new(credentials, allowed, aws, vault))
    }

    /// The key of an entry. Nothing is tried again.
    pub(crate) async fn unwrap(&self, entry: &Entry) -> Result<Key> {
        match entry {
            Entry::Plain(key) => Ok(Key::new(**key)),
            Entry::Wrapped(_) => Ok(Key::new(*self.wrappers(None).await?.unwrap(entry).await?)),
        }
    }

    /// The same; a key service that cannot be reached is asked again, up to then.
    pub(crate) async fn unwrap_until(&self, entry: &Entry, until: Instant) -> Result<Key> {
        let mut pause = PAUSE;
        loop {
            let error = match self.unwrap(entry).await {
                Ok(key) => return Ok(key),
                Err(error) => error,
            };
            let may_pass = error.downcast_ref::<WrappingError>().is_some_and(WrappingError::may_pass);
            if !may_pass {
                return Err(error);
            }
            if Instant::now() + pause >= until {
                let patience = jiff::SignedDuration::try_from(self.args.key_service_patience);
                let patience = patience.map(|duration| format!(" within {duration:#}")).unwrap_or_default();
                return Err(error.context(format!(
                    "a key service did not unwrap the hub's key{patience} (--key-service-patience)"
                )));
            }
            tracing::warn!(
                error = format!("{error:#}"),
                "a key service did not unwrap the hub's key: it is asked again"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Until when key services are asked again by what begins now.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.args.key_service_patience
    }
}
