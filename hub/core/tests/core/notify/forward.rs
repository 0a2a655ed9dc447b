//! The hub's own events at a notification-controller.

use anyhow::{Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::Hub;
use roadstead_hub_store::NewsItem;
use serde_json::json;

use super::{Alerted, NOTIFICATION, happens, news};

const SYSTEM: &str = "roadstead-system";

async fn pass(alerted: &Alerted, hub: &Hub) -> Result<()> {
    while hub.notify.sort().await? {}
    let alert = alerted.site.stored(KindId::Alert, SYSTEM, "events-addr").await?;
    hub.notify.process_alert(alert.uid).await?;
    Ok(())
}

#[tokio::test]
async fn all_events_go_to_a_notification_controller_in_the_form_of_flux_controllers() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    site.delete(KindId::Alert, "apps", "alert").await?;
    let hub = &alerted.hub;
    hub.notify.forward(Some("http://127.0.0.1:1")).await?;
    // Another address, by another replica, or the next version of this one.
    hub.notify.forward(Some(&alerted.sink.url)).await?;
    hub.notify.forward(Some(&alerted.sink.url)).await?;
    let mut tx = site.store.begin().await?;
    let mut item: NewsItem = news("apps", "web", "build failed", "error");
    item.event["metadata"] = json!({ "kustomize.toolkit.fluxcd.io/revision": "main@sha1:1",
        "kustomize.toolkit.fluxcd.io/token": "t", "event.toolkit.fluxcd.io/team": "blue" });
    tx.tell(item);
    tx.commit().await?;
    happens(site, "elsewhere", "web", "of a namespace that is not there").await?;
    pass(&alerted, hub).await?;
    let got = alerted.sink.got();
    ensure!(got.len() == 2, "{got:?}");
    let (_, body) = &got[0];
    ensure!(body["involvedObject"]["name"] == "web" && body["severity"] == "error", "{body}");
    ensure!(
        body["metadata"]
            == json!({ "kustomize.toolkit.fluxcd.io/revision": "main@sha1:1", "kustomize.toolkit.fluxcd.io/token": "t",
                "event.toolkit.fluxcd.io/team": "blue",
                "kustomize.toolkit.fluxcd.io/cluster": "edge-1" }),
        "{body}"
    );
    hub.notify.forward(None).await?;
    for kind in [KindId::Alert, KindId::Provider] {
        ensure!(site.store.get(kind, SYSTEM, "events-addr").await?.is_none(), "{kind:?}");
    }
    hub.notify.forward(None).await?;
    Ok(())
}

#[tokio::test]
async fn what_somebody_else_made_of_that_name_stays() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let site = &alerted.site;
    let metadata = json!({ "namespace": SYSTEM, "name": "events-addr" });
    let spec = json!({ "type": "generic", "address": alerted.sink.url });
    site.apply(json!({ "apiVersion": NOTIFICATION, "kind": "Provider", "metadata": metadata, "spec": spec }))
        .await?;
    alerted.hub.notify.forward(None).await?;
    ensure!(site.store.get(KindId::Provider, SYSTEM, "events-addr").await?.is_some());
    Ok(())
}
