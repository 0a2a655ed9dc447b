//! Events that controllers of Flux in clusters tell: for which Alerts they are, and what becomes of them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_core::clusters::pki::AgentIdentity;
use roadstead_hub_core::clusters::{Greeting, Session};
use roadstead_hub_core::identity::Identity;
use roadstead_model::{
    Capabilities, ClusterUid, EventFilter, KubeSystemUid, ObjectRef, RelayedEvent, ResourceUid,
};
use roadstead_tests::eventually;
use roadstead_tests::sink::Answer;
use serde_json::{Value, json};

use super::{Alerted, alert, count, happens, pass, provider};
use crate::support::FLEET;

/// A Cluster, and a session of its agent.
pub(super) async fn session(alerted: &Alerted, name: &str, spec: Value) -> Result<Session> {
    let site = &alerted.site;
    let cluster =
        json!({ "apiVersion": FLEET, "kind": "Cluster", "metadata": { "name": name }, "spec": spec });
    let made = site.apply(cluster).await?;
    let cluster: ClusterUid = made["metadata"]["uid"].as_str().context("a uid")?.parse()?;
    let identity = AgentIdentity { cluster, public_key: vec![1], expires: Timestamp::MAX };
    let (kube_system, now) = (KubeSystemUid::random(), alerted.hub.now());
    let mut tx = site.store.begin().await?;
    tx.identify_cluster(cluster, kube_system, now).await?;
    tx.set_agent_key(cluster, &identity.public_key, now).await?;
    tx.commit().await?;
    begin(alerted, &identity, kube_system.to_string()).await
}

async fn begin(alerted: &Alerted, identity: &AgentIdentity, kube_system_uid: String) -> Result<Session> {
    let greeting = Greeting {
        agent_version: "0.1.0".to_owned(),
        kubernetes_version: "v1.36.0".to_owned(),
        kube_system_uid,
        image: None,
        upgrade: None,
        clock: None,
        capabilities: Capabilities::of_this_agent(),
        seen: Vec::new(),
    };
    Ok(alerted.hub.sessions.begin(identity, &greeting).await?.session)
}

pub(super) fn event(name: &str, message: &str, is_error: bool) -> RelayedEvent {
    let text = |text: &str| text.to_owned();
    let reason = if is_error { "BuildFailed" } else { "ReconciliationSucceeded" };
    RelayedEvent {
        object: ObjectRef {
            group: text("kustomize.toolkit.fluxcd.io"),
            version: text("v1"),
            kind: text("Kustomization"),
            namespace: text("apps"),
            name: text(name),
        },
        uid: text("7"),
        is_error,
        timestamp: text("2026-01-01T00:00:00Z"),
        message: text(message),
        reason: text(reason),
        reporting_controller: text("kustomize-controller"),
        reporting_instance: String::new(),
        metadata: BTreeMap::from([(text("event.toolkit.fluxcd.io/change_request"), text("7"))]),
    }
}

pub(super) fn of_clusters(cluster: &str) -> Value {
    json!({ "kind": "Kustomization", "name": "*", "cluster": cluster })
}

