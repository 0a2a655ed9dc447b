//! What sources cost: a commit to a large repository beside what `git` and `tar` take for it, many fetched at once, many that do not
//! change, a push by way of a Receiver, a large artifact of a registry beside `curl`, and what a large repository's commits leave in Postgres.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use roadstead_tests::gitserver::{GitServer, Options, Repository};
use roadstead_tests::{HubProcess, HubSetup, LOGIN, Registry, eventually, free_port};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::agent::{Counts, SimulatedAgent};
use super::{AT_ONCE, Load, PATIENCE, REPOSITORY, SERVER, SOURCES, commit, create, git_source, trust, wal};
use crate::api::Api;
use crate::figures::{Figure, Report};
use crate::memory::Processes;

/// How large it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Files of the repository of many files.
    pub(crate) files: usize,
    /// Commits that are timed.
    pub(crate) rounds: usize,
    /// Repositories of 10 MiB that are fetched at once.
    pub(crate) at_once: usize,
    /// Repositories that do not change, and for how long they are watched.
    pub(crate) unchanged: usize,
    pub(crate) watched: Duration,
    /// MiB of the repository, and of the artifact of a registry, that are large.
    pub(crate) large: usize,
}

/// What others take for the same.
const OTHERS: &str = "git, tar, curl";
const OCI: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/default/ocirepositories";
/// The interval of the repositories that do not change.
const INTERVAL: Duration = Duration::from_secs(60);
/// Bytes of a file of a large repository: nothing in it can be packed.
const FILE: usize = 100 << 10;

pub(crate) async fn measure(report: &mut Report, amount: Amount) -> Result<()> {
    many_files(report, amount).await?;
    at_once(report, amount).await?;
    unchanged(report, amount).await?;
    pushed(report, amount).await?;
    large_artifact(report, amount).await?;
    large_repository(report, amount).await
}

/// A hub, and a Git server that it trusts.
struct Site {
    setup: HubSetup,
    hub: HubProcess,
    api: Api,
    server: GitServer,
    processes: Processes,
}

impl Site {
    async fn start(setup: HubSetup) -> Result<Self> {
        let hub = HubProcess::start(&setup).await?;
        let api = Api::of(hub.kubectl()).await?;
        let server = GitServer::start(Options::default()).await?;
        trust(&api, &server).await?;
        let processes = Processes::hub(hub.id(), setup.database().url())?;
        Ok(Self { setup, hub, api, server, processes })
    }

    /// Waits until an object's artifact is of this revision, and asks for a fetch first.
    async fn fetched(&self, path: &str, revision: &str) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": revision } } });
        self.api.ask(Method::PATCH, path, "application/merge-patch+json", patch.to_string()).await?;
        self.has(path, revision).await
    }

    async fn has(&self, path: &str, revision: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.api.get(path).await?["status"].clone();
            if status["artifact"]["revision"].as_str().is_some_and(|one| one.ends_with(revision)) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{path} did not get to {revision}: {status}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Files that nothing can be taken off of by packing them.
fn noise(folder: &Path, files: usize, bytes: usize) -> Result<()> {
    for number in 0..files {
        let path = folder.join(format!("{number}.bin"));
        let mut source = std::fs::File::open("/dev/urandom")?;
        std::io::copy(
            &mut std::io::Read::take(&mut source, bytes as u64),
            &mut std::fs::File::create(path)?,
        )?;
    }
    Ok(())
}

/// Commits what is in a folder.
fn commit_folder(repository: &Repository, folder: &Path, message: &str) -> Result<String> {
    let index = repository.path().join("index-bench");
    let env = [("GIT_INDEX_FILE", index.as_os_str())];
    let tree = format!("--work-tree={}", folder.display());
    repository.git(["--git-dir=.", &tree, "add", "--all", "."], &env, b"")?;
    let tree = repository.git(["write-tree"], &env, b"")?;
    let parent = repository.git(["rev-parse", "--verify", "--quiet", "refs/heads/main"], &[], b"").ok();
    repository.commit_tree("main", message, &tree, parent.as_deref())
}

/// Runs a shell's line in a folder; how long it took.
async fn shell(folder: &Path, line: &str) -> Result<Duration> {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(folder);
    let began = Instant::now();
    // The server that it asks answers on these threads.
    let done = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(began.elapsed())
}

/// A commit of one file to a repository of many.
async fn many_files(report: &mut Report, amount: Amount) -> Result<()> {
    let site = Site::start(HubSetup::new("bench-files").await?).await?;
    let work = site.setup.folder().join("work");
    for number in 0..amount.files {
        let folder = work.join(format!("{}", number % 100));
        if number < 100 {
            std::fs::create_dir_all(&folder)?;
        }
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map-{number}}}\ndata:\n");
        let lines: String = (0..20).map(|line| format!("  key-{line}: value {line} of {number}\n")).collect();
        std::fs::write(folder.join(format!("{number}.yaml")), text + &lines)?;
    }
    let repository = site.server.add_repository(REPOSITORY)?;
    let first = commit_folder(&repository, &work, "first")?;
    git_source(&site.api, &site.server, REPOSITORY, Duration::from_secs(3600)).await?;
    let path = format!("{SOURCES}/{REPOSITORY}");
    let began = Instant::now();
    site.has(&path, &first).await?;
    let name = format!("{} files", amount.files);
    report
        .add(SERVER, Figure::latency(&format!("{name}, the first fetch to artifact"), vec![began.elapsed()]));

    let (ca, beside) = (site.setup.folder().join("git-ca.pem"), site.setup.folder().join("beside"));
    std::fs::write(&ca, site.server.ca_pem().context("a server over HTTPS")?)?;
    std::fs::create_dir_all(&beside)?;
    let git = format!("GIT_SSL_CAINFO={} git", ca.display());
    let url = site.server.url(REPOSITORY);
    let clone = shell(
        &beside,
        &format!("{git} clone --quiet --depth 1 {url} clone && tar -cz --exclude=.git clone > all.tar.gz"),
    )
    .await?;
    report.add(OTHERS, Figure::latency(&format!("{name}, the first fetch to artifact"), vec![clone]));

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..amount.rounds {
        std::fs::write(
            work.join("0/0.yaml"),
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map-0}}\ndata: {{round: '{round}'}}\n"
            ),
        )?;
        let next = commit_folder(&repository, &work, "next")?;
        let began = Instant::now();
        site.fetched(&path, &next).await?;
        ours.push(began.elapsed());
        let line = format!(
            "{git} fetch --quiet --depth 1 origin main && git checkout --quiet FETCH_HEAD && tar -cz --exclude=.git . > ../all.tar.gz"
        );
        theirs.push(shell(&beside.join("clone"), &line).await?);
    }
    report.add(SERVER, Figure::latency(&format!("{name}, a commit to artifact"), ours));
    report.add(OTHERS, Figure::latency(&format!("{name}, a commit to artifact"), theirs));
    Ok(())
}

