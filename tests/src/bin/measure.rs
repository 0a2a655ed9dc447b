//! From push to applied, beside a bare loop of dry-run and write for the same objects at the same
//! concurrency against the same apiserver in the same run; and the memory of hub and agent.
//!
//! It wants what `cargo xtask measure` sets up (`ROADSTEAD_TEST_…`): a Postgres and an etcd that wait for the disk, and release builds in
//! `ROADSTEAD_TEST_BIN_DIR`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use roadstead_tests::gitserver::{Commit, GitServer, Options, Repository};
use roadstead_tests::{AgentProcess, HubProcess, HubSetup, Kubectl, TestCluster, eventually};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Kustomizations that one commit changes.
const COUNTS: [usize; 3] = [1, 50, 500];
/// Objects of each Kustomization.
const OBJECTS: usize = 4;
/// Side by side, as the agent's engine does: per dispatch, and in all.
const PER_DISPATCH: usize = 8;
const IN_ALL: usize = 32;
const ROUNDS: usize = 7;
/// How the names of the objects begin that the agent applies, and those of the bare loop.
const OURS: &str = "ours";
const BARE: &str = "bare";
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<()> {
    roadstead_tests::gitserver::install_crypto();
    let setup = HubSetup::new("measure").await?;
    let hub = HubProcess::start(&setup).await?;
    let cluster = TestCluster::first()?;
    let agent = AgentProcess::join(&hub, "edge", &cluster).await?;
    hub.kubectl().run(&["wait", "cluster/edge", "--for=condition=ready", "--timeout=60s"]).await?;
    println!("at start: hub {}, agent {}", memory(hub.id())?, memory(agent.id())?);
    let server = GitServer::start(Options::default()).await?;
    let hub_api = Api::of(hub.kubectl()).await?;
    let cluster_api = Api::of(cluster.kubectl()).await?;
    for count in COUNTS {
        measure(count, &hub_api, hub.kubectl(), &cluster_api, &cluster, &server).await?;
        println!("after {count}: hub {}, agent {}", memory(hub.id())?, memory(agent.id())?);
    }
    Ok(())
}

async fn measure(
    count: usize,
    hub: &Api,
    kubectl: &Kubectl,
    cluster: &Api,
    target: &TestCluster,
    server: &GitServer,
) -> Result<()> {
    let namespace = target.namespace("measure").await?;
    let name = format!("measure-{count}");
    let repository = server.add_repository(&name)?;
    let mut writer = Writer { repository, namespace: namespace.name().to_owned(), count };
    writer.commit("seed")?;
    let watch = cluster.count(&writer.namespace, OURS, "seed", count * OBJECTS);
    kubectl.apply(&sources(&name, count, server)).await?;
    let begin = Instant::now();
    tokio::time::timeout(PATIENCE, watch).await.context("objects did not come")??;
    let first = begin.elapsed();
    settle(hub, &name, count).await?;
    cluster.bare_loop(&writer.namespace, count, "seed").await?;
    let (mut ours, mut fetches, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // In turns, so that both meet the same machine. Each round changes every object.
        let value = format!("round {round}");
        let watch = cluster.count(&writer.namespace, OURS, &value, count * OBJECTS);
        let commit = writer.commit(&value)?;
        let fetched = hub.fetched(&name, commit);
        let begin = Instant::now();
        hub.annotate(&name).await?;
        let fetched = tokio::spawn(async move { fetched.await.map(|()| begin.elapsed()) });
        tokio::time::timeout(PATIENCE, watch).await.context("objects did not come")??;
        ours.push(begin.elapsed());
        fetches.push(tokio::time::timeout(PATIENCE, fetched).await.context("it was not fetched")???);
        settle(hub, &name, count).await?;
        bare.push(cluster.bare_loop(&writer.namespace, count, &value).await?);
    }
    println!("of the last of them, from dispatch to result: {}", last_reconciliation(hub, &name).await?);
    let stored: Vec<Duration> =
        ours.iter().zip(&fetches).map(|(all, fetch)| all.saturating_sub(*fetch)).collect();
    let [ours, fetches, stored, bare] = [ours, fetches, stored, bare].map(Figures::of);
    let ratio = |of: &Figures| of.median.as_secs_f64() / bare.median.as_secs_f64();
    println!(
        "{count} Kustomizations of {OBJECTS} objects: push to applied {ours}, of which the fetch {fetches}; bare loop {bare}; \
         ratio {:.2}, from the commit stored {:.2} (medians); first install {} ms from the last object written",
        ratio(&ours),
        ratio(&stored),
        first.as_millis()
    );
    Ok(())
}

