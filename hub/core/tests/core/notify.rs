//! Events that Alerts are for: that they arrive, what becomes of those that do not, and whose they may be.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod bus;
mod closings;
mod clouds;
mod ends;
mod forward;
mod git;
mod incidents;
mod jumps;
mod relayed;
mod rollouts;
mod selectors;
mod silences;
mod tally;
mod together;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use roadstead_api::KindId;
use roadstead_hub_core::{Clock, Hub, HubOptions, Outbound};
use roadstead_hub_store::NewsItem;
use roadstead_outbound::{Policy, Proxies};
use roadstead_test_gitserver::install_crypto;
use roadstead_tests::eventually;
use roadstead_tests::sink::{Answer, Sink};
use serde_json::{Value, json};

use crate::support::{FLEET, Site, git_repository, kustomization};

const NOTIFICATION: &str = "notification.toolkit.fluxcd.io/v1beta3";
const CANARY: &str = "c4n4ry-th4t-n0b0dy-t3lls";

/// A time that stands still, so many seconds after another.
struct Off(Timestamp, AtomicI64);

impl Off {
    fn new() -> Arc<Self> {
        Arc::new(Self(Timestamp::now(), AtomicI64::new(0)))
    }

    fn set(&self, seconds: i64) {
        self.1.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for Off {
    fn now(&self) -> Timestamp {
        self.0 + SignedDuration::from_secs(self.1.load(Ordering::Relaxed))
    }
}

fn options(plain_http_credentials: bool) -> HubOptions {
    let policy = Arc::new(Policy::new(vec!["notify=127.0.0.1/32".parse().unwrap()]));
    let outbound = Outbound { policy, proxies: Arc::new(Proxies::none()), plain_http_credentials };
    HubOptions { outbound, ..HubOptions::default() }
}

/// A hub with an Alert for all Kustomizations of `apps`, and a clock.
struct Alerted {
    site: Site,
    sink: Sink,
    hub: Hub,
    clock: Arc<Off>,
}

impl Alerted {
    async fn new(type_: &str) -> Result<Self> {
        Self::with(type_, options(false)).await
    }

    async fn with(type_: &str, options: HubOptions) -> Result<Self> {
        install_crypto();
        let site = Site::with(options.clone()).await?;
        let sink = Sink::start().await?;
        site.namespace("apps").await?;
        site.apply(provider("apps", json!({ "type": type_, "address": sink.url, "channel": "room" })))
            .await?;
        site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] })))
            .await?;
        let clock = Off::new();
        let hub = Hub::open(site.store.clone(), clock.clone(), options).await?;
        Ok(Self { site, sink, hub, clock })
    }

    /// Has something happen to a Kustomization of `apps`.
    async fn happens(&self, message: &str) -> Result<()> {
        happens(&self.site, "apps", "web", message).await
    }

    /// Sorts, and makes a pass over the Alert: when the next one is due, in seconds.
    async fn pass(&self) -> Result<f64> {
        pass(&self.hub, &self.site, "apps").await
    }

    /// Makes a pass at that second: what was sent by then, in all.
    async fn at(&self, second: i64) -> Result<Vec<String>> {
        self.clock.set(second);
        self.pass().await?;
        Ok(self.sink.messages())
    }

    async fn is_ready(&self) -> Result<(String, String)> {
        self.site.ready(KindId::Alert, "apps", "alert").await
    }

    async fn states(&self) -> Result<Vec<(String, i32)>> {
        let mut connection = self.site.database.connect().await?;
        let states = sqlx::query_as("SELECT state, attempts FROM delivery ORDER BY id");
        Ok(states.fetch_all(&mut connection).await?)
    }
}

async fn pass(hub: &Hub, site: &Site, namespace: &str) -> Result<f64> {
    while hub.notify.sort().await? {}
    let uid = site.stored(KindId::Alert, namespace, "alert").await?.uid;
    let next = hub.notify.process_alert(uid).await?;
    Ok(next.duration_since(hub.now()).as_secs_f64())
}

fn event(namespace: &str, name: &str, message: &str, severity: &str) -> Value {
    json!({
        "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": name,
            "namespace": namespace, "uid": "u" },
        "severity": severity, "timestamp": "2026-08-07T10:00:00Z", "message": message, "reason": "BuildFailed",
        "reportingController": "roadstead-hub",
    })
}