/// MiB that a process and those that it started have together.
fn memory_of(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let own: f64 = line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0.0);
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    own / 1024.0 + children.into_iter().map(memory_of).sum::<f64>()
}

/// Many repositories whose first fetch begins at once.
async fn at_once(report: &mut Report, amount: Amount) -> Result<()> {
    let site = Site::start(HubSetup::new("bench-at-once").await?).await?;
    let work = site.setup.folder().join("work");
    std::fs::create_dir_all(&work)?;
    let mut made = Vec::new();
    for number in 0..amount.at_once {
        noise(&work, (10 << 20) / FILE, FILE)?;
        let name = format!("{REPOSITORY}-{number}");
        let commit = commit_folder(&site.server.add_repository(&name)?, &work, "first")?;
        made.push((name, commit));
    }
    let (pid, is_over) = (site.hub.id(), Arc::new(AtomicBool::new(false)));
    let watched = Arc::clone(&is_over);
    let before = memory_of(pid);
    let peak = tokio::task::spawn_blocking(move || {
        let mut peak: f64 = 0.0;
        while !watched.load(Ordering::Relaxed) {
            peak = peak.max(memory_of(pid));
            std::thread::sleep(Duration::from_millis(20));
        }
        peak
    });
    let (began, load) = (Instant::now(), Load::begin(&site.processes)?);
    for (name, _) in &made {
        git_source(&site.api, &site.server, name, Duration::from_secs(3600)).await?;
    }
    for (name, commit) in &made {
        site.has(&format!("{SOURCES}/{name}"), commit).await?;
    }
    let took = began.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    let mut figure = load.end(&site.processes, &format!("{} repositories of 10 MiB at once", made.len()))?;
    figure.values.extend([
        ("s until all are there".into(), took),
        ("MiB of the hub before".into(), before),
        ("MiB at most, with workers".into(), peak.await?),
    ]);
    report.add(SERVER, figure);
    Ok(())
}

