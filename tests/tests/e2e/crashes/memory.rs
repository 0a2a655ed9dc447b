//! An agent and the limit of its memory: many large builds at once keep below it, and one that meets it in the middle of an apply all the
//! same leads to the same end state.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, MemoryLimit, PATIENCE, eventually, kustomization};
use serde_json::json;

use super::world::{SLOWLY, TRIES, Victim, World};

/// What the agent may use.
const MEMORY: u64 = 128 << 20;
/// Builds at once, and the ConfigMaps of each.
const BUILDS: usize = 32;
const MAPS: usize = 4;
const MAP_BYTES: usize = 500_000;

/// Large ConfigMaps. With many more keys the apiserver would need a minute for each.
fn large(ns: &str, build: usize) -> String {
    let map = |number: usize| {
        let data: serde_json::Map<_, _> =
            (0..MAP_BYTES / 250).map(|key| (format!("k{key:04}"), json!(format!("{key:0240}")))).collect();
        let name = format!("map-{build}-{number}");
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": ns }, "data": data }).to_string()
    };
    (0..MAPS).map(map).collect::<Vec<_>>().join("\n---\n")
}

/// A field of `/proc/PID/status`, in bytes.
fn memory_of(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the agent has ended")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib: u64 = line.context("a field")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

#[tokio::test]
async fn many_large_builds_at_once_keep_below_the_agents_memory_limit() -> Result<()> {
    let mut fleet = Fleet::start("agent-memory").await?;
    let space = fleet.cluster.namespace("agent-memory").await?;
    let ns = space.name();
    fleet.agent.kill9().await?;
    fleet.agent.restart_with_env(&[("ROADSTEAD_MEMORY_BUDGET", &MEMORY.to_string())])?;
    // Where this user may make groups the kernel ends what is above the limit; elsewhere it is measured only.
    let limit = MemoryLimit::new(MEMORY);
    if let Some(limit) = &limit {
        limit.hold(fleet.agent.id())?;
    }
    fleet.ready("cluster/edge").await?;
    let files = (0..BUILDS)
        .fold(Commit::new(), |files, build| files.file(&format!("app-{build}/maps.yaml"), large(ns, build)));
    fleet.repository("app", &files).await?;
    for build in 0..BUILDS {
        let manifest = kustomization(
            &format!("app-{build}"),
            "app",
            &format!("./app-{build}"),
            &["retryInterval: 2s", "timeout: 5m"],
        );
        fleet.apply(&manifest).await?;
    }
    for build in 0..BUILDS {
        fleet.ready(&format!("kustomization/app-{build}")).await?;
    }
    fleet.agent.check()?;
    let most = memory_of(fleet.agent.id(), "VmHWM")?;
    println!(
        "measured: {BUILDS} builds of {} MiB each at once: at most {} MiB in the agent{}",
        (MAPS * MAP_BYTES) >> 20,
        most >> 20,
        if limit.is_some() { "" } else { " (no limit by the kernel)" }
    );
    ensure!(most < MEMORY, "{most} bytes");

    // One that can never fit is refused, and says why; the others go on.
    fleet.agent.kill9().await?;
    fleet.agent.restart_with_env(&[("ROADSTEAD_MEMORY_BUDGET", "8Mi")])?;
    fleet.ready("cluster/edge").await?;
    fleet.reconcile("kustomization/app-0").await?;
    fleet
        .fails(
            "kustomization/app-0",
            "BuildFailed",
            &["of JSON, whose objects take about", "raise the memory limit"],
        )
        .await?;
    Ok(())
}

#[tokio::test]
async fn an_agent_that_the_kernel_ends_at_its_memory_limit_goes_on_where_it_was() -> Result<()> {
    let mut world = World::new("oom-agent").await?;
    for extra in [128 << 10, 512 << 10, 1 << 20] {
        let (commit, how) = oom(&mut world, extra).await?;
        let began = Instant::now();
        world.restart(Victim::Agent).await?;
        world.fleet.applied("app", &commit).await?;
        println!("measured: agent ended {how} {extra} bytes later: Ready after {:?}", began.elapsed());
        world.is_as_without(&commit).await.with_context(|| format!("ended {how}"))?;
    }
    Ok(())
}

/// Turns to the other commit, and has the agent ended by the kernel once it has taken `extra` bytes more than it has now. Where this user
/// may not limit memory, it is killed, which is the same for the agent.
async fn oom(world: &mut World, extra: u64) -> Result<(String, &'static str)> {
    for _ in 0..TRIES {
        let before = world.counted.now().await?;
        let Some(limit) = MemoryLimit::new(extra) else {
            world.apiserver.slow(SLOWLY);
            let commit = world.turn().await?;
            world.dispatched(&commit).await?;
            world.counted.reaches(before, super::world::Point::Written(5)).await?;
            world.fleet.agent.kill9().await?;
            world.apiserver.open();
            return Ok((commit, "by a signal"));
        };
        world.apiserver.slow(SLOWLY);
        limit.hold(world.fleet.agent.id())?;
        let commit = world.turn().await?;
        let ended = eventually("the agent is ended or done", PATIENCE, || async {
            let done = world.fleet.get("kustomization/app").await?;
            let revision = done["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
            let is_there = std::path::Path::new(&format!("/proc/{}/stat", world.fleet.agent.id())).exists();
            let zombie = memory_of(world.fleet.agent.id(), "VmRSS").is_err();
            ensure!(!is_there || zombie || revision.ends_with(&commit), "it goes on");
            Ok(zombie)
        })
        .await?;
        world.apiserver.open();
        if ended {
            // Its memory goes a moment before the process does.
            let deadline = Instant::now() + PATIENCE;
            let status = loop {
                match world.fleet.agent.ended()? {
                    Some(status) => break status,
                    None => ensure!(Instant::now() < deadline, "it has no memory, and does not end"),
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            ensure!(status.signal() == Some(9), "it ended with {status}");
            return Ok((commit, "by the kernel"));
        }
        world.fleet.applied("app", &commit).await?;
        world.fleet.agent.kill9().await?;
        world.restart(Victim::Agent).await?;
        world.fleet.ready("cluster/edge").await?;
    }
    bail!("{extra} bytes were enough each time")
}
