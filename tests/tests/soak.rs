//! Attacks by anonymous clients, by hostile repositories and by whoever has a cluster's agent key, all at once, on a hub that has the
//! memory that `deploy/hub` gives it, while honest work goes on.
//!
//! One minute by itself; `make soak` lets it go on for ten. What an attack is refused with is other tests' matter: here
//! counts that the hub lives, in its memory, that its administrator is answered within a second, and that every honest
//! Kustomization is Ready at its newest commit at the end.

mod attacks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, Fault, GitServer, Options};
use roadstead_tests::{
    Fleet, HubSetup, MemoryLimit, PATIENCE, config_map, eventually, git_repository, kustomization, resident,
    unique,
};

use attacks::{Attacks, Target};

/// As `deploy/hub` limits it.
const MEMORY: u64 = 1 << 30;
/// The administrator's requests are answered within this.
const ANSWER: Duration = Duration::from_secs(1);
const HONEST: usize = 3;
/// Sources whose server never answers.
const TARPITS: usize = 32;

fn duration() -> Result<Duration> {
    let Some(seconds) = std::env::var_os("ROADSTEAD_SOAK_SECONDS") else {
        return Ok(Duration::from_secs(60));
    };
    let seconds = seconds.to_str().and_then(|text| text.parse().ok());
    seconds.map(Duration::from_secs).context("ROADSTEAD_SOAK_SECONDS must be a number of seconds")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_attacks_at_once_do_not_stop_a_hub() -> Result<()> {
    let setup = HubSetup::new("soak").await?.arg("--memory-budget").arg("1Gi");
    let mut fleet = Fleet::start_on(setup).await?;
    let limit = MemoryLimit::new(MEMORY);
    if let Some(limit) = &limit {
        limit.hold(fleet.hub.id())?;
    }
    println!("memory is limited by a control group: {}", limit.is_some());
    let namespace = fleet.cluster.namespace("soak").await?;
    let mut honest = Vec::new();
    for number in 0..HONEST {
        let name = format!("honest-{number}");
        let commit = map(namespace.name(), &name, "first");
        let repository = fleet.repository(&name, &commit).await?;
        fleet.apply(&kustomization(&name, &name, "./", &["interval: 60s", "prune: true"])).await?;
        honest.push((name, repository));
    }
    for (name, _) in &honest {
        fleet.ready(&format!("kustomization/{name}")).await?;
    }

    let tarpit = hostile(&fleet).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let target = Target::of(&fleet).await?;
    let attacks = Attacks::start(&target, &stop)?;
    let began = Instant::now();
    let watched = watch(&fleet, &target, &honest, began + duration()?).await;
    stop.store(true, Ordering::Relaxed);
    let told = attacks.end().await;
    drop(tarpit);
    let seen = watched?;
    println!(
        "{} s: {} administrator's requests, the slowest in {:?}; at most {} MiB resident; {told}",
        began.elapsed().as_secs(),
        seen.requests,
        seen.slowest,
        seen.resident >> 20
    );

    fleet.hub.check()?;
    target.get("/readyz").await.context("the hub is ready afterwards")?;
    for (name, repository) in &honest {
        let commit = repository.commit("main", "Last", &map(namespace.name(), name, "last"))?;
        fleet.fetch(name).await?;
        fleet.applied(name, &commit).await.with_context(|| format!("{name} at its last commit"))?;
        fleet.cluster.has_word(namespace.name(), name, Some("last")).await?;
    }
    ensure!(seen.resident < MEMORY, "hub and children held {} bytes", seen.resident);
    ensure!(seen.slowest <= ANSWER, "an administrator's request took {:?}", seen.slowest);
    Ok(())
}

fn map(namespace: &str, name: &str, word: &str) -> Commit {
    Commit::new().file("map.yaml", config_map(namespace, name, word))
}

/// What was seen while it went on.
#[derive(Default)]
struct Seen {
    requests: usize,
    slowest: Duration,
    resident: u64,
}

/// Commits, asks and measures until `end`.
async fn watch(
    fleet: &Fleet,
    target: &Target,
    honest: &[(String, roadstead_tests::gitserver::Repository)],
    end: Instant,
) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    let mut round = 0_usize;
    while Instant::now() < end {
        tick.tick().await;
        seen.resident = seen.resident.max(resident(fleet.hub.id())?);
        round += 1;
        if round.is_multiple_of(4) {
            let began = Instant::now();
            target
                .get("/api/v1/namespaces/apps/secrets?limit=10")
                .await
                .context("the administrator's list")?;
            seen.slowest = seen.slowest.max(began.elapsed());
            seen.requests += 1;
        }
        if round.is_multiple_of(40) {
            let (name, repository) = &honest[round / 40 % honest.len()];
            let namespace = target.namespace_of(name);
            let word = unique("word");
            repository.commit("main", "Another", &map(&namespace, name, &word))?;
            target.request_fetch(name).await.context("the administrator asks for a fetch")?;
        }
    }
    Ok(seen)
}

/// What hostile users have put on the hub: the sources of bombs, servers that never answer, and a thicket of dependencies.
async fn hostile(fleet: &Fleet) -> Result<GitServer> {
    let bomb = Commit::new()
        .file("kustomization.yaml", "resources: [bomb.yaml]\n")
        .file("bomb.yaml", attacks::nested_anchors(126, 290_000));
    fleet.repository("bomb", &bomb).await?;
    let wide = Commit::new()
        .file("kustomization.yaml", "resources: [wide.yaml]\n")
        .file("wide.yaml", attacks::wide_object(12 << 20));
    fleet.repository("wide", &wide).await?;
    for number in 0..4 {
        for source in ["bomb", "wide"] {
            let name = format!("{source}-{number}");
            let suffix = format!("nameSuffix: \"-{number}\"");
            fleet.apply(&kustomization(&name, source, "./", &["interval: 60s", &suffix])).await?;
        }
    }
    let tarpit = GitServer::start(Options::default()).await?;
    tarpit.add_repository("slow.git")?;
    tarpit.fault(Fault::HangBeforeAnswer);
    fleet.trust("tarpit", &tarpit, &[]).await?;
    for number in 0..TARPITS {
        let name = format!("tarpit-{number}");
        let source = git_repository(&name, &tarpit.url("slow.git"), "secretRef: {name: tarpit}");
        fleet.apply(&source).await?;
    }
    for number in 0..20 {
        let name = attacks::thicket_name(number);
        fleet.apply(&kustomization(&name, "bomb", "./", &[&attacks::thicket(number, 20)])).await?;
    }
    eventually("the hub looks at what was put on it", PATIENCE, || async {
        let wide = fleet.get("gitrepository/wide").await?;
        ensure!(wide["status"]["artifact"].is_object(), "it was not fetched yet");
        Ok(())
    })
    .await?;
    Ok(tarpit)
}
