//! Fetching with real worker processes of the hub's program, from real Git servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in the helpers of its kit")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use roadstead_api::KindId;
use roadstead_budget::MemoryBudget;
use roadstead_hub_core::sources::{FetchJob, FetchPlan};
use roadstead_hub_core::{HubOptions, Outbound};
use roadstead_model::ResourceUid;
use roadstead_outbound::Policy;
use roadstead_sources::{
    AttemptError, Failed, FetchError, Fetched, GitError, Measure, Outcome, TreeLimits, unpack,
};
use roadstead_sources::{InProcess, Room};
use roadstead_test_gitserver::{Commit, Fault, GitServer, Options, Repository, install_crypto};
use roadstead_worker::FileAccess;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use support::{FLEET, Site, git_repository};

/// Tests of this file look at all of this process's memory and children.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A hub with so many bytes of memory, and a server that it may reach.
struct Kit {
    site: Arc<Site>,
    server: GitServer,
    repository: Repository,
}

impl Kit {
    async fn start(memory: u64, login: Option<(&str, &str)>) -> Result<Self> {
        install_crypto();
        let policy = Arc::new(Policy::new(vec!["127.0.0.1".parse().unwrap()]));
        let options = HubOptions {
            budget: Arc::new(MemoryBudget::new(memory)),
            outbound: Outbound { policy, ..Outbound::default() },
            ..HubOptions::default()
        };
        let site = Arc::new(Site::with(options).await?);
        site.namespace("team-a").await?;
        site.namespace("team-b").await?;
        Self::beside(site, login).await
    }

    /// Another server, which the same hub may reach.
    async fn beside(site: Arc<Site>, login: Option<(&str, &str)>) -> Result<Self> {
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let server = GitServer::start(Options { tls: login.is_some(), login, ..Options::default() }).await?;
        let repository = server.add_repository("app.git")?;
        Ok(Self { site, server, repository })
    }

    fn commit(&self, commit: &Commit) -> Result<String> {
        self.repository.commit("main", "A commit", commit)
    }

    /// A source of the server's repository.
    async fn source(&self, namespace: &str, name: &str) -> Result<()> {
        let mut source = git_repository(namespace, name, &self.server.url("app.git"));
        source["spec"]["ref"] = json!({ "branch": "main" });
        if let Some(ca) = self.server.ca_pem() {
            self.site
                .apply(json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": namespace, "name": "git" },
                    "stringData": { "username": "git", "password": "hunter2", "ca.crt": ca },
                }))
                .await?;
            source["spec"]["secretRef"] = json!({ "name": "git" });
        }
        self.site.apply(source).await?;
        Ok(())
    }

    async fn plan(&self, namespace: &str, name: &str) -> Result<Box<FetchJob>> {
        let uid = self.site.stored(KindId::GitRepository, namespace, name).await?.uid;
        match self.site.hub.sources.plan_fetch(uid).await? {
            FetchPlan::Fetch(job) => Ok(job),
            FetchPlan::Nothing(_) => bail!("nothing to fetch"),
        }
    }

    /// Fetches and records it, and gives what there was.
    async fn fetch(&self, namespace: &str, name: &str) -> Result<Result<(), String>> {
        let job = self.plan(namespace, name).await?;
        let outcome = self.site.hub.sources.fetch(&job, &CancellationToken::new()).await?;
        let told = outcome.as_ref().map(|_| ()).map_err(ToString::to_string);
        self.site.hub.sources.record_fetch(&job, outcome).await?;
        Ok(told)
    }

    async fn fetched(&self, namespace: &str, name: &str) -> Result<Fetched> {
        let job = self.plan(namespace, name).await?;
        match self.site.hub.sources.fetch(&job, &CancellationToken::new()).await?? {
            Outcome::Fetched(fetched) => Ok(*fetched),
            Outcome::Unchanged(revision) => bail!("unchanged at {revision}"),
        }
    }

    async fn error(&self, namespace: &str, name: &str) -> Result<GitError> {
        let job = self.plan(namespace, name).await?;
        match self.site.hub.sources.fetch(&job, &CancellationToken::new()).await? {
            Err(Failed { error: FetchError::Git(error), .. }) => Ok(error),
            Err(error) => bail!("of another kind: {error}"),
            Ok(outcome) => bail!("no error, but {outcome:?}"),
        }
    }

    /// Asks for a fetch by annotation.
    async fn ask(&self, namespace: &str, name: &str) -> Result<()> {
        let at = ResourceUid::random().to_string();
        let key = "reconcile.fluxcd.io/requestedAt";
        self.site.annotate(KindId::GitRepository, namespace, name, key, &at).await
    }
}

