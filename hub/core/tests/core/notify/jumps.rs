//! A clock that jumps by an hour, forward and back: nothing is held up by it, lost or told twice.

use anyhow::{Result, ensure};
use jiff::SignedDuration;
use roadstead_api::{KindId, Time};
use roadstead_tests::sink::Answer;
use serde_json::{Value, json};

use super::{Alerted, NOTIFICATION, alert, count, happens, news, provider};
use crate::support::FLEET;

const HOUR: i64 = 3_600;

async fn is_well(alerted: &Alerted) -> Result<()> {
    let mut tx = alerted.site.store.begin().await?;
    let mut news = news("apps", "web", "it is well", "info");
    news.event["reason"] = "ReconciliationSucceeded".into();
    tx.tell(news);
    tx.commit().await?;
    Ok(())
}

#[tokio::test]
async fn deliveries_are_tried_again_and_the_same_news_is_told_once() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    alerted.sink.answers(&[Answer::Http(503, "", ""), Answer::Http(503, "", ""), Answer::Http(503, "", "")]);
    alerted.happens("first").await?;
    alerted.at(0).await?;
    // Some seconds are not a jump: it waits as it would.
    ensure!(alerted.at(-10).await?.len() == 1);
    ensure!(alerted.at(-HOUR).await?.len() == 2);
    ensure!(alerted.at(HOUR).await?.len() == 3);
    ensure!(alerted.at(0).await? == ["first"; 4]);
    ensure!(alerted.states().await? == [("sent".to_owned(), 4)]);
    // The same within five minutes is not told again, whichever replica has the clock that is ahead.
    alerted.happens("first").await?;
    ensure!(alerted.at(-200).await?.len() == 4);
    alerted.happens("first").await?;
    ensure!(alerted.at(-HOUR).await?.len() == 5);
    // What was counted is told.
    let told = async || {
        while alerted.hub.notify.tally().await? {}
        let stored = alerted.site.stored(KindId::Alert, "apps", "alert").await?;
        anyhow::Ok(stored.object["status"]["deliveries"]["sent"].clone())
    };
    ensure!(told().await? == 2);
    alerted.happens("second").await?;
    alerted.at(-2 * HOUR).await?;
    ensure!(told().await? == 3);
    Ok(())
}

#[tokio::test]
async fn incidents_are_told_after_their_wait_and_end() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
    site.apply(alert("apps", json!({ "eventSources": sources, "group": {} }))).await?;
    sqlx::raw_sql("DELETE FROM news; DELETE FROM delivery")
        .execute(&mut site.database.connect().await?)
        .await?;
    for name in ["web", "api"] {
        site.apply(crate::support::kustomization("apps", name, "./web", json!({}))).await?;
    }
    sqlx::raw_sql("DELETE FROM news").execute(&mut site.database.connect().await?).await?;
    happens(site, "apps", "web", "it fails").await?;
    ensure!(alerted.at(HOUR).await?.is_empty());
    // Opened in what is the future now: it waits from now on.
    ensure!(alerted.at(0).await?.is_empty() && alerted.at(29).await?.is_empty());
    let told = alerted.at(30).await?;
    ensure!(told == ["it fails"], "{told:?}");
    // Forward: told sooner, and once.
    is_well(&alerted).await?;
    ensure!(alerted.at(40).await?.len() == 1);
    ensure!(alerted.at(HOUR + 40).await?.len() == 2);
    ensure!(alerted.at(45).await?.len() == 2 && alerted.at(90).await?.len() == 2);
    // Told in the future, and well then.
    happens(site, "apps", "web", "it fails").await?;
    alerted.at(HOUR).await?;
    ensure!(alerted.at(HOUR + 30).await?.len() == 3);
    is_well(&alerted).await?;
    alerted.at(HOUR + 31).await?;
    ensure!(alerted.at(100).await?.len() == 3);
    let told = alerted.at(130).await?;
    ensure!(told.len() == 4 && told[3].starts_with("Resolved after "), "{told:?}");
    ensure!(count(site, "SELECT count(*) FROM incident WHERE ended_at IS NULL").await? == 0);
    Ok(())
}

