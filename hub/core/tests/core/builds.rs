//! How many builds of a namespace run at once, where a quota says so, and how many objects one has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_core::{Clock, Hub, HubOptions};
use roadstead_hub_store::{BuildTurn, TurnOf};
use roadstead_model::{Queue, ReplicaId, ResourceUid, Room};
use roadstead_tests::{PATIENCE, eventually};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Site, config_map, file, kustomization};

const RUNNING: &str = "running/builds.fleet.roadstead.dev";

/// A time that stands still: nothing comes to be due by waiting for it.
struct Still(Timestamp);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }
}

fn quota(limit: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "namespace": "team-a", "name": "team" },
        "spec": { "hard": { RUNNING: limit } } })
}

fn app(namespace: &str, name: &str) -> Value {
    kustomization(namespace, name, &format!("./{name}"), json!({ "clusterRef": { "name": "edge" } }))
}

/// Two teams with the same repository, of which each folder is another build, and a quota of the first one.
async fn teams(limit: &str) -> Result<Site> {
    let site = Site::new().await?;
    site.cluster("edge", json!([{ "namespace": "*", "agentRights": true }])).await?;
    for namespace in ["team-a", "team-b"] {
        site.namespace(namespace).await?;
        let folders = (0..8).map(|number| {
            let name = format!("{namespace}-app-{number}");
            file(&format!("app-{number}/map.yaml"), &[config_map("web", &name)])
        });
        site.source(namespace, "fleet", &folders.collect::<Vec<_>>()).await?;
    }
    site.apply(quota(limit)).await?;
    Ok(site)
}

/// A build of team a that runs on another replica.
async fn elsewhere(site: &Site, replica: ReplicaId) -> Result<Uuid> {
    let of = TurnOf { applier: ResourceUid::random(), namespace: "team-a", replica };
    let hour = Duration::from_secs(3600);
    match site.store.take_build_turn(of, i64::MAX, site.hub.now(), hour, |_| hour).await? {
        BuildTurn::Runs(id) => Ok(id),
        BuildTurn::Waits(_) => bail!("there is no turn"),
    }
}

/// That a pass over this Kustomization of team a finds no turn.
async fn waits(site: &Site, name: &str) -> Result<()> {
    let (reason, message) = site.process("team-a", name).await?;
    let said = message.starts_with("waits for its turn to build: ResourceQuota 'team' allows 1 at once");
    ensure!(reason == "Progressing" && said && message.contains(RUNNING), "{reason}: {message}");
    site.nothing_dispatched("team-a", name).await
}

async fn used(site: &Site) -> Result<String> {
    let read = site.get(KindId::ResourceQuota, "team-a", "team").await?;
    Ok(read["status"]["used"][RUNNING].as_str().context("how many run")?.to_owned())
}

async fn turns(site: &Site) -> Result<i64> {
    let count = sqlx::query_scalar("SELECT count(*) FROM build_turn");
    Ok(count.fetch_one(&mut site.database.connect().await?).await?)
}

async fn not_due(site: &Site) -> Result<()> {
    let sql = "UPDATE schedule SET due_at = 'infinity'";
    sqlx::query(sql).execute(&mut site.database.connect().await?).await?;
    Ok(())
}

async fn is_due(site: &Site, name: &str) -> Result<bool> {
    let due = sqlx::query_scalar("SELECT due_at < 'infinity' FROM schedule WHERE uid = $1");
    let uid = site.uid("team-a", name).await?;
    Ok(due.bind(uid.0).fetch_one(&mut site.database.connect().await?).await?)
}

