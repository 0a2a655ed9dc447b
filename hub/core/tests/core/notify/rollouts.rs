//! Statuses of commits that count: one for each commit and environment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::KindId;
use roadstead_hub_core::Hub;
use roadstead_hub_store::{CountedSource, Whom};
use roadstead_test_gitserver::install_crypto;
use roadstead_tests::eventually;
use roadstead_tests::sink::{Answer, Sink};
use serde_json::{Value, json};

use super::{Off, alert, count, happens, options, pass, provider};
use crate::support::{FLEET as API, Site, file, kustomization};

/// Clusters that a commit goes to: those up to this number are in production, the others for tests.
const FLEET: usize = 100;
const PRODUCTION: usize = 60;

/// A hub with an Alert of a Git service that counts, and a clock.
struct Counting {
    site: Site,
    sink: Sink,
    hub: Hub,
    clock: Arc<Off>,
}

impl Counting {
    /// With as many Kustomizations of `apps`, each on its own cluster.
    async fn new(type_: &str, group: Value, objects: usize) -> Result<Self> {
        install_crypto();
        let (site, sink) = (Site::with(options(true)).await?, Sink::start().await?);
        site.namespace("apps").await?;
        let token = json!({ "token": STANDARD.encode("t0ken") });
        site.apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": "token" }, "data": token }))
            .await?;
        let address = format!("{}/o/r.git", sink.url);
        let spec = json!({ "type": type_, "address": address, "secretRef": { "name": "token" } });
        site.apply(provider("apps", spec)).await?;
        site.source("apps", "fleet", &[file("web/a.yaml", &[])]).await?;
        for number in 1..=objects {
            let (name, env) = (format!("edge-{number}"), if number <= PRODUCTION { "prod" } else { "test" });
            let metadata = json!({ "name": name, "labels": { "env": env } });
            site.apply(json!({ "apiVersion": API, "kind": "Cluster", "metadata": metadata, "spec": {} }))
                .await?;
            let on = json!({ "clusterRef": { "name": name } });
            site.apply(kustomization("apps", &format!("web-{number}"), "./web", on)).await?;
        }
        let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
        site.apply(alert("apps", json!({ "eventSources": sources, "group": group }))).await?;
        let clock = Off::new();
        let hub = Hub::open(site.store.clone(), clock.clone(), options(true)).await?;
        Ok(Self { site, sink, hub, clock })
    }

    /// The source's commit.
    async fn commit(&self) -> Result<String> {
        let source = self.site.stored(KindId::GitRepository, "apps", "fleet").await?;
        let revision = source.object["status"]["artifact"]["revision"].as_str().context("a revision")?;
        Ok(revision.rsplit(':').next().unwrap_or_default().to_owned())
    }

    /// Has the source move on; gives the new commit.
    async fn moves_on(&self, text: &str) -> Result<String> {
        self.site.fetched("apps", "fleet", &[(text.to_owned(), String::new())]).await?;
        self.commit().await
    }

