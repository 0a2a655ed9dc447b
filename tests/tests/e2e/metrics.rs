//! Metrics and alert rules, as a real Prometheus has them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, PATIENCE, Process, TestCluster, config_map, eventually,
    free_port, kustomization, prometheus,
};
use serde_json::Value;

/// What the repository ships for Prometheus.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/monitoring");

/// Runs promtool, which has to be content.
fn promtool(arguments: &[&str]) -> Result<()> {
    let output = Command::new(prometheus("promtool")?).args(arguments).output().context("run promtool")?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
    Ok(())
}

#[test]
fn rules_do_what_they_are_for() -> Result<()> {
    promtool(&["check", "rules", &format!("{SHIPPED}/rules.yaml")])?;
    promtool(&["test", "rules", &format!("{SHIPPED}/rules-test.yaml")])
}

/// A Prometheus that scrapes a hub, with the rules that are shipped.
struct Scraping {
    _process: Process,
    port: u16,
}

impl Scraping {
    /// It scrapes the agent's port, too.
    async fn start(fleet: &Fleet, agent: u16, token: &str, folder: &Path) -> Result<Self> {
        let port = free_port()?;
        let config = fleet.run(&["config", "view", "--raw", "-o", "json"]).await?;
        let config: Value = serde_json::from_str(&config)?;
        let ca = config.pointer("/clusters/0/cluster/certificate-authority-data").and_then(Value::as_str);
        std::fs::write(folder.join("ca.crt"), STANDARD.decode(ca.context("a CA")?)?)?;
        std::fs::write(folder.join("token"), token)?;
        let file = folder.join("prometheus.yml");
        let target = format!("localhost:{}", fleet.hub.api_port());
        let settings = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{SHIPPED}/rules.yaml']\nscrape_configs:\n- \
             job_name: roadstead\n  scheme: https\n  tls_config: {{ca_file: ca.crt}}\n  authorization: {{credentials_file: token}}\n  \
             static_configs: [{{targets: ['{target}']}}]\n- job_name: agent\n  \
             static_configs: [{{targets: ['{}:{agent}']}}]\n",
            Ipv4Addr::LOCALHOST,
        );
        std::fs::write(&file, settings)?;
        let file = file.to_str().context("a path that is text")?;
        promtool(&["check", "config", file])?;
        let mut command = Command::new(prometheus("prometheus")?);
        command.args(["--config.file", file, "--storage.tsdb.path"]).arg(folder.join("data"));
        command.arg(format!("--web.listen-address={}:{port}", Ipv4Addr::LOCALHOST));
        let process = Process::start("prometheus", &mut command, &folder.join("prometheus.log"))?;
        Ok(Self { _process: process, port })
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        let url = format!("http://{}:{}/api/v1/{path}", Ipv4Addr::LOCALHOST, self.port);
        let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).build()?;
        Ok(client.get(reqwest::Url::parse_with_params(&url, query)?).send().await?.json().await?)
    }

    /// The labels and values that an expression has now.
    async fn of(&self, expression: &str) -> Result<Vec<(Value, f64)>> {
        let answer = self.get("query", &[("query", expression)]).await?;
        let found = answer["data"]["result"].as_array().with_context(|| answer.to_string())?;
        let read = |one: &Value| {
            let value = one["value"][1].as_str().context("a value")?.parse()?;
            Ok((one["metric"].clone(), value))
        };
        found.iter().map(read).collect()
    }
}

