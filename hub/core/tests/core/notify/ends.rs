//! Failures that end without news of that: each incident ends, and says no more than is known.

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use roadstead_api::{KindId, Time};
use serde_json::{Value, json};

use super::relayed::{event, of_clusters, session};
use super::{Alerted, alert, count, news, provider};
use crate::support::{git_repository, kustomization};

const OPEN: &str = "SELECT count(*) FROM incident WHERE ended_at IS NULL";
const DAY: i64 = 24 * 3600;

/// An Alert that groups, with these sources.
fn grouping(sources: &Value) -> Value {
    alert("apps", json!({ "eventSources": sources, "group": { "wait": "10s", "repeatInterval": "0s" } }))
}

/// Forgets what applying objects told.
async fn forget(alerted: &Alerted) -> Result<()> {
    let mut connection = alerted.site.database.connect().await?;
    sqlx::raw_sql("DELETE FROM news; DELETE FROM delivery").execute(&mut connection).await?;
    Ok(())
}

#[tokio::test]
async fn what_nothing_is_heard_of_any_more_ends_and_may_fail_still() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let edge = session(&alerted, "edge-1", json!({})).await?;
    site.apply(grouping(&json!([of_clusters("*")]))).await?;
    let tell = async |second: i64, event| {
        alerted.clock.set(second);
        alerted.hub.notify.relay(&edge, vec![event]).await?;
        alerted.at(second).await
    };
    tell(0, event("web", "it fails", true)).await?;
    ensure!(alerted.at(10).await? == ["it fails"]);
    // Whatever is heard of it says that it is still there, also what is kept back.
    let until = Time(alerted.clock.0 + SignedDuration::from_secs(2 * DAY)).to_string();
    let silence = json!({ "apiVersion": crate::support::FLEET, "kind": "Silence", "metadata": { "namespace": "apps", "name": "s" },
        "spec": { "reason": "r", "until": until } });
    site.apply(silence).await?;
    tell(DAY - 100, event("web", "it fails", true)).await?;
    site.delete(KindId::Silence, "apps", "s").await?;
    alerted.at(DAY - 99).await?;
    let mut under_way = event("web", "applied", false);
    under_way.reason = "Progressing".to_owned();
    tell(2 * DAY - 200, under_way).await?;
    alerted.at(3 * DAY - 200).await?;
    ensure!(count(site, OPEN).await? == 1, "it was heard of");
    let before = alerted.sink.messages().len();
    alerted.at(3 * DAY - 199).await?;
    let told = alerted.at(3 * DAY - 189).await?;
    let heard = Time(alerted.clock.0 + SignedDuration::from_secs(2 * DAY - 200));
    let over =
        format!("Over after 2d23h: nothing was heard of 1 object since {heard}, which may fail still.");
    ensure!(told.len() == before + 1 && told[before].starts_with(&over), "{told:?}: {over}");
    ensure!(count(site, OPEN).await? == 0);
    // What is heard after all is news.
    tell(3 * DAY, event("web", "it fails", true)).await?;
    let told = alerted.at(3 * DAY + 10).await?;
    ensure!(told.len() == before + 2 && told[before + 1] == "it fails", "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_digest_names_nobody_for_ever_and_hears_who_is_well() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let edge = session(&alerted, "edge-1", json!({})).await?;
    let url = &alerted.sink.url;
    let digest = json!({ "cron": "0 0 * * *" });
    site.apply(provider("apps", json!({ "type": "generic", "address": url, "digest": digest }))).await?;
    // Of failures only: that they are over counts all the same.
    site.apply(alert("apps", json!({ "eventSources": [of_clusters("*")], "eventSeverity": "error" })))
        .await?;
    alerted.at(0).await?;
    let fails = ["web", "api"].map(|name| event(name, "it fails", true));
    alerted.hub.notify.relay(&edge, fails.to_vec()).await?;
    alerted.at(1).await?;
    alerted.hub.notify.relay(&edge, vec![event("api", "it is well", false)]).await?;
    alerted.at(2).await?;
    let told = alerted.at(DAY).await?;
    ensure!(told.len() == 1 && told[0].contains("\n2 failures, 1 recovery\nStill failing: 1\n"), "{told:?}");
    let told = alerted.at(2 * DAY).await?;
    let lapsed = "\n1 object deleted, suspended or without news";
    ensure!(told.len() == 2 && told[1].ends_with(lapsed), "{told:?}");
    ensure!(
        alerted.at(3 * DAY).await?.len() == 2 && count(site, "SELECT count(*) FROM gathered").await? == 0
    );
    Ok(())
}

