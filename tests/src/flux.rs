//! A real kustomize-controller of Flux, for one namespace of a cluster, and the artifacts that it applies.
//!
//! Its source is made by hand: of a GitRepository the controller reads `status.artifact` alone, which leads to a server of the kit.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::cluster::TestCluster;
use crate::fleet::PATIENCE;
use crate::given::{flux, folder};
use crate::kubectl::Kubectl;
use crate::process::Process;
use crate::unique::{free_port, unique};
use crate::wait::eventually;

/// How long a controller may take that compiles CRDs' schemas into its caches while others build.
const START: Duration = Duration::from_secs(120);

/// A kustomize-controller that works on the Kustomizations of one namespace.
pub struct FluxController {
    kubectl: Kubectl,
    namespace: String,
    folder: TempDir,
    artifacts: Artifacts,
    process: Process,
}

impl FluxController {
    /// Installs Flux's kinds in the cluster, where they are not, and starts the controller with an empty GitRepository `flux`.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(cluster: &TestCluster, namespace: &str) -> Result<Self> {
        Self::start_telling(cluster, namespace, "").await
    }

    /// The same with an address that it tells its events to.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_telling(cluster: &TestCluster, namespace: &str, events: &str) -> Result<Self> {
        let installed = flux()?;
        let kubectl = cluster.kubectl().clone();
        let crds = installed.join("crds.yaml").display().to_string();
        kubectl.run(&["apply", "--server-side", "--force-conflicts", "-f", &crds]).await?;
        kubectl.run(&["wait", "--for=condition=Established", "--timeout=60s", "-f", &crds]).await?;
        let (folder, artifacts) = (folder()?, Artifacts::serve().await?);
        let (health, metrics) = (free_port()?, free_port()?);
        let mut command = Command::new(installed.join("bin/kustomize-controller"));
        let home = folder.path().join("home");
        std::fs::create_dir(&home).context("make a home for a controller")?;
        command
            .env_clear()
            .env("HOME", &home)
            .env("TMPDIR", &home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("KUBECONFIG", kubectl.kubeconfig())
            .env("RUNTIME_NAMESPACE", namespace)
            .args(["--watch-all-namespaces=false", "--requeue-dependency=5s"])
            .arg(format!("--events-addr={events}"))
            .arg(format!("--health-addr=127.0.0.1:{health}"))
            .arg(format!("--metrics-addr=127.0.0.1:{metrics}"));
        let process = Process::start("kustomize-controller", &mut command, &folder.path().join("log"))?;
        let controller = Self { kubectl, namespace: namespace.to_owned(), folder, artifacts, process };
        eventually("the controller listens", START, || async {
            Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, health)).await.map(|_| ())?)
        })
        .await
        .with_context(|| controller.process.logs())?;
        Ok(controller)
    }

    /// All that it has printed.
    #[must_use]
    pub fn logs(&self) -> String {
        self.process.logs()
    }

    /// Has the GitRepository `flux` offer these files, by their names, as its newest revision.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn push(&self, files: &[(&str, String)]) -> Result<String> {
        let (name, digest, size) = self.pack(files.iter().map(|(name, text)| (*name, text.as_str())))?;
        let revision = format!("main@sha1:{}", &digest[..40]);
        self.source("flux").await?;
        self.offer("flux", &revision, &name, &digest, size).await?;
        Ok(revision)
    }

    /// The same for a GitRepository of another name, which must be there, and a revision of the caller's.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn push_to(
        &self,
        source: &str,
        revision: &str,
        files: &BTreeMap<String, String>,
    ) -> Result<()> {
        let (name, digest, size) =
            self.pack(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))?;
        self.offer(source, revision, &name, &digest, size).await
    }

    /// Writes a GitRepository, which has no artifact until one is pushed.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn source(&self, name: &str) -> Result<()> {
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "interval": "1h", "url": "https://git.example/flux" },
        });
        self.kubectl.run_with(&["apply", "--server-side", "-f", "-"], &source.to_string()).await.map(drop)
    }

    /// Packs files and serves them; gives the artifact's name, its SHA-256, and its size.
    fn pack<'a>(&self, files: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(String, String, usize)> {
        let at = self.folder.path().join(unique("tree"));
        std::fs::create_dir(&at).context("make a folder for an artifact")?;
        for (name, text) in files {
            let file = at.join(name);
            let parent = file.parent().context("a file of a folder")?;
            std::fs::create_dir_all(parent).context("make a folder of an artifact")?;
            std::fs::write(&file, text).context("write a file of an artifact")?;
        }
        self.artifacts.add(&at)
    }

    /// Writes an artifact into a GitRepository's status, as source-controller does.
    async fn offer(&self, source: &str, revision: &str, name: &str, digest: &str, size: usize) -> Result<()> {
        let status = json!({ "status": {
            "observedGeneration": 1,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact",
                             "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 }],
            "artifact": {
                "digest": format!("sha256:{digest}"), "path": name, "url": format!("{}/{name}", self.artifacts.url()),
                "revision": revision, "size": size, "lastUpdateTime": "2026-01-01T00:00:00Z",
            },
        } });
        let (object, patch) = (format!("gitrepository/{source}"), status.to_string());
        let args = ["patch", &object, "--subresource=status", "--type=merge", "-p", &patch];
        self.run(&args).await.map(drop)
    }

    /// Writes a Kustomization of Flux for all that the source offers, which prunes; `more` are further lines of its spec.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn kustomization(&self, name: &str, more: &[&str]) -> Result<()> {
        let manifest = format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: {}}}\nspec:\n  \
             interval: 1h\n  prune: true\n  sourceRef: {{kind: GitRepository, name: flux}}\n  {}\n",
            self.namespace,
            more.join("\n  ")
        );
        self.kubectl.run_with(&["apply", "--server-side", "-f", "-"], &manifest).await.map(drop)
    }

    /// Waits until a Kustomization of Flux has applied a revision and says so.
    ///
    /// # Errors
    /// When it has not in time.
    pub async fn applied(&self, name: &str, revision: &str) -> Result<Value> {
        let what = format!("Flux has applied {revision} by {name}");
        let applied = eventually(&what, PATIENCE, || async {
            let seen = self.get(name).await?;
            let conditions = seen["status"]["conditions"].as_array().into_iter().flatten();
            let is_ready =
                conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            let applied = &seen["status"]["lastAppliedRevision"];
            ensure!(is_ready && applied == revision, "its status is {:#}", seen["status"]);
            Ok(seen)
        });
        applied.await.with_context(|| self.logs())
    }

    /// `flux reconcile`: asks for a reconciliation, and waits until it was made.
    ///
    /// # Errors
    /// When it was not in time.
    pub async fn reconcile(&self, name: &str) -> Result<()> {
        let at = unique("asked");
        let object = format!("kustomizations.kustomize.toolkit.fluxcd.io/{name}");
        let annotation = format!("reconcile.fluxcd.io/requestedAt={at}");
        self.run(&["annotate", "--overwrite", &object, &annotation]).await?;
        let made = eventually("Flux has reconciled", PATIENCE, || async {
            let handled = self.get(name).await?["status"]["lastHandledReconcileAt"].clone();
            ensure!(handled == at, "the last request that was handled is {handled}");
            Ok(())
        });
        made.await.with_context(|| self.logs())
    }

    /// `flux suspend`, and `flux resume`.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn suspend(&self, name: &str, suspend: bool) -> Result<()> {
        let object = format!("kustomizations.kustomize.toolkit.fluxcd.io/{name}");
        let patch = json!({ "spec": { "suspend": suspend } }).to_string();
        self.run(&["patch", &object, "--type=merge", "-p", &patch]).await.map(drop)
    }

    /// Deletes a Kustomization of Flux, and waits until the controller has let it go.
    ///
    /// # Errors
    /// When it has not in time.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let object = format!("kustomizations.kustomize.toolkit.fluxcd.io/{name}");
        self.run(&["delete", &object, "--timeout=60s"]).await.map(drop).with_context(|| self.logs())
    }

    /// A Kustomization of Flux.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get(&self, name: &str) -> Result<Value> {
        let object = format!("kustomizations.kustomize.toolkit.fluxcd.io/{name}");
        let text = self.run(&["get", &object, "-o", "json"]).await?;
        serde_json::from_str(&text).context("read a Kustomization")
    }

    /// A line of kubectl on the controller's cluster, in its namespace.
    ///
    /// # Errors
    /// What it prints on stderr, when it fails.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.kubectl.run(&[args, &["--namespace", &self.namespace]].concat()).await
    }
}

