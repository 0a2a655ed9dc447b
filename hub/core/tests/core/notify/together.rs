//! News that does not tell of failures: of an Alert that groups, what says the same of many objects is one message.

use anyhow::{Result, ensure};
use jiff::SignedDuration;
use roadstead_api::{KindId, Time};
use serde_json::{Value, json};

use super::{Alerted, alert, count, happens, news};
use crate::support::{FLEET, kustomization};

/// An Alert that hears of all that happens, and groups as `group` says.
async fn informed(group: Value) -> Result<Alerted> {
    let alerted = Alerted::new("generic").await?;
    let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
    alerted
        .site
        .apply(alert("apps", json!({ "eventSources": sources, "eventSeverity": "info", "group": group })))
        .await?;
    Ok(alerted)
}

/// Has Kustomizations of these clusters be applied at a revision.
async fn applied(alerted: &Alerted, numbers: impl Iterator<Item = usize>, revision: &str) -> Result<()> {
    let mut tx = alerted.site.store.begin().await?;
    for number in numbers {
        let cluster = format!("edge-{number}");
        let mut news =
            news("apps", &format!("web-{cluster}"), &format!("finished on {cluster} in {number}s"), "info");
        news.cluster = Some(cluster);
        news.event["reason"] = "ReconciliationSucceeded".into();
        news.event["metadata"] = json!({ "kustomize.toolkit.fluxcd.io/revision": revision });
        tx.tell(news);
    }
    tx.commit().await?;
    Ok(())
}

/// Has Kustomizations of another namespace be applied at a revision, each on a cluster of its name.
async fn applied_in(alerted: &Alerted, namespace: &str, names: &[&str]) -> Result<()> {
    let mut tx = alerted.site.store.begin().await?;
    for name in names {
        let mut news = news(namespace, name, &format!("finished on {name} of {namespace}"), "info");
        news.cluster = Some((*name).to_owned());
        news.event["reason"] = "ReconciliationSucceeded".into();
        news.event["metadata"] = json!({ "kustomize.toolkit.fluxcd.io/revision": "main@sha1:a",
            "event.toolkit.fluxcd.io/team": namespace });
        tx.tell(news);
    }
    tx.commit().await?;
    Ok(())
}

#[tokio::test]
async fn who_may_not_be_told_of_any_more_is_not() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let grant = |namespace: &str| {
        json!({ "apiVersion": FLEET, "kind": "ReferenceGrant", "metadata": { "namespace": namespace, "name": "alerts" },
            "spec": { "from": [{ "group": "notification.toolkit.fluxcd.io", "kind": "Alert", "namespace": "apps" }],
                "to": [{ "group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization" }] } })
    };
    for namespace in ["bank", "shop"] {
        site.namespace(namespace).await?;
        site.apply(grant(namespace)).await?;
    }
    let member = site.member("apps").await?;
    site.delete(KindId::Alert, "apps", "alert").await?;
    let sources = json!([{ "kind": "Kustomization", "name": "*" }, { "kind": "Kustomization", "name": "*", "namespace": "*" }]);
    let spec = json!({ "eventSources": sources, "eventSeverity": "info", "group": { "wait": "30s" } });
    site.apply_as(&member, alert("apps", spec)).await?;
    sqlx::raw_sql("DELETE FROM news").execute(&mut site.database.connect().await?).await?;
    // The first of it is what its message is of.
    applied_in(&alerted, "bank", &["vault", "tills"]).await?;
    applied_in(&alerted, "shop", &["front", "store"]).await?;
    applied_in(&alerted, "apps", &["local"]).await?;
    ensure!(alerted.at(0).await?.is_empty() && count(site, WAITING).await? == 1);
    ensure!(count(site, "SELECT count(*) FROM news_group_object").await? == 5);
    site.delete(KindId::ReferenceGrant, "bank", "alerts").await?;
    let told = alerted.at(30).await?;
    ensure!(told == ["On 3 clusters:\nfinished on local of apps\nfront, local, store"], "{told:?}");
    let body = alerted.sink.got()[0].1.clone();
    let whole = body.to_string();
    ensure!(!["bank", "vault", "tills"].iter().any(|name| whole.contains(name)), "{whole}");
    ensure!(body["metadata"] == json!({ "revision": "main@sha1:a" }), "{body}");
    // Of nobody, nothing is told.
    applied_in(&alerted, "shop", &["front"]).await?;
    alerted.at(400).await?;
    site.delete(KindId::ReferenceGrant, "shop", "alerts").await?;
    ensure!(alerted.at(430).await?.len() == 1 && count(site, WAITING).await? == 0);
    Ok(())
}

