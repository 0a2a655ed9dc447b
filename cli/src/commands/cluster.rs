//! `roadstead cluster`: bring clusters on board.

use anyhow::{Context as _, Result, bail};
use roadstead_deploy::{Agent, DEFAULT_IMAGE};
use roadstead_kustomize::{value, yaml};
use serde_json::{Value, json};

use crate::hub::HubArgs;
use crate::output::{self, Format};

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

/// Print what brings a Cluster on board: the agent's manifests, and a Secret with a token that lets one agent in, once
///
/// Apply it in the workload cluster: roadstead cluster join edge-1 | kubectl --context edge-1 apply -f -
/// With --secret-only, it is what an agent that runs elsewhere is started with: roadstead-agent --join FILE.
/// The Cluster must exist on the hub. The output is a secret: where it is written to a file, let only you read it.
#[derive(Debug, clap::Args)]
pub(crate) struct Join {
    /// The name of the Cluster on the hub
    name: String,

    /// How long the token may be used
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    ttl: u64,

    /// Print the Secret alone
    #[arg(long)]
    secret_only: bool,

    /// The agent's image
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    image: String,

    /// How the objects are printed; as JSON they are a List where there are several
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Yaml)]
    output: Format,

    /// The namespace of the agent in the workload cluster
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
            bail!(
                "'{}' is not a valid name of a Cluster: want lower-case letters, digits, '-' and '.'",
                self.name
            );
        }
        let path = format!("/apis/fleet.roadstead.dev/v1alpha1/clusters/{}/jointoken", self.name);
        let mut secret = self.hub.client()?.post(&path, &json!({ "ttlSeconds": self.ttl }))?;
        secret["metadata"]["namespace"] = json!(self.agent_namespace);
        let mut objects = Vec::new();
        if !self.secret_only {
            let agent =
                Agent { namespace: self.agent_namespace.clone(), image: self.image.clone(), hosted: false };
            objects = agent.objects();
        }
        // Before the Deployment, whose agent looks for it at once.
        objects.insert(objects.len().saturating_sub(1), secret);
        output::print(shown(self.output, &objects)?.as_bytes())?;
        Ok(())
    }
}

/// The objects, as they are printed.
fn shown(format: Format, objects: &[Value]) -> Result<String> {
    match (format, objects) {
        (Format::Json, [one]) => pretty(one),
        (Format::Json, several) => pretty(&json!({ "apiVersion": "v1", "kind": "List", "items": several })),
        (Format::Yaml, objects) => {
            let mut out = String::new();
            for object in objects {
                if !out.is_empty() {
                    out.push_str("---\n");
                }
                yaml::write_document(&mut out, &value::Value::from_json(object));
            }
            Ok(out)
        }
    }
}

fn pretty(value: &Value) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value).context("write the manifest")?;
    text.push('\n');
    Ok(text)
}
