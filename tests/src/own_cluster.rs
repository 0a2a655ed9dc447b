//! A cluster of one test, for what the other tests' clusters must not see: parts that are killed, data that are put back, groups that
//! cannot be served.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cluster::TestCluster;
use crate::given::variable;
use crate::kubectl::Kubectl;
use crate::process::{copy_folder, kill9};
use crate::unique::unique;

/// Where they lie in the run's folder for temporary files; the run takes down what is left there.
const FOLDER: &str = "clusters";

/// A part of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The API server.
    Apiserver,
    /// Its database.
    Etcd,
}

impl Component {
    fn name(self) -> &'static str {
        match self {
            Self::Apiserver => "kube-apiserver",
            Self::Etcd => "etcd",
        }
    }
}

/// A cluster without nodes. It goes with the value.
#[derive(Debug)]
pub struct OwnCluster {
    name: String,
    kubeconfig: PathBuf,
}

/// What etcd had.
#[derive(Debug)]
pub struct EtcdBackup(PathBuf);

impl OwnCluster {
    /// Starts one, which takes some seconds.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(prefix: &str) -> Result<Self> {
        Self::start_with(prefix, &[]).await
    }

    /// The same with an apiserver that notes each request in its [audit log](Self::audit_log).
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_audited(prefix: &str) -> Result<Self> {
        Self::start_with(prefix, &["--audit"]).await
    }

    async fn start_with(prefix: &str, options: &[&str]) -> Result<Self> {
        let mut cluster = Self { name: unique(prefix), kubeconfig: PathBuf::new() };
        cluster.kubeconfig = cluster.up_with(options).await?;
        Ok(cluster)
    }

    /// Where the apiserver of a cluster that [has one](Self::start_audited) notes its requests, a JSON object a line.
    ///
    /// # Errors
    /// When the cluster has no folder.
    pub fn audit_log(&self) -> Result<PathBuf> {
        Ok(self.folder()?.join("logs/audit.log"))
    }

    /// As tests use the run's clusters.
    ///
    /// # Errors
    /// When there is no kubectl.
    pub fn as_test_cluster(&self) -> Result<TestCluster> {
        Ok(TestCluster::of(Kubectl::new(&self.kubeconfig)?))
    }

    /// Kills a part (SIGKILL). It stays away until [`Self::up`].
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill9(&self, component: Component) -> Result<()> {
        let path = self.folder()?.join("cluster.json");
        let state = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let state: Value = serde_json::from_slice(&state).context("read a cluster's state")?;
        let pid = state["pids"][component.name()].as_u64().and_then(|pid| pid.try_into().ok());
        kill9(pid.context("a pid")?).with_context(|| format!("kill {}", component.name()))
    }

    /// Starts again what does not run, and gives the administrator's kubeconfig.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn up(&self) -> Result<PathBuf> {
        self.up_with(&[]).await
    }

    /// What a cluster is started with the first time it keeps.
    async fn up_with(&self, options: &[&str]) -> Result<PathBuf> {
        let line = [&["up", &self.name, "--no-nodes"], options].concat();
        let mut command = tokio::process::Command::from(devcluster(&line)?);
        let output = command.output().await.context("start a cluster")?;
        if !output.status.success() {
            bail!("start a cluster: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    }

    /// Copies what etcd has; nothing of the control plane runs meanwhile.
    ///
    /// # Errors
    /// When it cannot be stopped, copied or started.
    pub async fn back_up(&self) -> Result<EtcdBackup> {
        self.stop_storage()?;
        let backup = self.folder()?.join("etcd-backup");
        copy_folder(&self.folder()?.join("etcd"), &backup)?;
        self.up().await?;
        Ok(EtcdBackup(backup))
    }

    /// Puts back what etcd had.
    ///
    /// # Errors
    /// When it cannot be stopped, copied or started.
    pub async fn restore(&self, backup: EtcdBackup) -> Result<()> {
        self.stop_storage()?;
        let data = self.folder()?.join("etcd");
        std::fs::remove_dir_all(&data).context("remove what etcd has")?;
        copy_folder(&backup.0, &data)?;
        self.up().await.map(|_| ())
    }

    fn stop_storage(&self) -> Result<()> {
        self.kill9(Component::Apiserver)?;
        self.kill9(Component::Etcd)
    }

    fn folder(&self) -> Result<&Path> {
        self.kubeconfig.parent().context("a kubeconfig lies in its cluster's folder")
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        if let Ok(mut command) = devcluster(&["down", &self.name]) {
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

fn devcluster(args: &[&str]) -> Result<Command> {
    let program = PathBuf::from(variable("ROADSTEAD_TEST_KUBECTL")?).with_file_name("devcluster");
    let mut command = Command::new(program);
    command.args(args).arg("--state-dir").arg(std::env::temp_dir().join(FOLDER));
    Ok(command)
}