#[tokio::test]
async fn they_are_for_sources_that_name_the_cluster_and_no_others() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let [one, two] =
        [session(&alerted, "edge-1", json!({})).await?, session(&alerted, "edge-2", json!({})).await?];
    let fails = async || {
        for session in [&one, &two] {
            alerted
                .hub
                .notify
                .relay(session, vec![event("web", &format!("on {}", session.name), true)])
                .await?;
        }
        anyhow::Ok(())
    };
    fails().await?;
    alerted.pass().await?;
    ensure!(alerted.sink.messages().is_empty(), "{:?}", alerted.sink.messages());
    ensure!(count(site, "SELECT count(*) FROM relayed_news").await? == 0, "what nobody hears is kept");
    site.apply(alert("apps", json!({ "eventSources": [of_clusters("edge-1")] }))).await?;
    fails().await?;
    happens(site, "apps", "web", "of the hub").await?;
    alerted.pass().await?;
    let got = alerted.sink.got();
    ensure!(got.len() == 1, "{got:#?}");
    let told = &got[0].1;
    ensure!(told["message"] == "on edge-1" && told["relayedFrom"] == "edge-1", "{told}");
    ensure!(told["metadata"]["cluster"] == "edge-1", "{told}");
    ensure!(told["reportingController"] == "kustomize-controller", "{told}");
    // The same of another cluster is news of its own; of the same one it is none.
    site.apply(alert("apps", json!({ "eventSources": [of_clusters("*")] }))).await?;
    for session in [&one, &two, &two] {
        alerted.hub.notify.relay(session, vec![event("api", "the same", true)]).await?;
    }
    alerted.pass().await?;
    let clusters: Vec<Value> =
        alerted.sink.got()[1..].iter().map(|(_, event)| event["relayedFrom"].clone()).collect();
    ensure!(clusters == ["edge-1", "edge-2"], "{clusters:?}");
    // Of a session that is not the cluster's any more nothing is taken.
    let again = session_again(&alerted, &two).await?;
    ensure!(alerted.hub.notify.relay(&two, vec![event("api", "late", true)]).await.is_err());
    alerted.hub.notify.relay(&again, vec![event("api", "in time", true)]).await?;
    alerted.pass().await?;
    ensure!(alerted.sink.messages().last().map(String::as_str) == Some("in time"));
    Ok(())
}

/// Another session of a cluster whose agent has one.
async fn session_again(alerted: &Alerted, before: &Session) -> Result<Session> {
    let identity = AgentIdentity { cluster: before.cluster, public_key: vec![1], expires: Timestamp::MAX };
    let mut connection = alerted.site.database.connect().await?;
    let kube_system: String =
        sqlx::query_scalar("SELECT kube_system_uid::text FROM cluster_identity WHERE cluster_uid = $1")
            .bind(before.cluster.0)
            .fetch_one(&mut connection)
            .await?;
    begin(alerted, &identity, kube_system).await
}