fn files(fetched: &Fetched) -> Vec<String> {
    let tree = unpack(&fetched.artifact.bytes, &TreeLimits::default()).unwrap();
    tree.into_iter().map(|(path, _)| path).collect()
}

/// This process's memory in KiB: what `/proc` calls `field`.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Files of this many bytes, all made of the first one: on the wire they are next to nothing.
fn alike(file_bytes: usize, files: u8) -> Commit {
    (0..files).fold(Commit::new(), |commit, number| {
        let mut bytes = vec![b'0'; file_bytes];
        bytes[..3].copy_from_slice(format!("{number:03}").as_bytes());
        commit.file(&format!("pictures/{number:03}.png"), bytes)
    })
}

/// A tree of three objects that has 48,000 files with long names.
fn thicket(repository: &Repository) -> Result<String> {
    let blob = repository.git(["hash-object", "-w", "--stdin"], &[], b"x")?;
    let files: String = (0..240).map(|n| format!("100644 blob {blob}\t{n:0>500}\n")).collect();
    let folder = repository.git(["mktree"], &[], files.as_bytes())?;
    let folders: String = (0..200).map(|n| format!("040000 tree {folder}\t{n:0>500}\n")).collect();
    repository.git(["mktree"], &[], folders.as_bytes())
}

/// What this process grew by at most while `work` was done, in KiB.
async fn growth<T>(work: impl Future<Output = T>) -> Result<(u64, T)> {
    // The peak starts over.
    std::fs::write("/proc/self/clear_refs", "5").context("reset the peak")?;
    let before = memory("VmRSS:");
    let done = work.await;
    Ok((memory("VmHWM:").saturating_sub(before), done))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_repository_is_read_by_a_confined_worker() -> Result<()> {
    let _alone = ALONE.lock().await;
    let kit = Kit::start(1 << 30, Some(("git", "hunter2"))).await?;
    // More than goes through the pipe at once, also packed.
    let noise: Vec<u8> = (0_u32..500_000).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let commit = kit.commit(&Commit::new().file("noise", noise).file("app/a.yaml", "kind: A\n"))?;
    kit.source("team-a", "app").await?;
    let fetched = kit.fetched("team-a", "app").await?;
    assert_eq!(files(&fetched), ["app/a.yaml", "noise"]);
    assert_eq!(fetched.revision.to_string(), format!("main@sha1:{commit}"));
    ensure!(fetched.artifact.bytes.len() > 1 << 20, "{:?}", fetched.artifact);
    ensure!(kit.site.workers.readers.started() == 1, "{} readers", kit.site.workers.readers.started());
    ensure!(kit.site.workers.builders.started() == 0, "a builder was begun");
    // The same as where it is read in this process.
    let job = kit.plan("team-a", "app").await?;
    let here = job.source.fetch(None, &InProcess::default(), &CancellationToken::new()).await?;
    ensure!(matches!(here, Outcome::Fetched(here) if here.artifact == fetched.artifact));
    // Where the kernel has it, there is no network and no file beyond the scratch folder for any job of this pool:
    // `crates/worker` tries that.
    let on = kit.site.workers.readers.protections().await?;
    ensure!(on == kit.site.workers.builders.protections().await?, "{on}");
    ensure!(on.seccomp && on.files != FileAccess::Open && on.no_new_privileges, "{on}");
    // Once it is recorded, it is not read again.
    kit.fetch("team-a", "app").await?.unwrap();
    kit.server.take_seen();
    kit.fetch("team-a", "app").await?.unwrap();
    let seen: Vec<String> = kit.server.take_seen().into_iter().map(|seen| seen.what).collect();
    ensure!(seen == ["POST /app.git/git-upload-pack ls-refs"], "{seen:?}");
    kit.site.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_takes_too_much_memory_ends_its_worker_and_is_set_aside() -> Result<()> {
    let _alone = ALONE.lock().await;
    let kit = Kit::start(128 << 20, None).await?;
    kit.repository.commit_tree("main", "thicket", &thicket(&kit.repository)?, None)?;
    kit.source("team-a", "bomb").await?;
    let (grown, error) = growth(kit.fetch("team-a", "bomb")).await?;
    let error = error?.unwrap_err();
    for part in ["MiB of memory", "--memory-budget", "Set aside since", &kit.server.url("app.git")] {
        ensure!(error.contains(part), "{part} is not in: {error}");
    }
    ensure!(grown < 16 << 10, "this process grew by {grown} KiB");
    let (reason, message) = kit.site.ready(KindId::GitRepository, "team-a", "bomb").await?;
    ensure!(reason == "GitOperationFailed" && message.ends_with(&error), "{reason}: {message}");

    // It is not brought again.
    kit.server.take_seen();
    let again = kit.fetch("team-a", "bomb").await?.unwrap_err();
    ensure!(again == error, "{again}");
    let seen: Vec<String> = kit.server.take_seen().into_iter().map(|seen| seen.what).collect();
    ensure!(seen.len() == 2 && !seen.iter().any(|what| what.ends_with("fetch")), "{seen:?}");
    // Asked for, it is; and so is another commit, which is well.
    kit.ask("team-a", "bomb").await?;
    ensure!(kit.fetch("team-a", "bomb").await?.unwrap_err().contains("MiB of memory"));
    ensure!(kit.server.take_seen().iter().any(|seen| seen.what.ends_with("fetch")), "it was not tried again");
    let blob = kit.repository.git(["hash-object", "-w", "--stdin"], &[], b"x")?;
    let mended = kit.repository.git(["mktree"], &[], format!("100644 blob {blob}\ta.yaml\n").as_bytes())?;
    kit.repository.commit_tree("main", "mended", &mended, None)?;
    kit.fetch("team-a", "bomb").await?.unwrap();
    kit.site.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_unpack_to_too_much_are_named_without_ending_a_worker() -> Result<()> {
    let _alone = ALONE.lock().await;
    let kit = Kit::start(128 << 20, None).await?;
    let reader = usize::try_from(kit.site.workers.readers.settings().memory)?;
    kit.source("team-a", "huge").await?;
    // One that is larger than a reader's memory, and forty that are almost as large as one may be and made of each other.
    for commit in [alike(reader * 2, 1), alike(reader / 2 - 1000, 40)] {
        kit.commit(&commit)?;
        let (grown, error) = growth(kit.error("team-a", "huge")).await?;
        let error = error?;
        ensure!(matches!(error, GitError::TooLarge { measure: Measure::ObjectBytes, .. }), "{error:?}");
        ensure!(grown < 16 << 10, "this process grew by {grown} KiB");
        ensure!(kit.fetch("team-a", "huge").await?.is_err());
        let (reason, message) = kit.site.ready(KindId::GitRepository, "team-a", "huge").await?;
        ensure!(
            reason == "StorageOperationFailed" && message.contains("--memory-budget"),
            "{reason}: {message}"
        );
    }
    ensure!(kit.site.workers.readers.started() == 1, "a reader was ended");
    kit.site.close().await;
    Ok(())
}

/// Kills a worker of this process that is none of those that were killed before; false where there is no other.
fn kill_another(killed: &mut BTreeSet<i32>) -> bool {
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1));
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if parent.and_then(|parent| parent.parse().ok()) == Some(own)
            && line.contains(roadstead_hub_core::WORKER_ARGUMENT)
            // One that was killed is seen for a while.
            && killed.insert(pid)
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            return rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok();
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_in_a_fetch_is_a_failure_that_passes() -> Result<()> {
    let _alone = ALONE.lock().await;
    let kit = Kit::start(1 << 30, None).await?;
    kit.commit(&Commit::new().file("a.yaml", "a"))?;
    kit.source("team-a", "app").await?;
    // One that is killed once costs nobody a fetch; killed again, it is told.
    for kills in [1, 2] {
        let mut job = kit.plan("team-a", "app").await?;
        // Of this room a little is free, which is less than what is asked for: whoever waits has that as well.
        let pool = roadstead_budget::Pool::new("artifacts", 1 << 20);
        let others = pool.try_reserve(pool.size() - 1024)?;
        job.source.reserve_in(Room { pool: pool.clone(), copies: 1000 });
        let hub = kit.site.hub.clone();
        let fetch = tokio::spawn(async move { hub.sources.fetch(&job, &CancellationToken::new()).await });
        let mut killed = BTreeSet::new();
        for _ in 0..kills {
            let deadline = Instant::now() + Duration::from_secs(60);
            // The one that was killed before waits no more where there is another.
            while pool.used() < pool.size() || !kill_another(&mut killed) {
                ensure!(Instant::now() < deadline, "no reader came so far");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        drop(others);
        match fetch.await?? {
            Ok(Outcome::Fetched(fetched)) if kills == 1 => assert_eq!(files(&fetched), ["a.yaml"]),
            Err(Failed { error, .. }) if kills == 2 => {
                ensure!(
                    matches!(error, FetchError::Git(GitError::Ended { transient: true, .. })),
                    "{error:?}"
                );
                ensure!(error.is_transient() && error.to_string().contains("SIGKILL"), "{error}");
            }
            other => bail!("killed {kills} times: {other:?}"),
        }
    }
    // Nothing is set aside, and the next one works.
    assert_eq!(files(&kit.fetched("team-a", "app").await?), ["a.yaml"]);
    kit.site.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_hang_hold_no_worker() -> Result<()> {
    let _alone = ALONE.lock().await;
    let kit = Kit::start(1 << 30, None).await?;
    let other = Kit::beside(Arc::clone(&kit.site), None).await?;
    let noise: String = (0_u32..4_000).map(|n| format!("{:x} ", n.wrapping_mul(2_654_435_761))).collect();
    kit.commit(&Commit::new().file("noise", noise))?;
    other.commit(&Commit::new().file("a.yaml", "a"))?;
    kit.server.fault(Fault::HangInPack);
    let stop = CancellationToken::new();
    let mut hanging = tokio::task::JoinSet::new();
    for number in 0..8 {
        let name = format!("slow-{number}");
        kit.source("team-a", &name).await?;
        let (job, hub, stop) = (kit.plan("team-a", &name).await?, kit.site.hub.clone(), stop.clone());
        hanging.spawn(async move { hub.sources.fetch(&job, &stop).await });
    }
    let until = Instant::now() + Duration::from_secs(60);
    let mut asked = 0;
    while asked < 8 {
        asked += kit.server.take_seen().iter().filter(|seen| seen.what.ends_with("fetch")).count();
        ensure!(Instant::now() < until, "{asked} of 8 packs were asked for");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // All of them wait for the rest of a pack.
    let readers = &kit.site.workers.readers;
    ensure!(readers.started() <= readers.settings().workers, "{} readers", readers.started());
    other.source("team-b", "well").await?;
    let well = tokio::time::timeout(Duration::from_secs(30), other.fetched("team-b", "well")).await??;
    assert_eq!(files(&well), ["a.yaml"]);
    ensure!(hanging.try_join_next().is_none(), "one did not hang");
    stop.cancel();
    while let Some(ended) = hanging.join_next().await {
        let Failed { error, .. } = ended??.err().context("it was fetched")?;
        ensure!(
            matches!(error, FetchError::Git(GitError::Attempt(AttemptError::Cancelled { .. }))),
            "{error:?}"
        );
    }
    kit.site.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_holds_for_all_sources_with_the_same_secret() -> Result<()> {
    let _alone = ALONE.lock().await;
    let kit = Kit::start(256 << 20, Some(("git", "hunter2"))).await?;
    kit.commit(&Commit::new().file("app.yaml", "one"))?;
    for (namespace, name) in [("team-a", "app"), ("team-a", "other"), ("team-b", "app")] {
        kit.source(namespace, name).await?;
    }
    ensure!(kit.fetch("team-a", "app").await?.is_ok());
    kit.server.fault(Fault::RetryAfter(429, "3600".to_owned()));
    let told = kit.fetch("team-a", "app").await?;
    ensure!(told.is_err(), "{told:?}");
    kit.server.take_seen();

    // What was fetched stays, with Ready; one that has nothing yet is not Ready. Neither asks.
    for (name, ready) in [("app", "True"), ("other", "False")] {
        let planned = kit.plan("team-a", name).await;
        ensure!(planned.is_err(), "{name} asks");
        let source = kit.site.stored(KindId::GitRepository, "team-a", name).await?;
        let conditions = source.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let status = |type_: &str| {
            let of = conditions.iter().find(|condition| condition["type"] == type_);
            of.map(|condition| condition["status"].as_str().unwrap_or_default().to_owned())
        };
        ensure!(status("RateLimited").as_deref() == Some("True"), "{name}: {conditions:#?}");
        ensure!(status("Ready").as_deref() == Some(ready), "{name}: {conditions:#?}");
        let said = conditions.iter().any(|condition| {
            condition["message"]
                .as_str()
                .is_some_and(|message| message.contains("takes no more requests before 20"))
        });
        ensure!(said, "{name}: {conditions:#?}");
    }
    ensure!(kit.server.take_seen().is_empty(), "it was asked");
    // Other credentials have a limit of their own.
    kit.server.fault(Fault::None);
    ensure!(kit.fetch("team-b", "app").await?.is_ok());
    Ok(())
}

#[tokio::test]
async fn artifacts_of_a_namespace_have_no_more_bytes_than_its_quota() -> Result<()> {
    const BYTES: &str = "bytes/artifacts.fleet.roadstead.dev";
    let _alone = ALONE.lock().await;
    let kit = Kit::start(1 << 30, None).await?;
    let site = &kit.site;
    let quota = |limit: &str| {
        json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "namespace": "team-a", "name": "team" },
            "spec": { "hard": { BYTES: limit } } })
    };
    // What does not get smaller by being packed.
    let noise =
        |count: usize| -> Vec<u8> { (0..count).flat_map(|_| *ResourceUid::random().0.as_bytes()).collect() };
    kit.commit(&Commit::new().file("noise", noise(1_000)))?;
    site.apply(quota("40Ki")).await?;
    kit.source("team-a", "one").await?;
    kit.source("team-a", "two").await?;
    kit.source("team-b", "one").await?;
    for (namespace, name) in [("team-a", "one"), ("team-a", "two"), ("team-b", "one")] {
        kit.fetch(namespace, name).await?.map_err(anyhow::Error::msg)?;
        let (reason, message) = site.ready(KindId::GitRepository, namespace, name).await?;
        ensure!(reason == "Succeeded", "{namespace}/{name}: {reason}: {message}");
    }
    let used = site.get(KindId::ResourceQuota, "team-a", "team").await?["status"]["used"][BYTES].clone();
    let used: u64 = used.as_str().context("bytes")?.parse()?;
    ensure!((32_000..36_000).contains(&used), "{used}");
    // The next one of `two` is too large beside that of `one`, which counts once however often it is fetched.
    let before =
        site.get(KindId::GitRepository, "team-a", "two").await?["status"]["artifact"]["digest"].clone();
    kit.commit(&Commit::new().file("noise", noise(2_000)))?;
    kit.ask("team-a", "two").await?;
    kit.fetch("team-a", "two").await?.map_err(anyhow::Error::msg)?;
    let (reason, message) = site.ready(KindId::GitRepository, "team-a", "two").await?;
    ensure!(
        reason == "StorageOperationFailed" && message.contains("exceeded quota: team"),
        "{reason}: {message}"
    );
    let after =
        site.get(KindId::GitRepository, "team-a", "two").await?["status"]["artifact"]["digest"].clone();
    ensure!(before == after && before.is_string(), "{before} {after}");
    kit.ask("team-b", "one").await?;
    kit.fetch("team-b", "one").await?.map_err(anyhow::Error::msg)?;
    ensure!(site.ready(KindId::GitRepository, "team-b", "one").await?.0 == "Succeeded");
    site.apply(quota("60Ki")).await?;
    kit.ask("team-a", "two").await?;
    kit.fetch("team-a", "two").await?.map_err(anyhow::Error::msg)?;
    let (reason, message) = site.ready(KindId::GitRepository, "team-a", "two").await?;
    ensure!(reason == "Succeeded", "{reason}: {message}");
    Ok(())
}

#[tokio::test]
async fn artifacts_that_come_at_once_do_not_both_have_the_last_room() -> Result<()> {
    let _alone = ALONE.lock().await;
    let kit = Kit::start(1 << 30, None).await?;
    let site = &kit.site;
    let noise: Vec<u8> = (0..1_000).flat_map(|_| *ResourceUid::random().0.as_bytes()).collect();
    kit.commit(&Commit::new().file("noise", noise))?;
    site.apply(json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "namespace": "team-a", "name": "team" },
        "spec": { "hard": { "bytes/artifacts.fleet.roadstead.dev": "40Ki" } } }))
        .await?;
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut fetched = Vec::new();
    for name in names {
        kit.source("team-a", name).await?;
        let job = kit.plan("team-a", name).await?;
        let outcome = site.hub.sources.fetch(&job, &CancellationToken::new()).await?;
        fetched.push((job, outcome));
    }
    let recorded = fetched.into_iter().map(|(job, outcome)| async move {
        let recorded = site.hub.sources.record_fetch(&job, outcome).await;
        recorded.map(drop)
    });
    futures::future::try_join_all(recorded).await?;
    let mut reasons = Vec::new();
    for name in names {
        reasons.push(site.ready(KindId::GitRepository, "team-a", name).await?.0);
    }
    let of = |reason: &str| reasons.iter().filter(|one| *one == reason).count();
    ensure!(of("Succeeded") == 2 && of("StorageOperationFailed") == 4, "{reasons:?}");
    Ok(())
}

#[tokio::test]
async fn what_another_namespace_has_is_included_followed_and_no_longer_once_leave_is_taken_back() -> Result<()>
{
    let _alone = ALONE.lock().await;
    let kit = Kit::start(1 << 30, None).await?;
    let site = &kit.site;
    kit.commit(&Commit::new().file("one", "1"))?;
    kit.source("team-b", "shared").await?;
    kit.fetch("team-b", "shared").await?.map_err(anyhow::Error::msg)?;
    let member = site.member("team-a").await?;
    let mut app = git_repository("team-a", "app", &kit.server.url("app.git"));
    app["spec"]["ref"] = json!({ "branch": "main" });
    app["spec"]["include"] =
        json!([{ "repository": { "name": "shared", "namespace": "team-b" }, "toPath": "lib" }]);
    site.apply_as(&member, app).await?;
    ensure!(kit.plan("team-a", "app").await.is_err(), "it is fetched without leave");
    let grant = json!({ "apiVersion": FLEET, "kind": "ReferenceGrant", "metadata": { "namespace": "team-b", "name": "for-a" },
        "spec": { "from": [{ "group": "source.toolkit.fluxcd.io", "kind": "GitRepository", "namespace": "team-a" }],
            "to": [{ "group": "source.toolkit.fluxcd.io", "kind": "GitRepository", "name": "shared" }] } });
    site.apply(grant).await?;
    let fetched = kit.fetched("team-a", "app").await?;
    ensure!(files(&fetched) == ["lib/one", "one"], "{:?}", files(&fetched));
    kit.fetch("team-a", "app").await?.map_err(anyhow::Error::msg)?;
    let status =
        async || anyhow::Ok(site.get(KindId::GitRepository, "team-a", "app").await?["status"].clone());
    let held = status().await?;
    let shared =
        site.get(KindId::GitRepository, "team-b", "shared").await?["status"]["artifact"]["digest"].clone();
    ensure!(held["includedArtifacts"][0]["digest"] == shared && shared.is_string(), "{held:#}");
    ensure!(held["observedInclude"][0]["repository"]["namespace"] == "team-b", "{held:#}");

    // The other one has something new: that is worth a pass over this one.
    kit.commit(&Commit::new().file("one", "1").file("two", "2"))?;
    let mut connection = site.database.connect().await?;
    sqlx::query("UPDATE schedule SET due_at = 'infinity'").execute(&mut connection).await?;
    kit.ask("team-b", "shared").await?;
    kit.fetch("team-b", "shared").await?.map_err(anyhow::Error::msg)?;
    let uid = site.stored(KindId::GitRepository, "team-a", "app").await?.uid;
    let due: bool = sqlx::query_scalar("SELECT due_at < 'infinity' FROM schedule WHERE uid = $1")
        .bind(uid.0)
        .fetch_one(&mut connection)
        .await?;
    ensure!(due, "what includes it is not due");
    ensure!(files(&kit.fetched("team-a", "app").await?) == ["lib/one", "lib/two", "one", "two"]);

    // Without leave nothing more comes, and what is there stays.
    site.delete(KindId::ReferenceGrant, "team-b", "for-a").await?;
    ensure!(kit.plan("team-a", "app").await.is_err(), "it is fetched without leave");
    let (reason, message) = site.ready(KindId::GitRepository, "team-a", "app").await?;
    ensure!(reason == "AccessDenied" && message.contains("team-b/shared"), "{reason}: {message}");
    let after = status().await?;
    ensure!(after["artifact"] == held["artifact"], "{after:#}");
    ensure!(after["includedArtifacts"] == held["includedArtifacts"], "{after:#}");
    Ok(())
}