    /// Has Kustomizations of this namespace come to this at the source's revision, as if their agents had told so.
    async fn are(&self, numbers: impl Iterator<Item = usize>, status: &str, reason: &str) -> Result<()> {
        let revision = format!("main@sha1:{}", self.commit().await?);
        let mut tx = self.site.store.begin().await?;
        for number in numbers {
            let name = format!("web-{number}");
            let mut stored = tx.get(KindId::Kustomization, "apps", &name).await?.context("it")?;
            stored.object["status"] = json!({ "lastAttemptedRevision": revision, "conditions": [{
                "type": "Ready", "status": status, "reason": reason, "message": "", "observedGeneration": stored.generation,
                "lastTransitionTime": "2026-08-07T10:00:00Z" }] });
            tx.put(stored).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn ready(&self, numbers: impl Iterator<Item = usize>) -> Result<()> {
        self.are(numbers, "True", "ReconciliationSucceeded").await
    }

    /// Makes a pass at that second: what was told by then and not yet looked at, as `STATE CONTEXT: DESCRIPTION`, by context.
    async fn at(&self, second: i64, seen: &mut usize) -> Result<Vec<String>> {
        self.clock.set(second);
        pass(&self.hub, &self.site, "apps").await?;
        let all = told(&self.sink);
        let mut new = all.get(*seen..).unwrap_or_default().to_vec();
        *seen = all.len();
        new.sort();
        Ok(new)
    }
}

/// What was told, of which commit and how.
fn told(sink: &Sink) -> Vec<String> {
    let posts = sink.got().into_iter().filter(|(head, _)| head.starts_with("post "));
    let text = |body: &Value, field: &str| body[field].as_str().unwrap_or_default().to_owned();
    let one = |(_, body): (String, Value)| {
        let context = text(&body, "context");
        let context = context.rsplit_once('/').map_or(String::new(), |(named, _)| named.to_owned());
        format!("{} {context}: {}", text(&body, "state"), text(&body, "description"))
    };
    posts.map(one).collect()
}

fn by_env() -> Value {
    json!({ "environmentLabel": "env" })
}

#[tokio::test]
async fn a_commit_on_a_hundred_clusters_has_one_status_in_each_environment() -> Result<()> {
    let counting = Counting::new("gitea", by_env(), FLEET).await?;
    let (mut seen, commit) = (0, counting.commit().await?);
    let first = counting.at(0, &mut seen).await?;
    let expected = [
        "pending roadstead/alert/prod: 0 of 60 clusters ready",
        "pending roadstead/alert/test: 0 of 40 clusters ready",
    ];
    ensure!(first == expected, "{first:?}");
    let got = counting.sink.got();
    ensure!(
        got.iter()
            .filter(|(head, _)| head.starts_with(&format!("post /api/v1/repos/o/r/statuses/{commit}")))
            .count()
            == 2,
        "{got:?}"
    );
    let provider = counting.site.stored(KindId::Provider, "apps", "chat").await?.uid.to_string();
    let end = format!("/{}", provider.split('-').next().unwrap_or_default());
    ensure!(
        got.iter().filter_map(|(_, body)| body["context"].as_str()).all(|context| context.ends_with(&end))
    );
    ensure!(counting.site.ready(KindId::Alert, "apps", "alert").await?.0 == "Succeeded");
    // It grows, at most each ten seconds, whatever happens.
    counting.are(1..=FLEET, "Unknown", "Progressing").await?;
    counting.ready(1..=30).await?;
    happens(&counting.site, "apps", "web-1", "something").await?;
    ensure!(counting.at(5, &mut seen).await?.is_empty());
    let told = counting.at(10, &mut seen).await?;
    ensure!(told == ["pending roadstead/alert/prod: 30 of 60 clusters ready"], "{told:?}");
    // What waits for others has not failed.
    counting.are(61..=61, "False", "DependencyNotReady").await?;
    counting.ready(31..=60).await?;
    let told = counting.at(20, &mut seen).await?;
    ensure!(told == ["success roadstead/alert/prod: 60 of 60 clusters ready"], "{told:?}");
    counting.ready(61..=FLEET).await?;
    let told = counting.at(30, &mut seen).await?;
    ensure!(told == ["success roadstead/alert/test: 40 of 40 clusters ready"], "{told:?}");
    // Nothing more is to be told, and nothing of each object was.
    ensure!(counting.at(1_000, &mut seen).await?.is_empty() && seen == 5);
    ensure!(count(&counting.site, "SELECT count(*) FROM delivery WHERE state <> 'sent'").await? == 0);
    ensure!(count(&counting.site, "SELECT count(*) FROM incident").await? == 0);
    Ok(())
}

#[tokio::test]
async fn what_fails_is_counted_and_trying_again_is_not_told() -> Result<()> {
    let counting = Counting::new("gitea", json!({}), 10).await?;
    let mut seen = 0;
    counting.ready(1..=7).await?;
    counting.are(8..=8, "False", "BuildFailed").await?;
    let told = counting.at(0, &mut seen).await?;
    ensure!(told == ["pending roadstead/alert: 7 of 10 clusters ready, 1 failed"], "{told:?}");
    counting.are(9..=9, "False", "HealthCheckFailed").await?;
    counting.ready(10..=10).await?;
    let told = counting.at(10, &mut seen).await?;
    ensure!(told == ["failure roadstead/alert: 8 of 10 clusters ready, 2 failed"], "{told:?}");
    counting.are(8..=9, "Unknown", "Progressing").await?;
    ensure!(counting.at(20, &mut seen).await?.is_empty());
    counting.ready(8..=8).await?;
    let told = counting.at(30, &mut seen).await?;
    ensure!(told == ["failure roadstead/alert: 9 of 10 clusters ready, 1 failed"], "{told:?}");
    counting.ready(9..=9).await?;
    let told = counting.at(40, &mut seen).await?;
    ensure!(told == ["success roadstead/alert: 10 of 10 clusters ready"], "{told:?}");
    // It fails later, for a reason of its own.
    counting.are(3..=3, "False", "HealthCheckFailed").await?;
    let told = counting.at(50, &mut seen).await?;
    ensure!(told == ["failure roadstead/alert: 9 of 10 clusters ready, 1 failed"], "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_later_commit_supersedes_what_is_under_way() -> Result<()> {
    let counting = Counting::new("gitea", json!({}), 4).await?;
    let mut seen = 0;
    let first = counting.commit().await?;
    counting.ready(1..=3).await?;
    ensure!(counting.at(0, &mut seen).await? == ["pending roadstead/alert: 3 of 4 clusters ready"]);
    let second = counting.moves_on("second").await?;
    ensure!(first != second);
    let told = counting.at(10, &mut seen).await?;
    let short = second.get(..10).unwrap_or_default();
    let expected = [
        "pending roadstead/alert: 0 of 4 clusters ready".to_owned(),
        format!("warning roadstead/alert: superseded by {short}; 3 of 4 clusters were ready"),
    ];
    ensure!(told == expected, "{told:?}");
    counting.ready(1..=4).await?;
    ensure!(counting.at(20, &mut seen).await? == ["success roadstead/alert: 4 of 4 clusters ready"]);
    // What came to its end stays as it is.
    let third = counting.moves_on("third").await?;
    ensure!(counting.at(30, &mut seen).await? == ["pending roadstead/alert: 0 of 4 clusters ready"]);
    let lines = counting.sink.got();
    ensure!(lines.last().is_some_and(|(head, _)| head.contains(&third)), "{lines:?}");
    // The source's move is what has it counted, before any applier does anything.
    let mut tx = counting.site.store.begin().await?;
    let moved = Whom { sources: true, ..Whom::default() };
    let concerned = tx.concerned(KindId::GitRepository, "apps", "fleet", moved).await?;
    ensure!(concerned.alerts == [counting.site.stored(KindId::Alert, "apps", "alert").await?.uid]);
    let other = tx.concerned(KindId::GitRepository, "apps", "other", moved).await?;
    ensure!(other.alerts.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_hub_that_goes_in_the_middle_leaves_no_status_behind() -> Result<()> {
    let counting = Counting::new("gitea", json!({}), 4).await?;
    let mut seen = 0;
    counting.ready(1..=1).await?;
    counting.sink.answers(&[Answer::Http(200, "", "[]"), Answer::Hang]);
    let uid = counting.site.stored(KindId::Alert, "apps", "alert").await?.uid;
    let hub = counting.hub.clone();
    let gone = tokio::spawn(async move { hub.notify.process_alert(uid).await });
    eventually("the first is being sent", Duration::from_secs(20), async || {
        ensure!(counting.sink.got().len() == 2);
        Ok(())
    })
    .await?;
    gone.abort();
    counting.ready(2..=4).await?;
    let store = counting.site.other_store().await?;
    let other = Hub::open(store, counting.clock.clone(), options(true)).await?;
    counting.clock.set(10);
    pass(&other, &counting.site, "apps").await?;
    let all = told(&counting.sink);
    let pending = "pending roadstead/alert: 1 of 4 clusters ready";
    ensure!(all == [pending, pending, "success roadstead/alert: 4 of 4 clusters ready"], "{all:?}");
    // One that cannot be reached is told what holds then, once.
    counting.moves_on("second").await?;
    seen += all.len();
    counting.sink.answers(&[Answer::Http(503, "", ""), Answer::Http(503, "", "")]);
    ensure!(counting.at(20, &mut seen).await?.is_empty());
    counting.ready(1..=2).await?;
    ensure!(counting.at(30, &mut seen).await?.is_empty());
    counting.ready(3..=4).await?;
    counting.clock.set(40);
    pass(&counting.hub, &counting.site, "apps").await?;
    let told = counting.at(60, &mut seen).await?;
    ensure!(told == ["success roadstead/alert: 4 of 4 clusters ready"], "{told:?}");
    ensure!(count(&counting.site, "SELECT count(*) FROM delivery WHERE state <> 'sent'").await? == 0);
    Ok(())
}

#[tokio::test]
async fn an_alert_counts_what_it_selects() -> Result<()> {
    let counting = Counting::new("gitea", json!({}), 4).await?;
    let (site, mut seen) = (&counting.site, 0);
    ensure!(counting.at(0, &mut seen).await? == ["pending roadstead/alert: 0 of 4 clusters ready"]);
    let sources = |source: Value| json!({ "eventSources": [source], "group": {} });
    let edge = json!({ "matchExpressions": [{ "key": "env", "operator": "In", "values": ["prod"] }] });
    site.apply(alert(
        "apps",
        sources(json!({ "kind": "Kustomization", "name": "web-1", "clusterSelector": edge })),
    ))
    .await?;
    ensure!(counting.at(10, &mut seen).await? == ["pending roadstead/alert: 0 of 1 cluster ready"]);
    // By labels, of which one object has them; twice meant is once counted.
    let mut labelled = kustomization("apps", "web-2", "./web", json!({ "clusterRef": { "name": "edge-2" } }));
    labelled["metadata"]["labels"] = json!({ "tier": "front" });
    site.apply(labelled).await?;
    let twice = json!([{ "kind": "Kustomization", "name": "*", "matchLabels": { "tier": "front" } },
        { "kind": "Kustomization", "name": "web-2" }, { "kind": "Kustomization", "name": "web-3" }]);
    site.apply(alert("apps", json!({ "eventSources": twice, "group": {} }))).await?;
    ensure!(counting.at(20, &mut seen).await? == ["pending roadstead/alert: 0 of 2 clusters ready"]);
    // What is suspended or pinned follows no commit, and what is on no cluster is counted one by one.
    site.apply(alert("apps", sources(json!({ "kind": "Kustomization", "name": "*" })))).await?;
    for (name, more) in [
        ("web-1", json!({ "clusterRef": { "name": "edge-1" }, "suspend": true })),
        (
            "web-2",
            json!({ "clusterRef": { "name": "edge-2" }, "pin": { "revision": format!("main@sha1:{}", "0".repeat(40)) } }),
        ),
        ("beside", json!({})),
    ] {
        site.apply(kustomization("apps", name, "./web", more)).await?;
    }
    ensure!(counting.at(30, &mut seen).await? == ["pending roadstead/alert: 0 of 3 Kustomizations ready"]);
    // Of nothing nothing comes.
    site.apply(alert("apps", sources(json!({ "kind": "Kustomization", "name": "none" })))).await?;
    let told = counting.at(40, &mut seen).await?;
    let ended = "warning roadstead/alert: not counted any more; 0 of 3 Kustomizations were ready";
    ensure!(told == [ended], "{told:?}");
    site.apply(alert("apps", sources(json!({ "kind": "Kustomization", "name": "web-3" })))).await?;
    ensure!(counting.at(50, &mut seen).await? == ["pending roadstead/alert: 0 of 1 cluster ready"]);
    // One that does not group any more ends what it began, and is told of each object as before.
    site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] }))).await?;
    let told = counting.at(60, &mut seen).await?;
    ensure!(told == ["warning roadstead/alert: not counted any more; 0 of 1 cluster were ready"], "{told:?}");
    Ok(())
}