#[tokio::test]
async fn what_was_told_of_a_cluster_long_ago_is_forgotten() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let edge = session(&alerted, "edge-1", json!({})).await?;
    site.apply(alert("apps", json!({ "eventSources": [of_clusters("*")] }))).await?;
    for (second, name) in [(0, "web"), (0, "api"), (400, "web")] {
        alerted.clock.set(second);
        alerted.hub.notify.relay(&edge, vec![event(name, "it fails", true)]).await?;
        alerted.at(second).await?;
    }
    let failing = "SELECT count(*) FROM alert_failing";
    ensure!(count(site, failing).await? == 2);
    // One of them goes on telling it.
    site.store.trim_deliveries(alerted.clock.0 + SignedDuration::from_secs(300), 1_000).await?;
    ensure!(count(site, failing).await? == 1);
    Ok(())
}

#[tokio::test]
async fn what_is_deleted_or_not_chosen_by_its_labels_any_more_ends() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let labelled = |name: &str, team: &str| {
        let mut object = kustomization("apps", name, "./web", json!({}));
        object["metadata"]["labels"] = json!({ "team": team });
        object
    };
    for name in ["web", "api"] {
        site.apply(labelled(name, "blue")).await?;
    }
    site.apply(git_repository("apps", "fleet", "https://git.example.com/fleet.git")).await?;
    let chosen = |team: &str| {
        grouping(&json!([{ "kind": "Kustomization", "name": "*", "matchLabels": { "team": team } },
                        { "kind": "GitRepository", "name": "*" }]))
    };
    site.apply(chosen("blue")).await?;
    alerted.at(0).await?;
    forget(&alerted).await?;
    let fails = async |kind: &str, group: &str, name: &str, message: &str| {
        let mut news = news("apps", name, message, "error");
        news.kind = kind.to_owned();
        news.labels = std::collections::BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
        (news.event["involvedObject"]["kind"], news.event["involvedObject"]["apiVersion"]) =
            (kind.into(), format!("{group}/v1").into());
        let mut tx = site.store.begin().await?;
        tx.tell(news);
        tx.commit().await?;
        anyhow::Ok(())
    };
    fails("Kustomization", "kustomize.toolkit.fluxcd.io", "web", "web is broken").await?;
    fails("Kustomization", "kustomize.toolkit.fluxcd.io", "api", "api is forbidden").await?;
    fails("GitRepository", "source.toolkit.fluxcd.io", "fleet", "it is refused").await?;
    alerted.at(1).await?;
    ensure!(alerted.at(20).await?.len() == 3);
    sqlx::query("DELETE FROM resource WHERE kind = 'GitRepository'")
        .execute(&mut site.database.connect().await?)
        .await?;
    alerted.at(30).await?;
    let told = alerted.at(40).await?;
    let over = |told: &[String], line: &str| {
        let last = told.last().cloned().unwrap_or_default();
        (last.starts_with("Over after ") && last.lines().nth(1) == Some(line)).then_some(last)
    };
    let last = over(&told, "it is refused").with_context(|| format!("{told:?}"))?;
    ensure!(told.len() == 4 && last.contains(": 1 object was deleted, or its Cluster was."), "{last}");
    // The Alert is for another team's now, and so is one of them.
    site.apply(labelled("web", "green")).await?;
    site.apply(chosen("green")).await?;
    alerted.at(60).await?;
    let told = alerted.at(71).await?;
    let last = over(&told, "api is forbidden").with_context(|| format!("{told:?}"))?;
    ensure!(told.len() == 5 && last.contains(": the Alert is no longer for 1 object."), "{last}");
    ensure!(count(site, OPEN).await? == 1);
    Ok(())
}

