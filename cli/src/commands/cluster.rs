//! `roadstead cluster`: bring clusters on board.

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::hub::HubArgs;
use crate::output;

/// Bring clusters on board
#[derive(Debug, clap::Args)]
pub(crate) struct Cluster {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ClusterCommand {
    Join(Join),
}

/// Print a join manifest for a Cluster: a Secret with a token that lets one agent in, once
///
/// Start an agent with it (roadstead-agent --join FILE), or apply it in the cluster beside the agent's own manifests.
/// The Cluster must exist on the hub. The manifest is a secret: write it to a file that only you can read.
#[derive(Debug, clap::Args)]
pub(crate) struct Join {
    /// The name of the Cluster on the hub
    name: String,

    /// How long the token may be used
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    ttl: u64,

    /// The namespace of the Secret in the workload cluster
    #[arg(long, value_name = "NAMESPACE", default_value = "roadstead-system")]
    agent_namespace: String,

    #[command(flatten)]
    hub: HubArgs,
}

impl Cluster {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            ClusterCommand::Join(command) => command.run(),
        }
    }
}

impl Join {
    fn run(self) -> Result<()> {
        // The name becomes part of a path.
        if self.name.is_empty()
            || !self.name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'.')
        {
            bail!("'{}' is no name of a Cluster: want lower-case letters, digits, '-' and '.'", self.name);
        }
        let path = format!("/apis/fleet.roadstead.dev/v1alpha1/clusters/{}/jointoken", self.name);
        let mut secret = self.hub.client()?.post(&path, &json!({ "ttlSeconds": self.ttl }))?;
        secret["metadata"]["namespace"] = json!(self.agent_namespace);
        let mut text = serde_json::to_string_pretty(&secret).context("write the manifest")?;
        text.push('\n');
        output::print(text.as_bytes())?;
        Ok(())
    }
}
