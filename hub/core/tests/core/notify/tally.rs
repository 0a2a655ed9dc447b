//! What became of deliveries, in the status of Alerts and Providers.

use anyhow::{Result, ensure};
use roadstead_api::KindId;
use roadstead_tests::sink::Answer;
use serde_json::Value;

use super::{Alerted, count};

async fn deliveries(alerted: &Alerted, kind: KindId, name: &str) -> Result<Value> {
    Ok(alerted.site.get(kind, "apps", name).await?["status"]["deliveries"].clone())
}

#[tokio::test]
async fn what_became_of_deliveries_is_counted_and_told_once_in_a_while() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let told = async || -> Result<[Value; 2]> {
        while alerted.hub.notify.tally().await? {}
        let provider = deliveries(&alerted, KindId::Provider, "chat").await?;
        Ok([provider, deliveries(&alerted, KindId::Alert, "alert").await?])
    };
    ensure!(told().await? == [Value::Null, Value::Null]);
    alerted.sink.answers(&[Answer::Http(422, "", ""), Answer::Http(200, "", ""), Answer::Http(503, "", "")]);
    for message in ["not understood", "arrives", "waits", "behind it"] {
        alerted.happens(message).await?;
    }
    alerted.pass().await?;
    for (whose, first) in ["Provider", "Alert"].iter().zip(told().await?) {
        let counts = [&first["waiting"], &first["sent"], &first["failed"]];
        ensure!(counts == [2, 1, 1], "{whose}: {first}");
        ensure!(
            first["lastSentTime"].is_string() && first["lastFailureTime"].is_string(),
            "{whose}: {first}"
        );
        ensure!(
            first["lastFailure"].as_str().is_some_and(|why| why.contains("HTTP 503")),
            "{whose}: {first}"
        );
    }
    // Within ten seconds nothing is written again, whatever happens.
    let version = "SELECT resource_version FROM resource WHERE kind = 'Provider'";
    let before = count(&alerted.site, version).await?;
    alerted.clock.set(5);
    alerted.pass().await?;
    ensure!(told().await?[0]["sent"] == 1 && count(&alerted.site, version).await? == before);
    alerted.clock.set(11);
    for later in told().await? {
        ensure!(later["waiting"] == 0 && later["sent"] == 3 && later["failed"] == 1, "{later}");
        ensure!(later["lastFailure"].as_str().is_some_and(|why| why.contains("HTTP 503")), "{later}");
    }
    // And nothing where nothing happens.
    let before = count(&alerted.site, version).await?;
    alerted.clock.set(60);
    told().await?;
    ensure!(count(&alerted.site, version).await? == before);
    Ok(())
}

#[tokio::test]
async fn what_was_given_up_is_counted_and_what_is_gone_is_forgotten() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    alerted.sink.answers_always(Answer::Http(503, "", ""));
    for message in ["tried", "never tried"] {
        alerted.happens(message).await?;
    }
    alerted.pass().await?;
    alerted.clock.set(7 * 3600);
    alerted.pass().await?;
    while alerted.hub.notify.tally().await? {}
    for (kind, name) in [(KindId::Provider, "chat"), (KindId::Alert, "alert")] {
        let counted = deliveries(&alerted, kind, name).await?;
        ensure!(
            counted["failed"] == 2 && counted["waiting"] == 0 && counted["sent"] == 0,
            "{kind}: {counted}"
        );
        ensure!(
            counted["lastFailure"].as_str().is_some_and(|why| why.starts_with("given up")),
            "{kind}: {counted}"
        );
    }
    alerted.site.delete(KindId::Alert, "apps", "alert").await?;
    alerted.site.store.trim_deliveries(alerted.hub.now(), 1_000).await?;
    ensure!(count(&alerted.site, "SELECT count(*) FROM delivery_count").await? == 1);
    Ok(())
}
