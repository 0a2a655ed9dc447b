//! A real source-controller of Flux, for one namespace of a cluster.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::cluster::TestCluster;
use crate::given::{flux, folder};
use crate::kubectl::Kubectl;
use crate::process::Process;
use crate::unique::free_port;
use crate::wait::eventually;

/// How long a controller may take to start while others build.
const START: Duration = Duration::from_secs(120);

/// A source-controller that works on the sources of one namespace.
pub struct FluxSources {
    kubectl: Kubectl,
    namespace: String,
    folder: TempDir,
    process: Process,
}

impl FluxSources {
    /// Installs Flux's kinds in the cluster, where they are not, and starts the controller.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(cluster: &TestCluster, namespace: &str) -> Result<Self> {
        let installed = flux()?;
        let kubectl = cluster.kubectl().clone();
        let crds = installed.join("crds.yaml").display().to_string();
        kubectl.run(&["apply", "--server-side", "--force-conflicts", "-f", &crds]).await?;
        kubectl.run(&["wait", "--for=condition=Established", "--timeout=60s", "-f", &crds]).await?;
        let folder = folder()?;
        let (health, metrics, storage) = (free_port()?, free_port()?, free_port()?);
        let (home, files) = (folder.path().join("home"), folder.path().join("storage"));
        for made in [&home, &files] {
            std::fs::create_dir(made).context("make a folder for a controller")?;
        }
        let mut command = Command::new(installed.join("bin/source-controller"));
        command
            .env_clear()
            .env("HOME", &home)
            .env("TMPDIR", &home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("KUBECONFIG", kubectl.kubeconfig())
            .env("RUNTIME_NAMESPACE", namespace)
            .args(["--watch-all-namespaces=false", "--events-addr=", "--requeue-dependency=5s"])
            // Nothing of what is compared is to go away before that.
            .args(["--artifact-retention-ttl=1h", "--artifact-retention-records=100"])
            .arg(format!("--storage-path={}", files.display()))
            .arg(format!("--storage-addr=127.0.0.1:{storage}"))
            .arg(format!("--storage-adv-addr=127.0.0.1:{storage}"))
            .arg(format!("--health-addr=127.0.0.1:{health}"))
            .arg(format!("--metrics-addr=127.0.0.1:{metrics}"));
        let process = Process::start("source-controller", &mut command, &folder.path().join("log"))?;
        let controller = Self { kubectl, namespace: namespace.to_owned(), folder, process };
        for port in [health, storage] {
            eventually("the controller listens", START, || async {
                Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.map(|_| ())?)
            })
            .await
            .with_context(|| controller.process.logs())?;
        }
        Ok(controller)
    }

    /// kubectl on the cluster that it works on.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// A line of kubectl on that cluster, in the controller's namespace.
    ///
    /// # Errors
    /// What it prints on stderr, when it fails.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.kubectl.run(&[args, &["--namespace", &self.namespace]].concat()).await
    }

    /// The file of the artifact that a source's status names.
    ///
    /// # Errors
    /// When there is none.
    pub fn artifact(&self, source: &Value) -> Result<Vec<u8>> {
        let path = source["status"]["artifact"]["path"].as_str().context("it has no artifact")?;
        let file = self.folder.path().join("storage").join(path);
        std::fs::read(&file).with_context(|| format!("read {}", file.display()))
    }

    /// All that it has printed.
    #[must_use]
    pub fn logs(&self) -> String {
        self.process.logs()
    }
}
