//! The same sources at the same servers, fetched by Flux's own source-controller and by a hub: what both tell of them, and what is in their
//! artifacts, side by side.

mod content;
mod differences;
mod pair;
mod scenarios;

use anyhow::{Context, Result};
use futures::future::join_all;
use roadstead_tests::{ChartServer, Fleet, FluxSources, HubSetup, LOGIN, ObjectStore, Registry, TestCluster};

use crate::parity::{Finding, judge};
use differences::DIFFERENCES;
use pair::Pair;
use scenarios::{SCENARIOS, Servers};

/// What both sides know of the servers: authorities and credentials.
async fn introduce(pair: &Pair<'_>, servers: &Servers) -> Result<()> {
    let pem = pair.fleet.git.ca_pem().context("a server over HTTPS")?;
    pair.secret("git", &[("ca.crt", pem)]).await?;
    let of_registry = std::fs::read_to_string(servers.registry.ca())?;
    let of_store = std::fs::read_to_string(servers.store.ca())?;
    pair.secret("registry-ca", &[("ca.crt", &of_registry)]).await?;
    pair.secret("store-ca", &[("ca.crt", &of_store)]).await?;
    pair.secret("charts-ca", &[("ca.crt", servers.charts.pem())]).await?;
    let (id, key) = servers.store.keys();
    pair.secret("store", &[("accesskey", id), ("secretkey", key)]).await?;
    pair.secret("charts", &[("username", LOGIN.0), ("password", LOGIN.1)]).await?;
    let login = serde_json::json!({ "auths": { servers.registry.host(): { "username": LOGIN.0, "password": LOGIN.1 } } });
    let registry = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": { "name": "registry", "namespace": pair.ns },
        "stringData": { ".dockerconfigjson": login.to_string() },
    });
    pair.everywhere(&registry.to_string()).await
}

#[tokio::test]
async fn what_flux_tells_of_a_source_the_hub_tells_too() -> Result<()> {
    let mut setup = HubSetup::new("source-parity").await?;
    for purpose in ["oci", "bucket", "helm"] {
        setup = setup.arg(&format!("--allow-network={purpose}=127.0.0.0/8"));
    }
    let fleet = Fleet::start_on(setup).await?;
    let second = TestCluster::second()?;
    let space = second.namespace("source-parity").await?;
    let ns = space.name();
    fleet.kubectl().run(&["create", "namespace", ns]).await?;
    let servers = Servers {
        registry: Registry::start().await?,
        store: ObjectStore::s3().await?,
        charts: ChartServer::start().await?,
    };
    let flux = FluxSources::start(&second, ns).await?;
    let pairs: Vec<Pair<'_>> =
        SCENARIOS.iter().map(|(kind, name)| Pair::new((&fleet, &flux), ns, (kind, name))).collect();
    introduce(pairs.first().context("no scenarios")?, &servers).await?;
    let ends = join_all(pairs.iter().map(|pair| scenarios::run(pair, &servers))).await;
    let failed: Vec<String> =
        ends.iter().filter_map(|end| end.as_ref().err()).map(|e| format!("{e:#}")).collect();
    let findings: Vec<Finding> = pairs.iter().flat_map(|pair| pair.findings.take()).collect();
    judge(&failed, &findings, DIFFERENCES)
}