#[tokio::test]
async fn what_is_suspended_ends_and_is_told_when_it_fails_again() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.cluster("edge-1", json!([{ "namespace": "apps", "agentRights": true }])).await?;
    let object = |suspend: bool| {
        let spec = json!({ "clusterRef": { "name": "edge-1" }, "suspend": suspend });
        kustomization("apps", "web", "./web", spec)
    };
    site.apply(grouping(&json!([{ "kind": "Kustomization", "name": "*" }]))).await?;
    site.apply(object(false)).await?;
    let (reason, message) = site.process("apps", "web").await?;
    ensure!(reason == "ArtifactFailed", "{reason}: {message}");
    alerted.at(0).await?;
    ensure!(alerted.at(10).await? == [message.as_str()]);
    site.apply(object(true)).await?;
    site.process("apps", "web").await?;
    alerted.at(20).await?;
    let told = alerted.at(30).await?;
    ensure!(told.len() == 2 && told[1].starts_with("Over after 20s: 1 object is suspended."), "{told:?}");
    // How what it applied fares is told nevertheless.
    is_sick(&alerted, "web").await?;
    let mut health = news("apps", "web", "a Pod is broken", "error");
    health.condition = Some("Healthy");
    let mut tx = site.store.begin().await?;
    tx.tell(health);
    tx.commit().await?;
    alerted.at(40).await?;
    let told = alerted.at(50).await?;
    ensure!(told.len() == 3 && told[2] == "a Pod is broken", "{told:?}");
    site.apply(object(false)).await?;
    ensure!(site.process("apps", "web").await?.1 == message);
    alerted.at(60).await?;
    let told = alerted.at(70).await?;
    ensure!(told.len() == 4 && told[3] == message, "{told:?}");
    // And not once more for each attempt.
    site.ask("apps", "web").await?;
    site.process("apps", "web").await?;
    ensure!(count(site, "SELECT count(*) FROM news").await? == 0);
    Ok(())
}

/// Says of a Kustomization that what it applied is not healthy.
async fn is_sick(alerted: &Alerted, name: &str) -> Result<()> {
    sqlx::query(
        "UPDATE resource SET object = jsonb_set(object, '{status}', jsonb_build_object('conditions',
             coalesce(object #> '{status,conditions}', '[]') || jsonb_build_array(jsonb_build_object('type', 'Healthy', 'status', 'False',
                 'reason', 'HealthCheckFailed', 'message', 'x', 'lastTransitionTime', '2026-08-07T10:00:00Z'))))
         WHERE kind = 'Kustomization' AND name = $1",
    )
    .bind(name)
    .execute(&mut alerted.site.database.connect().await?)
    .await?;
    Ok(())
}

#[tokio::test]
async fn health_that_nobody_checks_any_more_ends() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.apply(grouping(&json!([{ "kind": "Kustomization", "name": "*" }]))).await?;
    for (name, cluster, message) in [("web", "edge-1", "web is broken"), ("api", "edge-2", "api is too slow")]
    {
        site.cluster(cluster, json!([{ "namespace": "apps", "agentRights": true }])).await?;
        let on = json!({ "clusterRef": { "name": cluster } });
        site.apply(kustomization("apps", name, "./web", on)).await?;
        forget(&alerted).await?;
        is_sick(&alerted, name).await?;
        let mut health = news("apps", name, message, "error");
        health.condition = Some("Healthy");
        let mut tx = site.store.begin().await?;
        tx.tell(health);
        tx.commit().await?;
        alerted.at(0).await?;
    }
    ensure!(alerted.at(10).await?.len() == 2 && alerted.at(1_000).await?.len() == 2);
    // Nobody asks for it.
    sqlx::raw_sql("UPDATE resource SET object = object #- '{status,conditions}' WHERE kind = 'Kustomization' AND name = 'web'")
        .execute(&mut site.database.connect().await?)
        .await?;
    alerted.at(2_000).await?;
    let told = alerted.at(2_010).await?;
    ensure!(
        told.len() == 3 && told[2].contains(": the health of 1 object is no longer checked."),
        "{told:?}"
    );
    // Nobody is there who would.
    sqlx::raw_sql("DELETE FROM resource WHERE kind = 'Cluster' AND name = 'edge-2'")
        .execute(&mut site.database.connect().await?)
        .await?;
    alerted.at(3_000).await?;
    let told = alerted.at(3_010).await?;
    ensure!(told.len() == 4 && told[3].contains(": 1 object was deleted, or its Cluster was."), "{told:?}");
    ensure!(count(site, OPEN).await? == 0);
    Ok(())
}

