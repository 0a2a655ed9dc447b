//! An object whose passes end the hub's process is left alone; others that were processed at the same time are not.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_hub_core::{Hub, HubOptions, SystemClock};
use roadstead_model::{Claim, Queue, Room};
use serde_json::Value;

use crate::support::{Replica, Site};

/// A process of the hub that will end without a word.
async fn process(site: &Site) -> Result<Hub> {
    Ok(Hub::open(site.store().await?, Arc::new(SystemClock), HubOptions::default()).await?)
}

/// What another one notices of its end.
async fn bury(site: &Site, ended: Hub) -> Result<()> {
    drop(ended);
    process(site).await?.sessions.bury_dead_replicas(Duration::ZERO).await?;
    Ok(())
}

async fn claims(hub: &Hub) -> Result<Vec<Claim>> {
    Ok(hub.schedule.claim_due(Queue::Applier, &Room::of(10, true)).await?.claims)
}

async fn object(replica: &Replica, name: &str) -> Result<Value> {
    replica.kubectl.get(&["kustomization", name]).await
}

async fn ask(replica: &Replica, name: &str, word: &str) -> Result<()> {
    let annotation = format!("reconcile.fluxcd.io/requestedAt={word}");
    let object = format!("kustomization/{name}");
    replica.kubectl.run(&["annotate", "--overwrite", &object, &annotation]).await?;
    Ok(())
}

#[tokio::test]
async fn an_object_whose_looks_end_the_hub_is_left_alone_and_no_other_is() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let manifest = |name: &str| {
        format!(
            "---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: \
             default}}\nspec: {{interval: 1h, prune: true, path: ./, sourceRef: {{kind: GitRepository, name: app}}}}\n"
        )
    };
    replica.kubectl.apply(&(manifest("killer") + &manifest("honest"))).await?;
    let uid = object(&replica, "killer").await?["metadata"]["uid"].as_str().context("a uid")?.to_owned();
    let is_killer = |claim: &Claim| claim.uid.to_string() == uid;

    // Both are under way when the process ends: nobody knows which it was.
    let hub = process(&site).await?;
    let both = claims(&hub).await?;
    ensure!(both.len() == 2 && both.iter().all(|claim| !claim.is_suspect()), "{both:?}");
    bury(&site, hub).await?;

    // From now on they are taken one at a time.
    for lost in 1..=2 {
        let hub = process(&site).await?;
        loop {
            let one = claims(&hub).await?;
            ensure!(one.iter().filter(|claim| claim.is_suspect()).count() == 1, "{one:?}");
            let suspect = *one.iter().find(|claim| claim.is_suspect()).context("a suspect")?;
            ensure!(hub.schedule.leave_alone(Queue::Applier, suspect).await?.is_none(), "too early");
            if is_killer(&suspect) {
                ensure!(suspect.lost == lost, "{suspect:?}");
                break;
            }
            // The other one goes well, whatever it was beside.
            hub.schedule.release_claim(suspect, hub.now() + Duration::from_secs(3600)).await?;
            ask(&replica, "honest", &format!("round-{lost}")).await?;
        }
        bury(&site, hub).await?;
    }

    // Enough: it is left alone, and says so.
    let hub = process(&site).await?;
    let killer = loop {
        let one = *claims(&hub).await?.iter().find(|claim| claim.is_suspect()).context("a suspect")?;
        let left = hub.schedule.leave_alone(Queue::Applier, one).await?;
        if is_killer(&one) {
            let until = left.context("it is taken a fourth time")?;
            ensure!(until > hub.now() + Duration::from_secs(3500) && one.lost == 3, "{until} {one:?}");
            hub.schedule.release_untaken(one, until).await?;
            break one;
        }
        ensure!(left.is_none(), "the honest one is left alone");
        hub.schedule.release_claim(one, hub.now() + Duration::from_secs(3600)).await?;
    };
    let told = object(&replica, "killer").await?;
    let ready = &told["status"]["conditions"][0];
    ensure!(ready["reason"] == "BuildFailed" && ready["status"] == "False", "{told:#}");
    let message = ready["message"].as_str().unwrap_or_default();
    ensure!(message.contains("crashed 3 times in a row") && message.contains("Set aside"), "{message}");
    // The honest one may not have had its turn since it was asked for.
    for other in claims(&hub).await? {
        ensure!(!is_killer(&other), "the killer is due: {other:?}");
        hub.schedule.release_claim(other, hub.now() + Duration::from_secs(3600)).await?;
    }

    // A pass that something else asks for changes nothing; a reason to try again does.
    let mut tx = site.store().await?.begin().await?;
    tx.enqueue(Queue::Applier, &[killer.uid]).await?;
    tx.commit().await?;
    let again = *claims(&hub).await?.first().context("a look")?;
    ensure!(hub.schedule.leave_alone(Queue::Applier, again).await?.is_some(), "it is taken without a reason");
    hub.schedule.release_untaken(again, hub.now() + Duration::from_secs(3600)).await?;
    ask(&replica, "killer", "now").await?;
    let asked = *claims(&hub).await?.iter().find(|claim| is_killer(claim)).context("a look")?;
    ensure!(
        hub.schedule.leave_alone(Queue::Applier, asked).await?.is_none(),
        "it was asked for by annotation"
    );

    // One more end is enough now; one pass that goes well, and all is forgotten.
    bury(&site, hub).await?;
    let hub = process(&site).await?;
    let once_more = *claims(&hub).await?.iter().find(|claim| is_killer(claim)).context("a look")?;
    ensure!(hub.schedule.leave_alone(Queue::Applier, once_more).await?.is_some());
    hub.schedule.release_untaken(once_more, hub.now()).await?;
    ask(&replica, "killer", "and again").await?;
    let last = *claims(&hub).await?.iter().find(|claim| is_killer(claim)).context("a look")?;
    ensure!(hub.schedule.leave_alone(Queue::Applier, last).await?.is_none());
    hub.schedule.release_claim(last, hub.now()).await?;
    ensure!(claims(&hub).await?.iter().all(|claim| claim.lost == 0));
    Ok(())
}

#[tokio::test]
async fn a_replica_that_leaves_counts_against_nobody() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica
        .kubectl
        .apply(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: app, namespace: default}\n\
             spec: {interval: 1h, prune: true, path: ./, sourceRef: {kind: GitRepository, name: app}}\n",
        )
        .await?;
    let hub = process(&site).await?;
    ensure!(claims(&hub).await?.len() == 1);
    hub.sessions.leave().await?;
    let hub = process(&site).await?;
    let claimed = claims(&hub).await?;
    ensure!(claimed.len() == 1 && !claimed[0].is_suspect(), "{claimed:?}");
    Ok(())
}
