//! A process that is killed, frozen, cut off or ended at any moment leads to the same end state.
//!
//! One Kustomization goes back and forth between two commits, so that each time objects are created, changed and pruned.
//! The way from the agent to its apiserver is slow meanwhile, so that the middle is long enough to be met.

mod answers;
mod database;
mod memory;
mod waiting;
mod world;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::{PATIENCE, eventually};
use serde_json::Value;

use world::{MOVED, Point, SLOWLY, Victim, World};

#[tokio::test]
async fn the_hub_is_killed_in_the_middle_of_an_apply() -> Result<()> {
    let mut world = World::new("kill-hub").await?;
    for point in [Point::Dispatched, Point::Written(1), Point::Written(30), Point::Pruned(1)] {
        world.round(Victim::Hub, point).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_agent_is_killed_in_the_middle_of_an_apply_and_both_are() -> Result<()> {
    let mut world = World::new("kill-agent").await?;
    for point in [Point::Dispatched, Point::Written(1), Point::Written(30), Point::Pruned(1)] {
        world.round(Victim::Agent, point).await?;
    }
    for point in [Point::Written(10), Point::Pruned(MOVED - 1)] {
        world.round(Victim::Both, point).await?;
    }
    world.deletion_in_the_middle().await
}

#[tokio::test]
async fn what_is_frozen_or_cut_off_or_ended_goes_on_where_it_was() -> Result<()> {
    let mut world = World::new("freeze").await?;

    // The agent stands still; the hub tells what it did until then.
    let before = world.counted.now().await?;
    world.apiserver.slow(SLOWLY);
    let commit = world.turn().await?;
    world.counted.reaches(before, Point::Written(20)).await?;
    world.fleet.agent.freeze()?;
    world.apiserver.open();
    let path = "/fleet/v1/appliers/Kustomization/apps/app/reconciliations";
    eventually("what was done so far is shown", PATIENCE, || async {
        let view: Value = serde_json::from_str(&world.fleet.kubectl().run(&["get", "--raw", path]).await?)?;
        let done = view["underWay"]["results"].as_array().map_or(0, Vec::len);
        ensure!(done > 0 && view["items"][0].get("took").is_none(), "{done} results: {view}");
        Ok(())
    })
    .await?;
    eventually("the Cluster says so", PATIENCE, || async {
        let seen = world.fleet.condition("cluster/edge", "Ready").await?;
        ensure!(seen.0 == "False" && seen.1 == "AgentDisconnected", "{seen:?}");
        Ok(())
    })
    .await?;
    world.fleet.agent.thaw()?;
    let began = Instant::now();
    world.fleet.applied("app", &commit).await?;
    println!("measured: a frozen agent's Kustomization was Ready {:?} after its thaw", began.elapsed());
    world.is_as_without(&commit).await.context("the agent was frozen")?;

    // The hub stands still; the agent notices, goes on, and tells it later.
    let before = world.counted.now().await?;
    world.apiserver.slow(SLOWLY);
    let commit = world.turn().await?;
    world.counted.reaches(before, Point::Written(20)).await?;
    world.fleet.hub.freeze()?;
    world.apiserver.open();
    let lines = world.fleet.agent.logs().len();
    eventually("the agent has noticed", PATIENCE, || async {
        let logs = world.fleet.agent.logs();
        ensure!(logs[lines..].contains("the connection was closed"), "{}", &logs[lines..]);
        Ok(())
    })
    .await?;
    world.counted.reaches(before, Point::Pruned(MOVED)).await.context("the agent goes on without its hub")?;
    world.fleet.hub.thaw()?;
    let began = Instant::now();
    world.fleet.applied("app", &commit).await?;
    println!("measured: a frozen hub's Kustomization was Ready {:?} after its thaw", began.elapsed());
    world.is_as_without(&commit).await.context("the hub was frozen")?;

    // The hub is ended in the middle, and started again.
    let before = world.counted.now().await?;
    world.apiserver.slow(SLOWLY);
    let commit = world.turn().await?;
    world.counted.reaches(before, Point::Written(20)).await?;
    let began = Instant::now();
    let status = world.fleet.hub.sigterm(PATIENCE).await?;
    println!("measured: after SIGTERM the hub had ended within {:?}", began.elapsed());
    ensure!(status.success(), "after SIGTERM it ended with {status}:\n{}", world.fleet.hub.logs());
    world.apiserver.open();
    world.restart(Victim::Hub).await?;
    world.fleet.applied("app", &commit).await?;
    world.is_as_without(&commit).await.context("the hub was ended")?;

    // The agent is ended in the middle, and started again.
    let before = world.counted.now().await?;
    world.apiserver.slow(SLOWLY);
    let commit = world.turn().await?;
    world.counted.reaches(before, Point::Written(20)).await?;
    let status = world.fleet.agent.sigterm(PATIENCE).await?;
    ensure!(status.success(), "after SIGTERM it ended with {status}:\n{}", world.fleet.agent.logs());
    world.apiserver.open();
    world.restart(Victim::Agent).await?;
    world.fleet.applied("app", &commit).await?;
    world.is_as_without(&commit).await.context("the agent was ended")?;
    Ok(())
}

#[tokio::test]
async fn an_apiserver_that_is_frozen_or_away_for_a_moment_is_got_over() -> Result<()> {
    let mut world = World::new("apiserver").await?;
    for away in [false, true] {
        let before = world.counted.now().await?;
        world.apiserver.slow(SLOWLY);
        let commit = world.turn().await?;
        world.counted.reaches(before, Point::Written(20)).await?;
        if away {
            world.apiserver.cut();
        } else {
            world.apiserver.freeze();
        }
        // So long the outage lasts: nothing is waited for.
        tokio::time::sleep(Duration::from_secs(3)).await;
        // The link is another way: the hub still hears the agent.
        let seen = world.fleet.condition("cluster/edge", "Ready").await?;
        ensure!(seen.0 == "True", "the Cluster has {seen:?}");
        world.apiserver.open();
        let began = Instant::now();
        world.fleet.applied("app", &commit).await?;
        let what = if away { "away" } else { "frozen" };
        println!("measured: Ready {:?} after the apiserver that was {what} was there again", began.elapsed());
        world.is_as_without(&commit).await.with_context(|| what.to_owned())?;
    }
    Ok(())
}