#[tokio::test]
async fn builds_beyond_the_quota_wait_and_hold_up_nobody_else() -> Result<()> {
    let site = teams("1").await?;
    let turn = elsewhere(&site, site.hub.sessions.replica()).await?;
    ensure!(used(&site).await? == "1");
    for name in ["app-0", "app-1"] {
        site.apply(app("team-a", name)).await?;
        waits(&site, name).await?;
    }
    let told = site.stored(KindId::Kustomization, "team-a", "app-0").await?.resource_version;
    waits(&site, "app-0").await?;
    let again = site.stored(KindId::Kustomization, "team-a", "app-0").await?.resource_version;
    ensure!(told == again, "it is told over and over");
    // Who only waits is not counted, and others have no part in it.
    ensure!(used(&site).await? == "1");
    site.apply(app("team-b", "app-0")).await?;
    site.process("team-b", "app-0").await?;
    site.dispatched("team-b", "app-0").await?;
    // It goes on by itself when the other one ends, in the order in which they came.
    not_due(&site).await?;
    site.store.end_build_turn("team-a", Some(turn), None).await?;
    ensure!(is_due(&site, "app-0").await?, "the end of a build wakes nobody");
    waits(&site, "app-1").await?;
    site.process("team-a", "app-0").await?;
    site.dispatched("team-a", "app-0").await?;
    eventually("the turn is over", PATIENCE, async || {
        ensure!(used(&site).await? == "0");
        ensure!(is_due(&site, "app-1").await?, "the end of a build wakes nobody");
        Ok(())
    })
    .await?;
    site.process("team-a", "app-1").await?;
    site.dispatched("team-a", "app-1").await?;
    eventually("nothing is left", PATIENCE, async || {
        ensure!(turns(&site).await? == 0);
        Ok(())
    })
    .await?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn what_is_built_already_needs_no_turn() -> Result<()> {
    let site = teams("1").await?;
    site.apply(app("team-a", "app-0")).await?;
    site.process("team-a", "app-0").await?;
    site.dispatched("team-a", "app-0").await?;
    eventually("the turn is over", PATIENCE, async || {
        ensure!(turns(&site).await? == 0);
        Ok(())
    })
    .await?;
    elsewhere(&site, site.hub.sessions.replica()).await?;
    let same = kustomization("team-a", "same", "./app-0", json!({ "clusterRef": { "name": "edge" } }));
    site.apply(same).await?;
    site.process("team-a", "same").await?;
    site.dispatched("team-a", "same").await?;
    // A quota that is raised, or gone, lets go on who waits.
    site.apply(app("team-a", "app-1")).await?;
    waits(&site, "app-1").await?;
    not_due(&site).await?;
    site.delete(KindId::ResourceQuota, "team-a", "team").await?;
    ensure!(is_due(&site, "app-1").await?, "the quota's end wakes nobody");
    site.process("team-a", "app-1").await?;
    site.dispatched("team-a", "app-1").await?;
    ensure!(turns(&site).await? == 1, "it waits for a turn that it does not need");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_replica_that_is_gone_builds_nothing() -> Result<()> {
    let site = teams("1").await?;
    elsewhere(&site, ReplicaId::random()).await?;
    site.apply(app("team-a", "app-0")).await?;
    waits(&site, "app-0").await?;
    not_due(&site).await?;
    site.hub.sessions.bury_dead_replicas(Duration::from_secs(60)).await?;
    ensure!(is_due(&site, "app-0").await?, "its end wakes nobody");
    site.process("team-a", "app-0").await?;
    site.dispatched("team-a", "app-0").await?;
    site.close().await;
    Ok(())
}

/// Makes passes as two replicas do, by what is due alone, at one moment: so nothing goes on because somebody waited long enough.
#[tokio::test]
async fn all_have_their_turn_one_after_the_other_on_two_replicas() -> Result<()> {
    let site = teams("1").await?;
    let (mut hubs, clock) = (Vec::new(), Arc::new(Still(site.hub.now())));
    for store in [site.store.clone(), site.other_store().await?] {
        let options = HubOptions { workers: Some(site.workers.clone()), ..HubOptions::default() };
        hubs.push(Hub::open(store, Arc::clone(&clock) as Arc<dyn Clock>, options).await?);
    }
    let mut names = BTreeSet::new();
    for number in 0..6 {
        names.insert(format!("app-{number}"));
        site.apply(app("team-a", &format!("app-{number}"))).await?;
    }
    eventually("all are dispatched", PATIENCE, async || {
        let due = futures::future::try_join_all(hubs.iter().map(async |hub| {
            let due = hub.schedule.claim_due(Queue::Applier, &Room::of(4, false)).await?;
            let passes = due.claims.into_iter().map(async |claim| {
                let next = hub.delivery.process_applier(claim.uid).await?;
                hub.schedule.release_claim(claim, next).await?;
                anyhow::Ok(())
            });
            futures::future::try_join_all(passes).await
        }));
        let running = async {
            let running = site.store.running_builds("team-a", site.hub.now()).await?;
            ensure!(running <= 1, "{running} run at once");
            anyhow::Ok(())
        };
        futures::future::try_join(due, running).await?;
        let mut dispatched = 0;
        for name in &names {
            let uid = site.uid("team-a", name).await?;
            dispatched += usize::from(site.store.newest_reconciliation(uid.into()).await?.is_some());
        }
        ensure!(dispatched == names.len(), "{dispatched} of {}", names.len());
        Ok(())
    })
    .await?;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_build_has_no_more_objects_than_an_inventory() -> Result<()> {
    let site = Site::new().await?;
    site.cluster("edge", json!([{ "namespace": "team-a", "agentRights": true }])).await?;
    site.namespace("team-a").await?;
    let maps = |numbers: std::ops::Range<usize>| -> Vec<Value> {
        numbers.map(|number| config_map("web", &format!("map-{number}"))).collect()
    };
    let files = [file("app-0/one.yaml", &maps(0..10_000)), file("app-0/two.yaml", &maps(10_000..20_001))];
    site.source("team-a", "fleet", &files).await?;
    site.apply(app("team-a", "app-0")).await?;
    let (reason, message) = site.process("team-a", "app-0").await?;
    ensure!(reason == "BuildFailed" && message.contains("more than 20000 objects"), "{reason}: {message}");
    site.close().await;
    Ok(())
}
