//! Identities of clouds for sources: the command line's options for it.

use anyhow::Result;
use clap::Args;
use roadstead_cloud::OwnHosts;
use roadstead_hub_core::sources::CloudOptions;
use roadstead_kms::{Credentials, Environment};

/// Who may use what identity of a cloud, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Identities of clouds for sources")]
pub(crate) struct CloudArgs {
    /// A namespace whose sources with spec.provider aws, azure or gcp, and neither a ServiceAccount nor a Secret, are fetched by the hub's
    /// own identity, as its environment or its machine gives it, and whose Providers for Azure and Google send by it (repeatable, or several
    /// with commas); * for all. Whoever may write sources there may read what the hub itself may. Without this flag none is. A metadata service needs --allow-network
    /// cloud=169.254.169.254/32 besides
    #[arg(
        long = "hub-cloud-identity",
        value_name = "NAMESPACE",
        env = "ROADSTEAD_HUB_CLOUD_IDENTITY",
        value_delimiter = ','
    )]
    namespaces: Vec<String>,

    /// A registry, object store, Git server or message service that credentials of a cloud may be sent to, besides those that are that cloud's by their names
    /// (repeatable): aws=s3.corp:9000
    #[arg(long = "allow-cloud-host", value_name = "CLOUD=HOST[:PORT]")]
    hosts: Vec<OwnHosts>,
}

impl CloudArgs {
    /// With what the environment says.
    pub(crate) fn options(&self) -> Result<CloudOptions> {
        let get = |name: &str| std::env::var(name).ok();
        let environment = Environment::new(&get);
        let own = match self.namespaces.as_slice() {
            [] => Credentials::default(),
            _ => environment.credentials(true)?,
        };
        let mut hosts = OwnHosts::default();
        for others in &self.hosts {
            hosts.add(others.clone());
        }
        Ok(CloudOptions {
            namespaces: self.namespaces.clone(),
            own,
            services: environment.token_services()?,
            hosts,
        })
    }
}
