//! How many requests an agent sends to its apiserver, by its own metrics.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};

use crate::{AgentProcess, Fleet, HubProcess, HubSetup, TestCluster, free_port};

/// Where an agent tells what it does.
#[derive(Debug, Clone, Copy)]
pub struct AgentRequests {
    port: u16,
}

impl AgentRequests {
    /// A fleet whose agent counts its requests.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub async fn of_fleet(name: &str) -> Result<(Fleet, Self)> {
        let (setup, cluster, port) = (HubSetup::new(name).await?, TestCluster::first()?, free_port()?);
        let hub = HubProcess::start(&setup).await?;
        let listen = format!("{}:{port}", Ipv4Addr::LOCALHOST);
        let env = [("ROADSTEAD_METRICS_LISTEN", listen.as_str())];
        let agent = AgentProcess::join_with_env(&hub, "edge", &cluster, &env).await?;
        Ok((Fleet::of(setup, hub, cluster, agent).await?, Self { port }))
    }

    /// How many of each verb (`read`, `dry_run`, `apply`, …) were answered so far, whatever the answer.
    ///
    /// # Errors
    /// When the agent does not tell.
    pub async fn by_verb(self) -> Result<BTreeMap<String, u64>> {
        let url = format!("http://{}:{}/metrics", Ipv4Addr::LOCALHOST, self.port);
        let page = reqwest::get(&url).await?.error_for_status()?.text().await?;
        let mut counts = BTreeMap::new();
        for line in page.lines() {
            let Some(rest) = line.strip_prefix("roadstead_agent_apiserver_requests_total{") else { continue };
            let (labels, value) = rest.split_once("} ").context("labels and a value")?;
            let verb = labels.split(',').find_map(|label| label.strip_prefix("verb=")).context("a verb")?;
            // With exemplars, more follows the value.
            let value = value.split(' ').next().unwrap_or(value);
            *counts.entry(verb.trim_matches('"').to_owned()).or_default() += value.parse::<u64>()?;
        }
        ensure!(!counts.is_empty(), "no request was counted:\n{page}");
        Ok(counts)
    }

    /// How many of each verb there were since `before`; none are left out.
    ///
    /// # Errors
    /// When the agent does not tell.
    pub async fn since(self, before: &BTreeMap<String, u64>) -> Result<BTreeMap<String, u64>> {
        let mut counts = self.by_verb().await?;
        for (verb, count) in &mut counts {
            *count -= before.get(verb).copied().unwrap_or_default();
        }
        counts.retain(|_, count| *count > 0);
        Ok(counts)
    }
}