#[tokio::test]
async fn an_alert_hears_of_a_cluster_by_its_writers_right_or_as_the_cluster_says() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.namespace("team-a").await?;
    let edge = session(&alerted, "edge", json!({})).await?;
    // To deploy to a cluster is another right.
    let member = site.member("team-a").await?;
    site.apply_as(&member, provider("team-a", json!({ "type": "generic", "address": alerted.sink.url })))
        .await?;
    let all = json!({ "kind": "Kustomization", "name": "*", "namespace": "*", "cluster": "edge" });
    let of = |more: Value| {
        let mut sources = vec![all.clone()];
        sources.extend(more.as_array().cloned().unwrap_or_default());
        alert("team-a", json!({ "eventSources": sources }))
    };
    let tell = async |message: &str| {
        alerted.hub.notify.relay(&edge, vec![event("web", message, true)]).await?;
        pass(&alerted.hub, site, "team-a").await?;
        Ok::<_, anyhow::Error>(alerted.sink.messages())
    };
    site.apply_as(&member, of(json!([]))).await?;
    ensure!(tell("without the right").await?.is_empty());
    let (reason, message) = site.ready(KindId::Alert, "team-a", "alert").await?;
    ensure!(
        reason == "AccessDenied" && message.contains("clusters/events") && message.contains("eventReaders"),
        "{reason}: {message}"
    );
    let readers = |names: Value| json!({ "apiVersion": FLEET, "kind": "Cluster", "metadata": { "name": "edge" }, "spec": { "eventReaders": names } });
    site.apply(readers(json!(["team-b"]))).await?;
    ensure!(tell("for another team").await?.is_empty());
    site.apply(readers(json!(["team-b", "team-a"]))).await?;
    ensure!(tell("as the cluster says").await? == ["as the cluster says"]);
    ensure!(site.ready(KindId::Alert, "team-a", "alert").await?.0 == "Succeeded");
    site.apply(readers(json!([]))).await?;
    ensure!(tell("not any more").await?.len() == 1);
    // Somebody with the right writes it; who has it not may not write it again without taking that out.
    let group = "rbac.authorization.k8s.io";
    let (version, subjects) =
        (format!("{group}/v1"), json!([{ "kind": "User", "apiGroup": group, "name": "admin-of-team-a" }]));
    site.apply(json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": "reader" }, "rules": [
        { "apiGroups": ["fleet.roadstead.dev"], "resources": ["clusters/events"], "resourceNames": ["edge"], "verbs": ["get"] }] }))
        .await?;
    site.apply(
        json!({ "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "reader" }, "subjects": subjects }),
    )
    .await?;
    eventually("the right is known", std::time::Duration::from_secs(10), async || {
        Ok(member.authorize("get", KindId::Cluster.get(), "events", "", "edge")?)
    })
    .await?;
    let more = json!([{ "kind": "Kustomization", "name": "other" }]);
    site.apply_as(&member, of(more)).await?;
    ensure!(tell("by the writer's right").await?.len() == 2, "{:?}", alerted.sink.messages());
    Ok(())
}

#[tokio::test]
async fn whoever_may_get_them_sees_them_in_the_stream() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.namespace("team-a").await?;
    let [one, two] =
        [session(&alerted, "edge-1", json!({})).await?, session(&alerted, "edge-2", json!({})).await?];
    let (hub, admin) = (&alerted.hub, Identity::hub());
    let member = site.member("team-a").await?;
    let seen = async |who: &Identity, cluster: &str| {
        let filter = EventFilter {
            kind: "Kustomization".to_owned(),
            cluster: cluster.to_owned(),
            ..EventFilter::default()
        };
        let (events, _) = hub.views.events(who, &filter, None, 500).await?;
        let told = events.into_iter().filter_map(|event| Some((event.cluster?, event.message, event.count)));
        anyhow::Ok(told.collect::<Vec<_>>())
    };
    let told = |cluster: &str, message: &str, count: i64| (cluster.to_owned(), message.to_owned(), count);
    hub.notify.relay(&one, vec![event("web", "it fails", true), event("web", "it fails", true)]).await?;
    hub.notify.relay(&one, vec![event("web", "it fails", true)]).await?;
    hub.notify.relay(&two, vec![event("web", "it fails", true)]).await?;
    let mut all = seen(&admin, "").await?;
    all.sort();
    ensure!(all == [told("edge-1", "it fails", 3), told("edge-2", "it fails", 1)], "{all:?}");
    ensure!(seen(&admin, "edge-2").await? == [told("edge-2", "it fails", 1)]);
    // To see what happens on the hub in a namespace of that name is another right.
    ensure!(seen(&member, "").await?.is_empty() && seen(&member, "edge-1").await?.is_empty());
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    site.apply(json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": "reader" }, "rules": [
        { "apiGroups": ["fleet.roadstead.dev"], "resources": ["clusters/events"], "resourceNames": ["edge-1"], "verbs": ["get"] }] }))
        .await?;
    site.apply(
        json!({ "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "reader" },
        "subjects": [{ "kind": "User", "apiGroup": group, "name": "admin-of-team-a" }] }),
    )
    .await?;
    eventually("the right is known", std::time::Duration::from_secs(10), async || {
        ensure!(seen(&member, "").await? == [told("edge-1", "it fails", 3)]);
        Ok(())
    })
    .await?;
    ensure!(seen(&member, "edge-2").await?.is_empty());
    // A cluster that tells very much drops its own, and no others.
    for batch in 0..3 {
        let many = (0..100).map(|number| event("web", &format!("{batch} {number}"), false)).collect();
        hub.notify.relay(&one, many).await?;
    }
    let (of_one, of_two) = (seen(&admin, "edge-1").await?, seen(&admin, "edge-2").await?);
    ensure!(of_one.len() == 250 && of_two.len() == 1, "{} and {}", of_one.len(), of_two.len());
    // They go with their Cluster: another one of its name may be for others to see.
    let mut tx = site.store.begin().await?;
    tx.remove(ResourceUid(two.cluster.0)).await?;
    tx.commit().await?;
    ensure!(seen(&admin, "edge-2").await?.is_empty() && seen(&admin, "edge-1").await?.len() == 250);
    hub.objects.drop_old_events(Timestamp::MAX).await?;
    ensure!(seen(&admin, "").await?.is_empty());
    Ok(())
}

