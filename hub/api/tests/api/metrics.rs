//! Metrics: who may read them, and what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use roadstead_model::{Queue, ResourceUid};
use roadstead_tests::eventually;

use crate::support::{Replica, Site, client};

/// What the repository ships for Prometheus and Grafana.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/monitoring");
const PATIENCE: Duration = Duration::from_secs(20);

async fn read(hub: &Replica, token: Option<&str>) -> Result<(StatusCode, String, String)> {
    let request = client(hub)?.get(format!("{}/metrics", hub.url));
    let request = token.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth);
    let answer = request.send().await?;
    let form = answer.headers().get("content-type").and_then(|form| form.to_str().ok()).unwrap_or_default();
    let form = form.to_owned();
    Ok((answer.status(), form, answer.text().await?))
}

/// Every sample, by its name and labels.
fn samples(text: &str) -> Result<BTreeMap<String, f64>> {
    let mut samples = BTreeMap::new();
    ensure!(text.ends_with("# EOF\n"), "it has no end");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
        let value = value.parse().with_context(|| line.to_owned())?;
        ensure!(samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
    }
    Ok(samples)
}

#[tokio::test]
async fn metrics_tell_of_queues_objects_and_the_process() -> Result<()> {
    let site = Site::new().await?;
    let hub = site.replica().await?;
    hub.kubectl
        .apply(
            "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: app}\n\
             spec: {url: 'https://git.example/c4n4ry', interval: 1h, suspend: true}\n---\n\
             apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: web}\n\
             spec: {path: ./, prune: true, interval: 1h, sourceRef: {kind: GitRepository, name: app}}\n",
        )
        .await?;
    let uid = hub.kubectl.run(&["get", "gitrepository", "app", "-o", "jsonpath={.metadata.uid}"]).await?;
    let uid = ResourceUid(uid.trim().parse()?);
    hub.hub.metrics.passed(Queue::Source, uid, Duration::from_millis(1_500), false);
    hub.hub.metrics.passed(Queue::Source, uid, Duration::from_millis(100), true);
    // Of what does not exist any more nothing is told.
    for _ in 0..3_000 {
        hub.hub.metrics.passed(Queue::Receiver, ResourceUid::random(), Duration::ZERO, false);
    }
    let (status, form, text) = read(&hub, Some(&hub.token)).await?;
    ensure!(status == StatusCode::OK && form.starts_with("application/openmetrics-text"), "{status} {form}");
    let samples = samples(&text)?;
    for queue in Queue::ALL {
        for name in ["roadstead_queue_due", "roadstead_queue_claimed", "roadstead_queue_oldest_seconds"] {
            let series = format!("{name}{{queue=\"{}\"}}", queue.as_str());
            ensure!(samples.contains_key(&series), "no {series} in {text}");
        }
    }
    let of = |series: &str| samples.get(series).copied().with_context(|| format!("no {series} in {text}"));
    // No task runs here, so it stays due.
    ensure!(of("roadstead_queue_due{queue=\"source\"}")? >= 1.0, "{text}");
    ensure!(of("roadstead_pass_failures_total{queue=\"source\"}")? == 1.0);
    ensure!(of("roadstead_pass_duration_seconds_count{queue=\"receiver\"}")? == 3_000.0);
    let object = "kind=\"GitRepository\",namespace=\"default\",name=\"app\"";
    ensure!(of(&format!("gotk_reconcile_duration_seconds_count{{{object}}}"))? == 2.0);
    ensure!((of(&format!("gotk_reconcile_duration_seconds_sum{{{object}}}"))? - 1.6).abs() < 1e-6);
    ensure!(of(&format!("gotk_reconcile_duration_seconds_bucket{{le=\"1.0\",{object}}}"))? == 1.0);
    let timed = samples.keys().filter(|series| series.starts_with("gotk_reconcile_duration_seconds_count"));
    ensure!(timed.count() == 1, "{text}");
    let info = |parts: &[&str]| {
        let is_it = |series: &&String| {
            series.starts_with("gotk_resource_info{") && parts.iter().all(|part| series.contains(part))
        };
        samples.keys().filter(is_it).count()
    };
    let source =
        ["customresource_kind=\"GitRepository\"", "name=\"app\"", "suspended=\"true\"", "ready=\"Unknown\""];
    ensure!(info(&source) == 1, "{text}");
    let applier = [
        "customresource_group=\"kustomize.toolkit.fluxcd.io\"",
        "customresource_version=\"v1\"",
        "exported_namespace=\"default\"",
        "name=\"web\"",
        "source_name=\"app\"",
        "suspended=\"false\"",
    ];
    ensure!(info(&applier) == 1, "{text}");
    ensure!(
        of("process_resident_memory_bytes")? > 1e6 && of("process_start_time_seconds")? > 1.7e9,
        "{text}"
    );
    ensure!(of("process_cpu_seconds_total")? > 0.0 && of("process_open_fds")? > 3.0, "{text}");
    ensure!(of("roadstead_database_connections{pool=\"reads\"}")? >= 1.0, "{text}");
    // What was asked of the API, and what that asked of the database.
    for series in [
        "roadstead_api_requests_total{verb=\"create\",code=\"2xx\"}",
        "roadstead_api_request_duration_seconds_count{verb=\"read\"}",
        "roadstead_api_requests_open",
        "roadstead_database_statement_duration_seconds_count{class=\"single\"}",
        "roadstead_database_statement_duration_seconds_count{class=\"unit\"}",
        "roadstead_database_statement_duration_seconds_count{class=\"commit\"}",
    ] {
        ensure!(of(series)? >= 1.0, "{series} in {text}");
    }
    let (begun, ended) = (
        of("roadstead_database_statement_duration_seconds_count{class=\"begin\"}")?,
        of("roadstead_database_statement_duration_seconds_count{class=\"commit\"}")?,
    );
    ensure!(begun >= ended, "{begun} and {ended}");
    for series in [
        "roadstead_api_requests_total{verb=\"other\",code=\"5xx\"}",
        "roadstead_database_errors_total{reason=\"unavailable\"}",
        "roadstead_builds_total{result=\"cached\"}",
        "roadstead_sessions_open",
        "roadstead_sessions_ended_total{reason=\"silence\"}",
        "roadstead_link_bytes_total{direction=\"sent\"}",
        "roadstead_watches_open",
        "roadstead_queue_wait_seconds_count{queue=\"applier\"}",
    ] {
        ensure!(of(series)? == 0.0, "{series} in {text}");
    }
    ensure!(of("roadstead_audit_unsealed")? >= 2.0, "no sealer runs here: {text}");
    ensure!(!text.contains("c4n4ry") && !text.contains("git.example"), "an address is told");
    // What is shipped for monitoring asks for what there is.
    for file in ["rules.yaml", "dashboard.json"] {
        let shipped = std::fs::read_to_string(format!("{SHIPPED}/{file}"))?;
        let names: BTreeSet<&str> = shipped
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            // What agents serve is looked for by a test of theirs.
            .filter(|word| !word.starts_with("roadstead_agent_"))
            .filter(|word| ["gotk_", "roadstead_", "process_"].iter().any(|begin| word.starts_with(begin)))
            .collect();
        ensure!(names.len() >= 5, "{file}: {names:?}");
        for name in names {
            let family = ["_bucket", "_count", "_sum", "_total"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(name);
            ensure!(
                text.contains(&format!("# TYPE {family} ")),
                "{file} asks for {name}, which is not there"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn open_watches_and_refused_requests_are_counted() -> Result<()> {
    let site = Site::new().await?;
    let hub = site.replica().await?;
    let url = format!("{}/api/v1/namespaces/default/configmaps?watch=1", hub.url);
    let watch = client(&hub)?.get(&url).bearer_auth(&hub.token).send().await?.error_for_status()?;
    ensure!(client(&hub)?.get(&url).send().await?.status() == StatusCode::UNAUTHORIZED);
    let of = async |series: &str| {
        let samples = samples(&read(&hub, Some(&hub.token)).await?.2)?;
        samples.get(series).copied().with_context(|| series.to_owned())
    };
    eventually("the watch is counted", PATIENCE, || async {
        let (open, refused) = (
            of("roadstead_watches_open").await?,
            of("roadstead_api_requests_total{verb=\"watch\",code=\"4xx\"}").await?,
        );
        ensure!(open == 1.0 && refused == 1.0, "{open} open, {refused} refused");
        Ok(())
    })
    .await?;
    drop(watch);
    eventually("it is counted no more", PATIENCE, || async {
        let open = of("roadstead_watches_open").await?;
        ensure!(open == 0.0, "{open} open");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn metrics_are_for_whom_a_role_lets_read_them() -> Result<()> {
    let site = Site::new().await?;
    let hub = site.replica().await?;
    let jane = hub.hub.identity.create_access_token("jane", &[], None).await?;
    ensure!(read(&hub, None).await?.0 == StatusCode::UNAUTHORIZED);
    ensure!(read(&hub, Some(jane.expose())).await?.0 == StatusCode::FORBIDDEN);
    hub.kubectl
        .apply(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: monitoring}\n\
             rules: [{nonResourceURLs: [/metrics], verbs: [get]}]\n",
        )
        .await?;
    let bind = ["create", "clusterrolebinding", "monitoring", "--clusterrole=monitoring", "--user=jane"];
    hub.kubectl.run(&bind).await?;
    eventually("jane may read them", PATIENCE, || async {
        ensure!(read(&hub, Some(jane.expose())).await?.0 == StatusCode::OK);
        Ok(())
    })
    .await?;
    ensure!(read(&hub, None).await?.0 == StatusCode::UNAUTHORIZED);
    Ok(())
}