/// A server of artifacts, over HTTP on this machine.
struct Artifacts {
    port: u16,
    served: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    task: JoinHandle<()>,
}

impl Artifacts {
    async fn serve() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen")?;
        let port = listener.local_addr().context("a port")?.port();
        let served: Arc<Mutex<BTreeMap<String, Vec<u8>>>> = Arc::default();
        let files = Arc::clone(&served);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let files = Arc::clone(&files);
                // Who goes away in the middle asks again.
                tokio::spawn(async move { answer(stream, &files).await.ok() });
            }
        });
        Ok(Self { port, served, task })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Packs a folder and serves it; gives its name, the SHA-256 of it, and its size.
    fn add(&self, folder: &Path) -> Result<(String, String, usize)> {
        let mut packed: PathBuf = folder.to_owned();
        packed.set_extension("tar.gz");
        let status = Command::new("tar").arg("-czf").arg(&packed).arg("-C").arg(folder).arg(".").status();
        ensure!(status.context("run tar")?.success(), "tar has failed");
        let summed = Command::new("sha256sum").arg(&packed).output().context("run sha256sum")?;
        let summed = String::from_utf8(summed.stdout).context("read a sum")?;
        let digest = summed.split(' ').next().context("a sum")?.to_owned();
        let bytes = std::fs::read(&packed).context("read an artifact")?;
        let (name, size) = (format!("{digest}.tar.gz"), bytes.len());
        self.served.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), bytes);
        Ok((name, digest, size))
    }
}

impl Drop for Artifacts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one request; each has a connection of its own.
async fn answer(mut stream: TcpStream, files: &Mutex<BTreeMap<String, Vec<u8>>>) -> Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let mut more = [0; 1024];
        let count = stream.read(&mut more).await?;
        ensure!(count > 0 && head.len() < 64 * 1024, "no request");
        head.extend_from_slice(&more[..count]);
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
    let found = files.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
    let (status, body) = found.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.write_all(&body).await?;
    Ok(stream.shutdown().await?)
}
