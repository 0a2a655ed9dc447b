//! What the kubeconfigs of clusters may make the hub do, and what is installed by them.

use std::time::Duration;

use clap::Args;
use roadstead_hub_core::Pace;
use roadstead_kubeconfig::Allowed;

/// A kubeconfig comes from whoever may write Secrets: nothing of this is allowed unless it is given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clusters by kubeconfig")]
pub(crate) struct ClusterArgs {
    /// Let kubeconfigs name a server with plain HTTP
    #[arg(long = "allow-plain-http-clusters")]
    plain_http: bool,

    /// Let kubeconfigs skip the verification of the server's certificate
    #[arg(long = "allow-unverified-clusters")]
    unverified: bool,

    /// Let kubeconfigs name a proxy (http://). Names are then resolved by the proxy, and lead where it lets them
    #[arg(long = "allow-cluster-proxies")]
    proxies: bool,

    /// The image of the agent that is installed [default: roadstead-agent:VERSION], and that agents which run another one
    /// put in its place. Without it none is told to
    #[arg(long, value_name = "IMAGE", env = "ROADSTEAD_AGENT_IMAGE")]
    pub(crate) agent_image: Option<String>,

    /// Seconds for which the agents of a stage of a roll-out (one, a tenth, half, all) are to have been connected with the
    /// new image before the next stage begins
    #[arg(long, value_name = "SECONDS", default_value_t = 60, env = "ROADSTEAD_AGENT_UPGRADE_SOAK",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    agent_upgrade_soak: u32,

    /// Seconds within which a new agent has to connect; after that the old one puts its own image back
    #[arg(long, value_name = "SECONDS", default_value_t = 300, env = "ROADSTEAD_AGENT_UPGRADE_TIMEOUT",
          value_parser = clap::value_parser!(u32).range(10..=86_400))]
    agent_upgrade_timeout: u32,
}

impl ClusterArgs {
    pub(crate) fn pace(&self) -> Pace {
        Pace {
            soak: Duration::from_secs(self.agent_upgrade_soak.into()),
            timeout: Duration::from_secs(self.agent_upgrade_timeout.into()),
        }
    }

    pub(crate) fn allowed(&self) -> Allowed {
        Allowed { plain_http: self.plain_http, skip_verification: self.unverified, proxies: self.proxies }
    }
}
