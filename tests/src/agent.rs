//! The real agent.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::cluster::{TestCluster, TestNamespace};
use crate::given::binary;
use crate::hub::HubProcess;
use crate::process::Process;
use crate::proxy::Proxy;
use crate::unique::unique;

/// A running agent. As a [`Process`] it can be killed, ended and asked for its log; dropping it kills it.
#[derive(Debug)]
pub struct AgentProcess {
    process: Process,
    name: String,
    folder: PathBuf,
    start: Start,
    /// Where it keeps its identity: one for each test, since the clusters are shared.
    namespace: TestNamespace,
}

impl AgentProcess {
    /// Creates the Cluster `name` on the hub, gets a join token for it and starts an agent with that.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn join(hub: &HubProcess, name: &str, cluster: &TestCluster) -> Result<Self> {
        let join = hub.folder().join(format!("{}.yaml", unique("join")));
        std::fs::write(&join, Self::invited(hub, name).await?).context("write the join manifest")?;
        Self::start(hub, name, cluster, join)
    }

    /// The same, with its link through `link`.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn join_through(
        hub: &HubProcess,
        name: &str,
        cluster: &TestCluster,
        link: &Proxy,
    ) -> Result<Self> {
        let text = Self::invited(hub, name).await?;
        let mut secret: Value = serde_json::from_str(&text).context("a join manifest is JSON")?;
        secret["data"]["link"] = STANDARD.encode(link.address()).into();
        let join = hub.folder().join(format!("{}.json", unique("join")));
        std::fs::write(&join, secret.to_string()).context("write the join manifest")?;
        Self::start(hub, name, cluster, join)
    }

    /// Starts an agent with a join manifest that the test has made.
    ///
    /// # Errors
    /// When it cannot be started; that it joins is not waited for.
    pub fn start(hub: &HubProcess, name: &str, cluster: &TestCluster, join: PathBuf) -> Result<Self> {
        Self::start_logging(hub, name, cluster, join, None)
    }

    /// The same with a `RUST_LOG` of its own.
    ///
    /// # Errors
    /// When it cannot be started; that it joins is not waited for.
    pub fn start_logging(
        hub: &HubProcess,
        name: &str,
        cluster: &TestCluster,
        join: PathBuf,
        level: Option<&str>,
    ) -> Result<Self> {
        let access = Access::Administrator(cluster.clone());
        let level = level.map(str::to_owned);
        let start = Start { join: Some(join), access, level, env: Vec::new(), program: None };
        Self::run(hub, name, start, cluster.later_namespace("agent"))
    }

    /// Starts the agent that a hub has installed in `namespace`: with the credentials of the ServiceAccount that is
    /// there and with the join Secret that is there, as the Deployment would run it, and with nothing else.
    ///
    /// # Errors
    /// When there is no such ServiceAccount, or it cannot be started; that it joins is not waited for.
    pub async fn installed(
        hub: &HubProcess,
        name: &str,
        cluster: &TestCluster,
        namespace: TestNamespace,
    ) -> Result<Self> {
        let admin = cluster.kubectl();
        let token = admin
            .run(&["create", "token", "roadstead-agent", "-n", namespace.name(), "--duration=1h"])
            .await?;
        let text = admin.run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
        let mut config: Value = serde_json::from_str(&text).context("read a kubeconfig")?;
        config["users"][0]["user"] = serde_json::json!({ "token": token.trim() });
        let kubeconfig = hub.folder().join(format!("{}.kubeconfig", unique("installed")));
        std::fs::write(&kubeconfig, config.to_string()).context("write a kubeconfig")?;
        let access = Access::File(kubeconfig);
        let start = Start { join: None, access, level: None, env: Vec::new(), program: None };
        Self::run(hub, name, start, namespace)
    }

    fn run(hub: &HubProcess, name: &str, start: Start, namespace: TestNamespace) -> Result<Self> {
        let (name, folder) = (name.to_owned(), hub.folder().to_owned());
        let process = start.spawn(&name, &folder, namespace.name())?;
        Ok(Self { process, name, folder, start, namespace })
    }

    /// As [`Self::join`], with variables in the agent's environment.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn join_with_env(
        hub: &HubProcess,
        name: &str,
        cluster: &TestCluster,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let join = hub.folder().join(format!("{}.json", unique("join")));
        std::fs::write(&join, Self::invited(hub, name).await?).context("write the join manifest")?;
        let access = Access::Administrator(cluster.clone());
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let start = Start { join: Some(join), access, level: None, env, program: None };
        Self::run(hub, name, start, cluster.later_namespace("agent"))
    }

    /// Creates the Cluster `name` on the hub, to which every namespace may deploy, and gives its join manifest.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn invited(hub: &HubProcess, name: &str) -> Result<String> {
        let cluster = format!(
            "apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec: {{access: [{{namespace: '*', \
             agentRights: true}}]}}\n"
        );
        hub.kubectl().apply(&cluster).await?;
        Self::token(hub, name).await
    }

    /// The join manifest for a Cluster, by `roadstead cluster join`.
    ///
    /// # Errors
    /// What the command prints, when the hub refuses.
    pub async fn token(hub: &HubProcess, name: &str) -> Result<String> {
        let mut command = tokio::process::Command::new(binary("roadstead")?);
        command
            .args(["cluster", "join", name, "--secret-only", "-o", "json"])
            .env("KUBECONFIG", hub.kubectl().kubeconfig());
        let output = command.kill_on_drop(true).output().await.context("run roadstead cluster join")?;
        if !output.status.success() {
            bail!("roadstead cluster join {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("a join manifest is UTF-8")
    }

    /// Starts it again as it was, after it was killed or ended: it finds its identity in its cluster.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
    pub fn restart(&mut self) -> Result<()> {
        if self.process.ended()?.is_none() {
            bail!("the agent {} still runs", self.name);
        }
        self.process = self.start.spawn(&self.name, &self.folder, self.namespace.name())?;
        Ok(())
    }

    /// The same with another environment of its own.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
    pub fn restart_with_env(&mut self, env: &[(&str, &str)]) -> Result<()> {
        self.start.env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.restart()
    }

    /// The same with the program of another version; none: with this version's.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
    pub fn restart_as(&mut self, program: Option<PathBuf>) -> Result<()> {
        self.start.program = program;
        self.restart()
    }

    /// The same with another join manifest.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
    pub fn restart_with_join(&mut self, join: PathBuf) -> Result<()> {
        self.start.join = Some(join);
        self.restart()
    }

    /// The same without one: it looks for the join Secret in its cluster.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
    pub fn restart_without_join(&mut self) -> Result<()> {
        self.start.join = None;
        self.restart()
    }

    /// The namespace in its cluster where it keeps its identity.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }
}

/// With what an agent is started.
#[derive(Debug)]
struct Start {
    /// None where the join Secret is in its cluster.
    join: Option<PathBuf>,
    access: Access,
    /// `RUST_LOG`, where the test wants another than the agent's own.
    level: Option<String>,
    env: Vec<(String, String)>,
    /// None for this version's.
    program: Option<PathBuf>,
}

/// By which kubeconfig an agent reaches its cluster.
#[derive(Debug)]
enum Access {
    /// The administrator's. Where the test made the file, it goes with the value.
    Administrator(TestCluster),
    /// A file in the hub's folder.
    File(PathBuf),
}

impl Access {
    fn kubeconfig(&self) -> &std::path::Path {
        match self {
            Self::Administrator(cluster) => cluster.kubectl().kubeconfig(),
            Self::File(path) => path,
        }
    }
}

impl Start {
    fn spawn(&self, name: &str, folder: &std::path::Path, namespace: &str) -> Result<Process> {
        let program = self.program.clone().map_or_else(|| binary("roadstead-agent"), Ok)?;
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(self.access.kubeconfig()).args(["--namespace", namespace]);
        if let Some(join) = &self.join {
            command.arg("--join").arg(join);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(level) = &self.level {
            command.env("RUST_LOG", level);
        }
        Process::start(&format!("agent {name}"), &mut command, &folder.join(format!("{namespace}.log")))
    }
}

impl Deref for AgentProcess {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for AgentProcess {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
