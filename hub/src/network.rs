//! Where the hub connects to for its users: the command line's options for it, and what is never in them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use roadstead_hub_core::Outbound;
use roadstead_hub_store::Store;
use roadstead_kms::{Address, Allowed, BadAddress, Environment, Network};
use roadstead_outbound::{Host, ListedHost, Policy, Proxies, Purpose, Rule, Target};

/// What gives machines and containers of AWS their identity.
const METADATA: [Ipv4Addr; 2] = [Ipv4Addr::new(169, 254, 169, 254), Ipv4Addr::new(169, 254, 170, 2)];

/// An entry for a server that the operator has named for this process, not a user for the hub: for that one alone, also in a private network or on
/// this machine.
pub(crate) fn named(purpose: Purpose, host: Host, port: u16) -> Rule {
    let target = match host {
        Host::Ip(ip) => Target::Network(ip.into()),
        Host::Name(name) => Target::Name(name),
    };
    Rule { purpose: Some(purpose), target, port: Some(port) }
}

/// The way of the process's own credentials: what the operator allows users, the servers that they have named, and where machines have their
/// identity from. One for each entry of `authorities`, by which servers are trusted besides the system's.
pub(crate) fn own_ways<'a, const N: usize>(
    allow: &AllowArgs,
    purpose: Purpose,
    servers: impl IntoIterator<Item = &'a Address>,
    authorities: [Option<Vec<u8>>; N],
) -> [Arc<Network>; N] {
    let mut policy = Policy::new(allow.networks.clone());
    for (host, port) in servers.into_iter().filter_map(Address::endpoint) {
        policy.allow(named(purpose, host, port));
    }
    for ip in METADATA {
        policy.allow(Rule {
            purpose: Some(purpose),
            target: Target::Network(IpAddr::V4(ip).into()),
            port: None,
        });
    }
    let (policy, proxies) = (Arc::new(policy), Arc::new(Proxies::from_env()));
    authorities.map(|authorities| {
        let network = Network::new(purpose, &policy, Some(Arc::clone(&proxies)));
        Arc::new(match authorities {
            Some(pem) => network.with_authorities(&pem),
            None => network,
        })
    })
}

/// What may be connected to, and where credentials for key services may go.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connections to addresses that users choose")]
pub(crate) struct AllowArgs {
    /// A network or host, beside the public internet, that may be connected to (repeatable): 10.20.0.0/16,
    /// git=10.1.2.3, git=git.corp:8443. Purposes are clusters, git, oci, bucket, helm, kms, cloud, oidc and notify; without one
    /// it is for all. Loopback, link-local and metadata addresses, the database and the hub's own listeners are in no wider
    /// network: they need an entry of their own
    #[arg(
        long = "allow-network",
        value_name = "[PURPOSE=]CIDR|HOST[:PORT]",
        env = "ROADSTEAD_ALLOW_NETWORK",
        value_delimiter = ','
    )]
    pub(crate) networks: Vec<Rule>,

    /// A key service that credentials of decryption Secrets, and the hub's own for a wrapped key file, may be sent to when an encrypted
    /// file or the key file names it, besides the clouds' own (repeatable): https://HOST[:PORT]. VAULT_ADDR, AWS_ENDPOINT_URL_KMS,
    /// AWS_ENDPOINT_URL_STS and SOPS_GCP_KMS_ENDPOINT of the environment are such addresses too. One in a private network needs
    /// --allow-network kms=… besides
    #[arg(long = "allow-key-service", value_name = "URL", value_parser = key_service)]
    pub(crate) key_services: Vec<Address>,
}

impl AllowArgs {
    /// The key services that credentials may go to.
    pub(crate) fn allowed_key_services(&self) -> Result<Allowed> {
        let get = |name: &str| std::env::var(name).ok();
        let mut allowed = Environment::new(&get).allowed()?;
        for address in &self.key_services {
            allowed.add(address.clone());
        }
        Ok(allowed)
    }
}

/// Addresses come from whoever may write sources and Secrets: besides the public internet nothing is allowed unless it is
/// given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connections to addresses that users choose")]
pub(crate) struct NetworkArgs {
    #[command(flatten)]
    pub(crate) allow: AllowArgs,

    /// The same as --allow-network clusters=CIDR
    #[arg(long = "allow-cluster-network", value_name = "CIDR")]
    cluster_networks: Vec<Rule>,

    /// A host of which kustomizations may name remote resources by URL (repeatable, or several with commas): github.com,
    /// git.corp:8443. Without this flag none is fetched. Over HTTPS and without credentials; one in a private network needs
    /// --allow-network git=… besides
    #[arg(
        long = "remote-bases",
        value_name = "HOST[:PORT]",
        env = "ROADSTEAD_REMOTE_BASES",
        value_delimiter = ','
    )]
    remote_bases: Vec<ListedHost>,

    /// Let credentials of sources be sent over plain HTTP, where anyone on the way can read them
    #[arg(long)]
    allow_plain_http_credentials: bool,
}

/// What is this hub's own, and in no wider entry.
pub(crate) struct Own<'a> {
    /// Where it listens.
    pub(crate) listeners: Vec<SocketAddr>,
    /// The name or address by which it is reached.
    pub(crate) public_host: &'a str,
    /// The database's URL.
    pub(crate) database_url: &'a str,
}

/// The address of a key service.
fn key_service(text: &str) -> Result<Address, BadAddress> {
    Address::parse(text)
}

impl NetworkArgs {
    /// The hosts of which remote resources are fetched.
    pub(crate) fn remote_bases(&self) -> Vec<ListedHost> {
        self.remote_bases.clone()
    }

    /// The way out by these options. With `dev`, this machine may be connected to.
    pub(crate) fn outbound(&self, own: &Own<'_>, dev: bool) -> Result<Outbound> {
        let mut policy = Policy::new(self.allow.networks.clone());
        for rule in &self.cluster_networks {
            policy.allow(Rule { purpose: Some(Purpose::Clusters), ..rule.clone() });
        }
        if dev {
            for network in ["127.0.0.0/8", "::1/128"] {
                let network = network.parse().context("loopback is a network")?;
                policy.allow(Rule { purpose: None, target: Target::Network(network), port: None });
            }
        }
        for listener in &own.listeners {
            if listener.ip().is_unspecified() {
                policy.reserve_local_port(listener.port());
            } else {
                policy.reserve(Host::Ip(listener.ip()), listener.port());
            }
            if let Some(host) = Host::parse(own.public_host) {
                policy.reserve(host, listener.port());
            }
        }
        if let Some((host, port)) = Store::endpoint(own.database_url).context("read the database's URL")?
            && let Some(host) = Host::parse(&host)
        {
            policy.reserve(host, port);
        }
        Ok(Outbound {
            policy: Arc::new(policy),
            proxies: Arc::new(Proxies::from_env()),
            plain_http_credentials: self.allow_plain_http_credentials,
        })
    }
}
