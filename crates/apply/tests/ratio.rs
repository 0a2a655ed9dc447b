//! The budget: from a new revision to applied takes at most 1.5 times as long as a bare loop of dry-run and write for
//! the same objects at the same concurrency.

#[expect(dead_code, reason = "the other tests use the rest of it")]
#[cfg(test)]
mod support;

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use roadstead_apply::{Desired, IgnoreRules, Manifest, Options, Run};
use roadstead_model::ApplierUid;
use serde_json::{Value, json};
use support::{Fixture, config_map, deployment, service};
use tokio::time::Instant;

const SETS: usize = 50;
const CONCURRENCY: usize = 8;
const ROUNDS: usize = 3;

/// What one Kustomization applies.
fn set(number: usize) -> Vec<Value> {
    let name = format!("app-{number}");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    // No replicas: what controllers do meanwhile is not what is measured.
    vec![config_map(&name, "1"), account, service(&name), deployment(&name, 0, &json!({}))]
}

/// Nothing but the requests, object by object.
async fn bare(fixture: &Fixture) -> Result<Duration> {
    let objects: Vec<Value> = (0..SETS).flat_map(set).collect();
    let namespace = &fixture.namespace;
    let began = Instant::now();
    futures::stream::iter(objects.into_iter().map(|object| async move {
        let (root, plural) = match object["kind"].as_str() {
            Some("ConfigMap") => ("/api/v1", "configmaps"),
            Some("ServiceAccount") => ("/api/v1", "serviceaccounts"),
            Some("Service") => ("/api/v1", "services"),
            _ => ("/apis/apps/v1", "deployments"),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        for dry_run in ["&dryRun=All", ""] {
            let path = format!(
                "{root}/namespaces/{namespace}/{plural}/{name}?fieldManager=bare&force=true{dry_run}"
            );
            let request = Request::patch(path)
                .header("content-type", "application/apply-patch+yaml")
                .body(object.to_string().into_bytes())?;
            let _: Value = fixture.client.request(request).await?;
        }
        anyhow::Ok(())
    }))
    .buffer_unordered(CONCURRENCY)
    .try_collect::<Vec<()>>()
    .await?;
    Ok(began.elapsed())
}

/// The engine, all sets at once.
async fn engine(fixture: &Fixture) -> Result<Duration> {
    let began = Instant::now();
    let sets = (0..SETS).map(|number| async move {
        let mut events = |_| ();
        let mut run = Run::new(began + Duration::from_secs(120), fixture.cancel.clone(), &mut events);
        let desired = Desired {
            owner: ApplierUid::random(),
            manifests: set(number).into_iter().map(Manifest::from).collect(),
            default_namespace: fixture.namespace.clone(),
            adopt_flux: false,
            adopt_managers: Vec::new(),
            force: false,
            ignore: IgnoreRules::default(),
            tenant: String::new(),
        };
        let prepared = fixture.engine.prepare(desired, &mut run).await?;
        anyhow::Ok(fixture.engine.apply(&prepared, &[], &mut run).await.into_result()?)
    });
    let outcomes = futures::future::try_join_all(sets).await?;
    let elapsed = began.elapsed();
    anyhow::ensure!(outcomes.iter().all(|outcome| outcome.changes.len() == 4), "not everything was applied");
    Ok(elapsed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applying_costs_little_more_than_its_requests() -> Result<()> {
    let (mut bare_best, mut engine_best) = (Duration::MAX, Duration::MAX);
    // In turns, and the best of each: what else the machine does hits both.
    for _ in 0..ROUNDS {
        let options = Options { concurrency: CONCURRENCY, in_flight: CONCURRENCY, ..Options::default() };
        bare_best = bare_best.min(bare(&Fixture::with(options.clone()).await?).await?);
        engine_best = engine_best.min(engine(&Fixture::with(options).await?).await?);
    }
    let ratio = engine_best.as_secs_f64() / bare_best.as_secs_f64();
    println!("{} objects: bare {bare_best:?}, engine {engine_best:?}, ratio {ratio:.2}", SETS * 4);
    assert!(ratio <= 1.5, "bare {bare_best:?}, engine {engine_best:?}, ratio {ratio:.2}");
    Ok(())
}
