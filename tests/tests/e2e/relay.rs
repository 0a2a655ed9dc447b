//! A fleet of which some clusters still have a Flux: what its controllers tell is told to the cluster's agent, and Alerts of the hub are for it.

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::install_crypto;
use roadstead_tests::sink::Sink;
use roadstead_tests::{
    AgentProcess, Fleet, FluxController, HubProcess, HubSetup, PATIENCE, TestCluster, eventually, free_port,
};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-flux-0123";

/// An agent that listens to a Flux, and where.
async fn listening(
    setup: &HubSetup,
    hub: &HubProcess,
    name: &str,
    cluster: &TestCluster,
) -> Result<(AgentProcess, String)> {
    let token = setup.folder().join("flux-token");
    std::fs::write(&token, TOKEN).context("write a token")?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let env = [
        ("ROADSTEAD_EVENTS_LISTEN", address.as_str()),
        ("ROADSTEAD_EVENTS_TOKEN_FILE", token.to_str().context("a path")?),
    ];
    Ok((AgentProcess::join_with_env(hub, name, cluster, &env).await?, address))
}

/// A fleet whose agent listens to a Flux, and an Alert that hears of it.
async fn fleet(sink: &Sink, name: &str, group: &str) -> Result<(Fleet, String)> {
    fleet_on(HubSetup::new(name).await?, sink, group).await
}

async fn fleet_on(setup: HubSetup, sink: &Sink, group: &str) -> Result<(Fleet, String)> {
    install_crypto();
    let setup = setup.arg("--allow-network=notify=127.0.0.1/32");
    let hub = HubProcess::start(&setup).await?;
    let cluster = TestCluster::first()?;
    let (agent, address) = listening(&setup, &hub, "edge", &cluster).await?;
    let fleet = Fleet::of(setup, hub, cluster, agent).await?;
    let url = &sink.url;
    fleet
        .apply(&format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: hook}}\nspec: {{type: generic, \
             address: '{url}/'}}\n---\napiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: mixed}}\n\
             spec:\n  providerRef: {{name: hook}}\n{group}\
             \x20 eventSources: [{{kind: Kustomization, name: '*', namespace: '*', cluster: '*'}}]\n"
        ))
        .await?;
    fleet.ready("alert/mixed").await?;
    Ok((fleet, address))
}

/// What was told of an object's severity.
async fn told(sink: &Sink, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut found = Value::Null;
    eventually("it is told", PATIENCE, || {
        let event = sink.got().into_iter().map(|(_, event)| event).find(&is_it);
        let seen = format!("it is not in {:#?}", sink.got());
        found = event.clone().unwrap_or_default();
        async move { event.map(|_| ()).context(seen) }
    })
    .await?;
    Ok(found)
}

fn event(name: &str, severity: &str, message: &str) -> Value {
    let reason = if severity == "error" { "HealthCheckFailed" } else { "ReconciliationSucceeded" };
    json!({
        "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": name,
            "namespace": "flux-system", "uid": "7d5e2c9e-9f29-4f38-8b86-9f2a4d1a2f11", "resourceVersion": "1" },
        "severity": severity, "timestamp": "2026-08-07T10:00:00Z", "message": message, "reason": reason,
        "reportingController": "kustomize-controller", "reportingInstance": "kustomize-controller-1",
    })
}

async fn post(address: &str, token: Option<&str>, body: &str) -> Result<u16> {
    let mut request = reqwest::Client::new().post(format!("http://{address}/")).body(body.to_owned());
    if let Some(token) = token {
        request = request.basic_auth("flux", Some(token));
    }
    Ok(request.send().await.context("tell an event")?.status().as_u16())
}

#[tokio::test]
async fn what_a_flux_in_a_cluster_tells_arrives_where_an_alert_of_the_hub_says() -> Result<()> {
    let sink = Sink::start().await?;
    let (fleet, address) = fleet(&sink, "relay", "").await?;
    let space = fleet.cluster.namespace("relay").await?;
    let ns = space.name();
    let flux =
        FluxController::start_telling(&fleet.cluster, ns, &format!("http://flux:{TOKEN}@{address}/")).await?;
    flux.push(&[("app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'No Name'}\n".to_owned())])
        .await?;
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": "app", "namespace": ns, "annotations": { "event.toolkit.fluxcd.io/cluster": "another" } },
        "spec": { "interval": "10m", "retryInterval": "5s", "path": "./", "prune": true, "targetNamespace": ns,
            "sourceRef": { "kind": "GitRepository", "name": "flux" } },
    });
    fleet.cluster.kubectl().run_with(&["apply", "-f", "-"], &kustomization.to_string()).await?;
    let failed = told(&sink, |event| event["severity"] == "error").await.with_context(|| flux.logs())?;
    ensure!(
        failed["involvedObject"]["name"] == "app" && failed["involvedObject"]["namespace"] == ns,
        "{failed}"
    );
    ensure!(failed["metadata"]["cluster"] == "edge" && failed["relayedFrom"] == "edge", "{failed}");
    ensure!(failed["reportingController"] == "kustomize-controller", "{failed}");
    let revision = failed["metadata"]["revision"].as_str().unwrap_or_default();
    ensure!(revision.starts_with("main@sha1:"), "{failed}");
    let config = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: app, namespace: {ns}}}\ndata: {{word: fine}}\n"
    );
    flux.push(&[("app.yaml", config)]).await?;
    let well = told(&sink, |event| event["reason"] == "ReconciliationSucceeded").await?;
    ensure!(well["severity"] == "info" && well["metadata"]["cluster"] == "edge", "{well}");
    // What is not hers to tell is refused, and why is said.
    let fine = event("x", "error", "with no token").to_string();
    for (token, body, status) in [
        (None, fine.as_str(), 401),
        (Some("another-token-0123456"), &fine, 401),
        (Some(TOKEN), "{}", 400),
        (Some(TOKEN), "not JSON", 400),
        (Some(TOKEN), &"x".repeat(300 << 10), 413),
    ] {
        let answered = post(&address, token, body).await?;
        ensure!(answered == status, "{answered} and not {status} for {} bytes", body.len());
    }
    ensure!(!sink.messages().iter().any(|message| message == "with no token"));
    Ok(())
}

