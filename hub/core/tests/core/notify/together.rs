//! News that does not tell of failures: of an Alert that groups, what says the same of many objects is one message.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Alerted, alert, count, news};

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
