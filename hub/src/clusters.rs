//! What the kubeconfigs of clusters may make the hub do, and what is installed by them.

use clap::Args;
use ipnet::IpNet;
use roadstead_kubeconfig::Allowed;

/// A kubeconfig comes from whoever may write Secrets: nothing of this is allowed unless it is given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clusters by kubeconfig")]
pub(crate) struct ClusterArgs {
    /// A network, beside the public internet, in which clusters may be reached (repeatable): 10.20.0.0/16
    #[arg(long = "allow-cluster-network", value_name = "CIDR")]
    networks: Vec<IpNet>,

    /// Let kubeconfigs name a server with plain HTTP
    #[arg(long = "allow-plain-http-clusters")]
    plain_http: bool,

    /// Let kubeconfigs skip the verification of the server's certificate
    #[arg(long = "allow-unverified-clusters")]
    unverified: bool,

    /// Let kubeconfigs name a proxy (http://). Names are then resolved by the proxy, and lead where it lets them
    #[arg(long = "allow-cluster-proxies")]
    proxies: bool,

    /// The image of the agent that is installed [default: roadstead-agent:VERSION]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) agent_image: Option<String>,
}

impl ClusterArgs {
    pub(crate) fn allowed(&self) -> Allowed {
        Allowed {
            plain_http: self.plain_http,
            skip_verification: self.unverified,
            proxies: self.proxies,
            networks: self.networks.clone(),
        }
    }
}
