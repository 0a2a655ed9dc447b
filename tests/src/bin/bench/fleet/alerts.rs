//! One commit that fails on every cluster: what is told of that, and when. A Provider that is down for a while; and how many events that
//! a cluster's Flux tells are relayed and delivered a second.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use roadstead_proto::v1::{ObjectRef, RelayedEvent, RelayedEvents, agent_message};
use roadstead_tests::gitserver::{GitServer, Options};
use roadstead_tests::sink::{Answer, Sink};
use roadstead_tests::{EnrolledAgent, HubProcess, HubSetup, eventually};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::agent::Counts;
use super::{AT_ONCE, PATIENCE, SERVER, applied, commit, fetch, on_board, source};
use crate::api::Api;
use crate::figures::{Figure, Report};

/// How large it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    /// Simulated clusters.
    pub(crate) clusters: usize,
    /// How long the Provider is down.
    pub(crate) down: Duration,
    /// Events that are relayed.
    pub(crate) relayed: usize,
}

const NOTIFICATION: &str = "/apis/notification.toolkit.fluxcd.io/v1beta3/namespaces/default";
/// Events in one message of an agent's.
const OF_MESSAGE: usize = 50;

/// Measures all of it on one hub.
pub(crate) async fn measure(report: &mut Report, outage: Outage) -> Result<()> {
    let setup = HubSetup::new("bench-alerts").await?.arg("--allow-network=notify=127.0.0.1/32");
    let hub = HubProcess::start(&setup).await?;
    let api = Api::of(hub.kubectl()).await?;
    let server = GitServer::start(Options::default()).await?;
    let repository = source(&api, &server).await?;
    let counts = Arc::new(Counts::default());
    let mut background = JoinSet::new();
    let agents: Vec<_> = futures::stream::iter(0..outage.clusters)
        .map(|index| on_board(&api, index))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    for agent in agents {
        background.spawn(agent.keep(Arc::clone(&counts)));
    }
    applied(&api, &counts, outage.clusters).await?;

    let own = json!([{ "kind": "Kustomization", "name": "*" }]);
    let grouped = listen(&api, "grouped", json!({ "eventSources": own, "group": {} })).await?;
    let single = listen(&api, "single", json!({ "eventSources": own, "eventSeverity": "error" })).await?;
    single.answers_always(Answer::Http(503, "", ""));
    let began = Instant::now();
    counts.fails.store(true, Ordering::Relaxed);
    commit(&repository, "bad")?;
    fetch(&api, "bad").await?;
    let opened = until(&grouped, "opened").await?;
    let first = began.elapsed();
    tokio::time::sleep(outage.down.saturating_sub(began.elapsed())).await;
    single.answers_always(Answer::Http(200, "", ""));
    let back = Instant::now();
    // Each tried event is one post more while it is down: what counts is that each object is among them at the end.
    let told = || -> usize {
        let names = single.got().into_iter().map(|(_, event)| event["involvedObject"]["name"].to_string());
        names.collect::<std::collections::BTreeSet<_>>().len()
    };
    eventually("each failure has arrived", PATIENCE * 5, || async {
        ensure!(told() == outage.clusters, "{} of {}", told(), outage.clusters);
        Ok(())
    })
    .await?;
    let values = vec![
        ("lost".into(), (outage.clusters - told()) as f64),
        ("s until all have arrived".into(), back.elapsed().as_secs_f64()),
    ];
    let name = format!("a Provider that is down for {:?}, {} events", outage.down, outage.clusters);
    report.add(SERVER, Figure { name, values });

    counts.fails.store(false, Ordering::Relaxed);
    commit(&repository, "good")?;
    let mended = Instant::now();
    fetch(&api, "good").await?;
    until(&grouped, "resolved").await?;
    let values = vec![
        ("messages".into(), grouped.got().len() as f64),
        ("s until the first".into(), first.as_secs_f64()),
        ("clusters in it".into(), opened["incident"]["clusters"].as_f64().context("a count")?),
        ("s from the mending commit until it is resolved".into(), mended.elapsed().as_secs_f64()),
    ];
    let name = format!("a commit that fails on {} clusters", outage.clusters);
    report.add(SERVER, Figure { name, values });
    relayed(report, &api, outage.relayed).await
}

