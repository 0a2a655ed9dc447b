//! Incidents: failures with one cause that are told as one thing.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_api::KindId;
use roadstead_tests::eventually;
use serde_json::{Value, json};

use super::{Alerted, alert, count, news, pass, provider};
use crate::support::{FLEET as API, kustomization};

/// Clusters that one commit fails on.
const FLEET: usize = 100;

struct Grouped(Alerted);

impl Grouped {
    /// A hub with an Alert that groups, of failures only, and as many Kustomizations as that, each on its own cluster.
    async fn new(type_: &str, group: Value, objects: usize) -> Result<Self> {
        let alerted = Alerted::new(type_).await?;
        let site = &alerted.site;
        for number in 1..=objects {
            let on = json!({ "clusterRef": { "name": format!("edge-{number}") } });
            site.apply(kustomization("apps", &format!("web-edge-{number}"), "./web", on)).await?;
        }
        // What applying them told is none of this.
        sqlx::raw_sql("DELETE FROM news; DELETE FROM delivery")
            .execute(&mut site.database.connect().await?)
            .await?;
        let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
        let spec = json!({ "eventSources": sources, "group": group, "eventSeverity": "error" });
        site.apply(alert("apps", spec)).await?;
        Ok(Self(alerted))
    }

    /// Has Kustomizations of these clusters fail, or be well.
    async fn happens(
        &self,
        numbers: impl Iterator<Item = usize>,
        severity: &str,
        message: &str,
    ) -> Result<()> {
        let mut tx = self.0.site.store.begin().await?;
        for number in numbers {
            let cluster = format!("edge-{number}");
            let mut news = news("apps", &format!("web-{cluster}"), &message.replace('%', &cluster), severity);
            news.cluster = Some(cluster);
            if severity == "info" {
                news.event["reason"] = "ReconciliationSucceeded".into();
                news.event["metadata"] = json!({ "kustomize.toolkit.fluxcd.io/commit_status": "update" });
            }
            tx.tell(news);
        }
        tx.commit().await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_commit_that_fails_on_a_hundred_clusters_is_told_in_three_messages() -> Result<()> {
    let grouped = Grouped::new("generic", json!({}), FLEET).await?;
    let failure = "%: Deployment/apps/web-% timed out after 1m2s, request 7f3c9a21";
    // Some fail at once, some later, each in its own words of the same.
    grouped.happens(1..=37, "error", failure).await?;
    ensure!(grouped.0.at(0).await?.is_empty());
    ensure!(grouped.0.at(29).await?.is_empty());
    let told = grouped.0.at(30).await?;
    ensure!(
        told.len() == 1 && told[0].starts_with("Fails on 37 of 100 clusters for one cause.\n"),
        "{told:?}"
    );
    ensure!(
        told[0].contains("edge-1: Deployment/apps/web-edge-1 timed out") && told[0].ends_with("and 17 more"),
        "{told:?}"
    );
    grouped.happens(38..=87, "error", failure).await?;
    // The same ones fail as before: that is not news.
    grouped.happens(1..=10, "error", failure).await?;
    ensure!(grouped.0.at(40).await?.len() == 1);
    let told = grouped.0.at(330).await?;
    ensure!(
        told.len() == 2 && told[1].starts_with("Now fails on 87 of 100 clusters, for 5m30s.\n"),
        "{told:?}"
    );
    grouped.happens(1..=86, "info", "applied").await?;
    ensure!(grouped.0.at(340).await?.len() == 2);
    grouped.happens(87..=87, "info", "applied").await?;
    // It must stay well for a while.
    ensure!(grouped.0.at(360).await?.len() == 2);
    let told = grouped.0.at(390).await?;
    ensure!(told.len() == 3, "{told:?}");
    ensure!(told[2].starts_with("Resolved after 6m. It failed on 87 of 100 clusters.\n"), "{told:?}");
    ensure!(grouped.0.at(100_000).await?.len() == 3);
    let got = grouped.0.sink.got();
    let facts: Vec<&Value> = got.iter().map(|(_, body)| &body["incident"]).collect();
    let stages: Vec<&str> = facts.iter().filter_map(|facts| facts["stage"].as_str()).collect();
    ensure!(stages == ["opened", "grown", "resolved"], "{facts:?}");
    ensure!(facts.iter().all(|one| one["id"] == facts[0]["id"] && one["ofClusters"] == FLEET), "{facts:?}");
    ensure!(got[2].1["severity"] == "info" && got[0].1["severity"] == "error");
    // What the service calls its first message is kept with it.
    let id = facts[0]["id"].as_str().context("an id")?.parse()?;
    for thread in ["1.2", "3.4"] {
        grouped.0.site.store.keep_incident_thread(id, thread).await?;
    }
    ensure!(grouped.0.site.store.incident_thread(id).await?.as_deref() == Some("3.4"));
    // It is kept for people to look at, for a while.
    ensure!(count(&grouped.0.site, "SELECT count(*) FROM incident WHERE ended_at IS NOT NULL").await? == 1);
    Ok(())
}

#[tokio::test]
async fn other_causes_are_other_incidents_and_an_object_has_one_at_a_time() -> Result<()> {
    let grouped = Grouped::new("generic", json!({ "wait": "10s", "repeatInterval": "0s" }), 4).await?;
    grouped.happens(1..=2, "error", "Deployment/apps/x timed out").await?;
    grouped.happens(3..=3, "error", "Secret/apps/x is forbidden").await?;
    grouped.0.at(0).await?;
    let told = grouped.0.at(10).await?;
    ensure!(told.len() == 2 && told[1] == "Secret/apps/x is forbidden", "{told:?}");
    // Both fail for the other cause now.
    grouped.happens(1..=2, "error", "Secret/apps/x is forbidden").await?;
    ensure!(grouped.0.at(20).await?.len() == 2);
    let told = grouped.0.at(30).await?;
    ensure!(told.len() == 3, "{told:?}");
    ensure!(
        told[2].starts_with("Over after ") && told[2].contains("now fails for another cause"),
        "{told:?}"
    );
    let told = grouped.0.at(320).await?;
    ensure!(told.len() == 4 && told[3].starts_with("Now fails on 3 of 4 clusters"), "{told:?}");
    // Of what is gone nobody has to say that it is well.
    let site = &grouped.0.site;
    sqlx::query("DELETE FROM resource WHERE kind = 'Kustomization'")
        .execute(&mut site.database.connect().await?)
        .await?;
    grouped.0.at(330).await?;
    let told = grouped.0.at(340).await?;
    let over = "Over after 5m30s: 3 objects were deleted, or their Clusters were. It failed on 3 clusters.";
    ensure!(told.len() == 5 && told[4].starts_with(over), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn what_comes_and_goes_is_told_once_and_what_nobody_heard_of_has_no_end() -> Result<()> {
    let grouped = Grouped::new("generic", json!({}), 1).await?;
    // Gone before it was told, and stayed so.
    grouped.happens(1..=1, "error", "it fails").await?;
    grouped.0.at(0).await?;
    grouped.happens(1..=1, "info", "well").await?;
    ensure!(grouped.0.at(5).await?.is_empty() && grouped.0.at(35).await?.is_empty());
    ensure!(count(&grouped.0.site, "SELECT count(*) FROM incident WHERE ended_at IS NULL").await? == 0);
    // It fails and is well again every few seconds.
    for second in (100..160).step_by(20) {
        grouped.happens(1..=1, "error", "it fails").await?;
        grouped.0.at(second).await?;
        grouped.happens(1..=1, "info", "well").await?;
        grouped.0.at(second + 10).await?;
    }
    grouped.happens(1..=1, "error", "it fails").await?;
    let told = grouped.0.at(160).await?;
    ensure!(told == ["it fails"], "{told:?}");
    Ok(())
}

#[tokio::test]
async fn an_incident_is_told_again_after_hours_and_once_after_its_provider_was_down() -> Result<()> {
    let grouped = Grouped::new("generic", json!({ "repeatInterval": "1h" }), 2).await?;
    grouped.happens(1..=1, "error", "it fails").await?;
    grouped.0.at(0).await?;
    ensure!(grouped.0.at(30).await? == ["it fails"]);
    ensure!(grouped.0.at(3_000).await?.len() == 1);
    let told = grouped.0.at(3_630).await?;
    ensure!(told.len() == 2 && told[1].starts_with("Still fails on 1 of 2 clusters, for 1h.\n"), "{told:?}");
    // Down while it grows, goes on and ends: one message is left of that.
    let site = &grouped.0.site;
    let address = grouped.0.sink.url.clone();
    site.apply(provider(
        "apps",
        json!({ "type": "generic", "address": "http://127.0.0.1:1", "channel": "room" }),
    ))
    .await?;
    grouped.happens(2..=2, "error", "it fails").await?;
    for second in [3_640, 4_000, 8_000] {
        ensure!(grouped.0.at(second).await?.len() == 2);
    }
    grouped.happens(1..=2, "info", "well").await?;
    grouped.0.at(8_010).await?;
    ensure!(grouped.0.at(8_040).await?.len() == 2);
    site.apply(provider("apps", json!({ "type": "generic", "address": address, "channel": "room" }))).await?;
    let told = grouped.0.at(9_000).await?;
    ensure!(
        told.len() == 3 && told[2].starts_with("Resolved after 2h13m. It failed on 2 clusters.\n"),
        "{told:?}"
    );
    Ok(())
}

#[tokio::test]
async fn services_that_know_incidents_get_one_that_opens_and_closes() -> Result<()> {
    let grouped = Grouped::new("pagerduty", json!({ "wait": "0s" }), 2).await?;
    grouped.happens(1..=2, "error", "it fails").await?;
    grouped.0.at(0).await?;
    grouped.happens(1..=2, "info", "well").await?;
    grouped.0.at(1).await?;
    let got = grouped.0.sink.got();
    let events: Vec<&Value> =
        got.iter().map(|(_, body)| body).filter(|body| !body["event_action"].is_null()).collect();
    ensure!(events.len() == 2, "{events:?}");
    ensure!(events[0]["event_action"] == "trigger" && events[1]["event_action"] == "resolve", "{events:?}");
    ensure!(events[0]["dedup_key"] == events[1]["dedup_key"], "{events:?}");
    Ok(())
}

#[tokio::test]
async fn comments_and_workflows_are_of_each_object() -> Result<()> {
    let grouped = Grouped::new("generic", json!({}), 1).await?;
    let site = &grouped.0.site;
    for type_ in ["githubpullrequestcomment", "githubdispatch"] {
        site.apply(provider("apps", json!({ "type": type_, "address": "https://github.com/o/r" }))).await?;
        pass(&grouped.0.hub, site, "apps").await?;
        let (reason, message) = site.ready(KindId::Alert, "apps", "alert").await.context("read the Alert")?;
        ensure!(
            reason == "ValidationFailed" && message.starts_with("spec.group: Provider 'apps/chat'"),
            "{type_}: {reason}: {message}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_incident_names_nobody_of_whom_its_alert_may_not_hear() -> Result<()> {
    let grouped = Grouped::new("generic", json!({}), 2).await?;
    let site = &grouped.0.site;
    let on = json!({ "clusterRef": { "name": "edge-9" } });
    for namespace in ["shop", "bank"] {
        site.namespace(namespace).await?;
        site.apply(kustomization(namespace, "web-edge-9", "./web", on.clone())).await?;
    }
    let member = site.member("apps").await?;
    let sources = json!([{ "kind": "Kustomization", "name": "*" }, { "kind": "Kustomization", "name": "*", "namespace": "*" }]);
    site.delete(KindId::Alert, "apps", "alert").await?;
    let group = json!({ "wait": "10s", "interval": "10s" });
    site.apply_as(&member, alert("apps", json!({ "eventSources": sources, "group": group }))).await?;
    sqlx::raw_sql("DELETE FROM news").execute(&mut site.database.connect().await?).await?;
    let grant = |namespace: &str| {
        json!({ "apiVersion": API, "kind": "ReferenceGrant", "metadata": { "namespace": namespace, "name": "alerts" },
            "spec": { "from": [{ "group": "notification.toolkit.fluxcd.io", "kind": "Alert", "namespace": "apps" }],
                "to": [{ "group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization" }] } })
    };
    site.apply(grant("shop")).await?;
    grouped.happens(1..=1, "error", "it fails").await?;
    for namespace in ["shop", "bank"] {
        let mut tx = site.store.begin().await?;
        let mut news = news(namespace, "web-edge-9", "it fails", "error");
        news.cluster = Some("edge-9".to_owned());
        tx.tell(news);
        tx.commit().await?;
    }
    grouped.0.at(0).await?;
    let members = "SELECT count(*) FROM incident_member";
    ensure!(count(site, members).await? == 2);
    let told = grouped.0.at(10).await?;
    ensure!(told.len() == 1 && told[0].ends_with("\nedge-1, edge-9"), "{told:?}");
    // Leave that is withdrawn is none for what is told after that.
    site.delete(KindId::ReferenceGrant, "shop", "alerts").await?;
    grouped.happens(2..=2, "error", "it fails").await?;
    let told = grouped.0.at(30).await?;
    ensure!(count(site, members).await? == 2);
    ensure!(told.len() == 2 && told[1].ends_with("\nedge-1, edge-2"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn clusters_that_are_named_by_their_kubeconfig_are_told_and_counted() -> Result<()> {
    let grouped = Grouped::new("generic", json!({ "wait": "0s" }), 1).await?;
    let site = &grouped.0.site;
    for number in [7, 8] {
        let secret = json!({ "name": format!("kubeconfig-{number}") });
        let mut of_cluster = secret.clone();
        of_cluster["namespace"] = "apps".into();
        site.apply(
            json!({ "apiVersion": API, "kind": "Cluster", "metadata": { "name": format!("far-{number}") },
            "spec": { "kubeConfig": { "secretRef": of_cluster } } }),
        )
        .await?;
        let by_kubeconfig = json!({ "kubeConfig": { "secretRef": secret } });
        site.apply(kustomization("apps", &format!("web-far-{number}"), "./web", by_kubeconfig)).await?;
    }
    sqlx::raw_sql("DELETE FROM news").execute(&mut site.database.connect().await?).await?;
    for number in [7, 8] {
        let mut tx = site.store.begin().await?;
        let mut news = news("apps", &format!("web-far-{number}"), &format!("far-{number} fails"), "error");
        news.cluster = None;
        tx.tell(news);
        tx.commit().await?;
    }
    let told = grouped.0.at(0).await?;
    ensure!(told == ["Fails on 2 of 3 clusters for one cause.\nfar-7 fails\nfar-7, far-8"], "{told:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_news_of_a_condition_neither_opens_an_incident_nor_ends_one() -> Result<()> {
    let grouped = Grouped::new("generic", json!({}), 1).await?;
    let site = &grouped.0.site;
    let besides = async |severity: &str, message: &str| -> Result<()> {
        let mut tx = site.store.begin().await?;
        let mut news = news("apps", "web-edge-1", message, severity);
        news.condition = None;
        tx.tell(news);
        tx.commit().await?;
        Ok(())
    };
    grouped.happens(1..=1, "error", "it fails").await?;
    grouped.0.at(0).await?;
    ensure!(grouped.0.at(30).await? == ["it fails"]);
    besides("info", "its parent has applied it").await?;
    besides("error", "something could not be pruned").await?;
    let told = grouped.0.at(40).await?;
    ensure!(told == ["it fails", "something could not be pruned"], "{told:?}");
    ensure!(grouped.0.at(100).await?.len() == 2);
    // How it is counts, also where nothing tells of that.
    sqlx::raw_sql(
        "UPDATE resource SET object = jsonb_set(object, '{status}', '{\"conditions\": [{\"type\": \"Ready\", \"status\": \"True\"}]}')
         WHERE kind = 'Kustomization'",
    )
    .execute(&mut site.database.connect().await?)
    .await?;
    grouped.0.at(110).await?;
    let told = grouped.0.at(140).await?;
    ensure!(told.len() == 3 && told[2].starts_with("Resolved after 1m50s."), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn an_alert_that_is_changed_keeps_what_it_listens_to_and_ends_the_rest() -> Result<()> {
    let grouped = Grouped::new("generic", json!({}), 2).await?;
    let site = &grouped.0.site;
    let open = "SELECT count(*) FROM incident WHERE ended_at IS NULL";
    let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
    let spec = |more: Value| {
        let mut spec = json!({ "eventSources": sources, "group": {}, "eventSeverity": "error" });
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        alert("apps", spec)
    };
    grouped.happens(1..=1, "error", "it fails").await?;
    grouped.0.at(0).await?;
    ensure!(grouped.0.at(30).await?.len() == 1);
    site.apply(spec(json!({ "suspend": true }))).await?;
    grouped.0.at(40).await?;
    site.apply(spec(json!({}))).await?;
    ensure!(grouped.0.at(50).await?.len() == 1 && count(site, open).await? == 1);
    // What it does not listen to any more ends.
    grouped.happens(2..=2, "error", "another cause").await?;
    grouped.0.at(60).await?;
    let narrow = json!([{ "kind": "Kustomization", "name": "web-edge-1" }]);
    site.apply(spec(json!({ "eventSources": narrow }))).await?;
    grouped.0.at(61).await?;
    grouped.0.at(95).await?;
    ensure!(count(site, open).await? == 1);
    Ok(())
}

#[tokio::test]
async fn an_alert_that_groups_no_more_closes_what_it_opened() -> Result<()> {
    let grouped = Grouped::new("generic", json!({}), 2).await?;
    let site = &grouped.0.site;
    grouped.happens(1..=1, "error", "it fails").await?;
    grouped.0.at(0).await?;
    grouped.0.at(30).await?;
    grouped.happens(2..=2, "error", "another cause").await?;
    ensure!(grouped.0.at(40).await?.len() == 1);
    let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
    site.apply(alert("apps", json!({ "eventSources": sources, "eventSeverity": "error" }))).await?;
    let mut told = grouped.0.at(50).await?.split_off(1);
    told.sort();
    ensure!(told.len() == 2 && told[0].starts_with("This is not told as an incident any more"), "{told:?}");
    ensure!(told[1] == "another cause", "{told:?}");
    ensure!(count(site, "SELECT count(*) FROM incident WHERE ended_at IS NULL").await? == 0);
    Ok(())
}

#[tokio::test]
async fn what_failed_for_another_cause_and_is_well_is_well() -> Result<()> {
    let grouped = Grouped::new("generic", json!({ "wait": "0s", "interval": "1h" }), 2).await?;
    grouped.happens(1..=2, "error", "Deployment/apps/x timed out").await?;
    grouped.0.at(0).await?;
    grouped.happens(1..=1, "error", "Secret/apps/x is forbidden").await?;
    grouped.0.at(10).await?;
    grouped.happens(1..=1, "info", "well").await?;
    grouped.0.at(20).await?;
    grouped.happens(2..=2, "info", "well").await?;
    let told = grouped.0.at(30).await?;
    ensure!(
        told.last().is_some_and(|last| last.starts_with("Resolved after 30s. It failed on 2 clusters.")),
        "{told:?}"
    );
    Ok(())
}

#[tokio::test]
async fn causes_beyond_those_that_may_be_open_are_counted_and_one_sorts_at_a_time() -> Result<()> {
    let grouped = Grouped::new("generic", json!({}), 0).await?;
    let site = &grouped.0.site;
    let letters = |number: usize| -> String {
        [number / 26, number % 26]
            .iter()
            .map(|digit| char::from(b'a' + u8::try_from(*digit).unwrap_or(0)))
            .collect()
    };
    for number in 0..510 {
        grouped.happens(number..=number, "error", &format!("cause {}", letters(number))).await?;
    }
    let mut another = site.store.begin().await?;
    ensure!(another.take_news(1).await?.is_some_and(|news| news.len() == 1));
    ensure!(!grouped.0.hub.notify.sort().await? && count(site, "SELECT count(*) FROM incident").await? == 0);
    drop(another);
    eventually("all are sorted", Duration::from_secs(30), || async {
        while grouped.0.hub.notify.sort().await? {}
        ensure!(count(site, "SELECT count(*) FROM news").await? == 0);
        Ok(())
    })
    .await?;
    ensure!(count(site, "SELECT count(*) FROM incident WHERE ended_at IS NULL").await? == 500);
    ensure!(count(site, "SELECT count FROM delivery_left_out").await? == 10);
    Ok(())
}