fn news(namespace: &str, name: &str, message: &str, severity: &str) -> NewsItem {
    NewsItem {
        kind: "Kustomization".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        is_error: severity == "error",
        condition: Some("Ready"),
        event: event(namespace, name, message, severity),
        labels: BTreeMap::new(),
        cluster: Some("edge-1".to_owned()),
    }
}

async fn happens(site: &Site, namespace: &str, name: &str, message: &str) -> Result<()> {
    let mut tx = site.store.begin().await?;
    tx.tell(news(namespace, name, message, "error"));
    tx.commit().await?;
    Ok(())
}

fn provider(namespace: &str, spec: Value) -> Value {
    let metadata = json!({ "namespace": namespace, "name": "chat" });
    let mut provider = json!({ "apiVersion": NOTIFICATION, "kind": "Provider", "metadata": metadata });
    provider["spec"] = spec;
    provider
}

fn alert(namespace: &str, more: Value) -> Value {
    let mut spec = json!({ "providerRef": { "name": "chat" } });
    if let Value::Object(more) = more {
        for (key, value) in more {
            spec[key] = value;
        }
    }
    json!({ "apiVersion": NOTIFICATION, "kind": "Alert", "metadata": { "namespace": namespace, "name": "alert" }, "spec": spec })
}

async fn count(site: &Site, sql: &'static str) -> Result<i64> {
    let mut connection = site.database.connect().await?;
    Ok(sqlx::query_scalar(sql).fetch_one(&mut connection).await?)
}

#[tokio::test]
async fn what_happens_to_a_kustomization_is_told_in_the_form_of_flux() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.cluster("edge-1", json!([{ "namespace": "apps", "agentRights": true }])).await?;
    let mut object = kustomization("apps", "web", "./web", json!({ "clusterRef": { "name": "edge-1" } }));
    object["metadata"]["annotations"] = json!({ "event.toolkit.fluxcd.io/team": "blue" });
    site.apply(object).await?;
    let (reason, message) = site.process("apps", "web").await?;
    alerted.pass().await?;
    let got = alerted.sink.got();
    ensure!(got.len() == 1, "{got:?}");
    let (head, body) = &got[0];
    ensure!(head.starts_with("post / http/1.1") && head.contains("gotk-component: roadstead-hub"), "{head}");
    ensure!(body["reason"] == reason.as_str() && body["message"] == message.as_str(), "{body}");
    ensure!(body["severity"] == "error" && body["involvedObject"]["kind"] == "Kustomization", "{body}");
    ensure!(body["metadata"] == json!({ "team": "blue", "cluster": "edge-1" }), "{body}");
    ensure!(alerted.is_ready().await?.0 == "Succeeded");
    // The same again is not news, and nothing is sent a second time.
    site.ask("apps", "web").await?;
    site.process("apps", "web").await?;
    alerted.pass().await?;
    ensure!(alerted.sink.got().len() == 1);
    Ok(())
}

#[tokio::test]
async fn whoever_waits_for_a_source_that_fails_is_not_what_fails() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.cluster("edge-1", json!([{ "namespace": "apps", "agentRights": true }])).await?;
    let object = kustomization("apps", "web", "./web", json!({ "clusterRef": { "name": "edge-1" } }));
    site.apply(object).await?;
    let told = async || {
        let (reason, message) = site.process("apps", "web").await?;
        ensure!(reason == "ArtifactFailed", "{reason}: {message}");
        alerted.pass().await?;
        let got = alerted.sink.got();
        let last = got.last().map(|(_, event)| event.clone()).unwrap_or_default();
        ensure!(last["message"] == message.as_str(), "{message}: {last}");
        Ok(last["severity"].clone())
    };
    // Of what is not there, nothing else tells.
    ensure!(told().await? == "error");
    site.apply(git_repository("apps", "fleet", "https://git.example.com/fleet.git")).await?;
    ensure!(told().await? == "info");
    Ok(())
}