#[tokio::test]
async fn nothing_that_a_flux_tells_is_lost_while_the_hub_is_away() -> Result<()> {
    let sink = Sink::start().await?;
    let (mut fleet, address) = fleet(&sink, "relay-away", "").await?;
    fleet.hub.kill9().await?;
    for number in 0..5 {
        let body = event(&format!("app-{number}"), "error", &format!("fails {number}")).to_string();
        let answered = post(&address, Some(TOKEN), &body).await?;
        ensure!(answered == 202, "{answered}");
    }
    fleet.hub = HubProcess::start(&fleet.setup).await?;
    eventually("all are told", PATIENCE, || {
        let messages = sink.messages();
        async move {
            let expected: Vec<String> = (0..5).map(|number| format!("fails {number}")).collect();
            ensure!(messages == expected, "{messages:?}");
            Ok(())
        }
    })
    .await
}

#[tokio::test]
async fn one_cause_in_two_clusters_with_a_flux_is_one_incident() -> Result<()> {
    let sink = Sink::start().await?;
    let (fleet, first) = fleet(&sink, "relay-incident", "  group: {wait: 15s}\n").await?;
    let (_agent, second) = listening(&fleet.setup, &fleet.hub, "edge-2", &TestCluster::second()?).await?;
    fleet.ready("cluster/edge-2").await?;
    for address in [&first, &second] {
        let fails = event("app", "error", "Deployment/apps/web is stalled after 10.2s").to_string();
        ensure!(post(address, Some(TOKEN), &fails).await? == 202);
    }
    let opened = told(&sink, |event| event["incident"]["stage"] == "opened").await?;
    let message = opened["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("Fails on 2 clusters for one cause."), "{opened}");
    for address in [&first, &second] {
        let well = event("app", "info", "Reconciliation finished in 2s").to_string();
        ensure!(post(address, Some(TOKEN), &well).await? == 202);
    }
    let resolved = told(&sink, |event| event["incident"]["stage"] == "resolved").await?;
    ensure!(resolved["incident"]["id"] == opened["incident"]["id"], "{resolved}");
    let told = sink.got().iter().filter(|(_, event)| event["incident"].is_object()).count();
    ensure!(told == 2, "{told} messages: {:#?}", sink.got());
    Ok(())
}

#[tokio::test]
async fn what_nothing_is_heard_of_any_more_ends_after_the_time_that_the_operator_says() -> Result<()> {
    let sink = Sink::start().await?;
    let setup = HubSetup::new("relay-unheard").await?.arg("--relayed-failure-timeout=5s");
    let (fleet, address) = fleet_on(setup, &sink, "  group: {wait: 1s}\n").await?;
    let fails = event("gone", "error", "Deployment/apps/web is stalled").to_string();
    ensure!(post(&address, Some(TOKEN), &fails).await? == 202);
    let opened = told(&sink, |event| event["incident"]["stage"] == "opened").await?;
    // Without news it is looked at only once in ten minutes.
    eventually("it ends", PATIENCE, async || {
        let news = event("other", "error", "Secret/apps/web is forbidden").to_string();
        ensure!(post(&address, Some(TOKEN), &news).await? == 202);
        let ended = sink
            .got()
            .into_iter()
            .map(|(_, event)| event)
            .find(|event| event["incident"]["stage"] == "resolved");
        let ended = ended.context("it goes on")?;
        let message = ended["message"].as_str().unwrap_or_default();
        ensure!(ended["incident"]["id"] == opened["incident"]["id"], "{ended}");
        ensure!(
            message.starts_with("Over after ") && message.contains("nothing was heard of 1 object since "),
            "{ended}"
        );
        Ok(())
    })
    .await?;
    let path = "/fleet/v1/incidents?alert=mixed";
    let listed: Value = serde_json::from_str(&fleet.run(&["get", "--raw", path]).await?)?;
    let items = listed["items"].as_array().context("items")?;
    let item = items.iter().find(|item| item["id"] == opened["incident"]["id"]).context("it is listed")?;
    ensure!(item["lapsed"] == 1 && item["ended"].is_string(), "{listed}");
    // What is refused says why.
    let alert = "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {name: mixed}\nspec:\n  providerRef: {name: hook}\n  group: {}\n\
                 \x20 eventSources: [{kind: Kustomization, name: '*', cluster: '*', statusesAndComments: true}]\n";
    let refused = fleet.apply(alert).await.err().context("it is refused")?;
    ensure!(format!("{refused:#}").contains("statusesAndComments"), "{refused:#}");
    Ok(())
}
