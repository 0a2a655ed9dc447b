//! An apiserver that answers, but with an error: 429, 500 before anything was done, and 500 afterwards.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::{Fault, HubSetup, PATIENCE, TestCluster, eventually};

use super::world::World;

/// Which requests are answered with an error, the first time that each comes.
#[derive(Debug, Clone, Copy)]
enum Hit {
    DryRuns,
    Writes,
    Deletions,
    Reads,
}

impl Hit {
    fn is_one(self, method: &str, path: &str) -> bool {
        let is_dry = path.contains("dryRun=All");
        match self {
            Self::DryRuns => method == "PATCH" && is_dry,
            Self::Writes => matches!(method, "PATCH" | "POST" | "PUT") && !is_dry,
            Self::Deletions => method == "DELETE" && !is_dry,
            // Watches go on: how they end and begin again is another test's.
            Self::Reads => method == "GET" && !path.contains("watch="),
        }
    }
}

#[tokio::test]
async fn an_apiserver_that_is_busy_or_broken_for_a_moment_is_got_over() -> Result<()> {
    let setup = HubSetup::new("answers").await?;
    let database = setup.database().connect().await?;
    let (way, faulty) = TestCluster::first()?.with_faults().await?;
    let mut world = World::by_way(setup, database, "answers", &way).await?;
    for (hit, fault) in [
        (Hit::DryRuns, Fault::Busy(1)),
        (Hit::Writes, Fault::Busy(1)),
        (Hit::Deletions, Fault::Busy(1)),
        (Hit::Reads, Fault::Busy(1)),
        (Hit::DryRuns, Fault::Broken),
        (Hit::Writes, Fault::Broken),
        (Hit::Deletions, Fault::Broken),
        (Hit::Reads, Fault::Broken),
        (Hit::Writes, Fault::Lost),
        (Hit::Deletions, Fault::Lost),
    ] {
        let mut seen = HashMap::new();
        let (tell, told) = tokio::sync::watch::channel(0);
        faulty.answers(move |method, path| {
            let is_first = hit.is_one(method.as_str(), path)
                && seen.insert((method.clone(), path.to_owned()), ()).is_none();
            is_first.then(|| {
                tell.send_modify(|count| *count += 1);
                fault
            })
        });
        let what = format!("{hit:?} answered by {fault:?}");
        let began = Instant::now();
        let commit = world.turn().await?;
        world.fleet.applied("app", &commit).await.with_context(|| what.clone())?;
        println!("measured: {what}: {} times, Ready after {:?}", *told.borrow(), began.elapsed());
        ensure!(*told.borrow() > 0, "{what}: never");
        faulty.is_well();
        world.is_as_without(&commit).await.with_context(|| what.clone())?;
    }
    Ok(())
}

#[tokio::test]
async fn an_apiserver_that_stays_broken_is_told_of_and_got_over() -> Result<()> {
    let setup = HubSetup::new("broken").await?;
    let database = setup.database().connect().await?;
    let (way, faulty) = TestCluster::first()?.with_faults().await?;
    let mut world = World::by_way(setup, database, "broken", &way).await?;
    for fault in [Fault::Broken, Fault::Busy(1)] {
        // The maps of one commit, and for good: the rest is served.
        faulty.answers(move |method, path| {
            (method == "PATCH" && path.contains("/configmaps/map-")).then_some(fault)
        });
        let commit = world.turn().await?;
        let message = world.fleet.fails("kustomization/app", "", &["ConfigMap/"]).await?;
        println!("what the user reads of {fault:?}: {message}");
        ensure!(message.contains("the server is in trouble") && message.len() < 1_000, "{message}");
        eventually("the Cluster is there all the same", PATIENCE, || async {
            let seen = world.fleet.condition("cluster/edge", "Ready").await?;
            ensure!(seen.0 == "True", "{seen:?}");
            Ok(())
        })
        .await?;
        faulty.is_well();
        let began = Instant::now();
        world.fleet.applied("app", &commit).await?;
        println!("measured: Ready {:?} after {fault:?} was over", began.elapsed());
        world.is_as_without(&commit).await.with_context(|| format!("{fault:?}"))?;
    }
    Ok(())
}
