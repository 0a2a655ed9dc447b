//! Silences and digests: what is not sent one by one, and what is told of it later.

use anyhow::{Result, ensure};
use jiff::SignedDuration;
use roadstead_api::{KindId, Time};
use serde_json::{Value, json};

use super::{Alerted, NOTIFICATION, alert, count, happens, news, pass, provider};
use crate::support::{FLEET as API, kustomization};

struct Quiet(Alerted);

impl Quiet {
    /// A hub with Kustomizations of `apps`, an Alert for all of them, and a Provider of that type.
    async fn new(type_: &str, names: &[&str]) -> Result<Self> {
        let alerted = Alerted::new(type_).await?;
        for name in names {
            alerted.site.apply(kustomization("apps", name, "./web", json!({}))).await?;
        }
        let quiet = Self(alerted);
        quiet.forget().await?;
        Ok(quiet)
    }

    /// Forgets what applying objects told.
    async fn forget(&self) -> Result<()> {
        let mut connection = self.0.site.database.connect().await?;
        sqlx::raw_sql("DELETE FROM news; DELETE FROM delivery").execute(&mut connection).await?;
        Ok(())
    }

    fn time(&self, second: i64) -> String {
        Time(self.0.clock.0 + SignedDuration::from_secs(second)).to_string()
    }

    /// A Silence of `apps` until that second.
    fn silence(&self, until: i64, more: Value) -> Value {
        let mut spec =
            json!({ "reason": "the database moves", "from": self.time(-10), "until": self.time(until) });
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        json!({ "apiVersion": API, "kind": "Silence", "metadata": { "namespace": "apps", "name": "move" }, "spec": spec })
    }

    async fn fails(&self, name: &str) -> Result<()> {
        happens(&self.0.site, "apps", name, &format!("{name} fails")).await
    }