/// Has all passes be due in an hour.
async fn rest(alerted: &Alerted) -> Result<()> {
    let mut connection = alerted.site.database.connect().await?;
    sqlx::raw_sql("UPDATE schedule SET due_at = now() + interval '1 hour'").execute(&mut connection).await?;
    Ok(())
}

/// Whether a pass over the Alert is due at once.
async fn is_woken(alerted: &Alerted) -> Result<bool> {
    let due = "SELECT count(*) FROM schedule WHERE kind = 'alert' AND due_at = '-infinity'";
    Ok(count(&alerted.site, due).await? == 1)
}

/// Has an object of a kind fail, of which an Alert that groups is told; then no pass is due.
async fn fails(alerted: &Alerted, kind: KindId, name: &str, cluster: Option<&str>) -> Result<()> {
    let mut news = news("apps", name, "it fails", "error");
    (news.kind, news.cluster) = (kind.to_string(), cluster.map(str::to_owned));
    let api_version = kind.get().storage_version().api_version();
    (news.event["involvedObject"]["kind"], news.event["involvedObject"]["apiVersion"]) =
        (kind.to_string().into(), api_version.into());
    let mut tx = alerted.site.store.begin().await?;
    tx.tell(news);
    tx.commit().await?;
    alerted.at(0).await?;
    ensure!(count(&alerted.site, OPEN).await? == 1);
    rest(alerted).await
}

#[tokio::test]
async fn what_is_suspended_or_deleted_wakes_who_told_that_it_fails() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.apply(grouping(&json!([{ "kind": "GitRepository", "name": "*" }]))).await?;
    let source = |name: &str, suspend: bool, interval: &str| {
        let mut source = git_repository("apps", name, "https://git.example.com/fleet.git");
        (source["spec"]["suspend"], source["spec"]["interval"]) = (suspend.into(), interval.into());
        source
    };
    for name in ["fleet", "other"] {
        site.apply(source(name, false, "1m")).await?;
    }
    forget(&alerted).await?;
    fails(&alerted, KindId::GitRepository, "fleet", None).await?;
    // What does not fail, and what ends nothing, wakes nobody.
    site.apply(source("fleet", false, "7m")).await?;
    site.apply(source("other", true, "1m")).await?;
    site.delete(KindId::GitRepository, "apps", "other").await?;
    ensure!(!is_woken(&alerted).await?);
    site.apply(source("fleet", true, "7m")).await?;
    ensure!(is_woken(&alerted).await?, "it is suspended");
    alerted.at(1).await?;
    ensure!(count(site, "SELECT count(*) FROM incident_member WHERE lapsed = 'suspended'").await? == 1);
    // What is over already wakes nobody.
    rest(&alerted).await?;
    site.apply(source("fleet", false, "7m")).await?;
    site.apply(source("fleet", true, "7m")).await?;
    ensure!(!is_woken(&alerted).await?);
    site.apply(source("fleet", false, "7m")).await?;
    fails(&alerted, KindId::GitRepository, "fleet", None).await?;
    site.delete(KindId::GitRepository, "apps", "fleet").await?;
    ensure!(is_woken(&alerted).await?, "it is gone");
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_is_deleted_wakes_who_told_of_failures_there() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let edge = session(&alerted, "edge-1", json!({})).await?;
    site.cluster("edge-2", json!([{ "namespace": "apps", "agentRights": true }])).await?;
    site.cluster("edge-3", json!([])).await?;
    site.apply(grouping(&json!([{ "kind": "Kustomization", "name": "*" }, of_clusters("*")]))).await?;
    let on = json!({ "clusterRef": { "name": "edge-2" } });
    site.apply(kustomization("apps", "web", "./web", on)).await?;
    forget(&alerted).await?;
    fails(&alerted, KindId::Kustomization, "web", Some("edge-2")).await?;
    site.delete(KindId::Cluster, "", "edge-3").await?;
    ensure!(!is_woken(&alerted).await?);
    site.delete(KindId::Cluster, "", "edge-2").await?;
    ensure!(is_woken(&alerted).await?, "it was about that one");
    alerted.hub.notify.relay(&edge, vec![event("web", "it fails there", true)]).await?;
    alerted.at(2).await?;
    rest(&alerted).await?;
    site.delete(KindId::Cluster, "", "edge-1").await?;
    ensure!(is_woken(&alerted).await?, "its Flux told of it");
    alerted.at(3).await?;
    ensure!(count(site, "SELECT count(*) FROM incident_member WHERE lapsed = 'gone'").await? == 1);
    Ok(())
}