#[tokio::test]
async fn what_nobody_listens_to_leaves_nothing_behind() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    // Not committed, it has not happened.
    let mut tx = site.store.begin().await?;
    tx.tell(news("apps", "web", "rolled back", "error"));
    drop(tx);
    happens(site, "other", "web", "of another namespace").await?;
    ensure!(count(site, "SELECT count(*) FROM news").await? == 0);
    let errors =
        json!({ "eventSeverity": "error", "eventSources": [{ "kind": "Kustomization", "name": "web" }] });
    site.apply(alert("apps", errors)).await?;
    let mut tx = site.store.begin().await?;
    tx.tell(news("apps", "web", "no failure", "info"));
    tx.tell(news("apps", "api", "of another name", "error"));
    tx.tell(news("apps", "web", "this one", "error"));
    tx.commit().await?;
    ensure!(count(site, "SELECT count(*) FROM news").await? == 1);
    site.delete(KindId::Alert, "apps", "alert").await?;
    alerted.happens("with no Alert left").await?;
    alerted.hub.notify.sort().await?;
    ensure!(count(site, "SELECT count(*) FROM news").await? == 0);
    ensure!(count(site, "SELECT count(*) FROM delivery").await? == 0);
    Ok(())
}

#[tokio::test]
async fn an_alert_that_cannot_be_read_holds_up_no_other() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.namespace("other").await?;
    let sources = json!({ "eventSources": [{ "kind": "Kustomization", "name": "*", "namespace": "apps" }] });
    site.apply(alert("other", sources)).await?;
    // As a version that did not look at Alerts may have stored it.
    sqlx::query("UPDATE resource SET object = jsonb_set(object, '{spec,eventSources}', '7') WHERE kind = 'Alert' AND namespace = 'other'")
        .execute(&mut site.database.connect().await?)
        .await?;
    alerted.happens("heard all the same").await?;
    alerted.pass().await?;
    ensure!(alerted.sink.messages() == ["heard all the same"], "{:?}", alerted.sink.messages());
    Ok(())
}

#[tokio::test]
async fn what_is_not_taken_is_tried_again_in_its_order_and_when_it_is_asked_for() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    alerted.sink.answers(&[Answer::Http(503, "retry-after: 70\r\n", "")]);
    for message in ["first", "second"] {
        alerted.happens(message).await?;
    }
    let next = alerted.pass().await?;
    ensure!((60.0..=70.0).contains(&next), "{next}");
    let (reason, message) = alerted.is_ready().await?;
    ensure!(reason == "NotificationDispatchFailed" && message.contains("HTTP 503"), "{reason}: {message}");
    // Not sooner, whoever asks.
    alerted.pass().await?;
    ensure!(
        alerted.sink.messages() == ["first"] && alerted.is_ready().await?.0 == "NotificationDispatchFailed"
    );
    alerted.clock.set(71);
    // Without being asked, it waits for two seconds and longer each time.
    alerted.sink.answers(&[Answer::Http(500, "", ""), Answer::Http(429, "", "")]);
    let next = alerted.pass().await?;
    ensure!((3.0..=5.0).contains(&next), "{next}");
    alerted.clock.set(77);
    let next = alerted.pass().await?;
    ensure!((7.0..=10.0).contains(&next), "{next}");
    alerted.clock.set(90);
    alerted.pass().await?;
    ensure!(alerted.sink.messages() == ["first", "first", "first", "first", "second"]);
    ensure!(alerted.is_ready().await?.0 == "Succeeded");
    ensure!(alerted.states().await? == [("sent".to_owned(), 4), ("sent".to_owned(), 1)]);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_sent_is_given_up_and_what_is_not_understood_holds_up_nothing() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    alerted
        .sink
        .answers(&[Answer::Http(422, "", ""), Answer::Http(302, "location: http://10.0.0.1/\r\n", "")]);
    for message in ["not understood", "led elsewhere"] {
        alerted.happens(message).await?;
    }
    alerted.pass().await?;
    ensure!(alerted.states().await? == [("failed".to_owned(), 1), ("waiting".to_owned(), 1)]);
    let (_, message) = alerted.is_ready().await?;
    ensure!(message.contains("HTTP 302"), "{message}");
    alerted.clock.set(7 * 3600);
    alerted.pass().await?;
    ensure!(alerted.states().await? == [("failed".to_owned(), 1), ("failed".to_owned(), 1)]);
    ensure!(alerted.sink.got().len() == 2);
    // What failed has not been told: the same again is news.
    alerted.happens("led elsewhere").await?;
    alerted.pass().await?;
    ensure!(alerted.sink.messages().last().map(String::as_str) == Some("led elsewhere"));
    Ok(())
}