#[tokio::test]
async fn prometheus_sees_what_is_applied_and_what_fails() -> Result<()> {
    let (setup, cluster, agent_port) = (HubSetup::new("metrics").await?, TestCluster::first()?, free_port()?);
    let hub = HubProcess::start(&setup).await?;
    let listen = format!("{}:{agent_port}", Ipv4Addr::LOCALHOST);
    let env = [("ROADSTEAD_METRICS_LISTEN", listen.as_str())];
    let agent = AgentProcess::join_with_env(&hub, "edge", &cluster, &env).await?;
    let fleet = Fleet::of(setup, hub, cluster, agent).await?;
    let space = fleet.cluster.namespace("metrics").await?;
    fleet
        .apply(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: monitoring}\n\
             rules: [{nonResourceURLs: [/metrics], verbs: [get]}]\n",
        )
        .await?;
    fleet.run(&["create", "serviceaccount", "prometheus"]).await?;
    let bind = ["create", "clusterrolebinding", "monitoring", "--clusterrole=monitoring"];
    fleet.run(&[bind.as_slice(), &["--serviceaccount=apps:prometheus"]].concat()).await?;
    let token = fleet.run(&["create", "token", "prometheus"]).await?;
    let folder = tempfile::tempdir()?;
    let scraping = Scraping::start(&fleet, agent_port, token.trim(), folder.path()).await?;
    let good = Commit::new().file("map.yaml", config_map(space.name(), "map", "one"));
    let repository = fleet.repository("app", &good).await?;
    fleet.apply(&kustomization("web", "app", ".", &[])).await?;
    let expect = async |what: &str, expression: &str, is_it: &dyn Fn(&Value, f64) -> bool| {
        eventually(what, PATIENCE, || async {
            let found = scraping.of(expression).await?;
            ensure!(found.iter().any(|(labels, value)| is_it(labels, *value)), "{expression}: {found:?}");
            Ok(())
        })
        .await
    };
    let info = "gotk_resource_info{customresource_kind=\"Kustomization\",name=\"web\"}";
    expect("it is seen to be Ready", info, &|labels, value| {
        value == 1.0
            && labels["ready"] == "True"
            && labels["exported_namespace"] == "apps"
            && labels["source_name"] == "app"
            && labels["revision"].as_str().is_some_and(|revision| revision.starts_with("main@sha1:"))
    })
    .await?;
    for kind in ["Kustomization", "GitRepository"] {
        let count = format!("gotk_reconcile_duration_seconds_count{{kind=\"{kind}\"}}");
        expect("how long it took is seen", &count, &|_, value| value >= 1.0).await?;
    }
    expect("the agent is seen", "roadstead_agents_connected", &|labels, value| {
        value == 1.0 && labels["version"] == env!("CARGO_PKG_VERSION")
    })
    .await?;
    for (kind, stage) in [
        ("GitRepository", "fetch"),
        ("Kustomization", "build"),
        ("Kustomization", "dispatch"),
        ("Kustomization", "apply"),
        ("Kustomization", "validate"),
    ] {
        let count = format!("roadstead_stage_duration_seconds_count{{kind=\"{kind}\",stage=\"{stage}\"}}");
        expect("its stages are seen", &count, &|_, value| value >= 1.0).await?;
    }
    for (series, least) in [
        ("roadstead_fetches_total{kind=\"GitRepository\",result=\"fetched\"}", 1.0),
        ("roadstead_fetched_bytes_total{kind=\"GitRepository\"}", 100.0),
        ("roadstead_builds_total{result=\"made\"}", 1.0),
        ("roadstead_sessions_open", 1.0),
        ("roadstead_sessions_total", 1.0),
        ("roadstead_link_messages_total{direction=\"received\"}", 3.0),
        ("roadstead_link_bytes_total{direction=\"sent\"}", 300.0),
    ] {
        expect("what was done is seen", series, &|_, value| value >= least).await?;
    }
    for (series, least) in [
        ("roadstead_agent_build_info", 1.0),
        ("roadstead_agent_link_connected", 1.0),
        ("roadstead_agent_link_sessions_total", 1.0),
        ("roadstead_agent_link_attempts_total", 1.0),
        ("roadstead_agent_dispatches_total{result=\"succeeded\"}", 1.0),
        ("roadstead_agent_stage_duration_seconds_count{stage=\"apply\"}", 1.0),
        ("roadstead_agent_apiserver_requests_total{verb=\"read\",code=\"2xx\"}", 3.0),
        ("roadstead_agent_apiserver_requests_total{verb=\"apply\",code=\"2xx\"}", 1.0),
        ("roadstead_agent_apiserver_requests_total{verb=\"watch\",code=\"2xx\"}", 1.0),
        ("roadstead_agent_appliers", 1.0),
        ("roadstead_agent_objects", 1.0),
        ("roadstead_agent_objects_watched", 1.0),
        ("process_resident_memory_bytes{job=\"agent\"}", 1e6),
    ] {
        expect("what the agent does is seen", series, &|_, value| value >= least).await?;
    }
    let page = reqwest::get(format!("http://{listen}/metrics")).await?.text().await?;
    ensure!(!page.contains(space.name()) && !page.contains("map"), "an object is named: {page}");
    expect("the hub is seen", "process_cpu_seconds_total", &|_, value| value > 0.0).await?;
    let bad =
        Commit::new().file("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'No Name'}\n");
    repository.commit("main", "bad", &bad)?;
    fleet.fetch("app").await?;
    expect("it is seen to fail", info, &|labels, _| labels["ready"] == "False").await?;
    eventually("the rule waits for it to go on", PATIENCE, || async {
        let answer = scraping.get("alerts", &[]).await?;
        let alerts = answer["data"]["alerts"].as_array().with_context(|| answer.to_string())?;
        let is_it = |alert: &Value| {
            alert["labels"]["alertname"] == "RoadsteadObjectFailing"
                && alert["labels"]["name"] == "web"
                && alert["state"] == "pending"
        };
        ensure!(alerts.iter().any(is_it), "{answer}");
        Ok(())
    })
    .await
}