/// Writes commits in which every Kustomization has `OBJECTS` ConfigMaps with one value.
struct Writer {
    repository: Repository,
    namespace: String,
    count: usize,
}

impl Writer {
    /// Gives the commit's id.
    fn commit(&mut self, value: &str) -> Result<String> {
        let mut commit = Commit::new();
        for index in 0..self.count {
            let objects: Vec<String> = (0..OBJECTS)
                .map(|object| {
                    manifest(&self.namespace, &format!("{OURS}-{index}-{object}"), value).to_string()
                })
                .collect();
            commit = commit.file(&format!("k{index}/objects.yaml"), objects.join("\n---\n"));
        }
        self.repository.commit("main", value, &commit)
    }
}

fn manifest(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace },
        "data": { "value": value, "text": "some settings that an application reads at its start" },
    })
}

fn sources(name: &str, count: usize, server: &GitServer) -> String {
    let ca = STANDARD.encode(server.ca_pem().unwrap_or_default());
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
               "data": {"ca.crt": ca}})
        .to_string(),
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
               "metadata": {"name": name, "namespace": "default"},
               "spec": {"url": server.url(name), "interval": "10m", "ref": {"branch": "main"},
                        "secretRef": {"name": name}}})
        .to_string(),
    ];
    all.extend((0..count).map(|index| {
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
               "metadata": {"name": format!("{name}-{index}"), "namespace": "default"},
               "spec": {"interval": "10m", "path": format!("./k{index}"), "prune": true,
                        "clusterRef": {"name": "edge"},
                        "sourceRef": {"kind": "GitRepository", "name": name}}})
        .to_string()
    }));
    all.join("\n---\n")
}

/// Waits until every Kustomization has recorded the source's revision, so that rounds do not overlap.
async fn settle(hub: &Api, name: &str, count: usize) -> Result<()> {
    eventually("all Kustomizations have applied the revision", PATIENCE, || async {
        let source = hub.get(&format!("{SOURCES}/{name}")).await?;
        let revision = &source["status"]["artifact"]["revision"];
        let list = hub.get("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations").await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let applied = items
            .iter()
            .filter(|item| item["spec"]["sourceRef"]["name"] == name)
            .filter(|item| &item["status"]["lastAppliedRevision"] == revision)
            .count();
        if applied == count { Ok(()) } else { bail!("{applied} of {count}") }
    })
    .await
}

/// How long the last reconciliation took, and its stages in the agent.
async fn last_reconciliation(hub: &Api, name: &str) -> Result<String> {
    let path = format!("/fleet/v1/namespaces/default/kustomizations/{name}-0/reconciliations");
    let last = hub.get(&path).await?["items"][0].clone();
    let stages: Vec<String> = last["timings"]
        .as_array()
        .context("a reconciliation has timings")?
        .iter()
        .map(|timing| {
            let micros = timing["micros"].as_u64().unwrap_or_default();
            format!("{} {:.1} ms", timing["stage"].as_str().unwrap_or_default(), micros as f64 / 1e3)
        })
        .collect();
    Ok(format!("{} ({})", last["took"].as_str().unwrap_or_default(), stages.join(", ")))
}

const SOURCES: &str = "/apis/source.toolkit.fluxcd.io/v1/namespaces/default/gitrepositories";

/// An apiserver (or hub) by plain HTTP.
#[derive(Clone)]
struct Api {
    http: reqwest::Client,
    server: String,
    token: Option<String>,
}

