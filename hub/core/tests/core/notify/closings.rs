//! Alerts and Providers that are deleted, and Alerts that are given another Provider: nothing stays open where it was told.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::KindId;
use roadstead_tests::sink::{Answer, Sink};
use serde_json::{Value, json};

use super::{Alerted, CANARY, alert, count, news, options, provider};
use crate::support::kustomization;

const WAITING: &str = "SELECT count(*) FROM incident_closing";
const OPEN: &str = "SELECT count(*) FROM incident WHERE ended_at IS NULL";

/// A hub with an Alert that groups and tells at once, of two Kustomizations.
async fn grouping(type_: &str) -> Result<Alerted> {
    let alerted = Alerted::with(type_, options(true)).await?;
    for name in ["web", "api"] {
        alerted.site.apply(kustomization("apps", name, "./web", json!({}))).await?;
    }
    alerted.site.apply(grouped("chat")).await?;
    forget(&alerted).await?;
    Ok(alerted)
}

/// An Alert that groups and tells this Provider.
fn grouped(to: &str) -> Value {
    let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
    alert(
        "apps",
        json!({ "eventSources": sources, "group": { "wait": "0s" }, "providerRef": { "name": to } }),
    )
}

/// A Provider of this name.
fn named(name: &str, spec: Value) -> Value {
    let mut provider = provider("apps", spec);
    provider["metadata"]["name"] = name.into();
    provider
}

fn secret(token: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": "hook" },
        "data": { "token": STANDARD.encode(token) } })
}

/// Forgets what applying objects told.
async fn forget(alerted: &Alerted) -> Result<()> {
    let mut connection = alerted.site.database.connect().await?;
    sqlx::raw_sql("DELETE FROM news; DELETE FROM delivery").execute(&mut connection).await?;
    Ok(())
}

async fn is_well(alerted: &Alerted, name: &str) -> Result<()> {
    let mut tx = alerted.site.store.begin().await?;
    let mut news = news("apps", name, "it is well", "info");
    news.event["reason"] = "ReconciliationSucceeded".into();
    tx.tell(news);
    tx.commit().await?;
    Ok(())
}

/// Sends last messages of incidents as long as any are due: how many were tried.
async fn send_closing(alerted: &Alerted) -> Result<usize> {
    let mut tried = 0;
    loop {
        let due = alerted.hub.notify.closings(4).await?;
        if due.is_empty() {
            return Ok(tried);
        }
        for closing in due {
            alerted.hub.notify.send_closing(&closing).await?;
            tried += 1;
        }
    }
}

async fn last(alerted: &Alerted) -> Result<(String, Value)> {
    alerted.sink.got().pop().context("something was sent")
}

#[tokio::test]
async fn an_alert_that_is_deleted_closes_what_it_opened() -> Result<()> {
    for (type_, key) in [("pagerduty", "dedup_key"), ("alertmanager", "labels")] {
        let alerted = grouping(type_).await?;
        alerted.happens("it fails").await?;
        alerted.at(0).await?;
        let opened = last(&alerted).await?.1;
        alerted.site.delete(KindId::Alert, "apps", "alert").await?;
        ensure!(count(&alerted.site, OPEN).await? == 0 && count(&alerted.site, WAITING).await? == 1);
        ensure!(send_closing(&alerted).await? == 1);
        let got = alerted.sink.got();
        let closed = &got[1].1;
        let told = match type_ {
            "pagerduty" => {
                ensure!(
                    opened["event_action"] == "trigger" && closed["event_action"] == "resolve",
                    "{got:?}"
                );
                ensure!(opened[key] == closed[key] && opened[key].is_string(), "{got:?}");
                got[2].1["payload"]["custom_details"]["message"].clone()
            }
            _ => {
                ensure!(opened[0]["status"] == "firing" && closed[0]["status"] == "resolved", "{got:?}");
                ensure!(opened[0][key] == closed[0][key] && closed[0]["endsAt"].is_string(), "{got:?}");
                ensure!(opened[0]["startsAt"] == closed[0]["startsAt"], "{got:?}");
                closed[0]["annotations"]["message"].clone()
            }
        };
        let why = "Reports of this incident end here, although the failure may go on: the Alert was deleted.\nit fails";
        ensure!(told == why, "{told}");
        // Once.
        let sent = got.len();
        ensure!(send_closing(&alerted).await? == 0 && count(&alerted.site, WAITING).await? == 0);
        ensure!(alerted.sink.got().len() == sent);
    }
    Ok(())
}