#[tokio::test]
async fn a_condition_that_is_not_there_any_more_wakes_who_told_that_it_was_not_met() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.apply(grouping(&json!([{ "kind": "HelmRepository", "name": "*" }]))).await?;
    let repository = |type_: &str, url: &str| {
        json!({ "apiVersion": crate::support::SOURCE, "kind": "HelmRepository", "metadata": { "namespace": "apps", "name": "charts" },
            "spec": { "interval": "1m", "type": type_, "url": url } })
    };
    site.apply(repository("default", "https://charts.example.com")).await?;
    sqlx::raw_sql(
        "UPDATE resource SET object = jsonb_set(object, '{status}', '{\"conditions\": [{\"type\": \"Ready\", \"status\": \"False\",
             \"reason\": \"FetchFailed\", \"message\": \"x\", \"lastTransitionTime\": \"2026-08-07T10:00:00Z\"}]}')
         WHERE kind = 'HelmRepository'",
    )
    .execute(&mut site.database.connect().await?)
    .await?;
    forget(&alerted).await?;
    fails(&alerted, KindId::HelmRepository, "charts", None).await?;
    // It is not fetched any more, and says nothing.
    site.apply(repository("oci", "oci://charts.example.com/all")).await?;
    ensure!(!is_woken(&alerted).await?);
    let uid = site.stored(KindId::HelmRepository, "apps", "charts").await?.uid;
    site.hub.sources.plan_fetch(uid).await?;
    ensure!(is_woken(&alerted).await?);
    Ok(())
}

#[tokio::test]
async fn labels_that_change_end_what_an_alert_is_for_by_them() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let namespace = |team: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "apps", "labels": { "team": team } } });
    let cluster = |team: &str| {
        json!({ "apiVersion": crate::support::FLEET, "kind": "Cluster",
            "metadata": { "name": "edge-1", "labels": { "team": team } }, "spec": {} })
    };
    let object = |team: &str| {
        let mut object = kustomization("apps", "web", "./web", json!({ "clusterRef": { "name": "edge-1" } }));
        object["metadata"]["labels"] = json!({ "team": team });
        object
    };
    let selected = json!({ "matchLabels": { "team": "blue" } });
    for (second, source, change) in [
        (0, json!({ "matchLabels": { "team": "blue" } }), object("green")),
        (1_000, json!({ "namespace": "*", "namespaceSelector": selected.clone() }), namespace("green")),
        (2_000, json!({ "clusterSelector": selected }), cluster("green")),
    ] {
        for one in [namespace("blue"), cluster("blue"), object("blue")] {
            site.apply(one).await?;
        }
        let mut sources = json!([{ "kind": "Kustomization", "name": "*" }]);
        if let (Some(all), Value::Object(more)) = (sources[0].as_object_mut(), source) {
            all.extend(more);
        }
        site.apply(grouping(&sources)).await?;
        alerted.at(second).await?;
        forget(&alerted).await?;
        let mut news = news("apps", "web", "it fails", "error");
        news.labels = std::collections::BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
        let mut tx = site.store.begin().await?;
        tx.tell(news);
        tx.commit().await?;
        alerted.at(second).await?;
        let before = alerted.at(second + 10).await?.len();
        rest(&alerted).await?;
        site.apply(change).await?;
        ensure!(is_woken(&alerted).await?, "{sources}");
        alerted.at(second + 20).await?;
        let told = alerted.at(second + 31).await?;
        let over = told.last().is_some_and(|last| last.contains(": the Alert is no longer for 1 object."));
        ensure!(told.len() == before + 1 && over, "{sources}: {told:?}");
        ensure!(count(site, "SELECT count(*) FROM reselection").await? == 0);
    }
    Ok(())
}