#[tokio::test]
async fn a_hub_that_goes_in_the_middle_loses_nothing_and_doubles_one_at_most() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    alerted.sink.answers(&[Answer::Hang]);
    for message in ["first", "second"] {
        alerted.happens(message).await?;
    }
    // It goes before its events are sorted; while they are; and while the first of them is sent.
    while alerted.hub.notify.sort().await? {}
    let uid = alerted.site.stored(KindId::Alert, "apps", "alert").await?.uid;
    let hub = alerted.hub.clone();
    let gone = tokio::spawn(async move { hub.notify.process_alert(uid).await });
    eventually("the first is being sent", Duration::from_secs(10), async || {
        ensure!(alerted.sink.got().len() == 1);
        Ok(())
    })
    .await?;
    gone.abort();
    let other = Hub::open(alerted.site.other_store().await?, alerted.clock.clone(), options(false)).await?;
    pass(&other, &alerted.site, "apps").await?;
    pass(&other, &alerted.site, "apps").await?;
    ensure!(alerted.sink.messages() == ["first", "first", "second"]);
    let repeats = alerted
        .sink
        .got()
        .iter()
        .map(|(head, _)| head.contains("x-roadstead-repeat: true"))
        .collect::<Vec<_>>();
    ensure!(repeats == [false, true, false], "{repeats:?}");
    ensure!(alerted.states().await?.iter().all(|(state, _)| state == "sent"));
    Ok(())
}

#[tokio::test]
async fn a_service_that_hangs_or_floods_costs_its_timeout_and_no_memory() -> Result<()> {
    let alerted = Alerted::new("lark").await?;
    let spec = json!({ "type": "lark", "address": alerted.sink.url, "timeout": "1s" });
    alerted.site.apply(provider("apps", spec)).await?;
    alerted.sink.answers(&[Answer::Hang]);
    alerted.happens("slow").await?;
    let began = Instant::now();
    alerted.pass().await?;
    ensure!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let (_, message) = alerted.is_ready().await?;
    ensure!(message.contains("did not answer within 1s"), "{message}");
    // It answered 200 and says no in its body.
    alerted.clock.set(10);
    alerted.sink.answers(&[Answer::Http(200, "", r#"{"code":19021,"msg":"sign match fail"}"#)]);
    alerted.pass().await?;
    let (_, message) = alerted.is_ready().await?;
    ensure!(message.contains("code 19021") && !message.contains("sign match"), "{message}");
    ensure!(alerted.states().await? == [("waiting".to_owned(), 2)]);
    alerted.clock.set(30);
    alerted.sink.answers(&[Answer::Flood]);
    let began = Instant::now();
    alerted.pass().await?;
    ensure!(began.elapsed() < Duration::from_secs(5) && alerted.states().await? == [("sent".to_owned(), 3)]);
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_rotated_while_an_event_is_sent_is_used_the_next_time() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let secret = async |token: &str| {
        let headers = format!("Authorization: Bearer {token}\n");
        site.apply(
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": "chat" },
            "data": { "address": STANDARD.encode(&alerted.sink.url), "headers": STANDARD.encode(headers) } }),
        )
        .await
    };
    let (hub, sink) =
        (Hub::open(site.store.clone(), alerted.clock.clone(), options(true)).await?, &alerted.sink);
    secret("the-old-one").await?;
    site.apply(provider("apps", json!({ "type": "generic", "secretRef": { "name": "chat" } }))).await?;
    sink.answers(&[Answer::Http(401, "", "")]);
    alerted.happens("first").await?;
    alerted.happens("second").await?;
    pass(&hub, site, "apps").await?;
    secret("the-new-one").await?;
    alerted.clock.set(60);
    pass(&hub, site, "apps").await?;
    let tokens: Vec<bool> = sink.got().iter().map(|(head, _)| head.contains("bearer the-new-one")).collect();
    ensure!(
        sink.messages() == ["first", "first", "second"] && tokens == [false, true, true],
        "{:?}",
        sink.got()
    );
    Ok(())
}

#[tokio::test]
async fn what_is_secret_is_nowhere_but_on_its_way() -> Result<()> {
    install_crypto();
    let site = Site::with(options(true)).await?;
    let sink = Sink::start().await?;
    site.namespace("apps").await?;
    let data = |text: String| STANDARD.encode(text);
    site.apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": "hook" }, "data": {
        "address": data(format!("{}/{CANARY}?k={CANARY}", sink.url)), "token": data(CANARY.to_owned()),
        "headers": data(format!("X-Own: {CANARY}")),
    } }))
    .await?;
    site.apply(provider("apps", json!({ "type": "generic-hmac", "secretRef": { "name": "hook" } }))).await?;
    site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] }))).await?;
    let uid = site.stored(KindId::Provider, "apps", "chat").await?.uid;
    site.hub.notify.process_provider(uid).await?;
    ensure!(site.ready(KindId::Provider, "apps", "chat").await?.0 == "Succeeded");
    // A service that repeats what it was sent.
    sink.answers(&[Answer::Http(500, "", CANARY), Answer::Http(400, "", CANARY)]);
    for message in ["first", "second"] {
        happens(&site, "apps", "web", message).await?;
        pass(&site.hub, &site, "apps").await?;
    }
    let got = sink.got();
    ensure!(
        got[0].0.contains(&format!("x-own: {CANARY}")) && got[0].0.contains("x-signature: sha256="),
        "{got:?}"
    );
    let told = "SELECT (SELECT count(*) FROM delivery WHERE delivery::text LIKE '%c4n4ry%')
                     + (SELECT count(*) FROM resource WHERE object::text LIKE '%c4n4ry%')
                     + (SELECT count(*) FROM resource_event WHERE object::text LIKE '%c4n4ry%')
                     + (SELECT count(*) FROM audit WHERE audit::text LIKE '%c4n4ry%')";
    ensure!(count(&site, told).await? == 0);
    // Its host is where it goes; a Secret goes nowhere in the clear unless the operator says so.
    let strict = Hub::open(site.store.clone(), Off::new(), options(false)).await?;
    strict.notify.process_provider(uid).await?;
    let (reason, message) = site.ready(KindId::Provider, "apps", "chat").await?;
    ensure!(reason == "AccessDenied" && message.contains("plain HTTP"), "{reason}: {message}");
    Ok(())
}