    async fn is_well(&self, name: &str) -> Result<()> {
        let mut tx = self.0.site.store.begin().await?;
        let mut news = news("apps", name, &format!("{name} is well"), "info");
        news.event["reason"] = "ReconciliationSucceeded".into();
        tx.tell(news);
        tx.commit().await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_silence_keeps_back_what_happens_and_sums_it_up_at_its_end() -> Result<()> {
    let quiet = Quiet::new("generic", &["web", "api", "db", "cache"]).await?;
    let site = &quiet.0.site;
    quiet.fails("web").await?;
    ensure!(quiet.0.at(0).await? == ["web fails"]);
    let member = site.member("apps").await?;
    let objects = json!(["web", "db", "cache"].map(|name| json!({ "kind": "Kustomization", "name": name })));
    let silence = quiet.silence(3_600, json!({ "objects": objects, "author": "somebody else" }));
    site.apply_as(&member, silence).await?;
    for name in ["db", "cache", "cache", "api"] {
        quiet.fails(name).await?;
    }
    quiet.is_well("db").await?;
    // This one was told before: nobody is left with something open that is not.
    quiet.is_well("web").await?;
    let told = quiet.0.at(10).await?;
    ensure!(told[1..] == ["api fails", "web is well"], "{told:?}");
    let (reason, message) = quiet.0.is_ready().await?;
    let says = format!("Silence 'move' is in force until {}", quiet.time(3_600));
    ensure!(reason == "Succeeded" && message.contains(&says), "{reason}: {message}");
    ensure!(quiet.0.at(3_599).await?.len() == 3);
    let told = quiet.0.at(3_600).await?;
    let author = &member.username;
    ensure!(
        told[3..]
            == [
                format!(
                    "Silence 'move' by {author} is over: the database moves\n3 failures, 1 recovery\nStill failing: 1\n\
                     - Kustomization/apps/cache on edge-1: cache fails"
                ),
                "cache fails".to_owned()
            ],
        "{told:?}"
    );
    ensure!(count(site, "SELECT count(*) FROM gathered").await? == 0);
    // Once: and what happens after it is told as ever.
    quiet.is_well("cache").await?;
    quiet.fails("db").await?;
    let told = quiet.0.at(3_700).await?;
    ensure!(told[5..] == ["cache is well", "db fails"], "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_silence_that_is_deleted_is_over_and_one_of_another_alert_is_none() -> Result<()> {
    let quiet = Quiet::new("generic", &["web"]).await?;
    let site = &quiet.0.site;
    site.apply(quiet.silence(3_600, json!({ "alerts": [{ "name": "another" }] }))).await?;
    quiet.fails("web").await?;
    ensure!(quiet.0.at(0).await? == ["web fails"]);
    quiet.is_well("web").await?;
    ensure!(quiet.0.at(1).await?.len() == 2);
    site.apply(quiet.silence(3_600, json!({ "alerts": [{ "name": "alert" }] }))).await?;
    quiet.fails("web").await?;
    ensure!(quiet.0.at(400).await?.len() == 2);
    site.delete(KindId::Silence, "apps", "move").await?;
    let told = quiet.0.at(401).await?;
    ensure!(told[2].starts_with("Silence 'move' is over\n1 failure\n") && told[3] == "web fails", "{told:?}");
    Ok(())
}

#[tokio::test]
async fn what_was_well_before_anybody_heard_of_it_is_only_counted() -> Result<()> {
    let quiet = Quiet::new("pagerduty", &["web"]).await?;
    let site = &quiet.0.site;
    site.apply(quiet.silence(60, json!({}))).await?;
    quiet.fails("web").await?;
    quiet.0.at(0).await?;
    // No news says so: the object does.
    let well = "UPDATE resource SET object = jsonb_set(object, '{status}', '{\"conditions\": [{\"type\": \"Ready\", \"status\": \"True\"}]}')
         WHERE kind = 'Kustomization'";
    sqlx::raw_sql(well).execute(&mut site.database.connect().await?).await?;
    quiet.0.at(60).await?;
    // A service that opens and closes gets no summary.
    ensure!(quiet.0.sink.got().is_empty(), "{:?}", quiet.0.sink.got());
    ensure!(count(site, "SELECT count(*) FROM gathered").await? == 0);
    Ok(())
}

#[tokio::test]
async fn incidents_wait_for_the_end_of_a_silence_and_are_resolved_in_it() -> Result<()> {
    let quiet = Quiet::new("generic", &["web", "api", "db"]).await?;
    let site = &quiet.0.site;
    let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
    let group = json!({ "wait": "10s", "repeatInterval": "20m" });
    site.apply(alert("apps", json!({ "eventSources": sources, "group": group }))).await?;
    quiet.forget().await?;
    for name in ["web", "api"] {
        quiet.fails(name).await?;
        quiet.0.at(0).await?;
    }
    let told = quiet.0.at(10).await?;
    ensure!(told == ["web fails", "api fails"], "{told:?}");
    site.apply(quiet.silence(3_600, json!({}))).await?;
    quiet.fails("db").await?;
    quiet.is_well("api").await?;
    ensure!(quiet.0.at(20).await?.len() == 2);
    let told = quiet.0.at(30).await?;
    ensure!(told.len() == 3 && told[2].starts_with("Resolved after "), "{told:?}");
    // It would be repeated by now.
    ensure!(quiet.0.at(1_300).await?.len() == 3);
    quiet.0.at(3_600).await?;
    let told = quiet.0.at(3_620).await?;
    let news: Vec<&str> = told[3..].iter().filter_map(|message| message.lines().next()).collect();
    ensure!(news.len() == 3 && news.contains(&"db fails"), "{told:?}");
    ensure!(news.iter().any(|line| line.starts_with("Silence 'move' by ")), "{told:?}");
    ensure!(news.iter().any(|line| line.starts_with("Still fails on 1 cluster, for 1h")), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn there_is_an_end_of_what_is_kept_and_it_is_told() -> Result<()> {
    let quiet = Quiet::new("generic", &[]).await?;
    let site = &quiet.0.site;
    site.apply(quiet.silence(3_600, json!({}))).await?;
    for batch in 0..11 {
        let mut tx = site.store.begin().await?;
        for number in 0..100 {
            tx.tell(news("apps", &format!("web-{batch}-{number}"), "it fails", "error"));
        }
        tx.commit().await?;
    }
    quiet.0.at(0).await?;
    ensure!(count(site, "SELECT count(*) FROM gathered").await? == 1_000);
    for _ in 0..2 {
        quiet.0.pass().await?;
        let (reason, message) = quiet.0.is_ready().await?;
        ensure!(
            reason == "NotificationDispatchFailed" && message.contains("100 of them were left out"),
            "{message}"
        );
    }
    Ok(())
}

/// A Provider with a digest each hour, and the second at which it is first told: half an hour from now, or somewhat sooner.
fn hourly(quiet: &Quiet) -> (Value, i64) {
    let (now, url) = (quiet.0.clock.0.as_second(), &quiet.0.sink.url);
    let minute = now / 60 + 30;
    let digest = json!({ "cron": format!("{} * * * *", minute % 60) });
    (provider("apps", json!({ "type": "generic", "address": url, "digest": digest })), minute * 60 - now)
}

#[tokio::test]
async fn each_object_that_still_fails_at_the_end_of_a_silence_is_told() -> Result<()> {
    let names: Vec<String> = (0..45).map(|number| format!("web-{number}")).collect();
    let quiet = Quiet::new("generic", &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    quiet.0.site.apply(quiet.silence(60, json!({}))).await?;
    for name in &names {
        quiet.fails(name).await?;
    }
    ensure!(quiet.0.at(0).await?.is_empty());
    let told = quiet.0.at(60).await?;
    ensure!(told.len() == 46 && told[0].contains("\n45 failures\nStill failing: 45\n"), "{told:?}");
    let first = told[0].lines().count();
    ensure!(first == 3 + 21 && told[0].ends_with("\n- and 25 more"), "{}", told[0]);
    for (told, name) in told[1..].iter().zip(&names) {
        ensure!(*told == format!("{name} fails"), "{told}");
    }
    Ok(())
}

#[tokio::test]
async fn a_digest_is_one_message_of_all_alerts_of_its_provider() -> Result<()> {
    let quiet = Quiet::new("generic", &["web", "api", "db"]).await?;
    let (site, hub) = (&quiet.0.site, &quiet.0.hub);
    let (hourly, first) = hourly(&quiet);
    site.apply(hourly).await?;
    let second = json!({ "apiVersion": NOTIFICATION, "kind": "Alert", "metadata": { "namespace": "apps", "name": "second" },
        "spec": { "providerRef": { "name": "chat" }, "eventSources": [{ "kind": "Kustomization", "name": "db" }] } });
    site.apply(second).await?;
    quiet.forget().await?;
    // Begins to gather.
    quiet.0.at(0).await?;
    for name in ["web", "api", "db"] {
        quiet.fails(name).await?;
    }
    quiet.is_well("web").await?;
    quiet.0.at(1).await?;
    let mut tx = site.store.begin().await?;
    let mut drift = news("apps", "web", "2 objects differ", "error");
    (drift.condition, drift.event["reason"]) = (None, "DriftDetected".into());
    tx.tell(drift);
    tx.commit().await?;
    ensure!(quiet.0.at(first - 1).await?.is_empty());
    let (_, message) = quiet.0.is_ready().await?;
    ensure!(
        message.contains(&format!("they are told in one message, the next time at {}", quiet.time(first))),
        "{message}"
    );
    // Both Alerts are looked at, and one of them tells it.
    quiet.0.clock.set(first);
    let uid = site.stored(KindId::Alert, "apps", "second").await?.uid;
    hub.notify.process_alert(uid).await?;
    let told = quiet.0.at(first).await?;
    ensure!(told.len() == 1, "{told:?}");
    let tail = "\n3 failures, 1 recovery, 1 drift\nStill failing: 2\n- Kustomization/apps/api on edge-1: api fails\n\
                - Kustomization/apps/db on edge-1: db fails";
    ensure!(told[0].starts_with("What happened in the last ") && told[0].ends_with(tail), "{told:?}");
    // Who fails on is named again, and where all is well there is nothing to tell.
    let told = quiet.0.at(first + 3_600).await?;
    ensure!(told.len() == 2 && told[1].starts_with("Nothing new since the last digest\n"), "{told:?}");
    for name in ["api", "db"] {
        quiet.is_well(name).await?;
    }
    let told = quiet.0.at(first + 7_200).await?;
    ensure!(told.len() == 3 && told[2].contains("recoveries") && !told[2].contains("Still"), "{told:?}");
    ensure!(quiet.0.at(first + 10_800).await?.len() == 3);
    Ok(())
}

#[tokio::test]
async fn a_digest_leaves_out_what_a_suspended_alert_has_heard_until_it_goes_on() -> Result<()> {
    let quiet = Quiet::new("generic", &["web", "api"]).await?;
    let (site, hub) = (&quiet.0.site, &quiet.0.hub);
    let (hourly, first) = hourly(&quiet);
    site.apply(hourly).await?;
    let second = |suspend: bool| {
        json!({ "apiVersion": NOTIFICATION, "kind": "Alert", "metadata": { "namespace": "apps", "name": "second" },
            "spec": { "providerRef": { "name": "chat" }, "eventSources": [{ "kind": "Kustomization", "name": "api" }],
                "suspend": suspend } })
    };
    site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "web" }] })))
        .await?;
    site.apply(second(false)).await?;
    quiet.forget().await?;
    quiet.0.at(0).await?;
    for name in ["web", "api"] {
        quiet.fails(name).await?;
    }
    quiet.0.at(1).await?;
    site.apply(second(true)).await?;
    let told = quiet.0.at(first).await?;
    ensure!(
        told.len() == 1 && told[0].contains("\n1 failure\n") && !told[0].contains("apps/api"),
        "{told:?}"
    );
    site.apply(second(false)).await?;
    quiet.0.clock.set(first + 3_600);
    hub.notify.process_alert(site.stored(KindId::Alert, "apps", "second").await?.uid).await?;
    let told = quiet.0.sink.messages();
    ensure!(told.len() == 2 && told[1].contains("\n1 failure\n") && told[1].contains("apps/api"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn without_its_digest_a_provider_is_told_what_was_gathered() -> Result<()> {
    let quiet = Quiet::new("generic", &["web"]).await?;
    let site = &quiet.0.site;
    site.apply(hourly(&quiet).0).await?;
    quiet.forget().await?;
    quiet.fails("web").await?;
    ensure!(quiet.0.at(0).await?.is_empty());
    // A Silence's news goes with the digest, too.
    site.apply(quiet.silence(20, json!({}))).await?;
    quiet.fails("web").await?;
    quiet.0.at(1).await?;
    quiet.0.at(20).await?;
    ensure!(count(site, "SELECT count(*) FROM gathered WHERE silence = ''").await? == 1);
    let url = &quiet.0.sink.url;
    site.apply(provider("apps", json!({ "type": "generic", "address": url }))).await?;
    let told = quiet.0.at(30).await?;
    ensure!(told.len() == 2 && told[0].contains("\n2 failures\n") && told[1] == "web fails", "{told:?}");
    Ok(())
}

#[tokio::test]
async fn who_writes_a_silence_is_noted_and_cannot_be_made_up() -> Result<()> {
    let quiet = Quiet::new("generic", &[]).await?;
    let site = &quiet.0.site;
    let member = site.member("apps").await?;
    site.apply_as(&member, quiet.silence(3_600, json!({ "author": "root" }))).await?;
    let author = async || -> Result<Value> {
        Ok(site.stored(KindId::Silence, "apps", "move").await?.object["spec"]["author"].clone())
    };
    ensure!(author().await? == member.username.as_str());
    // Somebody's label changes nothing of that, and another end does.
    let mut labelled = quiet.silence(3_600, json!({}));
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    site.apply(labelled).await?;
    ensure!(author().await? == member.username.as_str());
    site.apply(quiet.silence(7_200, json!({}))).await?;
    ensure!(author().await? != member.username.as_str());
    // Kept back is what Alerts of its namespace send.
    site.namespace("other").await?;
    let mut elsewhere = quiet.silence(3_600, json!({}));
    elsewhere["metadata"]["namespace"] = "other".into();
    site.delete(KindId::Silence, "apps", "move").await?;
    site.apply(elsewhere).await?;
    quiet.0.happens("heard").await?;
    pass(&quiet.0.hub, site, "apps").await?;
    ensure!(quiet.0.sink.messages() == ["heard"]);
    Ok(())
}