impl Api {
    async fn of(kubectl: &Kubectl) -> Result<Self> {
        let text = kubectl.run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
        let config: Value = serde_json::from_str(&text).context("read a kubeconfig")?;
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let decoded = |value: &Value| value.as_str().map(|text| STANDARD.decode(text)).transpose();
        let ca = decoded(&cluster["certificate-authority-data"])?.context("the kubeconfig has a CA")?;
        let mut http = reqwest::Client::builder().tls_certs_only([reqwest::Certificate::from_pem(&ca)?]);
        let certificate = decoded(&user["client-certificate-data"])?;
        let key = decoded(&user["client-key-data"])?;
        if let (Some(mut pem), Some(key)) = (certificate, key) {
            pem.extend(key);
            http = http.identity(reqwest::Identity::from_pem(&pem)?);
        }
        Ok(Self {
            http: http.build().context("set up HTTPS")?,
            server: cluster["server"].as_str().context("the kubeconfig has a server")?.to_owned(),
            token: user["token"].as_str().map(str::to_owned),
        })
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.server));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.request(reqwest::Method::GET, path).send().await?.error_for_status()?;
        Ok(answer.json().await?)
    }

    async fn annotate(&self, name: &str) -> Result<()> {
        let at = format!("{:?}", std::time::SystemTime::now());
        let patch = json!({"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": at}}});
        self.request(reqwest::Method::PATCH, &format!("{SOURCES}/{name}"))
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string())
            .send()
            .await?
            .error_for_status()?;
        Ok(())
    }

    async fn apply(&self, object: &Value, dry_run: bool) -> Result<()> {
        let (namespace, name) = (&object["metadata"]["namespace"], &object["metadata"]["name"]);
        let path = format!(
            "/api/v1/namespaces/{}/configmaps/{}?fieldManager=bare&force=true{}",
            namespace.as_str().unwrap_or_default(),
            name.as_str().unwrap_or_default(),
            if dry_run { "&dryRun=All" } else { "" }
        );
        self.request(reqwest::Method::PATCH, &path)
            .header("content-type", "application/apply-patch+yaml")
            .body(object.to_string())
            .send()
            .await?
            .error_for_status()?
            // To its end: an answer that is dropped resets its stream, and after many the server hangs up.
            .bytes()
            .await?;
        Ok(())
    }

    /// Dry-run and write of as many objects, and nothing else: nobody could be faster with these requests.
    async fn bare_loop(&self, namespace: &str, count: usize, value: &str) -> Result<Duration> {
        let slots = Arc::new(Semaphore::new((count * PER_DISPATCH).min(IN_ALL)));
        let mut objects = JoinSet::new();
        let begin = Instant::now();
        for index in 0..count * OBJECTS {
            let (api, slots) = (self.clone(), Arc::clone(&slots));
            let object = manifest(namespace, &format!("{BARE}-{index}"), value);
            objects.spawn(async move {
                let _slot = slots.acquire_owned().await?;
                api.apply(&object, true).await?;
                api.apply(&object, false).await
            });
        }
        while let Some(applied) = objects.join_next().await {
            applied??;
        }
        Ok(begin.elapsed())
    }

    /// Resolves once `wanted` ConfigMaps whose names begin with `prefix` were seen with `value`.
    fn count(
        &self,
        namespace: &str,
        prefix: &str,
        value: &str,
        wanted: usize,
    ) -> impl Future<Output = Result<()>> + use<> {
        let (prefix, value) = (format!("{prefix}-"), value.to_owned());
        let mut seen = HashSet::new();
        self.watch(&format!("/api/v1/namespaces/{namespace}/configmaps"), move |object| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if object["data"]["value"] == value && name.starts_with(&prefix) {
                seen.insert(name.to_owned());
            }
            seen.len() >= wanted
        })
    }

    /// Resolves once the hub has an artifact of this commit.
    fn fetched(&self, name: &str, commit: String) -> impl Future<Output = Result<()>> + use<> {
        let name = name.to_owned();
        self.watch(SOURCES, move |source| {
            let revision = source["status"]["artifact"]["revision"].as_str().unwrap_or_default();
            source["metadata"]["name"] == name && revision.ends_with(&commit)
        })
    }

    /// Resolves once an object of a collection has come of which `is_last` says so.
    fn watch<F>(&self, path: &str, mut is_last: F) -> impl Future<Output = Result<()>> + use<F>
    where
        F: FnMut(&Value) -> bool + Send + 'static,
    {
        let request = self.request(reqwest::Method::GET, &format!("{path}?watch=true&timeoutSeconds=300"));
        // Begun at once: the watch is open before what it is to see begins.
        let task = tokio::spawn(async move {
            let mut lines = request.send().await?.error_for_status()?.bytes_stream();
            let mut buffer = Vec::new();
            while let Some(chunk) = lines.next().await {
                buffer.extend_from_slice(&chunk?);
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line)?;
                    if is_last(&event["object"]) {
                        return Ok(());
                    }
                }
            }
            bail!("the watch ended before its time")
        });
        async move { task.await? }
    }
}

struct Figures {
    best: Duration,
    median: Duration,
    worst: Duration,
}

impl Figures {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self { best: all[0], median: all[all.len() / 2], worst: all[all.len() - 1] }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = |time: Duration| time.as_millis();
        write!(
            f,
            "{} ms (best {}, worst {} of {ROUNDS})",
            millis(self.median),
            millis(self.best),
            millis(self.worst)
        )
    }
}

/// `VmRSS` and `VmHWM` of a process.
fn memory(pid: u32) -> Result<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("read a process's status")?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default() / 1024.0
    };
    Ok(format!("VmRSS {:.1} MiB, VmHWM {:.1} MiB", field("VmRSS:"), field("VmHWM:")))
}