/// A Provider and an Alert of this name, and where it sends to.
async fn listen(api: &Api, name: &str, mut spec: Value) -> Result<Sink> {
    let sink = Sink::start().await?;
    let make = async |kind: &str, plural: &str, spec: &Value| {
        let object = json!({ "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": kind,
            "metadata": { "name": name }, "spec": spec });
        let path = format!("{NOTIFICATION}/{plural}");
        api.ask(Method::POST, &path, "application/json", object.to_string()).await.map(drop)
    };
    make("Provider", "providers", &json!({ "type": "generic", "address": sink.url })).await?;
    spec["providerRef"] = json!({ "name": name });
    make("Alert", "alerts", &spec).await?;
    Ok(sink)
}

/// Waits for the message of an incident in this stage.
async fn until(sink: &Sink, stage: &str) -> Result<Value> {
    let mut found = Value::Null;
    eventually(&format!("an incident is {stage}"), PATIENCE, || {
        let event =
            sink.got().into_iter().map(|(_, event)| event).find(|event| event["incident"]["stage"] == stage);
        found = event.clone().unwrap_or_default();
        async move {
            ensure!(event.is_some());
            Ok(())
        }
    })
    .await?;
    Ok(found)
}

/// Has one cluster's Flux tell so many events, each of another object, which one Alert sends one after the other.
async fn relayed(report: &mut Report, api: &Api, count: usize) -> Result<()> {
    let clusters = "/apis/fleet.roadstead.dev/v1alpha1/clusters";
    let cluster = json!({ "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": "flux" }, "spec": {} });
    api.ask(Method::POST, clusters, "application/json", cluster.to_string()).await?;
    let join = api.post(&format!("{clusters}/flux/jointoken"), &json!({})).await?;
    let agent =
        EnrolledAgent::join(api.http(), api.server(), &join, &uuid::Uuid::new_v4().to_string()).await?;
    let sources = json!([{ "kind": "Kustomization", "name": "*", "namespace": "*", "cluster": "*" }]);
    let sink = listen(api, "relayed", json!({ "eventSources": sources })).await?;
    let mut session = agent.session().await?;
    let began = Instant::now();
    for first in (0..count).step_by(OF_MESSAGE) {
        let events = (first..(first + OF_MESSAGE).min(count)).map(event).collect();
        session.say(agent_message::Body::RelayedEvents(RelayedEvents { events })).await?;
    }
    eventually("all have arrived", PATIENCE * 5, || async {
        let got = sink.got().len();
        ensure!(got == count, "{got} of {count}");
        Ok(())
    })
    .await?;
    let values =
        vec![("a second, relayed, sorted and sent".into(), count as f64 / began.elapsed().as_secs_f64())];
    report.add(SERVER, Figure { name: format!("{count} events of one Flux, one Alert"), values });
    Ok(())
}

fn event(number: usize) -> RelayedEvent {
    RelayedEvent {
        object: Some(ObjectRef {
            group: "kustomize.toolkit.fluxcd.io".to_owned(),
            version: "v1".to_owned(),
            kind: "Kustomization".to_owned(),
            namespace: "flux-system".to_owned(),
            name: format!("app-{number}"),
        }),
        uid: number.to_string(),
        is_error: true,
        timestamp: "2026-01-01T00:00:00Z".to_owned(),
        message: "Deployment/apps/web: timed out waiting for it to become Ready".to_owned(),
        reason: "HealthCheckFailed".to_owned(),
        reporting_controller: "kustomize-controller".to_owned(),
        ..RelayedEvent::default()
    }
}