/// An event of a commit and a pull request.
fn of_commit(name: &str, is_error: bool) -> RelayedEvent {
    let mut event = event(name, if is_error { "it fails" } else { "it is well" }, is_error);
    let revision = format!("main@sha1:{}", "0123456789".repeat(4));
    event.metadata.insert("kustomize.toolkit.fluxcd.io/revision".to_owned(), revision);
    if !is_error {
        event.metadata.insert("kustomize.toolkit.fluxcd.io/commit_status".to_owned(), "update".to_owned());
    }
    event
}

#[tokio::test]
async fn they_make_statuses_and_comments_only_where_a_source_says_so_and_each_cluster_its_own() -> Result<()>
{
    let annotation = "fleet.roadstead.dev/statuses-and-comments";
    for type_ in ["gitea", "giteapullrequestcomment"] {
        let alerted = Alerted::with("generic", super::options(true)).await?;
        let site = &alerted.site;
        let [one, two] =
            [session(&alerted, "edge-1", json!({})).await?, session(&alerted, "edge-2", json!({})).await?];
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": "token" },
            "stringData": { "token": "t0ken" } });
        site.apply(secret).await?;
        let address = format!("{}/o/r", alerted.sink.url);
        let spec = json!({ "type": type_, "address": address, "secretRef": { "name": "token" } });
        site.apply(provider("apps", spec)).await?;
        let written = async |name: &str, is_error: bool, is_allowed: bool| {
            let asked = alerted.sink.got().len();
            for session in [&one, &two] {
                // Who asks, what is there already, and what is written.
                if type_ != "gitea" && is_allowed {
                    let asks = [r#"{"id":5,"login":"bot"}"#, "[]", "{}"];
                    alerted.sink.answers(&asks.map(|answer| Answer::Http(200, "", answer)));
                }
                alerted.hub.notify.relay(session, vec![of_commit(name, is_error)]).await?;
                alerted.pass().await?;
            }
            let got = alerted.sink.got().split_off(asked);
            anyhow::Ok(got.into_iter().filter(|(head, _)| head.starts_with("post ")).collect::<Vec<_>>())
        };
        let mut allowed = of_clusters("*");
        site.apply(alert("apps", json!({ "eventSources": [allowed.clone()] }))).await?;
        ensure!(written("web", true, false).await?.is_empty(), "{type_}: without leave");
        ensure!(count(site, "SELECT count(*) FROM relayed_news").await? == 0, "{type_}: not sorted");
        allowed["statusesAndComments"] = true.into();
        site.apply(alert("apps", json!({ "eventSources": [allowed] }))).await?;
        let told = written("web", true, true).await?;
        let id = |body: &Value| match type_ {
            "gitea" => body["context"].as_str().unwrap_or_default().to_owned(),
            _ => body["body"].as_str().unwrap_or_default().lines().next().unwrap_or_default().to_owned(),
        };
        let ids: Vec<String> = told.iter().map(|(_, body)| id(body)).collect();
        ensure!(ids.len() == 2 && ids[0] != ids[1], "{type_}: {told:?}");
        ensure!(ids[0].contains("edge-1/") && ids[1].contains("edge-2/"), "{type_}: {ids:?}");
        // By the annotation it is the same.
        let mut annotated = alert("apps", json!({ "eventSources": [of_clusters("*")] }));
        annotated["metadata"]["annotations"] = json!({ annotation: "true" });
        site.apply(annotated).await?;
        ensure!(written("api", true, true).await?.len() == 2, "{type_}: by the annotation");
        if type_ == "gitea" {
            let well = written("api", false, true).await?;
            ensure!(well.len() == 2 && well.iter().all(|(_, body)| body["state"] == "success"), "{well:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn leave_to_write_statuses_goes_with_what_a_silence_keeps_and_is_no_part_of_what_is_sent() -> Result<()>
{
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let edge = session(&alerted, "edge-1", json!({})).await?;
    let mut source = of_clusters("*");
    source["statusesAndComments"] = true.into();
    site.apply(alert("apps", json!({ "eventSources": [source] }))).await?;
    let silence = json!({ "apiVersion": FLEET, "kind": "Silence", "metadata": { "namespace": "apps", "name": "s" },
        "spec": { "reason": "r", "from": "2020-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z" } });
    site.apply(silence).await?;
    alerted.hub.notify.relay(&edge, vec![of_commit("web", true)]).await?;
    alerted.pass().await?;
    site.delete(KindId::Silence, "apps", "s").await?;
    alerted.pass().await?;
    let allowed = "SELECT count(*) FROM delivery WHERE event -> 'statusesAndComments' = 'true'";
    ensure!(count(site, allowed).await? == 1, "it was lost");
    let told =
        alerted.sink.got().into_iter().map(|(_, body)| body).find(|body| body["relayedFrom"] == "edge-1");
    let told = told.context("it is told")?;
    ensure!(told["statusesAndComments"].is_null(), "{told}");
    Ok(())
}

#[tokio::test]
async fn chats_hear_that_all_is_well_of_the_cluster_that_failed() -> Result<()> {
    let alerted = Alerted::new("rocket").await?;
    let site = &alerted.site;
    let [one, two] =
        [session(&alerted, "edge-1", json!({})).await?, session(&alerted, "edge-2", json!({})).await?];
    site.apply(alert("apps", json!({ "eventSources": [of_clusters("*")] }))).await?;
    let closing = |message: &str| {
        let mut event = event("web", message, false);
        event.metadata.insert("kustomize.toolkit.fluxcd.io/commit_status".to_owned(), "update".to_owned());
        event
    };
    for (session, event) in [
        (&one, event("web", "one fails", true)),
        (&two, closing("two is well, as ever")),
        (&one, closing("one is well again")),
        (&one, closing("one is well, as ever")),
    ] {
        alerted.hub.notify.relay(session, vec![event]).await?;
        alerted.pass().await?;
    }
    let text = |(_, body): (String, Value)| body["attachments"][0]["text"].clone();
    let told: Vec<Value> = alerted.sink.got().into_iter().map(text).collect();
    ensure!(told == ["one fails", "one is well again"], "{told:?}");
    let failing = "SELECT count(*) FROM alert_failing";
    alerted.hub.notify.relay(&one, vec![event("web", "one fails again", true)]).await?;
    alerted.pass().await?;
    site.store.trim_deliveries(alerted.hub.now(), 1_000).await?;
    ensure!(count(site, failing).await? == 1, "that it fails is forgotten while its Cluster is there");
    Ok(())
}

#[tokio::test]
async fn one_cause_on_many_clusters_is_one_incident_that_ends() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let mut sessions = Vec::new();
    for number in 1..=5 {
        sessions.push(session(&alerted, &format!("edge-{number}"), json!({})).await?);
    }
    let spec = json!({ "eventSources": [of_clusters("*"), { "kind": "Kustomization", "name": "*" }],
        "group": { "wait": "30s" } });
    site.apply(alert("apps", spec)).await?;
    let tell = async |numbers: std::ops::Range<usize>, message: &str, is_error: bool| {
        for session in &sessions[numbers] {
            let message = message.replace('%', &session.name);
            alerted.hub.notify.relay(session, vec![event("web", &message, is_error)]).await?;
        }
        anyhow::Ok(())
    };
    tell(0..4, "cannot reach db.%.example: no route after 3.2s", true).await?;
    ensure!(alerted.at(1).await?.is_empty());
    let told = alerted.at(31).await?;
    ensure!(
        told.len() == 1 && told[0].starts_with("Fails on 4 clusters for one cause.\ncannot reach"),
        "{told:?}"
    );
    ensure!(told[0].contains("edge-1, edge-2, edge-3, edge-4"), "{told:?}");
    // What is on its way ends nothing.
    let under_way = RelayedEvent { reason: "Progressing".to_owned(), ..event("web", "applied", false) };
    alerted.hub.notify.relay(&sessions[0], vec![under_way]).await?;
    alerted.at(32).await?;
    tell(0..3, "Reconciliation finished", false).await?;
    alerted.at(40).await?;
    // The last of them is not heard of again: its Cluster goes.
    let deleted = site.delete(KindId::Cluster, "", "edge-4").await;
    ensure!(deleted.is_ok(), "{deleted:?}");
    sqlx::query("DELETE FROM resource WHERE kind = 'Cluster' AND name = 'edge-4'")
        .execute(&mut site.database.connect().await?)
        .await?;
    alerted.at(41).await?;
    let told = alerted.at(80).await?;
    let over = "Over after 40s: 1 object was deleted, or its Cluster was. It failed on 4 clusters.";
    ensure!(told.last().is_some_and(|last| last.starts_with(over)), "{told:?}");
    let open = count(site, "SELECT count(*) FROM incident WHERE ended_at IS NULL").await?;
    ensure!(open == 0, "{open} are open");
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_tells_without_end_has_bounded_room_and_keeps_no_other_out() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let [loud, quiet] =
        [session(&alerted, "loud", json!({})).await?, session(&alerted, "quiet", json!({})).await?];
    site.apply(alert(
        "apps",
        json!({ "eventSources": [of_clusters("*"), { "kind": "Kustomization", "name": "*" }] }),
    ))
    .await?;
    for batch in 0..25 {
        let events =
            (0..50).map(|number| event(&format!("web-{batch}-{number}"), "it fails", true)).collect();
        alerted.hub.notify.relay(&loud, events).await?;
    }
    let waiting = count(site, "SELECT count(*) FROM relayed_news").await?;
    ensure!(waiting == 1_000, "{waiting} wait");
    alerted.hub.notify.relay(&quiet, vec![event("web", "quiet fails", true)]).await?;
    happens(site, "apps", "web", "of the hub").await?;
    // The hub's own is not behind them.
    alerted.hub.notify.sort().await?;
    let own = count(site, "SELECT count(*) FROM delivery WHERE event ->> 'message' = 'of the hub'").await?;
    ensure!(own == 1, "it waits for what a cluster tells");
    while alerted.hub.notify.sort().await? {}
    let left = count(site, "SELECT count(*) FROM relayed_news WHERE cluster = 'quiet'").await?;
    ensure!(left == 0, "it was left out");
    // Where very much waits in all, each has room for a few.
    sqlx::query(
        "INSERT INTO relayed_news (cluster, event) SELECT 'cluster-' || number % 500, '{}' FROM generate_series(1, 20000) AS number",
    )
    .execute(&mut site.database.connect().await?)
    .await?;
    let events = || (0..50).map(|number| event(&format!("late-{number}"), "it fails", true)).collect();
    let left_out = alerted.hub.notify.relay(&quiet, events()).await?;
    ensure!(left_out == 40, "{left_out} were left out");
    ensure!(alerted.hub.notify.relay(&quiet, events()).await? == 50);
    Ok(())
}
