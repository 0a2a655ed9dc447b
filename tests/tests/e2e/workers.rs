//! Builds run in worker processes: what ends one is set aside, and nothing else is harmed.

use anyhow::{Context as _, Result, ensure};
use roadstead_test_gitserver::Commit;
use roadstead_tests::{Fleet, HubSetup, PATIENCE, config_map, eventually, kustomization};
use serde_json::Value;

/// A small hub: its builders have 30 MiB each.
async fn small_hub(name: &str) -> Result<Fleet> {
    Fleet::start_on(HubSetup::new(name).await?.arg("--memory-budget").arg("256Mi")).await
}

/// Children of a process that are workers: its pids.
fn workers_of(hub: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let mut fields = rest.split_ascii_whitespace();
        if fields.next() != Some("Z") && fields.next().and_then(|text| text.parse().ok()) == Some(hub) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// How often a worker was ended.
fn ended(fleet: &Fleet) -> usize {
    fleet.hub.logs().lines().filter(|line| line.contains("a worker process is replaced")).count()
}

fn log_line(fleet: &Fleet, text: &str) -> Result<Value> {
    let logs = fleet.hub.logs();
    let line = logs.lines().find(|line| line.contains(text)).with_context(|| format!("no line: {text}"))?;
    serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))
}

#[tokio::test]
async fn a_commit_that_no_build_survives_is_set_aside_and_the_others_go_on() -> Result<()> {
    let mut fleet = small_hub("bomb").await?;
    let space = fleet.cluster.namespace("bomb").await?;
    let ns = space.name();
    // Which protections are on is said at start; where this kernel has all, all are on.
    let line = log_line(&fleet, "worker processes are ")?;
    let told = line["protections"].as_str().unwrap_or_default();
    ensure!(told.contains("seccomp: on") && told.contains("Landlock: on"), "{line}");

    // Small on the wire, and more than a worker's memory once it is read: an object of a million values.
    let values: String = (0..1_000_000).map(|number| format!("  k{number}: v\n")).collect();
    let large = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large, namespace: {ns}}}\ndata:\n{values}"
    );
    let bomb = Commit::new().file("config.yaml", config_map(ns, "bomb", "one")).file("large.yaml", large);
    let repository = fleet.repository("bomb", &bomb).await?;
    fleet.repository("honest", &Commit::new().file("config.yaml", config_map(ns, "honest", "one"))).await?;
    let pid = fleet.hub.id();
    fleet.apply(&kustomization("bomb", "bomb", "./", &["retryInterval: 1s"])).await?;
    let text =
        fleet.fails("kustomization/bomb", "BuildFailed", &["MiB of memory", "Set aside since"]).await?;
    ensure!(text.contains("--memory-budget") && text.contains("annotation"), "{text}");
    let before = ended(&fleet);
    ensure!(before >= 1, "no worker was ended");

    // It is not tried again, however often it is looked at; others are built meanwhile.
    fleet.apply(&kustomization("honest", "honest", "./", &[])).await?;
    fleet.ready("kustomization/honest").await?;
    fleet.cluster.has_word(ns, "honest", Some("one")).await?;
    let mut connection = fleet.setup.database().connect().await?;
    eventually("several attempts were recorded", PATIENCE, || async {
        let mut connection = fleet.setup.database().connect().await?;
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM reconciliation JOIN resource ON resource.uid = reconciliation.applier
             WHERE resource.name = 'bomb'",
        )
        .fetch_one(&mut connection)
        .await?;
        ensure!(count >= 4, "{count} attempts");
        Ok(())
    })
    .await?;
    ensure!(ended(&fleet) == before, "it was tried again: {} ends", ended(&fleet));
    let aside: i64 = sqlx::query_scalar("SELECT count(*) FROM set_aside").fetch_one(&mut connection).await?;
    ensure!(aside == 1, "{aside} are set aside");

    // Asked for, it is tried again.
    fleet.run(&["annotate", "--overwrite", "kustomization/bomb", "fluxcd.io/reconcileAt=now"]).await?;
    eventually("it is tried again", PATIENCE, || async {
        ensure!(ended(&fleet) == before + 1, "{} ends", ended(&fleet));
        Ok(())
    })
    .await?;
    // So is another revision.
    let mended = Commit::new().remove("large.yaml");
    let commit = repository.commit("main", "Mended", &mended)?;
    fleet.fetch("bomb").await?;
    fleet.applied("bomb", &commit).await?;
    fleet.cluster.has_word(ns, "bomb", Some("one")).await?;
    fleet.hub.check()?;
    ensure!(fleet.hub.id() == pid, "the hub was started again");
    Ok(())
}

#[tokio::test]
async fn a_worker_that_is_killed_from_outside_costs_nobody_a_build() -> Result<()> {
    let mut fleet = Fleet::start("killed-worker").await?;
    let space = fleet.cluster.namespace("killed-worker").await?;
    let ns = space.name();
    let repository =
        fleet.repository("app", &Commit::new().file("config.yaml", config_map(ns, "app", "one"))).await?;
    fleet.apply(&kustomization("app", "app", "./", &[])).await?;
    fleet.ready("kustomization/app").await?;
    let workers = workers_of(fleet.hub.id())?;
    ensure!(!workers.is_empty(), "there is no worker");
    for pid in workers {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid)?).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    }
    let commit = repository.commit(
        "main",
        "Second",
        &Commit::new().file("config.yaml", config_map(ns, "app", "two")),
    )?;
    fleet.fetch("app").await?;
    fleet.applied("app", &commit).await?;
    fleet.cluster.has_word(ns, "app", Some("two")).await?;
    fleet.hub.check()
}