#[tokio::test]
async fn an_alert_counts_only_what_it_may_hear_of() -> Result<()> {
    let counting = Counting::new("gitea", json!({}), 2).await?;
    let (site, mut seen) = (&counting.site, 0);
    site.namespace("other").await?;
    let reference = json!({ "sourceRef": { "kind": "GitRepository", "name": "fleet", "namespace": "apps" } });
    for name in ["web-1", "web-2", "web-3"] {
        site.apply(kustomization("other", name, "./web", reference.clone())).await?;
    }
    let member = site.member("apps").await?;
    let all = |namespace: &str| {
        json!({ "group": {}, "eventSources": [{ "kind": "Kustomization", "name": "*" },
            { "kind": "Kustomization", "name": "*", "namespace": namespace }] })
    };
    site.delete(KindId::Alert, "apps", "alert").await?;
    site.apply_as(&member, alert("apps", all("*"))).await?;
    let told = counting.at(0, &mut seen).await?;
    ensure!(told == ["pending roadstead/alert: 0 of 2 clusters ready"], "{told:?}");
    ensure!(site.ready(KindId::Alert, "apps", "alert").await?.0 == "AccessDenied");
    site.apply(json!({ "apiVersion": API, "kind": "ReferenceGrant", "metadata": { "namespace": "other", "name": "alerts" },
        "spec": { "from": [{ "group": "notification.toolkit.fluxcd.io", "kind": "Alert", "namespace": "apps" }],
            "to": [{ "group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": "web-1" }] } }))
        .await?;
    ensure!(counting.at(10, &mut seen).await? == ["pending roadstead/alert: 0 of 3 Kustomizations ready"]);
    site.delete(KindId::ReferenceGrant, "other", "alerts").await?;
    ensure!(counting.at(20, &mut seen).await? == ["pending roadstead/alert: 0 of 2 clusters ready"]);
    // By the right of who writes it.
    site.apply(alert("apps", all("other"))).await?;
    ensure!(counting.at(30, &mut seen).await? == ["pending roadstead/alert: 0 of 5 Kustomizations ready"]);
    site.apply(alert("apps", all("*"))).await?;
    ensure!(counting.at(40, &mut seen).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn an_alert_that_is_gone_tells_nothing_and_leaves_nothing() -> Result<()> {
    let counting = Counting::new("gitea", json!({}), 2).await?;
    let mut seen = 0;
    counting.sink.answers(&[Answer::Http(503, "", "")]);
    ensure!(counting.at(0, &mut seen).await?.is_empty());
    ensure!(count(&counting.site, "SELECT count(*) FROM rollout WHERE verdict = 'pending'").await? == 1);
    let uid = counting.site.stored(KindId::Alert, "apps", "alert").await?.uid;
    counting.site.delete(KindId::Alert, "apps", "alert").await?;
    counting.clock.set(100);
    counting.hub.notify.process_alert(uid).await?;
    ensure!(told(&counting.sink).is_empty());
    let left = "SELECT (SELECT count(*) FROM rollout) + (SELECT count(*) FROM rollout_count) + (SELECT count(*) FROM delivery)";
    ensure!(count(&counting.site, left).await? == 0);
    Ok(())
}

#[tokio::test]
async fn comments_are_of_objects_and_old_statuses_are_forgotten() -> Result<()> {
    let counting = Counting::new("gitea", json!({}), 1).await?;
    let (site, mut seen) = (&counting.site, 0);
    counting.ready(1..=1).await?;
    ensure!(counting.at(0, &mut seen).await? == ["success roadstead/alert: 1 of 1 cluster ready"]);
    site.store.trim_deliveries(counting.hub.now() + Duration::from_secs(1), 1_000).await?;
    ensure!(count(site, "SELECT count(*) FROM rollout").await? == 0);
    let spec = json!({ "type": "giteapullrequestcomment", "address": format!("{}/o/r", counting.sink.url),
        "secretRef": { "name": "token" } });
    site.apply(provider("apps", spec)).await?;
    ensure!(counting.at(20, &mut seen).await?.is_empty());
    let (reason, message) = site.ready(KindId::Alert, "apps", "alert").await?;
    ensure!(reason == "ValidationFailed" && message.contains("spec.group"), "{reason}: {message}");
    Ok(())
}

#[tokio::test]
async fn ten_thousand_appliers_are_counted_in_one_statement() -> Result<()> {
    let counting = Counting::new("gitea", json!({}), 1).await?;
    counting.ready(1..=1).await?;
    let mut connection = counting.site.database.connect().await?;
    sqlx::raw_sql(
        "INSERT INTO resource (uid, api_group, kind, namespace, name, generation, resource_version, object, refers_to)
         SELECT gen_random_uuid(), api_group, kind, namespace, 'more-' || n, generation, resource_version + n,
                jsonb_set(jsonb_set(object, '{spec,clusterRef,name}', to_jsonb('more-' || n)),
                          '{metadata,annotations}', jsonb_build_object('filler', (SELECT string_agg(md5(n::text || i), '')
                                                                                  FROM generate_series(1, 100) AS i))), refers_to
         FROM resource, generate_series(1, 9999) AS n WHERE kind = 'Kustomization' AND name = 'web-1';
         ANALYZE resource",
    )
    .execute(&mut connection)
    .await?;
    let all = |labels: Value| -> Result<CountedSource> {
        let labels = serde_json::from_value(labels)?;
        Ok(CountedSource {
            name: "*".to_owned(),
            labels,
            namespaces: Some(vec!["apps".to_owned()]),
            clusters: None,
        })
    };
    for (labels, expected) in [(json!({}), 10_000), (json!({ "none": "x" }), 0)] {
        let source = all(labels)?;
        let mut tx = counting.site.store.begin().await?;
        let began = Instant::now();
        let counted = tx.count_appliers(&[source]).await?;
        let took = began.elapsed();
        println!("{expected} of 10000 appliers counted in {took:?}");
        ensure!(
            counted.iter().map(|one| one.ready).sum::<i64>() == expected && took < Duration::from_secs(5)
        );
    }
    let (mut seen, began) = (0, Instant::now());
    ensure!(counting.at(0, &mut seen).await? == ["success roadstead/alert: 10000 of 10000 clusters ready"]);
    println!("the pass took {:?}", began.elapsed());
    Ok(())
}