#[tokio::test]
async fn an_alert_hears_of_other_namespaces_by_its_writers_right_or_a_grant() -> Result<()> {
    install_crypto();
    let site = Site::with(options(false)).await?;
    let sink = Sink::start().await?;
    for namespace in ["team-a", "team-b"] {
        site.namespace(namespace).await?;
    }
    let member = site.member("team-a").await?;
    site.apply_as(&member, provider("team-a", json!({ "type": "generic", "address": sink.url }))).await?;
    let all = |namespace: &str| {
        json!({ "eventSources": [
        { "kind": "Kustomization", "name": "*" }, { "kind": "Kustomization", "name": "*", "namespace": namespace } ] })
    };
    for namespace in ["team-b", "*"] {
        site.apply_as(&member, alert("team-a", all(namespace))).await?;
        happens(&site, "team-b", "web", &format!("of another team, by {namespace}")).await?;
        happens(&site, "team-a", "web", &format!("of this team, by {namespace}")).await?;
        pass(&site.hub, &site, "team-a").await?;
        let (reason, message) = site.ready(KindId::Alert, "team-a", "alert").await?;
        ensure!(reason == "AccessDenied" && message.contains("spec.eventSources[1]"), "{reason}: {message}");
    }
    // What is its own arrives all the same.
    ensure!(sink.messages() == ["of this team, by team-b", "of this team, by *"], "{:?}", sink.messages());
    site.apply(json!({ "apiVersion": FLEET, "kind": "ReferenceGrant", "metadata": { "namespace": "team-b", "name": "alerts" },
        "spec": { "from": [{ "group": "notification.toolkit.fluxcd.io", "kind": "Alert", "namespace": "team-a" }],
            "to": [{ "group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": "web" }] } }))
        .await?;
    happens(&site, "team-b", "web", "granted").await?;
    happens(&site, "team-b", "api", "not granted").await?;
    pass(&site.hub, &site, "team-a").await?;
    ensure!(sink.messages().last().map(String::as_str) == Some("granted"), "{:?}", sink.messages());
    site.delete(KindId::ReferenceGrant, "team-b", "alerts").await?;
    happens(&site, "team-b", "web", "not any more").await?;
    pass(&site.hub, &site, "team-a").await?;
    ensure!(sink.messages().len() == 3);
    // Whoever may list them everywhere writes that all are meant. That the same is written once more by somebody else gives no leave.
    site.apply(alert("team-a", all("*"))).await?;
    happens(&site, "team-b", "api", "written by another").await?;
    pass(&site.hub, &site, "team-a").await?;
    ensure!(sink.messages().len() == 3);
    site.apply(alert("team-a", all("team-a"))).await?;
    site.apply(alert("team-a", all("*"))).await?;
    happens(&site, "team-b", "api", "by right").await?;
    pass(&site.hub, &site, "team-a").await?;
    ensure!(sink.messages().last().map(String::as_str) == Some("by right"));
    ensure!(site.ready(KindId::Alert, "team-a", "alert").await?.0 == "Succeeded");
    Ok(())
}