#[tokio::test]
async fn a_silence_that_is_made_meanwhile_keeps_back_what_is_gathered() -> Result<()> {
    let alerted = informed(json!({ "wait": "30s" })).await?;
    let site = &alerted.site;
    let labelled = |number: usize, tier: &str| {
        let mut object = kustomization("apps", &format!("web-edge-{number}"), "./web", json!({}));
        object["metadata"]["labels"] = json!({ "tier": tier });
        object
    };
    for (number, tier) in [(1, "batch"), (2, "batch"), (3, "web"), (4, "web"), (5, "batch")] {
        site.apply(labelled(number, tier)).await?;
    }
    sqlx::raw_sql("DELETE FROM news; DELETE FROM delivery")
        .execute(&mut site.database.connect().await?)
        .await?;
    // That this one is well again is not kept back: it was told that it was not.
    happens(site, "apps", "web-edge-5", "it fails").await?;
    let plain = json!([{ "kind": "Kustomization", "name": "*" }]);
    site.apply(alert("apps", json!({ "eventSources": plain }))).await?;
    ensure!(alerted.at(0).await? == ["it fails"]);
    site.apply(alert(
        "apps",
        json!({ "eventSources": plain, "eventSeverity": "info", "group": { "wait": "30s" } }),
    ))
    .await?;
    applied(&alerted, 1..=5, "main@sha1:a").await?;
    ensure!(alerted.at(1).await?.len() == 1);
    let until = Time(alerted.clock.0 + SignedDuration::from_secs(3_600)).to_string();
    site.apply(json!({ "apiVersion": FLEET, "kind": "Silence", "metadata": { "namespace": "apps", "name": "move" },
        "spec": { "reason": "it moves", "until": until, "objects": [{ "matchLabels": { "tier": "batch" } }] } }))
        .await?;
    let told = alerted.at(31).await?;
    ensure!(told.len() == 2, "{told:?}");
    ensure!(
        told[1] == "On 3 clusters:\nfinished on edge-3 in <duration>\nedge-3, edge-4, edge-5",
        "{told:?}"
    );
    // What is kept back is counted.
    let told = alerted.at(3_600).await?;
    ensure!(told.len() == 3 && told[2].ends_with("\n2 other events"), "{told:?}");
    Ok(())
}

const WAITING: &str = "SELECT count(*) FROM news_group";

#[tokio::test]
async fn what_goes_well_on_many_clusters_is_one_message_for_each_revision() -> Result<()> {
    let alerted = informed(json!({ "wait": "30s" })).await?;
    applied(&alerted, 1..=60, "main@sha1:a").await?;
    ensure!(alerted.at(0).await?.is_empty());
    applied(&alerted, 61..=100, "main@sha1:a").await?;
    applied(&alerted, 1..=1, "main@sha1:b").await?;
    alerted.clock.set(10);
    let next = alerted.pass().await?;
    ensure!((19.0..=20.0).contains(&next), "{next}");
    // Each once, however often it is told.
    applied(&alerted, 1..=3, "main@sha1:a").await?;
    ensure!(alerted.at(29).await?.is_empty());
    let told = alerted.at(30).await?;
    ensure!(told.len() == 1, "{told:?}");
    ensure!(
        told[0].starts_with("On 100 clusters:\nfinished on edge-1 in 1s\nedge-1, edge-10, edge-100, "),
        "{told:?}"
    );
    ensure!(told[0].ends_with("and 80 more"), "{told:?}");
    let body = &alerted.sink.got()[0].1;
    ensure!(body["metadata"] == json!({ "revision": "main@sha1:a" }) && body["severity"] == "info", "{body}");
    // Of one object only it is what it is.
    let told = alerted.at(40).await?;
    ensure!(told.len() == 2 && told[1] == "finished on edge-1 in 1s", "{told:?}");
    ensure!(alerted.sink.got()[1].1["metadata"]["cluster"] == "edge-1");
    // The same of the same is not told for a while, and of others it is.
    applied(&alerted, 1..=100, "main@sha1:a").await?;
    alerted.at(41).await?;
    ensure!(alerted.at(80).await?.len() == 2);
    applied(&alerted, 1..=99, "main@sha1:a").await?;
    alerted.at(81).await?;
    ensure!(alerted.at(120).await?.len() == 3 && count(&alerted.site, WAITING).await? == 0);
    Ok(())
}

#[tokio::test]
async fn what_there_is_no_room_for_is_told_at_once_and_nothing_is_left_behind() -> Result<()> {
    let alerted = informed(json!({ "wait": "30s" })).await?;
    let letters = |number: usize| {
        format!("{}{}", ["a", "b", "c", "d", "e", "f"][number / 26], char::from(b'a' + (number % 26) as u8))
    };
    for number in 0..103 {
        applied(&alerted, number..=number, &format!("{}@sha1:a", letters(number))).await?;
    }
    ensure!(alerted.at(0).await?.len() == 3 && count(&alerted.site, WAITING).await? == 100);
    // A clock that is put back holds nothing up; nor does an Alert that groups no more.
    ensure!(alerted.at(-3_600).await?.len() == 103 && count(&alerted.site, WAITING).await? == 0);
    applied(&alerted, 1..=2, "main@sha1:b").await?;
    ensure!(alerted.at(-3_500).await?.len() == 103);
    let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
    alerted.site.apply(alert("apps", json!({ "eventSources": sources }))).await?;
    let told = alerted.at(-3_499).await?;
    ensure!(told.len() == 104 && told[103].starts_with("On 2 clusters:\n"), "{told:?}");
    // And that tells each by itself, at once.
    applied(&alerted, 1..=2, "main@sha1:c").await?;
    ensure!(alerted.at(-3_498).await?.len() == 106);
    Ok(())
}