#[tokio::test]
async fn a_last_message_has_the_words_of_the_alert_and_is_of_its_thread() -> Result<()> {
    let alerted = grouping("generic").await?;
    let mut worded = grouped("chat");
    worded["spec"]["messageExpr"] = "'[' + event.metadata.team + '] ' + event.message".into();
    worded["spec"]["eventMetadataExprs"] = json!({ "team": "'blue'" });
    worded["spec"]["eventMetadata"] = json!({ "team": "none" });
    alerted.site.apply(worded).await?;
    alerted.happens("it fails").await?;
    alerted.at(0).await?;
    let opened = last(&alerted).await?.1;
    let id = opened["incident"]["id"].as_str().context("an id")?;
    let uid = alerted.site.stored(KindId::Provider, "apps", "chat").await?.uid;
    alerted.site.store.keep_incident_thread(id.parse()?, &format!("{uid} room 1.2")).await?;
    alerted.site.delete(KindId::Alert, "apps", "alert").await?;
    let due = alerted.hub.notify.closings(1).await?;
    ensure!(due.len() == 1 && due[0].thread.as_deref() == Some(format!("{uid} room 1.2").as_str()));
    alerted.hub.notify.send_closing(&due[0]).await?;
    let closed = last(&alerted).await?.1;
    ensure!(closed["metadata"] == opened["metadata"] && closed["metadata"]["team"] == "blue", "{closed}");
    ensure!(closed["incident"]["id"] == id && closed["incident"]["stage"] == "resolved", "{closed}");
    let message = closed["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("[none] Reports of this incident end here"), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_last_message_is_tried_again_and_given_up_and_one_at_most_is_doubled() -> Result<()> {
    let alerted = grouping("generic").await?;
    for name in ["web", "api"] {
        super::happens(&alerted.site, "apps", name, &format!("{name} breaks in its own way")).await?;
    }
    ensure!(alerted.at(0).await?.len() == 2);
    alerted.sink.answers_always(Answer::Http(503, "", ""));
    alerted.site.delete(KindId::Alert, "apps", "alert").await?;
    // The second one waits with the first, which its service did not take.
    ensure!(send_closing(&alerted).await? == 1 && count(&alerted.site, WAITING).await? == 2);
    let told = "SELECT count(*) FROM delivery_count JOIN resource USING (uid) WHERE kind = 'Provider' AND error LIKE '%503%'";
    ensure!(count(&alerted.site, told).await? == 1, "the Provider says so");
    alerted.clock.set(3);
    // Whoever has taken one goes away: another replica sends it after a while, as a repeat.
    ensure!(alerted.hub.notify.closings(4).await?.len() == 1);
    ensure!(send_closing(&alerted).await? == 0, "it is taken, and one of a Provider is at a time");
    alerted.sink.answers_always(Answer::Http(200, "", ""));
    alerted.clock.set(124);
    let sent = alerted.sink.got().len();
    ensure!(send_closing(&alerted).await? == 2);
    let repeats: Vec<bool> = alerted.sink.got()[sent..]
        .iter()
        .map(|(head, _)| head.contains("x-roadstead-repeat: true"))
        .collect();
    ensure!(repeats.iter().filter(|repeat| **repeat).count() == 1, "{repeats:?}");
    ensure!(count(&alerted.site, WAITING).await? == 0);

    // It is given up after as long as a delivery is, from when it was first tried.
    let alerted = grouping("generic").await?;
    alerted.happens("it fails").await?;
    alerted.at(0).await?;
    alerted.sink.answers_always(Answer::Http(503, "", ""));
    alerted.clock.set(10_000);
    alerted.site.delete(KindId::Alert, "apps", "alert").await?;
    ensure!(send_closing(&alerted).await? == 1);
    alerted.clock.set(10_000 + 5 * 3_600);
    ensure!(send_closing(&alerted).await? == 1 && count(&alerted.site, WAITING).await? == 1);
    // A clock that is put back holds nothing up.
    alerted.clock.set(10_000);
    ensure!(send_closing(&alerted).await? == 1 && count(&alerted.site, WAITING).await? == 1);
    alerted.clock.set(10_000 + 7 * 3_600);
    ensure!(send_closing(&alerted).await? == 1 && count(&alerted.site, WAITING).await? == 0);
    Ok(())
}

#[tokio::test]
async fn what_was_not_told_needs_no_end_and_an_end_that_waits_is_not_lost() -> Result<()> {
    let alerted = grouping("generic").await?;
    let site = &alerted.site;
    // It waits to be told, and was never tried.
    site.apply(provider("apps", json!({ "type": "generic", "address": alerted.sink.url, "suspend": true })))
        .await?;
    alerted.happens("it fails").await?;
    alerted.at(0).await?;
    ensure!(count(site, "SELECT count(*) FROM delivery WHERE state = 'waiting'").await? == 1);
    site.delete(KindId::Alert, "apps", "alert").await?;
    ensure!(count(site, WAITING).await? == 0 && alerted.sink.got().is_empty());

    // It is over, and that has not arrived.
    site.apply(provider("apps", json!({ "type": "generic", "address": alerted.sink.url }))).await?;
    site.apply(grouped("chat")).await?;
    alerted.happens("it fails").await?;
    alerted.at(1).await?;
    alerted.sink.answers(&[Answer::Http(503, "", "")]);
    is_well(&alerted, "web").await?;
    alerted.at(2).await?;
    ensure!(count(site, OPEN).await? == 0 && alerted.sink.got().len() == 2);
    site.delete(KindId::Alert, "apps", "alert").await?;
    ensure!(send_closing(&alerted).await? == 1);
    let message = last(&alerted).await?.1["message"].clone();
    ensure!(message.as_str().is_some_and(|message| message.starts_with("Resolved after 1s.")), "{message}");
    Ok(())
}

#[tokio::test]
async fn what_is_on_its_way_when_the_alert_goes_is_closed_after_it_has_arrived() -> Result<()> {
    let alerted = grouping("generic").await?;
    alerted.sink.answers(&[Answer::Hang]);
    alerted.happens("it fails").await?;
    while alerted.hub.notify.sort().await? {}
    let uid = alerted.site.stored(KindId::Alert, "apps", "alert").await?.uid;
    let hub = alerted.hub.clone();
    let sending = tokio::spawn(async move { hub.notify.process_alert(uid).await });
    roadstead_tests::eventually("it is being sent", std::time::Duration::from_secs(10), async || {
        ensure!(alerted.sink.got().len() == 1);
        Ok(())
    })
    .await?;
    alerted.site.delete(KindId::Alert, "apps", "alert").await?;
    sending.abort();
    // Nobody knows whether it has arrived; it has by then, if ever.
    alerted.clock.set(74);
    ensure!(send_closing(&alerted).await? == 0 && count(&alerted.site, WAITING).await? == 1);
    alerted.clock.set(76);
    ensure!(send_closing(&alerted).await? == 1 && alerted.sink.got().len() == 2);
    Ok(())
}

#[tokio::test]
async fn an_alert_that_is_given_another_provider_closes_there_and_opens_here() -> Result<()> {
    let alerted = grouping("generic").await?;
    let (site, other) = (&alerted.site, Sink::start().await?);
    site.apply(named("pager", json!({ "type": "generic", "address": other.url }))).await?;
    super::happens(site, "apps", "api", "it fails").await?;
    alerted.at(0).await?;
    let first = last(&alerted).await?.1;
    // A message that waits is not sent to the wrong one.
    alerted.sink.answers(&[Answer::Http(503, "", "")]);
    alerted.happens("it fails").await?;
    ensure!(alerted.at(1).await?.len() == 2);
    site.apply(grouped("pager")).await?;
    alerted.at(2).await?;
    ensure!(count(site, OPEN).await? == 2 && count(site, WAITING).await? == 2);
    ensure!(send_closing(&alerted).await? == 2);
    let why = "the Alert was given another Provider.\n";
    let closed: Vec<Value> = alerted.sink.got().into_iter().skip(2).map(|(_, body)| body).collect();
    ensure!(
        closed.iter().all(|one| one["message"].as_str().is_some_and(|text| text.contains(why))),
        "{closed:?}"
    );
    ensure!(closed.iter().any(|one| one["incident"]["id"] == first["incident"]["id"]), "{closed:?}");
    // Each is another one here, so that its end there is not its end here.
    let opened: Vec<Value> = other.got().into_iter().map(|(_, body)| body).collect();
    ensure!(opened.len() == 2 && opened.iter().all(|one| one["incident"]["stage"] == "opened"), "{opened:?}");
    ensure!(opened.iter().all(|one| closed.iter().all(|old| old["incident"]["id"] != one["incident"]["id"])));
    for name in ["web", "api"] {
        is_well(&alerted, name).await?;
    }
    alerted.at(3).await?;
    ensure!(count(site, OPEN).await? == 0 && other.got().len() == 4 && alerted.sink.got().len() == 4);
    let resolved = &other.got()[3].1;
    ensure!(opened.iter().any(|one| one["incident"]["id"] == resolved["incident"]["id"]), "{resolved}");
    Ok(())
}

#[tokio::test]
async fn an_alert_that_groups_no_more_and_has_another_provider_ends_where_it_told() -> Result<()> {
    let alerted = grouping("generic").await?;
    let (site, other) = (&alerted.site, Sink::start().await?);
    site.apply(named("pager", json!({ "type": "generic", "address": other.url }))).await?;
    alerted.happens("it fails").await?;
    alerted.at(0).await?;
    let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
    site.apply(alert("apps", json!({ "eventSources": sources, "providerRef": { "name": "pager" } }))).await?;
    alerted.at(1).await?;
    ensure!(send_closing(&alerted).await? == 1 && alerted.sink.got().len() == 2);
    // As it is, to whom it was not told.
    ensure!(other.messages() == ["it fails"], "{:?}", other.messages());
    ensure!(count(site, OPEN).await? == 0);
    Ok(())
}

#[tokio::test]
async fn a_provider_that_is_deleted_is_told_with_the_secret_that_it_had_and_with_no_other() -> Result<()> {
    let alerted = grouping("generic-hmac").await?;
    let (site, url) = (&alerted.site, &alerted.sink.url);
    let told = json!({ "type": "generic-hmac", "address": url, "secretRef": { "name": "hook" } });
    for secret_stays in [false, true] {
        site.apply(secret(CANARY)).await?;
        site.apply(provider("apps", told.clone())).await?;
        super::happens(site, "apps", "web", &format!("it fails, {secret_stays}")).await?;
        let second = i64::from(secret_stays) * 10 + 10;
        alerted.at(second).await?;
        let sent = alerted.sink.got().len();
        site.delete(KindId::Provider, "apps", "chat").await?;
        if !secret_stays {
            site.delete(KindId::Secret, "apps", "hook").await?;
            // Somebody else's by now.
            site.apply(secret("of somebody else")).await?;
        }
        alerted.at(second + 1).await?;
        ensure!(count(site, WAITING).await? == 1);
        ensure!(send_closing(&alerted).await? == 1 && count(site, WAITING).await? == 0);
        let got = alerted.sink.got();
        if secret_stays {
            let (head, body) = got.last().context("it was told")?;
            let why = "the Provider was deleted.";
            ensure!(body["message"].as_str().is_some_and(|message| message.contains(why)), "{body}");
            ensure!(got.len() == sent + 1 && head.contains("x-signature: sha256="), "{head}");
        } else {
            ensure!(got.len() == sent, "{got:?}");
        }
        // What goes on is told to the next one of its name.
        site.delete(KindId::Secret, "apps", "hook").await?;
        site.apply(provider("apps", json!({ "type": "generic", "address": url }))).await?;
        let told = alerted.at(second + 2).await?;
        ensure!(told.last() == Some(&format!("it fails, {secret_stays}")), "{told:?}");
        is_well(&alerted, "web").await?;
        alerted.at(second + 3).await?;
        ensure!(count(site, OPEN).await? == 0);
        site.delete(KindId::Provider, "apps", "chat").await?;
    }
    let kept = "SELECT (SELECT count(*) FROM incident_closing WHERE incident_closing::text LIKE '%c4n4ry%')
                     + (SELECT count(*) FROM deleted_object WHERE deleted_object::text LIKE '%c4n4ry%')";
    ensure!(count(site, kept).await? == 0);
    Ok(())
}

#[tokio::test]
async fn what_git_might_not_send_is_not_sent_once_its_provider_is_gone() -> Result<()> {
    let alerted = grouping("generic").await?;
    let (site, url) = (&alerted.site, &alerted.sink.url);
    site.apply(secret(CANARY)).await?;
    let told = json!({ "type": "alertmanager", "address": url, "secretRef": { "name": "hook" } });
    site.apply(provider("apps", told)).await?;
    let uid = site.stored(KindId::Provider, "apps", "chat").await?.uid;
    // As if a Kustomization had made the Provider, and a person the Secret.
    sqlx::query(
        "INSERT INTO child (kind, namespace, name, parent, wanted, origin, kept, object)
         SELECT 'Provider', 'apps', 'chat', uid, true, 'git', false, $1 FROM resource WHERE kind = 'Kustomization' AND name = 'web'",
    )
    .bind(uid.0)
    .execute(&mut site.database.connect().await?)
    .await?;
    alerted.happens("it fails").await?;
    alerted.at(0).await?;
    let (reason, message) = alerted.is_ready().await?;
    ensure!(alerted.sink.got().is_empty() && message.contains("was not used for"), "{reason}: {message}");
    site.delete(KindId::Provider, "apps", "chat").await?;
    alerted.at(1).await?;
    ensure!(send_closing(&alerted).await? == 1 && count(site, WAITING).await? == 1);
    ensure!(alerted.sink.got().is_empty(), "{:?}", alerted.sink.got());
    Ok(())
}

#[tokio::test]
async fn what_goes_with_its_namespace_is_told_and_holds_up_nothing() -> Result<()> {
    let alerted = grouping("generic").await?;
    let site = &alerted.site;
    alerted.happens("it fails").await?;
    alerted.at(0).await?;
    sqlx::raw_sql("DELETE FROM resource WHERE kind = 'Kustomization'")
        .execute(&mut site.database.connect().await?)
        .await?;
    site.delete(KindId::Namespace, "", "apps").await?;
    let uid = site.stored(KindId::Namespace, "", "apps").await?.uid;
    site.hub.objects.process_namespace(uid).await?;
    ensure!(!site.exists(KindId::Namespace, "", "apps").await?);
    ensure!(send_closing(&alerted).await? == 1 && alerted.sink.got().len() == 2);
    let message = last(&alerted).await?.1["message"].clone();
    ensure!(message.as_str().is_some_and(|text| text.contains("the Alert was deleted")), "{message}");
    Ok(())
}

#[tokio::test]
async fn an_alert_that_waits_for_a_finalizer_is_told_to_be_over_once() -> Result<()> {
    let alerted = grouping("generic").await?;
    let site = &alerted.site;
    let held = |finalizers: Value| {
        let mut held = grouped("chat");
        held["metadata"]["finalizers"] = finalizers;
        held
    };
    site.apply(held(json!(["example.com/mine"]))).await?;
    alerted.happens("it fails").await?;
    alerted.at(0).await?;
    site.delete(KindId::Alert, "apps", "alert").await?;
    ensure!(count(site, OPEN).await? == 0 && send_closing(&alerted).await? == 1);
    let stored = site.get(KindId::Alert, "apps", "alert").await?;
    let mut freed = stored.clone();
    freed["metadata"].as_object_mut().context("metadata")?.remove("finalizers");
    site.replace(freed).await?;
    ensure!(!site.exists(KindId::Alert, "apps", "alert").await?);
    ensure!(send_closing(&alerted).await? == 0 && alerted.sink.got().len() == 2);
    Ok(())
}

#[tokio::test]
async fn what_is_known_of_what_is_gone_is_forgotten() -> Result<()> {
    let alerted = grouping("generic").await?;
    let site = &alerted.site;
    alerted.happens("it fails").await?;
    alerted.at(0).await?;
    site.delete(KindId::Alert, "apps", "alert").await?;
    site.delete(KindId::Provider, "apps", "chat").await?;
    let deleted = "SELECT count(*) FROM deleted_object";
    let long_ago = async || {
        sqlx::raw_sql("UPDATE deleted_object SET left_at = now() - interval '2 hours'")
            .execute(&mut site.database.connect().await?)
            .await?;
        anyhow::Ok(site.store.trim_deliveries(site.hub.now(), 1_000).await?)
    };
    long_ago().await?;
    ensure!(count(site, deleted).await? == 2, "it has still to be sent");
    ensure!(send_closing(&alerted).await? == 1 && alerted.sink.got().len() == 2);
    long_ago().await?;
    ensure!(count(site, deleted).await? == 0);
    Ok(())
}