#[tokio::test]
async fn ten_thousand_failures_are_bounded_and_the_number_of_those_left_out_is_told() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let began = Instant::now();
    for batch in 0..100 {
        let mut tx = alerted.site.store.begin().await?;
        for n in 0..100 {
            tx.tell(news("apps", &format!("web-{n}"), &format!("failure {batch}"), "error"));
        }
        tx.commit().await?;
    }
    let written = began.elapsed();
    while alerted.hub.notify.sort().await? {}
    let sorted = began.elapsed() - written;
    println!("10000 events: written in {written:?}, sorted in {sorted:?}");
    let waiting = count(&alerted.site, "SELECT count(*) FROM delivery WHERE state = 'waiting'").await?;
    ensure!(waiting == 1_000, "{waiting}");
    alerted.sink.answers(&[Answer::Http(503, "", "")]);
    alerted.pass().await?;
    let (_, message) = alerted.is_ready().await?;
    ensure!(message.contains("9000 of them were left out"), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_provider_says_what_is_wrong_with_it() -> Result<()> {
    install_crypto();
    let site = Site::new().await?;
    let sink = Sink::start().await?;
    site.namespace("apps").await?;
    for (name, key) in [("half", "password"), ("token", "token")] {
        site.apply(
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": name },
            "data": { key: STANDARD.encode("x") } }),
        )
        .await?;
    }
    for (spec, reason, part) in [
        (json!({ "type": "slack" }), "ValidationFailed", "no address"),
        (json!({ "type": "slack", "address": "slack" }), "ValidationFailed", "not a URL"),
        (
            json!({ "type": "slack", "address": "https://x.test", "secretRef": { "name": "none" } }),
            "TokenNotFound",
            "apps/none",
        ),
        (
            json!({ "type": "slack", "address": "https://x.test", "secretRef": { "name": "half" } }),
            "ValidationFailed",
            "no username",
        ),
        (
            json!({ "type": "github", "address": "https://github.com/o/r" }),
            "ValidationFailed",
            "must have a `token`",
        ),
        (
            json!({ "type": "gitea", "address": "https://x.test/o", "secretRef": { "name": "token" } }),
            "ValidationFailed",
            "OWNER/NAME",
        ),
        (
            json!({ "type": "gitea", "address": "https://x.test/o/r", "secretRef": { "name": "token" },
                "commitStatusExpr": "event.reason + secret" }),
            "ValidationFailed",
            "spec.commitStatusExpr",
        ),
        (
            json!({ "type": "gitea", "address": "git@x.test:o/r.git", "secretRef": { "name": "token" } }),
            "Succeeded",
            "can be sent",
        ),
        (json!({ "type": "generic", "address": sink.url }), "Succeeded", "can be sent"),
    ] {
        site.apply(provider("apps", spec.clone())).await?;
        let uid = site.stored(KindId::Provider, "apps", "chat").await?.uid;
        site.hub.notify.process_provider(uid).await?;
        let (told, message) = site.ready(KindId::Provider, "apps", "chat").await?;
        ensure!(told == reason && message.contains(part), "{spec}: {told}: {message}");
    }
    // Addresses of this machine are for nobody to send to.
    site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] }))).await?;
    happens(&site, "apps", "web", "to the inside").await?;
    pass(&site.hub, &site, "apps").await?;
    let (_, message) = site.ready(KindId::Alert, "apps", "alert").await?;
    ensure!(message.contains("--allow-network notify=") && sink.got().is_empty(), "{message}");
    site.delete(KindId::Provider, "apps", "chat").await?;
    pass(&site.hub, &site, "apps").await?;
    let (reason, message) = site.ready(KindId::Alert, "apps", "alert").await?;
    ensure!(reason == "NotFound" && message.contains("apps/chat"), "{reason}: {message}");
    Ok(())
}