/// Many repositories in which nothing changes.
async fn unchanged(report: &mut Report, amount: Amount) -> Result<()> {
    let site = Site::start(HubSetup::new("bench-unchanged").await?).await?;
    let names: Vec<String> = (0..amount.unchanged).map(|number| format!("{REPOSITORY}-{number}")).collect();
    for name in &names {
        commit(&site.server.add_repository(name)?, name)?;
    }
    futures::stream::iter(&names)
        .map(|name| git_source(&site.api, &site.server, name, INTERVAL))
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |()| Ok(()))
        .await?;
    eventually("all have an artifact", PATIENCE * 5, || async {
        let list = site.api.get(SOURCES).await?;
        let has = |item: &&Value| item["status"]["artifact"]["digest"].is_string();
        let fetched = list["items"].as_array().into_iter().flatten().filter(has).count();
        tokio::time::sleep(Duration::from_millis(500)).await;
        ensure!(fetched == names.len(), "{fetched} of {}", names.len());
        Ok(())
    })
    .await?;
    tokio::time::sleep(INTERVAL).await;
    site.server.take_seen();
    let (load, wal_before) = (Load::begin(&site.processes)?, wal(&site.setup).await?);
    tokio::time::sleep(amount.watched).await;
    let seconds = amount.watched.as_secs_f64();
    let mut figure =
        load.end(&site.processes, &format!("{} unchanged repositories, interval 1 m", names.len()))?;
    figure.values.extend([
        ("requests to Git a second".into(), site.server.take_seen().len() as f64 / seconds),
        ("KiB WAL a minute".into(), (wal(&site.setup).await? - wal_before) / 1024.0 / (seconds / 60.0)),
        ("MiB VmRSS of the hub".into(), site.processes.front_rss()?),
    ]);
    report.add(SERVER, figure);
    Ok(())
}