#[tokio::test]
async fn a_silence_is_in_force_by_the_clock_as_it_is() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.apply(crate::support::kustomization("apps", "web", "./web", json!({}))).await?;
    sqlx::raw_sql("DELETE FROM news; DELETE FROM delivery")
        .execute(&mut site.database.connect().await?)
        .await?;
    let until = Time(alerted.clock.0 + SignedDuration::from_secs(HOUR)).to_string();
    let silence = json!({ "apiVersion": FLEET, "kind": "Silence", "metadata": { "namespace": "apps", "name": "move" },
        "spec": { "reason": "the database moves", "until": until } });
    site.apply(silence).await?;
    // Made in what is the future now.
    happens(site, "apps", "web", "it fails").await?;
    ensure!(alerted.at(-HOUR).await?.is_empty());
    // Forward: it is over, and who fails is told.
    let told = alerted.at(HOUR).await?;
    ensure!(told.len() == 2 && told[0].contains("\n1 failure\n") && told[1] == "it fails", "{told:?}");
    // Back: it is in force once more, and sums up only what happened since.
    happens(site, "apps", "web", "it fails for another reason").await?;
    ensure!(alerted.at(0).await?.len() == 2);
    let told = alerted.at(HOUR).await?;
    ensure!(told.len() == 4 && told[2].contains("\n1 failure\n") && told[3].ends_with("reason"), "{told:?}");
    ensure!(count(site, "SELECT count(*) FROM gathered").await? == 0);
    Ok(())
}

#[tokio::test]
async fn a_digest_comes_at_its_time_and_tells_what_is_new() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let (site, url) = (&alerted.site, &alerted.sink.url);
    site.apply(crate::support::kustomization("apps", "web", "./web", json!({}))).await?;
    sqlx::raw_sql("DELETE FROM news; DELETE FROM delivery")
        .execute(&mut site.database.connect().await?)
        .await?;
    // Due in half an hour.
    let minute = alerted.clock.0.as_second() / 60 + 30;
    let due = minute * 60 - alerted.clock.0.as_second();
    let cron = format!("{} {} * * *", minute % 60, minute / 60 % 24);
    let daily = json!({ "type": "generic", "address": url, "digest": { "cron": cron } });
    site.apply(provider("apps", daily)).await?;
    alerted.at(0).await?;
    happens(site, "apps", "web", "it fails").await?;
    alerted.at(1).await?;
    let told = alerted.at(HOUR).await?;
    ensure!(told.len() == 1 && told[0].contains("\n1 failure\n"), "{told:?}");
    is_well(&alerted).await?;
    ensure!(alerted.at(10).await?.len() == 1);
    let told = alerted.at(due).await?;
    ensure!(told.len() == 2 && told[1].ends_with("\n1 recovery"), "{told:?}");
    // It was told years ahead of its time: that holds nothing up.
    let years = 5 * 365 * 24 * HOUR;
    happens(site, "apps", "web", "it fails").await?;
    ensure!(alerted.at(years).await?.len() == 3);
    is_well(&alerted).await?;
    alerted.at(due + 1).await?;
    ensure!(alerted.at(due + 24 * HOUR).await?.len() == 4);
    Ok(())
}

#[tokio::test]
async fn each_alert_is_looked_at_once_the_clock_was_put_back() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let second: Value = json!({ "apiVersion": NOTIFICATION, "kind": "Alert", "metadata": { "namespace": "apps", "name": "second" },
        "spec": { "providerRef": { "name": "chat" }, "eventSources": [{ "kind": "Kustomization", "name": "*" }] } });
    site.apply(second).await?;
    let mut connection = site.database.connect().await?;
    sqlx::raw_sql("UPDATE schedule SET due_at = now() + interval '1 hour'").execute(&mut connection).await?;
    alerted.hub.notify.look_at_all().await?;
    let due = "SELECT count(*) FROM schedule WHERE due_at = '-infinity'";
    ensure!(count(site, due).await? == 2);
    Ok(())
}