/// A push that a Receiver is told of, until an agent has applied it.
async fn pushed(report: &mut Report, amount: Amount) -> Result<()> {
    let port = free_port()?;
    let setup = HubSetup::new("bench-push").await?.arg(&format!("--hook-listen=127.0.0.1:{port}"));
    let site = Site::start(setup).await?;
    let repository = site.server.add_repository(REPOSITORY)?;
    commit(&repository, "first")?;
    git_source(&site.api, &site.server, REPOSITORY, Duration::from_secs(3600)).await?;
    let counts = Arc::new(Counts::default());
    let mut agents = JoinSet::new();
    agents.spawn(SimulatedAgent::enrol(&site.api, &super::name(0)).await?.keep(Arc::clone(&counts)));
    super::connected(&counts, 1).await?;
    let began = Instant::now();
    create(&site.api, "pushed", &super::name(0)).await?;
    let applied = async |since: Instant| loop {
        if let Some(end) = counts.since("pushed", since).first() {
            break *end;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    tokio::time::timeout(PATIENCE, applied(began)).await.context("the first build is not applied")?;

    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hook" }, "stringData": { "token": "of-the-bench" } });
    site.api
        .ask(Method::POST, "/api/v1/namespaces/default/secrets", "application/json", secret.to_string())
        .await?;
    let receivers = "/apis/notification.toolkit.fluxcd.io/v1/namespaces/default/receivers";
    let receiver = json!({ "apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver", "metadata": { "name": "push" },
        "spec": { "type": "generic", "secretRef": { "name": "hook" }, "resources": [{ "kind": "GitRepository", "name": REPOSITORY }] } });
    site.api.ask(Method::POST, receivers, "application/json", receiver.to_string()).await?;
    let path = eventually("the Receiver has a path", PATIENCE, || async {
        let object = site.api.get(&format!("{receivers}/push")).await?;
        object["status"]["webhookPath"].as_str().map(str::to_owned).context("none")
    })
    .await?;
    let mut took = Vec::new();
    for round in 0..amount.rounds * 4 {
        commit(&repository, &format!("push {round}"))?;
        let began = Instant::now();
        let answer = site.api.http().post(format!("https://127.0.0.1:{port}{path}")).send().await?;
        ensure!(answer.status().is_success(), "the Receiver answers {}", answer.status());
        let end = tokio::time::timeout(PATIENCE, applied(began)).await.context("a push is not applied")?;
        took.push(end - began);
    }
    report.add(SERVER, Figure::latency("push by a Receiver to applied", took));
    Ok(())
}

/// A large artifact of a registry.
async fn large_artifact(report: &mut Report, amount: Amount) -> Result<()> {
    let site = Site::start(HubSetup::new("bench-oci").await?.arg("--allow-network=oci=127.0.0.0/8")).await?;
    let work = site.setup.folder().join("work");
    std::fs::create_dir_all(&work)?;
    let registry = Registry::start().await?;
    let mebibytes = amount.large * 2;
    let (ca, auth) = (std::fs::read(registry.ca())?, STANDARD.encode(format!("{}:{}", LOGIN.0, LOGIN.1)));
    let config = json!({ "auths": { registry.host(): { "auth": auth } } }).to_string();
    let secrets = [
        (
            "registry",
            "kubernetes.io/dockerconfigjson",
            json!({ ".dockerconfigjson": STANDARD.encode(config) }),
        ),
        ("registry-ca", "Opaque", json!({ "ca.crt": STANDARD.encode(&ca) })),
    ];
    for (name, kind, data) in secrets {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": { "name": name }, "data": data });
        site.api
            .ask(Method::POST, "/api/v1/namespaces/default/secrets", "application/json", secret.to_string())
            .await?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..amount.rounds.min(3) {
        noise(&work, (mebibytes << 20) / FILE, FILE)?;
        let name = format!("large-{round}");
        let digest = registry.push(&name, "latest", &work).await?;
        let layer = layer(&registry, &name, &digest, &site.setup.folder().join("manifest")).await?;
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository", "metadata": { "name": name },
            "spec": { "url": registry.url(&name), "interval": "1h", "ref": { "tag": "latest" },
                "secretRef": { "name": "registry" }, "certSecretRef": { "name": "registry-ca" } } });
        let began = Instant::now();
        site.api.ask(Method::POST, OCI, "application/json", source.to_string()).await?;
        site.has(&format!("{OCI}/{name}"), &digest).await?;
        ours.push(began.elapsed());
        let line = format!("{} -o blob https://{}/v2/{name}/blobs/{layer}", curl(&registry), registry.host());
        theirs.push(shell(site.setup.folder(), &line).await?);
    }
    let name = format!("OCI artifact of {mebibytes} MiB");
    report.add(SERVER, Figure::latency(&name, ours));
    report.add(OTHERS, Figure::latency(&name, theirs));
    Ok(())
}

fn curl(registry: &Registry) -> String {
    format!("curl --silent --fail --cacert {} --user {}:{}", registry.ca().display(), LOGIN.0, LOGIN.1)
}

/// The digest of the one layer of an artifact.
async fn layer(registry: &Registry, name: &str, digest: &str, to: &PathBuf) -> Result<String> {
    let accept = "application/vnd.oci.image.manifest.v1+json";
    let (host, folder) = (registry.host(), to.parent().context("a folder")?);
    let line = format!(
        "{} -H 'Accept: {accept}' -o {} https://{host}/v2/{name}/manifests/{digest}",
        curl(registry),
        to.display()
    );
    shell(folder, &line).await?;
    let manifest: Value = serde_json::from_slice(&std::fs::read(to)?)?;
    manifest["layers"][0]["digest"].as_str().map(str::to_owned).context("a layer")
}

/// What commits to a large repository cost Postgres.
async fn large_repository(report: &mut Report, amount: Amount) -> Result<()> {
    let site = Site::start(HubSetup::new("bench-large").await?).await?;
    let work = site.setup.folder().join("work");
    std::fs::create_dir_all(&work)?;
    noise(&work, (amount.large << 20) / FILE, FILE)?;
    let repository = site.server.add_repository(REPOSITORY)?;
    let first = commit_folder(&repository, &work, "first")?;
    let (empty, log) = (size(&site.setup).await?, wal(&site.setup).await?);
    git_source(&site.api, &site.server, REPOSITORY, Duration::from_secs(3600)).await?;
    let path = format!("{SOURCES}/{REPOSITORY}");
    site.has(&path, &first).await?;
    let (after_first, log_first) = (size(&site.setup).await?, wal(&site.setup).await?);
    let mut took = Vec::new();
    for _ in 0..amount.rounds {
        noise(&work, 1, FILE)?;
        let next = commit_folder(&repository, &work, "next")?;
        let began = Instant::now();
        site.fetched(&path, &next).await?;
        took.push(began.elapsed());
    }
    let log_all = wal(&site.setup).await?;
    let mebibytes = |bytes: f64| bytes / 1_048_576.0;
    let name = format!("repository of {} MiB", amount.large);
    report.add(SERVER, Figure::latency(&format!("{name}, a commit to artifact"), took));
    let at_most = size(&site.setup).await?;
    let values = vec![
        ("MiB WAL, the first commit".into(), mebibytes(log_first - log)),
        ("MiB WAL, each further one".into(), mebibytes(log_all - log_first) / amount.rounds as f64),
        ("MiB of the database, the first".into(), mebibytes(after_first - empty)),
        ("MiB of the database, at the end".into(), mebibytes(at_most - empty)),
        // Older ones are in use for a quarter of an hour, so nothing of it is collected here.
        ("MiB of artifacts at the end".into(), live(&site.setup).await?),
    ];
    report.add(SERVER, Figure { name, values });
    Ok(())
}

/// Bytes of a hub's database.
async fn size(setup: &HubSetup) -> Result<f64> {
    let query = "SELECT pg_database_size(current_database())::float8";
    Ok(sqlx::query_scalar(query).fetch_one(&mut setup.database().connect().await?).await?)
}

/// MiB of what artifacts are kept as.
async fn live(setup: &HubSetup) -> Result<f64> {
    let query = "SELECT coalesce(sum(octet_length(data)), 0)::float8 / 1048576 FROM blob_chunk";
    Ok(sqlx::query_scalar(query).fetch_one(&mut setup.database().connect().await?).await?)
}
